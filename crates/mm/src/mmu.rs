//! State of floors 1 to 4: the machine, its records, and every CPU's cached translations.

use crate::knobs::{Knob, Knobs};
use crate::machine::Machine;
use crate::platform::Platform;
use crate::tlb::Tlb;

/// What the allocator, page tables and all rooms above are built on.
pub struct Mmu<M> {
    platform: Platform<M>,
    /// Cached translations, and the flushes owed for removed ones.
    pub tlb: Tlb,
}

impl<M> Mmu<M> {
    /// Whether each page is cleared when it is handed out.
    #[inline]
    pub(crate) fn clears_pages(&self) -> bool {
        self.knobs.get(Knob::InitOnAlloc) != 0
    }
}

impl<M> core::ops::Deref for Mmu<M> {
    type Target = Platform<M>;

    #[inline]
    fn deref(&self) -> &Platform<M> {
        &self.platform
    }
}

impl<M: Machine> Mmu<M> {
    /// An empty state: nothing is mapped or owed.
    pub fn new(machine: M, knobs: Knobs) -> Mmu<M> {
        let platform = Platform::new(machine, knobs);
        let machine = &platform.machine;
        let tlb = Tlb::new(machine.cpus(), machine.asids(), machine.memory().len());
        Mmu { platform, tlb }
    }
}
