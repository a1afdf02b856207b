//! Generations: test vectors of the reference, and random uses, agings, evictions, switches and groups.

use super::place::arrival;
use super::*;
use crate::frame::{FrameFlags as F, List};
use crate::knobs::{Knob, LruGenForm};
use crate::lru::policy::{End, Evicted};
use crate::lru::tests::*;
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

fn put_back(platform: &Platform<TestMachine>, lru: &Lru, mut got: Evictable) {
    assert!(lru.putback_batch(platform, &mut got.folios).dead.is_empty());
    lru.validate(platform).unwrap();
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
    new_files(&platform, &lru, 0..4);
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
}

#[test]
fn folios_with_many_uses_are_protected() {
    let (platform, lru) = with_generations();
    new_files(&platform, &lru, 0..2);
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
}

#[test]
fn without_tiers_many_uses_count_as_one() {
    let (platform, lru) = with_generations();
    platform.knobs.set(Knob::LruGenTiers, 0).unwrap();
    new_files(&platform, &lru, 0..2);
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
    for (form, refaults) in [(LruGenForm::V612, 2), (LruGenForm::V61, 1)] {
        refault_early_and_late(form, refaults);
    }
}

/// `refaults`: those that are counted, of one while the page's generation is the oldest, and one later.
fn refault_early_and_late(form: LruGenForm, refaults: i64) {
    let (platform, lru) = with_generations();
    platform.knobs.set(Knob::LruGenForm, form.value()).unwrap();
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
    assert_eq!(platform.stats.read(Stat::WorkingsetRefaultFile), refaults);
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
        promotions.begin_window(false);
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
    }
}

#[test]
fn eviction_leaves_a_folio_that_another_task_moves() {
    let (platform, lru) = with_generations();
    new_files(&platform, &lru, 0..4);
    // Passes the empty oldest generation.
    lru.isolate_oldest(&platform, NODE, ROOT, ALL);
    // The other task waits for the lock of the lists.
    let frame = &platform.frames[Pfn(1)];
    assert!(frame.test_and_clear(F::LRU));
    let got = lru.isolate_oldest(&platform, NODE, ROOT, ALL);
    assert_eq!((taken(&platform, &got.folios), seq_of(&lru, &platform, Pfn(1))), (vec![3, 2, 0], Some(1)));
    frame.set(F::LRU);
    put_back(&platform, &lru, got);
}

#[derive(Clone, Debug)]
enum Step {
    Common(Common),
    Promote(u32),
    Tell,
    Age(bool),
    Evict(bool, bool, bool),
    PutBack,
    Switch(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        23 => common().prop_map(Step::Common),
        6 => (0..FRAMES).prop_map(Step::Promote),
        3 => Just(Step::Tell),
        4 => any::<bool>().prop_map(Step::Age),
        6 => any::<[bool; 3]>().prop_map(|[group, low, swap]| Step::Evict(group, low, swap)),
        6 => Just(Step::PutBack),
        1 => any::<bool>().prop_map(Step::Switch),
    ]
}

struct World {
    run: Run,
    promotions: [Promotions; 2],
}

impl World {
    fn new(form: u64) -> World {
        let run = Run::new(with_generations());
        run.platform.knobs.set(Knob::LruGenForm, form).unwrap();
        let promotions = [0, 1].map(|node| run.lru.promotions(&run.platform, NodeId(node), ROOT));
        World { run, promotions }
    }

    fn put_back(&mut self) {
        let put = self.run.lru.putback_batch(&self.run.platform, &mut self.run.isolated);
        assert!(put.dead.is_empty(), "their owners hold references");
    }

    fn tell(&mut self) {
        let (platform, lru) = (&self.run.platform, &self.run.lru);
        self.promotions.iter_mut().for_each(|promotions| lru.tell_promotions(platform, promotions));
    }

    fn step(&mut self, step: Step) {
        if matches!(step, Step::Common(Common::Free(_)) | Step::Age(_) | Step::Switch(_)) {
            // A mapped folio can be promoted and is not freed: so count promotions before a folio is freed. A walk
            // counts them before the generation begins.
            self.tell();
        }
        let (platform, lru) = (&self.run.platform, &self.run.lru);
        match step {
            Step::Common(step) => {
                let possible = [F::SWAPBACKED, F::SWAPCACHE, F::DIRTY, F::WRITEBACK, F::RECLAIM, F::ACTIVE];
                self.run.step(step, possible);
            }
            Step::Promote(pfn) => {
                let frame = &platform.frames[Pfn(pfn)];
                let live = self.run.live[pfn as usize];
                if live && frame.group() == ROOT && lru.policy() == PolicyKind::MgLru {
                    lru.promote(frame, &mut self.promotions[frame.node().index()]);
                }
            }
            Step::Tell => self.tell(),
            Step::Age(in_group) => {
                age(platform, lru, self.run.group(in_group));
                self.tell();
            }
            Step::Evict(in_group, low, swap) => {
                let wanted = Wanted {
                    highest: if low { ZoneKind::Dma32 } else { ZoneKind::Movable },
                    swappiness: if swap { 60 } else { 0 },
                    budget: (platform.knobs.get(Knob::LruGenForm) == 2).then_some(3),
                };
                let group = self.run.group(in_group);
                let generations = &lru.vec(NODE, group).generations;
                let youngest = generations.max_seq();
                let mut got = lru.isolate_oldest(platform, NODE, group, wanted);
                assert!(got.taken == 0 || generations.min_seq(got.file) < youngest);
                assert!(wanted.budget.is_none_or(|most| got.folios.len() as u64 <= most));
                self.run.isolated.splice_head(&platform.frames, &mut got.folios);
            }
            Step::PutBack => self.put_back(),
            Step::Switch(on) => lru.set_policy(platform, generations_if(on)).unwrap(),
        }
    }
}

fn generations_if(on: bool) -> PolicyKind {
    if on { PolicyKind::MgLru } else { PolicyKind::Classic }
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
            world.run.check()?;
        }
        world.put_back();
        world.run.end()?;
    }
}

/// Threads promote, age, evict, use and move folios while the policy changes.
#[cfg(not(feature = "one-thread"))]
#[test]
fn concurrent_movers_keep_sizes_right() {
    let world = with_generations();
    let (platform, lru) = (&world.0, &world.1);
    threads_lose_no_folio(&world, 3000, |thread, draws| {
        let mut promotions = [0, 1].map(|node| lru.promotions(platform, NodeId(node), ROOT));
        let tell = |promotions: &mut [Promotions; 2]| {
            promotions.iter_mut().for_each(|promotions| lru.tell_promotions(platform, promotions));
        };
        for (random, pfn, node, from) in draws {
            let frame = &platform.frames[pfn];
            match random >> 28 {
                0..3 => lru.mark_accessed(platform, pfn),
                3..6 if frame.group() == ROOT => lru.promote(frame, &mut promotions[frame.node().index()]),
                3..6 => {}
                6 => tell(&mut promotions),
                7 => lru.deactivate(platform, pfn),
                8 => lru.rotate_reclaimable(platform, pfn),
                9 => {
                    let seq = lru.vec(node, from).generations.max_seq();
                    lru.begin_generation(platform, node, from, seq, random & 2 == 0);
                }
                10 if thread == 0 => lru.set_policy(platform, generations_if(random & 2 == 0)).unwrap(),
                _ => {
                    let mut got = lru.isolate_oldest(platform, node, from, ALL);
                    lru.putback_batch(platform, &mut got.folios);
                }
            }
        }
        tell(&mut promotions);
    });
}
