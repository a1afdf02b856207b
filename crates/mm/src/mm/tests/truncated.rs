//! Truncated pages that are still mapped: the time between the two passes in which truncate unmaps.
//!
//! A fault that saw the old size may map a page after the first pass. Until the second pass the page belongs to no
//! file, and whatever meets its entry must cope with that.

use super::*;
use crate::machine::{WaitKey, Work};
use crate::table::Resident;
use crate::testing::Moment;
use std_alloc::boxed::Box;

const AT: Vpn = Vpn(0x5000);
const PAGES: u64 = 4;
const DISK: FileKind = FileKind::Disk { device: DeviceId(0), block: 0 };

struct Bench {
    mm: Mm<TestMachine>,
    space: SpaceId,
    file: FileId,
}

impl Bench {
    /// A file whose pages are in memory, mapped shared and read once.
    fn new(kind: FileKind) -> Bench {
        Bench::of_folios(kind, 0)
    }

    /// The same; shmem has folios of up to `order`.
    fn of_folios(kind: FileKind, order: u64) -> Bench {
        let config = Config::default();
        config.knobs.set(Knob::ShmemMaxOrder, order).unwrap();
        let mm = Mm::new(TestMachine::simple(2, 4096), config).unwrap();
        let file = mm.create_file(kind, PAGES * PAGE_SIZE);
        // Whole pages, so that nothing is read from the device.
        mm.write(file, 0, PAGES * PAGE_SIZE, GroupId(0), &mut |_, _, _| {}).unwrap();
        let space = mm.create_space(GroupId(0)).unwrap();
        let backing = Backing::File { file, offset: PageIndex(0), shared: true, writable: true };
        mm.mmap(space, &request(AT, PAGES, backing)).unwrap();
        for page in 0..PAGES {
            mm.fault(space, Vpn(AT.0 + page), AccessKind::Load).unwrap();
        }
        Bench { mm, space, file }
    }

    /// Remove the pages from the file, but leave them mapped.
    fn cut(&self) {
        self.mm.core.cache.set_size(self.file, 0);
        self.mm.core.cache.truncate(&self.mm.core, self.file, PageIndex(0));
    }

    /// Change the size of the file while a task waits for its first folio, which another task holds locked.
    fn cut_while_waiting(&'static self, sizes: &'static [u64]) {
        let core = &self.mm.core;
        let head = core.cache.lookup(core, self.file, PageIndex(0)).unwrap().head;
        core.lock_folio(head);
        core.put(head);
        *self.mm.machine().idle.lock() = Some(Box::new(move |_| {
            core.unlock_folio(head);
            for pages in sizes {
                self.mm.ftruncate(self.file, pages * PAGE_SIZE).unwrap();
            }
        }));
    }

    fn resident(&self) -> [i64; 3] {
        let tables = self.mm.core.tables.lock(self.mm.mmu(), self.space);
        [Resident::Anon, Resident::File, Resident::Shmem].map(|kind| tables.counts().get(kind))
    }
}

#[test]
fn truncated_page_keeps_its_resident_kind() {
    for (kind, expected) in [(FileKind::Shmem, [0, 0, 4]), (DISK, [0, 4, 0])] {
        let bench = Bench::new(kind);
        assert_eq!(bench.resident(), expected);
        bench.cut();
        bench.mm.munmap(bench.space, AT, 1).unwrap();
        assert_eq!(bench.resident().iter().sum::<i64>(), 3);
        assert!(bench.resident().iter().all(|&pages| pages >= 0), "{:?}", bench.resident());
        bench.mm.ftruncate(bench.file, PAGE_SIZE).unwrap();
        bench.mm.ftruncate(bench.file, 0).unwrap();
        assert_eq!(bench.resident(), [0; 3]);
        bench.mm.validate().unwrap();
    }
}

/// Reclaim has isolated it, and is about to split it for swap.
#[test]
fn truncated_large_folio_is_not_split() {
    let bench = Bench::of_folios(FileKind::Shmem, 2);
    let core = &bench.mm.core;
    let head = {
        let tables = core.tables.lock(bench.mm.mmu(), bench.space);
        core.frames.head(tables.find(AT).unwrap().entry.pfn())
    };
    assert_eq!(core.frames[head].order(), Order(2));
    core.frames[head].get(1);
    bench.mm.munmap(bench.space, AT, PAGES).unwrap();
    bench.cut();
    assert!(core.try_lock_folio(head) && core.frames[head].has(FrameFlags::DIRTY));
    assert!(!core.cache.split(core, head, Order::ZERO, None));
    assert_eq!(core.frames[head].order(), Order(2));
    core.unlock_folio(head);
    core.put(head);
    bench.mm.validate().unwrap();
}

