//! What kswapd does when all memory was used lately.

use crate::knobs::Knob;
use crate::lru::{PolicyKind, ROOT};
use crate::machine::ZoneKind;
use crate::primitive::{AtomicU32, Ordering::Relaxed};
use crate::reclaim::tests::Bench;
use crate::reclaim::{AddressSpaces, Member, Reclaim, ScanControl, WalkRange};
use crate::units::*;

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
