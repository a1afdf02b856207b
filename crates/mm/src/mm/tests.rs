//! Spaces that share memory: what each must read after any sequence of map, fork, store and unmap.

mod absent;
mod advised;
mod asks;
mod chosen;
mod collapsed;
mod damaged;
mod demoted;
mod ending;
mod failing;
mod flushes;
mod hinted;
mod kept;
mod large;
mod limits;
mod packed;
mod placed;
mod promoted;
mod served;
mod shortage;
mod truncated;
mod zswap;

use super::*;
use crate::cache::add_to_swap;
use crate::frame::FolioRun;
use crate::knobs::FlushPolicy;
use crate::machine::ZoneKind;
use crate::rmap::UnmapMode;
use crate::table::Bits;
use crate::testing::{Blocks, TestMachine, request};
use crate::tlb::UnmapBatch;
use proptest::prelude::*;
use std_alloc::collections::BTreeMap;

const BASE: u64 = 0x5000;
const PAGES: u64 = 24;
/// Pages of the file.
const FILE_PAGES: u64 = 16;
const ROOT: GroupId = GroupId(0);
/// Pages of an entry of 2 MiB, and an address that is a multiple of it.
const LARGE: u64 = 512;
const LARGE_AT: Vpn = Vpn(LARGE * 40);

/// A memory manager with swap of this many pages.
pub(super) fn with_swap(machine: TestMachine, pages: u32) -> Mm<TestMachine> {
    let swap = std_alloc::vec![SwapArea { device: DeviceId(0), pages, priority: 0, zram: None }];
    Mm::new(machine, Config { swap, ..Config::default() }).unwrap()
}

/// End all transfers, of which the test needs no content.
pub(super) fn end_transfers(mm: &Mm<TestMachine>) {
    while let Some(io) = mm.machine().next_io() {
        mm.io_done(&io);
    }
}

/// End all transfers with their content; `unwritten` is what a block holds at first, if it may be read then.
pub(super) fn carry_transfers(mm: &Mm<TestMachine>, blocks: &Blocks, unwritten: Option<u64>) {
    while let Some(io) = mm.machine().next_io() {
        mm.machine().transfer(&io, blocks, unwritten);
        mm.io_done(&io);
    }
}

/// Unmap a folio as reclaim does, with a reference that the caller drops; `swap`: give it a slot first.
fn unmap_folio(mm: &Mm<TestMachine>, pfn: Pfn, swap: bool, batch: &mut UnmapBatch) {
    let core = &mm.core;
    core.frames[pfn].get(1);
    core.lock_folio(pfn);
    assert!(!swap || add_to_swap(core, pfn));
    core.rmap.try_to_unmap(core, FolioRun::one(&pfn), UnmapMode::default(), batch);
    assert_eq!(core.frames[pfn].mapcount(), 0);
    core.unlock_folio(pfn);
}

/// One direct reclaim from the node.
pub(super) fn reclaim_node(mm: &Mm<TestMachine>) {
    let (order, node, among) = (Order::ZERO, NodeId(0), Nodes::ALL);
    let needs = crate::alloc::NeedsReclaim { order, node, highest: ZoneKind::Movable, among, apart: false };
    reclaim::direct(&mm.core, &mm.reclaim, mm, &needs);
}

/// A page by an access as hardware makes it, if the entry has these bits: the frame, and whether it is writable.
pub(super) fn access(
    mm: &Mm<TestMachine>,
    space: SpaceId,
    page: Vpn,
    needs: Bits,
    store: bool,
) -> Option<(Pfn, bool)> {
    let mut tables = mm.core.tables.lock(mm.mmu(), space);
    let run = tables.find(page).filter(|run| run.entry.bits().contains(needs))?;
    tables.mark_used(run.slot, store);
    Some((run.entry.pfn().add((page.0 - run.page.0) as u32), run.entry.has(Bits::WRITE)))
}

/// The same with the faults that it takes, but at most `faults`.
pub(super) fn reach(
    mm: &Mm<TestMachine>,
    space: SpaceId,
    page: Vpn,
    store: bool,
    faults: usize,
) -> Result<(Pfn, bool), FaultError> {
    let (kind, needs) =
        if store { (AccessKind::Store, Bits::WRITE) } else { (AccessKind::Load, Bits::empty()) };
    for _ in 0..faults {
        if let Some(found) = access(mm, space, page, Bits::PRESENT | Bits::USER | needs, store) {
            return Ok(found);
        }
        mm.fault(space, page, kind)?;
    }
    panic!("{page} of {space} still faults");
}

/// What a page of a space shows.
#[derive(Clone, Copy, Debug)]
struct Page {
    /// Private content, since a store.
    own: Option<u64>,
    /// Page of the file, and whether stores go to it.
    file: Option<(usize, bool)>,
}

type Model = BTreeMap<u64, Page>;

