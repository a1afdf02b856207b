//! Populating pages of a range: they are faulted in without an access of the program.

use super::Space;
use super::*;

impl Space {
    /// What populates `page`: `None` if it is mapped with all rights that populating gives, and then counts as used;
    /// else the access whose fault maps it. Private pages that may be written are made the space's own; pages that are
    /// shared need no store, which would make them dirty for nothing.
    ///
    /// # Errors
    /// The page may not be accessed.
    pub(crate) fn populates<M: Machine>(
        &self,
        core: &MmCore<M>,
        id: SpaceId,
        page: Vpn,
    ) -> Result<Option<AccessKind>, FaultError> {
        let _held = self.mapping.read_unseen(&core.machine, WaitKey::Space(id));
        let vma = self.vmas.lock().find(page).ok_or(FaultError::Segv)?;
        let allowed = |access: &AccessKind| vma.prot.contains(access.needs());
        let store = (!vma.is_shared()).then_some(AccessKind::Store);
        let others = [AccessKind::Load, AccessKind::Fetch, AccessKind::Store];
        let access = store.into_iter().chain(others).find(allowed).ok_or(FaultError::Segv)?;
        let tables = core.tables.tree(id).lock_one(core, id);
        let entry = tables.find(page).map(|leaf| leaf.entry).filter(|entry| entry.is_present());
        let needed = if access == AccessKind::Store { Bits::WRITE } else { Bits::empty() };
        let Some(entry) = entry.filter(|entry| entry.has(needed)) else { return Ok(Some(access)) };
        if entry.pfn() != core.zero {
            let head = core.frames.head(entry.pfn());
            core.lru.mark_accessed(core, head);
            if vma.flags.contains(VmaFlags::LOCKED) {
                core.lru.mlock(core, head);
            }
        }
        Ok(None)
    }
}
