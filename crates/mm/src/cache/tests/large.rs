//! Files in large folios: growing sizes, requests, truncations, counters.

use super::*;
use crate::cache::readahead::FolioToRead;
use crate::stat::SizeStat;

fn large_store(frames: u32, order: u64, window: u64) -> Rc<MmCore<TestMachine>> {
    let core = store(frames, 8);
    core.knobs.set(Knob::FileMaxOrder, order).unwrap();
    core.knobs.set(Knob::ReadAheadKb, window).unwrap();
    core
}

/// Orders of the folios of a file, with the index of each.
fn orders(core: &MmCore<TestMachine>, file: FileId) -> Vec<(u64, u8)> {
    let tree = core.cache.file(file).tree.lock();
    tree.folios_in(TreeMark::Folio, 0..MAX_INDEX).map(|(index, folio)| (index.0, folio.order.0)).collect()
}

#[test]
fn folios_grow_with_a_sequence_and_end_at_file_end() {
    let core = large_store(1 << 14, 9, 2048);
    let file = disk_file(&core, 0, 4001);
    for index in 0..4001 {
        assert_eq!(read(&core, file, index, 1), [virgin(DISK, index)]);
        while core.machine.end_one() {}
    }
    let found = orders(&core, file);
    let largest: Vec<u8> = found.iter().fold(Vec::new(), |mut sizes, &(_, order)| {
        if sizes.last().is_none_or(|&last| order > last) {
            sizes.push(order);
        }
        sizes
    });
    assert_eq!(largest.last(), Some(&9), "{found:?}");
    assert!(largest.windows(2).all(|pair| pair[1] - pair[0] <= 2), "{largest:?}");
    assert!(found.iter().all(|&(index, order)| index % (1 << order) == 0), "{found:?}");
    // They cover the whole file and nothing after its end.
    let end = found.last().map(|&(index, order)| index + (1 << order));
    assert_eq!((core.cache.file(file).cached(), end), (4001, Some(4001)));
    assert_eq!(core.stats.read(Stat::PgpgIn), 4 * 4001);
    let made: u64 = found.iter().filter(|&&(_, order)| order > 0).count() as u64;
    assert_eq!((core.sizes.sum(SizeStat::FileAlloc), core.sizes.sum(SizeStat::FileFallback)), (made, 0));
    check(&core);
}

#[test]
fn random_and_announced_reads_use_single_pages() {
    let core = large_store(1 << 13, 9, 128);
    let file = disk_file(&core, 0, 3000);
    for index in [700, 50, 1200, 333, 999] {
        assert_eq!(read(&core, file, index, 1), [virgin(DISK, index)]);
    }
    core.cache.read_ahead(&core, file, PageIndex(2048), 64, ROOT).unwrap();
    assert!(orders(&core, file).iter().all(|&(_, order)| order == 0));
    check(&core);
}

#[test]
fn fault_reads_around_itself_in_folios_of_four() {
    let core = large_store(4096, 9, 128);
    let file = disk_file(&core, 0, 2000);
    let hint = ReadHint { fault: true, ..ReadHint::default() };
    let page = core.cache.get_page(&core, file, PageIndex(101), hint, ROOT).unwrap();
    assert_eq!(page.pfn.0 - page.folio.0, 1, "the second page of its folio");
    assert_eq!(core.machine.stamp(page.pfn), virgin(DISK, 101));
    core.put(page.folio);
    while core.machine.end_one() {}
    assert_eq!(
        orders(&core, file).iter().map(|&(_, order)| order).collect::<Vec<_>>(),
        [0, 1, 2, 2, 2, 2, 2, 2, 2, 0]
    );
    let mut seen = 0;
    core.cache.resident(&core, file, (PageIndex(86), 9), None, |run| {
        seen += run.pages;
        assert_eq!(run.pfn.0 - run.folio.0, (run.index.0 % core.frames[run.folio].pages() as u64) as u32);
        assert!(run.index.0 >= 86 && run.index.0 + run.pages as u64 <= 95, "{run:?}");
        core.unlock_folio(run.folio);
        core.put_many(run.folio, run.pages);
    });
    assert_eq!(seen, 9);
    check(&core);
}

#[test]
fn read_ahead_uses_smaller_folios_without_a_block() {
    let core = large_store(4096, 9, 2048);
    // Every eighth page of most of memory stays in use.
    let pages: Vec<Pfn> = (0..3000).map(|_| core.new_folio(Order::ZERO, ROOT).unwrap()).collect();
    let (kept, free): (Vec<Pfn>, Vec<Pfn>) = pages.iter().partition(|pfn| pfn.0 % 8 == 0);
    free.iter().for_each(|&pfn| core.put(pfn));
    core.alloc.drain_all(&core);
    let file = disk_file(&core, 0, 2000);
    for index in 0..1500 {
        assert_eq!(read(&core, file, index, 1), [virgin(DISK, index)]);
        while core.machine.end_one() {}
    }
    assert!(core.sizes.sum(SizeStat::FileFallback) > 0);
    assert!(orders(&core, file).iter().any(|&(_, order)| order == 2), "{:?}", orders(&core, file));
    check(&core);
    kept.iter().for_each(|&pfn| core.put(pfn));
}

