//! Tests of page tables against a model that is a map.

use super::*;
use crate::alloc::{Reserve, Watermark};
use crate::knobs::Knobs;
use crate::machine::Flush;
use crate::testing::TestMachine;
use crate::tlb::Finished;
use proptest::prelude::*;
use std_alloc::collections::BTreeMap;
use std_alloc::vec::Vec;

const MEANS: Means = Means::new(Watermark::Min, Reserve::None);
const SPACE: SpaceId = SpaceId(0);

struct Bench {
    mmu: Mmu<TestMachine>,
    alloc: Allocator,
    tables: Tables,
}

impl Bench {
    fn new() -> Bench {
        let mmu = Mmu::new(TestMachine::simple(1, 4096), Knobs::default());
        let alloc = Allocator::new(&mmu).unwrap();
        assert_eq!(mmu.tlb.create(), SPACE);
        let tables = Tables::default();
        tables.create(&mmu, &alloc, SPACE, MEANS).unwrap();
        Bench { mmu, alloc, tables }
    }

    fn lock(&self) -> LockedTables<'_, TestMachine> {
        self.tables.lock(&self.mmu, SPACE)
    }

    fn set(&self, page: Vpn, entry: Entry) -> Entry {
        let mut tables = self.lock();
        let slot = tables.reserve(&self.alloc, page, MEANS).unwrap();
        tables.replace(slot, entry)
    }

    /// Map a folio that fills a large entry.
    fn map_large(&self, page: Vpn, head: Pfn) {
        self.mmu.frames.make_folio(head, PAGEBLOCK_ORDER);
        let mut tables = self.lock().settle();
        tables.deposit(&self.alloc, MEANS).unwrap();
        let slot = tables.reserve_large(&self.alloc, page, MEANS).unwrap();
        tables.install_large(slot.unwrap(), page, head, Rights::USER, Writes::No);
    }

    fn gather(&self, change: impl FnOnce(&mut Gather)) {
        let free = |finished: Finished<'_>| self.tables.free_tables(&self.mmu, &self.alloc, finished.tables);
        self.mmu.tlb.gather(self.mmu.host(), SPACE, change, free);
    }
}

fn entry(n: u32) -> Entry {
    Entry::new(Pfn(n % 4096), Bits::PRESENT | Bits::USER)
}

#[test]
fn an_entry_is_found_where_it_was_put() {
    let bench = Bench::new();
    let page = Vpn(0x7_1234_5678);
    assert!(bench.lock().find(page).is_none());
    assert_eq!(bench.set(page, entry(7)), Entry::NONE);
    let leaf = bench.lock().find(page).unwrap();
    assert_eq!((leaf.entry, leaf.page, leaf.order), (entry(7), page, Order::ZERO));
    assert_eq!(bench.lock().counts().tables(), 4);
}

#[test]
fn a_large_entry_is_found_from_each_of_its_pages() {
    let bench = Bench::new();
    let page = Vpn(512 * 9);
    bench.map_large(page, Pfn(512));
    let leaf = bench.lock().find(Vpn(page.0 + 77)).unwrap();
    assert_eq!((leaf.page, leaf.order, leaf.entry.pfn()), (page, Order(9), Pfn(512)));
    let mut seen = Vec::new();
    bench.lock().for_each(Vpn(0), USER_END, |_, leaf| seen.push((leaf.page, leaf.order)));
    assert_eq!(seen, [(page, Order(9))]);
    assert_eq!(bench.lock().validate(), Ok(1));
}

#[test]
fn a_large_entry_becomes_a_table_that_says_the_same() {
    let bench = Bench::new();
    let page = Vpn(512 * 9);
    bench.map_large(page, Pfn(512));
    let mut tables = bench.lock();
    assert_eq!(tables.reserve_large(&bench.alloc, page, MEANS), Ok(None));
    let leaf = tables.find(Vpn(page.0 + 77)).unwrap();
    tables.mark_used(leaf.slot, true);
    // A page whose flush is deferred owes for the whole table. A table that replaces its entry takes over the debt.
    bench.mmu.frames[leaf.slot.table].set_debt(5);
    // No CPU uses the large translation alongside the new ones.
    bench.mmu.tlb.switch(bench.mmu.host(), SPACE, bench.tables.root(SPACE));
    bench.mmu.machine.hold(Vpn(page.0 + 300), Pfn(512 + 300), false);
    assert!(tables.split_large(&leaf).into_head().is_some());
    assert_eq!(bench.mmu.machine.held(CpuId(0), Vpn(page.0 + 300)), None);
    let whole = Flush::Pages { start: page, count: 1, stride: PAGEBLOCK_ORDER };
    assert_eq!(bench.mmu.machine.flushes.lock().last(), Some(&(CpuId(0), whole)));
    let leaf = tables.find(Vpn(page.0 + 77)).unwrap();
    assert_eq!((leaf.page, leaf.order, leaf.entry.pfn()), (Vpn(page.0 + 77), Order::ZERO, Pfn(512 + 77)));
    assert_eq!(leaf.entry.bits(), Bits::PRESENT | Bits::USER | Bits::YOUNG | Bits::DIRTY);
    assert_eq!(bench.mmu.frames[leaf.slot.table].debt(), 5);
    assert_eq!((tables.validate(), tables.counts().tables()), (Ok(512), 4));
}

