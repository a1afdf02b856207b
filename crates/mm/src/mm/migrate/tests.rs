//! Processes on two CPUs, which keep their translations, must read what was stored, whatever is moved to other frames
//! and whatever happens during a move: anonymous memory, shmem, files, private copies; folios of any size; every
//! policy.

mod during;
mod each;

use super::*;
use crate::api::*;
use crate::event::{Concern, Event};
use crate::knobs::{FlushPolicy, Knob};
use crate::lock::Lock;
use crate::machine::{Scope, ZoneKind};
use crate::mm::tests::{access, carry_transfers, reach, reclaim_node, with_swap};
use crate::stat::Stat;
use crate::table::Bits;
use crate::testing::{Blocks, TestMachine, range, request};
use proptest::prelude::*;
use std_alloc::boxed::Box;
use std_alloc::collections::BTreeMap;
use std_alloc::vec;
use std_alloc::vec::Vec;

/// The value of `tlb.unmap` that flushes page by page.
const LIST: u64 = FlushPolicy::List.value();
const ROOT: GroupId = GroupId(0);
const CPUS: u16 = 2;
/// On each node.
const FRAMES: u32 = 8192;
/// Addresses of mappings: each kind in an area of two tables, from a multiple of 2 MiB on.
const AREA: u64 = 1024;
const FIRST: u64 = 512 * 30;
const END: u64 = FIRST + 4 * AREA;
/// The pages of each area that steps use: around the border of its tables.
const USED: u64 = 48;

/// What the addresses of an area map.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
enum Kind {
    Anon,
    Shmem,
    File,
    /// Private copies of the file.
    Copies,
}

const KINDS: [Kind; 4] = [Kind::Anon, Kind::Shmem, Kind::File, Kind::Copies];

fn start_of(kind: Kind) -> u64 {
    FIRST + KINDS.iter().position(|&other| other == kind).unwrap() as u64 * AREA
}

/// Content of a page: the last store to it alone, or else a page of shmem or of the file, or else zeroes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Reads {
    own: Option<u64>,
    of: Option<(Kind, u64)>,
    /// It may also read zeroes, since MADV_FREE.
    perhaps_zero: bool,
}

type Model = BTreeMap<u64, Reads>;

