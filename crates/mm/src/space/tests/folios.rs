//! Large folios, mapped by hand at any place, under every operation on spaces: in runs, and entry by entry.

use super::bench::{Bench, gfp};
use super::*;
use crate::alloc::Watermark;
use crate::api::{AccessKind, Advice, Backing, FileKind, GroupLimits, Prot};
use crate::frame::{FolioPages, FolioRun, FrameFlags, Owner};
use crate::knobs::{FlushPolicy, Knob};
use crate::rmap::UnmapMode;
use crate::stat::{SizeStat, Stat};
use crate::table::{Bits, Entry, EntryRun, Resident, Rights, Writes};
use crate::testing::request;
use crate::tlb::UnmapBatch;
use core::ops::Deref;
use proptest::prelude::*;
use std_alloc::collections::BTreeSet;
use std_alloc::vec;
use std_alloc::vec::Vec;

/// Anonymous pages, then as many of a file. Each half has a border between page tables inside, and there is one
/// between the halves.
const PAGES: u64 = 1152;
const ANON: u64 = 512 * 9 + 128;
const FILE: u64 = ANON + PAGES;
const END: u64 = FILE + PAGES;

/// What a process does. `Map` maps a folio where nothing is mapped: in one space, or, for a file, in all; `Mark` sets
/// bits as hardware does; `Unmap`, `Clean` and `Age` are reclaim, write-back and aging, which work on the page's folio.
#[derive(Clone, Copy, Debug)]
enum Op {
    Map { at: u64, order: u8 },
    Touch { at: u64, store: bool },
    Mark { at: u64, dirty: bool },
    Protect { at: u64, pages: u64, write: bool },
    Advise { at: u64, pages: u64, advice: Advice },
    Move { at: u64, pages: u64, to: u64 },
    Fork,
    Exit,
    Unmap { at: u64 },
    Clean { at: u64 },
    Age { at: u64 },
}

fn op() -> impl Strategy<Value = (usize, Op)> {
    let at = || ANON..END;
    let pages = || prop_oneof![1..40u64, 1..PAGES];
    let advice = [
        Advice::DontNeed,
        Advice::DontNeed,
        Advice::Free,
        Advice::Cold,
        Advice::PageOut,
        Advice::HugePage,
        Advice::NoHugePage,
    ];
    let op = prop_oneof![
        8 => (at(), 0..=9u8).prop_map(|(at, order)| Op::Map { at, order }),
        4 => (at(), any::<bool>()).prop_map(|(at, store)| Op::Touch { at, store }),
        3 => (at(), any::<bool>()).prop_map(|(at, dirty)| Op::Mark { at, dirty }),
        2 => (at(), pages(), any::<bool>()).prop_map(|(at, pages, write)| Op::Protect { at, pages, write }),
        4 => (at(), pages(), prop::sample::select(advice.to_vec()))
            .prop_map(|(at, pages, advice)| Op::Advise { at, pages, advice }),
        1 => (at(), pages(), at()).prop_map(|(at, pages, to)| Op::Move { at, pages, to }),
        // Aligned for large entries.
        1 => (at(), pages()).prop_map(|(at, pages)| {
            Op::Move { at, pages, to: ANON + (at - ANON + 512) % (END - ANON) }
        }),
        2 => Just(Op::Fork),
        1 => Just(Op::Exit),
        3 => at().prop_map(|at| Op::Unmap { at }),
        1 => at().prop_map(|at| Op::Clean { at }),
        1 => at().prop_map(|at| Op::Age { at }),
    ];
    (0..3usize, op)
}

/// State of a page that must be the same whether entries are changed in runs or one by one.
type Seen = (u64, Entry, [u32; 6], bool);

pub(super) struct World {
    bench: Bench,
    pub ids: Vec<SpaceId>,
    file: FileId,
}

impl Deref for World {
    type Target = Bench;

    fn deref(&self) -> &Bench {
        &self.bench
    }
}

impl World {
    pub fn new(batch: u64, policy: u64) -> World {
        let (bench, id) = Bench::new(16384, &[(Knob::RmapBatch, batch), (Knob::TlbUnmap, policy)]);
        let file = bench.core.cache.create(FileKind::Shmem, PAGES * PAGE_SIZE);
        let world = World { bench, ids: vec![id], file };
        let shown = Backing::File { file, offset: PageIndex(0), shared: false, writable: true };
        for (at, backing) in [(ANON, Backing::Anonymous), (FILE, shown)] {
            world.spaces.mmap(&world.core, id, &request(Vpn(at), PAGES, backing)).unwrap();
        }
        world
    }

