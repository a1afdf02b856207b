//! Cold pages move to slower memory.

use super::*;
use crate::machine::Scope;
use crate::migrate::frame_on;
use crate::primitive::{AtomicBool, Ordering::Relaxed};
use crate::stat::Stat;
use crate::testing::range;
use std_alloc::boxed::Box;

const AT: Vpn = Vpn(BASE);
/// Frames of a node.
const FRAMES: u32 = 4096;

struct Bench {
    mm: Mm<TestMachine>,
    space: SpaceId,
    pages: u64,
}

impl Bench {
    /// A process with pages on the node that all CPUs are on. Two nodes, the first of which is nearer, have memory of
    /// one slower tier. There is no swap.
    fn new(pages: u64, demotion: u64) -> &'static Bench {
        Bench::with(false, pages, demotion)
    }

    /// The same; the two nodes may be equally far.
    fn with(equally_far: bool, pages: u64, demotion: u64) -> &'static Bench {
        let memory: Vec<_> =
            (0..3).map(|node| range(node, ZoneKind::Normal, u32::from(node) * FRAMES, FRAMES)).collect();
        let mut machine = TestMachine::new(&[0], &memory);
        machine.slow_from = NodeId(1);
        machine.equally_far = equally_far;
        let mm = Mm::new(machine, Config::default()).unwrap();
        mm.set_knob(Knob::DemotionEnabled, demotion).unwrap();
        let space = mm.create_space(ROOT).unwrap();
        mm.mmap(space, &request(AT, pages, Backing::Anonymous)).unwrap();
        let bench: &'static Bench = Box::leak(Box::new(Bench { mm, space, pages }));
        assert!(bench.nodes().iter().all(|&node| node == 0));
        bench
    }

    fn frame(&self, page: u64) -> Pfn {
        reach(&self.mm, self.space, Vpn(AT.0 + page), true, 4).unwrap().0
    }

    /// The node of each page.
    fn nodes(&self) -> Vec<u8> {
        (0..self.pages).map(|page| self.mm.core.frames[self.frame(page)].node().0).collect()
    }

    /// Reclaim from the nodes until pages were demoted. Returns their number.
    fn reclaim(&self) -> i64 {
        let demoted = || self.mm.mmu().stats.read(Stat::PgdemoteDirect);
        for _ in 0..8 {
            reclaim_node(&self.mm);
            if demoted() > 0 {
                break;
            }
        }
        demoted()
    }

    fn free_on(&self, node: u8) -> u64 {
        let alloc = &self.mm.core.alloc;
        alloc.drain_all(self.mm.mmu());
        alloc.zones()[usize::from(node)].free_pages()
    }
}

/// `numa.demotion_enabled`.
#[test]
fn pages_are_demoted_only_if_wanted() {
    for wanted in [0, 1] {
        let bench = Bench::new(200, wanted);
        let demoted = bench.reclaim();
        let away = bench.nodes().iter().filter(|&&node| node == 1).count() as i64;
        assert_eq!((demoted > 0, away), (wanted == 1, demoted));
        bench.mm.validate().unwrap();
    }
}

#[test]
fn pages_are_demoted_farther_if_the_nearest_node_is_full() {
    let bench = Bench::new(200, 1);
    let core = &bench.mm.core;
    let take = || frame_on(core, NodeId(1), Order::ZERO, Watermark::Min);
    let full: Vec<Pfn> = core::iter::from_fn(|| Some(take()?.into_pfn())).collect();
    let demoted = bench.reclaim();
    assert!(demoted > 0);
    let away = bench.nodes().iter().filter(|&&node| node == 2).count() as i64;
    assert_eq!(away, demoted);
    full.into_iter().for_each(|pfn| core.put(pfn));
    bench.mm.validate().unwrap();
}

#[test]
fn pages_are_demoted_to_each_of_the_nearest_nodes() {
    let bench = Bench::with(true, 200, 1);
    let store = |page| bench.mm.machine().set_stamp(bench.frame(page), 1000 + page);
    (0..bench.pages).for_each(store);
    (0..40).for_each(|_| reclaim_node(&bench.mm));
    let load = |page| bench.mm.machine().stamp(bench.frame(page));
    assert_eq!((0..bench.pages).find(|&page| load(page) != 1000 + page), None);
    let on = |wanted| bench.nodes().iter().filter(|&&node| node == wanted).count();
    assert!(on(1) > 20 && on(2) > 20, "{:?}", [0, 1, 2].map(on));
    bench.mm.validate().unwrap();
}

/// Another task gets a reference to the page after a frame was taken for it.
#[test]
fn demotion_that_is_abandoned_leaks_no_frame() {
    let bench = Bench::new(1, 1);
    let frame = &bench.mm.core.frames[bench.frame(0)];
    let before = bench.free_on(1);
    let held = AtomicBool::new(false);
    *bench.mm.machine().entered.lock() = Some(Box::new(move |_, scope| {
        if scope == Scope::TryToMigrateOne && !held.swap(true, Relaxed) {
            frame.get(1);
        }
    }));
    // It is cold only after its young bit was cleared.
    (0..4).for_each(|_| reclaim_node(&bench.mm));
    assert_eq!((frame.refs(), bench.nodes()), (2, std_alloc::vec![0]), "the move was begun and abandoned");
    assert_eq!(bench.free_on(1), before);
    bench.mm.core.put(bench.frame(0));
    bench.mm.validate().unwrap();
}
