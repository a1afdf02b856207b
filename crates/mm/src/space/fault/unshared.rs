//! Faults on pages that are in zram and belong to one entry alone: they come back without the swap cache.
//!
//! Source: `do_swap_page` in mm/memory.c of Linux 6.12, where swap devices with SWP_SYNCHRONOUS_IO are handled.

use super::{Fault, FaultStop, Served};
use crate::api::FaultError;
use crate::cache::read_unshared;
use crate::frame::{FrameFlags, Owner};
use crate::machine::{Machine, WaitKey};
use crate::swap::SlotUse;
use crate::table::{Entry, Resident, Writes};
use crate::units::*;

/// How long a task sleeps that finds a slot in another task's hands: a tick at 250 Hz, CONFIG_HZ of Debian's kernels.
const TICK: Nanos = 4_000_000;

/// How a swap fault goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SwapRoute {
    /// Through the swap cache; the fault holds a reference to the slot.
    Cache,
    /// Without it.
    Unshared,
    /// Another task has been faster, or will be: the access is tried again.
    Retry,
}

impl<M: Machine> Fault<'_, M> {
    /// Choose how to swap in, if the entry is still as it was.
    pub(super) fn swap_route(&self, entry: Entry, slot: SwapSlot) -> SwapRoute {
        let in_memory = self.core.zram_of(slot).is_some();
        let tables = self.lock();
        let now = tables.find(self.page).map_or(Entry::NONE, |leaf| leaf.entry);
        if now != entry {
            return SwapRoute::Retry;
        }
        let slot_use = if in_memory { self.core.swap.slot_use(slot) } else { SlotUse::Shared };
        if slot_use == SlotUse::Shared {
            self.core.swap.dup(slot);
        }
        drop(tables);
        match slot_use {
            SlotUse::Shared => SwapRoute::Cache,
            SlotUse::Single => SwapRoute::Unshared,
            SlotUse::Held => {
                let ticket = self.core.machine.ticket(WaitKey::Timer);
                self.core.machine.wait(ticket, Some(self.core.machine.now() + TICK));
                SwapRoute::Retry
            }
        }
    }

    /// Swap a page in without the swap cache.
    pub(super) fn swap_in_unshared(&self, entry: Entry, slot: SwapSlot) -> Result<Served, FaultStop> {
        let core = self.core;
        let pfn = core.new_folio(Order::ZERO, self.gfp)?;
        // From here on no other task brings the page back, or gives the slot another content.
        let prepare = || {
            let tables = self.lock();
            let same = tables.find(self.page).is_some_and(|leaf| leaf.entry == entry);
            let held = if same { core.swap.cache_prepare(slot) } else { None };
            drop(tables);
            held
        };
        let Some(shadow) = prepare() else {
            core.put(pfn);
            return Ok(Served::MINOR);
        };
        core.note_swap_nodes();
        let mapped = match read_unshared(core, slot, pfn, shadow, self.gfp) {
            true => self.map_unshared(pfn, entry, slot),
            false => Err(FaultStop::Error(FaultError::Io)),
        };
        let maps = mapped == Ok(true);
        // The slot is free if the entry is gone.
        core.remove_from_swap(slot, shadow.filter(|_| !maps));
        core.note_swap_nodes();
        if !maps {
            core.put(pfn);
        }
        mapped.map(Served::from_major)
    }

    /// Map the page with a slot's content, if the entry is still the slot's. Returns whether the entry took the
    /// caller's reference, and gave the slot up.
    fn map_unshared(&self, pfn: Pfn, entry: Entry, slot: SwapSlot) -> Result<bool, FaultStop> {
        let frame = &self.core.frames[pfn];
        let set = self.anon_set();
        let mut tables = self.lock();
        let Some(at) = self.slot_if(&mut tables, entry)? else { return Ok(false) };
        frame.set_owner(Owner::Anon(set), self.vma.anon_index(self.page));
        frame.set(FrameFlags::EXCLUSIVE);
        tables.counts().add(Resident::Swap, -1);
        let writes = if self.swaps_in_writable() { Writes::Private } else { Writes::No };
        let mut tables = tables.settle_at(at, self.page);
        self.install(&mut tables, at, pfn, writes);
        // Once the tables are unlocked, another task may unmap and free it.
        self.core.lru.add(self.core, Some(pfn), self.gfp.is_faulted());
        self.core.swap.free_entries(self.core, slot, 1);
        Ok(true)
    }
}
