//! Which CPUs are asked to flush, and what each of them then does.

use super::{debt::Debt, *};
use crate::event::Event;
use crate::frame::Owner;
use crate::knobs::FlushPolicy;
use crate::knobs::Knobs;
use crate::machine::{Asid, Flush};
use crate::primitive::AtomicU64;
use crate::testing::{BROADCAST, TestMachine};
use std_alloc::boxed::Box;
use std_alloc::sync::Arc;
use std_alloc::vec::Vec;

const ROOT: Pfn = Pfn(5);

fn bench(cpus: usize) -> (Platform<TestMachine>, Tlb) {
    let platform = Platform::new(TestMachine::simple(cpus, 1024), Knobs::default());
    let tlb = Tlb::new(&platform);
    (platform, tlb)
}

fn run(platform: &Platform<TestMachine>, tlb: &Tlb, cpu: u16, space: SpaceId) {
    platform.machine.run_on(cpu);
    tlb.switch(platform, space, ROOT);
}

fn flushes(platform: &Platform<TestMachine>) -> Vec<(u16, Flush)> {
    platform.machine.flushes.lock().drain(..).map(|(cpu, flush)| (cpu.0, flush)).collect()
}

fn shootdowns(platform: &Platform<TestMachine>) -> Vec<Vec<u16>> {
    platform.machine.shootdowns.lock().drain(..).map(|set| set.iter().map(|cpu| cpu.0).collect()).collect()
}

fn one(page: u64) -> Flush {
    Flush::Pages { start: Vpn(page), count: 1, stride: Order::ZERO }
}

#[test]
fn only_cpus_that_run_the_space_are_asked() {
    let (platform, tlb) = bench(4);
    let (a, b) = (tlb.create(), tlb.create());
    for (cpu, space) in [(1, a), (2, a), (3, b), (0, a)] {
        run(&platform, &tlb, cpu, space);
    }
    tlb.flush(&platform, a, Range::page(Vpn(9)));
    assert_eq!(shootdowns(&platform), [[1, 2]]);
    assert_eq!(flushes(&platform), [(1, one(9)), (2, one(9)), (0, one(9))]);
    assert_eq!(platform.stats.read(Stat::NrTlbRemoteFlush), 1);
    assert_eq!(platform.stats.read(Stat::NrTlbRemoteFlushReceived), 2);
}

#[test]
fn a_lazy_cpu_is_not_asked_and_catches_up_on_return() {
    let (platform, tlb) = bench(2);
    let a = tlb.create();
    run(&platform, &tlb, 1, a);
    tlb.enter_lazy(&platform);
    run(&platform, &tlb, 0, a);
    tlb.flush(&platform, a, Range::page(Vpn(9)));
    assert_eq!((shootdowns(&platform).len(), flushes(&platform)), (0, std_alloc::vec![(0, one(9))]));
    run(&platform, &tlb, 1, a);
    assert_eq!(flushes(&platform), [(1, Flush::Current)]);
    run(&platform, &tlb, 1, a);
    assert_eq!(flushes(&platform), []);
}

#[test]
fn a_lazy_cpu_unloads_a_space_whose_tables_are_freed() {
    let (platform, tlb) = bench(2);
    let a = tlb.create();
    run(&platform, &tlb, 1, a);
    tlb.enter_lazy(&platform);
    run(&platform, &tlb, 0, a);
    tlb.flush(&platform, a, Range { freed_tables: true, ..Range::ALL });
    assert_eq!(shootdowns(&platform), [[1]]);
    assert_eq!(platform.machine.roots.lock()[&CpuId(1)].0, Pfn::NONE);
    assert!(!tlb.cpus_of(a).contains(CpuId(1)));
}

#[test]
fn a_kept_asid_is_flushed_on_load_if_an_entry_was_cleared() {
    let (platform, tlb) = bench(2);
    let (a, b) = (tlb.create(), tlb.create());
    run(&platform, &tlb, 1, a);
    run(&platform, &tlb, 1, b);
    run(&platform, &tlb, 1, a);
    assert_eq!(platform.machine.roots.lock()[&CpuId(1)], (ROOT, Asid(0), true));
    run(&platform, &tlb, 1, b);
    platform.machine.run_on(0);
    tlb.flush(&platform, a, Range::page(Vpn(9)));
    assert_eq!((shootdowns(&platform).len(), flushes(&platform).len()), (0, 0));
    run(&platform, &tlb, 1, a);
    assert_eq!(platform.machine.roots.lock()[&CpuId(1)], (ROOT, Asid(0), false));
}

