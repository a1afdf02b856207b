//! What zswap takes, what it refuses, and what its daemon writes; a page reads the same, wherever it is.

use super::*;
use crate::api::ZramConfig;
use crate::cache::{drop_swap_entry, swapin};
use crate::knobs::Compressor;
use crate::knobs::ZswapForm;
use crate::machine::WaitKey;
use crate::memory::Gfp;
use crate::primitive::Ordering::Relaxed;
use crate::stat::{SizeStat, Stat};
use crate::zswap::ZswapStat;
use std_alloc::boxed::Box;

const AT: Vpn = Vpn(BASE);
const PAGES: u64 = 64;
/// What pages compress to.
const QUARTER: u64 = PAGE_SIZE / 4;

struct Bench {
    mm: Mm<TestMachine>,
    blocks: Blocks,
    space: SpaceId,
    group: GroupId,
}

impl Bench {
    /// A group with a process, zswap before a disk.
    fn new() -> &'static Bench {
        Bench::before(None)
    }

    /// The same before zram or a disk.
    fn before(zram: Option<ZramConfig>) -> &'static Bench {
        let mut machine = TestMachine::simple(1, 4096);
        machine.compresses = true;
        let knobs = Knobs::default();
        knobs.set(Knob::ZswapEnabled, 1).unwrap();
        let pages = 4 * PAGES as u32;
        let swap = std_alloc::vec![SwapArea { device: DeviceId(0), pages, priority: 0, zram }];
        let mm = Mm::new(machine, Config { knobs, swap, ..Config::default() }).unwrap();
        let group = mm.create_group(ROOT, GroupLimits::default()).unwrap();
        let space = mm.create_space(group).unwrap();
        let bench: &'static Bench = Box::leak(Box::new(Bench { mm, blocks: Lock::default(), space, group }));
        *bench.mm.machine().idle.lock() = Some(Box::new(|machine| {
            bench.end_transfers();
            // The daemon sleeps when there is nothing to do.
            machine.stops.store(true, Relaxed);
            machine.wake(WaitKey::Zswap);
        }));
        bench.mm.mmap(space, &request(AT, PAGES, Backing::Anonymous)).unwrap();
        bench
    }

    fn set(&self, knob: Knob, value: u64) {
        self.mm.mmu().knobs.set(knob, value).unwrap();
    }

    /// New memory is in folios of 64 KiB, which version 6.18 stores whole.
    fn use_large_folios(&self) {
        self.set(Knob::ZswapForm, ZswapForm::V618.value());
        let sizes = Knob::ALL.iter().find(|knob| knob.info().name == "hugepages-64kB.enabled");
        self.mm.set_knob(*sizes.unwrap(), 2).unwrap();
    }

    fn limit(&self, max: u64, writeback: bool) {
        self.mm.set_group_zswap_limits(self.group, ZswapLimits { max, writeback }).unwrap();
    }

    fn end_transfers(&self) {
        // A block that nobody wrote may hold anything.
        carry_transfers(&self.mm, &self.blocks, Some(u64::MAX));
    }

    fn stat(&self) -> ZswapStat {
        self.mm.zswap_stat().unwrap_or_default()
    }

    fn reach(&self, page: u64, store: bool) -> Pfn {
        reach(&self.mm, self.space, Vpn(AT.0 + page), store, 4).unwrap().0
    }

    /// Store to all pages; they compress to `bytes`. Then swap them out.
    fn swap_out(&self, bytes: u64) -> ZswapStat {
        for page in 0..PAGES {
            let pfn = self.reach(page, true);
            self.mm.machine().set_stamp(pfn, (page + 1) << 16 | bytes);
        }
        // Those that are written to the disk are freed at the second time.
        for _ in 0..2 {
            self.mm.madvise(self.space, AT, PAGES, Advice::PageOut).unwrap();
            self.end_transfers();
            reclaim::group(&self.mm.core, &self.mm.reclaim, &self.mm, self.group, PAGES);
        }
        self.mm.validate().unwrap();
        self.stat()
    }

    /// All pages read what was stored; afterwards nothing is left in zswap.
    fn reads(&self, bytes: u64) {
        for page in 0..PAGES {
            assert_eq!(
                self.mm.machine().stamp(self.reach(page, false)),
                (page + 1) << 16 | bytes,
                "page {page}"
            );
        }
        self.mm.validate().unwrap();
        self.mm.munmap(self.space, AT, PAGES).unwrap();
        assert_eq!(self.mm.core.zswap.stat().stored_pages, 0);
        assert_eq!(self.mm.mmu().stats.read(Stat::NrZspages), 0);
        self.mm.validate().unwrap();
    }
}

