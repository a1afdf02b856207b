//! mremap.

use super::split::split_entries;
use super::vma::Vma;
use super::{Spaces, Stop};
use crate::api::Error;
use crate::machine::{Machine, WaitKey, Work};
use crate::memory::Gfp;
use crate::mm_core::MmCore;
use crate::table::{EntryRun, Moving, Settled, USER_END};
use crate::tlb::Gather;
use crate::units::*;
use std_alloc::vec::Vec;

/// How to move or resize a mapping.
#[derive(Clone, Copy, Debug)]
pub struct Remap {
    /// Its first page.
    pub start: Vpn,
    /// Its current number of pages, which must be in one range.
    pub old: u64,
    /// Its new number of pages.
    pub new: u64,
    /// Whether it may move if it cannot grow in place (MREMAP_MAYMOVE).
    pub may_move: bool,
    /// The exact target address (MREMAP_FIXED).
    pub fixed: Option<Vpn>,
}

impl Spaces {
    /// Move or resize a mapping. Returns its new first page.
    pub fn mremap<M: Machine>(
        &self,
        core: &MmCore<M>,
        id: SpaceId,
        remap: Remap,
        gfp: Gfp,
    ) -> Result<Vpn, Stop> {
        let Remap { start, old, new, may_move, fixed } = remap;
        if old == 0 || new == 0 || new > USER_END.0 {
            return Err(Error::Invalid.into());
        }
        let space = self.at(id);
        let _held = space.mapping.write(&core.machine, WaitKey::Space(id));
        let end = Vpn(start.0 + old);
        match space.vmas.lock().range_of(start) {
            Some(vma) if vma.view.end() >= end => {}
            _ => return Err(Error::NotMapped.into()),
        }
        if let Some(to) = fixed {
            let overlap = to.0 < end.0 && start.0 < to.0 + new;
            if overlap || to.0 > USER_END.0 - new {
                return Err(Error::Invalid.into());
            }
            self.unmap_range(core, id, to, Vpn(to.0 + new));
            return self.move_mapping(core, id, Remap { old: old.min(new), ..remap }, to, gfp).map(|()| {
                self.unmap_range(core, id, Vpn(start.0 + new.min(old)), end);
                to
            });
        }
        if new <= old {
            self.unmap_range(core, id, Vpn(start.0 + new), end);
            return Ok(start);
        }
        if self.grow_in_place(core, id, start, old, new) {
            return Ok(start);
        }
        if !may_move {
            return Err(Error::NoMemory.into());
        }
        let to = space.vmas.lock().gap(new).ok_or(Error::NoMemory)?;
        self.move_mapping(core, id, remap, to, gfp)?;
        Ok(to)
    }

    /// Extend a range if it ends at `start + old` and the addresses after it are free.
    fn grow_in_place<M: Machine>(
        &self,
        core: &MmCore<M>,
        id: SpaceId,
        start: Vpn,
        old: u64,
        new: u64,
    ) -> bool {
        let space = self.at(id);
        let mut vmas = space.vmas.lock();
        let (end, new_end) = (Vpn(start.0 + old), Vpn(start.0 + new));
        let view = vmas.range_of(start).expect("the caller has checked that this range exists").view;
        if view.end() != end || new_end > USER_END || vmas.overlapping(end, new_end).next().is_some() {
            return false;
        }
        vmas.update(view.start, |vma| {
            vma.view.pages += new - old;
            vma.relink(core, id, space.group());
        });
        drop(vmas);
        self.merge_at(core, id, new_end);
        core.charge(Work::VmaChange, 1);
        true
    }

