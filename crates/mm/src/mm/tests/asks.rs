//! Calls that fail must return the right error and do nothing; and rights that no call may give.

use super::*;
use crate::frame::FrameFlags;
use crate::stat::Stat;
use crate::table::USER_END;
use std_alloc::boxed::Box;

const AT: Vpn = LARGE_AT;
const PAGES: u64 = 4;

struct Bench {
    mm: Mm<TestMachine>,
    space: SpaceId,
}

impl Bench {
    /// Some pages of memory with content.
    fn new() -> Bench {
        let mm = with_swap(TestMachine::simple(2, 8192), 64);
        let space = mm.create_space(ROOT).unwrap();
        mm.mmap(space, &request(AT, PAGES, Backing::Anonymous)).unwrap();
        let bench = Bench { mm, space };
        for page in bench.pages() {
            bench.mm.fault(space, page, AccessKind::Store).unwrap();
            bench.mm.machine().set_stamp(bench.entry(page).unwrap().0, page.0);
        }
        bench
    }

    fn pages(&self) -> impl Iterator<Item = Vpn> + use<> {
        (AT.0..AT.0 + PAGES).map(Vpn)
    }

    fn entry(&self, page: Vpn) -> Option<(Pfn, Bits)> {
        let tables = self.mm.core.tables.lock(self.mm.mmu(), self.space);
        let run = tables.find(page).filter(|run| run.entry.is_present())?;
        Some((run.entry.pfn().add((page.0 - run.page.0) as u32), run.entry.bits()))
    }

    /// The call fails with `error`, and the memory is unchanged.
    #[track_caller]
    fn refuses<T: PartialEq + core::fmt::Debug>(&self, error: Error, done: Result<T, Error>) {
        assert_eq!(done, Err(error));
        for page in self.pages() {
            let (pfn, _) = self.entry(page).expect("the page must be mapped");
            assert_eq!(self.mm.machine().stamp(pfn), page.0);
        }
        self.mm.validate().unwrap();
    }
}

#[test]
fn failed_mmap_unmaps_nothing() {
    let bench = Bench::new();
    let map = |at, pages| bench.mm.mmap(bench.space, &request(at, pages, Backing::Anonymous));
    bench.refuses(Error::Invalid, map(AT, 0));
    bench.refuses(Error::Invalid, map(Vpn(0), USER_END.0 + 1));
    bench.refuses(Error::Invalid, map(AT, USER_END.0 - AT.0 + 1));
    bench.refuses(Error::Invalid, map(AT, u64::MAX));
    bench.refuses(Error::Invalid, map(Vpn(u64::MAX), 1));
    let file = bench.mm.create_file(FileKind::Shmem, PAGES * PAGE_SIZE);
    let backing = Backing::File { file, offset: PageIndex(0), shared: true, writable: false };
    bench.refuses(Error::Access, bench.mm.mmap(bench.space, &request(AT, PAGES, backing)));
    // The very last address can be mapped.
    let last = Vpn(USER_END.0 - 1);
    assert_eq!(map(last, 1), Ok(last));
    bench.mm.munmap(bench.space, last, 1).unwrap();
    bench.refuses(Error::Invalid, map(last, 2));
    assert_eq!(map(Vpn(0), USER_END.0), Ok(Vpn(0)));
}

#[test]
fn read_only_file_maps_read_only_or_private() {
    let bench = Bench::new();
    let file = bench.mm.create_file(FileKind::Shmem, PAGES * PAGE_SIZE);
    for (shared, prot) in [(true, Prot::READ), (false, Prot::RW)] {
        let backing = Backing::File { file, offset: PageIndex(0), shared, writable: false };
        let at = Vpn(AT.0 + LARGE);
        let map = MapRequest { prot, ..request(at, PAGES, backing) };
        assert_eq!(bench.mm.mmap(bench.space, &map), Ok(at));
        let made = bench.mm.mprotect(bench.space, at, PAGES, Prot::RW);
        assert_eq!(made, if shared { Err(Error::Access) } else { Ok(()) });
    }
}

