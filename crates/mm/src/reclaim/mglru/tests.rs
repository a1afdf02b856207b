//! Aging and eviction of generations on a small machine.

mod awaited;
mod dirty;
mod marked;

use crate::api::GroupLimits;
use crate::frame::{FrameFlags, LruGen};
use crate::knobs::Knob;
use crate::lru::mglru::{LARGE_BATCH, Wanted};
use crate::lru::{PolicyKind, ROOT};
use crate::machine::ZoneKind;
use crate::primitive::{AtomicU32, Ordering::Relaxed};
use crate::reclaim::pass::ReferenceRule;
use crate::reclaim::spaces::Unseen;
use crate::reclaim::tests::{Bench, START};
use crate::reclaim::{AddressSpaces, Member, Reclaim, ScanControl, WalkRange};
use crate::stat::Stat;
use crate::table::Bits;
use crate::testing::{TestMachine, range};
use crate::units::*;
use std_alloc::boxed::Box;
use std_alloc::vec::Vec;

const EVERYTHING: Wanted = Wanted { highest: ZoneKind::Movable, swappiness: 60, budget: None };

fn bench() -> Bench {
    let bench = Bench::new(64);
    bench.core.lru.set_policy(&bench.core, PolicyKind::MgLru).unwrap();
    bench
}

#[test]
fn recently_used_memory_is_protected() {
    let bench = bench();
    bench.clean_file(0..200, ROOT);
    let asked = AtomicU32::new(0);
    let spaces = Unseen(|| _ = asked.fetch_add(1, Relaxed));
    let cx = Reclaim { core: &bench.core, state: &bench.state, spaces: &spaces };
    let mut sc = ScanControl::new(0, Order::ZERO, ZoneKind::Movable);
    (sc.kswapd, sc.priority) = (true, 0);
    let mut age = || {
        cx.front(ROOT).age_node(cx, NodeId(0), &mut sc);
        asked.load(Relaxed)
    };
    bench.core.machine.advance(1_000_000_000);
    assert_eq!(age(), 0, "without a limit nothing is protected");
    bench.core.knobs.set(Knob::LruGenMinTtlMs, 2000).unwrap();
    assert_eq!(age(), 1, "everything is younger than two seconds");
    bench.core.machine.advance(1_500_000_000);
    assert_eq!(age(), 1, "the oldest generation is old enough now");
}

/// Memory that nothing can evict does not count, however old it is.
#[test]
fn old_memory_that_cannot_be_swapped_does_not_prevent_a_kill() {
    let bench = Bench::new(0);
    bench.core.lru.set_policy(&bench.core, PolicyKind::MgLru).unwrap();
    bench.anons(200, ROOT, Bits::empty());
    bench.core.knobs.set(Knob::LruGenMinTtlMs, 2000).unwrap();
    bench.core.machine.advance(3_000_000_000);
    let asked = AtomicU32::new(0);
    let spaces = Unseen(|| _ = asked.fetch_add(1, Relaxed));
    let cx = Reclaim { core: &bench.core, state: &bench.state, spaces: &spaces };
    let mut sc = ScanControl::new(0, Order::ZERO, ZoneKind::Movable);
    (sc.kswapd, sc.priority) = (true, 0);
    cx.front(ROOT).age_node(cx, NodeId(0), &mut sc);
    assert_eq!(asked.load(Relaxed), 1);
}

/// Each vector has generations of its own: it ages, however many generations another one has begun.
#[test]
fn vectors_of_other_nodes_and_groups_age_apart() {
    let memory = [range(0, ZoneKind::Normal, 0, 1024), range(1, ZoneKind::Normal, 1024, 1024)];
    let bench = Bench::on(TestMachine::new(&[0, 1], &memory), 64);
    let lru = &bench.core.lru;
    lru.set_policy(&bench.core, PolicyKind::MgLru).unwrap();
    let group = lru.create_group(ROOT, GroupLimits::default(), drop).unwrap();
    let ages = |node, group| {
        let seq = lru.vec(node, group).generations.max_seq();
        bench.cx().age(node, group, seq, true, false)
    };
    assert!((0..8).all(|_| ages(NodeId(1), ROOT)));
    assert!(ages(NodeId(0), group) && ages(NodeId(1), group) && ages(NodeId(0), ROOT));
}