#[test]
fn a_cpu_that_missed_a_generation_flushes_everything() {
    let (platform, tlb) = bench(2);
    let a = tlb.create();
    run(&platform, &tlb, 0, a);
    // A generation that CPU 0 was not told of, as when requests overtake each other.
    tlb.contexts[a.0].generation.fetch_add(1, SeqCst);
    tlb.flush(&platform, a, Range::page(Vpn(9)));
    assert_eq!(flushes(&platform), [(0, Flush::Current)]);
}

#[test]
fn more_pages_than_the_ceiling_are_one_full_flush() {
    let (platform, tlb) = bench(1);
    let a = tlb.create();
    run(&platform, &tlb, 0, a);
    let pages = |pages| Range::pages(Vpn(1), pages);
    tlb.flush(&platform, a, pages(33));
    tlb.flush(&platform, a, pages(34));
    let some = Flush::Pages { start: Vpn(1), count: 33, stride: Order::ZERO };
    assert_eq!(flushes(&platform), [(0, some), (0, Flush::Current)]);
    assert_eq!(platform.stats.read(Stat::NrTlbLocalFlushOne), 33);
}

#[test]
fn a_reused_space_is_not_taken_for_its_predecessor() {
    let (platform, tlb) = bench(1);
    let a = tlb.create();
    run(&platform, &tlb, 0, a);
    tlb.enter_lazy(&platform);
    tlb.destroy(&platform, a);
    tlb.release(a);
    let again = tlb.create();
    assert_eq!(again, a);
    run(&platform, &tlb, 0, again);
    assert!(!platform.machine.roots.lock()[&CpuId(0)].2, "translations of a dead space must be dropped");
}

#[test]
fn the_oldest_asid_is_reused() {
    let (platform, tlb) = bench(1);
    let spaces: Vec<_> = (0..7).map(|_| tlb.create()).collect();
    for &space in &spaces {
        run(&platform, &tlb, 0, space);
        assert!(!platform.machine.roots.lock()[&CpuId(0)].2);
    }
    run(&platform, &tlb, 0, spaces[0]);
    assert!(!platform.machine.roots.lock()[&CpuId(0)].2, "the seventh space got its number");
}

/// Unmap a page that CPU 1 may hold; the flush is deferred. Returns the debt's generation.
fn defer(platform: &Platform<TestMachine>, tlb: &Tlb, space: SpaceId) -> Generation {
    platform.knobs.set(Knob::TlbUnmap, FlushPolicy::Lazy.value()).unwrap();
    let mut batch = UnmapBatch::new(platform);
    let cleared = page(space, 9, false);
    let _ = batch.note_cleared(platform, tlb, &cleared);
    batch.settle(platform, tlb);
    tlb.owed_by_tag(ZoneId(0), platform.frames[cleared.pfn].debt())
}

#[test]
fn a_broadcast_pays_without_asking() {
    let mut machine = TestMachine::simple(2, 1024);
    machine.broadcast = Some(crate::primitive::AtomicU64::new(0));
    let platform = Platform::new(machine, Knobs::default());
    let tlb = Tlb::new(&platform);
    let a = tlb.create();
    run(&platform, &tlb, 1, a);
    platform.machine.run_on(0);
    let generation = defer(&platform, &tlb, a);
    tlb.settle_zone(&platform, ZoneId(0), generation, Pfn(7), Order::ZERO);
    tlb.settle_space(&platform, a);
    assert_eq!((shootdowns(&platform).len(), flushes(&platform)), (0, std_alloc::vec![]));
    assert_eq!(platform.machine.broadcast.as_ref().map(|count| count.load(Relaxed)), Some(1));
    assert_eq!(tlb.paid_up_to(ZoneId(0)), generation);
}

