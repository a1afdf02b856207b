//! Files on a machine whose waits end transfers.

extern crate std;

mod edges;
mod large;
mod places;
mod waits;

use super::*;
use crate::alloc::{Allocator, Watermark};
use crate::api::SwapArea;
use crate::frame::FolioRun;
use crate::knobs::{Knob, Knobs, ReadAheadForm};
use crate::lru::Lru;
use crate::memory::{AllowedReadAhead, Gfp};
use crate::mm_core::MmCore;
use crate::mmu::Mmu;
use crate::swap::Swap;
use crate::testing::{TestMachine, virgin};
use proptest::prelude::*;
use std::cell::RefCell;
use std::rc::Rc;
use std_alloc::boxed::Box;
use std_alloc::vec::Vec;
use tree::MAX_INDEX;

std::thread_local! {
    static STORE: RefCell<Option<Rc<MmCore<TestMachine>>>> = const { RefCell::new(None) };
}

pub(crate) const DISK: DeviceId = DeviceId(0);
const SWAP: DeviceId = DeviceId(1);
/// Requests that make no blocks.
pub(crate) const ROOT: Gfp = Gfp { given_up: Order::ZERO, ..Gfp::user(GroupId(0)) };

/// Call `act` with the store that was made last.
fn with_store(act: impl FnOnce(&MmCore<TestMachine>)) {
    let store = STORE.with_borrow(|store| store.clone()).expect("a store was made");
    act(&store);
}

/// Call `act` whenever a task waits.
pub(crate) fn while_waiting(core: &MmCore<TestMachine>, act: fn(&MmCore<TestMachine>)) {
    *core.machine.idle.lock() = Some(Box::new(move |_| with_store(act)));
}

pub(crate) fn store(frames: u32, slots: u32) -> Rc<MmCore<TestMachine>> {
    let mut machine = TestMachine::simple(1, frames);
    machine.io_done = Some(|io| with_store(|store| store.cache.end_io(store, io, true)));
    let mmu = Mmu::new(machine, Knobs::default());
    let alloc = Allocator::new(&mmu).unwrap();
    let lru = Lru::new(&mmu.machine);
    let swap = Swap::new(&[SwapArea { device: SWAP, pages: slots, priority: 0, zram: None }], 1);
    let store = Rc::new(MmCore::new(Memory::new(mmu, swap, alloc, lru), Cache::new(), Pfn::NONE));
    STORE.with_borrow_mut(|place| *place = Some(store.clone()));
    store
}

pub(crate) fn disk_file(core: &MmCore<TestMachine>, block: u64, pages: u64) -> FileId {
    core.cache.create(FileKind::Disk { device: DISK, block }, pages * PAGE_SIZE)
}

pub(crate) fn check(core: &MmCore<TestMachine>) {
    core.cache.validate(core).unwrap();
    core.swap.validate().unwrap();
    core.alloc.validate(core).unwrap();
    core.lru.validate(core).unwrap();
}

/// Reclaim a folio: write it if it is dirty, else take it out of its cache. Returns whether it was freed.
pub(crate) fn reclaim(core: &MmCore<TestMachine>, pfn: Pfn) -> bool {
    let frame = &core.frames[pfn];
    if !frame.try_get() {
        return false;
    }
    let busy = FrameFlags::WRITEBACK;
    if !core.try_lock_folio(pfn) {
        core.put(pfn);
        return false;
    }
    let mut gone = false;
    let large = frame.order() > Order::ZERO && frame.has(FrameFlags::SWAPBACKED);
    let split = large && !frame.has_any(busy) && core.cache.split(core, pfn, Order::ZERO, None);
    if large && !split {
        // It is in use.
    } else if frame.has(FrameFlags::DIRTY) && !frame.has_any(busy) {
        frame.set(FrameFlags::RECLAIM);
        if !core.cache.write_page_start(core, pfn, &mut Default::default()) {
            frame.clear(FrameFlags::RECLAIM);
        }
    } else if frame.has(FrameFlags::SWAPCACHE) {
        gone = !frame.has_any(busy) && frame.freeze_clean(CACHE_AND_CALLER);
        if gone {
            let shadow = core.lru.eviction(core, pfn, GroupId(0));
            core.remove_from_swap(frame.swap_slot(), Some(shadow));
        }
    } else if let Owner::File(file) = frame.owner()
        && !frame.has_any(busy)
    {
        let shadow = |pfn| core.lru.eviction(core, pfn, GroupId(0));
        gone = !core.cache.evict(core, file, FolioRun::one(&pfn), CACHE_AND_CALLER, shadow).is_empty();
    }
    core.unlock_folio(pfn);
    if gone {
        core.free_folio(pfn)
    } else {
        core.put(pfn)
    }
    gone
}

