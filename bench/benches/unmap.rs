//! Unmapping: what the memory manager does for each page, `rmap.batch` off against on.
//!
//! `reclaim` takes the entries of folios away that make up 2 MiB of a file mapped privately, folio by folio; `process`
//! unmaps the same range with madvise, and frees the folios; `anonymous` does it with single anonymous pages that were
//! faulted in. An item is a page: its time is the inverse of the items per second. What maps the pages is not measured.
#![forbid(unsafe_code)]

use bench::IdleMachine;
use divan::{Bencher, counter::ItemsCount};
use mm::alloc::{Means, Reserve, Watermark};
use mm::api::{AccessKind, Advice, Backing, FileKind, MapRequest, Prot};
use mm::frame::{FolioPages, FrameFlags, Owner};
use mm::knobs::{Knob, Knobs};
use mm::memory::Gfp;
use mm::rmap::UnmapMode;
use mm::table::{Resident, Rights};
use mm::tlb::UnmapBatch;
use mm::units::*;
use mm::{Config, Mm};

fn main() {
    divan::main();
}

const FRAMES: u32 = 1 << 16;
/// The start of a table.
const START: Vpn = Vpn(512 * 99);
const PAGES: u64 = 512;
const GROUP: GroupId = GroupId(0);

/// (order of the folios, `rmap.batch`)
const CASES: [(u8, u64); 10] =
    [(0, 0), (0, 1), (2, 0), (2, 1), (4, 0), (4, 1), (6, 0), (6, 1), (9, 0), (9, 1)];

struct World {
    mm: Mm<IdleMachine>,
    space: SpaceId,
    file: FileId,
}

impl World {
    /// A space with a range of anonymous memory, or of a file mapped privately.
    fn new(batch: u64, of_file: bool) -> World {
        let knobs = Knobs::default();
        knobs.set(Knob::RmapBatch, batch).expect("0 or 1");
        let mm = Mm::new(IdleMachine::new(FRAMES), Config { knobs, swap: Vec::new(), custom: None })
            .expect("enough memory");
        let space = mm.create_space(GROUP).expect("memory is left");
        let file = mm.core().cache.create(FileKind::Shmem, PAGES * PAGE_SIZE);
        let shown = Backing::File { file, offset: PageIndex(0), shared: false, writable: true };
        let backing = if of_file { shown } else { Backing::Anonymous };
        let prot = Prot::READ | Prot::WRITE;
        let request =
            MapRequest { at: Some(START), pages: PAGES, prot, backing, locked: false, populate: false };
        mm.mmap(space, &request).expect("nothing is there");
        mm.switch(Some(space));
        World { mm, space, file }
    }

    /// Map folios that are in nobody's hands but their entries', and with `held` in the caller's, who has them locked.
    fn map_folios(&self, order: Order, held: bool) -> Vec<Pfn> {
        let (st, base) = (self.mm.core(), self.mm.mmu());
        let folios = PAGES >> order.0;
        let map = |i: u64| {
            let at = i << order.0;
            let head = st.new_folio(order, Gfp::user(GROUP)).expect("memory is left");
            let pages = FolioPages::all(&st.frames, head);
            st.frames[head].set_owner(Owner::File(self.file), PageIndex(at));
            st.frames[head].set(FrameFlags::UPTODATE | FrameFlags::SWAPBACKED);
            st.frames[head].get(pages.count);
            st.rmap.add_range(base, pages);
            st.lru.add(base, head, false);
            let mut tables = st.tables.lock(base, self.space);
            let slot =
                tables.reserve(&st.alloc, Vpn(START.0 + at), Means::new(Watermark::Min, Reserve::None));
            let (slot, page) = (slot.expect("memory is left"), Vpn(START.0 + at));
            tables.install_unchanged(slot, page, pages, Rights::USER | Rights::YOUNG);
            tables.counts().add(Resident::Shmem, i64::from(pages.count));
            drop(tables);
            if held {
                assert!(st.try_lock_folio(head));
            } else {
                st.put(head);
            }
            head
        };
        (0..folios).map(map).collect()
    }

    fn forget(&self) {
        self.mm.madvise(self.space, START, PAGES, Advice::DontNeed).expect("the range is mapped");
    }
}

#[divan::bench(args = CASES, sample_size = 1, sample_count = 1000)]
fn reclaim(bencher: Bencher, (order, batch): (u8, u64)) {
    let world = World::new(batch, true);
    let (st, base) = (world.mm.core(), world.mm.mmu());
    // What an iteration leaves is freed before the next.
    let put = |folios: &[Pfn]| {
        for &pfn in folios {
            st.unlock_folio(pfn);
            st.put(pfn);
        }
    };
    let mut last = Vec::new();
    bencher
        .counter(ItemsCount::new(PAGES))
        .with_inputs(|| {
            put(&last);
            last = world.map_folios(Order(order), true);
            last.clone()
        })
        .bench_local_values(|folios| {
            let mut unmaps = UnmapBatch::new(base);
            for &pfn in &folios {
                assert!(st.rmap.try_to_unmap(st.memory(), pfn, UnmapMode::default(), &mut unmaps).all);
            }
            unmaps.settle(base, &st.tlb);
            folios
        });
}

#[divan::bench(args = CASES, sample_size = 1, sample_count = 1000)]
fn process(bencher: Bencher, (order, batch): (u8, u64)) {
    let world = World::new(batch, true);
    bencher
        .counter(ItemsCount::new(PAGES))
        .with_inputs(|| world.map_folios(Order(order), false))
        .bench_local_values(|_folios| world.forget());
}

#[divan::bench(args = [0, 1], sample_size = 1, sample_count = 1000)]
fn anonymous(bencher: Bencher, batch: u64) {
    let world = World::new(batch, false);
    bencher
        .counter(ItemsCount::new(PAGES))
        .with_inputs(|| {
            for page in START.0..START.0 + PAGES {
                world.mm.fault(world.space, Vpn(page), AccessKind::Store).expect("memory is left");
            }
        })
        .bench_local_values(|()| world.forget());
}
