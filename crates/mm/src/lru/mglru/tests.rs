//! Generations: test vectors of the reference, and random uses, agings, evictions, switches and groups.

use super::place::arrival;
use super::*;
use crate::api::GroupLimits;
use crate::frame::{FrameFlags as F, List};
use crate::knobs::Knob;
use crate::lru::policy::{End, Evicted};
use crate::lru::tests::{FRAMES, free_folio, new_folio, setup};
use crate::lru::{Lru, PolicyKind, ROOT};
use crate::platform::Platform;
use crate::stat::Stat;
use crate::testing::TestMachine;
use crate::units::*;
use proptest::prelude::*;
use std_alloc::vec;
use std_alloc::vec::Vec;

const NODE: NodeId = NodeId(0);
const ALL: Wanted = Wanted { highest: ZoneKind::Movable, swappiness: 60, budget: None };

fn with_generations() -> (Platform<TestMachine>, Lru) {
    let (platform, lru) = setup();
    lru.set_policy(&platform, PolicyKind::MgLru).unwrap();
    (platform, lru)
}

fn age(platform: &Platform<TestMachine>, lru: &Lru, group: GroupId) {
    let seq = lru.vec(NODE, group).generations.max_seq();
    assert!(lru.begin_generation(platform, NODE, group, seq, true));
}

fn seq_of(lru: &Lru, platform: &Platform<TestMachine>, pfn: Pfn) -> Option<u64> {
    let generations = &lru.vec(NODE, ROOT).generations;
    let generation = platform.frames[pfn].flags().generation()?;
    (0..=generations.max_seq()).rev().find(|&seq| LruGen::of(seq) == generation)
}

fn taken(platform: &Platform<TestMachine>, folios: &List) -> Vec<u32> {
    folios.iter(&platform.frames).map(|pfn| pfn.0).collect()
}

/// Put isolated folios back.
fn put_back(platform: &Platform<TestMachine>, lru: &Lru, mut got: Evictable) {
    assert!(lru.putback_batch(platform, &mut got.folios).dead.is_empty());
}

/// reclaim.md, section 6: a window of four generations, and one of three.
#[test]
fn unused_folio_begins_near_the_end() {
    let (platform, lru) = with_generations();
    let generations = &lru.node_vec(NODE).generations;
    let place = |flags, end| arrival(generations, flags, end);
    let max = generations.max_seq();
    assert_eq!((generations.min_seq(true), max), (0, 3));
    assert_eq!(place(F::empty(), End::Head), 1, "the second oldest of four");
    assert_eq!(place(F::empty(), End::Tail), 0, "reclaim wants it next");
    assert_eq!(place(F::ACTIVE, End::Head), 3);
    assert_eq!(place(F::SWAPBACKED, End::Head), 2, "it has no swap slot yet");
    assert_eq!(place(F::SWAPBACKED | F::SWAPCACHE, End::Head), 1);
    assert_eq!(place(F::RECLAIM | F::DIRTY, End::Head), 2, "reclaim waits for its write");
    // The window passes empty generations: with three, new folios begin in the oldest.
    new_folio(&platform, &lru, Pfn(0), ROOT, F::empty());
    put_back(&platform, &lru, lru.isolate_oldest(&platform, NODE, ROOT, ALL));
    assert_eq!((generations.min_seq(true), generations.max_seq()), (1, 3));
    assert_eq!(arrival(generations, F::empty(), End::Head), 1);
    lru.validate(&platform).unwrap();
}

#[test]
fn used_folios_get_the_youngest_generation_and_are_sorted_lazily() {
    let (platform, lru) = with_generations();
    for pfn in 0..4 {
        new_folio(&platform, &lru, Pfn(pfn), ROOT, F::empty());
    }
    let mut promotions = lru.promotions(&platform, NODE, ROOT);
    lru.promote(&platform.frames[Pfn(2)], &mut promotions);
    assert_eq!(lru.node_vec(NODE).generations.pages(3, true), 0, "the promotion is not counted yet");
    lru.tell_promotions(&platform, &mut promotions);
    assert_eq!(lru.node_vec(NODE).generations.pages(3, true), 1);
    assert_eq!(platform.stats.read(Stat::NrActiveFile), 1);
    lru.validate(&platform).unwrap();
    // The first generation is empty; the second has all folios, in the order of their arrival.
    let empty = lru.isolate_oldest(&platform, NODE, ROOT, ALL);
    assert_eq!((empty.taken, empty.progress), (0, 1));
    let got = lru.isolate_oldest(&platform, NODE, ROOT, ALL);
    assert_eq!((got.taken, got.sorted, got.file), (3, 1, true));
    assert_eq!(taken(&platform, &got.folios), [3, 1, 0]);
    assert_eq!(seq_of(&lru, &platform, Pfn(2)), Some(3));
    // An isolated folio that is used is marked.
    lru.promote(&platform.frames[Pfn(0)], &mut promotions);
    assert!(platform.frames[Pfn(0)].has(F::REFERENCED));
    put_back(&platform, &lru, got);
    lru.validate(&platform).unwrap();
}