pub(crate) fn read(core: &MmCore<TestMachine>, file: FileId, first: u64, pages: u64) -> Vec<u64> {
    let mut stamps = Vec::new();
    let (offset, len) = (first * PAGE_SIZE, pages * PAGE_SIZE);
    core.cache
        .read(core, file, offset, len, ROOT, &mut |pfn, _, _| stamps.push(core.machine.stamp(pfn)))
        .unwrap();
    stamps
}

pub(crate) fn write(core: &MmCore<TestMachine>, file: FileId, offset: u64, len: u64, stamp: u64) {
    let mut done = 0;
    while done < len {
        let source = &mut |pfn, _, _| core.machine.set_stamp(pfn, stamp);
        done += core.cache.write(core, file, offset + done, len - done, ROOT, source).unwrap();
    }
}

/// ftruncate without mappings.
fn truncate(core: &MmCore<TestMachine>, file: FileId, pages: u64) {
    core.cache.set_size(file, pages * PAGE_SIZE);
    crate::truncate::cut_astride(core, file, PageIndex(pages));
    core.cache.truncate(core, file, PageIndex(pages));
}

/// Write the dirty pages of `[first, end)`.
fn sync(core: &MmCore<TestMachine>, file: FileId, first: u64, end: u64) {
    let state = crate::writeback::Writeback::default();
    crate::writeback::sync_range(core, &state, file, PageIndex(first), PageIndex(end));
}

/// Drop the clean and unused pages of all files; returns their number.
fn drop_clean(core: &MmCore<TestMachine>) -> u64 {
    core.cache.ids().map(|file| core.cache.invalidate(core, file, PageIndex(0), PageIndex(MAX_INDEX))).sum()
}

pub(crate) fn any_cached(core: &MmCore<TestMachine>, file: FileId, from: u64) -> Option<Pfn> {
    let tree = core.cache.file(file).tree.lock();
    let found = tree
        .folios_in(TreeMark::Folio, from..MAX_INDEX)
        .next()
        .or_else(|| tree.folios_in(TreeMark::Folio, 0..from).next());
    found.map(|(_, folio)| folio.head)
}

#[derive(Clone, Debug)]
enum Op {
    Read(usize, u64, u64),
    Write(usize, u64, u64, bool),
    Truncate(usize, u64),
    Sync(usize),
    Reclaim(usize, u64),
    ReclaimSwapped(u64),
    EndIo(u8),
    DropClean,
    /// Take a reference to a folio, or drop the one that was taken.
    Hold(usize, u64),
}

fn op() -> impl Strategy<Value = Op> {
    let file = 0usize..3;
    prop_oneof![
        3 => (file.clone(), 0u64..90, 1u64..12).prop_map(|(f, i, n)| Op::Read(f, i, n)),
        3 => (file.clone(), 0u64..90, 1u64..6, any::<bool>()).prop_map(|(f, i, n, whole)| Op::Write(f, i, n, whole)),
        1 => (file.clone(), 0u64..90).prop_map(|(f, n)| Op::Truncate(f, n)),
        1 => file.clone().prop_map(Op::Sync),
        6 => (file, 0u64..90).prop_map(|(f, i)| Op::Reclaim(f, i)),
        4 => (0u64..40).prop_map(Op::ReclaimSwapped),
        2 => (1u8..9).prop_map(Op::EndIo),
        1 => Just(Op::DropClean),
        1 => (0usize..3, 0u64..90).prop_map(|(f, i)| Op::Hold(f, i)),
    ]
}