#[test]
fn munmap_rejects_invalid_ranges() {
    let bench = Bench::new();
    let unmap = |at, pages| bench.mm.munmap(bench.space, at, pages);
    for (at, pages) in [(AT, 0), (Vpn(0), USER_END.0 + 1), (AT, USER_END.0 - AT.0 + 1), (Vpn(u64::MAX), 1)] {
        bench.refuses(Error::Invalid, unmap(at, pages));
    }
    assert_eq!(unmap(Vpn(USER_END.0 - 1), 1), Ok(()));
    assert_eq!(unmap(Vpn(0), USER_END.0), Ok(()));
    assert!(bench.pages().all(|page| bench.entry(page).is_none()));
}

#[test]
fn failed_mremap_moves_nothing() {
    let bench = Bench::new();
    let away = Vpn(AT.0 + LARGE);
    let remap = |old, new, fixed| bench.mm.mremap(bench.space, AT, old, new, true, fixed);
    for (old, new, fixed) in [
        (0, PAGES, None),
        (PAGES, 0, None),
        (0, PAGES, Some(away)),
        (PAGES, 0, Some(away)),
        (PAGES, USER_END.0 + 1, None),
        // Overlapping itself, from either side.
        (PAGES, PAGES, Some(AT)),
        (PAGES, PAGES, Some(Vpn(AT.0 + PAGES - 1))),
        (PAGES, PAGES, Some(Vpn(AT.0 - PAGES + 1))),
        (PAGES, PAGES, Some(Vpn(USER_END.0 - PAGES + 1))),
    ] {
        bench.refuses(Error::Invalid, remap(old, new, fixed));
    }
    // The greatest length is valid, but it does not fit.
    bench.refuses(Error::NoMemory, bench.mm.mremap(bench.space, AT, PAGES, USER_END.0, false, None));
    bench.refuses(Error::NotMapped, remap(PAGES + 1, PAGES, None));
    bench.refuses(Error::NotMapped, bench.mm.mremap(bench.space, away, 1, 1, true, None));
    // Adjacent is not overlapping.
    for beside in [AT.0 + PAGES, AT.0 - PAGES, USER_END.0 - PAGES] {
        let bench = Bench::new();
        assert_eq!(bench.mm.mremap(bench.space, AT, PAGES, PAGES, true, Some(Vpn(beside))), Ok(Vpn(beside)));
        let (pfn, _) = bench.entry(Vpn(beside)).unwrap();
        assert_eq!(bench.mm.machine().stamp(pfn), AT.0);
    }
}

#[test]
fn mremap_grows_in_place_into_free_addresses() {
    let bench = Bench::new();
    let grow = |new| bench.mm.mremap(bench.space, AT, PAGES, new, false, None);
    bench.mm.mmap(bench.space, &request(Vpn(AT.0 + PAGES + 2), 1, Backing::Anonymous)).unwrap();
    bench.refuses(Error::NoMemory, grow(PAGES + 3));
    assert_eq!(grow(PAGES + 2), Ok(AT));
    let bench = Bench::new();
    let last = Vpn(USER_END.0 - 2);
    bench.mm.mmap(bench.space, &request(last, 1, Backing::Anonymous)).unwrap();
    let grow = |new| bench.mm.mremap(bench.space, last, 1, new, false, None);
    assert_eq!((grow(3), grow(2)), (Err(Error::NoMemory), Ok(last)));
}

#[test]
fn madvise_rejects_unsuitable_ranges() {
    let bench = Bench::new();
    bench.mm.mlock(bench.space, AT, PAGES, true).unwrap();
    for advice in [Advice::Free, Advice::DontNeed, Advice::Cold, Advice::PageOut] {
        bench.refuses(Error::Invalid, bench.mm.madvise(bench.space, AT, PAGES, advice));
    }
    let (bench, at) = (Bench::new(), Vpn(AT.0 + LARGE));
    let file = bench.mm.create_file(FileKind::Shmem, PAGES * PAGE_SIZE);
    for shared in [false, true] {
        let backing = Backing::File { file, offset: PageIndex(0), shared, writable: true };
        bench.mm.mmap(bench.space, &request(at, PAGES, backing)).unwrap();
        bench.refuses(Error::Invalid, bench.mm.madvise(bench.space, at, PAGES, Advice::Free));
    }
    // Pages before the hole are served.
    let done = bench.mm.madvise(bench.space, AT, PAGES + 1, Advice::DontNeed);
    assert_eq!(done, Err(Error::NotMapped));
    assert!(bench.pages().all(|page| bench.entry(page).is_none()));
}

