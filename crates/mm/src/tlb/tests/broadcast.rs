//! Flushes that hardware does on all CPUs, without interrupts.

use super::*;

#[test]
fn a_broadcast_pays_without_asking() {
    let (bench, a) = Bench::broadcasting(2).used();
    let generation = bench.defer(a);
    bench.pay(generation);
    bench.tlb.settle_space(bench.platform.host(), a);
    assert_eq!((bench.shootdowns().len(), bench.flushes()), (0, vec![]));
    assert_eq!(bench.broadcasts(), [Broadcast::All]);
    assert_eq!(bench.tlb.paid_up_to(ZoneId(0)), generation);
}

/// From the fourth CPU on hardware drops a range on all CPUs. They note no generation, so one that loads the space
/// again drops all of it.
#[test]
fn a_range_is_broadcast_to_four_cpus() {
    for cpus in [3, 4] {
        let bench = Bench::broadcasting(cpus);
        let space = bench.tlb.create();
        (0..cpus).for_each(|cpu| bench.run(cpu as u16, space));
        let root = bench.tlb.contexts()[space.0].root();
        bench.platform.machine.run_on(0);
        bench.tlb.flush(bench.platform.host(), space, Range::entries(Vpn(9), 2, Order::ZERO));
        let pages = Flush::Pages { start: Vpn(9), count: 2, stride: Order::ZERO };
        match cpus {
            3 => assert_eq!((bench.shootdowns().len(), bench.broadcasts()), (1, vec![])),
            _ => assert_eq!(
                (bench.shootdowns().len(), bench.broadcasts()),
                (0, vec![Broadcast::Of(root, pages)])
            ),
        }
        let many = bench.platform.knobs.get(Knob::TlbSinglePageFlushCeiling) + 1;
        bench.tlb.flush(bench.platform.host(), space, Range::entries(Vpn(9), many, Order::ZERO));
        if cpus == 4 {
            assert_eq!(bench.broadcasts()[1], Broadcast::Of(root, Flush::Current));
        }
    }
}

/// CPUs are done after their flush, with what was drawn before they began.
#[test]
fn a_broadcast_covers_only_debts_drawn_before_it() {
    let (bench, a) = Bench::broadcasting(2).used();
    let generation = bench.defer(a);
    let drawn_meanwhile = Arc::new(core::sync::atomic::AtomicU64::new(0));
    let (watched, meanwhile) = (bench.tlb.clone(), drawn_meanwhile.clone());
    *bench.platform.machine.watcher.lock() = Some(Box::new(move |_, event, args| {
        if (event, args[0]) == (Event::TlbFlush, BROADCAST) {
            assert!(watched.done(CpuId(1)) < generation, "a CPU must not be done before its flush");
            meanwhile.store(watched.draw().0, Relaxed);
        }
    }));
    bench.pay(generation);
    let later = drawn_meanwhile.load(Relaxed);
    assert!(generation <= bench.tlb.done(CpuId(1)) && bench.tlb.done(CpuId(1)).0 < later);
}

#[test]
fn a_list_is_broadcast_if_hardware_can() {
    let (bench, a) = Bench::broadcasting(2).used();
    bench.set(Knob::TlbUnmap, FlushPolicy::List.value());
    let mut batch = UnmapBatch::new(bench.platform.host());
    bench.note(&mut batch, page(a, 9, true));
    bench.settle(&mut batch);
    assert_eq!(bench.broadcasts(), [Broadcast::All]);
}
