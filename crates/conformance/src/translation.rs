//! One CPU's translations: what hardware does by itself, and that a flushed translation is never used again.
//!
//! A CPU may drop a translation at any time, so no check demands that one is kept.

use crate::harness::Harness;
use crate::kit::{Kit, ensure};
use crate::raw::{LoadedRoot, ORDINARY, Tree};
use crate::report::{NotPassed, Verdict};
use mm::machine::{Asid, Flush, Machine};
use mm::table::Bits;
use mm::units::*;
use std_alloc::vec::Vec;

const OLD: u64 = 0x01d;
const NEW: u64 = 0x4e3;

/// A flush of `count` pages.
fn pages(start: Vpn, count: u32) -> Flush {
    Flush::Pages { start, count, stride: Order::ZERO }
}

/// On each CPU, one after the other, with a tree of its own loaded.
fn with_tree<H: Harness>(
    kit: &Kit<'_, H>,
    body: fn(&Kit<'_, H>, &Tree<'_, H>, &LoadedRoot<'_, H>) -> Verdict,
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
            // The faults above left nothing behind: filling an empty entry needs no flush.
            tree.map_new(index, index as u64 + 1)?;
        }
        for index in [0, 1, 255, 511] {
            let got = tree.load(index);
            ensure!(
                got == Some(index as u64 + 1),
                "page {index} reads {got:x?}, but its frame holds {}",
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
            ensure!(tree.load(0) == Some(OLD), "a load from a read-only page fails");
            ensure!(!tree.store(0, NEW), "a store to a read-only page succeeds");
            ensure!(tree.load(0) == Some(OLD), "a store that faulted changed the page");
            // Added rights need no flush: at worst the store faults once, and that drops the translation.
            tree.map(0, frame, ORDINARY);
            let stored = tree.store(0, OLD) || tree.store(0, OLD);
            ensure!(stored, "a store faults twice after its page was made writable");
        }
        Ok(())
    })
}

pub(crate) fn no_exec<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    if kit.harness.code().is_none() {
        return Err(NotPassed::Skipped("the kernel cannot make a CPU fetch"));
    }
    with_tree(kit, |kit, tree, _| {
        let frame = tree.map_new(0, kit.harness.code().unwrap_or_default())?;
        ensure!(kit.harness.fetch(tree.page(0)), "a fetch from an executable page faults");
        tree.map(0, frame, ORDINARY | Bits::NO_EXEC);
        kit.machine().flush(pages(tree.page(0), 1));
        ensure!(tree.load(0).is_some(), "a load from a page with NO_EXEC faults");
        ensure!(!kit.harness.fetch(tree.page(0)), "a fetch from a page with NO_EXEC succeeds");
        Ok(())
    })
}

pub(crate) fn kernel_only<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    if !kit.harness.has_program_rights() {
        return Err(NotPassed::Skipped("the harness's accesses have the kernel's rights"));
    }
    with_tree(kit, |kit, tree, _| {
        let frame = tree.map_new(0, OLD)?;
        tree.map(0, frame, ORDINARY.difference(Bits::USER));
        kit.machine().flush(pages(tree.page(0), 1));
        ensure!(tree.load(0).is_none(), "a program reads a page without the user bit");
        ensure!(!tree.store(0, NEW), "a program stores to a page without the user bit");
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
            ensure!(got.is_none(), "a load of an old page succeeds on a machine without has_hw_pte_young()");
            ensure!(
                !entry.has(Bits::YOUNG),
                "a load makes its entry young on a machine without has_hw_pte_young()"
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
            // The translation that the load leaves behind does not allow the store to skip the dirty bit.
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
        return Err(NotPassed::Skipped("the machine has no has_hw_nonleaf_young()"));
    }
    with_tree(kit, |kit, tree, _| {
        tree.map_new(0, OLD)?;
        for level in 1..4 {
            tree.set_upper_entry(level, ORDINARY.difference(Bits::YOUNG));
            kit.machine().flush(Flush::Current);
            ensure!(tree.load(0) == Some(OLD), "a load through an old upper entry faults");
            let entry = tree.upper_entry(level);
            ensure!(
                entry.has(Bits::YOUNG),
                "a load does not make the entry of level {level} young: {entry:?}"
            );
        }
        Ok(())
    })
}

/// Map `count` pages to one frame, use them, then map them to the other frame.
fn remap_pages<H: Harness>(tree: &Tree<'_, H>, count: usize, from: Pfn, to: Pfn) {
    for index in 0..count {
        tree.map(index, from, ORDINARY);
        tree.load(index);
        tree.store(index, OLD);
    }
    (0..count).for_each(|index| tree.map(index, to, ORDINARY));
}

/// After the flush `what`, this CPU reads the new frame at every page of `range`, whatever the number of
/// pages in use.
fn check_flush<H: Harness>(
    kit: &Kit<'_, H>,
    tree: &Tree<'_, H>,
    what: Flush,
    range: core::ops::Range<usize>,
) -> Verdict {
    kit.machine().flush(Flush::All);
    let (old, new) = (tree.map_new(0, OLD)?, tree.map_new(1, NEW)?);
    kit.machine().flush(Flush::All);
    remap_pages(tree, range.end + 1, old, new);
    kit.machine().flush(what);
    for index in range {
        let got = tree.load(index);
        ensure!(got == Some(NEW), "after {what:?}, page {index} reads {got:x?}: an old translation");
    }
    Ok(())
}

pub(crate) fn flush_pages<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    with_tree(kit, |kit, tree, _| {
        for (first, count) in [(0, 1), (1, 1), (3, 2), (1, 33), (0, 64)] {
            check_flush(kit, tree, pages(tree.page(first), count as u32), first..first + count)?;
        }
        Ok(())
    })
}

