//! What tests of whole spaces have in common: memory without devices, spaces in it, and how they are looked at and
//! used.

use super::*;
use crate::alloc::Allocator;
use crate::api::Advice;
use crate::cache::Cache;
use crate::ground::Ground;
use crate::knobs::{Knob, Knobs};
use crate::lru::Lru;
use crate::memory::Memory;
use crate::swap::Swap;
use crate::table::Run;
use crate::testing::TestMachine;
use std_alloc::vec::Vec;

pub(super) struct Bench {
    pub st: Store<TestMachine>,
    pub spaces: Spaces,
}

pub(super) fn gfp() -> Gfp {
    Gfp::user(GroupId(0))
}

impl Bench {
    /// Two CPUs, so many frames, these values of knobs, and a space.
    pub fn new(frames: u32, values: &[(Knob, u64)]) -> (Bench, SpaceId) {
        let knobs = Knobs::default();
        values.iter().for_each(|&(knob, value)| knobs.set(knob, value).unwrap());
        let base = Ground::new(TestMachine::simple(2, frames), knobs);
        let (alloc, lru) = (Allocator::new(&base).unwrap(), Lru::new(&base.machine));
        let memory = Memory::new(base, Swap::new(&[], 2), alloc, lru);
        let zero = memory.new_folio(Order::ZERO, gfp()).unwrap();
        let bench = Bench { st: Store::new(memory, Cache::new(), zero), spaces: Spaces::default() };
        let id = bench.spaces.create(&bench.st, gfp()).unwrap();
        (bench, id)
    }

    pub fn base(&self) -> &Ground<TestMachine> {
        self.st.memory().ground()
    }

    /// Runs of present entries of `[start, end)`.
    pub fn runs(&self, id: SpaceId, start: u64, end: u64) -> Vec<Run> {
        let mut runs = Vec::new();
        let mut tables = self.st.tables.lock(self.base(), id);
        tables.for_each(Vpn(start), Vpn(end), |_, run| runs.push(run));
        runs.retain(|run| run.entry.is_present());
        runs
    }

    /// Give `then` the locked folio of a page, with a reference.
    pub fn with_folio(&self, id: SpaceId, at: u64, then: impl FnOnce(Pfn)) {
        let found = self.runs(id, at, at + 1).first().map(|run| run.mapped(&self.st.frames).head);
        if let Some(pfn) = found.filter(|&pfn| pfn != self.st.zero) {
            self.st.frames[pfn].get(1);
            self.st.lock_folio(pfn);
            then(pfn);
            self.st.unlock_folio(pfn);
            self.st.put(pfn);
        }
    }

    /// madvise; what is to be reclaimed is put back. Returns how many folios that were; `None`: it was refused.
    pub fn advise(&self, id: SpaceId, at: u64, pages: u64, advice: Advice) -> Option<usize> {
        let advised = self.spaces.madvise(&self.st, id, Vpn(at), pages, advice).ok()?;
        for &pfn in &advised.page_out {
            self.st.lru.putback(self.base(), pfn);
            self.st.put(pfn);
        }
        Some(advised.page_out.len())
    }

    /// The rooms below are whole.
    pub fn check_rooms(&self) {
        let base = self.base();
        self.spaces.validate(&self.st, self.st.tlb.bound()).unwrap();
        self.st.alloc.validate(base).unwrap();
        self.st.lru.validate(base).unwrap();
        self.st.cache.validate(self.st.memory()).unwrap();
    }
}
