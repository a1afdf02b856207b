//! Fragments memory before the program begins, into a described state, and checks the result.
//!
//! Results for compaction depend on the state of memory that it begins with, and every paper creates that in its own
//! way. Here the state is described ([`Fragmentation`]: how much is free, in blocks of which sizes, and which page
//! blocks are reserved for unmovable memory), created frame by frame, and recorded before and after. If memory is not
//! in that state within 5 %, the run ends with an error.
//!
//! The frames in use are held for the whole run, as by a program that sleeps: in page blocks of the movable type they
//! are private anonymous pages of a separate process, which can be moved and swapped out; in page blocks of the other
//! types they are kernel frames, which are neither moved nor reclaimed. It takes no time and is not counted.
//!
//! [`kernels`] takes what the kernel has from boot on, before that and in every run.

pub(crate) mod kernels;
mod plan;
mod state;
pub(crate) mod target;

pub use state::{MemoryState, ZoneState};

use crate::machine::SimMachine;
use mm::Mm;
use mm::alloc::{Watermark, Zone};
use mm::api::{AccessKind, Advice, Backing, MapRequest, Prot};
use mm::frame::Mobility;
use mm::machine::ZoneKind;
use mm::stat::Stat;
use mm::units::{GroupId, PAGEBLOCK_ORDER, Pfn, SpaceId, TABLE_ENTRIES, Vpn, ZoneId};
use plan::LARGEST;
use program::rng::Rng;
use target::{Fragmentation, ORDERS, Pieces};

/// Frames in a page block.
const BLOCK: usize = PAGEBLOCK_ORDER.frames() as usize;
/// Frames that stay in use in a 2 MiB block that Quicksilver's program breaks: the last 64 KiB.
const KEPT: usize = 16;
/// How far memory may be from the wanted state, as a part of it.
const TOLERANCE: f64 = 0.05;
/// Where the memory of the holding process begins.
const HOLDER: Vpn = Vpn(1 << 20);

/// A state of memory that was created.
#[derive(Clone, PartialEq, Debug)]
pub struct Fragmented {
    /// The description.
    pub asked: String,
    /// Memory at start.
    pub before: MemoryState,
    /// Memory when the program began.
    pub after: MemoryState,
    /// Frames that are held: movable ones, and others.
    pub held: [u64; 2],
}

/// Bring memory into the state. The error says in one line why that is impossible.
pub(crate) fn fragment(mm: &Mm<SimMachine>, target: &Fragmentation, seed: u64) -> Result<Fragmented, String> {
    let fails = |why: String| format!("fragment: {target} cannot be reached: {why}");
    mm.drain_lists();
    let before = MemoryState::of(mm);
    let mut maker = Maker::new(mm, target, seed);
    uncounted(mm, || maker.make().map(|()| mm.drain_lists())).map_err(fails)?;
    let after = MemoryState::of(mm);
    maker.check(&after).map_err(fails)?;
    Ok(Fragmented { asked: target.text().to_owned(), before, after, held: maker.held })
}

/// Do `work` without any event being counted.
fn uncounted<T>(mm: &Mm<SimMachine>, work: impl FnOnce() -> T) -> T {
    let stats = &mm.mmu().stats;
    let counted: Vec<(Stat, i64)> =
        Stat::ALL.iter().filter(|stat| !stat.is_level()).map(|&stat| (stat, stats.read(stat))).collect();
    let result = work();
    counted.iter().for_each(|&(stat, count)| mm.mmu().count(stat, count - stats.read(stat)));
    result
}

/// How many pages of free memory must be in blocks of these orders.
struct Claim {
    what: String,
    orders: std::ops::Range<usize>,
    pages: u64,
}

struct Maker<'a> {
    mm: &'a Mm<SimMachine>,
    target: &'a Fragmentation,
    rng: Rng,
    /// The number of each zone's first frame: a multiple of the largest block, with one numbering for all zones.
    firsts: Vec<usize>,
    frames: usize,
    claims: Vec<Claim>,
    /// Page blocks that the kernel had before.
    kernels: u64,
    held: [u64; 2],
}