/// Classic lists are prepared for a pass, also one in which most groups have generations.
#[test]
fn active_pages_of_a_classic_group_are_reclaimed() {
    let bench = Bench::new(0);
    let core = &bench.core;
    core.knobs.set(Knob::MemcgFlushMs, 0).unwrap();
    core.lru.set_policy(core, PolicyKind::MgLru).unwrap();
    let group = core.lru.create_group(ROOT, GroupLimits::default(), drop).unwrap();
    core.lru.set_group_policy(core, group, PolicyKind::Classic).unwrap();
    bench.clean_file(0..200, group);
    (0..200).for_each(|page| core.lru.activate(core, bench.folio(page).unwrap()));
    let mut sc = ScanControl::new(32, Order::ZERO, ZoneKind::Movable);
    sc.priority = 0;
    // The first pass deactivates.
    (0..4).for_each(|_| bench.cx().shrink_node(NodeId(0), &mut sc));
    assert!(sc.nr_reclaimed > 0);
}

/// Otherwise it would find nothing to evict at each try, and memory would seem exhausted while others age it.
#[test]
fn direct_reclaim_waits_for_a_generation_that_others_begin() {
    let bench: &'static Bench = Box::leak(Box::new(bench()));
    let mmu = &bench.core;
    bench.anons(100, ROOT, Bits::YOUNG);
    let generations = &bench.core.lru.vec(NodeId(0), ROOT).generations;
    let cx = bench.cx();
    let mut sc = ScanControl::new(32, Order::ZERO, ZoneKind::Movable);
    sc.priority = 4;
    // The remaining folios are in the two youngest generations.
    bench.core.lru.isolate_oldest(mmu, NodeId(0), ROOT, EVERYTHING);
    let seq = generations.max_seq();
    assert_eq!(generations.count(false), 2);
    // Other tasks have visited all spaces and are about to begin the generation.
    assert!(bench.state.aging(NodeId(0), ROOT).pass(seq));
    let begin = move |_: &TestMachine| {
        bench.core.lru.begin_generation(mmu, NodeId(0), ROOT, seq, true);
    };
    *bench.core.machine.idle.lock() = Some(Box::new(begin));
    assert_eq!(cx.share(NodeId(0), ROOT, true, &mut sc), None, "it was aged");
    assert_eq!((generations.max_seq(), sc.mm_walk), (seq + 1, false), "others have walked");
}

/// Anonymous pages that were all used, in the oldest of four generations.
fn with_old_used_pages(pages: u64) -> (Bench, Vec<Pfn>) {
    let bench = bench();
    let pfns = bench.anons(pages, ROOT, Bits::YOUNG);
    let generations = &bench.core.lru.vec(NodeId(0), ROOT).generations;
    while generations.count(false) < 4 || generations.pages(generations.min_seq(false), false) == 0 {
        let seq = generations.max_seq();
        assert!(bench.core.lru.begin_generation(&bench.core, NodeId(0), ROOT, seq, true));
    }
    (bench, pfns)
}

#[test]
fn task_that_walks_no_tables_activates_used_neighbours() {
    for walks in [false, true] {
        let (bench, _) = with_old_used_pages(256);
        let mut sc = ScanControl::new(32, Order::ZERO, ZoneKind::Movable);
        sc.mm_walk = walks;
        bench.cx().evict_some(NodeId(0), ROOT, 60, &mut sc, Some(16));
        let generations = &bench.core.lru.vec(NodeId(0), ROOT).generations;
        let youngest = generations.pages(generations.max_seq(), false);
        let activated = bench.core.stats.read(Stat::Pgactivate);
        assert!(
            youngest == 64 && activated == if walks { 0 } else { 48 },
            "{walks}: {youngest} young, {activated} activated"
        );
        bench.core.lru.validate(&bench.core).unwrap();
    }
}

