//! Collapse of anonymous memory: its result, and each reason for which it fails and changes nothing.

use super::*;
use crate::alloc::Watermark;
use crate::cache::add_to_swap;
use crate::event::Event;
use crate::frame::FolioRun;
use crate::memory::Gfp;
use crate::rmap::UnmapMode;
use crate::table::Resident;
use crate::tlb::UnmapBatch;
use std_alloc::vec::Vec;

const LAZY: u64 = FlushPolicy::Lazy.value();
const BATCH: u64 = FlushPolicy::Batch.value();
const NO_SIZES: [u64; 8] = [0; 8];

/// A process that has stored to the first `stored` pages.
fn world(policy: u64, stored: u64) -> World {
    let mut world = World::new(policy, &NO_SIZES, 600);
    world.run_on(0, Some(world.spaces[0].0));
    (FIRST..FIRST + stored).for_each(|at| world.store(0, at));
    world
}

impl World {
    fn collapse(&self) -> Result<u64, Error> {
        self.bench.mm.collapse(self.spaces[0].0, Vpn(FIRST), LARGE)
    }

    fn scan(&self) {
        self.bench.mm.spaces.scan_from_start(&self.bench.mm.core);
    }

    fn set(&self, knob: Knob, value: u64) {
        self.bench.mm.mmu().knobs.set(knob, value).unwrap();
    }

    fn stats<const N: usize>(&self, stats: [Stat; N]) -> [i64; N] {
        stats.map(|stat| self.bench.mm.mmu().stats.read(stat))
    }

    /// All that a process maps: page, entry without young and dirty bits, references, and flags except those of lists.
    fn mapped(&self, process: usize) -> Vec<(u64, u64, u32, bool)> {
        let (mm, mut found) = (&self.bench.mm, Vec::new());
        let mut tables = mm.core.tables.lock(mm.mmu(), self.spaces[process].0);
        tables.for_each(Vpn(0), Vpn(FIRST + BOTH), |_, run| {
            let frame = run.entry.is_present().then(|| &mm.core.frames[run.mapped(&mm.core.frames).head]);
            let entry = run.entry.without(Bits::YOUNG | Bits::DIRTY).raw();
            let locked = frame.is_some_and(|frame| frame.has(FrameFlags::LOCKED));
            found.push((run.page.0, entry, frame.map_or(0, |frame| frame.refs()), locked));
        });
        found
    }

    fn is_large(&self, process: usize) -> bool {
        self.entry(self.spaces[process].0, FIRST).is_some_and(|run| run.is_large())
    }

    fn head_at(&self, process: usize, at: u64) -> Pfn {
        self.bench.mm.core.frames.head(self.shown(self.spaces[process].0, at).unwrap().0)
    }

    /// As reclaim does: unmap a page's folio to its slot, and free it once it is written.
    fn swap_out(bench: &Bench, head: Pfn) {
        let (core, base) = (&bench.mm.core, bench.mm.mmu());
        core.frames[head].get(1);
        assert!(core.try_lock_folio(head) && add_to_swap(core, head));
        let mut batch = UnmapBatch::new(base.host());
        core.rmap.try_to_unmap(core, FolioRun::one(&head), UnmapMode::default(), &mut batch);
        assert_eq!(core.frames[head].mapcount(), 0);
        batch.settle(base.host(), &core.tlb);
        let slot = core.frames[head].swap_slot();
        bench.blocks.lock().insert(core.swap.place(slot), bench.mm.machine().stamp(head));
        crate::cache::remove_from_swap_cache(core, head, None);
        core.unlock_folio(head);
        core.put(head);
    }

    /// The call fails with `error`, and changes nothing.
    #[track_caller]
    fn refuses(&self, error: Error) {
        let (before, counts) = (self.mapped(0), self.stats([Stat::NrAnonPages, Stat::NrPageTablePages]));
        assert_eq!(self.collapse(), Err(error));
        assert_eq!(self.mapped(0), before);
        assert_eq!(self.stats([Stat::NrAnonPages, Stat::NrPageTablePages]), counts);
    }