    /// Enable sizes of anonymous folios, from 16 KiB on.
    pub fn enable(&self, sizes: &[u64]) {
        let all = Knob::ALL.iter().filter(|knob| knob.info().name.starts_with("hugepages-"));
        all.zip(sizes).for_each(|(&knob, &size)| self.mmu().knobs.set(knob, size).unwrap());
    }

    fn apply(&mut self, process: usize, op: Op) {
        let id = self.ids[process % self.ids.len()];
        let Bench { core, spaces } = &self.bench;
        let clip = |at: u64, pages: u64| pages.min(END - at);
        match op {
            Op::Map { at, order } if at < FILE => self.map_anon(id, at, Order(order)),
            Op::Map { at, order } => self.map_file(at, Order(order)),
            Op::Touch { at, store } => {
                let access = if store { AccessKind::Store } else { AccessKind::Load };
                let _ = spaces.at(id).fault(core, id, Vpn(at), access, gfp());
            }
            Op::Mark { at, dirty } => {
                let mut tables = core.tables.lock(self.mmu(), id);
                if let Some(run) = tables.find(Vpn(at)).filter(|run| run.entry.is_present()) {
                    tables.mark_used(run.slot, dirty && run.entry.has(Bits::WRITE));
                }
            }
            Op::Protect { at, pages, write } => {
                let prot = if write { Prot::READ | Prot::WRITE } else { Prot::READ };
                let _ = spaces.mprotect(core, id, Vpn(at), clip(at, pages), prot);
            }
            Op::Advise { at, pages, advice } => _ = self.advise(id, at, clip(at, pages), advice),
            Op::Move { at, pages, to } => {
                let pages = clip(at, pages).min(END - to);
                let remap =
                    Remap { start: Vpn(at), old: pages, new: pages, may_move: true, fixed: Some(Vpn(to)) };
                let _ = spaces.mremap(core, id, remap, gfp());
            }
            Op::Fork if self.ids.len() < 3 => {
                let child = spaces.fork(core, id, gfp()).unwrap();
                self.ids.push(child);
            }
            Op::Exit if self.ids.len() > 1 => {
                spaces.exit(core, id);
                self.ids.retain(|&other| other != id);
            }
            Op::Unmap { at } => {
                self.with_folio(id, at, |pfn| {
                    let frame = &core.frames[pfn];
                    // Entry by entry, pages before a dirty one are dropped; a run stays whole.
                    if !frame.is_anon() || !(frame.has(FrameFlags::SWAPBACKED) || self.is_dirty(pfn)) {
                        let mut batch = UnmapBatch::new(self.mmu().host());
                        core.rmap.try_to_unmap(core, FolioRun::one(&pfn), UnmapMode::default(), &mut batch);
                        batch.settle(self.mmu().host(), &core.tlb);
                    }
                });
            }
            Op::Clean { at } => self.with_folio(id, at, |pfn| _ = core.rmap.mkclean(core, pfn)),
            Op::Age { at } => self.with_folio(id, at, |pfn| {
                let [_] = core.rmap.referenced(core, FolioRun::one(&pfn), None, None);
            }),
            Op::Fork | Op::Exit => {}
        }
    }

    fn is_exclusive(&self, page: Pfn) -> bool {
        self.core.frames[page].has(FrameFlags::EXCLUSIVE)
    }

    fn is_dirty(&self, pfn: Pfn) -> bool {
        let mapped = |run: &EntryRun| run.mapped(&self.core.frames).head == pfn;
        let all = self.ids.iter().flat_map(|&id| self.runs(id, ANON, END));
        all.filter(mapped).any(|run| run.entry.has(Bits::DIRTY))
    }

    /// Whether a folio can be mapped here: one kind of range, and no entries.
    fn is_free(&self, id: SpaceId, at: u64, order: Order) -> bool {
        let vmas = self.spaces.at(id).vmas.lock();
        let end = at + order.frames() as u64;
        let inside = vmas.range_of(Vpn(at)).is_some_and(|vma| {
            end <= vma.view.end().0
                && vma.view.prot.contains(Prot::WRITE)
                && vma.view.file.is_none() == (at < FILE)
        });
        drop(vmas);
        inside && self.runs(id, at, end).is_empty()
    }

