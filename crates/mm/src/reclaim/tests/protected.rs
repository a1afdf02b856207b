//! memory.low: the group is spared while other groups have pages, and gives its own before memory is out.

use super::*;
use crate::lru::mglru::Wanted;

impl Bench {
    /// With generations, in the order of groups or not (`lru_gen.memcg_lru`).
    fn with_generations(ordered: u64) -> Bench {
        let bench = Bench::new(0);
        bench.core.lru.set_policy(&bench.core, PolicyKind::MgLru).unwrap();
        bench.core.knobs.set(Knob::LruGenMemcgLru, ordered).unwrap();
        bench
    }

    /// A group with this memory.low and these clean pages of the file.
    fn group(&self, low: u64, pages: core::ops::Range<u64>) -> GroupId {
        let limits = GroupLimits { low, ..GroupLimits::default() };
        let group = self.core.lru.create_group(ROOT, limits, drop).unwrap();
        self.clean_file(pages, group);
        group
    }

    fn drain(&self, pages: core::ops::Range<u64>) {
        while self.resident(pages.clone()) > 0 {
            assert!(self.direct() > 0, "memory.low is ignored before memory is out");
        }
    }
}

/// Reclaim must not forget that it has spared a group when it visits the next one.
#[test]
fn spared_group_is_reclaimed_if_other_groups_can_give_nothing() {
    let bench = Bench::new(0);
    let before = bench.group(0, 0..0);
    bench.group(64, 0..64);
    let after = bench.group(0, 0..0);
    // Without swap, these pages stay.
    bench.anon(0, before, Bits::empty());
    bench.anon(1, after, Bits::empty());
    bench.drain(0..64);
}

#[test]
fn spared_group_with_generations_is_reclaimed_if_others_have_nothing() {
    for ordered in [0, 1] {
        let bench = Bench::with_generations(ordered);
        bench.group(64, 0..64);
        bench.drain(0..64);
    }
}

#[test]
fn group_with_generations_is_spared_if_others_give_enough() {
    for ordered in [0, 1] {
        let bench = Bench::with_generations(ordered);
        for group in [bench.group(64, 0..64), bench.group(0, 64..364)] {
            // Passes the empty oldest generation.
            let wanted = Wanted { highest: ZoneKind::Movable, swappiness: 0, budget: None };
            bench.core.lru.isolate_oldest(&bench.core, NodeId(0), group, wanted);
        }
        let mut sc = ScanControl::new(32, Order::ZERO, ZoneKind::Movable);
        sc.priority = 3;
        bench.cx().shrink_node(NodeId(0), &mut sc);
        assert!(sc.nr_reclaimed >= 32 && bench.resident(0..64) == 64, "memcg_lru={ordered}");
    }
}
