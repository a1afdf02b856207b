//! 2 MiB entries under every operation on spaces: those of a file, made by faults and collapse, and those of anonymous
//! memory, made by hand. A model knows what each page must show.

use super::bench::{Bench, gfp};
use super::*;
use crate::api::{AccessKind, Advice, Backing, FileKind, Prot};
use crate::frame::{FolioRun, FrameFlags};
use crate::knobs::{FlushPolicy, Knob};
use crate::rmap::UnmapMode;
use crate::stat::Stat;
use crate::table::{Bits, EntryRun};
use crate::testing::request;
use crate::tlb::UnmapBatch;
use core::ops::Deref;
use proptest::prelude::*;
use std_alloc::collections::{BTreeMap, BTreeSet};
use std_alloc::vec;
use std_alloc::vec::Vec;

const LARGE: u64 = TABLE_ENTRIES as u64;
/// Pages of each range: two large entries.
const PAGES: u64 = 2 * LARGE;
const ANON: u64 = LARGE * 9;
const SHARED: u64 = ANON + PAGES;
const PRIVATE: u64 = SHARED + PAGES;
const END: u64 = PRIVATE + PAGES;

/// What a process does; `Reclaim`, `Clean` and `Age` are reclaim, write-back and aging, which work on the page's folio.
#[derive(Clone, Copy, Debug)]
enum Op {
    MapAnon { at: u64 },
    Load { at: u64 },
    Store { at: u64 },
    Protect { at: u64, pages: u64, write: bool },
    Advise { at: u64, pages: u64, advice: Advice },
    Move { at: u64, pages: u64, aside: bool },
    Lock { at: u64, pages: u64 },
    Unmap { at: u64, pages: u64 },
    Fork,
    Exit,
    Reclaim { at: u64 },
    Clean { at: u64 },
    Age { at: u64 },
    Truncate { pages: u64 },
    Collapse { at: u64 },
    Khugepaged,
}

fn op() -> impl Strategy<Value = (usize, Op)> {
    let at = || prop_oneof![ANON..END, (ANON / LARGE..END / LARGE).prop_map(|block| block * LARGE)];
    let pages = || prop_oneof![1..40u64, Just(LARGE), 1..PAGES];
    let advice = [Advice::DontNeed, Advice::Cold, Advice::PageOut];
    let op = prop_oneof![
        4 => at().prop_map(|at| Op::MapAnon { at }),
        6 => at().prop_map(|at| Op::Load { at }),
        6 => at().prop_map(|at| Op::Store { at }),
        2 => (at(), pages(), any::<bool>()).prop_map(|(at, pages, write)| Op::Protect { at, pages, write }),
        3 => (at(), pages(), prop::sample::select(advice.to_vec()))
            .prop_map(|(at, pages, advice)| Op::Advise { at, pages, advice }),
        2 => (at(), pages(), prop::bool::weighted(0.3))
            .prop_map(|(at, pages, aside)| Op::Move { at, pages, aside }),
        1 => (at(), pages()).prop_map(|(at, pages)| Op::Lock { at, pages }),
        2 => (at(), pages()).prop_map(|(at, pages)| Op::Unmap { at, pages }),
        2 => Just(Op::Fork),
        1 => Just(Op::Exit),
        2 => at().prop_map(|at| Op::Reclaim { at }),
        1 => at().prop_map(|at| Op::Clean { at }),
        1 => at().prop_map(|at| Op::Age { at }),
        1 => (0..=PAGES).prop_map(|pages| Op::Truncate { pages }),
        4 => at().prop_map(|at| Op::Collapse { at }),
        1 => Just(Op::Khugepaged),
    ];
    (0..3usize, op)
}

/// Content of a space's own pages.
type Own = BTreeMap<u64, u64>;

struct World {
    bench: Bench,
    ids: Vec<(SpaceId, Own)>,
    file: FileId,
    /// Content of the file's pages.
    content: Vec<u64>,
    last_stamp: u64,
}

