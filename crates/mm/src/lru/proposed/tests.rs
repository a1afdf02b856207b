//! Policies that propose, with random uses, evictions, switches and groups; and the framework's reaction to wrong
//! answers.

use super::*;
use crate::frame::FrameFlags as F;
use crate::lru::tests::*;
use crate::lru::{Lru, PolicyKind, ROOT};
use crate::machine::ZoneKind;
use crate::policy::{Judgement, MakePolicy, Past, RIVALS, hostile};
use crate::testing::TestMachine;
use crate::units::*;
use proptest::prelude::*;
use std_alloc::vec::Vec;

const NODE: NodeId = NodeId(0);
const ALL: Ask = Ask { pages: 32, highest: ZoneKind::Movable, anon: true, may_unmap: true };
const ONE: Ask = Ask { pages: 1, ..ALL };
const CUSTOM: PolicyKind = PolicyKind::CUSTOM;

pub(super) fn with(make: MakePolicy) -> (Platform<TestMachine>, Lru) {
    let (platform, lru) = setup();
    let lru = lru.with_custom(Some(make));
    lru.set_policy(&platform, CUSTOM).unwrap();
    (platform, lru)
}

/// Evict one folio, as `remove_mapping` does. Returns it with its shadow.
pub(super) fn evict_one(platform: &Platform<TestMachine>, lru: &Lru) -> Option<(Pfn, Shadow)> {
    let mut got = lru.isolate_proposed(platform, NODE, ROOT, ONE);
    let pfn = got.folios.iter_mut().find_map(|folios| folios.pop_tail(&platform.frames))?;
    let shadow = lru.eviction(platform, pfn, ROOT);
    assert!(!platform.frames[pfn].put(1));
    free_folio(platform, lru, pfn);
    Some((pfn, shadow))
}

#[derive(Clone, Debug)]
enum Step {
    Common(Common),
    Evict(bool, bool, bool),
    Found(u32),
    PutBack,
    Switch(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        16 => common().prop_map(Step::Common),
        4 => any::<[bool; 3]>().prop_map(|[group, low, anon]| Step::Evict(group, low, anon)),
        2 => (0..FRAMES).prop_map(Step::Found),
        2 => Just(Step::PutBack),
        1 => (0..=CUSTOM.value()).prop_map(Step::Switch),
    ]
}

/// Put back the isolated folios; some of them are evicted.
fn put_back(run: &mut Run) {
    let (platform, lru) = (&run.platform, &run.lru);
    let mut kept = List::new();
    while let Some(pfn) = run.isolated.pop_tail(&platform.frames) {
        let frame = &platform.frames[pfn];
        if pfn.0.is_multiple_of(3) && frame.queue() != FOUND_USED {
            let _shadow = lru.eviction(platform, pfn, ROOT);
            assert!(!frame.put(1));
            free_folio(platform, lru, pfn);
            run.live[pfn.index()] = false;
        } else {
            kept.push_head(&platform.frames, pfn);
        }
    }
    while let Some(tail) = kept.tail() {
        // The folios of one call are of one node.
        let mut batch = List::new();
        let node = platform.frames[tail].node();
        while let Some(pfn) = kept.tail().filter(|&pfn| platform.frames[pfn].node() == node) {
            kept.pop_tail(&platform.frames);
            batch.push_head(&platform.frames, pfn);
        }
        assert!(lru.putback_proposed(platform, &mut batch).dead.is_empty());
    }
}

fn make_step(run: &mut Run, step: Step) {
    let (platform, lru) = (&run.platform, &run.lru);
    match step {
        Step::Common(step) => {
            run.step(step, [F::SWAPBACKED, F::DIRTY, F::WRITEBACK, F::RECLAIM, F::ACTIVE, F::REFERENCED]);
        }
        Step::Evict(in_group, low, anon) => {
            let highest = if low { ZoneKind::Dma32 } else { ZoneKind::Movable };
            let ask = Ask { highest, anon, ..ALL };
            let mut got = lru.isolate_proposed(platform, NODE, run.group(in_group), ask);
            got.folios.iter_mut().for_each(|folios| run.isolated.splice_head(&platform.frames, folios));
        }
        Step::Found(pfn) if run.is_held(pfn) => note_used(&platform.frames[Pfn(pfn)]),
        Step::Found(_) => {}
        Step::PutBack => put_back(run),
        Step::Switch(number) => lru.set_policy(platform, PolicyKind::of(number)).unwrap(),
    }
}

