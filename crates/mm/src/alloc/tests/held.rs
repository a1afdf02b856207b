//! Free blocks that compaction holds.

use super::*;
use crate::alloc::held::Isolation;

/// A zone with half of its pages free, in blocks of `order`. Returns the blocks between them.
fn in_pieces(frames: u32, order: u8) -> (TestBase, Allocator, Vec<Pfn>) {
    let (base, allocator) = world(TestMachine::simple(2, frames));
    let all: Vec<Pfn> = core::iter::from_fn(|| take(&base, &allocator, &request(order))).collect();
    let (kept, freed): (Vec<Pfn>, Vec<Pfn>) = all.into_iter().partition(|pfn| pfn.0 >> order & 1 == 0);
    freed.into_iter().for_each(|pfn| free(&base, &allocator, pfn));
    allocator.drain_all(&base);
    (base, allocator, kept)
}

fn isolate(at: (&TestBase, &Allocator), held: &mut HeldBlocks, block: u32, enough: u64) -> Isolation {
    let (mut from, end) = (Pfn(block * 512), Pfn((block + 1) * 512));
    at.1.isolate_free(at.0, held, &mut from, end, (1, enough))
}

fn end(mmu: &TestBase, allocator: &Allocator, mut held: HeldBlocks, kept: Vec<Pfn>) {
    allocator.release(mmu, &mut held);
    kept.into_iter().for_each(|pfn| free(mmu, allocator, pfn));
    assert_whole(mmu, allocator);
}

fn blocks(held: &HeldBlocks) -> Vec<(usize, usize)> {
    held.blocks().into_iter().enumerate().filter(|&(_, count)| count > 0).collect()
}

/// The vector of the reference: one page of a block of 16 is taken; the rest stays as one page and blocks of 2, 4 and
/// 8.
#[test]
fn a_larger_block_is_split_for_a_smaller_request() {
    let (base, allocator, kept) = in_pieces(8192, 4);
    let (zone, mut held) = (&allocator.zones()[0], allocator.hold(ZoneId(0), true));
    let done = isolate((&base, &allocator), &mut held, 8, 16);
    assert_eq!((done.pages, done.refused, blocks(&held)), (16, false, std_alloc::vec![(4, 1)]));
    assert!(held.take(&base, zone, Order(1), false).is_none(), "no block has exactly that size");
    let taken = held.take(&base, zone, Order(1), true).unwrap();
    assert_eq!(blocks(&held), [(1, 1), (2, 1), (3, 1)]);
    assert_eq!((taken.order(), held.pages()), (Order(1), 14));
    // The returned page merges with its buddies again.
    held.give_back(&base, taken);
    assert_eq!((blocks(&held), held.pages()), (std_alloc::vec![(4, 1)], 16));
    end(&base, &allocator, held, kept);
}

#[test]
fn blocks_stay_apart_without_merge() {
    let (base, allocator, kept) = in_pieces(8192, 4);
    let (zone, mut held) = (&allocator.zones()[0], allocator.hold(ZoneId(0), false));
    isolate((&base, &allocator), &mut held, 8, 16);
    let taken = held.take(&base, zone, Order(0), true).unwrap();
    held.give_back(&base, taken);
    assert_eq!(blocks(&held), [(0, 2), (1, 1), (2, 1), (3, 1)]);
    end(&base, &allocator, held, kept);
}

#[test]
fn blocks_of_other_holders_are_not_merged() {
    let (base, allocator, kept) = in_pieces(8192, 4);
    let zone = &allocator.zones()[0];
    let (mut ours, mut theirs) = (allocator.hold(ZoneId(0), true), allocator.hold(ZoneId(0), true));
    isolate((&base, &allocator), &mut ours, 8, 16);
    let whole = ours.take(&base, zone, Order(4), false).unwrap().into_pfn();
    assert!(base.frames[whole].put(1));
    base.frames.unmake_folio(whole);
    base.frames[whole].wipe(FrameFlags::empty());
    let half = |half| Order(3).frames() * half;
    for part in [0, 1] {
        let mut area = LockedZone::lock(&base, zone);
        base.frames[whole.add(half(part))].place(zone.node(), zone.id(), Mobility::Movable);
        area.put_block(whole.add(half(part)), Order(3), Generation::NONE);
        drop(area);
        let mut from = whole.add(half(part));
        let held = if part == 0 { &mut ours } else { &mut theirs };
        allocator.isolate_free(&base, held, &mut from, whole.add(half(part + 1)), (1, u64::MAX));
    }
    assert_eq!((blocks(&ours), blocks(&theirs)), (std_alloc::vec![(3, 1)], std_alloc::vec![(3, 1)]));
    allocator.release(&base, &mut theirs);
    end(&base, &allocator, ours, kept);
}

#[test]
fn the_min_mark_stays_free() {
    let (base, allocator, kept) = in_pieces(8192, 4);
    let (zone, mut held) = (&allocator.zones()[0], allocator.hold(ZoneId(0), true));
    let mut refused = false;
    for block in 0..16 {
        refused |= isolate((&base, &allocator), &mut held, block, u64::MAX).refused;
    }
    let min = zone.mark(Watermark::Min);
    assert!(refused && zone.free_pages() >= min && zone.free_pages() <= min + 16, "{}", zone.free_pages());
    assert!(allocator.validate(&base).unwrap_err().contains("HELD"), "held blocks are on no list");
    end(&base, &allocator, held, kept);
}