/// CPUs are done after their flush, with what was drawn before they began.
#[test]
#[allow(clippy::arc_with_non_send_sync, reason = "the one-threaded form has a single thread")]
fn a_broadcast_covers_only_debts_drawn_before_it() {
    let mut machine = TestMachine::simple(2, 1024);
    machine.broadcast = Some(AtomicU64::new(0));
    let platform = Platform::new(machine, Knobs::default());
    let tlb = Arc::new(Tlb::new(&platform));
    let a = tlb.create();
    run(&platform, &tlb, 1, a);
    platform.machine.run_on(0);
    let generation = defer(&platform, &tlb, a);
    let drawn_meanwhile = Arc::new(AtomicU64::new(0));
    let (watched, meanwhile) = (tlb.clone(), drawn_meanwhile.clone());
    *platform.machine.watcher.lock() = Some(Box::new(move |_, event, args| {
        if (event, args[0]) == (Event::TlbFlush, BROADCAST) {
            assert!(watched.done(CpuId(1)) < generation, "a CPU must not be done before its flush");
            meanwhile.store(watched.draw().0, Relaxed);
        }
    }));
    tlb.settle_zone(&platform, ZoneId(0), generation, Pfn(7), Order::ZERO);
    let later = drawn_meanwhile.load(Relaxed);
    assert!(generation <= tlb.done(CpuId(1)) && tlb.done(CpuId(1)).0 < later);
}

#[test]
fn a_debt_in_three_places_is_paid_once() {
    let (platform, tlb) = bench(3);
    let (a, b) = (tlb.create(), tlb.create());
    run(&platform, &tlb, 1, a);
    run(&platform, &tlb, 2, b);
    platform.machine.run_on(0);
    let first = defer(&platform, &tlb, a);
    assert_eq!(shootdowns(&platform).len(), 0);
    // CPU 2 owes nothing for this space and is not asked.
    tlb.settle_space(&platform, a);
    assert_eq!(shootdowns(&platform), [[1]]);
    tlb.settle_zone(&platform, ZoneId(0), first, Pfn(7), Order::ZERO);
    tlb.settle_space(&platform, a);
    assert_eq!(shootdowns(&platform).len(), 0);
}

#[test]
fn a_round_reaches_all_cpus_that_owe_unless_the_knob_forbids() {
    for (pay_all, targets) in [(1, std_alloc::vec![1, 2]), (0, std_alloc::vec![1])] {
        let (platform, tlb) = bench(4);
        platform.knobs.set(Knob::TlbPayAll, pay_all).unwrap();
        let (a, b) = (tlb.create(), tlb.create());
        run(&platform, &tlb, 1, a);
        run(&platform, &tlb, 2, b);
        run(&platform, &tlb, 3, b);
        tlb.enter_lazy(&platform);
        platform.machine.run_on(0);
        defer(&platform, &tlb, a);
        defer(&platform, &tlb, b);
        tlb.settle_space(&platform, a);
        assert_eq!(shootdowns(&platform), [targets]);
    }
}

#[test]
fn a_switch_or_a_return_from_a_kernel_task_pays() {
    let (platform, tlb) = bench(3);
    let (a, b) = (tlb.create(), tlb.create());
    for cpu in [1, 2] {
        run(&platform, &tlb, cpu, a);
    }
    platform.machine.run_on(0);
    defer(&platform, &tlb, a);
    run(&platform, &tlb, 1, b);
    platform.machine.run_on(2);
    tlb.enter_lazy(&platform);
    run(&platform, &tlb, 2, a);
    platform.machine.run_on(0);
    tlb.settle_space(&platform, a);
    assert_eq!(shootdowns(&platform).len(), 0);
}

#[test]
fn writable_entries_are_never_deferred() {
    for reason in 0..4 {
        let (platform, tlb) = bench(2);
        let a = tlb.create();
        run(&platform, &tlb, 1, a);
        platform.machine.run_on(0);
        platform.knobs.set(Knob::TlbUnmap, FlushPolicy::Lazy.value()).unwrap();
        match reason {
            0 => tlb.begin_tightening(a),
            1 => tlb.set_never_deferred(a, true),
            _ => {}
        }
        let mut batch = UnmapBatch::new(&platform);
        let cleared = Cleared { dropped: reason == 3, ..page(a, 9, reason == 2) };
        let _ = batch.note_cleared(&platform, &tlb, &cleared);
        assert_eq!(
            (platform.frames[cleared.pfn].debt(), batch.owes_for_writable()),
            (0, matches!(reason, 0 | 2)),
            "{reason}"
        );
        batch.settle(&platform, &tlb);
        assert_eq!(shootdowns(&platform), [[1]], "{reason}");
    }
}

