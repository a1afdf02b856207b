//! Each fault made once, and not made once. See the table of the room for what is what.
//!
//! The machine for tests keeps what CPUs have in their TLBs. The steps of a test end in a check that holds whatever the
//! policy: no CPU reads a frame that is handed out for a new use, or a page that has changed.

use super::*;
use crate::alloc::{AllocRequest, Allocator, Means, Reserve, Watermark};
use crate::frame::{FolioPages, Mobility, Owner};
use crate::knobs::{FlushPolicy, Knob, Knobs};
use crate::machine::{Machine, ZoneKind};
use crate::mmu::Mmu;
use crate::platform::Platform;
use crate::primitive::Ordering::Relaxed;
use crate::stat::Stat;
use crate::table::{Absent, Bits, Rights, Tables, Writes};
use crate::testing::TestMachine;
use crate::tlb::{Cleared, Generation, Range, UnmapBatch};
use crate::units::*;
use Published::*;
use core::ops::Deref;
use std_alloc::string::String;
use std_alloc::vec::Vec;

extern crate std;

const BATCH: u64 = FlushPolicy::Batch.value();
const LAZY: u64 = FlushPolicy::Lazy.value();
const PAGE: Vpn = Vpn(9);
/// Where every space's tables stand, as far as the machine for tests cares.
const ROOT: Pfn = Pfn(5);

/// Four CPUs, 1024 frames and the rooms up to page tables. It is never given back, so that hooks can keep it.
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

    fn base(&self) -> &Platform<TestMachine> {
        &self.mmu
    }

    fn space(&self) -> SpaceId {
        let space = self.tlb.create();
        self.tables.create(self, &self.alloc, space, Means::new(Watermark::Min, Reserve::All)).unwrap();
        space
    }

    /// What `act` does happens on another CPU.
    fn on<R>(&self, cpu: u16, act: impl FnOnce() -> R) -> R {
        let here = self.machine.cpu();
        self.machine.run_on(cpu);
        let result = act();
        self.machine.run_on(here.0);
        result
    }

    /// A task of `space` runs on a CPU from now on.
    fn run(&self, cpu: u16, space: SpaceId) {
        self.on(cpu, || self.tlb.switch(self, space, ROOT));
    }

    /// It reads a page and keeps the translation.
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

    /// Take a folio, which nobody can read any more.
    fn take(&self, request: &AllocRequest) -> Option<Pfn> {
        let pfn = self.alloc.take(self, request, Watermark::Min).ok()?.into_pfn();
        let readers = self.machine.readers(pfn, request.order.frames());
        assert!(readers.is_empty(), "{pfn} is handed out and read by {readers:?}");
        Some(pfn)
    }

    /// Take all folios of an order that there are.
    fn take_all(&self, order: u8) -> Vec<Pfn> {
        core::iter::from_fn(|| self.take(&self.request(order))).collect()
    }

    /// Reclaim unmaps a page that could only be read.
    fn unmap(&self, space: SpaceId, page: Vpn, pfn: Pfn) {
        let _ = self.settle(&Cleared::page(space, page, pfn));
    }

    /// The same. Returns what its table is to be marked with.
    fn settle(&self, cleared: &Cleared) -> Option<Generation> {
        let mut batch = UnmapBatch::new(self.base());
        let generation = batch.note_cleared(self.base(), &self.tlb, cleared);
        batch.settle(self.base(), &self.tlb);
        generation
    }

    fn free(&self, pfn: Pfn) {
        assert!(self.frames[pfn].put(1));
        self.alloc.free(self, &[pfn]);
    }

    /// A CPU reads a folio, which is then unmapped and freed.
    fn free_owing(&self, cpu: u16, space: SpaceId, page: Vpn, pfn: Pfn) {
        self.read(cpu, space, page, pfn);
        self.unmap(space, page, pfn);
        self.free(pfn);
    }

    /// Pay all that is owed for frames.
    fn pay(&self) {
        self.tlb.settle_zone(self, ZoneId(0), Generation(u64::MAX), Pfn(0), Order::ZERO);
    }

    /// Let so many flushes be owed, and pay for them. `spare`: a page in use that no CPU reads.
    fn pass(&self, spare: Pfn, flushes: u32) {
        let space = self.tlb.create();
        self.run(1, space);
        (0..flushes).for_each(|_| self.unmap(space, Vpn(77), spare));
        self.frames[spare].set_debt(0);
        self.pay();
    }

    /// Nobody can read a page that changes.
    fn check(&self, pfn: Pfn) {
        let readers = self.machine.readers(pfn, 1);
        assert!(readers.is_empty(), "{pfn} has changed its use and is read by {readers:?}");
    }
}

