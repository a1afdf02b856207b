//! The debts of a frame, an address or a file are paid before its use changes.
//!
//! Each test is a way in which a published version of lazy unmap flush forgets a flush or cannot pay one.
//! `tests/copies/published.rs` makes the same mistakes in a copy of this crate and shows that these tests notice them.
//!
//! The machine for tests keeps what the TLBs of its CPUs hold. The steps of a test end in a check that holds under
//! every policy: no CPU reads a frame that is handed out, or a page whose content has changed.

use crate::alloc::{AllocRequest, Allocator, Means, Reserve, Watermark};
use crate::event::Event;
use crate::frame::{FolioPages, Mobility, Owner};
use crate::knobs::{FlushPolicy, Knob, Knobs};
use crate::machine::{Machine, Work, ZoneKind};
use crate::mmu::Mmu;
use crate::platform::Platform;
use crate::primitive::Ordering::Relaxed;
use crate::stat::Stat;
use crate::table::{Absent, Bits, Rights, Shown, Tables, Writes};
use crate::testing::{Moment, TestMachine};
use crate::tlb::{Cleared, Generation, Range, UnmapBatch};
use crate::units::*;
use core::ops::Deref;
use std_alloc::string::String;
use std_alloc::vec::Vec;

extern crate std;

const BATCH: u64 = FlushPolicy::Batch.value();
const LAZY: u64 = FlushPolicy::Lazy.value();
const PAGE: Vpn = Vpn(9);
const MEANS: Means = Means::new(Watermark::Min, Reserve::All);
/// The root of every space's tables: the machine for tests does not walk them.
const ROOT: Pfn = Pfn(5);
/// A block of 16 pages has been taken from the buddy lists, and what it owes is not paid yet.
const BEFORE_PAYMENT: Moment = Moment::Charge(Work::AllocBuddy);

/// Four CPUs, 1024 frames and the rooms up to page tables. It is leaked, so that what runs at a moment of the machine
/// can refer to it.
struct World {
    mmu: Mmu<TestMachine>,
    alloc: Allocator,
    tables: Tables,
}

impl Deref for World {
    type Target = Mmu<TestMachine>;

    fn deref(&self) -> &Mmu<TestMachine> {
        &self.mmu
    }
}

