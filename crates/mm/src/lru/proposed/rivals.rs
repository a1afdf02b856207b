//! The built-in policies, on short strings of accesses, against plain models of their algorithms.

use super::tests::{evict_one, with};
use crate::frame::FrameFlags as F;
use crate::frame::Owner;
use crate::lru::tests::new_folio;
use crate::lru::{Lru, PolicyKind, ROOT};
use crate::platform::Platform;
use crate::policy::{RIVALS, hostile};
use crate::testing::TestMachine;
use crate::units::*;
use std_alloc::collections::{BTreeMap, VecDeque};
use std_alloc::vec::Vec;

/// Random accesses by read(2), to some pages more often than to others, with a scan in between.
fn string() -> Vec<u64> {
    let mut random = 1u64;
    let mut draw = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let mut all: Vec<u64> = (0..400)
        .map(|_| {
            let most = draw(24) + 1;
            draw(most)
        })
        .collect();
    all.splice(200..200, 100..130);
    all
}

/// A cache of a few pages of one file under a policy: a missed page is added, and another is evicted if there is no
/// room.
struct Cache {
    platform: Platform<TestMachine>,
    lru: Lru,
    resident: BTreeMap<u64, Pfn>,
    shadows: BTreeMap<u64, Shadow>,
    free: Vec<Pfn>,
}

impl Cache {
    fn new(name: &str, capacity: u32) -> Cache {
        let (platform, lru) = with(hostile::HOSTILE[0]);
        let at = RIVALS.iter().position(|rival| rival.name == name).unwrap();
        lru.set_policy(&platform, PolicyKind::Proposed(at as u8)).unwrap();
        let free = (0..capacity).map(Pfn).collect();
        Cache { platform, lru, resident: BTreeMap::new(), shadows: BTreeMap::new(), free }
    }

    /// Returns whether it was a hit.
    fn access(&mut self, page: u64) -> bool {
        let hit = self.resident.get(&page).copied();
        let pfn = hit.unwrap_or_else(|| self.miss(page));
        self.lru.mark_accessed(&self.platform, pfn);
        self.lru.validate(&self.platform).unwrap();
        hit.is_some()
    }

    fn miss(&mut self, page: u64) -> Pfn {
        if self.free.is_empty() {
            let (pfn, shadow) = evict_one(&self.platform, &self.lru).unwrap();
            let gone = *self.resident.iter().find(|entry| *entry.1 == pfn).unwrap().0;
            self.resident.remove(&gone);
            self.shadows.insert(gone, shadow);
            self.free.push(pfn);
        }
        let pfn = self.free.pop().unwrap();
        self.platform.frames[pfn].wipe(F::empty());
        self.platform.frames[pfn].set_owner(Owner::File(FileId(1)), PageIndex(page));
        if let Some(shadow) = self.shadows.remove(&page) {
            self.lru.refault(&self.platform, &[(pfn, shadow)], || 0, false);
        }
        new_folio(&self.platform, &self.lru, pfn, ROOT, F::empty());
        self.resident.insert(page, pfn);
        pfn
    }

    fn hits(name: &str, capacity: u32, string: &[u64]) -> Vec<bool> {
        let mut cache = Cache::new(name, capacity);
        string.iter().map(|&page| cache.access(page)).collect()
    }
}

/// A page of a model, and the number of its uses since it was added.
type Entry = (u64, u32);

type Evict = fn(&mut VecDeque<Entry>);

/// The hits of a model: a queue, and how it evicts a page.
fn model(capacity: usize, string: &[u64], evict: Evict) -> Vec<bool> {
    // The front is the newest.
    let mut queue: VecDeque<Entry> = VecDeque::new();
    let mut access = |&page: &u64| {
        if let Some(entry) = queue.iter_mut().find(|entry| entry.0 == page) {
            entry.1 += 1;
            return true;
        }
        if queue.len() == capacity {
            evict(&mut queue);
        }
        queue.push_front((page, 0));
        false
    };
    string.iter().map(&mut access).collect()
}

const CAPACITY: u32 = 8;

#[test]
fn policies_with_one_list_match_their_models() {
    let lfu: Evict = |queue| {
        let least = queue.iter().map(|entry| entry.1).min().unwrap();
        let at = queue.iter().rposition(|entry| entry.1 == least).unwrap();
        queue.remove(at);
    };
    let fifo: Evict = |queue| _ = queue.pop_back();
    let mru: Evict = |queue| _ = queue.pop_front();
    for (name, evict) in [("fifo", fifo), ("mru", mru), ("lfu", lfu)] {
        let expected = model(CAPACITY as usize, &string(), evict);
        assert_eq!(Cache::hits(name, CAPACITY, &string()), expected, "{name}");
    }
}

/// Figure 1 of the paper: one queue, and a hand that is a position in it.
#[test]
fn sieve_matches_its_model() {
    let mut queue: VecDeque<(u64, bool)> = VecDeque::new();
    let mut hand: Option<u64> = None;
    let mut access = |&page: &u64| {
        if let Some(entry) = queue.iter_mut().find(|entry| entry.0 == page) {
            entry.1 = true;
            return true;
        }
        if queue.len() == CAPACITY as usize {
            let mut at =
                hand.map_or(queue.len() - 1, |page| queue.iter().position(|entry| entry.0 == page).unwrap());
            while queue[at].1 {
                queue[at].1 = false;
                at = at.checked_sub(1).unwrap_or(queue.len() - 1);
            }
            hand = at.checked_sub(1).map(|next| queue[next].0);
            queue.remove(at);
        }
        queue.push_front((page, false));
        false
    };
    let expected: Vec<bool> = string().iter().map(&mut access).collect();
    assert_eq!(Cache::hits("sieve", CAPACITY, &string()), expected);
}