proptest! {
    /// Random reads, writes, truncations, write-backs, swapping and evictions, in folios of any size: reads return
    /// what was written last.
    #[test]
    fn files_keep_their_content(
        ops in prop::collection::vec(op(), 1..120),
        (order, window) in (0u64..=6, prop_oneof![Just(128u64), Just(256)]),
    ) {
        let core = store(2048, 64);
        core.knobs.set(Knob::FileMaxOrder, order).unwrap();
        core.knobs.set(Knob::ShmemMaxOrder, order).unwrap();
        core.knobs.set(Knob::ReadAheadKb, window).unwrap();
        let mut held: Option<Pfn> = None;
        let files = [
            disk_file(&core, 0, 40),
            disk_file(&core, 1000, 7),
            core.cache.create(FileKind::Shmem, 30 * PAGE_SIZE),
        ];
        let mut model: [Vec<u64>; 3] = [
            (0..40).map(|i| virgin(DISK, i)).collect(),
            (1000..1007).map(|i| virgin(DISK, i)).collect(),
            std_alloc::vec![0; 30],
        ];
        for (stamp, op) in (1u64 << 48..).zip(ops) {
            match op {
                Op::Read(f, first, pages) => {
                    let end = ((first + pages) as usize).min(model[f].len());
                    let expected = model[f].get(first as usize..end).unwrap_or(&[]);
                    prop_assert_eq!(&read(&core, files[f], first, pages), expected);
                }
                Op::Write(f, first, pages, whole) => {
                    let (offset, len) = (first * PAGE_SIZE, pages * PAGE_SIZE);
                    let end = (first + pages) as usize;
                    if whole { write(&core, files[f], offset, len, stamp) } else { write(&core, files[f], offset + 9, len - 99, stamp) }
                    if model[f].len() < end {
                        model[f].resize(end, 0);
                    }
                    model[f][first as usize..end].fill(stamp);
                }
                Op::Truncate(f, pages) => {
                    truncate(&core, files[f], pages);
                    model[f].resize(pages as usize, 0);
                }
                Op::Sync(f) => {
                    sync(&core, files[f], 0, u64::MAX);
                    let platform = if f == 0 { 0 } else { 1000 };
                    let f_ = core.cache.file(files[f]);
                    prop_assert!(f_.is_shmem() || !core.cache.is_dirty(files[f]));
                    for (i, &stamp) in model[f].iter().enumerate().filter(|_| f < 2) {
                        let on_device = f_.extents.lock().contains(i as u64);
                        prop_assert_eq!(if on_device { core.machine.block(DISK, platform + i as u64) } else { 0 }, stamp);
                    }
                }
                Op::Reclaim(f, index) => if let Some(pfn) = any_cached(&core, files[f], index) {
                    reclaim(&core, pfn);
                },
                Op::ReclaimSwapped(n) => {
                    let mut cached = Vec::new();
                    core.swap.for_cached(&mut |_, pfn| cached.push(pfn));
                    if let Some(&pfn) = cached.get(n as usize) {
                        reclaim(&core, pfn);
                    }
                }
                Op::EndIo(n) => { (0..n).all(|_| core.machine.end_one()); }
                Op::DropClean => { drop_clean(&core); }
                Op::Hold(f, index) => match held.take() {
                    Some(pfn) => core.put(pfn),
                    None => {
                        held = any_cached(&core, files[f], index);
                        held.into_iter().for_each(|pfn| core.frames[pfn].get(1));
                    }
                },
            }
            check(&core);
        }
        held.into_iter().for_each(|pfn| core.put(pfn));
        while core.machine.end_one() {}
        for file in files {
            core.cache.destroy(&core, file);
        }
        check(&core);
        // Slots that lost their last entry during write-back: reclaim has to find their folios.
        let mut orphans = Vec::new();
        core.swap.for_cached(&mut |_, pfn| orphans.push(pfn));
        for pfn in orphans {
            prop_assert!(reclaim(&core, pfn));
        }
        check(&core);
        prop_assert_eq!((core.swap.free_slots(), core.stats.read(Stat::NrFilePages)), (64, 0));
    }
}

/// Pages read from devices so far.
fn pages_read(core: &MmCore<TestMachine>) -> i64 {
    core.stats.read(Stat::PgpgIn) * 1024 / PAGE_SIZE as i64
}

#[test]
fn sequential_reader_waits_less_and_less() {
    let core = store(4096, 8);
    let file = disk_file(&core, 0, 200);
    let mut waits = 0;
    for index in 0..200 {
        let page = core.cache.get_page(&core, file, PageIndex(index), ReadHint::default(), ROOT).unwrap();
        waits += u32::from(page.major);
        core.put(page.folio);
        // The device is fast: every submitted read ends before the next page is read.
        while core.machine.end_one() {}
        core.cache.file(file).readahead.lock().note_read((index + 1) * PAGE_SIZE);
    }
    assert_eq!((waits, pages_read(&core)), (1, 200));
    // Windows of 4, 8, 16, 32 ... pages.
    assert_eq!(core.machine.work(Work::IoSubmit), 9);
    assert_eq!(core.machine.work(Work::IoComplete), 9);
    check(&core);
}

