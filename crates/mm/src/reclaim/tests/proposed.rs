//! Reclaim under a policy that proposes.

use super::*;
use crate::machine::Scope;
use std_alloc::boxed::Box;

/// All vectors have the first policy that proposes; there is no swap.
fn bench() -> Bench {
    let bench = Bench::new(0);
    bench.core.lru.set_policy(&bench.core, PolicyKind::Proposed(0)).unwrap();
    bench
}

impl Bench {
    fn group_with_low(&self, low: u64) -> GroupId {
        self.core.lru.create_group(ROOT, GroupLimits { low, ..GroupLimits::default() }, drop).unwrap()
    }
}

/// A group without protection that is visited after it must not hide that it was spared.
#[test]
fn group_below_memory_low_gives_pages_if_others_have_none() {
    let bench = bench();
    let [before, low, after] = [0, 64, 0].map(|low| bench.group_with_low(low));
    bench.clean_file(0..64, low);
    // Without swap, reclaim cannot take these.
    bench.anon(0, before, Bits::empty());
    bench.anon(1, after, Bits::empty());
    assert!(bench.direct() > 0);
}

/// memory.low leaves at least a batch of a group to be scanned, even if nothing is on its lists.
#[test]
fn reclaim_ends_if_a_protected_group_has_nothing_on_its_lists() {
    let bench = bench();
    let core = &bench.core;
    let group = bench.group_with_low(32);
    let held: Vec<_> = (0..64).map(|_| core.new_folio(Order::ZERO, Gfp::user(group)).unwrap()).collect();
    let batches = AtomicU32::new(0);
    *core.machine.entered.lock() = Some(Box::new(move |_, scope| {
        let more = scope == Scope::ShrinkInactiveList;
        assert!(!more || batches.fetch_add(1, Relaxed) < 1000, "reclaim does not end");
    }));
    assert_eq!(bench.direct(), 0);
    held.into_iter().for_each(|pfn| core.put(pfn));
}
