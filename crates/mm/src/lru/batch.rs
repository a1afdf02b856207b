//! Batches of folios that reclaim takes off a list under one hold of the lock, and puts back under another.

use super::policy::{End, InsertReason, Leave, Policy, PolicyKind};
use super::proposed::ProposedPolicy;
use super::vec::{ByKind, LruLists, PROPOSED, ZONE_KINDS};
use super::{LockedVec, Lru, LruList, queue_of, settle_evictable};
use crate::event::Event;
use crate::frame::{Frame, FrameFlags, List};
use crate::machine::{Machine, Scope, Work, ZoneKind};
use crate::platform::Platform;
use crate::stat::Stat;
use crate::units::*;

/// Which folios to take from the tail of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct IsolateScan {
    pub list: LruList,
    /// Pages to scan; those in zones that are not wanted do not count.
    pub pages: u64,
    pub highest: ZoneKind,
    pub may_unmap: bool,
}

/// The folios that were taken.
#[derive(Debug, Default)]
pub(crate) struct Isolated {
    /// The folios, each with a reference; the tail was the list's tail.
    pub folios: List,
    /// Pages scanned, including skipped ones.
    pub scanned: u64,
    pub taken: u64,
}

/// The result of putting folios back.
#[derive(Debug, Default)]
pub(crate) struct Putback {
    /// Pages that went to a list.
    pub pages: u64,
    /// Folios without another reference, which the caller frees.
    pub dead: List,
}

/// The flags that determine the list of a folio, if it is on one.
const NAMES: FrameFlags = FrameFlags::LRU
    .union(FrameFlags::ACTIVE)
    .union(FrameFlags::SWAPBACKED)
    .union(FrameFlags::UNEVICTABLE)
    .union(FrameFlags::GENERATION);

impl Lru {
    /// Take folios from the tail of a list of one vector. Folios in zones that are not wanted go to the head of the
    /// list, so that the next batch does not scan them again; so do folios that another task is about to move.
    pub(crate) fn isolate_batch<M: Machine>(
        &self,
        platform: &Platform<M>,
        node: NodeId,
        group: GroupId,
        scan: &IsolateScan,
    ) -> Isolated {
        let _scope = platform.scope(Scope::IsolateLruFolios);
        let frames = &platform.frames;
        let mut out = Isolated::default();
        let mut skipped = List::new();
        let (mut taken, mut skips): (ByKind, ByKind) = ([0; ZONE_KINDS], [0; ZONE_KINDS]);
        let mut wanted = 0;
        let mut lists = self.vec(node, group).lock();
        self.batches.drain(platform);
        let list = &mut lists.lists[scan.list as usize];
        // The first of the entries at the tail that are taken and leave the list together, and their number.
        let (mut first, mut run) = (Pfn::NONE, 0);
        let mut at = list.tail();
        while wanted < scan.pages
            && let Some(pfn) = at
        {
            let frame = &frames[pfn];
            at = Some(frame.prev()).filter(|prev| prev.is_some());
            let (pages, kind) = (frame.pages() as u64, self.kind(frame.zone()));
            out.scanned += pages;
            platform.writes_frame(pfn);
            let fits = kind <= scan.highest;
            wanted += if fits { pages } else { 0 };
            if fits && (scan.may_unmap || frame.mapcount() == 0) && take(frame) {
                taken[kind as usize] += pages as i64;
                (first, run) = (pfn, run + 1);
                continue;
            }
            out.folios.splice_head(frames, &mut list.split_tail(frames, first, run));
            run = 0;
            list.pop_tail(frames);
            if fits {
                list.push_head(frames, pfn);
            } else {
                skips[kind as usize] += pages as i64;
                skipped.push_head(frames, pfn);
            }
        }
        out.folios.splice_head(frames, &mut list.split_tail(frames, first, run));
        list.splice_head(frames, &mut skipped);
        self.account(platform, &mut lists, (node, group), scan.list, &taken.map(|pages| -pages));
        platform.charge(Work::LruMove, out.folios.len() as u64);
        drop(lists);
        self.count_skips(platform, &skips);
        out.taken = taken.iter().sum::<i64>() as u64;
        platform.event(Event::MmVmscanLruIsolate, [scan.list as u64, scan.pages, out.scanned, out.taken]);
        out
    }