impl Deref for World {
    type Target = Bench;

    fn deref(&self) -> &Bench {
        &self.bench
    }
}

impl World {
    /// A space with an anonymous range and two of a shmem file, whose folios are of `order`.
    fn new(order: u64, policy: u64) -> World {
        let knobs = [
            (Knob::ShmemMaxOrder, order),
            (Knob::TlbUnmap, policy),
            (Knob::ThpFilePmd, 1),
            (Knob::HugepagesEnabled2048, 2),
        ];
        let (bench, id) = Bench::new(32768, &knobs);
        let file = bench.core.cache.create(FileKind::Shmem, PAGES * PAGE_SIZE);
        let content = vec![0; PAGES as usize];
        let world = World { bench, ids: vec![(id, Own::new())], file, content, last_stamp: 0 };
        [ANON, SHARED, PRIVATE].into_iter().for_each(|at| world.map(id, at, PAGES));
        world
    }

    fn map(&self, id: SpaceId, at: u64, pages: u64) {
        let offset = PageIndex((at - ANON) % PAGES);
        let shown = |shared| Backing::File { file: self.file, offset, shared, writable: true };
        let backing = match at {
            ..SHARED => Backing::Anonymous,
            SHARED..PRIVATE => shown(true),
            _ => shown(false),
        };
        self.spaces.mmap(&self.core, id, &request(Vpn(at), pages, backing)).unwrap();
    }

    fn apply(&mut self, process: usize, op: Op) {
        let process = process % self.ids.len();
        let id = self.ids[process].0;
        // Parts of one range.
        let clip = |at: u64, pages: u64| pages.min(PAGES - (at - ANON) % PAGES);
        match op {
            Op::MapAnon { at } => self.map_anon(process, at),
            Op::Load { at } => self.touch(process, at, AccessKind::Load),
            Op::Store { at } => self.touch(process, at, AccessKind::Store),
            Op::Protect { at, pages, write } => {
                let prot = if write { Prot::READ | Prot::WRITE } else { Prot::READ };
                let _ = self.spaces.mprotect(&self.core, id, Vpn(at), clip(at, pages), prot);
            }
            Op::Advise { at, pages, advice } => {
                let pages = clip(at, pages);
                if self.advise(id, at, pages, advice).is_some() && advice == Advice::DontNeed {
                    self.ids[process].1.retain(|page, _| !(at..at + pages).contains(page));
                }
            }
            // Away and back; `aside`: to where large entries do not fit.
            Op::Move { at, pages, aside } => {
                let (pages, there) = (clip(at, pages), Vpn(END + LARGE + at % LARGE + u64::from(aside)));
                let go = |start, to| {
                    let remap = Remap { start, old: pages, new: pages, may_move: true, fixed: Some(to) };
                    self.spaces.mremap(&self.core, id, remap, gfp())
                };
                if go(Vpn(at), there).is_ok() {
                    go(there, Vpn(at)).unwrap();
                }
            }
            Op::Lock { at, pages } => {
                for lock in [true, false] {
                    let _ = self.spaces.mlock(&self.core, id, Vpn(at), clip(at, pages), lock);
                }
            }
            Op::Unmap { at, pages } => {
                let pages = clip(at, pages);
                self.spaces.munmap(&self.core, id, Vpn(at), pages).unwrap();
                self.ids[process].1.retain(|page, _| !(at..at + pages).contains(page));
                self.map(id, at, pages);
            }
            Op::Fork if self.ids.len() < 3 => {
                let child = self.spaces.fork(&self.core, id, gfp()).unwrap();
                self.ids.push((child, self.ids[process].1.clone()));
            }
            Op::Exit if self.ids.len() > 1 => {
                self.spaces.exit(&self.core, id);
                self.ids.remove(process);
            }
            Op::Fork | Op::Exit => {}
            Op::Reclaim { at } => self.with_folio(id, at, |pfn| self.reclaim(pfn)),
            Op::Clean { at } => self.with_folio(id, at, |pfn| _ = self.core.rmap.mkclean(&self.core, pfn)),
            Op::Age { at } => self.with_folio(id, at, |pfn| {
                let [_] = self.core.rmap.referenced(&self.core, FolioRun::one(&pfn), None, None);
            }),
            Op::Truncate { pages } => {
                let (memory, first) = (&self.core, PageIndex(pages));
                self.core.cache.set_size(self.file, pages * PAGE_SIZE);
                zap_file(&self.core, self.file, first);
                crate::truncate::cut_astride(&self.core, self.file, first);
                self.core.cache.truncate(memory, self.file, first);
                self.core.cache.set_size(self.file, PAGES * PAGE_SIZE);
                self.content[pages as usize..].fill(0);
                // Private copies go, too.
                for (_, own) in &mut self.ids {
                    own.retain(|&page, _| page < PRIVATE + pages);
                }
            }
            Op::Collapse { at } => {
                let _ = self.spaces.collapse(&self.core, id, Vpn(at / LARGE * LARGE), LARGE, gfp());
            }
            Op::Khugepaged => self.spaces.scan_from_start(&self.core),
        }
    }

