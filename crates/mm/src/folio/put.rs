//! Dropping references, and freeing folios without references.

use crate::frame::{FolioPages, FrameFlags};
use crate::machine::{Machine, Scope};
use crate::memory::Memory;
use crate::stat::SizeStat;
use crate::tlb::{Finished, Gather, Refs};
use crate::units::*;

/// Folios freed in one step: enough to amortize the work that is done for all of them together.
const FREED_TOGETHER: usize = 32;

impl<M: Machine> Memory<M> {
    /// Drop one reference of a folio; the last one frees it.
    #[inline]
    pub fn put(&self, pfn: Pfn) {
        if self.frames[pfn].put(1) {
            self.free_folio(pfn);
        }
    }

    /// Drop `n` references of a folio; the last one frees it.
    #[inline]
    pub(crate) fn put_many(&self, pfn: Pfn, n: u32) {
        if self.frames[pfn].put(n) {
            self.free_folio(pfn);
        }
    }

    /// Drop references of several folios, as (folio, number) pairs; each folio whose last reference goes is freed.
    pub(crate) fn put_folios(&self, folios: impl IntoIterator<Item = (Pfn, u32)>) {
        let (mut dead, mut count) = ([Pfn::NONE; FREED_TOGETHER], 0);
        for (pfn, refs) in folios {
            if self.frames[pfn].put(refs) {
                dead[count] = pfn;
                count += 1;
                if count == FREED_TOGETHER {
                    self.free_folios(&dead);
                    count = 0;
                }
            }
        }
        self.free_folios(&dead[..count]);
    }

    /// Free a folio without references.
    pub(crate) fn free_folio(&self, pfn: Pfn) {
        self.free_folios(&[pfn]);
    }

    /// Free folios without references. State shared by consecutive folios (a list vector, a group, a zone) is locked
    /// and counted once for all of them.
    pub(crate) fn free_folios(&self, folios: &[Pfn]) {
        let _scope = self.scope(Scope::FolioPut);
        if self.lru.remove(self, folios) {
            folios.iter().for_each(|&pfn| self.unmake_large_anon(pfn));
        }
        self.alloc.free(self, folios);
    }

    /// Undo [`Memory::make_large_anon`] for a folio that is about to be freed.
    #[cold]
    fn unmake_large_anon(&self, pfn: Pfn) {
        let frame = &self.frames[pfn];
        if frame.order() > Order::ZERO && frame.is_anon() {
            self.lru.forget_split(self, pfn);
            self.sizes.drop_from(SizeStat::NrAnon, frame.order(), 1);
            // The records of tail pages stay as they are until the block changes its shape.
            for tail in FolioPages::all(&self.frames, pfn).iter().skip(1) {
                self.frames[tail].assign(FrameFlags::TAIL);
            }
        }
    }

    /// Change entries of a space: `change` records what it removes. On return the removed entries have been flushed,
    /// all other flushes due for the space have been done, and pages and tables without references are free. Nothing
    /// is flushed for a space that has ended: no CPU runs it.
    ///
    /// `change` must not hold the lock of the space's tables when it returns.
    pub fn gather<R>(&self, space: SpaceId, change: impl FnOnce(&mut Gather) -> R) -> R {
        self.tlb.gather(self.host(), space, change, |Finished { folios, tables }| {
            self.put_folios(folios.iter().copied());
            self.tables.free_tables(self, &self.alloc, tables);
        })
    }

    /// Drop references that entries held; the last one frees the folio. If a batch has still to flush for these
    /// entries, the folio is freed with the debt.
    #[expect(clippy::disallowed_methods, reason = "this is where references of entries are dropped")]
    pub(crate) fn put_refs(&self, refs: Refs) {
        let (head, count) = refs.release(self.host());
        if count > 0 {
            self.put_many(head, count);
        }
    }
}
