//! Pages of a file that take reclaim's steps together.
//!
//! Pages of a file mostly come to the end of a list in the order in which they were read. Those that follow each other
//! there in the order of the file make a stretch, which is decided as one run: the ranges that show the file, their
//! tables and the file's tree are looked up and locked once for all of it. A stretch ends where the batch of folios
//! that are freed together is full, so that flushes come when they would come if each page was taken by itself.

use crate::frame::{FolioRun, Frame, FrameFlags, Owner};
use crate::units::*;

/// The place of a page that may join others.
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

/// Pages of one file, in its order, that were admitted.
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
    /// Add a page, unless there are `room` already, or its place is not after the last one's.
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

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The pages.
    #[inline]
    pub fn run(&self) -> FolioRun<'_> {
        FolioRun::new(&self.pfns[..self.len])
    }

    /// Begin again.
    #[inline]
    pub fn clear(&mut self) {
        (self.len, self.last) = (0, None);
    }
}
