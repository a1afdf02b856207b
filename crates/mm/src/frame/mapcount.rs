//! How often a folio is mapped, as a whole and page by page.
//!
//! A folio of one page has one count, of the entries that map it. A larger one must answer three more questions: how
//! many of its pages are mapped (for statistics, and to decide whether to split it), whether a certain page is mapped,
//! and whether a 2 MiB entry maps the whole. Its counts, with their names in Linux (there they start at -1, here at 0):
//!
//! | count | where | what |
//! |---|---|---|
//! | mapcount (`_large_mapcount`) | head | entries, of either size |
//! | page mapcount (`_mapcount`) | each page | page-sized entries that map it |
//! | entire mapcount (`_entire_mapcount`) | first tail | 2 MiB entries |
//! | pages mapped (`_nr_pages_mapped`) | head | pages with a page mapcount, plus [`ENTIRELY_MAPPED`] while the entire mapcount is not 0 |
//!
//! One call adds or removes a run of entries: one atomic addition for each page (nothing less tells which pages lost
//! their last entry), one for the folio, and one more if a page's count left or reached 0. The result says by how many
//! pages the statistics change, which is the same as if the pages were changed one after the other.

use super::{Frame, FrameFlags, FrameTable};
use crate::primitive::Ordering::*;
use crate::units::*;
use base::demand;

/// Flag in the count of mapped pages: a 2 MiB entry maps them all. It is far above the number of pages of any folio,
/// so the count stays intact when two CPUs add it at the same time.
const ENTIRELY_MAPPED: u32 = 1 << 23;
/// The count of mapped pages without the flag.
const PAGES: u32 = ENTIRELY_MAPPED - 1;

/// Consecutive pages of one folio.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FolioPages {
    /// The folio's head.
    pub head: Pfn,
    /// First of these pages.
    pub first: Pfn,
    /// Number of pages, at least 1.
    pub count: u32,
}

impl FolioPages {
    /// One page of any folio.
    #[inline]
    pub fn one(frames: &FrameTable, page: Pfn) -> FolioPages {
        FolioPages { head: frames.head(page), first: page, count: 1 }
    }

    /// All pages of a folio.
    #[inline]
    pub fn all(frames: &FrameTable, head: Pfn) -> FolioPages {
        FolioPages { head, first: head, count: frames[head].pages() }
    }

    /// The pages.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = Pfn> {
        (self.first.0..self.first.0 + self.count).map(Pfn)
    }

    /// Whether these are pages of the folio whose head's record is `head`.
    #[inline]
    pub(crate) fn are_of(self, frames: &FrameTable, head: &Frame) -> bool {
        if self.first == self.head && self.count == 1 && !head.has(FrameFlags::TAIL) {
            return true;
        }
        frames.head(self.first) == self.head && self.offset() + self.count <= head.pages()
    }

    /// Whether `next` are the following pages of the same folio. The frames of another folio may follow, too.
    #[inline]
    pub(crate) fn are_continued_by(self, next: FolioPages) -> bool {
        self.head == next.head && self.first.add(self.count) == next.first
    }

    /// Index of the first page in its folio.
    #[inline]
    pub fn offset(self) -> u32 {
        self.first.0 - self.head.0
    }
}

/// How a change of mapcounts affected a folio.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Remapped {
    /// Pages that were not mapped before, or are not mapped any more.
    pub pages: u32,
    /// 2 MiB entries that are the first or were the last of the folio: 0 or 1.
    pub large: u32,
    /// The change unmapped some pages of the folio and left others mapped.
    pub partly: bool,
}

impl FrameTable {
    /// Add page-sized entries to the counts, one for each of these pages.
    #[inline]
    pub fn map_pages(&self, pages: FolioPages) -> Remapped {
        let head = &self[pages.head];
        if head.order() == Order::ZERO {
            let first = head.mapcount.fetch_add(1, AcqRel) == 0;
            return Remapped { pages: u32::from(first), ..Remapped::default() };
        }
        let new = self.count_pages(pages, |page| page.page_mapcount.fetch_add(1, Relaxed) == 0);
        let seen = new > 0 && head.pages_mapped.fetch_add(new, Relaxed) < ENTIRELY_MAPPED;
        head.mapcount.fetch_add(pages.count, AcqRel);
        Remapped { pages: if seen { new } else { 0 }, ..Remapped::default() }
    }

