//! What a fault counts as, and what it maps besides its own page.

use super::*;
use crate::knobs::{FaultForm, ReadAheadForm};
use crate::reclaim;
use std_alloc::boxed::Box;

/// Address of all mappings.
const AT: Vpn = LARGE_AT;

struct Bench {
    mm: Mm<TestMachine>,
    space: SpaceId,
}

impl Bench {
    fn new() -> &'static Bench {
        let mm = with_swap(TestMachine::simple(2, 8192), 256);
        let space = mm.create_space(ROOT).unwrap();
        let bench: &'static Bench = Box::leak(Box::new(Bench { mm, space }));
        *bench.mm.machine().idle.lock() = Some(Box::new(|_| bench.end_transfers()));
        bench
    }

    fn map(&self, pages: u64, backing: Backing) {
        self.mm.mmap(self.space, &request(AT, pages, backing)).unwrap();
    }

    /// Memory whose pages were stored to, and are swapped out.
    fn swapped(&self, pages: u64) {
        self.stored(pages, pages);
        self.swap_out(0..pages);
    }

    /// Memory whose first pages were stored to.
    fn stored(&self, pages: u64, stored: u64) {
        self.map(pages, Backing::Anonymous);
        (0..stored).for_each(|page| assert_eq!(self.fault(page, AccessKind::Store), FaultDone::Minor));
    }

    fn map_file(&self, pages: u64) {
        let kind = FileKind::Disk { device: DeviceId(1), block: 0 };
        let file = self.mm.create_file(kind, pages * PAGE_SIZE);
        self.map(pages, Backing::File { file, offset: PageIndex(0), shared: true, writable: true });
    }

    fn set(&self, knob: Knob, value: u64) {
        self.mm.mmu().knobs.set(knob, value).unwrap();
    }

    fn end_transfers(&self) {
        while self.end_one() {}
    }

    fn end_one(&self) -> bool {
        let Some(io) = self.mm.machine().next_io() else { return false };
        self.mm.io_done(&io);
        true
    }

    fn fault(&self, page: u64, access: AccessKind) -> FaultDone {
        self.mm.fault(self.space, Vpn(AT.0 + page), access).unwrap()
    }

    fn load(&self, page: u64) -> FaultDone {
        self.fault(page, AccessKind::Load)
    }

    /// What a load adds to pgfault.
    fn faults_of_load(&self, page: u64) -> i64 {
        let before = self.count(Stat::Pgfault);
        self.load(page);
        self.count(Stat::Pgfault) - before
    }

    fn bits(&self, page: u64) -> Option<Bits> {
        let tables = self.mm.core.tables.lock(self.mm.mmu(), self.space);
        let entry = tables.find(Vpn(AT.0 + page))?.entry;
        entry.is_present().then(|| entry.bits())
    }

    fn mapped(&self, pages: u64) -> Vec<u64> {
        (0..pages).filter(|&page| self.bits(page).is_some()).collect()
    }

    /// Swap out the first pages, which are mapped and anonymous, in this order.
    fn swap_out(&self, pages: impl IntoIterator<Item = u64>) {
        let core = &self.mm.core;
        for page in pages {
            let pfn = {
                let tables = core.tables.lock(self.mm.mmu(), self.space);
                tables.find(Vpn(AT.0 + page)).unwrap().entry.pfn()
            };
            for _ in 0..2 {
                if core.lru.isolate(self.mm.mmu(), pfn) {
                    reclaim::pageout(core, &self.mm.reclaim, &self.mm, &[pfn]);
                }
                self.end_transfers();
            }
            assert_eq!(self.bits(page), None, "{page} must be swapped out");
        }
    }

    fn hardware_stores(&self, page: u64) {
        let mut tables = self.mm.core.tables.lock(self.mm.mmu(), self.space);
        let slot = tables.find(Vpn(AT.0 + page)).unwrap().slot;
        tables.mark_used(slot, true);
    }

    fn count(&self, stat: Stat) -> i64 {
        self.mm.mmu().stats.read(stat)
    }
}

/// Pages that a miss has read are mapped once they have arrived.
#[test]
fn fault_maps_around_after_read_ahead() {
    let bench = Bench::new();
    bench.map_file(64);
    assert_eq!(bench.load(3), FaultDone::Major);
    // The read-ahead window is pages 0 to 31, the last eight of which begin with the marked page. The fault-around
    // window is pages 0 to 15.
    assert_eq!(bench.mapped(64), (0..16).collect::<Vec<_>>());
    bench.mm.validate().unwrap();
}

