//! What kswapd does when all memory was used lately.

use crate::knobs::Knob;
use crate::lru::mglru::Wanted;
use crate::lru::{PolicyKind, ROOT};
use crate::machine::ZoneKind;
use crate::primitive::{AtomicU32, Ordering::Relaxed};
use crate::reclaim::spaces::NoSpaces;
use crate::reclaim::tests::Bench;
use crate::reclaim::{AddressSpaces, Member, Reclaim, ScanControl, WalkRange};
use crate::table::Bits;
use crate::testing::TestMachine;
use crate::units::*;
use std_alloc::boxed::Box;

/// Counts how often memory was said to thrash.
#[derive(Default)]
struct Asked(AtomicU32);

impl AddressSpaces for Asked {
    fn bound(&self) -> u32 {
        0
    }

    fn member(&self, _space: SpaceId) -> Option<Member> {
        None
    }

    fn arrivals(&self) -> u64 {
        0
    }

    fn take_ran(&self, _space: SpaceId, _node: NodeId) -> bool {
        false
    }

    fn next_range(&self, _space: SpaceId, _from: Vpn) -> Option<WalkRange> {
        None
    }

    fn try_next_range(&self, _space: SpaceId, _from: Vpn) -> Option<WalkRange> {
        None
    }

    fn thrashes(&self) {
        self.0.fetch_add(1, Relaxed);
    }
}

#[test]
fn memory_that_was_used_lately_is_protected() {
    let bench = Bench::new(64);
    bench.st.lru.set_policy(bench.st.memory().ground(), PolicyKind::MgLru).unwrap();
    bench.clean_file(0..200, ROOT);
    let spaces = Asked::default();
    let cx = Reclaim { st: &bench.st, state: &bench.state, spaces: &spaces };
    let mut sc = ScanControl::new(0, Order::ZERO, ZoneKind::Movable);
    (sc.kswapd, sc.priority) = (true, 0);
    let mut age = || {
        cx.front().age_node(cx, NodeId(0), &mut sc);
        spaces.0.load(Relaxed)
    };
    bench.st.machine.advance(1_000_000_000);
    assert_eq!(age(), 0, "without a limit nothing is protected");
    bench.st.knobs.set(Knob::LruGenMinTtlMs, 2000).unwrap();
    assert_eq!(age(), 1, "everything is younger than two seconds");
    bench.st.machine.advance(1_500_000_000);
    assert_eq!(age(), 1, "the oldest generation is old enough now");
}

/// Else it finds nothing to evict, as often as it looks, and memory seems to be out while others age it.
#[test]
fn who_needs_memory_waits_for_a_generation_that_others_begin() {
    let bench: &'static Bench = Box::leak(Box::new(Bench::new(64)));
    let base = bench.st.memory().ground();
    bench.st.lru.set_policy(base, PolicyKind::MgLru).unwrap();
    bench.anons(100, ROOT, Bits::YOUNG);
    let generations = &bench.st.lru.vec(NodeId(0), ROOT).generations;
    let cx = Reclaim { st: &bench.st, state: &bench.state, spaces: &NoSpaces };
    let mut sc = ScanControl::new(32, Order::ZERO, ZoneKind::Movable);
    sc.priority = 4;
    // What is left is in the two youngest generations.
    bench.st.lru.isolate_oldest(base, NodeId(0), ROOT, Wanted { highest: ZoneKind::Movable, swappiness: 60 });
    let seq = generations.max_seq();
    assert_eq!(generations.count(false), 2);
    // Others have visited all spaces, and are about to begin the generation.
    assert!(bench.state.aging(NodeId(0), ROOT).pass(seq));
    let begin = move |_: &TestMachine| {
        bench.st.lru.begin_generation(base, NodeId(0), ROOT, seq, true);
    };
    *bench.st.machine.idle.lock() = Some(Box::new(begin));
    assert_eq!(cx.share(NodeId(0), ROOT, true, &sc), None, "it was aged");
    assert_eq!(generations.max_seq(), seq + 1);
}
