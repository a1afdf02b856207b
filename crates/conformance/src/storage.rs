//! Transfers: the right data, to the right place, told once.
//!
//! They are watched, so that the memory manager does not hear of them.

use crate::harness::{Harness, Scratch};
use crate::kit::{Kit, ensure};
use crate::raw::{Loaded, ORDINARY, Tree};
use crate::report::{Stop, Verdict};
use mm::machine::{Asid, Io, Machine, WaitKey};
use mm::units::*;
use std_alloc::vec::Vec;

/// Blocks that the checks use.
const BLOCKS: u64 = 256;
/// Between two looks whether a transfer has ended.
const LOOK: Nanos = 1_000_000;

/// A buffer of frames that is mapped, and a device.
struct Desk<'k, H: Harness> {
    kit: &'k Kit<'k, H>,
    tree: Tree<'k, H>,
    scratch: Scratch,
    _loaded: Loaded<'k, H>,
}

impl<'k, H: Harness> Desk<'k, H> {
    fn new(kit: &'k Kit<'k, H>) -> Result<Desk<'k, H>, Stop> {
        let tree = Tree::new(kit)?;
        let _loaded = tree.load_root(Asid(0), false);
        Ok(Desk { kit, tree, scratch: scratch(kit)?, _loaded })
    }

    /// Map a block of frames from page `index` on.
    fn block(&self, index: usize, order: Order) -> Result<Pfn, Stop> {
        let head = self.tree.frames.take(order)?;
        (0..order.frames()).for_each(|i| self.tree.map(index + i as usize, head.add(i), ORDINARY));
        Ok(head)
    }

    fn transfer(&self, write: bool, block: u64, frame: Pfn, pages: u32) -> Io {
        let Scratch { device, block: first, .. } = self.scratch;
        let io = Io { device, write, block: first + block, frame, pages };
        self.kit.harness.watch().expect(io);
        self.kit.machine().submit(io);
        io
    }

    /// Sleep until a transfer has ended. A machine that gathers transfers sees that somebody waits.
    fn end(&self, io: Io) -> Verdict {
        let (machine, watch) = (self.kit.machine(), self.kit.harness.watch());
        let end = machine.now().saturating_add(self.kit.harness.patience());
        while watch.ends(&io) == 0 {
            ensure!(machine.now() <= end, "the end of {io:?} is never told");
            machine.wait(machine.ticket(WaitKey::Frame(io.frame)), Some(machine.now() + LOOK));
        }
        Ok(())
    }

    fn done(&self, write: bool, block: u64, frame: Pfn, pages: u32) -> Verdict {
        let io = self.transfer(write, block, frame, pages);
        self.end(io)
    }
}

fn scratch<H: Harness>(kit: &Kit<'_, H>) -> Result<Scratch, Stop> {
    match kit.harness.scratch() {
        None => Err(Stop::Skipped("the kernel has no device for it")),
        Some(scratch) if scratch.blocks < BLOCKS => Err(Stop::Skipped("fewer than 256 blocks for it")),
        Some(scratch) => Ok(scratch),
    }
}

/// Pages come back as they were written, one at a time, from each CPU.
pub(crate) fn reads_back<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    kit.on_each_in_turn(|cpu| {
        let desk = Desk::new(kit)?;
        let (from, to) = (desk.block(0, Order::ZERO)?, desk.block(1, Order::ZERO)?);
        for block in [0, 1, BLOCKS - 1] {
            let seed = u64::from(cpu.0) * BLOCKS + block + 1;
            desk.tree.fill(0, seed)?;
            desk.done(true, block, from, 1)?;
            // What has ended is on the device: what becomes of the frame does not matter.
            desk.tree.fill(0, 0)?;
            desk.tree.fill(1, 0)?;
            desk.done(false, block, to, 1)?;
            desk.tree.holds(1, seed, 0)?;
        }
        Ok(())
    })
}

/// Many pages in one transfer, in order; blocks and frames beside them stay as they were.
pub(crate) fn neighbours<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    kit.on(CpuId(0), || {
        let desk = Desk::new(kit)?;
        let (from, to) = (desk.block(0, Order(4))?, desk.block(16, Order(4))?);
        for page in 0..16 {
            desk.tree.fill(page, 1)?;
        }
        desk.done(true, 32, from, 16)?;
        for page in 0..16 {
            desk.tree.fill(page, 2)?;
        }
        // Blocks 36 to 43, from frames 4 to 11.
        desk.done(true, 36, from.add(4), 8)?;
        for page in 16..32 {
            desk.tree.fill(page, 3)?;
        }
        desk.done(false, 33, to.add(1), 14)?;
        for page in 16..32 {
            let (seed, of) = match page {
                16 | 31 => (3, page),
                20..28 => (2, page - 16),
                _ => (1, page - 16),
            };
            desk.tree.holds(page, seed, of)?;
        }
        Ok(())
    })
}

/// Many at a time, from all CPUs; each ends, and is told once.
pub(crate) fn many<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    scratch(kit)?;
    let cpus = kit.cpus();
    let each = (BLOCKS as usize / cpus.len()).clamp(1, 64);
    let users = &cpus[..cpus.len().min(BLOCKS as usize / each)];
    kit.on_each(users, |cpu| {
        let desk = Desk::new(kit)?;
        let frames = (0..each).map(|index| desk.block(index, Order::ZERO)).collect::<Result<Vec<_>, _>>()?;
        let block = |index: usize| (cpu.index() * each + index) as u64;
        let seed = 100 + u64::from(cpu.0);
        for index in 0..each {
            desk.tree.fill(index, seed)?;
        }
        let all = |write: bool| {
            // Backwards and forwards, so that neighbours may but need not be put together.
            let order = (0..each).map(|i| if i % 2 == 0 { i / 2 } else { each - 1 - i / 2 });
            let begun: Vec<Io> = order.map(|i| desk.transfer(write, block(i), frames[i], 1)).collect();
            begun.iter().try_for_each(|&io| desk.end(io))?;
            Ok(begun)
        };
        let written = all(true)?;
        for index in 0..each {
            desk.tree.fill(index, 0)?;
        }
        let read = all(false)?;
        for index in 0..each {
            desk.tree.holds(index, seed, index)?;
        }
        // Long enough for a second end to be told.
        kit.machine().wait(kit.machine().ticket(WaitKey::Timer), Some(kit.machine().now() + 5 * LOOK));
        for io in written.iter().chain(&read) {
            let ends = kit.harness.watch().ends(io);
            ensure!(ends == 1, "the end of {io:?} is told {ends} times");
        }
        Ok(())
    })
}
