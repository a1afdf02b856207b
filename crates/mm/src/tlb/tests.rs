//! Which CPUs are asked to flush, and what each of them then does.

mod broadcast;
mod dirty;
mod marks;
mod told;

use super::*;
use crate::event::Event;
use crate::frame::Owner;
use crate::knobs::FlushPolicy;
use crate::knobs::Knob;
use crate::knobs::Knobs;
use crate::lock::Lock;
use crate::machine::Machine;
use crate::machine::{Asid, Broadcast, Flush};
use crate::platform::Platform;
use crate::primitive::Ordering::*;
use crate::stat::Stat;
use crate::testing::{BROADCAST, TestMachine};
use crate::units::*;
use pagefold_flush::inside::{Debt, Inside};
use std_alloc::boxed::Box;
use std_alloc::sync::Arc;
use std_alloc::vec;
use std_alloc::vec::Vec;

const ROOT: Pfn = Pfn(5);

struct Bench {
    platform: Platform<TestMachine>,
    tlb: Arc<Tlb>,
}

impl Bench {
    fn new(cpus: usize) -> Bench {
        Bench::of(TestMachine::simple(cpus, 1024))
    }

    /// CPUs that hardware can flush without asking them.
    fn broadcasting(cpus: usize) -> Bench {
        let mut machine = TestMachine::simple(cpus, 1024);
        machine.broadcast = Some(Lock::default());
        Bench::of(machine)
    }

    fn broadcasts(&self) -> Vec<Broadcast> {
        self.platform.machine.broadcast.as_ref().unwrap().lock().clone()
    }

    #[allow(clippy::arc_with_non_send_sync, reason = "the one-threaded form has a single thread")]
    fn of(machine: TestMachine) -> Bench {
        let platform = Platform::new(machine, Knobs::default());
        let tlb = Arc::new(Tlb::new(
            platform.machine.cpus(),
            platform.machine.asids(),
            platform.machine.memory().len(),
        ));
        Bench { platform, tlb }
    }

    /// CPU 1 has run a new space, which it may still read through; CPU 0 is the one that runs now.
    fn used(self) -> (Bench, SpaceId) {
        let space = self.tlb.create();
        self.runs([(1, space)]);
        (self, space)
    }

    fn with_spaces<const N: usize>(cpus: usize) -> (Bench, [SpaceId; N]) {
        let bench = Bench::new(cpus);
        let spaces = [(); N].map(|()| bench.tlb.create());
        (bench, spaces)
    }

    fn set(&self, knob: Knob, value: u64) {
        self.platform.knobs.set(knob, value).unwrap();
    }

    fn run(&self, cpu: u16, space: SpaceId) {
        self.platform.machine.run_on(cpu);
        self.tlb.switch(self.platform.host(), space, ROOT);
    }

    /// CPUs run these spaces, one after the other; CPU 0 is the one that goes on.
    fn runs<const N: usize>(&self, all: [(u16, SpaceId); N]) {
        all.into_iter().for_each(|(cpu, space)| self.run(cpu, space));
        self.platform.machine.run_on(0);
    }

    /// The root that a CPU has loaded, with its number, and whether translations were kept.
    fn root(&self, cpu: u16) -> (Pfn, Asid, bool) {
        self.platform.machine.roots.lock()[&CpuId(cpu)]
    }

    fn flush(&self, space: SpaceId, page: u64) {
        self.tlb.flush(self.platform.host(), space, Range::page(Vpn(page)));
    }

    /// The flushes since the last call.
    fn flushes(&self) -> Vec<(u16, Flush)> {
        self.platform.machine.flushes.lock().drain(..).map(|(cpu, flush)| (cpu.0, flush)).collect()
    }

    /// The CPUs that each shootdown since the last call asked.
    fn shootdowns(&self) -> Vec<Vec<u16>> {
        let mut all = self.platform.machine.shootdowns.lock();
        all.drain(..).map(|set| set.iter().map(|cpu| cpu.0).collect()).collect()
    }