/// The mark alone decides: the walk of the reverse map would cost time and clear the young bit.
#[test]
fn isolated_folio_that_was_seen_used_is_kept_without_a_look_at_its_entry() {
    let (bench, pfns) = with_old_used_pages(2);
    let mut folios = bench.core.lru.isolate_oldest(&bench.core, NodeId(0), ROOT, EVERYTHING).folios;
    bench.core.frames[pfns[0]].set(FrameFlags::REFERENCED);
    bench.core.knobs.set(Knob::LruGenLookAround, 0).unwrap();
    let mut sc = ScanControl::new(32, Order::ZERO, ZoneKind::Movable);
    bench.cx().shrink_folio_list(NodeId(0), &mut folios, &mut sc, ReferenceRule::Chances);
    let young = [0, 1].map(|page| bench.entry(page).has(Bits::YOUNG));
    assert_eq!((young, folios.len(), sc.nr_scanned), ([true, false], 2, 2));
    bench.cx().put_back(&mut folios);
    bench.core.lru.validate(&bench.core).unwrap();
}

/// `lru_gen.memcg_lru`.
#[test]
fn without_group_order_all_groups_are_reclaimed() {
    for (ordered, givers) in [(1, 1), (0, 4)] {
        let bench = bench();
        let mmu = &bench.core;
        bench.core.knobs.set(Knob::LruGenMemcgLru, ordered).unwrap();
        let drop = |_| ();
        let group = || bench.core.lru.create_group(ROOT, GroupLimits::default(), drop).unwrap();
        let groups: [GroupId; 4] = core::array::from_fn(|_| group());
        for (i, &group) in (0..).zip(&groups) {
            bench.clean_file(i * 300..(i + 1) * 300, group);
            // Passes the empty oldest generation.
            bench.core.lru.isolate_oldest(mmu, NodeId(0), group, EVERYTHING);
        }
        let cx = bench.cx();
        let mut sc = ScanControl::new(32, Order::ZERO, ZoneKind::Movable);
        sc.priority = 3;
        cx.shrink_node(NodeId(0), &mut sc);
        let left = groups.map(|group| bench.core.lru.vec(NodeId(0), group).evictable());
        assert_eq!(left.iter().filter(|&&pages| pages < 300).count(), givers, "{left:?}");
    }
}

/// One space with one range of anonymous memory; `step` is called whenever a walk asks for the next range.
struct OneSpace<F> {
    space: SpaceId,
    step: F,
}

impl<F: Fn(Vpn)> AddressSpaces for OneSpace<F> {
    fn bound(&self) -> u32 {
        self.space.0 + 1
    }

    fn member(&self, space: SpaceId) -> Option<Member> {
        (space == self.space).then_some(Member { group: ROOT, arrival: 1 })
    }

    fn arrivals(&self) -> u64 {
        1
    }

    fn take_ran(&self, _space: SpaceId, _node: NodeId) -> bool {
        true
    }

    fn next_range(&self, space: SpaceId, from: Vpn) -> Option<WalkRange> {
        (self.step)(from);
        self.try_next_range(space, from)
    }

    fn try_next_range(&self, _space: SpaceId, from: Vpn) -> Option<WalkRange> {
        let end = Vpn(START.0 + 4096);
        (from < end).then_some(WalkRange { start: START, end, swapbacked: true, executable: false })
    }

    fn thrashes(&self) {}
}

/// Two tasks age a vector with one space: the second finds no space left and begins the generation. The first must
/// still walk on, or it would see only the beginning of the space each time.
#[test]
fn walk_continues_when_others_begin_the_generation() {
    let bench = bench();
    let mmu = &bench.core;
    let pfns = bench.anons(3 * TABLE_ENTRIES as u64, ROOT, Bits::YOUNG);
    let generations = &bench.core.lru.vec(NodeId(0), ROOT).generations;
    let seq = generations.max_seq();
    let second_table = Vpn(START.0 + TABLE_ENTRIES as u64);
    let begin = |from: Vpn| {
        if from >= second_table {
            bench.core.lru.begin_generation(mmu, NodeId(0), ROOT, seq, true);
        }
    };
    let spaces = OneSpace { space: bench.space, step: begin };
    let cx = Reclaim { core: &bench.core, state: &bench.state, spaces: &spaces };
    assert!(!cx.age(NodeId(0), ROOT, seq, true, false), "others began the generation");
    assert_eq!(generations.max_seq(), seq + 1);
    let in_generation = |seq| {
        let generation = Some(LruGen::of(seq));
        pfns.iter().filter(|&&pfn| bench.core.frames[pfn].flags().generation() == generation).count()
    };
    assert_eq!([in_generation(seq), in_generation(seq + 1)], [TABLE_ENTRIES, 2 * TABLE_ENTRIES]);
}

