//! Unmapping: the memory manager's work for each page, with `rmap.batch` off and on.
//!
//! `reclaim` unmaps the folios of 2 MiB of a privately mapped file, folio by folio; `process` unmaps the same
//! range with madvise, and frees the folios; `anonymous` does so with single anonymous pages that were
//! faulted in. An item is a page: its time is the inverse of the items per second. Mapping the pages is not
//! measured.
#![forbid(unsafe_code)]

use bench::IdleMachine;
use divan::{Bencher, counter::ItemsCount};
use mm::alloc::{Means, Reserve, Watermark};
use mm::api::{AccessKind, Advice, Backing, FileKind, MapRequest, Prot};
use mm::frame::{FolioPages, FolioRun, FrameFlags, Owner};
use mm::knobs::{Knob, Knobs};
use mm::memory::Gfp;
use mm::rmap::UnmapMode;
use mm::table::{Resident, Rights, Shown};
use mm::tlb::UnmapBatch;
use mm::units::*;
use mm::{Config, Mm};

fn main() {
    divan::main();
}

const FRAMES: u32 = 1 << 16;
/// The first page of a page table.
const START: Vpn = Vpn(512 * 99);
const PAGES: u64 = 512;
const GROUP: GroupId = GroupId(0);

/// (order of the folios, `rmap.batch`)
const CASES: [(u8, u64); 10] =
    [(0, 0), (0, 1), (2, 0), (2, 1), (4, 0), (4, 1), (6, 0), (6, 1), (9, 0), (9, 1)];

struct Setup {
    mm: Mm<IdleMachine>,
    space: SpaceId,
    file: FileId,
}

impl Setup {
    /// A space with a range of anonymous memory, or of a file mapped privately.
    fn new(batch: u64, of_file: bool) -> Setup {
        let knobs = Knobs::default();
        knobs.set(Knob::RmapBatch, batch).expect("rmap.batch must accept 0 and 1");
        let mm = Mm::new(IdleMachine::new(FRAMES), Config { knobs, ..Config::default() })
            .expect("the machine must have enough memory");
        let space = mm.create_space(GROUP).expect("memory must be free");
        let file = mm.core().cache.create(FileKind::Shmem, PAGES * PAGE_SIZE);
        let private = Backing::File { file, offset: PageIndex(0), shared: false, writable: true };
        let backing = if of_file { private } else { Backing::Anonymous };
        let prot = Prot::READ | Prot::WRITE;
        let request =
            MapRequest { at: Some(START), pages: PAGES, prot, backing, locked: false, populate: false };
        mm.mmap(space, &request).expect("the range must be free");
        mm.switch(Some(space));
        Setup { mm, space, file }
    }

    /// Map folios whose only references are their entries. With `held`, the caller also has a reference and
    /// the folio lock.
    fn map_folios(&self, order: Order, held: bool) -> Vec<Pfn> {
        let (core, mmu) = (self.mm.core(), self.mm.mmu());
        let folios = PAGES >> order.0;
        let map = |i: u64| {
            let at = i << order.0;
            let head = core.new_folio(order, Gfp::user(GROUP)).expect("memory must be free");
            let pages = FolioPages::all(&core.frames, head);
            core.frames[head].set_owner(Owner::File(self.file), PageIndex(at));
            core.frames[head].set(FrameFlags::UPTODATE | FrameFlags::SWAPBACKED);
            core.frames[head].get(pages.count);
            core.rmap.add_range(mmu, pages);
            core.lru.add(mmu, [head], false);
            let mut tables = core.tables.lock(mmu, self.space);
            let slot =
                tables.reserve(&core.alloc, Vpn(START.0 + at), Means::new(Watermark::Min, Reserve::None));
            let (slot, page) = (slot.expect("memory must be free"), Vpn(START.0 + at));
            let shown = Shown::in_range(self.file, PageIndex(at));
            tables.install_unchanged((slot, page), pages, shown, Rights::USER | Rights::YOUNG);
            tables.counts().add(Resident::Shmem, i64::from(pages.count));
            drop(tables);
            if held {
                assert!(core.try_lock_folio(head));
            } else {
                core.put(head);
            }
            head
        };
        (0..folios).map(map).collect()
    }

    fn forget(&self) {
        self.mm.madvise(self.space, START, PAGES, Advice::DontNeed).expect("the range must be mapped");
    }
}

#[divan::bench(args = CASES, sample_size = 1, sample_count = 1000)]
fn reclaim(bencher: Bencher, (order, batch): (u8, u64)) {
    let setup = Setup::new(batch, true);
    let (core, mmu) = (setup.mm.core(), setup.mm.mmu());
    // Folios of one iteration are freed before the next.
    let put = |folios: &[Pfn]| {
        for &pfn in folios {
            core.unlock_folio(pfn);
            core.put(pfn);
        }
    };
    let mut last = Vec::new();
    bencher
        .counter(ItemsCount::new(PAGES))
        .with_inputs(|| {
            put(&last);
            last = setup.map_folios(Order(order), true);
            last.clone()
        })
        .bench_local_values(|folios| {
            let mut unmaps = UnmapBatch::new(mmu.host());
            for &pfn in &folios {
                core.rmap.try_to_unmap(core, FolioRun::one(&pfn), UnmapMode::default(), &mut unmaps);
                assert_eq!(core.frames[pfn].mapcount(), 0, "{pfn} must be unmapped");
            }
            unmaps.settle(mmu.host(), &core.tlb);
            folios
        });
}

#[divan::bench(args = CASES, sample_size = 1, sample_count = 1000)]
fn process(bencher: Bencher, (order, batch): (u8, u64)) {
    let setup = Setup::new(batch, true);
    bencher
        .counter(ItemsCount::new(PAGES))
        .with_inputs(|| setup.map_folios(Order(order), false))
        .bench_local_values(|_folios| setup.forget());
}

#[divan::bench(args = [0, 1], sample_size = 1, sample_count = 1000)]
fn anonymous(bencher: Bencher, batch: u64) {
    let setup = Setup::new(batch, false);
    bencher
        .counter(ItemsCount::new(PAGES))
        .with_inputs(|| {
            for page in START.0..START.0 + PAGES {
                setup.mm.fault(setup.space, Vpn(page), AccessKind::Store).expect("memory must be free");
            }
        })
        .bench_local_values(|()| setup.forget());
}
