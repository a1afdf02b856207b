//! Whole reclaims on a small machine: one node, one space, files and swap on devices whose transfers end on request.

mod daemon;
mod hope;
mod large;
mod proposed;
mod protected;
mod retries;
mod spent;
mod text;
mod written;

use super::spaces::NO_SPACES;
use super::*;
use crate::alloc::{Allocator, KswapdRequest, Means, NeedsReclaim, Reserve, Watermark};
use crate::api::{FileKind, GroupLimits, SwapArea};
use crate::cache::Cache;
use crate::frame::{FrameFlags, Owner};
use crate::knobs::{Knob, Knobs};
use crate::lru::{Lru, LruList, ROOT};
use crate::machine::{WaitKey, Work};
use crate::memory::Gfp;
use crate::mmu::Mmu;
use crate::rmap::{Span, SpanFlags};
use crate::stat::SizeStat;
use crate::swap::Swap;
use crate::table::{Bits, Entry, Resident};
use crate::testing::TestMachine;
use std_alloc::vec::Vec;

const MEANS: Means = Means::new(Watermark::Min, Reserve::None);
const SWAP_DEVICE: DeviceId = DeviceId(1);
pub(super) const START: Vpn = Vpn(0x1000);

pub(super) struct Bench {
    pub(super) core: MmCore<TestMachine>,
    pub(super) state: ReclaimState,
    pub(super) space: SpaceId,
    set: AnonId,
    file: FileId,
}

impl Bench {
    /// One Normal zone of 2048 frames, `swap` pages of swap.
    pub(super) fn new(swap: u32) -> Bench {
        Bench::on(TestMachine::simple(1, 2048), swap)
    }

    /// Another machine, `swap` pages of swap.
    pub(super) fn on(machine: TestMachine, swap: u32) -> Bench {
        let knobs = Knobs::default();
        // Otherwise the first unmovable page in a movable zone would raise the marks by a page block, a quarter of this
        // zone.
        knobs.set(Knob::WatermarkBoostFactor, 0).unwrap();
        // What the tests count is what is used.
        knobs.set(Knob::MemcgChargeBatch, 1).unwrap();
        let mmu = Mmu::new(machine, knobs);
        let alloc = Allocator::new(&mmu).unwrap();
        let lru = Lru::new(&mmu.machine);
        let areas = [SwapArea { device: SWAP_DEVICE, pages: swap, priority: 0, zram: None }];
        let swap = Swap::new(if swap > 0 { &areas } else { &[] }, 1);
        let memory = Memory::new(mmu, swap, alloc, lru);
        let state = ReclaimState::new(&memory);
        let zero = memory.new_folio(Order::ZERO, Gfp::user(ROOT)).unwrap();
        let core = MmCore::new(memory, Cache::new(), zero);
        let space = core.tlb.create();
        core.tables.create(&core, &core.alloc, space, MEANS).unwrap();
        let set = core.rmap.create_anon();
        let file = core.cache.create(FileKind::Disk { device: DeviceId(0), block: 0 }, 0);
        let bench = Bench { core, state, space, set, file };
        bench.link(ROOT, SpanFlags::empty());
        bench
    }

    fn span(&self, group: GroupId, flags: SpanFlags) -> Span {
        let (vma, index) = (VmaId(1), PageIndex(0));
        Span { vma, space: self.space, group, start: START, pages: 4096, index, flags }
    }

    fn link(&self, group: GroupId, flags: SpanFlags) {
        self.core.rmap.link(Owner::Anon(self.set), self.span(group, flags));
    }

    /// An anonymous page of the space, mapped with these bits and on the inactive list.
    pub(super) fn anon(&self, index: u64, group: GroupId, bits: Bits) -> Pfn {
        let core = &self.core;
        let pfn = core.new_folio(Order::ZERO, Gfp::user(group)).unwrap();
        let frame = &core.frames[pfn];
        frame.set_owner(Owner::Anon(self.set), PageIndex(index));
        frame.set(FrameFlags::SWAPBACKED | FrameFlags::UPTODATE | FrameFlags::EXCLUSIVE);
        core.rmap.add_range(core, crate::frame::FolioPages::one(&core.frames, pfn));
        let mut tables = core.tables.lock(core, self.space);
        let slot = tables.reserve(&core.alloc, Vpn(START.0 + index), MEANS).unwrap();
        tables.place(slot, pfn, Bits::PRESENT | Bits::USER | Bits::WRITE | bits);
        tables.counts().add(Resident::Anon, 1);
        drop(tables);
        core.lru.add(core, [pfn], false);
        pfn
    }

