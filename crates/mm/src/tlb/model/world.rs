//! The kernel around the ledger, reduced to what the ledger sees of it.

extern crate std;

use super::machine::{ModelMachine, become_cpu};
use crate::frame::{Mobility, Owner};
use crate::knobs::{FlushPolicy, Knob, Knobs};
use crate::lock::{Guard, Lock};
use crate::machine::Machine;
use crate::mmu::Mmu;
use crate::tlb::{Cleared, UnmapBatch};
use crate::units::*;
use pagefold_flush::inside::Inside;
use std::boxed::Box;
use std::sync::Arc;
use std::vec::Vec;

/// The value of `tlb.unmap` that defers flushes.
pub(super) const LAZY: u64 = FlushPolicy::Lazy.value();

/// The file that owns all frames.
pub(super) const FILE: FileId = FileId(0);
/// The content of a frame before its reuse.
pub(super) const OLD: u64 = 1;
/// The content after it.
pub(super) const NEW: u64 = 2;

/// A machine and its spaces.
pub(super) struct World {
    pub mmu: Mmu<ModelMachine>,
    /// The locks of each space's tables, each with the tag of the newest debt for an entry of the table.
    tables: Vec<[Lock<u32>; 2]>,
}

impl World {
    /// `cpus` CPUs, `spaces` spaces and `frames` frames, all of them the file's and with content [`OLD`].
    pub fn new(cpus: usize, spaces: u32, frames: u32) -> World {
        become_cpu(0);
        let knobs = Knobs::default();
        knobs.set(Knob::TlbUnmap, LAZY).expect("the policy must exist");
        knobs.set(Knob::TlbPayAll, 0).expect("the knob must be a switch");
        let mmu = Mmu::new(ModelMachine::new(cpus, spaces as usize, frames), knobs);
        for space in 0..spaces {
            assert_eq!(mmu.tlb.create(), SpaceId(space));
        }
        mmu.tlb.files().ensure(FILE.0);
        for pfn in (0..frames).map(Pfn) {
            mmu.frames[pfn].place(NodeId(0), ZoneId(0), Mobility::Movable);
            mmu.frames[pfn].set_owner(Owner::File(FILE), PageIndex(pfn.0 as u64));
            mmu.machine.fill(pfn, OLD);
        }
        World { mmu, tables: (0..spaces).map(|_| [Lock::new(0), Lock::new(0)]).collect() }
    }

    /// This CPU switches to a space as a scheduler does: with interrupts off.
    pub fn switch(&self, space: SpaceId) {
        let machine = &self.mmu.machine;
        let _off = machine.interrupts_off();
        self.mmu.tlb.switch(self.mmu.host(), space, machine.root(space));
    }

    /// This CPU switches to a kernel task.
    pub fn enter_lazy(&self) {
        let _off = self.mmu.machine.interrupts_off();
        self.mmu.tlb.enter_lazy(self.mmu.host());
    }

    pub fn map(&self, space: SpaceId, page: Vpn, pfn: Pfn) {
        let _tables = self.lock_tables(space);
        self.mmu.machine.map(space, page, pfn, false);
    }

    /// Clear an entry. The caller handles the CPUs' translations.
    pub fn clear(&self, space: SpaceId, page: Vpn) -> Option<Pfn> {
        let _tables = self.lock_tables(space);
        self.mmu.machine.clear(space, page).map(|(pfn, _)| pfn)
    }

