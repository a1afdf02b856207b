//! Shortcuts around a flush that the compiler cannot see: each panics the first time that it runs. Those that it
//! rejects are in `tests/shortcuts`. Also the right way to do what most of them are for.

use super::*;
use crate::frame::FolioPages;
use crate::memory::{Gfp, Shortage};
use crate::mm_core::MmCore;
use crate::table::{Absent, Resident, Rights, Shown, Source, TakenRun, Waiting, Writes};
use crate::tlb::Refs;
use std_alloc::vec::Vec;

// The page of docs/flushes.md begins here.
/// Move a page that one process alone maps to another frame. Returns `false` if it has other users.
fn migrate_page<M: Machine>(core: &MmCore<M>, id: SpaceId, page: Vpn, gfp: Gfp) -> Result<bool, Shortage> {
    let new = core.new_folio(Order::ZERO, gfp)?;
    let mut tables = core.tables.lock(core, id);
    let found =
        tables.find(page).filter(|run| run.entry.is_present() && lock_if_private(core, run.entry.pfn()));
    let Some(run) = found else {
        drop(tables);
        core.put(new);
        return Ok(false);
    };
    let old = run.mapped(&core.frames);
    let emptied = tables.empty_run(&run, |_| Absent::None);
    let writes = if emptied.entry().has(Bits::WRITE) { Writes::Private } else { Writes::No };
    let rights = Rights::from_bits_truncate(emptied.entry().bits().bits());
    // From here on no CPU may store to the old page, which is copied, or load from it, which would miss new stores.
    let refs = tables.flush(emptied);
    core.copy(new, Source::flushed(&core.frames, &refs));
    let (from, to) = (&core.frames[old.head], &core.frames[new]);
    to.set_owner(from.owner(), from.page_index());
    to.set(from.flags() & (FrameFlags::UPTODATE | FrameFlags::SWAPBACKED | FrameFlags::EXCLUSIVE));
    core.rmap.remove_range(core, old);
    core.rmap.add_range(core, FolioPages::one(&core.frames, new));
    // Flushes of entries that this address had before may still be deferred.
    let mut tables = tables.settle_at(run.slot, page);
    tables.install(run.slot, page, FolioPages::one(&core.frames, new), rights, writes);
    drop(tables);
    core.lru.add(core, [new], false);
    core.unlock_folio(old.head);
    core.put_refs(refs);
    Ok(true)
}
// And ends here.

/// Lock a page of anonymous memory that has one entry, is in no cache, and has no other reference.
fn lock_if_private<M: Machine>(core: &MmCore<M>, pfn: Pfn) -> bool {
    let frame = &core.frames[pfn];
    let private = pfn != core.zero && frame.is_anon() && frame.order() == Order::ZERO && frame.refs() == 1;
    private && !frame.has(FrameFlags::SWAPCACHE) && core.try_lock_folio(pfn)
}

#[test]
fn example_migration_leaves_no_stale_translation() {
    for policy in [BATCH, LAZY, LATR] {
        let bench = Bench::used(Anonymous, policy, true, OtherCpu::InTheSpace);
        let old: Vec<Pfn> = pages().map(|page| bench.reach(bench.space, page, true).0).collect();
        for page in pages() {
            assert_eq!(migrate_page(&bench.mm.core, bench.space, page, Gfp::user(ROOT)), Ok(true));
        }
        bench.check("a move", OtherCpu::InTheSpace);
        for (page, old) in pages().zip(old) {
            let (new, writable) = bench.reach(bench.space, page, false);
            assert!(new != old && writable);
        }
        bench.mm.validate().unwrap();
    }
}

#[test]
fn flushes_page_embeds_this_example() {
    let source = include_str!("shortcuts.rs");
    let begin = source.find("begins here.\n").unwrap() + "begins here.\n".len();
    let end = source.find("// And ends here.").unwrap();
    let document = include_str!("../../../../../../docs/flushes.md");
    assert!(document.contains(&source[begin..end]), "copy `migrate_page` to docs/flushes.md");
}

