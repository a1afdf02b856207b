//! Folios mapped by hand in two spaces.

mod parts;

use super::*;
use crate::alloc::{Allocator, Means, Reserve, Watermark};
use crate::api::SwapArea;
use crate::event::Event;
use crate::frame::FrameFlags;
use crate::knobs::{FlushPolicy, Knob, Knobs};
use crate::lru::Lru;
use crate::memory::Gfp;
use crate::mmu::Mmu;
use crate::stat::Stat;
use crate::swap::Swap;
use crate::table::{Bits, Entry, Resident};
use crate::testing::TestMachine;
use crate::tlb::UnmapBatch;
use pagefold_flush::inside::Inside;
use proptest::prelude::*;
use std_alloc::vec::Vec;

const MEANS: Means = Means::new(Watermark::Min, Reserve::None);

struct Bench {
    memory: Memory<TestMachine>,
    rmap: Rmap,
    spaces: [SpaceId; 2],
    set: AnonId,
}

impl Bench {
    /// Two spaces, each with a range of 8 pages at page 100 (second: 200) of one anonymous set.
    fn new() -> Bench {
        let mmu = Mmu::new(TestMachine::simple(2, 2048), Knobs::default());
        let alloc = Allocator::new(&mmu).unwrap();
        let lru = Lru::new(&mmu.machine);
        let swap = Swap::new(&[SwapArea { device: DeviceId(1), pages: 64, priority: 0, zram: None }], 2);
        let memory = Memory::new(mmu, swap, alloc, lru);
        let rmap = Rmap::default();
        let spaces = [memory.tlb.create(), memory.tlb.create()];
        for space in spaces {
            memory.tables.create(&memory, &memory.alloc, space, MEANS).unwrap();
        }
        let set = rmap.create_anon();
        let bench = Bench { memory, rmap, spaces, set };
        bench.link(Owner::Anon(set), SpanFlags::empty());
        bench
    }

    fn link(&self, owner: Owner, flags: SpanFlags) {
        for (i, &space) in self.spaces.iter().enumerate() {
            self.rmap.link(owner, Self::span(i, space, flags));
        }
    }

    fn span(i: usize, space: SpaceId, flags: SpanFlags) -> Span {
        let (vma, start) = (VmaId(i as u32 + 1), Vpn(100 * (i as u64 + 1)));
        Span { vma, space, group: GroupId(0), start, pages: 8, index: PageIndex(0), flags }
    }

    fn folio(&self, owner: Owner, index: u64, flags: FrameFlags) -> Pfn {
        self.folio_of(Order::ZERO, owner, index, flags)
    }

    fn folio_of(&self, order: Order, owner: Owner, index: u64, flags: FrameFlags) -> Pfn {
        let pfn = self.memory.new_folio(order, Gfp::user(GroupId(0))).unwrap();
        self.memory.frames[pfn].set_owner(owner, PageIndex(index));
        self.memory.frames[pfn].set(flags | FrameFlags::LOCKED);
        pfn
    }

    /// An anonymous folio with this index, and the first space's entry for it.
    fn anon(&self, index: u64, flags: FrameFlags, bits: Bits) -> Pfn {
        let pfn = self.folio(Owner::Anon(self.set), index, flags);
        self.map(0, 100 + index, pfn, bits);
        pfn
    }

    /// Add a folio to the swap cache.
    fn swap_cache(&self, pfn: Pfn) -> SwapSlot {
        let slot = self.memory.swap.alloc(&self.memory, GroupId(0)).unwrap();
        self.memory.frames[pfn].get(1);
        self.memory.swap.cache_insert(&self.memory, slot, pfn);
        slot
    }

    /// A folio of 4 pages at index 0, mapped in both spaces.
    fn large_folio(&self, flags: FrameFlags) -> Pfn {
        let pfn = self.folio_of(Order(2), Owner::Anon(self.set), 0, flags);
        for (i, start) in [(0, 100), (1, 200)] {
            for at in 0..4 {
                self.map(i, start + at as u64, pfn.add(at), Bits::empty());
            }
        }
        pfn
    }

