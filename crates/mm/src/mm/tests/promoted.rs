//! What the promotion daemon moves, and what it leaves where it is.

use super::*;
use crate::alloc::Watermark;
use crate::hot::{Asked, PageName};
use crate::knobs::{TierMigration, TierPolicy};
use crate::machine::{Reads, Scope, WaitKey};
use crate::primitive::Ordering::Relaxed;
use crate::stat::Stat;
use crate::testing::range;
use std_alloc::boxed::Box;

const AT: Vpn = Vpn(BASE);
const FAST: NodeId = NodeId(0);
const SLOW: NodeId = NodeId(1);
const HOUR: Nanos = 3_600_000_000_000;
/// Frames of a node.
const FRAMES: u32 = 4096;

struct Bench {
    mm: Mm<TestMachine>,
    space: SpaceId,
}

impl Bench {
    /// CPUs with fast memory and a node of slow memory alone, where a process has `pages` pages; the daemon moves.
    fn new(pages: u64, migration: TierMigration) -> &'static Bench {
        let memory =
            [range(FAST.0, ZoneKind::Normal, 0, FRAMES), range(SLOW.0, ZoneKind::Normal, FRAMES, FRAMES)];
        let mut machine = TestMachine::new(&[FAST.0; 2], &memory);
        machine.slow_from = SLOW;
        let mm = with_swap(machine, 64);
        mm.mmu().knobs.set(Knob::TierMigration, migration.value()).unwrap();
        let space = mm.create_space(ROOT).unwrap();
        mm.mmap(space, &request(AT, pages, Backing::Anonymous)).unwrap();
        let bench: &'static Bench = Box::leak(Box::new(Bench { mm, space }));
        (0..pages).for_each(|page| bench.store(page, page));
        assert_eq!(bench.mm.move_pages(space, AT, pages, Some(SLOW)).unwrap().moved, pages);
        // The daemon sleeps when a round has ended: the machine stops then.
        let machine = bench.mm.machine();
        *machine.idle.lock() = Some(Box::new(|machine| {
            machine.stops.store(true, Relaxed);
            machine.wake(WaitKey::Kpromoted);
        }));
        bench
    }

    fn store(&self, page: u64, value: u64) {
        let (pfn, _) = reach(&self.mm, self.space, Vpn(AT.0 + page), true, 4).unwrap();
        self.mm.machine().set_stamp(pfn, value);
    }

    fn frame(&self, page: u64) -> Pfn {
        reach(&self.mm, self.space, Vpn(AT.0 + page), false, 4).unwrap().0
    }

    fn node(&self, page: u64) -> NodeId {
        self.mm.core.frames[self.frame(page)].node()
    }

    fn ask(&self, page: u64) -> Asked {
        let pfn = self.frame(page);
        let asked = Asked { page: pfn, name: PageName::of(&self.mm.core.frames[pfn]).unwrap(), to: FAST };
        assert!(self.mm.core.hot.ask(asked));
        asked
    }

    /// One round of the daemon. All pages read what was stored last.
    fn round(&self, pages: u64) {
        self.mm.daemon(Daemon::Kpromoted);
        self.mm.machine().stops.store(false, Relaxed);
        (0..pages)
            .for_each(|page| assert_eq!(self.mm.machine().stamp(self.frame(page)), page, "page {page}"));
        self.mm.validate().unwrap();
    }

    fn count(&self, stat: Stat) -> i64 {
        self.mm.mmu().stats.read(stat)
    }
}

const BOTH: [TierMigration; 2] = [TierMigration::Exclusive, TierMigration::Transactional];

#[test]
fn daemon_moves_what_was_asked_for() {
    for migration in BOTH {
        // More than a batch.
        let bench = Bench::new(40, migration);
        (0..39).for_each(|page| _ = bench.ask(page));
        bench.round(40);
        assert!((0..39).all(|page| bench.node(page) == FAST) && bench.node(39) == SLOW, "{migration:?}");
        assert_eq!((bench.count(Stat::PgpromoteSuccess), bench.count(Stat::TierMoveAborted)), (39, 0));
        // What is in fast memory already stays in its frame.
        let frame = bench.frame(0);
        bench.ask(0);
        bench.round(40);
        assert_eq!((bench.frame(0), bench.count(Stat::PgpromoteSuccess)), (frame, 39));
    }
}

/// A request names a page: if its frame has another one by now, it is void.
#[test]
fn daemon_ignores_a_frame_that_holds_another_page() {
    for migration in BOTH {
        let bench = Bench::new(2, migration);
        let asked = bench.ask(0);
        bench.mm.core.hot.take_asked();
        bench.mm.core.hot.ask(Asked { page: bench.frame(1), ..asked });
        bench.mm.core.hot.ask(Asked { page: Pfn(2 * FRAMES), ..asked });
        bench.round(2);
        assert_eq!((bench.node(0), bench.node(1)), (SLOW, SLOW));
        assert_eq!(bench.count(Stat::PgpromoteSuccess), 0);
    }
}