#[test]
fn random_reader_reads_only_what_it_asks_for() {
    let core = store(4096, 8);
    let file = disk_file(&core, 0, 2000);
    for index in [700, 50, 1200, 333, 999] {
        assert_eq!(read(&core, file, index, 1), [virgin(DISK, index)]);
    }
    assert_eq!(core.machine.work(Work::IoSubmit), 5);
    core.cache.advise(file, FileAdvice::Random);
    read(&core, file, 0, 1);
    assert_eq!(core.machine.work(Work::IoSubmit), 6);
}

#[test]
fn fault_reads_around_itself() {
    let core = store(4096, 8);
    let file = disk_file(&core, 0, 2000);
    let hint = ReadHint { fault: true, ..ReadHint::default() };
    let page = core.cache.get_page(&core, file, PageIndex(100), hint, ROOT).unwrap();
    assert!(page.major);
    core.put(page.folio);
    while core.machine.end_one() {}
    let mut seen = Vec::new();
    core.cache.resident(&core, file, (PageIndex(0), 2000), None, |run| {
        seen.extend((0..run.pages as u64).map(|i| run.index.0 + i));
        core.unlock_folio(run.folio);
        core.put_many(run.folio, run.pages);
    });
    // The marked page, 8 before the end, must go through get_page.
    assert_eq!(seen, (84..116).filter(|&index| index != 108).collect::<Vec<_>>());
    let page = core.cache.get_page(&core, file, PageIndex(108), hint, ROOT).unwrap();
    assert!(!page.major);
    core.put(page.folio);
    assert_eq!((pages_read(&core), core.machine.work(Work::IoSubmit)), (64, 2));
    check(&core);
}

/// Faults that are far apart: what was read around each is mapped, but never used.
#[test]
fn pages_mapped_around_faults_are_hits_in_the_older_form_only() {
    for (hits, last) in [(ReadAheadForm::V612, 32), (ReadAheadForm::V72, 1)] {
        let core = store(4096, 8);
        core.knobs.set(Knob::ReadAheadForm, hits.value()).unwrap();
        let file = disk_file(&core, 0, 8000);
        let hint = ReadHint { fault: true, ..ReadHint::default() };
        let mut read = 0;
        for fault in (0..101).map(|number| PageIndex(64 * number + 16)) {
            let before = pages_read(&core);
            let page = core.cache.get_page(&core, file, fault, hint, ROOT).unwrap();
            core.put(page.folio);
            while core.machine.end_one() {}
            core.cache.resident(&core, file, (fault, 16), None, |run| {
                core.unlock_folio(run.folio);
                core.put_many(run.folio, run.pages);
            });
            read = pages_read(&core) - before;
        }
        assert_eq!(read, last, "{hits:?}");
        check(&core);
    }
}

#[test]
fn a_cached_page_that_faults_is_a_hit_in_both_forms() {
    for hits in [ReadAheadForm::V612, ReadAheadForm::V72] {
        let core = store(4096, 8);
        core.knobs.set(Knob::ReadAheadForm, hits.value()).unwrap();
        let file = disk_file(&core, 0, 8000);
        let hint = ReadHint { fault: true, ..ReadHint::default() };
        for number in 0..101 {
            let before = pages_read(&core);
            let fault = PageIndex(64 * number + 16);
            let page = core.cache.get_page(&core, file, fault, hint, ROOT).unwrap();
            core.put(page.folio);
            while core.machine.end_one() {}
            assert_eq!(pages_read(&core) - before, 32, "{hits:?}, fault {number}");
            core.cache.resident(&core, file, (fault, 1), Some(fault), |run| {
                core.unlock_folio(run.folio);
                core.put_many(run.folio, run.pages);
            });
        }
    }
}

#[test]
fn overwriting_whole_pages_reads_nothing() {
    let core = store(4096, 8);
    let file = disk_file(&core, 0, 10);
    write(&core, file, 0, 4 * PAGE_SIZE, 1);
    write(&core, file, 10 * PAGE_SIZE + 1, 10, 2);
    assert_eq!(core.machine.work(Work::IoSubmit), 0);
    write(&core, file, 5 * PAGE_SIZE, 100, 3);
    assert_eq!(core.machine.work(Work::IoSubmit), 1);
    assert_eq!((core.cache.file(file).size(), core.stats.read(Stat::NrDirty)), (10 * PAGE_SIZE + 11, 6));
    check(&core);
}

