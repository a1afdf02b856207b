//! Walks for many pages of one file at a time.
//!
//! Problem: reclaim meets the pages of a file in the order in which they were read. To look one up is to find the spans
//! that show it, to lock their tables and to walk to its entry, which is most of what is done for it; and its
//! neighbour's way is the same.
//!
//! Rule: who has several single pages of one file, in the order of their places there, asks for all of them in one
//! walk. A span's tables are locked once, each of its tables is found once ([`TableWindow`]), and what is owed for all
//! entries of a table is noted in one step, after the last of them was cleared and before the lock goes.
//!
//! Folios of several pages are looked up one by one: their runs do for them what this does for single pages. So is
//! everything that must be flushed, or is counted, by itself ([`UnmapBatch::joins`]).

use super::look::look_around;
use super::spans::Spans;
use super::{Referenced, Rmap, Span, SpanFlags, Tally, UnmapMode};
use crate::frame::{FolioPages, FrameFlags, Owner};
use crate::lru::mglru::LookAround;
use crate::machine::{Machine, Scope, Work};
use crate::memory::Memory;
use crate::table::{Bits, Entry, Resident, TableWindow};
use crate::tlb::{EmptiedPages, UnmapBatch};
use crate::units::*;

/// Most pages that one walk looks for.
pub const TOGETHER: usize = u32::BITS as usize;

/// Single pages of one file, in the order of their places there, at most [`TOGETHER`].
#[derive(Clone, Copy, Debug)]
pub struct Pages<'a> {
    /// The file.
    pub file: FileId,
    /// The pages.
    pub pfns: &'a [Pfn],
}

/// The numbers of the bits that are set.
#[inline]
pub fn bits(mut mask: u32) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let at = (mask != 0).then(|| mask.trailing_zeros() as usize)?;
        mask &= mask - 1;
        Some(at)
    })
}

impl Rmap {
    /// [`Rmap::referenced`] for some pages of a file.
    pub fn referenced_pages<M: Machine>(
        &self,
        memory: &Memory<M>,
        pages: Pages<'_>,
        group: Option<GroupId>,
        look: Option<&mut LookAround>,
    ) -> [Referenced; TOGETHER] {
        let _scope = memory.scope(Scope::FolioReferenced);
        let mut looking = Looking {
            memory,
            group,
            look,
            pages,
            found: [Referenced::default(); TOGETHER],
            left: [0; TOGETHER],
        };
        assert!(pages.pfns.len() <= TOGETHER, "{} pages in one walk", pages.pfns.len());
        let mut mapped = 0;
        for (at, &pfn) in pages.pfns.iter().enumerate() {
            looking.left[at] = memory.frames[pfn].mapcount();
            mapped |= u32::from(looking.left[at] > 0) << at;
        }
        let list = self.spans(Owner::File(pages.file)).filter(|_| mapped != 0);
        match list.map(|list| list.try_lock()) {
            Some(Some(spans)) => walk(memory, pages, mapped, &spans, &mut looking),
            Some(None) => bits(mapped).for_each(|at| looking.found[at].vmas = -1),
            None => {}
        }
        looking.found
    }

    /// [`Rmap::try_to_unmap`] for those of some pages of a file whose bits are set in `wanted`. Returns the bits of
    /// those that had a dirty entry, and must be marked dirty in their file. What had to stay is still mapped.
    pub fn unmap_pages<M: Machine>(
        &self,
        memory: &Memory<M>,
        pages: Pages<'_>,
        wanted: u32,
        batch: &mut UnmapBatch,
    ) -> u32 {
        if !batch.joins() {
            let unmap = |at| {
                let unmapped = self.try_to_unmap(memory, pages.pfns[at], UnmapMode::default(), batch);
                u32::from(unmapped.dirty) << at
            };
            return bits(wanted).map(unmap).fold(0, |dirty, bit| dirty | bit);
        }
        let _scope = memory.scope(Scope::TryToUnmapOne);
        let frame = |at: usize| &memory.frames[pages.pfns[at]];
        let suits =
            |at: usize| frame(at).has(FrameFlags::LOCKED) && frame(at).owner() == Owner::File(pages.file);
        debug_assert!(
            bits(wanted).all(suits),
            "pages of {:?} that are not locked, or of another file",
            pages.file
        );
        let mapped = bits(wanted).fold(0, |all, at| all | u32::from(frame(at).mapcount() > 0) << at);
        let Some(list) = self.spans(Owner::File(pages.file)).filter(|_| mapped != 0) else { return 0 };
        let mut unmapping =
            Unmapping { rmap: self, memory, batch, taken: EmptiedPages::new(pages.file), dirty: 0 };
        walk(memory, pages, mapped, &list.lock(), &mut unmapping);
        unmapping.dirty
    }
}

/// What a walk does with the entries that it finds.
trait Visit<M: Machine> {
    /// The entry at `place` of a window maps page number `at`. Returns whether that is enough of this page.
    fn entry(
        &mut self,
        window: &mut TableWindow<'_, '_, M>,
        span: &Span,
        at: usize,
        found: MappedPage,
    ) -> bool;

    /// The last entry of a window was visited.
    fn leave(&mut self, _window: &mut TableWindow<'_, '_, M>) {}
}

/// A page, and the entry that maps it.
struct MappedPage {
    pfn: Pfn,
    place: usize,
    entry: Entry,
}

