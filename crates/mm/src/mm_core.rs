//! State of floors 1 to 6: memory, and the files and mappings whose content it holds.

use crate::cache::Cache;
use crate::hot::Hot;
use crate::machine::Machine;
use crate::memory::Memory;
use crate::rmap::Rmap;
use crate::units::*;

/// State of floors 1 to 6.
pub struct MmCore<M> {
    memory: Memory<M>,
    /// Page caches of files.
    pub cache: Cache,
    /// Reverse maps: the entries that map a folio.
    pub rmap: Rmap,
    /// A zeroed frame that every space may map read-only. No counter includes it.
    pub zero: Pfn,
    /// Access statistics for promotion between tiers.
    pub hot: Hot,
}

impl<M> core::ops::Deref for MmCore<M> {
    type Target = Memory<M>;

    #[inline]
    fn deref(&self) -> &Memory<M> {
        &self.memory
    }
}

impl<M: Machine> MmCore<M> {
    /// Assemble the rooms. `zero` must stay allocated and zeroed.
    pub fn new(memory: Memory<M>, cache: Cache, zero: Pfn) -> MmCore<M> {
        let frames = memory.machine.memory().iter().map(|range| u64::from(range.frames)).sum();
        let hot = Hot::new(memory.tiers.nodes(), frames);
        MmCore { memory, cache, rmap: Rmap::default(), zero, hot }
    }
}