#[test]
#[should_panic(expected = "is not what its address shows")]
fn only_a_page_of_a_cache_is_mapped_without_settling() {
    let bench = Bench::new();
    let mut tables = bench.lock();
    let slot = tables.reserve(&bench.alloc, Vpn(7), MEANS).unwrap();
    let shown = Shown::in_range(FileId(0), PageIndex(7));
    tables.install_unchanged(
        (slot, Vpn(7)),
        FolioPages::one(&bench.mmu.frames, Pfn(77)),
        shown,
        Rights::USER,
    );
}

/// The compiler allows assignment through the reference.
#[test]
#[should_panic(expected = "must be settled in this hold of the lock")]
fn a_lock_in_the_place_of_a_settled_one_is_refused() {
    let bench = Bench::new();
    let other = bench.mmu.tlb.create();
    bench.tables.create(&bench.mmu, &bench.alloc, other, MEANS).unwrap();
    let mut settled = bench.tables.lock(&bench.mmu, other).settle();
    *settled = bench.lock();
    let slot = settled.reserve(&bench.alloc, Vpn(7), MEANS).unwrap();
    let pages = FolioPages::one(&bench.mmu.frames, Pfn(77));
    settled.install(slot, Vpn(7), pages, Rights::USER, Writes::Private);
}

#[test]
fn hardware_bits_set_before_an_exchange_are_not_lost() {
    let bench = Bench::new();
    bench.set(Vpn(3), entry(9));
    let mut tables = bench.lock();
    let slot = tables.find(Vpn(3)).unwrap().slot;
    tables.set_bits(slot, 1, Bits::YOUNG | Bits::DIRTY);
    assert!(tables.replace(slot, Entry::NONE).has(Bits::YOUNG | Bits::DIRTY));
}

#[derive(Clone, Debug)]
enum Op {
    Set(u64, u32),
    Clear(u64),
    TakeEmpty(u64, u64),
    Visit(u64, u64),
}

/// Pages close to each other and far apart, so that the paths branch at all levels.
fn page() -> impl Strategy<Value = u64> {
    (0u64..3, 0u64..3, 0u64..3, 0u64..5).prop_map(|(a, b, c, d)| a << 27 | b << 18 | c << 9 | (d * 127))
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (page(), 1u32..4096).prop_map(|(page, n)| Op::Set(page, n)),
        2 => page().prop_map(Op::Clear),
        1 => (page(), page()).prop_map(|(a, b)| Op::TakeEmpty(a.min(b), a.max(b) + 1)),
        1 => (page(), page()).prop_map(|(a, b)| Op::Visit(a.min(b), a.max(b) + 1)),
    ]
}

proptest! {
    /// Any sequence of sets and clears gives the same entries as a map does, in order, and empty tables are freed.
    #[test]
    fn tables_are_a_map(ops in prop::collection::vec(op(), 1..120)) {
        let bench = Bench::new();
        let free = bench.mmu.stats.read(Stat::NrFreePages);
        let mut model = BTreeMap::new();
        for op in ops {
            match op {
                Op::Set(page, n) => {
                    let old = bench.set(Vpn(page), entry(n));
                    prop_assert_eq!(old, model.insert(page, entry(n)).unwrap_or(Entry::NONE));
                }
                Op::Clear(page) => {
                    let mut tables = bench.lock();
                    let old = tables.find(Vpn(page)).map_or(Entry::NONE, |leaf| tables.replace(leaf.slot, Entry::NONE));
                    prop_assert_eq!(old, model.remove(&page).unwrap_or(Entry::NONE));
                }
                Op::TakeEmpty(start, end) => {
                    let range = (Vpn(start), Vpn(end));
                    bench.gather(|gather| bench.lock().take_empty_tables(range, (Vpn(0), USER_END), gather));
                }
                Op::Visit(start, end) => {
                    let mut seen = Vec::new();
                    bench.lock().for_each(Vpn(start), Vpn(end), |_, leaf| seen.push((leaf.page.0, leaf.entry)));
                    prop_assert_eq!(seen, model.range(start..end).map(|(&p, &e)| (p, e)).collect::<Vec<_>>());
                }
            }
            prop_assert_eq!(bench.lock().validate(), Ok(model.len() as u64));
        }
        let mut tables = bench.lock();
        tables.for_each(Vpn(0), USER_END, |tables, leaf| {
            tables.replace(leaf.slot, Entry::NONE);
        });
        drop(tables);
        bench.gather(|gather| bench.tables.destroy(&bench.mmu, SPACE, gather));
        bench.alloc.drain_all(&bench.mmu);
        // The root was taken before `free` was read. Pages on CPUs' lists at that time are back, too.
        prop_assert!(bench.mmu.stats.read(Stat::NrFreePages) > free);
        prop_assert_eq!(bench.mmu.stats.read(Stat::NrPageTablePages), 0);
        bench.alloc.validate(&bench.mmu).unwrap();
    }
}