/// Promotion looks for hot pages far more often than reclaim ages. With a generation for each look, all folios that are
/// not used between two looks would soon be in the oldest generation, in no order.
#[test]
fn looking_for_hot_pages_begins_no_generation() {
    let bench = bench();
    let mmu = &bench.core;
    let pfns = bench.anons(TABLE_ENTRIES as u64, ROOT, Bits::YOUNG);
    let generations = &bench.core.lru.vec(NodeId(0), ROOT).generations;
    let seq = generations.max_seq();
    assert!(bench.core.lru.begin_generation(mmu, NodeId(0), ROOT, seq, true));
    let youngest = || {
        let generation = Some(LruGen::of(generations.max_seq()));
        pfns.iter().filter(|&&pfn| bench.core.frames[pfn].flags().generation() == generation).count()
    };
    assert_eq!(youngest(), 0);
    let spaces = OneSpace { space: bench.space, step: |_| {} };
    let cx = Reclaim { core: &bench.core, state: &bench.state, spaces: &spaces };
    for _ in 0..8 {
        cx.look_for_young(NodeId(0), ROOT);
    }
    assert_eq!((generations.max_seq(), youngest()), (seq + 1, TABLE_ENTRIES));
}

/// A bench whose file has 300 clean pages, all in the oldest generation.
fn with_form(form: u64) -> Bench {
    let bench = bench();
    let mmu = &bench.core;
    bench.core.knobs.set(Knob::LruGenForm, form).unwrap();
    bench.clean_file(0..300, ROOT);
    let generations = &bench.core.lru.vec(NodeId(0), ROOT).generations;
    if generations.pages(generations.min_seq(true), true) == 0 {
        // Passes the empty oldest generation.
        bench.core.lru.isolate_oldest(mmu, NodeId(0), ROOT, EVERYTHING);
    }
    bench
}

/// Make all of the file's pages dirty and not used.
fn make_dirty(bench: &Bench) {
    bench.write(0..300, ROOT);
    for page in 0..300 {
        bench.core.frames[bench.folio(page).unwrap()].clear(FrameFlags::REFERENCED);
    }
}

fn evict_at(bench: &Bench, priority: u32) -> (bool, ScanControl) {
    let cx = bench.cx();
    let mut sc = ScanControl::new(1000, Order::ZERO, ZoneKind::Movable);
    (sc.priority, sc.may_swap) = (priority, false);
    let aged = cx.evict(NodeId(0), ROOT, &mut sc);
    bench.core.lru.validate(&bench.core).unwrap();
    (aged, sc)
}

/// A share is 75 pages at this priority: two whole batches of 64, or exactly 75 (`lru_gen.form`).
#[test]
fn budget_limits_the_scan_to_the_share() {
    for (form, looked) in [(0, 128), (1, 128), (2, 75)] {
        let bench = with_form(form);
        let (aged, sc) = evict_at(&bench, 2);
        let scanned = bench.core.stats.read(Stat::PgscanDirect);
        assert_eq!((aged, scanned, sc.nr_reclaimed), (false, looked, looked as u64), "form {form}");
    }
}