    /// khugepaged looks at the place, counts `stat`, and changes nothing.
    #[track_caller]
    fn is_skipped_by_khugepaged(&self, stat: Option<Stat>) {
        let before = self.mapped(0);
        let exceed = [Stat::ThpScanExceedNonePte, Stat::ThpScanExceedSwapPte, Stat::ThpScanExceedSharePte];
        let counted = self.stats(exceed);
        self.scan();
        assert_eq!(self.mapped(0), before);
        let expected = exceed.map(|each| i64::from(stat == Some(each)));
        let now = self.stats(exceed);
        assert_eq!(core::array::from_fn(|i| now[i] - counted[i]), expected);
    }
}

#[test]
fn collapse_merges_pages_holes_and_zeroes() {
    for policy in 0..FlushPolicy::COUNT {
        let mut world = world(policy, 300);
        let space = world.spaces[0].0;
        world.load(0, FIRST + 400);
        world.run_on(1, Some(space));
        world.store(0, FIRST + 7);
        let tables = world.stats([Stat::NrPageTablePages]);
        assert_eq!(world.collapse(), Ok(1));
        assert!(world.is_large(0));
        let machine = world.bench.mm.machine();
        for (cpu, at) in [(0, 0), (0, 7), (0, 400), (1, 7)] {
            assert_eq!(machine.held(CpuId(cpu), Vpn(FIRST + at)), None, "CPU {cpu} keeps page {at}");
        }
        let counted = [Stat::ThpCollapseAlloc, Stat::NrAnonTransparentHugepages, Stat::NrAnonPages];
        assert_eq!(world.stats(counted), [1, 1, 512]);
        // The table is deposited.
        assert_eq!(world.stats([Stat::NrPageTablePages]), tables);
        let head = world.head_at(0, FIRST);
        assert_eq!((world.bench.mm.core.frames[head].refs(), world.sum(SizeStat::NrAnon)), (1, 1));
        world.store(0, FIRST + 500);
        assert!(world.is_large(0), "a store must find the entry writable");
        assert_eq!(world.collapse(), Ok(1), "a second collapse must succeed");
        assert_eq!(world.stats(counted)[0], 1);
    }
}

/// The block may have been used before: what is not copied to it must be zeroed.
#[test]
fn collapse_zeroes_holes_before_between_and_after_pages() {
    let mut world = world(BATCH, 0);
    (FIRST + 50..FIRST + 100).chain(FIRST + 110..FIRST + 300).for_each(|at| world.store(0, at));
    world.load(0, FIRST + 400);
    let (core, machine) = (&world.bench.mm.core, world.bench.mm.machine());
    let used: Vec<_> =
        core::iter::from_fn(|| core.new_folio(PAGEBLOCK_ORDER, Gfp::user(ROOT)).ok()).collect();
    for whole in used {
        (0..LARGE as u32).for_each(|page| machine.set_stamp(whole.add(page), u64::MAX));
        core.put(whole);
    }
    assert_eq!(world.collapse(), Ok(1));
    (FIRST..FIRST + LARGE).for_each(|at| world.load(0, at));
}

/// As in Linux: MADV_COLLAPSE ends where nothing is mapped, and tells this reason, not one of what comes after.
#[test]
fn collapse_ends_where_nothing_is_mapped() {
    let mut world = world(BATCH, 0);
    world.store(0, FIRST + LARGE + 3);
    let (mm, pfn) = (&world.bench.mm, world.head_at(0, FIRST + LARGE + 3));
    assert!(mm.core.try_lock_folio(pfn));
    assert_eq!(mm.collapse(world.spaces[0].0, Vpn(FIRST), BOTH), Err(Error::Invalid));
    mm.core.unlock_folio(pfn);
}

#[test]
fn collapse_goes_on_after_a_page_in_use() {
    let mut world = world(BATCH, 1);
    world.store(0, FIRST + LARGE + 3);
    let (mm, pfn, space) = (&world.bench.mm, world.head_at(0, FIRST), world.spaces[0].0);
    mm.core.frames[pfn].get(1);
    assert_eq!(mm.collapse(space, Vpn(FIRST), BOTH), Err(Error::Again));
    mm.core.put(pfn);
    assert!(!world.is_large(0) && world.entry(space, FIRST + LARGE).unwrap().is_large());
}

