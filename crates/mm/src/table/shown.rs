//! What an address shows: the claim that a page may be mapped there without a payment.
//!
//! *Problem.* Old translations of an address may wait for their flush. A page can be mapped there before that only if
//! it reads as they do. "It is a page of a cache" does not say so: it may be another page of the same file.
//!
//! *Rule.* Code that maps a page without a payment says what the address shows, by the range that shows it or by the
//! swap entry that is there, and the page's owner, index and slot are compared with that.

use super::Absent;
use crate::frame::{FolioPages, Frame, FrameFlags, Owner};
use crate::units::*;
use base::demand;

/// What the first of some addresses shows. The others continue it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shown(Content);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Content {
    File(FileId, PageIndex),
    Swapped,
}

impl Shown {
    /// A page of a file, by the range that maps the file there.
    #[inline]
    pub fn in_range(file: FileId, index: PageIndex) -> Shown {
        Shown(Content::File(file, index))
    }

    /// The content of the swap slot that the entry names.
    #[inline]
    pub fn in_swap() -> Shown {
        Shown(Content::Swapped)
    }

    /// The same for an address `pages` further on.
    #[inline]
    pub fn ahead(self, pages: u32) -> Shown {
        match self.0 {
            Content::File(file, index) => Shown(Content::File(file, PageIndex(index.0 + u64::from(pages)))),
            Content::Swapped => self,
        }
    }

    /// Whether a page of a folio is the page of the file that the address shows.
    #[inline]
    pub(super) fn is_page_of(self, head: &Frame, offset: u32) -> bool {
        let Content::File(file, index) = self.0 else { return false };
        head.owner() == Owner::File(file) && head.page_index().0 + u64::from(offset) == index.0
    }

    /// Assert that pages are what their addresses show; `found` is the entry of the first.
    #[inline]
    pub(super) fn check(self, head: &Frame, pages: FolioPages, found: impl FnOnce() -> Absent) {
        let same = match self.0 {
            Content::File(..) => self.is_page_of(head, pages.offset()),
            Content::Swapped => {
                let slot = SwapSlot(head.swap_slot().0 + pages.offset());
                let named = matches!(found(), Absent::Swap { slot: of_entry, .. } if of_entry == slot);
                head.has(FrameFlags::SWAPCACHE) && named
            }
        };
        demand!(
            same, [page = pages.first, owner = head.owner(), shown = self];
            "{page} of {owner:?} is not what its address shows: {shown:?}"
        );
    }
}
