//! NUMA balancing: hinting faults show where pages are used, and pages are moved there.
//!
//! From time to time a task takes the right of access from the next entries of its space, so that the next use of each
//! page faults ([`Spaces::mark_for_numa`]). A task does so when it has run for a period, by its own clock, since it
//! last did, and no other task of the space has done so for a period of real time. So a task that mostly sleeps rarely
//! does. The fault restores the right. It shows from which node the page is used, and how soon after it was marked
//! (`fault/hint`). A hot page on a slower tier is promoted; a page that another node uses is moved there.
//!
//! Source: kernel/sched/fair.c (`task_numa_work`, `update_task_scan_period`), mm/mprotect.c (`change_pte_range`),
//! mm/migrate.c (`migrate_misplaced_folio`) of Linux 6.12. Tasks are not moved to their pages here: see docs/tiers.md.

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

/// A scan may look at this many times the pages that it may mark.
const SCAN_PER_MARK: u64 = 8;
/// Delay of a task after it has marked pages, so that other tasks come next: two ticks of Linux's default clock.
const YIELD_DELAY: Nanos = 8 * MILLISECOND;
/// Most MiB that may be marked in a second.
const MAX_MB_PER_SECOND: u64 = 2560;

/// State of a space's scan.
#[derive(Default)]
pub(super) struct NumaScan {
    /// Earliest time of the next scan; 0: none has begun.
    next: AtomicU64,
    /// Page where the next scan begins.
    cursor: AtomicU64,
    /// Milliseconds between scans; 0: not adapted yet.
    period: AtomicU64,
    /// Number of complete passes over the space.
    rounds: AtomicU64,
    /// `rounds` when the period was last adapted.
    adapted: AtomicU64,
    /// Statistics of hinting faults since then.
    stats: FaultStats,
}

/// When a task last asked for a scan, in its own running time. It begins with the task.
#[derive(Default)]
pub struct TaskScan(AtomicU64);

impl TaskScan {
    /// Whether a task whose running time is `ran` is due for a scan; if so, it counts as having asked. The first
    /// period of a new task is `delay`.
    fn take_due(&self, ran: Nanos, delay: Nanos, period: impl FnOnce() -> Nanos) -> bool {
        let last = self.0.load(Relaxed);
        let next = last + if last == 0 { delay } else { period() };
        let due = ran > next;
        if due {
            self.0.store(next.max(1), Relaxed);
        }
        due
    }

    /// Postpone the task's next scan.
    fn postpone(&self, by: Nanos) {
        self.0.store(self.0.load(Relaxed) + by, Relaxed);
    }
}

/// Pages by what hinting faults have shown of them.
#[derive(Default)]
struct FaultStats {
    /// Used from another node, and from their own.
    local: [AtomicU64; 2],
    /// Used by another task than before, and by the same.
    private: [AtomicU64; 2],
    /// Could not be moved to the node that uses them.
    immobile: AtomicU64,
}

/// Number of steps in a period, by which it grows or shrinks, and how many tenths of uses must be local or private for
/// it to grow.
const SLOTS: u64 = 10;
const THRESHOLD: u64 = 7;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NextScan {
    /// It follows the current one.
    After(u64),
    /// It begins now: there is nothing to learn at present.
    FromNow(u64),
}

impl FaultStats {
    /// The period after the one of these statistics: longer if pages are where they are used, or belong to one task,
    /// or cannot be moved; shorter otherwise. (`update_task_scan_period`, for a space instead of a task.)
    fn next_period(&self, period: u64, (least, most): (u64, u64)) -> NextScan {
        let taken = |cells: &[AtomicU64; 2]| cells.each_ref().map(|cell| cell.swap(0, Relaxed));
        let ([remote, local], [shared, private]) = (taken(&self.local), taken(&self.private));
        let immobile = self.immobile.swap(0, Relaxed);
        if local + shared == 0 || immobile > 0 {
            return NextScan::FromNow((period * 2).min(most));
        }
        let slot = period.div_ceil(SLOTS);
        // A fault adds to `local` before it adds to `private`: this may see one without the other.
        let own = private * SLOTS / (private + shared).max(1);
        let near = local * SLOTS / (local + remote);
        let longer = |ratio: u64| period + (ratio - THRESHOLD).max(1) * slot;
        let next = if own >= THRESHOLD {
            longer(own)
        } else if near >= THRESHOLD {
            longer(near)
        } else {
            period.saturating_sub((THRESHOLD - own.max(near)) * slot)
        };
        NextScan::After(next.clamp(least, most.max(least)))
    }
}

/// The frame that was allocated for a folio.
struct Reserved(Option<Fresh>);

impl<M: Machine> Target<M> for Reserved {
    fn take(&mut self, _st: &MmCore<M>, _from: Pfn, order: Order) -> Option<Fresh> {
        if self.0.as_ref().is_some_and(|fresh| fresh.order() == order) { self.0.take() } else { None }
    }