#[test]
fn killed_space_gets_no_memory() {
    let bench = Bench::new();
    assert!(bench.mm.spaces.kill(&bench.mm.core, bench.space));
    let fault = bench.mm.fault(bench.space, AT, AccessKind::Load);
    assert_eq!(fault, Err(FaultError::Killed));
    assert!(!bench.mm.spaces.kill(&bench.mm.core, bench.space), "a space must not be killed twice");
}

/// Rights to execute and to write are the requested ones, after mmap and after mprotect.
#[test]
fn entries_have_the_requested_rights() {
    let (bench, at) = (Bench::new(), Vpn(AT.0 + LARGE));
    for prot in [Prot::READ, Prot::RW, Prot::READ | Prot::EXEC, Prot::RW | Prot::EXEC] {
        let map = MapRequest { prot, ..request(at, 1, Backing::Anonymous) };
        bench.mm.mmap(bench.space, &map).unwrap();
        let access = if prot.contains(Prot::WRITE) { AccessKind::Store } else { AccessKind::Load };
        bench.mm.fault(bench.space, at, access).unwrap();
        bench.mm.mprotect(bench.space, AT, 1, prot).unwrap();
        if prot.contains(Prot::WRITE) {
            bench.mm.fault(bench.space, AT, AccessKind::Store).unwrap();
        }
        for page in [at, AT] {
            let (_, bits) = bench.entry(page).unwrap();
            let has = (bits.contains(Bits::WRITE), bits.contains(Bits::NO_EXEC));
            assert_eq!(has, (prot.contains(Prot::WRITE), !prot.contains(Prot::EXEC)), "{page} {prot:?}");
        }
    }
}

/// What mprotect takes away, an entry does not have any more, whatever it had.
#[test]
fn mprotect_leaves_no_right_that_it_takes_away() {
    let (bench, at) = (Bench::new(), Vpn(AT.0 + LARGE));
    let all = [Prot::NONE, Prot::READ, Prot::RW, Prot::READ | Prot::EXEC, Prot::RW | Prot::EXEC];
    for (before, after) in all.iter().flat_map(|&before| all.map(|after| (before, after))) {
        let map = MapRequest { prot: before, ..request(at, 1, Backing::Anonymous) };
        bench.mm.mmap(bench.space, &map).unwrap();
        let access = if before.contains(Prot::WRITE) { AccessKind::Store } else { AccessKind::Load };
        let faulted = bench.mm.fault(bench.space, at, access);
        assert_eq!(faulted.is_ok(), !before.is_empty());
        bench.mm.mprotect(bench.space, at, 1, after).unwrap();
        let Some((_, bits)) = bench.entry(at) else { continue };
        let allows = (bits.contains(Bits::USER), !bits.contains(Bits::NO_EXEC));
        let wanted = (!after.is_empty(), after.contains(Prot::EXEC));
        assert_eq!(allows, wanted, "{before:?} to {after:?}");
        assert!(after.contains(Prot::WRITE) || !bits.contains(Bits::WRITE), "{before:?} to {after:?}");
        let load = bench.mm.fault(bench.space, at, AccessKind::Load);
        assert_eq!(load.is_ok(), !after.is_empty(), "{before:?} to {after:?}");
    }
    bench.mm.validate().unwrap();
}

/// fadvise frees all clean pages; the others stay.
#[test]
fn fadvise_dontneed_frees_clean_pages() {
    let bench = Bench::new();
    let disk = FileKind::Disk { device: DeviceId(1), block: 0 };
    let (file, len) = (bench.mm.create_file(disk, 0), PAGES * PAGE_SIZE);
    let free = bench.mm.core.alloc.zones()[0].free_pages();
    bench.mm.write(file, 0, len, ROOT, &mut |_, _, _| ()).unwrap();
    let cached = || cached(&bench, file, PAGES);
    let (cache, memory) = (&bench.mm.core.cache, &bench.mm.core);
    assert_eq!(cache.invalidate(memory, file, PageIndex(0), PageIndex(PAGES)), 0, "dirty pages must stay");
    assert_eq!(cached(), [0, 1, 2, 3]);
    write_back(&bench, file);
    assert_eq!(cache.invalidate(memory, file, PageIndex(1), PageIndex(2)), 1);
    assert_eq!(cached(), [0, 2, 3]);
    bench.mm.fadvise(file, 0, 0, FileAdvice::DontNeed).unwrap();
    assert!(cached().is_empty());
    bench.mm.core.alloc.drain_all(bench.mm.mmu());
    let records = memory.slabs.frames(memory);
    assert!(memory.alloc.zones()[0].free_pages() + records >= free, "no page may leak");
    bench.mm.validate().unwrap();
}

