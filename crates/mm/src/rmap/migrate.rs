//! Replacing every mapping of a folio by migration entries while the folio is moved to other frames.
//!
//! A migration entry names the frame that it waits for ([`Migrating`]). So migration entries are found as the entries
//! that map the folio are: by the folio's owner, which the folio keeps until the last one is gone. If fork, mremap or
//! munmap copy, move or remove them during the migration, a walk handles it as for any entry (see [`super`] on a walk
//! during mremap and fork).

use super::spans::Span;
use super::{Rmap, SpanFlags, shown};
use crate::frame::{FolioPages, Frame, FrameFlags, Owner};
use crate::machine::{Machine, Scope, Work};
use crate::memory::Memory;
use crate::table::{Bits, EntryRun, Landing, LockedTables, Migrating, TakenRun, Waiting, Writes};
use crate::tlb::{HeldRefs, UnmapBatch};
use crate::units::*;
use base::demand;

impl Rmap {
    /// Replace all entries of a folio by migration entries. The caller holds the folio lock and a reference. Each entry
    /// is noted in `batch`, which the caller settles before it copies the content. Memory that is locked (mlock) is
    /// moved, too.
    pub(crate) fn begin_move<M: Machine>(
        &self,
        memory: &Memory<M>,
        head: Pfn,
        batch: &mut UnmapBatch,
    ) -> Waiting {
        let _scope = memory.scope(Scope::TryToMigrateOne);
        let frame = &memory.frames[head];
        demand!(frame.has(FrameFlags::LOCKED), [head]; "folio {head} must be locked to be moved");
        let mut dirty = false;
        if frame.mapcount() > 0 {
            self.walk(memory, head, |tables, _, run| {
                let emptied = tables.begin_move(run);
                memory.charge(Work::EntryClear, run.count as u64);
                dirty |= emptied.entry().has(Bits::DIRTY);
                let refs = tables.leave_to(batch, emptied);
                if run.is_large() {
                    self.remove_large(memory, head);
                } else {
                    self.remove_range(memory, run.mapped(&memory.frames));
                }
                // The caller's own reference keeps the folio.
                refs.put_held(&memory.frames);
            });
        }
        Waiting::of(head, dirty, batch)
    }

    /// Make the migration entries of a folio map its pages where they are now. Both folios are locked, or they are the
    /// same folio.
    pub(crate) fn end_move<M: Machine>(&self, memory: &Memory<M>, landing: Landing) {
        self.land(memory, &landing);
        landing.done();
    }

    fn land<M: Machine>(&self, memory: &Memory<M>, landing: &Landing) {
        let _scope = memory.scope(Scope::RemoveMigrationPtes);
        let from = landing.from();
        let frame = &memory.frames[from];
        let Some(list) = self.spans(frame.owner()) else { return };
        let spans = list.share();
        for span in spans.holding(frame.page_index(), frame.pages() as u64) {
            memory.charge(Work::RmapVma, 1);
            let (mut page, end) = shown(frame, span);
            while page < end {
                // Settling is for one table, so each table is settled in a hold of the lock of its own.
                let mut tables = memory.tables.lock_one(memory, span.space);
                let Some(next) = self.land_in_table(memory, &mut tables, (page, end), span, landing) else {
                    page = Vpn((page.0 | (TABLE_ENTRIES as u64 - 1)) + 1);
                    continue;
                };
                let (found, behind) = next;
                page = behind;
                let Some((run, migrating)) = found else { continue };
                let frame = self.count_landing(memory, span, (&run, migrating), landing);
                if !migrating.writes() {
                    tables.land(&run, landing);
                    continue;
                }
                let writes = match frame.owner() {
                    Owner::File(_) => Writes::Shared(memory.settle_page(landing.to())),
                    _ => Writes::Private,
                };
                tables.settle_at(run.slot, run.page).land_writable(&run, landing, writes);
            }
        }
    }

    /// The next migration entries in a table that wait for a page of the folio, and the page after them, or after the
    /// table. `None`: there is no table.
    fn land_in_table<M: Machine>(
        &self,
        memory: &Memory<M>,
        tables: &mut LockedTables<'_, M>,
        (mut page, end): (Vpn, Vpn),
        span: &Span,
        landing: &Landing,
    ) -> Option<(Option<(EntryRun, Migrating)>, Vpn)> {
        let index = memory.frames[landing.from()].page_index().0;
        let behind = Vpn((page.0 | (TABLE_ENTRIES as u64 - 1)) + 1).min(end);
        while page < behind {
            let found = tables.find(page)?;
            let Some((run, migrating)) = tables.find_migrating(page, (behind.0 - page.0) as u32) else {
                page = found.end();
                continue;
            };
            let shown = (span.index.0 + (run.page.0 - span.start.0)).checked_sub(index);
            if shown.is_some_and(|shown| migrating.page() == landing.from().add(shown as u32)) {
                return Some((Some((run, migrating)), run.end()));
            }
            page = Vpn(page.0 + 1).max(if run.is_large() { run.end() } else { page });
        }
        Some((None, behind))
    }

    /// Count the entries that are about to map the folio; returns its record. Their table is locked.
    fn count_landing<'m, M: Machine>(
        &self,
        memory: &'m Memory<M>,
        span: &Span,
        (run, migrating): (&EntryRun, Migrating),
        landing: &Landing,
    ) -> &'m Frame {
        let (base, head) = (memory, landing.to());
        let frame = &memory.frames[head];
        let left = FolioPages { head: landing.from(), first: migrating.page(), count: run.pages() as u32 };
        if frame.is_anon() {
            for page in left.iter().filter(|&page| memory.frames[page].has(FrameFlags::EXCLUSIVE)) {
                // Fork, which holds all tables, clears the flag.
                memory.frames[landing.place(page)].set(FrameFlags::EXCLUSIVE);
            }
        }
        if span.flags.contains(SpanFlags::LOCKED) {
            memory.lru.keep_locked(base, head);
        }
        // Before a walk can find the entry and remove it.
        frame.get(run.count);
        if run.is_large() {
            self.add_large(base, head);
        } else {
            self.add_range(base, FolioPages { head, first: landing.place(left.first), ..left });
        }
        memory.charge(Work::EntrySet, run.count as u64);
        frame
    }
}
