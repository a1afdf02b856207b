//! Folios and runs of which a range shows only a part, and large folios of files.

use super::*;

const LARGE: Order = Order(2);

impl Bench {
    /// A folio of 4 pages of the file at index 0. The spans show it from pages 100 and 200 on.
    fn large_of_file(&self) -> Pfn {
        self.link(Owner::File(FILE), SpanFlags::SHARED);
        self.folio_of(LARGE, Owner::File(FILE), 0, FrameFlags::UPTODATE)
    }
}

#[test]
fn large_folio_shown_by_two_ranges_unmaps_to_consecutive_slots() {
    let bench = Bench::new();
    let pfn = bench.folio_of(LARGE, Owner::Anon(bench.set), 0, FrameFlags::SWAPBACKED);
    for (i, start) in [(0, 100), (1, 200)] {
        let (span, index) = (Bench::span(i, bench.spaces[i], SpanFlags::empty()), 2 * i as u64);
        bench.rmap.relink(Owner::Anon(bench.set), Span { pages: 2, index: PageIndex(index), ..span });
        for at in 0..2 {
            bench.map(i, start + at, pfn.add((index + at) as u32), Bits::empty());
        }
    }
    let slots: Vec<_> = (0..4).map(|_| bench.memory.swap.alloc(&bench.memory, GroupId(0)).unwrap()).collect();
    bench.memory.swap.cache_insert(&bench.memory, slots[0], pfn);
    assert!(bench.unmap(pfn));
    let shown = [(0, 100), (0, 101), (1, 200), (1, 201)];
    let left = shown.map(|(i, page)| bench.entry(i, page).as_swap().map(|(slot, _)| slot));
    assert_eq!(left[..], slots.into_iter().map(Some).collect::<Vec<_>>()[..]);
}

#[test]
fn one_dirty_entry_makes_a_large_folio_of_a_file_dirty() {
    for bits in [Bits::empty(), Bits::DIRTY] {
        let bench = Bench::new();
        let pfn = bench.large_of_file();
        (0..4).for_each(|at| {
            bench.map(0, 100 + at, pfn.add(at as u32), if at == 2 { bits } else { Bits::empty() })
        });
        let mut batch = UnmapBatch::new(bench.memory.host());
        let run = FolioRun::one(&pfn);
        let dirty = bench.rmap.try_to_unmap(&bench.memory, run, UnmapMode::default(), &mut batch);
        assert_eq!(dirty.is_empty(), bits.is_empty());
        batch.settle(bench.memory.host(), &bench.memory.tlb);
        assert_eq!(bench.memory.frames[pfn].mapcount(), 0);
    }
}

/// A call on another CPU has taken the entries away, but has not flushed yet.
#[test]
fn mkclean_flushes_all_pages_of_a_large_folio_for_a_call_under_way() {
    let bench = Bench::new();
    let pfn = bench.large_of_file();
    bench.memory.machine.run_on(1);
    bench.memory.tlb.switch(bench.memory.host(), bench.spaces[0], Pfn(1));
    (0..4).for_each(|at| bench.memory.machine.hold(Vpn(100 + at), pfn.add(at as u32), true));
    bench.memory.machine.run_on(0);
    bench.memory.tlb.begin_tightening(bench.spaces[0]);
    assert!(!bench.rmap.mkclean(&bench.memory, pfn));
    let held = [100, 101, 102, 103].map(|page| bench.memory.machine.held(CpuId(1), Vpn(page)));
    assert_eq!(held, [None; 4]);
}

/// The pages behind a range's end in the same table belong to another range, which is locked in memory.
#[test]
fn run_across_the_border_of_a_locked_range_keeps_what_is_locked() {
    let bench = Bench::new();
    for (at, flags) in [SpanFlags::SHARED, SpanFlags::LOCKED].into_iter().enumerate() {
        let span = Bench::span(at, bench.spaces[0], flags);
        let (start, index) = (Vpn(300 + 2 * at as u64), PageIndex(2 * at as u64));
        bench.rmap.link(Owner::File(FILE), Span { start, index, pages: 2, ..span });
    }
    let pfns: [Pfn; 4] = core::array::from_fn(|index| {
        let pfn = bench.folio(Owner::File(FILE), index as u64, FrameFlags::UPTODATE);
        bench.map(0, 300 + index as u64, pfn, Bits::YOUNG);
        pfn
    });
    let run = FolioRun::first(&pfns, 4);
    let found = bench.rmap.referenced(&bench.memory, run, None, None);
    assert_eq!(found.map(|found| found.locked), [false, false, true, true]);
    let mut batch = UnmapBatch::new(bench.memory.host());
    bench.rmap.try_to_unmap(&bench.memory, run, UnmapMode::default(), &mut batch);
    batch.settle(bench.memory.host(), &bench.memory.tlb);
    assert_eq!(pfns.map(|pfn| bench.memory.frames[pfn].mapcount()), [0, 0, 1, 1]);
}

/// The first span has no table for the pages before the border, which only the other span maps.
#[test]
fn run_continues_in_the_next_table_after_a_hole() {
    let young = |maps: bool| maps.then_some(Bits::YOUNG);
    let entries = core::array::from_fn(|index| [young(index >= 4), young((2..4).contains(&index))]);
    let file = FileBench::new(1, &entries, [SpanFlags::SHARED; 2]);
    let found = file.bench.rmap.referenced(&file.bench.memory, file.run(), None, None);
    assert_eq!(found.map(|found| found.vmas), [0, 0, 1, 1, 1, 1, 1, 1]);
}