/// A cheap MADV_DONTNEED of one page: clear the entry and put the page.
#[test]
#[should_panic(expected = "emptied entries must be given to a gather or a batch, or flushed")]
fn dropping_a_page_without_a_flush_panics() {
    let bench = Bench::used(Anonymous, BATCH, true, OtherCpu::InTheSpace);
    let core = &bench.mm.core;
    let mut tables = core.tables.lock(bench.mm.mmu(), bench.space);
    let run = tables.find(AT).unwrap();
    let emptied = tables.empty_run(&run, |_| Absent::None);
    core.rmap.remove_range(bench.mm.mmu(), emptied.mapped());
    drop(tables);
    core.put(emptied.mapped().head);
}

/// Reclaim that unmaps and frees, and forgets its batch's debt.
#[test]
#[should_panic(expected = "a batch must be settled before it is dropped")]
fn dropping_an_unsettled_batch_panics() {
    let bench = Bench::used(SharedFile, BATCH, false, OtherCpu::InTheSpace);
    let mut batch = UnmapBatch::new(bench.mm.mmu().host());
    let (pfn, _) = bench.reach(bench.space, AT, false);
    unmap_folio(&bench.mm, pfn, false, &mut batch);
    bench.mm.core.put(pfn);
}

/// mprotect that looks at the old entries and does not tell its gather.
#[test]
#[should_panic(expected = "entries that lost rights must be given to a gather, or flushed")]
fn tightening_without_telling_the_gather_panics() {
    let bench = Bench::used(Anonymous, BATCH, true, OtherCpu::InTheSpace);
    let core = &bench.mm.core;
    core.gather(bench.space, |gather| {
        gather.changes(AT, Vpn(AT.0 + PAGES));
        let mut tables = core.tables.lock(bench.mm.mmu(), bench.space);
        tables.for_each(AT, Vpn(AT.0 + PAGES), |tables, run| {
            let tightened = tables.forbid_writes(&run);
            assert!(tightened.entry().has(Bits::WRITE));
        });
    });
}

/// Pages are put while the gather that will flush them is still collecting; the gather then puts them again.
#[test]
#[should_panic(expected = "references of 0")]
fn putting_gathered_pages_twice_panics() {
    let bench = Bench::used(Anonymous, BATCH, true, OtherCpu::InTheSpace);
    let (core, base) = (&bench.mm.core, bench.mm.mmu());
    core.gather(bench.space, |gather| {
        let mut tables = core.tables.lock(base, bench.space);
        let all = |_: &crate::table::EntryRun| true;
        let none = |_: &mut _, slot| panic!("{slot:?} is in swap");
        tables.take_each(AT, Vpn(AT.0 + PAGES), all, none, |_, emptied| {
            let pages = emptied.mapped();
            core.rmap.remove_range(base, pages);
            gather.emptied(base.host(), emptied);
            core.put_many(pages.head, pages.count);
        });
    });
}

/// A page of a file replaces another with equal content, while CPUs still load from the old one.
#[test]
#[should_panic(expected = "was emptied in this hold of the lock")]
fn replacing_an_entry_before_the_flush_panics() {
    let bench = Bench::used(SharedFile, BATCH, false, OtherCpu::InTheSpace);
    let core = &bench.mm.core;
    let (other, _) = bench.reach(bench.space, Vpn(AT.0 + 1), false);
    core.gather(bench.space, |gather| {
        let mut tables = core.tables.lock(bench.mm.mmu(), bench.space);
        let run = tables.find(AT).unwrap();
        let emptied = tables.empty_run(&run, |_| Absent::None);
        core.rmap.remove_range(bench.mm.mmu(), emptied.mapped());
        gather.emptied(bench.mm.mmu().host(), emptied);
        let shown = Shown::in_range(bench.file, PageIndex(0));
        tables.install_unchanged((run.slot, AT), FolioPages::one(&core.frames, other), shown, Rights::USER);
    });
}

/// A page is put as soon as a batch has taken its entry. It is free with what the batch owes, and paid for before it is
/// handed out.
#[test]
fn a_page_that_is_put_before_its_batch_has_paid_is_paid_for_before_its_reuse() {
    for policy in [BATCH, LIST] {
        let bench = Bench::used(Anonymous, policy, true, OtherCpu::InTheSpace);
        let (core, mmu) = (&bench.mm.core, bench.mm.mmu());
        let mut batch = UnmapBatch::new(mmu.host());
        let (old, _) = bench.reach(bench.space, AT, true);
        core.put_refs(empty(&bench, &mut batch));
        assert!(mmu.machine.readers(old, 1).contains(&CpuId(1)), "the batch has not paid yet");
        let taken: Vec<Pfn> =
            (0..64).map(|_| core.new_folio(Order::ZERO, Gfp::user(ROOT)).unwrap()).collect();
        for &pfn in &taken {
            assert_eq!(mmu.machine.readers(pfn, 1), [], "{pfn} is handed out");
        }
        batch.settle(mmu.host(), &mmu.tlb);
        taken.into_iter().for_each(|pfn| core.put(pfn));
        bench.mm.validate().unwrap();
    }
}