/// Visit the entries below `spans`, the locked list of the file, that map wanted pages.
#[inline]
fn walk<M: Machine>(
    memory: &Memory<M>,
    pages: Pages<'_>,
    mut wanted: u32,
    spans: &Spans,
    visitor: &mut impl Visit<M>,
) {
    let index = |at: u32| memory.frames[pages.pfns[at as usize]].page_index();
    let (first, last) = (index(wanted.trailing_zeros()), index(u32::BITS - 1 - wanted.leading_zeros()));
    for span in spans.holding(first, last.0 - first.0 + 1) {
        let mut tables = memory.tables.lock(memory, span.space);
        let mut rest = wanted;
        while rest != 0 {
            let from = index(rest.trailing_zeros());
            let Some(page) = span.page_of(from) else {
                rest &= rest - 1;
                continue;
            };
            let mut window = tables.window(page, span.start.0 + span.pages - page.0);
            // Where there is no table, those that would share it are passed over.
            let room =
                window.as_ref().map_or(TABLE_ENTRIES - page.0 as usize % TABLE_ENTRIES, TableWindow::places);
            while rest != 0 {
                let at = rest.trailing_zeros();
                let place = (index(at).0 - from.0) as usize;
                if place >= room {
                    break;
                }
                rest &= rest - 1;
                memory.charge(Work::RmapVma, 1);
                let Some(window) = &mut window else { continue };
                let (pfn, entry) = (pages.pfns[at as usize], window.read(place));
                let maps = entry.is_present() && entry.pfn() == pfn;
                if maps && visitor.entry(window, span, at as usize, MappedPage { pfn, place, entry }) {
                    wanted &= !(1 << at);
                }
            }
            if let Some(window) = &mut window {
                visitor.leave(window);
            }
        }
        if wanted == 0 {
            return;
        }
    }
}

/// The look at some pages' use.
struct Looking<'a, M> {
    memory: &'a Memory<M>,
    group: Option<GroupId>,
    look: Option<&'a mut LookAround>,
    pages: Pages<'a>,
    found: [Referenced; TOGETHER],
    /// Entries of each page that have not been seen yet.
    left: [u32; TOGETHER],
}

impl<M: Machine> Visit<M> for Looking<'_, M> {
    #[inline]
    fn entry(
        &mut self,
        window: &mut TableWindow<'_, '_, M>,
        span: &Span,
        at: usize,
        entry: MappedPage,
    ) -> bool {
        let (found, left) = (&mut self.found[at], &mut self.left[at]);
        *left = left.saturating_sub(1);
        if span.flags.contains(SpanFlags::LOCKED) {
            found.locked = true;
            return true;
        }
        if entry.entry.has(Bits::YOUNG)
            && !span.flags.contains(SpanFlags::NO_RECENCY)
            && self.group.is_none_or(|group| self.memory.lru.groups.is_below(span.group, group))
        {
            window.clear_young(entry.place);
            self.memory.charge(Work::EntryClear, 1);
            found.vmas += 1;
            found.exec |= span.flags.contains(SpanFlags::EXEC);
            if let Some(look) = self.look.as_deref_mut() {
                let (page, target) = (window.page(entry.place), &self.memory.frames[self.pages.pfns[at]]);
                look_around(self.memory, window.tables(), span, page, target, look);
            }
        }
        *left == 0
    }
}

/// The unmapping of some pages.
struct Unmapping<'a, M> {
    rmap: &'a Rmap,
    memory: &'a Memory<M>,
    batch: &'a mut UnmapBatch,
    /// Pages whose entries in this window were taken, and that neither the batch nor their counts know of yet.
    taken: EmptiedPages,
    /// Bit i: an entry of page i was dirty.
    dirty: u32,
}

impl<M: Machine> Visit<M> for Unmapping<'_, M> {
    #[inline]
    fn entry(
        &mut self,
        window: &mut TableWindow<'_, '_, M>,
        span: &Span,
        at: usize,
        found: MappedPage,
    ) -> bool {
        if span.flags.contains(SpanFlags::LOCKED) {
            return true;
        }
        if !self.taken.accept(found.entry.has(Bits::WRITE)) {
            self.note(window);
        }
        let old = window.take(found.place, found.pfn, &mut self.taken);
        self.memory.charge(Work::EntryClear, 1);
        self.dirty |= u32::from(old.has(Bits::DIRTY)) << at;
        false
    }

    #[inline]
    fn leave(&mut self, window: &mut TableWindow<'_, '_, M>) {
        if !self.taken.is_empty() {
            self.note(window);
        }
    }
}

impl<M: Machine> Unmapping<'_, M> {
    /// Leave the debt for what was taken, then count it off.
    fn note(&mut self, window: &mut TableWindow<'_, '_, M>) {
        let (memory, mmu) = (self.memory, &self.memory);
        self.batch.take_pages(mmu, &memory.tlb, &mut self.taken);
        window.tables().counts().add(Resident::File, -(self.taken.len() as i64));
        let mut tally = Tally::new(mmu);
        // The caller's own references keep the folios.
        let rmap = self.rmap;
        self.taken.put_held(&memory.frames, |page| {
            rmap.remove_tallied(mmu, false, FolioPages { head: page, first: page, count: 1 }, &mut tally);
        });
        tally.settle(mmu);
    }
}
