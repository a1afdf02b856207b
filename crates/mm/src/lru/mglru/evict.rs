//! The first half of eviction: isolating folios of the oldest generation, and sorting those that do not belong there.

use super::form::TIERS;
use super::place::{USE_FLAGS, is_file};
use super::tiers::Standing;
use super::{BATCH, LARGE_BATCH, MIN_GENERATIONS, form, queue};
use crate::event::Event;
use crate::frame::{Frame, FrameFlags, List, LruGen};
use crate::knobs::Knob;
use crate::lru::policy::{End, LockedLists};
use crate::lru::vec::{ByKind, LruLists, ZONE_KINDS};
use crate::lru::{Lru, LruList, LruVec, MAX_SWAPPINESS, evictable, push, take};
use crate::machine::{Machine, Scope, Work, ZoneKind};
use crate::platform::Platform;
use crate::units::*;

/// What eviction wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// Highest kind of zone that is wanted.
    pub highest: ZoneKind,
    /// `vm.swappiness`, or 0 if nothing can be swapped.
    pub swappiness: u64,
    /// `Some`: at most this many folios are scanned, and the progress is exactly the pages scanned.
    pub budget: Option<u64>,
}

impl Wanted {
    fn can_swap(&self) -> bool {
        self.swappiness > 0
    }
}

/// The isolated folios, and the progress.
#[derive(Debug, Default)]
pub(crate) struct Evictable {
    /// The folios, each with a reference; the tail was the queue's tail. All are of one type.
    pub folios: List,
    pub file: bool,
    /// Pages scanned, and 1 if the window moved (not with a budget); 0: nothing more can be taken now.
    pub progress: u64,
    pub taken: u64,
    /// Pages that were not taken, but moved to their generation.
    pub sorted: u64,
    /// Sorted pages of files that were moved because they are dirty.
    pub dirty: u64,
    /// Those of them that are not under write-back.
    pub unqueued_dirty: u64,
}

/// A scan of one type of a vector: its oldest generation, and the highest tier to take.
struct EvictScan {
    place: (NodeId, GroupId),
    file: bool,
    oldest: LruGen,
    limit: usize,
    highest: ZoneKind,
    reworked: bool,
    budget: Option<u64>,
}

impl EvictScan {
    /// In the form of 6.14: whether the folio must be written before it can be evicted.
    #[inline]
    fn waits_for_write(&self, flags: FrameFlags) -> bool {
        let kept = if self.file { FrameFlags::DIRTY | FrameFlags::WRITEBACK } else { FrameFlags::WRITEBACK };
        self.reworked && self.budget.is_none() && flags.intersects(kept)
    }
}

#[derive(Default)]
struct ScanResult {
    out: Evictable,
    scanned: u64,
    skipped: ByKind,
    /// Folios that may still be scanned.
    left: u64,
    /// Isolated pages, to be subtracted from sizes: those of the oldest generation. Those of other generations (the
    /// folio was promoted after it was sorted) are kept by list.
    gone: ByKind,
    strays: [ByKind; 2],
}

impl ScanResult {
    #[inline]
    fn take(&mut self, vec: &LruVec, generation: LruGen, kind: ZoneKind, scan: &EvictScan, pages: u64) {
        self.out.taken += pages;
        if generation == scan.oldest {
            self.gone[kind as usize] -= pages as i64;
        } else {
            vec.generations.add(generation, scan.file, kind, -(pages as i64));
            let list = vec.generations.list(generation, scan.file);
            self.strays[list.is_active() as usize][kind as usize] -= pages as i64;
        }
    }

    /// Add what an earlier scan, which took nothing, has found.
    fn add_before(&mut self, before: &ScanResult) {
        self.scanned += before.scanned;
        self.out.sorted += before.out.sorted;
        for (skipped, more) in self.skipped.iter_mut().zip(before.skipped) {
            *skipped += more;
        }
    }
}