    pub(super) fn anons(&self, count: u64, group: GroupId, bits: Bits) -> Vec<Pfn> {
        (0..count).map(|index| self.anon(index, group, bits)).collect()
    }

    pub(super) fn entry(&self, index: u64) -> Entry {
        let tables = self.core.tables.lock(&self.core, self.space);
        tables.find(Vpn(START.0 + index)).map_or(Entry::NONE, |leaf| leaf.entry)
    }

    /// Write pages of the file, which makes them dirty.
    pub(super) fn write(&self, pages: core::ops::Range<u64>, group: GroupId) {
        for page in pages {
            let gfp = Gfp::user(group);
            let at = page * PAGE_SIZE;
            self.core.cache.write(&self.core, self.file, at, PAGE_SIZE, gfp, &mut |_, _, _| ()).unwrap();
        }
    }

    /// Make pages of the file that are in memory, clean and unused.
    pub(super) fn clean_file(&self, pages: core::ops::Range<u64>, group: GroupId) {
        self.write(pages.clone(), group);
        pages.for_each(|page| self.write_unused(page));
        self.finish_io();
    }

    fn read(&self, page: u64) {
        let read = self.core.cache.read_ahead(&self.core, self.file, PageIndex(page), 1, Gfp::user(ROOT));
        read.unwrap();
        self.finish_io();
    }

    pub(super) fn folio(&self, page: u64) -> Option<Pfn> {
        let pfn = self.core.cache.lookup(&self.core, self.file, PageIndex(page))?.head;
        self.core.put(pfn);
        Some(pfn)
    }

    fn resident(&self, pages: core::ops::Range<u64>) -> usize {
        pages.filter(|&page| self.folio(page).is_some()).count()
    }

    /// End all transfers. Returns the number of pages written.
    pub(super) fn finish_io(&self) -> u32 {
        let mut written = 0;
        while let Some(io) = self.core.machine.next_io() {
            written += if io.write { io.pages } else { 0 };
            self.core.cache.end_io(&self.core, &io, true);
        }
        written
    }

    fn needs(&self) -> NeedsReclaim {
        NeedsReclaim {
            order: Order::ZERO,
            node: NodeId(0),
            highest: ZoneKind::Normal,
            among: Nodes::ALL,
            apart: false,
        }
    }

    pub(super) fn cx(&self) -> Reclaim<'_, TestMachine> {
        Reclaim { core: &self.core, state: &self.state, spaces: &NO_SPACES }
    }

    /// Isolate the folios and reclaim them.
    fn pageout(&self, folios: &[Pfn]) -> u64 {
        let isolated: Vec<_> =
            folios.iter().copied().filter(|&pfn| self.core.lru.isolate(&self.core, pfn)).collect();
        pageout(&self.core, &self.state, &NO_SPACES, &isolated)
    }

    /// Take all memory that a user gets, for as long as the test keeps it.
    fn pin_all(&self) -> Vec<Pfn> {
        core::iter::from_fn(|| self.core.new_folio(Order::ZERO, Gfp::user(ROOT)).ok()).collect()
    }

    fn is_balanced(&self) -> bool {
        self.core.alloc.balanced(&self.core.knobs, NodeId(0), Order::ZERO, ZoneKind::Normal)
    }

    /// Begin to write a page of the file that was not used since it was written.
    pub(super) fn write_unused(&self, page: u64) {
        let pfn = self.folio(page).expect("the page must be cached");
        self.core.frames[pfn].clear(FrameFlags::REFERENCED);
        self.write_start(pfn);
    }

    pub(super) fn write_start(&self, pfn: Pfn) {
        self.core.lock_folio(pfn);
        assert!(self.core.cache.write_page_start(&self.core, pfn, &mut Default::default()));
        self.core.unlock_folio(pfn);
    }

    fn direct(&self) -> u64 {
        direct(&self.core, &self.state, &NO_SPACES, &self.needs())
    }

    fn stat(&self, stat: Stat) -> i64 {
        self.core.stats.read(stat)
    }

    fn validate(&self) {
        let mmu = &self.core;
        self.core.lru.validate(mmu).unwrap();
        self.core.alloc.validate(mmu).unwrap();
        self.core.swap.validate().unwrap();
        self.state.validate(&self.core).unwrap();
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.validate();
        }
    }
}