impl World {
    fn new() -> &'static World {
        let mmu = Mmu::new(TestMachine::simple(4, 1024), Knobs::default());
        mmu.knobs.set(Knob::TlbUnmap, LAZY).unwrap();
        let alloc = Allocator::new(&mmu).unwrap();
        std::boxed::Box::leak(std::boxed::Box::new(World { mmu, alloc, tables: Tables::default() }))
    }

    fn with_space() -> (&'static World, SpaceId) {
        let world = World::new();
        (world, world.tlb.create())
    }

    /// The same, with all memory taken in folios of an order.
    fn filled(order: u8) -> (&'static World, SpaceId, Vec<Pfn>) {
        let (world, space) = World::with_space();
        (world, space, world.take_all(order))
    }

    fn base(&self) -> &Platform<TestMachine> {
        &self.mmu
    }

    fn space(&self) -> SpaceId {
        let space = self.tlb.create();
        self.tables.create(self, &self.alloc, space, MEANS).unwrap();
        space
    }

    /// Run `act` on another CPU.
    fn on<R>(&self, cpu: u16, act: impl FnOnce() -> R) -> R {
        let here = self.machine.cpu();
        self.machine.run_on(cpu);
        let result = act();
        self.machine.run_on(here.0);
        result
    }

    /// A CPU switches to a task of `space`.
    fn run(&self, cpu: u16, space: SpaceId) {
        self.on(cpu, || self.tlb.switch(self.host(), space, ROOT));
    }

    /// A CPU switches to a task of `space`, which reads a page; the TLB keeps the translation.
    fn read(&self, cpu: u16, space: SpaceId, page: Vpn, pfn: Pfn) {
        self.run(cpu, space);
        self.on(cpu, || self.machine.hold(page, pfn, false));
    }

    fn request(&self, order: u8) -> AllocRequest {
        AllocRequest {
            order: Order(order),
            mobility: Mobility::Movable,
            node: NodeId(0),
            highest: ZoneKind::Movable,
            reserve: Reserve::All,
            this_node_only: false,
            among: Nodes::ALL,
            atomic: false,
            mixes: true,
        }
    }

    /// Take a folio. No CPU may still read it.
    fn take(&self, request: &AllocRequest) -> Option<Pfn> {
        let pfn = self.alloc.take(self, request, Watermark::Min).ok()?.into_pfn();
        let readers = self.machine.readers(pfn, request.order.frames());
        assert!(readers.is_empty(), "{pfn} is handed out and read by {readers:?}");
        Some(pfn)
    }

    /// Take all folios of an order.
    fn take_all(&self, order: u8) -> Vec<Pfn> {
        core::iter::from_fn(|| self.take(&self.request(order))).collect()
    }

    /// Unmap a read-only page as reclaim does.
    fn unmap(&self, space: SpaceId, page: Vpn, pfn: Pfn) {
        self.settle(&Cleared::page(space, page, pfn));
    }

    /// Settle a batch of what was cleared.
    fn settle(&self, cleared: &Cleared) {
        let mut batch = UnmapBatch::new(self.base().host());
        let _ = batch.note_cleared(self.base().host(), &self.tlb, cleared);
        batch.settle(self.base().host(), &self.tlb);
    }

    /// Free a folio, to this CPU's list.
    fn free_here(&self, pfn: Pfn) {
        assert!(self.frames[pfn].put(1));
        self.alloc.free(self, &[pfn]);
    }

    /// Free a folio, to the buddy lists.
    fn free(&self, pfn: Pfn) {
        self.free_here(pfn);
        self.alloc.drain_here(self, ZoneId(0));
    }

    /// A CPU reads a page of a folio, which reclaim then unmaps and frees.
    fn free_owing(&self, cpu: u16, space: SpaceId, page: Vpn, pfn: Pfn) {
        self.read(cpu, space, page, pfn);
        self.unmap(space, page, pfn);
        self.free(pfn);
    }

    /// Pay all debts of frames.
    fn pay(&self) {
        self.tlb.settle_zone(self.host(), ZoneId(0), Generation(u64::MAX), Pfn(0), Order::ZERO);
    }

    /// Make `flushes` debts and pay them. `spare` is a page in use that no CPU reads.
    fn pass(&self, spare: Pfn, flushes: u32) {
        let space = self.tlb.create();
        self.run(1, space);
        (0..flushes).for_each(|_| self.unmap(space, Vpn(77), spare));
        self.frames[spare].set_debt(0);
        self.pay();
    }

    /// The use of a page has changed: no CPU may still read it.
    fn check(&self, pfn: Pfn) {
        let readers = self.machine.readers(pfn, 1);
        assert!(readers.is_empty(), "{pfn} has changed its use and is read by {readers:?}");
    }
}

/// A tag goes through the buddy lists and back, for every order.
macro_rules! for_orders {
    ($($name:ident $order:literal,)*) => {$(
        #[test]
        fn $name() {
            a_freed_block_keeps_its_debt($order);
        }
    )*};
}

for_orders! {
    a_freed_block_keeps_its_debt_order_0 0,
    a_freed_block_keeps_its_debt_order_1 1,
    a_freed_block_keeps_its_debt_order_2 2,
    a_freed_block_keeps_its_debt_order_3 3,
    a_freed_block_keeps_its_debt_order_4 4,
    a_freed_block_keeps_its_debt_order_5 5,
    a_freed_block_keeps_its_debt_order_6 6,
    a_freed_block_keeps_its_debt_order_7 7,
    a_freed_block_keeps_its_debt_order_8 8,
    a_freed_block_keeps_its_debt_order_9 9,
    a_freed_block_keeps_its_debt_order_10 10,
}

const _: () = assert!(MAX_ORDER.0 == 10, "every order has its test");

fn a_freed_block_keeps_its_debt(order: u8) {
    let (world, space) = World::with_space();
    // More payments than there are orders: a tag that is an order then looks paid.
    let spare = world.take(&world.request(0)).unwrap();
    world.pass(spare, MAX_ORDER.0 as u32 + 1);
    world.free(spare);
    world.alloc.drain_all(world);
    let pfn = world.take(&world.request(order)).unwrap();
    world.free_owing(1, space, PAGE, pfn);
    world.take_all(0);
}

#[test]
fn a_page_that_waits_on_a_cpus_list_owes() {
    let (world, space, held) = World::filled(0);
    world.read(1, space, PAGE, held[9]);
    world.unmap(space, PAGE, held[9]);
    world.free_here(held[9]);
    assert_eq!(world.alloc.pcp_pages(ZoneId(0)), 1);
    assert_eq!(world.take_all(0), [held[9]]);
}