    fn note(&self, batch: &mut UnmapBatch, cleared: Cleared) {
        let _ = batch.note_cleared(self.platform.host(), &self.tlb, &cleared);
    }

    fn settle(&self, batch: &mut UnmapBatch) {
        batch.settle(self.platform.host(), &self.tlb);
    }

    /// Unmap a page that CPU 1 may hold; the flush is deferred. Returns the debt's generation.
    fn defer(&self, space: SpaceId) -> Generation {
        self.set(Knob::TlbUnmap, FlushPolicy::Lazy.value());
        let mut batch = UnmapBatch::new(self.platform.host());
        self.note(&mut batch, page(space, 9, false));
        self.settle(&mut batch);
        self.tlb.owed_by_tag(ZoneId(0), self.platform.frames[Pfn(7)].debt())
    }

    /// Pay for a frame that owes this.
    fn pay(&self, generation: Generation) {
        self.tlb.settle_zone(self.platform.host(), ZoneId(0), generation, Pfn(7), Order::ZERO);
    }
}

fn one(page: u64) -> Flush {
    Flush::Pages { start: Vpn(page), count: 1, stride: Order::ZERO }
}

#[test]
fn only_cpus_that_run_the_space_are_asked() {
    let (bench, [a, b]) = Bench::with_spaces(4);
    bench.runs([(1, a), (2, a), (3, b), (0, a)]);
    bench.flush(a, 9);
    assert_eq!(bench.shootdowns(), [[1, 2]]);
    assert_eq!(bench.flushes(), [(1, one(9)), (2, one(9)), (0, one(9))]);
    assert_eq!(bench.platform.stats.read(Stat::NrTlbRemoteFlush), 1);
    assert_eq!(bench.platform.stats.read(Stat::NrTlbRemoteFlushReceived), 2);
}

#[test]
fn a_lazy_cpu_is_not_asked_and_catches_up_on_return() {
    let (bench, [a]) = Bench::with_spaces(2);
    bench.run(1, a);
    bench.tlb.enter_lazy(bench.platform.host());
    bench.run(0, a);
    bench.flush(a, 9);
    assert_eq!((bench.shootdowns().len(), bench.flushes()), (0, vec![(0, one(9))]));
    assert_eq!(bench.platform.stats.read(Stat::NrTlbRemoteFlush), 1, "as Linux counts");
    bench.run(1, a);
    assert_eq!(bench.flushes(), [(1, Flush::Current)]);
    bench.run(1, a);
    assert_eq!(bench.flushes(), []);
}

#[test]
fn a_lazy_cpu_unloads_a_space_whose_tables_are_freed() {
    let (bench, [a]) = Bench::with_spaces(2);
    bench.run(1, a);
    bench.tlb.enter_lazy(bench.platform.host());
    bench.run(0, a);
    bench.tlb.flush(bench.platform.host(), a, Range { freed_tables: true, ..Range::ALL });
    assert_eq!(bench.shootdowns(), [[1]]);
    assert_eq!(bench.root(1).0, Pfn::NONE);
    assert!(!bench.tlb.cpus_of(a).contains(CpuId(1)));
}

#[test]
fn a_kept_asid_is_flushed_on_load_if_an_entry_was_cleared() {
    let (bench, [a, b]) = Bench::with_spaces(2);
    bench.runs([(1, a), (1, b), (1, a)]);
    assert_eq!(bench.root(1), (ROOT, Asid(0), true));
    bench.runs([(1, b)]);
    bench.flush(a, 9);
    assert_eq!((bench.shootdowns().len(), bench.flushes().len()), (0, 0));
    bench.run(1, a);
    assert_eq!(bench.root(1), (ROOT, Asid(0), false));
}