#[test]
fn write_makes_large_folios_that_are_written_back_whole() {
    let core = large_store(4096, 4, 128);
    let file = disk_file(&core, 100, 200);
    write(&core, file, 2 * PAGE_SIZE, 46 * PAGE_SIZE, 7);
    assert_eq!(orders(&core, file), [(2, 1), (4, 2), (8, 3), (16, 4), (32, 4)]);
    assert_eq!((core.machine.work(Work::IoSubmit), core.stats.read(Stat::NrDirty)), (0, 46));
    check(&core);
    sync(&core, file, 40, 41);
    assert_eq!(
        (core.machine.work(Work::IoSubmit), core.stats.read(Stat::NrWritten)),
        (1, 16),
        "all of its folio"
    );
    assert_eq!(
        [131, 132, 147, 148].map(|block| core.machine.block(DISK, block)),
        [virgin(DISK, 131), 7, 7, virgin(DISK, 148)]
    );
    sync(&core, file, 0, u64::MAX);
    assert_eq!(
        (core.machine.work(Work::IoSubmit), core.stats.read(Stat::NrWritten)),
        (2, 46),
        "the other folios by one request"
    );
    // A changed byte makes the whole folio dirty.
    write(&core, file, 35 * PAGE_SIZE + 5, 1, 8);
    assert_eq!((core.stats.read(Stat::NrDirty), read(&core, file, 34, 3)), (16, std_alloc::vec![7, 8, 7]));
    check(&core);
}

#[test]
fn truncation_splits_into_parts_as_large_as_possible() {
    let core = large_store(4096, 9, 2048);
    let file = disk_file(&core, 0, 0);
    write(&core, file, 0, 256 * PAGE_SIZE, 1);
    assert_eq!(orders(&core, file), [(0, 8)]);
    truncate(&core, file, 96);
    assert_eq!(orders(&core, file), [(0, 5), (32, 5), (64, 5)]);
    let counts = || (core.sizes.read(SizeStat::Split, Order(8)), core.sizes.sum(SizeStat::SplitFailed));
    assert_eq!((counts(), core.stats.read(Stat::NrDirty)), ((1, 0), 96));
    check(&core);
    truncate(&core, file, 33);
    assert_eq!(orders(&core, file).len(), 2);
    assert_eq!(orders(&core, file)[1], (32, 0));
    check(&core);
    truncate(&core, file, 0);
    core.alloc.drain_all(&core);
    assert_eq!((core.stats.read(Stat::NrDirty), core.stats.read(Stat::NrFilePages)), (0, 0));
    check(&core);
}

#[test]
fn folio_in_use_is_not_split_and_reads_zeroes_after_truncation() {
    let core = large_store(4096, 9, 2048);
    let file = disk_file(&core, 0, 0);
    write(&core, file, 0, 64 * PAGE_SIZE, 1);
    let held = any_cached(&core, file, 0).unwrap();
    core.frames[held].get(1);
    truncate(&core, file, 20);
    assert_eq!(
        (orders(&core, file), core.sizes.read(SizeStat::SplitFailed, Order(6))),
        (std_alloc::vec![(0, 6)], 1)
    );
    check(&core);
    core.cache.set_size(file, 64 * PAGE_SIZE);
    let content = read(&core, file, 0, 64);
    assert!(content[..20].iter().all(|&stamp| stamp == 1) && content[20..].iter().all(|&stamp| stamp == 0));
    // The device does not bring the truncated content back either.
    sync(&core, file, 0, u64::MAX);
    core.put(held);
    assert_eq!(drop_clean(&core), 64);
    assert_eq!(read(&core, file, 18, 4), [1, 1, 0, 0]);
    check(&core);
}

/// The folio in use is not the file's first, and another file's folio is behind it in memory.
#[test]
fn truncation_inside_a_folio_in_use_changes_no_other_page() {
    let core = large_store(4096, 4, 128);
    let [file, other] = [0, 1000].map(|block| disk_file(&core, block, 0));
    write(&core, file, 0, 32 * PAGE_SIZE, 1);
    write(&core, other, 0, 64 * PAGE_SIZE, 2);
    let held = core.cache.lookup(&core, file, PageIndex(16)).unwrap().head;
    assert_eq!(core.frames[held.add(16)].owner(), Owner::File(other), "the test needs neighbours");
    truncate(&core, file, 20);
    assert_eq!(orders(&core, file), [(0, 4), (16, 4)]);
    core.cache.set_size(file, 32 * PAGE_SIZE);
    let content = read(&core, file, 0, 32);
    assert!(content[..20].iter().all(|&stamp| stamp == 1) && content[20..].iter().all(|&stamp| stamp == 0));
    assert_eq!(read(&core, other, 0, 64), [2; 64]);
    core.put(held);
    check(&core);
}