    fn map_anon(&self, id: SpaceId, at: u64, order: Order) {
        let core = &self.core;
        if !self.is_free(id, at, order) {
            return;
        }
        let view = || self.spaces.at(id).vmas.lock().range_of(Vpn(at)).unwrap().view;
        if view().anon.is_none() {
            // The fault gives the range a set. It may have made a large folio.
            self.spaces.at(id).fault(core, id, Vpn(at), AccessKind::Store, gfp()).unwrap();
            let (first, end) = (view().start.0.max(at & !511), view().end().0.min((at | 511) + 1));
            self.spaces.madvise(core, id, Vpn(first), end - first, Advice::DontNeed).unwrap();
            if !self.is_free(id, at, order) {
                return;
            }
        }
        let view = view();
        let Ok(pfn) = core.new_folio(order, gfp()) else { return };
        let pages = FolioPages::all(&core.frames, pfn);
        core.make_large_anon(pfn, Owner::Anon(view.anon.unwrap()), view.anon_index(Vpn(at)));
        self.install(id, at, pages);
        core.lru.add(self.mmu(), [pfn], false);
        core.put(pfn);
    }

    fn map_file(&self, at: u64, order: Order) {
        let core = &self.core;
        let shown = |id: SpaceId| {
            let vmas = self.spaces.at(id).vmas.lock();
            vmas.range_of(Vpn(at)).and_then(|vma| vma.view.file_index(Vpn(at)))
        };
        let Some((file, index)) = shown(self.ids[0]) else { return };
        let Ok(pfn) = core.new_folio(order, gfp()) else { return };
        core.frames[pfn].set_owner(Owner::File(file), index);
        core.frames[pfn].set(FrameFlags::UPTODATE | FrameFlags::SWAPBACKED);
        core.lru.add(self.mmu(), [pfn], false);
        for &id in &self.ids {
            if self.is_free(id, at, order) && shown(id) == Some((file, index)) {
                self.install(id, at, FolioPages::all(&core.frames, pfn));
            }
        }
        core.put(pfn);
    }

    /// Map a folio, of the file or anonymous, at the start of a table of a new world, so that it is one run.
    #[cfg(not(any(feature = "one-thread", feature = "loom", feature = "shuttle")))]
    pub fn one_folio(&self, order: Order, file: bool) -> EntryRun {
        let id = self.ids[0];
        if file {
            self.map_file(512 * 12, order);
        } else {
            self.map_anon(id, 512 * 10, order);
        }
        let runs = self.runs(id, ANON, END);
        assert_eq!(runs[0].mapped(&self.core.frames).count, runs[0].count);
        runs[0]
    }

    /// Map pages as a fault does, one table at a time.
    fn install(&self, id: SpaceId, at: u64, all: FolioPages) {
        let core = &self.core;
        let anon = core.frames[all.head].is_anon();
        let kind = if anon { Resident::Anon } else { Resident::Shmem };
        let rights =
            self.spaces.at(id).vmas.lock().range_of(Vpn(at)).expect("the range must exist").view.rights();
        let mut done = 0;
        while done < all.count {
            let page = Vpn(at + done as u64);
            let mut tables = core.tables.lock(self.mmu(), id);
            let slot = tables.reserve(&core.alloc, page, gfp().means()).unwrap();
            let count = (all.count - done).min(slot.room());
            let pages = FolioPages { first: all.first.add(done), count, ..all };
            core.frames[all.head].get(count);
            core.rmap.add_range(self.mmu(), pages);
            tables.counts().add(kind, i64::from(count));
            if anon {
                tables.settle_at(slot, page).install(slot, page, pages, rights, Writes::Private);
            } else {
                let shown = self.spaces.at(id).vmas.lock().range_of(page).unwrap().view.shown(page);
                tables.install_unchanged((slot, page), pages, shown, rights | Rights::YOUNG);
            }
            done += count;
        }
    }

