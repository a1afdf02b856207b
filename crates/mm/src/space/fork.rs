//! fork: the child maps what the parent maps; both share private pages until one of them writes.

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
    /// Create a copy of `parent`.
    pub fn fork<M: Machine>(&self, core: &MmCore<M>, parent: SpaceId, gfp: Gfp) -> Result<SpaceId, Stop> {
        let child = self.create(core, gfp)?;
        self.at(child).set_policy(self.at(parent).policy());
        let held = self.at(parent).mapping.write(&core.machine, WaitKey::Space(parent));
        let (ranges, lowered) = {
            let vmas = self.at(parent).vmas.lock();
            (vmas.iter().cloned().collect::<Vec<Vma>>(), vmas.lowered())
        };
        if lowered > 0 {
            self.at(child).vmas.lock().lower(lowered);
        }
        // The parent loses the right to write to its private pages. No CPU may still have it when the parent goes on.
        let outcome = core.tlb.tighten(core.host(), parent, |tightening| {
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
        // The child may map pages of all its parent's sets. Its own new pages go to a set of its own, made by the
        // first of them.
        copy.view.anon = None;
        // Memory locks are not inherited.
        copy.view.flags.remove(super::VmaFlags::LOCKED);
        copy.link(core, child, space.group());
        space.vmas.lock().insert(copy);
        core.charge(Work::VmaChange, 1);
        // A range without anonymous sets has only pages of its file, which can be faulted in again.
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
        let mut from = core.tables.lock(core, tightening.space());
        let mut to = core.tables.lock(core, child).settle();
        let mut outcome = Ok(());
        let shared = range.view.is_shared();
        let mut copy = EntryCopy { core, gfp, shared, tally: Tally::new(core), tightening };
        from.for_each(range.view.start, range.view.end(), |from, run| {
            if outcome.is_ok() {
                outcome = copy.run(from, &mut to, &run);
            }
        });
        copy.tally.settle(core);
        outcome
    }
}

/// Copies the entries of one range.
struct EntryCopy<'a, M> {
    core: &'a MmCore<M>,
    gfp: Gfp,
    /// Whether the range is shared.
    shared: bool,
    tally: Tally,
    tightening: &'a mut Tightening,
}

impl<M: Machine> EntryCopy<'_, M> {
    fn run(
        &mut self,
        from: &mut LockedTables<'_, M>,
        to: &mut Settled<'_, M>,
        run: &EntryRun,
    ) -> Result<(), Stop> {
        let core = self.core;
        if let Some(migrating) = run.entry.as_migrating() {
            return self.migrating(from, to, run, migrating);
        }
        if run.is_large() {
            // An entry of a file can be faulted in again.
            return if core.frames[run.entry.pfn()].is_anon() { self.large(from, to, run) } else { Ok(()) };
        }
        let slot = to.reserve(&core.alloc, run.page, self.gfp.means())?;
        self.pages(from, to, run, slot);
        Ok(())
    }

    /// Share a 2 MiB entry of anonymous memory. The child's has a deposited table, as the parent's has.
    #[cold]
    fn large(
        &mut self,
        from: &mut LockedTables<'_, M>,
        to: &mut Settled<'_, M>,
        run: &EntryRun,
    ) -> Result<(), Stop> {
        let core = self.core;
        let slot = to
            .reserve_large(&core.alloc, run.page, self.gfp.means())?
            .expect("the child's tables must be empty there");
        to.deposit(&core.alloc, self.gfp.means())?;
        core.charge(Work::EntrySet, 1);
        let pages = run.mapped(&core.frames);
        if run.entry.has(Bits::WRITE) {
            self.tightening.tightened(core.host(), from.forbid_writes(run));
        }
        for page in pages.iter() {
            core.frames[page].clear(FrameFlags::EXCLUSIVE);
        }
        core.frames[pages.head].get(1);
        core.rmap.add_large(core, pages.head);
        to.counts().add(Resident::Anon, i64::from(pages.count));
        to.inherit(slot, from, run, Rights::YOUNG);
        Ok(())
    }

    /// Share an entry whose page is being moved. Fork flushes the whole parent at its end: until then CPUs may use the
    /// old translation.
    #[cold]
    fn migrating(
        &self,
        from: &mut LockedTables<'_, M>,
        to: &mut Settled<'_, M>,
        run: &EntryRun,
        migrating: Migrating,
    ) -> Result<(), Stop> {
        let (core, gfp, shared) = (self.core, self.gfp, self.shared);
        let head = core.frames.head(migrating.page());
        let anon = core.frames[head].is_anon();
        let slot = if !run.is_large() {
            to.reserve(&core.alloc, run.page, gfp.means())?
        } else if anon {
            let slot = to.reserve_large(&core.alloc, run.page, gfp.means())?;
            to.deposit(&core.alloc, gfp.means())?;
            slot.expect("the child's tables must be empty there")
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

    /// Share a run of pages, or one swap slot, between parent and child.
    fn pages(&mut self, from: &mut LockedTables<'_, M>, to: &mut Settled<'_, M>, run: &EntryRun, slot: Slot) {
        let core = self.core;
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
        if !self.shared && run.entry.has(Bits::WRITE) {
            self.tightening.tightened(core.host(), from.forbid_writes(run));
        }
        if pages.head != core.zero {
            let frame = &core.frames[pages.head];
            if frame.is_anon() {
                for page in pages.iter() {
                    core.frames[page].clear(FrameFlags::EXCLUSIVE);
                }
            }
            frame.get(pages.count);
            core.rmap.add_tallied(core, pages, &mut self.tally);
            to.counts().add(Resident::of(frame), i64::from(pages.count));
        }
        // The child has not used the page, so its entry is not young. Both entries of a private page stay dirty: either
        // may be the last one left, and MADV_FREE must not drop a page that was written after it.
        let forget = if self.shared { Rights::YOUNG | Rights::DIRTY } else { Rights::YOUNG };
        to.inherit(slot, from, run, forget);
    }
}
