//! Processes with large folios on two CPUs that keep their translations, with too little swap: what each must read
//! after any sequence of map, fork, store, split, collapse, swap-out and swap-in.

mod collapse;

use super::*;
use crate::migrate::Mode;
use crate::stat::SizeStat;
use crate::table::EntryRun;
use proptest::prelude::*;
use std_alloc::boxed::Box;
use std_alloc::vec;

/// A border between page tables is inside, and the beginning is not aligned for the larger sizes.
const BASE: u64 = 512 * 20 - 70;
const PAGES: u64 = 160;
const END: u64 = BASE + PAGES;
/// The two tables around it are fully mapped, so that they can be collapsed.
const FIRST: u64 = 512 * 19;
const BOTH: u64 = 1024;
const CPUS: usize = 2;

#[derive(Clone, Copy, Debug)]
enum What {
    Map,
    Unmap,
    Forget,
    Free,
    Cold,
    PageOut,
    Protect,
    Lock,
    Unlock,
    Move(u64),
    /// Move to other frames.
    Migrate,
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Store(u64),
    Load(u64),
    Range(What, u64, u64),
    Fork,
    Exit,
    /// Split the folio of a page, whether or not it is queued for a split.
    Split(u64),
    /// Split all folios that are queued.
    SplitDeferred,
    /// Collapse the 2 MiB around a page, as MADV_COLLAPSE does; or run khugepaged.
    Collapse(u64),
    Khugepaged,
    Reclaim,
    /// Compact, with folios treated as a value of the knob says.
    Compact(u64, Mode),
    EndTransfers,
}

/// CPU, process and operation.
type Step = (u16, usize, Op);

fn step() -> impl Strategy<Value = Step> {
    let at = || BASE..END;
    let pages = || prop_oneof![1..12u64, 1..PAGES];
    let what = prop_oneof![
        1 => Just(What::Map),
        1 => Just(What::Unmap),
        3 => Just(What::Forget),
        2 => Just(What::Free),
        1 => Just(What::Cold),
        6 => Just(What::PageOut),
        1 => Just(What::Protect),
        1 => Just(What::Lock),
        2 => Just(What::Unlock),
        2 => at().prop_map(What::Move),
        5 => Just(What::Migrate),
    ];
    let op = prop_oneof![
        12 => at().prop_map(Op::Store),
        8 => at().prop_map(Op::Load),
        12 => (what, at(), pages()).prop_map(|(what, at, pages)| Op::Range(what, at, pages)),
        2 => Just(Op::Fork),
        1 => Just(Op::Exit),
        3 => at().prop_map(Op::Split),
        1 => Just(Op::SplitDeferred),
        4 => at().prop_map(Op::Collapse),
        1 => Just(Op::Khugepaged),
        2 => Just(Op::Reclaim),
        4 => (0..6u64, prop_oneof![Just(Mode::Async), Just(Mode::SyncLight), Just(Mode::Sync)])
            .prop_map(|(folios, mode)| Op::Compact(folios, mode)),
        2 => Just(Op::EndTransfers),
    ];
    (0..CPUS as u16, 0..4usize, op)
}

/// What a page reads, and whether it may read zeroes instead, since MADV_FREE.
type Model = BTreeMap<u64, (u64, bool)>;

struct Bench {
    mm: Mm<TestMachine>,
    blocks: Blocks,
}

struct World {
    bench: &'static Bench,
    spaces: Vec<(SpaceId, Model)>,
    runs: [Option<SpaceId>; CPUS],
    stamp: u64,
}

impl Bench {
    fn end_transfers(&self) {
        carry_transfers(&self.mm, &self.blocks, None);
    }
}

impl World {
    fn new(policy: u64, sizes: &[u64], swap: u32) -> World {
        let mm = with_swap(TestMachine::simple(CPUS, 8192), swap);
        mm.mmu().knobs.set(Knob::TlbUnmap, policy).unwrap();
        let knobs = Knob::ALL.iter().filter(|knob| knob.info().name.starts_with("hugepages-"));
        knobs.zip(sizes).for_each(|(&knob, &size)| mm.mmu().knobs.set(knob, 2 * size).unwrap());
        let bench: &'static Bench = Box::leak(Box::new(Bench { mm, blocks: Lock::default() }));
        *bench.mm.machine().idle.lock() = Some(Box::new(|_| bench.end_transfers()));
        let first = bench.mm.create_space(ROOT).unwrap();
        let mut world = World { bench, spaces: vec![(first, Model::new())], runs: [None; CPUS], stamp: 0 };
        world.range(0, What::Map, FIRST, BOTH);
        world
    }

