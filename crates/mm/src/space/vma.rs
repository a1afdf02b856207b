//! One mapped range.

use crate::api::Prot;
use crate::frame::Owner;
use crate::machine::Machine;
use crate::mempolicy::MemPolicy;
use crate::mm_core::MmCore;
use crate::rmap::{Span, SpanFlags};
use crate::swap::RangeReadahead;
use crate::table::{Rights, Shown};
use crate::units::*;
use smallvec::SmallVec;

bitflags::bitflags! {
    /// Properties of a range besides its rights.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct VmaFlags: u8 {
        /// Stores go to the file.
        const SHARED = 1;
        /// It may be made writable.
        const MAY_WRITE = 2;
        /// Locked in memory.
        const LOCKED = 4;
        /// MADV_SEQUENTIAL.
        const SEQUENTIAL = 8;
        /// MADV_RANDOM.
        const RANDOM = 16;
        /// MADV_HUGEPAGE.
        const HUGEPAGE = 32;
        /// MADV_NOHUGEPAGE.
        const NOHUGEPAGE = 64;
    }
}

/// The part of a range that a fault needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VmaView {
    /// Its id.
    pub id: VmaId,
    /// First page.
    pub start: Vpn,
    /// Number of pages.
    pub pages: u64,
    /// Rights.
    pub prot: Prot,
    /// Other properties.
    pub flags: VmaFlags,
    /// Its memory policy; the default means the space's.
    pub policy: MemPolicy,
    /// The file and the index of the first page in it.
    pub file: Option<(FileId, PageIndex)>,
    /// Index of the first page in its anonymous sets; kept when the range moves.
    pub anon_index: PageIndex,
    /// The set that owns new anonymous pages of this range.
    pub anon: Option<AnonId>,
}

impl VmaView {
    /// First page after it.
    #[inline]
    pub fn end(&self) -> Vpn {
        Vpn(self.start.0 + self.pages)
    }

    /// Cut off the pages before `page`.
    #[inline]
    pub(super) fn begin_at(&mut self, page: Vpn) {
        let gone = page.0 - self.start.0;
        self.start = page;
        self.pages -= gone;
        self.anon_index.0 += gone;
        if let Some((_, index)) = &mut self.file {
            index.0 += gone;
        }
    }

    #[inline]
    pub(crate) fn file_index(&self, page: Vpn) -> Option<(FileId, PageIndex)> {
        self.file.map(|(file, first)| (file, PageIndex(first.0 + (page.0 - self.start.0))))
    }

    /// What a page of a range of a file shows, as long as it has no entry.
    #[inline]
    pub(super) fn shown(&self, page: Vpn) -> Shown {
        let (file, index) = self.file_index(page).expect("the range must show a file");
        Shown::in_range(file, index)
    }

    /// Index of one of its pages in its anonymous sets.
    #[inline]
    pub(crate) fn anon_index(&self, page: Vpn) -> PageIndex {
        PageIndex(self.anon_index.0 + (page.0 - self.start.0))
    }

    /// Whether stores go to the file.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.flags.contains(VmaFlags::SHARED)
    }

    /// Whether an access predicts the next use.
    #[inline]
    pub(crate) fn has_recency(&self) -> bool {
        !self.flags.intersects(VmaFlags::SEQUENTIAL | VmaFlags::RANDOM)
    }

    /// Rights of every present entry of the range, without the right to write: a fault gives that.
    #[inline]
    pub fn rights(&self) -> Rights {
        rights_of(self.prot)
    }
}

/// Rights of an entry for `prot`, without the right to write.
#[inline]
pub(super) fn rights_of(prot: Prot) -> Rights {
    let mut rights = Rights::empty();
    // PROT_NONE is an entry without the user bit.
    rights.set(Rights::USER, !prot.is_empty());
    rights.set(Rights::NO_EXEC, !prot.contains(Prot::EXEC));
    rights
}

/// A mapped range and the anonymous sets that may own its pages.
#[derive(PartialEq, Eq, Debug)]
pub struct Vma {
    /// What faults need.
    pub view: VmaView,
    /// All sets that it is registered with, oldest first: those inherited by fork, then its own.
    pub sets: SmallVec<[AnonId; 4]>,
    /// Recent history of its swap-ins, for read-ahead.
    pub(super) swapped: RangeReadahead,
}

impl Clone for Vma {
    fn clone(&self) -> Vma {
        // A slice is copied in one step.
        Vma { view: self.view, sets: SmallVec::from_slice(&self.sets), swapped: self.swapped }
    }
}

impl Vma {
    /// Its span, if its first page has this index.
    fn span(&self, space: SpaceId, group: GroupId, index: PageIndex) -> Span {
        let view = &self.view;
        let mut flags = SpanFlags::empty();
        flags.set(SpanFlags::EXEC, view.prot.contains(Prot::EXEC));
        flags.set(SpanFlags::LOCKED, view.flags.contains(VmaFlags::LOCKED));
        flags.set(SpanFlags::NO_RECENCY, !view.has_recency());
        flags.set(SpanFlags::SHARED, view.is_shared());
        Span { vma: view.id, space, group, start: view.start, pages: view.pages, index, flags }
    }

    /// Each owner that it is registered with, with its span there.
    pub(super) fn spans(&self, space: SpaceId, group: GroupId) -> impl Iterator<Item = (Owner, Span)> + '_ {
        let file = self.view.file.map(|(file, index)| (Owner::File(file), self.span(space, group, index)));
        let anon = self.span(space, group, self.view.anon_index);
        file.into_iter().chain(self.sets.iter().map(move |&set| (Owner::Anon(set), anon)))
    }

    /// Register it with its owners.
    pub(super) fn link<M: Machine>(&self, core: &MmCore<M>, space: SpaceId, group: GroupId) {
        for (owner, span) in self.spans(space, group) {
            core.rmap.link(owner, span);
        }
    }

    /// Update its spans with its owners: its place or properties have changed.
    pub(super) fn relink<M: Machine>(&self, core: &MmCore<M>, space: SpaceId, group: GroupId) {
        for (owner, span) in self.spans(space, group) {
            core.rmap.relink(owner, span);
        }
    }

    /// Take it off its owners' lists. A nameless file is destroyed with its last mapping.
    pub(super) fn unlink<M: Machine>(&self, core: &MmCore<M>) {
        for &set in &self.sets {
            core.rmap.unlink(Owner::Anon(set), self.view.id);
        }
        if let Some((file, _)) = self.view.file {
            let last = core.rmap.unlink(Owner::File(file), self.view.id);
            if last && core.cache.file(file).is_nameless() {
                core.cache.destroy(core, file);
            }
        }
    }

    /// Whether `next` continues this range, so that the two can be merged.
    pub(super) fn continues_with(&self, next: &Vma) -> bool {
        let (a, b) = (&self.view, &next.view);
        let files_meet = match (a.file, b.file) {
            (None, None) => true,
            (Some((file, first)), Some((other, index))) => file == other && first.0 + a.pages == index.0,
            _ => false,
        };
        a.end() == b.start
            && (a.prot, a.flags, a.policy) == (b.prot, b.flags, b.policy)
            && files_meet
            && a.anon_index.0 + a.pages == b.anon_index.0
            && (self.sets == next.sets || self.sets.is_empty() || next.sets.is_empty())
    }
}