#[test]
fn collapse_merges_small_folios() {
    let mut sizes = NO_SIZES;
    sizes[2] = 1;
    let mut world = World::new(LAZY, &sizes, 600);
    world.run_on(0, Some(world.spaces[0].0));
    (FIRST + 256..FIRST + LARGE).step_by(16).for_each(|at| world.store(0, at));
    // A folio of which a part is in the other table, and one with a hole in it.
    let mm = &world.bench.mm;
    let space = world.spaces[0].0;
    mm.mremap(space, Vpn(FIRST + 480), 16, 16, true, Some(Vpn(FIRST + LARGE - 5))).unwrap();
    let moved: Vec<_> = (0..16).map(|i| world.spaces[0].1.remove(&(FIRST + 480 + i)).unwrap()).collect();
    world.spaces[0].1.extend((FIRST + LARGE - 5..).zip(moved));
    mm.mmap(space, &request(Vpn(FIRST + 480), 16, Backing::Anonymous)).unwrap();
    world.spaces[0].1.extend((FIRST + 480..FIRST + 496).map(|at| (at, (0, false))));
    world.range(0, What::Forget, FIRST + 300, 3);
    // The part that was moved is another range, and collapse needs a single one.
    assert_eq!(world.collapse(), Err(Error::Invalid));
    world.range(0, What::Map, FIRST + LARGE - 5, 16);
    world.store(0, FIRST + LARGE + 3);
    assert_eq!(world.collapse(), Ok(1));
    assert_eq!(world.sum(SizeStat::NrAnon), 2, "2 MiB, and 64 KiB after them");
    assert_eq!(world.sum(SizeStat::NrAnonPartiallyMapped), 0);
}

#[test]
fn collapse_queues_folios_mapped_elsewhere_for_split() {
    let mut sizes = NO_SIZES;
    sizes[2] = 1;
    let mut world = World::new(BATCH, &sizes, 600);
    world.run_on(0, Some(world.spaces[0].0));
    world.store(0, FIRST + 32);
    // The child shares the folio, and keeps four of its pages.
    world.apply(&(0, 0, Op::Fork));
    world.range(1, What::Unmap, FIRST + 36, 12);
    world.store(0, FIRST + 100);
    assert_eq!((world.sum(SizeStat::NrAnonPartiallyMapped), world.collapse()), (0, Ok(1)));
    assert_eq!(world.sum(SizeStat::NrAnonPartiallyMapped), 1);
}

#[test]
fn collapse_copies_shared_pages() {
    let mut world = world(LAZY, 100);
    world.apply(&(0, 0, Op::Fork));
    world.refuses(Error::Invalid);
    world.store(0, FIRST + 3);
    let childs = world.mapped(1);
    assert_eq!(world.collapse(), Ok(1));
    let after = world.mapped(1);
    assert!(childs.iter().zip(&after).all(|(old, new)| (old.0, old.1) == (new.0, new.1)));
    assert!(after.iter().all(|&(_, _, refs, locked)| refs == 1 && !locked));
    world.apply(&(1, 1, Op::Store(FIRST + 4)));
    world.apply(&(0, 0, Op::Store(FIRST + 5)));
}

#[test]
fn collapse_rejects_unsuitable_ranges() {
    let world = world(BATCH, 0);
    world.refuses(Error::Invalid);
    let mut world = self::world(BATCH, 1);
    let (mm, space) = (&world.bench.mm, world.spaces[0].0);
    let call = |at, pages| mm.collapse(space, Vpn(at), pages);
    assert_eq!(call(FIRST + 1, 511), Ok(0), "no aligned 2 MiB");
    assert_eq!(call(FIRST + 1, 300), Err(Error::Invalid));
    assert_eq!(call(FIRST + LARGE, LARGE), Err(Error::Invalid), "nothing is mapped");
    mm.madvise(space, Vpn(FIRST), BOTH, Advice::NoHugePage).unwrap();
    world.refuses(Error::Invalid);
    mm.madvise(space, Vpn(FIRST), BOTH, Advice::HugePage).unwrap();
    mm.mprotect(space, Vpn(FIRST), BOTH, Prot::READ).unwrap();
    world.refuses(Error::Invalid);
    mm.mprotect(space, Vpn(FIRST), BOTH, Prot::READ | Prot::WRITE).unwrap();
    mm.munmap(space, Vpn(FIRST + LARGE), LARGE).unwrap();
    world.spaces[0].1.retain(|&at, _| at < FIRST + LARGE);
    assert_eq!(call(FIRST, BOTH), Err(Error::NotMapped), "the end is not mapped");
    assert!(world.is_large(0));
}