    fn apply(&mut self, &(cpu, process, op): &Step) {
        let process = process % self.spaces.len();
        let space = self.spaces[process].0;
        self.run_on(cpu, Some(space));
        match op {
            Op::Store(at) => self.store(process, at),
            Op::Load(at) => self.load(process, at),
            Op::Range(what, at, pages) => self.range(process, what, at, pages.min(END - at)),
            Op::Fork if self.spaces.len() < 4 => {
                let child = (self.bench.mm.fork(space).unwrap(), self.spaces[process].1.clone());
                self.spaces.push(child);
            }
            Op::Exit if self.spaces.len() > 1 => {
                (0..CPUS as u16).for_each(|cpu| self.leave(cpu, space));
                self.bench.mm.exit_space(space);
                self.spaces.swap_remove(process);
            }
            Op::Fork | Op::Exit => {}
            Op::Collapse(at) => _ = self.bench.mm.collapse(space, Vpn(at / 512 * 512), 512),
            Op::Khugepaged => self.bench.mm.spaces.scan_from_start(&self.bench.mm.core),
            Op::Split(at) => {
                if let Some((pfn, _)) = self.shown(space, at) {
                    let core = &self.bench.mm.core;
                    let head = core.frames.head(pfn);
                    core.frames[head].get(1);
                    self.split(head);
                    core.put(head);
                }
            }
            Op::SplitDeferred => {
                let lru = &self.bench.mm.core.lru;
                for _ in 0..lru.splits_deferred(NodeId(0)) {
                    if let Some(pfn) = lru.next_deferred(self.bench.mm.mmu(), NodeId(0)) {
                        self.split(pfn);
                        self.bench.mm.core.put(pfn);
                    }
                }
            }
            Op::Reclaim => reclaim_node(&self.bench.mm),
            Op::Compact(folios, mode) => {
                self.bench.mm.mmu().knobs.set(Knob::CompactionFolios, folios).unwrap();
                compact::everything_by(&self.bench.mm.core, mode);
            }
            Op::EndTransfers => self.bench.end_transfers(),
        }
    }

    /// Split a folio, of which the caller holds one reference.
    fn split(&self, pfn: Pfn) {
        let core = &self.bench.mm.core;
        if core.frames[pfn].order() > Order::ZERO && core.frames[pfn].is_anon() && core.try_lock_folio(pfn) {
            let busy = core.frames[pfn].has_any(FrameFlags::SWAPCACHE | FrameFlags::WRITEBACK);
            let split = core.rmap.split_anon(core, pfn, None).is_some();
            assert_eq!(split, !busy, "only references of other tasks may keep {pfn} from being split");
            core.unlock_folio(pfn);
        }
    }

    fn run_on(&mut self, cpu: u16, space: Option<SpaceId>) {
        self.bench.mm.machine().run_on(cpu);
        if self.runs[cpu as usize] != space {
            self.bench.mm.switch(space);
            self.runs[cpu as usize] = space;
        }
    }

    /// Make the CPU run something else.
    fn leave(&mut self, cpu: u16, space: SpaceId) {
        if self.runs[cpu as usize] == Some(space) {
            self.run_on(cpu, None);
        }
    }

    /// The run of one entry that maps a page, if there is one.
    fn entry(&self, space: SpaceId, at: u64) -> Option<EntryRun> {
        let mm = &self.bench.mm;
        mm.core.tables.lock(mm.mmu(), space).find(Vpn(at)).filter(|run| !run.entry.is_none())
    }

    /// The frame that a page maps, and whether it is writable.
    fn shown(&self, space: SpaceId, at: u64) -> Option<(Pfn, bool)> {
        let run = self.entry(space, at).filter(|run| run.entry.is_present())?;
        Some((run.entry.pfn().add((at - run.page.0) as u32), run.entry.has(Bits::WRITE)))
    }

