//! Lists and groups against simple models.

mod groups;

use super::*;
use crate::frame::{FolioPages, List};
use crate::knobs::{Knob, Knobs};
use crate::testing::{TestMachine, range};
use proptest::prelude::*;
use std_alloc::collections::{BTreeMap, VecDeque};
use std_alloc::vec;
use std_alloc::vec::Vec;

pub(super) const FRAMES: u32 = 24;

/// Two nodes; node 0 has a DMA32 and a Normal zone.
pub(super) fn setup() -> (Platform<TestMachine>, Lru) {
    let memory = [
        range(0, ZoneKind::Dma32, 0, 8),
        range(0, ZoneKind::Normal, 8, 8),
        range(1, ZoneKind::Normal, 16, 8),
    ];
    let platform = Platform::new(TestMachine::new(&[0, 1], &memory), Knobs::default());
    for (zone, range) in memory.iter().enumerate() {
        for i in 0..range.frames {
            platform.frames[range.start.add(i)].place(
                range.node,
                ZoneId(zone as u8),
                crate::frame::Mobility::Movable,
            );
        }
    }
    let lru = Lru::new(&platform.machine);
    (platform, lru)
}

/// Make a folio that is in use, charged to `group` and on its list.
pub(super) fn new_folio(
    platform: &Platform<TestMachine>,
    lru: &Lru,
    pfn: Pfn,
    group: GroupId,
    flags: FrameFlags,
) {
    let frame = &platform.frames[pfn];
    frame.get(1);
    frame.set(flags);
    lru.groups.try_charge(platform, group, 1).unwrap();
    frame.set_group(group);
    lru.add(platform, [pfn], false);
}

pub(super) fn free_folio(platform: &Platform<TestMachine>, lru: &Lru, pfn: Pfn) {
    let frame = &platform.frames[pfn];
    assert!(frame.put(1));
    lru.remove(platform, &[pfn]);
    frame.wipe(FrameFlags::empty());
}

/// Folios of files that no task has used, in the root group.
pub(super) fn new_files(platform: &Platform<TestMachine>, lru: &Lru, folios: impl IntoIterator<Item = u32>) {
    folios.into_iter().for_each(|pfn| new_folio(platform, lru, Pfn(pfn), ROOT, FrameFlags::empty()));
}

/// A run of random steps: the folios in use, those that are isolated, and a group that comes and goes.
pub(super) struct Run {
    pub platform: Platform<TestMachine>,
    pub lru: Lru,
    pub live: [bool; FRAMES as usize],
    pub isolated: List,
    group: Option<GroupId>,
}

/// A step that is the same under all policies.
#[derive(Clone, Debug)]
pub(super) enum Common {
    New(u32, u8, bool),
    Free(u32),
    Use(u32),
    Move(u32, u8),
    NewGroup,
    RemoveGroup,
}

pub(super) fn common() -> impl Strategy<Value = Common> {
    let pfn = 0..FRAMES;
    prop_oneof![
        8 => (pfn.clone(), any::<u8>(), any::<bool>()).prop_map(|(pfn, flags, group)| Common::New(pfn, flags, group)),
        3 => pfn.clone().prop_map(Common::Free),
        5 => pfn.clone().prop_map(Common::Use),
        4 => (pfn, 0..7_u8).prop_map(|(pfn, how)| Common::Move(pfn, how)),
        1 => Just(Common::NewGroup),
        1 => Just(Common::RemoveGroup),
    ]
}

impl Run {
    pub fn new((platform, lru): (Platform<TestMachine>, Lru)) -> Run {
        Run { platform, lru, live: [false; FRAMES as usize], isolated: List::new(), group: None }
    }

    /// The group that comes and goes, if it is wanted and there; else the root.
    pub fn group(&self, wanted: bool) -> GroupId {
        self.group.filter(|_| wanted).unwrap_or(ROOT)
    }

    pub fn is_held(&self, pfn: u32) -> bool {
        self.isolated.iter(&self.platform.frames).any(|held| held == Pfn(pfn))
    }