    fn map(&self, i: usize, page: u64, pfn: Pfn, bits: Bits) {
        self.memory.frames[self.memory.frames.head(pfn)].get(1);
        self.rmap.add_range(&self.memory, FolioPages::one(&self.memory.frames, pfn));
        let mut tables = self.memory.tables.lock(&self.memory, self.spaces[i]);
        let slot = tables.reserve(&self.memory.alloc, Vpn(page), MEANS).unwrap();
        tables.place(slot, pfn, Bits::PRESENT | Bits::USER | bits);
        tables.counts().add(Resident::Anon, 1);
    }

    fn entry(&self, i: usize, page: u64) -> Entry {
        let tables = self.memory.tables.lock(&self.memory, self.spaces[i]);
        tables.find(Vpn(page)).unwrap().entry
    }

    fn referenced(&self, pfn: Pfn) -> Referenced {
        let [found] = self.rmap.referenced(&self.memory, FolioRun::one(&pfn), None, None);
        found
    }

    /// Unmap a folio; returns whether it is not mapped any more.
    fn unmap(&self, pfn: Pfn) -> bool {
        let mut batch = UnmapBatch::new(self.memory.host());
        self.rmap.try_to_unmap(&self.memory, FolioRun::one(&pfn), UnmapMode::default(), &mut batch);
        batch.settle(self.memory.host(), &self.memory.tlb);
        self.memory.frames[pfn].mapcount() == 0
    }
}

#[test]
fn referenced_counts_each_range_once_and_clears_young() {
    let bench = Bench::new();
    let pfn = bench.anon(3, FrameFlags::SWAPBACKED, Bits::YOUNG);
    bench.map(1, 203, pfn, Bits::empty());
    assert_eq!(bench.referenced(pfn).vmas, 1);
    assert_eq!(bench.referenced(pfn).vmas, 0);
    assert!(!bench.entry(0, 103).has(Bits::YOUNG));
    bench.rmap.validate_folio(&bench.memory, pfn).unwrap();
}

#[test]
fn referenced_ignores_ranges_without_recency() {
    let bench = Bench::new();
    let pfn = bench.anon(0, FrameFlags::SWAPBACKED, Bits::YOUNG);
    bench.rmap.relink(Owner::Anon(bench.set), Bench::span(0, bench.spaces[0], SpanFlags::NO_RECENCY));
    assert_eq!(bench.referenced(pfn).vmas, 0);
}

#[test]
fn unmapping_anonymous_page_leaves_swap_entries() {
    let bench = Bench::new();
    let mmu = &bench.memory;
    let pfn = bench.anon(1, FrameFlags::SWAPBACKED, Bits::DIRTY);
    bench.map(1, 201, pfn, Bits::empty());
    let slot = bench.swap_cache(pfn);
    assert!(bench.unmap(pfn) && bench.memory.frames[pfn].has(FrameFlags::DIRTY));
    assert_eq!(bench.entry(0, 101).as_swap(), Some((slot, false)));
    assert_eq!(bench.entry(1, 201).as_swap(), Some((slot, false)));
    assert_eq!(bench.memory.swap.entries(slot), 2);
    assert!(bench.memory.frames[pfn].has(FrameFlags::DIRTY));
    assert_eq!(mmu.stats.read(Stat::NrAnonPages), 0);
    let tables = bench.memory.tables.lock(mmu, bench.spaces[0]);
    assert_eq!((tables.counts().get(Resident::Anon), tables.counts().get(Resident::Swap)), (0, 1));
}

#[test]
fn unmapping_moves_exclusive_flag_to_swap_entry() {
    let bench = Bench::new();
    let pfn = bench.anon(1, FrameFlags::SWAPBACKED | FrameFlags::EXCLUSIVE, Bits::DIRTY);
    let slot = bench.swap_cache(pfn);
    assert!(bench.unmap(pfn));
    assert_eq!(bench.entry(0, 101).as_swap(), Some((slot, true)));
    // The folio is still in the swap cache. A fork now shares the entry and does not see the folio: the next fault must
    // not find the folio exclusive.
    assert!(!bench.memory.frames[pfn].has(FrameFlags::EXCLUSIVE));
}

#[test]
fn anonymous_page_without_slot_stays_mapped() {
    let bench = Bench::new();
    let pfn = bench.anon(1, FrameFlags::SWAPBACKED, Bits::empty());
    assert!(!bench.unmap(pfn));
    assert!(bench.entry(0, 101).is_present());
}

