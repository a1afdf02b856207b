//! Waits for a generation that other tasks are about to begin.

use super::*;
use crate::machine::Machine;

/// Nobody begins the generation.
#[test]
fn wait_for_a_generation_ends_after_a_tenth_of_a_second() {
    let bench = bench();
    let (machine, waits) = (&bench.core.machine, AtomicU32::new(0));
    let seq = bench.core.lru.vec(NodeId(0), ROOT).generations.max_seq();
    *machine.idle.lock() = Some(Box::new(move |_| {
        assert!(waits.fetch_add(1, Relaxed) < 2, "it must give up");
    }));
    let before = machine.now();
    assert!(!bench.cx().await_generation(NodeId(0), ROOT, seq));
    assert_eq!(machine.now() - before, 100_000_000);
}

/// Under the form of 7.2: nothing can be evicted before the generation begins. Without swap, only the generations of
/// files matter.
#[test]
fn eviction_with_a_budget_waits_for_a_generation_that_others_begin() {
    for can_swap in [false, true] {
        let bench: &'static Bench = Box::leak(Box::new(with_form(2)));
        let (core, lru) = (&bench.core, &bench.core.lru);
        let generations = &lru.vec(NodeId(0), ROOT).generations;
        let pfns: Vec<Pfn> = match can_swap {
            true => bench.anons(100, ROOT, Bits::empty()),
            false => (0..300).map(|page| bench.folio(page).unwrap()).collect(),
        };
        let mut promotions = lru.promotions(core, NodeId(0), ROOT);
        for pfn in pfns {
            (0..2).for_each(|_| {
                promotions.begin_window(false);
                lru.promote(&core.frames[pfn], &mut promotions);
            });
        }
        lru.tell_promotions(core, &mut promotions);
        // All of them are in the two youngest generations now.
        let wanted = Wanted { swappiness: if can_swap { 200 } else { 0 }, ..EVERYTHING };
        for _ in 0..9 {
            lru.isolate_oldest(core, NodeId(0), ROOT, wanted);
        }
        assert_eq!(generations.count(!can_swap), 2);
        let seq = generations.max_seq();
        assert!(bench.state.aging(NodeId(0), ROOT).pass(seq));
        let begin = move |_: &TestMachine| {
            bench.core.lru.begin_generation(&bench.core, NodeId(0), ROOT, seq, can_swap);
        };
        *core.machine.idle.lock() = Some(Box::new(begin));
        let mut sc = ScanControl::new(32, Order::ZERO, ZoneKind::Movable);
        (sc.priority, sc.may_swap) = (5, can_swap);
        assert!(bench.cx().evict(NodeId(0), ROOT, &mut sc), "can_swap={can_swap}: it was aged");
        assert_eq!((generations.max_seq(), sc.mm_walk), (seq + 1, false), "can_swap={can_swap}");
    }
}