#[test]
fn a_tick_pays_old_debts_and_asks_no_cpu() {
    let (platform, tlb) = bench(2);
    let a = tlb.create();
    run(&platform, &tlb, 1, a);
    platform.machine.run_on(0);
    defer(&platform, &tlb, a);
    platform.knobs.set(Knob::TlbAgeLimitMs, 5).unwrap();
    platform.machine.run_on(1);
    platform.machine.advance(4_999_999);
    tlb.tick(&platform);
    assert_eq!(flushes(&platform), []);
    platform.machine.advance(1);
    tlb.tick(&platform);
    assert_eq!((flushes(&platform), shootdowns(&platform).len()), (std_alloc::vec![(1, Flush::Current)], 0));
    tlb.tick(&platform);
    assert_eq!(flushes(&platform), []);
}

#[test]
fn a_list_drops_single_pages_only_if_they_are_all_that_a_cpu_missed() {
    for more in [false, true] {
        let (platform, tlb) = bench(2);
        let a = tlb.create();
        run(&platform, &tlb, 1, a);
        platform.machine.run_on(0);
        platform.knobs.set(Knob::TlbUnmap, FlushPolicy::List.value()).unwrap();
        let mut batch = UnmapBatch::new(&platform);
        for at in [9, 4] {
            let _ = batch.note_cleared(&platform, &tlb, &page(a, at, false));
        }
        if more {
            // The generation of another unmapping, which this list does not cover.
            tlb.contexts[a.0].generation.fetch_add(1, SeqCst);
        }
        batch.settle(&platform, &tlb);
        let expected = if more {
            std_alloc::vec![(1, Flush::Current)]
        } else {
            std_alloc::vec![(1, one(9)), (1, one(4))]
        };
        assert_eq!(flushes(&platform), expected);
        batch.settle(&platform, &tlb);
        assert_eq!(shootdowns(&platform).len(), 1);
    }
}

#[test]
fn abis_skips_entries_that_no_cpu_used() {
    let (platform, tlb) = bench(2);
    let a = tlb.create();
    run(&platform, &tlb, 1, a);
    platform.machine.run_on(0);
    platform.knobs.set(Knob::TlbUnmap, FlushPolicy::Abis.value()).unwrap();
    let mut batch = UnmapBatch::new(&platform);
    for never_used in [true, false] {
        let _ = batch.note_cleared(&platform, &tlb, &Cleared { never_used, ..page(a, 9, false) });
        assert_eq!(shootdowns(&platform).len(), usize::from(!never_used));
    }
    batch.settle(&platform, &tlb);
}

#[test]
fn a_list_tells_a_space_from_the_next_with_its_number() {
    let (platform, tlb) = bench(2);
    platform.knobs.set(Knob::TlbUnmap, FlushPolicy::List.value()).unwrap();
    let (a, b) = (tlb.create(), tlb.create());
    let note = |batch: &mut UnmapBatch, at| {
        let _ = batch.note_cleared(&platform, &tlb, &page(a, at, false));
    };
    let (mut batch, mut other) = (UnmapBatch::new(&platform), UnmapBatch::new(&platform));
    run(&platform, &tlb, 1, a);
    note(&mut batch, 3);
    run(&platform, &tlb, 1, b);
    tlb.destroy(&platform, a);
    tlb.release(a);
    assert_eq!(tlb.create(), a);
    run(&platform, &tlb, 1, a);
    platform.machine.run_on(0);
    note(&mut batch, 5);
    note(&mut other, 6);
    flushes(&platform);
    // Page 6 is on the other list: CPU 1 has missed more than this list's two pages.
    batch.settle(&platform, &tlb);
    assert_eq!(flushes(&platform), [(1, Flush::Current)]);
    other.settle(&platform, &tlb);
}

