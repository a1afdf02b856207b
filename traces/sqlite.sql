-- A shop: 9,000 articles of 2 KiB, written in one transaction, indexed, looked up with skew, changed, scanned.
PRAGMA page_size=4096;
PRAGMA journal_mode=WAL;
PRAGMA cache_size=-12000;
PRAGMA mmap_size=268435456;
CREATE TABLE item(id INTEGER PRIMARY KEY, owner INT, kind INT, price REAL, name TEXT, body BLOB);
BEGIN;
INSERT INTO item
  SELECT value, value*7919%3000, value%17, value*31%1000/10.0, 'item '||(value*2654435761%1000003), zeroblob(1900)
  FROM generate_series(1, 9000);
COMMIT;
CREATE INDEX item_owner ON item(owner);
CREATE INDEX item_name ON item(name);
-- 9 of 10 look-ups go to a tenth of the articles.
SELECT count(*), sum(length(body)) FROM generate_series(1, 12000) AS s JOIN item
  ON item.id = CASE WHEN s.value%10 THEN s.value*7919%900+1 ELSE s.value*6007%9000+1 END;
BEGIN;
UPDATE item SET price = price*1.1, body = zeroblob(1800) WHERE owner%25 = 3;
COMMIT;
SELECT kind, count(*), avg(price), sum(length(body)) FROM item GROUP BY kind ORDER BY 3;
SELECT count(*), sum(length(body)) FROM generate_series(1, 9000) AS s JOIN item
  ON item.id = CASE WHEN s.value%10 THEN s.value*7907%900+4501 ELSE s.value*6011%9000+1 END;
DELETE FROM item WHERE kind = 5;
SELECT owner, max(length(body)) FROM item GROUP BY owner ORDER BY owner DESC LIMIT 5;
SELECT count(*) FROM item WHERE length(body) > 1850 AND instr(name, '99');
PRAGMA wal_checkpoint(TRUNCATE);