#[test]
fn a_cpu_that_missed_a_generation_flushes_everything() {
    let (bench, [a]) = Bench::with_spaces(2);
    bench.run(0, a);
    // A generation that CPU 0 was not told of, as when requests overtake each other.
    bench.tlb.contexts()[a.0].generation.fetch_add(1, SeqCst);
    bench.flush(a, 9);
    assert_eq!(bench.flushes(), [(0, Flush::Current)]);
}

#[test]
fn more_pages_than_the_ceiling_are_one_full_flush() {
    let (bench, [a]) = Bench::with_spaces(1);
    bench.run(0, a);
    let pages = |pages| Range::pages(Vpn(1), pages);
    bench.tlb.flush(bench.platform.host(), a, pages(33));
    bench.tlb.flush(bench.platform.host(), a, pages(34));
    let some = Flush::Pages { start: Vpn(1), count: 33, stride: Order::ZERO };
    assert_eq!(bench.flushes(), [(0, some), (0, Flush::Current)]);
    assert_eq!(bench.platform.stats.read(Stat::NrTlbLocalFlushOne), 33);
}

#[test]
fn flushes_for_another_cpu_and_at_switches_are_not_local_ones() {
    let (bench, [a, b]) = Bench::with_spaces(2);
    bench.runs([(0, a), (1, a)]);
    bench.tlb.flush(bench.platform.host(), a, Range::pages(Vpn(1), 3));
    bench.tlb.flush(bench.platform.host(), a, Range::ALL);
    assert_eq!(bench.flushes().len(), 4, "two on each CPU");
    bench.runs([(1, b)]);
    bench.flush(a, 9);
    bench.runs([(1, a)]);
    let stats = [Stat::NrTlbLocalFlushOne, Stat::NrTlbLocalFlushAll, Stat::NrTlbRemoteFlushReceived];
    assert_eq!(stats.map(|stat| bench.platform.stats.read(stat)), [4, 1, 2]);
}

#[test]
fn a_reused_space_is_not_taken_for_its_predecessor() {
    let (bench, [a]) = Bench::with_spaces(1);
    bench.run(0, a);
    bench.tlb.enter_lazy(bench.platform.host());
    bench.tlb.destroy(bench.platform.host(), a);
    bench.tlb.release(a);
    let again = bench.tlb.create();
    assert_eq!(again, a);
    bench.run(0, again);
    assert!(!bench.root(0).2, "translations of a dead space must be dropped");
}

#[test]
fn the_oldest_asid_is_reused() {
    let bench = Bench::new(1);
    let spaces: Vec<_> = (0..7).map(|_| bench.tlb.create()).collect();
    for &space in &spaces {
        bench.run(0, space);
        assert!(!bench.root(0).2);
    }
    bench.run(0, spaces[0]);
    assert!(!bench.root(0).2, "the seventh space got its number");
}

#[test]
fn a_debt_in_three_places_is_paid_once() {
    let (bench, [a, b]) = Bench::with_spaces(3);
    bench.runs([(1, a), (2, b)]);
    let first = bench.defer(a);
    assert_eq!(bench.shootdowns().len(), 0);
    // CPU 2 owes nothing for this space and is not asked.
    bench.tlb.settle_space(bench.platform.host(), a);
    assert_eq!(bench.shootdowns(), [[1]]);
    bench.pay(first);
    bench.tlb.settle_space(bench.platform.host(), a);
    assert_eq!(bench.shootdowns().len(), 0);
}

#[test]
fn a_round_reaches_all_cpus_that_owe_unless_the_knob_forbids() {
    for (pay_all, targets) in [(1, vec![1, 2]), (0, vec![1])] {
        let (bench, [a, b]) = Bench::with_spaces(4);
        bench.set(Knob::TlbPayAll, pay_all);
        bench.runs([(1, a), (2, b)]);
        bench.run(3, b);
        bench.tlb.enter_lazy(bench.platform.host());
        bench.platform.machine.run_on(0);
        bench.defer(a);
        bench.defer(b);
        bench.tlb.settle_space(bench.platform.host(), a);
        assert_eq!(bench.shootdowns(), [targets]);
    }
}