#[test]
fn the_cpu_that_destroys_a_space_unloads_it() {
    let (platform, tlb) = bench(1);
    let a = tlb.create();
    run(&platform, &tlb, 0, a);
    tlb.destroy(&platform, a);
    assert_eq!(platform.machine.roots.lock()[&CpuId(0)].0, Pfn::NONE);
    assert!(!tlb.is_alive(a));
}

#[test]
fn a_round_of_a_call_reaches_cpus_that_owe() {
    let (platform, tlb) = bench(3);
    let (a, b) = (tlb.create(), tlb.create());
    run(&platform, &tlb, 1, a);
    run(&platform, &tlb, 2, b);
    run(&platform, &tlb, 0, b);
    // CPU 0 owes as well; it cannot be sent a request by itself.
    defer(&platform, &tlb, b);
    tlb.flush(&platform, a, Range::page(Vpn(9)));
    assert_eq!(shootdowns(&platform), [[1, 2]]);
    assert_eq!(flushes(&platform), [(1, one(9)), (2, Flush::Current)]);
    tlb.settle_space(&platform, b);
    assert_eq!((flushes(&platform), shootdowns(&platform).len()), (std_alloc::vec![(0, Flush::Current)], 0));
}

#[test]
fn each_asid_has_its_own_generation() {
    let (platform, tlb) = bench(2);
    let (a, b) = (tlb.create(), tlb.create());
    run(&platform, &tlb, 1, a);
    platform.machine.run_on(0);
    for _ in 0..3 {
        tlb.flush(&platform, a, Range::page(Vpn(9)));
    }
    run(&platform, &tlb, 1, b);
    assert!(!tlb.cpus_of(a).contains(CpuId(1)) && tlb.cpus_of(b).contains(CpuId(1)));
    flushes(&platform);
    platform.machine.run_on(0);
    tlb.flush(&platform, b, Range::page(Vpn(4)));
    assert_eq!(flushes(&platform), [(1, one(4))]);
}

/// Unmap a page and note it in a batch.
fn page(space: SpaceId, page: u64, writable: bool) -> Cleared {
    Cleared { writable, ..Cleared::page(space, Vpn(page), Pfn(7)) }
}

#[test]
fn a_list_is_paid_when_it_is_full() {
    for limit in [1, 2] {
        let (platform, tlb) = bench(2);
        let a = tlb.create();
        run(&platform, &tlb, 1, a);
        platform.machine.run_on(0);
        platform.knobs.set(Knob::TlbUnmap, FlushPolicy::List.value()).unwrap();
        platform.knobs.set(Knob::TlbUnmapPages, limit).unwrap();
        let mut batch = UnmapBatch::new(&platform);
        let mut expected = Vec::new();
        for at in 3..3 + limit {
            assert_eq!(flushes(&platform), []);
            let _ = batch.note_cleared(&platform, &tlb, &page(a, at, true));
            expected.push((1, one(at)));
        }
        assert_eq!(flushes(&platform), expected);
        assert!(!batch.owes_for_writable());
        batch.settle(&platform, &tlb);
        assert_eq!(shootdowns(&platform).len(), 1);
    }
}

/// `tlb.lazy_max_order`: the debt of a larger folio is paid with its batch.
#[test]
fn flushes_of_larger_folios_than_the_limit_are_not_deferred() {
    for (limit, deferred) in [(0, false), (1, false), (2, true), (10, true)] {
        let (platform, tlb) = bench(2);
        let a = tlb.create();
        run(&platform, &tlb, 1, a);
        platform.machine.run_on(0);
        platform.knobs.set(Knob::TlbUnmap, FlushPolicy::Lazy.value()).unwrap();
        platform.knobs.set(Knob::TlbLazyMaxOrder, limit).unwrap();
        let head = Pfn(8);
        platform.frames.make_folio(head, Order(2));
        let mut batch = UnmapBatch::new(&platform);
        let _ =
            batch.note_cleared(&platform, &tlb, &Cleared { pages: 4, head, pfn: head, ..page(a, 8, false) });
        assert!(!batch.owes_for_writable());
        batch.settle(&platform, &tlb);
        assert_eq!(shootdowns(&platform).len(), usize::from(!deferred), "order 2, limit {limit}");
        assert_eq!(platform.stats.read(Stat::TlbDeferred), if deferred { 4 } else { 0 });
        // A single page is deferred in any case.
        let _ = batch.note_cleared(
            &platform,
            &tlb,
            &Cleared { head: Pfn(16), pfn: Pfn(16), ..page(a, 3, false) },
        );
        batch.settle(&platform, &tlb);
        assert_eq!(shootdowns(&platform).len(), 0);
    }
}