/// The anonymous page at [`AT`] goes to a batch.
fn empty(bench: &Bench, batch: &mut UnmapBatch) -> Refs {
    let core = &bench.mm.core;
    let mut tables = core.tables.lock(core, bench.space);
    let run = tables.find(AT).unwrap();
    let emptied = tables.empty_run(&run, |_| Absent::None).dropping_content();
    core.rmap.remove_range(core, emptied.mapped());
    tables.counts().add(Resident::Anon, -1);
    tables.leave_to(batch, emptied)
}

/// mremap of one page: what was emptied here is put back there.
#[test]
#[should_panic(expected = "gets back what was emptied elsewhere")]
fn restoring_entries_elsewhere_panics() {
    let bench = Bench::used(Anonymous, BATCH, true, OtherCpu::InTheSpace);
    let mut tables = bench.mm.core.tables.lock(bench.mm.mmu(), bench.space);
    let (from, to) = (tables.find(AT).unwrap(), tables.find(Vpn(AT.0 + PAGES)).unwrap());
    let emptied = tables.empty_run(&from, |_| Absent::None);
    tables.restore(&to, emptied);
}

/// Entries are collected under the lock, and left to a batch in a later hold.
#[test]
#[should_panic(expected = "must be given to a batch in the hold that emptied them")]
fn leaving_a_debt_in_a_later_hold_panics() {
    let bench = Bench::used(SharedFile, LAZY, true, OtherCpu::InTheSpace);
    let (core, mmu) = (&bench.mm.core, bench.mm.mmu());
    let mut tables = core.tables.lock(mmu, bench.space);
    let run = tables.find(AT).unwrap();
    let emptied = tables.empty_run(&run, |_| Absent::None);
    drop(tables);
    let mut batch = UnmapBatch::new(mmu.host());
    core.put_refs(core.tables.lock(mmu, bench.space).leave_to(&mut batch, emptied));
}

/// An empty address shows another page of its file, while a flush of its own page is deferred.
#[test]
#[should_panic(expected = "is not what its address shows")]
fn mapping_another_page_of_the_file_panics() {
    let bench = Bench::used(SharedFile, LAZY, false, OtherCpu::InTheSpace);
    let core = &bench.mm.core;
    let (other, _) = bench.reach(bench.space, Vpn(AT.0 + 1), false);
    bench.unmap();
    let mut tables = core.tables.lock(core, bench.space);
    let run = tables.find(AT).unwrap();
    let shown = Shown::in_range(bench.file, PageIndex(0));
    tables.install_unchanged((run.slot, AT), FolioPages::one(&core.frames, other), shown, Rights::USER);
}

/// The page at [`AT`], locked, with its entry waiting in a batch; and a frame for it.
fn begin_move(bench: &Bench, batch: &mut UnmapBatch) -> (Waiting, Pfn) {
    let core = &bench.mm.core;
    let (old, _) = bench.reach(bench.space, AT, true);
    let to = core.new_folio(Order::ZERO, Gfp::user(ROOT)).unwrap();
    core.frames[old].get(1);
    core.lock_folio(old);
    (core.rmap.begin_move(core, old, batch), to)
}

/// A page is copied, as another batch that owes nothing allows it.
#[test]
#[should_panic(expected = "must be settled before a copy replaces it")]
fn copying_under_another_batch_panics() {
    let bench = Bench::used(Anonymous, BATCH, true, OtherCpu::InTheSpace);
    let core = &bench.mm.core;
    let mut batch = UnmapBatch::new(core.host());
    let (waiting, to) = begin_move(&bench, &mut batch);
    let landing = core.copy_folio(waiting, to, &UnmapBatch::new(core.host()));
    core.rmap.end_move(core, landing);
}