    /// What a page must show.
    fn expected(&self, process: usize, page: u64) -> u64 {
        let shown = if page < SHARED { 0 } else { self.content[((page - ANON) % PAGES) as usize] };
        self.ids[process].1.get(&page).copied().unwrap_or(shown)
    }

    fn touch(&mut self, process: usize, at: u64, access: AccessKind) {
        let id = self.ids[process].0;
        for _ in 0..8 {
            let Some(pfn) = self.use_entry(id, at, access) else {
                match self.spaces.at(id).fault(&self.core, id, Vpn(at), access, gfp()) {
                    Ok(_) => continue,
                    // The range is read-only.
                    Err(_) => return,
                }
            };
            assert_eq!(self.core.machine.stamp(pfn), self.expected(process, at), "page {at:#x} of {id}");
            if access == AccessKind::Store {
                self.last_stamp += 1;
                self.core.machine.set_stamp(pfn, self.last_stamp);
                if (SHARED..PRIVATE).contains(&at) {
                    self.content[(at - SHARED) as usize] = self.last_stamp;
                } else {
                    self.ids[process].1.insert(at, self.last_stamp);
                }
            }
            return;
        }
        panic!("page {at:#x} of {id} still faults");
    }

    /// An access as hardware does it: the frame, if the entry allows it.
    fn use_entry(&self, id: SpaceId, at: u64, access: AccessKind) -> Option<Pfn> {
        let store = access == AccessKind::Store;
        let mut tables = self.core.tables.lock(self.mmu(), id);
        let run = tables.find(Vpn(at)).filter(|run| run.entry.has(Bits::PRESENT | Bits::USER))?;
        if store && !run.entry.has(Bits::WRITE) {
            return None;
        }
        tables.mark_used(run.slot, store);
        Some(run.entry.pfn().add((at - run.page.0) as u32))
    }

    /// Unmap, as reclaim does. An anonymous page without a swap slot stays mapped, but in entries of pages.
    fn reclaim(&self, pfn: Pfn) {
        let mut batch = UnmapBatch::new(self.mmu().host());
        let run = FolioRun::one(&pfn);
        let dirty = self.core.rmap.try_to_unmap(&self.core, run, UnmapMode::default(), &mut batch);
        dirty.iter().for_each(|(_, pfn)| self.core.cache.mark_dirty(&self.core, pfn));
        batch.settle(self.mmu().host(), &self.core.tlb);
        assert!(self.core.frames[pfn].is_anon() || self.core.frames[pfn].mapcount() == 0);
    }