    /// An access by the current CPU, through a translation that it keeps or with as many faults as it takes. `None`:
    /// the access must fail.
    fn reach(&self, process: usize, at: u64, store: bool) -> Option<Pfn> {
        let (mm, space, page) = (&self.bench.mm, self.spaces[process].0, Vpn(at));
        let machine = mm.machine();
        if let Some((pfn, writable)) = machine.held(machine.cpu(), page).filter(|held| held.1 || !store) {
            if store {
                assert!(
                    writable && self.shown(space, at) == Some((pfn, true)),
                    "a store through a stale entry of {page} must not be lost"
                );
            }
            return Some(pfn);
        }
        match reach(mm, space, page, store, 6) {
            Ok((pfn, writable)) => {
                // A store through the translation of a clean entry looks at the entry again, and marks it dirty.
                let dirty = self.entry(space, at).is_some_and(|run| run.entry.has(Bits::DIRTY));
                machine.hold(page, pfn, writable && dirty);
                Some(pfn)
            }
            Err(FaultError::Segv) => None,
            Err(error) => panic!("{error:?} at {page}"),
        }
    }

    fn store(&mut self, process: usize, at: u64) {
        let reached = self.reach(process, at, true);
        assert_eq!(reached.is_some(), self.spaces[process].1.contains_key(&at));
        if let Some(pfn) = reached {
            self.stamp += 1;
            self.bench.mm.machine().set_stamp(pfn, self.stamp);
            self.spaces[process].1.insert(at, (self.stamp, false));
        }
    }

    fn load(&mut self, process: usize, at: u64) {
        let read = self.reach(process, at, false).map(|pfn| self.bench.mm.machine().stamp(pfn));
        let expected = self.spaces[process].1.get_mut(&at);
        assert_eq!(read.is_some(), expected.is_some());
        if let Some((read, expected)) = read.zip(expected) {
            let forgotten = expected.1 && read == 0;
            assert!(read == expected.0 || forgotten, "{at:#x} reads {read} instead of {expected:?}");
            if forgotten {
                *expected = (0, false);
            }
        }
    }

    fn range(&mut self, process: usize, what: What, at: u64, pages: u64) {
        let mm = &self.bench.mm;
        let (space, model) = &mut self.spaces[process];
        let (space, start, range) = (*space, Vpn(at), at..at + pages);
        let advise = |advice| mm.madvise(space, start, pages, advice).is_ok();
        match what {
            What::Map => {
                mm.mmap(space, &request(start, pages, Backing::Anonymous)).unwrap();
                model.extend(range.map(|page| (page, (0, false))));
            }
            What::Unmap => {
                mm.munmap(space, start, pages).unwrap();
                model.retain(|page, _| !range.contains(page));
            }
            // Ranges before a locked one, or before a hole, are advised.
            What::Forget | What::Free => {
                let whole = matches!(what, What::Forget) && advise(Advice::DontNeed);
                if !whole && matches!(what, What::Free) {
                    advise(Advice::Free);
                }
                model.range_mut(range).for_each(|(_, page)| {
                    *page = if whole { (0, false) } else { (page.0, true) };
                });
            }
            What::Migrate => _ = mm.move_pages(space, start, pages, None),
            What::Cold => _ = advise(Advice::Cold),
            What::PageOut => _ = advise(Advice::PageOut),
            What::Protect => {
                for prot in [Prot::READ, Prot::RW] {
                    let _ = mm.mprotect(space, start, pages, prot);
                }
            }
            What::Lock | What::Unlock => {
                let _ = mm.mlock(space, start, pages, matches!(what, What::Lock));
            }
            What::Move(to) => {
                let pages = pages.min(END - to);
                if mm.mremap(space, start, pages, pages, true, Some(Vpn(to))).is_ok() {
                    let moved: Vec<_> = (0..pages).map(|i| model.remove(&(at + i)).unwrap()).collect();
                    model.extend((to..).zip(moved));
                }
            }
        }
    }

