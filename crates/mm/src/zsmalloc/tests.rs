use super::*;
use crate::knobs::Knobs;
use crate::testing::{TestMachine, cases};
use proptest::prelude::*;
use std_alloc::collections::BTreeMap;
use std_alloc::vec::Vec;

/// A pool, and what it takes memory from.
pub(crate) struct Bench {
    pub(crate) mmu: Mmu<TestMachine>,
    alloc: Allocator,
    slabs: Slabs,
    pool: ZsPool,
    /// A frame with what is packed next.
    pub(crate) page: Pfn,
}

impl Bench {
    pub(crate) fn new(frames: u32) -> Bench {
        let mut machine = TestMachine::simple(1, frames);
        machine.compresses = true;
        let mmu = Mmu::new(machine, Knobs::default());
        let alloc = Allocator::new(&mmu).unwrap();
        let request = AllocRequest::of_kernel(Mobility::Movable, Order::ZERO, NodeId(0));
        let page = alloc.take(&mmu, &request, Watermark::Min).unwrap().into_pfn();
        Bench { slabs: Slabs::new(1), pool: ZsPool::new(), mmu, alloc, page }
    }

    pub(crate) fn memory(&self) -> ZsMemory<'_, TestMachine> {
        ZsMemory { mmu: &self.mmu, alloc: &self.alloc, slabs: &self.slabs }
    }

    /// Store an object of `bytes` with this stamp.
    fn store(&self, bytes: u32, stamp: u64) -> Option<ZsHandle> {
        let handle = self.pool.alloc(&self.memory(), bytes)?;
        self.mmu.machine.set_stamp(self.page, stamp);
        self.pool.with_place(handle, |place| self.mmu.machine.pack(self.page, place));
        Some(handle)
    }

    fn free(&self, handle: ZsHandle) {
        self.pool.free(&self.memory(), handle);
    }

    /// The bytes of an object, by frame.
    fn extent(&self, handle: ZsHandle) -> Vec<(Pfn, core::ops::Range<u32>)> {
        let place = self.pool.with_place(handle, |place| place);
        let here = place.bytes.min(PAGE_SIZE as u32 - place.offset);
        let first = (place.frame, place.offset..place.offset + here);
        let rest = place.bytes - here;
        if rest > 0 { std_alloc::vec![first, (place.next, 0..rest)] } else { std_alloc::vec![first] }
    }
}

proptest! {
    #![proptest_config(cases(64))]

    /// Objects keep what was stored in them, and none overlaps another, in any order of operations.
    #[test]
    fn objects_keep_their_content_apart(ops in prop::collection::vec((0u8..8, 1u32..4200, 0usize..64), 0..200)) {
        let bench = Bench::new(1024);
        let mut model: BTreeMap<u64, (ZsHandle, u32)> = BTreeMap::new();
        let mut next = 1;
        for (op, bytes, at) in ops {
            match op {
                0..5 => {
                    let bytes = bytes.min(PAGE_SIZE as u32);
                    if let Some(handle) = bench.store(bytes, next) {
                        model.insert(next, (handle, bytes));
                    }
                    next += 1;
                }
                5 | 6 => {
                    let stamp = model.keys().nth(at % model.len().max(1)).copied();
                    if let Some((handle, _)) = stamp.and_then(|stamp| model.remove(&stamp)) {
                        bench.free(handle);
                    }
                }
                _ => {
                    let could = bench.pool.compactable();
                    let before = bench.pool.total_pages();
                    prop_assert_eq!(bench.pool.compact(&bench.memory()), before - bench.pool.total_pages());
                    prop_assert!(before - bench.pool.total_pages() >= could);
                    prop_assert_eq!(bench.pool.compactable(), 0);
                }
            }
            bench.pool.validate(&bench.mmu).unwrap();
            let mut used = Vec::new();
            for (stamp, &(handle, bytes)) in &model {
                let found = bench.pool.with_place(handle, |place| (bench.mmu.machine.object(place), place.bytes));
                prop_assert_eq!(found, (*stamp, bytes));
                used.extend(bench.extent(handle));
            }
            used.sort_by_key(|(pfn, range)| (*pfn, range.start));
            prop_assert!(used.windows(2).all(|two| two[0].0 != two[1].0 || two[0].1.end <= two[1].1.start));
        }
        model.into_values().for_each(|(handle, _)| bench.free(handle));
        prop_assert_eq!((bench.pool.total_pages(), bench.mmu.stats.read(Stat::NrZspages)), (0, 0));
        bench.alloc.validate(&bench.mmu).unwrap();
    }
}