    /// Remove page-sized entries from the counts, one for each of these pages of the folio with this head, whose record
    /// the caller has at hand.
    #[inline]
    pub(crate) fn unmap_pages(&self, head: &Frame, pages: FolioPages) -> Remapped {
        debug_assert!(core::ptr::eq(head, &self[pages.head]), "the record must be that of {}", pages.head);
        if head.order() == Order::ZERO {
            let last = head.mapcount_sub(1) == 0;
            return Remapped { pages: u32::from(last), ..Remapped::default() };
        }
        head.mapcount_sub(pages.count);
        let gone = self.count_pages(pages, |page| {
            let old = page.page_mapcount.fetch_sub(1, Relaxed);
            demand!(old > 0, [head = pages.head]; "a page of {head} is unmapped that is not mapped");
            old == 1
        });
        if gone == 0 {
            return Remapped::default();
        }
        let left = head.pages_mapped.fetch_sub(gone, Relaxed) - gone;
        if left >= ENTIRELY_MAPPED {
            return Remapped::default();
        }
        Remapped { pages: gone, large: 0, partly: left > 0 }
    }

    #[inline]
    fn count_pages(&self, pages: FolioPages, change: impl Fn(&Frame) -> bool) -> u32 {
        debug_assert!(pages.count > 0 && pages.offset() + pages.count <= self[pages.head].pages());
        let range = pages.first.index()..pages.first.index() + pages.count as usize;
        self.frames[range].iter().map(|page| u32::from(change(page))).sum()
    }

    /// Add a 2 MiB entry that maps a whole folio.
    pub(crate) fn map_entirely(&self, head: Pfn) -> Remapped {
        let (record, entire) = (&self[head], &self[head.add(1)].mapcount);
        assert!(record.order() == PAGEBLOCK_ORDER, "{head} does not fill a 2 MiB entry");
        let mut change = Remapped::default();
        if entire.fetch_add(1, Relaxed) == 0 {
            let now = record.pages_mapped.fetch_add(ENTIRELY_MAPPED, Relaxed) + ENTIRELY_MAPPED;
            // Otherwise another CPU is removing the last such entry. It has not updated this count yet and will find
            // our addition there.
            if now < 2 * ENTIRELY_MAPPED {
                change.large = 1;
                change.pages = record.pages().saturating_sub(now & PAGES);
            }
        }
        record.mapcount.fetch_add(1, AcqRel);
        change
    }

    /// Remove a 2 MiB entry that mapped a whole folio.
    pub(crate) fn unmap_entirely(&self, head: Pfn) -> Remapped {
        let (record, entire) = (&self[head], &self[head.add(1)].mapcount);
        record.mapcount_sub(1);
        let old = entire.fetch_sub(1, Relaxed);
        demand!(old > 0, [head]; "{head} is unmapped entirely and was not mapped so");
        if old > 1 {
            return Remapped::default();
        }
        let left = record.pages_mapped.fetch_sub(ENTIRELY_MAPPED, Relaxed) - ENTIRELY_MAPPED;
        if left >= ENTIRELY_MAPPED {
            return Remapped::default();
        }
        let pages = record.pages().saturating_sub(left & PAGES);
        Remapped { pages, large: 1, partly: pages > 0 && pages < record.pages() }
    }

    pub(crate) fn pages_mapped(&self, head: Pfn) -> u32 {
        let record = &self[head];
        if record.order() == Order::ZERO {
            return u32::from(record.mapcount() > 0);
        }
        match record.pages_mapped.load(Relaxed) {
            entirely if entirely >= ENTIRELY_MAPPED => record.pages(),
            pages => pages,
        }
    }

    /// Number of 2 MiB entries that map the folio.
    pub(crate) fn entire_mapcount(&self, head: Pfn) -> u32 {
        if self[head].order() < PAGEBLOCK_ORDER { 0 } else { self[head.add(1)].mapcount() }
    }