    /// Every page of every space, with the counts of its folio.
    fn seen(&self) -> Vec<Seen> {
        let mut seen = Vec::new();
        let core = &self.core;
        for &id in &self.ids {
            for run in self.runs(id, ANON, END) {
                for (i, page) in (0..).zip(run.mapped(&core.frames).iter()) {
                    let (head, record) = (core.frames.head(page), &core.frames[core.frames.head(page)]);
                    let found = core.tables.lock(self.mmu(), id).find(Vpn(run.page.0 + i)).unwrap().entry;
                    let rights = found.bits() & (Bits::PRESENT | Bits::WRITE | Bits::USER | Bits::DIRTY);
                    let counts = [
                        record.order().0 as u32,
                        page.0 - head.0,
                        record.mapcount(),
                        core.frames.page_mapcount(page),
                        core.frames.pages_mapped(head),
                        record.refs(),
                    ];
                    let exclusive = core.frames[page].has(FrameFlags::EXCLUSIVE);
                    seen.push((run.page.0 + i, Entry::from_raw(rights.bits()), counts, exclusive));
                }
            }
        }
        seen
    }

    fn counters(&self) -> Vec<i64> {
        let counted = [Stat::NrAnonPages, Stat::NrMapped, Stat::Pgfree, Stat::NrShmem, Stat::Pgreuse];
        let mut all: Vec<_> = counted.iter().map(|&stat| self.mmu().stats.read(stat)).collect();
        for &id in &self.ids {
            let tables = self.core.tables.lock(self.mmu(), id);
            let kinds = [Resident::Anon, Resident::File, Resident::Shmem, Resident::Swap];
            all.extend(kinds.map(|kind| tables.counts().get(kind)));
        }
        all
    }

    pub fn validate(&self) {
        self.check_rooms();
        let frames = &self.core.frames;
        let all = self.ids.iter().flat_map(|&id| self.runs(id, ANON, END));
        let heads: BTreeSet<Pfn> = all.map(|run| run.mapped(frames).head).collect();
        for head in heads.into_iter().filter(|&head| head != self.core.zero) {
            self.core.rmap.validate_folio(&self.core, head).unwrap();
            assert!(frames[head].refs() >= frames[head].mapcount());
        }
    }
}

proptest! {
    #![proptest_config(crate::testing::cases(60))]

    /// After any operation, entries, mapcounts, references, sizes of spaces and statistics are those of the world that
    /// works entry by entry.
    #[test]
    fn operations_on_runs_equal_those_on_entries(
        policy in 0..FlushPolicy::COUNT,
        sizes in prop::collection::vec(0u64..=2, 8),
        ops in prop::collection::vec(op(), 1..50),
    ) {
        let mut worlds = [1, 0].map(|batch| World::new(batch, policy));
        worlds.iter().for_each(|world| world.enable(&sizes));
        for (process, op) in ops {
            worlds.iter_mut().for_each(|world| world.apply(process, op));
            let [runs, entries] = &worlds;
            prop_assert_eq!(runs.counters(), entries.counters(), "after {:?}", op);
            prop_assert_eq!(runs.seen(), entries.seen(), "after {:?}", op);
            worlds.iter().for_each(World::validate);
        }
        for world in &worlds {
            for &id in &world.ids {
                world.spaces.exit(&world.core, id);
            }
            prop_assert_eq!(world.mmu().stats.read(Stat::NrAnonPages), 0);
            prop_assert_eq!(world.mmu().stats.read(Stat::NrMapped), 0);
            world.core.cache.destroy(&world.core, world.file);
            world.core.alloc.validate(world.mmu()).unwrap();
        }
        prop_assert_eq!(worlds[0].mmu().stats.read(Stat::Pgfree), worlds[1].mmu().stats.read(Stat::Pgfree));
    }
}

/// After a fork, each page of a folio is copied on its own; the other pages stay shared, or unchanged.
#[test]
fn write_fault_copies_one_page_of_a_shared_folio() {
    let mut world = World::new(1, 1);
    let parent = world.ids[0];
    world.apply(0, Op::Map { at: ANON, order: 4 });
    let folio = world.runs(parent, ANON, END)[0].mapped(&world.core.frames).head;
    world.apply(0, Op::Fork);
    assert_eq!(world.core.frames[folio].mapcount(), 32);
    assert!((0..16).all(|i| !world.is_exclusive(folio.add(i))));
    world.apply(0, Op::Touch { at: ANON + 5, store: true });
    let runs = world.runs(parent, ANON, END);
    assert_eq!(runs.iter().map(|run| run.count).collect::<Vec<_>>(), [5, 1, 10]);
    let copy = runs[1].entry.pfn();
    assert_eq!((world.core.frames.page_mapcount(folio.add(5)), world.core.frames[folio].mapcount()), (1, 31));
    assert!(world.is_exclusive(copy) && world.core.frames[copy].order() == Order::ZERO);
    world.apply(1, Op::Exit);
    // It is not mapped elsewhere any more, but is copied nevertheless, so that the folio can be freed.
    world.apply(0, Op::Touch { at: ANON + 6, store: true });
    assert_eq!((world.core.frames[folio].mapcount(), world.core.frames.pages_mapped(folio)), (14, 14));
    world.validate();
}

