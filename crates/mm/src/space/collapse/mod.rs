//! Collapse: what 2 MiB of a space are mapped by, page by page, becomes one folio, and is mapped by one entry. Of a
//! file, or of shmem (`file`); of anonymous memory (`anon`).
//!
//! Who asks for it (MADV_COLLAPSE) has it done whatever it costs; khugepaged, which nobody asked, within its limits. A
//! try that comes to nothing says why, in Linux's terms: madvise makes an error of that, khugepaged a count.
//!
//! The mapping semaphore is held alone all the time, also while pages are read: Linux lets go of it and starts again.

mod anon;
mod file;

use super::{Space, Spaces, Stop, Vma, VmaFlags, VmaView};
use crate::alloc::Watermark;
use crate::api::Error;
use crate::knobs::Knob;
use crate::machine::{Machine, WaitKey};
use crate::memory::{Gfp, Shortage};
use crate::mm_core::MmCore;
use crate::stat::Stat;
use crate::units::*;

pub(super) const LARGE: u64 = TABLE_ENTRIES as u64;

/// What 2 MiB that are collapsed may be like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CollapseLimits {
    /// Pages that are not in memory, at the most.
    pub none: u64,
    /// Pages that are in swap, at the most.
    pub swap: u64,
    /// Pages of anonymous memory that others map, too, at the most.
    pub shared: u64,
    /// Must pages of anonymous memory have been used lately?
    pub used: bool,
}

impl CollapseLimits {
    /// Whatever it is like: somebody asked for it.
    pub const ASKED: CollapseLimits = CollapseLimits { none: LARGE, swap: LARGE, shared: LARGE, used: false };

    /// khugepaged's.
    pub fn of_daemon<M: Machine>(core: &MmCore<M>) -> CollapseLimits {
        let [none, swap, shared] =
            [Knob::KhugepagedMaxPtesNone, Knob::KhugepagedMaxPtesSwap, Knob::KhugepagedMaxPtesShared]
                .map(|knob| core.knobs.get(knob));
        CollapseLimits { none, swap, shared, used: true }
    }
}

/// Why 2 MiB were left as they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CollapseError {
    /// Nothing is mapped there (SCAN_PMD_NONE).
    Empty,
    /// Too many pages are missing (SCAN_EXCEED_NONE_PTE).
    Missing,
    /// Too many pages are in swap (SCAN_EXCEED_SWAP_PTE).
    Swapped,
    /// Others map too many of the pages (SCAN_EXCEED_SHARED_PTE).
    SharedByOthers,
    /// A page went to swap meanwhile, or could not be brought back (SCAN_PTE_NON_PRESENT).
    NotPresent,
    /// None of the pages may be written (SCAN_PAGE_RO).
    ReadOnly,
    /// Too few of the pages have been used lately (SCAN_LACK_REFERENCED_PAGE).
    Unused,
    /// Somebody has locked a folio (SCAN_PAGE_LOCK).
    FolioLocked,
    /// Somebody uses a folio otherwise than by mapping it (SCAN_PAGE_COUNT).
    InUse,
    /// Memory has no block of 2 MiB (SCAN_ALLOC_HUGE_PAGE_FAIL).
    NoBlock,
    /// The group has no room for it (SCAN_CGROUP_CHARGE_FAIL).
    NoCharge,
    /// It cannot be (SCAN_FAIL and others).
    Unfit,
}

impl CollapseError {
    /// What madvise fails with.
    pub fn error(self) -> Error {
        match self {
            CollapseError::NoBlock => Error::NoMemory,
            CollapseError::NoCharge | CollapseError::Missing => Error::Busy,
            CollapseError::FolioLocked | CollapseError::InUse => Error::Again,
            _ => Error::Invalid,
        }
    }

    /// Does madvise go on with the next 2 MiB?
    fn goes_on(self) -> bool {
        matches!(
            self,
            CollapseError::NotPresent
                | CollapseError::ReadOnly
                | CollapseError::Unused
                | CollapseError::FolioLocked
                | CollapseError::InUse
        )
    }

    /// Count it, if it is one of those that are.
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

/// What came of one try.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Collapsed {
    /// A large entry maps the 2 MiB now.
    Now,
    /// One did before.
    Before,
    /// Not to be done here or now.
    No(CollapseError),
}

/// Why a try ended early.
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
    /// madvise(MADV_COLLAPSE): map all 2 MiB that lie in the range by one entry each. Returns how many there are. An
    /// error tells why the last that could not be mapped so could not; those before it are, and may be behind it.
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
            let vma = space.vmas.lock().range_of(range).cloned().expect("the semaphore is held");
            let (from, to) = (start.max(vma.view.start), end.min(vma.view.end()));
            mapped += collapse_range(core, (id, space), &vma, (from, to), gfp)?;
        }
        if covered { Ok(mapped) } else { Err(Error::NotMapped.into()) }
    }
}

/// Collapse all 2 MiB that lie in a part of a range. Returns how many there are.
fn collapse_range<M: Machine>(
    core: &MmCore<M>,
    (id, space): (SpaceId, &Space),
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
        match collapse_at(core, (id, space), vma, at, CollapseLimits::ASKED, gfp)? {
            Collapsed::Now | Collapsed::Before => {}
            Collapsed::No(refused) => {
                failed = Some(refused);
                if !refused.goes_on() {
                    break;
                }
            }
        }
    }
    failed.map_or(Ok((end - first) / LARGE), |refused| Err(refused.error().into()))
}

/// May any 2 MiB of a range be collapsed? (`thp_vma_allowable_order`.)
pub(super) fn may_collapse(vma: &Vma) -> bool {
    let view = &vma.view;
    let fits = suits(view, Vpn(view.end().0.saturating_sub(LARGE) / LARGE * LARGE));
    let may_show = view.file.is_some() || !vma.sets.is_empty();
    fits && may_show && !view.flags.contains(VmaFlags::NOHUGEPAGE)
}

/// Could one entry map the 2 MiB from `at` on?
pub(super) fn suits(view: &VmaView, at: Vpn) -> bool {
    let inside = view.start <= at && at.0 + LARGE <= view.end().0;
    inside && view.file_index(at).is_none_or(|(_, index)| index.0.is_multiple_of(LARGE))
}

/// Collapse the 2 MiB from `at` on, in a range that may be. The mapping semaphore is held alone.
pub(super) fn collapse_at<M: Machine>(
    core: &MmCore<M>,
    place: (SpaceId, &Space),
    vma: &Vma,
    at: Vpn,
    limits: CollapseLimits,
    gfp: Gfp,
) -> Result<Collapsed, Stop> {
    if !suits(&vma.view, at) {
        return Ok(Collapsed::No(CollapseError::Unfit));
    }
    let done = match vma.view.file_index(at) {
        Some(shown) => file::collapse(core, place, &vma.view, at, shown, limits, gfp),
        None => anon::collapse(core, place, &vma.view, at, limits, gfp),
    };
    match done {
        Ok(done) => Ok(done),
        Err(Failed::Refused(refused)) => Ok(Collapsed::No(refused.count(core))),
        Err(Failed::Stop(stop)) => Err(stop),
    }
}

/// Before work is done for a folio: is there a block? Memory is not put together for it.
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