    /// A first store makes a large anonymous entry where nothing is mapped.
    fn map_anon(&mut self, process: usize, at: u64) {
        let (core, id, start) = (&self.bench.core, self.ids[process].0, at / LARGE * LARGE);
        let view = self.spaces.at(id).vmas.lock().range_of(Vpn(start)).map(|vma| vma.view);
        let fits = |view: &VmaView| view.end().0 >= start + LARGE && view.prot.contains(Prot::WRITE);
        if start >= SHARED || !view.is_some_and(|view| fits(&view)) {
            return;
        }
        if self.runs(id, 0, END).iter().any(|run| run.page.0 / LARGE == start / LARGE) {
            return;
        }
        // An empty table would block the large entry.
        core.gather(id, |gather| {
            let range = (Vpn(start), Vpn(start + LARGE));
            core.tables.lock(self.mmu(), id).take_empty_tables(range, range, gather);
        });
        self.spaces.at(id).fault(core, id, Vpn(start), AccessKind::Store, gfp()).unwrap();
        self.ids[process].1.retain(|page, _| page / LARGE != start / LARGE);
    }

    /// Check that mapped pages show what they must, and that every count matches the entries.
    fn check(&self) {
        let (core, base) = (&self.core, self.mmu());
        self.check_rooms();
        let mut heads = BTreeSet::new();
        for (process, &(id, _)) in self.ids.iter().enumerate() {
            let mut pages = 0;
            for run in self.runs(id, 0, END) {
                let mapped = run.mapped(&core.frames);
                for (page, pfn) in (run.page.0..).zip(mapped.iter()) {
                    assert_eq!(
                        core.machine.stamp(pfn),
                        self.expected(process, page),
                        "page {page:#x} of {id}"
                    );
                }
                if mapped.head != core.zero {
                    pages += u64::from(mapped.count);
                    heads.insert(mapped.head);
                }
            }
            assert_eq!(core.tables.lock(base, id).counts().rss(), pages, "{id}");
        }
        let mut large = 0;
        for &head in &heads {
            let frame = &core.frames[head];
            core.rmap.validate_folio(core, head).unwrap();
            large += i64::from(core.frames.entire_mapcount(head) > 0);
            assert_eq!(frame.refs(), frame.mapcount() + u32::from(!frame.is_anon()), "{head}");
        }
        let mapped = |anon| heads.iter().filter(move |&&head| core.frames[head].is_anon() == anon);
        let pages = |anon| mapped(anon).map(|&head| i64::from(core.frames.pages_mapped(head))).sum::<i64>();
        let read = |stat| base.stats.read(stat);
        assert_eq!((read(Stat::NrAnonPages), read(Stat::NrMapped)), (pages(true), pages(false)));
        assert_eq!(read(Stat::NrShmemPmdmapped) + read(Stat::NrAnonTransparentHugepages), large);
    }

    /// Every space and the file end, and leave nothing.
    fn end(&self) {
        self.check();
        for (id, _) in &self.ids {
            self.spaces.exit(&self.core, *id);
        }
        self.core.cache.destroy(&self.core, self.file);
        self.core.alloc.validate(self.mmu()).unwrap();
        let left = [
            Stat::NrAnonPages,
            Stat::NrMapped,
            Stat::NrShmem,
            Stat::NrPageTablePages,
            Stat::NrShmemPmdmapped,
            Stat::NrAnonTransparentHugepages,
        ];
        assert_eq!(left.map(|stat| self.mmu().stats.read(stat)), [0; 6]);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.end();
        }
    }
}

proptest! {
    #![proptest_config(crate::testing::cases(60))]

    /// After any operation pages show what they must, and mapcounts, references, sizes of spaces and statistics are
    /// right.
    #[test]
    fn large_entries_match_the_model(
        policy in 0..FlushPolicy::COUNT,
        order in prop::sample::select(vec![9u64, 9, 0, 5]),
        // Sizes of anonymous folios: 2 MiB, 64 KiB, or none, in which case khugepaged leaves them alone.
        sizes in prop::sample::select(vec![(2u64, 0u64), (2, 2), (1, 2), (0, 2), (0, 0)]),
        ops in prop::collection::vec(op(), 1..40),
    ) {
        let mut world = World::new(order, policy);
        for (knob, value) in [(Knob::HugepagesEnabled2048, sizes.0), (Knob::HugepagesEnabled64, sizes.1)] {
            world.mmu().knobs.set(knob, value).unwrap();
        }
        for (process, op) in ops {
            world.apply(process, op);
            world.check();
        }
    }
}