impl Lru {
    /// Take folios of the oldest generation of a vector, of the type that is cheaper to evict, and move the window past
    /// empty generations.
    pub(crate) fn isolate_oldest<M: Machine>(
        &self,
        platform: &Platform<M>,
        node: NodeId,
        group: GroupId,
        wanted: Wanted,
    ) -> Evictable {
        let _scope = platform.scope(Scope::IsolateLruFolios);
        let vec = self.vec(node, group);
        let reworked = form::is_reworked(&platform.knobs);
        let mut lists = vec.lock();
        self.batches.drain(platform);
        if wanted.budget.is_some() {
            // Other tasks may have freed all folios of the oldest generation.
            self.leave_empty(vec, &lists, wanted.can_swap(), reworked);
        }
        let (file, found) = self.scan_types(platform, vec, ((node, group), &mut lists), wanted);
        let moved = self.leave_empty(vec, &lists, wanted.can_swap(), reworked);
        let oldest = vec.generations.oldest_seq(wanted.can_swap());
        let progress = if wanted.budget.is_some() {
            found.scanned
        } else if oldest + MIN_GENERATIONS > vec.generations.max_seq() {
            0
        } else {
            found.scanned + moved as u64
        };
        drop(lists);
        self.count_skips(platform, &found.skipped);
        let list = LruList::new(file, false);
        platform.event(Event::MmVmscanLruIsolate, [list as u64, LARGE_BATCH, found.scanned, found.out.taken]);
        Evictable { file, progress, ..found.out }
    }

    /// Scan the type to evict from; if it has nothing, the other type. With a budget, a type of which folios were only
    /// sorted is scanned once more.
    fn scan_types<M: Machine>(
        &self,
        platform: &Platform<M>,
        vec: &LruVec,
        (place, lists): ((NodeId, GroupId), &mut LruLists),
        wanted: Wanted,
    ) -> (bool, ScanResult) {
        let generations = &vec.generations;
        let refaults_tell = platform.knobs.get(Knob::LruGenPid) != 0;
        let reworked = form::is_reworked(&platform.knobs);
        let (mut file, mut limit) = if reworked {
            (first_type_reworked(vec, wanted.swappiness, refaults_tell), None)
        } else {
            first_type(vec, wanted.swappiness, refaults_tell)
        };
        let types = if wanted.can_swap() { 2 } else { 1 };
        let mut before = ScanResult::default();
        for turn in 0..types {
            let oldest = generations.oldest(file);
            let gains = form::gains(reworked);
            let measured =
                || if refaults_tell { generations.tiers.limit(file, oldest, gains) } else { TIERS - 1 };
            let limit = limit.take().unwrap_or_else(measured);
            let Wanted { highest, budget, .. } = wanted;
            let scan = EvictScan { place, file, oldest, limit, highest, reworked, budget };
            let mut found = self.scan(platform, vec, lists, &scan);
            found.add_before(&before);
            let ends = if budget.is_some() { found.out.taken > 0 } else { found.scanned > 0 };
            if ends || turn + 1 == types {
                return (file, found);
            }
            file ^= found.scanned == before.scanned;
            before = found;
        }
        unreachable!("one type must have been scanned")
    }

    /// Take folios from the tails of a type's oldest generation, first from wanted zones. Without a budget, `scanned`
    /// is 0 if nothing was taken and the end was reached.
    fn scan<M: Machine>(
        &self,
        platform: &Platform<M>,
        vec: &LruVec,
        lists: &mut LruLists,
        scan: &EvictScan,
    ) -> ScanResult {
        let mut found = ScanResult { left: scan.budget.unwrap_or(LARGE_BATCH), ..ScanResult::default() };
        if vec.generations.count(scan.file) == MIN_GENERATIONS {
            return found;
        }
        let highest = scan.highest as usize;
        for kind in (0..ZONE_KINDS).map(|i| ZoneKind::ALL[(highest + ZONE_KINDS - i) % ZONE_KINDS]) {
            self.scan_queue(platform, (vec, lists), kind, scan, &mut found);
            if found.left == 0 || found.out.taken >= BATCH {
                break;
            }
        }
        vec.generations.add_all(scan.oldest, scan.file, &found.gone);
        for (list, gone) in [
            (vec.generations.list(scan.oldest, scan.file), found.gone),
            (LruList::new(scan.file, false), found.strays[0]),
            (LruList::new(scan.file, true), found.strays[1]),
        ] {
            if gone != [0; ZONE_KINDS] {
                self.account(platform, lists, scan.place, list, &gone);
            }
        }
        platform.charge(Work::LruMove, found.out.folios.len() as u64);
        if scan.budget.is_none() && found.out.taken == 0 && found.left > 0 {
            found.scanned = 0;
        }
        found
    }