/// Shared anonymous memory has all its pages, at a free address, and is freed with its last mapping.
#[test]
fn anonymous_shared_memory_is_complete_and_freed_with_its_mapping() {
    let bench = Bench::new();
    let free = |bench: &Bench| {
        bench.mm.core.alloc.drain_all(bench.mm.mmu());
        bench.mm.core.alloc.zones()[0].free_pages()
    };
    let map = MapRequest { at: None, ..request(AT, PAGES, Backing::AnonymousShared) };
    // Its upper tables stay while its neighbour is there.
    let first = bench.mm.mmap(bench.space, &map).unwrap();
    bench.mm.fault(bench.space, first, AccessKind::Store).unwrap();
    let before = free(&bench);
    let second = bench.mm.mmap(bench.space, &map).unwrap();
    assert!(second.0 + PAGES <= first.0 || first.0 + PAGES <= second.0, "{second} must not overlap {first}");
    assert!(first.0 + PAGES <= USER_END.0 && second.0 + PAGES <= USER_END.0);
    for page in (second.0..second.0 + PAGES).map(Vpn) {
        bench.mm.fault(bench.space, page, AccessKind::Store).unwrap();
    }
    assert_eq!(free(&bench), before - PAGES);
    bench.mm.munmap(bench.space, second, PAGES).unwrap();
    assert_eq!(free(&bench), before, "no page may leak");
    bench.mm.validate().unwrap();
}

#[test]
fn read_and_write_report_the_bytes_of_each_page() {
    let bench = Bench::new();
    let file = bench.mm.create_file(FileKind::Shmem, PAGES * PAGE_SIZE);
    let (size, offset) = (PAGE_SIZE as u32, PAGE_SIZE + 100);
    let expected = [(100, size - 100), (0, size), (0, 7)];
    let len = u64::from(expected.iter().map(|part| part.1).sum::<u32>());
    for write in [true, false] {
        let mut parts = Vec::new();
        let mut each = |_: Pfn, at: u32, bytes: u32| parts.push((at, bytes));
        let done = match write {
            true => bench.mm.write(file, offset, len, ROOT, &mut each),
            false => bench.mm.read(file, offset, len, ROOT, &mut each),
        };
        assert_eq!(done, Ok(len));
        assert_eq!(parts, expected);
    }
    // Nothing is read beyond the end of the file, and everything before it.
    let mut bytes = 0;
    let end = PAGES * PAGE_SIZE;
    let mut each = |_: Pfn, _: u32, part: u32| bytes += part;
    assert_eq!(bench.mm.read(file, end - 5, 100, ROOT, &mut each), Ok(5));
    assert_eq!(bench.mm.read(file, end, 100, ROOT, &mut each), Ok(0));
    assert_eq!(bytes, 5);
}

/// A call that goes on after a part moves each byte once, and none beyond its end.
#[test]
fn long_reads_and_writes_move_each_byte_once() {
    const LONG: u64 = 100;
    let bench = Bench::new();
    let disk = FileKind::Disk { device: DeviceId(1), block: 0 };
    let file = bench.mm.create_file(disk, 0);
    for (offset, len) in [(100, LONG * PAGE_SIZE), (5 * PAGE_SIZE, 60 * PAGE_SIZE + 7)] {
        for write in [true, false] {
            let (mut bytes, mut first) = (0, None);
            let mut each = |_: Pfn, at: u32, part: u32| {
                first.get_or_insert(at);
                bytes += u64::from(part);
            };
            let done = match write {
                true => bench.mm.write(file, offset, len, ROOT, &mut each),
                false => bench.mm.read(file, offset, len, ROOT, &mut each),
            };
            assert_eq!((done, bytes, first), (Ok(len), len, Some((offset % PAGE_SIZE) as u32)));
            assert_eq!(bench.mm.file_size(file), 100 + LONG * PAGE_SIZE);
        }
    }
    bench.mm.validate().unwrap();
}