#[test]
fn clean_file_pages_are_reclaimed_first_and_leave_shadows() {
    let bench = Bench::new(64);
    bench.core.knobs.set(Knob::MemcgFlushMs, 0).unwrap();
    bench.clean_file(0..200, ROOT);
    bench.anons(200, ROOT, Bits::empty());
    assert!(bench.direct() >= 32);
    assert_eq!(
        bench.stat(Stat::PgscanAnon),
        0,
        "only inactive file pages are scanned while there are plenty"
    );
    assert_eq!(bench.stat(Stat::PgstealFile), bench.stat(Stat::PgstealDirect));
    assert_eq!(bench.stat(Stat::AllocstallNormal), 1);
    assert!(bench.resident(0..200) <= 168 && bench.folio(199).is_some(), "the oldest pages are reclaimed");
    bench.validate();
    // A page that returns is a refault; without active pages it competes with the anonymous ones.
    bench.read(0);
    assert_eq!(bench.stat(Stat::WorkingsetRefaultFile), 1);
}

#[test]
fn large_file_folio_is_reclaimed_whole_and_counts_its_pages() {
    let bench = Bench::new(0);
    let core = &bench.core;
    core.knobs.set(Knob::FileMaxOrder, 6).unwrap();
    let group = core.lru.create_group(ROOT, GroupLimits::default(), drop).unwrap();
    for at in (0..256).step_by(64).map(|page| page * PAGE_SIZE) {
        let (len, gfp) = (64 * PAGE_SIZE, Gfp::user(group));
        assert_eq!(core.cache.write(core, bench.file, at, len, gfp, &mut |_, _, _| ()).unwrap(), len);
        let pfn = bench.folio(at / PAGE_SIZE).unwrap();
        assert_eq!(core.frames[pfn].order(), Order(6));
        bench.write_start(pfn);
    }
    assert_eq!((bench.finish_io(), core.lru.groups.usage(group)), (256, 256));
    bench.validate();
    let freed = bench.direct();
    assert!(freed >= 64 && freed.is_multiple_of(64), "{freed}");
    let stats = [Stat::PgscanDirect, Stat::PgstealDirect, Stat::PgstealFile].map(|stat| bench.stat(stat));
    assert_eq!(stats, [freed as i64; 3]);
    assert_eq!((bench.resident(0..256) as u64, core.lru.groups.usage(group)), (256 - freed, 256 - freed));
    assert_eq!(core.lru.node_vec(NodeId(0)).pages(LruList::InactiveFile), 256 - freed);
    bench.validate();
    // Each of its pages is a refault when it returns.
    core.knobs.set(Knob::FileMaxOrder, 0).unwrap();
    bench.read(63);
    assert_eq!(bench.stat(Stat::WorkingsetRefaultFile), 1);
}

#[test]
fn large_shmem_folio_is_split_and_swapped_out_in_one_pass() {
    let bench = Bench::new(64);
    let core = &bench.core;
    core.knobs.set(Knob::ShmemMaxOrder, 4).unwrap();
    let file = core.cache.create(FileKind::Shmem, 16 * PAGE_SIZE);
    let len = 16 * PAGE_SIZE;
    core.cache.write(core, file, 0, len, Gfp::user(ROOT), &mut |_, _, _| ()).unwrap();
    let head = core.cache.lookup(core, file, PageIndex(0)).unwrap().head;
    assert!(core.lru.isolate(core, head));
    core.put(head);
    assert_eq!((core.frames[head].order(), bench.stat(Stat::NrShmem)), (Order(4), 16));
    pageout(core, &bench.state, &NO_SPACES, &[head]);
    assert_eq!((bench.stat(Stat::PswpOut), bench.stat(Stat::NrShmem)), (16, 0));
    let fallback = core.sizes.read(SizeStat::SwpoutFallback, Order(4));
    assert_eq!((fallback, core.sizes.read(SizeStat::Split, Order(4))), (1, 1));
    bench.validate();
    assert_eq!(bench.finish_io(), 16);
}