/// A block that was taken off the lists and returned keeps its debt; only a block that is used is paid for.
#[test]
fn a_held_block_keeps_its_debt_until_it_is_used() {
    let (base, allocator, kept) = in_pieces(8192, 4);
    let (zone, mut held) = (&allocator.zones()[0], allocator.hold(ZoneId(0), true));
    let space = base.tlb.create();
    let tag = owe(&base, space);
    let (debtor, rest) = kept.split_first().unwrap();
    base.frames[*debtor].set_debt(tag);
    free(&base, &allocator, *debtor);
    let owing = || LockedZone::lock(&base, zone).lists().owing();
    let before = owing();
    assert!(before >= 16);
    shootdowns(&base);
    let mut from = debtor.align_down(Order(5));
    allocator.isolate_free(&base, &mut held, &mut from, debtor.add(16), (1, u64::MAX));
    assert_eq!(owing(), 0);
    allocator.release(&base, &mut held);
    assert_eq!((owing(), shootdowns(&base)), (before, 0));
    from = debtor.align_down(Order(5));
    allocator.isolate_free(&base, &mut held, &mut from, debtor.add(16), (1, u64::MAX));
    let taken = held.take(&base, zone, Order(2), true).unwrap();
    assert_eq!(shootdowns(&base), 1);
    held.give_back(&base, taken);
    end(&base, &allocator, held, rest.to_vec());
}

/// The debt of a held block may be paid meanwhile, and new debts may arise: the block returns to the clean lists.
#[test]
fn a_held_block_whose_debt_is_paid_returns_clean() {
    let (base, allocator, mut kept) = in_pieces(8192, 4);
    let (zone, mut held) = (&allocator.zones()[0], allocator.hold(ZoneId(0), true));
    let space = base.tlb.create();
    // Far apart, so that they do not merge.
    let mut free_owing = |which| {
        let (debtor, tag) = (kept.remove(which), owe(&base, space));
        base.frames[debtor].set_debt(tag);
        free(&base, &allocator, debtor);
        debtor
    };
    let owing = || LockedZone::lock(&base, zone).lists().owing();
    let (first, second) = (free_owing(0), free_owing(10));
    let mut from = first.align_down(Order(5));
    allocator.isolate_free(&base, &mut held, &mut from, first.add(16), (1, u64::MAX));
    assert!(owing() > 0, "the second block is still on its list");
    base.tlb.settle_zone(base.host(), zone.id(), Generation(u64::MAX), second, Order(4));
    assert_eq!(owing(), 0);
    free_owing(20);
    let before = owing();
    allocator.release(&base, &mut held);
    assert_eq!(owing(), before);
    allocator.validate(&base).unwrap();
    end(&base, &allocator, held, kept);
}

#[test]
#[should_panic(expected = "isolated free blocks must be released")]
fn dropping_held_blocks_panics() {
    let (base, allocator, _kept) = in_pieces(8192, 4);
    let mut held = allocator.hold(ZoneId(0), true);
    isolate((&base, &allocator), &mut held, 8, 16);
}

/// Lists are searched from the tail, and blocks that were looked at come last the next time.
#[test]
fn a_search_does_not_look_at_the_same_blocks_twice() {
    let (base, allocator, kept) = in_pieces(8192, 4);
    let mut held = allocator.hold(ZoneId(0), false);
    let zone = &allocator.zones()[0];
    for from_tail in [true, false] {
        let mut met = Vec::new();
        for last in [Search::Stop, Search::Take] {
            let mut left = 10;
            let look = |pfn| {
                met.push(pfn);
                left -= 1;
                if left > 0 { Search::Pass } else { last }
            };
            let looked = match from_tail {
                true => allocator.isolate_by_list(&base, &mut held, Order(4), look).1,
                false => allocator.find_in_list(&base, zone, Order(4), look).1,
            };
            assert_eq!(looked, 10);
        }
        met.sort();
        met.dedup();
        assert_eq!(met.len(), 20);
    }
    allocator.release(&base, &mut held);
    let (found, _) = allocator.isolate_by_list(&base, &mut held, Order(4), |pfn| match pfn.0 {
        ..4096 => Search::Pass,
        _ => Search::Take,
    });
    assert!(matches!(found, SearchOutcome::Block(pfn) if pfn.0 >= 4096) && held.pages() == 16);
    end(&base, &allocator, held, kept);
}

proptest! {
    /// Whatever is isolated, split, used and returned: no block is lost, and none is there twice.
    #[test]
    fn nothing_is_lost(order in 0u8..9, merge in any::<bool>(), steps in proptest::collection::vec((0u8..4, 0u8..10, 0u32..8), 1..60)) {
        let (base, allocator, kept) = in_pieces(4096, order);
        let (zone, mut held) = (&allocator.zones()[0], allocator.hold(ZoneId(0), merge));
        let all = zone.free_pages();
        let mut taken: Vec<Fresh> = Vec::new();
        for (what, order, block) in steps {
            match what {
                0 => {
                    let enough = held.pages() + 64;
                    isolate((&base, &allocator), &mut held, block, enough);
                }
                1 => taken.extend(held.take(&base, zone, Order(order), block % 2 == 0)),
                2 if !taken.is_empty() => held.give_back(&base, taken.swap_remove(order as usize % taken.len())),
                _ => drop(allocator.release(&base, &mut held)),
            }
            let used: u64 = taken.iter().map(|fresh| fresh.order().frames() as u64).sum();
            prop_assert_eq!(zone.free_pages() + held.pages() + used, all);
            let counted: u64 = held.blocks().iter().enumerate().map(|(order, &count)| (count as u64) << order).sum();
            prop_assert_eq!(counted, held.pages());
        }
        for fresh in taken {
            free(&base, &allocator, fresh.into_pfn());
        }
        end(&base, &allocator, held, kept);
    }
}
