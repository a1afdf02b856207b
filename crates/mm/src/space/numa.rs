//! NUMA balancing: finding out by faults where pages are used, and moving them there.
//!
//! Now and then a task takes the right to be used from entries of its space, in turn, so that the next use of each page
//! faults ([`Spaces::mark_for_numa`]): a task that has run for a period since it last did, by its own clock, if nobody
//! has done it for a period by everybody's. So a task that waits most of the time is asked seldom. The fault gives it
//! back, and tells which node the page is used from, and how soon after it was marked (`fault/hint`). A page of a
//! slower tier that is hot is promoted, one that another node uses is moved there.
//!
//! Source: kernel/sched/fair.c (`task_numa_work`), mm/mprotect.c (`change_pte_range`), mm/migrate.c
//! (`migrate_misplaced_folio`) of Linux
//! 6.12, and `update_task_scan_period` there. Tasks are not moved to their pages here: see docs/tiers.md.

use super::vma::{VmaFlags, VmaView};
use super::{Space, Spaces};
use crate::alloc::{Fresh, Reserve, Watermark};
use crate::api::Prot;
use crate::frame::{FolioPages, FrameFlags, List};
use crate::knobs::{Knob, numa_balancing};
use crate::machine::{Machine, Scope, WaitKey, Work, ZoneKind};
use crate::migrate::{self, MigrateReason, Mode, Target};
use crate::mm_core::MmCore;
use crate::primitive::{AtomicU64, Ordering::Relaxed};
use crate::stat::Stat;
use crate::table::{Bits, EntryRun, LockedTables, Rights};
use crate::tlb::Gather;
use crate::units::*;

/// So many times as much may be looked at as is marked.
const LOOKED_FOR_MARKED: u64 = 8;
/// After it has marked pages a task lets others be the next: two ticks of Linux's default clock.
const STAND_BACK: Nanos = 8 * MILLISECOND;
/// MiB that may be marked in a second, at most.
const MOST_MB_PER_SECOND: u64 = 2560;

/// Where a space's pages are marked, and when.
#[derive(Default)]
pub(super) struct NumaScan {
    /// When it goes on at the earliest; 0: it has not begun.
    next: AtomicU64,
    /// With which page.
    cursor: AtomicU64,
    /// Milliseconds until then; 0: what faults tell has not changed it yet.
    period: AtomicU64,
    /// How often all of the space has been marked.
    rounds: AtomicU64,
    /// How often it had been when the period was last adapted.
    adapted: AtomicU64,
    /// What faults have told since then.
    told: Told,
}

/// When a task last asked whether pages of its space are to be marked, by how long it had run. It begins with the task.
#[derive(Default)]
pub struct TaskScan(AtomicU64);

impl TaskScan {
    /// Has a task that has run so long run for a period since it last asked? It counts as asked then. A new task's
    /// first period is `delay`.
    fn ask(&self, ran: Nanos, delay: Nanos, period: impl FnOnce() -> Nanos) -> bool {
        let last = self.0.load(Relaxed);
        let next = last + if last == 0 { delay } else { period() };
        let due = ran > next;
        if due {
            self.0.store(next.max(1), Relaxed);
        }
        due
    }

    /// The task is not to ask for so long.
    fn put_off(&self, by: Nanos) {
        self.0.store(self.0.load(Relaxed) + by, Relaxed);
    }
}

/// Pages that faults of NUMA balancing have told of.
#[derive(Default)]
struct Told {
    /// Used from another node, and from their own.
    local: [AtomicU64; 2],
    /// Used by another task than before, and by the same.
    private: [AtomicU64; 2],
    /// Could not be moved to where they were used.
    immobile: AtomicU64,
}

/// Into how many parts a period is divided to make it longer or shorter, and how many of ten uses must be local, or
/// private, for the one.
const SLOTS: u64 = 10;
const MOSTLY: u64 = 7;

/// How long a period is next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NextScan {
    /// So long, after what is under way.
    After(u64),
    /// So long from now on: there is nothing to be learnt for the time being.
    FromNow(u64),
}

impl Told {
    /// The period after the one that all this was told in: longer where pages are where they are used, or belong to one
    /// task, or cannot be moved; shorter where neither holds. (`update_task_scan_period`; of a space and not of a
    /// task.)
    fn next_period(&self, period: u64, (least, most): (u64, u64)) -> NextScan {
        let taken = |cells: &[AtomicU64; 2]| cells.each_ref().map(|cell| cell.swap(0, Relaxed));
        let ([remote, local], [shared, private]) = (taken(&self.local), taken(&self.private));
        let immobile = self.immobile.swap(0, Relaxed);
        if local + shared == 0 || immobile > 0 {
            return NextScan::FromNow((period * 2).min(most));
        }
        let slot = period.div_ceil(SLOTS);
        // Who tells adds to the one before the other: one may be there alone.
        let own = private * SLOTS / (private + shared).max(1);
        let near = local * SLOTS / (local + remote);
        let longer = |ratio: u64| period + (ratio - MOSTLY).max(1) * slot;
        let next = if own >= MOSTLY {
            longer(own)
        } else if near >= MOSTLY {
            longer(near)
        } else {
            period.saturating_sub((MOSTLY - own.max(near)) * slot)
        };
        NextScan::After(next.clamp(least, most.max(least)))
    }
}