/// Pages of a file that are in the page cache, of which no entry maps any.
fn cached(bench: &Bench, file: FileId, pages: u64) -> Vec<u64> {
    let core = &bench.mm.core;
    let is_cached = |page: &u64| {
        let Some(found) = core.cache.lookup(core, file, PageIndex(*page)) else { return false };
        assert_eq!(core.frames[found.head].refs(), 2, "the file's reference and the test's");
        core.put(found.head);
        true
    };
    (0..pages).filter(is_cached).collect()
}

/// fadvise frees only pages that its bytes cover, the last one if the file ends in it.
#[test]
fn fadvise_dontneed_keeps_pages_that_it_covers_in_part() {
    let cases: [(u64, u64, &[u64]); 6] = [
        (0, PAGE_SIZE, &[1, 2, 3]),
        (0, PAGE_SIZE - 1, &[0, 1, 2, 3]),
        (1, 2 * PAGE_SIZE, &[0, 2, 3]),
        (PAGE_SIZE, 2 * PAGE_SIZE + 5, &[0, 3]),
        (2 * PAGE_SIZE, 0, &[0, 1]),
        (3 * PAGE_SIZE, 100, &[0, 1, 2]),
    ];
    for (offset, len, left) in cases {
        let bench = Bench::new();
        // It ends within its fourth page.
        let file = bench.mm.create_file(FileKind::Disk { device: DeviceId(1), block: 0 }, 0);
        bench.mm.write(file, 0, 3 * PAGE_SIZE + 100, ROOT, &mut |_, _, _| ()).unwrap();
        write_back(&bench, file);
        bench.mm.fadvise(file, offset, len, FileAdvice::DontNeed).unwrap();
        assert_eq!(cached(&bench, file, PAGES), left, "{offset} {len}");
        bench.mm.validate().unwrap();
    }
}

/// Write all pages of a file.
fn write_back(bench: &Bench, file: FileId) {
    let (cache, core) = (&bench.mm.core.cache, &bench.mm.core);
    for index in (0..PAGES).map(PageIndex) {
        let pfn = cache.lookup(core, file, index).unwrap().head;
        core.lock_folio(pfn);
        assert!(cache.write_page_start(core, pfn, &mut Default::default()));
        core.unlock_folio(pfn);
        core.put(pfn);
    }
    end_transfers(&bench.mm);
}

/// A fault that finds its entry present, as on hardware that sets no bits, gives no right that the range does not
/// have.
#[test]
fn spurious_load_fault_gives_no_write_right() {
    let bench = Bench::new();
    let child = bench.mm.fork(bench.space).unwrap();
    let load = |page| {
        bench.mm.fault(bench.space, page, AccessKind::Load).unwrap();
        bench.entry(page).unwrap()
    };
    let before = bench.entry(AT).unwrap();
    // The page is shared with the child: a load of it copies nothing.
    assert_eq!(load(AT).0, before.0);
    bench.mm.exit_space(child);
    bench.mm.mprotect(bench.space, AT, PAGES, Prot::READ).unwrap();
    for page in bench.pages() {
        assert!(!load(page).1.contains(Bits::WRITE), "{page} must not be writable");
        let store = bench.mm.fault(bench.space, page, AccessKind::Store);
        assert_eq!(store, Err(FaultError::Segv));
    }
}

/// Collapse reads missing pages; a file on disk has no holes.
#[test]
fn collapse_reads_missing_file_pages() {
    for first in [0, LARGE] {
        let bench: &'static Bench = Box::leak(Box::new(Bench::new()));
        let (mm, machine) = (&bench.mm, bench.mm.machine());
        mm.mmu().knobs.set(Knob::ThpFilePmd, 1).unwrap();
        // Each block holds its number.
        *machine.idle.lock() = Some(Box::new(|machine| {
            while let Some(io) = machine.next_io() {
                (0..io.pages).for_each(|i| machine.set_stamp(io.frame.add(i), io.block + u64::from(i)));
                bench.mm.io_done(&io);
            }
        }));
        let disk = FileKind::Disk { device: DeviceId(1), block: 0 };
        let (file, at) = (mm.create_file(disk, 2 * LARGE * PAGE_SIZE), Vpn(AT.0 + LARGE));
        let backing = Backing::File { file, offset: PageIndex(first), shared: true, writable: true };
        mm.mmap(bench.space, &request(at, LARGE, backing)).unwrap();
        // A part in the middle is cached.
        mm.fault(bench.space, Vpn(at.0 + 100), AccessKind::Load).unwrap();
        assert_eq!(mm.collapse(bench.space, at, LARGE), Ok(1));
        for page in 0..LARGE {
            let (pfn, _) = bench.entry(Vpn(at.0 + page)).expect("all pages must be mapped");
            assert_eq!(machine.stamp(pfn), first + page);
        }
        mm.validate().unwrap();
    }
}