    /// Count pages that came to the lists of the vector whose lock is held. Returns their sum for all lists, and for
    /// active ones.
    fn account_moved<M: Machine>(
        &self,
        platform: &Platform<M>,
        lists: &mut LruLists,
        place: (NodeId, GroupId),
        moved: &[ByKind; LruList::COUNT],
    ) -> (u64, u64) {
        let (mut all, mut active) = (0, 0);
        for list in LruList::ALL {
            let pages: i64 = moved[list as usize].iter().sum();
            if pages > 0 {
                self.account(platform, lists, place, list, &moved[list as usize]);
                all += pages as u64;
                active += if list.is_active() { pages as u64 } else { 0 };
            }
        }
        (all, active)
    }

    pub(super) fn count_skips<M: Machine>(&self, platform: &Platform<M>, skips: &ByKind) {
        for (kind, &pages) in [Stat::PgskipDma32, Stat::PgskipNormal, Stat::PgskipMovable].iter().zip(skips) {
            if pages != 0 {
                platform.count(*kind, pages);
            }
        }
    }

    /// Take folios whose last references were dropped off their lists, if they are on one, clear the flags for lists,
    /// and undo the charges, with one update for consecutive folios that are alike. Returns whether any folio has
    /// several pages.
    pub fn remove<M: Machine>(&self, platform: &Platform<M>, folios: &[Pfn]) -> bool {
        let mut any_large = false;
        let mut rest = folios;
        while let [first, ..] = *rest {
            let first = &platform.frames[first];
            let listed = first.has(FrameFlags::LRU);
            let mut held = listed.then(|| self.lock_of(first));
            // Without references, LRU and what determines the list do not change; under the lock, nor does the group.
            let names = first.flags() & NAMES;
            let (queue, order_zone_node, place) =
                (queue_of(first), first.order_zone_node(), first.group_and_queue());
            let proposed = queue as usize >= PROPOSED;
            let mut count = 0;
            while let [pfn, ref behind @ ..] = *rest
                && let frame = &platform.frames[pfn]
                && frame.flags() & NAMES == names
                && frame.order_zone_node() == order_zone_node
                && frame.group_and_queue() == place
            {
                if let Some(held) = &mut held {
                    held.lists.lists[queue as usize].remove(&platform.frames, frame);
                    if proposed {
                        ProposedPolicy.leave((held.vec, &mut held.lists), self.folio(frame), Leave::Other);
                    }
                }
                self.forget_list(platform, frame);
                count += 1;
                rest = behind;
            }
            let pages = count * u64::from(first.pages());
            any_large |= first.order() != Order::ZERO;
            if let Some(mut held) = held {
                let list = match names.generation() {
                    // For a folio that a policy has placed, ACTIVE is not set.
                    None => LruList::of(names),
                    Some(generation) => {
                        let file = !names.contains(FrameFlags::SWAPBACKED);
                        let generations = &held.vec.generations;
                        generations.add(generation, file, self.kind(first.zone()), -(pages as i64));
                        generations.list(generation, file)
                    }
                };
                self.account_one(platform, &mut held, first, list, -(pages as i64));
            }
            self.groups.uncharge(platform, first.group(), count, pages);
        }
        any_large
    }

    /// Put isolated folios of one node back, each on the list of its present flags, and drop their references, the
    /// list's tail first. Active ones advance the clock of refaults.
    pub(crate) fn putback_batch<M: Machine>(&self, platform: &Platform<M>, folios: &mut List) -> Putback {
        let mut out = Putback::default();
        while let Some(first) = folios.tail() {
            let (node, group) = (platform.frames[first].node(), platform.frames[first].group());
            let vec = self.vec(node, group);
            let mut lists = vec.lock();
            if lists.dead {
                drop(lists);
                self.putback_one(platform, folios, &mut out);
                continue;
            }
            if vec.policy() != PolicyKind::Classic {
                self.putback_placed(platform, LockedVec { vec, lists }, folios, &mut out, |_| {
                    InsertReason::Back
                });
                continue;
            }
            let before = folios.len();
            let mut moved: [ByKind; LruList::COUNT] = Default::default();
            // The first of the entries at the tail that go to one list together, and their number.
            let (mut goal, mut first, mut run) = (LruList::InactiveFile, Pfn::NONE, 0);
            let mut at = folios.tail();
            while let Some(pfn) = at {
                let frame = &platform.frames[pfn];
                if frame.group() != group || frame.node() != node {
                    break;
                }
                at = Some(frame.prev()).filter(|prev| prev.is_some());
                settle_evictable(platform, frame);
                let list = LruList::of(frame.set(FrameFlags::LRU));
                let dead = frame.put(1);
                if dead || list != goal {
                    let mut run = folios.split_tail(&platform.frames, first, core::mem::take(&mut run));
                    lists.lists[goal as usize].splice_head(&platform.frames, &mut run);
                    goal = list;
                }
                if dead {
                    frame.clear(FrameFlags::LRU);
                    folios.pop_tail(&platform.frames);
                    out.dead.push_head(&platform.frames, pfn);
                    continue;
                }
                moved[list as usize][self.kind(frame.zone()) as usize] += frame.pages() as i64;
                (first, run) = (pfn, run + 1);
            }
            let mut run = folios.split_tail(&platform.frames, first, run);
            lists.lists[goal as usize].splice_head(&platform.frames, &mut run);
            let (pages, active) = self.account_moved(platform, &mut lists, (node, group), &moved);
            out.pages += pages;
            platform.charge(Work::LruMove, (before - folios.len()) as u64);
            drop(lists);
            if active > 0 {
                self.age_nonresident(node, group, active);
            }
        }
        out
    }

