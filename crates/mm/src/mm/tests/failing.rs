//! What becomes of pages when a device fails.

use super::*;
use crate::frame::FrameFlags;
use crate::primitive::AtomicU32;
use crate::primitive::Ordering::Relaxed;
use crate::reclaim;
use std_alloc::boxed::Box;

const AT: Vpn = Vpn(0x5000);
const PAGES: u64 = 4;

struct Bench {
    mm: Mm<TestMachine>,
    blocks: Blocks,
    space: SpaceId,
    file: FileId,
    /// How many transfers are done before the next fail, and how many fail then.
    done: AtomicU32,
    fails: AtomicU32,
}

/// Take one of a number, if there is one.
fn take_one(from: &AtomicU32) -> bool {
    let left = from.load(Relaxed);
    from.store(left.saturating_sub(1), Relaxed);
    left > 0
}

impl Bench {
    /// A space, and a file of four pages.
    fn new() -> &'static Bench {
        let mm = with_swap(TestMachine::simple(2, 8192), 64);
        let kind = FileKind::Disk { device: DeviceId(0), block: 1000 };
        let (file, space) = (mm.create_file(kind, PAGES * PAGE_SIZE), mm.create_space(ROOT).unwrap());
        let [done, fails] = [0; 2].map(AtomicU32::new);
        let bench: &'static Bench =
            Box::leak(Box::new(Bench { mm, blocks: Lock::default(), space, file, done, fails }));
        *bench.mm.machine().idle.lock() = Some(Box::new(|_| bench.end_transfers()));
        bench
    }

    /// The same; the space maps the file.
    fn mapped() -> &'static Bench {
        let bench = Bench::new();
        let backing = Backing::File { file: bench.file, offset: PageIndex(0), shared: true, writable: true };
        bench.mm.mmap(bench.space, &request(AT, PAGES, backing)).unwrap();
        bench
    }

    fn end_transfers(&self) {
        while let Some(io) = self.mm.machine().next_io() {
            if !take_one(&self.done) && take_one(&self.fails) {
                self.mm.io_failed(&io);
            } else {
                self.mm.machine().transfer(&io, &self.blocks, Some(5000 + io.block));
                self.mm.io_done(&io);
            }
        }
    }

    /// Let `done` transfers be done, and `fails` fail then.
    fn fail(&self, done: u32, fails: u32) {
        self.done.store(done, Relaxed);
        self.fails.store(fails, Relaxed);
    }

    fn all_have_failed(&self) {
        assert_eq!((self.done.load(Relaxed), self.fails.load(Relaxed)), (0, 0));
        self.mm.validate().unwrap();
    }

    fn load(&self) -> Result<u64, FaultError> {
        let (pfn, _) = reach(&self.mm, self.space, AT, false, 4)?;
        Ok(self.mm.machine().stamp(pfn))
    }

    fn store(&self, value: u64) {
        let (pfn, _) = reach(&self.mm, self.space, AT, true, 4).unwrap();
        self.mm.machine().set_stamp(pfn, value);
    }

    fn read(&self) -> (Result<u64, Error>, Vec<u64>) {
        let mut got = Vec::new();
        let mut sink = |pfn, _, _| got.push(self.mm.machine().stamp(pfn));
        (self.mm.read(self.file, 0, PAGES * PAGE_SIZE, ROOT, &mut sink), got)
    }

    fn write(&self, bytes: u64, value: u64) -> Result<u64, Error> {
        let mut source = |pfn, _, _| self.mm.machine().set_stamp(pfn, value);
        self.mm.write(self.file, 0, bytes, ROOT, &mut source)
    }

    /// Reclaim the page three times: the first time may only write it.
    fn page_out(&self) {
        let (pfn, _) = reach(&self.mm, self.space, AT, false, 4).unwrap();
        for _ in 0..3 {
            if self.mm.core.lru.isolate(self.mm.mmu(), pfn) {
                reclaim::pageout(&self.mm.core, &self.mm.reclaim, &self.mm, &[pfn]);
            }
            self.end_transfers();
        }
    }
}

#[test]
fn a_page_whose_read_ahead_has_failed_is_read_alone() {
    let bench = Bench::mapped();
    // Four pages are read around the fault, each by itself.
    bench.fail(0, 4);
    assert_eq!(bench.load(), Ok(6000));
    bench.all_have_failed();
}

#[test]
fn a_page_that_cannot_be_read_raises_sigbus_until_it_can() {
    let bench = Bench::mapped();
    bench.fail(0, 6);
    assert_eq!([bench.load(), bench.load()], [Err(FaultError::Io); 2]);
    bench.all_have_failed();
    assert_eq!(bench.load(), Ok(6000));
}

