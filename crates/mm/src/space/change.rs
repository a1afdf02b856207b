//! Splitting, merging and changing ranges; mprotect.

use super::split::split_entry_at;
use super::vma::{Vma, VmaFlags, rights_of};
use super::{Space, Spaces, Stop, VmaTree};
use crate::api::{Error, Prot};
use crate::machine::{Machine, WaitKey, Work};
use crate::mm_core::MmCore;
use crate::table::Bits;
use crate::tlb::Gather;
use crate::units::*;
use std_alloc::vec::Vec;

impl Spaces {
    /// Make `page` a border between ranges. The caller holds the mapping semaphore alone.
    pub(super) fn split_at<M: Machine>(&self, core: &MmCore<M>, id: SpaceId, page: Vpn) {
        let space = self.at(id);
        split_entry_at(core, space, id, page);
        let mut vmas = space.vmas.lock();
        let Some(whole) = vmas.range_of(page) else { return };
        if whole.view.start == page {
            return;
        }
        let mut upper = whole.clone();
        let start = whole.view.start;
        let below = page.0 - start.0;
        upper.view.id = self.new_vma_id();
        upper.view.begin_at(page);
        // The upper part is registered before the lower one shrinks, so that some span always holds each page.
        upper.link(core, id, space.group());
        vmas.update(start, |lower| {
            lower.view.pages = below;
            lower.relink(core, id, space.group());
        });
        vmas.insert(upper);
        core.charge(Work::VmaChange, 1);
    }

    /// Merge the ranges on both sides of `page` if one continues the other. The caller holds the mapping semaphore
    /// alone.
    pub(super) fn merge_at<M: Machine>(&self, core: &MmCore<M>, id: SpaceId, page: Vpn) {
        let space = self.at(id);
        let joined = space.vmas.lock().join(page, |lower, upper| grow(core, id, space, lower, upper));
        if let Some(upper) = joined {
            upper.unlink(core);
            core.charge(Work::VmaChange, 1);
        }
    }

    /// Cut ranges at `start` and `end`, change those between, and merge again what fits.
    pub(super) fn change_ranges<M: Machine>(
        &self,
        core: &MmCore<M>,
        id: SpaceId,
        start: Vpn,
        end: Vpn,
        mut change: impl FnMut(&mut VmaTree, Vpn),
    ) {
        self.split_at(core, id, start);
        self.split_at(core, id, end);
        let space = self.at(id);
        let starts = space.vmas.lock().starts(start, end);
        for &at in &starts {
            let mut vmas = space.vmas.lock();
            change(&mut vmas, at);
            vmas.update(at, |vma| vma.relink(core, id, space.group()));
            drop(vmas);
            core.charge(Work::VmaChange, 1);
        }
        for at in starts.into_iter().chain([end]) {
            self.merge_at(core, id, at);
        }
    }

    pub fn mprotect<M: Machine>(
        &self,
        core: &MmCore<M>,
        id: SpaceId,
        start: Vpn,
        pages: u64,
        prot: Prot,
    ) -> Result<(), Stop> {
        let end = Vpn(start.0 + pages);
        let space = self.at(id);
        let _held = space.mapping.write(&core.machine, WaitKey::Space(id));
        {
            let vmas = space.vmas.lock();
            if !vmas.covers(start, end) {
                return Err(Error::NotMapped.into());
            }
            let forbidden =
                |vma: &Vma| prot.contains(Prot::WRITE) && !vma.view.flags.contains(VmaFlags::MAY_WRITE);
            if vmas.overlapping(start, end).any(forbidden) {
                return Err(Error::Access.into());
            }
        }
        let mut forbidden = false;
        core.gather(id, |gather| {
            self.change_ranges(core, id, start, end, |vmas, at| {
                vmas.protect(at, prot, gather);
            });
            forbidden = change_entries(core, id, start, end, prot, gather);
        });
        if forbidden && prot.contains(Prot::WRITE) {
            allow_exclusive(core, space, id, start, end);
        }
        Ok(())
    }
}

/// Extend `lower` over `upper`'s pages.
fn grow<M: Machine>(core: &MmCore<M>, id: SpaceId, space: &Space, lower: &mut Vma, upper: &Vma) {
    let adopts_sets = lower.sets.is_empty() && !upper.sets.is_empty();
    lower.view.pages += upper.view.pages;
    lower.relink(core, id, space.group());
    if adopts_sets {
        lower.sets = upper.sets.clone();
        lower.view.anon = upper.view.anon;
        let mut anonymous_part = lower.clone();
        anonymous_part.view.file = None;
        anonymous_part.link(core, id, space.group());
    }
}

/// Change the rights of present entries to those of `prot`, but only take the right to write away. Returns whether
/// some present entry does not have it.
fn change_entries<M: Machine>(
    core: &MmCore<M>,
    id: SpaceId,
    start: Vpn,
    end: Vpn,
    prot: Prot,
    gather: &mut Gather,
) -> bool {
    let rights = rights_of(prot);
    let read_only = !prot.contains(Prot::WRITE);
    let mut without = false;
    let mut tables = core.tables.lock(core, id);
    tables.for_each(start, end, |tables, run| {
        without |= run.entry.is_present() && !run.entry.has(Bits::WRITE);
        if !run.entry.is_present() {
            if run.entry.as_migrating().is_some() {
                // Settling the space later pays for what CPUs may still do through the old translation.
                tables.restrict(run.slot, |entry| entry.with_rights(rights, read_only));
            }
            return;
        }
        if let Some(tightened) = tables.change_rights(&run, rights, read_only) {
            core.charge(Work::EntrySet, run.count as u64);
            gather.tightened(core.host(), tightened);
        }
    });
    without
}

/// Give the right to write to the exclusive pages of private ranges, so that they need not fault one by one: a page
/// that was exclusive before it was protected still is. One payment settles the space for all of them. Shared pages
/// and those of files wait for the fault that copies them or marks the file's folio dirty.
fn allow_exclusive<M: Machine>(core: &MmCore<M>, space: &Space, id: SpaceId, start: Vpn, end: Vpn) {
    let private: Vec<(Vpn, Vpn)> = {
        let vmas = space.vmas.lock();
        let own = vmas.overlapping(start, end).filter(|vma| !vma.view.is_shared());
        own.map(|vma| (vma.view.start.max(start), vma.view.end().min(end))).collect()
    };
    if private.is_empty() {
        return;
    }
    let mut tables = core.tables.lock(core, id).settle();
    for (start, end) in private {
        let allowed = tables.allow_exclusive_writes(start, end);
        core.charge(Work::EntrySet, allowed);
    }
}