/// The frame that was taken for a folio.
struct Taken(Option<Fresh>);

impl<M: Machine> Target<M> for Taken {
    fn take(&mut self, _st: &MmCore<M>, _from: Pfn, order: Order) -> Option<Fresh> {
        if self.0.as_ref().is_some_and(|fresh| fresh.order() == order) { self.0.take() } else { None }
    }

    fn give_back(&mut self, _st: &MmCore<M>, unused: Fresh) {
        self.0 = Some(unused);
    }
}

/// Has a node so much room that whatever is used may come to it?
pub(super) fn has_ample_room<M: Machine>(core: &MmCore<M>, node: NodeId) -> bool {
    const GIB: u64 = (1 << 30) / PAGE_SIZE;
    let present: u64 = core.alloc.zones_of(node, ZoneKind::Movable).map(|zone| zone.managed()).sum();
    let room = GIB.max(present / 16);
    let mut zones = core.alloc.zones_of(node, ZoneKind::Movable);
    zones.any(|zone| zone.watermark_ok_above(room, Watermark::Promo, ZoneKind::Movable, Reserve::None))
}

impl Spaces {
    /// Mark the next part of a space, if it is time. To be called by a task of the space that has run for `ran`, with
    /// nothing held.
    pub fn mark_for_numa<M: Machine>(&self, core: &MmCore<M>, id: SpaceId, scan: &TaskScan, ran: Nanos) {
        let Some(space) = self.get(id) else { return };
        if !space.scan_is_due(core, id, scan, ran) {
            return;
        }
        scan.put_off(STAND_BACK);
        let _scope = core.scope(Scope::TaskNumaWork);
        let Some(_held) = space.mapping.try_read(&core.machine, WaitKey::Space(id)) else { return };
        let begun = core.machine.now();
        let size = (core.knobs.get(Knob::NumaScanSizeMb) << 20) / PAGE_SIZE;
        let (mut left, mut look) = (size, size * LOOKED_FOR_MARKED);
        let mut at = Vpn(space.numa.cursor.load(Relaxed));
        let next = loop {
            // From the beginning again the next time.
            let wanted = |vma: &VmaView| tells_user(vma) && space.policy_of(vma).is_default();
            let Some(range) = space.range_from(at, wanted) else { break Vpn(0) };
            let start = at.max(range.start);
            let end = Vpn((start.0 + left).next_multiple_of(TABLE_ENTRIES as u64)).min(range.end());
            let is_cow = range.flags & (VmaFlags::SHARED | VmaFlags::MAY_WRITE) == VmaFlags::MAY_WRITE;
            let marked = core.gather(id, |gather| mark(core, id, (start, end), is_cow, gather));
            core.count(Stat::NumaPteUpdates, marked as i64);
            if marked > 0 {
                left = left.saturating_sub(end.0 - start.0);
            }
            look = look.saturating_sub(end.0 - start.0);
            at = end;
            if left == 0 || look == 0 {
                break at;
            }
            core.machine.resched();
        };
        space.numa.cursor.store(next.0, Relaxed);
        if next == Vpn(0) {
            space.numa.rounds.fetch_add(1, Relaxed);
        }
        // It takes about 3 % of the task's time, at most.
        scan.put_off(32 * core.machine.now().saturating_sub(begun));
    }
}

impl Space {
    /// Is it time to mark pages? If so, nobody else does.
    fn scan_is_due<M: Machine>(&self, core: &MmCore<M>, id: SpaceId, scan: &TaskScan, ran: Nanos) -> bool {
        let (now, next) = (core.machine.now(), self.numa.next.load(Relaxed));
        let delay = core.knobs.get(Knob::NumaScanDelayMs) * MILLISECOND;
        if next == 0 {
            self.numa.next.store((now + delay).max(1), Relaxed);
        }
        let period = || self.scan_period(core, id) * MILLISECOND;
        scan.ask(ran, delay, period)
            && next != 0
            && now >= next
            && self.numa.next.compare_exchange(next, now + period(), Relaxed, Relaxed).is_ok()
    }

