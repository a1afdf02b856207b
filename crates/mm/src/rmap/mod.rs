//! Reverse maps: from a folio to every page-table entry that maps it.
//!
//! A mapped range of a space (a vma, two floors up) registers a [`Span`] with each owner whose folios it may map: the
//! file that it shows, and the sets of anonymous pages that it has. A folio names its owner and its index there. The
//! spans that hold that index, and the page tables of their spaces, tell where the folio is mapped.
//!
//! Anonymous sets and `fork`: a child's range registers with every set that its parent's range is registered with,
//! because it may map any of their folios, and gets a set of its own for the pages that it makes itself. So a folio of
//! the child's set is never looked for in the parent.
//!
//! A span is registered from before the first entry of its range is set until the last is cleared. Locks: the owner's
//! list, then the space's tables.
//!
//! *A walk during mremap and fork.* Both move or copy entries from one range to another under the locks of tables. A
//! walk takes these locks one after the other. If it visited the new range before the entry came there, and the old one
//! after the entry left, it would miss the entry, and a truncation would leave it mapped. So a list stays in the order
//! of registration, whichever span leaves it: a range is registered just before entries are moved to it, so after the
//! range that they come from. A walk holds the list all the time: it finds the entry in the old range, in the new one,
//! or in both.

mod clean;
mod count;
mod look;
mod migrate;
mod referenced;
mod spans;
mod split;
#[cfg(test)]
mod tests;
mod unmap;
mod walk;

pub use count::Tally;
pub(crate) use referenced::Referenced;
pub use spans::{Span, SpanFlags};
pub use unmap::UnmapMode;

use crate::arena::Arena;
use crate::frame::{FolioPages, FolioRun, Frame, Owner};
use crate::lock::{Lock, LockClass};
use crate::machine::Machine;
use crate::memory::Memory;
use crate::table::{EntryRun, LockedTables};
use crate::units::*;
use spans::Spans;

/// All reverse maps.
#[derive(Default)]
pub struct Rmap {
    anons: Arena<AnonSpans>,
    files: Arena<FileSpans>,
}

/// The spans of a set of anonymous pages.
struct AnonSpans(Lock<Spans>);

/// The spans of a file.
struct FileSpans(Lock<Spans>);

impl Default for AnonSpans {
    fn default() -> AnonSpans {
        AnonSpans(Lock::of(LockClass::AnonMappings, Spans::default()))
    }
}

impl Default for FileSpans {
    fn default() -> FileSpans {
        FileSpans(Lock::of(LockClass::FileMappings, Spans::default()))
    }
}

impl Rmap {
    /// A new set of anonymous pages, with no spans.
    pub(crate) fn create_anon(&self) -> AnonId {
        AnonId(self.anons.claim())
    }

    #[inline]
    fn spans(&self, owner: Owner) -> Option<&Lock<Spans>> {
        match owner {
            Owner::None => None,
            Owner::Anon(id) => self.anons.get(id.0).map(|set| &set.0),
            Owner::File(id) => self.files.get(id.0).map(|file| &file.0),
        }
    }

    /// Register a span with an owner.
    pub fn link(&self, owner: Owner, span: Span) {
        assert!(span.pages > 0, "a span must have pages");
        let list = match owner {
            Owner::None => return,
            Owner::Anon(id) => &self.anons[id.0].0,
            Owner::File(id) => &self.files.ensure(id.0).0,
        };
        list.lock().insert(span);
    }

    /// Remove the span of a vma. A set without spans is gone. Returns whether the span was the owner's last: if several
    /// go at the same time, this is true for exactly one.
    pub(crate) fn unlink(&self, owner: Owner, vma: VmaId) -> bool {
        let Some(list) = self.spans(owner) else { return false };
        let empty = {
            let mut spans = list.lock();
            spans.remove(vma);
            spans.is_empty()
        };
        if let (true, Owner::Anon(id)) = (empty, owner) {
            self.anons.release(id.0);
        }
        empty
    }

    /// Replace the span that the vma of `span` has registered.
    pub(crate) fn relink(&self, owner: Owner, span: Span) {
        assert!(span.pages > 0, "a span must have pages");
        if let Some(list) = self.spans(owner) {
            list.lock().replace(span);
        }
    }

    /// Whether exactly this span is registered with the owner.
    pub(crate) fn is_linked(&self, owner: Owner, span: &Span) -> bool {
        self.spans(owner).is_some_and(|list| list.look().contains(span))
    }

    /// Number of spans registered with all owners.
    pub fn links(&self) -> usize {
        let anons = self.anons.iter().map(|set| &set.0);
        anons.chain(self.files.iter().map(|file| &file.0)).map(|list| list.look().len()).sum()
    }

    /// Call `visit` for each run of entries that maps some of a folio's pages.
    fn walk<M: Machine>(
        &self,
        memory: &Memory<M>,
        pfn: Pfn,
        visit: impl FnMut(&mut LockedTables<'_, M>, &Span, &EntryRun),
    ) {
        if let Some(list) = self.spans(memory.frames[pfn].owner()) {
            walk_folio(memory, pfn, &list.share(), visit);
        }
    }

    /// Check a folio's mapcounts against the entries that a walk finds.
    pub(crate) fn validate_folio<M: Machine>(
        &self,
        memory: &Memory<M>,
        pfn: Pfn,
    ) -> Result<(), std_alloc::string::String> {
        memory.frames.validate_mapcounts(pfn)?;
        let mut found = std_alloc::vec![0; memory.frames[pfn].pages() as usize];
        let mut entire = 0;
        self.walk(memory, pfn, |_, _, run| {
            entire += u32::from(run.is_large());
            run.mapped(&memory.frames).iter().for_each(|page| found[(page.0 - pfn.0) as usize] += 1);
        });
        if entire != memory.frames.entire_mapcount(pfn) {
            let counted = memory.frames.entire_mapcount(pfn);
            return Err(std_alloc::format!("{pfn}: {entire} large entries found, entire mapcount {counted}"));
        }
        for (page, found) in FolioPages::all(&memory.frames, pfn).iter().zip(found) {
            let counted = memory.frames.page_mapcount(page);
            if found != counted {
                let owner = memory.frames[pfn].owner();
                return Err(std_alloc::format!(
                    "{page} of {owner:?}: {found} entries found, mapcount {counted}"
                ));
            }
        }
        Ok(())
    }
}

/// The pages of a span that show a folio of its owner; the span holds some of the folio's pages.
fn shown(frame: &Frame, span: &Span) -> (Vpn, Vpn) {
    let index = frame.page_index().0;
    let first = index.max(span.index.0);
    let end = (index + frame.pages() as u64).min(span.index.0 + span.pages);
    (Vpn(span.start.0 + (first - span.index.0)), Vpn(span.start.0 + (end - span.index.0)))
}

/// Call `visit` for each run of entries below `spans`, the locked list of the folio's owner, that maps some of its
/// pages.
#[inline]
fn walk_folio<M: Machine>(
    memory: &Memory<M>,
    pfn: Pfn,
    spans: &Spans,
    mut visit: impl FnMut(&mut LockedTables<'_, M>, &Span, &EntryRun),
) {
    walk::walk(memory, FolioRun::one(&pfn), spans, &mut visit);
}
