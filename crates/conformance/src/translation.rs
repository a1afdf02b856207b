//! One CPU's translations: what hardware does by itself, and that what was flushed is never used again.
//!
//! A CPU may drop a translation at any time, so no check asks that one is kept.

use crate::harness::Harness;
use crate::kit::{Kit, ensure};
use crate::raw::{Loaded, ORDINARY, Tree};
use crate::report::{Stop, Verdict};
use mm::machine::{Asid, Flush, Machine};
use mm::table::Bits;
use mm::units::*;
use std_alloc::vec::Vec;

const OLD: u64 = 0x01d;
const NEW: u64 = 0x4e3;

/// A flush of so many pages.
fn pages(start: Vpn, count: u32) -> Flush {
    Flush::Pages { start, count, stride: Order::ZERO }
}

/// On each CPU in turn: with a tree of its own loaded.
fn with_tree<H: Harness>(
    kit: &Kit<'_, H>,
    body: fn(&Kit<'_, H>, &Tree<'_, H>, &Loaded<'_, H>) -> Verdict,
) -> Verdict {
    kit.on_each_in_turn(|_| {
        let tree = Tree::new(kit)?;
        let loaded = tree.load_root(Asid(0), false);
        body(kit, &tree, &loaded)
    })
}

pub(crate) fn walk<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    with_tree(kit, |_, tree, _| {
        ensure!(tree.load(0).is_none(), "a load succeeds where nothing is mapped");
        ensure!(!tree.store(0, 1), "a store succeeds where nothing is mapped");
        for index in [0, 1, 255, 511] {
            // The faults before left nothing behind: who fills an entry that was empty does not flush.
            tree.map_new(index, index as u64 + 1)?;
        }
        for index in [0, 1, 255, 511] {
            let got = tree.load(index);
            ensure!(
                got == Some(index as u64 + 1),
                "page {index} reads {got:x?}, its frame holds {}",
                index + 1
            );
        }
        ensure!(tree.load(2).is_none(), "a load succeeds between mapped pages");
        Ok(())
    })
}

pub(crate) fn read_only<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    with_tree(kit, |kit, tree, _| {
        let frame = tree.map_new(0, OLD)?;
        for _ in 0..2 {
            tree.map(0, frame, ORDINARY.difference(Bits::WRITE));
            kit.machine().flush(pages(tree.page(0), 1));
            ensure!(tree.load(0) == Some(OLD), "a page cannot be read that may only be read");
            ensure!(!tree.store(0, NEW), "a store goes to a page that may only be read");
            ensure!(tree.load(0) == Some(OLD), "a store that faulted has changed the page");
            // More rights need no flush: at worst the store faults once, and that drops the translation.
            tree.map(0, frame, ORDINARY);
            let stored = tree.store(0, OLD) || tree.store(0, OLD);
            ensure!(stored, "a store faults again after its page was made writable and the fault taken");
        }
        Ok(())
    })
}

pub(crate) fn no_exec<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    if kit.harness.code().is_none() {
        return Err(Stop::Skipped("the kernel cannot make a CPU fetch"));
    }
    with_tree(kit, |kit, tree, _| {
        let frame = tree.map_new(0, kit.harness.code().unwrap_or_default())?;
        ensure!(kit.harness.fetch(tree.page(0)), "a page cannot be fetched from that may be");
        tree.map(0, frame, ORDINARY | Bits::NO_EXEC);
        kit.machine().flush(pages(tree.page(0), 1));
        ensure!(tree.load(0).is_some(), "a page cannot be read that may be read but not fetched from");
        ensure!(!kit.harness.fetch(tree.page(0)), "a page is fetched from that must not be");
        Ok(())
    })
}

pub(crate) fn kernel_only<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    if !kit.harness.has_program_rights() {
        return Err(Stop::Skipped("the kernel's accesses have the kernel's rights"));
    }
    with_tree(kit, |kit, tree, _| {
        let frame = tree.map_new(0, OLD)?;
        tree.map(0, frame, ORDINARY.difference(Bits::USER));
        kit.machine().flush(pages(tree.page(0), 1));
        ensure!(tree.load(0).is_none(), "a program reads a page that is not the user's");
        ensure!(!tree.store(0, NEW), "a program stores to a page that is not the user's");
        Ok(())
    })
}