#[test]
fn zswap_keeps_what_its_limits_allow() {
    type Prepare = (&'static str, fn(&Bench), u64);
    let cases: [Prepare; 6] = [
        ("no limit", |_| (), PAGES),
        ("it is off", |bench| bench.set(Knob::ZswapEnabled, 0), 0),
        ("a pool of no size", |bench| bench.set(Knob::ZswapMaxPoolPercent, 0), 0),
        ("a group of no size", |bench| bench.limit(0, true), 0),
        ("a group that may not write back", |bench| bench.limit(u64::MAX, false), PAGES),
        // Its limit is looked at before a page is stored.
        ("a group of four pages", |bench| bench.limit(4, true), 16),
    ];
    for (what, prepare, expected) in cases {
        let bench = Bench::new();
        prepare(bench);
        let stat = bench.swap_out(QUARTER);
        // What zswap does not take is on the disk.
        assert_eq!(bench.mm.mmu().stats.read(Stat::NrAnonPages), 0, "{what}: all pages must be swapped out");
        assert_eq!(bench.mm.core.zswap.stat().stored_pages, expected, "{what}");
        let pool = bench.mm.core.zswap.pool().total_pages() * PAGE_SIZE;
        assert_eq!(stat.pool_total_size, pool, "{what}");
        assert!(pool >= expected * QUARTER, "{what}: {pool} bytes");
        assert_eq!(stat.pool_limit_hit > 0, what == "a pool of no size", "{what}");
        bench.reads(QUARTER);
    }
}

/// Pages that do not get smaller go to the disk, or stay whole, by the version.
#[test]
fn incompressible_pages_are_kept_as_the_version_does() {
    let (v612, v618) = (ZswapForm::V612, ZswapForm::V618);
    let cases = [
        (v612, PAGE_SIZE, true, PAGES, 0),
        (v612, PAGE_SIZE + 1, true, 0, PAGES),
        (v618, PAGE_SIZE, true, PAGES, 0),
        (v618, PAGE_SIZE + 1, true, PAGES, 0),
        (v618, PAGE_SIZE - 1, false, PAGES, 0),
        (v618, PAGE_SIZE, false, 0, PAGES),
    ];
    for (form, bytes, writeback, stored, poor) in cases {
        let bench = Bench::new();
        bench.set(Knob::ZswapForm, form.value());
        bench.limit(u64::MAX, writeback);
        let stat = bench.swap_out(bytes);
        assert_eq!(stat.stored_pages, stored, "{form:?} {bytes} {writeback}");
        assert_eq!(stat.reject_compress_poor > 0, poor > 0, "{form:?} {bytes} {writeback}");
        bench.reads(bytes);
    }
}

/// `memory.zswap.writeback`: what zswap does not take stays in memory, as long as zswap is on.
#[test]
fn a_group_may_keep_its_pages_from_the_disk() {
    for (enabled, writeback, goes) in [(1, false, false), (1, true, true), (0, false, true), (0, true, true)]
    {
        let bench = Bench::new();
        bench.set(Knob::ZswapEnabled, enabled);
        bench.limit(u64::MAX, writeback);
        // They do not get smaller.
        bench.swap_out(PAGE_SIZE + 1);
        let written = bench.blocks.lock().len() as u64;
        assert_eq!(written, if goes { PAGES } else { 0 }, "enabled: {enabled}, write-back: {writeback}");
        bench.reads(PAGE_SIZE + 1);
    }
}

#[test]
fn pages_of_a_large_folio_keep_their_content_in_zswap() {
    let bench = Bench::new();
    bench.use_large_folios();
    assert_eq!(bench.swap_out(QUARTER).stored_pages, PAGES);
    let split = bench.mm.core.sizes.sum(SizeStat::Split);
    assert_eq!(split, 0, "zswap must have taken the folios whole");
    bench.reads(QUARTER);
}

/// The folio stays in memory as a whole, so zswap must not keep a part of it.
#[test]
fn zswap_keeps_no_page_of_a_large_folio_of_which_it_refuses_one() {
    let bench = Bench::new();
    bench.use_large_folios();
    bench.limit(u64::MAX, false);
    for page in 0..16 {
        let bytes = if page == 5 { PAGE_SIZE } else { QUARTER };
        bench.mm.machine().set_stamp(bench.reach(page, true), (page + 1) << 16 | bytes);
    }
    bench.mm.madvise(bench.space, AT, 16, Advice::PageOut).unwrap();
    let stat = bench.stat();
    assert!(stat.reject_compress_poor > 0, "zswap must have been asked");
    assert_eq!(stat.stored_pages, 0);
    bench.mm.validate().unwrap();
}

/// Once the pool is full, the daemon writes until it has shrunk to the threshold, and no page is lost on the way.
#[test]
fn the_daemon_writes_until_the_pool_has_shrunk() {
    let bench = Bench::new();
    let stored = bench.swap_out(QUARTER).stored_pages;
    assert_eq!(stored, PAGES);
    // Now it is too large: each page more asks the daemon. Pages get a second chance, and the daemon gives up after a
    // few that it must spare.
    bench.set(Knob::ZswapMaxPoolPercent, 0);
    bench.mm.mmap(bench.space, &request(Vpn(AT.0 + PAGES), 1, Backing::Anonymous)).unwrap();
    let mut before = stored;
    for _ in 0..10 {
        bench.mm.machine().set_stamp(bench.reach(PAGES, true), QUARTER);
        bench.mm.madvise(bench.space, Vpn(AT.0 + PAGES), 1, Advice::PageOut).unwrap();
        bench.mm.machine().stops.store(false, Relaxed);
        bench.mm.daemon(Daemon::Zswap);
        assert!(bench.stat().stored_pages <= before);
        before = bench.stat().stored_pages;
        bench.mm.validate().unwrap();
    }
    let stat = bench.stat();
    assert_eq!((stat.stored_pages, stat.written_back_pages), (0, PAGES));
    bench.reads(QUARTER);
}

/// Two tasks need a page of shmem. One gets it from zswap and moves it into the file; the other holds the slot, and
/// reads what is behind zswap: nothing yet. The page stays what it was.
#[test]
fn a_slot_may_be_read_whose_content_another_task_took_from_zswap() {
    for zram in [None, Some(ZramConfig::new(Compressor::Lz4))] {
        let bench = Bench::before(zram);
        let core = &bench.mm.core;
        let file = bench.mm.create_file(FileKind::Shmem, PAGE_SIZE);
        let mut store = |pfn, _, _| bench.mm.machine().set_stamp(pfn, 7 << 16 | QUARTER);
        bench.mm.write(file, 0, PAGE_SIZE, bench.group, &mut store).unwrap();
        reclaim::group(core, &bench.mm.reclaim, &bench.mm, bench.group, 100);
        reclaim::group(core, &bench.mm.reclaim, &bench.mm, bench.group, 100);
        assert_eq!(bench.stat().stored_pages, 1);
        let slot = SwapSlot(0);
        core.swap.dup(slot);
        let mut content = Vec::new();
        let mut load = || {
            let mut sink = |pfn, _, _| content.push(bench.mm.machine().stamp(pfn));
            bench.mm.read(file, 0, PAGE_SIZE, bench.group, &mut sink).unwrap();
        };
        load();
        let page = swapin(core, slot, Gfp::user(bench.group)).unwrap();
        core.put(page.folio);
        #[expect(clippy::disallowed_methods, reason = "the test holds the slot")]
        drop_swap_entry(core, slot);
        load();
        assert_eq!(content, [7 << 16 | QUARTER; 2]);
        bench.mm.validate().unwrap();
    }
}

/// `zswap.shrinker_enabled`
#[test]
fn reclaim_of_a_group_has_zswap_write_old_pages() {
    let bench = Bench::new();
    assert_eq!(bench.swap_out(QUARTER).stored_pages, PAGES);
    bench.set(Knob::ZswapShrinkerEnabled, 1);
    // Each page gets a second chance.
    for _ in 0..4 {
        reclaim::group(&bench.mm.core, &bench.mm.reclaim, &bench.mm, bench.group, PAGES);
        bench.end_transfers();
    }
    assert!(bench.stat().written_back_pages > 0);
    bench.reads(QUARTER);
}
