//! What a process stores stays there: each step that a store depends on, on its way through entries, caches and
//! devices, is missed here if it is left out.
//!
//! The machine keeps the content of frames and devices. A store does what hardware does, and nothing else: it sets the
//! entry's bits and the frame's content.

use super::*;
use crate::event::Event;
use crate::frame::Owner;
use crate::reclaim;
use crate::stat::{SizeStat, Stat};
use crate::table::Bits;
use std_alloc::boxed::Box;

/// Address of all mappings.
const AT: Vpn = LARGE_AT;
const PAGES: u64 = 4;

struct Bench {
    mm: Mm<TestMachine>,
    blocks: Blocks,
    /// Shmem.
    file: FileId,
    /// All operations are on this space; the other one maps the file, too.
    space: SpaceId,
    other: SpaceId,
}

fn pages() -> impl Iterator<Item = Vpn> {
    (AT.0..AT.0 + PAGES).map(Vpn)
}

/// What is stored to a page.
fn value(page: Vpn) -> u64 {
    7000 + page.0
}

impl Bench {
    /// Two spaces, a file of `pages` pages, and this many slots; `prepare` sets up the machine first.
    fn new(pages: u64, slots: u32, prepare: impl FnOnce(&mut TestMachine)) -> &'static Bench {
        let mut machine = TestMachine::simple(2, 8192);
        prepare(&mut machine);
        let mm = with_swap(machine, slots);
        let file = mm.create_file(FileKind::Shmem, pages * PAGE_SIZE);
        let [space, other] = [0; 2].map(|_| mm.create_space(ROOT).unwrap());
        let bench: &'static Bench =
            Box::leak(Box::new(Bench { mm, blocks: Lock::default(), file, space, other }));
        *bench.mm.machine().idle.lock() = Some(Box::new(|_| bench.end_transfers()));
        bench
    }

    /// Memory of the space with what [`value`] says.
    fn stored(slots: u32) -> &'static Bench {
        let bench = Bench::new(PAGES, slots, |_| ());
        bench.map_memory(PAGES);
        bench.store_all();
        bench
    }

    /// The same, and a child that shares it.
    fn forked(slots: u32) -> (&'static Bench, SpaceId) {
        let bench = Bench::stored(slots);
        (bench, bench.mm.fork(bench.space).unwrap())
    }

    fn set(&self, knob: Knob, value: u64) {
        self.mm.mmu().knobs.set(knob, value).unwrap();
    }

    /// From now on memory comes in folios of 16 pages.
    fn set_64k(&self) {
        let sizes = Knob::ALL.iter().filter(|knob| knob.info().name == "hugepages-64kB.enabled");
        sizes.for_each(|&knob| self.set(knob, 2));
    }

    fn map_file(&self, space: SpaceId, pages: u64) {
        let backing = Backing::File { file: self.file, offset: PageIndex(0), shared: true, writable: true };
        self.mm.mmap(space, &request(AT, pages, backing)).unwrap();
    }

    fn map_file_for_both(&self, pages: u64) {
        self.map_file(self.space, pages);
        self.map_file(self.other, pages);
    }

    fn map_memory(&self, pages: u64) {
        self.mm.mmap(self.space, &request(AT, pages, Backing::Anonymous)).unwrap();
    }

    fn end_transfers(&self) {
        carry_transfers(&self.mm, &self.blocks, Some(u64::MAX));
    }

    /// The frame that an access reaches.
    fn reach(&self, space: SpaceId, page: Vpn, store: bool) -> Pfn {
        reach(&self.mm, space, page, store, 4).unwrap().0
    }

    /// As `reach`, without a fault, if the entry has these bits.
    fn access(&self, space: SpaceId, page: Vpn, needs: Bits, store: bool) -> Option<Pfn> {
        access(&self.mm, space, page, needs, store).map(|found| found.0)
    }

    fn store(&self, page: Vpn, value: u64) {
        let pfn = self.reach(self.space, page, true);
        self.mm.machine().set_stamp(pfn, value);
    }

    fn load(&self, space: SpaceId, page: Vpn) -> u64 {
        self.mm.machine().stamp(self.reach(space, page, false))
    }

    fn store_all(&self) {
        pages().for_each(|page| self.store(page, value(page)));
    }

    #[track_caller]
    fn reads_what_was_stored(&self, what: &str, space: SpaceId) {
        for page in pages() {
            assert_eq!(self.load(space, page), value(page), "{what}: {page} of {space}");
        }
    }

    /// What is stored before the call reaches swap, and the other space.
    fn keeps_stores(&self, (name, call): (&str, Call), pages: u64) {
        self.store_all();
        call(self, pages);
        self.page_out_file();
        self.reads_what_was_stored(name, self.other);
        self.mm.validate().unwrap();
    }

    /// The head of a page's folio in the file.
    fn cached(&self, page: Vpn) -> Option<Pfn> {
        let core = &self.mm.core;
        let pages = core.cache.lookup(core, self.file, PageIndex(page.0 - AT.0))?;
        core.put(pages.head);
        Some(pages.head)
    }

    /// The frames of all pages, by loads.
    fn frames(&self) -> Vec<Pfn> {
        pages().map(|page| self.reach(self.space, page, false)).collect()
    }

    /// Reclaim the folios twice: the first time may only write them.
    fn write_and_free(&self, folios: &[Pfn]) {
        for _ in 0..2 {
            self.page_out(folios);
            self.end_transfers();
        }
    }

    fn page_out(&self, folios: &[Pfn]) {
        let core = &self.mm.core;
        let isolated: Vec<Pfn> =
            folios.iter().copied().filter(|&pfn| core.lru.isolate(self.mm.mmu(), pfn)).collect();
        reclaim::pageout(core, &self.mm.reclaim, &self.mm, &isolated);
    }

    /// Write all dirty pages of the file to swap, and free all its pages.
    fn page_out_file(&self) {
        for _ in 0..3 {
            let mut folios: Vec<Pfn> = (0..LARGE).filter_map(|page| self.cached(Vpn(AT.0 + page))).collect();
            folios.dedup();
            self.page_out(&folios);
            self.end_transfers();
        }
        assert!(
            (0..LARGE).all(|page| self.cached(Vpn(AT.0 + page)).is_none()),
            "all pages must be swapped out"
        );
    }

    /// Reclaim gives the pages slots and unmaps them, but does not write them yet.
    fn unmap_to_swap(&self) -> Vec<Pfn> {
        let (store, base) = (&self.mm.core, self.mm.mmu());
        let mut batch = UnmapBatch::new(base.host());
        let frames = self.frames();
        for &pfn in &frames {
            unmap_folio(&self.mm, pfn, true, &mut batch);
            store.put(pfn);
        }
        batch.settle(base.host(), &store.tlb);
        frames
    }
}