#[test]
fn a_switch_or_a_return_from_a_kernel_task_pays() {
    let (bench, [a, b]) = Bench::with_spaces(3);
    bench.runs([(1, a), (2, a)]);
    bench.defer(a);
    bench.run(1, b);
    bench.platform.machine.run_on(2);
    bench.tlb.enter_lazy(bench.platform.host());
    bench.runs([(2, a)]);
    bench.tlb.settle_space(bench.platform.host(), a);
    assert_eq!(bench.shootdowns().len(), 0);
}

#[test]
fn writable_entries_are_never_deferred() {
    for reason in 0..4 {
        let (bench, a) = Bench::new(2).used();
        bench.set(Knob::TlbUnmap, FlushPolicy::Lazy.value());
        match reason {
            0 => bench.tlb.begin_tightening(a),
            1 => bench.tlb.set_never_deferred(a, true),
            _ => {}
        }
        let mut batch = UnmapBatch::new(bench.platform.host());
        let cleared = Cleared { dropped: reason == 3, ..page(a, 9, reason == 2) };
        bench.note(&mut batch, cleared);
        assert_eq!(
            (bench.platform.frames[cleared.pfn].debt(), batch.owes_for_stores()),
            (0, matches!(reason, 0 | 2)),
            "{reason}"
        );
        bench.settle(&mut batch);
        assert_eq!(bench.shootdowns(), [[1]], "{reason}");
    }
}

#[test]
fn a_tick_pays_old_debts_and_asks_no_cpu() {
    let (bench, a) = Bench::new(2).used();
    bench.defer(a);
    bench.set(Knob::TlbAgeLimitMs, 5);
    bench.platform.machine.run_on(1);
    bench.platform.machine.advance(4_999_999);
    bench.tlb.tick(bench.platform.host());
    assert_eq!(bench.flushes(), []);
    bench.platform.machine.advance(1);
    bench.tlb.tick(bench.platform.host());
    assert_eq!((bench.flushes(), bench.shootdowns().len()), (vec![(1, Flush::Current)], 0));
    bench.tlb.tick(bench.platform.host());
    assert_eq!(bench.flushes(), []);
}

#[test]
fn a_list_drops_single_pages_only_if_they_are_all_that_a_cpu_missed() {
    for more in [false, true] {
        let (bench, a) = Bench::new(2).used();
        bench.set(Knob::TlbUnmap, FlushPolicy::List.value());
        let mut batch = UnmapBatch::new(bench.platform.host());
        for at in [9, 4] {
            bench.note(&mut batch, page(a, at, false));
        }
        if more {
            // The generation of another unmapping, which this list does not cover.
            bench.tlb.contexts()[a.0].generation.fetch_add(1, SeqCst);
        }
        bench.settle(&mut batch);
        let expected = if more { vec![(1, Flush::Current)] } else { vec![(1, one(9)), (1, one(4))] };
        assert_eq!(bench.flushes(), expected);
        bench.settle(&mut batch);
        assert_eq!(bench.shootdowns().len(), 1);
    }
}

#[test]
fn abis_skips_entries_that_no_cpu_used() {
    let (bench, a) = Bench::new(2).used();
    bench.set(Knob::TlbUnmap, FlushPolicy::Abis.value());
    let mut batch = UnmapBatch::new(bench.platform.host());
    for never_used in [true, false] {
        bench.note(&mut batch, Cleared { never_used, ..page(a, 9, false) });
        assert_eq!(bench.shootdowns().len(), usize::from(!never_used));
    }
    bench.settle(&mut batch);
}