#[test]
fn a_batch_is_paid_before_a_page_that_can_be_stored_to_is_written() {
    for writable in [false, true] {
        let (platform, tlb) = bench(2);
        let a = tlb.create();
        run(&platform, &tlb, 1, a);
        platform.machine.run_on(0);
        let mut batch = UnmapBatch::new(&platform);
        let _ = batch.note_cleared(&platform, &tlb, &page(a, 9, writable));
        batch.settle_dirty(&platform, &tlb);
        assert_eq!((shootdowns(&platform).len(), batch.owes_for_writable()), (usize::from(writable), false));
        batch.settle(&platform, &tlb);
        assert_eq!(shootdowns(&platform).len(), usize::from(!writable));
    }
}

#[test]
fn a_list_ignores_pages_that_a_cpu_has_caught_up_with() {
    let (platform, tlb) = bench(2);
    platform.knobs.set(Knob::TlbUnmap, FlushPolicy::List.value()).unwrap();
    let (a, b) = (tlb.create(), tlb.create());
    let (mut batch, mut other) = (UnmapBatch::new(&platform), UnmapBatch::new(&platform));
    run(&platform, &tlb, 1, a);
    let _ = batch.note_cleared(&platform, &tlb, &page(a, 3, false));
    run(&platform, &tlb, 1, b);
    run(&platform, &tlb, 1, a);
    platform.machine.run_on(0);
    // It has missed this page and the next, and one of them is listed.
    let _ = other.note_cleared(&platform, &tlb, &page(a, 6, false));
    let _ = batch.note_cleared(&platform, &tlb, &page(a, 5, false));
    batch.settle(&platform, &tlb);
    assert_eq!(flushes(&platform), [(1, Flush::Current)]);
    other.settle(&platform, &tlb);
}

#[test]
fn a_list_is_broadcast_if_hardware_can() {
    let mut machine = TestMachine::simple(2, 1024);
    machine.broadcast = Some(AtomicU64::new(0));
    let platform = Platform::new(machine, Knobs::default());
    let tlb = Tlb::new(&platform);
    platform.knobs.set(Knob::TlbUnmap, FlushPolicy::List.value()).unwrap();
    let a = tlb.create();
    run(&platform, &tlb, 1, a);
    platform.machine.run_on(0);
    let mut batch = UnmapBatch::new(&platform);
    let _ = batch.note_cleared(&platform, &tlb, &page(a, 9, true));
    batch.settle(&platform, &tlb);
    assert_eq!(platform.machine.broadcast.as_ref().map(|count| count.load(Relaxed)), Some(1));
}

/// CPU 1 owes for two pages; CPU 2, which came in between, only for the later one. Returns both generations.
fn two_debts(platform: &Platform<TestMachine>, tlb: &Tlb) -> (SpaceId, [Generation; 2]) {
    platform.knobs.set(Knob::TlbPayAll, 0).unwrap();
    let a = tlb.create();
    run(platform, tlb, 1, a);
    platform.machine.run_on(0);
    let first = defer(platform, tlb, a);
    run(platform, tlb, 2, a);
    platform.machine.run_on(0);
    (a, [first, defer(platform, tlb, a)])
}

#[test]
fn a_payment_for_a_table_leaves_other_debts() {
    let (platform, tlb) = bench(3);
    let (a, [first, second]) = two_debts(&platform, &tlb);
    tlb.settle_table(&platform, a, Vpn(0), first.tag());
    assert_eq!(shootdowns(&platform), [[1]]);
    assert!(tlb.space_owes(a, CpuId(2)) && !tlb.space_owes(a, CpuId(1)) && !tlb.space_owes(a, CpuId(0)));
    tlb.settle_table(&platform, a, Vpn(0), second.tag());
    assert_eq!(shootdowns(&platform), [[2]]);
    assert!(!tlb.space_owes(a, CpuId(2)));
}

