use super::*;
use crate::units::Pfn;
use proptest::prelude::*;
use std_alloc::collections::BTreeMap;
use std_alloc::vec::Vec;

/// Entry and marks (dirty, writeback, towrite).
type Model = BTreeMap<u64, (TreeEntry, [bool; 3])>;

const SETTABLE: [TreeMark; 3] = [TreeMark::Dirty, TreeMark::Writeback, TreeMark::ToWrite];

fn has(model: &(TreeEntry, [bool; 3]), mark: TreeMark) -> bool {
    match mark as usize {
        kind @ 0..3 => model.0.kind() as usize == kind,
        mark => model.1[mark - 3],
    }
}

fn entry(kind: u8, value: u32) -> TreeEntry {
    match kind {
        0 => TreeEntry::Folio(CachedFolio::single(Pfn(value))),
        1 => TreeEntry::Shadow(Shadow(u64::MAX - value as u64)),
        _ => TreeEntry::Swap(SwapSlot(value)),
    }
}

/// Indices near each other, far apart, and at the end.
fn index() -> impl Strategy<Value = u64> {
    prop_oneof![
        0u64..200,
        (0u64..4).prop_map(|n| n << 18),
        0u64..1 << 20,
        (0u64..3).prop_map(|n| MAX_INDEX - 1 - n)
    ]
}