#[test]
fn page_written_after_madv_free_is_kept() {
    let bench = Bench::new();
    let (clean, written) = (Bits::empty(), Bits::DIRTY | Bits::WRITE);
    let dropped = bench.folio(Owner::Anon(bench.set), 1, FrameFlags::empty());
    let kept = bench.folio(Owner::Anon(bench.set), 2, FrameFlags::empty());
    bench.map(0, 101, dropped, clean);
    bench.map(0, 102, kept, written);
    assert!(bench.unmap(dropped));
    assert!(bench.entry(0, 101).is_none());
    assert!(!bench.unmap(kept));
    assert!(bench.entry(0, 102).has(written) && bench.memory.frames[kept].has(FrameFlags::SWAPBACKED));
}

#[test]
fn mlocked_range_keeps_its_pages() {
    let bench = Bench::new();
    let pfn = bench.anon(0, FrameFlags::empty(), Bits::YOUNG);
    bench.rmap.relink(Owner::Anon(bench.set), Bench::span(0, bench.spaces[0], SpanFlags::LOCKED));
    assert!(bench.referenced(pfn).locked);
    assert!(!bench.unmap(pfn));
}

#[test]
fn mkclean_write_protects_and_flushes() {
    let bench = Bench::new();
    let file = FileId(4);
    bench.link(Owner::File(file), SpanFlags::SHARED);
    let pfn = bench.folio(Owner::File(file), 5, FrameFlags::UPTODATE);
    bench.map(0, 105, pfn, Bits::WRITE | Bits::DIRTY);
    bench.map(1, 205, pfn, Bits::empty());
    bench.memory.machine.run_on(1);
    bench.memory.tlb.switch(bench.memory.host(), bench.spaces[0], Pfn(1));
    bench.memory.machine.run_on(0);
    assert!(bench.rmap.mkclean(&bench.memory, pfn));
    assert!(!bench.entry(0, 105).bits().intersects(Bits::WRITE | Bits::DIRTY));
    assert_eq!(bench.memory.machine.shootdowns.lock().len(), 1);
    assert!(!bench.rmap.mkclean(&bench.memory, pfn));
}

/// mremap has registered the new range, another range is removed, and a truncation walks the ranges while the entry
/// moves.
#[test]
fn walk_finds_an_entry_that_moves_during_it() {
    let bench = Bench::new();
    let owner = Owner::File(FILE);
    let (other, old, new) = (Vpn(300), Vpn(200), Vpn(100));
    for (vma, start) in [other, old, new].into_iter().enumerate() {
        let span = Bench::span(0, bench.spaces[0], SpanFlags::SHARED);
        bench.rmap.link(owner, Span { vma: VmaId(vma as u32), start, ..span });
    }
    bench.rmap.unlink(owner, VmaId(0));
    let (mut entry, mut found) = (old, false);
    bench.rmap.for_shown(FILE, PageIndex(0), PageIndex(8), &mut |_, start, end| {
        found |= (start..end).contains(&entry);
        entry = new;
    });
    assert!(found);
}

#[test]
fn anonymous_set_is_reused_after_its_last_range() {
    let bench = Bench::new();
    bench.rmap.unlink(Owner::Anon(bench.set), VmaId(1));
    assert_ne!(bench.rmap.create_anon(), bench.set);
    bench.rmap.unlink(Owner::Anon(bench.set), VmaId(2));
    assert_eq!(bench.rmap.create_anon(), bench.set);
}

#[test]
fn large_folio_unmaps_to_consecutive_slots() {
    let bench = Bench::new();
    let mmu = &bench.memory;
    let pfn = bench.large_folio(FrameFlags::SWAPBACKED);
    bench.memory.frames[pfn.add(2)].set(FrameFlags::EXCLUSIVE);
    let slots: std_alloc::vec::Vec<_> =
        (0..4).map(|_| bench.memory.swap.alloc(mmu, GroupId(0)).unwrap()).collect();
    assert!(slots.windows(2).all(|pair| pair[0].0 + 1 == pair[1].0));
    bench.memory.swap.cache_insert(mmu, slots[0], pfn);
    assert!(bench.unmap(pfn) && !bench.memory.frames[pfn].has(FrameFlags::DIRTY));
    assert_eq!(bench.entry(0, 102).as_swap(), Some((slots[2], true)), "the first entry gets the flag");
    assert_eq!(bench.entry(1, 202).as_swap(), Some((slots[2], false)));
    assert_eq!(bench.entry(1, 203).as_swap(), Some((slots[3], false)));
    assert_eq!((bench.memory.frames[pfn].refs(), mmu.machine.events(Event::TlbStale)), (2, 2));
    let tables = bench.memory.tables.lock(mmu, bench.spaces[0]);
    assert_eq!((tables.counts().get(Resident::Anon), tables.counts().get(Resident::Swap)), (0, 4));
}

