//! What other tasks do to a page while a task waits for it, or holds its lock.

use super::*;
use crate::machine::SharedLine;
use crate::testing::Moment;

/// A shmem file of two pages whose second one holds `stamp`.
fn shmem_file(core: &MmCore<TestMachine>, stamp: u64) -> (FileId, Pfn) {
    let file = core.cache.create(FileKind::Shmem, 2 * PAGE_SIZE);
    write(core, file, PAGE_SIZE, PAGE_SIZE, stamp);
    (file, any_cached(core, file, 1).unwrap())
}

/// The only file of the store, and its first page in memory.
fn only_file(core: &MmCore<TestMachine>) -> (FileId, Option<Pfn>) {
    let file = core.cache.ids().next().unwrap();
    (file, any_cached(core, file, 0))
}

/// The first page of the swap cache.
fn first_swapped(core: &MmCore<TestMachine>) -> Option<Pfn> {
    let mut first = None;
    core.swap.for_cached(&mut |_, pfn| first = first.or(Some(pfn)));
    first
}

#[test]
fn shmem_page_that_is_truncated_while_it_is_read_is_beyond_the_end() {
    let core = store(4096, 8);
    let (file, pfn) = shmem_file(&core, 7);
    assert!(!reclaim(&core, pfn), "it is written first");
    while core.machine.end_one() {}
    assert!(reclaim(&core, pfn));
    while_waiting(&core, |core| truncate(core, only_file(core).0, 1));
    let outcome = core.cache.get_page(&core, file, PageIndex(1), ReadHint::default(), ROOT);
    assert!(matches!(outcome, Err(CacheError::BeyondEnd)));
    while core.machine.end_one() {}
    assert_eq!((core.swap.free_slots(), core.cache.file(file).cached()), (8, 0));
    check(&core);
}

/// The truncation waits until the device has read the page, and takes it before its reader wakes.
#[test]
fn disk_page_that_is_truncated_while_it_is_read_is_beyond_the_end() {
    for end in 0..3 {
        let core = store(4096, 8);
        let file = disk_file(&core, 0, 3);
        *core.machine.idle.lock() =
            Some(Box::new(move |_| with_store(|core| truncate(core, only_file(core).0, end))));
        let outcome = core.cache.get_page(&core, file, PageIndex(end), ReadHint::default(), ROOT);
        assert!(matches!(outcome, Err(CacheError::BeyondEnd)), "page {end}: {outcome:?}");
        while core.machine.end_one() {}
        check(&core);
    }
}

/// Reclaim holds the lock of the page, and moves it to swap.
#[test]
fn shmem_page_that_enters_swap_while_a_truncation_waits_for_it_loses_its_slot() {
    let core = store(4096, 8);
    let (file, pfn) = shmem_file(&core, 7);
    core.frames[pfn].get(1);
    core.lock_folio(pfn);
    while_waiting(&core, |core| {
        let Some(pfn) = only_file(core).1 else { return };
        assert!(core.cache.write_page_start(core, pfn, &mut Default::default()));
        core.unlock_folio(pfn);
        core.put(pfn);
    });
    truncate(&core, file, 0);
    assert_eq!((core.swap.free_slots(), core.cache.file(file).cached()), (8, 0));
    check(&core);
}

/// Its first read has failed, and a task that is about to read it again waits for another that does so.
#[test]
fn page_that_was_read_and_written_meanwhile_is_not_read_again() {
    let core = store(4096, 8);
    let file = disk_file(&core, 0, 1);
    read(&core, file, 0, 1);
    let folio = core.cache.lookup(&core, file, PageIndex(0)).unwrap();
    core.frames[folio.head].clear(FrameFlags::UPTODATE);
    core.lock_folio(folio.head);
    while_waiting(&core, |core| {
        let pfn = only_file(core).1.unwrap();
        core.frames[pfn].set(FrameFlags::UPTODATE);
        core.machine.set_stamp(pfn, 7);
        core.cache.mark_dirty(core, pfn);
        core.unlock_folio(pfn);
    });
    core.cache.read_again(&core, (file, PageIndex(0)), folio);
    core.put(folio.head);
    while core.machine.end_one() {}
    assert_eq!(read(&core, file, 0, 1), [7]);
    check(&core);
}

/// The device reads the page, and no task holds it.
#[test]
fn page_under_write_back_is_not_dropped() {
    let core = store(4096, 8);
    let file = disk_file(&core, 0, 1);
    write(&core, file, 0, PAGE_SIZE, 7);
    assert!(!reclaim(&core, any_cached(&core, file, 0).unwrap()), "it is written first");
    assert_eq!(drop_clean(&core), 0);
    while core.machine.end_one() {}
    assert_eq!(drop_clean(&core), 1);
    assert_eq!(read(&core, file, 0, 1), [7]);
    check(&core);
}

