//! Frames on their way through the real allocator: split, merged, on CPUs' lists, taken by two CPUs at once.

extern crate std;

use super::host::{LONG, THREE, at_once, explore};
use super::machine::become_cpu;
use super::world::{FILE, NEW, OLD, World, on};
use crate::alloc::{Allocator, NeedsReclaim, Watermark};
use crate::frame::{Mobility, Owner};
use crate::testing::block;
use crate::units::*;
use std::sync::Arc;
use std::vec;

const A: SpaceId = SpaceId(0);
const PAGES: [Vpn; 2] = [Vpn(0), Vpn(1)];

struct Memory {
    world: World,
    alloc: Allocator,
}

impl Memory {
    /// Four free frames. CPU 2 runs space A.
    fn new() -> Memory {
        let world = World::new(3, 1, 4);
        let alloc = Allocator::new(&world.mmu).expect("the layout must be valid");
        become_cpu(2);
        world.switch(A);
        become_cpu(0);
        Memory { world, alloc }
    }

    fn take(&self, order: Order) -> Result<Pfn, NeedsReclaim> {
        let request = block(order, Mobility::Movable);
        self.alloc.take(&self.world.mmu, &request, Watermark::Min).map(|fresh| fresh.into_pfn())
    }

    /// Take a folio, if there is one, and reuse it.
    fn take_and_use(&self, order: Order) -> Option<Pfn> {
        let pfn = self.take(order).ok()?;
        (0..order.frames()).for_each(|i| self.world.mmu.machine.fill(pfn.add(i), NEW));
        Some(pfn)
    }

    /// A folio of the file, mapped from `page` on, that CPU 2 has read.
    fn mapped(&self, order: Order, page: Vpn) -> Pfn {
        let world = &self.world;
        let pfn = self.take(order).expect("memory must be free");
        world.mmu.frames[pfn].set_owner(Owner::File(FILE), PageIndex(page.0));
        for i in 0..order.frames() {
            world.mmu.machine.fill(pfn.add(i), OLD);
            world.map(A, Vpn(page.0 + i as u64), pfn.add(i));
        }
        become_cpu(2);
        (0..order.frames()).for_each(|i| assert!(world.reads_old(Vpn(page.0 + i as u64))));
        become_cpu(0);
        pfn
    }

    /// Reclaim unmaps and frees a folio.
    fn reclaim(&self, pfn: Pfn, page: Vpn) {
        let frame = &self.world.mmu.frames[pfn];
        for i in 0..frame.pages() {
            assert_eq!(self.world.unmap(A, Vpn(page.0 + i as u64)), Some(pfn.add(i)));
        }
        self.free(pfn);
    }

    fn free(&self, pfn: Pfn) {
        let frame = &self.world.mmu.frames[pfn];
        frame.set_owner(Owner::None, PageIndex(0));
        assert!(frame.put(1));
        self.alloc.free(&self.world.mmu, &[pfn]);
    }

    /// CPU 2 reads through its translations.
    fn read(&self) {
        for page in PAGES {
            self.world.reads_old(page);
        }
        self.world.reads_old(PAGES[0]);
    }

    fn check(&self) {
        self.alloc.validate(&self.world.mmu).expect("the free lists must be valid");
        self.world.check_debts();
    }
}

/// A block of two frames owes, and two CPUs want a frame each at the same moment. The CPU that gets the remainder of
/// the split must not use it before the payment either.
#[test]
fn a_split_remainder_taken_at_once() {
    explore("a split remainder taken at once", THREE, || {
        let memory = Arc::new(Memory::new());
        let folio = memory.mapped(Order(1), PAGES[0]);
        memory.reclaim(folio, PAGES[0]);
        at_once(vec![
            on(&memory, 0, |memory| {
                memory.take_and_use(Order::ZERO);
            }),
            on(&memory, 1, |memory| {
                memory.take_and_use(Order::ZERO);
            }),
            on(&memory, 2, Memory::read),
        ]);
        memory.check();
    });
}

/// Two folios are freed with debts, one of them to a CPU's list, merge, and are taken as one meanwhile.
#[test]
fn tags_through_lists_and_buddies() {
    explore("tags through lists and buddies", LONG, || {
        let memory = Arc::new(Memory::new());
        let folios = PAGES.map(|page| memory.mapped(Order::ZERO, page));
        at_once(vec![
            on(&memory, 0, move |memory| {
                memory.reclaim(folios[0], PAGES[0]);
                if let Some(pfn) = memory.take_and_use(Order::ZERO) {
                    memory.free(pfn);
                }
            }),
            on(&memory, 1, move |memory| {
                memory.reclaim(folios[1], PAGES[1]);
                memory.alloc.drain_all(&memory.world.mmu);
                memory.take_and_use(Order(1));
            }),
            on(&memory, 2, Memory::read),
        ]);
        memory.check();
    });
}

// --- what the models must find
// ---------------------------------------------------------------------------------------------

/// F1: a tag is lost between the unmapping and the free lists.
#[test]
#[should_panic(expected = "a stale translation led to a reused frame")]
fn a_lost_tag_is_found() {
    explore("found: a lost tag", THREE, || {
        let memory = Arc::new(Memory::new());
        let folio = memory.mapped(Order(1), PAGES[0]);
        at_once(vec![
            on(&memory, 0, move |memory| {
                for page in PAGES {
                    memory.world.unmap(A, page).expect("the page must be mapped");
                }
                memory.world.mmu.frames[folio].set_debt(0);
                memory.free(folio);
                memory.take_and_use(Order(1));
            }),
            on(&memory, 2, Memory::read),
        ]);
    });
}