/// A locked anonymous page in the swap cache whose slot no entry needs.
fn in_swap_cache(core: &MmCore<TestMachine>, stamp: u64) -> Pfn {
    let pfn = core.new_folio(Order::ZERO, ROOT).unwrap();
    let frame = &core.frames[pfn];
    frame.set_owner(Owner::Anon(AnonId(0)), PageIndex(0));
    frame.set(FrameFlags::UPTODATE | FrameFlags::SWAPBACKED);
    core.lru.add(core, [pfn], false);
    core.machine.set_stamp(pfn, stamp);
    core.lock_folio(pfn);
    assert!(add_to_swap(core, pfn));
    pfn
}

/// Swap out an anonymous folio: it is written and freed.
fn swapped_out(core: &MmCore<TestMachine>, stamp: u64) -> SwapSlot {
    let pfn = in_swap_cache(core, stamp);
    let slot = core.frames[pfn].swap_slot();
    core.swap.dup(slot);
    assert!(core.cache.write_page_start(core, pfn, &mut Default::default()));
    core.unlock_folio(pfn);
    while core.machine.end_one() {}
    core.put(pfn);
    assert!(reclaim(core, pfn));
    slot
}

#[test]
fn dirty_pages_that_are_chosen_twice_stay_chosen() {
    let core = store(4096, 8);
    let file = disk_file(&core, 0, 4);
    write(&core, file, 0, 4 * PAGE_SIZE, 1);
    for _ in 0..2 {
        assert_eq!(core.cache.choose_dirty(file, 0..4, u64::MAX), 4);
    }
    for index in 0..4 {
        let (found, pfn) =
            core.cache.next_marked(&core, file, TreeMark::ToWrite, index..4).expect("it is chosen");
        core.put(pfn);
        assert_eq!(found, PageIndex(index));
    }
    check(&core);
}

/// A page of a file on a disk that is not in memory is no hole: it must not be replaced by zeroes.
#[test]
fn parts_of_a_file_on_a_disk_are_locked_only_if_none_is_missing() {
    const PAGES: u64 = 512;
    let core = store(4096, 8);
    let file = disk_file(&core, 0, PAGES);
    write(&core, file, 0, PAGES * PAGE_SIZE, 1);
    crate::writeback::sync_range(&core, &Default::default(), file, PageIndex(0), PageIndex(PAGES));
    let lock = || core.cache.lock_parts(&core, file, PageIndex(0));
    let parts = lock().expect("all are there");
    assert_eq!(parts.len() as u64, PAGES);
    core.cache.unlock_parts(&core, &parts);
    for missing in [PAGES - 1, 100, 0] {
        let pfn = core.cache.file(file).tree.lock().folio(PageIndex(missing)).expect("it is there").head;
        assert!(reclaim(&core, pfn));
        assert!(lock().is_none(), "without page {missing}");
    }
    check(&core);
}

#[test]
fn swap_is_read_in_clusters() {
    let core = store(4096, 64);
    let slots: Vec<SwapSlot> = (0..32).map(|stamp| swapped_out(&core, stamp + 500)).collect();
    assert_eq!(slots, (0..32).map(SwapSlot).collect::<Vec<_>>());
    let mut majors = 0;
    for &slot in &slots {
        let page = swapin(&core, slot, ROOT).unwrap();
        assert_eq!(core.machine.stamp(page.folio), slot.0 as u64 + 500);
        majors += u64::from(page.major);
        while core.machine.end_one() {}
        check(&core);
        drop_swap_entry(&core, slot);
        core.put(page.folio);
    }
    let reads = [Stat::PswpIn, Stat::PswpOut, Stat::SwapRa, Stat::SwapRaHit, Stat::WorkingsetRefaultAnon];
    let [pswpin, pswpout, ra, hits, refaults] = reads.map(|stat| core.stats.read(stat));
    assert_eq!((pswpin, pswpout, refaults), (32, 32, 32));
    assert_eq!((ra, hits), (32 - majors as i64, ra));
    assert!(majors < 10, "{majors} of 32 neighbours were waited for");
    assert_eq!(core.swap.free_slots(), 64);
    check(&core);
}

