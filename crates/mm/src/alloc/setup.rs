//! Building zones from the machine's memory, and the numbers that follow from knobs.

use super::Allocator;
use super::buddy::LockedZone;
use super::dense::Dense;
use super::kswapd::NodeRequests;
use super::pcp::Pcp;
use super::watermark::{MarkInput, PcpSizes, Watermark, default_min_free_kbytes, marks, pcp_sizes};
use super::zone::{KINDS, Zone};
use super::zonelist::Zonelists;
use crate::frame::FrameFlags;
use crate::knobs::{AllocPlacement, Knob};
use crate::lock::Lock;
use crate::machine::{Machine, MemoryRange, ZoneKind};
use crate::mmu::Mmu;
use crate::primitive::AtomicU64;
use crate::units::*;
use core::fmt;
use std_alloc::boxed::Box;

/// The machine's memory cannot be managed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LayoutError {
    /// There is no memory.
    Empty,
    /// More than 255 ranges.
    TooMany {
        /// Number of ranges.
        ranges: usize,
    },
    /// A range does not start at a multiple of the largest block, or has no frames.
    Shape(MemoryRange),
    /// A range starts before the end of the one before it.
    Order(MemoryRange),
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LayoutError::Empty => write!(f, "the machine has no memory"),
            LayoutError::TooMany { ranges } => {
                write!(f, "{ranges} memory ranges; at most 255 can be managed")
            }
            LayoutError::Shape(range) => write!(
                f,
                "memory range of {} frames at {}: it must have frames, and start at a multiple of {}",
                range.frames,
                range.start,
                MAX_ORDER.frames()
            ),
            LayoutError::Order(range) => {
                write!(f, "memory range at {} starts before the one listed ahead of it ends", range.start)
            }
        }
    }
}

impl core::error::Error for LayoutError {}

fn check(ranges: &[MemoryRange]) -> Result<(), LayoutError> {
    match ranges.len() {
        0 => return Err(LayoutError::Empty),
        1..=255 => {}
        ranges => return Err(LayoutError::TooMany { ranges }),
    }
    let mut end = 0;
    for range in ranges {
        if range.frames == 0 || range.start.align_down(MAX_ORDER) != range.start {
            return Err(LayoutError::Shape(*range));
        }
        if range.start.0 < end {
            return Err(LayoutError::Order(*range));
        }
        end = range.start.0 + range.frames;
    }
    Ok(())
}

/// Whether [`Allocator::set_watermarks`] uses the knob.
pub(crate) fn sets_watermarks(knob: Knob) -> bool {
    matches!(
        knob,
        Knob::MinFreeKbytes
            | Knob::WatermarkScaleFactor
            | Knob::LowmemReserveRatio
            | Knob::PercpuPagelistHighFraction
    )
}

impl Allocator {
    /// Take over all memory of the machine. Frames outside of all ranges are marked RESERVED; of the others only one
    /// record in 1024 is written.
    pub fn new<M: Machine>(mmu: &Mmu<M>) -> Result<Allocator, LayoutError> {
        let ranges = mmu.machine.memory();
        check(ranges)?;
        let zones: Box<[Zone]> =
            ranges.iter().enumerate().map(|(i, range)| Zone::new(ZoneId(i as u8), range)).collect();
        let mut hole = Pfn(0);
        for zone in &zones {
            for pfn in (hole.0..zone.start().0).map(Pfn) {
                mmu.frames[pfn].assign(FrameFlags::RESERVED);
            }
            hole = zone.end();
            if mmu.knobs.placement() == AllocPlacement::Densest {
                zone.lists.lock().dense = Some(Box::new(Dense::new(zone.start(), zone.managed() as u32)));
            }
            LockedZone::lock(mmu, zone).populate();
        }
        let cpus = || (0..mmu.machine.cpus()).map(|cpu| mmu.machine.node_of(CpuId(cpu as u16)));
        let nodes = zones.iter().map(Zone::node).chain(cpus()).max().map_or(0, |node| node.index() + 1);
        let pcps =
            cpus().flat_map(|node| zones.iter().map(move |zone| Lock::new(Pcp::new(zone.node() == node))));
        let allocator = Allocator {
            pcps: pcps.collect(),
            drained: Lock::new(0),
            zonelists: Zonelists::new(&mmu.machine, &zones, nodes),
            nodes: (0..nodes).map(|_| NodeRequests::default()).collect(),
            holders: AtomicU64::new(1),
            zones,
        };
        allocator.set_watermarks(mmu);
        Ok(allocator)
    }

