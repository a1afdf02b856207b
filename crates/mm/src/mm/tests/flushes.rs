//! No CPU keeps what a call takes away: each flush of a call, and each payment of a debt that reclaim has left, is
//! missed here if it is not made.
//!
//! CPU 0, which makes the calls, and CPU 1 have used the pages and keep their translations. Each test makes one call,
//! so that nothing else can flush in its place. The simulator's scenarios show many calls together.

mod devices;
mod shortcuts;

use super::*;
use crate::event::Event;
use crate::tlb::Cleared;
use std_alloc::boxed::Box;

const BATCH: u64 = FlushPolicy::Batch.value();
const LIST: u64 = FlushPolicy::List.value();
const LAZY: u64 = FlushPolicy::Lazy.value();
const LATR: u64 = FlushPolicy::Latr.value();
/// Address and number of the pages.
const AT: Vpn = Vpn(0x5000);
const PAGES: u64 = 3;
/// Another address under the same page table. It keeps the table in use: freeing the table would flush everything.
const NEIGHBOUR: Vpn = Vpn(0x5100);
/// Where mremap moves the pages to.
const AWAY: Vpn = Vpn(0x5080);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Anonymous,
    PrivateFile,
    /// The same, for stores.
    PrivateCopies,
    SharedFile,
    /// Of a file on disk, whose entries become writable only with the first store.
    DiskFile,
}
use Kind::*;

/// Where the other CPU is when the call is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OtherCpu {
    InTheSpace,
    Lazy,
    InAnother,
}
const EVERYWHERE: [OtherCpu; 3] = [OtherCpu::InTheSpace, OtherCpu::Lazy, OtherCpu::InAnother];

struct Bench {
    mm: Mm<TestMachine>,
    file: FileId,
    space: SpaceId,
    /// Another process that maps the file shared.
    other: SpaceId,
}

type Call = fn(&Bench);

fn pages() -> impl Iterator<Item = Vpn> {
    (AT.0..AT.0 + PAGES).map(Vpn)
}

impl Bench {
    fn new(kind: Kind, policy: u64) -> Bench {
        let mm = with_swap(TestMachine::simple(2, 4096), 64);
        mm.mmu().knobs.set(Knob::TlbUnmap, policy).unwrap();
        let disk = FileKind::Disk { device: DeviceId(1), block: 0 };
        let of = if kind == DiskFile { disk } else { FileKind::Shmem };
        let file = mm.create_file(of, PAGES * PAGE_SIZE);
        if kind == DiskFile {
            // Whole pages, so that nothing has to be read.
            mm.write(file, 0, PAGES * PAGE_SIZE, ROOT, &mut |_, _, _| ()).unwrap();
        }
        let [space, other] = [0; 2].map(|_| mm.create_space(ROOT).unwrap());
        let bench = Bench { mm, file, space, other };
        let backing = if kind == Anonymous {
            Backing::Anonymous
        } else {
            bench.shown(matches!(kind, SharedFile | DiskFile))
        };
        bench.mm.mmap(space, &request(AT, PAGES, backing)).unwrap();
        bench.mm.mmap(space, &request(NEIGHBOUR, 1, Backing::Anonymous)).unwrap();
        bench.reach(space, NEIGHBOUR, true);
        bench.mm.mmap(other, &request(AT, PAGES, bench.shown(true))).unwrap();
        bench
    }

    fn shown(&self, shared: bool) -> Backing {
        Backing::File { file: self.file, offset: PageIndex(0), shared, writable: true }
    }

    fn on<R>(&self, cpu: u16, act: impl FnOnce() -> R) -> R {
        let here = self.mm.machine().cpu();
        self.mm.machine().run_on(cpu);
        let result = act();
        self.mm.machine().run_on(here.0);
        result
    }

    /// The frame that an access reaches, and whether it is writable.
    fn reach(&self, space: SpaceId, page: Vpn, store: bool) -> (Pfn, bool) {
        reach(&self.mm, space, page, store, 4).unwrap()
    }

    /// A bench whose pages both CPUs have used, and where CPU 1 then went.
    fn used(kind: Kind, policy: u64, store: bool, other_cpu: OtherCpu) -> Bench {
        let bench = Bench::new(kind, policy);
        bench.use_pages(store);
        bench.move_other_cpu(other_cpu);
        bench
    }

