//! Pages of a file that a collapse into 2 MiB meets while something else needs them.

use super::*;
use crate::event::Event;
use crate::primitive::Ordering::Relaxed;
use crate::stat::Stat;
use std_alloc::boxed::Box;

const AT: Vpn = LARGE_AT;
const DISK: FileKind = FileKind::Disk { device: DeviceId(1), block: 0 };

struct Bench {
    mm: Mm<TestMachine>,
    blocks: Blocks,
    file: FileId,
    /// The collapse is in this space; the other one maps the file, too.
    space: SpaceId,
    other: SpaceId,
}

/// What the file holds at a page.
fn value(page: u64) -> u64 {
    7000 + page
}

impl Bench {
    /// A file of 2 MiB, which was written in folios of at most `order` and is not on its device yet.
    fn new(kind: FileKind, order: u64) -> &'static Bench {
        let mm = with_swap(TestMachine::simple(2, 8192), 64);
        for (knob, value) in [(Knob::FileMaxOrder, order), (Knob::ThpFilePmd, 1)] {
            mm.set_knob(knob, value).unwrap();
        }
        let file = mm.create_file(kind, 0);
        let mut values = (0..).map(value);
        let mut source = |pfn, _, _| mm.machine().set_stamp(pfn, values.next().unwrap());
        mm.write(file, 0, LARGE * PAGE_SIZE, ROOT, &mut source).unwrap();
        let backing = Backing::File { file, offset: PageIndex(0), shared: true, writable: true };
        let [space, other] = [0; 2].map(|_| {
            let space = mm.create_space(ROOT).unwrap();
            mm.mmap(space, &request(AT, LARGE, backing)).unwrap();
            space
        });
        let bench: &'static Bench =
            Box::leak(Box::new(Bench { mm, blocks: Lock::default(), file, space, other }));
        *bench.mm.machine().idle.lock() = Some(Box::new(|_| bench.end_transfers()));
        bench
    }

    fn end_transfers(&self) {
        carry_transfers(&self.mm, &self.blocks, None);
    }

    fn collapse(&self) -> Result<u64, Error> {
        self.mm.collapse(self.space, AT, LARGE)
    }

    /// The head of the first page's folio.
    fn head(&self) -> Pfn {
        let core = &self.mm.core;
        let folio = core.cache.lookup(core, self.file, PageIndex(0)).unwrap();
        core.put(folio.head);
        folio.head
    }

    /// All pages read as they were written.
    fn reads(&self) {
        for page in 0..LARGE {
            let (pfn, _) = reach(&self.mm, self.space, Vpn(AT.0 + page), false, 4).unwrap();
            assert_eq!(self.mm.machine().stamp(pfn), value(page), "page {page}");
        }
        self.mm.validate().unwrap();
    }
}

/// A page stays in its frame while the device reads it. Afterwards the pages are replaced, with the records of their
/// buffers.
#[test]
fn pages_are_collapsed_only_once_they_are_written() {
    let bench = Bench::new(DISK, 0);
    let machine = bench.mm.machine();
    *machine.idle.lock() = Some(Box::new(|machine| {
        // The flusher has begun to write all pages, and waits for none.
        assert_eq!(machine.ios.lock().len() as u64, LARGE);
        assert_eq!(bench.collapse(), Err(Error::Again));
        bench.end_transfers();
        machine.stops.store(true, Relaxed);
    }));
    bench.mm.core.cache.want_flusher(&bench.mm.core);
    bench.mm.daemon(Daemon::Flusher);
    bench.reads();
    let slabs = || bench.mm.mmu().stats.read(Stat::NrSlabReclaimable);
    let before = slabs();
    assert_eq!(bench.collapse(), Ok(1));
    assert!(before - slabs() > 5, "{} of {before} frames of slabs are left", slabs());
    bench.reads();
}

/// A page that another process has locked in memory stays where that process maps it.
#[test]
fn pages_that_are_locked_in_memory_are_not_collapsed() {
    for page in [0, 100, LARGE - 1] {
        let bench = Bench::new(FileKind::Shmem, 0);
        let locked = Vpn(AT.0 + page);
        bench.mm.mlock(bench.other, locked, 1, true).unwrap();
        let shown = || access(&bench.mm, bench.other, locked, Bits::PRESENT | Bits::USER, false);
        let before = shown();
        assert!(before.is_some(), "mlock maps the page");
        assert_eq!(bench.collapse(), Err(Error::Again), "page {page}");
        assert_eq!(shown(), before, "page {page}");
        bench.reads();
    }
}

/// Another task holds the lock of a folio of 2 MiB while the collapse looks for one, and not any more when it has
/// allocated another.
#[test]
fn a_folio_of_2_mib_is_not_replaced_by_another() {
    let bench = Bench::new(DISK, PAGEBLOCK_ORDER.0.into());
    bench.mm.fsync(bench.file).unwrap();
    let (core, head) = (&bench.mm.core, bench.head());
    assert_eq!(core.frames[head].order(), PAGEBLOCK_ORDER);
    core.lock_folio(head);
    *bench.mm.machine().watcher.lock() = Some(Box::new(move |_, event, args| {
        if event == Event::MmPageAlloc && args[1] == u64::from(PAGEBLOCK_ORDER.0) {
            core.unlock_folio(head);
        }
    }));
    let outcome = bench.collapse();
    *bench.mm.machine().watcher.lock() = None;
    assert_eq!((outcome, bench.head()), (Err(Error::Again), head));
    bench.reads();
    assert_eq!(bench.collapse(), Ok(1));
    bench.reads();
}

/// A folio of 2 MiB that was read ahead, and that no reader has come to yet, is mapped as it is, as in Linux.
#[test]
fn a_folio_of_2_mib_that_was_read_ahead_is_mapped() {
    let bench = Bench::new(DISK, PAGEBLOCK_ORDER.0.into());
    bench.mm.fsync(bench.file).unwrap();
    let head = bench.head();
    bench.mm.core.frames[head].set(FrameFlags::READAHEAD);
    assert_eq!((bench.collapse(), bench.head()), (Ok(1), head));
    bench.reads();
}