/// Linux counts a major fault for the task that had the page read, not for those that wait for it.
#[test]
fn waiting_for_another_tasks_read_is_a_minor_fault() {
    let bench = Bench::new();
    bench.set(Knob::FaultAroundBytes, 4096);
    bench.map_file(64);
    // Only the first fault's own page arrives before the fault continues.
    *bench.mm.machine().idle.lock() = Some(Box::new(|_| assert!(bench.end_one())));
    assert_eq!(bench.load(0), FaultDone::Major);
    assert!(bench.mm.machine().ios.lock().len() > 5, "the other reads must still be under way");
    assert_eq!((bench.load(1), bench.load(2)), (FaultDone::Minor, FaultDone::Minor));
    assert_eq!(bench.mapped(64), [0, 1, 2]);
}

#[test]
fn waiting_for_swap_read_ahead_is_a_minor_fault() {
    let bench = Bench::new();
    bench.swapped(16);
    *bench.mm.machine().idle.lock() = Some(Box::new(|_| assert!(bench.end_one())));
    let mut reads_ahead = |&page: &u64| {
        assert_eq!(bench.load(page), FaultDone::Major);
        !bench.mm.machine().ios.lock().is_empty()
    };
    let page = (0..8).find(&mut reads_ahead).expect("some page must be read ahead");
    assert_eq!(bench.load(page + 1), FaultDone::Minor);
}

/// Cached neighbours are mapped whether or not the page itself is cached.
#[test]
fn fault_maps_cached_neighbours_of_a_missing_page() {
    let bench = Bench::new();
    bench.map_file(64);
    bench.set(Knob::ReadAheadKb, 0);
    bench.set(Knob::FaultAroundBytes, 4096);
    [4, 5, 9].iter().for_each(|&page| assert_eq!(bench.load(page), FaultDone::Major));
    let core = &bench.mm.core;
    bench.mm.munmap(bench.space, AT, 64).unwrap();
    let file = core.cache.ids().next().unwrap();
    let backing = Backing::File { file, offset: PageIndex(0), shared: true, writable: true };
    bench.map(64, backing);
    bench.set(Knob::FaultAroundBytes, 65536);
    // They are mapped before the read has ended.
    *bench.mm.machine().idle.lock() = Some(Box::new(|_| {
        assert_eq!(bench.mapped(64), [4, 5, 9]);
        bench.end_transfers();
    }));
    assert_eq!(bench.load(7), FaultDone::Major);
    assert_eq!(bench.mapped(64), [4, 5, 7, 9]);
    bench.mm.validate().unwrap();
}

/// An exclusive page comes back writable, and becomes dirty only with a store.
#[test]
fn load_of_an_exclusive_swapped_page_maps_it_writable() {
    let bench = Bench::new();
    bench.swapped(4);
    bench.load(0);
    let bits = bench.bits(0).unwrap();
    assert!(bits.contains(Bits::WRITE) && !bits.contains(Bits::DIRTY));
    bench.swap_out([0]);
    assert_eq!(bench.count(Stat::PswpOut), 4, "pages without a store must not be written again");
    bench.load(0);
    bench.hardware_stores(0);
    bench.swap_out([0]);
    assert_eq!((bench.count(Stat::PswpOut), bench.count(Stat::Pgreuse)), (5, 0));
    bench.mm.validate().unwrap();
}

/// In Linux 6.1 a load maps it read-only, and the store after it is another fault.
#[test]
fn in_the_form_of_6_1_a_store_after_a_load_reuses_the_swapped_page() {
    let bench = Bench::new();
    bench.set(Knob::FaultForm, FaultForm::V61.value());
    bench.set(Knob::PageCluster, 0);
    bench.swapped(2);
    bench.load(0);
    assert!(!bench.bits(0).unwrap().contains(Bits::WRITE));
    assert_eq!([0, 1].map(|page| bench.fault(page, AccessKind::Store)), [FaultDone::Minor, FaultDone::Major]);
    assert!([0, 1].iter().all(|&page| bench.bits(page).unwrap().contains(Bits::WRITE)));
    assert_eq!(bench.count(Stat::Pgreuse), 1);
    bench.mm.validate().unwrap();
}

/// In Linux 6.1 a fault that begins again after the read of a file's page counts once more, also if another task has it
/// read.
#[test]
fn in_the_form_of_6_1_faults_that_wait_for_files_count_twice() {
    for (form, expected) in [(FaultForm::V612, [1, 1, 1]), (FaultForm::V61, [2, 2, 1])] {
        let bench = Bench::new();
        bench.set(Knob::FaultForm, form.value());
        bench.set(Knob::FaultAroundBytes, 4096);
        bench.map_file(64);
        *bench.mm.machine().idle.lock() = Some(Box::new(|_| assert!(bench.end_one())));
        assert_eq!([0, 1, 0].map(|page| bench.faults_of_load(page)), expected, "{form:?}");
    }
}