/// Entries of anonymous memory and of files move whole where they fit: nothing is split, and empty tables are freed.
#[test]
fn mremap_moves_large_entries_whole() {
    let mut world = World::new(9, 1);
    let tables = world.mmu().stats.read(Stat::NrPageTablePages);
    for at in [ANON, ANON + LARGE] {
        world.apply(0, Op::MapAnon { at });
        world.apply(0, Op::Store { at: at + 3 });
    }
    world.apply(0, Op::Load { at: SHARED });
    let large =
        |world: &World| world.runs(world.ids[0].0, 0, END).iter().map(EntryRun::is_large).collect::<Vec<_>>();
    assert_eq!(large(&world), [true; 3]);
    let made = world.mmu().stats.read(Stat::NrPageTablePages) - tables;
    let go = |world: &World, from, to, pages| {
        let (id, fixed) = (world.ids[0].0, Some(Vpn(to)));
        let remap = Remap { start: Vpn(from), old: pages, new: pages, may_move: true, fixed };
        world.spaces.mremap(&world.core, id, remap, gfp()).unwrap();
        let moved = world.core.tables.lock(world.mmu(), id).find(Vpn(to)).unwrap();
        world.spaces.validate(&world.core, world.core.tlb.bound()).unwrap();
        moved
    };
    let there = END + 4 * LARGE;
    assert!(go(&world, ANON, there, PAGES).is_large());
    assert!(go(&world, there, ANON, PAGES).is_large());
    assert!(go(&world, SHARED, there, PAGES).is_large());
    assert!(go(&world, there, SHARED, PAGES).is_large());
    assert_eq!(large(&world), [true; 3]);
    assert_eq!(world.mmu().stats.read(Stat::NrPageTablePages) - tables, made);
    // A border of the moved part cuts the first entry; the second moves whole.
    assert!(!go(&world, ANON + 9, there + 9, PAGES - 9).is_large());
    assert!(world.core.tables.lock(world.mmu(), world.ids[0].0).find(Vpn(there + LARGE)).unwrap().is_large());
    assert_eq!(world.mmu().stats.read(Stat::ThpSplitPmd), 1);
    go(&world, there + 9, ANON + 9, PAGES - 9);
    // It is split where it does not fit.
    assert!(!go(&world, ANON + LARGE, there + 1, LARGE).is_large());
    go(&world, there + 1, ANON + LARGE, LARGE);
    assert_eq!(world.mmu().stats.read(Stat::ThpSplitPmd), 2);
}

/// Advice on a part splits the folio, unless another process uses it; then the entry stays, too.
#[test]
fn advice_on_part_of_a_large_entry_splits_it() {
    for advice in [Advice::Cold, Advice::PageOut] {
        let mut world = World::new(9, 1);
        let part = Op::Advise { at: ANON + 10, pages: 20, advice };
        world.apply(0, Op::MapAnon { at: ANON });
        world.apply(0, Op::Store { at: ANON + 11 });
        world.apply(0, Op::Fork);
        world.apply(0, part);
        assert!(world.runs(world.ids[0].0, 0, END)[0].is_large());
        world.apply(1, Op::Exit);
        world.apply(0, part);
        let runs = world.runs(world.ids[0].0, 0, END);
        assert!(
            runs.len() == 512
                && runs.iter().all(|run| world.core.frames[run.entry.pfn()].order() == Order::ZERO)
        );
    }
}