/// A page is copied before its own batch has paid.
#[test]
#[should_panic(expected = "must be settled before a copy replaces it")]
fn copying_before_the_payment_panics() {
    let bench = Bench::used(Anonymous, LAZY, true, OtherCpu::InTheSpace);
    let core = &bench.mm.core;
    let mut batch = UnmapBatch::new(core.host());
    let (waiting, to) = begin_move(&bench, &mut batch);
    let landing = core.copy_folio(waiting, to, &batch);
    core.rmap.end_move(core, landing);
}

/// A move ends because there is no frame, and its entries wait for ever.
#[test]
#[should_panic(expected = "entries wait for a folio")]
fn leaving_a_move_panics() {
    let bench = Bench::used(Anonymous, BATCH, true, OtherCpu::InTheSpace);
    let core = &bench.mm.core;
    let mut batch = UnmapBatch::new(core.host());
    let (waiting, _) = begin_move(&bench, &mut batch);
    batch.settle(core.host(), &core.tlb);
    drop(waiting);
}

/// A page is copied while it is in use, and a store that came after is not looked for.
#[test]
#[should_panic(expected = "must have its last store")]
fn a_copy_in_use_that_misses_a_store_panics() {
    let bench = Bench::used(Anonymous, BATCH, true, OtherCpu::InTheSpace);
    let core = &bench.mm.core;
    let (old, _) = bench.reach(bench.space, AT, true);
    let to = core.new_folio(Order::ZERO, Gfp::user(ROOT)).unwrap();
    core.frames[old].get(1);
    core.lock_folio(old);
    let copy = core.copy_in_use(core.rmap.clean_anon(core, old).unwrap(), to);
    bench.reach(bench.space, AT, true);
    let mut batch = UnmapBatch::new(core.host());
    let waiting = core.rmap.begin_move(core, old, &mut batch);
    batch.settle(core.host(), &core.tlb);
    core.rmap.end_move(core, core.copied_in_use(waiting, copy, &batch));
}

/// The file is paid for before its page is locked.
#[test]
#[should_panic(expected = "must be locked before its file is paid for")]
fn paying_for_a_page_that_is_not_locked_panics() {
    let bench = Bench::used(DiskFile, LAZY, false, OtherCpu::InTheSpace);
    let (pfn, _) = bench.reach(bench.space, AT, false);
    let _paid = bench.mm.core.settle_page(pfn);
}

/// The page was paid for, and unlocked before its entry allows stores.
#[test]
#[should_panic(expected = "must be the page that was paid for, and still locked")]
fn allowing_stores_to_a_page_that_was_unlocked_panics() {
    let bench = Bench::used(DiskFile, LAZY, false, OtherCpu::InTheSpace);
    let core = &bench.mm.core;
    let (pfn, _) = bench.reach(bench.space, AT, false);
    core.lock_folio(pfn);
    let paid = core.settle_page(pfn);
    core.unlock_folio(pfn);
    let tables = core.tables.lock(core, bench.space);
    let run = tables.find(AT).unwrap();
    tables.settle_at(run.slot, AT).allow_writes(run.slot, AT, Writes::Shared(paid));
}

/// One page was paid for, and another becomes writable.
#[test]
#[should_panic(expected = "must be the page that was paid for, and still locked")]
fn allowing_stores_to_another_page_than_was_paid_for_panics() {
    let bench = Bench::used(DiskFile, LAZY, false, OtherCpu::InTheSpace);
    let core = &bench.mm.core;
    let (pfn, _) = bench.reach(bench.space, Vpn(AT.0 + 1), false);
    core.lock_folio(pfn);
    let paid = core.settle_page(pfn);
    let tables = core.tables.lock(core, bench.space);
    let run = tables.find(AT).unwrap();
    tables.settle_at(run.slot, AT).allow_writes(run.slot, AT, Writes::Shared(paid));
}

/// A page that its process may store to is copied as if it were shared.
#[test]
#[should_panic(expected = "must not be one process's own")]
fn copying_a_page_of_one_process_as_shared_panics() {
    let bench = Bench::used(Anonymous, BATCH, true, OtherCpu::InTheSpace);
    let (pfn, _) = bench.reach(bench.space, AT, true);
    let _source = Source::shared(&bench.mm.core.frames, pfn);
}