/// An interrupt takes the second half while the first half is being paid for.
#[test]
fn the_rest_of_a_split_block_owes_for_an_interrupt() {
    the_rest_of_a_split_block_owes(0);
}

/// Another CPU takes the second half while the first half is being paid for.
#[test]
fn the_rest_of_a_split_block_owes_for_another_cpu() {
    the_rest_of_a_split_block_owes(2);
}

fn the_rest_of_a_split_block_owes(taker: u16) {
    let (world, space, held) = World::filled(8);
    let last = held[0].add(255);
    world.read(1, space, PAGE, last);
    world.settle(&Cleared { head: held[0], ..Cleared::page(space, PAGE, last) });
    world.free(held[0]);
    world.machine.at(Moment::Shootdown, move || {
        // The taker cannot send interrupts: it gets blocks that owe nothing, or none.
        let atomic = AllocRequest { atomic: true, ..world.request(0) };
        world.on(taker, || while world.take(&atomic).is_some() {});
    });
    assert!(world.take(&world.request(0)).is_some());
    world.alloc.validate(world).unwrap();
}

/// A tag that is half a round of 16 bits old merges with one that is pending.
#[test]
fn a_pending_debt_survives_a_merge_with_a_tag_of_half_a_round_ago() {
    let (world, space, held) = World::filled(0);
    let (old, new) = (held[0], held[0].buddy(Order::ZERO));
    world.read(1, space, PAGE, old);
    world.unmap(space, PAGE, old);
    // It stays in use while half of all tags go by.
    world.pass(*held.last().unwrap(), 0x7fff);
    world.free_owing(1, space, PAGE, new);
    world.free(old);
    world.alloc.drain_all(world);
    world.alloc.validate(world).unwrap();
    world.take_all(0);
}

/// An interrupt frees a page between taking a block and paying for it.
#[test]
fn an_interrupt_before_the_payment_takes_no_debt_away() {
    let (world, space, held) = World::filled(4);
    world.free_owing(1, space, PAGE, held[0]);
    world.machine.at(BEFORE_PAYMENT, move || world.free(held[2]));
    assert!(world.take(&world.request(4)).is_some());
}

/// All free pages owe, and a request comes while interrupts are off.
#[test]
fn an_atomic_request_takes_no_block_that_owes() {
    let (world, space, held) = World::filled(0);
    world.free_owing(1, space, PAGE, held[0]);
    let atomic = AllocRequest { atomic: true, ..world.request(0) };
    world.machine.interrupts_off.store(true, Relaxed);
    assert_eq!(world.take(&atomic), None);
    world.machine.interrupts_off.store(false, Relaxed);
    assert!(world.take(&world.request(0)).is_some());
}

/// A CPU owes for two pages and has caught up with the first only.
#[test]
fn a_cpu_that_is_done_with_one_unmap_still_owes_for_the_next() {
    let world = World::new();
    world.knobs.set(Knob::TlbUnmap, BATCH).unwrap();
    let space = world.tlb.create();
    let [first, second] = [0, 1].map(|_| world.take(&world.request(0)).unwrap());
    let mut batch = UnmapBatch::new(world.base().host());
    world.read(1, space, PAGE, first);
    let _ = batch.note_cleared(world.base().host(), &world.tlb, &Cleared::page(space, PAGE, first));
    // Another flush makes the CPU catch up; then it reads the second page.
    world.tlb.flush(world.host(), space, Range::page(Vpn(77)));
    world.read(1, space, Vpn(10), second);
    let _ = batch.note_cleared(world.base().host(), &world.tlb, &Cleared::page(space, Vpn(10), second));
    batch.settle(world.base().host(), &world.tlb);
    world.check(first);
    world.check(second);
}

/// A CPU is asked to flush one space just when it switches to another, a page of which is unmapped then.
#[test]
fn a_flush_of_a_space_that_a_cpu_has_left_pays_nothing() {
    let world = World::new();
    world.knobs.set(Knob::TlbPayAll, 0).unwrap();
    let (asked, other) = (world.tlb.create(), world.tlb.create());
    let held = world.take_all(0);
    world.run(1, asked);
    world.machine.at(Moment::Shootdown, move || world.free_owing(1, other, PAGE, held[0]));
    world.tlb.flush(world.host(), asked, Range::page(Vpn(77)));
    world.take_all(0);
}

