//! Tests of the warehouse.

use super::*;
use alloc::collections::BTreeMap;

fn warehouse() -> Warehouse {
    Warehouse::new(100..1124, 8192)
}

#[test]
fn tables_do_not_overlap_and_rows_fit_in_their_table() {
    let all = warehouse();
    let tables =
        [&all.customers, &all.stock, &all.lines, &all.items, &all.orders, &all.history, &all.warehouse];
    let roots = tables.map(Table::root);
    assert_eq!(roots[0], 100);
    for (table, end) in tables.into_iter().zip(roots.into_iter().skip(1).chain([1124])) {
        let (first, last) = (table.find(0), table.find(table.rows - 1));
        assert_eq!(first.index, (table.root() + 1, 0));
        assert!(last.index.0 < first.row.0 && last.row.0 < end && last.row.1 + table.row_bytes <= 8192);
    }
    // Stock has 38 % of the bytes of rows and entries.
    let share = (all.lines.root() - all.stock.root()) * 100 / 1024;
    assert!((36..=40).contains(&share), "{share}");
}

#[test]
fn nurand_is_skewed_as_the_standard_defines() {
    let (mut rng, mut seen) = (Rng::new(3), [0u32; 3000]);
    (0..300_000).for_each(|_| seen[skewed(&mut rng, 3000, 3) as usize] += 1);
    seen.sort_unstable();
    let hottest: u32 = seen.iter().rev().take(300).sum();
    // A uniform distribution would give a tenth; computed from the definition, with C = 0: 61 %.
    assert!((180_000..190_000).contains(&hottest), "{hottest}");
}

#[test]
fn transactions_touch_rows_in_the_proportions_of_the_mix() {
    let (mut all, mut rng) = (warehouse(), Rng::new(1));
    let mut touched: BTreeMap<(u64, &str), u64> = BTreeMap::new();
    for _ in 0..10_000 {
        let kind = |access| match access {
            RowAccess::Read => "read",
            RowAccess::Change => "change",
            RowAccess::Insert => "insert",
        };
        all.transaction(&mut rng, |table, row, access| {
            assert!(row < table.rows);
            *touched.entry((table.root(), kind(access))).or_default() += 1;
            Ok(())
        })
        .unwrap();
    }
    let of = |table: &Table, kind| touched.get(&(table.root(), kind)).copied().unwrap_or(0);
    // 45 % of transactions insert an order and ten lines, and read as many items and change their stock.
    assert!(of(&all.orders, "insert").abs_diff(4_500) < 150);
    assert!(of(&all.lines, "insert").abs_diff(45_000) < 1_500);
    assert_eq!(of(&all.items, "read"), of(&all.stock, "change"));
    assert!(of(&all.history, "insert").abs_diff(4_300) < 150);
    // 4 % read the stock of 200 lines.
    assert!(of(&all.stock, "read").abs_diff(80_000) < 15_000);
}