#[test]
fn a_payment_for_a_frame_leaves_other_debts() {
    let (platform, tlb) = bench(3);
    let (_, [first, second]) = two_debts(&platform, &tlb);
    tlb.settle_zone(&platform, ZoneId(0), first, Pfn(7), Order::ZERO);
    assert_eq!(
        (shootdowns(&platform), tlb.paid_up_to(ZoneId(0))),
        (std_alloc::vec![std_alloc::vec![1]], first)
    );
    tlb.settle_zone(&platform, ZoneId(0), second, Pfn(7), Order::ZERO);
    assert_eq!(
        (shootdowns(&platform), tlb.paid_up_to(ZoneId(0))),
        (std_alloc::vec![std_alloc::vec![2]], second)
    );
}

#[test]
fn ticks_are_wanted_if_the_policy_pays_at_ticks() {
    let (platform, tlb) = bench(2);
    let wanted = [
        (FlushPolicy::Batch.value(), 100, false),
        (FlushPolicy::Lazy.value(), 0, false),
        (FlushPolicy::Lazy.value(), 1, true),
        (FlushPolicy::Latr.value(), 0, true),
    ];
    for (policy, limit, wants) in wanted {
        platform.knobs.set(Knob::TlbUnmap, policy).unwrap();
        platform.knobs.set(Knob::TlbAgeLimitMs, limit).unwrap();
        assert_eq!(tlb.wants_ticks(&platform), wants, "tlb.unmap={policy}");
    }
    let a = tlb.create();
    run(&platform, &tlb, 1, a);
    let mut batch = UnmapBatch::new(&platform);
    let _ = batch.note_cleared(&platform, &tlb, &page(a, 9, false));
    batch.settle(&platform, &tlb);
    assert_eq!(flushes(&platform), []);
    // `latr`: at the next tick, at any age.
    tlb.tick(&platform);
    assert_eq!(flushes(&platform), [(1, Flush::Current)]);
}

/// CPU 2's debt was drawn before CPU 1's was paid, and arrives at the zone after that.
#[test]
fn a_debt_that_a_payment_has_overtaken_is_still_owed() {
    let (platform, tlb) = bench(3);
    platform.knobs.set(Knob::TlbPayAll, 0).unwrap();
    let (a, b) = (tlb.create(), tlb.create());
    run(&platform, &tlb, 1, a);
    run(&platform, &tlb, 2, b);
    platform.machine.run_on(0);
    let overtaken = Debt { cpus: tlb.cpus_of(b), generation: tlb.draw() };
    let first = defer(&platform, &tlb, a);
    tlb.settle_zone(&platform, ZoneId(0), first, Pfn(7), Order::ZERO);
    assert_eq!(shootdowns(&platform), [[1]]);
    let tag = tlb.owe_frame(&platform, ZoneId(0), &overtaken).tag();
    tlb.settle_zone(&platform, ZoneId(0), tlb.owed_by_tag(ZoneId(0), tag), Pfn(8), Order::ZERO);
    assert_eq!(shootdowns(&platform), [[2]]);
}

/// A task that comes during a round must find the debt in each place; otherwise it would go on before the round is
/// over.
#[test]
#[allow(clippy::arc_with_non_send_sync, reason = "the one-threaded form has a single thread")]
fn a_debt_is_owed_until_its_round_is_over() {
    const FILE: FileId = FileId(3);
    type Pay = fn(&Platform<TestMachine>, &Tlb, SpaceId, Generation);
    let payments: [Pay; 4] = [
        |platform, tlb, a, _| tlb.settle_space(platform, a),
        |platform, tlb, _, _| assert_eq!(tlb.settle_file(platform, FILE).file(), FILE),
        |platform, tlb, a, generation| tlb.settle_table(platform, a, Vpn(0), generation.tag()),
        |platform, tlb, _, generation| tlb.settle_zone(platform, ZoneId(0), generation, Pfn(7), Order::ZERO),
    ];
    for pay in payments {
        let (platform, tlb) = bench(2);
        let tlb = Arc::new(tlb);
        platform.frames[Pfn(7)].set_owner(Owner::File(FILE), PageIndex(0));
        let a = tlb.create();
        run(&platform, &tlb, 1, a);
        platform.machine.run_on(0);
        let generation = defer(&platform, &tlb, a);
        let watched = tlb.clone();
        let round = move |_: &TestMachine, event, _| {
            if event == Event::TlbFlush {
                assert!(watched.space_owes(a, CpuId(1)), "the space must still owe");
                assert!(watched.files[FILE.0].owes(), "the file must still owe");
                assert!(watched.zones[0].domain.owes(), "the zone must still owe");
                assert!(watched.paid_up_to(ZoneId(0)) < generation, "frames must not count as paid");
            }
        };
        *platform.machine.watcher.lock() = Some(Box::new(round));
        pay(&platform, &tlb, a, generation);
        assert_eq!(platform.machine.events(Event::TlbFlush), 1);
    }
}