#[test]
fn two_youngest_generations_are_not_evicted_from() {
    let (platform, lru) = with_generations();
    new_folio(&platform, &lru, Pfn(0), ROOT, F::ACTIVE);
    new_folio(&platform, &lru, Pfn(1), ROOT, F::SWAPBACKED);
    for _ in 0..4 {
        assert_eq!(lru.isolate_oldest(&platform, NODE, ROOT, ALL).taken, 0);
    }
    assert_eq!(lru.node_vec(NODE).generations.count(true), MIN_GENERATIONS);
    age(&platform, &lru, ROOT);
    let got = lru.isolate_oldest(&platform, NODE, ROOT, ALL);
    assert_eq!(
        (taken(&platform, &got.folios), got.file),
        (vec![1], false),
        "the second generation is the third now"
    );
    put_back(&platform, &lru, got);
    lru.validate(&platform).unwrap();
}

#[test]
fn folios_with_many_uses_are_protected() {
    let (platform, lru) = with_generations();
    for pfn in 0..2 {
        new_folio(&platform, &lru, Pfn(pfn), ROOT, F::empty());
    }
    (0..6).for_each(|_| lru.mark_accessed(&platform, Pfn(0)));
    lru.isolate_oldest(&platform, NODE, ROOT, ALL);
    let got = lru.isolate_oldest(&platform, NODE, ROOT, ALL);
    assert_eq!((taken(&platform, &got.folios), got.sorted), (vec![1], 1));
    assert_eq!(seq_of(&lru, &platform, Pfn(0)), Some(2), "it is one generation younger");
    let uses = F::USES | F::REFERENCED | F::WORKINGSET;
    assert!(!platform.frames[Pfn(0)].has_any(uses), "its uses count from the start");
    let tiers = &lru.node_vec(NODE).generations.tiers;
    assert_eq!(tiers.counted(true, 1, 3)[2], 1);
    put_back(&platform, &lru, got);
}

#[test]
fn without_the_controller_files_are_evicted_first() {
    let (platform, lru) = with_generations();
    // Anonymous memory did not refault, files did, most of all their second tier; folio 2 is of this tier, folio 0 of
    // the last.
    for (pfn, flags) in [(0, F::empty()), (1, F::empty()), (2, F::empty()), (3, F::SWAPBACKED | F::SWAPCACHE)]
    {
        new_folio(&platform, &lru, Pfn(pfn), ROOT, flags);
    }
    lru.isolate_oldest(&platform, NODE, ROOT, ALL);
    let generations = &lru.node_vec(NODE).generations;
    let oldest = generations.oldest(true);
    for (tier, refaulted) in [(0, 200), (1, 900)] {
        generations.tiers.refaulted(true, oldest, tier, refaulted);
        generations.tiers.evicted(true, oldest, tier, 1000);
    }
    (0..6).for_each(|_| lru.mark_accessed(&platform, Pfn(0)));
    (0..2).for_each(|_| lru.mark_accessed(&platform, Pfn(2)));
    let evict = |expected: &[u32]| {
        let got = lru.isolate_oldest(&platform, NODE, ROOT, ALL);
        assert_eq!(taken(&platform, &got.folios), expected);
        got
    };
    platform.knobs.set(Knob::LruGenPid, 0).unwrap();
    // Files are evicted first in spite of the refaults; only a folio with the maximum of uses is protected.
    put_back(&platform, &lru, evict(&[2, 1]));
    platform.knobs.set(Knob::LruGenPid, 1).unwrap();
    put_back(&platform, &lru, evict(&[3]));
    lru.validate(&platform).unwrap();
}