    fn give_back(&mut self, _st: &MmCore<M>, unused: Fresh) {
        self.0 = Some(unused);
    }
}

/// Whether a node has enough free memory to promote any page that is used.
pub(super) fn has_ample_memory<M: Machine>(core: &MmCore<M>, node: NodeId) -> bool {
    const GIB: u64 = (1 << 30) / PAGE_SIZE;
    let present: u64 = core.alloc.zones_of(node, ZoneKind::Movable).map(|zone| zone.managed()).sum();
    let room = GIB.max(present / 16);
    let mut zones = core.alloc.zones_of(node, ZoneKind::Movable);
    zones.any(|zone| zone.watermark_ok_above(room, Watermark::Promo, ZoneKind::Movable, Reserve::None))
}

impl Spaces {
    /// Mark the next part of a space, if a scan is due. A task of the space calls this after it has run for `ran`,
    /// without locks.
    pub(crate) fn mark_for_numa<M: Machine>(
        &self,
        core: &MmCore<M>,
        id: SpaceId,
        scan: &TaskScan,
        ran: Nanos,
    ) {
        let Some(space) = self.get(id) else { return };
        if !space.scan_is_due(core, id, scan, ran) {
            return;
        }
        scan.postpone(YIELD_DELAY);
        let _scope = core.scope(Scope::TaskNumaWork);
        let Some(_held) = space.mapping.try_read(&core.machine, WaitKey::Space(id)) else { return };
        let begun = core.machine.now();
        let size = (core.knobs.get(Knob::NumaScanSizeMb) << 20) / PAGE_SIZE;
        let (mut left, mut look) = (size, size * SCAN_PER_MARK);
        let mut at = Vpn(space.numa.cursor.load(Relaxed));
        let next = loop {
            // Without another range, the next scan begins at the start.
            let wanted = |vma: &VmaView| is_scanned(vma) && space.policy_of(vma).is_default();
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
        // Scans take at most about 3 % of the task's time.
        scan.postpone(32 * core.machine.now().saturating_sub(begun));
    }
}

impl Space {
    /// Whether a scan is due. If so, the caller alone must do it.
    fn scan_is_due<M: Machine>(&self, core: &MmCore<M>, id: SpaceId, scan: &TaskScan, ran: Nanos) -> bool {
        let (now, next) = (core.machine.now(), self.numa.next.load(Relaxed));
        let delay = core.knobs.get(Knob::NumaScanDelayMs) * MILLISECOND;
        if next == 0 {
            self.numa.next.store((now + delay).max(1), Relaxed);
        }
        let period = || self.scan_period(core, id) * MILLISECOND;
        scan.take_due(ran, delay, period)
            && next != 0
            && now >= next
            && self.numa.next.compare_exchange(next, now + period(), Relaxed, Relaxed).is_ok()
    }

    /// Milliseconds between scans. The first period is the shortest.
    fn scan_period<M: Machine>(&self, core: &MmCore<M>, id: SpaceId) -> u64 {
        match self.numa.period.load(Relaxed) {
            0 => scan_periods(core, id).0,
            period => period,
        }
    }

    /// After a complete pass over the space, make the period longer or shorter.
    fn adapt_period<M: Machine>(&self, core: &MmCore<M>, id: SpaceId) {
        let rounds = self.numa.rounds.load(Relaxed);
        // Usually nothing has changed, and several CPUs look: read before writing.
        if self.numa.adapted.load(Relaxed) == rounds || self.numa.adapted.swap(rounds, Relaxed) == rounds {
            return;
        }
        let (least, most) = scan_periods(core, id);
        let period = self.numa.period.load(Relaxed).max(least);
        let next = self.numa.stats.next_period(period, (least, most));
        let (NextScan::After(period) | NextScan::FromNow(period)) = next;
        self.numa.period.store(period, Relaxed);
        if next == NextScan::FromNow(period) {
            self.numa.next.store(core.machine.now() + period * MILLISECOND, Relaxed);
        }
    }

    /// Count pages by whether their own node used them, and the task that used them before. The earlier user of a page
    /// that was just promoted is not known: it counts as remote and private. (`task_numa_fault`)
    pub(super) fn note_locality<M: Machine>(
        &self,
        core: &MmCore<M>,
        id: SpaceId,
        pages: u64,
        (local, private): (bool, bool),
    ) {
        self.adapt_period(core, id);
        self.numa.stats.local[usize::from(local)].fetch_add(pages, Relaxed);
        self.numa.stats.private[usize::from(private)].fetch_add(pages, Relaxed);
    }

    /// A page could not be moved to the node that uses it.
    pub(super) fn note_immobile(&self) {
        self.numa.stats.immobile.fetch_add(1, Relaxed);
    }