pub(crate) fn flush_current<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    with_tree(kit, |kit, tree, _| check_flush(kit, tree, Flush::Current, 0..100))
}

pub(crate) fn flush_all<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    with_tree(kit, |kit, tree, _| check_flush(kit, tree, Flush::All, 0..100))
}

pub(crate) fn flush_tables<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    with_tree(kit, |kit, tree, _| {
        tree.map_new(0, OLD)?;
        let frame = tree.map_new(1, NEW)?;
        for what in [pages(tree.page(0), 1), Flush::Current, Flush::All] {
            let (before, after) = (tree.new_leaf_table()?, tree.new_leaf_table()?);
            tree.write_entry(before, 0, tree.entry(0).pfn(), ORDINARY);
            tree.write_entry(after, 0, frame, ORDINARY);
            tree.link(1, before);
            kit.machine().flush(Flush::All);
            ensure!(tree.load(0) == Some(OLD), "a load through the first table fails");
            tree.link(1, after);
            kit.machine().flush(what);
            let got = tree.load(0);
            ensure!(got == Some(NEW), "after {what:?}, a walk still goes through the removed table");
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
            // As if the memory manager did not track what is kept: without `keep`, nothing may be kept.
            let _loaded = tree.load_root(Asid(0), false);
            let first = tree.load(0);
            kit.machine().load_root(other.root(), Asid(0), false);
            let second = other.load(0);
            let right = (first, second) == (Some(OLD), Some(NEW));
            ensure!(right, "two roots loaded alternately without keep read {first:x?} and {second:x?}");
        }
        Ok(())
    })
}

pub(crate) fn no_asids<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    if kit.machine().asids() != 0 {
        return Err(NotPassed::Skipped("the machine has address-space numbers"));
    }
    with_tree(kit, |_, tree, _| {
        let (old, new) = (tree.map_new(0, OLD)?, tree.map_new(1, NEW)?);
        remap_pages(tree, 1, old, new);
        let _loaded = tree.load_root(Asid(0), true);
        ensure!(tree.load(0) == Some(NEW), "a translation outlives the load of a root");
        Ok(())
    })
}

/// A tree for each of several address-space numbers; page 0 of each holds its number.
fn trees<'k, H: Harness>(kit: &'k Kit<'k, H>) -> Result<Vec<Tree<'k, H>>, NotPassed> {
    let asids = kit.machine().asids();
    if asids < 2 {
        return Err(NotPassed::Skipped("the machine has no address-space numbers"));
    }
    let new_tree = |number: usize| {
        let tree = Tree::new(kit)?;
        let _loaded = tree.load_root(Asid(number as u16), false);
        tree.map_new(0, number as u64)?;
        Ok(tree)
    };
    (0..asids.min(16)).map(new_tree).collect()
}

pub(crate) fn asids<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    with_tree(kit, |kit, _, _| {
        let trees = trees(kit)?;
        for round in 0..3 {
            for (number, tree) in trees.iter().enumerate() {
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
        let trees = trees(kit)?;
        let (first, second) = (&trees[0], &trees[1]);
        let new = {
            let _loaded = first.load_root(Asid(0), false);
            first.map_new(1, NEW)?
        };
        for what in [None, Some(Flush::All), Some(Flush::Current), Some(pages(first.page(0), 1))] {
            kit.machine().load_root(first.root(), Asid(0), false);
            let old = first.entry(0).pfn();
            ensure!(first.load(0) == Some(0), "a load of page 0 fails");
            kit.machine().load_root(second.root(), Asid(1), true);
            first.map(0, new, ORDINARY);
            // `All` flushes every number; the others flush the loaded number, so the right one must be
            // loaded.
            if what == Some(Flush::All) {
                kit.machine().flush(Flush::All);
            }
            kit.machine().load_root(first.root(), Asid(0), what.is_some());
            if let Some(what) = what.filter(|&what| what != Flush::All) {
                kit.machine().flush(what);
            }
            let got = first.load(0);
            let how = what.map_or("a load_root() without keep", |_| "a flush");
            ensure!(got == Some(NEW), "after {how} ({what:?}), page 0 of the other number reads {got:x?}");
            first.map(0, old, ORDINARY);
        }
        Ok(())
    })
}

pub(crate) fn own_root<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    with_tree(kit, |kit, tree, _| {
        tree.map_new(0, OLD)?;
        kit.machine().load_root(Pfn::NONE, Asid(0), false);
        ensure!(tree.load(0).is_none(), "a load of a space's page succeeds under the machine's own root");
        kit.machine().load_root(tree.root(), Asid(0), false);
        ensure!(
            tree.load(0) == Some(OLD),
            "a load of a space's page fails after the machine's own root was loaded"
        );
        Ok(())
    })
}