#[test]
fn swap_read_ahead_waits_for_memory_for_its_whole_window() {
    let core = store(4096, 64);
    let slots: Vec<SwapSlot> = (0..8).map(|stamp| swapped_out(&core, stamp)).collect();
    (0..8).for_each(|_| core.swap.readahead.hit());
    let gfp = Gfp { mark: Watermark::Min, ..ROOT };
    let mut held: Vec<Pfn> = core::iter::from_fn(|| core.new_folio(Order::ZERO, gfp).ok()).collect();
    held.drain(..7).for_each(|pfn| core.put(pfn));
    let free = || core.alloc.zones()[0].free_pages() + core.alloc.pcp_pages(ZoneId(0));
    let before = free();
    let reads = || [Stat::PswpIn, Stat::SwapRa].map(|stat| core.stats.read(stat));
    for _ in 0..2 {
        let outcome = swapin(&core, slots[4], ROOT);
        assert!(
            matches!(outcome, Err(CacheError::Shortage(Shortage::Zone(_)))),
            "at most 7 pages of 8: {outcome:?}"
        );
        assert_eq!((free(), reads()), (before, [0, 0]), "nothing has changed");
    }
    held.into_iter().for_each(|pfn| core.put(pfn));
    let page = swapin(&core, slots[4], ROOT).unwrap();
    assert_eq!(reads(), [8, 7], "the shortages have not made the window smaller");
    drop_swap_entry(&core, slots[4]);
    core.put(page.folio);
    check(&core);
}

#[test]
fn file_read_ahead_waits_for_memory_for_its_whole_window() {
    let core = store(4096, 8);
    let file = disk_file(&core, 0, 64);
    let gfp = Gfp { mark: crate::alloc::Watermark::Min, ..ROOT };
    let mut held: Vec<Pfn> = core::iter::from_fn(|| core.new_folio(Order::ZERO, gfp).ok()).collect();
    // The first window of a file is four pages.
    held.drain(..3).for_each(|pfn| core.put(pfn));
    let free = || core.alloc.zones()[0].free_pages() + core.alloc.pcp_pages(ZoneId(0));
    let before = free();
    let load = |gfp| core.cache.read(&core, file, 0, PAGE_SIZE, gfp, &mut |_, _, _| ());
    let cached = || {
        let tree = core.cache.file(file).tree.lock();
        (0..64).filter(|&page| tree.folio(PageIndex(page)).is_some()).count()
    };
    for _ in 0..2 {
        let outcome = load(gfp);
        assert!(matches!(outcome, Err(CacheError::Shortage(Shortage::Zone(_)))), "3 of 4: {outcome:?}");
        assert_eq!((free(), cached()), (before, 0), "nothing has changed");
    }
    // Pages on CPUs' lists are not what the watermarks count.
    core.alloc.drain_all(&core);
    let part = Gfp { read_ahead: AllowedReadAhead::Part, ..gfp };
    assert_eq!(load(part), Ok(PAGE_SIZE), "a part is enough");
    assert!((1..4).contains(&cached()), "{} of 4", cached());
    held.into_iter().for_each(|pfn| core.put(pfn));
    check(&core);
}

/// The file shrinks after pages were taken for its window.
#[test]
fn pages_of_a_window_are_freed_if_the_file_has_shrunk() {
    let core = store(4096, 8);
    let file = disk_file(&core, 0, 64);
    let free = || core.alloc.zones()[0].free_pages() + core.alloc.pcp_pages(ZoneId(0));
    let before = free();
    let pages = core.cache.pages_to_read(&core, file, 8..12, ROOT).unwrap();
    assert_eq!((pages.len(), free()), (4, before - 4));
    core.cache.set_size(file, 4 * PAGE_SIZE);
    let window = readahead::ReadaheadWindow { start: 8, count: 4, lookahead: 0 };
    core.cache.read_window(&core, file, window, Order::ZERO, pages, ROOT);
    assert_eq!(free(), before);
    check(&core);
}

#[test]
fn shadows_beyond_the_limit_are_dropped() {
    let core = store(2048, 8);
    let file = disk_file(&core, 0, 64 * 400);
    for leaf in 0..400 {
        assert_eq!(read(&core, file, leaf * 64 + 3, 1).len(), 1);
        while core.machine.end_one() {}
        let pfn = any_cached(&core, file, leaf * 64).unwrap();
        assert!(reclaim(&core, pfn));
    }
    check(&core);
    let (nodes, freed) =
        (core.stats.read(Stat::WorkingsetNodes), core.stats.read(Stat::WorkingsetNodereclaim));
    assert_eq!(nodes + freed, 400);
    assert!(nodes <= 64, "{nodes} leaves of shadows for empty lists");
    read(&core, file, 399 * 64 + 3, 1);
    assert_eq!(core.stats.read(Stat::WorkingsetRefaultFile), 1);
    read(&core, file, 3, 1);
    assert_eq!(core.stats.read(Stat::WorkingsetRefaultFile), 1);
}