type Call = fn(&Bench, u64);

/// Calls that take the entries of a file away.
const CALLS: [(&str, Call); 5] = [
    ("munmap", |bench, pages| bench.mm.munmap(bench.space, AT, pages).unwrap()),
    ("munmap of two parts", |bench, pages| {
        bench.mm.munmap(bench.space, Vpn(AT.0 + pages / 2), pages - pages / 2).unwrap();
        bench.mm.munmap(bench.space, AT, pages / 2).unwrap();
    }),
    ("mmap over", |bench, pages| bench.map_memory(pages)),
    ("MADV_DONTNEED", |bench, pages| bench.mm.madvise(bench.space, AT, pages, Advice::DontNeed).unwrap()),
    ("exit", |bench, _| bench.mm.exit_space(bench.space)),
];

/// Shmem may be written from the first load on: only the entry shows that it was.
#[test]
fn clearing_entries_marks_file_pages_dirty() {
    for call in CALLS {
        let bench = Bench::new(PAGES, 64, |_| ());
        bench.map_file_for_both(PAGES);
        pages().for_each(|page| assert_eq!(bench.load(bench.space, page), 0));
        bench.keeps_stores(call, PAGES);
    }
}

/// The same if reclaim clears them, whether it unmaps pages together or each by itself.
#[test]
fn reclaim_marks_file_pages_dirty() {
    for policy in [FlushPolicy::Batch, FlushPolicy::List] {
        for (rmap_batch, alone) in [(0, true), (1, true), (1, false)] {
            let bench = Bench::new(PAGES, 64, |_| ());
            bench.set(Knob::TlbUnmap, policy.value());
            bench.set(Knob::RmapBatch, rmap_batch);
            bench.map_file_for_both(PAGES);
            pages().for_each(|page| assert_eq!(bench.load(bench.space, page), 0));
            bench.store_all();
            let frames = bench.frames();
            match alone {
                true => frames.iter().for_each(|&pfn| bench.write_and_free(&[pfn])),
                false => bench.write_and_free(&frames),
            }
            bench.page_out_file();
            bench.reads_what_was_stored("reclaim", bench.other);
            bench.mm.validate().unwrap();
        }
    }
}

