//! DAMON_RECLAIM: a daemon that watches which memory is used, and pages out what was not used for long, before memory
//! is short.
//!
//! ```text
//! regions   what is used alike
//! access    whether a page was used
//! quota     how much may be paged out, and when
//! ```
//!
//! Source of the rules: mm/damon/reclaim.c and `kdamond_fn` of Linux 6.12. All memory is watched; Linux watches the
//! largest range of it unless told otherwise.

mod access;
mod quota;
mod regions;

use crate::frame::{FrameFlags, Owner};
use crate::knobs::Knob;
use crate::machine::{Machine, Scope, WaitKey};
use crate::mm_core::MmCore;
use crate::reclaim::{self, AddressSpaces, ReclaimState};
use crate::stat::Stat;
use crate::units::*;
use quota::{FreeMarks, Quota, QuotaLimits};
use regions::{Region, RegionLimits, Regions};
use std_alloc::vec::Vec;

/// Nanoseconds of a microsecond.
const MICROSECOND: Nanos = 1_000;
/// Folios paged out together.
const BATCH: usize = 512;

/// The state of the daemon.
struct Damon<'a, M: Machine> {
    core: &'a MmCore<M>,
    state: &'a ReclaimState,
    spaces: &'a dyn AddressSpaces,
    regions: Regions,
    quota: Quota,
    /// Whether watermarks let it work.
    active: bool,
}

/// Run the daemon until the machine stops.
pub(crate) fn kdamond<M: Machine>(core: &MmCore<M>, state: &ReclaimState, spaces: &dyn AddressSpaces) {
    let regions = Regions::new(core.frames.len() as u64);
    let mut damon = Damon { core, state, spaces, regions, quota: Quota::default(), active: true };
    let mut sampled = 0;
    while !core.machine.stopping() {
        damon.active = damon.marks().allow(damon.free(), damon.active);
        if !damon.active {
            damon.sleep(Knob::DamonReclaimWmarksInterval);
            continue;
        }
        damon.watch();
        damon.sleep(Knob::DamonReclaimSampleInterval);
        damon.look();
        sampled += 1;
        if sampled >= damon.limits().samples {
            sampled = 0;
            damon.aggregate();
        }
    }
}