/// A folio of 2 MiB that could not be read is not mapped whole.
#[test]
fn a_large_folio_that_cannot_be_read_is_not_mapped() {
    let bench = Bench::new();
    for (knob, value) in [(Knob::FileMaxOrder, 9), (Knob::ThpFilePmd, 1)] {
        bench.mm.mmu().knobs.set(knob, value).unwrap();
    }
    let machine = bench.mm.machine();
    let file = bench.mm.create_file(FileKind::Disk { device: DeviceId(0), block: 5000 }, 0);
    let mut source = |pfn, _, _| machine.set_stamp(pfn, 7);
    bench.mm.write(file, 0, LARGE * PAGE_SIZE, ROOT, &mut source).unwrap();
    bench.mm.fsync(file).unwrap();
    let core = &bench.mm.core;
    let folio = core.cache.lookup(core, file, PageIndex(0)).unwrap().head;
    let pages = core.frames[folio].pages();
    assert_eq!(u64::from(pages), LARGE);
    // As after a read that has failed.
    core.frames[folio].clear(FrameFlags::UPTODATE);
    (0..pages).for_each(|page| machine.set_stamp(folio.add(page), 13));
    core.put(folio);
    let backing = Backing::File { file, offset: PageIndex(0), shared: true, writable: true };
    bench.mm.mmap(bench.space, &request(LARGE_AT, LARGE, backing)).unwrap();
    for page in [5, LARGE - 1] {
        let (pfn, _) = reach(&bench.mm, bench.space, Vpn(LARGE_AT.0 + page), false, 4).unwrap();
        assert_eq!(machine.stamp(pfn), 7, "page {page}");
    }
    bench.mm.validate().unwrap();
}

/// The page is in memory, so the collapse does not read it. It must not copy it either.
#[test]
fn a_page_that_cannot_be_read_is_not_collapsed() {
    let bench = Bench::new();
    bench.mm.set_knob(Knob::ThpFilePmd, 1).unwrap();
    let kind = FileKind::Disk { device: DeviceId(0), block: 5000 };
    let file = bench.mm.create_file(kind, LARGE * PAGE_SIZE);
    let backing = Backing::File { file, offset: PageIndex(0), shared: true, writable: true };
    bench.mm.mmap(bench.space, &request(LARGE_AT, LARGE, backing)).unwrap();
    bench.fail(0, 1);
    bench.mm.fadvise(file, 0, PAGE_SIZE, FileAdvice::WillNeed).unwrap();
    bench.end_transfers();
    bench.all_have_failed();
    assert_eq!(bench.mm.collapse(bench.space, LARGE_AT, LARGE), Err(Error::Again));
    for page in [0, 1, LARGE - 1] {
        let (pfn, _) = reach(&bench.mm, bench.space, Vpn(LARGE_AT.0 + page), false, 4).unwrap();
        assert_eq!(bench.mm.machine().stamp(pfn), 10_000 + page, "page {page}");
    }
    assert_eq!(bench.mm.collapse(bench.space, LARGE_AT, LARGE), Ok(1));
    bench.mm.validate().unwrap();
}

#[test]
fn a_read_returns_what_came_before_the_failure_or_an_error() {
    let bench = Bench::new();
    // The window of four pages; the third fails, and fails again alone.
    bench.fail(2, 1);
    bench.mm.fadvise(bench.file, 0, 0, FileAdvice::WillNeed).unwrap();
    bench.end_transfers();
    // A call that got less than it wanted tries to go on.
    bench.fail(0, 3);
    assert_eq!(bench.read(), (Ok(2 * PAGE_SIZE), std_alloc::vec![6000, 6001]));
    let first = bench.mm.read(bench.file, 2 * PAGE_SIZE, PAGE_SIZE, ROOT, &mut |_, _, _| {});
    assert_eq!(first, Err(Error::Io));
    bench.all_have_failed();
    assert_eq!(bench.read(), (Ok(4 * PAGE_SIZE), std_alloc::vec![6000, 6001, 6002, 6003]));
}

/// A call that goes on after a failure that has passed moves what was asked for, and no more.
#[test]
fn a_read_that_goes_on_stops_at_its_end() {
    let bench = Bench::new();
    bench.fail(1, 1);
    bench.mm.fadvise(bench.file, 0, 0, FileAdvice::WillNeed).unwrap();
    bench.end_transfers();
    // The second page fails once more, alone, and then it does not.
    bench.fail(0, 1);
    let mut got = Vec::new();
    let mut sink = |pfn, _, _| got.push(bench.mm.machine().stamp(pfn));
    assert_eq!(bench.mm.read(bench.file, 0, 3 * PAGE_SIZE, ROOT, &mut sink), Ok(3 * PAGE_SIZE));
    assert_eq!(got, [6000, 6001, 6002]);
    bench.all_have_failed();
}

