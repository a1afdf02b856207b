//! munmap.

use super::split::split_entry_at;
use super::tree::Overlap;
use super::vma::Vma;
use super::zap::{Zap, zap, zap_locked};
use super::{Space, Spaces, Stop};
use crate::api::Error;
use crate::machine::{Machine, WaitKey, Work};
use crate::mm_core::MmCore;
use crate::table::USER_END;
use crate::tlb::Gather;
use crate::units::*;
use smallvec::SmallVec;

impl Spaces {
    pub fn munmap<M: Machine>(
        &self,
        core: &MmCore<M>,
        id: SpaceId,
        start: Vpn,
        pages: u64,
    ) -> Result<(), Stop> {
        if pages == 0 || pages > USER_END.0 || start.0 > USER_END.0 - pages {
            return Err(Error::Invalid.into());
        }
        let _held = self.at(id).mapping.write(&core.machine, WaitKey::Space(id));
        self.unmap_range(core, id, start, Vpn(start.0 + pages));
        Ok(())
    }

    /// Unmap `[start, end)`. The caller holds the mapping semaphore alone. On return no CPU can reach the pages.
    pub(super) fn unmap_range<M: Machine>(&self, core: &MmCore<M>, id: SpaceId, start: Vpn, end: Vpn) {
        if start >= end {
            // An empty interval must not cut a range in two.
            return;
        }
        let space = self.at(id);
        let overlap = space.vmas.lock().overlap(start, end);
        match overlap {
            Overlap::Nothing => {}
            Overlap::Start { whole: true } => self.unmap_whole(core, space, id, start, end),
            Overlap::Start { whole: false } => self.unmap_start(core, space, id, start, end),
            Overlap::Other => self.unmap_ranges(core, space, id, start, end),
        }
    }

    /// Unmap `[start, end)`, which is the first part of one range. The ranges end up as if the range had been cut and
    /// its lower part removed, but no range is made for the lower part.
    fn unmap_start<M: Machine>(&self, core: &MmCore<M>, space: &Space, id: SpaceId, start: Vpn, end: Vpn) {
        split_entry_at(core, space, id, end);
        // One charge for the cut, a second one below for the removal.
        core.charge(Work::VmaChange, 1);
        let left = core.gather(id, |gather| {
            let mut vmas = space.vmas.lock();
            let left = vmas.remove_start(start, end, gather);
            // What follows `end` still needs the table that it shares with these pages.
            let shares = !end.0.is_multiple_of(TABLE_ENTRIES as u64);
            let hole = (if shares { start } else { vmas.free_below(start) }, end);
            drop(vmas);
            unmap_entries(core, Zap::of(&left.view, start, end), hole, gather);
            left
        });
        // Until here, reverse-map walks must find the entries through the whole range.
        left.relink(core, id, space.group());
        core.charge(Work::VmaChange, 1);
    }

    /// Unmap `[start, end)`, which is exactly one range.
    fn unmap_whole<M: Machine>(&self, core: &MmCore<M>, space: &Space, id: SpaceId, start: Vpn, end: Vpn) {
        let gone = core.gather(id, |gather| {
            let mut vmas = space.vmas.lock();
            let gone =
                vmas.remove_ending_at(end, gather).expect("the caller has found a range that ends here");
            let hole = vmas.hole(start, end);
            drop(vmas);
            unmap_entries(core, Zap::of(&gone.view, start, end), hole, gather);
            gone
        });
        gone.unlink(core);
        core.charge(Work::VmaChange, 1);
    }

    /// Unmap `[start, end)`, whatever ranges are in it.
    fn unmap_ranges<M: Machine>(&self, core: &MmCore<M>, space: &Space, id: SpaceId, start: Vpn, end: Vpn) {
        self.split_at(core, id, start);
        self.split_at(core, id, end);
        let mut gone: SmallVec<[Vma; 1]> = SmallVec::new();
        core.gather(id, |gather| {
            let hole = {
                let mut vmas = space.vmas.lock();
                while let Some(vma) = vmas.remove_last(end, start, gather) {
                    gone.push(vma);
                }
                vmas.hole(start, end)
            };
            for vma in gone.iter().rev() {
                zap(core, Zap::of(&vma.view, vma.view.start, vma.view.end()), gather);
            }
            core.tables.lock(core, id).take_empty_tables((start, end), hole, gather);
        });
        for vma in gone.iter().rev() {
            vma.unlink(core);
            core.charge(Work::VmaChange, 1);
        }
    }
}

/// Clear all entries of an interval that is now part of `hole`, and take out the tables that are then empty.
fn unmap_entries<M: Machine>(core: &MmCore<M>, what: Zap, hole: (Vpn, Vpn), gather: &mut Gather) {
    let mut tables = core.tables.lock(core, gather.space());
    zap_locked(core, &mut tables, what, gather);
    tables.take_empty_tables((what.start, what.end), hole, gather);
}
