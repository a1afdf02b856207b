use super::*;
use proptest::prelude::*;
use std_alloc::collections::BTreeMap;
use std_alloc::vec::Vec;

/// Entry and marks (dirty, writeback, towrite).
type Model = BTreeMap<u64, (Entry, [bool; 3])>;

const SETTABLE: [Mark; 3] = [Mark::Dirty, Mark::Writeback, Mark::ToWrite];

fn has(model: &(Entry, [bool; 3]), mark: Mark) -> bool {
    match mark as usize {
        kind @ 0..3 => model.0.kind() as usize == kind,
        mark => model.1[mark - 3],
    }
}

fn entry(kind: u8, value: u32) -> Entry {
    match kind {
        0 => Entry::Folio(Pfn(value)),
        1 => Entry::Shadow(Shadow(u64::MAX - value as u64)),
        _ => Entry::Swap(SwapSlot(value)),
    }
}

/// Indices near each other, far apart, and at the very end.
fn index() -> impl Strategy<Value = u64> {
    prop_oneof![
        0u64..200,
        (0u64..4).prop_map(|n| n << 18),
        0u64..1 << 20,
        (0u64..3).prop_map(|n| u64::MAX - n)
    ]
}

proptest! {
    #[test]
    fn tree_is_a_map_with_marks(
        ops in prop::collection::vec((0u8..8, index(), 0u8..3, 0u32..1000), 0..300),
    ) {
        let (mut tree, mut model) = (PageTree::new(), Model::new());
        let mut leaves = 0;
        for (op, index, n, value) in ops {
            let at = PageIndex(index);
            match op {
                0..3 => {
                    let new = entry(n, value);
                    let old = model.insert(index, (new, [false; 3])).map(|(old, _)| old);
                    prop_assert_eq!(tree.insert(at, new), old);
                }
                3 => prop_assert_eq!(tree.remove(at), model.remove(&index).map(|(old, _)| old)),
                4 => if let Some((Entry::Folio(_), marks)) = model.get_mut(&index) {
                    marks[n as usize] = true;
                    tree.set_mark(at, SETTABLE[n as usize]);
                },
                5 => {
                    if let Some((_, marks)) = model.get_mut(&index) { marks[n as usize] = false }
                    tree.clear_mark(at, SETTABLE[n as usize]);
                }
                6 => {
                    let range = index..index.saturating_add(value as u64);
                    let mark = ALL_MARKS[(value % 6) as usize];
                    let found: Vec<_> = tree.iter(mark, range.clone()).map(|(i, e)| (i.0, e)).collect();
                    let expected: Vec<_> =
                        model.range(range).filter(|(_, m)| has(m, mark)).map(|(&i, m)| (i, m.0)).collect();
                    prop_assert_eq!(found, expected);
                }
                _ => {
                    let m = model.get(&index);
                    prop_assert_eq!(tree.get(at), m.map(|m| m.0));
                    for mark in ALL_MARKS {
                        prop_assert_eq!(tree.has_mark(at, mark), m.is_some_and(|m| has(m, mark)));
                    }
                }
            }
            tree.validate().unwrap();
            leaves += tree.take_news().change;
            prop_assert_eq!(leaves as u64, tree.count_shadow_leaves());
            let kinds = |kind| model.values().filter(|m| has(m, kind)).count() as u64;
            prop_assert_eq!(tree.folios(), kinds(Mark::Folio));
            prop_assert_eq!(tree.shadows(), kinds(Mark::Shadow));
            prop_assert_eq!(tree.swapped(), kinds(Mark::Swap));
        }
        for index in model.into_keys() {
            tree.remove(PageIndex(index));
        }
        tree.validate().unwrap();
        prop_assert_eq!(tree.root, NONE);
    }
}

#[test]
fn a_leaf_of_shadows_is_told_and_dropped() {
    let mut tree = PageTree::new();
    tree.insert(PageIndex(100), Entry::Folio(Pfn(1)));
    tree.insert(PageIndex(101), Entry::Shadow(Shadow(7)));
    assert_eq!(tree.take_news(), News::default());
    tree.insert(PageIndex(100), Entry::Shadow(Shadow(8)));
    let news = tree.take_news();
    assert_eq!(news.change, 1);
    let leaf = news.leaf.unwrap();
    assert_eq!(tree.drop_shadow_leaf(leaf), 2);
    assert_eq!((tree.take_news().change, tree.shadows(), tree.drop_shadow_leaf(leaf)), (-1, 0, 0));
    tree.validate().unwrap();
}

#[test]
fn a_leaf_that_was_used_again_keeps_its_shadows() {
    let mut tree = PageTree::new();
    tree.insert(PageIndex(0), Entry::Shadow(Shadow(1)));
    let old = tree.take_news().leaf.unwrap();
    tree.insert(PageIndex(1), Entry::Folio(Pfn(1)));
    assert_eq!(tree.drop_shadow_leaf(old), 0);
    tree.insert(PageIndex(1), Entry::Shadow(Shadow(2)));
    assert_eq!(tree.drop_shadow_leaf(old), 0);
    assert_eq!(tree.shadows(), 2);
}