/// A page that is read alone from swap is awaited within the fault.
#[test]
fn in_the_form_of_6_1_faults_that_swap_in_several_pages_count_twice() {
    for (form, expected) in [(FaultForm::V612, 1), (FaultForm::V61, 2)] {
        let bench = Bench::new();
        bench.set(Knob::FaultForm, form.value());
        bench.swapped(16);
        bench.set(Knob::PageCluster, 0);
        assert_eq!(bench.faults_of_load(0), 1, "{form:?}, alone");
        bench.set(Knob::PageCluster, 3);
        let reads_ahead = |&page: &u64| {
            let before = bench.count(Stat::SwapRa);
            let faults = bench.faults_of_load(page);
            let reads = bench.count(Stat::SwapRa) > before;
            assert!(!reads || faults == expected, "{form:?}, page {page}: {faults}");
            reads
        };
        (1..9).find(reads_ahead).expect("some page must be read ahead");
    }
}

/// A writable page would have to be flushed at once when reclaim takes it.
#[test]
fn load_maps_swapped_pages_read_only_under_deferring_policies() {
    for policy in [FlushPolicy::Lazy.value(), FlushPolicy::Latr.value()] {
        let bench = Bench::new();
        bench.set(Knob::TlbUnmap, policy);
        bench.swapped(4);
        bench.load(0);
        assert!(!bench.bits(0).unwrap().contains(Bits::WRITE), "{policy}");
        assert_eq!(bench.fault(0, AccessKind::Store), FaultDone::Minor);
        assert!(bench.bits(0).unwrap().contains(Bits::WRITE | Bits::DIRTY), "{policy}");
    }
}

#[test]
fn mprotect_restores_writes_to_exclusive_pages() {
    let bench = Bench::new();
    bench.stored(8, 4);
    bench.load(5);
    let writable = || (0..8).filter(|&page| bench.bits(page).is_some_and(|bits| bits.contains(Bits::WRITE)));
    for prot in [Prot::READ, Prot::NONE] {
        bench.mm.mprotect(bench.space, AT, 8, prot).unwrap();
        assert_eq!(writable().count(), 0);
        bench.mm.mprotect(bench.space, Vpn(AT.0 + 1), 7, Prot::RW).unwrap();
        assert_eq!(writable().collect::<Vec<_>>(), [1, 2, 3], "page 5 is the page of zeroes");
    }
    // The next store copies a page that a child shares.
    bench.mm.mprotect(bench.space, AT, 8, Prot::RW).unwrap();
    let child = bench.mm.fork(bench.space).unwrap();
    bench.mm.mprotect(bench.space, AT, 8, Prot::READ).unwrap();
    bench.mm.mprotect(bench.space, AT, 8, Prot::RW).unwrap();
    assert_eq!(writable().count(), 0);
    bench.mm.exit_space(child);
    bench.mm.validate().unwrap();
}

/// Swap read-ahead follows addresses, wherever reclaim has put the pages in swap.
#[test]
fn swap_read_ahead_follows_addresses() {
    for by_address in [1, 0] {
        let bench = Bench::new();
        bench.set(Knob::SwapVmaRaEnabled, by_address);
        bench.stored(64, 64);
        // Each is eight slots from its neighbours.
        bench.swap_out((0..64).map(|at| at % 8 * 8 + at / 8));
        assert_eq!(bench.load(3), FaultDone::Major);
        bench.end_transfers();
        assert_eq!(bench.count(Stat::SwapRa), by_address as i64 * 7);
        let expected = if by_address == 1 { FaultDone::Minor } else { FaultDone::Major };
        [0, 2, 4, 7].into_iter().for_each(|page| assert_eq!(bench.load(page), expected, "page {page}"));
        bench.mm.validate().unwrap();
    }
}