#[test]
fn collapse_without_a_block_changes_nothing() {
    let world = world(BATCH, 100);
    let core = &world.bench.mm.core;
    let gfp = Gfp { mark: Watermark::Min, ..Gfp::user(ROOT) };
    let held: Vec<_> = core::iter::from_fn(|| core.new_folio(PAGEBLOCK_ORDER, gfp).ok()).collect();
    world.refuses(Error::NoMemory);
    world.set(Knob::HugepagesEnabled2048, 2);
    world.is_skipped_by_khugepaged(None);
    // khugepaged slept, and tried the other range, of which it has no page.
    assert_eq!(world.stats([Stat::ThpCollapseAllocFailed, Stat::ThpCollapseAlloc]), [2, 0]);
    let minute = 60_000_000_000;
    assert!((minute..2 * minute).contains(&world.bench.mm.machine().now()));
    held.into_iter().for_each(|pfn| core.put(pfn));
}

#[test]
fn collapse_in_a_full_group_changes_nothing() {
    let mut world = world(BATCH, 0);
    let mm = &world.bench.mm;
    let limits = GroupLimits { max: 300, ..GroupLimits::default() };
    let space = mm.create_space(mm.create_group(ROOT, limits).unwrap()).unwrap();
    let old = core::mem::replace(&mut world.spaces[0], (space, Model::new()));
    world.run_on(0, Some(space));
    world.range(0, What::Map, FIRST, BOTH);
    (FIRST..FIRST + 100).for_each(|at| world.store(0, at));
    world.refuses(Error::Busy);
    world.spaces.push(old);
}

/// A locked or referenced page among others: those before it are unlocked again.
#[test]
fn collapse_with_a_referenced_page_changes_nothing() {
    let world = world(BATCH, 300);
    let (core, pfn) = (&world.bench.mm.core, world.head_at(0, FIRST + 150));
    assert!(core.try_lock_folio(pfn));
    world.refuses(Error::Again);
    core.unlock_folio(pfn);
    core.frames[pfn].get(1);
    world.refuses(Error::Again);
    assert_eq!(
        world.stats([Stat::ThpCollapseAlloc]),
        [0],
        "the page must be found before a folio is allocated"
    );
    core.put(pfn);
    assert_eq!(world.collapse(), Ok(1));
}

