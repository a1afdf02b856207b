//! Shortcuts past a flush that the compiler cannot see: each panics the first time that it runs. Those that it refuses
//! are in `tests/shortcuts`. And the right way to do what most of them would like to do.

use super::*;
use crate::frame::FolioPages;
use crate::memory::{Gfp, Shortage};
use crate::store::Store;
use crate::table::{Absent, Rights, Writes};

// The page of docs/flushes.md begins here.
/// Move a page that one process alone maps to another frame. `false`: somebody else uses it.
fn migrate_page<M: Machine>(st: &Store<M>, id: SpaceId, page: Vpn, gfp: Gfp) -> Result<bool, Shortage> {
    let (base, new) = (st.memory().ground(), st.new_folio(Order::ZERO, gfp)?);
    let mut tables = st.tables.lock(base, id);
    let found =
        tables.find(page).filter(|run| run.entry.is_present() && lock_if_private(st, run.entry.pfn()));
    let Some(run) = found else {
        drop(tables);
        st.put(new);
        return Ok(false);
    };
    let old = run.mapped(&st.frames);
    let emptied = tables.empty_run(&run, |_| Absent::None);
    let writes = if emptied.entry().has(Bits::WRITE) { Writes::Private } else { Writes::No };
    let rights = Rights::from_bits_truncate(emptied.entry().bits().bits());
    // Before the copy: no CPU may store to the old page any more. Before the new entry: none may load from it.
    let refs = tables.flush(emptied);
    st.copy(new, old.first, 1);
    let (from, to) = (&st.frames[old.head], &st.frames[new]);
    to.set_owner(from.owner(), from.page_index());
    to.set(from.flags() & (FrameFlags::UPTODATE | FrameFlags::SWAPBACKED | FrameFlags::EXCLUSIVE));
    st.rmap.remove_range(base, old);
    st.rmap.add_range(base, FolioPages::one(&st.frames, new));
    // Other entries of this address may have been cleared before, and wait for their flush.
    let mut tables = tables.settle_at(run.slot, page);
    tables.install(run.slot, page, FolioPages::one(&st.frames, new), rights, writes);
    drop(tables);
    st.lru.add(base, new, false);
    st.unlock_folio(old.head);
    st.put_refs(refs);
    Ok(true)
}
// And ends here.

/// Lock a page of anonymous memory that has one entry, is in no cache, and that nobody else refers to.
fn lock_if_private<M: Machine>(st: &Store<M>, pfn: Pfn) -> bool {
    let frame = &st.frames[pfn];
    let private = pfn != st.zero && frame.is_anon() && frame.order() == Order::ZERO && frame.refs() == 1;
    private && !frame.has(FrameFlags::SWAPCACHE) && st.try_lock_folio(pfn)
}

#[test]
fn a_page_is_moved_and_no_cpu_keeps_the_old_one() {
    for policy in [BATCH, LAZY, LATR] {
        let bench = Bench::new(Anonymous, policy);
        bench.use_pages(true);
        let old: Vec<Pfn> = pages().map(|page| bench.reach(bench.space, page, true).0).collect();
        for page in pages() {
            assert_eq!(migrate_page(&bench.mm.store, bench.space, page, Gfp::user(GROUP)), Ok(true));
        }
        bench.check("a move", Stands::InTheSpace);
        for (page, old) in pages().zip(old) {
            let (new, writable) = bench.reach(bench.space, page, false);
            assert!(new != old && writable);
        }
        bench.mm.validate().unwrap();
    }
}

#[test]
fn the_document_shows_this_move() {
    let source = include_str!("shortcuts.rs");
    let begin = source.find("begins here.\n").unwrap() + "begins here.\n".len();
    let end = source.find("// And ends here.").unwrap();
    let document = include_str!("../../../../../../docs/flushes.md");
    assert!(document.contains(&source[begin..end]), "copy `migrate_page` to docs/flushes.md");
}