#[test]
fn runs_unmapped_before_an_mlocked_one_are_uncounted() {
    let bench = Bench::new();
    let pfn = bench.large_folio(FrameFlags::empty());
    bench.rmap.relink(Owner::Anon(bench.set), Bench::span(1, bench.spaces[1], SpanFlags::LOCKED));
    assert!(!bench.unmap(pfn));
    let frames = &bench.memory.frames;
    assert_eq!((frames[pfn].mapcount(), frames.pages_mapped(pfn), frames[pfn].refs()), (4, 4, 5));
    assert!(bench.entry(0, 103).is_none() && bench.entry(1, 203).is_present());
    bench.rmap.validate_folio(&bench.memory, pfn).unwrap();
}

#[test]
fn run_with_a_page_written_after_madv_free_is_kept_whole() {
    let bench = Bench::new();
    let pfn = bench.large_folio(FrameFlags::empty());
    {
        let mut tables = bench.memory.tables.lock(&bench.memory, bench.spaces[0]);
        let slot = tables.find(Vpn(102)).unwrap().slot;
        tables.mark_used(slot, true);
    }
    assert!(!bench.unmap(pfn));
    assert_eq!(bench.memory.frames[pfn].mapcount(), 8);
    assert!(bench.memory.frames[pfn].has(FrameFlags::SWAPBACKED));
    assert!((100..104).all(|page| bench.entry(0, page).is_present()));
    bench.rmap.validate_folio(&bench.memory, pfn).unwrap();
}

/// Pages of a file, shown by two spans that each cross from one table into the next.
struct FileBench {
    bench: Bench,
    pfns: [Pfn; 8],
}

const FILE: FileId = FileId(4);
/// For each space, the first page of the span and the index that it shows: the file's 8 pages are in two tables each,
/// and the second space shows all but the first two.
const SHOWN: [(u64, u64); 2] = [(508, 0), (1020, 2)];

impl FileBench {
    /// `entries`: for each page, the bits of its entry in each space.
    fn new(policy: u64, entries: &[[Option<Bits>; 2]; 8], flags: [SpanFlags; 2]) -> FileBench {
        let bench = Bench::new();
        bench.memory.knobs.set(Knob::TlbUnmap, policy).unwrap();
        for (i, (start, index)) in SHOWN.into_iter().enumerate() {
            let span = Bench::span(i, bench.spaces[i], flags[i]);
            let (start, index, pages) = (Vpn(start), PageIndex(index), 8 - index);
            bench.rmap.link(Owner::File(FILE), Span { start, index, pages, ..span });
        }
        let page = |index| bench.folio(Owner::File(FILE), index, FrameFlags::UPTODATE);
        let pfns: [Pfn; 8] = core::array::from_fn(|index| page(index as u64));
        let file_bench = FileBench { bench, pfns };
        for (index, entries) in entries.iter().enumerate() {
            for (i, bits) in entries.iter().enumerate() {
                if let (Some(page), Some(bits)) = (Self::page(i, index as u64), bits) {
                    file_bench.bench.map(i, page, file_bench.pfns[index], *bits);
                }
            }
        }
        for (i, &space) in file_bench.bench.spaces.iter().enumerate() {
            let tables = file_bench.bench.memory.tables.lock(&file_bench.bench.memory, space);
            let anon = tables.counts().get(Resident::Anon);
            tables.counts().add(Resident::Anon, -anon);
            tables.counts().add(Resident::File, anon);
            drop(tables);
            file_bench.bench.memory.machine.run_on(i as u16);
            let root = file_bench.bench.memory.tables.root(space);
            file_bench.bench.memory.tlb.switch(file_bench.bench.memory.host(), space, root);
        }
        file_bench
    }