#[test]
fn clearing_a_large_entry_marks_the_folio_dirty() {
    for call in CALLS {
        let bench = Bench::new(LARGE, 600, |_| ());
        bench.set(Knob::ThpFilePmd, 1);
        bench.set(Knob::ShmemMaxOrder, 9);
        bench.map_file_for_both(LARGE);
        assert_eq!(bench.load(bench.space, AT), 0);
        assert!(bench.mm.core.tables.lock(bench.mm.mmu(), bench.space).find(AT).unwrap().is_large());
        bench.keeps_stores(call, LARGE);
    }
}

/// Hardware that sets no bits faults until software has set them.
#[test]
fn faults_set_dirty_bits_without_hardware_support() {
    let bench = Bench::new(PAGES, 64, |machine| machine.young = (false, false));
    bench.map_file_for_both(PAGES);
    let marked = Bits::PRESENT | Bits::WRITE | Bits::YOUNG | Bits::DIRTY;
    for page in pages() {
        bench.mm.fault(bench.space, page, AccessKind::Load).unwrap();
        let unmarked = bench.access(bench.space, page, marked, false).is_none();
        assert!(unmarked && bench.access(bench.space, page, Bits::PRESENT | Bits::WRITE, false).is_some());
        bench.mm.fault(bench.space, page, AccessKind::Store).unwrap();
        let pfn = bench.access(bench.space, page, marked, false).expect("one more fault must be enough");
        bench.mm.machine().set_stamp(pfn, value(page));
    }
    bench.mm.munmap(bench.space, AT, PAGES).unwrap();
    bench.page_out_file();
    bench.reads_what_was_stored("stores that software marked", bench.other);
}

/// The device may or may not write what is stored during the write, so the page is written again.
#[test]
fn store_during_write_back_is_written_again() {
    let bench = Bench::new(PAGES, 64, |_| ());
    bench.map_memory(PAGES);
    pages().for_each(|page| bench.store(page, 1));
    let frames = bench.frames();
    bench.page_out(&frames);
    assert!(frames.iter().all(|&pfn| bench.mm.core.frames[pfn].has(FrameFlags::WRITEBACK)));
    // The device has read everything before the store.
    for io in bench.mm.machine().ios.lock().iter() {
        (0..io.pages).for_each(|i| _ = bench.blocks.lock().insert((io.device, io.block + u64::from(i)), 1));
    }
    bench.store_all();
    let ios = core::mem::take(&mut *bench.mm.machine().ios.lock());
    ios.iter().for_each(|io| bench.mm.io_done(io));
    bench.write_and_free(&frames);
    assert!(frames.iter().all(|&pfn| bench.mm.core.frames[pfn].refs() == 0), "all pages must be free");
    bench.reads_what_was_stored("stores during a write", bench.space);
    // All slots are freed.
    bench.mm.exit_space(bench.space);
    assert_eq!(bench.mm.core.swap.free_slots(), 64);
    bench.mm.validate().unwrap();
}

/// A page that was swapped in keeps its slot while another process needs it: the device may not have written it yet.
#[test]
fn swap_slot_stays_while_another_process_needs_it() {
    // Swap is more than half full, or the page is locked in memory: then slots are freed where possible.
    for (slots, locked) in [(PAGES as u32 + 2, false), (64, true)] {
        let (bench, child) = Bench::forked(slots);
        bench.unmap_to_swap();
        if locked {
            bench.mm.mlock(bench.space, AT, PAGES, true).unwrap();
        }
        bench.reads_what_was_stored("the parent", bench.space);
        bench.reads_what_was_stored("the child", child);
        bench.mm.validate().unwrap();
    }
}