#[test]
fn reclaim_charges_work_and_reports_events() {
    let bench = Bench::new(0);
    bench.clean_file(0..64, ROOT);
    let freed = bench.direct();
    let machine = &bench.core.machine;
    assert_eq!(machine.work(Work::ReclaimFolio), bench.stat(Stat::PgscanDirect) as u64);
    assert!(machine.work(Work::ReclaimBatch) >= freed / 32);
    use crate::event::Event::*;
    for event in [MmVmscanDirectReclaimBegin, MmVmscanDirectReclaimEnd] {
        assert_eq!(machine.events(event), 1);
    }
    assert!(machine.events(MmVmscanLruShrinkInactive) > 0);
}

#[test]
fn anonymous_pages_get_a_second_chance_before_swap() {
    let bench = Bench::new(2048);
    let pfns = bench.anons(256, ROOT, Bits::YOUNG | Bits::DIRTY);
    let mut rounds = 0;
    while bench.stat(Stat::PgstealAnon) < 64 {
        bench.direct();
        bench.finish_io();
        bench.validate();
        rounds += 1;
        assert!(rounds < 20, "no progress");
    }
    assert!(bench.stat(Stat::NrVmscanWrite) >= 64 && bench.stat(Stat::PswpOut) >= 64);
    assert!(bench.stat(Stat::Pgrotated) > 0, "written pages are moved to the tail");
    let swapped = (0..256).filter(|&index| bench.entry(index).as_swap().is_some()).count() as u64;
    assert!(swapped >= 64);
    let used = bench.core.swap.total() - bench.core.swap.free_slots();
    assert_eq!(used, swapped, "each swapped page has one slot");
    let mapped: Vec<_> = pfns.iter().filter(|&&pfn| bench.core.frames[pfn].mapcount() > 0).collect();
    assert_eq!(mapped.len() as u64, 256 - swapped);
    assert!(!bench.core.machine.flushes.lock().is_empty() || bench.core.machine.roots.lock().is_empty());
}

#[test]
fn direct_reclaim_leaves_dirty_file_pages_to_the_flusher() {
    let bench = Bench::new(0);
    bench.write(0..64, ROOT);
    for page in 0..64 {
        bench.core.frames[bench.folio(page).unwrap()].clear(FrameFlags::REFERENCED);
    }
    assert_eq!(bench.direct(), 0);
    assert!(bench.stat(Stat::NrVmscanImmediateReclaim) >= 64);
    assert!(bench.core.machine.wakes(WaitKey::Flusher) > 0);
    assert!(bench.core.machine.ios.lock().is_empty(), "a direct reclaimer writes no file pages");
    assert!(bench.core.frames[bench.folio(0).unwrap()].has(FrameFlags::RECLAIM | FrameFlags::DIRTY));
}

#[test]
fn lazily_freed_pages_are_dropped_unless_written() {
    let bench = Bench::new(64);
    let mmu = &bench.core;
    for pfn in bench.anons(64, ROOT, Bits::empty()) {
        bench.core.lru.lazyfree(mmu, pfn);
    }
    let written = bench.anon(64, ROOT, Bits::DIRTY);
    bench.core.lru.lazyfree(mmu, written);
    while bench.stat(Stat::Pglazyfreed) < 64 {
        assert!(bench.direct() > 0);
    }
    assert_eq!(bench.stat(Stat::PswpOut), 0);
    bench.direct();
    assert!(bench.entry(0).is_none());
    assert!(bench.core.frames[written].has(FrameFlags::SWAPBACKED), "it is ordinary memory again");
    assert!(!bench.entry(64).is_none(), "its content is mapped or in swap");
}

#[test]
fn mlocked_pages_are_culled() {
    let bench = Bench::new(256);
    bench.core.rmap.relink(Owner::Anon(bench.set), bench.span(ROOT, SpanFlags::LOCKED));
    bench.anons(64, ROOT, Bits::YOUNG);
    assert_eq!(bench.direct(), 0);
    assert_eq!(bench.stat(Stat::NrUnevictable), 64);
    assert_eq!(bench.stat(Stat::UnevictablePgsCulled), 64);
    assert_eq!(bench.stat(Stat::NrMlock), 64);
}