/// A task has added the page and has not filled it with zeroes yet.
#[test]
fn new_shmem_page_is_read_once_it_is_filled() {
    let core = store(4096, 8);
    let (file, pfn) = shmem_file(&core, 7);
    core.lock_folio(pfn);
    core.frames[pfn].clear(FrameFlags::UPTODATE);
    while_waiting(&core, |core| {
        let pfn = only_file(core).1.unwrap();
        core.machine.set_stamp(pfn, 0);
        core.frames[pfn].set(FrameFlags::UPTODATE);
        core.unlock_folio(pfn);
    });
    assert_eq!(read(&core, file, 1, 1), [0]);
    check(&core);
}

/// The task that reads a slot gives up, as when zswap does not have the content any more: no device has failed.
#[test]
fn slot_is_read_again_if_the_page_that_was_waited_for_has_left_the_swap_cache() {
    let core = store(4096, 8);
    let slot = swapped_out(&core, 7);
    let pfn = core.new_folio(Order::ZERO, ROOT).unwrap();
    core.frames[pfn].set(FrameFlags::LOCKED | FrameFlags::SWAPBACKED);
    assert!(core.swap.cache_try_insert(&core, slot, pfn).is_some());
    core.lru.add(&core, [pfn], false);
    while_waiting(&core, |core| {
        // It has given up already if the device is busy.
        if !core.machine.ios.lock().is_empty() {
            return;
        }
        let pfn = first_swapped(core).unwrap();
        remove_from_swap_cache(core, pfn, None);
        core.unlock_folio(pfn);
        core.put(pfn);
    });
    let page = swapin(&core, slot, ROOT).map(|page| page.folio);
    assert_eq!(page.map(|pfn| core.machine.stamp(pfn)), Ok(7));
    drop_swap_entry(&core, slot);
    core.put(page.unwrap());
    assert_eq!(core.swap.free_slots(), 8);
    check(&core);
}

/// The holder of the lock may be about to write the page.
#[test]
fn unmapped_page_stays_in_the_swap_cache_while_it_is_locked() {
    let core = store(4096, 8);
    let pfn = in_swap_cache(&core, 7);
    let frame = &core.frames[pfn];
    drop_unmapped(&core, frame, pfn);
    assert!(frame.has(FrameFlags::LOCKED | FrameFlags::SWAPCACHE));
    core.unlock_folio(pfn);
    drop_unmapped(&core, frame, pfn);
    assert!(!frame.has_any(FrameFlags::LOCKED | FrameFlags::SWAPCACHE));
    core.put(pfn);
    assert_eq!(core.swap.free_slots(), 8);
    check(&core);
}

/// A file of a large folio, which is clean.
fn file_of_a_folio(core: &MmCore<TestMachine>) -> (FileId, Pfn) {
    core.knobs.set(Knob::FileMaxOrder, 4).unwrap();
    let file = disk_file(core, 0, 0);
    write(core, file, 0, 16 * PAGE_SIZE, 1);
    sync(core, file, 0, u64::MAX);
    (file, any_cached(core, file, 0).unwrap())
}

/// A truncation has found the folio at the new end, and takes a reference. If the folio could be evicted before that,
/// the reference could be to a new folio in the same frames, which its task unlocks without waking any other.
#[test]
fn truncation_waits_for_no_folio_that_is_not_the_files() {
    let core = store(4096, 8);
    let (file, head) = file_of_a_folio(&core);
    core.machine.at(Moment::Writes(SharedLine::Frame(head)), move || {
        with_store(|core| {
            let kept = core.cache.file(file).tree.try_lock().is_none();
            if !kept && reclaim(core, head) {
                assert_eq!(core.new_folio(Order(4), ROOT), Ok(head), "the test needs the same frames");
                core.lock_folio(head);
            }
        });
    });
    truncate(&core, file, 5);
    assert_eq!(read(&core, file, 0, 16), [1; 5]);
    check(&core);
}

/// The lock's holder is a reader that has added the folio: it sees that the file was cut, and drops the folio again.
#[test]
fn truncation_leaves_a_folio_alone_that_a_reader_has_dropped() {
    let core = store(4096, 8);
    let (file, head) = file_of_a_folio(&core);
    core.lock_folio(head);
    while_waiting(&core, |core| {
        if let (_, Some(head)) = only_file(core) {
            core.cache.remove(core, head);
            core.unlock_folio(head);
            core.put(head);
        }
    });
    truncate(&core, file, 5);
    assert_eq!(core.cache.file(file).cached(), 0);
    check(&core);
}