/// As Linux does: only private pages are populated by stores, those that a fault maps around its own take none, and
/// each page counts as used once.
#[test]
fn populated_shared_pages_are_clean_used_and_mapped_around() {
    const ALL: u64 = 32;
    let bench: &'static Bench = Box::leak(Box::new(Bench::new()));
    let (mm, machine) = (&bench.mm, bench.mm.machine());
    *machine.idle.lock() = Some(Box::new(|_| end_transfers(&bench.mm)));
    let disk = FileKind::Disk { device: DeviceId(1), block: 0 };
    let file = mm.create_file(disk, ALL * PAGE_SIZE);
    for (shared, at) in [(true, Vpn(AT.0 + LARGE)), (false, Vpn(AT.0 + 2 * LARGE))] {
        let backing = Backing::File { file, offset: PageIndex(0), shared, writable: true };
        let before = mm.mmu().stats.read(Stat::Pgfault);
        mm.mmap(bench.space, &MapRequest { populate: true, ..request(at, ALL, backing) }).unwrap();
        let faults = mm.mmu().stats.read(Stat::Pgfault) - before;
        assert_eq!(faults < ALL as i64 / 4, shared, "{faults} faults");
        for page in (at.0..at.0 + ALL).map(Vpn) {
            let (pfn, bits) = bench.entry(page).expect("every page must be mapped");
            let frame = &mm.core.frames[mm.core.frames.head(pfn)];
            assert_eq!(bits.contains(Bits::WRITE), !shared, "{page}");
            assert!(!shared || !frame.has(FrameFlags::DIRTY), "{page}");
            assert!(frame.has(FrameFlags::REFERENCED) || frame.has(FrameFlags::ACTIVE), "{page}");
        }
    }
    assert_eq!(mm.validate(), Ok(()));
}

/// What is read beside the pages that are asked for.
#[test]
fn fadvise_and_madvise_decide_what_is_read() {
    type Case = (&'static str, fn(&Bench, FileId), &'static [u64]);
    let cases: [Case; 4] = [
        ("nothing was said", read_first_page, &[0, 1, 2, 3]),
        (
            "reads are random",
            |bench, file| {
                bench.mm.fadvise(file, 0, 0, FileAdvice::Random).unwrap();
                read_first_page(bench, file);
            },
            &[0],
        ),
        (
            "pages of a file will be needed",
            |bench, file| bench.mm.fadvise(file, 3 * PAGE_SIZE, 2 * PAGE_SIZE, FileAdvice::WillNeed).unwrap(),
            &[3, 4],
        ),
        (
            "pages of a range will be needed",
            |bench, file| {
                let backing = Backing::File { file, offset: PageIndex(2), shared: true, writable: true };
                let at = Vpn(AT.0 + LARGE);
                bench.mm.mmap(bench.space, &request(at, 8, backing)).unwrap();
                bench.mm.madvise(bench.space, Vpn(at.0 + 1), 3, Advice::WillNeed).unwrap();
            },
            &[3, 4, 5],
        ),
    ];
    for (what, act, expected) in cases {
        let bench: &'static Bench = Box::leak(Box::new(Bench::new()));
        *bench.mm.machine().idle.lock() = Some(Box::new(|_| end_transfers(&bench.mm)));
        let file = bench.mm.create_file(FileKind::Disk { device: DeviceId(1), block: 0 }, 64 * PAGE_SIZE);
        act(bench, file);
        assert_eq!(cached(bench, file, 64), expected, "{what}");
    }
}

fn read_first_page(bench: &Bench, file: FileId) {
    bench.mm.read(file, 0, PAGE_SIZE, ROOT, &mut |_, _, _| ()).unwrap();
}