/// While pages are swapped in, other pages are locked, isolated or swapped out.
#[test]
fn collapse_rechecks_after_swap_in() {
    type Meanwhile = fn(&'static Bench, Pfn);
    let cases: [(Meanwhile, Error); 3] = [
        (|bench, pfn| assert!(bench.mm.core.try_lock_folio(pfn)), Error::Again),
        (|bench, pfn| bench.mm.core.frames[pfn].get(1), Error::Again),
        (World::swap_out, Error::Invalid),
    ];
    for policy in [BATCH, LAZY] {
        for (interfere, error) in cases {
            let world = world(policy, 300);
            let (bench, space) = (world.bench, world.spaces[0].0);
            let others: Vec<_> = (100..110).map(|i| world.head_at(0, FIRST + i)).collect();
            others.into_iter().for_each(|pfn| World::swap_out(bench, pfn));
            // The swap-in is past this page by then.
            let victim = world.head_at(0, FIRST + 50);
            let before = world.mapped(0);
            let done = Lock::new(false);
            *bench.mm.machine().idle.lock() = Some(Box::new(move |_| {
                if !core::mem::replace(&mut *done.lock(), true) {
                    interfere(bench, victim);
                }
                bench.end_transfers();
            }));
            assert_eq!(world.collapse(), Err(error));
            *bench.mm.machine().idle.lock() = Some(Box::new(|_| bench.end_transfers()));
            assert!(!world.is_large(0) && world.stats([Stat::ThpCollapseAlloc]) == [1]);
            let after = world.mapped(0);
            assert_eq!(after.len(), before.len());
            assert!(after.iter().all(|page| !page.3 || page.0 == FIRST + 50), "{after:?}");
            let core = &bench.mm.core;
            if error == Error::Again {
                let locked = core.frames[victim].has(FrameFlags::LOCKED);
                if locked { core.unlock_folio(victim) } else { core.put(victim) }
            }
            assert_eq!(
                bench.mm.collapse(space, Vpn(FIRST), LARGE),
                Ok(1),
                "collapse must succeed afterwards"
            );
            let counts = [Resident::Anon, Resident::Swap]
                .map(|kind| core.tables.lock(bench.mm.mmu(), space).counts().get(kind));
            assert_eq!(counts, [512, 0]);
        }
    }
}

#[test]
fn khugepaged_respects_max_ptes_none() {
    let world = world(BATCH, 100);
    world.is_skipped_by_khugepaged(None);
    world.set(Knob::HugepagesEnabled2048, 2);
    world.set(Knob::KhugepagedMaxPtesNone, 411);
    world.is_skipped_by_khugepaged(Some(Stat::ThpScanExceedNonePte));
    world.set(Knob::KhugepagedMaxPtesNone, 412);
    world.scan();
    assert!(world.is_large(0));
    let done = [Stat::KhugepagedPagesCollapsed, Stat::KhugepagedFullScans, Stat::ThpScanExceedNonePte];
    assert_eq!(world.stats(done), [1, 3, 1]);
}

#[test]
fn khugepaged_scans_advised_ranges() {
    let world = world(BATCH, 100);
    world.set(Knob::HugepagesEnabled2048, 1);
    world.is_skipped_by_khugepaged(None);
    let advise = |advice| world.bench.mm.madvise(world.spaces[0].0, Vpn(FIRST), BOTH, advice).unwrap();
    advise(Advice::NoHugePage);
    world.set(Knob::HugepagesEnabled2048, 2);
    world.is_skipped_by_khugepaged(None);
    world.set(Knob::HugepagesEnabled2048, 1);
    advise(Advice::HugePage);
    world.scan();
    assert!(world.is_large(0));
}

#[test]
fn khugepaged_respects_max_ptes_swap() {
    let world = world(BATCH, 400);
    world.set(Knob::HugepagesEnabled2048, 2);
    for i in 0..65 {
        World::swap_out(world.bench, world.head_at(0, FIRST + i));
    }
    world.is_skipped_by_khugepaged(Some(Stat::ThpScanExceedSwapPte));
    world.set(Knob::KhugepagedMaxPtesSwap, 65);
    world.scan();
    assert!(world.is_large(0));
}

#[test]
fn khugepaged_respects_max_ptes_shared() {
    let mut world = world(BATCH, 300);
    world.set(Knob::HugepagesEnabled2048, 2);
    world.apply(&(0, 0, Op::Fork));
    world.store(0, FIRST);
    let before = world.mapped(0);
    world.scan();
    assert_eq!(world.stats([Stat::ThpScanExceedSharePte]), [2], "both processes must count one");
    assert_eq!(world.mapped(0), before);
    // The child maps nothing writable.
    world.set(Knob::KhugepagedMaxPtesShared, 299);
    world.scan();
    assert!(world.is_large(0) && !world.is_large(1));
}

#[test]
fn khugepaged_skips_unused_pages() {
    let world = world(BATCH, 400);
    let (core, space) = (&world.bench.mm.core, world.spaces[0].0);
    world.set(Knob::HugepagesEnabled2048, 2);
    let forget = |from, to| {
        for i in from..to {
            let pfn = world.head_at(0, FIRST + i);
            let [_] = core.rmap.referenced(core, FolioRun::one(&pfn), None, None);
            core.frames[pfn].clear(FrameFlags::REFERENCED);
        }
    };
    forget(0, 400);
    world.is_skipped_by_khugepaged(None);
    assert!(world.bench.mm.machine().held(CpuId(0), Vpn(FIRST)).is_some());
    // A page in swap is read only if the pages around it are used.
    let mark = |i| {
        let mut tables = core.tables.lock(core, space);
        let slot = tables.find(Vpn(FIRST + i)).unwrap().slot;
        tables.mark_used(slot, false);
    };
    (0..255).for_each(mark);
    World::swap_out(world.bench, world.head_at(0, FIRST + 399));
    world.is_skipped_by_khugepaged(None);
    mark(255);
    world.scan();
    assert!(world.is_large(0));
}

/// A deferred flush is paid before the address maps a writable copy.
#[test]
fn collapse_settles_debts_of_its_table() {
    let mut world = world(LAZY, 100);
    let (bench, space) = (world.bench, world.spaces[0].0);
    // Read-only on both CPUs, so that its flush may be deferred.
    let core = &bench.mm.core;
    core.gather(space, |gather| {
        let mut tables = core.tables.lock(core, space);
        let run = tables.find(Vpn(FIRST)).unwrap();
        gather.tightened(core.host(), tables.forbid_writes(&run));
    });
    world.run_on(1, Some(space));
    world.load(0, FIRST);
    World::swap_out(bench, world.head_at(0, FIRST));
    assert!(bench.mm.machine().held(CpuId(1), Vpn(FIRST)).is_some(), "the flush must be deferred");
    world.run_on(0, Some(space));
    assert_eq!(world.collapse(), Ok(1));
    assert_eq!(bench.mm.machine().held(CpuId(1), Vpn(FIRST)), None);
    world.store(0, FIRST);
    world.run_on(1, Some(space));
    world.load(0, FIRST);
}

/// A CPU that holds the tables lazily might walk them speculatively, and set bits in what is no table any more.
#[test]
fn collapse_flushes_lazy_cpus() {
    let mut world = world(BATCH, 100);
    world.run_on(1, Some(world.spaces[0].0));
    world.load(0, FIRST);
    world.run_on(1, None);
    world.run_on(0, Some(world.spaces[0].0));
    let machine = world.bench.mm.machine();
    assert!(machine.roots.lock()[&CpuId(1)].0.is_some());
    assert_eq!(world.collapse(), Ok(1));
    assert_eq!(machine.roots.lock()[&CpuId(1)].0, Pfn::NONE);
}

/// Another CPU stores through the translation that it keeps, until it is flushed.
#[test]
fn collapse_copies_stores_made_before_its_flush() {
    let mut world = world(BATCH, 100);
    let (machine, page) = (world.bench.mm.machine(), Vpn(FIRST + 9));
    world.run_on(1, Some(world.spaces[0].0));
    world.store(0, page.0);
    world.run_on(0, Some(world.spaces[0].0));
    *machine.watcher.lock() = Some(Box::new(move |machine, event, _| {
        if event == Event::TlbStale
            && let Some((pfn, true)) = machine.held(CpuId(1), page)
        {
            machine.set_stamp(pfn, 777);
        }
    }));
    assert_eq!(world.collapse(), Ok(1));
    *machine.watcher.lock() = None;
    world.spaces[0].1.insert(page.0, (777, false));
    world.load(0, page.0);
}

#[test]
fn collapse_keeps_mlock() {
    let mut world = world(BATCH, 1);
    world.range(0, What::Lock, FIRST, BOTH);
    assert_eq!(world.collapse(), Ok(1));
    let head = world.head_at(0, FIRST);
    assert!(world.bench.mm.core.frames[head].has(FrameFlags::MLOCKED));
    assert_eq!(world.stats([Stat::NrMlock]), [BOTH as i64]);
    world.range(0, What::Unlock, FIRST, BOTH);
}

/// The pages after the large entry are dropped first; then the entry is split, and its pages are dropped.
#[test]
fn dontneed_flushes_pages_after_a_large_entry() {
    for policy in 0..FlushPolicy::COUNT {
        let mut world = world(policy, LARGE + 20);
        let space = world.spaces[0].0;
        assert_eq!(world.collapse(), Ok(1));
        world.run_on(1, Some(space));
        for at in [FIRST + 500, FIRST + LARGE + 5] {
            world.load(0, at);
        }
        world.run_on(0, Some(space));
        world.range(0, What::Forget, FIRST + 490, 40);
        world.run_on(1, Some(space));
        for at in [FIRST + 500, FIRST + LARGE + 5] {
            world.load(0, at);
        }
    }
}

/// More pages are in swap than in memory.
#[test]
fn collapse_brings_back_most_pages() {
    let mut world = world(BATCH, 300);
    for i in 0..200 {
        World::swap_out(world.bench, world.head_at(0, FIRST + i));
    }
    assert_eq!(world.collapse(), Ok(1));
    assert!(world.is_large(0));
    (FIRST..FIRST + 300).for_each(|at| world.load(0, at));
}