/// A folio of 16 pages at frame 512, whose pages from `first` on are mapped from `page` on.
fn map_folio(bench: &Bench, page: u64, first: u32, count: u32, bits: Bits) {
    bench.mmu.frames.make_folio(Pfn(512), Order(4));
    for i in 0..count {
        let entry = Entry::new(Pfn(512 + first + i), Bits::PRESENT | Bits::USER | bits);
        bench.set(Vpn(page + i as u64), entry);
    }
}

fn runs(bench: &Bench, start: u64, end: u64) -> Vec<(u64, u32)> {
    let mut runs = Vec::new();
    bench.lock().for_each(Vpn(start), Vpn(end), |_, run| runs.push((run.page.0, run.count)));
    runs
}

#[test]
fn a_run_ends_with_its_folio_its_range_and_its_table() {
    let bench = Bench::new();
    map_folio(&bench, 504, 0, 16, Bits::empty());
    bench.set(Vpn(520), entry(528));
    assert_eq!(runs(&bench, 0, 1024), [(504, 8), (512, 8), (520, 1)], "its table, its folio");
    assert_eq!(runs(&bench, 506, 510), [(506, 4)]);
    assert_eq!(bench.lock().find_run(Vpn(509), Vpn(600)).unwrap().count, 3);
    bench.mmu.knobs.set(crate::knobs::Knob::RmapBatch, 0).unwrap();
    assert_eq!(runs(&bench, 506, 508), [(506, 1), (507, 1)], "entry by entry if so wanted");
}

#[test]
fn a_run_ends_at_a_hole_at_a_stranger_and_where_rights_differ() {
    let bench = Bench::new();
    map_folio(&bench, 100, 0, 16, Bits::empty());
    bench.set(Vpn(103), Entry::NONE);
    bench.set(Vpn(106), entry(7));
    bench.set(Vpn(110), Entry::new(Pfn(522), Bits::PRESENT | Bits::USER | Bits::WRITE));
    bench.set(Vpn(113), Entry::new(Pfn(512), Bits::PRESENT | Bits::USER));
    let expected = [(100, 3), (104, 2), (106, 1), (107, 3), (110, 1), (111, 2), (113, 1), (114, 2)];
    assert_eq!(runs(&bench, 0, 512), expected);
}

#[test]
fn a_run_has_the_marks_of_all_its_entries() {
    let bench = Bench::new();
    map_folio(&bench, 100, 0, 16, Bits::empty());
    for (page, mark) in [(102, Bits::YOUNG), (107, Bits::DIRTY), (115, Bits::AGED)] {
        bench.set(Vpn(page), Entry::new(Pfn(512 + page as u32 - 100), Bits::PRESENT | Bits::USER | mark));
    }
    let mut tables = bench.lock();
    let run = tables.find_run(Vpn(100), Vpn(512)).unwrap();
    assert_eq!(run.count, 16);
    assert!(run.entry.has(Bits::YOUNG | Bits::DIRTY | Bits::AGED));
    let (head, rest) = run.split(4);
    assert_eq!((head.end(), rest.unwrap().entry.pfn(), rest.unwrap().count), (Vpn(104), Pfn(516), 12));
    let emptied = tables.empty_run(&run, |_| Absent::None);
    assert!(emptied.entry().has(Bits::YOUNG | Bits::DIRTY | Bits::AGED));
    assert_eq!(tables.empty_from(run.slot, 16), 16);
    tables.restore(&run, emptied);
    drop(tables);
    assert_eq!((runs(&bench, 0, 512), bench.lock().validate()), (std_alloc::vec![(100, 16)], Ok(16)));
}