    /// The same for zones of one kind. The isolated pages are not subtracted from sizes yet.
    fn scan_queue<M: Machine>(
        &self,
        platform: &Platform<M>,
        (vec, lists): (&LruVec, &mut LruLists),
        kind: ZoneKind,
        scan: &EvictScan,
        found: &mut ScanResult,
    ) {
        let from = queue(scan.oldest, scan.file, kind) as usize;
        let (mut skipped, mut skips) = (List::new(), 0);
        // The first of the entries at the tail that are taken and leave the queue together, and their number.
        let (mut first, mut run) = (Pfn::NONE, 0);
        let mut at = lists.lists[from].tail();
        while let Some(pfn) = at
            && found.left > 0
            && found.out.taken.max(skips) < BATCH
        {
            let frame = &platform.frames[pfn];
            at = Some(frame.prev()).filter(|prev| prev.is_some());
            found.left -= 1;
            let pages = frame.pages() as u64;
            found.scanned += pages;
            platform.writes_frame(pfn);
            let goal = self.sort(platform, (vec, lists), (pfn, kind), scan, found);
            if goal.is_none()
                && let Some(generation) = isolate(frame, scan.reworked)
            {
                (first, run) = (pfn, run + 1);
                found.take(vec, generation, kind, scan, pages);
                continue;
            }
            let mut taken = lists.lists[from].split_tail(&platform.frames, first, run);
            found.out.folios.splice_head(&platform.frames, &mut taken);
            run = 0;
            lists.lists[from].pop_tail(&platform.frames);
            if let Some((generation, end)) = goal {
                self.requeue(platform, lists, (pfn, kind), generation, end);
                found.out.sorted += pages;
            } else {
                skipped.push_head(&platform.frames, pfn);
                skips += pages;
            }
        }
        let mut taken = lists.lists[from].split_tail(&platform.frames, first, run);
        found.out.folios.splice_head(&platform.frames, &mut taken);
        lists.lists[from].splice_head(&platform.frames, &mut skipped);
        found.skipped[kind as usize] += skips as i64;
    }

    /// The generation of a folio at the oldest generation's tail, and the end of its queue, if the folio is not to be
    /// evicted.
    #[inline]
    fn sort<M: Machine>(
        &self,
        platform: &Platform<M>,
        (vec, lists): LockedLists<'_>,
        (pfn, kind): (Pfn, ZoneKind),
        scan: &EvictScan,
        found: &mut ScanResult,
    ) -> Option<(LruGen, End)> {
        let frame = &platform.frames[pfn];
        let flags = frame.flags();
        if !evictable(frame) {
            // Reclaim puts it on the unevictable list.
            return None;
        }
        let generation = flags.generation().expect("the generation of a folio in a queue of generations");
        let promoted = generation != scan.oldest;
        let standing = Standing::of(platform, flags);
        let protected = standing.tier > scan.limit || standing.full;
        if !promoted && !protected && kind <= scan.highest {
            return if scan.waits_for_write(flags) {
                Some(self.send_to_wait(platform, (vec, lists), frame, scan, found))
            } else {
                None
            };
        }
        if promoted {
            return Some((generation, End::Head));
        }
        let next = self.next_generation(platform, (vec, lists), frame, scan.oldest);
        if protected && !(scan.reworked && standing.full) {
            vec.generations.tiers.protected(scan.file, scan.oldest, standing.tier, frame.pages() as u64);
        }
        Some((next, if protected && scan.reworked { End::Head } else { End::Tail }))
    }