#[test]
fn an_entry_that_user_mode_cannot_use_owes_only_until_the_change_that_forbade_it_is_flushed() {
    for policy in [FlushPolicy::Eager, FlushPolicy::Batch, FlushPolicy::Lazy] {
        for (usable, tightening) in [(true, false), (true, true), (false, true), (false, false)] {
            let (bench, a) = Bench::new(2).used();
            bench.set(Knob::TlbUnmap, policy.value());
            let mut batch = UnmapBatch::new(bench.platform.host());
            if tightening {
                bench.tlb.begin_tightening(a);
            }
            let cleared = Cleared { usable, ..page(a, 9, false) };
            let left = batch.note_cleared(bench.platform.host(), &bench.tlb, &cleared).is_some();
            bench.settle(&mut batch);
            let owes = usable || tightening;
            let case = (policy, usable, tightening);
            // A flush is a debt until the batch is settled, or until the frame is used again.
            assert_eq!(left, owes && policy != FlushPolicy::Eager, "{case:?}");
            // Where a right may still be used, nothing is deferred.
            let deferred = policy == FlushPolicy::Lazy && owes && !tightening;
            assert_eq!(bench.platform.frames[Pfn(7)].debt() != 0, deferred, "{case:?}");
            assert_eq!(bench.shootdowns().len(), usize::from(owes && !deferred), "{case:?}");
        }
    }
}

#[test]
fn a_list_tells_a_space_from_the_next_with_its_number() {
    let (bench, [a, b]) = Bench::with_spaces(2);
    bench.set(Knob::TlbUnmap, FlushPolicy::List.value());
    let note = |batch: &mut UnmapBatch, at| bench.note(batch, page(a, at, false));
    let (mut batch, mut other) =
        (UnmapBatch::new(bench.platform.host()), UnmapBatch::new(bench.platform.host()));
    bench.run(1, a);
    note(&mut batch, 3);
    bench.run(1, b);
    bench.tlb.destroy(bench.platform.host(), a);
    bench.tlb.release(a);
    assert_eq!(bench.tlb.create(), a);
    bench.runs([(1, a)]);
    note(&mut batch, 5);
    note(&mut other, 6);
    bench.flushes();
    // Page 6 is on the other list: CPU 1 has missed more than this list's two pages.
    bench.settle(&mut batch);
    assert_eq!(bench.flushes(), [(1, Flush::Current)]);
    bench.settle(&mut other);
}

#[test]
fn the_cpu_that_destroys_a_space_unloads_it() {
    let (bench, [a]) = Bench::with_spaces(1);
    bench.run(0, a);
    bench.tlb.destroy(bench.platform.host(), a);
    assert_eq!(bench.root(0).0, Pfn::NONE);
    assert!(!bench.tlb.is_alive(a));
}

#[test]
fn a_round_of_a_call_reaches_cpus_that_owe() {
    let (bench, [a, b]) = Bench::with_spaces(3);
    bench.runs([(1, a), (2, b), (0, b)]);
    // CPU 0 owes as well; it cannot be sent a request by itself.
    bench.defer(b);
    bench.flush(a, 9);
    assert_eq!(bench.shootdowns(), [[1, 2]]);
    assert_eq!(bench.flushes(), [(1, one(9)), (2, Flush::Current)]);
    bench.tlb.settle_space(bench.platform.host(), b);
    assert_eq!((bench.flushes(), bench.shootdowns().len()), (vec![(0, Flush::Current)], 0));
}

#[test]
fn each_asid_has_its_own_generation() {
    let (bench, [a, b]) = Bench::with_spaces(2);
    bench.runs([(1, a)]);
    for _ in 0..3 {
        bench.flush(a, 9);
    }
    bench.run(1, b);
    assert!(!bench.tlb.cpus_of(a).contains(CpuId(1)) && bench.tlb.cpus_of(b).contains(CpuId(1)));
    bench.flushes();
    bench.platform.machine.run_on(0);
    bench.flush(b, 4);
    assert_eq!(bench.flushes(), [(1, one(4))]);
}