#[test]
fn without_tiers_many_uses_count_as_one() {
    let (platform, lru) = with_generations();
    platform.knobs.set(Knob::LruGenTiers, 0).unwrap();
    for pfn in 0..2 {
        new_folio(&platform, &lru, Pfn(pfn), ROOT, F::empty());
    }
    (0..6).for_each(|_| lru.mark_accessed(&platform, Pfn(0)));
    lru.isolate_oldest(&platform, NODE, ROOT, ALL);
    let got = lru.isolate_oldest(&platform, NODE, ROOT, ALL);
    assert_eq!((taken(&platform, &got.folios), got.sorted), (vec![1, 0], 0));
    let shadow = lru.eviction(&platform, Pfn(0), ROOT);
    assert!(!Evicted::unpack(shadow).workingset);
    put_back(&platform, &lru, got);
}

#[test]
fn refault_counts_for_its_tier_while_its_generation_is_the_oldest() {
    let (platform, lru) = with_generations();
    new_folio(&platform, &lru, Pfn(0), ROOT, F::empty());
    (0..3).for_each(|_| lru.mark_accessed(&platform, Pfn(0)));
    let shadow = lru.eviction(&platform, Pfn(0), ROOT);
    assert_eq!(Evicted::unpack(shadow), Evicted { group: ROOT, node: NODE, stamp: 1, workingset: true });
    assert!(lru.is_of_oldest(Evicted::unpack(shadow), true));
    lru.refault(&platform, &[(Pfn(0), shadow)], || 0, false);
    let tiers = &lru.node_vec(NODE).generations.tiers;
    assert_eq!(tiers.counted(true, 0, 2), [1, 1, 0], "two uses after the first are the third tier");
    assert_eq!(platform.stats.read(Stat::WorkingsetActivateFile), 1);
    // The window passes the empty oldest generation: from then on the shadow is too old.
    lru.isolate_oldest(&platform, NODE, ROOT, ALL);
    assert!(!lru.is_of_oldest(Evicted::unpack(shadow), true));
    lru.refault(&platform, &[(Pfn(0), shadow)], || 0, false);
    assert_eq!(platform.stats.read(Stat::WorkingsetRefaultFile), 2);
    assert_eq!(platform.stats.read(Stat::WorkingsetActivateFile), 1);
}

/// The form of 6.14.
#[test]
fn second_use_in_page_tables_counts() {
    let (platform, lru) = with_generations();
    platform.knobs.set(Knob::LruGenForm, 1).unwrap();
    new_folio(&platform, &lru, Pfn(0), ROOT, F::empty());
    new_folio(&platform, &lru, Pfn(1), ROOT, F::ACTIVE | F::SWAPBACKED);
    assert_eq!([0, 1].map(|pfn| seq_of(&lru, &platform, Pfn(pfn))), [Some(0), Some(2)], "a fault is one use");
    let mut promotions = lru.promotions(&platform, NODE, ROOT);
    for (marks, seq) in [(F::REFERENCED, 0), (F::WORKINGSET, 3)] {
        lru.promote(&platform.frames[Pfn(0)], &mut promotions);
        lru.tell_promotions(&platform, &mut promotions);
        let flags = platform.frames[Pfn(0)].flags() & (F::REFERENCED | F::WORKINGSET | F::USES);
        assert_eq!((flags, seq_of(&lru, &platform, Pfn(0))), (marks, Some(seq)));
        lru.validate(&platform).unwrap();
    }
    // It stays in the working set when it is isolated, and comes back one generation before the oldest.
    (0..2).for_each(|_| age(&platform, &lru, ROOT));
    let got =
        core::iter::repeat_with(|| lru.isolate_oldest(&platform, NODE, ROOT, ALL)).find(|got| got.taken > 0);
    let got = got.unwrap();
    assert!(
        platform.frames[Pfn(1)].flags().generation().is_none(),
        "the folio that was used once is evicted first"
    );
    // Uses of an isolated folio do not count.
    assert!(
        promotions.considers(platform.frames[Pfn(0)].flags())
            && !promotions.considers(platform.frames[Pfn(1)].flags())
    );
    put_back(&platform, &lru, got);
    lru.validate(&platform).unwrap();
}