pub(crate) fn young<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    with_tree(kit, |kit, tree, _| {
        let frame = tree.map_new(0, OLD)?;
        tree.map(0, frame, ORDINARY.difference(Bits::YOUNG));
        kit.machine().flush(pages(tree.page(0), 1));
        let got = tree.load(0);
        let entry = tree.entry(0);
        if kit.machine().has_hw_pte_young() {
            ensure!(got == Some(OLD), "a load of an old page reads {got:x?}, not {OLD:x}");
            ensure!(entry.has(Bits::YOUNG), "a load does not make its entry young: {entry:?}");
        } else {
            ensure!(got.is_none(), "a load of an old page succeeds, but the machine says that it faults");
            ensure!(
                !entry.has(Bits::YOUNG),
                "a load makes its entry young, but the machine says it does not"
            );
        }
        ensure!(!entry.has(Bits::DIRTY), "a load makes its entry dirty: {entry:?}");
        Ok(())
    })
}

pub(crate) fn dirty<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    with_tree(kit, |kit, tree, _| {
        let frame = tree.map_new(0, OLD)?;
        for round in 0..2 {
            tree.map(0, frame, ORDINARY);
            kit.machine().flush(pages(tree.page(0), 1));
            // The translation that the load leaves behind is not good enough for the store.
            ensure!(
                tree.load(0).is_some() && !tree.entry(0).has(Bits::DIRTY),
                "a load makes its entry dirty"
            );
            ensure!(tree.store(0, NEW + round), "a store to a writable page faults");
            ensure!(
                tree.entry(0).has(Bits::DIRTY),
                "a store does not make its entry dirty: {:?}",
                tree.entry(0)
            );
        }
        Ok(())
    })
}

pub(crate) fn young_tables<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    if !kit.machine().has_hw_nonleaf_young() {
        return Err(Stop::Skipped("the machine does not claim it"));
    }
    with_tree(kit, |kit, tree, _| {
        tree.map_new(0, OLD)?;
        for level in 1..4 {
            tree.set_way(level, ORDINARY.difference(Bits::YOUNG));
            kit.machine().flush(Flush::Current);
            ensure!(tree.load(0) == Some(OLD), "a page under an old table entry cannot be read");
            let way = tree.way(level);
            ensure!(way.has(Bits::YOUNG), "a load does not make the entry of level {level} young: {way:?}");
        }
        Ok(())
    })
}

/// All pages of the tree show one frame and have been used; now the tables show another.
fn turn_pages<H: Harness>(tree: &Tree<'_, H>, count: usize, from: Pfn, to: Pfn) {
    for index in 0..count {
        tree.map(index, from, ORDINARY);
        tree.load(index);
        tree.store(index, OLD);
    }
    (0..count).for_each(|index| tree.map(index, to, ORDINARY));
}

/// After `flush`, this CPU reads the new frame at every page of `range`, whatever the number of pages in use.
fn flushes<H: Harness>(
    kit: &Kit<'_, H>,
    tree: &Tree<'_, H>,
    what: Flush,
    range: core::ops::Range<usize>,
) -> Verdict {
    kit.machine().flush(Flush::All);
    let (old, new) = (tree.map_new(0, OLD)?, tree.map_new(1, NEW)?);
    kit.machine().flush(Flush::All);
    turn_pages(tree, range.end + 1, old, new);
    kit.machine().flush(what);
    for index in range {
        let got = tree.load(index);
        ensure!(got == Some(NEW), "after {what:?}, page {index} reads {got:x?}: a translation from before");
    }
    Ok(())
}

pub(crate) fn flush_pages<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    with_tree(kit, |kit, tree, _| {
        for (first, count) in [(0, 1), (1, 1), (3, 2), (1, 33), (0, 64)] {
            flushes(kit, tree, pages(tree.page(first), count as u32), first..first + count)?;
        }
        Ok(())
    })
}

pub(crate) fn flush_current<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    with_tree(kit, |kit, tree, _| flushes(kit, tree, Flush::Current, 0..100))
}

pub(crate) fn flush_all<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    with_tree(kit, |kit, tree, _| flushes(kit, tree, Flush::All, 0..100))
}

pub(crate) fn flush_tables<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    with_tree(kit, |kit, tree, _| {
        tree.map_new(0, OLD)?;
        let frame = tree.map_new(1, NEW)?;
        for what in [pages(tree.page(0), 1), Flush::Current, Flush::All] {
            let (before, after) = (tree.spare()?, tree.spare()?);
            tree.put(before, 0, tree.entry(0).pfn(), ORDINARY);
            tree.put(after, 0, frame, ORDINARY);
            tree.point(1, before);
            kit.machine().flush(Flush::All);
            ensure!(tree.load(0) == Some(OLD), "a page under another table cannot be read");
            tree.point(1, after);
            kit.machine().flush(what);
            let got = tree.load(0);
            ensure!(
                got == Some(NEW),
                "after {what:?}, a walk still goes through a table that was taken away"
            );
        }
        Ok(())
    })
}