    /// Move a folio to the node `to` that uses it, if the node has room and the folio can be moved. Returns whether it
    /// was moved.
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
            // Code of several processes belongs to no single node. A dirty folio may have to be written first.
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
        // Without a block of its size the folio stays where it is; it is not split.
        let Some(fresh) = migrate::frame_on(core, to, order, Watermark::Low) else { return false };
        let mut moved = false;
        let mut target = Reserved(Some(fresh));
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

/// Shortest and longest time between two scans in milliseconds: the knobs' periods are for all of the space, and the
/// limit per second holds for each scan.
fn scan_periods<M: Machine>(core: &MmCore<M>, id: SpaceId) -> (u64, u64) {
    let size_mb = core.knobs.get(Knob::NumaScanSizeMb);
    let resident = core.tables.tree(id).counts().pages();
    let parts = resident.div_ceil((size_mb << 20) / PAGE_SIZE).max(1);
    let floor = 1000 * size_mb / MAX_MB_PER_SECOND;
    let least = (core.knobs.get(Knob::NumaScanPeriodMinMs) / parts).max(floor);
    (least, (core.knobs.get(Knob::NumaScanPeriodMaxMs) / parts).max(least))
}

/// Whether uses of a range's pages show where they should be. A file that nothing may write stays out: its readers may
/// be anywhere.
fn is_scanned(vma: &VmaView) -> bool {
    let reads_file = vma.file.is_some() && !vma.prot.contains(Prot::WRITE);
    !vma.prot.is_empty() && !reads_file
}

/// Mark the entries of an interval whose pages could be moved. Returns their number.
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
            // Pages that are shared until a write belong to no single node.
            || (is_cow && core.frames.likely_mapped_shared(head))
        {
            return;
        }
        if !top {
            policy.marked(head, now_ms);
        }
        let rights = Rights::from_bits_truncate(run.entry.bits().bits()) & Rights::NO_EXEC;
        let tightened = tables.change_rights(&run, rights, false).expect("the entry allowed use");
        core.charge(Work::EntrySet, u64::from(run.count));
        gather.tightened(core.host(), tightened);
        marked += u64::from(run.count) * u64::from(run.order.frames());
    });
    marked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_due_once_in_each_period_of_its_running_time() {
        let (task, due) = (TaskScan::default(), |task: &TaskScan, ran| task.take_due(ran, 1000, || 100));
        assert!(!due(&task, 1000) && due(&task, 1001), "the first period must be the delay");
        assert!(!due(&task, 1100) && due(&task, 1150));
        // The period counts from when the task was due, not from when it asked.
        assert!(due(&task, 1201) && !due(&task, 1300));
        task.postpone(1000);
        assert!(!due(&task, 2300) && due(&task, 2301));
        // A space without a delay has a first period, too.
        let task = TaskScan::default();
        assert!(task.take_due(1, 0, || 100) && !task.take_due(2, 0, || 100));
    }

    #[test]
    fn scan_period_adapts_to_hinting_faults() {
        // Of 100 pages, `local` were used by their own node and `private` by the task that used them before.
        let next = |local: u64, private: u64, immobile: u64| {
            let stats = FaultStats::default();
            let set = |cells: &[AtomicU64; 2], of: u64| {
                cells[0].store(100 - of, Relaxed);
                cells[1].store(of, Relaxed);
            };
            set(&stats.local, local);
            set(&stats.private, private);
            stats.immobile.store(immobile, Relaxed);
            match stats.next_period(1000, (300, 60_000)) {
                NextScan::After(period) | NextScan::FromNow(period) => period,
            }
        };
        // Private pages: longer, by the tenths above seven, and by one at least.
        assert_eq!([next(0, 100, 0), next(50, 100, 0), next(50, 75, 0)], [2000, 1300, 1100]);
        // Shared pages on the node that uses them.
        assert_eq!([next(100, 0, 0), next(70, 60, 0)], [1300, 1100]);
        // Shared and remote pages: shorter, by the tenths missing from seven.
        assert_eq!([next(60, 30, 0), next(20, 40, 0), next(0, 0, 0)], [900, 700, 300]);
        assert_eq!(next(60, 30, 1), 2000, "an immobile page doubles the period");
        let stats = FaultStats::default();
        assert_eq!(
            stats.next_period(1000, (300, 60_000)),
            NextScan::FromNow(2000),
            "a round without faults doubles the period"
        );
        stats.local[0].store(1, Relaxed);
        stats.private[1].store(1, Relaxed);
        stats.immobile.store(1, Relaxed);
        assert_eq!(
            stats.next_period(50_000, (300, 60_000)),
            NextScan::FromNow(60_000),
            "the period must not exceed the maximum"
        );
        // Pages that could not be moved in an earlier round do not count in the next.
        stats.local[0].store(40, Relaxed);
        stats.local[1].store(60, Relaxed);
        stats.private[0].store(70, Relaxed);
        stats.private[1].store(30, Relaxed);
        assert_eq!(stats.next_period(1000, (300, 60_000)), NextScan::After(900));
    }
}