    /// Compute watermarks, lowmem reserves and the sizes of CPUs' lists from the knobs. Call this again after a knob
    /// that [`sets_watermarks`] has changed. Boosts end.
    pub(crate) fn set_watermarks<M: Machine>(&self, mmu: &Mmu<M>) {
        let total: u64 = self.zones.iter().map(Zone::managed).sum();
        let low_zones = self.zones.iter().filter(|zone| zone.kind() < ZoneKind::Movable);
        // A machine with only Movable zones still needs a share to compute gaps from.
        let lowmem = match low_zones.map(Zone::managed).sum() {
            0 => total,
            pages => pages,
        };
        let min_free_kbytes = match mmu.knobs.get(Knob::MinFreeKbytes) {
            0 => default_min_free_kbytes(lowmem * (PAGE_SIZE / 1024)),
            set => set,
        };
        let fraction = mmu.knobs.get(Knob::PercpuPagelistHighFraction);
        for zone in &self.zones {
            let input = MarkInput {
                kind: zone.kind(),
                managed: zone.managed(),
                lowmem,
                min_free: min_free_kbytes / (PAGE_SIZE / 1024),
                scale: mmu.knobs.get(Knob::WatermarkScaleFactor),
            };
            let held = zone.lists.lock();
            zone.set_marks(marks(input));
            zone.set_lowmem_reserve(self.lowmem_reserve_of(zone, mmu.knobs.get(Knob::LowmemReserveRatio)));
            drop(held);
            let cpus = self.cpus_near(mmu, zone.node());
            let sizes = pcp_sizes(zone.managed(), zone.bare_mark(Watermark::Low), cpus, fraction);
            // A page on a CPU's list is taken again wherever it is, so the lists are short if page blocks are to be
            // filled.
            let short = PcpSizes { high_min: sizes.batch * 2, high_max: sizes.batch * 2, ..sizes };
            zone.set_pcp_sizes(if zone.lists.lock().dense.is_some() { short } else { sizes });
            for cpu in 0..self.cpus() {
                self.pcp(CpuId(cpu as u16), zone.id()).lock().resize(&mmu.frames, zone.pcp_sizes());
            }
        }
    }

    /// The reserve that a zone keeps from requests that could use higher kinds on its node: a share of their memory.
    /// The knob is for DMA32; an ordinary zone keeps eight times the share, as with Linux's defaults of 256 and 32.
    fn lowmem_reserve_of(&self, zone: &Zone, ratio: u64) -> [u64; KINDS] {
        let ratio = if zone.kind() == ZoneKind::Dma32 { ratio } else { ratio.div_ceil(8) };
        [ZoneKind::Dma32, ZoneKind::Normal, ZoneKind::Movable].map(|highest| {
            let higher = self.zones_of(zone.node(), highest).filter(|other| other.kind() > zone.kind());
            higher.map(Zone::managed).sum::<u64>().checked_div(ratio).unwrap_or(0)
        })
    }

    /// CPUs that share a node's memory: its own, or all if it has none.
    fn cpus_near<M: Machine>(&self, mmu: &Mmu<M>, node: NodeId) -> u64 {
        let own = (0..self.cpus()).filter(|&cpu| mmu.machine.node_of(CpuId(cpu as u16)) == node).count();
        (if own == 0 { self.cpus() } else { own }) as u64
    }
}