proptest! {
    /// For all sizes of folios, the tree is a map from indices to entries with marks; an operation on a folio changes
    /// all of its indices, or none.
    #[test]
    fn tree_is_a_map_with_marks(
        ops in prop::collection::vec((0u8..13, index(), 0u8..3, 0u32..1000), 0..300),
    ) {
        let (mut tree, mut model) = (PageTree::new(), Model::new());
        let mut leaves = 0;
        for (op, index, n, value) in ops {
            let at = PageIndex(index);
            let folio = match model.get(&index) {
                Some((TreeEntry::Folio(folio), _)) => Some(*folio),
                _ => None,
            };
            let covered = folio.map_or(index..index + 1, |folio| folio.first(at).0..folio.end(at));
            let large = folio.is_some_and(|folio| folio.order > Order::ZERO);
            match op {
                0..3 if !large => {
                    let new = entry(n, value);
                    let old = model.insert(index, (new, [false; 3])).map(|(old, _)| old);
                    prop_assert_eq!(tree.insert(at, new), old);
                }
                3 if !large => prop_assert_eq!(tree.remove(at), model.remove(&index).map(|(old, _)| old)),
                4 if folio.is_some() => {
                    covered.for_each(|i| model.get_mut(&i).unwrap().1[n as usize] = true);
                    tree.set_mark(at, SETTABLE[n as usize]);
                },
                5 => {
                    for i in covered {
                        if let Some((_, marks)) = model.get_mut(&i) { marks[n as usize] = false }
                    }
                    tree.clear_mark(at, SETTABLE[n as usize]);
                }
                6 => {
                    let range = index..index.saturating_add(value as u64).min(MAX_INDEX);
                    let mark = ALL_MARKS[(value % 6) as usize];
                    let mut found = Vec::new();
                    for (first, entry) in tree.iter(mark, range.clone()) {
                        let end = if let TreeEntry::Folio(folio) = entry { folio.end(first) } else { first.0 + 1 };
                        found.extend((first.0..end.min(range.end)).map(|i| (i, entry)));
                    }
                    let expected: Vec<_> =
                        model.range(range).filter(|(_, m)| has(m, mark)).map(|(&i, m)| (i, m.0)).collect();
                    prop_assert_eq!(found, expected);
                }
                7 | 8 => {
                    let folio = CachedFolio { head: Pfn(value << 9), order: Order((value % 10) as u8) };
                    let range = folio.first(at).0..folio.end(at);
                    let inside: Vec<_> = model.range(range.clone()).map(|(_, m)| m.0).collect();
                    let taken = inside.iter().any(|e| !matches!(e, TreeEntry::Shadow(_)));
                    let last = inside.last().map(|e| match e { TreeEntry::Shadow(s) => *s, _ => Shadow(0) });
                    let expected = if taken { Err(Occupied) } else { Ok(last) };
                    prop_assert_eq!(tree.insert_folio(folio.first(at), folio), expected);
                    if !taken {
                        model.extend(range.map(|i| (i, (TreeEntry::Folio(folio), [false; 3]))));
                    }
                }
                9 => if let Some(folio) = folio {
                    let rest = (value % 4 != 0).then(|| entry(1 + (value % 2) as u8, value));
                    prop_assert_eq!(tree.replace_folio(folio.first(at), rest), folio);
                    for (i, at) in (0..).zip(covered) {
                        match rest {
                            Some(TreeEntry::Swap(slot)) => {
                                model.insert(at, (TreeEntry::Swap(SwapSlot(slot.0 + i)), [false; 3]));
                            }
                            Some(rest) => drop(model.insert(at, (rest, [false; 3]))),
                            None => drop(model.remove(&at)),
                        }
                    }
                },
                10 => if let Some(folio) = folio.filter(|_| large) {
                    let to = Order((value % folio.order.0 as u32) as u8);
                    tree.split_folio(folio.first(at), to);
                    for i in covered {
                        let head = folio.frame(PageIndex(i)).align_down(to);
                        model.get_mut(&i).unwrap().0 = TreeEntry::Folio(CachedFolio { head, order: to });
                    }
                },
                11 => {
                    // If the place has a folio, evict it; else insert.
                    let evicts = folio.is_some();
                    let end = (index - index % SLOTS as u64) + SLOTS as u64;
                    let mut leaf = if evicts { tree.leaf(at) } else { tree.leaf_or_new(at) };
                    prop_assert_eq!(leaf.slot(PageIndex(end)), None);
                    for i in (index..end.min(MAX_INDEX)).step_by(1 + n as usize) {
                        let slot = leaf.slot(PageIndex(i)).unwrap();
                        match (evicts, model.get(&i).map(|m| m.0)) {
                            (true, Some(TreeEntry::Folio(folio))) if folio.order == Order::ZERO => {
                                prop_assert_eq!(leaf.evict(slot, Shadow(i)), folio.head);
                                model.insert(i, (TreeEntry::Shadow(Shadow(i)), [false; 3]));
                            }
                            (false, found) => {
                                let expected = match found {
                                    Some(TreeEntry::Shadow(shadow)) => Ok(Some(shadow)),
                                    Some(_) => Err(Occupied),
                                    None => Ok(None),
                                };
                                prop_assert_eq!(leaf.insert(slot, Pfn(value)), expected);
                                if expected.is_ok() {
                                    model.insert(i, (TreeEntry::Folio(CachedFolio::single(Pfn(value))), [false; 3]));
                                }
                            }
                            _ => {}
                        }
                    }
                    leaf.finish();
                }
                _ => {
                    let m = model.get(&index);
                    prop_assert_eq!(tree.get(at), m.map(|m| m.0));
                    prop_assert_eq!(tree.folio(at), folio);
                    for mark in ALL_MARKS {
                        prop_assert_eq!(tree.has_mark(at, mark), m.is_some_and(|m| has(m, mark)));
                    }
                }
            }
            tree.validate().unwrap();
            leaves += tree.take_node_changes().change;
            prop_assert_eq!(leaves as u64, tree.count_shadow_leaves());
            let kinds = |kind| model.values().filter(|m| has(m, kind)).count() as u64;
            prop_assert_eq!(tree.folios(), kinds(TreeMark::Folio));
            prop_assert_eq!(tree.shadows(), kinds(TreeMark::Shadow));
            prop_assert_eq!(tree.swapped(), kinds(TreeMark::Swap));
        }
        while let Some((&index, &(entry, _))) = model.first_key_value() {
            match entry {
                TreeEntry::Folio(folio) => {
                    tree.replace_folio(PageIndex(index), None);
                    model.retain(|&i, _| i >= folio.end(PageIndex(index)));
                }
                _ => {
                    tree.remove(PageIndex(index));
                    model.remove(&index);
                }
            }
        }
        tree.validate().unwrap();
        prop_assert_eq!(tree.root, NONE);
    }
}