    /// Move a folio that must be written first to the next generation. It comes back when its write ends.
    #[cold]
    fn send_to_wait<M: Machine>(
        &self,
        platform: &Platform<M>,
        (vec, lists): (&LruVec, &mut LruLists),
        frame: &Frame,
        scan: &EvictScan,
        found: &mut ScanResult,
    ) -> (LruGen, End) {
        let flags = frame.flags();
        if scan.file && flags.contains(FrameFlags::DIRTY) {
            let pages = frame.pages() as u64;
            found.out.dirty += pages;
            found.out.unqueued_dirty += if flags.contains(FrameFlags::WRITEBACK) { 0 } else { pages };
        }
        frame.set(FrameFlags::RECLAIM);
        (self.next_generation(platform, (vec, lists), frame, scan.oldest), End::Head)
    }

    /// Put a folio at an end of the queue of its generation.
    pub(super) fn requeue<M: Machine>(
        &self,
        platform: &Platform<M>,
        lists: &mut LruLists,
        (pfn, kind): (Pfn, ZoneKind),
        generation: LruGen,
        end: End,
    ) {
        platform.charge(Work::LruMove, 1);
        let frame = &platform.frames[pfn];
        let to = queue(generation, is_file(frame.flags()), kind);
        frame.set_queue(to);
        push(platform, &mut lists.lists[to as usize], pfn, end);
    }
}

/// Take the right to move a folio that leaves its queue, and a reference, and clear its generation, which is returned.
/// `None`: another task moves or frees it.
#[inline]
fn isolate(frame: &Frame, reworked: bool) -> Option<LruGen> {
    if !take(frame) {
        return None;
    }
    let before = frame.update(|flags| {
        // If it was not used again, its uses count from the start when it comes back.
        let gone = match (flags.contains(FrameFlags::REFERENCED), reworked) {
            (true, false) => FrameFlags::REFERENCED,
            (false, false) => USE_FLAGS,
            (true, true) => FrameFlags::empty(),
            (false, true) => FrameFlags::USES,
        };
        Some((flags - gone).with_generation(None))
    });
    frame.set_queue(0);
    before.generation()
}

/// The type to evict from, and its highest tier to take if this was computed, too. Without `refaults_tell`, files are
/// evicted before anonymous memory of the same age, as if there were no refaults.
fn first_type(vec: &LruVec, swappiness: u64, refaults_tell: bool) -> (bool, Option<usize>) {
    let generations = &vec.generations;
    let oldest = [generations.min_seq(false), generations.min_seq(true)];
    if swappiness == 0 || swappiness == 1 && oldest[0] >= oldest[1] {
        (true, None)
    } else if oldest[0] < oldest[1] || swappiness == MAX_SWAPPINESS {
        (false, None)
    } else if !refaults_tell {
        (true, None)
    } else {
        let (file, limit) = generations.tiers.choose(oldest.map(LruGen::of), swappiness);
        (file, Some(limit))
    }
}

/// The same in the form of 6.14: ages do not matter, and all tiers are compared.
fn first_type_reworked(vec: &LruVec, swappiness: u64, refaults_tell: bool) -> bool {
    let generations = &vec.generations;
    if swappiness <= 1 {
        true
    } else if swappiness == MAX_SWAPPINESS {
        false
    } else {
        let oldest = [false, true].map(|file| generations.oldest(file));
        !refaults_tell || generations.tiers.prefers_files(oldest, swappiness)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A promotion takes no lock, so it may come after the look at a folio's generation and before its isolation.
    #[test]
    fn promoted_folio_is_taken_from_its_new_generation() {
        let vec = LruVec::default();
        let (oldest, youngest) = (vec.generations.oldest(true), LruGen::of(vec.generations.max_seq()));
        let (place, highest) = ((NodeId(0), GroupId(0)), ZoneKind::Movable);
        let scan = EvictScan { place, file: true, oldest, limit: 0, highest, reworked: false, budget: None };
        let mut found = ScanResult::default();
        found.take(&vec, oldest, ZoneKind::Normal, &scan, 2);
        found.take(&vec, youngest, ZoneKind::Normal, &scan, 4);
        let of_kind = |by: ByKind| by[ZoneKind::Normal as usize];
        assert_eq!((found.out.taken, of_kind(found.gone), found.strays.map(of_kind)), (6, -2, [0, -4]));
        // The scan subtracts what is gone from the oldest generation at its end.
        let sizes = [oldest, youngest].map(|generation| of_kind(vec.generations.by_kind(generation, true)));
        assert_eq!(sizes, [0, -4]);
    }
}