/// The form of 6.14.
#[test]
fn refaulted_page_gets_its_marks_again() {
    let (platform, lru) = with_generations();
    platform.knobs.set(Knob::LruGenForm, 1).unwrap();
    new_folio(&platform, &lru, Pfn(0), ROOT, F::empty());
    (0..3).for_each(|_| lru.mark_accessed(&platform, Pfn(0)));
    let shadow = lru.eviction(&platform, Pfn(0), ROOT);
    assert_eq!(Evicted::unpack(shadow), Evicted { group: ROOT, node: NODE, stamp: 2, workingset: false });
    let activated = || platform.stats.read(Stat::WorkingsetActivateFile);
    let tiers = &lru.node_vec(NODE).generations.tiers;
    platform.frames[Pfn(0)].clear(F::USES | F::REFERENCED);
    lru.refault(&platform, &[(Pfn(0), shadow)], || 0, false);
    assert_eq!((tiers.counted(true, 0, 2), activated()), ([1, 1, 0], 0), "three uses are the third tier");
    assert_eq!(platform.frames[Pfn(0)].flags().uses(), 2, "one more use marks it as used");
    // The last use that can be counted makes it part of the working set, also when it returns.
    (0..4).for_each(|_| lru.mark_accessed(&platform, Pfn(0)));
    (0..2).for_each(|_| lru.mark_accessed(&platform, Pfn(0)));
    let shadow = lru.eviction(&platform, Pfn(0), ROOT);
    assert!(Evicted::unpack(shadow).workingset);
    platform.frames[Pfn(0)].clear(F::USES | F::REFERENCED | F::WORKINGSET);
    lru.refault(&platform, &[(Pfn(0), shadow)], || 0, true);
    assert!(platform.frames[Pfn(0)].has(F::WORKINGSET));
    assert_eq!((activated(), platform.stats.read(Stat::WorkingsetRestoreFile)), (1, 1));
    // The window began at 0, and ends at 3 now: from the next generation on the shadow is too old.
    age(&platform, &lru, ROOT);
    lru.refault(&platform, &[(Pfn(0), shadow)], || 0, true);
    assert_eq!((activated(), platform.stats.read(Stat::WorkingsetRefaultFile)), (1, 3));
}

/// If swapping is not possible, anonymous memory gets more generations than files, and then its slots are reused.
#[test]
fn aging_without_swap_evicts_only_files() {
    let (platform, lru) = with_generations();
    new_folio(&platform, &lru, Pfn(0), ROOT, F::SWAPBACKED);
    new_folio(&platform, &lru, Pfn(1), ROOT, F::empty());
    for _ in 0..6 {
        let seq = lru.node_vec(NODE).generations.max_seq();
        assert!(lru.begin_generation(&platform, NODE, ROOT, seq, false));
        lru.validate(&platform).unwrap();
        let got = lru.isolate_oldest(&platform, NODE, ROOT, Wanted { swappiness: 0, ..ALL });
        assert!(got.file);
        put_back(&platform, &lru, got);
        lru.validate(&platform).unwrap();
    }
}

/// One step of a run.
#[derive(Clone, Debug)]
enum Step {
    New(u32, u16, bool),
    Free(u32),
    Use(u32),
    Promote(u32),
    Tell,
    Age(u16),
    Evict(u16, bool, bool),
    PutBack,
    Move(u32, u8),
    Switch(bool),
    NewGroup,
    RemoveGroup,
}

fn step() -> impl Strategy<Value = Step> {
    let pfn = 0..FRAMES;
    prop_oneof![
        8 => (pfn.clone(), any::<u16>(), any::<bool>()).prop_map(|(pfn, flags, group)| Step::New(pfn, flags, group)),
        3 => pfn.clone().prop_map(Step::Free),
        6 => pfn.clone().prop_map(Step::Use),
        6 => pfn.clone().prop_map(Step::Promote),
        3 => Just(Step::Tell),
        4 => (0..2_u16).prop_map(Step::Age),
        6 => (0..2_u16, any::<bool>(), any::<bool>()).prop_map(|(at, low, swap)| Step::Evict(at, low, swap)),
        6 => Just(Step::PutBack),
        4 => (pfn, 0..7_u8).prop_map(|(pfn, how)| Step::Move(pfn, how)),
        1 => any::<bool>().prop_map(Step::Switch),
        1 => Just(Step::NewGroup),
        1 => Just(Step::RemoveGroup),
    ]
}