struct Bench {
    mm: Mm<TestMachine>,
    blocks: Blocks,
    /// Content of the file and of shmem.
    contents: Lock<BTreeMap<(Kind, u64), u64>>,
    spaces: Lock<Vec<(SpaceId, Model)>>,
    runs: Lock<[Option<SpaceId>; CPUS as usize]>,
    stamp: Lock<u64>,
    file: FileId,
    shmem: FileId,
    /// A step to do during a move, with its moment.
    during: Lock<Option<(Moment, u16, usize, Step)>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Moment {
    /// Entries are about to be taken away.
    Unmap,
    /// They were taken away, and their flush is about to be paid.
    Settle,
    /// It was paid, and a folio is about to be copied.
    Copy,
    /// It was copied, and is about to be mapped.
    Map,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Store(u64),
    Load(u64),
    /// An access only through translations that the CPU has kept.
    StoreKept(u64),
    LoadKept(u64),
    Unmap(u64, u64),
    Forget(u64, u64),
    Free(u64, u64),
    Protect(u64, u64),
    Lock(u64, u64),
    Unlock(u64, u64),
    /// To another place of the same area.
    Remap(u64, u64, u64),
    Fork,
    Exit,
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Plain(Step),
    Out(u64, u64),
    Cold(u64, u64),
    Map(usize),
    Sync,
    Cut(u64),
    Reclaim,
    EndTransfers,
    Policy(u64),
    /// Pages are moved to a node (2: within theirs), with a step during the move.
    Move(u64, u64, u8, Option<(Moment, u16, usize, Step)>),
    /// All pages of the space that are on one node are moved.
    MoveAll(bool),
}

/// A page that steps use.
fn at() -> impl Strategy<Value = u64> {
    (0..KINDS.len() as u64, 0..USED).prop_map(|(kind, page)| FIRST + kind * AREA + 512 - USED / 2 + page)
}

fn step() -> impl Strategy<Value = Step> {
    let pages = || prop_oneof![1..6u64, 1..USED, Just(AREA)];
    prop_oneof![
        6 => at().prop_map(Step::Store),
        6 => at().prop_map(Step::Load),
        6 => at().prop_map(Step::StoreKept),
        6 => at().prop_map(Step::LoadKept),
        1 => (at(), pages()).prop_map(|(at, pages)| Step::Unmap(at, pages)),
        2 => (at(), pages()).prop_map(|(at, pages)| Step::Forget(at, pages)),
        1 => (at(), pages()).prop_map(|(at, pages)| Step::Free(at, pages)),
        2 => (at(), pages()).prop_map(|(at, pages)| Step::Protect(at, pages)),
        1 => (at(), pages()).prop_map(|(at, pages)| Step::Lock(at, pages)),
        2 => (at(), pages()).prop_map(|(at, pages)| Step::Unlock(at, pages)),
        2 => (at(), pages(), 0..AREA).prop_map(|(at, pages, to)| Step::Remap(at, pages, to)),
        2 => Just(Step::Fork),
        1 => Just(Step::Exit),
    ]
}

fn moment() -> impl Strategy<Value = Moment> {
    prop_oneof![Just(Moment::Unmap), Just(Moment::Settle), Just(Moment::Copy), Just(Moment::Map)]
}

fn op() -> impl Strategy<Value = Op> {
    let pages = || prop_oneof![1..USED, Just(AREA)];
    let during = || prop::option::weighted(0.7, (moment(), 0..CPUS, 0..4usize, step()));
    prop_oneof![
        20 => step().prop_map(Op::Plain),
        2 => (at(), pages()).prop_map(|(at, pages)| Op::Out(at, pages)),
        1 => (at(), pages()).prop_map(|(at, pages)| Op::Cold(at, pages)),
        2 => (0..KINDS.len()).prop_map(Op::Map),
        1 => Just(Op::Sync),
        1 => (0..AREA).prop_map(Op::Cut),
        1 => Just(Op::Reclaim),
        2 => Just(Op::EndTransfers),
        1 => (0..3u64).prop_map(Op::Policy),
        14 => (at(), pages(), 0..3u8, during()).prop_map(|(at, pages, to, during)| Op::Move(at, pages, to, during)),
        1 => any::<bool>().prop_map(Op::MoveAll),
    ]
}

impl Bench {
    fn end_transfers(&self) {
        carry_transfers(&self.mm, &self.blocks, Some(0));
    }

    /// Do the step for this moment, on its CPU. It must not fault: the fault would wait for the move, which waits for
    /// it.
    fn interrupt(&self, now: Moment) {
        let due = self.during.lock().take_if(|due| due.0 == now);
        let Some((_, cpu, process, step)) = due else { return };
        let here = self.mm.machine().cpu();
        let waits = matches!(step, Step::Store(_) | Step::Load(_) | Step::Lock(..) | Step::Exit);
        // Under the list policy a batch may be paid while an entry is noted, under the page-table lock.
        let locked = now == Moment::Settle && self.mm.mmu().knobs.get(Knob::TlbUnmap) == LIST;
        let kept = matches!(step, Step::StoreKept(_) | Step::LoadKept(_));
        if !waits && (kept || !locked) {
            self.step(cpu, process, step);
            self.mm.machine().run_on(here.0);
        }
    }

