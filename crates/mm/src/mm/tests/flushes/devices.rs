//! The same with devices: a page that is written while CPUs keep it, and one that is swapped in to another frame.
//!
//! Reclaim unmaps a page, writes it and frees its frame, which stays unchanged until the debt is paid: CPUs may
//! continue to read it. The next use of the page reads it into another frame. The two are equal only until a store, so
//! each fault that allows stores must pay first.

use super::*;
use crate::alloc::{Reserve, Watermark};
use crate::memory::Gfp;
use crate::reclaim;
use core::cell::Cell;
use pagefold_flush::inside::Inside;
use std_alloc::vec::Vec;

impl Bench {
    /// A bench with a device: a transfer ends as soon as a task waits.
    fn with_device(kind: Kind, policy: u64) -> &'static Bench {
        let bench: &'static Bench = Box::leak(Box::new(Bench::new(kind, policy)));
        *bench.mm.machine().idle.lock() = Some(Box::new(|_| end_transfers(&bench.mm)));
        bench
    }

    /// Reclaim unmaps the pages, writes dirty ones, and frees them.
    fn page_out(&self) {
        let core = &self.mm.core;
        let frames: Vec<_> = pages().map(|page| self.reach(self.space, page, false).0).collect();
        for _ in 0..2 {
            self.reclaim(&frames);
            end_transfers(&self.mm);
        }
        assert!(frames.iter().all(|&pfn| core.frames[pfn].refs() == 0), "all pages must be freed");
    }

    fn reclaim(&self, frames: &[Pfn]) {
        let core = &self.mm.core;
        let isolated = frames.iter().copied().filter(|&pfn| core.lru.isolate(self.mm.mmu(), pfn));
        reclaim::pageout(core, &self.mm.reclaim, &self.mm, &isolated.collect::<Vec<_>>());
    }

    /// The first page is read again, which needs no payment.
    fn read_again(&self, space: SpaceId) {
        self.reach(space, AT, false);
        assert!(self.keeps(AT), "a read must not pay");
    }

    /// Take the right to write from the pages' entries, as if the pages had been swapped in read-only.
    fn forbid_writes(&self) {
        self.mm.core.gather(self.space, |gather| {
            let mut tables = self.mm.core.tables.lock(self.mm.mmu(), self.space);
            for page in pages() {
                let run = tables.find(page).unwrap();
                gather.tightened(self.mm.mmu().host(), tables.forbid_writes(&run));
            }
        });
    }

    fn sync(&self) {
        self.mm.fsync(self.file).unwrap();
    }
}

#[test]
fn swapped_in_page_is_settled_before_writes() {
    let faults: [(&str, Kind, Call); 9] = [
        ("a store to a page in swap", Anonymous, |bench| _ = bench.reach(bench.space, AT, true)),
        ("a store to a page read from swap", Anonymous, |bench| {
            bench.read_again(bench.space);
            bench.reach(bench.space, AT, true);
        }),
        ("mprotect of a page read from swap", Anonymous, |bench| {
            bench.read_again(bench.space);
            bench.mm.mprotect(bench.space, AT, PAGES, Prot::READ).unwrap();
            bench.mm.mprotect(bench.space, AT, PAGES, Prot::RW).unwrap();
        }),
        ("a store to a file", DiskFile, |bench| _ = bench.reach(bench.space, AT, true)),
        ("a store to a page read from a file", DiskFile, |bench| {
            bench.read_again(bench.space);
            bench.reach(bench.space, AT, true);
        }),
        ("another's store to a file", DiskFile, |bench| _ = bench.reach(bench.other, AT, true)),
        ("another's store to shmem", PrivateFile, |bench| _ = bench.reach(bench.other, AT, true)),
        // Pages of shmem may be written from the first load on.
        ("another's load of shmem", PrivateFile, |bench| _ = bench.reach(bench.other, AT, false)),
        ("another's load of shmem read again", PrivateFile, |bench| {
            bench.read_again(bench.space);
            bench.reach(bench.other, AT, false);
        }),
    ];
    for (name, kind, fault) in faults {
        for other_cpu in EVERYWHERE {
            let bench = Bench::with_device(kind, LAZY);
            if kind == Anonymous {
                // Written, and then only read, so that its flush can be deferred.
                bench.use_pages(true);
                bench.forbid_writes();
            }
            bench.sync();
            bench.use_pages(false);
            bench.page_out();
            assert!(pages().all(|page| bench.keeps(page)), "{name}: the flush must be deferred");
            bench.move_other_cpu(other_cpu);
            fault(bench);
            bench.check(name, other_cpu);
            bench.mm.validate().unwrap();
        }
    }
}

/// Frames that CPUs may still read carry a tag, from reclaim to their next owner.
#[test]
fn tagged_frame_is_settled_before_reuse() {
    for (kind, other_cpu) in
        [DiskFile, Anonymous].into_iter().flat_map(|kind| EVERYWHERE.map(|at| (kind, at)))
    {
        let bench = Bench::with_device(kind, LAZY);
        if kind == Anonymous {
            bench.use_pages(true);
            protect(bench);
        }
        bench.sync();
        bench.use_pages(false);
        let frames: Vec<Pfn> = pages().map(|page| bench.reach(bench.space, page, false).0).collect();
        bench.page_out();
        assert!(pages().all(|page| bench.keeps(page)), "the flush must be deferred");
        bench.move_other_cpu(other_cpu);
        let machine = bench.mm.machine();
        *machine.watcher.lock() = Some(Box::new(move |machine, event, args| {
            if event == Event::MmPageAlloc {
                let readers = machine.readers(Pfn(args[0] as u32), 1);
                // A kernel task on borrowed tables uses no translation of them.
                let allowed = |&cpu: &CpuId| other_cpu == OtherCpu::Lazy && cpu == CpuId(1);
                assert!(readers.iter().all(allowed), "{} is allocated and read by {readers:?}", args[0]);
            }
        }));
        let gfp = Gfp { mark: Watermark::Min, reserve: Reserve::All, ..Gfp::user(ROOT) };
        let taken: Vec<Pfn> =
            core::iter::from_fn(|| bench.mm.core.new_folio(Order::ZERO, gfp).ok()).collect();
        assert!(frames.iter().all(|pfn| taken.contains(pfn)), "all frames must be reused");
        bench.stop_watching();
        bench.check("a frame is handed out", other_cpu);
    }
}

