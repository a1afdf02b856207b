//! One simulated CPU: its clock, its translation hardware, and what these count.

use crate::device::{Plug, Request};
use crate::tlb::{MAX_ASIDS, Tlb, TlbSpec};
use mm::machine::{Asid, Flush};
use mm::units::{Pfn, SpaceId};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// Where a CPU's clock ends, in picoseconds: 53 days. What one access or call adds beyond it still fits into 64 bits,
/// since no cost is above a millisecond (see `spec/check.rs`) and no access counts above 2^32.
pub(crate) const END: u64 = 1 << 62;

/// What a CPU's kernel time is accounted to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    /// System calls and faults of programs, and task switches.
    System,
    /// kswapd.
    Kswapd,
    /// The flusher.
    Flusher,
    /// Interrupts from other CPUs and from devices.
    Interrupt,
}

impl Class {
    /// All classes, in the order of their values.
    pub(crate) const ALL: [Class; 4] = [Class::System, Class::Kswapd, Class::Flusher, Class::Interrupt];
}

/// What a CPU's translation hardware has counted.
#[derive(Default)]
pub(crate) struct CpuCounts {
    pub(crate) dtlb_misses: Cell<u64>,
    pub(crate) itlb_misses: Cell<u64>,
    pub(crate) walks: Cell<u64>,
    pub(crate) walk_steps: Cell<u64>,
    pub(crate) ipis_sent: Cell<u64>,
    pub(crate) ipis_received: Cell<u64>,
    pub(crate) rounds: Cell<u64>,
    pub(crate) switches: Cell<u64>,
}

/// Add `count` to a counter.
#[inline(always)]
pub(crate) fn add(counter: &Cell<u64>, count: u64) {
    counter.set(counter.get().wrapping_add(count));
}

/// One CPU.
pub(crate) struct Cpu {
    /// Picoseconds.
    pub(crate) clock: Rc<Cell<u64>>,
    pub(crate) tlb: Tlb,
    /// The root of the page tables that are loaded, and their address-space number.
    pub(crate) root: Cell<Pfn>,
    pub(crate) asid: Cell<Asid>,
    /// The root that each number was loaded with last.
    pub(crate) roots: [Cell<Pfn>; MAX_ASIDS],
    /// Whether a broadcast has since dropped what the number had cached.
    pub(crate) dropped: [Cell<bool>; MAX_ASIDS],
    /// The space that the scheduler last loaded.
    pub(crate) loaded: Cell<Option<SpaceId>>,
    pub(crate) counts: CpuCounts,
    /// When its clock ticks next, if ticks do anything.
    pub(crate) next_tick: Cell<u64>,
    pub(crate) plug: RefCell<Plug>,
    /// Requests that have left the plug and not arrived at their devices, the oldest first.
    pub(crate) sent: RefCell<VecDeque<Vec<Request>>>,
    /// Picoseconds in the kernel, by class.
    pub(crate) kernel: [Cell<u64>; Class::ALL.len()],
    pub(crate) node: u8,
}

impl Cpu {
    /// A CPU of `node` that has run nothing yet.
    pub(crate) fn new(clock: Rc<Cell<u64>>, node: u8, tlb: &TlbSpec) -> Cpu {
        Cpu {
            clock,
            tlb: Tlb::new(tlb),
            root: Cell::new(Pfn::NONE),
            asid: Cell::default(),
            roots: [const { Cell::new(Pfn::NONE) }; MAX_ASIDS],
            dropped: Default::default(),
            loaded: Cell::new(None),
            counts: CpuCounts::default(),
            next_tick: Cell::new(0),
            plug: RefCell::default(),
            sent: RefCell::default(),
            kernel: Default::default(),
            node,
        }
    }

    /// Drop translations of the tables under `root`: now if they are loaded, else all of them when they are next.
    pub(crate) fn drop_of(&self, root: Pfn, what: Flush) {
        if self.root.get() == root {
            self.tlb.flush(what);
        }
        let loaded = (self.root.get() == root).then_some(self.asid.get().0 as usize);
        let numbers = self.roots.iter().zip(&self.dropped).enumerate();
        let unloaded = numbers.filter(|(asid, (other, _))| other.get() == root && loaded != Some(*asid));
        unloaded.for_each(|(_, (_, dropped))| dropped.set(true));
    }

    /// Time passes on this CPU. (64 bits of picoseconds are 213 days, so no sum here checks for overflow.)
    #[inline(always)]
    pub(crate) fn spend(&self, picos: u64) {
        add(&self.clock, picos);
    }

    /// Time passes for kernel work.
    #[inline(always)]
    pub(crate) fn spend_kernel(&self, class: Class, picos: u64) {
        self.spend(picos);
        add(&self.kernel[class as usize], picos);
    }
}