/// Hardware may walk tables at any time, also for a CPU that is in the kernel: it fetches again what was just
/// dropped, and only then another CPU unmaps the page. Dropping must not count that as done.
#[test]
#[allow(clippy::arc_with_non_send_sync, reason = "the one-threaded form has a single thread")]
fn a_translation_fetched_right_after_a_flush_is_dropped_by_the_next() {
    type CatchUp = fn(&Platform<TestMachine>, &Tlb, SpaceId);
    let ways: [CatchUp; 3] = [
        |platform, tlb, a| tlb.settle_space(platform, a),
        |platform, tlb, a| tlb.flush(platform, a, Range::ALL),
        |platform, tlb, a| {
            platform.machine.run_on(1);
            tlb.enter_lazy(platform);
            tlb.switch(platform, a, ROOT);
        },
    ];
    for catch_up in ways {
        let (platform, tlb) = bench(2);
        let tlb = Arc::new(tlb);
        let a = tlb.create();
        run(&platform, &tlb, 1, a);
        platform.machine.run_on(0);
        defer(&platform, &tlb, a);
        let raised = Arc::new(AtomicU64::new(0));
        let (raise, in_flush) = (tlb.clone(), raised.clone());
        *platform.machine.flushed.lock() = Some(Box::new(move |machine| {
            machine.hold(Vpn(9), Pfn(7), false);
            in_flush.store(raise.contexts[a.0].generation.fetch_add(1, SeqCst) + 1, Relaxed);
        }));
        catch_up(&platform, &tlb, a);
        *platform.machine.flushed.lock() = None;
        assert!(platform.machine.held(CpuId(1), Vpn(9)).is_some());
        // The request of the unmapping CPU waits until this CPU enables interrupts.
        let request = FlushRequest { space: a, range: Range::page(Vpn(9)), generation: raised.load(Relaxed) };
        platform.machine.run_on(1);
        tlb.catch_up(&platform, CpuId(1), &request);
        assert_eq!(platform.machine.held(CpuId(1), Vpn(9)), None);
    }
}

#[test]
fn a_run_is_noted_once_and_its_pages_are_listed() {
    for pages in [8, 40] {
        let (platform, tlb) = bench(2);
        let a = tlb.create();
        run(&platform, &tlb, 1, a);
        platform.machine.run_on(0);
        platform.knobs.set(Knob::TlbUnmap, FlushPolicy::List.value()).unwrap();
        let mut batch = UnmapBatch::new(&platform);
        let before = tlb.contexts[a.0].generation.load(SeqCst);
        let _ = batch.note_cleared(&platform, &tlb, &Cleared { pages, ..page(a, 3, false) });
        assert_eq!(tlb.contexts[a.0].generation.load(SeqCst), before + 1);
        assert_eq!(platform.machine.events(Event::TlbStale), 1);
        // More pages than the list may hold are paid at once, above the ceiling by a full flush.
        assert_eq!(shootdowns(&platform).len(), usize::from(pages == 40));
        batch.settle(&platform, &tlb);
        let all = if pages == 40 {
            Flush::Current
        } else {
            Flush::Pages { start: Vpn(3), count: pages, stride: Order::ZERO }
        };
        assert_eq!(flushes(&platform), [(1, all)]);
    }
}