/// An exclusive page is written in place, in a folio of any size.
#[test]
fn write_fault_reuses_an_exclusive_page_of_a_folio() {
    let mut world = World::new(1, 1);
    world.apply(0, Op::Map { at: ANON, order: 3 });
    let space = world.ids[0];
    world.core.gather(space, |gather| {
        let mut tables = world.core.tables.lock(world.mmu(), space);
        let mut forbidden = Vec::new();
        tables.for_each(Vpn(ANON), Vpn(ANON + 8), |tables, run| forbidden.push(tables.forbid_writes(&run)));
        forbidden.into_iter().for_each(|run| gather.tightened(world.mmu().host(), run));
    });
    world.apply(0, Op::Touch { at: ANON + 3, store: true });
    let counts: Vec<_> = world.runs(world.ids[0], ANON, END).iter().map(|run| run.count).collect();
    assert_eq!(counts, [3, 1, 4], "the right to write must end a run");
    assert_eq!(world.mmu().stats.read(Stat::Pgreuse), 1);
    world.validate();
}

/// MADV_PAGEOUT takes a folio that is wholly in the range. A folio that is partly in it, or has a hole, is split
/// first, and its pages in the range are taken, unless other processes use it, too.
#[test]
fn pageout_splits_partly_covered_folios() {
    for batch in [0, 1] {
        let mut world = World::new(batch, 1);
        // Across a border of tables, so that its entries are two runs.
        world.apply(0, Op::Map { at: ANON + 376, order: 4 });
        let page_out =
            |world: &World, at, pages| world.advise(world.ids[0], at, pages, Advice::PageOut).unwrap();
        assert_eq!(page_out(&world, ANON + 376, 16), 1);
        world.apply(0, Op::Fork);
        assert_eq!((page_out(&world, ANON + 377, 15), sizes(&world, SizeStat::Split)), (0, vec![]));
        world.apply(1, Op::Exit);
        assert_eq!(page_out(&world, ANON + 380, 4), 4);
        assert_eq!((page_out(&world, ANON, PAGES), sizes(&world, SizeStat::Split)), (16, vec![(4, 1)]));
        world.apply(0, Op::Map { at: ANON, order: 3 });
        world.apply(0, Op::Advise { at: ANON + 3, pages: 1, advice: Advice::DontNeed });
        assert_eq!((page_out(&world, ANON, 8), sizes(&world, SizeStat::Split)), (7, vec![(3, 1), (4, 1)]));
        // In two places.
        world.apply(0, Op::Map { at: ANON + 24, order: 2 });
        world.apply(0, Op::Move { at: ANON + 24, pages: 2, to: ANON + 40 });
        assert_eq!(page_out(&world, ANON + 24, 20), 4);
        world.validate();
    }
}

/// MADV_FREE and MADV_COLD, too, affect only pages in the range.
#[test]
fn free_and_cold_split_partly_covered_folios() {
    for batch in [0, 1] {
        let mut world = World::new(batch, 1);
        for (at, advice) in [(ANON, Advice::Free), (ANON + 16, Advice::Cold)] {
            world.apply(0, Op::Map { at, order: 4 });
            (at..at + 16).for_each(|at| world.apply(0, Op::Mark { at, dirty: true }));
            world.apply(0, Op::Advise { at: at + 2, pages: 3, advice });
            for (i, page) in (at..at + 16).enumerate() {
                let entry = world.runs(world.ids[0], page, page + 1)[0].entry;
                let (inside, frame) = ((2..5).contains(&i), &world.core.frames[entry.pfn()]);
                assert_eq!((entry.has(Bits::YOUNG), frame.order()), (!inside, Order::ZERO), "{advice:?} {i}");
                let freed = advice == Advice::Free && inside;
                assert_eq!((entry.has(Bits::DIRTY), frame.has(FrameFlags::SWAPBACKED)), (!freed, !freed));
            }
        }
        assert_eq!(world.mmu().stats.read(Stat::Pglazyfree), 3);
        world.validate();
    }
}