/// With a budget, a batch follows the aging; then other groups have their turn.
#[test]
fn eviction_with_a_budget_takes_a_batch_after_aging() {
    for (form, reclaimed) in [(0, 0), (1, 0), (2, 64)] {
        let bench = with_form(form);
        // All folios are in the two youngest generations now.
        let generations = &bench.core.lru.vec(NodeId(0), ROOT).generations;
        let promote = |page| {
            let pfn = bench.folio(page).unwrap();
            let mut promotions = bench.core.lru.promotions(&bench.core, NodeId(0), ROOT);
            (0..2).for_each(|_| {
                promotions.begin_window(false);
                bench.core.lru.promote(&bench.core.frames[pfn], &mut promotions);
            });
            bench.core.lru.tell_promotions(&bench.core, &mut promotions);
        };
        (0..300).for_each(promote);
        for _ in 0..9 {
            bench.core.lru.isolate_oldest(&bench.core, NodeId(0), ROOT, EVERYTHING);
        }
        assert_eq!((generations.count(true), generations.pages(generations.max_seq(), true)), (2, 300));
        let (aged, sc) = evict_at(&bench, 2);
        assert!(aged, "form {form}");
        // With one more generation the used ones are the second youngest, with two more the third.
        let (_, again) = evict_at(&bench, 2);
        assert_eq!(sc.nr_reclaimed + again.nr_reclaimed, reclaimed, "form {form}");
    }
}

/// kswapd's pass over dirty pages that are not under write-back notes that devices are late, as with the classic lists.
#[test]
fn eviction_with_a_budget_reports_dirty_pages() {
    for (form, told) in [(0, false), (1, false), (2, true)] {
        let bench = with_form(form);
        let state = &bench.state.nodes[0];
        make_dirty(&bench);
        let cx = bench.cx();
        let mut sc = ScanControl::new(1000, Order::ZERO, ZoneKind::Movable);
        (sc.kswapd, sc.priority) = (true, 2);
        sc.may_swap = false;
        cx.shrink_node(NodeId(0), &mut sc);
        assert_eq!(state.dirty.load(Relaxed), told, "form {form}");
        assert!(bench.core.cache.take_request(), "form {form}");
    }
}

/// The form of 6.14 does not isolate dirty folios, but counts them; the other forms isolate them and put them back.
#[test]
fn dirty_folios_are_sorted_without_isolation() {
    for (form, taken) in [(0, true), (1, false), (2, true)] {
        let bench = with_form(form);
        make_dirty(&bench);
        let (_, sc) = evict_at(&bench, 2);
        let scanned = bench.core.stats.read(Stat::PgscanDirect);
        assert_eq!((scanned > 0, sc.nr_reclaimed), (taken, 0), "form {form}");
        assert!(bench.core.cache.take_request(), "form {form}");
        // When the write of a folio ends, the folio is at the tail of the oldest queue.
        let pfn = bench.folio(0).unwrap();
        bench.write_start(pfn);
        bench.finish_io();
        let (_, sc) = evict_at(&bench, 2);
        assert!(sc.nr_reclaimed > 0 && bench.folio(0).is_none(), "form {form}");
    }
}

/// The oldest generation has more used folios than a batch. That none was taken does not mean that there is none.
#[test]
fn batch_of_used_folios_is_progress() {
    const PAGES: u64 = LARGE_BATCH + 100;
    let bench = Bench::on(TestMachine::simple(1, 8192), 0);
    let lru = &bench.core.lru;
    lru.set_policy(&bench.core, PolicyKind::MgLru).unwrap();
    bench.clean_file(0..PAGES, ROOT);
    for page in 0..PAGES {
        let pfn = bench.folio(page).unwrap();
        let mut promotions = lru.promotions(&bench.core, NodeId(0), ROOT);
        (0..2).for_each(|_| {
            promotions.begin_window(false);
            lru.promote(&bench.core.frames[pfn], &mut promotions);
        });
        lru.tell_promotions(&bench.core, &mut promotions);
    }
    let wanted = Wanted { swappiness: 0, ..EVERYTHING };
    // Empty generations are left first, one at a time.
    let mut found = (0..4).map(|_| lru.isolate_oldest(&bench.core, NodeId(0), ROOT, wanted));
    let batch = found.find(|found| found.progress != 1).map(|found| (found.taken, found.progress));
    assert_eq!(batch, Some((0, LARGE_BATCH)));
}
