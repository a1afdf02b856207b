//! Anonymous folios of several pages: swapped out whole, or split if that is not possible, or split late if only a part
//! is mapped.

mod partly;

use super::*;
use crate::frame::FolioPages;
use crate::machine::Scope;
use crate::stat::SizeStat;
use crate::table::TakenRun;
use std_alloc::boxed::Box;
use std_alloc::vec;

impl Bench {
    /// A folio of the space that is mapped whole and on the inactive list.
    pub(in crate::reclaim) fn large(&self, index: u64, order: u8) -> Pfn {
        let core = &self.core;
        let pfn = core.new_folio(Order(order), Gfp::user(ROOT)).unwrap();
        core.make_large_anon(pfn, Owner::Anon(self.set), PageIndex(index));
        let pages = FolioPages::all(&core.frames, pfn);
        core.frames[pfn].get(pages.count - 1);
        core.rmap.add_range(core, pages);
        let mut tables = core.tables.lock(core, self.space);
        for (i, page) in (index..).zip(pages.iter()) {
            let slot = tables.reserve(&core.alloc, Vpn(START.0 + i), MEANS).unwrap();
            tables.place(slot, page, Bits::PRESENT | Bits::USER | Bits::WRITE);
        }
        tables.counts().add(Resident::Anon, i64::from(pages.count));
        drop(tables);
        core.lru.add(core, [pfn], false);
        pfn
    }

    /// MADV_DONTNEED.
    fn forget(&self, index: u64, pages: u64) {
        let core = &self.core;
        core.gather(self.space, |gather| {
            let mut tables = core.tables.lock(core, self.space);
            let range = (Vpn(START.0 + index), Vpn(START.0 + index + pages));
            tables.take_each(
                range.0,
                range.1,
                |_| true,
                |_, slot| panic!("{slot:?} is in swap"),
                |tables, emptied| {
                    let pages = emptied.mapped();
                    tables.counts().add(Resident::Anon, -i64::from(pages.count));
                    if core.rmap.remove_range(core, pages) {
                        core.lru.defer_split(core, pages.head);
                    }
                    gather.emptied(core.host(), emptied);
                },
            );
        });
    }

    fn page_out(&self, pfn: Pfn) -> u64 {
        assert!(self.core.lru.isolate(&self.core, pfn));
        pageout(&self.core, &self.state, &NO_SPACES, &[pfn])
    }

    fn sizes(&self, order: u8, stats: &[SizeStat]) -> Vec<u64> {
        stats.iter().map(|&stat| self.core.sizes.read(stat, Order(order))).collect()
    }

    fn slots(&self, pages: core::ops::Range<u64>) -> Vec<u32> {
        pages.map(|page| self.entry(page).as_swap().expect("in swap").0.0).collect()
    }

    fn check(&self, folios: &[Pfn]) {
        self.validate();
        for &pfn in folios {
            self.core.rmap.validate_folio(&self.core, pfn).unwrap();
        }
    }
}

const SWAPPED: [SizeStat; 3] = [SizeStat::Swpout, SizeStat::SwpoutFallback, SizeStat::Split];

#[test]
fn large_folio_is_swapped_out_whole_with_consecutive_slots() {
    let bench = Bench::new(64);
    let (single, pfn) = (bench.anon(100, ROOT, Bits::empty()), bench.large(0, 4));
    bench.page_out(single);
    assert_eq!(bench.page_out(pfn), 0);
    assert_eq!(bench.stat(Stat::NrSwapcached), 17);
    assert_eq!(bench.core.machine.ios.lock().len(), 2, "one write for all pages");
    bench.check(&[pfn]);
    bench.finish_io();
    assert_eq!(bench.page_out(pfn), 16);
    assert_eq!((bench.sizes(4, &SWAPPED), bench.stat(Stat::PswpOut)), (vec![1, 0, 0], 17));
    // The first cluster holds the single page.
    assert_eq!(bench.slots(0..16), (16..32).collect::<Vec<_>>());
    assert_eq!((bench.core.swap.free_slots(), bench.sizes(4, &[SizeStat::NrAnon])), (64 - 17, vec![0]));
}

