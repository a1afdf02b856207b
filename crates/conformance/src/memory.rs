//! `zero`, `copy` and `table` reach the memory that programs reach.

use crate::harness::Harness;
use crate::kit::{Kit, ensure};
use crate::raw::{ORDINARY, Tree};
use crate::report::{NotPassed, Verdict};
use mm::machine::{Asid, Machine};
use mm::primitive::{AtomicU32, Ordering::*};
use mm::units::*;

/// A block of frames, all of them mapped and filled.
const BLOCK: Order = Order(3);

/// Two filled blocks, mapped one after the other. Returns their heads.
fn two_blocks<H: Harness>(tree: &Tree<'_, H>) -> Result<[Pfn; 2], NotPassed> {
    let blocks = [tree.frames.take(BLOCK)?, tree.frames.take(BLOCK)?];
    for (number, head) in blocks.into_iter().enumerate() {
        for i in 0..BLOCK.frames() {
            let index = number * BLOCK.frames() as usize + i as usize;
            tree.map(index, head.add(i), ORDINARY);
            tree.fill(index, 1)?;
        }
    }
    Ok(blocks)
}

pub(crate) fn zero<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    kit.on_each_in_turn(|_| {
        let tree = Tree::new(kit)?;
        let _loaded = tree.load_root(Asid(0), false);
        let [first, _] = two_blocks(&tree)?;
        kit.machine().zero(first.add(1), 1);
        kit.machine().zero(first.add(4), 3);
        for index in 0..BLOCK.frames() as usize {
            match index {
                1 | 4 | 5 | 6 => tree.holds_zeroes(index)?,
                _ => tree.holds(index, 1, index)?,
            }
        }
        Ok(())
    })
}

pub(crate) fn copy<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    kit.on_each_in_turn(|_| {
        let tree = Tree::new(kit)?;
        let _loaded = tree.load_root(Asid(0), false);
        let [first, second] = two_blocks(&tree)?;
        kit.machine().copy(second.add(2), first.add(5), 1);
        kit.machine().copy(second.add(4), first, 3);
        for index in 0..2 * BLOCK.frames() as usize {
            let from = match index {
                10 => 5,
                12..15 => index - 12,
                _ => index,
            };
            tree.holds(index, 1, from)?;
        }
        Ok(())
    })
}

pub(crate) fn table<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    kit.on_each_in_turn(|_| {
        let tree = Tree::new(kit)?;
        let _loaded = tree.load_root(Asid(0), false);
        let pfn = tree.map_new(0, 1)?;
        tree.fill(0, 2)?;
        kit.machine().zero(pfn, 1);
        let used = kit.machine().table(pfn).iter().position(|entry| entry.load(Acquire) != 0);
        ensure!(used.is_none(), "table() of a frame that was zeroed shows an entry {used:?}");
        for (index, entry) in kit.machine().table(pfn).iter().enumerate() {
            // Not present, so hardware ignores it.
            entry.store((index as u64 + 1) << PAGE_SHIFT, Release);
        }
        for (index, entry) in kit.machine().table(pfn).iter().enumerate() {
            let held = entry.load(Acquire) >> PAGE_SHIFT;
            ensure!(
                held == index as u64 + 1,
                "entry {index} of a table was stored as {}, is {held}",
                index + 1
            );
        }
        kit.machine().zero(pfn, 1);
        tree.holds_zeroes(0)
    })
}

pub(crate) fn seen_by_all<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    let cpus = kit.cpus();
    let tree = Tree::new(kit)?;
    let frame = tree.frames.one()?;
    kit.machine().zero(frame, 1);
    tree.map(0, frame, ORDINARY);
    let turn = AtomicU32::new(0);
    let rounds = kit.times(16) * cpus.len() as u32;
    kit.on_each(&cpus, |cpu| {
        let _loaded = tree.load_root(Asid(0), false);
        let mine = |turn: u32| turn as usize % cpus.len() == cpu.index();
        loop {
            let mut now = 0;
            let came = kit.until(|| {
                now = turn.load(Acquire);
                now >= rounds || mine(now)
            });
            ensure!(came, "{cpu} never gets its turn");
            if now >= rounds {
                return Ok(());
            }
            let got = tree.load(0);
            ensure!(got == Some(u64::from(now)), "{cpu} reads {got:x?}, the CPU before stored {now:x}");
            ensure!(tree.store(0, u64::from(now) + 1), "a store of {cpu} faults");
            turn.store(now + 1, Release);
        }
    })
}
