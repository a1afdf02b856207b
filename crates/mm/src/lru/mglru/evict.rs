//! Eviction's first half: what is taken from the oldest generation, and what is sorted on the way.

use super::place::{USE_FLAGS, is_file};
use super::tiers::{TIERS, counted_uses, tier};
use super::{BATCH, LARGE_BATCH, MIN_GENERATIONS, queue};
use crate::base::Base;
use crate::event::Event;
use crate::frame::{Frame, FrameFlags, Generation, List};
use crate::knobs::Knob;
use crate::lru::vec::{ByKind, Lists, ZONE_KINDS};
use crate::lru::{Lru, LruList, LruVec, MAX_SWAPPINESS, evictable, take};
use crate::machine::{Machine, Scope, Work, ZoneKind};
use crate::units::*;

/// What eviction is to take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// Highest kind of zone that is wanted.
    pub highest: ZoneKind,
    /// `vm.swappiness`, or 0 if nothing can be swapped.
    pub swappiness: u64,
}

impl Wanted {
    fn can_swap(&self) -> bool {
        self.swappiness > 0
    }
}

/// What was taken, and how far eviction got.
#[derive(Debug, Default)]
pub struct Evictable {
    /// The folios, each with a reference; the tail was the queue's tail. All are of one type.
    pub folios: List,
    /// Are they of files?
    pub file: bool,
    /// Pages looked at, and 1 if the window moved; 0: nothing more can be taken now.
    pub progress: u64,
    /// Pages taken.
    pub taken: u64,
    /// Pages that were not taken, but moved to where they belong.
    pub sorted: u64,
}

/// One scan of a type of a vector: its oldest generation, and the highest tier that is taken.
struct Scan {
    place: (NodeId, GroupId),
    file: bool,
    oldest: Generation,
    limit: usize,
    highest: ZoneKind,
}

/// What a scan found.
#[derive(Default)]
struct Found {
    folios: List,
    scanned: u64,
    taken: u64,
    sorted: u64,
    skipped: ByKind,
}

impl Lru {
    /// Take folios of the oldest generation of a vector, of the type that is better evicted, and leave empty generations behind.
    pub fn isolate_oldest<M: Machine>(
        &self,
        base: &Base<M>,
        node: NodeId,
        group: GroupId,
        wanted: Wanted,
    ) -> Evictable {
        let _scope = base.scope(Scope::IsolateLruFolios);
        let vec = self.vec(node, group);
        let mut lists = vec.lock();
        let (file, found) = self.scan_types(base, vec, ((node, group), &mut lists), wanted);
        let moved = self.leave_empty(vec, &lists, wanted.can_swap());
        let progress = if vec.generations.count(!wanted.can_swap()) == MIN_GENERATIONS {
            0
        } else {
            found.scanned + moved as u64
        };
        drop(lists);
        self.count_skips(base, &found.skipped);
        let list = LruList::new(file, false);
        base.event(Event::MmVmscanLruIsolate, [list as u64, LARGE_BATCH, found.scanned, found.taken]);
        Evictable { folios: found.folios, file, progress, taken: found.taken, sorted: found.sorted }
    }

    /// Scan the type to evict from; if it has nothing, the other.
    fn scan_types<M: Machine>(
        &self,
        base: &Base<M>,
        vec: &LruVec,
        (place, lists): ((NodeId, GroupId), &mut Lists),
        wanted: Wanted,
    ) -> (bool, Found) {
        let generations = &vec.generations;
        let refaults_tell = base.knobs.get(Knob::LruGenPid) != 0;
        let (mut file, mut limit) = first_type(vec, wanted.swappiness, refaults_tell);
        let types = if wanted.can_swap() { 2 } else { 1 };
        for turn in 0..types {
            let oldest = generations.oldest(file);
            let measured = || if refaults_tell { generations.tiers.limit(file, oldest) } else { TIERS - 1 };
            let limit = limit.take().unwrap_or_else(measured);
            let scan = Scan { place, file, oldest, limit, highest: wanted.highest };
            let found = self.scan(base, vec, lists, &scan);
            if found.scanned > 0 || turn + 1 == types {
                return (file, found);
            }
            file = !file;
        }
        unreachable!("a type was scanned")
    }