/// Another task's reference keeps the folio whole. An entry for all of it would show pages beyond the end.
#[test]
fn large_folio_beyond_the_end_is_mapped_page_by_page() {
    let config = Config::default();
    config.knobs.set(Knob::ShmemMaxOrder, PAGEBLOCK_ORDER.0.into()).unwrap();
    config.knobs.set(Knob::ThpFilePmd, 1).unwrap();
    let mm = Mm::new(TestMachine::simple(2, 4096), config).unwrap();
    let file = mm.create_file(FileKind::Shmem, LARGE * PAGE_SIZE);
    let space = mm.create_space(GroupId(0)).unwrap();
    let backing = Backing::File { file, offset: PageIndex(0), shared: true, writable: true };
    mm.mmap(space, &request(LARGE_AT, LARGE, backing)).unwrap();
    let load = |page| reach(&mm, space, Vpn(LARGE_AT.0 + page), false, 4).map(|(pfn, _)| pfn);
    let folio = load(0).unwrap();
    mm.core.frames[folio].get(1);
    mm.ftruncate(file, 300 * PAGE_SIZE).unwrap();
    assert_eq!(mm.core.frames[folio].order(), PAGEBLOCK_ORDER);
    assert_eq!((load(10), load(400)), (Ok(folio.add(10)), Err(FaultError::Bus)));
    mm.core.put(folio);
    mm.validate().unwrap();
}

#[test]
fn store_to_a_truncated_page_gets_sigbus() {
    // Pages of disk files are mapped read-only until the first store.
    let bench = Bench::new(DISK);
    bench.cut();
    // The first fault finds that the page is not the file's any more, the next one that it is beyond the end.
    let faults: Vec<_> = (0..3).map(|_| bench.mm.fault(bench.space, AT, AccessKind::Store)).collect();
    assert!(faults.contains(&Err(FaultError::Bus)), "the store must get a bus error: {faults:?}");
    assert_eq!(bench.resident(), [0, 3, 0]);
    bench.mm.munmap(bench.space, AT, PAGES).unwrap();
    bench.mm.validate().unwrap();
}

/// The file is empty for a moment: what is in it again are holes.
#[test]
fn a_fault_does_not_map_a_page_that_was_truncated_while_it_waited() {
    for kind in [FileKind::Shmem, DISK] {
        let bench: &'static Bench = Box::leak(Box::new(Bench::new(kind)));
        let (mm, space) = (&bench.mm, bench.space);
        let load = || reach(mm, space, AT, false, 4).map(|(pfn, _)| mm.machine().stamp(pfn));
        mm.write(bench.file, 0, PAGE_SIZE, GroupId(0), &mut |pfn, _, _| mm.machine().set_stamp(pfn, 7))
            .unwrap();
        assert_eq!(load(), Ok(7));
        mm.madvise(space, AT, PAGES, Advice::DontNeed).unwrap();
        bench.cut_while_waiting(&[0, PAGES]);
        assert_eq!(load(), Ok(0), "{kind:?}");
        mm.validate().unwrap();
    }
}

/// The fault that waits for the folio keeps it from being split at the new end.
#[test]
fn a_fault_does_not_map_a_page_after_an_end_that_came_while_it_waited() {
    let bench: &'static Bench = Box::leak(Box::new(Bench::of_folios(FileKind::Shmem, 2)));
    let (mm, space) = (&bench.mm, bench.space);
    mm.madvise(space, AT, PAGES, Advice::DontNeed).unwrap();
    bench.cut_while_waiting(&[2]);
    let load = |page| reach(mm, space, Vpn(AT.0 + page), false, 4).map(drop);
    assert_eq!(load(2), Err(FaultError::Bus));
    *mm.machine().idle.lock() = None;
    assert_eq!([load(1), load(3)], [Ok(()), Err(FaultError::Bus)]);
    mm.validate().unwrap();
}

/// Another task waits for the page while a fault maps it, and truncates it as soon as it is unlocked.
#[test]
fn page_that_is_truncated_once_a_fault_has_mapped_it_is_freed_once() {
    for (kind, order) in [(FileKind::Shmem, 0), (FileKind::Shmem, 2), (DISK, 0)] {
        let bench: &'static Bench = Box::leak(Box::new(Bench::of_folios(kind, order)));
        let (mm, space) = (&bench.mm, bench.space);
        // The fault unlocks the folio of the last page last.
        let (page, _) = reach(mm, space, Vpn(AT.0 + PAGES - 1), false, 4).unwrap();
        let folio = mm.core.frames.head(page);
        mm.madvise(space, AT, PAGES, Advice::DontNeed).unwrap();
        mm.machine().at(Moment::Charge(Work::EntrySet), move || {
            let _ticket = bench.mm.core.unlock_ticket(folio);
            let cut = move || bench.mm.ftruncate(bench.file, 0).unwrap();
            bench.mm.machine().at(Moment::Wake(WaitKey::Frame(folio)), cut);
        });
        mm.fault(space, AT, AccessKind::Load).unwrap();
        assert_eq!(mm.fault(space, AT, AccessKind::Load), Err(FaultError::Bus));
        assert_eq!((bench.resident(), mm.mmu().stats.read(Stat::NrFilePages)), ([0; 3], 0));
        mm.validate().unwrap();
    }
}
