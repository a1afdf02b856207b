//! Collapse: 2 MiB of a space that are mapped page by page become one folio, mapped by one entry. `file` does this for
//! files and shmem, `anon` for anonymous memory.
//!
//! MADV_COLLAPSE does it whatever it costs, khugepaged only within its limits. A failed attempt returns the reason in
//! Linux's terms, of which madvise makes an error and khugepaged a count.
//!
//! The mapping semaphore is held alone throughout, also while pages are read. (Linux drops it and starts again.)

mod anon;
mod file;

use super::fault::PmdRange;
use super::{Spaces, Stop, Vma, VmaFlags, VmaView};
use crate::alloc::Watermark;
use crate::api::Error;
use crate::knobs::Knob;
use crate::machine::{Machine, WaitKey};
use crate::memory::{Gfp, Shortage};
use crate::mm_core::MmCore;
use crate::stat::Stat;
use crate::units::*;

pub(super) const LARGE: u64 = TABLE_ENTRIES as u64;

/// Limits on what may be collapsed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CollapseLimits {
    /// Most pages that are not in memory.
    pub none: u64,
    /// Most pages that are in swap.
    pub swap: u64,
    /// Most pages of anonymous memory that other processes map, too.
    pub shared: u64,
    /// Whether pages of anonymous memory must have been used lately.
    pub used: bool,
}

impl CollapseLimits {
    /// MADV_COLLAPSE: no limits.
    pub(crate) const ASKED: CollapseLimits =
        CollapseLimits { none: LARGE, swap: LARGE, shared: LARGE, used: false };

    /// The knobs of khugepaged.
    pub(crate) fn of_daemon<M: Machine>(core: &MmCore<M>) -> CollapseLimits {
        let [none, swap, shared] =
            [Knob::KhugepagedMaxPtesNone, Knob::KhugepagedMaxPtesSwap, Knob::KhugepagedMaxPtesShared]
                .map(|knob| core.knobs.get(knob));
        CollapseLimits { none, swap, shared, used: true }
    }
}

/// Why 2 MiB were not collapsed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CollapseError {
    /// Nothing is mapped (SCAN_PMD_NONE).
    Empty,
    /// Too many pages are missing (SCAN_EXCEED_NONE_PTE).
    Missing,
    /// Too many pages are in swap (SCAN_EXCEED_SWAP_PTE).
    Swapped,
    /// Too many pages are shared with other processes (SCAN_EXCEED_SHARED_PTE).
    SharedByOthers,
    /// A page was swapped out since, or could not be swapped in (SCAN_PTE_NON_PRESENT).
    NotPresent,
    /// No page is mapped writable (SCAN_PAGE_RO).
    ReadOnly,
    /// Too few pages have been used lately (SCAN_LACK_REFERENCED_PAGE).
    Unused,
    /// Another task has locked a folio (SCAN_PAGE_LOCK).
    FolioLocked,
    /// A folio has references other than its entries' and its cache's (SCAN_PAGE_COUNT).
    InUse,
    /// Memory has no free block of 2 MiB (SCAN_ALLOC_HUGE_PAGE_FAIL).
    NoBlock,
    /// The group has no room (SCAN_CGROUP_CHARGE_FAIL).
    NoCharge,
    /// It can never be collapsed (SCAN_FAIL and others).
    Unfit,
}

impl CollapseError {
    /// The error of madvise.
    pub fn error(self) -> Error {
        match self {
            CollapseError::NoBlock => Error::NoMemory,
            CollapseError::NoCharge | CollapseError::Missing => Error::Busy,
            CollapseError::FolioLocked | CollapseError::InUse => Error::Again,
            _ => Error::Invalid,
        }
    }

    /// Whether madvise continues with the next 2 MiB.
    fn continues(self) -> bool {
        matches!(
            self,
            CollapseError::NotPresent
                | CollapseError::ReadOnly
                | CollapseError::Unused
                | CollapseError::FolioLocked
                | CollapseError::InUse
        )
    }

    /// Count the reason, if there is a counter for it.
    fn count<M: Machine>(self, core: &MmCore<M>) -> CollapseError {
        let stat = match self {
            CollapseError::Missing => Stat::ThpScanExceedNonePte,
            CollapseError::Swapped => Stat::ThpScanExceedSwapPte,
            CollapseError::SharedByOthers => Stat::ThpScanExceedSharePte,
            CollapseError::NoBlock => Stat::ThpCollapseAllocFailed,
            _ => return self,
        };
        core.count(stat, 1);
        self
    }
}

/// Outcome of an attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Collapsed {
    /// A large entry maps the 2 MiB now.
    Now,
    /// A large entry mapped them before.
    Before,
    /// They were not collapsed.
    No(CollapseError),
}

/// Why an attempt ended early.
enum Failed {
    Refused(CollapseError),
    Stop(Stop),
}

impl<T: Into<Stop>> From<T> for Failed {
    fn from(stop: T) -> Failed {
        Failed::Stop(stop.into())
    }
}

