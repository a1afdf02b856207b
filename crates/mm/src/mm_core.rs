//! Floor 6 on top of floors 3 to 5: memory, and whose content is in it.

use crate::cache::Cache;
use crate::hot::Hot;
use crate::machine::Machine;
use crate::memory::Memory;
use crate::rmap::Rmap;
use crate::units::*;

/// State of floors 3 to 6.
pub struct MmCore<M> {
    memory: Memory<M>,
    /// Page caches of files.
    pub cache: Cache,
    /// Who maps a folio.
    pub rmap: Rmap,
    /// A frame of zeroes that every space may map read-only; counted nowhere.
    pub zero: Pfn,
    /// Which pages are used from where, as far as anybody asks.
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
    /// Put the rooms together. `zero` is a frame that stays allocated and zeroed for ever.
    pub fn new(memory: Memory<M>, cache: Cache, zero: Pfn) -> MmCore<M> {
        let frames = memory.machine.memory().iter().map(|range| u64::from(range.frames)).sum();
        let hot = Hot::new(memory.tiers.nodes(), frames);
        MmCore { memory, cache, rmap: Rmap::default(), zero, hot }
    }

    /// Floors 3 to 5.
    #[inline]
    pub fn memory(&self) -> &Memory<M> {
        &self.memory
    }
}