/// Unmap a page and note it in a batch.
fn page(space: SpaceId, page: u64, writable: bool) -> Cleared {
    Cleared { writable, dirty: writable, ..Cleared::page(space, Vpn(page), Pfn(7)) }
}

#[test]
fn a_list_is_paid_when_it_is_full() {
    for limit in [1, 2] {
        let (bench, a) = Bench::new(2).used();
        bench.set(Knob::TlbUnmap, FlushPolicy::List.value());
        bench.set(Knob::TlbUnmapPages, limit);
        let mut batch = UnmapBatch::new(bench.platform.host());
        let mut expected = Vec::new();
        for at in 3..3 + limit {
            assert_eq!(bench.flushes(), []);
            bench.note(&mut batch, page(a, at, true));
            expected.push((1, one(at)));
        }
        assert_eq!(bench.flushes(), expected);
        assert!(!batch.owes_for_stores());
        bench.settle(&mut batch);
        assert_eq!(bench.shootdowns().len(), 1);
    }
}

/// `tlb.lazy_max_order`: the debt of a larger folio is paid with its batch.
#[test]
fn flushes_of_larger_folios_than_the_limit_are_not_deferred() {
    for (limit, deferred) in [(0, false), (1, false), (2, true), (10, true)] {
        let (bench, a) = Bench::new(2).used();
        bench.set(Knob::TlbUnmap, FlushPolicy::Lazy.value());
        bench.set(Knob::TlbLazyMaxOrder, limit);
        let head = Pfn(8);
        bench.platform.frames.make_folio(head, Order(2));
        let mut batch = UnmapBatch::new(bench.platform.host());
        bench.note(&mut batch, Cleared { pages: 4, head, pfn: head, ..page(a, 8, false) });
        assert!(!batch.owes_for_stores());
        bench.settle(&mut batch);
        assert_eq!(bench.shootdowns().len(), usize::from(!deferred), "order 2, limit {limit}");
        assert_eq!(bench.platform.stats.read(Stat::TlbDeferred), if deferred { 4 } else { 0 });
        // A single page is deferred in any case.
        bench.note(&mut batch, Cleared { head: Pfn(16), pfn: Pfn(16), ..page(a, 3, false) });
        bench.settle(&mut batch);
        assert_eq!(bench.shootdowns().len(), 0);
    }
}

#[test]
fn a_batch_is_paid_before_a_page_that_can_be_stored_to_is_written() {
    for writable in [false, true] {
        let (bench, a) = Bench::new(2).used();
        let mut batch = UnmapBatch::new(bench.platform.host());
        bench.note(&mut batch, page(a, 9, writable));
        batch.settle_dirty(bench.platform.host(), &bench.tlb);
        assert_eq!((bench.shootdowns().len(), batch.owes_for_stores()), (usize::from(writable), false));
        bench.settle(&mut batch);
        assert_eq!(bench.shootdowns().len(), usize::from(!writable));
    }
}

#[test]
fn a_list_ignores_pages_that_a_cpu_has_caught_up_with() {
    let (bench, [a, b]) = Bench::with_spaces(2);
    bench.set(Knob::TlbUnmap, FlushPolicy::List.value());
    let (mut batch, mut other) =
        (UnmapBatch::new(bench.platform.host()), UnmapBatch::new(bench.platform.host()));
    bench.run(1, a);
    bench.note(&mut batch, page(a, 3, false));
    bench.runs([(1, b), (1, a)]);
    // It has missed this page and the next, and one of them is listed.
    bench.note(&mut other, page(a, 6, false));
    bench.note(&mut batch, page(a, 5, false));
    bench.settle(&mut batch);
    assert_eq!(bench.flushes(), [(1, Flush::Current)]);
    bench.settle(&mut other);
}