impl<'a> Maker<'a> {
    fn new(mm: &'a Mm<SimMachine>, target: &'a Fragmentation, seed: u64) -> Maker<'a> {
        let mut frames = 0;
        let firsts = zones(mm).iter().map(|zone| {
            let first = frames;
            frames += (zone.managed() as usize).next_multiple_of(LARGEST);
            first
        });
        let firsts = firsts.collect();
        let rng = Rng::new(seed ^ 0x6672_6167);
        Maker { mm, target, rng, firsts, frames, claims: Vec::new(), kernels: 0, held: [0; 2] }
    }

    fn make(&mut self) -> Result<(), String> {
        let most = match self.target.pieces {
            Pieces::Quicksilver { whole, of } => self.broken(whole, of)?.len() * KEPT,
            _ => {
                self.frames
                    - self.wanted()?.iter().enumerate().map(|(order, n)| (n << order) as usize).sum::<usize>()
            }
        };
        let space = self.holder(most)?;
        self.mm.drain_lists();
        // The tables of the holding process are in use now.
        let frames = match self.target.pieces {
            Pieces::Quicksilver { whole, of } => self.break_blocks(whole, of)?,
            _ => self.planned()?,
        };
        let groups = self.groups(&frames)?;
        self.take(&frames, &groups, space)
    }

    // --- choosing frames ------------------------------------------------------------------------------------

    /// The wanted number of free blocks of each order.
    fn wanted(&self) -> Result<[u64; ORDERS], String> {
        let all: u64 = zones(self.mm).iter().map(Zone::managed).sum();
        let free =
            self.target.free.expect("only Quicksilver's states have no share of free memory") * all as f64;
        let there = self.mm.free_pages();
        if free > there as f64 {
            return Err(format!("{free:.0} pages are to be free, and at start {there} are"));
        }
        let least: u64 = zones(self.mm).iter().map(|zone| zone.mark(Watermark::High)).sum();
        if free < least as f64 {
            return Err(format!(
                "{free:.0} pages are to be free, which is below the high watermarks, {least}"
            ));
        }
        Ok(match self.target.pieces {
            Pieces::Orders(shares) => {
                std::array::from_fn(|order| (free * shares[order] / (1 << order) as f64).round() as u64)
            }
            Pieces::Unusable(share) => {
                let whole = (free * (1.0 - share) / BLOCK as f64).round() as u64;
                let blocks = (self.frames / BLOCK) as u64 - whole;
                plan::random_blocks(
                    (self.frames / LARGEST) as u64,
                    blocks,
                    self.frames as u64 - free.round() as u64,
                )
            }
            Pieces::Quicksilver { .. } => unreachable!("its blocks are broken one by one"),
        })
    }

    fn planned(&mut self) -> Result<Vec<usize>, String> {
        let wanted = self.wanted()?;
        let claim = |what: String, orders, pages| Claim { what, orders, pages };
        let pages = |orders: std::ops::Range<usize>| orders.map(|order| wanted[order] << order).sum();
        let each =
            |order: usize| claim(format!("of order {order}"), order..order + 1, pages(order..order + 1));
        self.claims = match self.target.pieces {
            Pieces::Orders(_) => (0..ORDERS).map(each).collect(),
            _ => [("in smaller blocks than 2 MiB", 0..9), ("in blocks of 2 MiB", 9..ORDERS)]
                .map(|(what, orders)| claim(what.into(), orders.clone(), pages(orders)))
                .into(),
        };
        plan::plan(&self.busy(), &wanted, &mut self.rng).map_err(|lack| {
            let plan::Unreachable { order, wanted, most } = lack;
            format!("{wanted} free blocks of order {order} are wanted, and beside the larger ones at most {most} can be")
        })
    }

    /// The free 2 MiB blocks to break, chosen at random.
    fn broken(&mut self, whole: f64, of: Option<u64>) -> Result<Vec<usize>, String> {
        let busy = self.busy();
        let mut blocks: Vec<usize> =
            (0..self.frames).step_by(BLOCK).filter(|&at| !busy[at..at + BLOCK].contains(&true)).collect();
        let there = blocks.len();
        let of = of.map_or(there, |bytes| bytes.div_ceil((BLOCK * 4096) as u64) as usize);
        let stay = (of as f64 * whole).round() as usize;
        if stay > there {
            return Err(format!("{stay} blocks of 2 MiB are to be free, and at start {there} are"));
        }
        self.rng.shuffle(&mut blocks);
        blocks.truncate(there - stay);
        Ok(blocks)
    }

    fn break_blocks(&mut self, whole: f64, of: Option<u64>) -> Result<Vec<usize>, String> {
        let state = MemoryState::of(self.mm);
        let there = |orders| state.free_in(orders);
        let blocks = self.broken(whole, of)?;
        let broken = blocks.len() as u64;
        let claim = |what: String, orders, pages| Claim { what, orders, pages };
        self.claims = vec![
            claim("in smaller blocks than 64 KiB".into(), 0..4, there(0..4)),
            claim("in blocks of 2 MiB".into(), 9..ORDERS, there(9..ORDERS) - broken * BLOCK as u64),
        ];
        self.claims.extend((4..9).map(|order| {
            claim(format!("of order {order}"), order..order + 1, there(order..order + 1) + (broken << order))
        }));
        let mut frames: Vec<usize> = blocks.iter().flat_map(|at| at + BLOCK - KEPT..at + BLOCK).collect();
        frames.sort_unstable();
        Ok(frames)
    }

    /// For each number, whether that frame is not free or does not exist.
    fn busy(&self) -> Vec<bool> {
        let mut busy = vec![true; self.frames];
        for (zone, &first) in zones(self.mm).iter().zip(&self.firsts) {
            let mut at = zone.start();
            while at < zone.end() {
                let order = self.mm.core().alloc.free_block_at(self.mm.mmu(), zone.id(), at);
                let pages = order.map_or(1, |order| order.frames()) as usize;
                let place = first + (at.0 - zone.start().0) as usize;
                busy[place..place + pages].fill(order.is_none());
                at = at.add(pages as u32);
            }
        }
        busy
    }

    // --- holding them -------------------------------------------------------------------------------------

    /// The process that will hold up to `pages` movable frames, with its page tables.
    fn holder(&self, pages: usize) -> Result<Option<SpaceId>, String> {
        if pages == 0 {
            return Ok(None);
        }
        let short = |_| "memory is too small for the process that holds it".to_string();
        let space = self.mm.create_space(GroupId(0)).map_err(short)?;
        // The first page of each table maps the zero page, which creates the table.
        let tables = pages.div_ceil(TABLE_ENTRIES - 1) as u64;
        let pages = tables * TABLE_ENTRIES as u64;
        let request = MapRequest {
            at: Some(HOLDER),
            pages,
            prot: Prot::READ | Prot::WRITE,
            backing: Backing::Anonymous,
            locked: false,
            populate: false,
        };
        self.mm.mmap(space, &request).map_err(short)?;
        self.mm.madvise(space, HOLDER, pages, Advice::NoHugePage).map_err(short)?;
        for table in 0..tables {
            let page = Vpn(HOLDER.0 + table * TABLE_ENTRIES as u64);
            self.mm.fault(space, page, AccessKind::Load).map_err(|_| short(mm::api::Error::NoMemory))?;
        }
        Ok(Some(space))
    }

    /// The mobility type of each page block, if these frames are held.
    fn groups(&mut self, frames: &[usize]) -> Result<Vec<Mobility>, String> {
        let mut groups = vec![Mobility::Movable; self.frames / BLOCK];
        let (mut open, mut total, mut kernels) = (Vec::new(), 0, 0);
        for (zone, &first) in zones(self.mm).iter().zip(&self.firsts) {
            for pfn in (zone.start().0..zone.end().0).step_by(BLOCK).map(Pfn) {
                let block = (first + (pfn.0 - zone.start().0) as usize) / BLOCK;
                let held = frames.partition_point(|&frame| frame < block * BLOCK)
                    < frames.partition_point(|&frame| frame < (block + 1) * BLOCK);
                let whole = pfn.add(BLOCK as u32) <= zone.end();
                let is_kernels = zone.mobility_of(pfn) != Mobility::Movable && self.has_used(zone, pfn);
                total += 1;
                if is_kernels {
                    groups[block] = Mobility::Unmovable;
                    kernels += 1;
                } else if held && whole && zone.kind() < ZoneKind::Movable {
                    open.push(block);
                }
            }
        }
        self.kernels = kernels as u64;
        self.rng.shuffle(&mut open);
        let [unmovable, reclaimable] = [self.target.unmovable, self.target.reclaimable]
            .map(|share| (share * f64::from(total)).round() as usize);
        let more = unmovable.saturating_sub(kernels);
        if more + reclaimable > open.len() {
            return Err(format!(
                "{unmovable} page blocks are to be unmovable and {reclaimable} reclaimable, and there is something to be held in {} only",
                open.len() + kernels
            ));
        }
        open[..more].iter().for_each(|&block| groups[block] = Mobility::Unmovable);
        open[more..more + reclaimable].iter().for_each(|&block| groups[block] = Mobility::Reclaimable);
        Ok(groups)
    }

    /// Whether a frame of this page block is in use.
    fn has_used(&self, zone: &Zone, block: Pfn) -> bool {
        let free = |pfn: Pfn| self.mm.core().alloc.free_block_at(self.mm.mmu(), zone.id(), pfn);
        free(block).is_none_or(|order| order < PAGEBLOCK_ORDER)
            && free(block.align_down(mm::units::MAX_ORDER)).is_none_or(|order| order < mm::units::MAX_ORDER)
    }

    fn take(&mut self, frames: &[usize], groups: &[Mobility], space: Option<SpaceId>) -> Result<(), String> {
        let mut pages = (0..)
            .filter(|page: &u64| !page.is_multiple_of(TABLE_ENTRIES as u64))
            .map(|page| Vpn(HOLDER.0 + page));
        for &frame in frames {
            let (zone, pfn) = self.place(frame);
            let group = groups[frame / BLOCK];
            let taken = match (group, space) {
                (Mobility::Movable, Some(space)) => self.mm.map_frame(
                    zone,
                    pfn,
                    space,
                    pages.next().expect("the pages of the holding process do not end"),
                ),
                _ => self.mm.keep_frame(zone, pfn, group),
            };
            if !taken {
                return Err(format!("frame {pfn} was not free when its turn came"));
            }
            self.held[usize::from(group != Mobility::Movable)] += 1;
        }
        Ok(())
    }

    fn place(&self, frame: usize) -> (ZoneId, Pfn) {
        let zone = &zones(self.mm)[self.firsts.partition_point(|&first| first <= frame) - 1];
        (zone.id(), zone.start().add((frame - self.firsts[zone.id().index()]) as u32))
    }

    // --- checking ---------------------------------------------------------------------------------------

    /// Check that memory is in the wanted state. One block more or less is allowed.
    fn check(&self, state: &MemoryState) -> Result<(), String> {
        let within = |what: String, got: u64, wanted: u64, unit: u64| {
            let slack = (wanted as f64 * TOLERANCE).max(unit as f64);
            let fits = (got as f64 - wanted as f64).abs() <= slack;
            fits.then_some(()).ok_or_else(|| format!("{what}: {got}, and {wanted} were wanted"))
        };
        let mut all = 0;
        for claim in &self.claims {
            let unit = 1 << (claim.orders.end - 1);
            all += claim.pages;
            within(
                format!("free pages {}", claim.what),
                state.free_in(claim.orders.clone()),
                claim.pages,
                unit,
            )?;
        }
        within("free pages".into(), state.free(), all, LARGEST as u64)?;
        let blocks = state.pageblocks();
        let total = blocks.iter().sum::<u64>() as f64;
        // The kernel's own memory is in unmovable page blocks, and may be more than wanted.
        let groups = [
            (Mobility::Unmovable, self.target.unmovable, self.kernels, (total * TOLERANCE).max(1.0)),
            (Mobility::Reclaimable, self.target.reclaimable, 0, 1.0),
        ];
        for (group, share, least, unit) in groups {
            let what = format!("{group:?} page blocks");
            within(what, blocks[group as usize], ((share * total).round() as u64).max(least), unit as u64)?;
        }
        Ok(())
    }
}

fn zones(mm: &Mm<SimMachine>) -> &[Zone] {
    mm.core().alloc.zones()
}