    fn new(policy: u64, sizes: &[u64], [file, shmem, pmd]: [u64; 3]) -> &'static Bench {
        let memory = [range(0, ZoneKind::Normal, 0, FRAMES), range(1, ZoneKind::Normal, FRAMES, FRAMES)];
        let mm = with_swap(TestMachine::new(&[0, 1], &memory), 200);
        let set = |knob, value| mm.mmu().knobs.set(knob, value).unwrap();
        set(Knob::TlbUnmap, policy);
        let knobs = Knob::ALL.iter().filter(|knob| knob.info().name.starts_with("hugepages-"));
        knobs.zip(sizes).for_each(|(&knob, &size)| set(knob, 2 * size));
        set(Knob::FileMaxOrder, file);
        set(Knob::ShmemMaxOrder, shmem);
        set(Knob::ThpFilePmd, pmd);
        let file = mm.create_file(FileKind::Disk { device: DeviceId(1), block: 0 }, AREA * PAGE_SIZE);
        let shmem = mm.create_file(FileKind::Shmem, AREA * PAGE_SIZE);
        let first = mm.create_space(ROOT).unwrap();
        let bench: &'static Bench = Box::leak(Box::new(Bench {
            mm,
            blocks: Lock::default(),
            contents: Lock::default(),
            spaces: Lock::new(vec![(first, Model::new())]),
            runs: Lock::default(),
            stamp: Lock::default(),
            file,
            shmem,
            during: Lock::default(),
        }));
        let machine = bench.mm.machine();
        *machine.idle.lock() = Some(Box::new(|_| bench.end_transfers()));
        *machine.entered.lock() = Some(Box::new(|_, scope| match scope {
            Scope::TryToMigrateOne => bench.interrupt(Moment::Unmap),
            Scope::TryToUnmapFlush => bench.interrupt(Moment::Settle),
            Scope::RemoveMigrationPtes => bench.interrupt(Moment::Map),
            _ => {}
        }));
        *machine.watcher.lock() = Some(Box::new(|_, event, args| {
            let copied =
                event == Event::TlbHazard && matches!(Concern::of_args(args), Some(Concern::Frames { .. }));
            if copied {
                bench.interrupt(Moment::Copy);
            }
        }));
        bench.run_on(0, Some(first));
        KINDS.iter().for_each(|&kind| bench.map(0, kind));
        bench
    }

    fn run_on(&self, cpu: u16, space: Option<SpaceId>) {
        self.mm.machine().run_on(cpu);
        let before = core::mem::replace(&mut self.runs.lock()[cpu as usize], space);
        if before != space {
            self.mm.switch(space);
        }
    }

    fn id(&self, process: usize) -> SpaceId {
        self.spaces.lock()[process].0
    }

    fn map(&self, process: usize, kind: Kind) {
        let file = |file, shared| Backing::File { file, offset: PageIndex(0), shared, writable: true };
        let backing = match kind {
            Kind::Anon => Backing::Anonymous,
            Kind::Shmem => file(self.shmem, true),
            Kind::File => file(self.file, true),
            Kind::Copies => file(self.file, false),
        };
        self.mm.mmap(self.id(process), &request(Vpn(start_of(kind)), AREA, backing)).unwrap();
        let of = |page| match kind {
            Kind::Anon => None,
            Kind::Copies => Some((Kind::File, page)),
            shared => Some((shared, page)),
        };
        let pages = (0..AREA).map(|page| (start_of(kind) + page, Reads { of: of(page), ..Reads::default() }));
        self.spaces.lock()[process].1.extend(pages);
    }

    fn reads(&self, page: &Reads) -> u64 {
        let of = |of| self.contents.lock().get(&of).copied().unwrap_or(0);
        page.own.or(page.of.map(of)).unwrap_or(0)
    }

    /// The frame that an access by the current CPU reaches, through a translation that it keeps or with as many faults
    /// as it takes. `None`: the access must fail.
    fn reach(&self, space: SpaceId, at: u64, store: bool) -> Option<Pfn> {
        let (mm, page, machine) = (&self.mm, Vpn(at), self.mm.machine());
        if let Some((pfn, _)) = machine.held(machine.cpu(), page).filter(|held| held.1 || !store) {
            return Some(pfn);
        }
        match reach(mm, space, page, store, 8) {
            Ok((pfn, writable)) => {
                machine.hold(page, pfn, writable && store);
                Some(pfn)
            }
            Err(FaultError::Segv) => None,
            Err(error) => panic!("{error:?} at {page}"),
        }
    }

    fn stored(&self, process: usize, at: u64, pfn: Pfn) {
        let mut stamp = self.stamp.lock();
        *stamp += 1;
        self.mm.machine().set_stamp(pfn, *stamp);
        let shared = !(start_of(Kind::Copies)..END).contains(&at);
        let mut spaces = self.spaces.lock();
        let page = spaces[process].1.get_mut(&at).expect("a page that a store reaches must be in the model");
        match page.of.filter(|_| shared) {
            Some(of) => _ = self.contents.lock().insert(of, *stamp),
            None => page.own = Some(*stamp),
        }
        page.perhaps_zero = false;
    }

    fn loaded(&self, process: usize, at: u64, pfn: Pfn) {
        let read = self.mm.machine().stamp(pfn);
        let mut spaces = self.spaces.lock();
        let page = spaces[process].1.get_mut(&at).expect("a page that a load reaches must be in the model");
        let expected = self.reads(page);
        let forgotten = page.perhaps_zero && read == 0;
        assert!(read == expected || forgotten, "{at:#x} reads {read} instead of {expected}, {page:?}");
        if forgotten {
            *page = Reads { own: Some(0), perhaps_zero: false, ..*page };
        }
    }

    fn step(&self, cpu: u16, process: usize, step: Step) {
        let process = process % self.spaces.lock().len();
        let space = self.id(process);
        self.run_on(cpu, Some(space));
        let machine = self.mm.machine();
        match step {
            Step::Store(at) | Step::Load(at) => {
                let store = matches!(step, Step::Store(_));
                let reached = self.reach(space, at, store);
                assert_eq!(reached.is_some(), self.spaces.lock()[process].1.contains_key(&at), "{at:#x}");
                match reached {
                    Some(pfn) if store => self.stored(process, at, pfn),
                    Some(pfn) => self.loaded(process, at, pfn),
                    None => {}
                }
            }
            Step::StoreKept(at) => {
                if let Some((pfn, true)) = machine.held(machine.cpu(), Vpn(at)) {
                    self.stored(process, at, pfn);
                }
            }
            Step::LoadKept(at) => {
                if let Some((pfn, _)) = machine.held(machine.cpu(), Vpn(at)) {
                    self.loaded(process, at, pfn);
                }
            }
            Step::Fork => {
                if self.spaces.lock().len() < 4 {
                    let child = self.mm.fork(space).unwrap();
                    let model = self.spaces.lock()[process].1.clone();
                    self.spaces.lock().push((child, model));
                }
            }
            Step::Exit => {
                if self.spaces.lock().len() > 1 {
                    (0..CPUS).filter(|&cpu| self.runs.lock()[cpu as usize] == Some(space)).for_each(|cpu| {
                        self.run_on(cpu, None);
                    });
                    self.mm.exit_space(space);
                    self.spaces.lock().swap_remove(process);
                }
            }
            Step::Remap(at, pages, to) => self.remap(process, at, pages, to),
            Step::Unmap(at, pages) => {
                let range = range_of(at, pages);
                self.mm.munmap(space, Vpn(at), range.end - at).unwrap();
                self.spaces.lock()[process].1.retain(|page, _| !range.contains(page));
            }
            Step::Forget(at, pages) => self.forget(process, range_of(at, pages), Advice::DontNeed),
            Step::Free(at, pages) => {
                if at < start_of(Kind::Shmem) {
                    self.forget(process, range_of(at, pages), Advice::Free);
                }
            }
            Step::Protect(at, pages) => {
                for prot in [Prot::READ, Prot::READ | Prot::WRITE] {
                    let _ = self.mm.mprotect(space, Vpn(at), range_of(at, pages).end - at, prot);
                }
            }
            Step::Lock(at, pages) | Step::Unlock(at, pages) => {
                // mlock of private file pages would copy them.
                if at < start_of(Kind::Copies) {
                    let lock = matches!(step, Step::Lock(..));
                    let _ = self.mm.mlock(space, Vpn(at), range_of(at, pages).end - at, lock);
                }
            }
        }
    }

    /// MADV_DONTNEED or MADV_FREE of pages that are all mapped, and not locked.
    fn forget(&self, process: usize, range: core::ops::Range<u64>, advice: Advice) {
        let (space, start, pages) = (self.id(process), Vpn(range.start), range.end - range.start);
        let whole = range.clone().all(|page| self.spaces.lock()[process].1.contains_key(&page));
        if whole && self.mm.mlock(space, start, pages, false).is_ok() {
            self.mm.madvise(space, start, pages, advice).unwrap();
            let free = advice == Advice::Free;
            for (_, page) in self.spaces.lock()[process].1.range_mut(range) {
                *page = Reads { own: page.own.filter(|_| free), perhaps_zero: free, ..*page };
            }
        }
    }

    fn remap(&self, process: usize, at: u64, pages: u64, to: u64) {
        let (space, from) = (self.id(process), range_of(at, pages));
        let area = (at - FIRST) / AREA * AREA + FIRST;
        let to = area + to;
        let pages = (from.end - at).min(area + AREA - to);
        let overlap = at < to + pages && to < at + pages;
        if overlap || self.mm.mremap(space, Vpn(at), pages, pages, true, Some(Vpn(to))).is_err() {
            return;
        }
        let model = &mut self.spaces.lock()[process].1;
        let moved: Vec<_> = (0..pages).map(|i| model.remove(&(at + i)).unwrap()).collect();
        model.extend((to..).zip(moved));
    }

    fn apply(&self, cpu: u16, process: usize, op: Op) {
        let process = process % self.spaces.lock().len();
        let space = self.id(process);
        self.run_on(cpu, Some(space));
        let advise =
            |at, pages, advice| self.mm.madvise(space, Vpn(at), range_of(at, pages).end - at, advice);
        match op {
            Op::Plain(step) => self.step(cpu, process, step),
            Op::Out(at, pages) => _ = advise(at, pages, Advice::PageOut),
            Op::Cold(at, pages) => _ = advise(at, pages, Advice::Cold),
            Op::Map(kind) => self.map(process, KINDS[kind]),
            Op::Sync => self.mm.fsync(self.file).unwrap(),
            Op::Cut(at) => self.cut(512 - USED / 2 + at % USED),
            Op::Reclaim => reclaim_node(&self.mm),
            Op::EndTransfers => self.end_transfers(),
            Op::Policy(policy) => self.mm.set_knob(Knob::ReclaimPolicy, policy).unwrap(),
            Op::Move(at, pages, to, during) => {
                *self.during.lock() = during;
                let node = Some(NodeId(to)).filter(|node| node.0 < 2);
                // Some pages may be unmapped or immovable.
                let _ = self.mm.move_pages(space, Vpn(at), range_of(at, pages).end - at, node);
                *self.during.lock() = None;
            }
            Op::MoveAll(back) => {
                let (from, to) = if back { (2, 1) } else { (1, 2) };
                let _ = self.mm.migrate_pages(space, from, to);
            }
        }
    }

    /// Truncate the file, and extend it to its old size.
    fn cut(&self, pages: u64) {
        self.mm.ftruncate(self.file, pages * PAGE_SIZE).unwrap();
        self.mm.ftruncate(self.file, AREA * PAGE_SIZE).unwrap();
        self.contents.lock().retain(|&(kind, page), _| kind == Kind::Shmem || page < pages);
        for (_, model) in self.spaces.lock().iter_mut() {
            let beyond =
                |page: &Reads| page.of.is_some_and(|(kind, index)| kind == Kind::File && index >= pages);
            model.values_mut().filter(|page| beyond(page)).for_each(|page| page.own = None);
        }
    }
}

