//! Faults that run out of memory half way must free what they hold.

use super::*;
use crate::memory::Gfp;
use crate::testing::TestMachine;
use std_alloc::boxed::Box;

const AT: Vpn = Vpn(0x5000);
const PAGES: u64 = 4;
const GFP: Gfp = Gfp::user(GroupId(0));

/// Load a page of an uncached file with `left` frames, without reclaim. Returns whether the load failed, whether it
/// had read something by then, and how many frames are missing once all is freed.
fn load(left: usize) -> (bool, bool, i64) {
    let mm: &'static Mm<TestMachine> =
        Box::leak(Box::new(Mm::new(TestMachine::simple(2, 4096), Config::default()).unwrap()));
    *mm.machine().idle.lock() = Some(Box::new(|machine| {
        let ios: Vec<_> = machine.ios.lock().drain(..).collect();
        ios.iter().for_each(|io| mm.io_done(io));
    }));
    let file = mm.create_file(FileKind::Disk { device: DeviceId(0), block: 0 }, PAGES * PAGE_SIZE);
    let space = mm.create_space(GroupId(0)).unwrap();
    let backing = Backing::File { file, offset: PageIndex(0), shared: true, writable: true };
    let request =
        MapRequest { at: Some(AT), pages: PAGES, prot: Prot::READ, backing, locked: false, populate: false };
    mm.mmap(space, &request).unwrap();
    let memory = &mm.core;
    let mut held: Vec<Pfn> = core::iter::from_fn(|| memory.new_folio(Order::ZERO, GFP).ok()).collect();
    held.drain(..left).for_each(|pfn| mm.core.put(pfn));
    let taken = held.len() as u64;
    let records = || memory.slabs.frames(memory);
    let before = mm.free_pages() + records();
    let outcome = mm.spaces.get(space).unwrap().fault(&mm.core, space, AT, AccessKind::Load, GFP);
    let failed = outcome.is_err();
    let mut read = Vec::new();
    mm.core.cache.resident(memory, file, (PageIndex(0), PAGES), None, |run| read.push(run));
    for run in &read {
        mm.core.unlock_folio(run.folio);
        mm.core.put_many(run.folio, run.pages);
    }
    mm.munmap(space, AT, PAGES).unwrap();
    mm.core.cache.set_size(file, 0);
    mm.core.cache.truncate(memory, file, PageIndex(0));
    let missing = before as i64 - (mm.free_pages() + records()) as i64;
    held.into_iter().for_each(|pfn| mm.core.put(pfn));
    assert!(taken > 0);
    mm.validate().unwrap();
    (failed, !read.is_empty(), missing)
}

#[test]
fn fault_without_a_table_frees_its_page() {
    let outcomes: Vec<_> = (0..288).step_by(8).map(load).collect();
    assert!(outcomes.iter().any(|&(failed, read, _)| failed && read), "{outcomes:?}");
    assert!(outcomes.iter().all(|&(_, _, missing)| missing == 0), "{outcomes:?}");
}
