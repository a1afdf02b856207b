//! Pages that NUMA balancing has marked, so that their next use faults.

use super::*;
use crate::machine::Scope;
use crate::primitive::{AtomicBool, Ordering::Relaxed};
use crate::space::TaskScan;
use crate::stat::Stat;
use crate::testing::range;
use std_alloc::boxed::Box;

const AT: Vpn = LARGE_AT;
const PAGES: u64 = LARGE;
/// Frames of each of two nodes.
const FRAMES: u32 = 4096;
const MINUTE: Nanos = 60_000_000_000;

struct Bench {
    mm: Mm<TestMachine>,
    space: SpaceId,
    task: TaskScan,
}

impl Bench {
    /// A process with 2 MiB of memory in folios of 64 KiB, or page by page. Each page holds its number.
    fn new(large: bool) -> &'static Bench {
        let memory = [0, 1].map(|node| range(node, ZoneKind::Normal, u32::from(node) * FRAMES, FRAMES));
        let mm = with_swap(TestMachine::new(&[0, 1], &memory), 64);
        mm.mmu().knobs.set(Knob::NumaBalancing, 1).unwrap();
        mm.mmu().knobs.set(Knob::HugepagesEnabled64, if large { 2 } else { 0 }).unwrap();
        let space = mm.create_space(ROOT).unwrap();
        mm.mmap(space, &request(AT, PAGES, Backing::Anonymous)).unwrap();
        let bench: &'static Bench = Box::leak(Box::new(Bench { mm, space, task: TaskScan::default() }));
        for page in 0..PAGES {
            let (pfn, _) = reach(&bench.mm, space, Vpn(AT.0 + page), true, 4).unwrap();
            bench.mm.machine().set_stamp(pfn, page);
        }
        // The first look only begins to wait.
        bench.scan();
        bench
    }

    /// The process has run for a while: its pages are marked.
    fn scan(&self) {
        self.mm.machine().advance(2 * MINUTE);
        self.mm.task_work(self.space, &self.task, self.mm.machine().now());
    }

    fn load(&self, page: u64) -> u64 {
        let (pfn, _) = reach(&self.mm, self.space, Vpn(AT.0 + page), false, 4).unwrap();
        self.mm.machine().stamp(pfn)
    }

    fn count(&self, stat: Stat) -> i64 {
        self.mm.mmu().stats.read(stat)
    }
}

/// Nothing is used between two scans: the second one finds all pages marked, and leaves them.
#[test]
fn marked_pages_are_marked_once() {
    for large in [false, true] {
        let bench = Bench::new(large);
        for _ in 0..3 {
            bench.scan();
            assert_eq!(bench.count(Stat::NumaPteUpdates), PAGES as i64, "large: {large}");
        }
        (0..PAGES).for_each(|page| assert_eq!(bench.load(page), page));
        assert!(bench.count(Stat::NumaHintFaults) > 0);
        bench.mm.validate().unwrap();
    }
}

/// Each page is the first that is used. The last one of a table has no other behind it.
#[test]
fn any_page_of_a_marked_folio_can_be_used_first() {
    for page in [0, 15, 16, 500, PAGES - 1] {
        let bench = Bench::new(true);
        bench.scan();
        assert_eq!((bench.load(page), bench.count(Stat::NumaHintFaults)), (page, 1));
        bench.mm.validate().unwrap();
    }
}

/// Another task drops the page after the fault has seen that it is marked.
#[test]
fn page_that_is_dropped_during_its_hinting_fault_reads_zeroes() {
    let bench = Bench::new(false);
    bench.scan();
    let dropped = AtomicBool::new(false);
    *bench.mm.machine().entered.lock() = Some(Box::new(move |_, scope| {
        if scope == Scope::DoNumaPage && !dropped.swap(true, Relaxed) {
            bench.mm.madvise(bench.space, Vpn(AT.0 + 7), 1, Advice::DontNeed).unwrap();
        }
    }));
    assert_eq!((bench.load(7), bench.load(8)), (0, 8));
    assert_eq!(bench.count(Stat::NumaHintFaults), 1, "only the other page is still there");
    bench.mm.validate().unwrap();
}

/// A process may map address 0.
#[test]
fn pages_at_address_0_are_marked() {
    let bench = Bench::new(false);
    bench.mm.mmap(bench.space, &request(Vpn(0), 4, Backing::Anonymous)).unwrap();
    (0..4).for_each(|page| _ = reach(&bench.mm, bench.space, Vpn(page), true, 4).unwrap());
    bench.scan();
    assert_eq!(bench.count(Stat::NumaPteUpdates), PAGES as i64 + 4);
    bench.mm.validate().unwrap();
}
