//! Policies that propose, with random uses, evictions, switches and groups; and the framework's reaction to wrong
//! answers.

use super::*;
use crate::api::GroupLimits;
use crate::frame::FrameFlags as F;
use crate::lru::tests::{FRAMES, free_folio, new_folio, setup};
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
    New(u32, bool, u8),
    Free(u32),
    Use(u32),
    Evict(bool, bool, bool),
    Found(u32),
    PutBack,
    Move(u32, u8),
    Switch(u64),
    NewGroup,
    RemoveGroup,
}

fn step() -> impl Strategy<Value = Step> {
    let pfn = 0..FRAMES;
    prop_oneof![
        6 => (pfn.clone(), any::<bool>(), any::<u8>()).prop_map(|(pfn, group, kind)| Step::New(pfn, group, kind)),
        2 => pfn.clone().prop_map(Step::Free),
        3 => pfn.clone().prop_map(Step::Use),
        4 => any::<[bool; 3]>().prop_map(|[group, low, anon]| Step::Evict(group, low, anon)),
        2 => pfn.clone().prop_map(Step::Found),
        2 => Just(Step::PutBack),
        3 => (pfn, 0..7u8).prop_map(|(pfn, how)| Step::Move(pfn, how)),
        1 => (0..=CUSTOM.value()).prop_map(Step::Switch),
        1 => Just(Step::NewGroup),
        1 => Just(Step::RemoveGroup),
    ]
}

struct World {
    platform: Platform<TestMachine>,
    lru: Lru,
    live: [bool; FRAMES as usize],
    isolated: List,
    group: Option<GroupId>,
}

impl World {
    fn new(make: MakePolicy) -> World {
        let (platform, lru) = with(make);
        World { platform, lru, live: [false; FRAMES as usize], isolated: List::new(), group: None }
    }

    fn is_held(&self, pfn: u32) -> bool {
        self.isolated.iter(&self.platform.frames).any(|held| held == Pfn(pfn))
    }

