//! Floors 1 to 4 in one hand: the machine, what is known of it, and every CPU's translations.

use crate::base::Base;
use crate::knobs::Knobs;
use crate::machine::Machine;
use crate::tlb::Tlb;

/// What the allocator, page tables and all rooms above stand on.
pub struct Ground<M> {
    base: Base<M>,
    /// Translations, and what is owed for those that were taken away.
    pub tlb: Tlb,
}

impl<M> core::ops::Deref for Ground<M> {
    type Target = Base<M>;

    #[inline]
    fn deref(&self) -> &Base<M> {
        &self.base
    }
}

impl<M: Machine> Ground<M> {
    /// Nothing is mapped or owed yet.
    pub fn new(machine: M, knobs: Knobs) -> Ground<M> {
        let base = Base::new(machine, knobs);
        Ground { tlb: Tlb::new(&base), base }
    }

    /// Floors 1 and 2.
    #[inline]
    pub fn base(&self) -> &Base<M> {
        &self.base
    }
}
