//! Pages of a file that reclaim handles as one run.
//!
//! Pages of a file mostly reach the tail of a list in the order in which they were read. Pages that follow each other
//! on the list in the order of the file form a stretch, which is decided as one run: the ranges that show the file,
//! their tables and the file's tree are found and locked once. A stretch ends where the batch of folios that are freed
//! together is full, so that flushes happen when they would happen for single pages.

use crate::frame::{FolioRun, Frame, FrameFlags, Owner};
use crate::units::*;

/// The position in its file of a page that may join a stretch.
#[derive(Clone, Copy)]
pub(super) struct FilePosition {
    file: FileId,
    index: PageIndex,
}

impl FilePosition {
    /// `None`: the folio is a run by itself.
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

/// Admitted pages of one file, in the order of the file.
pub(super) struct Stretch {
    pfns: [Pfn; FolioRun::MOST],
    len: usize,
    last: Option<FilePosition>,
}

impl Default for Stretch {
    fn default() -> Self {
        Stretch { pfns: [Pfn::NONE; FolioRun::MOST], len: 0, last: None }
    }
}

impl Stretch {
    /// Add a page. Returns `false` if the stretch has `room` pages already, or if the page is not after the last one in
    /// the same file.
    #[inline]
    pub fn push(&mut self, page: FilePosition, pfn: Pfn, room: usize) -> bool {
        let follows = self.last.is_none_or(|last| last.file == page.file && last.index < page.index);
        let joins = follows && self.len < room.min(FolioRun::MOST);
        if joins {
            self.pfns[self.len] = pfn;
            self.len += 1;
            self.last = Some(page);
        }
        joins
    }

    /// The number of its pages.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Its pages: the first [`Stretch::len`] of these.
    #[inline]
    pub fn pages(&self) -> &[Pfn; FolioRun::MOST] {
        &self.pfns
    }

    /// Remove all pages.
    #[inline]
    pub fn clear(&mut self) {
        (self.len, self.last) = (0, None);
    }
}