    /// Both CPUs run the space, use the pages and keep the translations.
    fn use_pages(&self, store: bool) {
        for cpu in [0, 1] {
            self.on(cpu, || {
                self.mm.switch(Some(self.space));
                for page in pages() {
                    let (pfn, writable) = self.reach(self.space, page, store);
                    self.mm.machine().hold(page, pfn, writable);
                }
            });
        }
        assert!(pages().all(|page| self.keeps(page)));
    }

    fn keeps(&self, page: Vpn) -> bool {
        [0, 1].iter().any(|&cpu| self.mm.machine().held(CpuId(cpu), page).is_some())
    }

    fn move_other_cpu(&self, other_cpu: OtherCpu) {
        self.on(1, || match other_cpu {
            OtherCpu::InTheSpace => {}
            OtherCpu::Lazy => self.mm.switch(None),
            OtherCpu::InAnother => self.mm.switch(Some(self.other)),
        });
    }

    /// CPU 1 runs the space again. A CPU that never left it looks at no generation.
    fn come_back(&self, from: OtherCpu) {
        if from != OtherCpu::InTheSpace {
            self.on(1, || self.mm.switch(Some(self.space)));
        }
    }

    /// When CPU 1 runs the space again, neither CPU may keep a translation of the pages.
    fn check(&self, call: &str, other_cpu: OtherCpu) {
        self.come_back(other_cpu);
        assert!(!pages().any(|page| self.keeps(page)), "{call} {other_cpu:?}");
    }

    /// Reclaim unmaps the pages. Returns how many of them CPUs keep.
    fn unmap(&self) -> usize {
        let core = &self.mm.core;
        let mut batch = UnmapBatch::new(self.mm.mmu().host());
        for page in pages() {
            let (pfn, _) = self.reach(self.space, page, false);
            let frame = &core.frames[pfn];
            let anon = frame.is_anon() && frame.has(FrameFlags::SWAPBACKED);
            unmap_folio(&self.mm, pfn, anon && !frame.has(FrameFlags::SWAPCACHE), &mut batch);
            core.put(pfn);
        }
        batch.settle(self.mm.mmu().host(), &core.tlb);
        pages().filter(|&page| self.keeps(page)).count()
    }

    /// From now on no CPU may read a frame that is freed; with `unloaded`, no CPU may have the space loaded then
    /// either.
    fn watch_frees(&self, unloaded: bool) {
        *self.mm.machine().watcher.lock() = Some(Box::new(move |machine, event, args| {
            if event == Event::MmPageFree {
                let pfn = Pfn(args[0] as u32);
                let readers = machine.readers(pfn, 1);
                assert!(readers.is_empty(), "{pfn} is freed and read by {readers:?}");
                let lets_go = machine.roots.lock()[&CpuId(1)].0 == Pfn::NONE;
                assert!(!unloaded || lets_go, "{pfn} is freed while a CPU has its tables loaded");
            }
        }));
    }

    fn stop_watching(&self) {
        *self.mm.machine().watcher.lock() = None;
    }
}

fn protect(bench: &Bench) {
    bench.mm.mprotect(bench.space, AT, PAGES, Prot::READ).unwrap();
}

fn advise(bench: &Bench, advice: Advice) {
    bench.mm.madvise(bench.space, AT, PAGES, advice).unwrap();
}

fn move_away(bench: &Bench) {
    let to = bench.mm.mremap(bench.space, AT, PAGES, PAGES, true, Some(AWAY)).unwrap();
    assert_eq!(to, AWAY);
}

fn map_memory(bench: &Bench) {
    bench.mm.mmap(bench.space, &request(AT, PAGES, Backing::Anonymous)).unwrap();
}

fn reap(bench: &Bench) {
    assert!(bench.mm.spaces.kill(&bench.mm.core, bench.space));
}

fn unmap(bench: &Bench) {
    bench.mm.munmap(bench.space, AT, PAGES).unwrap();
}

fn cut(bench: &Bench) {
    bench.mm.ftruncate(bench.file, 0).unwrap();
}

fn store_here(bench: &Bench) {
    for page in pages() {
        bench.reach(bench.space, page, true);
    }
}