/// CPU 1 owes for two pages; CPU 2, which came in between, only for the later one. Returns both generations.
fn two_debts() -> (Bench, SpaceId, [Generation; 2]) {
    let (bench, a) = Bench::new(3).used();
    bench.set(Knob::TlbPayAll, 0);
    let first = bench.defer(a);
    bench.runs([(2, a)]);
    let second = bench.defer(a);
    (bench, a, [first, second])
}

#[test]
fn a_payment_for_a_table_leaves_other_debts() {
    let (bench, a, [first, second]) = two_debts();
    bench.tlb.settle_table(bench.platform.host(), a, Vpn(0), first.tag());
    assert_eq!(bench.shootdowns(), [[1]]);
    let owes = [0, 1, 2].map(|cpu| bench.tlb.space_owes(a, CpuId(cpu)));
    assert_eq!(owes, [false, false, true]);
    bench.tlb.settle_table(bench.platform.host(), a, Vpn(0), second.tag());
    assert_eq!(bench.shootdowns(), [[2]]);
    assert!(!bench.tlb.space_owes(a, CpuId(2)));
}

#[test]
fn a_payment_for_a_frame_leaves_other_debts() {
    let (bench, _, debts) = two_debts();
    for (debt, cpu) in debts.into_iter().zip([1, 2]) {
        bench.pay(debt);
        assert_eq!((bench.shootdowns(), bench.tlb.paid_up_to(ZoneId(0))), (vec![vec![cpu]], debt));
    }
}

#[test]
fn ticks_are_wanted_if_the_policy_pays_at_ticks() {
    let bench = Bench::new(2);
    let wanted = [
        (FlushPolicy::Batch.value(), 100, false),
        (FlushPolicy::Lazy.value(), 0, false),
        (FlushPolicy::Lazy.value(), 1, true),
        (FlushPolicy::Latr.value(), 0, true),
    ];
    for (policy, limit, wants) in wanted {
        bench.set(Knob::TlbUnmap, policy);
        bench.set(Knob::TlbAgeLimitMs, limit);
        assert_eq!(bench.tlb.wants_ticks(bench.platform.host()), wants, "tlb.unmap={policy}");
    }
    let a = bench.tlb.create();
    bench.run(1, a);
    let mut batch = UnmapBatch::new(bench.platform.host());
    bench.note(&mut batch, page(a, 9, false));
    bench.settle(&mut batch);
    assert_eq!(bench.flushes(), []);
    // `latr`: at the next tick, at any age.
    bench.tlb.tick(bench.platform.host());
    assert_eq!(bench.flushes(), [(1, Flush::Current)]);
}

/// CPU 2's debt was drawn before CPU 1's was paid, and arrives at the zone after that.
#[test]
fn a_debt_that_a_payment_has_overtaken_is_still_owed() {
    let (bench, [a, b]) = Bench::with_spaces(3);
    bench.set(Knob::TlbPayAll, 0);
    bench.runs([(1, a), (2, b)]);
    let overtaken = Debt { cpus: bench.tlb.cpus_of(b), generation: bench.tlb.draw() };
    let first = bench.defer(a);
    bench.pay(first);
    assert_eq!(bench.shootdowns(), [[1]]);
    let tag = bench.tlb.owe_frame(&bench.platform, ZoneId(0), &overtaken).tag();
    bench.pay(bench.tlb.owed_by_tag(ZoneId(0), tag));
    assert_eq!(bench.shootdowns(), [[2]]);
}

