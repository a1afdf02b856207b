//! Shortcuts around a flush that the compiler cannot see: each panics the first time that it runs. Those that it
//! rejects are in `tests/shortcuts`. Also the right way to do what most of them are for.

use super::*;
use crate::frame::FolioPages;
use crate::memory::{Gfp, Shortage};
use crate::mm_core::MmCore;
use crate::table::TakenRun;
use crate::table::{Absent, Rights, Writes};

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
    core.copy(new, old.first, 1);
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
        tables.install_unchanged(run.slot, AT, FolioPages::one(&core.frames, other), Rights::USER);
    });
}