#[test]
fn group_reclaims_from_itself_and_groups_below() {
    let bench = Bench::new(0);
    let groups = &bench.core.lru;
    let limit = |max| GroupLimits { max, ..GroupLimits::default() };
    let top = groups.create_group(ROOT, limit(100), drop).unwrap();
    let child = groups.create_group(top, limit(u64::MAX), drop).unwrap();
    bench.clean_file(0..60, ROOT);
    bench.clean_file(60..100, top);
    bench.clean_file(100..160, child);
    assert_eq!(groups.groups.try_charge(&bench.core, child, 1), Err(top));
    assert!(group(&bench.core, &bench.state, &NO_SPACES, top, 1) >= 32);
    assert_eq!(bench.resident(0..60), 60);
    assert!(groups.groups.usage(top) <= 68);
    assert_eq!(bench.stat(Stat::PgscanDirect), 0, "the node does not reclaim");
}

#[test]
fn memory_low_spares_a_group_while_others_have_pages() {
    let bench = Bench::new(0);
    let lru = &bench.core.lru;
    let low = GroupLimits { low: 64, ..GroupLimits::default() };
    let min = GroupLimits { min: 64, ..GroupLimits::default() };
    let (soft, hard) =
        (lru.create_group(ROOT, low, drop).unwrap(), lru.create_group(ROOT, min, drop).unwrap());
    bench.clean_file(0..64, soft);
    bench.clean_file(64..128, hard);
    bench.clean_file(128..192, ROOT);
    while bench.resident(128..192) > 0 {
        assert_eq!(bench.resident(0..128), 128, "the other group has pages");
        assert!(bench.direct() > 0);
    }
    while bench.resident(0..64) > 0 {
        assert!(bench.direct() > 0, "memory.low is ignored before memory is out");
    }
    assert_eq!(bench.direct(), 0);
    assert_eq!(bench.resident(64..128), 64, "memory.min always holds");
    let mut retries = Retries::default();
    let mut rounds = 0;
    while should_retry(&bench.core, &bench.needs(), 0, &mut retries) {
        rounds += 1;
    }
    assert_eq!(rounds, 16);
}

/// Only a share of memory is under write-back to swap at once: reclaimers wait before they submit more.
#[test]
fn writes_to_swap_are_bounded() {
    let bench = Bench::new(1024);
    bench.anons(1000, ROOT, Bits::DIRTY);
    for _ in 0..8 {
        let _ = bench.direct();
    }
    let under_way = bench.core.swap.under_way();
    assert!((64..=2048 / 16 + 32).contains(&under_way), "{under_way} of 2048 pages are under write-back");
    assert_eq!(bench.finish_io(), under_way);
    assert!(bench.direct() > 0);
}

/// All pages at the tail of the lists are under write-back: scanning more of them is useless.
#[test]
fn reclaimer_waits_if_it_finds_only_write_back() {
    let bench = Bench::new(0);
    bench.write(0..200, ROOT);
    (0..200).for_each(|page| bench.write_unused(page));
    let before = bench.core.machine.now();
    assert_eq!(bench.direct(), 0);
    assert!(
        bench.core.machine.now() - before >= 100_000_000,
        "scanned {} pages",
        bench.stat(Stat::PgscanDirect)
    );
    assert_eq!(bench.finish_io(), 200);
    assert!(bench.direct() > 0);
}

#[test]
fn pages_with_a_slot_are_reclaimed_when_swap_is_full() {
    let bench = Bench::new(40);
    let pfns = bench.anons(60, ROOT, Bits::DIRTY);
    assert_eq!(bench.pageout(&pfns), 0);
    assert_eq!((bench.finish_io(), bench.core.swap.free_slots()), (40, 0));
    assert!(bench.direct() > 0);
}

#[test]
fn pageout_reclaims_used_pages() {
    let bench = Bench::new(256);
    let pfns = bench.anons(40, ROOT, Bits::YOUNG | Bits::DIRTY);
    assert_eq!(bench.pageout(&pfns), 0, "they are under write-back to swap");
    assert_eq!(bench.finish_io(), 40);
    bench.validate();
    assert_eq!(bench.pageout(&pfns), 40);
}

#[test]
fn kswapd_restores_the_high_mark() {
    let bench = Bench::new(0);
    let zone = &bench.core.alloc.zones()[0];
    // Allocating down to the low mark leaves a request for kswapd.
    bench.clean_file(0..1800, ROOT);
    let filled = bench.pin_all().len();
    assert!(filled > 0 && filled < 248);
    assert!(!bench.is_balanced());
    let wanted = bench.core.alloc.take_kswapd_request(NodeId(0)).unwrap();
    let cx = bench.cx();
    assert_eq!(cx.balance(NodeId(0), wanted), Order::ZERO);
    assert!(bench.is_balanced());
    assert!(zone.free_pages() > zone.mark(Watermark::High));
    assert_eq!(bench.stat(Stat::Pageoutrun), 1);
    assert!(bench.stat(Stat::PgstealKswapd) > 0 && bench.stat(Stat::PgscanDirect) == 0);
}