impl<M: Machine> Damon<'_, M> {
    fn knob(&self, knob: Knob) -> u64 {
        self.core.knobs.get(knob)
    }

    /// Sleep for the microseconds of a knob.
    fn sleep(&self, knob: Knob) {
        let machine = &self.core.machine;
        let ticket = machine.ticket(WaitKey::Timer);
        machine.wait(ticket, Some(machine.now() + self.knob(knob) * MICROSECOND));
    }

    fn marks(&self) -> FreeMarks {
        FreeMarks {
            high: self.knob(Knob::DamonReclaimWmarksHigh),
            mid: self.knob(Knob::DamonReclaimWmarksMid),
            low: self.knob(Knob::DamonReclaimWmarksLow),
        }
    }

    /// Thousandths of memory that are free.
    fn free(&self) -> u64 {
        let all: u64 = self.core.alloc.zones().iter().map(|zone| zone.managed()).sum();
        self.core.stats.read(Stat::NrFreePages).max(0) as u64 * 1000 / all.max(1)
    }

    fn limits(&self) -> RegionLimits {
        let interval = self.knob(Knob::DamonReclaimAggrInterval);
        RegionLimits {
            least: self.knob(Knob::DamonReclaimMinNrRegions),
            most: self.knob(Knob::DamonReclaimMaxNrRegions),
            samples: (interval / self.knob(Knob::DamonReclaimSampleInterval)).max(1),
        }
    }

    fn watch(&mut self) {
        let core = self.core;
        let _scope = core.scope(Scope::Kdamond);
        self.regions.draw(|page| {
            if let Some(folio) = access::folio(core, Pfn(page as u32)) {
                access::watch(core, folio);
                core.put(folio);
            }
        });
    }

    fn look(&mut self) {
        let core = self.core;
        let _scope = core.scope(Scope::Kdamond);
        self.regions.count(|page| {
            let folio = access::folio(core, Pfn(page as u32));
            folio.is_some_and(|folio| {
                let used = access::was_used(core, folio);
                core.put(folio);
                used
            })
        });
    }

    /// An aggregation interval has ended: page out, and begin the next one.
    fn aggregate(&mut self) {
        let _scope = self.core.scope(Scope::Kdamond);
        let limits = self.limits();
        self.regions.merge(limits);
        self.page_out_regions();
        self.regions.split(limits);
    }

    /// Nanoseconds for which a region was used about as much as now.
    fn age(&self, region: &Region) -> Nanos {
        region.age * self.knob(Knob::DamonReclaimAggrInterval) * MICROSECOND
    }

    fn is_cold(&self, region: &Region) -> bool {
        let intervals = self.knob(Knob::DamonReclaimMinAge) / self.knob(Knob::DamonReclaimAggrInterval);
        region.uses == 0 && region.age >= intervals
    }

    /// Page out the regions that were not used for long, up to what the quota allows.
    fn page_out_regions(&mut self) {
        let limits = QuotaLimits {
            ms: self.knob(Knob::DamonReclaimQuotaMs),
            bytes: self.knob(Knob::DamonReclaimQuotaSz),
            window: self.knob(Knob::DamonReclaimQuotaResetIntervalMs),
        };
        let interval = self.knob(Knob::DamonReclaimAggrInterval) * MICROSECOND;
        let cold: Vec<Region> =
            self.regions.all().iter().copied().filter(|region| self.is_cold(region)).collect();
        if self.quota.begin(self.core.machine.now(), limits, cold.iter(), interval) {
            self.core.count(Stat::DamonQuotaExceeds, 1);
        }
        let mut at = 0;
        while !self.quota.is_used_up() && !self.core.machine.stopping() {
            let Some(&mut region) = self.regions.get(at) else { break };
            let skipped = self.skip(at, region);
            if !skipped && self.is_cold(&region) && self.quota.wants(self.age(&region)) {
                self.page_out_region(at, region);
            }
            at += 1;
        }
    }

    /// Whether the last window has tried the region, or its first part, which is cut off.
    fn skip(&mut self, at: usize, region: Region) -> bool {
        let resume = self.quota.resume;
        let skipped = region.start < resume;
        if skipped && resume < region.end {
            self.regions.cut(at, resume - region.start);
        } else if at + 1 == self.regions.len() {
            self.quota.resume = 0;
        }
        skipped
    }

    /// Page out a region, or what the quota allows of it.
    fn page_out_region(&mut self, at: usize, region: Region) {
        let pages = self.quota.left(region.pages());
        self.core.count(Stat::DamonTriedRegions, 1);
        self.core.count(Stat::DamonTriedBytes, (pages * PAGE_SIZE) as i64);
        if pages == 0 {
            return;
        }
        if pages < region.pages() {
            self.regions.cut(at, pages);
        }
        let begun = self.core.machine.now();
        let end = region.start + pages;
        let reclaimed = self.page_out(region.start, end);
        self.quota.charge(pages, self.core.machine.now().saturating_sub(begun), end);
        if let Some(region) = self.regions.get(at) {
            region.age = 0;
        }
        self.core.count(Stat::DamonReclaimedRegions, i64::from(reclaimed > 0));
        self.core.count(Stat::DamonReclaimedBytes, (reclaimed * PAGE_SIZE) as i64);
    }

    /// Page out the unused folios of these pages. Returns the pages that were reclaimed.
    fn page_out(&self, start: u64, end: u64) -> u64 {
        let (core, mut page) = (self.core, start);
        let (mut isolated, mut reclaimed) = (Vec::new(), 0);
        while page < end && !core.machine.stopping() {
            let Some(folio) = access::folio(core, Pfn(page as u32)) else {
                page += 1;
                continue;
            };
            page = u64::from(folio.0) + u64::from(core.frames[folio].pages());
            if self.isolate(folio) {
                isolated.push(folio);
            }
            core.put(folio);
            if isolated.len() == BATCH {
                reclaimed += reclaim::pageout(core, self.state, self.spaces, &isolated);
                isolated.clear();
            }
        }
        reclaimed += reclaim::pageout(core, self.state, self.spaces, &isolated);
        core.machine.resched();
        reclaimed
    }

    /// Take a folio off its list, with a reference more, unless it was used or must stay.
    fn isolate(&self, folio: Pfn) -> bool {
        let (core, frame) = (self.core, &self.core.frames[folio]);
        let spared = self.knob(Knob::DamonReclaimSkipAnon) == 1 && matches!(frame.owner(), Owner::Anon(_));
        if spared {
            return false;
        }
        if access::was_used(core, folio) {
            access::watch(core, folio);
            return false;
        }
        frame.clear(FrameFlags::REFERENCED | FrameFlags::YOUNG);
        if !core.lru.isolate(core, folio) {
            return false;
        }
        if frame.has(FrameFlags::UNEVICTABLE) {
            core.lru.putback(core, folio);
            core.put(folio);
            return false;
        }
        true
    }
}