fn store_by_another(bench: &Bench) {
    for page in pages() {
        bench.reach(bench.other, page, false);
        bench.reach(bench.other, page, true);
    }
}

fn write(bench: &Bench) {
    bench.mm.write(bench.file, 0, PAGES * PAGE_SIZE, ROOT, &mut |_, _, _| ()).unwrap();
}

fn clean(bench: &Bench) {
    let core = &bench.mm.core;
    for page in pages() {
        let (pfn, _) = bench.reach(bench.space, page, false);
        core.lock_folio(pfn);
        assert!(core.rmap.mkclean(core, pfn));
        core.unlock_folio(pfn);
    }
}

/// Calls, the kind of mapping for each, and whether the pages were stored to.
const CALLS: [(&str, Kind, bool, Call); 14] = [
    ("munmap", Anonymous, true, unmap),
    ("munmap of a file", SharedFile, true, unmap),
    ("mmap over", Anonymous, true, map_memory),
    ("mprotect", Anonymous, true, protect),
    ("mprotect of a file", SharedFile, true, protect),
    ("MADV_DONTNEED", Anonymous, true, |bench| advise(bench, Advice::DontNeed)),
    ("MADV_DONTNEED of zeroes", Anonymous, false, |bench| advise(bench, Advice::DontNeed)),
    ("MADV_FREE", Anonymous, true, |bench| advise(bench, Advice::Free)),
    ("MADV_COLD", Anonymous, true, |bench| advise(bench, Advice::Cold)),
    ("mremap", Anonymous, true, move_away),
    ("truncation", SharedFile, true, cut),
    ("truncation below a private mapping", PrivateFile, true, cut),
    ("write-back", SharedFile, true, clean),
    ("copy on write", PrivateFile, false, store_here),
];

#[test]
fn calls_flush_what_they_take_away() {
    for policy in [BATCH, LAZY] {
        for (name, kind, store, call) in CALLS {
            for other_cpu in EVERYWHERE {
                let bench = Bench::used(kind, policy, store, other_cpu);
                call(&bench);
                bench.check(name, other_cpu);
                bench.mm.validate().unwrap();
            }
        }
    }
}

/// The reverse: reclaim left readable translations behind, and calls must pay for them although they find no entry.
#[test]
fn calls_settle_debts_of_reclaim() {
    let calls: [(&str, Kind, Call); 15] = [
        ("munmap", PrivateFile, unmap),
        ("munmap", Anonymous, unmap),
        ("mmap over", PrivateFile, map_memory),
        ("mprotect", PrivateFile, protect),
        ("MADV_DONTNEED", PrivateFile, |bench| advise(bench, Advice::DontNeed)),
        ("MADV_DONTNEED", Anonymous, |bench| advise(bench, Advice::DontNeed)),
        ("mremap", PrivateFile, move_away),
        ("mremap", Anonymous, move_away),
        ("truncation", PrivateFile, cut),
        ("truncation below private copies", PrivateCopies, cut),
        ("reaping", Anonymous, reap),
        ("store", PrivateFile, store_here),
        ("store by another process", PrivateFile, store_by_another),
        ("store by another process that has mapped the page", DiskFile, store_by_another),
        ("write", PrivateFile, write),
    ];
    for (name, kind, call) in calls {
        for other_cpu in EVERYWHERE {
            let bench = Bench::new(kind, LAZY);
            if matches!(kind, Anonymous | PrivateCopies) {
                // Written, and then made read-only, so that its flush can be deferred.
                bench.use_pages(true);
                protect(&bench);
            }
            bench.use_pages(false);
            assert_eq!(bench.unmap(), PAGES as usize, "{name}: the flush must be deferred");
            bench.move_other_cpu(other_cpu);
            call(&bench);
            bench.check(name, other_cpu);
            bench.mm.validate().unwrap();
        }
    }
}