    /// Make a step. A new folio has some of the `possible` flags.
    pub fn step(&mut self, step: Common, possible: [FrameFlags; 6]) {
        let (platform, lru) = (&self.platform, &self.lru);
        match step {
            Common::New(pfn, bits, in_group) if !self.live[pfn as usize] => {
                let flags = possible.iter().enumerate().filter(|(at, _)| bits >> at & 1 == 1);
                let flags = flags.fold(FrameFlags::empty(), |all, (_, &flag)| all | flag);
                new_folio(platform, lru, Pfn(pfn), self.group(in_group), flags);
                self.live[pfn as usize] = true;
            }
            Common::Free(pfn) if self.live[pfn as usize] && !self.is_held(pfn) => {
                free_folio(platform, lru, Pfn(pfn));
                self.live[pfn as usize] = false;
            }
            Common::Use(pfn) if self.live[pfn as usize] => lru.mark_accessed(platform, Pfn(pfn)),
            Common::Move(pfn, how) if self.live[pfn as usize] => match how {
                0 => lru.deactivate(platform, Pfn(pfn)),
                1 => lru.deactivate_file(platform, Pfn(pfn)),
                2 => lru.rotate_reclaimable(platform, Pfn(pfn)),
                3 => lru.mlock(platform, Pfn(pfn)),
                4 => lru.munlock(platform, Pfn(pfn)),
                5 => lru.activate(platform, Pfn(pfn)),
                _ => cycle(platform, lru, Pfn(pfn)),
            },
            Common::NewGroup if self.group.is_none() => {
                self.group = Some(lru.create_group(ROOT, GroupLimits::default(), drop).unwrap());
            }
            Common::RemoveGroup => {
                if let Some(group) = self.group.take() {
                    lru.remove_group(platform, group).unwrap();
                }
            }
            _ => {}
        }
    }

    pub fn check(&self) -> Result<(), TestCaseError> {
        self.lru.validate(&self.platform).map_err(TestCaseError::fail)
    }

    /// All folios in use are on lists.
    pub fn end(self) -> Result<(), TestCaseError> {
        self.check()?;
        prop_assert_eq!(listed(&self.platform), self.live.iter().filter(|&&live| live).count());
        Ok(())
    }
}

/// Isolate a folio if it is on a list, and put it back.
fn cycle(platform: &Platform<TestMachine>, lru: &Lru, pfn: Pfn) {
    if lru.isolate(platform, pfn) {
        lru.putback(platform, pfn);
        assert!(!platform.frames[pfn].put(1));
    }
}

/// Number of folios on lists.
fn listed(platform: &Platform<TestMachine>) -> usize {
    (0..FRAMES).filter(|&pfn| platform.frames[Pfn(pfn)].has(FrameFlags::LRU)).count()
}

/// A random number, and a folio, a node and a group that follow from it.
#[cfg(not(feature = "one-thread"))]
pub(super) type Draw = (u32, Pfn, NodeId, GroupId);

