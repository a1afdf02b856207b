//! The walk of one space's page tables: what was used goes to the youngest generation.
//!
//! Tables are visited one by one, each under its own hold of the tree's lock, which is only tried for: who changes the
//! tables goes first, and a table that was left out is one that is not found young. Ranges may change between two
//! holds; then the walk forgets the use of an entry that it was not meant to look at, which costs a mistake and nothing
//! else.

use super::aging::{Aging, WalkStat};
use crate::frame::{Frame, FrameFlags};
use crate::lru::mglru::{LARGE_BATCH, Promotions, is_dense};
use crate::machine::{Machine, Work};
use crate::mm_core::MmCore;
use crate::reclaim::spaces::WalkRange;
use crate::reclaim::{Reclaim, promotion};
use crate::table::{Bits, Entry, EntryRun, LockedTables, Middle};
use crate::units::*;

/// A walk on behalf of one vector.
pub(super) struct Walk<'a, M> {
    pub cx: Reclaim<'a, M>,
    pub aging: &'a Aging,
    pub node: NodeId,
    pub group: GroupId,
    /// The youngest generation when the walk began.
    pub seq: u64,
    /// May anonymous memory be swapped? If not, its age is of no use.
    pub can_swap: bool,
    /// Look at all tables, whether or not they promise anything.
    pub force: bool,
    /// Look only at tables that the filters name.
    pub bloom: bool,
    /// May entries that lead to tables tell which were not used?
    pub nonleaf: bool,
    pub promotions: Promotions,
    /// Is what is found young told to who promotes to faster tiers?
    pub tells: bool,
}

/// Pages that an entry of the third level spans.
const THIRD_LEVEL_SPAN: u64 = (TABLE_ENTRIES * TABLE_ENTRIES) as u64;

/// What was found in a table.
#[derive(Default)]
struct YoungCount {
    total: u32,
    young: u32,
}

impl<'a, M: Machine> Walk<'a, M> {
    /// Walk a space. If the vector gets a new generation meanwhile (others age it, too, and there was no other space
    /// left for them), what was used goes to that one; only what the next entry of the third level spans is left out.
    /// So walkers that come one after the other do not keep each other from seeing more of a space than its beginning.
    pub fn space(&mut self, space: SpaceId) {
        let spaces = self.cx.spaces;
        let mut page = Vpn(0);
        let mut due = Vpn(0);
        while let Some(range) = self.of_use(page, |from| spaces.next_range(space, from)) {
            page = page.max(range.start);
            if page >= due {
                if self.is_late() {
                    break;
                }
                due = Vpn((page.0 | (THIRD_LEVEL_SPAN - 1)) + 1);
            }
            self.cx.core.lru.aim(&mut self.promotions);
            page = self.step(space, page, range);
            if self.promotions.pages() >= LARGE_BATCH {
                self.tell();
            }
            self.cx.core.machine.resched();
        }
        self.tell();
    }

    fn is_late(&self) -> bool {
        self.cx.core.lru.vec(self.node, self.group).generations.max_seq() != self.seq
    }

    fn tell(&mut self) {
        let core = self.cx.core;
        core.lru.tell_promotions(core, &mut self.promotions);
    }

    /// Of the ranges that `next` gives, the first from `from` on whose age is of use.
    fn of_use(&self, from: Vpn, next: impl Fn(Vpn) -> Option<WalkRange>) -> Option<WalkRange> {
        let mut from = from;
        loop {
            let range = next(from)?;
            if self.can_swap || !range.swapbacked {
                return Some(range);
            }
            from = range.end;
        }
    }