/// Two folios whose frames and addresses follow each other are two folios: advice on the end of one and the beginning
/// of the other is not about as many pages of the first.
#[test]
fn advice_across_neighbouring_folios_affects_only_its_pages() {
    for batch in [0, 1] {
        let mut world = World::new(batch, 1);
        for at in [ANON, ANON + 16] {
            world.apply(0, Op::Map { at, order: 4 });
        }
        (ANON..ANON + 32).for_each(|at| world.apply(0, Op::Mark { at, dirty: true }));
        let frame = |world: &World, page| world.runs(world.ids[0], page, page + 1)[0].entry.pfn();
        assert_eq!(frame(&world, ANON + 16), frame(&world, ANON).add(16));
        world.apply(0, Op::Advise { at: ANON + 8, pages: 16, advice: Advice::Free });
        for page in 0..32 {
            let freed = !world.core.frames[frame(&world, ANON + page)].has(FrameFlags::SWAPBACKED);
            assert_eq!(freed, (8..24).contains(&page), "page {page}");
        }
        world.validate();
    }
}

/// The runs of a space's anonymous pages: first page, length and the folio's order.
fn shape(world: &World) -> Vec<(u64, u32, u8)> {
    let frames = &world.core.frames;
    let runs = world.runs(world.ids[0], ANON, FILE).into_iter();
    runs.map(|run| (run.page.0 - ANON, run.count, frames[run.mapped(frames).head].order().0)).collect()
}

fn sizes(world: &World, stat: SizeStat) -> Vec<(u8, u64)> {
    let all = (1..=9).map(|order| (order, world.mmu().sizes.read(stat, Order(order))));
    all.filter(|&(_, count)| count > 0).collect()
}

/// A first store gets the largest enabled folio that fits into the range and into empty entries. (The range begins a
/// quarter into a table.)
#[test]
fn anon_fault_allocates_the_largest_fitting_folio() {
    for batch in [0, 1] {
        let mut world = World::new(batch, 1);
        world.enable(&[2, 0, 0, 2, 0, 0, 0, 2]);
        // 2 MiB would begin before the range, or end after it.
        for (at, store) in [(100, true), (30, true), (461, true), (900, false), (901, true), (905, true)] {
            world.apply(0, Op::Touch { at: ANON + at, store });
        }
        if batch == 1 {
            let expected = [(0, 32, 5), (96, 32, 5), (384, 1, 9), (900, 1, 0), (901, 1, 0), (904, 4, 2)];
            assert_eq!(shape(&world), expected);
        }
        let made = [(2, 1), (5, 2), (9, 1)];
        assert_eq!(sizes(&world, SizeStat::AnonFaultAlloc), made);
        assert_eq!(sizes(&world, SizeStat::NrAnon), made);
        assert_eq!(sizes(&world, SizeStat::AnonFaultFallback), []);
        assert_eq!(world.mmu().stats.read(Stat::NrAnonPages), 32 + 32 + 512 + 1 + 4);
        world.validate();
    }
}

#[test]
fn hugepage_advice_enables_and_disables_sizes() {
    let mut world = World::new(1, 1);
    world.enable(&[2, 1]);
    let touch = |at| Op::Touch { at: ANON + at, store: true };
    let advise = |at, advice| Op::Advise { at: ANON + at, pages: 32, advice };
    world.apply(0, touch(1));
    world.apply(0, advise(32, Advice::HugePage));
    world.apply(0, touch(33));
    world.apply(0, advise(64, Advice::NoHugePage));
    world.apply(0, touch(65));
    assert_eq!(shape(&world), [(0, 4, 2), (32, 8, 3), (65, 1, 0)]);
    // Ranges with the same advice are merged again.
    world.apply(0, advise(0, Advice::NoHugePage));
    world.apply(0, advise(32, Advice::NoHugePage));
    world.apply(0, touch(50));
    assert_eq!(shape(&world).last(), Some(&(65, 1, 0)));
    assert_eq!(shape(&world).iter().filter(|run| run.2 == 0).count(), 2);
    world.validate();
}

