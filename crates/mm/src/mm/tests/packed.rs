//! Memory that is swapped to zram and comes back without the swap cache: alone, and as the large folio that it was.

use super::*;
use crate::api::{ZramBacking, ZramConfig, ZramPages, ZramUpkeep};
use crate::knobs::Compressor;
use crate::primitive::Ordering::Relaxed;
use crate::stat::Stat;
use std_alloc::boxed::Box;

const AT: Vpn = LARGE_AT;
const PAGES: u64 = 64;
/// Pages of a large folio.
const FOLIO: u64 = 16;
/// Content that compresses to 1 KiB, that repeats one word, and zeroes.
const KINDS: [u64; 3] = [0x400, 1 << 63, 0];

/// All pages are written to the backing device, again and again.
const ALL_TO_DEVICE: ZramUpkeep = ZramUpkeep {
    every: 0,
    idle_age: 0,
    recompress: None,
    write_back: Some(ZramPages { idle: false, huge: false }),
    write_back_limit: None,
};

struct Bench {
    mm: Mm<TestMachine>,
    space: SpaceId,
}

impl Bench {
    /// Memory in folios of 64 KiB, each page with its number as content, and as many slots in zram.
    fn new() -> Bench {
        Bench::on(ZramConfig::new(Compressor::Lz4))
    }

    /// The same with such a zram device.
    fn on(zram: ZramConfig) -> Bench {
        let mut machine = TestMachine::simple(2, 8192);
        machine.compresses = true;
        let (pages, zram) = (2 * PAGES as u32, Some(zram));
        let swap = std_alloc::vec![SwapArea { device: DeviceId(0), pages, priority: 0, zram }];
        let mm = Mm::new(machine, Config { swap, ..Config::default() }).unwrap();
        let sizes = Knob::ALL.iter().find(|knob| knob.info().name == "hugepages-64kB.enabled");
        mm.set_knob(*sizes.unwrap(), 2).unwrap();
        let space = mm.create_space(ROOT).unwrap();
        mm.mmap(space, &request(AT, PAGES, Backing::Anonymous)).unwrap();
        let bench = Bench { mm, space };
        bench.all().for_each(|page| bench.store(page, content(page)));
        bench
    }

    fn all(&self) -> impl Iterator<Item = u64> + use<> {
        0..PAGES
    }

    fn frame(&self, space: SpaceId, page: u64, store: bool) -> Pfn {
        reach(&self.mm, space, Vpn(AT.0 + page), store, 4).unwrap().0
    }

    fn store(&self, page: u64, content: u64) {
        self.mm.machine().set_stamp(self.frame(self.space, page, true), content);
    }

    fn load(&self, page: u64) -> u64 {
        self.mm.machine().stamp(self.frame(self.space, page, false))
    }

    fn advise(&self, pages: core::ops::Range<u64>, advice: Advice) {
        self.mm.madvise(self.space, Vpn(AT.0 + pages.start), pages.end - pages.start, advice).unwrap();
    }

    /// Whether a page is in memory.
    fn is_mapped(&self, page: u64) -> bool {
        access(&self.mm, self.space, Vpn(AT.0 + page), Bits::PRESENT, false).is_some()
    }

    fn swap_out_all(&self) {
        self.advise(0..PAGES, Advice::PageOut);
        assert_eq!(self.all().find(|&page| self.is_mapped(page)), None, "all pages must be swapped out");
    }

    /// The pages that are in memory after a load of one, and the pages of its folio.
    fn brings_back(&self, page: u64) -> (Vec<u64>, u32) {
        self.load(page);
        let pages = self.all().filter(|&page| self.is_mapped(page)).collect();
        let core = &self.mm.core;
        (pages, core.frames[core.frames.head(self.frame(self.space, page, false))].pages())
    }

    /// Every page reads as `expected` says; and nothing is left in zram once all are unmapped.
    fn reads(&self, expected: impl Fn(u64) -> u64) {
        for page in self.all() {
            assert_eq!(self.load(page), expected(page), "page {page}");
        }
        self.mm.validate().unwrap();
        self.mm.munmap(self.space, AT, PAGES).unwrap();
        assert_eq!(self.mm.mmu().stats.read(Stat::NrZspages), 0, "no object may be left");
        self.mm.validate().unwrap();
    }
}