proptest! {
    #![proptest_config(crate::testing::cases(400))]

    /// For all answers of a policy, each folio is in the queue of its record, and sizes and charges are right.
    #[test]
    fn no_answer_loses_a_folio(
        which in 0..hostile::all().len(),
        steps in prop::collection::vec(step(), 0..150),
    ) {
        let mut run = Run::new(with(hostile::all()[which]));
        for step in steps {
            make_step(&mut run, step);
            run.check()?;
        }
        put_back(&mut run);
        run.end()?;
    }

    /// For all answers of a policy, all memory can be reclaimed.
    #[test]
    fn no_answer_prevents_reclaim(which in 0..hostile::all().len(), folios in 1..16u32) {
        let (platform, lru) = with(hostile::all()[which]);
        for pfn in 0..folios {
            new_folio(&platform, &lru, Pfn(pfn), ROOT, if pfn % 2 == 0 { F::SWAPBACKED } else { F::empty() });
        }
        let mut asked = 0;
        let mut left = folios;
        while left > 0 {
            left -= evict_one(&platform, &lru).is_some() as u32;
            asked += 1;
            prop_assert!(asked < 100, "{} of {} folios are left", left, folios);
        }
        lru.validate(&platform).unwrap();
    }
}

/// Puts new folios on list 1 of 2, and proposes from list 0, which is empty.
struct Absent;

impl Replace for Absent {
    fn lists(&self) -> usize {
        2
    }

    fn added(&mut self, _folio: View<'_>, why: InsertReason) -> Spot {
        if matches!(why, InsertReason::Back) { Spot::head(7) } else { Spot::head(1) }
    }

    fn next(&mut self, _sizes: &[u64]) -> Spot {
        Spot::tail(0)
    }
}

#[test]
fn wrong_answers_are_counted() {
    let (platform, lru) = with(|| Box::new(Absent));
    let wrong = || platform.stats.read(Stat::PolicyWrong);
    new_folio(&platform, &lru, Pfn(0), ROOT, F::empty());
    assert_eq!(wrong(), 0);
    let (evicted, _) = evict_one(&platform, &lru).unwrap();
    assert_eq!((evicted, wrong()), (Pfn(0), 1), "an empty list is skipped");
    new_folio(&platform, &lru, Pfn(1), ROOT, F::empty());
    assert!(lru.isolate(&platform, Pfn(1)));
    lru.putback(&platform, Pfn(1));
    assert_eq!((list_of(&platform.frames[Pfn(1)]), wrong()), (0, 2), "a wrong list means the first");
    assert_eq!(platform.stats.read(Stat::PolicyFallback), 0);
}

#[test]
fn policy_that_keeps_everything_is_bypassed_sooner_each_time() {
    let (platform, lru) = with(hostile::HOSTILE[1]);
    new_files(&platform, &lru, 0..16);
    let fallbacks = || platform.stats.read(Stat::PolicyFallback);
    let got = lru.isolate_proposed(&platform, NODE, ROOT, ONE);
    // Four rounds, 64, and the folio that is taken.
    assert_eq!((got.looked, got.taken, fallbacks()), (4 * 16 + 64 + 1, [0, 1], 1));
    let decided = [Stat::PolicyTaken, Stat::PolicyMoved].map(|stat| platform.stats.read(stat));
    assert_eq!(
        decided,
        [1, 4 * 16 + 64],
        "it moved each that it was asked about; the last was taken unasked"
    );
    let mut folios = got.folios;
    for folios in &mut folios {
        lru.putback_proposed(&platform, folios);
    }
    // It is still stuck: nothing was evicted.
    assert_eq!((lru.isolate_proposed(&platform, NODE, ROOT, ONE).looked, fallbacks()), (1, 1));
}

/// More often than its patience can be halved.
#[test]
fn policy_that_keeps_everything_is_bypassed_each_time() {
    let (platform, lru) = with(hostile::HOSTILE[1]);
    for time in 0..70 {
        new_files(&platform, &lru, [0]);
        assert!(evict_one(&platform, &lru).is_some(), "eviction {time}");
    }
    assert_eq!(platform.stats.read(Stat::PolicyFallback), 70);
}

/// Scores folios of the second of two lists. It counts how often it is asked where to take one.
#[derive(Default)]
struct Sampler {
    asked: u32,
}

impl Replace for Sampler {
    fn lists(&self) -> usize {
        2
    }

    fn sample(&self) -> Option<Sample> {
        Some(Sample { of: 3, take: 2 })
    }

    fn added(&mut self, _folio: View<'_>, _why: InsertReason) -> Spot {
        Spot::head(1)
    }

    fn next(&mut self, _sizes: &[u64]) -> Spot {
        self.asked += 1;
        assert!(self.asked < 10, "reclaim must not ask for ever");
        Spot::tail(1)
    }
}