    /// The page that shows an index in a space.
    fn page(i: usize, index: u64) -> Option<u64> {
        let (start, first) = SHOWN[i];
        Some(start + index.checked_sub(first)?)
    }

    fn run(&self) -> FolioRun<'_, 8> {
        FolioRun::first(&self.pfns, 8)
    }

    /// The state of the pages that a walk may change.
    fn state(&self) -> Vec<(u32, u32, u32, FrameFlags)> {
        let frames = self.pfns.iter().map(|&pfn| &self.bench.memory.frames[pfn]);
        frames
            .map(|frame| (frame.mapcount(), frame.refs(), u32::from(frame.debt() != 0), frame.flags()))
            .collect()
    }

    fn entries(&self) -> Vec<Option<Entry>> {
        let entry = |i: usize, index| {
            let tables = self.bench.memory.tables.lock(&self.bench.memory, self.bench.spaces[i]);
            tables.find(Vpn(Self::page(i, index)?)).map(|run| run.entry)
        };
        (0..8).flat_map(|index| [entry(0, index), entry(1, index)]).collect()
    }

    /// Debts of the spaces, and counters.
    fn books(&self) -> ([bool; 2], [i64; 2], i64, u64) {
        let memory = &self.bench.memory;
        let owes = |i: usize| memory.tlb.space_owes(self.bench.spaces[i], CpuId(i as u16));
        let resident =
            |i: usize| memory.tables.lock(memory, self.bench.spaces[i]).counts().get(Resident::File);
        let stale = memory.machine.events(Event::TlbStale);
        ([owes(0), owes(1)], [resident(0), resident(1)], memory.stats.read(Stat::NrMapped), stale)
    }
}

fn any_entry() -> impl Strategy<Value = Option<Bits>> {
    prop::option::of(prop::sample::select(std_alloc::vec![
        Bits::empty(),
        Bits::YOUNG,
        Bits::YOUNG | Bits::DIRTY | Bits::WRITE,
        Bits::WRITE,
    ]))
}

fn any_flags() -> impl Strategy<Value = SpanFlags> {
    prop::sample::select(std_alloc::vec![
        SpanFlags::SHARED,
        SpanFlags::LOCKED,
        SpanFlags::NO_RECENCY,
        SpanFlags::EXEC,
    ])
}

proptest! {
    /// A run gives the same result as its pages one by one, under every flush policy.
    #[test]
    fn a_run_equals_runs_of_one(
        policy in 0..FlushPolicy::COUNT,
        entries in prop::array::uniform8(prop::array::uniform2(any_entry())),
        flags in prop::array::uniform2(any_flags()),
        wanted: u8,
    ) {
        let together = FileBench::new(policy, &entries, flags);
        let apart = FileBench::new(policy, &entries, flags);
        let memory = &together.bench.memory;
        let found = together.bench.rmap.referenced(memory, together.run(), None, None);
        for (&pfn, found) in apart.pfns.iter().zip(found) {
            prop_assert_eq!(apart.bench.referenced(pfn), found);
        }
        prop_assert_eq!(together.entries(), apart.entries());
        let (mode, wanted) = (UnmapMode::default(), together.run().with(u32::from(wanted)));
        let mut batch = UnmapBatch::new(memory.host());
        let dirty = together.bench.rmap.try_to_unmap(memory, wanted, mode, &mut batch);
        let mut other = UnmapBatch::new(apart.bench.memory.host());
        for (at, _) in wanted.iter() {
            let one = FolioRun::one(&apart.pfns[at]);
            let is_dirty = apart.bench.rmap.try_to_unmap(&apart.bench.memory, one, mode, &mut other);
            prop_assert_eq!(!is_dirty.is_empty(), dirty.wanted() >> at & 1 != 0);
        }
        prop_assert_eq!(batch.owes_for_stores(), other.owes_for_stores());
        prop_assert_eq!(together.entries(), apart.entries());
        prop_assert_eq!(together.state(), apart.state());
        prop_assert_eq!(together.books(), apart.books());
        for (batch, of) in [(&mut batch, &together), (&mut other, &apart)] {
            batch.settle(of.bench.memory.host(), &of.bench.memory.tlb);
        }
        prop_assert_eq!(together.books(), apart.books());
        for &pfn in &together.pfns {
            together.bench.rmap.validate_folio(&together.bench.memory, pfn).unwrap();
        }
    }
}
