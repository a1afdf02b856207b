//! Isolating the folios that a policy proposes, and putting back those that could not be evicted.

use super::{FOUND_USED, Proposed, is_file, queue};
use crate::frame::{Frame, List};
use crate::lru::batch::{Putback, push, take};
use crate::lru::mglru::LARGE_BATCH;
use crate::lru::policy::{End, InsertReason};
use crate::lru::vec::{ByKind, LruLists, PROPOSED, ZONE_KINDS};
use crate::lru::{LockedVec, Lru, LruList, evictable};
use crate::machine::{Machine, Scope, Work, ZoneKind};
use crate::platform::Platform;
use crate::policy::{Judgement, MAX_SAMPLE, Sample, Spot, View};
use crate::stat::Stat;
use crate::units::*;
use smallvec::SmallVec;
use std_alloc::boxed::Box;

/// What reclaim wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ask {
    pub pages: u64,
    pub highest: ZoneKind,
    /// Whether folios may be taken that can only be swapped.
    pub anon: bool,
    pub may_unmap: bool,
}

/// The folios that were taken.
#[derive(Debug, Default)]
pub(crate) struct Proposals {
    /// The folios by type, anonymous and file, each with a reference; the tails were proposed first.
    pub folios: [List; 2],
    pub taken: [u64; 2],
    pub looked: u64,
    /// Whether reclaim has to check page tables for uses.
    pub checks_references: bool,
}

/// One hold of a vector's lock.
struct Hold<'a, M> {
    lru: &'a Lru,
    platform: &'a Platform<M>,
    lists: &'a mut LruLists,
    proposed: Box<Proposed>,
    ask: Ask,
    out: Proposals,
    gone: [ByKind; 2],
    skipped: ByKind,
    /// Folios that may still be scanned.
    left: u64,
    /// Folios that have moved within the lists.
    moved: u64,
    /// Those of them that the policy wanted to move.
    judged: u64,
}

impl Lru {
    /// Take folios that the policy of a vector proposes, until there are enough, or many were scanned.
    pub(crate) fn isolate_proposed<M: Machine>(
        &self,
        platform: &Platform<M>,
        node: NodeId,
        group: GroupId,
        ask: Ask,
    ) -> Proposals {
        let _scope = platform.scope(Scope::IsolateLruFolios);
        let mut lists = self.vec(node, group).lock();
        let Some(proposed) = lists.proposed.take() else { return Proposals::default() };
        let out = Proposals { checks_references: proposed.checks_references, ..Proposals::default() };
        let (gone, skipped) = Default::default();
        let mut hold = Hold {
            lru: self,
            platform,
            lists: &mut lists,
            proposed,
            ask,
            out,
            gone,
            skipped,
            left: LARGE_BATCH,
            moved: 0,
            judged: 0,
        };
        hold.run();
        let Hold { proposed, out, gone, skipped, moved, judged, .. } = hold;
        lists.proposed = Some(proposed);
        for (file, gone) in gone.iter().enumerate() {
            if *gone != [0; ZONE_KINDS] {
                self.account(platform, &mut lists, (node, group), LruList::new(file == 1, false), gone);
            }
        }
        let taken: u64 = out.folios.iter().map(|folios| folios.len() as u64).sum();
        // All at once: a hold may look at thousands of folios that cannot be taken, and where CPUs may be stopped at
        // each charge, all that wait for the lock would wait thousands of times as long.
        platform.charge(Work::LruMove, moved + taken);
        platform.count(Stat::PolicyTaken, taken as i64);
        platform.count(Stat::PolicyMoved, judged as i64);
        drop(lists);
        self.count_skips(platform, &skipped);
        out
    }

    /// Put back folios of one node that reclaim did not free, each where its policy wants it, and drop their
    /// references.
    pub(crate) fn putback_proposed<M: Machine>(&self, platform: &Platform<M>, folios: &mut List) -> Putback {
        let mut out = Putback::default();
        while let Some(first) = folios.tail() {
            let frame = &platform.frames[first];
            let vec = self.vec(frame.node(), frame.group());
            let lists = vec.lock();
            if !lists.dead && vec.policy().is_proposed() {
                let why = |frame: &Frame| {
                    let used = frame.queue() == FOUND_USED;
                    // It may go to a list of another policy.
                    frame.set_queue(0);
                    if used { InsertReason::Used } else { InsertReason::Kept }
                };
                self.putback_placed(platform, LockedVec { vec, lists }, folios, &mut out, why);
            } else {
                drop(lists);
                frame.set_queue(0);
                self.putback_one(platform, folios, &mut out);
            }
        }
        out
    }
}

/// Note that the entries of an isolated folio that a policy has proposed were used.
pub(crate) fn note_used(frame: &Frame) {
    frame.set_queue(FOUND_USED);
}