    /// Move a mapping to `to`, where nothing is mapped.
    fn move_mapping<M: Machine>(
        &self,
        core: &MmCore<M>,
        id: SpaceId,
        Remap { start, old, new, .. }: Remap,
        to: Vpn,
        gfp: Gfp,
    ) -> Result<(), Stop> {
        assert!(old > 0 && old <= new, "a move must not shrink a mapping: {old} pages at {start} to {new}");
        let space = self.at(id);
        let end = Vpn(start.0 + old);
        self.split_at(core, id, start);
        self.split_at(core, id, end);
        if !same_table_offset(start, to) {
            split_entries(core, space, id, start, end);
        }
        let source =
            space.vmas.lock().range_of(start).expect("the caller has checked that this range exists").clone();
        let mut moved: Vma = source.clone();
        moved.view.id = self.new_vma_id();
        moved.view.start = to;
        moved.view.pages = new;
        // Register the new place before the first entry arrives there.
        moved.link(core, id, space.group());
        let done = core.gather(id, |gather| {
            move_entries(core, (start, end), to, gfp, gather)?;
            let mut vmas = space.vmas.lock();
            vmas.remove(start, gather);
            vmas.insert(moved.clone());
            Ok(())
        });
        let gone = if done.is_ok() { source } else { moved };
        gone.unlink(core);
        for border in [start, end, to, Vpn(to.0 + new)] {
            self.merge_at(core, id, border);
        }
        done
    }
}

/// Whether both addresses have the same offset within a table, so that large entries can be moved whole.
fn same_table_offset(start: Vpn, to: Vpn) -> bool {
    start.0 % TABLE_ENTRIES as u64 == to.0 % TABLE_ENTRIES as u64
}

/// Move the entries of `[start, end)` to `to`, where there are none. No large entry exceeds the interval.
fn move_entries<M: Machine>(
    core: &MmCore<M>,
    (start, end): (Vpn, Vpn),
    to: Vpn,
    gfp: Gfp,
    gather: &mut Gather,
) -> Result<(), Stop> {
    let target = |page: Vpn| Vpn(to.0 + (page.0 - start.0));
    let mut tables = core.tables.lock(core, gather.space()).settle();
    // An empty table would block a large entry.
    tables.take_empty_tables((to, target(end)), (to, target(end)), gather);
    // Reserve all tables first: the page-table lock is held throughout, so nothing can fail half way.
    let mut at = to;
    while at < target(end) {
        let next = Vpn((at.0 | (TABLE_ENTRIES as u64 - 1)) + 1).min(target(end));
        // The entries of one target table come from two tables at most.
        let from = Vpn(start.0 + (at.0 - to.0));
        let (first, last) = (tables.find(from), tables.find(Vpn(from.0 + (next.0 - at.0) - 1)));
        if first.is_some_and(|run| run.is_large()) {
            tables.reserve_large(&core.alloc, at, gfp.means())?;
        } else if first.is_some() || last.is_some() {
            tables.reserve(&core.alloc, at, gfp.means())?;
        }
        at = next;
    }
    let moving = Moving::of(start, end.0 - start.0);
    let mut runs = Vec::with_capacity(TABLE_ENTRIES);
    let mut from = start;
    while from < end {
        // One table at a time.
        let next = Vpn((from.0 | (TABLE_ENTRIES as u64 - 1)) + 1).min(end);
        tables.for_each(from, next, |_, run| runs.push(run));
        for run in runs.drain(..) {
            if run.is_large() {
                move_large(core, &mut tables, run, target(run.page), &moving);
            } else {
                move_run(core, &mut tables, run, target, &moving);
            }
        }
        from = next;
    }
    tables.moved(moving);
    tables.take_empty_tables((start, end), (Vpn(0), USER_END), gather);
    Ok(())
}

/// Move a large entry to `page`, which is aligned for one. Its deposited table belongs to the space, and stays.
fn move_large<M: Machine>(
    core: &MmCore<M>,
    tables: &mut Settled<'_, M>,
    run: EntryRun,
    page: Vpn,
    moving: &Moving,
) {
    let slot =
        tables.large_place(page).expect("its upper tables must be reserved, without a table in its place");
    tables.move_run(&run, slot, moving);
    core.charge(Work::EntrySet, 2);
}

/// Move a run of entries to where `target` puts them, which may be in two tables.
fn move_run<M: Machine>(
    core: &MmCore<M>,
    tables: &mut Settled<'_, M>,
    run: EntryRun,
    target: impl Fn(Vpn) -> Vpn,
    moving: &Moving,
) {
    let mut rest = Some(run);
    while let Some(run) = rest {
        let slot = tables.find(target(run.page)).expect("its table must be reserved").slot;
        let (run, after) = run.split(slot.room());
        tables.move_run(&run, slot, moving);
        core.charge(Work::EntrySet, 2 * run.count as u64);
        rest = after;
    }
}