    /// Milliseconds from one part to the next. The first is the shortest.
    fn scan_period<M: Machine>(&self, core: &MmCore<M>, id: SpaceId) -> u64 {
        match self.numa.period.load(Relaxed) {
            0 => scan_periods(core, id).0,
            period => period,
        }
    }

    /// If all of the space has been marked once more, make the period longer or shorter.
    fn adapt_period<M: Machine>(&self, core: &MmCore<M>, id: SpaceId) {
        let rounds = self.numa.rounds.load(Relaxed);
        // Mostly nothing has changed, and faults of several CPUs look.
        if self.numa.adapted.load(Relaxed) == rounds || self.numa.adapted.swap(rounds, Relaxed) == rounds {
            return;
        }
        let (least, most) = scan_periods(core, id);
        let period = self.numa.period.load(Relaxed).max(least);
        let next = self.numa.told.next_period(period, (least, most));
        let (NextScan::After(period) | NextScan::FromNow(period)) = next;
        self.numa.period.store(period, Relaxed);
        if next == NextScan::FromNow(period) {
            self.numa.next.store(core.machine.now() + period * MILLISECOND, Relaxed);
        }
    }

    /// Pages were used: on their own node? By the task that used them before? Nothing is known of who used what was
    /// just promoted before: it counts as used from elsewhere, and by one task. (`task_numa_fault`)
    pub(super) fn note_locality<M: Machine>(
        &self,
        core: &MmCore<M>,
        id: SpaceId,
        pages: u64,
        (local, private): (bool, bool),
    ) {
        self.adapt_period(core, id);
        self.numa.told.local[usize::from(local)].fetch_add(pages, Relaxed);
        self.numa.told.private[usize::from(private)].fetch_add(pages, Relaxed);
    }

    /// A page could not be moved to where it is used.
    pub(super) fn note_immobile(&self) {
        self.numa.told.immobile.fetch_add(1, Relaxed);
    }

    /// Move a folio that is used from `to`, if that has room and the folio can be moved. Has it been?
    pub(super) fn move_misplaced<M: Machine>(
        &self,
        core: &MmCore<M>,
        vma: &VmaView,
        head: Pfn,
        to: NodeId,
    ) -> bool {
        let frame = &core.frames[head];
        let (from, tiering) =
            (frame.node(), core.knobs.get(Knob::NumaBalancing) & numa_balancing::TIERING != 0);
        if !frame.has(FrameFlags::SWAPBACKED) {
            // What several processes run is as near to one as to the other; what is dirty may have to be written first.
            let code = vma.prot.contains(Prot::EXEC) && core.frames.likely_mapped_shared(head);
            if code || frame.has(FrameFlags::DIRTY) {
                return false;
            }
        }
        let order = frame.order();
        let mut zones = core.alloc.zones_of(to, ZoneKind::Movable);
        let pages = u64::from(order.frames());
        if !zones
            .any(|zone| zone.watermark_ok_above(pages, Watermark::High, ZoneKind::Movable, Reserve::None))
        {
            if tiering {
                core.alloc.wake_kswapd_of(core, to, order);
            }
            return false;
        }
        // A folio for which there is no block stays whole, and where it is.
        let Some(fresh) = migrate::frame_on(core, to, order, Watermark::Low) else { return false };
        let mut moved = false;
        let mut target = Taken(Some(fresh));
        if migrate::isolate(core, head).is_ok() {
            let mut folios = List::new();
            folios.push_head(&core.frames, head);
            let done = migrate::folios(core, folios, &mut target, Mode::Async, MigrateReason::Promotion);
            core.count(Stat::NumaPagesMigrated, done.moved as i64);
            moved = done.moved > 0;
            if !core.tiers.is_top(from) && core.tiers.is_top(to) {
                core.count(Stat::PgpromoteSuccess, done.moved as i64);
            }
        }
        if let Some(unused) = target.0 {
            core.put(unused.into_pfn());
        }
        moved
    }
}

/// Milliseconds between two parts of a space, at least and at most: all of it in the shortest or the longest period,
/// within what may be marked in a second.
fn scan_periods<M: Machine>(core: &MmCore<M>, id: SpaceId) -> (u64, u64) {
    let size_mb = core.knobs.get(Knob::NumaScanSizeMb);
    let resident = core.tables.lock(core, id).counts().pages();
    let parts = resident.div_ceil((size_mb << 20) / PAGE_SIZE).max(1);
    let floor = 1000 * size_mb / MOST_MB_PER_SECOND;
    let least = (core.knobs.get(Knob::NumaScanPeriodMinMs) / parts).max(floor);
    (least, (core.knobs.get(Knob::NumaScanPeriodMaxMs) / parts).max(least))
}