/// A page that another process has in swap is shared with it, although no other entry maps it.
#[test]
fn store_copies_a_page_that_another_process_has_in_swap() {
    let (bench, child) = Bench::forked(64);
    bench.unmap_to_swap();
    bench.reads_what_was_stored("the parent", bench.space);
    pages().for_each(|page| bench.store(page, 1));
    bench.reads_what_was_stored("the child", child);
    bench.mm.validate().unwrap();
}

/// A folio is swapped in whole only within its range: pages beside it may have other rights.
#[test]
fn swap_in_of_a_folio_respects_the_rights_of_each_range() {
    const FOLIO: u64 = 16;
    for (first, last) in [(0, 8), (8, 16)] {
        let bench = Bench::new(PAGES, 64, |_| ());
        bench.map_memory(FOLIO);
        bench.set_64k();
        let head = bench.reach(bench.space, AT, true);
        bench.page_out(&[head]);
        bench.end_transfers();
        let guarded = Vpn(AT.0 + first);
        bench.mm.mprotect(bench.space, guarded, last - first, Prot::READ).unwrap();
        let open = Vpn(AT.0 + FOLIO - last);
        bench.store(open, 5);
        for page in (guarded.0..guarded.0 + last - first).map(Vpn) {
            assert_eq!(bench.access(bench.space, page, Bits::PRESENT | Bits::WRITE, false), None);
            let store = bench.mm.fault(bench.space, page, AccessKind::Store);
            assert_eq!(store, Err(FaultError::Segv));
        }
        assert_eq!(bench.load(bench.space, open), 5);
        bench.mm.validate().unwrap();
    }
}

/// Nor is it mapped across the border of a table, after mremap has moved it there.
#[test]
fn swap_in_of_a_folio_across_two_tables() {
    const FOLIO: u64 = 16;
    let bench = Bench::new(PAGES, 64, |_| ());
    bench.map_memory(FOLIO);
    bench.set_64k();
    let all = || (0..FOLIO).map(|i| Vpn(AT.0 + i));
    all().for_each(|page| bench.store(page, value(page)));
    let to = Vpn(AT.0 + 2 * LARGE - FOLIO / 2);
    bench.mm.mremap(bench.space, AT, FOLIO, FOLIO, true, Some(to)).unwrap();
    let head = bench.reach(bench.space, to, false);
    bench.page_out(&[head]);
    for (i, page) in (0..).zip(all()) {
        assert_eq!(bench.load(bench.space, Vpn(to.0 + i)), value(page));
        bench.mm.validate().unwrap();
    }
}

/// MADV_FREE leaves a page alone whose slot another process needs.
#[test]
fn lazyfree_keeps_slots_that_another_process_needs() {
    for written in [false, true] {
        let (bench, child) = Bench::forked(64);
        let frames = bench.unmap_to_swap();
        if written {
            bench.page_out(&frames);
            bench.end_transfers();
        }
        bench.reads_what_was_stored("before", bench.space);
        bench.mm.madvise(bench.space, AT, PAGES, Advice::Free).unwrap();
        bench.write_and_free(&bench.frames());
        bench.reads_what_was_stored("the child", child);
        bench.mm.validate().unwrap();
    }
}

/// MADV_FREE leaves a page alone that another process maps: the content is that one's, too, however the page came here.
#[test]
fn lazyfree_keeps_pages_that_another_process_maps() {
    for swapped in [false, true] {
        let (bench, child) = Bench::forked(64);
        if swapped {
            // Read back, so that no entry says that the page was written.
            bench.write_and_free(&bench.frames());
            bench.reads_what_was_stored("the child, swapped in", child);
            bench.reads_what_was_stored("the parent, swapped in", bench.space);
        }
        bench.mm.madvise(bench.space, AT, PAGES, Advice::Free).unwrap();
        bench.write_and_free(&bench.frames());
        bench.reads_what_was_stored("the child", child);
        bench.mm.validate().unwrap();
    }
}

/// What is written after MADV_FREE stays. Of a page that fork shares, either process may be the last that knows.
#[test]
fn stores_after_lazyfree_outlive_a_fork() {
    for ends in [0, 1] {
        let bench = Bench::stored(64);
        bench.mm.madvise(bench.space, AT, PAGES, Advice::Free).unwrap();
        bench.store_all();
        let child = bench.mm.fork(bench.space).unwrap();
        let both = [bench.space, child];
        let left = both[1 - ends];
        let frames: Vec<Pfn> = pages().map(|page| bench.reach(left, page, false)).collect();
        bench.mm.munmap(both[ends], AT, PAGES).unwrap();
        bench.write_and_free(&frames);
        bench.reads_what_was_stored("the process that is left", left);
        bench.mm.validate().unwrap();
    }
}