/// The steps pass, and with the fault they end with a message that begins with `caught`.
fn show(fault: Published, caught: &str, steps: impl Fn()) {
    make(None);
    steps();
    make(Some(fault));
    let outcome = std::panic::catch_unwind(core::panic::AssertUnwindSafe(&steps));
    make(None);
    let panic = outcome.expect_err("nothing has caught the fault");
    let said = panic.downcast_ref::<String>().map(String::as_str);
    let said = said.or(panic.downcast_ref::<&str>().copied()).unwrap_or_default();
    assert!(said.contains(caught), "caught by something else: {said}");
}

const HANDED_OUT: &str = "is handed out and read by";
const CHANGED: &str = "has changed its use and is read by";

/// Tags through the buddy lists, for every order that can owe there and back.
#[test]
fn f1_a_tag_is_overwritten_by_the_order() {
    for order in 0..=MAX_ORDER.0 {
        show(F1, HANDED_OUT, || {
            let world = World::new();
            let space = world.tlb.create();
            // More payments than there are orders: a tag that is an order then looks paid.
            let spare = world.take(&world.request(0)).unwrap();
            world.pass(spare, MAX_ORDER.0 as u32 + 1);
            world.free(spare);
            world.alloc.drain_all(world);
            let pfn = world.take(&world.request(order)).unwrap();
            world.free_owing(1, space, PAGE, pfn);
            world.take_all(0);
        });
    }
}

/// While the first half of a block is being paid for, another CPU takes the second.
#[test]
fn f2_the_rest_of_a_split_block_owes_nothing() {
    for cpu in [0, 2] {
        show(F2, HANDED_OUT, move || {
            let world = World::new();
            let space = world.tlb.create();
            let held = world.take_all(8);
            let last = held[0].add(255);
            world.read(1, space, PAGE, last);
            let _ = world.settle(&Cleared { head: held[0], ..Cleared::page(space, PAGE, last) });
            world.free(held[0]);
            at(Point::Shootdown, move || {
                // As an interrupt, or somewhere else, where nothing can be sent: what owes nothing, or nothing.
                let atomic = AllocRequest { atomic: true, ..world.request(0) };
                world.on(cpu, || while world.take(&atomic).is_some() {});
            });
            assert!(world.take(&world.request(0)).is_some());
            world.alloc.validate(world).unwrap();
        });
    }
}

/// A tag that is as old as a sign bit allows meets the one that is pending.
#[test]
fn f3_tags_of_16_bits_wrap() {
    show(F3, HANDED_OUT, || {
        let world = World::new();
        let space = world.tlb.create();
        let held = world.take_all(0);
        let (old, new) = (held[0], held[0].buddy(Order::ZERO));
        world.read(1, space, PAGE, old);
        world.unmap(space, PAGE, old);
        // It stays in use while tags go halfway round.
        world.pass(*held.last().unwrap(), 0x7fff);
        world.free_owing(1, space, PAGE, new);
        world.free(old);
        world.alloc.drain_all(world);
        world.alloc.validate(world).unwrap();
        world.take_all(0);
    });
}

/// Between taking and paying, an interrupt frees a page.
#[test]
fn f4_an_interrupt_takes_the_debt_away() {
    show(F4, HANDED_OUT, || {
        let world = World::new();
        let space = world.tlb.create();
        let held = world.take_all(4);
        world.free_owing(1, space, PAGE, held[0]);
        at(Point::Settle, move || world.free(held[2]));
        assert!(world.take(&world.request(4)).is_some());
    });
}

/// With nothing left but what owes, a request comes from where interrupts are off.
#[test]
fn f5_a_payment_with_interrupts_off() {
    show(F5, "a shootdown while interrupts are off", || {
        let world = World::new();
        let space = world.tlb.create();
        let held = world.take_all(0);
        world.free_owing(1, space, PAGE, held[0]);
        let atomic = AllocRequest { atomic: true, ..world.request(0) };
        world.machine.interrupts_off.store(true, Relaxed);
        assert_eq!(world.take(&atomic), None);
        world.machine.interrupts_off.store(false, Relaxed);
        assert!(world.take(&world.request(0)).is_some());
    });
}