#[test]
fn leaf_of_shadows_is_reported_and_dropped() {
    let mut tree = PageTree::new();
    tree.insert(PageIndex(100), TreeEntry::Folio(CachedFolio::single(Pfn(1))));
    tree.insert(PageIndex(101), TreeEntry::Shadow(Shadow(7)));
    assert_eq!(tree.take_node_changes(), NodeChanges { nodes: 2, ..NodeChanges::default() });
    tree.insert(PageIndex(100), TreeEntry::Shadow(Shadow(8)));
    let changes = tree.take_node_changes();
    assert_eq!(changes.change, 1);
    let leaf = changes.leaves[0];
    assert_eq!(tree.drop_shadow_leaf(leaf), 2);
    assert_eq!((tree.take_node_changes().change, tree.shadows(), tree.drop_shadow_leaf(leaf)), (-1, 0, 0));
    tree.validate().unwrap();
}

#[test]
fn all_shadow_leaves_of_a_large_folio_are_reported() {
    let mut tree = PageTree::new();
    let order = Order(8);
    tree.insert_folio(PageIndex(0), CachedFolio { head: Pfn(0), order }).unwrap();
    tree.replace_folio(PageIndex(0), Some(TreeEntry::Shadow(Shadow(3))));
    let changes = tree.take_node_changes();
    assert_eq!((changes.change, changes.leaves.len()), (4, 4));
    assert_eq!(changes.leaves.iter().map(|&leaf| tree.drop_shadow_leaf(leaf)).sum::<u64>(), 256);
    tree.validate().unwrap();
}

#[test]
fn leaf_in_use_again_keeps_its_shadows() {
    let mut tree = PageTree::new();
    tree.insert(PageIndex(0), TreeEntry::Shadow(Shadow(1)));
    let old = tree.take_node_changes().leaves[0];
    tree.insert(PageIndex(1), TreeEntry::Folio(CachedFolio::single(Pfn(1))));
    assert_eq!(tree.drop_shadow_leaf(old), 0);
    tree.insert(PageIndex(1), TreeEntry::Shadow(Shadow(2)));
    assert_eq!(tree.drop_shadow_leaf(old), 0);
    assert_eq!(tree.shadows(), 2);
}

/// A tree with single pages at these indices, each with its index as frame.
fn with_folios(indices: &[u64]) -> PageTree {
    let mut tree = PageTree::new();
    for &index in indices {
        tree.insert(PageIndex(index), single(index));
    }
    tree
}

fn single(index: u64) -> TreeEntry {
    TreeEntry::Folio(CachedFolio::single(Pfn(index as u32)))
}

#[test]
fn a_place_with_a_folio_or_a_swap_slot_is_occupied() {
    let mut tree = PageTree::new();
    let folio = CachedFolio::single(Pfn(1));
    assert_eq!(tree.insert_folio(PageIndex(5), folio), Ok(None));
    tree.insert(PageIndex(6), TreeEntry::Swap(SwapSlot(9)));
    assert_eq!(tree.insert_folio(PageIndex(5), folio), Err(Occupied));
    assert_eq!(tree.insert_folio(PageIndex(6), folio), Err(Occupied));
    assert_eq!(tree.get(PageIndex(6)), Some(TreeEntry::Swap(SwapSlot(9))));
    tree.validate().unwrap();
}

/// The tree remembers the leaf of the last look-up. The number of one leaf here is 64 times an index in the other.
#[test]
fn a_look_up_finds_its_own_leaf_after_one_in_another() {
    let tree = with_folios(&[1, 4097]);
    for index in [4097, 1, 4097] {
        assert_eq!(tree.get(PageIndex(index)), Some(single(index)));
    }
}

/// Both parts below the root have folios, but only one of them has shadows.
#[test]
fn the_root_stays_as_high_as_its_last_folio_needs() {
    let mut tree = with_folios(&[0, 1, 64]);
    tree.insert(PageIndex(65), TreeEntry::Shadow(Shadow(7)));
    assert_eq!(tree.remove(PageIndex(1)), Some(single(1)));
    assert_eq!(tree.get(PageIndex(64)), Some(single(64)));
    tree.validate().unwrap();
}
