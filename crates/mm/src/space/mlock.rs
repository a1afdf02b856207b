//! mlock and munlock.

use super::vma::VmaFlags;
use super::{Spaces, Stop};
use crate::api::Error;
use crate::machine::{Machine, WaitKey};
use crate::mm_core::MmCore;
use crate::units::*;

impl Spaces {
    /// Lock a range in memory, or unlock it. After a lock the facade faults in the missing pages; a fault in a locked
    /// range locks its folio.
    pub fn mlock<M: Machine>(
        &self,
        core: &MmCore<M>,
        id: SpaceId,
        start: Vpn,
        pages: u64,
        lock: bool,
    ) -> Result<(), Stop> {
        let end = Vpn(start.0 + pages);
        let space = self.at(id);
        let _held = space.mapping.write(&core.machine, WaitKey::Space(id));
        if !space.vmas.lock().covers(start, end) {
            return Err(Error::NotMapped.into());
        }
        self.change_ranges(core, id, start, end, |vmas, at| {
            vmas.update(at, |vma| vma.view.flags.set(VmaFlags::LOCKED, lock));
        });
        let mut tables = core.tables.lock(core, id);
        tables.for_each(start, end, |_, run| {
            let moving = run.entry.as_migrating().map(|migrating| core.frames.head(migrating.page()));
            if let (false, Some(head)) = (lock, moving) {
                // When the move ends, the ranges that are still locked lock the new folio.
                core.lru.munlock(core, head);
            }
            if run.entry.is_present() && run.entry.pfn() != core.zero {
                let head = run.mapped(&core.frames).head;
                if lock {
                    core.lru.mlock(core, head);
                } else {
                    core.lru.munlock(core, head);
                }
            }
        });
        Ok(())
    }

    /// For msync: the parts of shared files that a range shows. An error if a page of it is not mapped.
    pub(crate) fn shared_parts<M: Machine>(
        &self,
        core: &MmCore<M>,
        id: SpaceId,
        start: Vpn,
        pages: u64,
    ) -> Result<std_alloc::vec::Vec<(FileId, PageIndex, u64)>, Stop> {
        let end = Vpn(start.0 + pages);
        let space = self.at(id);
        let _held = space.mapping.read(&core.machine, WaitKey::Space(id));
        let vmas = space.vmas.lock();
        if !vmas.covers(start, end) {
            return Err(Error::NotMapped.into());
        }
        let part = |view: &super::VmaView| {
            let (from, to) = (start.max(view.start), end.min(view.end()));
            view.file_index(from).map(|(file, index)| (file, index, to.0 - from.0))
        };
        Ok(vmas
            .overlapping(start, end)
            .filter(|vma| vma.view.is_shared())
            .filter_map(|vma| part(&vma.view))
            .collect())
    }
}