/// A CPU has left a space but keeps its translations; the space ends, and a new one gets its number.
#[test]
fn a_new_space_with_an_old_number_reads_nothing_old() {
    a_new_space_reads_nothing_old(|world, other| world.run(1, other));
}

/// A CPU borrows a space while it runs a kernel task; the space ends, and a new one gets its number.
#[test]
fn a_new_space_with_a_borrowed_number_reads_nothing_old() {
    a_new_space_reads_nothing_old(|world, _| world.on(1, || world.tlb.enter_lazy(world.host())));
}

fn a_new_space_reads_nothing_old(leave: impl Fn(&'static World, SpaceId)) {
    let world = World::new();
    let (space, other) = (world.tlb.create(), world.tlb.create());
    let pfn = world.take(&world.request(0)).unwrap();
    world.read(1, space, PAGE, pfn);
    leave(world, other);
    world.tlb.destroy(world.host(), space);
    world.tlb.release(space);
    assert_eq!(world.tlb.create(), space);
    assert!(!world.tlb.cpus_of(space).contains(CpuId(1)));
    world.run(1, space);
    world.check(pfn);
}

/// mprotect has made an entry read-only and not flushed yet when reclaim unmaps the page.
#[test]
fn an_entry_that_is_losing_its_right_to_write_is_not_deferred() {
    let (world, space) = World::with_space();
    let pfn = world.take(&world.request(0)).unwrap();
    world.run(1, space);
    world.on(1, || world.machine.hold(PAGE, pfn, true));
    world.tlb.begin_tightening(space);
    world.unmap(space, PAGE, pfn);
    let stores = world.machine.held(CpuId(1), PAGE).is_some_and(|(_, writable)| writable);
    assert!(!stores, "{pfn} is written to its store and can still be stored to");
    world.tlb.flush(world.host(), space, Range::page(PAGE));
    world.tlb.end_tightening(space);
}

/// Reclaim unmaps a file's page, which a copy then replaces while another thread still reads it.
#[test]
fn a_space_is_settled_before_an_entry_is_installed() {
    replace_a_page(false);
}

/// The same, with a payment for the page's table alone.
#[test]
fn a_table_is_settled_before_an_entry_is_installed() {
    replace_a_page(true);
}

fn replace_a_page(table_only: bool) {
    let world = World::new();
    let space = world.space();
    let [old, new] = [0, 1].map(|_| world.take(&world.request(0)).unwrap());
    let mut tables = world.tables.lock(world, space);
    let slot = tables.reserve(&world.alloc, PAGE, MEANS).unwrap();
    world.frames[old].set_owner(Owner::File(FileId(3)), PageIndex(0));
    let shown = Shown::in_range(FileId(3), PageIndex(0));
    tables.install_unchanged((slot, PAGE), FolioPages::one(&world.frames, old), shown, Rights::USER);
    drop(tables);
    world.read(1, space, PAGE, old);
    let mut tables = world.tables.lock(world, space);
    let run = tables.find(PAGE).unwrap();
    let emptied = tables.empty_run(&run, |_| Absent::None);
    let mut batch = UnmapBatch::new(world.base().host());
    let _ = batch.take(world.base().host(), &world.tlb, emptied).into_parts();
    batch.settle(world.base().host(), &world.tlb);
    drop(tables);
    // The other thread stores.
    world.frames[new].set_owner(Owner::Anon(AnonId(1)), PageIndex(0));
    let mut tables = world.tables.lock(world, space);
    let slot = tables.reserve(&world.alloc, PAGE, MEANS).unwrap();
    let mut tables = if table_only { tables.settle_at(slot, PAGE) } else { tables.settle() };
    let pages = FolioPages::one(&world.frames, new);
    tables.install(slot, PAGE, pages, Rights::USER, Writes::Private);
    assert!(tables.read(slot).has(Bits::WRITE));
    world.check(old);
    drop(tables);
    // A version that pays too late pays here.
    world.tlb.settle_space(world.host(), space);
}

/// A CPU returns from a kernel task just after reclaim has cleared an entry.
#[test]
fn a_cpu_that_returns_during_an_unmap_still_owes_for_it() {
    let (world, space, held) = World::filled(0);
    world.read(1, space, PAGE, held[0]);
    world.on(1, || world.tlb.enter_lazy(world.host()));
    world.machine.at(Moment::Event(Event::TlbStale), move || world.run(1, space));
    world.unmap(space, PAGE, held[0]);
    world.free(held[0]);
    world.take_all(0);
}

/// A payer is stopped just before it sends; another task wants a frame that owes, too.
#[test]
fn a_payer_does_not_wait_for_another_payer() {
    let (world, space, held) = World::filled(5);
    world.free_owing(1, space, PAGE, held[0]);
    world.free_owing(3, space, Vpn(10), held[2]);
    world.machine.at(Moment::Shootdown, move || {
        world.on(2, || assert!(world.take(&world.request(5)).is_some()));
    });
    assert!(world.take(&world.request(5)).is_some());
}

/// Reclaim unmaps a page just when a CPU that has kept its translation returns to the space from another.
#[test]
fn a_cpu_that_loads_a_space_misses_no_unmap() {
    load_a_space_during_an_unmap(false);
}

/// The same; the CPU ran a kernel task last.
#[test]
fn a_cpu_that_loads_a_space_after_a_kernel_task_misses_no_unmap() {
    load_a_space_during_an_unmap(true);
}

fn load_a_space_during_an_unmap(lazy: bool) {
    let world = World::new();
    let (space, other) = (world.tlb.create(), world.tlb.create());
    let held = world.take_all(0);
    world.read(1, space, PAGE, held[0]);
    world.run(1, other);
    if lazy {
        world.on(1, || world.tlb.enter_lazy(world.host()));
    }
    world.on(1, || {
        world.machine.at(Moment::Cpu, move || {
            world.on(0, || {
                world.unmap(space, PAGE, held[0]);
                world.free(held[0]);
                // What the frame owes is paid before it is taken.
                world.pay();
            });
        });
        world.tlb.switch(world.host(), space, ROOT);
    });
    world.take_all(0);
}

/// The table may be gone when the lock is taken again.
#[test]
fn a_slot_is_refused_in_another_hold_of_the_tables_lock() {
    let world = World::new();
    let space = world.space();
    let lock = || world.tables.lock_one(world, space);
    let slot = lock().reserve(&world.alloc, PAGE, MEANS).unwrap();
    let late = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| lock().read(slot)));
    let said = *late.unwrap_err().downcast::<String>().unwrap();
    assert!(said.contains("was found before its table was unlocked"), "{said}");
    let mut tables = lock();
    let slot = tables.reserve(&world.alloc, PAGE, MEANS).unwrap();
    assert!(tables.read(slot).is_none());
}