/// Algorithm 1 of the paper, with a ghost queue whose length is a number of evictions.
#[test]
fn s3_fifo_matches_its_model() {
    const SIZE: usize = 15;
    let (mut small, mut main) = (VecDeque::<Entry>::new(), VecDeque::<Entry>::new());
    let mut ghosts: BTreeMap<u64, u64> = BTreeMap::new();
    let mut evictions = 0u64;
    let mut access = |&page: &u64| {
        if let Some(entry) = small.iter_mut().chain(&mut main).find(|entry| entry.0 == page) {
            entry.1 = (entry.1 + 1).min(3);
            return true;
        }
        let mut free = small.len() + main.len() < SIZE;
        while !free {
            if small.len() * 10 >= SIZE || main.is_empty() {
                let (old, uses) = small.pop_back().unwrap();
                if uses > 1 {
                    main.push_front((old, 0));
                } else {
                    ghosts.insert(old, evictions);
                    free = true;
                    evictions += 1;
                }
            } else {
                let (old, uses) = main.pop_back().unwrap();
                if uses > 0 {
                    main.push_front((old, uses - 1));
                } else {
                    free = true;
                    evictions += 1;
                }
            }
        }
        match ghosts.remove(&page) {
            // When it returns, one page fewer is resident.
            Some(then) if evictions - then <= 14 - 14 / 10 => main.push_front((page, 0)),
            _ => small.push_front((page, 0)),
        }
        false
    };
    let expected: Vec<bool> = string().iter().map(&mut access).collect();
    let found = Cache::hits("s3-fifo", SIZE as u32, &string());
    assert_eq!(found, expected);
}

/// CAR, figure 2 of the paper, with directories that are shortened when a page enters one.
#[test]
fn arc_matches_its_model() {
    const SIZE: usize = 15;
    let mut clocks = [VecDeque::<Entry>::new(), VecDeque::<Entry>::new()];
    let mut ghosts = [VecDeque::<u64>::new(), VecDeque::<u64>::new()];
    let mut target = 0usize;
    let mut access = |&page: &u64| {
        if let Some(entry) = clocks.iter_mut().flatten().find(|entry| entry.0 == page) {
            entry.1 = 1;
            return true;
        }
        let full = clocks[0].len() + clocks[1].len() == SIZE;
        while full && clocks[0].len() + clocks[1].len() == SIZE {
            let from = usize::from(clocks[0].len() < target.max(1) && !clocks[1].is_empty());
            let (old, used) = clocks[from].pop_back().unwrap();
            if used > 0 {
                clocks[1].push_front((old, 0));
                continue;
            }
            ghosts[from].push_front(old);
            ghosts[0].truncate(SIZE - clocks[0].len());
            ghosts[1].truncate(SIZE - ghosts[0].len());
        }
        let [once, often] = [ghosts[0].len(), ghosts[1].len()];
        let found = (0..2).find_map(|from| Some((from, ghosts[from].iter().position(|&old| old == page)?)));
        let mut to = 0;
        if let Some((from, at)) = found {
            ghosts[from].remove(at);
            target = match from {
                0 => (target + (often / once).max(1)).min(clocks[0].len() + clocks[1].len()),
                _ => target.saturating_sub((once / often).max(1)),
            };
            to = 1;
        }
        clocks[to].push_front((page, 0));
        false
    };
    let expected: Vec<bool> = string().iter().map(&mut access).collect();
    assert_eq!(Cache::hits("arc", SIZE as u32, &string()), expected);
}

/// Some pages are used again and again, others once: after learning, LHD keeps the first.
#[test]
fn lhd_keeps_pages_that_are_used_again() {
    let mut cache = Cache::new("lhd", 12);
    let mut late = 0;
    for round in 0..1500u64 {
        for page in 0..6 {
            let hit = cache.access(page);
            late += u32::from(round >= 1000 && hit);
        }
        for i in 0..3 {
            assert!(!cache.access(1000 + round * 3 + i), "a new page must be missed");
        }
    }
    assert!(late >= 2900, "{late} of 3000 uses were hits");
}

/// A hot set that fits, and a scan by another task that does not: the hot set stays, unlike under FIFO.
#[test]
fn get_scan_keeps_the_hot_set_during_a_scan() {
    let rounds = |name| {
        let mut cache = Cache::new(name, 16);
        let mut hits = 0;
        for round in 0..200u64 {
            cache.platform.machine.run_task(1);
            hits += (0..2).filter(|i| cache.access((round * 7 + i * 5) % 10 * 2)).count();
            cache.platform.machine.run_task(2);
            (0..8).for_each(|i| _ = cache.access(1000 + round * 8 + i));
        }
        hits
    };
    let (ours, fifo) = (rounds("get-scan"), rounds("fifo"));
    assert!(ours > 2 * fifo, "{ours} against {fifo} of 400");
}