/// Frames are freed only when no CPU reads them any more, tables only when no CPU has them loaded.
#[test]
fn frames_and_tables_are_freed_after_the_flush() {
    let freeing = [0, 2, 5, 9, 10, 11, 13].map(|which: usize| CALLS[which]);
    for (name, kind, store, call) in freeing {
        let bench = Bench::used(kind, BATCH, store, OtherCpu::InTheSpace);
        bench.watch_frees(false);
        call(&bench);
        bench.stop_watching();
        bench.check(name, OtherCpu::InTheSpace);
    }
    // The neighbour goes before the pages, or with them, so that their table is freed.
    let unmap_all: Call = |bench| bench.mm.munmap(bench.space, AT, NEIGHBOUR.0 - AT.0 + 1).unwrap();
    let move_far: Call = |bench| {
        bench.mm.mremap(bench.space, AT, PAGES, PAGES, true, Some(Vpn(2 * AT.0))).unwrap();
    };
    for call in [unmap_all, move_far] {
        let bench = Bench::new(Anonymous, BATCH);
        bench.mm.munmap(bench.space, NEIGHBOUR, 1).unwrap();
        bench.use_pages(true);
        bench.move_other_cpu(OtherCpu::Lazy);
        bench.watch_frees(true);
        call(&bench);
        bench.stop_watching();
    }
}

/// A CPU that reads a page until the very moment at which its entry is cleared.
#[test]
fn flush_follows_the_entry_change() {
    let bench = Bench::used(Anonymous, BATCH, true, OtherCpu::InTheSpace);
    let core = &bench.mm.core;
    core.gather(bench.space, |gather| {
        for page in pages() {
            let (pfn, _) = bench.reach(bench.space, page, true);
            bench.on(1, || bench.mm.machine().hold(page, pfn, true));
            let mut tables = core.tables.lock(bench.mm.mmu(), bench.space);
            let run = tables.find(page).unwrap();
            gather.tightened(bench.mm.mmu().host(), tables.forbid_writes(&run));
        }
    });
    bench.check("a gather", OtherCpu::InTheSpace);
}

#[test]
fn facade_forwards_ticks_and_never_deferred() {
    let bench = Bench::used(PrivateFile, LATR, false, OtherCpu::InTheSpace);
    assert_eq!(bench.unmap(), PAGES as usize);
    assert!(bench.mm.wants_ticks());
    for cpu in [0, 1] {
        bench.on(cpu, || bench.mm.tick());
    }
    bench.check("a tick", OtherCpu::InTheSpace);
    bench.use_pages(false);
    bench.mm.set_never_deferred(bench.space, true);
    assert_eq!(bench.unmap(), 0);
}

#[test]
fn exit_frees_tables_after_the_last_cpu_unloads_them() {
    let bench = Bench::used(Anonymous, BATCH, true, OtherCpu::InTheSpace);
    for cpu in [0, 1] {
        bench.on(cpu, || bench.mm.switch(None));
    }
    bench.watch_frees(true);
    bench.mm.exit_space(bench.space);
    bench.stop_watching();
    assert!(!pages().any(|page| bench.keeps(page)));
}

#[test]
fn reaper_flushes_what_it_takes() {
    let bench = Bench::used(Anonymous, BATCH, true, OtherCpu::InTheSpace);
    bench.watch_frees(false);
    reap(&bench);
    bench.stop_watching();
    bench.check("reaping", OtherCpu::InTheSpace);
}

/// If all pages are in swap there is nothing to flush: only the payment of the debt is left.
#[test]
fn reaper_settles_a_fully_swapped_space() {
    for other_cpu in EVERYWHERE {
        let bench = Bench::new(Anonymous, LAZY);
        bench.mm.munmap(bench.space, NEIGHBOUR, 1).unwrap();
        bench.use_pages(true);
        protect(&bench);
        bench.use_pages(false);
        assert_eq!(bench.unmap(), PAGES as usize, "the flush must be deferred");
        bench.move_other_cpu(other_cpu);
        reap(&bench);
        bench.check("reaping", other_cpu);
    }
}

#[test]
fn fork_revokes_writes_on_every_cpu() {
    for other_cpu in EVERYWHERE {
        let bench = Bench::used(Anonymous, BATCH, true, other_cpu);
        bench.mm.fork(bench.space).unwrap();
        bench.check("fork", other_cpu);
    }
}