#[test]
fn objects_of_a_zspage_follow_each_other() {
    let bench = Bench::new(1024);
    // 2720 bytes with the handle: three in two frames.
    let handles = [1, 2, 3].map(|stamp| bench.store(2712, stamp).unwrap());
    let places = handles.map(|handle| bench.extent(handle));
    let first = places[0][0].0;
    let second = places[1][1].0;
    assert_eq!(places[0], [(first, 8..2720)]);
    assert_eq!(places[1], [(first, 2728..4096), (second, 0..1344)]);
    assert_eq!(places[2], [(second, 1352..4064)]);
    assert_eq!((bench.pool.total_pages(), bench.pool.records()), (2, [3, 1]));
    // A whole page has a frame of its own, without a handle in it.
    let whole = bench.store(4096, 4).unwrap();
    assert_eq!(bench.extent(whole)[0].1, 0..4096);
}

#[test]
fn an_object_comes_from_the_fullest_zspage_that_has_room() {
    let bench = Bench::new(1024);
    let handles: Vec<ZsHandle> = (0..6).map(|stamp| bench.store(2000, stamp).unwrap()).collect();
    // 2000 bytes: two of 2048 in a frame. One of the first frame and one of the second go.
    bench.free(handles[0]);
    bench.free(handles[2]);
    assert_eq!((bench.pool.total_pages(), bench.pool.compactable()), (3, 1));
    let place = |handle| bench.pool.with_place(handle, |place| place.frame);
    let second = place(handles[3]);
    assert_eq!(
        place(bench.store(2000, 7).unwrap()),
        second,
        "the last that got room is the first of its list"
    );
    bench.pool.validate(&bench.mmu).unwrap();
}

#[test]
fn an_object_fails_only_without_any_memory() {
    let bench = Bench::new(256);
    let mut handles = Vec::new();
    while let Some(handle) = bench.store(4096, 1) {
        handles.push(handle);
    }
    let free: u64 = bench.alloc.zones().iter().map(|zone| zone.free_pages()).sum();
    assert_eq!((free, handles.len() > 200), (0, true), "reclaim may use the reserves");
    // Of a zspage for which memory has a part only, nothing is kept.
    bench.free(handles.pop().unwrap());
    assert_eq!(bench.store(3620, 1), None);
    assert!(bench.store(4096, 1).is_some());
    bench.pool.validate(&bench.mmu).unwrap();
}

/// Two tasks find no room, and both bring a zspage.
#[test]
fn each_zspage_that_is_added_has_an_object() {
    let classes = ZsClasses::new();
    let number = classes.of(100);
    let class = &classes.classes[number];
    let mut zspages = Zspages::new(classes.classes.len());
    let frames = |first: u32| (0..class.frames).map(|frame| Pfn(first + frame)).collect::<ZspageFrames>();
    let handles = [0, 8].map(|first| zspages.add(class, number, frames(first), 100));
    zspages.validate(&classes.classes).unwrap();
    let freed = handles.map(|handle| zspages.free(&classes.classes, handle));
    assert!(
        freed
            .iter()
            .all(|frames| frames.as_ref().is_some_and(|frames| frames.len() == class.frames as usize))
    );
    zspages.validate(&classes.classes).unwrap();
}