/// MADV_DONTNEED of one page, made cheap: the entry is cleared and the page put.
#[test]
#[should_panic(expected = "entries were emptied and nobody flushes them")]
fn a_page_is_dropped_without_a_flush() {
    let bench = Bench::new(Anonymous, BATCH);
    bench.use_pages(true);
    let st = &bench.mm.store;
    let mut tables = st.tables.lock(bench.mm.ground(), bench.space);
    let run = tables.find(AT).unwrap();
    let emptied = tables.empty_run(&run, |_| Absent::None);
    st.rmap.remove_range(bench.mm.ground(), emptied.mapped());
    drop(tables);
    st.put(emptied.mapped().head);
}

/// Reclaim that unmaps and frees, and forgets that its batch owes.
#[test]
#[should_panic(expected = "a batch ends with flushes owed")]
fn a_batch_goes_out_of_scope() {
    let bench = Bench::new(SharedFile, BATCH);
    bench.use_pages(false);
    let store = &bench.mm.store;
    let mut batch = Batch::new(bench.mm.ground().base());
    let (pfn, _) = bench.reach(bench.space, AT, false);
    store.frames[pfn].get(1);
    store.lock_folio(pfn);
    assert!(store.rmap.try_to_unmap(store.memory(), pfn, UnmapMode::default(), &mut batch).all);
    store.unlock_folio(pfn);
    store.put(pfn);
}

/// mprotect that looks at what the entries were, and does not tell its gather.
#[test]
#[should_panic(expected = "entries lost rights and nobody flushes them")]
fn rights_are_taken_and_the_gather_is_not_told() {
    let bench = Bench::new(Anonymous, BATCH);
    bench.use_pages(true);
    let st = &bench.mm.store;
    st.gather(bench.space, |gather| {
        gather.changes(AT, Vpn(AT.0 + PAGES));
        let mut tables = st.tables.lock(bench.mm.ground(), bench.space);
        tables.for_each(AT, Vpn(AT.0 + PAGES), |tables, run| {
            let tightened = tables.forbid_writes(&run);
            assert!(tightened.entry().has(Bits::WRITE));
        });
    });
}

/// Pages are put while the gather that will flush them is still collecting, and it puts them again.
#[test]
#[should_panic(expected = "references of 0")]
fn pages_are_put_before_their_gather_has_flushed() {
    let bench = Bench::new(Anonymous, BATCH);
    bench.use_pages(true);
    let (st, base) = (&bench.mm.store, bench.mm.ground());
    st.gather(bench.space, |gather| {
        let mut tables = st.tables.lock(base, bench.space);
        let all = |_: &crate::table::Run| true;
        let none = |_: &mut _, slot| panic!("{slot:?} is in swap");
        tables.take_each(AT, Vpn(AT.0 + PAGES), all, none, |_, emptied| {
            let pages = emptied.mapped();
            st.rmap.remove_range(base, pages);
            gather.emptied(base, emptied);
            st.put_many(pages.head, pages.count);
        });
    });
}

/// A page of a file takes the place of another that reads the same, while CPUs still load from that.
#[test]
#[should_panic(expected = "was emptied in this hold of the lock")]
fn another_page_takes_the_place_before_the_flush() {
    let bench = Bench::new(SharedFile, BATCH);
    bench.use_pages(false);
    let st = &bench.mm.store;
    let (other, _) = bench.reach(bench.space, Vpn(AT.0 + 1), false);
    st.gather(bench.space, |gather| {
        let mut tables = st.tables.lock(bench.mm.ground(), bench.space);
        let run = tables.find(AT).unwrap();
        let emptied = tables.empty_run(&run, |_| Absent::None);
        st.rmap.remove_range(bench.mm.ground(), emptied.mapped());
        gather.emptied(bench.mm.ground(), emptied);
        tables.install_unchanged(run.slot, AT, FolioPages::one(&st.frames, other), Rights::USER);
    });
}