/// A slot that no process needs is freed with the page.
#[test]
fn lazyfree_frees_unneeded_slots() {
    let bench = Bench::stored(64);
    let frames = bench.unmap_to_swap();
    // While it is being written it keeps its slot, although it is mapped again.
    bench.page_out(&frames);
    bench.reads_what_was_stored("before", bench.space);
    bench.end_transfers();
    assert_eq!(bench.mm.core.swap.free_slots(), 64 - PAGES);
    bench.mm.madvise(bench.space, AT, PAGES, Advice::Free).unwrap();
    let given_up = bench.mm.mmu().stats.read(Stat::Pglazyfree);
    assert_eq!((given_up, bench.mm.core.swap.free_slots()), (PAGES as i64, 64));
    bench.mm.validate().unwrap();
}

/// A page that was swapped in and only read equals its slot: it is reclaimed again without a write.
#[test]
fn clean_swapped_page_is_not_written_again() {
    let bench = Bench::stored(64);
    for _ in 0..2 {
        let frames = bench.frames();
        bench.write_and_free(&frames);
        assert!(frames.iter().all(|&pfn| bench.mm.core.frames[pfn].refs() == 0), "all pages must be free");
        bench.reads_what_was_stored("what was swapped", bench.space);
    }
    assert_eq!(bench.mm.mmu().stats.read(Stat::PswpOut), PAGES as i64);
    assert_eq!(bench.mm.core.swap.free_slots(), 64 - PAGES);
    bench.mm.validate().unwrap();
}

/// A task with a reference to a page of shmem may be about to map it: it must find the page in the file, not on its
/// way to swap.
#[test]
fn referenced_shmem_page_stays_in_its_file() {
    let bench = Bench::new(PAGES, 64, |_| ());
    bench.map_file(bench.space, PAGES);
    bench.store_all();
    bench.mm.munmap(bench.space, AT, PAGES).unwrap();
    let (store, pfn) = (&bench.mm.core, bench.cached(AT).unwrap());
    store.frames[pfn].get(1);
    bench.page_out(&[pfn]);
    assert_eq!(store.frames[pfn].owner(), Owner::File(bench.file));
    assert!(bench.mm.machine().ios.lock().is_empty(), "a referenced page must not be written");
    store.put(pfn);
    bench.page_out_file();
    bench.map_file(bench.space, PAGES);
    bench.reads_what_was_stored("when it is let go", bench.space);
}

/// A page that is added while a large folio is made stays, and the folio is freed.
#[test]
fn large_folio_does_not_replace_a_page_that_was_added_meanwhile() {
    let bench = Bench::new(PAGES, 64, |_| ());
    bench.map_memory(16);
    bench.set_64k();
    let taken = Vpn(AT.0 + 3);
    *bench.mm.machine().watcher.lock() = Some(Box::new(move |machine, event, args| {
        // Allocation of the large folio: no lock is held.
        if event == Event::MmPageAlloc && args[1] == 4 {
            machine.run_on(1);
            bench.mm.fault(bench.space, taken, AccessKind::Load).unwrap();
            machine.run_on(0);
        }
    }));
    bench.store(AT, 5);
    *bench.mm.machine().watcher.lock() = None;
    assert_eq!(bench.reach(bench.space, taken, false), bench.mm.core.zero);
    assert_eq!(bench.mm.mmu().sizes.sum(SizeStat::NrAnon), 0, "the folio must be freed");
    assert_eq!(bench.load(bench.space, AT), 5);
    bench.mm.validate().unwrap();
}