/// Reclaim may drop the pages of the part, and must keep those outside of it.
#[test]
fn free_of_part_of_a_large_entry_keeps_the_rest() {
    for (from, pages) in [(0, LARGE / 2), (LARGE / 2, LARGE / 2), (100, 200)] {
        let mut world = World::new(9, 1);
        world.apply(0, Op::MapAnon { at: ANON });
        world.apply(0, Op::Advise { at: ANON + from, pages, advice: Advice::Free });
        let id = world.ids[0].0;
        for page in 0..LARGE {
            let run = world.runs(id, ANON + page, ANON + page + 1)[0];
            let frame = &world.core.frames[run.mapped(&world.core.frames).head];
            let dirty = run.entry.has(Bits::DIRTY) || frame.has(FrameFlags::DIRTY);
            let kept = !(from..from + pages).contains(&page);
            assert_eq!((dirty, frame.has(FrameFlags::SWAPBACKED)), (kept, kept), "page {page}");
        }
        assert_eq!(world.mmu().stats.read(Stat::Pglazyfree), pages as i64);
    }
}

/// After a fork the parent's store splits its entry and copies one page; the child keeps its entry.
#[test]
fn write_fault_on_a_shared_large_entry_copies_one_page() {
    let mut world = World::new(9, 1);
    world.apply(0, Op::MapAnon { at: ANON });
    let folio = world.runs(world.ids[0].0, 0, END)[0].entry.pfn();
    world.apply(0, Op::Fork);
    assert_eq!((world.core.frames.entire_mapcount(folio), world.core.frames[folio].refs()), (2, 2));
    world.apply(0, Op::Store { at: ANON + 5 });
    let counts: Vec<_> = world.runs(world.ids[0].0, 0, END).iter().map(|run| run.count).collect();
    assert_eq!(counts, [5, 1, 506]);
    assert_eq!((world.core.frames.entire_mapcount(folio), world.core.frames[folio].mapcount()), (1, 512));
    assert_eq!(world.mmu().stats.read(Stat::ThpSplitPmd), 1);
    assert!(world.runs(world.ids[1].0, 0, END)[0].is_large());
}

/// mprotect has split the child's entry. The folio can be split all the same, with the parent's entry.
#[test]
fn folio_that_one_process_maps_whole_and_another_by_pages_is_split() {
    let mut world = World::new(9, 1);
    world.apply(0, Op::MapAnon { at: ANON });
    world.apply(0, Op::Fork);
    world.apply(1, Op::Protect { at: ANON + 8, pages: 8, write: false });
    let is_large = |process: usize| world.runs(world.ids[process].0, 0, END)[0].is_large();
    assert_eq!([0, 1].map(is_large), [true, false]);
    world.with_folio(world.ids[0].0, ANON, |folio| {
        assert_eq!(world.core.rmap.split_anon(&world.core, folio, None), Some(0));
    });
    for process in [0, 1] {
        let runs = world.runs(world.ids[process].0, 0, END);
        assert!(runs.iter().all(|run| world.core.frames[run.entry.pfn()].order() == Order::ZERO));
        assert_eq!(runs.len(), 512);
    }
    world.check();
}

/// The parent maps a part of the folio page by page. When the child's large entry goes, nothing maps the rest.
#[test]
fn folio_that_loses_its_large_entry_is_queued_for_split() {
    let mut world = World::new(9, 1);
    world.apply(0, Op::MapAnon { at: ANON });
    world.apply(0, Op::Fork);
    world.apply(0, Op::Advise { at: ANON + 8, pages: LARGE - 8, advice: Advice::DontNeed });
    assert_eq!(world.core.lru.splits_deferred(NodeId(0)), 0);
    world.apply(1, Op::Advise { at: ANON, pages: LARGE, advice: Advice::DontNeed });
    assert_eq!(world.core.lru.splits_deferred(NodeId(0)), 1);
}