/// Debts are recorded under the lock of their table: when it is locked again, it may owe again.
#[test]
#[should_panic(expected = "must be settled in this hold of the lock")]
fn a_table_is_no_longer_settled_once_another_was_locked() {
    let world = World::new();
    let space = world.space();
    let other = Vpn(PAGE.0 + TABLE_ENTRIES as u64);
    for page in [PAGE, other] {
        world.tables.lock_one(world, space).reserve(&world.alloc, page, MEANS).unwrap();
    }
    let new = world.take(&world.request(0)).unwrap();
    world.frames[new].set_owner(Owner::Anon(AnonId(1)), PageIndex(0));
    let mut tables = world.tables.lock_one(world, space);
    let slot = tables.reserve(&world.alloc, PAGE, MEANS).unwrap();
    let mut tables = tables.settle_at(slot, PAGE);
    assert!(tables.find(other).is_some());
    let slot = tables.find(PAGE).unwrap().slot;
    let pages = FolioPages::one(&world.frames, new);
    tables.install(slot, PAGE, pages, Rights::USER, Writes::Private);
}

/// A block has been taken and is not paid for yet.
#[test]
fn pending_pages_are_counted_while_a_block_is_paid_for() {
    let (world, space, held) = World::filled(4);
    world.free_owing(1, space, PAGE, held[0]);
    world.free_owing(1, space, Vpn(10), held[2]);
    world.machine.at(BEFORE_PAYMENT, move || world.alloc.validate(world).unwrap());
    assert!(world.take(&world.request(4)).is_some());
    world.alloc.validate(world).unwrap();
}

/// A task that has paid once takes a page that was freed since, for which other CPUs owe.
#[test]
fn a_task_that_has_paid_pays_again_for_what_was_freed_since() {
    let (world, space, held) = World::filled(4);
    world.free_owing(1, space, PAGE, held[0]);
    assert_eq!(world.take(&world.request(4)), Some(held[0]));
    world.free_owing(3, space, Vpn(10), held[2]);
    assert_eq!(world.take(&world.request(4)), Some(held[2]));
    assert_eq!(world.stats.read(Stat::TlbSettleFrame), 2);
}
