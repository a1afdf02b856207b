//! Transfers: the right data, to the right place, completed once.
//!
//! The suite watches them, so that the kernel does not report them to the memory manager.

use crate::harness::{Harness, Scratch};
use crate::kit::{Kit, ensure};
use crate::raw::{LoadedRoot, ORDINARY, Tree};
use crate::report::{NotPassed, Verdict};
use mm::machine::{Asid, Io, Machine, WaitKey};
use mm::units::*;
use std_alloc::vec::Vec;

/// Blocks that the checks use.
const BLOCKS: u64 = 256;
/// Between two looks at whether a transfer has ended.
const POLL: Nanos = 1_000_000;

/// A device and frames to transfer, mapped on this CPU.
struct Buffer<'k, H: Harness> {
    kit: &'k Kit<'k, H>,
    tree: Tree<'k, H>,
    scratch: Scratch,
    _loaded: LoadedRoot<'k, H>,
}

impl<'k, H: Harness> Buffer<'k, H> {
    fn new(kit: &'k Kit<'k, H>) -> Result<Buffer<'k, H>, NotPassed> {
        let tree = Tree::new(kit)?;
        let _loaded = tree.load_root(Asid(0), false);
        Ok(Buffer { kit, tree, scratch: scratch(kit)?, _loaded })
    }

    /// Map a block of frames at page `index` and after it.
    fn map_block(&self, index: usize, order: Order) -> Result<Pfn, NotPassed> {
        let head = self.tree.frames.take(order)?;
        (0..order.frames()).for_each(|i| self.tree.map(index + i as usize, head.add(i), ORDINARY));
        Ok(head)
    }

    fn submit(&self, write: bool, block: u64, frame: Pfn, pages: u32) -> Io {
        let Scratch { device, block: first, .. } = self.scratch;
        let io = Io { device, write, block: first + block, frame, pages, continues: false };
        self.kit.harness.watch().expect(io);
        self.kit.machine().submit(io);
        io
    }

    /// Sleep until a transfer has ended. A machine that merges transfers sees that a task waits.
    fn wait(&self, io: Io) -> Verdict {
        let (machine, watch) = (self.kit.machine(), self.kit.harness.watch());
        let end = machine.now().saturating_add(self.kit.harness.patience());
        while watch.ends(&io) == 0 {
            ensure!(machine.now() <= end, "{io:?} never completes");
            machine.wait(machine.ticket(WaitKey::Frame(io.frame)), Some(machine.now() + POLL));
        }
        Ok(())
    }

    fn transfer(&self, write: bool, block: u64, frame: Pfn, pages: u32) -> Verdict {
        let io = self.submit(write, block, frame, pages);
        self.wait(io)
    }
}

fn scratch<H: Harness>(kit: &Kit<'_, H>) -> Result<Scratch, NotPassed> {
    match kit.harness.scratch() {
        None => Err(NotPassed::Skipped("the kernel has no scratch device")),
        Some(scratch) if scratch.blocks < BLOCKS => {
            Err(NotPassed::Skipped("the scratch device has fewer than 256 blocks"))
        }
        Some(scratch) => Ok(scratch),
    }
}

/// Pages read back as they were written, one at a time, from each CPU.
pub(crate) fn reads_back<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    kit.on_each_in_turn(|cpu| {
        let buffer = Buffer::new(kit)?;
        let (from, to) = (buffer.map_block(0, Order::ZERO)?, buffer.map_block(1, Order::ZERO)?);
        for block in [0, 1, BLOCKS - 1] {
            let seed = u64::from(cpu.0) * BLOCKS + block + 1;
            buffer.tree.fill(0, seed)?;
            buffer.transfer(true, block, from, 1)?;
            // A write that has ended is on the device, so the frame may change.
            buffer.tree.fill(0, 0)?;
            buffer.tree.fill(1, 0)?;
            buffer.transfer(false, block, to, 1)?;
            buffer.tree.holds(1, seed, 0)?;
        }
        Ok(())
    })
}

/// One transfer of many pages keeps their order and leaves the blocks and frames around them alone.
pub(crate) fn neighbours<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    kit.on(CpuId(0), || {
        let buffer = Buffer::new(kit)?;
        let (from, to) = (buffer.map_block(0, Order(4))?, buffer.map_block(16, Order(4))?);
        for page in 0..16 {
            buffer.tree.fill(page, 1)?;
        }
        buffer.transfer(true, 32, from, 16)?;
        for page in 0..16 {
            buffer.tree.fill(page, 2)?;
        }
        // Blocks 36 to 43, from frames 4 to 11.
        buffer.transfer(true, 36, from.add(4), 8)?;
        for page in 16..32 {
            buffer.tree.fill(page, 3)?;
        }
        buffer.transfer(false, 33, to.add(1), 14)?;
        for page in 16..32 {
            let (seed, of) = match page {
                16 | 31 => (3, page),
                20..28 => (2, page - 16),
                _ => (1, page - 16),
            };
            buffer.tree.holds(page, seed, of)?;
        }
        Ok(())
    })
}

/// Many transfers at a time, from all CPUs: each completes, once.
pub(crate) fn many<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    scratch(kit)?;
    let cpus = kit.cpus();
    let each = (BLOCKS as usize / cpus.len()).clamp(1, 64);
    let users = &cpus[..cpus.len().min(BLOCKS as usize / each)];
    kit.on_each(users, |cpu| {
        let buffer = Buffer::new(kit)?;
        let frames =
            (0..each).map(|index| buffer.map_block(index, Order::ZERO)).collect::<Result<Vec<_>, _>>()?;
        let block = |index: usize| (cpu.index() * each + index) as u64;
        let seed = 100 + u64::from(cpu.0);
        for index in 0..each {
            buffer.tree.fill(index, seed)?;
        }
        let all = |write: bool| {
            // From both ends, so that a machine may merge neighbours but need not.
            let order = (0..each).map(|i| if i % 2 == 0 { i / 2 } else { each - 1 - i / 2 });
            let submitted: Vec<Io> = order.map(|i| buffer.submit(write, block(i), frames[i], 1)).collect();
            submitted.iter().try_for_each(|&io| buffer.wait(io))?;
            Ok(submitted)
        };
        let written = all(true)?;
        for index in 0..each {
            buffer.tree.fill(index, 0)?;
        }
        let read = all(false)?;
        for index in 0..each {
            buffer.tree.holds(index, seed, index)?;
        }
        // Long enough for a second completion.
        kit.machine().wait(kit.machine().ticket(WaitKey::Timer), Some(kit.machine().now() + 5 * POLL));
        for io in written.iter().chain(&read) {
            let ends = kit.harness.watch().ends(io);
            ensure!(ends == 1, "{io:?} completed {ends} times");
        }
        Ok(())
    })
}