/// Both ends of the dropped part are inside large entries.
#[test]
fn dontneed_may_begin_and_end_in_large_entries() {
    let mut world = World::new(9, 1);
    for at in [ANON, ANON + LARGE] {
        world.apply(0, Op::MapAnon { at });
    }
    for at in [ANON + 99, ANON + 100, ANON + LARGE + 99, ANON + LARGE + 100] {
        world.apply(0, Op::Store { at });
    }
    world.apply(0, Op::Advise { at: ANON + 100, pages: LARGE, advice: Advice::DontNeed });
    let pages: Vec<_> =
        world.runs(world.ids[0].0, 0, END).iter().map(|run| (run.page.0 - ANON, run.count)).collect();
    assert_eq!(pages.iter().map(|run| run.1).sum::<u32>(), 512, "{pages:?}");
}

/// A private store drops the entry of the file's folio; the other pages are faulted in again.
#[test]
fn private_store_drops_a_large_file_entry() {
    let mut world = World::new(9, 1);
    world.apply(0, Op::Load { at: PRIVATE + 7 });
    assert!(world.runs(world.ids[0].0, 0, END)[0].is_large());
    world.apply(0, Op::Store { at: PRIVATE + 7 });
    let runs = world.runs(world.ids[0].0, 0, END);
    assert_eq!((runs.len(), runs[0].page, runs[0].order), (1, Vpn(PRIVATE + 7), Order::ZERO));
    world.apply(0, Op::Load { at: PRIVATE + 8 });
}

/// Small folios become one, which keeps their content and is mapped by one entry. A private copy prevents that.
#[test]
fn collapse_preserves_content() {
    let mut world = World::new(0, 3);
    for at in [SHARED + 3, SHARED + 300, PRIVATE + 600] {
        world.apply(0, Op::Store { at });
    }
    let id = world.ids[0].0;
    let collapse = |world: &World, at| world.spaces.collapse(&world.core, id, Vpn(at), LARGE, gfp());
    assert_eq!(collapse(&world, SHARED), Ok(1));
    assert_eq!(collapse(&world, SHARED), Ok(1));
    let runs = world.runs(id, 0, END);
    assert!(runs[0].is_large() && world.mmu().stats.read(Stat::ThpCollapseAlloc) == 1, "{runs:?}");
    world.check();
    assert_eq!(collapse(&world, PRIVATE + LARGE), Err(Stop::Error(Error::Invalid)));
    assert_eq!(collapse(&world, ANON), Err(Stop::Error(Error::Invalid)));
    world.apply(0, Op::Store { at: SHARED + 4 });
    world.apply(0, Op::Load { at: SHARED + 3 });
}

/// Another process has mapped pages of the folio one by one since it was made.
#[test]
fn collapse_replaces_entries_of_the_same_folio() {
    let mut world = World::new(0, 3);
    world.apply(0, Op::Store { at: SHARED + 3 });
    world.apply(0, Op::Fork);
    world.apply(1, Op::Load { at: SHARED + 3 });
    let [one, other] = [0, 1].map(|process| world.ids[process].0);
    let collapse = |world: &World, id| world.spaces.collapse(&world.core, id, Vpn(SHARED), LARGE, gfp());
    assert_eq!(collapse(&world, one), Ok(1));
    world.apply(1, Op::Load { at: SHARED + 5 });
    assert!(!world.runs(other, SHARED, SHARED + LARGE)[0].is_large());
    assert_eq!(collapse(&world, other), Ok(1));
    assert!(world.runs(other, SHARED, SHARED + LARGE)[0].is_large());
}

/// Nothing is made in vain: neither memory nor a large folio of the file.
#[test]
fn collapse_beside_a_private_copy_allocates_nothing() {
    let mut world = World::new(0, 3);
    world.apply(0, Op::Store { at: SHARED + 3 });
    world.apply(0, Op::Store { at: PRIVATE + 4 });
    let refused = world.spaces.collapse(&world.core, world.ids[0].0, Vpn(PRIVATE), LARGE, gfp());
    assert_eq!(refused, Err(Stop::Error(Error::Invalid)));
    assert_eq!(world.mmu().stats.read(Stat::ThpCollapseAlloc), 0);
}
