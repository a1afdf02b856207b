//! fork: the child maps what the parent maps; private pages are shared until one of them writes.

use super::vma::Vma;
use super::{Spaces, Stop};
use crate::frame::{FolioPages, FrameFlags};
use crate::machine::{Machine, WaitKey, Work};
use crate::memory::Gfp;
use crate::mm_core::MmCore;
use crate::primitive::Ordering::*;
use crate::rmap::Tally;
use crate::table::{Absent, Bits, EntryRun, LockedTables, Migrating, Resident, Rights, Settled, Slot};
use crate::tlb::Tightening;
use crate::units::*;
use std_alloc::vec::Vec;

impl Spaces {
    /// A copy of `parent`.
    pub fn fork<M: Machine>(&self, core: &MmCore<M>, parent: SpaceId, gfp: Gfp) -> Result<SpaceId, Stop> {
        let child = self.create(core, gfp)?;
        self.at(child).set_policy(self.at(parent).policy());
        let held = self.at(parent).mapping.write(&core.machine, WaitKey::Space(parent));
        let ranges: Vec<Vma> = self.at(parent).vmas.lock().iter().cloned().collect();
        // The parent loses the right to write to its private pages. Before it goes on, no CPU may still have it.
        let outcome = core.tlb.tighten(core, parent, |tightening| {
            tightening.everything();
            ranges.iter().try_for_each(|range| self.copy_range(core, child, range, gfp, tightening))
        });
        drop(held);
        if let Err(stop) = outcome {
            self.exit(core, child);
            return Err(stop);
        }
        Ok(child)
    }

    fn copy_range<M: Machine>(
        &self,
        core: &MmCore<M>,
        child: SpaceId,
        source: &Vma,
        gfp: Gfp,
        tightening: &mut Tightening,
    ) -> Result<(), Stop> {
        let space = self.at(child);
        let mut copy = source.clone();
        copy.view.id = self.new_vma_id();
        // The child may map pages of all sets of its parent; what it makes itself goes to a set of its own, later.
        copy.view.anon = None;
        // Locks on memory are not inherited.
        copy.view.flags.remove(super::VmaFlags::LOCKED);
        copy.link(core, child, space.group());
        space.vmas.lock().insert(copy);
        core.charge(Work::VmaChange, 1);
        // Pages of files that no private copy was made of can be faulted in again.
        if source.sets.is_empty() {
            return Ok(());
        }
        self.at(child).large.store(self.at(tightening.space()).large.load(Relaxed), Relaxed);
        self.copy_entries(core, child, source, gfp, tightening)
    }

    fn copy_entries<M: Machine>(
        &self,
        core: &MmCore<M>,
        child: SpaceId,
        range: &Vma,
        gfp: Gfp,
        tightening: &mut Tightening,
    ) -> Result<(), Stop> {
        let mmu = core;
        let mut from = core.tables.lock(mmu, tightening.space());
        let mut to = core.tables.lock(mmu, child).settle();
        let mut outcome = Ok(());
        let mut changes = Changes { tally: Tally::new(mmu), tightening };
        from.for_each(range.view.start, range.view.end(), |from, run| {
            if let Some(migrating) = run.entry.as_migrating() {
                if outcome.is_ok() {
                    let what = (&run, migrating, range.view.is_shared());
                    outcome = copy_migrating(core, from, &mut to, what, gfp);
                }
            } else if run.is_large() {
                // One of a file can be faulted in again.
                if outcome.is_ok() && core.frames[run.entry.pfn()].is_anon() {
                    outcome = copy_large(core, from, &mut to, &run, gfp, changes.tightening);
                }
            } else if outcome.is_ok() {
                outcome = to
                    .reserve(&core.alloc, run.page, gfp.means())
                    .map(|slot| {
                        copy_run(core, from, &mut to, &run, slot, range.view.is_shared(), &mut changes)
                    })
                    .map_err(Stop::from);
            }
        });
        changes.tally.settle(mmu);
        outcome
    }
}

/// What copying entries changes besides them.
struct Changes<'a> {
    tally: Tally,
    tightening: &'a mut Tightening,
}

