//! The walk of one space's page tables, which moves used folios to the youngest generation.
//!
//! Tables are visited one by one, each under its lock. The walk only tries to take locks: a task that changes the
//! tables goes first, and a table that was skipped counts as not young. Ranges may change between
//! two holds; then the walk may clear the young bit of an entry that it should not visit, which makes a used folio look
//! unused, and nothing worse.

use super::aging::{Aging, WalkStat};
use crate::frame::{Frame, FrameFlags};
use crate::lru::mglru::{LARGE_BATCH, Promotions, is_dense};
use crate::machine::{Machine, Work};
use crate::mm_core::MmCore;
use crate::reclaim::spaces::WalkRange;
use crate::reclaim::{Reclaim, promotion};
use crate::table::{Bits, Entry, EntryRun, LockedTables, Middle};
use crate::units::*;

pub(super) struct Walk<'a, M> {
    pub cx: Reclaim<'a, M>,
    pub aging: &'a Aging,
    pub node: NodeId,
    pub group: GroupId,
    /// The youngest generation when the walk began.
    pub seq: u64,
    /// Whether anonymous memory may be swapped. If not, its age is not needed.
    pub can_swap: bool,
    /// Visit all tables, even those that look unused.
    pub force: bool,
    /// Visit only tables that the filters have.
    pub bloom: bool,
    /// Whether to use the young bits of entries that lead to tables.
    pub nonleaf: bool,
    pub promotions: Promotions,
    /// Whether young folios are reported for promotion to faster tiers.
    pub tells: bool,
}

/// Pages that an entry of the third level spans.
const THIRD_LEVEL_SPAN: u64 = (TABLE_ENTRIES * TABLE_ENTRIES) as u64;

/// The entries of a table that were visited.
#[derive(Default)]
struct YoungCount {
    total: u32,
    young: u32,
}

impl<'a, M: Machine> Walk<'a, M> {
    /// Walk a space. If another task that ages the vector finds no space left and begins the generation during the
    /// walk, used folios go to that generation, and the walk ends at the next entry of the third level. So walkers
    /// that come one after the other do not restrict each other to the beginning of a space.
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

    /// The first of the ranges that `next` gives, from `from` on, whose age is needed.
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

    /// Visit the part of a range that one entry of the second level spans, or skip a hole. Returns the next page.
    fn step(&mut self, space: SpaceId, page: Vpn, range: WalkRange) -> Vpn {
        let core = self.cx.core;
        let behind = Vpn((page.0 | (TABLE_ENTRIES as u64 - 1)) + 1);
        let Some(mut tables) = core.tables.try_lock_one(core, space) else { return behind };
        match tables.middle(page) {
            Middle::Hole(behind) => behind,
            Middle::Large(found) => {
                let Some(run) = tables.try_enter_large(found) else { return behind };
                self.promotions.begin_window(range.executable);
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
                if !tables.try_enter(table) {
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

    /// Visit the entries of a table from `page` on, in all ranges that have a part in it. If the ranges are being
    /// changed, only those of `range`.
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
            self.promotions.begin_window(range.executable);
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

    // A function by itself keeps its variables in registers.
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
            if !entry.has(Bits::YOUNG | Bits::PRESENT) {
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

    /// The folio that an entry maps, if it is of the vector and its age is needed.
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