    /// Take folios from the tails of a type's oldest generation, those of wanted zones first. `scanned` is 0 if nothing was taken and
    /// the end was reached.
    fn scan<M: Machine>(&self, base: &Base<M>, vec: &LruVec, lists: &mut Lists, scan: &Scan) -> Found {
        let mut found = Found::default();
        if vec.generations.count(scan.file) == MIN_GENERATIONS {
            return found;
        }
        let (mut left, mut gone) = (LARGE_BATCH, [[0; ZONE_KINDS]; 2]);
        let highest = scan.highest as usize;
        for kind in (0..ZONE_KINDS).map(|i| ZoneKind::ALL[(highest + ZONE_KINDS - i) % ZONE_KINDS]) {
            let from = queue(scan.oldest, scan.file, kind) as usize;
            let mut skipped = (List::new(), 0);
            while let Some(pfn) = lists.lists[from].pop_tail(&base.frames) {
                let frame = &base.frames[pfn];
                let pages = frame.pages() as u64;
                found.scanned += pages;
                if self.sort(base, (vec, lists), (pfn, kind), scan) {
                    found.sorted += pages;
                } else if let Some(list) = isolate(vec, frame, kind) {
                    found.folios.push_head(&base.frames, pfn);
                    gone[list.is_active() as usize][kind as usize] -= pages as i64;
                    found.taken += pages;
                } else {
                    skipped.0.push_head(&base.frames, pfn);
                    skipped.1 += pages;
                }
                left -= 1;
                if left == 0 || found.taken.max(skipped.1) >= BATCH {
                    break;
                }
            }
            lists.lists[from].splice_head(&base.frames, &mut skipped.0);
            found.skipped[kind as usize] += skipped.1 as i64;
            if left == 0 || found.taken >= BATCH {
                break;
            }
        }
        for (active, gone) in gone.iter().enumerate() {
            if *gone != [0; ZONE_KINDS] {
                self.account(base, lists, scan.place, LruList::new(scan.file, active == 1), gone);
            }
        }
        base.charge(Work::LruMove, found.folios.len() as u64);
        if found.taken == 0 && left > 0 {
            found.scanned = 0;
        }
        found
    }

    /// A folio that was taken off the oldest generation's tail: put it where it belongs, if that is not among what is evicted.
    fn sort<M: Machine>(
        &self,
        base: &Base<M>,
        (vec, lists): (&LruVec, &mut Lists),
        (pfn, kind): (Pfn, ZoneKind),
        scan: &Scan,
    ) -> bool {
        let frame = &base.frames[pfn];
        let flags = frame.flags();
        if !evictable(frame) {
            // Reclaim puts it where it cannot be met again.
            return false;
        }
        let generation = flags.generation().expect("a folio in a queue of generations has one");
        let promoted = generation != scan.oldest;
        let uses = counted_uses(base, flags);
        let protected = tier(uses) > scan.limit || uses as usize == TIERS;
        if !promoted && !protected && kind <= scan.highest {
            return false;
        }
        if promoted {
            self.requeue(base, lists, (pfn, kind), generation, true);
            return true;
        }
        let next = self.next_generation(base, (vec, lists), frame, scan.oldest);
        if protected {
            vec.generations.tiers.protected(scan.file, scan.oldest, tier(uses), frame.pages() as u64);
        }
        self.requeue(base, lists, (pfn, kind), next, false);
        true
    }

    fn requeue<M: Machine>(
        &self,
        base: &Base<M>,
        lists: &mut Lists,
        (pfn, kind): (Pfn, ZoneKind),
        generation: Generation,
        at_head: bool,
    ) {
        base.charge(Work::LruMove, 1);
        let frame = &base.frames[pfn];
        let to = queue(generation, is_file(frame.flags()), kind);
        frame.set_queue(to);
        let list = &mut lists.lists[to as usize];
        if at_head { list.push_head(&base.frames, pfn) } else { list.push_tail(&base.frames, pfn) }
    }
}

/// Take the right to move a folio that was popped off its queue, and a reference; it belongs to no generation from then on. `None`:
/// somebody else moves or frees it.
fn isolate(vec: &LruVec, frame: &Frame, kind: ZoneKind) -> Option<LruList> {
    if !take(frame) {
        return None;
    }
    let before = frame.update(|flags| {
        // One that was not used again begins from the start if it comes back.
        let gone = if flags.contains(FrameFlags::REFERENCED) { FrameFlags::REFERENCED } else { USE_FLAGS };
        Some((flags - gone).with_generation(None))
    });
    frame.set_queue(0);
    let (generation, file) = (before.generation()?, is_file(before));
    vec.generations.add(generation, file, kind, -(frame.pages() as i64));
    Some(vec.generations.list(generation, file))
}

/// The type to evict from, and the highest tier of it if that was found on the way. Where refaults tell nothing, files go before
/// anonymous memory of the same age, as where nothing ever came back.
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
        let (file, limit) = generations.tiers.choose(oldest.map(Generation::of), swappiness);
        (file, Some(limit))
    }
}