impl From<CollapseError> for Failed {
    fn from(refused: CollapseError) -> Failed {
        Failed::Refused(refused)
    }
}

impl Spaces {
    /// madvise(MADV_COLLAPSE): map each aligned 2 MiB of the interval by one entry. Returns their number. An error is
    /// the reason of the last that could not be collapsed: those before it are collapsed, those after it may be.
    pub fn collapse<M: Machine>(
        &self,
        core: &MmCore<M>,
        id: SpaceId,
        start: Vpn,
        pages: u64,
        gfp: Gfp,
    ) -> Result<u64, Stop> {
        let (space, end) = (self.at(id), Vpn(start.0.saturating_add(pages)));
        let _held = space.mapping.write(&core.machine, WaitKey::Space(id));
        let (ranges, covered) = {
            let vmas = space.vmas.lock();
            (vmas.starts(start, end), vmas.covers(start, end))
        };
        let mut mapped = 0;
        for range in ranges {
            let vma =
                space.vmas.lock().range_of(range).cloned().expect("the mapping semaphore keeps the range");
            let (from, to) = (start.max(vma.view.start), end.min(vma.view.end()));
            mapped += self.collapse_range(core, id, &vma, (from, to), gfp)?;
        }
        if covered { Ok(mapped) } else { Err(Error::NotMapped.into()) }
    }

    /// Collapse each aligned 2 MiB in a part of a range. Returns their number.
    fn collapse_range<M: Machine>(
        &self,
        core: &MmCore<M>,
        id: SpaceId,
        vma: &Vma,
        (from, to): (Vpn, Vpn),
        gfp: Gfp,
    ) -> Result<u64, Stop> {
        let (first, end) = (from.0.next_multiple_of(LARGE), to.0 / LARGE * LARGE);
        if !may_collapse(vma) || first > end {
            return Err(Error::Invalid.into());
        }
        let mut failed = None;
        for at in (first..end).step_by(LARGE as usize).map(Vpn) {
            let place = PmdRange { id, space: self.at(id), vma: &vma.view, start: at, gfp };
            match collapse_at(core, &place, CollapseLimits::ASKED)? {
                Collapsed::Now | Collapsed::Before => {}
                Collapsed::No(refused) => {
                    failed = Some(refused);
                    if !refused.continues() {
                        break;
                    }
                }
            }
        }
        failed.map_or(Ok((end - first) / LARGE), |refused| Err(refused.error().into()))
    }
}

/// Whether any 2 MiB of a range may be collapsed (`thp_vma_allowable_order`).
pub(super) fn may_collapse(vma: &Vma) -> bool {
    let view = &vma.view;
    let fits = suits(view, Vpn(view.end().0.saturating_sub(LARGE) / LARGE * LARGE));
    let may_show = view.file.is_some() || !vma.sets.is_empty();
    fits && may_show && !view.flags.contains(VmaFlags::NOHUGEPAGE)
}

/// Whether one entry could map the 2 MiB from `at` on.
pub(super) fn suits(view: &VmaView, at: Vpn) -> bool {
    let inside = view.start <= at && at.0 + LARGE <= view.end().0;
    inside && view.file_index(at).is_none_or(|(_, index)| index.0.is_multiple_of(LARGE))
}

/// Collapse 2 MiB of a range for which `may_collapse` holds.
pub(super) fn collapse_at<M: Machine>(
    core: &MmCore<M>,
    place: &PmdRange<'_>,
    limits: CollapseLimits,
) -> Result<Collapsed, Stop> {
    if !suits(place.vma, place.start) {
        return Ok(Collapsed::No(CollapseError::Unfit));
    }
    let done = match place.vma.file_index(place.start) {
        Some(shown) => file::collapse(core, place, shown, limits),
        None => anon::collapse(core, place, limits),
    };
    match done {
        Ok(done) => Ok(done),
        Err(Failed::Refused(refused)) => Ok(Collapsed::No(refused.count(core))),
        Err(Failed::Stop(stop)) => Err(stop),
    }
}

/// Check for a free block before any other work. Nothing is compacted for it.
fn check_for_block<M: Machine>(core: &MmCore<M>, gfp: Gfp) -> Result<(), CollapseError> {
    let there = core.has_block(PAGEBLOCK_ORDER, Gfp { mark: Watermark::Low, ..gfp });
    if there { Ok(()) } else { Err(CollapseError::NoBlock) }
}

/// A new folio of 2 MiB.
fn new_whole<M: Machine>(core: &MmCore<M>, gfp: Gfp) -> Result<Pfn, CollapseError> {
    let whole = core.new_folio(PAGEBLOCK_ORDER, gfp).map_err(|shortage| match shortage {
        Shortage::Group(_) => CollapseError::NoCharge,
        Shortage::Zone(_) | Shortage::Block { .. } => CollapseError::NoBlock,
    })?;
    core.count(Stat::ThpCollapseAlloc, 1);
    Ok(whole)
}
