//! kswapd: its naps, its waits for devices, and when it gives up.

use super::*;
use crate::event::Event;
use std_alloc::boxed::Box;

#[test]
fn nap_of_kswapd_takes_a_tenth_of_a_second() {
    let bench: &'static Bench = Box::leak(Box::new(Bench::new(0)));
    bench.core.machine.advance(200_000_000_000);
    let naps = AtomicU32::new(0);
    // Nobody wakes it from its nap, but from its sleep.
    *bench.core.machine.idle.lock() = Some(Box::new(move |machine| {
        if naps.fetch_add(1, Relaxed) == 1 {
            machine.advance(7);
            assert!(bench.core.alloc.rouse_kswapd(&bench.core, NodeId(0)));
        }
    }));
    let wanted = KswapdRequest { order: Order::ZERO, highest: ZoneKind::Normal };
    bench.cx().try_to_sleep(NodeId(0), wanted, Order::ZERO);
    assert_eq!(bench.core.machine.now(), 200_100_000_007);
    assert_eq!(bench.core.machine.events(Event::MmVmscanKswapdSleep), 1);
}

/// The node is noted as slow, and kswapd meets pages for the second time while they are under write-back.
#[test]
fn kswapd_waits_for_write_back_on_a_slow_node() {
    let bench = Bench::new(0);
    bench.write(0..64, ROOT);
    for page in 0..64 {
        bench.write_unused(page);
        bench.core.frames[bench.folio(page).unwrap()].set(FrameFlags::RECLAIM);
    }
    bench.state.nodes[0].writeback.store(true, Relaxed);
    let mut sc = ScanControl::new(32, Order::ZERO, ZoneKind::Movable);
    (sc.kswapd, sc.priority) = (true, 0);
    let before = bench.core.machine.now();
    bench.cx().shrink_node(NodeId(0), &mut sc);
    assert_eq!(bench.core.machine.events(Event::MmVmscanThrottled), 1);
    assert_eq!(bench.core.machine.now() - before, 100_000_000);
    assert_eq!(bench.finish_io(), 64);
}

/// Many inactive pages of files look like cache that is easy to trim. If nothing of it can be freed, kswapd tries once
/// more without that assumption, and only once.
#[test]
fn kswapd_gives_up_a_node_whose_cache_is_in_use() {
    let bench = Bench::new(0);
    bench.core.knobs.set(Knob::MemcgFlushMs, 0).unwrap();
    bench.clean_file(0..64, ROOT);
    let used: Vec<_> = (0..64).map(|page| bench.folio(page).unwrap()).collect();
    used.iter().for_each(|&pfn| bench.core.frames[pfn].get(1));
    let pinned = bench.pin_all();
    let wanted = bench.core.alloc.take_kswapd_request(NodeId(0)).unwrap();
    let passes = AtomicU32::new(0);
    *bench.core.machine.entered.lock() = Some(Box::new(move |_, scope| {
        let pass = scope == crate::machine::Scope::ShrinkNode;
        assert!(!pass || passes.fetch_add(1, Relaxed) < 1000, "kswapd must give up");
    }));
    for _ in 0..16 {
        assert!(!bench.state.is_hopeless(NodeId(0)));
        bench.cx().balance(NodeId(0), wanted);
    }
    assert!(bench.state.is_hopeless(NodeId(0)));
    used.into_iter().chain(pinned).for_each(|pfn| bench.core.put(pfn));
}

/// The cache looks easy to trim, but all of it is in use: anonymous memory must give pages.
#[test]
fn kswapd_swaps_if_the_cache_is_in_use() {
    let bench = Bench::new(256);
    bench.core.knobs.set(Knob::MemcgFlushMs, 0).unwrap();
    bench.clean_file(0..64, ROOT);
    bench.anons(64, ROOT, Bits::DIRTY);
    let used: Vec<_> = (0..64).map(|page| bench.folio(page).unwrap()).collect();
    used.iter().for_each(|&pfn| bench.core.frames[pfn].get(1));
    let pinned = bench.pin_all();
    let wanted = bench.core.alloc.take_kswapd_request(NodeId(0)).unwrap();
    bench.cx().balance(NodeId(0), wanted);
    assert!(bench.finish_io() > 0);
    assert_eq!(bench.resident(0..64), 64);
    used.into_iter().chain(pinned).for_each(|pfn| bench.core.put(pfn));
}