#[test]
fn kswapd_gives_up_a_hopeless_node_until_there_is_progress() {
    for policy in [PolicyKind::Classic, PolicyKind::MgLru] {
        let bench = Bench::new(0);
        bench.core.lru.set_policy(&bench.core, policy).unwrap();
        let cx = bench.cx();
        let pinned = bench.pin_all();
        let wanted = bench.core.alloc.take_kswapd_request(NodeId(0)).unwrap();
        for round in 1..=16 {
            assert!(!bench.state.is_hopeless(NodeId(0)), "{policy:?}, round {round}");
            cx.balance(NodeId(0), wanted);
        }
        assert!(bench.state.is_hopeless(NodeId(0)), "{policy:?}");
        assert!(cx.may_sleep(NodeId(0), wanted), "direct reclaimers reclaim instead");
        pinned.into_iter().for_each(|pfn| bench.core.put(pfn));
        bench.clean_file(0..64, ROOT);
        assert!(bench.direct() > 0);
        assert!(!bench.state.is_hopeless(NodeId(0)), "{policy:?}");
    }
}

#[test]
fn swappiness_0_keeps_anonymous_memory() {
    let bench = Bench::new(2048);
    bench.core.knobs.set(Knob::Swappiness, 0).unwrap();
    bench.anons(128, ROOT, Bits::empty());
    bench.clean_file(0..512, ROOT);
    for _ in 0..8 {
        bench.direct();
    }
    assert_eq!(bench.stat(Stat::PgstealAnon) + bench.stat(Stat::PswpOut), 0);
}

/// What is recorded while kswapd works does not keep it awake: in Linux it naps if the marks are met.
#[test]
fn kswapd_naps_before_it_sleeps() {
    let bench: &'static Bench = Box::leak(Box::new(Bench::new(0)));
    let cx = bench.cx();
    let wanted = KswapdRequest { order: Order::ZERO, highest: ZoneKind::Normal };
    let pinned = bench.pin_all();
    cx.try_to_sleep(NodeId(0), wanted, Order::ZERO);
    assert_eq!(
        bench.stat(Stat::KswapdHighWmarkHitQuickly),
        1,
        "kswapd does not sleep while the node is not balanced"
    );
    pinned.into_iter().for_each(|pfn| bench.core.put(pfn));
    assert!(bench.is_balanced());
    assert!(bench.core.alloc.kswapd_request(NodeId(0)).is_some(), "somebody asked while it worked");
    let before = bench.core.machine.now();
    // It naps until it is woken.
    *bench.core.machine.idle.lock() = Some(Box::new(|machine| {
        machine.advance(7);
        assert!(bench.core.alloc.rouse_kswapd(&bench.core, NodeId(0)));
        assert!(!bench.core.alloc.rouse_kswapd(&bench.core, NodeId(0)), "it is awake");
    }));
    cx.try_to_sleep(NodeId(0), wanted, Order::ZERO);
    assert_eq!(bench.stat(Stat::KswapdLowWmarkHitQuickly), 1);
    assert_eq!(bench.core.machine.now(), before + 7);
    assert_eq!(bench.core.machine.events(crate::event::Event::MmVmscanKswapdSleep), 0);
}

#[test]
fn reclaimers_wait_when_too_many_pages_are_isolated() {
    let bench = Bench::new(0);
    let cx = bench.cx();
    bench.clean_file(0..64, ROOT);
    cx.note_isolated(NodeId(0), true, 9);
    let before = bench.core.machine.now();
    assert_eq!(bench.direct(), 0, "9 pages are isolated, 64 / 8 are allowed");
    assert!(bench.core.machine.now() - before >= 20_000_000);
    assert!(bench.core.machine.events(crate::event::Event::MmVmscanThrottled) > 0);
    cx.note_isolated(NodeId(0), true, -9);
    assert!(bench.direct() > 0);
}