/// CPUs may store to shmem until its entries are flushed; what is copied must not change any more.
#[test]
fn no_cpu_can_store_to_pages_that_collapse_has_copied() {
    let bench = Bench::new(LARGE, 64, |_| ());
    bench.set(Knob::ThpFilePmd, 1);
    bench.map_file(bench.space, LARGE);
    let machine = bench.mm.machine();
    for cpu in [1, 0] {
        machine.run_on(cpu);
        bench.mm.switch(Some(bench.space));
    }
    bench.store_all();
    for page in pages() {
        let pfn = bench.reach(bench.space, page, true);
        machine.run_on(1);
        machine.hold(page, pfn, true);
        machine.run_on(0);
    }
    *machine.watcher.lock() = Some(Box::new(|machine, event, args| {
        if event == Event::MmPageFree {
            let readers = machine.readers(Pfn(args[0] as u32), 1);
            assert!(readers.is_empty(), "no CPU may store to a free page");
        }
    }));
    assert_eq!(bench.mm.collapse(bench.space, AT, LARGE), Ok(1));
    *machine.watcher.lock() = None;
    bench.reads_what_was_stored("collapse", bench.space);
    bench.mm.validate().unwrap();
}

/// khugepaged makes a folio of a file if no more pages of it are missing, or in swap, than its limits say.
#[test]
fn khugepaged_respects_its_limits_for_shmem() {
    let stored = LARGE - 100;
    let cases: [(Knob, u64, u64, bool); 4] = [
        (Knob::KhugepagedMaxPtesNone, 99, 0, false),
        (Knob::KhugepagedMaxPtesNone, 100, 0, true),
        (Knob::KhugepagedMaxPtesSwap, 9, 10, false),
        (Knob::KhugepagedMaxPtesSwap, 10, 10, true),
    ];
    for (knob, limit, swapped, collapses) in cases {
        // What frames held before must not show in holes.
        let fill = |machine: &mut TestMachine| (0..8192).for_each(|pfn| machine.set_stamp(Pfn(pfn), 77));
        let bench = Bench::new(LARGE, 64, fill);
        bench.set(Knob::ThpFilePmd, 1);
        bench.set(Knob::HugepagesEnabled2048, 2);
        bench.map_file(bench.space, LARGE);
        bench.mm.switch(Some(bench.space));
        let pages = || (AT.0..AT.0 + stored).map(Vpn);
        pages().for_each(|page| bench.store(page, value(page)));
        let folios: Vec<Pfn> = pages().take(swapped as usize).filter_map(|page| bench.cached(page)).collect();
        bench.write_and_free(&folios);
        bench.set(knob, limit);
        bench.mm.spaces.scan_from_start(&bench.mm.core);
        let last = bench.cached(Vpn(AT.0 + stored - 1)).unwrap();
        assert_eq!(bench.mm.core.frames[last].order() > Order::ZERO, collapses, "{knob:?} {limit}");
        for page in (AT.0..AT.0 + LARGE).map(Vpn) {
            let expected = if page.0 < AT.0 + stored { value(page) } else { 0 };
            assert_eq!(bench.load(bench.space, page), expected, "{knob:?} {limit}: {page}");
        }
        bench.mm.validate().unwrap();
    }
}

/// Truncate sets the size first: from then on no folio may reach beyond the end.
#[test]
fn collapse_fails_during_truncate() {
    let bench = Bench::new(LARGE, 64, |_| ());
    bench.set(Knob::ThpFilePmd, 1);
    bench.map_file(bench.space, LARGE);
    bench.mm.switch(Some(bench.space));
    bench.store_all();
    let cache = &bench.mm.core.cache;
    *bench.mm.machine().entered.lock() = Some(Box::new(move |_, scope| {
        // The parts are locked, and are being unmapped.
        if scope == Scope::TryToUnmapOne {
            cache.set_size(bench.file, PAGES * PAGE_SIZE);
        }
    }));
    assert!(bench.mm.collapse(bench.space, AT, LARGE).is_err());
    *bench.mm.machine().entered.lock() = None;
    assert_eq!(bench.mm.core.frames[bench.cached(AT).unwrap()].order(), Order::ZERO);
    // The second step of truncate.
    cache.set_size(bench.file, LARGE * PAGE_SIZE);
    bench.mm.ftruncate(bench.file, PAGES * PAGE_SIZE).unwrap();
    bench.reads_what_was_stored("what is left", bench.space);
    let beyond = bench.mm.fault(bench.space, Vpn(AT.0 + PAGES), AccessKind::Load);
    assert_eq!(beyond, Err(FaultError::Bus));
    bench.mm.validate().unwrap();
}