/// A load maps all of a cached folio. Where unused pages are spared a flush, only its own page counts as used.
#[test]
fn load_maps_a_large_file_folio_around_its_page() {
    for (policy, marks_all) in [(FlushPolicy::Batch, true), (FlushPolicy::Abis, false)] {
        for (page, shared) in [(0, true), (5, true), (15, true), (5, false)] {
            let bench = Bench::new();
            bench.set(Knob::TlbUnmap, policy.value());
            bench.set(Knob::ShmemMaxOrder, 4);
            let file = bench.mm.create_file(FileKind::Shmem, 16 * PAGE_SIZE);
            bench.mm.write(file, 0, 16 * PAGE_SIZE, ROOT, &mut |_, _, _| ()).unwrap();
            bench.map(16, Backing::File { file, offset: PageIndex(0), shared, writable: true });
            bench.load(page);
            assert_eq!(bench.mapped(16), (0..16).collect::<Vec<_>>(), "{policy:?}, page {page}");
            let used =
                (0..16).filter(|&page| bench.bits(page).is_some_and(|bits| bits.contains(Bits::YOUNG)));
            let expected: Vec<u64> = if marks_all { (0..16).collect() } else { std_alloc::vec![page] };
            assert_eq!(used.collect::<Vec<_>>(), expected, "{policy:?}");
        }
    }
}

/// Since Linux 7.2 any fault on a large folio maps it whole, also beyond the window around the fault.
#[test]
fn in_the_form_of_7_2_a_fault_maps_a_large_folio_whole() {
    // A file that is one folio of 16 pages, mapped from page `offset` on.
    let bench = |form: FaultForm, around: u64, offset: u64| {
        let bench = Bench::new();
        bench.set(Knob::FaultForm, form.value());
        bench.set(Knob::FaultAroundBytes, around);
        bench.set(Knob::ShmemMaxOrder, 4);
        let file = bench.mm.create_file(FileKind::Shmem, 16 * PAGE_SIZE);
        bench.mm.write(file, 0, 16 * PAGE_SIZE, ROOT, &mut |_, _, _| ()).unwrap();
        let offset = PageIndex(offset);
        bench.map(16 - offset.0, Backing::File { file, offset, shared: true, writable: true });
        bench
    };
    for (access, around, before, now) in [
        (AccessKind::Load, PAGE_SIZE, (1, 0), (16, 0)),
        (AccessKind::Load, 4 * PAGE_SIZE, (4, 0), (16, 0)),
        (AccessKind::Store, PAGE_SIZE, (1, 1), (16, 16)),
    ] {
        let mapped = |form| {
            let bench = bench(form, around, 0);
            bench.fault(5, access);
            let pages = bench.mapped(16);
            let is_dirty = |&&page: &&u64| bench.bits(page).unwrap().contains(Bits::DIRTY);
            bench.mm.validate().unwrap();
            (pages.len(), pages.iter().filter(is_dirty).count())
        };
        assert_eq!([FaultForm::V612, FaultForm::V72].map(mapped), [before, now], "{access:?} {around}");
    }
    // A range that shows a part of the folio gets single pages.
    let part = bench(FaultForm::V72, PAGE_SIZE, 4);
    part.load(2);
    assert_eq!(part.mapped(12), [2]);
}

/// In Linux 7.3 a store that swaps in a page that a child once shared finds out after it is mapped that it is alone.
#[test]
fn in_the_form_of_7_3_a_store_to_a_once_shared_page_reuses_it() {
    for (form, reused) in [(FaultForm::V72, 0), (FaultForm::V73, 1)] {
        let bench = Bench::new();
        bench.set(Knob::FaultForm, form.value());
        bench.set(Knob::PageCluster, 0);
        bench.swapped(1);
        let child = bench.mm.fork(bench.space).unwrap();
        bench.mm.exit_space(child);
        bench.fault(0, AccessKind::Store);
        assert!(bench.bits(0).unwrap().contains(Bits::WRITE | Bits::DIRTY), "{form:?}");
        assert_eq!(bench.count(Stat::Pgreuse), reused, "{form:?}");
        bench.mm.validate().unwrap();
    }
}

/// Since Linux 7.2 a fault on program text reads from its page on, where others read around it.
#[test]
fn in_the_form_of_7_2_text_is_read_forward() {
    // The window around the fault is pages 32 to 47.
    for (form, prot, first) in [
        (ReadAheadForm::V612, Prot::READ | Prot::EXEC, 32),
        (ReadAheadForm::V72, Prot::READ, 32),
        (ReadAheadForm::V72, Prot::READ | Prot::EXEC, 40),
    ] {
        let bench = Bench::new();
        bench.set(Knob::ReadAheadForm, form.value());
        bench.map_file(64);
        bench.mm.mprotect(bench.space, AT, 64, prot).unwrap();
        bench.load(40);
        assert_eq!(bench.mapped(64), (first..48).collect::<Vec<_>>(), "{form:?} {prot:?}");
    }
}