#[test]
fn parts_after_the_end_are_dropped_at_the_next_split() {
    let core = store(4096, 64);
    core.knobs.set(Knob::ShmemMaxOrder, 4).unwrap();
    let file = core.cache.create(FileKind::Shmem, 16 * PAGE_SIZE);
    read(&core, file, 0, 1);
    let held = any_cached(&core, file, 0).unwrap();
    core.frames[held].get(1);
    truncate(&core, file, 5);
    assert_eq!(orders(&core, file), [(0, 4)]);
    core.put(held);
    // Splits it and frees its first page, which is clean.
    assert!(reclaim(&core, held));
    check(&core);
    assert_eq!(
        (orders(&core, file), core.stats.read(Stat::NrShmem)),
        ((1..5).map(|index| (index, 0)).collect(), 4)
    );
}

#[test]
fn shmem_folios_fit_in_the_file() {
    let core = store(4096, 64);
    core.knobs.set(Knob::ShmemMaxOrder, 4).unwrap();
    let file = core.cache.create(FileKind::Shmem, 45 * PAGE_SIZE);
    let page = core.cache.get_page(&core, file, PageIndex(21), ReadHint::default(), ROOT).unwrap();
    assert_eq!((page.pfn.0 - page.folio.0, core.machine.stamp(page.pfn), page.major), (5, 0, false));
    core.put(page.folio);
    write(&core, file, 40 * PAGE_SIZE, 3, 9);
    assert_eq!(orders(&core, file), [(16, 4), (40, 2)]);
    assert_eq!((core.stats.read(Stat::NrShmem), core.sizes.sum(SizeStat::ShmemAlloc)), (20, 2));
    check(&core);
    truncate(&core, file, 20);
    assert_eq!((orders(&core, file), core.stats.read(Stat::NrShmem)), (std_alloc::vec![(16, 2)], 4));
    check(&core);
}

/// The file was truncated and grew again after the size of a folio was chosen: part of the folio is on the device, the
/// rest is a hole.
#[test]
fn folio_only_partly_on_the_device_is_dropped() {
    let core = large_store(4096, 9, 128);
    let file = disk_file(&core, 0, 8);
    truncate(&core, file, 2);
    core.cache.set_size(file, 8 * PAGE_SIZE);
    let folio = FolioToRead { index: PageIndex(0), order: Order(3), marked: true };
    assert_eq!(core.cache.read_folio(&core, file, folio, ROOT, &mut Default::default()), Ok(None));
    assert_eq!((core.cache.file(file).cached(), core.stats.read(Stat::NrFilePages)), (0, 0));
    check(&core);
    assert_eq!(read(&core, file, 0, 4), [virgin(DISK, 0), virgin(DISK, 1), 0, 0]);
}

/// The folio could not be read, and the file was cut in its middle since and has grown again.
#[test]
fn failed_folio_only_partly_on_the_device_is_read_in_parts() {
    let core = large_store(4096, 2, 128);
    let file = disk_file(&core, 0, 0);
    write(&core, file, 0, 4 * PAGE_SIZE, 7);
    sync(&core, file, 0, u64::MAX);
    assert_eq!(orders(&core, file), [(0, 2)]);
    let held = any_cached(&core, file, 0).unwrap();
    core.frames[held].get(1);
    // As after a read that has failed.
    core.frames[held].clear(FrameFlags::UPTODATE);
    (0..4).for_each(|page| core.machine.set_stamp(held.add(page), 13));
    truncate(&core, file, 2);
    assert_eq!(orders(&core, file), [(0, 2)], "a folio in use is not split");
    core.cache.set_size(file, 4 * PAGE_SIZE);
    core.put(held);
    assert_eq!(read(&core, file, 0, 4), [7, 7, 0, 0]);
    check(&core);
}

#[test]
fn evicted_folio_leaves_a_shadow_for_each_page() {
    let core = large_store(4096, 9, 2048);
    let file = disk_file(&core, 0, 300);
    write(&core, file, 0, 256 * PAGE_SIZE, 1);
    sync(&core, file, 0, u64::MAX);
    assert!(reclaim(&core, any_cached(&core, file, 0).unwrap()));
    assert_eq!(core.cache.file(file).tree.lock().shadows(), 256);
    assert_eq!(read(&core, file, 100, 1), [1]);
    assert_eq!(core.stats.read(Stat::WorkingsetRefaultFile), 1);
    check(&core);
    // Overwritten pages are no refaults.
    write(&core, file, 128 * PAGE_SIZE, 128 * PAGE_SIZE, 2);
    assert_eq!(
        (core.stats.read(Stat::WorkingsetRefaultFile), core.cache.file(file).tree.lock().shadows()),
        (1, 127)
    );
    check(&core);
}
