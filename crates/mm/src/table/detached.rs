//! Replacing a table by one large entry of anonymous memory.
//!
//! *Problem.* The pages that 512 entries map are to be copied, and then mapped by one entry. During the copy no CPU
//! may store to them, and no CPU may ever have translations of both sizes for an address (see `large`).
//!
//! *Rule.* The table is removed from the tree with its entries in it, and every CPU flushes the space, with what it
//! caches of the path to the table. This includes lazy CPUs: a speculative walk through the table would set bits in
//! entries of a table that is used for something else by then. All this happens in one hold of the whole tree, so no
//! entry changes in between. From then on the addresses have no translation, and only the owner of the [`Detached`]
//! reaches the entries. The table becomes the one that is kept in reserve for the large entry, as each has one.
//!
//! *Why not otherwise.* Clearing the entries in place would do for the copy. But then the table is removed in a second
//! step, which needs a flush of its own. (x86 Linux: `pmdp_collapse_flush`, `collapse_huge_page`.)

use super::walk::index;
use super::{Bits, Entry, LEVELS, LockedTables, Rights, Settled, Slot, Writes};
use crate::event::{Concern, Event};
use crate::machine::{Machine, Work};
use crate::primitive::Ordering::*;
use crate::tlb::{Range, stale};
use crate::units::*;
use base::linear;

/// A table of the lowest level that was removed from its tree, with its entries. No CPU reaches it or caches any of
/// its entries. The holder updates the counts for these entries.
#[must_use = "its addresses have no translation, and the table would be lost"]
#[derive(Debug)]
pub struct Detached {
    space: SpaceId,
    page: Vpn,
    table: Pfn,
}

linear!(
    Detached,
    "a table was taken out of its tree and is lost: put a large entry in its place with `install_for`"
);

impl<M: Machine> LockedTables<'_, M> {
    /// The place of the entry of the table for `page`, or of the large entry there. `None`: the tables above do not
    /// exist.
    fn large_slot(&self, page: Vpn) -> Option<Slot> {
        let mut table = self.root();
        for level in (2..LEVELS).rev() {
            let entry = self.at(table, index(page, level));
            table = entry.is_present().then(|| entry.pfn())?;
        }
        self.mmu.charge(Work::TableLevel, LEVELS as u64 - 1);
        self.enter(table);
        Some(self.slot(table, page, 1))
    }

    /// Remove the table of the 512 pages from `page` on from the tree. `None`: there is none. The caller keeps other
    /// tasks from making entries for these pages until it has replaced the table.
    #[must_use = "the table would be lost"]
    pub fn detach(&mut self, page: Vpn) -> Option<Detached> {
        self.assert_alone("detaching a table");
        let (mmu, space, pages) = (self.mmu, self.space, TABLE_ENTRIES as u64);
        let slot = self.large_slot(page)?;
        let entry = self.read(slot);
        if !entry.is_present() || entry.has(Bits::LARGE) {
            return None;
        }
        self.for_each(page, Vpn(page.0 + pages), |tables, run| {
            if run.entry.is_present() {
                let head = run.mapped(&tables.mmu.frames).head;
                stale(tables.mmu, &run.cleared(space, run.entry, head), true);
            }
        });
        self.replace(slot, Entry::NONE);
        self.tree.counts.tables.fetch_sub(1, Relaxed);
        self.tree.recent.forget();
        self.end_table(entry.pfn());
        mmu.tlb.flush(mmu.host(), space, Range { freed_tables: true, ..Range::ALL });
        let concern = Concern::FlushedAtOnce { space, first: page, count: pages };
        mmu.event(Event::TlbHazard, concern.args());
        Some(Detached { space, page, table: entry.pfn() })
    }
}

impl<M: Machine> Settled<'_, M> {
    /// Map `head`, a folio of 2 MiB that only this space sees, with one entry in place of the table.
    pub(crate) fn install_for(&mut self, detached: Detached, head: Pfn, rights: Rights) {
        let &Detached { space, page, table } = &detached;
        detached.spend();
        assert_eq!(space, self.space, "the table of another space");
        assert!(head.align_down(PAGEBLOCK_ORDER) == head, "{head} does not fill a 2 MiB entry");
        let mmu = self.mmu;
        for cell in mmu.machine.table(table) {
            cell.store(Entry::NONE.raw(), Relaxed);
        }
        mmu.charge(Work::EntryClear, TABLE_ENTRIES as u64);
        mmu.frames[table].set_table(0);
        // The debts of its entries have been paid for the whole space.
        mmu.frames[table].set_debt(0);
        self.tree.deposits.lock().push(table);
        let slot = self.large_slot(page).expect("tables above one that was detached stay");
        self.install_large(slot, page, head, rights, Writes::Private);
    }
}