/// Under every policy, no CPU can store to what reclaim has unmapped once its batch has ended. Under policies that do
/// not defer, no CPU can read it either.
#[test]
fn reclaim_batch_defers_only_what_the_policy_allows() {
    for policy in 0..FlushPolicy::COUNT {
        for (kind, store) in [(SharedFile, true), (PrivateFile, false), (Anonymous, true)] {
            for other_cpu in EVERYWHERE {
                let bench = Bench::used(kind, policy, store, other_cpu);
                bench.unmap();
                let deferred = !store && matches!(policy, LAZY | LATR);
                bench.come_back(other_cpu);
                let kept = pages().any(|page| bench.keeps(page));
                assert_eq!(kept, deferred, "tlb.unmap={policy} {kind:?} {store} {other_cpu:?}");
            }
        }
    }
}

/// Pages that were freed by advice read as zeroes from the next access on, even if they could only be read.
#[test]
fn lazyfree_is_not_deferred() {
    let bench = Bench::used(Anonymous, LAZY, true, OtherCpu::InTheSpace);
    protect(&bench);
    advise(&bench, Advice::Free);
    bench.use_pages(false);
    assert_eq!(bench.unmap(), 0);
}

/// Until the batch is settled a CPU may still read the page; a fault that maps zeroes in its place before that pays.
#[test]
fn mapping_zeroes_settles_a_lazyfree_debt() {
    for policy in [BATCH, LAZY] {
        let bench = Bench::used(Anonymous, policy, true, OtherCpu::InTheSpace);
        advise(&bench, Advice::Free);
        bench.use_pages(false);
        let (base, store) = (bench.mm.mmu(), &bench.mm.core);
        let mut batch = UnmapBatch::new(base.host());
        let frames: Vec<_> = pages().map(|page| bench.reach(bench.space, page, false).0).collect();
        frames.iter().for_each(|&pfn| unmap_folio(&bench.mm, pfn, false, &mut batch));
        assert!(pages().all(|page| bench.keeps(page)), "the flush must wait for the batch");
        assert_eq!(bench.reach(bench.space, AT, false).0, store.zero);
        assert!(!pages().any(|page| bench.keeps(page)), "tlb.unmap={policy}");
        batch.settle(base.host(), &store.tlb);
        frames.into_iter().for_each(|pfn| store.put(pfn));
        bench.mm.validate().unwrap();
    }
}

/// While a call takes rights away, reclaim does not defer: the entry already forbids what a CPU may still do.
#[test]
fn reclaim_does_not_defer_during_a_rights_change() {
    let bench = Bench::used(Anonymous, LAZY, true, OtherCpu::InTheSpace);
    let core = &bench.mm.core;
    core.gather(bench.space, |gather| {
        {
            let mut tables = core.tables.lock(bench.mm.mmu(), bench.space);
            for page in pages() {
                let run = tables.find(page).unwrap();
                gather.tightened(bench.mm.mmu().host(), tables.forbid_writes(&run));
            }
        }
        assert_eq!(bench.unmap(), 0, "a flush must not be deferred while a CPU can still store");
    });
    protect(&bench);
    bench.use_pages(false);
    assert_eq!(bench.unmap(), PAGES as usize, "flushes must be deferred again afterwards");
}

/// The same during calls, up to the moment at which the other CPU is flushed.
#[test]
fn reclaim_does_not_defer_until_a_call_has_flushed() {
    let fork: Call = |bench| {
        bench.mm.fork(bench.space).unwrap();
    };
    for call in [fork, protect] {
        let bench: &'static Bench = Box::leak(Box::new(Bench::new(Anonymous, LAZY)));
        bench.use_pages(true);
        *bench.mm.machine().watcher.lock() = Some(Box::new(|_, event, _| {
            if matches!(event, Event::TlbStale | Event::TlbFlush) {
                reclaim_concurrently(bench);
            }
        }));
        call(bench);
        assert!(bench.mm.machine().events(Event::TlbFlush) > 0);
    }
}

/// Another CPU's reclaim unmaps a page of the space, which may just have lost the right to write.
fn reclaim_concurrently(bench: &Bench) {
    let (base, store) = (bench.mm.mmu(), &bench.mm.core);
    let cleared = Cleared::page(bench.space, NEIGHBOUR, store.zero);
    let mut batch = UnmapBatch::new(base.host());
    let _ = batch.note_cleared(base.host(), &store.tlb, &cleared);
    assert_eq!(store.frames[store.zero].debt(), 0, "a flush must not be deferred");
    // A flush from here would lead back here.
    std::mem::forget(batch);
}