/// A page that is stored to while it is copied stays where it is, and the next one moves.
#[test]
fn daemon_leaves_a_page_that_is_written() {
    let bench = Bench::new(2, TierMigration::Transactional);
    *bench.mm.machine().entered.lock() = Some(Box::new(|_, scope| {
        let needs = Bits::PRESENT | Bits::WRITE;
        if scope == Scope::TryToMigrateOne {
            access(&bench.mm, bench.space, AT, needs, true);
        }
    }));
    (0..2).for_each(|page| _ = bench.ask(page));
    bench.round(2);
    assert_eq!((bench.node(0), bench.node(1)), (SLOW, FAST));
    assert_eq!((bench.count(Stat::PgpromoteSuccess), bench.count(Stat::TierMoveAborted)), (1, 1));
}

/// Promotion takes no memory below the high mark, and asks kswapd for more.
#[test]
fn daemon_does_not_reclaim_for_a_promotion() {
    for migration in BOTH {
        let bench = Bench::new(2, migration);
        let fill = bench.mm.create_space(ROOT).unwrap();
        let wanted = u64::from(FRAMES);
        let kswapd_waits = || bench.mm.core().alloc.set_kswapd_waits(FAST, true);
        kswapd_waits();
        bench.mm.mmap(fill, &request(Vpn(2 * BASE), wanted, Backing::Anonymous)).unwrap();
        let before = bench.mm.machine().wakes(WaitKey::Kswapd(FAST));
        let mut page = 2 * BASE;
        while bench.mm.machine().wakes(WaitKey::Kswapd(FAST)) == before && page < 2 * BASE + wanted {
            bench.mm.fault(fill, Vpn(page), AccessKind::Store).unwrap();
            page += 1;
        }
        // What is free is enough for promotion above the lowest mark, and not above the high one.
        let (alloc, mut page) = (&bench.mm.core().alloc, 2 * BASE);
        let zone = &alloc.zones()[0];
        while zone.free_pages() <= zone.mark(Watermark::Min) + 8 {
            bench.mm.madvise(fill, Vpn(page), 1, Advice::DontNeed).unwrap();
            alloc.drain_all(bench.mm.mmu());
            page += 1;
        }
        assert!(zone.free_pages() < zone.mark(Watermark::High), "{}", zone.free_pages());
        let before = bench.mm.machine().wakes(WaitKey::Kswapd(FAST));
        (0..2).for_each(|page| _ = bench.ask(page));
        kswapd_waits();
        bench.round(2);
        assert_eq!((bench.node(0), bench.node(1), bench.count(Stat::PgpromoteSuccess)), (SLOW, SLOW, 0));
        assert!(bench.mm.machine().wakes(WaitKey::Kswapd(FAST)) > before, "{migration:?}");
    }
}

/// Under another policy than that of hints the daemon has rounds by time, however long the machine has been up.
#[test]
fn daemon_has_a_round_in_each_period() {
    for hours in [0, 6] {
        let bench = Bench::new(1, TierMigration::Exclusive);
        bench.mm.mmu().knobs.set(Knob::TierPolicy, TierPolicy::Sampled.value()).unwrap();
        bench.mm.machine().advance(hours * HOUR);
        bench.ask(0);
        bench.round(1);
        assert_eq!(bench.node(0), FAST, "after {hours} hours");
    }
}

/// A walk of page tables reports uses with their time, however long the machine has been up.
#[test]
fn page_used_in_two_rounds_moves_up_after_hours() {
    let bench = Bench::new(1, TierMigration::Exclusive);
    bench.mm.set_knob(Knob::LruGenEnabled, 7).unwrap();
    bench.mm.mmu().knobs.set(Knob::TierPolicy, TierPolicy::Generations.value()).unwrap();
    bench.mm.machine().advance(6 * HOUR);
    for expected in [SLOW, FAST] {
        bench.frame(0);
        bench.round(1);
        assert_eq!(bench.node(0), expected);
    }
}

/// The tiers serve half of the reads each, and the fast one is faster: pages with a quarter of all reads go up. One
/// page has half of all samples, the next one a quarter, and two are not hot.
#[test]
fn daemon_moves_no_more_reads_than_the_balance_allows() {
    let bench = Bench::new(4, TierMigration::Exclusive);
    let (knobs, machine) = (&bench.mm.mmu().knobs, bench.mm.machine());
    knobs.set(Knob::TierPolicy, TierPolicy::Sampled.value()).unwrap();
    knobs.set(Knob::TierBalance, 1).unwrap();
    for (node, nanos) in [(FAST, 100_000), (SLOW, 300_000)] {
        machine.reads.lock().insert(node, Reads { count: 1000, nanos, idle: 0 });
    }
    *machine.samples.lock() = [0, 0, 0, 0, 1, 1, 2, 3].map(|page| bench.frame(page)).to_vec();
    bench.round(4);
    assert_eq!([0, 1, 2, 3].map(|page| bench.node(page)), [SLOW, FAST, SLOW, SLOW]);
    assert_eq!(bench.count(Stat::PgpromoteSuccess), 1);
}