/// The group that was charged for a large folio is charged for its parts, and uncharged for all of them.
#[test]
fn split_folio_keeps_its_group_charge() {
    let bench = Bench::new(PAGES, 64, |_| ());
    let groups = &bench.mm.core.lru.groups;
    bench.set(Knob::MemcgChargeBatch, 1);
    let group = bench.mm.create_group(ROOT, GroupLimits::default()).unwrap();
    let space = bench.mm.create_space(group).unwrap();
    bench.mm.mmap(space, &request(AT, 16, Backing::Anonymous)).unwrap();
    let before = groups.usage(group);
    bench.set_64k();
    let (store, head) = (&bench.mm.core, bench.reach(space, AT, true));
    assert_eq!((store.frames[head].order(), groups.usage(group) - before), (Order(4), 16));
    store.frames[head].get(1);
    store.lock_folio(head);
    assert!(store.rmap.split_anon(store, head, None).is_some());
    store.unlock_folio(head);
    store.put(head);
    assert!((0..16).all(|i| store.frames[head.add(i)].group() == group));
    bench.mm.validate().unwrap();
    bench.mm.munmap(space, AT, 16).unwrap();
    bench.mm.exit_space(space);
    assert_eq!(groups.usage(group), 0);
}

/// A task that clears an entry marks the file's folio dirty first, and drops the entry's reference last.
#[test]
fn invalidate_keeps_pages_that_become_dirty() {
    let bench = Bench::new(PAGES, 64, |_| ());
    let kind = FileKind::Disk { device: DeviceId(1), block: 0 };
    let file = bench.mm.create_file(kind, PAGE_SIZE);
    bench.mm.read(file, 0, PAGE_SIZE, ROOT, &mut |_, _, _| ()).unwrap();
    let (cache, memory) = (&bench.mm.core.cache, &bench.mm.core);
    let cached = || {
        let found = cache.lookup(memory, file, PageIndex(0)).map(|folio| folio.head);
        found.inspect(|&pfn| memory.put(pfn))
    };
    let pfn = cached().expect("the page must be cached");
    *bench.mm.machine().entered.lock() = Some(Box::new(move |_, scope| {
        if scope == Scope::RemoveMapping {
            bench.mm.core.cache.mark_dirty(&bench.mm.core, pfn);
        }
    }));
    bench.mm.fadvise(file, 0, 0, FileAdvice::DontNeed).unwrap();
    *bench.mm.machine().entered.lock() = None;
    assert_eq!(cached(), Some(pfn), "the dirty page must stay");
    bench.mm.validate().unwrap();
    bench.mm.fsync(file).unwrap();
    bench.mm.fadvise(file, 0, 0, FileAdvice::DontNeed).unwrap();
    assert_eq!(cached(), None);
    bench.mm.validate().unwrap();
}

/// The page of an entry that a fault has read may be freed before the fault locks it, and its frame reused by another
/// process.
#[test]
fn write_fault_ignores_a_frame_reused_by_another_process() {
    let bench = Bench::new(1, 64, |_| ());
    let alone = |space: SpaceId| {
        let child = bench.mm.fork(space).unwrap();
        bench.mm.exit_space(child);
    };
    bench.map_memory(1);
    bench.store(AT, value(AT));
    alone(bench.space);
    let pfn = bench.reach(bench.space, AT, false);
    let frame = &bench.mm.core.frames[pfn];
    assert!(!frame.has(FrameFlags::EXCLUSIVE));
    *bench.mm.machine().entered.lock() = Some(Box::new(move |_, scope| {
        if scope == Scope::DoWpPage && bench.mm.rss(bench.other) == 0 {
            bench.write_and_free(&[pfn]);
            bench.mm.mmap(bench.other, &request(AT, 1, Backing::Anonymous)).unwrap();
            assert_eq!(bench.reach(bench.other, AT, true), pfn, "the frame freed last must be reused first");
            alone(bench.other);
        }
    }));
    bench.mm.fault(bench.space, AT, AccessKind::Store).unwrap();
    *bench.mm.machine().entered.lock() = None;
    assert_eq!(bench.reach(bench.other, AT, false), pfn);
    assert!(!frame.has(FrameFlags::EXCLUSIVE), "a process that does not map it must not mark it exclusive");
    assert_eq!(bench.load(bench.space, AT), value(AT));
    bench.mm.validate().unwrap();
}