#[test]
fn samples_come_from_the_list_that_the_policy_names() {
    let (platform, lru) = with(|| Box::new(Sampler::default()));
    new_files(&platform, &lru, 0..4);
    assert_eq!(lru.isolate_proposed(&platform, NODE, ROOT, ALL).taken, [0, 4]);
}

#[derive(Default)]
struct Diary {
    returned: Vec<(u8, u64, u64)>,
}

impl Replace for Diary {
    fn added(&mut self, folio: View<'_>, why: InsertReason) -> Spot {
        assert!(matches!(why, InsertReason::New { .. }) || folio.mark() == 7);
        folio.set_mark(7);
        Spot::head(0)
    }

    fn next(&mut self, _sizes: &[u64]) -> Spot {
        Spot::tail(0)
    }

    fn returned(&mut self, folio: View<'_>, past: Past) {
        assert_eq!(folio.mark(), 0);
        self.returned.push((past.left, past.distance, past.resident));
        folio.set_mark(self.returned.len() as u8);
    }

    fn judge(&mut self, folio: View<'_>) -> Judgement {
        if folio.take_uses() > 0 { Judgement::Move(Spot::head(0)) } else { Judgement::Evict }
    }

    fn evicted(&mut self, folio: View<'_>) -> u8 {
        folio.mark() + 50
    }
}

#[test]
fn returning_page_brings_the_policys_bits_and_the_distance() {
    let (platform, lru) = with(|| Box::new(Diary::default()));
    new_files(&platform, &lru, 0..4);
    let shadows: Vec<_> = (0..3).map(|_| evict_one(&platform, &lru).unwrap()).collect();
    assert_eq!(shadows.iter().map(|evicted| evicted.0.0).collect::<Vec<_>>(), [0, 1, 2]);
    for (at, (pfn, shadow)) in shadows.into_iter().enumerate() {
        lru.refault(&platform, &[(pfn, shadow)], || 0, true);
        assert_eq!(platform.frames[pfn].mark(), at as u8 + 1);
        platform.frames[pfn].set_mark(0);
    }
    assert_eq!(platform.stats.read(Stat::WorkingsetRefaultFile), 3);
}

#[test]
fn uses_are_counted_on_the_folio() {
    let (platform, lru) = with(|| Box::new(Diary::default()));
    new_files(&platform, &lru, [0, 1]);
    let view = View::new(&platform.frames[Pfn(0)], 0);
    let counts: Vec<_> = (0..7)
        .map(|_| {
            lru.mark_accessed(&platform, Pfn(0));
            view.uses()
        })
        .collect();
    assert_eq!(counts, [1, 2, 3, 4, 5, 5, 5]);
    assert_eq!(evict_one(&platform, &lru).unwrap().0, Pfn(1), "the used folio was moved");
    assert_eq!(view.uses(), 0);
    assert_eq!(evict_one(&platform, &lru).unwrap().0, Pfn(0));
}

#[test]
fn unregistered_policy_cannot_be_selected() {
    let (platform, lru) = setup();
    assert_eq!(lru.set_policy(&platform, CUSTOM), Err(crate::api::Error::Invalid));
    assert_eq!(lru.policy(), PolicyKind::Classic);
    let info = crate::knobs::Knob::ReclaimPolicy.info();
    let ours = RIVALS.iter().map(|rival| rival.name);
    let expected: Vec<_> = ["classic", "mglru"].into_iter().chain(ours).chain(["custom"]).collect();
    assert_eq!((info.words, info.max), (&expected[..], CUSTOM.value()));
    assert!((0..=info.max).all(|value| PolicyKind::of(value).value() == value));
}

/// Threads use, evict and move folios while the policy changes.
#[cfg(not(feature = "one-thread"))]
#[test]
fn concurrent_movers_with_a_policy_lose_no_folio() {
    let world = with(hostile::HOSTILE[0]);
    let (platform, lru) = (&world.0, &world.1);
    threads_lose_no_folio(&world, 3000, |thread, draws| {
        for (random, pfn, node, from) in draws {
            match random >> 28 {
                0..4 => lru.mark_accessed(platform, pfn),
                4..6 => lru.deactivate(platform, pfn),
                6..8 => lru.rotate_reclaimable(platform, pfn),
                8 if thread == 0 => {
                    let number = u64::from((random >> 4) as u8) % (CUSTOM.value() + 1);
                    lru.set_policy(platform, PolicyKind::of(number)).unwrap();
                }
                _ => {
                    let mut got = lru.isolate_proposed(platform, node, from, ALL);
                    for folios in &mut got.folios {
                        if let Some(tail) = folios.tail() {
                            note_used(&platform.frames[tail]);
                        }
                        assert!(lru.putback_proposed(platform, folios).dead.is_empty());
                    }
                }
            }
        }
    });
}