impl<M: Machine> Hold<'_, M> {
    fn is_enough(&self) -> bool {
        self.out.taken.iter().sum::<u64>() >= self.ask.pages
    }

    fn run(&mut self) {
        while !self.is_enough() && self.left > 0 {
            let Some(spot) = self.proposed.next(self.platform, &self.lists.lists) else { break };
            match self.proposed.sample {
                Some(sample) if !self.proposed.is_stuck() => self.take_lowest(spot, sample),
                _ => {
                    let Some(pfn) = self.look(spot) else { continue };
                    self.judge(pfn, spot);
                }
            }
        }
    }

    /// The folio at a position, if it may be taken; else it moves to the other end.
    fn look(&mut self, spot: Spot) -> Option<Pfn> {
        let list = &self.lists.lists[PROPOSED + spot.list];
        let pfn = if spot.end == End::Head { list.head() } else { list.tail() }?;
        let frame = &self.platform.frames[pfn];
        let pages = frame.pages();
        self.left = self.left.saturating_sub(1);
        self.proposed.note_look(self.platform);
        self.out.looked += pages as u64;
        let kind = self.lru.kind(frame.zone());
        if kind > self.ask.highest {
            self.skipped[kind as usize] += pages as i64;
        } else if (is_file(frame) || self.ask.anon) && (self.ask.may_unmap || frame.mapcount() == 0) {
            return Some(pfn);
        }
        self.turn_over(pfn, spot);
        None
    }

    fn judge(&mut self, pfn: Pfn, spot: Spot) {
        let frame = &self.platform.frames[pfn];
        // Folios that are locked in memory are taken, too: reclaim puts them on the unevictable list.
        if evictable(frame) && !self.proposed.is_stuck() {
            let judgement = self.proposed.policy.judge(View::new(frame, spot.list));
            if let Judgement::Move(to) = judgement {
                let to = self.proposed.checked(self.platform, to);
                self.requeue(pfn, spot.list, to);
                self.judged += 1;
                return;
            }
        }
        if !self.isolate(pfn, spot.list) {
            self.turn_over(pfn, spot);
        }
    }

    /// Score the next folios, and take those with the lowest scores.
    fn take_lowest(&mut self, spot: Spot, sample: Sample) {
        let mut scored: SmallVec<[(u64, u32, Pfn); MAX_SAMPLE]> = SmallVec::new();
        let listed = self.lists.lists[PROPOSED + spot.list].len();
        for _ in 0..listed.min(sample.of) {
            let Some(pfn) = self.look(spot) else { continue };
            let frame = &self.platform.frames[pfn];
            let score =
                if evictable(frame) { self.proposed.policy.score(View::new(frame, spot.list)) } else { 0 };
            scored.push((score, scored.len() as u32, pfn));
            self.turn_over(pfn, spot);
        }
        // Of equal scores, the folio that was nearer to the end is taken first.
        scored.sort_unstable_by_key(|&(score, turn, _)| (score, turn));
        for &(_, _, pfn) in scored.iter().take(sample.take) {
            if self.is_enough() {
                break;
            }
            self.isolate(pfn, spot.list);
        }
    }

    /// Move a folio to the other end of its list.
    fn turn_over(&mut self, pfn: Pfn, spot: Spot) {
        let other = if spot.end == End::Head { End::Tail } else { End::Head };
        self.requeue(pfn, spot.list, Spot { end: other, ..spot });
    }

    fn requeue(&mut self, pfn: Pfn, from: usize, to: Spot) {
        let frame = &self.platform.frames[pfn];
        self.lists.lists[PROPOSED + from].remove(&self.platform.frames, frame);
        push(self.platform, &mut self.lists.lists[PROPOSED + to.list], pfn, to.end);
        frame.set_queue(queue(to.list));
        if from != to.list {
            self.proposed.sizes[from] -= frame.pages() as u64;
            self.proposed.sizes[to.list] += frame.pages() as u64;
        }
        self.moved += 1;
    }

    /// Take the folio off its list. Returns `false` if another task moves or frees it.
    fn isolate(&mut self, pfn: Pfn, list: usize) -> bool {
        let frame = &self.platform.frames[pfn];
        self.platform.writes_frame(pfn);
        if !take(frame) {
            return false;
        }
        self.lists.lists[PROPOSED + list].remove(&self.platform.frames, frame);
        let (pages, file) = (frame.pages() as u64, is_file(frame) as usize);
        self.proposed.sizes[list] -= pages;
        frame.set_queue(0);
        self.gone[file][self.lru.kind(frame.zone()) as usize] -= pages as i64;
        self.out.folios[file].push_head(&self.platform.frames, pfn);
        self.out.taken[file] += pages;
        true
    }
}