#[derive(Clone, Debug)]
enum Op {
    Map { process: usize, at: u64, pages: u64, kind: u8, offset: u64 },
    Unmap { process: usize, at: u64, pages: u64 },
    Store { process: usize, at: u64 },
    Load { process: usize, at: u64 },
    Forget { process: usize, at: u64, pages: u64 },
    Protect { process: usize, at: u64, pages: u64 },
    Fork { process: usize },
    Exit { process: usize },
    Cut { pages: u64 },
}

fn op() -> impl Strategy<Value = Op> {
    let (process, at, pages) = (|| 0..8usize, || BASE..BASE + PAGES, || 1..10u64);
    prop_oneof![
        3 => (process(), at(), pages(), 0..3u8, 0..FILE_PAGES).prop_map(
            |(process, at, pages, kind, offset)| Op::Map { process, at, pages, kind, offset }
        ),
        1 => (process(), at(), pages()).prop_map(|(process, at, pages)| Op::Unmap { process, at, pages }),
        10 => (process(), at()).prop_map(|(process, at)| Op::Store { process, at }),
        6 => (process(), at()).prop_map(|(process, at)| Op::Load { process, at }),
        1 => (process(), at(), pages()).prop_map(|(process, at, pages)| Op::Forget { process, at, pages }),
        1 => (process(), at(), pages()).prop_map(|(process, at, pages)| Op::Protect { process, at, pages }),
        2 => process().prop_map(|process| Op::Fork { process }),
        1 => process().prop_map(|process| Op::Exit { process }),
        1 => (0..=FILE_PAGES).prop_map(|pages| Op::Cut { pages }),
    ]
}

struct Bench {
    mm: Mm<TestMachine>,
    file: FileId,
    content: Vec<u64>,
    spaces: Vec<(SpaceId, Model)>,
    stamp: u64,
}

impl Bench {
    fn new() -> Bench {
        let config = Config::default();
        let mm = Mm::new(TestMachine::simple(2, 4096), config).unwrap();
        let file = mm.create_file(FileKind::Shmem, FILE_PAGES * PAGE_SIZE);
        let spaces = std_alloc::vec![(mm.create_space(ROOT).unwrap(), Model::new())];
        Bench { mm, file, content: std_alloc::vec![0; FILE_PAGES as usize], spaces, stamp: 0 }
    }

    fn apply(&mut self, op: &Op) {
        let count = self.spaces.len();
        match *op {
            Op::Map { process, at, pages, kind, offset } => {
                self.map(process % count, at, pages, kind, offset)
            }
            Op::Unmap { process, at, pages } => {
                let (space, model) = &mut self.spaces[process % count];
                self.mm.munmap(*space, Vpn(at), pages).unwrap();
                model.retain(|page, _| !(at..at + pages).contains(page));
            }
            Op::Store { process, at } => self.store(process % count, at),
            Op::Load { process, at } => {
                let expected = self.expected(process % count, at);
                let got = self.reach(process % count, at, false);
                assert_eq!(got.map(|pfn| self.mm.machine().stamp(pfn)), expected);
            }
            Op::Forget { process, at, pages } => self.forget(process % count, at, pages),
            Op::Protect { process, at, pages } => {
                // Revoke and restore: private pages must still not be written where others see them.
                let space = self.spaces[process % count].0;
                for prot in [Prot::READ, Prot::READ | Prot::WRITE] {
                    let _ = self.mm.mprotect(space, Vpn(at), pages, prot);
                }
            }
            Op::Fork { process } if count < 8 => {
                let (space, model) = &self.spaces[process % count];
                let child = (self.mm.fork(*space).unwrap(), model.clone());
                self.spaces.push(child);
            }
            Op::Exit { process } if count > 1 => {
                let (space, _) = self.spaces.swap_remove(process % count);
                self.mm.exit_space(space);
            }
            Op::Cut { pages } => self.cut(pages),
            Op::Fork { .. } | Op::Exit { .. } => {}
        }
    }

    fn map(&mut self, process: usize, at: u64, pages: u64, kind: u8, offset: u64) {
        let shared = kind == 1;
        let backing = match kind {
            0 => Backing::Anonymous,
            _ => Backing::File { file: self.file, offset: PageIndex(offset), shared, writable: true },
        };
        let (space, model) = &mut self.spaces[process];
        self.mm.mmap(*space, &request(Vpn(at), pages, backing)).unwrap();
        for i in 0..pages {
            let file = (kind > 0).then_some(((offset + i) as usize, shared));
            model.insert(at + i, Page { own: None, file });
        }
    }

    fn forget(&mut self, process: usize, at: u64, pages: u64) {
        let (space, model) = &mut self.spaces[process];
        let covered = model.range(at..at + pages).count() as u64 == pages;
        let outcome = self.mm.madvise(*space, Vpn(at), pages, Advice::DontNeed);
        assert_eq!(outcome, if covered { Ok(()) } else { Err(Error::NotMapped) });
        model.range_mut(at..at + pages).for_each(|(_, page)| page.own = None);
    }

