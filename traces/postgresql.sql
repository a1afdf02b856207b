create table shop (id int primary key, kind int, name text, price numeric);
insert into shop select i, i % 40, 'article ' || i || repeat('x', 60), (i * 7919 % 1000) / 10.0 from generate_series(1, 3000 * :scale) i;
create index shop_kind on shop (kind);
analyze shop;
select count(*), sum(price) from shop where kind = 7;
update shop set price = price + 1 where kind in (3, 5);
select a.kind, count(*), max(b.price) from shop a join shop b on a.kind = b.kind where a.id < 300 group by a.kind order by 3 desc limit 5;
delete from shop where id % 10 = 0;
select count(distinct name) from shop;