    /// Look at what one entry of the second level spans of a range, or step over a hole. Returns where to go on.
    fn step(&mut self, space: SpaceId, page: Vpn, range: WalkRange) -> Vpn {
        let core = self.cx.core;
        let behind = Vpn((page.0 | (TABLE_ENTRIES as u64 - 1)) + 1);
        let Some(mut tables) = core.tables.try_lock(core, space) else { return behind };
        match tables.middle(page) {
            Middle::Hole(behind) => behind,
            Middle::Large(run) => {
                self.aging.count(WalkStat::LeafTotal, 1);
                if self.look_at_large(&mut tables, &run) {
                    self.aging.count(WalkStat::LeafYoung, 1);
                }
                behind
            }
            Middle::Table { slot, table, young } => {
                if !self.force && self.nonleaf {
                    if !young {
                        return behind;
                    }
                    tables.clear_table_young(slot);
                }
                if !self.force && self.bloom && !self.aging.filters.has(self.seq, table) {
                    return behind;
                }
                self.aging.count(WalkStat::NonleafFound, 1);
                let seen = self.look_at_table(&mut tables, page, behind, (space, range));
                self.aging.count(WalkStat::LeafTotal, u64::from(seen.total));
                self.aging.count(WalkStat::LeafYoung, u64::from(seen.young));
                if is_dense(seen.total, seen.young) {
                    self.aging.count(WalkStat::NonleafAdded, 1);
                    self.aging.filters.add(self.seq + 1, table);
                }
                behind
            }
        }
    }

    /// Look at the entries of a table from `page` on, in all ranges that have a part in it. If the ranges change just
    /// now, the others are left out.
    fn look_at_table(
        &mut self,
        tables: &mut LockedTables<'_, M>,
        page: Vpn,
        behind: Vpn,
        (space, mut range): (SpaceId, WalkRange),
    ) -> YoungCount {
        let spaces = self.cx.spaces;
        let mut seen = YoungCount::default();
        let mut page = page;
        loop {
            let end = range.end.min(behind);
            self.look_at_entries(tables, page, end, &mut seen);
            if end >= behind {
                return seen;
            }
            match self.of_use(end, |from| spaces.try_next_range(space, from)) {
                Some(next) if next.start < behind => (page, range) = (next.start.max(end), next),
                _ => return seen,
            }
        }
    }

    // On its own it keeps what it needs in registers.
    #[inline(never)]
    fn look_at_entries(
        &mut self,
        tables: &mut LockedTables<'_, M>,
        page: Vpn,
        end: Vpn,
        seen: &mut YoungCount,
    ) {
        let core = self.cx.core;
        let Some(mut window) = tables.window(page, end.0 - page.0) else { return };
        let places = window.places();
        let mut cleared = 0;
        for at in 0..places {
            let entry = window.read(at);
            if !entry.has(Bits::YOUNG) || !entry.is_present() {
                continue;
            }
            let Some(frame) = self.folio(entry) else { continue };
            window.clear_young(at);
            cleared += 1;
            core.lru.promote(frame, &mut self.promotions);
            if self.tells {
                promotion::note_young(core, core.frames.head(entry.pfn()));
            }
        }
        seen.total += places as u32;
        seen.young += cleared;
        core.charge(Work::EntryScan, places as u64 - u64::from(cleared));
        core.charge(Work::EntryClear, u64::from(cleared));
    }

    fn look_at_large(&mut self, tables: &mut LockedTables<'_, M>, run: &EntryRun) -> bool {
        let core = self.cx.core;
        let young = run.entry.has(Bits::YOUNG).then(|| self.folio(run.entry)).flatten();
        if let Some(frame) = young {
            tables.clear_young(run);
            core.charge(Work::EntryClear, 1);
            core.lru.promote(frame, &mut self.promotions);
            if self.tells {
                promotion::note_young(core, core.frames.head(run.entry.pfn()));
            }
        }
        young.is_some()
    }

    /// The folio that an entry maps, if it belongs to the vector and its age is of use.
    fn folio(&self, entry: Entry) -> Option<&'a Frame> {
        let core: &'a MmCore<M> = self.cx.core;
        let page = entry.pfn();
        // The zero page has no age.
        if page == core.zero {
            return None;
        }
        let mut frame = &core.frames[page];
        let mut flags = frame.flags();
        if flags.contains(FrameFlags::TAIL) {
            frame = &core.frames[core.frames.head(page)];
            flags = frame.flags();
        }
        let ours =
            self.promotions.considers(flags) && frame.node() == self.node && frame.group() == self.group;
        let of_use = self.can_swap || !flags.contains(FrameFlags::SWAPBACKED);
        (ours && of_use).then_some(frame)
    }
}