    /// Truncate the file to this many pages; private copies of pages beyond the end go, too.
    fn cut(&mut self, pages: u64) {
        self.mm.ftruncate(self.file, pages * PAGE_SIZE).unwrap();
        if pages < self.content.len() as u64 {
            let beyond = |page: &Page| page.file.is_some_and(|(index, _)| index as u64 >= pages);
            let all = self.spaces.iter_mut().flat_map(|(_, model)| model.values_mut());
            all.filter(|page| beyond(page)).for_each(|page| page.own = None);
        }
        self.content.resize(pages as usize, 0);
    }

    /// What a load must read; `None`: it must fail.
    fn expected(&self, process: usize, at: u64) -> Option<u64> {
        let page = self.spaces[process].1.get(&at)?;
        match page.file {
            Some((index, _)) => page.own.or_else(|| self.content.get(index).copied()),
            None => Some(page.own.unwrap_or(0)),
        }
    }

    fn store(&mut self, process: usize, at: u64) {
        let may = self.expected(process, at).is_some();
        let reached = self.reach(process, at, true);
        assert_eq!(reached.is_some(), may);
        let Some(pfn) = reached else { return };
        self.stamp += 1;
        self.mm.machine().set_stamp(pfn, self.stamp);
        let page = self.spaces[process].1.get_mut(&at).unwrap();
        match page.file {
            Some((index, true)) => self.content[index] = self.stamp,
            _ => page.own = Some(self.stamp),
        }
    }

    fn reach(&self, process: usize, at: u64, store: bool) -> Option<Pfn> {
        match reach(&self.mm, self.spaces[process].0, Vpn(at), store, 4) {
            Ok((pfn, _)) => Some(pfn),
            Err(FaultError::Segv | FaultError::Bus | FaultError::Io) => None,
            Err(FaultError::Killed) => panic!("the fault must find memory"),
        }
    }
}

proptest! {
    #![proptest_config(crate::testing::cases(200))]

    #[test]
    fn each_space_reads_its_own_stores_alone(ops in prop::collection::vec(op(), 1..120)) {
        let mut bench = Bench::new();
        for op in &ops {
            bench.apply(op);
            prop_assert_eq!(bench.mm.validate(), Ok(()), "after {:?}", op);
        }
        // When all spaces are gone, nothing of them is left.
        for (space, _) in core::mem::take(&mut bench.spaces) {
            bench.mm.exit_space(space);
        }
        bench.mm.ftruncate(bench.file, 0).unwrap();
        bench.mm.validate().unwrap();
        for stat in [Stat::NrAnonPages, Stat::NrMapped, Stat::NrFilePages, Stat::NrPageTablePages] {
            prop_assert_eq!(bench.mm.mmu().stats.read(stat), 0, "{:?}", stat);
        }
    }
}

/// Pages that madvise has isolated are put back, or freed, even if the call then meets a hole or a locked range.
#[test]
fn pageout_serves_pages_before_a_hole() {
    for locked in [false, true] {
        let mut bench = Bench::new();
        bench.map(0, BASE, 1, 0, 0);
        bench.store(0, BASE);
        let space = bench.spaces[0].0;
        if locked {
            bench.map(0, BASE + 1, 1, 0, 0);
            bench.mm.mlock(space, Vpn(BASE + 1), 1, true).unwrap();
        }
        let refused = if locked { Error::Invalid } else { Error::NotMapped };
        assert_eq!(bench.mm.madvise(space, Vpn(BASE), 2, Advice::PageOut), Err(refused));
        // There is no swap.
        let pfn = bench.reach(0, BASE, false).unwrap();
        let frame = &bench.mm.core.frames[pfn];
        assert_eq!((frame.refs(), frame.has(FrameFlags::LRU)), (1, true));
    }
}

/// All CPUs of a real machine share one `Mm`.
#[cfg(not(feature = "one-thread"))]
#[test]
fn mm_is_sync() {
    fn shared<T: Send + Sync>() {}
    shared::<Mm<TestMachine>>();
}

#[test]
fn knob_change_at_run_time_takes_effect_or_fails() {
    let mm = Mm::new(TestMachine::simple(1, 4096), Config::default()).unwrap();
    let mark = || mm.core.alloc.zones()[0].mark(Watermark::Min);
    let before = mark();
    mm.set_knob(Knob::MinFreeKbytes, 4096).unwrap();
    assert!(mark() > before);
    assert_eq!(mm.set_knob(Knob::Swappiness, 201), Err(Error::Invalid));
    assert_eq!(
        mm.set_knob(Knob::TlbUnmap, FlushPolicy::Eager.value()),
        Err(Error::Access),
        "entries cleared under one policy must be flushed under it"
    );
    assert_eq!(mm.mmu().knobs.get(Knob::Swappiness), 60);
}