    /// Lock the tables of a space, of which this is the only one.
    pub fn lock_tables(&self, space: SpaceId) -> Guard<'_, u32> {
        self.lock_table(space, 0)
    }

    /// Lock one of the tables of a space.
    pub fn lock_table(&self, space: SpaceId, table: usize) -> Guard<'_, u32> {
        self.tables[space.0 as usize][table].lock()
    }

    /// Use this value of `tlb.unmap` from now on.
    pub fn set_policy(&self, policy: u64) {
        self.mmu.knobs.set(Knob::TlbUnmap, policy).expect("the policy must exist");
    }

    /// The clock of this CPU ticks: an interrupt.
    pub fn tick(&self) {
        let _off = self.mmu.machine.interrupts_off();
        self.mmu.tlb.tick(self.mmu.host());
    }

    /// Reclaim unmaps a page of a space. Returns the frame if the page was mapped.
    pub fn unmap(&self, space: SpaceId, page: Vpn) -> Option<Pfn> {
        self.unmap_in(space, 0, page)
    }

    /// The same for a page of one of the space's tables.
    pub fn unmap_in(&self, space: SpaceId, table: usize, page: Vpn) -> Option<Pfn> {
        let mut batch = UnmapBatch::new(self.mmu.host());
        let taken = {
            let mut tag = self.lock_table(space, table);
            let taken = self.mmu.machine.clear(space, page);
            if let Some((pfn, writable)) = taken {
                let cleared = Cleared { writable, dirty: writable, ..self.cleared(space, page, pfn) };
                if let Some(debt) = batch.note_cleared(self.mmu.host(), &self.mmu.tlb, &cleared) {
                    *tag = debt.tag();
                }
            }
            taken.map(|(pfn, _)| pfn)
        };
        batch.settle(self.mmu.host(), &self.mmu.tlb);
        taken
    }

    /// Pay for the entries of a table, whose lock this task holds, and let a page of it show something else.
    pub fn change_in(&self, space: SpaceId, tag: &mut u32, page: Vpn, pfn: Pfn) {
        if *tag != 0 {
            self.mmu.tlb.settle_table(self.mmu.host(), space, page, *tag);
            *tag = 0;
        }
        self.mmu.machine.fill(pfn, NEW);
    }

    /// A read-only entry, as a batch gets it.
    pub fn cleared(&self, space: SpaceId, page: Vpn, pfn: Pfn) -> Cleared {
        Cleared { head: self.mmu.frames.head(pfn), ..Cleared::page(space, page, pfn) }
    }

    /// Reuse the frame after paying its debt.
    pub fn reuse(&self, pfn: Pfn) {
        self.reuse_tagged(pfn, self.mmu.frames[pfn].debt());
    }

    /// The same, with the tag that the frame had.
    pub fn reuse_tagged(&self, pfn: Pfn, tag: u32) {
        let generation = self.mmu.tlb.owed_by_tag(ZoneId(0), tag);
        if generation > self.mmu.tlb.paid_up_to(ZoneId(0)) {
            self.mmu.tlb.settle_zone(self.mmu.host(), ZoneId(0), generation, pfn, Order::ZERO);
        }
        self.mmu.machine.fill(pfn, NEW);
    }

    /// A program on this CPU reads a page that must not have changed. `false`: a fault.
    pub fn reads_old(&self, page: Vpn) -> bool {
        let read = self.mmu.machine.load(page);
        assert!(read.is_none_or(|content| content == OLD), "a stale translation led to a reused frame");
        read.is_some()
    }

    /// I5, I10: for each CPU, the record of a space or zone says that it owes, or all that it can use is in the
    /// tables.
    pub fn check_debts(&self) {
        let tlb = &self.mmu.tlb;
        for cpu in (0..self.mmu.machine.cpus()).map(|cpu| CpuId(cpu as u16)) {
            for (space, page, pfn) in self.mmu.machine.usable(cpu) {
                if self.mmu.machine.mapped(space, page) != Some(pfn) && !tlb.cpus()[cpu.index()].is_lazy() {
                    assert!(tlb.space_owes(space, cpu), "{cpu:?} holds {page} of {space} and must owe");
                    let file = tlb.files()[FILE.0].read().expect("the file must still owe");
                    assert!(file.debt.cpus.contains(cpu) && tlb.done(cpu) < file.debt.generation);
                }
            }
        }
    }
}

/// A program for one CPU of a world, or of what has one.
pub(super) fn on<W: Send + Sync + 'static>(
    world: &Arc<W>,
    cpu: u16,
    program: impl FnOnce(&W) + Send + 'static,
) -> Box<dyn FnOnce() + Send> {
    let world = Arc::clone(world);
    Box::new(move || {
        become_cpu(cpu);
        program(&world);
    })
}