/// A fault that makes a shared page writable has nothing left to pay for its address: every debt for a page of a file
/// is also left with the file, and pages of shmem are mapped writable at once, so their flush is not deferred.
#[test]
fn settling_a_file_settles_its_addresses() {
    for other_cpu in EVERYWHERE {
        let bench = Bench::used(DiskFile, LAZY, false, OtherCpu::InTheSpace);
        assert_eq!(bench.unmap(), PAGES as usize);
        bench.move_other_cpu(other_cpu);
        let tlb = &bench.mm.core.tlb;
        assert_eq!(tlb.settle_file(bench.mm.mmu().host(), bench.file).file(), bench.file);
        bench.check("a payment for the file", other_cpu);
        assert!([0, 1].iter().all(|&cpu| !tlb.space_owes(bench.space, CpuId(cpu))));
    }
    let bench = Bench::used(SharedFile, LAZY, false, OtherCpu::InTheSpace);
    assert_eq!(bench.unmap(), 0);
}

/// A store after the page was given to the device would be lost if nothing noticed it.
#[test]
fn no_cpu_can_store_to_a_page_under_write_back() {
    let msync: Call = |bench| bench.mm.msync(bench.space, AT, PAGES).unwrap();
    let calls: [(&str, Kind, Call); 4] = [
        ("fsync", DiskFile, Bench::sync),
        ("msync", DiskFile, msync),
        ("reclaim", Anonymous, Bench::page_out),
        ("reclaim of shmem", SharedFile, Bench::page_out),
    ];
    for policy in 0..FlushPolicy::COUNT {
        for (name, kind, call) in calls {
            for other_cpu in EVERYWHERE {
                let bench = Bench::with_device(kind, policy);
                bench.sync();
                bench.use_pages(true);
                bench.move_other_cpu(other_cpu);
                *bench.mm.machine().submitted.lock() = Some(Box::new(move |machine| {
                    let frame = machine.ios.lock().back().expect("a transfer was just submitted").frame;
                    let readers = machine.readers(frame, 1);
                    let allowed = if other_cpu == OtherCpu::Lazy { &[CpuId(1)][..] } else { &[] };
                    assert!(readers.iter().all(|cpu| allowed.contains(cpu)), "{name}: {readers:?}");
                }));
                call(bench);
                assert!(bench.mm.mmu().stats.read(crate::stat::Stat::NrWritten) >= PAGES as i64);
                bench.check(name, other_cpu);
            }
        }
    }
}

/// The same while another CPU is in a call and has yet to flush its changes: entries are then read-only or gone
/// through which CPUs can still store.
#[test]
fn write_back_flushes_for_a_call_that_has_not() {
    type Writes = fn(&Bench, &[Pfn]);
    let (sync, reclaim): (Writes, Writes) = (|bench, _| bench.sync(), |bench, frames| bench.reclaim(frames));
    let fork: Call = |bench| _ = bench.mm.fork(bench.space).unwrap();
    let forget: Call = |bench| advise(bench, Advice::DontNeed);
    let calls: [(&str, Kind, Call, Writes); 7] = [
        ("write-back beside munmap", DiskFile, unmap, sync),
        ("write-back beside MADV_DONTNEED", DiskFile, forget, sync),
        ("write-back beside mmap over", DiskFile, map_memory, sync),
        ("write-back beside mprotect", DiskFile, protect, sync),
        ("reclaim beside mprotect", Anonymous, protect, reclaim),
        ("reclaim beside fork", Anonymous, fork, reclaim),
        ("reclaim of shmem beside mprotect", SharedFile, protect, reclaim),
    ];
    for policy in 0..FlushPolicy::COUNT {
        for (name, kind, call, write) in calls {
            let bench = Bench::with_device(kind, policy);
            bench.sync();
            bench.use_pages(true);
            let frames: Vec<_> = pages().map(|page| bench.reach(bench.space, page, false).0).collect();
            let machine = bench.mm.machine();
            *machine.submitted.lock() = Some(Box::new(move |machine| {
                let frame = machine.ios.lock().back().expect("a transfer was just submitted").frame;
                let stores = |cpu, page| machine.held(CpuId(cpu), page) == Some((frame, true));
                let any = pages().any(|page| stores(0, page) || stores(1, page));
                assert!(!any, "tlb.unmap={policy}, {name}: {frame} can be stored to");
            }));
            let written = Cell::new(false);
            *machine.watcher.lock() = Some(Box::new(move |_, event, _| {
                if event == Event::TlbFlush && !written.replace(true) {
                    write(bench, &frames);
                }
            }));
            call(bench);
            bench.stop_watching();
            end_transfers(&bench.mm);
            assert!(bench.mm.mmu().stats.read(crate::stat::Stat::NrWritten) > 0, "{name}");
        }
    }
}