    /// Put back the isolated folios; some of them are evicted.
    fn put_back(&mut self) {
        let (platform, lru) = (&self.platform, &self.lru);
        let mut kept = List::new();
        while let Some(pfn) = self.isolated.pop_tail(&platform.frames) {
            let frame = &platform.frames[pfn];
            if pfn.0.is_multiple_of(3) && frame.queue() != FOUND_USED {
                let _shadow = lru.eviction(platform, pfn, ROOT);
                assert!(!frame.put(1));
                free_folio(platform, lru, pfn);
                self.live[pfn.index()] = false;
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

    fn step(&mut self, step: Step) {
        let (platform, lru) = (&self.platform, &self.lru);
        match step {
            Step::New(pfn, in_group, bits) if !self.live[pfn as usize] => {
                let possible = [F::SWAPBACKED, F::DIRTY, F::WRITEBACK, F::RECLAIM, F::ACTIVE, F::REFERENCED];
                let flags = possible.iter().enumerate().filter(|(at, _)| bits >> at & 1 == 1);
                let flags = flags.fold(F::empty(), |all, (_, &flag)| all | flag);
                let group = self.group.filter(|_| in_group).unwrap_or(ROOT);
                new_folio(platform, lru, Pfn(pfn), group, flags);
                self.live[pfn as usize] = true;
            }
            Step::Free(pfn) if self.live[pfn as usize] && !self.is_held(pfn) => {
                free_folio(platform, lru, Pfn(pfn));
                self.live[pfn as usize] = false;
            }
            Step::Use(pfn) if self.live[pfn as usize] => lru.mark_accessed(platform, Pfn(pfn)),
            Step::Evict(in_group, low, anon) => {
                let highest = if low { ZoneKind::Dma32 } else { ZoneKind::Movable };
                let group = self.group.filter(|_| in_group).unwrap_or(ROOT);
                let mut got = lru.isolate_proposed(platform, NODE, group, Ask { highest, anon, ..ALL });
                got.folios.iter_mut().for_each(|folios| self.isolated.splice_head(&platform.frames, folios));
            }
            Step::Found(pfn) if self.is_held(pfn) => note_used(&platform.frames[Pfn(pfn)]),
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
            Step::Switch(number) => lru.set_policy(platform, PolicyKind::of(number)).unwrap(),
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

    /// For all answers of a policy, each folio is in the queue of its record, and sizes and charges are right.
    #[test]
    fn no_answer_loses_a_folio(
        which in 0..hostile::all().len(),
        steps in prop::collection::vec(step(), 0..150),
    ) {
        let mut world = World::new(hostile::all()[which]);
        for step in steps {
            world.step(step);
            world.lru.validate(&world.platform).map_err(TestCaseError::fail)?;
        }
        world.put_back();
        world.lru.validate(&world.platform).map_err(TestCaseError::fail)?;
        let listed = (0..FRAMES).filter(|&pfn| world.platform.frames[Pfn(pfn)].has(F::LRU)).count();
        prop_assert_eq!(listed, world.live.iter().filter(|&&live| live).count());
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
    for pfn in 0..16 {
        new_folio(&platform, &lru, Pfn(pfn), ROOT, F::empty());
    }
    let fallbacks = || platform.stats.read(Stat::PolicyFallback);
    let got = lru.isolate_proposed(&platform, NODE, ROOT, ONE);
    // Four rounds, 64, and the folio that is taken.
    assert_eq!((got.looked, got.taken, fallbacks()), (4 * 16 + 64 + 1, [0, 1], 1));
    let mut folios = got.folios;
    for folios in &mut folios {
        lru.putback_proposed(&platform, folios);
    }
    // It is still stuck: nothing was evicted.
    assert_eq!((lru.isolate_proposed(&platform, NODE, ROOT, ONE).looked, fallbacks()), (1, 1));
}

/// Records the calls.
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
    for pfn in 0..4 {
        new_folio(&platform, &lru, Pfn(pfn), ROOT, F::empty());
    }
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
    new_folio(&platform, &lru, Pfn(0), ROOT, F::empty());
    new_folio(&platform, &lru, Pfn(1), ROOT, F::empty());
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

/// Threads use, evict and move the same folios, while the policy changes and a group is removed: no folio is lost.
#[cfg(not(feature = "one-thread"))]
#[test]
fn concurrent_movers_with_a_policy_lose_no_folio() {
    extern crate std;
    let (platform, lru) = with(hostile::HOSTILE[0]);
    let group = lru.create_group(ROOT, GroupLimits::default(), drop).unwrap();
    for pfn in (0..FRAMES).map(Pfn) {
        let kind = if pfn.0.is_multiple_of(2) { F::SWAPBACKED } else { F::empty() };
        new_folio(&platform, &lru, pfn, if pfn.0.is_multiple_of(3) { group } else { ROOT }, kind);
    }
    let work = |thread: u32| {
        let mut random = 0x9e37_79b9_u32.wrapping_mul(thread + 1);
        for _ in 0..3000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (pfn, node) = (Pfn((random >> 8) % FRAMES), NodeId((random >> 6) as u8 % 2));
            let from = if random & 1 == 0 { ROOT } else { group };
            match random >> 28 {
                0..4 => lru.mark_accessed(&platform, pfn),
                4..6 => lru.deactivate(&platform, pfn),
                6..8 => lru.rotate_reclaimable(&platform, pfn),
                8 if thread == 0 => {
                    let number = u64::from((random >> 4) as u8) % (CUSTOM.value() + 1);
                    lru.set_policy(&platform, PolicyKind::of(number)).unwrap();
                }
                _ => {
                    let mut got = lru.isolate_proposed(&platform, node, from, ALL);
                    for folios in &mut got.folios {
                        if let Some(tail) = folios.tail() {
                            note_used(&platform.frames[tail]);
                        }
                        assert!(lru.putback_proposed(&platform, folios).dead.is_empty());
                    }
                }
            }
        }
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
