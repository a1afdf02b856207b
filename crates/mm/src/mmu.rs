//! Floors 1 to 4 in one hand: the machine, what is known of it, and every CPU's translations.

use crate::knobs::Knobs;
use crate::machine::Machine;
use crate::platform::Platform;
use crate::tlb::Tlb;

/// What the allocator, page tables and all rooms above stand on.
pub struct Mmu<M> {
    platform: Platform<M>,
    /// Translations, and what is owed for those that were taken away.
    pub tlb: Tlb,
}

impl<M> core::ops::Deref for Mmu<M> {
    type Target = Platform<M>;

    #[inline]
    fn deref(&self) -> &Platform<M> {
        &self.platform
    }
}

impl<M: Machine> Mmu<M> {
    /// Nothing is mapped or owed yet.
    pub fn new(machine: M, knobs: Knobs) -> Mmu<M> {
        let platform = Platform::new(machine, knobs);
        Mmu { tlb: Tlb::new(&platform), platform }
    }

    /// Floors 1 and 2.
    #[inline]
    pub fn base(&self) -> &Platform<M> {
        &self.platform
    }
}