    /// Number of entries, of either size, that map one page.
    pub(crate) fn page_mapcount(&self, page: Pfn) -> u32 {
        let head = self.head(page);
        if self[head].order() == Order::ZERO {
            return self[head].mapcount();
        }
        self[page].page_mapcount.load(Relaxed) + self.entire_mapcount(head)
    }

    /// Whether more than one space maps a part of the folio. If only some of its pages are mapped, this is a guess
    /// from its first page.
    pub(crate) fn likely_mapped_shared(&self, head: Pfn) -> bool {
        let (record, mapcount) = (&self[head], self[head].mapcount());
        if record.order() == Order::ZERO || mapcount <= 1 {
            return mapcount > 1;
        }
        self.entire_mapcount(head) > 0 || mapcount > record.pages() || self.page_mapcount(head) > 1
    }

    /// Check a folio's counts against each other. Returns the first fault.
    pub(crate) fn validate_mapcounts(&self, head: Pfn) -> Result<(), std_alloc::string::String> {
        let record = &self[head];
        if record.order() == Order::ZERO {
            return Ok(());
        }
        let counts = || FolioPages::all(self, head).iter().map(|page| self[page].page_mapcount.load(Relaxed));
        let entire = self.entire_mapcount(head);
        let mapcount = counts().sum::<u32>() + entire;
        let entirely = if entire > 0 { ENTIRELY_MAPPED } else { 0 };
        let pages_mapped = counts().filter(|&count| count > 0).count() as u32 + entirely;
        let kept = (record.mapcount(), record.pages_mapped.load(Relaxed));
        let told = (mapcount, pages_mapped);
        let fault =
            || std_alloc::format!("{head}: mapcount and pages mapped are {kept:?}, its pages say {told:?}");
        if kept == told { Ok(()) } else { Err(fault()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std_alloc::vec::Vec;

    const HEAD: Pfn = Pfn(16);

    fn folio(order: u8) -> FrameTable {
        let frames = FrameTable::new(1024 + 16);
        let head = if order > 4 { Pfn(512) } else { HEAD };
        frames.make_folio(head, Order(order));
        frames
    }

    fn part(from: u32, to: u32) -> FolioPages {
        FolioPages { head: HEAD, first: HEAD.add(from), count: to - from }
    }

    fn unmap(frames: &FrameTable, pages: FolioPages) -> Remapped {
        frames.unmap_pages(&frames[pages.head], pages)
    }

    fn changed(pages: u32, partly: bool) -> Remapped {
        Remapped { pages, large: 0, partly }
    }

    /// The example of 16 anonymous pages in two spaces, A and B.
    #[test]
    fn sixteen_pages_in_two_spaces() {
        let frames = folio(4);
        let counts = || (frames[HEAD].mapcount(), frames.pages_mapped(HEAD));
        assert_eq!(frames.map_pages(part(0, 16)), changed(16, false), "all in A");
        assert_eq!(counts(), (16, 16));
        assert_eq!(frames.map_pages(part(0, 16)), changed(0, false), "all in B");
        assert_eq!(counts(), (32, 16));
        assert!(frames.likely_mapped_shared(HEAD));
        assert_eq!(unmap(&frames, part(0, 4)), changed(0, false), "[0, 4) in A");
        assert_eq!(unmap(&frames, part(0, 4)), changed(4, true), "[0, 4) in B");
        assert_eq!(counts(), (24, 12));
        assert_eq!(unmap(&frames, part(4, 16)), changed(0, false), "[4, 16) in A");
        assert_eq!(unmap(&frames, part(4, 16)), changed(12, false), "[4, 16) in B");
        assert_eq!(counts(), (0, 0));
    }

    #[test]
    fn a_folio_that_goes_in_one_step_is_never_partly_mapped() {
        let frames = folio(4);
        frames.map_pages(part(0, 16));
        assert_eq!(unmap(&frames, part(0, 16)), changed(16, false));
        frames.map_pages(part(0, 16));
        let partly = (0..16).filter(|&i| unmap(&frames, part(i, i + 1)).partly).count();
        assert_eq!(partly, 15, "page by page it is until the last");
    }

    #[test]
    fn pages_below_a_large_entry_stay_mapped_until_it_goes() {
        let (frames, head) = (folio(9), Pfn(512));
        let half = FolioPages { head, first: head, count: 256 };
        assert_eq!(frames.map_pages(half).pages, 256);
        assert_eq!(frames.map_entirely(head), Remapped { pages: 256, large: 1, partly: false });
        assert_eq!(frames.map_entirely(head), Remapped::default());
        assert_eq!((frames[head].mapcount(), frames.pages_mapped(head)), (258, 512));
        assert_eq!(frames.page_mapcount(head.add(300)), 2);
        assert_eq!(unmap(&frames, half), Remapped::default(), "still mapped by the large entries");
        assert_eq!(frames.map_pages(half), Remapped::default());
        assert_eq!(frames.unmap_entirely(head), Remapped::default());
        assert_eq!(frames.unmap_entirely(head), Remapped { pages: 256, large: 1, partly: true });
        frames.validate_mapcounts(head).unwrap();
        assert_eq!(unmap(&frames, half), changed(256, false));
        assert_eq!(
            (frames[head].mapcount(), frames.pages_mapped(head), frames.entire_mapcount(head)),
            (0, 0, 0)
        );
    }

    #[test]
    #[should_panic(expected = "is unmapped that is not mapped")]
    fn a_page_is_not_unmapped_in_the_place_of_another() {
        let frames = folio(4);
        frames.map_pages(part(0, 4));
        unmap(&frames, part(2, 6));
    }

    proptest! {
        /// Any sequence of ranges changes the counts and the statistics as the same pages do one by one.
        #[test]
        fn ranges_count_as_their_pages(
            order in 0u8..=9,
            steps in prop::collection::vec((any::<bool>(), 0u32..512, 1u32..=512, 0u8..8), 0..60),
        ) {
            let (by_range, by_page) = (folio(order), folio(order));
            let head = if order > 4 { Pfn(512) } else { HEAD };
            let pages = Order(order).frames();
            let (mut ranges, mut entire) = (Vec::new(), 0);
            let mut totals = [0i64; 2];
            let mut splits = [0; 2];
            for (add, from, count, large) in steps {
                let from = from % pages;
                let part = FolioPages { head, first: head.add(from), count: 1 + (count - 1) % (pages - from) };
                let (sign, changes) = if add && large == 0 && order == 9 {
                    entire += 1;
                    (1, [by_range.map_entirely(head), by_page.map_entirely(head)])
                } else if add {
                    ranges.push(part);
                    (1, [by_range.map_pages(part), one_by_one(part, |page| by_page.map_pages(page))])
                } else if large < 2 && entire > 0 {
                    entire -= 1;
                    (-1, [by_range.unmap_entirely(head), by_page.unmap_entirely(head)])
                } else if !ranges.is_empty() {
                    let part = ranges.swap_remove(count as usize % ranges.len());
                    (-1, [unmap(&by_range, part), one_by_one(part, |page| unmap(&by_page, page))])
                } else {
                    continue;
                };
                for i in 0..2 {
                    totals[i] += sign * i64::from(changes[i].pages);
                    splits[i] += u32::from(changes[i].partly);
                }
                prop_assert_eq!(totals[0], totals[1]);
                prop_assert_eq!(totals[0], by_range.pages_mapped(head) as i64);
                prop_assert!(splits[0] <= splits[1]);
                for frames in [&by_range, &by_page] {
                    frames.validate_mapcounts(head).unwrap();
                }
                prop_assert_eq!(by_range[head].mapcount(), by_page[head].mapcount());
                for page in FolioPages::all(&by_range, head).iter() {
                    prop_assert_eq!(by_range.page_mapcount(page), by_page.page_mapcount(page));
                }
            }
        }
    }

    fn one_by_one(part: FolioPages, change: impl Fn(FolioPages) -> Remapped) -> Remapped {
        part.iter().map(|first| change(FolioPages { first, count: 1, ..part })).fold(
            Remapped::default(),
            |sum, one| Remapped {
                pages: sum.pages + one.pages,
                large: sum.large + one.large,
                partly: sum.partly || one.partly,
            },
        )
    }
}