pub(crate) fn load_root<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    with_tree(kit, |kit, tree, _| {
        tree.map_new(0, OLD)?;
        let other = Tree::new(kit)?;
        {
            let _loaded = other.load_root(Asid(0), false);
            other.map_new(0, NEW)?;
        }
        for _ in 0..3 {
            // As if nobody had cared for what is kept: `keep` is not said, so nothing must be.
            let _loaded = tree.load_root(Asid(0), false);
            let first = tree.load(0);
            kit.machine().load_root(other.root(), Asid(0), false);
            let second = other.load(0);
            let right = (first, second) == (Some(OLD), Some(NEW));
            ensure!(right, "two roots loaded in turn without keeping read {first:x?} and {second:x?}");
        }
        Ok(())
    })
}

pub(crate) fn no_asids<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    if kit.machine().asids() != 0 {
        return Err(Stop::Skipped("the machine has address-space numbers"));
    }
    with_tree(kit, |_, tree, _| {
        let (old, new) = (tree.map_new(0, OLD)?, tree.map_new(1, NEW)?);
        turn_pages(tree, 1, old, new);
        let _loaded = tree.load_root(Asid(0), true);
        ensure!(tree.load(0) == Some(NEW), "a translation outlives the load of a root");
        Ok(())
    })
}

/// A tree for each of some address-space numbers; page 0 of each holds its number.
fn forest<'k, H: Harness>(kit: &'k Kit<'k, H>) -> Result<Vec<Tree<'k, H>>, Stop> {
    let asids = kit.machine().asids();
    if asids < 2 {
        return Err(Stop::Skipped("the machine has no address-space numbers"));
    }
    let plant = |number: usize| {
        let tree = Tree::new(kit)?;
        let _loaded = tree.load_root(Asid(number as u16), false);
        tree.map_new(0, number as u64)?;
        Ok(tree)
    };
    (0..asids.min(16)).map(plant).collect()
}

pub(crate) fn asids<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    with_tree(kit, |kit, _, _| {
        let forest = forest(kit)?;
        for round in 0..3 {
            for (number, tree) in forest.iter().enumerate() {
                kit.machine().load_root(tree.root(), Asid(number as u16), round > 0);
                let got = tree.load(0);
                ensure!(got == Some(number as u64), "under number {number}, page 0 reads {got:x?}");
            }
        }
        Ok(())
    })
}

pub(crate) fn asids_flushed<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    with_tree(kit, |kit, _, _| {
        let forest = forest(kit)?;
        let (first, second) = (&forest[0], &forest[1]);
        let new = {
            let _loaded = first.load_root(Asid(0), false);
            first.map_new(1, NEW)?
        };
        for what in [None, Some(Flush::All), Some(Flush::Current), Some(pages(first.page(0), 1))] {
            kit.machine().load_root(first.root(), Asid(0), false);
            let old = first.entry(0).pfn();
            ensure!(first.load(0) == Some(0), "page 0 cannot be read");
            kit.machine().load_root(second.root(), Asid(1), true);
            first.map(0, new, ORDINARY);
            // All numbers' at once, or only what is loaded: then that must be the right one.
            if what == Some(Flush::All) {
                kit.machine().flush(Flush::All);
            }
            kit.machine().load_root(first.root(), Asid(0), what.is_some());
            if let Some(what) = what.filter(|&what| what != Flush::All) {
                kit.machine().flush(what);
            }
            let got = first.load(0);
            let how = what.map_or("a load that keeps nothing", |_| "a flush");
            ensure!(got == Some(NEW), "after {how} ({what:?}), another number's page reads {got:x?}");
            first.map(0, old, ORDINARY);
        }
        Ok(())
    })
}

pub(crate) fn own_root<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    with_tree(kit, |kit, tree, _| {
        tree.map_new(0, OLD)?;
        kit.machine().load_root(Pfn::NONE, Asid(0), false);
        ensure!(tree.load(0).is_none(), "under the machine's own root, a page of a space can be read");
        kit.machine().load_root(tree.root(), Asid(0), false);
        ensure!(tree.load(0) == Some(OLD), "after the machine's own root, a page of a space cannot be read");
        Ok(())
    })
}