/// A CPU that owes for two pages has caught up with the first only.
#[test]
fn f6_a_cpu_that_owes_for_later_is_dropped() {
    show(F6, CHANGED, || {
        let world = World::new();
        world.knobs.set(Knob::TlbUnmap, BATCH).unwrap();
        let space = world.tlb.create();
        let [first, second] = [0, 1].map(|_| world.take(&world.request(0)).unwrap());
        let mut batch = UnmapBatch::new(world.base());
        world.read(1, space, PAGE, first);
        let _ = batch.note_cleared(world.base(), &world.tlb, &Cleared::page(space, PAGE, first));
        // Something else makes it catch up, and it goes on.
        world.tlb.flush(world, space, Range::page(Vpn(77)));
        world.read(1, space, Vpn(10), second);
        let _ = batch.note_cleared(world.base(), &world.tlb, &Cleared::page(space, Vpn(10), second));
        batch.settle(world.base(), &world.tlb);
        world.check(first);
        world.check(second);
    });
}

/// A CPU is asked to flush a space just when it goes over to another, one page of which is unmapped then.
#[test]
fn f7_a_flush_of_another_space_counts() {
    show(F7, HANDED_OUT, || {
        let world = World::new();
        world.knobs.set(Knob::TlbPayAll, 0).unwrap();
        let (asked, other) = (world.tlb.create(), world.tlb.create());
        let held = world.take_all(0);
        world.run(1, asked);
        at(Point::Shootdown, move || world.free_owing(1, other, PAGE, held[0]));
        world.tlb.flush(world, asked, Range::page(Vpn(77)));
        world.take_all(0);
    });
}

/// A CPU borrows a space that ends; its number goes to a new one. Or it had kept something of it.
#[test]
fn f8_a_space_is_used_after_its_end() {
    show(F8, CHANGED, || {
        for lazy in [false, true] {
            let world = World::new();
            let (space, other) = (world.tlb.create(), world.tlb.create());
            let pfn = world.take(&world.request(0)).unwrap();
            world.read(1, space, PAGE, pfn);
            if lazy {
                world.on(1, || world.tlb.enter_lazy(world));
            } else {
                world.run(1, other);
            }
            world.tlb.destroy(world, space);
            world.tlb.release(space);
            assert_eq!(world.tlb.create(), space);
            assert!(!world.tlb.cpus_of(space).contains(CpuId(1)));
            world.run(1, space);
            world.check(pfn);
        }
    });
}

/// mprotect has taken the right to write from an entry and not flushed yet, when reclaim unmaps the page.
#[test]
fn f9_the_entry_forbids_what_the_tlb_allows() {
    show(F9, "can still be stored to", || {
        let world = World::new();
        let space = world.tlb.create();
        let pfn = world.take(&world.request(0)).unwrap();
        world.run(1, space);
        world.on(1, || world.machine.hold(PAGE, pfn, true));
        world.tlb.begin_tightening(space);
        world.unmap(space, PAGE, pfn);
        let stores = world.machine.held(CpuId(1), PAGE).is_some_and(|(_, writable)| writable);
        assert!(!stores, "{pfn} is written to its store and can still be stored to");
        world.tlb.flush(world, space, Range::page(PAGE));
        world.tlb.end_tightening(space);
    });
}

/// A file's page that reclaim had unmapped is to be replaced by a copy, and another thread still reads it.
#[test]
fn f10_paid_after_the_new_entry_is_seen() {
    show(F10, CHANGED, || change_what_a_page_shows(false));
    show(F10, CHANGED, || change_what_a_page_shows(true));
}

/// `at`: what is owed for the page's table is paid, and not what is for all of the space.
fn change_what_a_page_shows(at: bool) {
    let world = World::new();
    let space = world.space();
    let [old, new] = [0, 1].map(|_| world.take(&world.request(0)).unwrap());
    let mut tables = world.tables.lock(world, space);
    let slot = tables.reserve(&world.alloc, PAGE, Means::new(Watermark::Min, Reserve::All)).unwrap();
    world.frames[old].set_owner(Owner::File(FileId(3)), PageIndex(0));
    tables.install_unchanged(slot, PAGE, FolioPages::one(&world.frames, old), Rights::USER);
    drop(tables);
    world.read(1, space, PAGE, old);
    let mut tables = world.tables.lock(world, space);
    let run = tables.find(PAGE).unwrap();
    let emptied = tables.empty_run(&run, |_| Absent::None);
    let mut batch = UnmapBatch::new(world.base());
    let _ = batch.take(world.base(), &world.tlb, emptied).into_parts();
    batch.settle(world.base(), &world.tlb);
    drop(tables);
    // A store by the other thread.
    world.frames[new].set_owner(Owner::Anon(AnonId(1)), PageIndex(0));
    let mut tables = world.tables.lock(world, space);
    let slot = tables.reserve(&world.alloc, PAGE, Means::new(Watermark::Min, Reserve::All)).unwrap();
    let mut tables = if at { tables.settle_at(slot, PAGE) } else { tables.settle() };
    let pages = FolioPages::one(&world.frames, new);
    tables.install(slot, PAGE, pages, Rights::USER, Writes::Private);
    assert!(tables.read(slot).has(Bits::WRITE));
    world.check(old);
    drop(tables);
    // That is when the fault pays.
    world.tlb.settle_space(world, space);
}