/// The clocks of CPUs differ a little, and a task may wake on another CPU.
#[test]
fn reclaimer_may_wake_before_its_sleep_began() {
    let bench: &'static Bench = Box::leak(Box::new(Bench::new(0)));
    bench.core.machine.advance(1000);
    *bench.core.machine.idle.lock() = Some(Box::new(|machine| {
        machine.set_clock(900);
        bench.cx().unthrottle(NodeId(0), Throttle::Isolated);
    }));
    bench.cx().throttle(NodeId(0), Throttle::Isolated);
    assert_eq!(bench.core.machine.now(), 900);
}

#[test]
fn direct_reclaimers_leave_the_reserve_to_kswapd() {
    let bench = Bench::new(0);
    bench.clean_file(0..64, ROOT);
    let reserve = |mark, reserve| Gfp { mark, reserve, ..Gfp::user(ROOT) };
    while bench.core.new_folio(Order::ZERO, reserve(Watermark::Min, Reserve::All)).is_ok() {}
    bench.core.alloc.set_kswapd_waits(NodeId(0), true);
    let wakes = bench.core.machine.wakes(WaitKey::Kswapd(NodeId(0)));
    let before = bench.core.machine.now();
    assert!(bench.direct() > 0, "it continues after the timeout");
    assert_eq!(bench.stat(Stat::PgscanDirectThrottle), 1);
    assert!(bench.core.machine.wakes(WaitKey::Kswapd(NodeId(0))) > wakes);
    assert!(bench.core.machine.now() - before >= 1_000_000_000);
}

/// Random reclaims of random memory: lists, charges and swap stay consistent, and no content is lost.
mod random {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Copy, Debug)]
    enum Op {
        Anon { group: bool, young: bool },
        Write(u64),
        Touch(u64),
        Direct,
        Group,
        Kswapd,
        Pageout(usize),
        FinishIo,
        Lazyfree(usize),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            8 => (any::<bool>(), any::<bool>()).prop_map(|(group, young)| Op::Anon { group, young }),
            6 => (0u64..96).prop_map(Op::Write),
            3 => (0u64..96).prop_map(Op::Touch),
            2 => Just(Op::Direct),
            1 => Just(Op::Group),
            1 => Just(Op::Kswapd),
            1 => (0usize..64).prop_map(Op::Pageout),
            2 => Just(Op::FinishIo),
            1 => (0usize..64).prop_map(Op::Lazyfree),
        ]
    }

    proptest! {
        #![proptest_config(crate::testing::cases(48))]

        #[test]
        fn random_reclaim_loses_no_content(ops in prop::collection::vec(op(), 1..160)) {
            let bench = Bench::new(96);
            let lru = &bench.core.lru;
            let below = lru.create_group(ROOT, GroupLimits { low: 16, ..GroupLimits::default() }, drop).unwrap();
            let mmu = &bench.core;
            let cx = bench.cx();
            let mut count = 0;
            let mut lazy = std_alloc::collections::BTreeSet::new();
            for op in ops {
                let present = |i: usize| {
                    Some(bench.entry(i as u64)).filter(|entry| entry.is_present()).map(|entry| entry.pfn())
                };
                match op {
                    Op::Anon { group, young } => {
                        let bits = if young { Bits::YOUNG | Bits::DIRTY } else { Bits::DIRTY };
                        bench.anon(count, if group { below } else { ROOT }, bits);
                        count += 1;
                    }
                    Op::Write(page) => bench.write(page..page + 1, below),
                    Op::Touch(page) => {
                        if let Some(pfn) = bench.folio(page) {
                            lru.mark_accessed(mmu, pfn);
                        }
                    }
                    Op::Direct => _ = bench.direct(),
                    Op::Group => _ = group(&bench.core, &bench.state, &NO_SPACES, below, 8),
                    Op::Kswapd => {
                        let highest = ZoneKind::Normal;
                        let _ = cx.balance(NodeId(0), KswapdRequest { order: Order::ZERO, highest });
                    }
                    Op::Pageout(i) => {
                        _ = bench.pageout(present(i).as_slice());
                    }
                    Op::FinishIo => _ = bench.finish_io(),
                    Op::Lazyfree(i) => {
                        if let Some(pfn) = present(i) {
                            lru.lazyfree(mmu, pfn);
                            lazy.insert(i as u64);
                        }
                    }
                }
                bench.validate();
                for index in (0..count).filter(|index| !lazy.contains(index)) {
                    prop_assert!(!bench.entry(index).is_none(), "page {index} is lost");
                }
            }
            bench.finish_io();
            bench.validate();
        }
    }
}