/// What was written before a failure counts.
#[test]
fn a_long_write_returns_what_came_before_the_failure() {
    const LONG: u64 = 40;
    let bench = Bench::new();
    let kind = FileKind::Disk { device: DeviceId(0), block: 5000 };
    let file = bench.mm.create_file(kind, 64 * PAGE_SIZE);
    // Its last page is written in part, so it must be read first.
    bench.fail(0, u32::MAX);
    let written = bench.mm.write(file, 0, LONG * PAGE_SIZE + 8, ROOT, &mut |_, _, _| ());
    assert_eq!(written, Ok(LONG * PAGE_SIZE));
    bench.fail(0, 0);
    bench.all_have_failed();
}

#[test]
fn a_write_of_a_part_needs_what_cannot_be_read_and_one_of_all_does_not() {
    let bench = Bench::new();
    // The page is read once for the write, and once more because that has failed.
    bench.fail(0, 2);
    assert_eq!(bench.write(8, 7), Err(Error::Io));
    bench.all_have_failed();
    assert_eq!(bench.write(PAGE_SIZE, 8), Ok(PAGE_SIZE));
    assert_eq!(bench.read().1, [8, 6001, 6002, 6003]);
}

/// The device goes on failing. A page that it could not read stays in memory.
#[test]
fn only_a_write_of_the_whole_page_does_without_the_device() {
    let parts = [(0, PAGE_SIZE, true), (0, PAGE_SIZE - 8, false), (8, PAGE_SIZE - 8, false)];
    for (page, (at, bytes, whole)) in [0, 2].into_iter().flat_map(|page| parts.map(|part| (page, part))) {
        let bench = Bench::new();
        let write = |at, bytes| {
            let mut source = |pfn, _, _| bench.mm.machine().set_stamp(pfn, 8);
            bench.mm.write(bench.file, page * PAGE_SIZE + at, bytes, ROOT, &mut source)
        };
        bench.fail(0, u32::MAX);
        assert_eq!(write(0, 8), Err(Error::Io));
        let outcome = if whole { Ok(bytes) } else { Err(Error::Io) };
        assert_eq!(write(at, bytes), outcome, "page {page}, {bytes} bytes from {at} on");
        bench.fail(0, 0);
        assert_eq!(bench.read().1[page as usize], if whole { 8 } else { 6000 + page });
        bench.mm.validate().unwrap();
    }
}

#[test]
fn the_error_of_a_write_is_reported_once() {
    for msync in [false, true] {
        let bench = Bench::mapped();
        let sync = || match msync {
            false => bench.mm.fsync(bench.file),
            true => bench.mm.msync(bench.space, AT, PAGES),
        };
        bench.store(7);
        bench.fail(0, 1);
        assert_eq!([sync(), sync()], [Err(Error::Io), Ok(())]);
        bench.all_have_failed();
        // The page is clean: what was stored is lost once it is reclaimed.
        assert_eq!(bench.load(), Ok(7));
        bench.page_out();
        assert_eq!(bench.load(), Ok(6000));
    }
}

#[test]
fn a_page_that_cannot_be_written_to_swap_stays() {
    let bench = Bench::new();
    bench.mm.mmap(bench.space, &request(AT, 1, Backing::Anonymous)).unwrap();
    bench.store(7);
    bench.fail(0, 2);
    bench.page_out();
    bench.all_have_failed();
    assert_eq!(bench.load(), Ok(7));
    bench.page_out();
    assert_eq!(bench.load(), Ok(7));
}

#[test]
fn a_page_that_cannot_be_read_from_swap_raises_sigbus_until_it_is_reclaimed() {
    let bench = Bench::new();
    bench.mm.mmap(bench.space, &request(AT, 1, Backing::Anonymous)).unwrap();
    bench.store(7);
    bench.page_out();
    bench.fail(0, 1);
    // The second fault finds the page in the swap cache.
    assert_eq!([bench.load(), bench.load()], [Err(FaultError::Io); 2]);
    bench.all_have_failed();
    for _ in 0..40 {
        reclaim_node(&bench.mm);
    }
    assert_eq!(bench.load(), Ok(7));
    bench.mm.validate().unwrap();
}

#[test]
fn a_page_of_shmem_that_cannot_be_read_stays_in_swap() {
    let bench = Bench::new();
    bench.mm.mmap(bench.space, &request(AT, 1, Backing::AnonymousShared)).unwrap();
    bench.store(7);
    bench.page_out();
    bench.fail(0, 1);
    assert_eq!(bench.load(), Err(FaultError::Io));
    bench.all_have_failed();
    for _ in 0..40 {
        reclaim_node(&bench.mm);
    }
    assert_eq!(bench.load(), Ok(7));
}