/// Do uses of a range's pages tell where they should be? (Where a program has said where they are to be, it is not
/// asked.) Files that nobody may write are where their readers are in no case.
fn tells_user(vma: &VmaView) -> bool {
    let reads_file = vma.file.is_some() && !vma.prot.contains(Prot::WRITE);
    !vma.prot.is_empty() && !reads_file
}

/// Mark the entries of a range whose pages could be elsewhere. Returns how many.
fn mark<M: Machine>(
    core: &MmCore<M>,
    id: SpaceId,
    (start, end): (Vpn, Vpn),
    is_cow: bool,
    gather: &mut Gather,
) -> u64 {
    let normal = core.knobs.get(Knob::NumaBalancing) & numa_balancing::NORMAL != 0;
    let policy = core.hot.policy(&core.knobs);
    let now_ms = core.machine.now() / MILLISECOND;
    let mut marked = 0;
    let mut tables: LockedTables<'_, M> = core.tables.lock(core, id);
    tables.for_each(start, end, |tables, run: EntryRun| {
        if !run.entry.is_present() || !run.entry.has(Bits::USER) || run.entry.pfn() == core.zero {
            return;
        }
        let FolioPages { head, .. } = run.mapped(&core.frames);
        let frame = &core.frames[head];
        let top = core.tiers.is_top(frame.node());
        if !(if top { normal } else { policy.wants_faults() })
            || (!frame.has(FrameFlags::SWAPBACKED) && frame.has(FrameFlags::DIRTY))
            // What spaces share until one of them writes to it is as near to one as to the other.
            || (is_cow && core.frames.likely_mapped_shared(head))
        {
            return;
        }
        if !top {
            policy.marked(head, now_ms);
        }
        let rights = Rights::from_bits_truncate(run.entry.bits().bits()) & Rights::NO_EXEC;
        let tightened = tables.change_rights(&run, rights, false);
        core.charge(Work::EntrySet, u64::from(run.count));
        gather.tightened(core, tightened);
        marked += u64::from(run.count) * u64::from(run.order.frames());
    });
    marked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_asks_once_in_each_period_that_it_has_run() {
        let (task, asked) = (TaskScan::default(), |task: &TaskScan, ran| task.ask(ran, 1000, || 100));
        assert!(!asked(&task, 1000) && asked(&task, 1001), "its first period is the delay");
        assert!(!asked(&task, 1100) && asked(&task, 1150));
        // It counts from when it was due, not from when it asked.
        assert!(asked(&task, 1201) && !asked(&task, 1300));
        task.put_off(1000);
        assert!(!asked(&task, 2300) && asked(&task, 2301));
        // A space without a delay, too, has a first period.
        let task = TaskScan::default();
        assert!(task.ask(1, 0, || 100) && !task.ask(2, 0, || 100));
    }

    #[test]
    fn the_period_follows_what_faults_tell() {
        // Of 100 pages so many were local, and so many were used by the task that had used them before.
        let next = |local: u64, private: u64, immobile: u64| {
            let told = Told::default();
            let set = |cells: &[AtomicU64; 2], of: u64| {
                cells[0].store(100 - of, Relaxed);
                cells[1].store(of, Relaxed);
            };
            set(&told.local, local);
            set(&told.private, private);
            told.immobile.store(immobile, Relaxed);
            match told.next_period(1000, (300, 60_000)) {
                NextScan::After(period) | NextScan::FromNow(period) => period,
            }
        };
        // Each task has its own pages: longer, by the tenths above seven, and at least by one.
        assert_eq!([next(0, 100, 0), next(50, 100, 0), next(50, 75, 0)], [2000, 1300, 1100]);
        // Shared, and where they are used.
        assert_eq!([next(100, 0, 0), next(70, 60, 0)], [1300, 1100]);
        // Shared, and elsewhere: shorter, by the tenths that lack of seven.
        assert_eq!([next(60, 30, 0), next(20, 40, 0), next(0, 0, 0)], [900, 700, 300]);
        assert_eq!(next(60, 30, 1), 2000, "nothing could be moved");
        let told = Told::default();
        assert_eq!(
            told.next_period(1000, (300, 60_000)),
            NextScan::FromNow(2000),
            "nobody has told anything"
        );
        told.local[0].store(1, Relaxed);
        told.private[1].store(1, Relaxed);
        told.immobile.store(1, Relaxed);
        assert_eq!(
            told.next_period(50_000, (300, 60_000)),
            NextScan::FromNow(60_000),
            "no longer than the longest"
        );
        // What could not be moved in that round says nothing of the next.
        told.local[0].store(40, Relaxed);
        told.local[1].store(60, Relaxed);
        told.private[0].store(70, Relaxed);
        told.private[1].store(30, Relaxed);
        assert_eq!(told.next_period(1000, (300, 60_000)), NextScan::After(900));
    }
}