#[test]
fn large_folio_is_split_without_consecutive_slots() {
    let bench = Bench::new(20);
    let held: Vec<_> = (0..6).map(|i| bench.anon(100 + i, ROOT, Bits::empty())).collect();
    held.iter().for_each(|&pfn| _ = bench.page_out(pfn));
    let pfn = bench.large(0, 3);
    let other = bench.large(8, 3);
    bench.page_out(other);
    assert_eq!(bench.sizes(3, &SWAPPED), [1, 0, 0]);
    bench.page_out(pfn);
    assert_eq!(bench.sizes(3, &SWAPPED), [1, 1, 1]);
    // Six slots were left, so two pages stay.
    assert_eq!((bench.stat(Stat::PswpOut), bench.core.swap.free_slots()), (20, 0));
    bench.check(&[pfn, pfn.add(7)]);
    bench.finish_io();
    bench.check(&[pfn, pfn.add(7)]);
    assert_eq!((bench.slots(0..6).len(), bench.entry(6).is_present()), (6, true));
}

#[test]
fn large_folio_is_not_split_if_it_cannot_be_swapped() {
    for (swap, held) in [(0, 0), (64, 1)] {
        let bench = Bench::new(swap);
        let pfn = bench.large(0, 3);
        bench.core.frames[pfn].get(held);
        assert_eq!(bench.page_out(pfn), 0);
        assert_eq!((bench.core.frames[pfn].order(), bench.stat(Stat::NrSwapcached)), (Order(3), 0));
        assert!(bench.core.frames[pfn].has(FrameFlags::ACTIVE));
        bench.check(&[pfn]);
    }
}

#[test]
fn partly_mapped_folio_is_split_before_swap_out() {
    for first in [0, 4] {
        let bench = Bench::new(64);
        let pfn = bench.large(0, 3);
        bench.forget(first, 3);
        assert_eq!(bench.sizes(3, &[SizeStat::SplitDeferred, SizeStat::NrAnonPartiallyMapped]), [1, 1]);
        assert_eq!(bench.page_out(pfn), 3, "pages that are not mapped are freed at once");
        assert_eq!(bench.sizes(3, &SWAPPED), [0, 0, 1]);
        assert_eq!(bench.sizes(3, &[SizeStat::NrAnon, SizeStat::NrAnonPartiallyMapped]), [0, 0]);
        assert_eq!((bench.stat(Stat::PswpOut), bench.stat(Stat::NrAnonPages)), (5, 0));
        bench.finish_io();
        bench.check(&[]);
    }
}

/// Without swap, pages that are not mapped can still be freed.
#[test]
fn reclaim_splits_deferred_folios() {
    let bench = Bench::new(0);
    let folios: Vec<_> = (0..20).map(|i| bench.large(i * 16, 4)).collect();
    folios.iter().zip(0..).for_each(|(_, i)| bench.forget(i * 16 + i % 12, 4));
    assert_eq!(bench.sizes(4, &[SizeStat::NrAnonPartiallyMapped, SizeStat::NrAnon]), [20, 20]);
    let held = folios[3];
    bench.core.frames[held].get(1);
    bench.check(&folios);
    let before = bench.stat(Stat::Pgfree);
    assert!(bench.direct() >= 32);
    assert!(bench.stat(Stat::Pgfree) >= before + 32);
    while bench.direct() > 0 {}
    assert_eq!(
        bench.sizes(4, &[SizeStat::NrAnonPartiallyMapped, SizeStat::NrAnon, SizeStat::Split]),
        [1, 1, 19]
    );
    assert!(bench.sizes(4, &[SizeStat::SplitFailed])[0] > 0);
    assert_eq!(bench.stat(Stat::NrAnonPages), 20 * 12);
    bench.check(&[held, folios[0].add(4)]);
}

/// A page keeps its mappings, and whether it is exclusive, when it becomes a folio.
#[test]
fn split_changes_no_entry() {
    let bench = Bench::new(0);
    let core = &bench.core;
    let pfn = bench.large(0, 2);
    core.frames[pfn.add(2)].clear(FrameFlags::EXCLUSIVE);
    bench.forget(1, 1);
    let entries: Vec<_> = (0..4).map(|page| bench.entry(page)).collect();
    let flushes = core.machine.flushes.lock().len();
    core.lock_folio(pfn);
    core.frames[pfn].get(1);
    assert_eq!(core.rmap.split_anon(core, pfn, None), Some(1));
    core.unlock_folio(pfn);
    core.put(pfn);
    assert_eq!((0..4).map(|page| bench.entry(page)).collect::<Vec<_>>(), entries);
    let kept = |i: u32| {
        let frame = &core.frames[pfn.add(i)];
        (frame.refs(), frame.mapcount(), frame.has(FrameFlags::EXCLUSIVE), frame.page_index().0)
    };
    assert_eq!([kept(0), kept(2), kept(3)], [(1, 1, true, 0), (1, 1, false, 2), (1, 1, true, 3)]);
    assert_eq!((core.frames[pfn.add(1)].refs(), core.machine.flushes.lock().len()), (0, flushes));
    bench.check(&[pfn, pfn.add(2), pfn.add(3)]);
}