/// Pages from `at` on, within its area.
fn range_of(at: u64, pages: u64) -> core::ops::Range<u64> {
    at..(at + pages).min((at - FIRST) / AREA * AREA + FIRST + AREA)
}

proptest! {
    #![proptest_config(crate::testing::cases(150))]

    #[test]
    fn what_is_moved_reads_as_it_was_written(
        policy in 0..FlushPolicy::COUNT,
        sizes in prop::collection::vec(0u64..=1, 8),
        orders in (prop_oneof![Just(0u64), Just(2), Just(9)], prop_oneof![Just(0u64), Just(2), Just(9)], 0u64..2),
        ops in prop::collection::vec((0..CPUS, 0..4usize, op()), 1..80),
    ) {
        let bench = Bench::new(policy, &sizes, [orders.0, orders.1, orders.2]);
        for &(cpu, process, op) in &ops {
            bench.apply(cpu, process, op);
            prop_assert_eq!(bench.mm.validate(), Ok(()), "after {:?}", op);
        }
        let spaces = bench.spaces.lock().len();
        for process in 0..spaces {
            for kind in KINDS {
                let used = start_of(kind) + 512 - USED / 2;
                (used..used + USED).for_each(|at| bench.apply(0, process, Op::Plain(Step::Load(at))));
            }
        }
        bench.end_transfers();
        (0..CPUS).for_each(|cpu| bench.run_on(cpu, None));
        for (space, _) in core::mem::take(&mut *bench.spaces.lock()) {
            bench.mm.exit_space(space);
        }
        prop_assert_eq!(bench.mm.validate(), Ok(()));
        prop_assert_eq!(bench.mm.mmu().stats.read(Stat::NrAnonPages), 0);
    }
}