/// Share a 2 MiB entry of anonymous memory. The child's has a table in reserve as the parent's has.
#[cold]
fn copy_large<M: Machine>(
    core: &MmCore<M>,
    from: &mut LockedTables<'_, M>,
    to: &mut Settled<'_, M>,
    run: &EntryRun,
    gfp: Gfp,
    tightening: &mut Tightening,
) -> Result<(), Stop> {
    let mmu = core;
    let slot = to.reserve_large(&core.alloc, run.page, gfp.means())?.expect("the child has nothing there");
    to.deposit(&core.alloc, gfp.means())?;
    core.charge(Work::EntrySet, 1);
    let pages = run.mapped(&core.frames);
    if run.entry.has(Bits::WRITE) {
        tightening.tightened(mmu, from.forbid_writes(run));
    }
    for page in pages.iter() {
        core.frames[page].clear(FrameFlags::EXCLUSIVE);
    }
    core.frames[pages.head].get(1);
    core.rmap.add_large(mmu, pages.head);
    to.counts().add(Resident::Anon, i64::from(pages.count));
    to.inherit(slot, from, run, Rights::YOUNG);
    Ok(())
}

/// Share an entry whose page is being moved. What CPUs may still do through its old translation ends with fork's flush
/// of the whole parent.
#[cold]
fn copy_migrating<M: Machine>(
    core: &MmCore<M>,
    from: &mut LockedTables<'_, M>,
    to: &mut Settled<'_, M>,
    (run, migrating, shared): (&EntryRun, Migrating, bool),
    gfp: Gfp,
) -> Result<(), Stop> {
    let head = core.frames.head(migrating.page());
    let anon = core.frames[head].is_anon();
    let slot = if !run.is_large() {
        to.reserve(&core.alloc, run.page, gfp.means())?
    } else if anon {
        let slot = to.reserve_large(&core.alloc, run.page, gfp.means())?;
        to.deposit(&core.alloc, gfp.means())?;
        slot.expect("the child has nothing there")
    } else {
        // It can be faulted in again.
        return Ok(());
    };
    core.charge(Work::EntrySet, 1);
    let mut forget = Rights::YOUNG;
    if shared {
        forget |= Rights::DIRTY;
    }
    let kept = from.restrict(run.slot, |entry| if shared { entry } else { entry.read_only() });
    if anon {
        let pages = FolioPages { head, first: migrating.page(), count: run.pages() as u32 };
        for page in pages.iter() {
            core.frames[page].clear(FrameFlags::EXCLUSIVE);
        }
    }
    to.set_absent(slot, Absent::Moving(kept.forgetting(forget)));
    to.counts().add(Resident::of(&core.frames[head]), run.pages() as i64);
    Ok(())
}

/// Share a run of pages, or one slot of swap, between parent and child.
fn copy_run<M: Machine>(
    core: &MmCore<M>,
    from: &mut LockedTables<'_, M>,
    to: &mut Settled<'_, M>,
    run: &EntryRun,
    slot: Slot,
    shared: bool,
    changes: &mut Changes<'_>,
) {
    let mmu = core;
    core.charge(Work::EntrySet, run.count as u64);
    if let Some((swap, _)) = run.entry.as_swap() {
        core.swap.dup(swap);
        let shared = Absent::Swap { slot: swap, exclusive: false };
        from.set_absent(run.slot, shared);
        to.set_absent(slot, shared);
        to.counts().add(Resident::Swap, 1);
        return;
    }
    let pages = run.mapped(&core.frames);
    if !shared && run.entry.has(Bits::WRITE) {
        changes.tightening.tightened(mmu, from.forbid_writes(run));
    }
    if pages.head != core.zero {
        let frame = &core.frames[pages.head];
        if frame.is_anon() {
            for page in pages.iter() {
                core.frames[page].clear(FrameFlags::EXCLUSIVE);
            }
        }
        frame.get(pages.count);
        core.rmap.add_tallied(mmu, pages, &mut changes.tally);
        to.counts().add(Resident::of(&core.frames[pages.head]), i64::from(pages.count));
    }
    // The child has not used it. That a private page was written must be told by either entry, whichever is left: the
    // page may not be dropped as if MADV_FREE had been the last word on it.
    let forget = if shared { Rights::YOUNG | Rights::DIRTY } else { Rights::YOUNG };
    to.inherit(slot, from, run, forget);
}