/// The state of a run.
struct World {
    platform: Platform<TestMachine>,
    lru: Lru,
    group: Option<GroupId>,
    live: [bool; FRAMES as usize],
    isolated: List,
    promotions: [Promotions; 2],
}

impl World {
    fn new(form: u64) -> World {
        let (platform, lru) = with_generations();
        platform.knobs.set(Knob::LruGenForm, form).unwrap();
        let promotions = [0, 1].map(|node| lru.promotions(&platform, NodeId(node), ROOT));
        World {
            platform,
            lru,
            group: None,
            live: [false; FRAMES as usize],
            isolated: List::new(),
            promotions,
        }
    }

    fn group(&self, wanted: u16) -> GroupId {
        self.group.filter(|_| wanted == 1).unwrap_or(ROOT)
    }

    fn is_held(&self, pfn: Pfn) -> bool {
        self.isolated.iter(&self.platform.frames).any(|held| held == pfn)
    }

    fn put_back(&mut self) {
        let put = self.lru.putback_batch(&self.platform, &mut self.isolated);
        assert!(put.dead.is_empty(), "their owners hold references");
    }

    fn tell(&mut self) {
        self.promotions
            .iter_mut()
            .for_each(|promotions| self.lru.tell_promotions(&self.platform, promotions));
    }

