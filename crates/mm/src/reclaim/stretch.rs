//! Pages of a file that take reclaim's steps together.
//!
//! Pages of a file mostly come to the end of a list in the order in which they were read. Those that follow each other
//! there in the order of the file make a stretch: the ranges that show the file, their tables and the file's tree are
//! looked up and locked once for all of it. Each page is judged by itself, and goes where it would go alone. A stretch
//! ends where the batch of folios that are freed together is full, so that flushes come when they would come if each
//! page was taken by itself.

use super::Reclaim;
use super::references::{ReferenceRule, ReferenceVerdict};
use super::shrink::{Pass, ReclaimFate, ShrinkLists};
use crate::frame::{Frame, FrameFlags, Owner};
use crate::machine::Machine;
use crate::rmap::{Pages, TOGETHER, bits};
use crate::units::*;

/// Where a page that may join others stands.
#[derive(Clone, Copy)]
pub(super) struct FilePosition {
    file: FileId,
    index: PageIndex,
}

impl FilePosition {
    /// `None`: the folio is to be taken by itself.
    #[inline]
    pub fn of(frame: &Frame) -> Option<FilePosition> {
        match frame.owner() {
            Owner::File(file) if frame.order() == Order::ZERO && !frame.has(FrameFlags::SWAPBACKED) => {
                Some(FilePosition { file, index: frame.page_index() })
            }
            _ => None,
        }
    }
}

/// Pages of one file, in its order, that were admitted.
pub(super) struct Stretch {
    pfns: [Pfn; TOGETHER],
    len: usize,
    last: Option<FilePosition>,
}

impl Default for Stretch {
    fn default() -> Self {
        Stretch { pfns: [Pfn::NONE; TOGETHER], len: 0, last: None }
    }
}

impl Stretch {
    /// Add a page, unless there are `room` already, or it does not stand behind the last.
    #[inline]
    pub fn push(&mut self, page: FilePosition, pfn: Pfn, room: usize) -> bool {
        let follows = self.last.is_none_or(|last| last.file == page.file && last.index < page.index);
        let joins = follows && self.len < room.min(TOGETHER);
        if joins {
            self.pfns[self.len] = pfn;
            self.len += 1;
            self.last = Some(page);
        }
        joins
    }
}

impl<M: Machine> Reclaim<'_, M> {
    /// The steps behind the first ones, for all pages of a stretch, which is empty afterwards.
    pub(super) fn finish(self, stretch: &mut Stretch, pass: &mut Pass<'_>, lists: &mut ShrinkLists) {
        let Some(FilePosition { file, .. }) = stretch.last.take() else { return };
        let pages = Pages { file, pfns: &stretch.pfns[..stretch.len] };
        let fates = self.decide_pages(pages, pass);
        for (&pfn, fate) in pages.pfns.iter().zip(fates) {
            self.sort(pfn, 1, fate, pass, lists);
        }
        stretch.len = 0;
    }

    fn decide_pages(self, pages: Pages<'_>, pass: &mut Pass<'_>) -> [ReclaimFate; TOGETHER] {
        let core = self.core;
        let mut fates = [ReclaimFate::Keep; TOGETHER];
        let all = u32::MAX >> (TOGETHER - pages.pfns.len());
        let (wanted, if_clean) = if pass.rule == ReferenceRule::Nothing {
            (all, 0)
        } else {
            self.check_references_of(pages, pass, |at, verdict| {
                fates[at] = if verdict == ReferenceVerdict::Activate {
                    ReclaimFate::Activate
                } else {
                    ReclaimFate::Keep
                };
            })
        };
        let dirty = core.rmap.unmap_pages(core, pages, wanted, &mut pass.batch);
        bits(dirty).for_each(|at| core.cache.mark_dirty(core, pages.pfns[at]));
        let mut clean = 0;
        for at in bits(wanted) {
            let verdict = if if_clean >> at & 1 != 0 {
                ReferenceVerdict::ReclaimClean
            } else {
                ReferenceVerdict::Reclaim
            };
            match self.make_clean(pages.pfns[at], 1, verdict, pass) {
                Ok(_) => clean |= 1 << at,
                Err(fate) => fates[at] = fate,
            }
        }
        bits(self.remove_mapping(pages.pfns, clean, pass.sc.top()))
            .for_each(|at| fates[at] = ReclaimFate::Free);
        fates
    }
}