/// A zram device with a backing device.
fn with_device(upkeep: ZramUpkeep) -> ZramConfig {
    let backing = Some(ZramBacking { device: DeviceId(1), block: 0, pages: 2 * PAGES as u32 });
    ZramConfig { backing, upkeep: Some(upkeep), ..ZramConfig::new(Compressor::Lz4) }
}

/// A page's own content, of the first kind.
fn content(page: u64) -> u64 {
    (page + 1) << 16 | KINDS[0]
}

/// The folio of a page.
fn folio(page: u64) -> Vec<u64> {
    let first = page / FOLIO * FOLIO;
    (first..first + FOLIO).collect()
}

#[test]
fn a_large_folio_comes_back_from_zram_whole() {
    for page in [0, 5, 15, 16, 47, 63] {
        let bench = Bench::new();
        bench.swap_out_all();
        assert_eq!(bench.brings_back(page), (folio(page), FOLIO as u32));
        bench.reads(content);
    }
}

/// One page comes back where not all can come back together.
#[test]
fn a_page_comes_back_from_zram_alone() {
    type Prepare = (&'static str, fn(&Bench));
    let cases: [Prepare; 8] = [
        ("another page is gone", |bench| bench.advise(20..21, Advice::DontNeed)),
        ("the last page is gone", |bench| bench.advise(31..32, Advice::DontNeed)),
        ("another page is in memory", |bench| {
            bench.advise(0..PAGES, Advice::NoHugePage);
            bench.load(31);
            bench.advise(0..PAGES, Advice::HugePage);
        }),
        ("the range ends before the folio's end", |bench| {
            bench.mm.munmap(bench.space, Vpn(AT.0 + 31), PAGES - 31).unwrap();
        }),
        ("the range begins after the folio's start", |bench| {
            bench.mm.munmap(bench.space, AT, 17).unwrap();
        }),
        ("pages behind it have other rights", |bench| {
            bench.mm.mprotect(bench.space, Vpn(AT.0 + 28), PAGES - 28, Prot::READ).unwrap();
        }),
        ("pages before it have other rights", |bench| {
            bench.mm.mprotect(bench.space, AT, 20, Prot::READ).unwrap();
        }),
        ("large folios are not wanted", |bench| bench.advise(0..PAGES, Advice::NoHugePage)),
    ];
    for (what, prepare) in cases {
        let bench = Bench::new();
        bench.swap_out_all();
        prepare(&bench);
        let before: Vec<u64> = bench.all().filter(|&page| bench.is_mapped(page)).collect();
        let (after, folio) = bench.brings_back(24);
        let new: Vec<u64> = after.into_iter().filter(|page| !before.contains(page)).collect();
        assert_eq!((new, folio), (std_alloc::vec![24], 1), "{what}");
        assert_eq!(bench.load(24), content(24), "{what}");
        bench.mm.validate().unwrap();
    }
}

/// Pages that were swapped out one by one come back as one large folio, if all are zeroes or none is: zeroes are not in
/// zram at all.
#[test]
fn small_pages_come_back_together_if_all_are_zeroes_or_none() {
    let zeroes: [(&[u64], bool); 5] =
        [(&[], true), (&[16], false), (&[31], false), (&[24], false), (&[15, 32], true)];
    for (zeroes, together) in zeroes {
        let bench = Bench::new();
        let content = |page| if zeroes.contains(&page) { 0 } else { content(page) };
        bench.advise(0..PAGES, Advice::NoHugePage);
        bench.advise(0..PAGES, Advice::DontNeed);
        bench.all().for_each(|page| bench.store(page, content(page)));
        bench.swap_out_all();
        bench.advise(0..PAGES, Advice::HugePage);
        let expected = if together { (folio(24), FOLIO as u32) } else { (std_alloc::vec![24], 1) };
        assert_eq!(bench.brings_back(24), expected, "{zeroes:?}");
        bench.reads(content);
    }
    let bench = Bench::new();
    (16..32).for_each(|page| bench.store(page, 0));
    bench.swap_out_all();
    assert_eq!(bench.brings_back(24), (folio(24), FOLIO as u32));
    bench.reads(|page| if page / FOLIO == 1 { 0 } else { content(page) });
}

/// A slot that a child needs, too, goes through the swap cache; nobody loses it, and nobody sees the other's stores.
#[test]
fn what_a_child_needs_stays_in_zram() {
    let bench = Bench::new();
    bench.swap_out_all();
    let child = bench.mm.fork(bench.space).unwrap();
    assert_eq!(bench.brings_back(24), (std_alloc::vec![24], 1));
    bench.all().for_each(|page| bench.store(page, KINDS[1] | page));
    for page in bench.all() {
        let pfn = bench.frame(child, page, false);
        assert_eq!(bench.mm.machine().stamp(pfn), content(page), "page {page} of the child");
    }
    bench.mm.exit_space(child);
    bench.reads(|page| KINDS[1] | page);
}

/// Another task is bringing the page back: the fault sleeps for a tick, and is tried again.
#[test]
fn fault_waits_a_tick_for_a_slot_that_is_being_read() {
    let bench = Bench::new();
    bench.swap_out_all();
    let slot = {
        let tables = bench.mm.core.tables.lock(bench.mm.mmu(), bench.space);
        tables.find(AT).unwrap().entry.as_swap().unwrap().0
    };
    assert!(bench.mm.core.swap.cache_prepare(slot, 1).is_some());
    bench.mm.machine().set_clock(0);
    assert_eq!(bench.mm.fault(bench.space, AT, AccessKind::Load), Ok(FaultDone::Minor));
    assert_eq!(bench.mm.machine().now(), 4_000_000);
    assert!(!bench.is_mapped(0));
}

/// The first page of a folio is on the backing device, and the others are in memory.
#[test]
fn a_folio_comes_back_from_zram_and_its_backing_device() {
    let bench: &'static Bench = Box::leak(Box::new(Bench::on(with_device(ALL_TO_DEVICE))));
    let blocks: &'static Blocks = Box::leak(Box::default());
    *bench.mm.machine().idle.lock() = Some(Box::new(|machine| {
        carry_transfers(&bench.mm, blocks, None);
        // The daemon shall write one page only.
        machine.stops.store(true, Relaxed);
    }));
    bench.swap_out_all();
    bench.mm.daemon(Daemon::ZramUpkeep);
    assert_eq!(blocks.lock().len(), 1, "one page must be written");
    bench.reads(content);
}

/// `writeback_limit`
#[test]
fn no_more_pages_leave_zram_than_its_limit_allows() {
    const EVERY: Nanos = 1000;
    for limit in [0, 3] {
        let upkeep = ZramUpkeep { every: EVERY, write_back_limit: Some(limit), ..ALL_TO_DEVICE };
        let bench: &'static Bench = Box::leak(Box::new(Bench::on(with_device(upkeep))));
        let blocks: &'static Blocks = Box::leak(Box::default());
        *bench.mm.machine().idle.lock() = Some(Box::new(|machine| {
            carry_transfers(&bench.mm, blocks, None);
            // Two rounds are enough.
            machine.stops.store(machine.now() > EVERY, Relaxed);
        }));
        bench.swap_out_all();
        bench.mm.daemon(Daemon::ZramUpkeep);
        assert_eq!(blocks.lock().len() as u64, limit);
        bench.reads(content);
    }
}

#[derive(Clone, Debug)]
enum Op {
    Store(u64, usize),
    Load(u64),
    PageOut(u64, u64),
    Discard(u64, u64),
    NoHuge(u64, u64),
    Huge(u64, u64),
    Fork,
    ChildExits,
}

fn op() -> impl Strategy<Value = Op> {
    let range = || (0..PAGES, 1..PAGES);
    prop_oneof![
        6 => (0..PAGES, 0..KINDS.len()).prop_map(|(page, kind)| Op::Store(page, kind)),
        6 => (0..PAGES).prop_map(Op::Load),
        6 => range().prop_map(|(at, pages)| Op::PageOut(at, pages)),
        1 => range().prop_map(|(at, pages)| Op::Discard(at, pages)),
        1 => range().prop_map(|(at, pages)| Op::NoHuge(at, pages)),
        1 => range().prop_map(|(at, pages)| Op::Huge(at, pages)),
        1 => Just(Op::Fork),
        2 => Just(Op::ChildExits),
    ]
}

proptest! {
    #![proptest_config(crate::testing::cases(100))]

    #[test]
    fn memory_reads_as_it_was_stored_through_zram(ops in prop::collection::vec(op(), 1..80)) {
        let bench = Bench::new();
        let mut model: Vec<u64> = bench.all().map(content).collect();
        let mut child: Option<(SpaceId, Vec<u64>)> = None;
        for (number, op) in ops.iter().enumerate() {
            let clip = |at: u64, pages: u64| at..(at + pages).min(PAGES);
            match *op {
                Op::Store(page, kind) => {
                    let word = [(number as u64 + 1000) << 16, 0, 0][kind] | KINDS[kind];
                    bench.store(page, word);
                    model[page as usize] = word;
                }
                Op::Load(page) => prop_assert_eq!(bench.load(page), model[page as usize]),
                Op::PageOut(at, pages) => bench.advise(clip(at, pages), Advice::PageOut),
                Op::Discard(at, pages) => {
                    bench.advise(clip(at, pages), Advice::DontNeed);
                    clip(at, pages).for_each(|page| model[page as usize] = 0);
                }
                Op::NoHuge(at, pages) => bench.advise(clip(at, pages), Advice::NoHugePage),
                Op::Huge(at, pages) => bench.advise(clip(at, pages), Advice::HugePage),
                Op::Fork if child.is_none() => {
                    child = Some((bench.mm.fork(bench.space).unwrap(), model.clone()));
                }
                Op::Fork => {}
                Op::ChildExits => {
                    if let Some((space, model)) = child.take() {
                        for page in bench.all() {
                            let pfn = bench.frame(space, page, false);
                            prop_assert_eq!(bench.mm.machine().stamp(pfn), model[page as usize]);
                        }
                        bench.mm.exit_space(space);
                    }
                }
            }
            prop_assert_eq!(bench.mm.validate(), Ok(()), "after {:?}", op);
        }
        if let Some((space, _)) = child {
            bench.mm.exit_space(space);
        }
        bench.reads(|page| model[page as usize]);
    }
}

/// A page of a folio was dropped, and another process has its slot now: each reads what it has stored.
#[test]
fn slot_of_a_dropped_page_serves_another_process() {
    let bench = Bench::new();
    let mm = &bench.mm;
    let slot = |space, page| {
        let tables = mm.core.tables.lock(mm.mmu(), space);
        tables.find(Vpn(AT.0 + page)).and_then(|run| run.entry.as_swap()).map(|(slot, _)| slot)
    };
    bench.swap_out_all();
    let other = mm.create_space(ROOT).unwrap();
    mm.mmap(other, &request(AT, 2 * PAGES, Backing::Anonymous)).unwrap();
    mm.madvise(other, AT, 2 * PAGES, Advice::NoHugePage).unwrap();
    let swap_out = |page| {
        mm.machine().set_stamp(bench.frame(other, page, true), content(1000 + page));
        mm.madvise(other, Vpn(AT.0 + page), 1, Advice::PageOut).unwrap();
    };
    // There is one more page than slots.
    (0..PAGES).for_each(swap_out);
    let dropped = slot(bench.space, 20);
    bench.advise(20..21, Advice::DontNeed);
    swap_out(PAGES);
    assert!(dropped.is_some() && slot(other, PAGES) == dropped, "the slot must be in use again");
    assert_eq!(bench.brings_back(24), (std_alloc::vec![24], 1));
    assert_eq!(bench.load(20), 0);
    for page in 0..=PAGES {
        assert_eq!(mm.machine().stamp(bench.frame(other, page, false)), content(1000 + page), "page {page}");
    }
    mm.exit_space(other);
    bench.reads(|page| if page == 20 { 0 } else { content(page) });
}