    fn step(&mut self, step: Step) {
        let (platform, lru) = (&self.platform, &self.lru);
        match step {
            Step::New(pfn, bits, in_group) if !self.live[pfn as usize] => {
                let possible = [F::SWAPBACKED, F::SWAPCACHE, F::DIRTY, F::WRITEBACK, F::RECLAIM, F::ACTIVE];
                let flags = possible.iter().enumerate().filter(|(at, _)| bits >> at & 1 == 1);
                let flags = flags.fold(F::empty(), |all, (_, &flag)| all | flag);
                new_folio(platform, lru, Pfn(pfn), self.group(in_group as u16), flags);
                self.live[pfn as usize] = true;
            }
            Step::Free(pfn) if self.live[pfn as usize] && !self.is_held(Pfn(pfn)) => {
                // A mapped folio can be promoted and is not freed: so count promotions before a folio is freed.
                self.tell();
                free_folio(&self.platform, &self.lru, Pfn(pfn));
                self.live[pfn as usize] = false;
            }
            Step::Use(pfn) if self.live[pfn as usize] => lru.mark_accessed(platform, Pfn(pfn)),
            Step::Promote(pfn) if self.live[pfn as usize] => {
                let frame = &platform.frames[Pfn(pfn)];
                if frame.group() == ROOT && lru.policy() == PolicyKind::MgLru {
                    lru.promote(frame, &mut self.promotions[frame.node().index()]);
                }
            }
            Step::Tell => self.tell(),
            Step::Age(group) => {
                // As a walk does, count promotions before the generation begins.
                let group = self.group(group);
                self.tell();
                age(&self.platform, &self.lru, group);
                self.tell();
            }
            Step::Evict(group, low, swap) => {
                let wanted = Wanted {
                    highest: if low { ZoneKind::Dma32 } else { ZoneKind::Movable },
                    swappiness: if swap { 60 } else { 0 },
                    budget: (platform.knobs.get(Knob::LruGenForm) == 2).then_some(3),
                };
                let group = self.group(group);
                let youngest = self.lru.vec(NODE, group).generations.max_seq();
                let got = self.lru.isolate_oldest(&self.platform, NODE, group, wanted);
                let generations = &self.lru.vec(NODE, group).generations;
                assert!(got.taken == 0 || generations.min_seq(got.file) < youngest);
                assert!(wanted.budget.is_none_or(|most| got.folios.len() as u64 <= most));
                let mut folios = got.folios;
                self.isolated.splice_head(&self.platform.frames, &mut folios);
            }
            Step::PutBack => self.put_back(),
            Step::Move(pfn, how) if self.live[pfn as usize] => match how {
                0 => lru.deactivate(platform, Pfn(pfn)),
                1 => lru.deactivate_file(platform, Pfn(pfn)),
                2 => lru.rotate_reclaimable(platform, Pfn(pfn)),
                3 => lru.mlock(platform, Pfn(pfn)),
                4 => lru.munlock(platform, Pfn(pfn)),
                5 => lru.activate(platform, Pfn(pfn)),
                _ => {
                    if lru.isolate(platform, Pfn(pfn)) {
                        lru.putback(platform, Pfn(pfn));
                        assert!(!platform.frames[Pfn(pfn)].put(1));
                    }
                }
            },
            Step::Switch(on) => {
                self.tell();
                let policy = if on { PolicyKind::MgLru } else { PolicyKind::Classic };
                self.lru.set_policy(&self.platform, policy).unwrap();
            }
            Step::NewGroup if self.group.is_none() => {
                self.group = Some(lru.create_group(ROOT, GroupLimits::default(), drop).unwrap());
            }
            Step::RemoveGroup => {
                if let Some(group) = self.group.take() {
                    lru.remove_group(platform, group).unwrap();
                }
            }
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(crate::testing::cases(400))]

    /// After every operation, each folio is in the queue of its record, and sizes are those of the generations in the
    /// flags.
    #[test]
    fn queues_and_sizes_stay_consistent(form in 0..3_u64, steps in prop::collection::vec(step(), 0..150)) {
        let mut world = World::new(form);
        for step in steps {
            world.step(step);
            world.tell();
            world.lru.validate(&world.platform).map_err(TestCaseError::fail)?;
        }
        world.put_back();
        world.lru.validate(&world.platform).map_err(TestCaseError::fail)?;
        let listed = (0..FRAMES).filter(|&pfn| world.platform.frames[Pfn(pfn)].has(F::LRU)).count();
        prop_assert_eq!(listed, world.live.iter().filter(|&&live| live).count());
    }
}

/// Threads promote, age, evict, use and move the same folios, while the policy changes and a group is removed: no folio
/// is lost, and sizes are right at the end.
#[cfg(not(feature = "one-thread"))]
#[test]
fn concurrent_movers_keep_sizes_right() {
    extern crate std;
    const ROUNDS: u32 = 3000;
    let (platform, lru) = with_generations();
    let group = lru.create_group(ROOT, GroupLimits::default(), drop).unwrap();
    for pfn in (0..FRAMES).map(Pfn) {
        let kind = if pfn.0 % 2 == 0 { F::SWAPBACKED } else { F::empty() };
        new_folio(&platform, &lru, pfn, if pfn.0 % 3 == 0 { group } else { ROOT }, kind);
    }
    let work = |thread: u32| {
        let mut random = 0x9e37_79b9_u32.wrapping_mul(thread + 1);
        let mut promotions = [0, 1].map(|node| lru.promotions(&platform, NodeId(node), ROOT));
        for _ in 0..ROUNDS {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (pfn, node) = (Pfn((random >> 8) % FRAMES), NodeId((random >> 6) as u8 % 2));
            let from = if random & 1 == 0 { ROOT } else { group };
            match random >> 28 {
                0..3 => lru.mark_accessed(&platform, pfn),
                3..6 => {
                    let frame = &platform.frames[pfn];
                    if frame.group() == ROOT {
                        lru.promote(frame, &mut promotions[frame.node().index()]);
                    }
                }
                6 => promotions.iter_mut().for_each(|promotions| lru.tell_promotions(&platform, promotions)),
                7 => lru.deactivate(&platform, pfn),
                8 => lru.rotate_reclaimable(&platform, pfn),
                9 => {
                    let seq = lru.vec(node, from).generations.max_seq();
                    lru.begin_generation(&platform, node, from, seq, random & 2 == 0);
                }
                10 if thread == 0 => {
                    let on = random & 2 == 0;
                    let policy = if on { PolicyKind::MgLru } else { PolicyKind::Classic };
                    lru.set_policy(&platform, policy).unwrap();
                }
                _ => {
                    let mut got = lru.isolate_oldest(&platform, node, from, ALL);
                    lru.putback_batch(&platform, &mut got.folios);
                }
            }
        }
        promotions.iter_mut().for_each(|promotions| lru.tell_promotions(&platform, promotions));
    };
    std::thread::scope(|scope| {
        let work = &work;
        for thread in 0..3 {
            scope.spawn(move || work(thread));
        }
        scope.spawn(|| lru.remove_group(&platform, group).unwrap());
    });
    lru.validate(&platform).unwrap();
    let listed = (0..FRAMES).filter(|&pfn| platform.frames[Pfn(pfn)].has(F::LRU)).count();
    assert_eq!(listed as u32, FRAMES);
    assert!((0..FRAMES).all(|pfn| platform.frames[Pfn(pfn)].refs() == 1));
}
