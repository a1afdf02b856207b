//! Dropping references, and freeing what nobody refers to.

use crate::frame::{FolioPages, FrameFlags};
use crate::machine::{Machine, Scope};
use crate::memory::Memory;
use crate::stat::SizeStat;
use crate::tlb::{Finished, Gather, Refs};
use crate::units::*;

/// Folios that are freed in one step: as many as keep what is done for all of them together cheap.
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
    pub fn put_many(&self, pfn: Pfn, n: u32) {
        if self.frames[pfn].put(n) {
            self.free_folio(pfn);
        }
    }

    /// Drop references of several folios, so many of each; those that were the last free it.
    pub fn put_folios(&self, folios: impl IntoIterator<Item = (Pfn, u32)>) {
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

    /// Free a folio that nobody refers to.
    pub fn free_folio(&self, pfn: Pfn) {
        self.free_folios(&[pfn]);
    }

    /// Free folios that nobody refers to. What many have in common (a list vector, a group, a zone) is locked and
    /// counted once for all that follow each other.
    pub fn free_folios(&self, folios: &[Pfn]) {
        let _scope = self.scope(Scope::FolioPut);
        if self.lru.remove(self, folios) {
            folios.iter().for_each(|&pfn| self.unmake_large_anon(pfn));
        }
        self.alloc.free(self, folios);
    }

    /// If a folio that is about to be freed is one of [`Memory::make_large_anon`], it is one no more.
    #[cold]
    fn unmake_large_anon(&self, pfn: Pfn) {
        let frame = &self.frames[pfn];
        if frame.order() > Order::ZERO && frame.is_anon() {
            self.lru.forget_split(self, pfn);
            self.sizes.drop_from(SizeStat::NrAnon, frame.order(), 1);
            // The records of tails stay as they are until the block takes another shape.
            for tail in FolioPages::all(&self.frames, pfn).iter().skip(1) {
                self.frames[tail].assign(FrameFlags::TAIL);
            }
        }
    }

    /// Change entries of a space: `change` notes what it takes away. When this returns, that has been flushed, what
    /// else was owed for the space has been paid, and pages and tables that nothing refers to any more are free. Of a
    /// space that has ended nothing is flushed: no CPU runs it.
    ///
    /// `change` must not hold the lock of the space's tables when it returns.
    pub fn gather<R>(&self, space: SpaceId, change: impl FnOnce(&mut Gather) -> R) -> R {
        self.tlb.gather(self, space, change, |Finished { folios, tables }| {
            self.put_folios(folios.iter().copied());
            self.tables.free_tables(self, &self.alloc, tables);
        })
    }

    /// Drop references that entries held, after their flush; the last one frees the folio.
    #[expect(clippy::disallowed_methods, reason = "they are dropped here")]
    pub fn put_refs(&self, refs: Refs) {
        let (head, count) = refs.into_parts();
        if count > 0 {
            self.put_many(head, count);
        }
    }
}