/// A lazy CPU comes back between the draw and the raising of the space's generation.
#[test]
fn f11_drawn_before_the_generation_is_raised() {
    show(F11, HANDED_OUT, || {
        let world = World::new();
        let space = world.tlb.create();
        let held = world.take_all(0);
        world.read(1, space, PAGE, held[0]);
        world.on(1, || world.tlb.enter_lazy(world));
        at(Point::Raise, move || world.run(1, space));
        world.unmap(space, PAGE, held[0]);
        world.free(held[0]);
        world.take_all(0);
    });
}

/// A payer is held up just before it sends; another wants a frame that owes, too.
#[test]
fn f12_who_finds_a_claim_waits_for_the_claimer() {
    show(F12, "waits for a claimer that cannot run", || {
        let world = World::new();
        let space = world.tlb.create();
        let held = world.take_all(5);
        world.free_owing(1, space, PAGE, held[0]);
        world.free_owing(3, space, Vpn(10), held[2]);
        at(Point::Shootdown, move || {
            world.on(2, || assert!(world.take(&world.request(5)).is_some()));
        });
        assert!(world.take(&world.request(5)).is_some());
    });
}

/// Reclaim unmaps a page just when a CPU that has kept a translation of it comes back to the space.
#[test]
fn f13_the_generation_is_read_before_the_cpu_joins() {
    show(F13, HANDED_OUT, || come_back_while_a_page_is_taken(Point::Join));
}

fn come_back_while_a_page_is_taken(point: Point) {
    for lazy in [false, true] {
        let world = World::new();
        let (space, other) = (world.tlb.create(), world.tlb.create());
        let held = world.take_all(0);
        world.read(1, space, PAGE, held[0]);
        world.run(1, other);
        if lazy {
            world.on(1, || world.tlb.enter_lazy(world));
        }
        at(point, move || {
            world.on(0, || {
                world.unmap(space, PAGE, held[0]);
                world.free(held[0]);
                // What it owes is paid before it is taken.
                world.pay();
            });
        });
        world.run(1, space);
        world.take_all(0);
    }
}

/// A slot that was found in one hold of the lock is refused in the next: the table may be gone.
#[test]
fn f14_an_entry_is_used_after_its_tree_was_unlocked() {
    make(None);
    let world = World::new();
    let space = world.space();
    let lock = || world.tables.lock(world, space);
    let slot = lock().reserve(&world.alloc, PAGE, Means::new(Watermark::Min, Reserve::All)).unwrap();
    let late = std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| lock().read(slot)));
    let said = *late.unwrap_err().downcast::<String>().unwrap();
    assert!(said.contains("was found before the tree was unlocked"), "{said}");
    let mut tables = lock();
    let slot = tables.reserve(&world.alloc, PAGE, Means::new(Watermark::Min, Reserve::All)).unwrap();
    assert!(tables.read(slot).is_none());
}

/// All counts are right at the moment at which a block has been taken and is not paid for.
#[test]
fn f15_the_count_of_pending_pages_is_zeroed() {
    show(F15, "pages are pending", || {
        let world = World::new();
        let space = world.tlb.create();
        let held = world.take_all(4);
        world.free_owing(1, space, PAGE, held[0]);
        world.free_owing(1, space, Vpn(10), held[2]);
        at(Point::Settle, move || world.alloc.validate(world).unwrap());
        assert!(world.take(&world.request(4)).is_some());
        world.alloc.validate(world).unwrap();
    });
}

/// A task that has paid once takes a page that was freed since, for which other CPUs owe.
#[test]
fn f16_who_has_claimed_once_does_not_pay_again() {
    show(F16, HANDED_OUT, || {
        let world = World::new();
        let space = world.tlb.create();
        let held = world.take_all(4);
        world.free_owing(1, space, PAGE, held[0]);
        assert_eq!(world.take(&world.request(4)), Some(held[0]));
        world.free_owing(3, space, Vpn(10), held[2]);
        assert_eq!(world.take(&world.request(4)), Some(held[2]));
        assert_eq!(world.stats.read(Stat::TlbSettleFrame), 2);
    });
}