/// A task that comes during a round must find the debt in each place; otherwise it would go on before the round is
/// over.
#[test]
fn a_debt_is_owed_until_its_round_is_over() {
    const FILE: FileId = FileId(3);
    type Pay = fn(&Bench, SpaceId, Generation);
    let payments: [Pay; 4] = [
        |at, a, _| at.tlb.settle_space(at.platform.host(), a),
        |at, _, _| assert_eq!(at.tlb.settle_file(at.platform.host(), FILE).file(), FILE),
        |at, a, generation| at.tlb.settle_table(at.platform.host(), a, Vpn(0), generation.tag()),
        |at, _, generation| at.pay(generation),
    ];
    for pay in payments {
        let (bench, a) = Bench::new(2).used();
        bench.platform.frames[Pfn(7)].set_owner(Owner::File(FILE), PageIndex(0));
        let generation = bench.defer(a);
        let watched = bench.tlb.clone();
        let round = move |_: &TestMachine, event, _| {
            if event == Event::TlbFlush {
                assert!(watched.space_owes(a, CpuId(1)), "the space must still owe");
                assert!(watched.files()[FILE.0].owes(), "the file must still owe");
                assert!(watched.zones()[0].domain.owes(), "the zone must still owe");
                assert!(watched.paid_up_to(ZoneId(0)) < generation, "frames must not count as paid");
            }
        };
        *bench.platform.machine.watcher.lock() = Some(Box::new(round));
        pay(&bench, a, generation);
        assert_eq!(bench.platform.machine.events(Event::TlbFlush), 1);
    }
}

/// Hardware may walk tables at any time, also for a CPU that is in the kernel: it fetches again what was just
/// dropped, and only then another CPU unmaps the page. Dropping must not count that as done.
#[test]
fn a_translation_fetched_right_after_a_flush_is_dropped_by_the_next() {
    type CatchUp = fn(&Bench, SpaceId);
    let ways: [CatchUp; 3] = [
        |at, a| at.tlb.settle_space(at.platform.host(), a),
        |at, a| at.tlb.flush(at.platform.host(), a, Range::ALL),
        |at, a| {
            at.platform.machine.run_on(1);
            at.tlb.enter_lazy(at.platform.host());
            at.run(1, a);
        },
    ];
    for catch_up in ways {
        let (bench, a) = Bench::new(2).used();
        bench.defer(a);
        let raised = Arc::new(core::sync::atomic::AtomicU64::new(0));
        let (raise, in_flush) = (bench.tlb.clone(), raised.clone());
        *bench.platform.machine.flushed.lock() = Some(Box::new(move |machine| {
            machine.hold(Vpn(9), Pfn(7), false);
            in_flush.store(raise.contexts()[a.0].generation.fetch_add(1, SeqCst) + 1, Relaxed);
        }));
        catch_up(&bench, a);
        *bench.platform.machine.flushed.lock() = None;
        assert!(bench.platform.machine.held(CpuId(1), Vpn(9)).is_some());
        // The request of the unmapping CPU waits until this CPU enables interrupts.
        bench.platform.machine.run_on(1);
        bench.tlb.catch_up_with(&bench.platform, CpuId(1), (a, Range::page(Vpn(9)), raised.load(Relaxed)));
        assert_eq!(bench.platform.machine.held(CpuId(1), Vpn(9)), None);
    }
}

#[test]
fn a_run_is_noted_once_and_its_pages_are_listed() {
    for pages in [8, 40] {
        let (bench, a) = Bench::new(2).used();
        bench.set(Knob::TlbUnmap, FlushPolicy::List.value());
        let mut batch = UnmapBatch::new(bench.platform.host());
        let before = bench.tlb.contexts()[a.0].generation.load(SeqCst);
        bench.note(&mut batch, Cleared { pages, ..page(a, 3, false) });
        assert_eq!(bench.tlb.contexts()[a.0].generation.load(SeqCst), before + 1);
        assert_eq!(bench.platform.machine.events(Event::TlbStale), 1);
        // More pages than the list may hold are paid at once, above the ceiling by a full flush.
        assert_eq!(bench.shootdowns().len(), usize::from(pages == 40));
        bench.settle(&mut batch);
        let all = if pages == 40 {
            Flush::Current
        } else {
            Flush::Pages { start: Vpn(3), count: pages, stride: Order::ZERO }
        };
        assert_eq!(bench.flushes(), [(1, all)]);
    }
}
