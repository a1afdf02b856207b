//! Bench for tests of whole spaces: memory without devices, spaces, and helpers to inspect and use them.

use super::*;
use crate::alloc::Allocator;
use crate::api::Advice;
use crate::cache::Cache;
use crate::knobs::{Knob, Knobs};
use crate::lru::Lru;
use crate::memory::Memory;
use crate::mmu::Mmu;
use crate::swap::Swap;
use crate::table::EntryRun;
use crate::testing::TestMachine;
use std_alloc::vec::Vec;

pub(super) struct Bench {
    pub core: MmCore<TestMachine>,
    pub spaces: Spaces,
}

pub(super) fn gfp() -> Gfp {
    Gfp::user(GroupId(0))
}

impl Bench {
    /// Two CPUs, this many frames and these knobs, and a space.
    pub fn new(frames: u32, values: &[(Knob, u64)]) -> (Bench, SpaceId) {
        let knobs = Knobs::default();
        values.iter().for_each(|&(knob, value)| knobs.set(knob, value).unwrap());
        let mmu = Mmu::new(TestMachine::simple(2, frames), knobs);
        let (alloc, lru) = (Allocator::new(&mmu).unwrap(), Lru::new(&mmu.machine));
        let memory = Memory::new(mmu, Swap::new(&[], 2), alloc, lru);
        let zero = memory.new_folio(Order::ZERO, gfp()).unwrap();
        let bench = Bench { core: MmCore::new(memory, Cache::new(), zero), spaces: Spaces::default() };
        let id = bench.spaces.create(&bench.core, gfp()).unwrap();
        (bench, id)
    }

    pub fn mmu(&self) -> &Mmu<TestMachine> {
        &self.core
    }

    /// Runs of present entries of `[start, end)`.
    pub fn runs(&self, id: SpaceId, start: u64, end: u64) -> Vec<EntryRun> {
        let mut runs = Vec::new();
        let mut tables = self.core.tables.lock(self.mmu(), id);
        tables.for_each(Vpn(start), Vpn(end), |_, run| runs.push(run));
        runs.retain(|run| run.entry.is_present());
        runs
    }

    /// Call `then` with the locked folio of a page and a reference to it.
    pub fn with_folio(&self, id: SpaceId, at: u64, then: impl FnOnce(Pfn)) {
        let found = self.runs(id, at, at + 1).first().map(|run| run.mapped(&self.core.frames).head);
        if let Some(pfn) = found.filter(|&pfn| pfn != self.core.zero) {
            self.core.frames[pfn].get(1);
            self.core.lock_folio(pfn);
            then(pfn);
            self.core.unlock_folio(pfn);
            self.core.put(pfn);
        }
    }

    /// madvise; folios to be reclaimed are put back. Returns their number; `None` if the call failed.
    pub fn advise(&self, id: SpaceId, at: u64, pages: u64, advice: Advice) -> Option<usize> {
        let advised = self.spaces.madvise(&self.core, id, Vpn(at), pages, advice).ok()?;
        for &pfn in &advised.page_out {
            self.core.lru.putback(self.mmu(), pfn);
            self.core.put(pfn);
        }
        Some(advised.page_out.len())
    }

    /// Validate the rooms below.
    pub fn check_rooms(&self) {
        let platform = self.mmu();
        self.spaces.validate(&self.core, self.core.tlb.bound()).unwrap();
        self.core.alloc.validate(platform).unwrap();
        self.core.lru.validate(platform).unwrap();
        self.core.cache.validate(&self.core).unwrap();
    }
}