/// Three threads, which `work` by their numbers and by random draws, move the same folios while a group is removed.
/// Every folio ends up on one list, and sizes and counters are right.
#[cfg(not(feature = "one-thread"))]
pub(super) fn threads_lose_no_folio(
    (platform, lru): &(Platform<TestMachine>, Lru),
    rounds: usize,
    work: impl Fn(u32, &mut dyn Iterator<Item = Draw>) + Sync,
) {
    extern crate std;
    let group = lru.create_group(ROOT, GroupLimits::default(), drop).unwrap();
    for pfn in (0..FRAMES).map(Pfn) {
        let kind = if pfn.0 % 2 == 0 { FrameFlags::SWAPBACKED } else { FrameFlags::empty() };
        new_folio(platform, lru, pfn, if pfn.0 % 3 == 0 { group } else { ROOT }, kind);
    }
    let draws = |thread: u32| {
        let next = |random: &u32| Some(random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
        let numbers =
            core::iter::successors(next(&0x9e37_79b9_u32.wrapping_mul(thread + 1)), next).take(rounds);
        numbers.map(|random| {
            let from = if random & 1 == 0 { ROOT } else { group };
            (random, Pfn((random >> 8) % FRAMES), NodeId((random >> 6) as u8 % 2), from)
        })
    };
    std::thread::scope(|scope| {
        let (work, draws) = (&work, &draws);
        for thread in 0..3 {
            scope.spawn(move || work(thread, &mut draws(thread)));
        }
        // Its folios go to the parent.
        scope.spawn(|| lru.remove_group(platform, group).unwrap());
    });
    lru.validate(platform).unwrap();
    assert_eq!(listed(platform), FRAMES as usize);
    assert!((0..FRAMES).all(|pfn| platform.frames[Pfn(pfn)].refs() == 1));
}

fn order(platform: &Platform<TestMachine>, lru: &Lru, node: u8, group: GroupId, list: LruList) -> Vec<u32> {
    let lists = lru.vec(NodeId(node), group).lock();
    lists.lists[list as usize].iter(&platform.frames).map(|pfn| pfn.0).collect()
}

const TAKE_ALL: IsolateScan =
    IsolateScan { list: LruList::InactiveFile, pages: 100, highest: ZoneKind::Movable, may_unmap: true };

#[test]
fn second_use_activates() {
    let (base, lru) = setup();
    new_folio(&base, &lru, Pfn(0), ROOT, FrameFlags::empty());
    let state = || {
        let flags = base.frames[Pfn(0)].flags();
        (flags.contains(FrameFlags::ACTIVE), flags.contains(FrameFlags::REFERENCED))
    };
    let seen: Vec<_> = (0..4)
        .map(|_| {
            lru.mark_accessed(&base, Pfn(0));
            state()
        })
        .collect();
    assert_eq!(seen, [(false, true), (true, false), (true, true), (true, true)]);
    assert_eq!(base.stats.read(Stat::Pgactivate), 1);
    assert_eq!(lru.node_vec(NodeId(0)).nonresident_age.load(Relaxed), 1, "an activation advances the clock");
    lru.validate(&base).unwrap();
}

#[test]
fn folios_in_unwanted_zones_move_to_the_head() {
    let (base, lru) = setup();
    new_files(&base, &lru, [1, 9, 2, 10]);
    let scan = IsolateScan { highest: ZoneKind::Dma32, pages: 1, ..TAKE_ALL };
    let got = lru.isolate_batch(&base, NodeId(0), ROOT, &scan);
    assert_eq!((got.scanned, got.taken, got.folios.tail()), (1, 1, Some(Pfn(1))));
    let got = lru.isolate_batch(&base, NodeId(0), ROOT, &scan);
    assert_eq!((got.scanned, got.taken, got.folios.tail()), (2, 1, Some(Pfn(2))));
    assert_eq!(
        order(&base, &lru, 0, ROOT, LruList::InactiveFile),
        [9, 10],
        "the skipped folio is at the head"
    );
    assert_eq!(base.stats.read(Stat::PgskipNormal), 1);
}

#[test]
fn mapped_folios_stay_without_may_unmap() {
    let (base, lru) = setup();
    new_files(&base, &lru, [1, 2]);
    base.frames.map_pages(FolioPages::one(&base.frames, Pfn(1)));
    let got = lru.isolate_batch(&base, NodeId(0), ROOT, &IsolateScan { may_unmap: false, ..TAKE_ALL });
    assert_eq!(got.folios.iter(&base.frames).collect::<Vec<_>>(), [Pfn(2)]);
    lru.validate(&base).unwrap();
}

#[test]
fn putback_returns_folios_without_references() {
    let (base, lru) = setup();
    new_files(&base, &lru, [1, 2]);
    let mut got = lru.isolate_batch(&base, NodeId(0), ROOT, &TAKE_ALL);
    assert!(!base.frames[Pfn(1)].put(1), "the last user drops its reference while the folio is isolated");
    let put = lru.putback_batch(&base, &mut got.folios);
    assert_eq!((put.pages, put.dead.iter(&base.frames).collect::<Vec<_>>()), (1, vec![Pfn(1)]));
    assert!(!base.frames[Pfn(1)].has(FrameFlags::LRU));
    lru.validate(&base).unwrap();
}

#[test]
fn page_with_a_small_refault_distance_is_activated() {
    let (base, lru) = setup();
    base.knobs.set(Knob::MemcgFlushMs, 0).unwrap();
    for pfn in 0..4 {
        new_folio(&base, &lru, Pfn(pfn), ROOT, FrameFlags::ACTIVE);
    }
    base.frames[Pfn(5)].set(FrameFlags::WORKINGSET);
    let shadow = lru.eviction(&base, Pfn(5), ROOT);
    lru.age_nonresident(NodeId(0), ROOT, 3);
    lru.refault(&base, &[(Pfn(6), shadow)], || 0, false);
    let flags = base.frames[Pfn(6)].flags();
    assert!(flags.contains(FrameFlags::ACTIVE | FrameFlags::WORKINGSET), "distance 4, active list 4");
    let stats = [Stat::WorkingsetRefaultFile, Stat::WorkingsetActivateFile, Stat::WorkingsetRestoreFile];
    assert_eq!(stats.map(|stat| base.stats.read(stat)), [1, 1, 1]);
    assert!(lru.node_vec(NodeId(0)).refaulted_since(&lru.known(&base, NodeId(0), ROOT), true));
    assert_eq!(lru.node_vec(NodeId(0)).cost().file, 16, "one page of I/O, halved: the lists are small");

    lru.refault(&base, &[(Pfn(7), shadow)], || 0, false);
    assert!(
        !base.frames[Pfn(7)].has(FrameFlags::ACTIVE),
        "the first refault has moved the clock to distance 5"
    );
}

#[test]
fn limits_hold_at_every_level_and_refused_charges_are_undone() {
    let (base, lru) = setup();
    let max = |max| GroupLimits { max, ..GroupLimits::default() };
    let top = lru.create_group(ROOT, max(10), drop).unwrap();
    let (a, b) = (lru.create_group(top, max(8), drop).unwrap(), lru.create_group(top, max(8), drop).unwrap());
    let charge = |group, pages| lru.groups.try_charge(&base, group, pages);
    assert_eq!(charge(a, 9), Err(a));
    assert_eq!(charge(a, 7), Ok(()));
    assert_eq!(charge(b, 4), Err(top));
    assert_eq!(charge(b, 3), Ok(()));
    assert_eq!([ROOT, top, a, b].map(|group| lru.groups.usage(group)), [10, 10, 7, 3]);
    lru.groups.set_limits(top, GroupLimits { high: 6, ..max(10) }).unwrap();
    assert_eq!(lru.groups.over_high(b), Some((top, 4)));
    assert_eq!(lru.groups.taken_over_high(b, 0), None, "it was charged below memory.high");
    lru.groups.set_limits(b, GroupLimits { high: 1, ..max(8) }).unwrap();
    lru.groups.set_limits(top, GroupLimits { high: 6, ..max(12) }).unwrap();
    assert_eq!(charge(b, 1), Ok(()));
    assert_eq!(charge(a, 1), Ok(()));
    let taken = [(); 3].map(|()| lru.groups.taken_over_high(b, 0));
    assert_eq!(taken, [Some((b, 1)), Some((top, 2)), None], "each level once");
    lru.groups.uncharge(&base, a, 1, 1);
    lru.groups.uncharge(&base, b, 1, 1);
    assert_eq!(lru.remove_group(&base, top), Err(Error::Busy));
    lru.groups.enter(a).unwrap();
    assert_eq!(lru.remove_group(&base, a), Err(Error::Busy));
    lru.groups.leave(a);
    lru.remove_group(&base, a).unwrap();
    assert_eq!((lru.groups.enter(a), lru.groups.enter_nearest(a)), (Err(Error::NotFound), top));
}

#[test]
fn protection_is_divided_down_the_tree() {
    let (base, lru) = setup();
    let low = |low| GroupLimits { low, ..GroupLimits::default() };
    let top = lru.create_group(ROOT, low(100), drop).unwrap();
    let (a, b) =
        (lru.create_group(top, low(150), drop).unwrap(), lru.create_group(top, low(50), drop).unwrap());
    lru.groups.try_charge(&base, a, 150).unwrap();
    lru.groups.try_charge(&base, b, 100).unwrap();
    let calculate =
        || lru.groups.subtree(ROOT).for_each(|group| lru.groups.calculate_protection(ROOT, group));
    calculate();
    let got = [top, a, b].map(|group| lru.groups.protection(ROOT, group).low);
    assert_eq!(got, [100, 75, 25], "200 pages are claimed of 100");
    assert!(!lru.groups.below_low(ROOT, a));
    lru.groups.uncharge(&base, a, 1, 150);
    calculate();
    assert!(lru.groups.below_low(ROOT, top) && lru.groups.below_low(ROOT, b), "all 100 pages are protected");
    assert!(!lru.groups.below_low(top, top), "a group has no protection from its own reclaim");
}

#[test]
fn partial_walks_continue_where_the_last_one_stopped() {
    let (_base, lru) = setup();
    let new = || lru.create_group(ROOT, GroupLimits::default(), drop).unwrap();
    let (a, b) = (new(), new());
    let node = NodeId(0);
    let mut first = None;
    assert_eq!(lru.next_shared(ROOT, node, &mut first), Some(ROOT));
    assert_eq!(lru.next_shared(ROOT, node, &mut first), Some(b));
    let mut second = None;
    assert_eq!(lru.next_shared(ROOT, node, &mut second), Some(a));
    assert_eq!(lru.next_shared(ROOT, node, &mut second), None);
    assert_eq!(lru.next_shared(ROOT, node, &mut first), None, "the second walk has completed the cycle");
    assert_eq!(lru.next_shared(ROOT, node, &mut None), Some(ROOT));
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Add { pfn: u32, swapbacked: bool, active: bool, group: usize },
    Free(u32),
    MarkAccessed(u32),
    Deactivate(u32),
    Lazyfree(u32),
    Rotate(u32),
    Mlock(u32),
    Munlock(u32),
    Cycle(u32),
    Batch { list: usize, node: u8, group: usize, pages: u64 },
    NewGroup(usize),
    RemoveGroup(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let pfn = 0..FRAMES;
    prop_oneof![
        4 => (pfn.clone(), any::<bool>(), any::<bool>(), 0usize..6)
            .prop_map(|(pfn, swapbacked, active, group)| Op::Add { pfn, swapbacked, active, group }),
        1 => pfn.clone().prop_map(Op::Free),
        3 => pfn.clone().prop_map(Op::MarkAccessed),
        1 => pfn.clone().prop_map(Op::Deactivate),
        1 => pfn.clone().prop_map(Op::Lazyfree),
        1 => pfn.clone().prop_map(Op::Rotate),
        1 => pfn.clone().prop_map(Op::Mlock),
        1 => pfn.clone().prop_map(Op::Munlock),
        1 => pfn.prop_map(Op::Cycle),
        2 => (0usize..4, 0u8..2, 0usize..6, 0u64..6)
            .prop_map(|(list, node, group, pages)| Op::Batch { list, node, group, pages }),
        1 => (0usize..6).prop_map(Op::NewGroup),
        1 => (0usize..6).prop_map(Op::RemoveGroup),
    ]
}

/// The expected state: folios by list, each list from head to tail.
#[derive(Default)]
struct Model {
    lists: BTreeMap<(u8, u16, usize), VecDeque<u32>>,
    flags: BTreeMap<u32, FrameFlags>,
    group: BTreeMap<u32, GroupId>,
}

impl Model {
    fn key(&self, pfn: u32) -> (u8, u16, usize) {
        ((pfn >= 16) as u8, self.group[&pfn].0, LruList::of(self.flags[&pfn]) as usize)
    }

    fn unlink(&mut self, pfn: u32) {
        let key = self.key(pfn);
        self.lists.get_mut(&key).unwrap().retain(|&other| other != pfn);
    }

    fn link(&mut self, pfn: u32, head: bool) {
        let list = self.lists.entry(self.key(pfn)).or_default();
        if head { list.push_front(pfn) } else { list.push_back(pfn) }
    }

    fn change(&mut self, pfn: u32, head: bool, set: FrameFlags, clear: FrameFlags) {
        self.unlink(pfn);
        let flags = self.flags.get_mut(&pfn).unwrap();
        *flags = (*flags | set) - clear;
        self.link(pfn, head);
    }
}

proptest! {
    #![proptest_config(crate::testing::cases(400))]

    /// Lists, their order, sizes, counters and charges match a simple model after every operation.
    #[test]
    fn lists_follow_the_model(ops in prop::collection::vec(op(), 0..120)) {
        use FrameFlags as F;
        let (base, lru) = setup();
        let mut groups = vec![ROOT];
        let mut model = Model::default();
        for op in ops {
            let has = |model: &Model, pfn: u32, flag: F| {
                model.flags.get(&pfn).is_some_and(|flags| flags.contains(flag))
            };
            match op {
                Op::Add { pfn, swapbacked, active, group } if !model.flags.contains_key(&pfn) => {
                    let group = groups[group % groups.len()];
                    let flags = if swapbacked { F::SWAPBACKED } else { F::empty() }
                        | if active { F::ACTIVE } else { F::empty() };
                    base.frames[Pfn(pfn)].set_owner(crate::frame::Owner::Anon(AnonId(0)), PageIndex(0));
                    new_folio(&base, &lru, Pfn(pfn), group, flags);
                    model.flags.insert(pfn, flags);
                    model.group.insert(pfn, group);
                    model.link(pfn, true);
                }
                Op::Free(pfn) if model.flags.contains_key(&pfn) => {
                    free_folio(&base, &lru, Pfn(pfn));
                    model.unlink(pfn);
                    model.flags.remove(&pfn);
                    model.group.remove(&pfn);
                }
                Op::MarkAccessed(pfn) if model.flags.contains_key(&pfn) => {
                    lru.mark_accessed(&base, Pfn(pfn));
                    if !has(&model, pfn, F::REFERENCED) {
                        model.flags.get_mut(&pfn).unwrap().insert(F::REFERENCED);
                    } else if !model.flags[&pfn].intersects(F::ACTIVE | F::UNEVICTABLE) {
                        model.change(pfn, true, F::ACTIVE, F::REFERENCED);
                    }
                }
                Op::Deactivate(pfn) => {
                    if model.flags.contains_key(&pfn) {
                        lru.deactivate(&base, Pfn(pfn));
                    }
                    if has(&model, pfn, F::ACTIVE) {
                        model.change(pfn, true, F::empty(), F::ACTIVE | F::REFERENCED);
                    }
                }
                Op::Lazyfree(pfn) => {
                    if model.flags.contains_key(&pfn) {
                        lru.lazyfree(&base, Pfn(pfn));
                    }
                    if has(&model, pfn, F::SWAPBACKED) && !has(&model, pfn, F::UNEVICTABLE) {
                        model.change(pfn, true, F::empty(), F::ACTIVE | F::REFERENCED | F::SWAPBACKED);
                    }
                }
                Op::Rotate(pfn) if model.flags.contains_key(&pfn) => {
                    lru.rotate_reclaimable(&base, Pfn(pfn));
                    if !has(&model, pfn, F::UNEVICTABLE) {
                        model.change(pfn, false, F::empty(), F::ACTIVE);
                    }
                }
                Op::Mlock(pfn) if model.flags.contains_key(&pfn) => {
                    lru.mlock(&base, Pfn(pfn));
                    if !has(&model, pfn, F::UNEVICTABLE) {
                        model.change(pfn, true, F::UNEVICTABLE, F::ACTIVE);
                    }
                }
                Op::Munlock(pfn) if model.flags.contains_key(&pfn) => {
                    lru.munlock(&base, Pfn(pfn));
                    if has(&model, pfn, F::UNEVICTABLE) {
                        model.change(pfn, true, F::empty(), F::UNEVICTABLE);
                    }
                }
                Op::Cycle(pfn) if model.flags.contains_key(&pfn) => {
                    prop_assert!(lru.isolate(&base, Pfn(pfn)));
                    prop_assert!(!lru.isolate(&base, Pfn(pfn)), "an isolated folio cannot be isolated again");
                    lru.putback(&base, Pfn(pfn));
                    prop_assert!(!base.frames[Pfn(pfn)].put(1));
                    model.change(pfn, true, F::empty(), F::empty());
                }
                Op::Batch { list, node, group, pages } => {
                    let group = groups[group % groups.len()];
                    let scan = IsolateScan { list: LruList::ALL[list], pages, ..TAKE_ALL };
                    let mut got = lru.isolate_batch(&base, NodeId(node), group, &scan);
                    let expected = model.lists.entry((node, group.0, list)).or_default();
                    let n = expected.len().min(pages as usize);
                    let tail: Vec<u32> = expected.iter().rev().take(n).copied().collect();
                    let taken: Vec<u32> = got.folios.iter(&base.frames).map(|pfn| pfn.0).collect();
                    prop_assert_eq!(taken.iter().rev().copied().collect::<Vec<_>>(), tail.clone());
                    prop_assert_eq!(got.taken as usize, n);
                    lru.putback_batch(&base, &mut got.folios);
                    for pfn in tail {
                        model.change(pfn, true, F::empty(), F::empty());
                    }
                }
                Op::NewGroup(parent) if groups.len() < 6 => {
                    let parent = groups[parent % groups.len()];
                    groups.push(lru.create_group(parent, GroupLimits::default(), drop).unwrap());
                }
                Op::RemoveGroup(index) => {
                    let group = groups[index % groups.len()];
                    let parent = lru.groups.parent(group);
                    if lru.remove_group(&base, group).is_err() {
                        prop_assert!(groups.iter().any(|&other| lru.groups.parent(other) == Some(group)) || group == ROOT);
                        continue;
                    }
                    groups.retain(|&other| other != group);
                    let parent = parent.unwrap();
                    for owner in model.group.values_mut().filter(|owner| **owner == group) {
                        *owner = parent;
                    }
                    for node in 0..2 {
                        for list in 0..LruList::COUNT {
                            let from = model.lists.remove(&(node, group.0, list)).unwrap_or_default();
                            model.lists.entry((node, parent.0, list)).or_default().extend(from);
                        }
                    }
                }
                _ => {}
            }
            lru.validate(&base).map_err(TestCaseError::fail)?;
            for (&(node, group, list), expected) in &model.lists {
                let found = order(&base, &lru, node, GroupId(group), LruList::ALL[list]);
                prop_assert_eq!(VecDeque::from(found), expected.clone());
            }
        }
    }
}

#[cfg(not(feature = "one-thread"))]
#[test]
fn concurrent_movers_lose_no_folio() {
    let world = setup();
    let (base, lru) = (&world.0, &world.1);
    threads_lose_no_folio(&world, 4000, |_, draws| {
        for (random, pfn, node, from) in draws {
            match random >> 28 {
                0..3 => lru.mark_accessed(base, pfn),
                3..5 => lru.deactivate(base, pfn),
                5 => lru.mlock(base, pfn),
                6..8 => lru.munlock(base, pfn),
                8 => lru.rotate_reclaimable(base, pfn),
                9..11 => cycle(base, lru, pfn),
                _ => {
                    let list = LruList::EVICTABLE[(random >> 4) as usize % 4];
                    let scan = IsolateScan { list, pages: 4, ..TAKE_ALL };
                    let mut got = lru.isolate_batch(base, node, from, &scan);
                    lru.putback_batch(base, &mut got.folios);
                }
            }
        }
    });
}

/// Decisions use the sizes at the end of the last period of two seconds; without groups, the present ones.
#[test]
fn known_sizes_are_those_of_the_last_period() {
    let (base, lru) = setup();
    let knows = || lru.known(&base, NodeId(0), ROOT).pages(LruList::InactiveFile);
    base.knobs.set(Knob::MemcgFlushMs, 2000).unwrap();
    new_folio(&base, &lru, Pfn(1), ROOT, FrameFlags::empty());
    base.machine.advance(1_900_000_000);
    assert_eq!(knows(), 0, "nothing is known in the first period");
    base.machine.advance(200_000_000);
    assert_eq!(knows(), 1);
    new_folio(&base, &lru, Pfn(2), ROOT, FrameFlags::empty());
    base.machine.advance(1_800_000_000);
    assert_eq!(knows(), 1, "periods begin with the clock, not with a request");
    base.machine.advance(100_000_000);
    assert_eq!(knows(), 2);
    new_folio(&base, &lru, Pfn(3), ROOT, FrameFlags::empty());
    assert_eq!(knows(), 2);
    base.knobs.set(Knob::MemcgFlushMs, 0).unwrap();
    assert_eq!(knows(), 3);
}

/// A program does not begin with a period, so a run that is shorter may see the end of one.
#[test]
fn first_period_ends_by_the_age_of_the_statistics() {
    let (base, lru) = setup();
    let lru = lru.with_age(1_500_000_000);
    let knows = || lru.known(&base, NodeId(0), ROOT).pages(LruList::InactiveFile);
    new_folio(&base, &lru, Pfn(1), ROOT, FrameFlags::empty());
    base.machine.advance(400_000_000);
    assert_eq!(knows(), 0);
    base.machine.advance(100_000_000);
    assert_eq!(knows(), 1);
    new_folio(&base, &lru, Pfn(2), ROOT, FrameFlags::empty());
    base.machine.advance(1_900_000_000);
    assert_eq!(knows(), 1);
    base.machine.advance(100_000_000);
    assert_eq!(knows(), 2);
}

/// The second switch would move folios to lists that the first has emptied and does not visit again.
#[test]
fn policy_is_switched_by_one_task_at_a_time() {
    let (base, lru) = setup();
    let group = lru.create_group(ROOT, GroupLimits::default(), drop).unwrap();
    let to = PolicyKind::MgLru;
    let switch = || [lru.set_policy(&base, to), lru.set_group_policy(&base, group, to)];
    assert!(lru.policy.begin());
    assert_eq!(switch(), [Err(Error::Busy); 2]);
    lru.policy.end();
    assert_eq!(switch(), [Ok(()); 2]);
}
