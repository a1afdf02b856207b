//! Putting one large entry of anonymous memory in the place of a table.
//!
//! *Problem.* What 512 entries show is to be copied, and then shown by one entry. While it is copied no CPU may store
//! to it; and no CPU may ever have translations of both sizes for an address (see `large`).
//!
//! *Rule.* The table is taken out of the tree with its entries in it, and every CPU drops what it holds of the space,
//! with what it remembers of the way to the table; lazy CPUs, too, as a walker that goes through it speculatively would
//! mark entries of a table that is used for something else by then. All that is one hold of the tree's lock, so nobody
//! changes an entry in between. From then on the addresses have no translation, and nobody comes to the entries but who
//! has the [`Detached`]. The table is what is set aside for the large entry then, as each has one.
//!
//! *Why not otherwise.* To clear the entries where they are would do for the copy. But then the table goes in a second
//! step, which has to be flushed for its own sake. (x86 Linux: `pmdp_collapse_flush`, `collapse_huge_page`.)

use super::{Bits, Entry, LEVELS, LockedTables, Rights, Settled, Slot, Writes};
use crate::event::{Concern, Event};
use crate::linear::linear;
use crate::machine::{Machine, Work};
use crate::primitive::Ordering::*;
use crate::tlb::{Range, stale};
use crate::units::*;

/// A table of the lowest level that is in no tree any more, with the entries that it had. No CPU comes to it, nor holds
/// what an entry of it said. What its entries count for is its holder's to forget.
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
    /// Where the entry of the table for `page`, or the large entry in its place, stands. `None`: the way does not go so
    /// far.
    fn large_slot(&self, page: Vpn) -> Option<Slot> {
        let mut table = self.root;
        for level in (2..LEVELS).rev() {
            let entry = self.read(self.slot(table, page, level));
            table = entry.is_present().then(|| entry.pfn())?;
        }
        self.mmu.charge(Work::TableLevel, LEVELS as u64 - 1);
        Some(self.slot(table, page, 1))
    }

    /// Take the table of the 512 pages from `page` on out of the tree. `None`: there is none. The caller keeps others
    /// from making entries for these pages until it has put something in the table's place.
    #[must_use = "the table would be lost"]
    pub fn detach(&mut self, page: Vpn) -> Option<Detached> {
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
        self.counts.tables -= 1;
        self.counts.recent.forget();
        mmu.tlb.flush(mmu, space, Range { freed_tables: true, ..Range::ALL });
        let concern = Concern::FlushedAtOnce { space, first: page, count: pages };
        mmu.event(Event::TlbHazard, concern.args());
        Some(Detached { space, page, table: entry.pfn() })
    }
}

impl<M: Machine> Settled<'_, M> {
    /// Map `head`, a folio of 2 MiB that this space alone sees, with one entry in the place of the table.
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
        // What was owed for its entries has been paid for the whole space.
        mmu.frames[table].set_debt(0);
        self.counts.deposits.push(table);
        let slot = self.large_slot(page).expect("tables above one that was detached stay");
        self.install_large(slot, page, head, rights, Writes::Private);
    }
}