    /// Every page reads what it should, and nothing leaks.
    fn end(&mut self) {
        self.bench.mm.validate().unwrap();
        for process in 0..self.spaces.len() {
            self.run_on(0, Some(self.spaces[process].0));
            let all: Vec<_> = self.spaces[process].1.keys().copied().collect();
            all.into_iter().for_each(|at| self.load(process, at));
        }
        self.bench.end_transfers();
        (0..CPUS as u16).for_each(|cpu| self.run_on(cpu, None));
        self.spaces.iter().for_each(|(space, _)| self.bench.mm.exit_space(*space));
        self.bench.mm.validate().unwrap();
        let left = [Stat::NrAnonPages, Stat::NrAnonTransparentHugepages, Stat::NrPageTablePages];
        assert_eq!(left.map(|stat| self.bench.mm.mmu().stats.read(stat)), [0; 3]);
        assert_eq!(self.sum(SizeStat::NrAnonPartiallyMapped), 0);
    }

    fn sum(&self, stat: SizeStat) -> u64 {
        self.bench.mm.mmu().sizes.sum(stat)
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
    #![proptest_config(crate::testing::cases(100))]

    #[test]
    fn memory_in_large_folios_reads_as_it_was_written(
        policy in 0..FlushPolicy::COUNT,
        replacement in 0u64..2,
        sizes in prop::collection::vec(0u64..=1, 8),
        swap in 0u32..300,
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let mut world = World::new(policy, &sizes, swap);
        world.bench.mm.set_knob(Knob::ReclaimPolicy, replacement).unwrap();
        for step in &steps {
            world.apply(step);
            prop_assert_eq!(world.bench.mm.validate(), Ok(()), "after {:?}", step);
        }
    }
}

/// If all entries are still there, a fault on one page of a folio that is whole in the swap cache maps all of it.
#[test]
fn fault_maps_a_whole_folio_from_the_swap_cache() {
    // (whether the write has ended, whether the access is a store, whether a page was dropped before)
    for (written, store, hole) in [
        (false, false, false),
        (false, true, false),
        (true, false, false),
        (true, true, false),
        (true, true, true),
    ] {
        for batch in [0, 1] {
            let mut world = World::new(1, &[0, 0, 1], 64);
            world.bench.mm.mmu().knobs.set(Knob::RmapBatch, batch).unwrap();
            let (at, space) = (BASE + 70, world.spaces[0].0);
            world.apply(&(0, 0, Op::Store(at + 2)));
            world.apply(&(0, 0, Op::Range(What::PageOut, at, 16)));
            let mapped = |world: &World| {
                let mm = &world.bench.mm;
                let tables = mm.core.tables.lock(mm.mmu(), space);
                let present = |&page: &u64| tables.find(Vpn(page)).is_some_and(|run| run.entry.is_present());
                (at..at + 16).filter(present).count()
            };
            assert_eq!(mapped(&world), 0);
            if written {
                world.bench.end_transfers();
            }
            if hole {
                world.apply(&(0, 0, Op::Range(What::Forget, at + 9, 1)));
            }
            world.apply(&(0, 0, if store { Op::Store(at + 5) } else { Op::Load(at + 5) }));
            assert_eq!(mapped(&world), if hole { 1 } else { 16 });
            world.bench.mm.validate().unwrap();
            world.bench.end_transfers();
            (at..at + 16).for_each(|page| world.store(0, page));
        }
    }
}

/// The first page or the last one has become read-only: a store to another page must not make it writable.
#[test]
fn fault_maps_a_part_of_a_folio_that_exceeds_its_range() {
    for (read_only, stored) in [(0, 15), (15, 0)] {
        let mut world = World::new(1, &[0, 0, 1], 64);
        let (at, space) = (BASE + 70, world.spaces[0].0);
        world.apply(&(0, 0, Op::Store(at + 2)));
        world.apply(&(0, 0, Op::Range(What::PageOut, at, 16)));
        world.bench.mm.mprotect(space, Vpn(at + read_only), 1, Prot::READ).unwrap();
        world.apply(&(0, 0, Op::Store(at + stored)));
        let entry = world.entry(space, at + read_only).unwrap().entry;
        assert!(entry.as_swap().is_some(), "{entry:?} of page {read_only}");
    }
}
