//! Faults on anonymous memory that has no page yet.

use super::{Fault, FaultStop, Served};
use crate::alloc::Fresh;
use crate::api::{AccessKind, FaultError};
use crate::frame::{FolioPages, FrameFlags, Owner};
use crate::machine::{Machine, Scope, WaitKey, Work};
use crate::memory::{Gfp, Shortage};
use crate::mm_core::MmCore;
use crate::space::Space;
use crate::table::{Entry, Writes};
use crate::units::*;

impl Space {
    /// Serve a first store to a page of private anonymous memory with the frame that `take` returns. Returns `false`
    /// if it returns none.
    pub(crate) fn store_to_frame<M: Machine>(
        &self,
        core: &MmCore<M>,
        (id, page): (SpaceId, Vpn),
        gfp: Gfp,
        take: impl FnOnce() -> Option<Fresh>,
    ) -> Result<bool, FaultStop> {
        let _held = self.mapping.read_unseen(&core.machine, WaitKey::Space(id));
        let found = self.vmas.lock().find(page).filter(|vma| vma.file_index(page).is_none());
        let vma = found.ok_or(FaultStop::Error(FaultError::Segv))?;
        let groups = &core.lru.groups;
        groups.try_charge(core, gfp.group, 1).map_err(Shortage::Group)?;
        let Some(fresh) = take() else {
            groups.uncharge(core, gfp.group, 1, 1);
            return Ok(false);
        };
        let pfn = fresh.into_pfn();
        core.frames[pfn].set_group(gfp.group);
        let tree = core.tables.tree(id);
        let fault = Fault { core, id, space: self, tree, vma: &vma, page, access: AccessKind::Store, gfp };
        fault.become_anon(pfn);
        core.zero_new(pfn);
        fault.map_new_anon(pfn, Entry::NONE).map(|_| true)
    }
}

impl<M: Machine> Fault<'_, M> {
    /// A load maps the page of zeroes; a store gets a page of its own.
    pub(super) fn anon_fault(&self) -> Result<Served, FaultStop> {
        let _scope = self.core.scope(Scope::DoAnonymousPage);
        if self.is_store() { self.anon_store() } else { self.zero_page() }
    }

    fn zero_page(&self) -> Result<Served, FaultStop> {
        if let Some((tables, slot)) = self.lock_if(Entry::NONE)? {
            let mut tables = tables.settle_at(slot, self.page);
            let zero = FolioPages { head: self.core.zero, first: self.core.zero, count: 1 };
            tables.install(slot, self.page, zero, self.rights(false), Writes::No);
            self.core.charge(Work::EntrySet, 1);
        }
        Ok(Served::MINOR)
    }

    fn anon_store(&self) -> Result<Served, FaultStop> {
        let sizes = self.core.knobs.anon_sizes();
        if !sizes.is_empty()
            && let Some(served) = self.store_to_large_folio(sizes)?
        {
            return Ok(served);
        }
        let pfn = self.new_anon_page()?;
        self.core.zero_new(pfn);
        self.map_new_anon(pfn, Entry::NONE)
    }

    /// A page for anonymous memory of this range, whose content the caller fills in.
    #[inline(always)]
    pub(super) fn new_anon_page(&self) -> Result<Pfn, FaultStop> {
        let pfn = self.core.new_folio(Order::ZERO, self.gfp)?;
        self.become_anon(pfn);
        Ok(pfn)
    }

    #[inline(always)]
    fn become_anon(&self, pfn: Pfn) {
        let frame = &self.core.frames[pfn];
        frame.set_owner(Owner::Anon(self.anon_set()), self.vma.anon_index(self.page));
        frame.set(FrameFlags::UPTODATE | FrameFlags::SWAPBACKED | FrameFlags::EXCLUSIVE);
    }

    /// Map a page from [`Fault::new_anon_page`] if the entry is still `expected`: none, or the page of which this is a
    /// copy, which is then unmapped. The caller's reference passes to the entry.
    #[inline(always)]
    pub(super) fn map_new_anon(&self, pfn: Pfn, expected: Entry) -> Result<Served, FaultStop> {
        match self.lock_if(expected) {
            Ok(Some((mut tables, slot))) => {
                let old = if expected.is_present() { Some(self.take_old(&mut tables, slot)) } else { None };
                let mut tables = tables.settle_at(slot, self.page);
                let page = FolioPages { head: pfn, first: pfn, count: 1 };
                self.install_at(&mut tables, slot, self.page, page, Writes::Private);
                // Once the tables are unlocked, another task may unmap and free it.
                self.core.lru.add(self.core, Some(pfn), self.gfp.is_faulted());
                drop(tables);
                if let Some(old) = old {
                    self.core.put_refs(old);
                }
                Ok(Served::MINOR)
            }
            lost => {
                self.core.put(pfn);
                lost.map(|_| Served::MINOR)
            }
        }
    }
}
