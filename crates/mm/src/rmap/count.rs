//! Mapcounts, and the statistics of mapped pages.

use super::Rmap;
use crate::frame::{FolioPages, Frame, FrameFlags, Remapped};
use crate::knobs::Knob;
use crate::machine::{Machine, Scope, SharedLine, Work};
use crate::platform::Platform;
use crate::stat::Stat;
use crate::table::SplitEntry;
use crate::units::*;

/// Pages that became mapped or unmapped and that the counters do not include yet. A caller that changes several runs of
/// entries under one lock collects them here, and updates the counters once, at the end.
#[must_use = "dropping it loses counts"]
#[derive(Debug)]
pub struct Tally {
    anon: i64,
    file: i64,
    /// `rmap.batch` is off: nothing is collected.
    at_once: bool,
}

impl Tally {
    /// Nothing is collected yet.
    pub fn new<M: Machine>(platform: &Platform<M>) -> Tally {
        Tally { anon: 0, file: 0, at_once: platform.knobs.get(Knob::RmapBatch) == 0 }
    }

    #[inline]
    fn note<M: Machine>(&mut self, platform: &Platform<M>, anon: bool, pages: i64) {
        *if anon { &mut self.anon } else { &mut self.file } += pages;
        if self.at_once && pages != 0 {
            self.flush(platform);
        }
    }

    #[cold]
    #[inline(never)]
    fn flush<M: Machine>(&mut self, platform: &Platform<M>) {
        for (stat, pages) in [(Stat::NrAnonPages, &mut self.anon), (Stat::NrMapped, &mut self.file)] {
            let pages = core::mem::take(pages);
            if pages != 0 {
                platform.charge(Work::StatUpdate, 1);
                platform.count(stat, pages);
            }
        }
    }

    /// Update the counters.
    pub fn settle<M: Machine>(mut self, platform: &Platform<M>) {
        self.flush(platform);
    }
}

impl Rmap {
    /// Count one more entry for each of some pages of a folio, and update the statistics once. The caller has taken a
    /// reference for each entry.
    #[inline]
    pub fn add_range<M: Machine>(&self, platform: &Platform<M>, pages: FolioPages) {
        platform.charge(Work::RmapAdd, pages.count as u64);
        writes_mapcounts(platform, pages);
        let change = platform.frames.map_pages(pages);
        count_pages(platform, &platform.frames[pages.head], change, 1);
    }

    /// Count one entry fewer for each of some pages of a folio, and update the statistics once. The caller drops a
    /// reference for each entry afterwards. Returns whether this left the folio partly mapped.
    #[inline]
    pub fn remove_range<M: Machine>(&self, platform: &Platform<M>, pages: FolioPages) -> bool {
        let _scope = platform.scope(Scope::FolioRemoveRmap);
        platform.charge(Work::RmapRemove, pages.count as u64);
        let head = &platform.frames[pages.head];
        writes_mapcounts(platform, pages);
        let change = platform.frames.unmap_pages(head, pages);
        count_pages(platform, head, change, -1);
        change.partly
    }

    /// As [`Rmap::add_range`]; `tally` collects the statistics.
    #[inline]
    pub(crate) fn add_tallied<M: Machine>(
        &self,
        platform: &Platform<M>,
        pages: FolioPages,
        tally: &mut Tally,
    ) {
        platform.charge(Work::RmapAdd, pages.count as u64);
        writes_mapcounts(platform, pages);
        let change = platform.frames.map_pages(pages);
        tally.note(platform, platform.frames[pages.head].is_anon(), i64::from(change.pages));
    }

    /// As [`Rmap::remove_range`], with the record of the folio's head, for a folio that is anonymous (`anon`) or of a
    /// file; `tally` collects the statistics.
    #[inline]
    pub(crate) fn remove_tallied<M: Machine>(
        &self,
        platform: &Platform<M>,
        (head, anon): (&Frame, bool),
        pages: FolioPages,
        tally: &mut Tally,
    ) -> bool {
        let _scope = platform.scope(Scope::FolioRemoveRmap);
        platform.charge(Work::RmapRemove, pages.count as u64);
        writes_mapcounts(platform, pages);
        let change = platform.frames.unmap_pages(head, pages);
        tally.note(platform, anon, -i64::from(change.pages));
        change.partly
    }

    /// Count a 2 MiB entry that maps a whole folio. The caller has taken the one reference that the entry holds.
    pub(crate) fn add_large<M: Machine>(&self, platform: &Platform<M>, head: Pfn) {
        platform.charge(Work::RmapAdd, 1);
        platform.writes_frame(head);
        let change = platform.frames.map_entirely(head);
        count_pages(platform, &platform.frames[head], change, 1);
        count_large(platform, &platform.frames[head], change, 1);
    }

    /// A 2 MiB entry that mapped a whole folio is gone. The caller drops its reference afterwards. Returns whether this
    /// left the folio partly mapped.
    pub(crate) fn remove_large<M: Machine>(&self, platform: &Platform<M>, head: Pfn) -> bool {
        let _scope = platform.scope(Scope::FolioRemoveRmap);
        platform.charge(Work::RmapRemove, 1);
        platform.writes_frame(head);
        let change = platform.frames.unmap_entirely(head);
        count_pages(platform, &platform.frames[head], change, -1);
        count_large(platform, &platform.frames[head], change, -1);
        change.partly
    }

    /// A 2 MiB entry that mapped a whole folio has become one entry for each page. Each of these holds a reference,
    /// unless the folio is being moved.
    pub(crate) fn split_large<M: Machine>(&self, platform: &Platform<M>, split: SplitEntry) {
        platform.count(Stat::ThpSplitPmd, 1);
        let Some(head) = split.into_head() else { return };
        let pages = FolioPages::all(&platform.frames, head);
        assert_eq!(pages.count, TABLE_ENTRIES as u32, "folio {head} must fill the entry that is split");
        platform.frames[head].get(pages.count - 1);
        // In this order the folio never appears unmapped.
        self.add_range(platform, pages);
        self.remove_large(platform, head);
    }
}

/// This CPU changes the mapcounts of some pages of a folio: that of the folio is in its head's record, and a larger
/// folio has one in the record of each page.
#[inline(always)]
fn writes_mapcounts<M: Machine>(platform: &Platform<M>, pages: FolioPages) {
    platform.writes_frame(pages.head);
    if pages.count > 1 {
        platform.machine.writes(SharedLine::Frames(pages.first, pages.count));
    }
}

#[inline]
fn count_pages<M: Machine>(platform: &Platform<M>, head: &Frame, change: Remapped, sign: i64) {
    if change.pages > 0 {
        platform.charge(Work::StatUpdate, 1);
        let stat = if head.is_anon() { Stat::NrAnonPages } else { Stat::NrMapped };
        platform.count(stat, sign * i64::from(change.pages));
    }
}

fn count_large<M: Machine>(platform: &Platform<M>, head: &Frame, change: Remapped, sign: i64) {
    if change.large > 0 {
        let stat = match (head.is_anon(), head.has(FrameFlags::SWAPBACKED)) {
            (true, _) => Stat::NrAnonTransparentHugepages,
            (false, true) => Stat::NrShmemPmdmapped,
            (false, false) => Stat::NrFilePmdmapped,
        };
        platform.charge(Work::StatUpdate, 1);
        platform.count(stat, sign * i64::from(change.large));
    }
}