    /// Put back the folios of one vector at the tail, each where the policy wants it.
    pub(super) fn putback_placed<M: Machine>(
        &self,
        platform: &Platform<M>,
        mut held: LockedVec<'_>,
        folios: &mut List,
        out: &mut Putback,
        why: impl Fn(&Frame) -> InsertReason,
    ) {
        let place_of = |pfn: Pfn| (platform.frames[pfn].node(), platform.frames[pfn].group());
        let Some(place) = folios.tail().map(place_of) else { return };
        let before = folios.len();
        let mut moved: [ByKind; LruList::COUNT] = Default::default();
        while let Some(pfn) = folios.tail()
            && place_of(pfn) == place
        {
            folios.pop_tail(&platform.frames);
            let frame = &platform.frames[pfn];
            settle_evictable(platform, frame);
            // A task that drops the last reference from here on waits for the lock.
            frame.set(FrameFlags::LRU);
            if frame.put(1) {
                frame.clear(FrameFlags::LRU);
                out.dead.push_head(&platform.frames, pfn);
                continue;
            }
            let why = why(frame);
            let to = self.place(platform, (held.vec, &mut held.lists), frame, why);
            push(platform, &mut held.lists.lists[to.queue as usize], pfn, to.end);
            moved[to.list as usize][self.kind(frame.zone()) as usize] += frame.pages() as i64;
        }
        out.pages += self.account_moved(platform, &mut held.lists, place, &moved).0;
        platform.charge(Work::LruMove, (before - folios.len()) as u64);
    }

    /// Put back a folio whose group was removed after its isolation.
    pub(super) fn putback_one<M: Machine>(
        &self,
        platform: &Platform<M>,
        folios: &mut List,
        out: &mut Putback,
    ) {
        let Some(pfn) = folios.pop_tail(&platform.frames) else { return };
        let frame = &platform.frames[pfn];
        self.insert(platform, pfn, InsertReason::Back, 1);
        if frame.has(FrameFlags::ACTIVE) {
            self.age_nonresident(frame.node(), frame.group(), frame.pages() as u64);
        }
        if frame.put(1) {
            if frame.test_and_clear(FrameFlags::LRU) {
                self.unlink(platform, &mut self.lock_of(frame), pfn, Leave::Other);
            }
            out.dead.push_head(&platform.frames, pfn);
        } else {
            out.pages += frame.pages() as u64;
        }
    }
}

#[inline(always)]
pub(super) fn push<M: Machine>(platform: &Platform<M>, list: &mut List, pfn: Pfn, end: End) {
    match end {
        End::Head => list.push_head(&platform.frames, pfn),
        End::Tail => list.push_tail(&platform.frames, pfn),
    }
}

/// Take the right to move a folio that is on a list, whose lock is held, and a reference. Returns `false` if another
/// task moves or frees it.
#[inline]
pub(super) fn take(frame: &Frame) -> bool {
    if !frame.try_get() {
        return false;
    }
    if !frame.test_and_clear(FrameFlags::LRU) {
        let last = frame.put(1);
        assert!(!last, "the task that has cleared LRU must hold a reference");
        return false;
    }
    true
}