/// A task that holds a page may make it dirty and drop its reference at any time: reclaim must check again once it has
/// frozen the references.
#[test]
fn page_that_becomes_dirty_before_the_freeze_is_kept() {
    // A page of a file, a larger folio of a file, a page in the swap cache.
    for (swapped, order) in [(false, 0), (false, 4), (true, 0)] {
        let bench: &'static Bench = Box::leak(Box::new(Bench::new(64)));
        let core = &bench.core;
        core.knobs.set(Knob::FileMaxOrder, order).unwrap();
        let pfn = match swapped {
            true => bench.anon(0, ROOT, Bits::DIRTY),
            false => {
                let (len, gfp) = (PAGE_SIZE << order, Gfp::user(ROOT));
                core.cache.write(core, bench.file, 0, len, gfp, &mut |_, _, _| ()).unwrap();
                bench.folio(0).unwrap()
            }
        };
        let frame = &core.frames[pfn];
        assert_eq!(frame.order().0 as u64, order);
        // At the first call it is written.
        let reclaim = || {
            assert!(core.lru.isolate(core, pfn));
            pageout(core, &bench.state, &NO_SPACES, &[pfn]);
        };
        if swapped {
            reclaim();
        } else {
            core.lock_folio(pfn);
            assert!(core.cache.write_page_start(core, pfn, &mut Default::default()));
            core.unlock_folio(pfn);
        }
        bench.finish_io();
        *core.machine.entered.lock() = Some(Box::new(move |_, scope| {
            if scope == Scope::RemoveMapping {
                bench.core.frames[pfn].set(FrameFlags::DIRTY);
            }
        }));
        reclaim();
        assert_eq!((frame.refs(), frame.has(FrameFlags::DIRTY)), (1, true), "{swapped} {order}");
        *core.machine.entered.lock() = None;
        // The flag was set without its file or the swap cache.
        frame.clear(FrameFlags::DIRTY);
        reclaim();
        assert_eq!(frame.refs(), 0);
        bench.validate();
    }
}

/// An isolated folio is not locked yet: a truncation may come first.
#[test]
fn shmem_folio_truncated_after_isolation_is_not_split() {
    let bench = Bench::new(64);
    let core = &bench.core;
    core.knobs.set(Knob::ShmemMaxOrder, 4).unwrap();
    let file = core.cache.create(FileKind::Shmem, 16 * PAGE_SIZE);
    core.cache.write(core, file, 0, PAGE_SIZE, Gfp::user(ROOT), &mut |_, _, _| ()).unwrap();
    let pfn = core.cache.lookup(core, file, PageIndex(0)).unwrap().head;
    core.put(pfn);
    assert!(core.lru.isolate(core, pfn));
    core.cache.set_size(file, 0);
    core.cache.truncate(core, file, PageIndex(0));
    assert!(core.frames[pfn].has(FrameFlags::DIRTY) && core.frames[pfn].order() == Order(4));
    assert_eq!(pageout(core, &bench.state, &NO_SPACES, &[pfn]), 0);
    assert_eq!((bench.stat(Stat::NrShmem), bench.stat(Stat::PswpOut)), (0, 0));
    assert!(core.frames[pfn].has(FrameFlags::BUDDY), "it is free");
}

/// As above, but a reader still has the page: its references are as many as those of a page in the swap cache.
#[test]
fn shmem_page_truncated_after_isolation_is_not_written() {
    let bench = Bench::new(64);
    let core = &bench.core;
    let file = core.cache.create(FileKind::Shmem, PAGE_SIZE);
    core.cache.write(core, file, 0, PAGE_SIZE, Gfp::user(ROOT), &mut |_, _, _| ()).unwrap();
    let pfn = core.cache.lookup(core, file, PageIndex(0)).unwrap().head;
    assert!(core.lru.isolate(core, pfn));
    core.cache.set_size(file, 0);
    core.cache.truncate(core, file, PageIndex(0));
    assert!(core.frames[pfn].has(FrameFlags::DIRTY) && core.frames[pfn].refs() == 2);
    assert_eq!(pageout(core, &bench.state, &NO_SPACES, &[pfn]), 0);
    assert_eq!((bench.stat(Stat::PswpOut), core.frames[pfn].refs()), (0, 1));
    core.put(pfn);
    assert_eq!(core.frames[pfn].refs(), 0, "it is free");
}