/// Nothing is reclaimed for a large folio: without a block, or without room in the group, a smaller one is used.
#[test]
fn anon_fault_falls_back_to_smaller_folios() {
    let mut world = World::new(1, 1);
    world.enable(&[2, 0, 0, 0, 0, 0, 0, 2]);
    let mut blocks = Vec::new();
    while let Ok(block) = world.core.new_folio(Order(8), Gfp { mark: Watermark::Min, ..gfp() }) {
        blocks.push(block);
    }
    // Keep only blocks without a free neighbour.
    blocks.retain(|&block| {
        block.0 & 256 == 0 || {
            world.core.put(block);
            false
        }
    });
    world.apply(0, Op::Touch { at: ANON + 400, store: true });
    assert_eq!(shape(&world), [(400, 4, 2)]);
    assert_eq!(sizes(&world, SizeStat::AnonFaultFallback), [(9, 1)]);
    assert_eq!(sizes(&world, SizeStat::AnonFaultFallbackCharge), []);
    blocks.into_iter().for_each(|block| world.core.put(block));

    let limits = GroupLimits { max: 6, ..GroupLimits::default() };
    let group = world.core.lru.create_group(GroupId(0), limits, drop).unwrap();
    let store = |page, gfp| {
        world.spaces.at(world.ids[0]).fault(
            &world.core,
            world.ids[0],
            Vpn(ANON + page),
            AccessKind::Store,
            gfp,
        )
    };
    for page in [500, 600, 608] {
        store(page, Gfp::user(group)).unwrap();
    }
    assert_eq!(shape(&world), [(400, 4, 2), (500, 4, 2), (600, 1, 0), (608, 1, 0)]);
    // The 2 MiB have had an entry since the first store.
    assert_eq!(sizes(&world, SizeStat::AnonFaultFallback), [(2, 2), (9, 1)]);
    assert_eq!(sizes(&world, SizeStat::AnonFaultFallbackCharge), [(2, 2)]);
    world.validate();
}

/// A partly mapped folio is queued for a split, once, until it is freed.
#[test]
fn partly_mapped_folio_is_queued_for_split_once() {
    let mut world = World::new(1, 1);
    world.enable(&[0, 0, 2]);
    let forget = |world: &mut World, at, pages| {
        world.apply(0, Op::Advise { at: ANON + at, pages, advice: Advice::DontNeed });
    };
    let waiting = |world: &World| {
        let counted = [SizeStat::SplitDeferred, SizeStat::NrAnonPartiallyMapped, SizeStat::NrAnon];
        counted.map(|stat| world.mmu().sizes.read(stat, Order(4)))
    };
    world.apply(0, Op::Touch { at: ANON, store: true });
    world.apply(0, Op::Touch { at: ANON + 16, store: true });
    world.apply(0, Op::Fork);
    forget(&mut world, 0, 4);
    assert_eq!(waiting(&world), [0, 0, 2], "a folio that the child maps whole must not be queued");
    world.apply(1, Op::Exit);
    assert_eq!(waiting(&world), [1, 1, 2]);
    forget(&mut world, 8, 16);
    assert_eq!(waiting(&world), [2, 2, 2]);
    world.validate();
    // A folio does not stay locked in memory for a part that is gone.
    let folio = |world: &World| world.runs(world.ids[0], ANON, FILE)[0].mapped(&world.core.frames).head;
    world.spaces.mlock(&world.core, world.ids[0], Vpn(ANON + 4), 2, true).unwrap();
    assert!(world.core.frames[folio(&world)].has(FrameFlags::UNEVICTABLE));
    world.spaces.munmap(&world.core, world.ids[0], Vpn(ANON + 4), 2).unwrap();
    assert!(!world.core.frames[folio(&world)].has_any(FrameFlags::UNEVICTABLE | FrameFlags::MLOCKED));
    world.validate();
    // A whole run that is unmapped at once queues nothing.
    forget(&mut world, 0, 16);
    assert_eq!((waiting(&world), world.core.lru.splits_deferred(NodeId(0))), ([2, 1, 1], 1));
    forget(&mut world, 16, 16);
    assert_eq!((waiting(&world), world.core.lru.splits_deferred(NodeId(0))), ([2, 0, 0], 0));
    world.validate();
}
