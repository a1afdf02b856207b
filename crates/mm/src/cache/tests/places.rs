//! What becomes of pages on their way into a file's cache, or out of it, if another task is at the same places.

use super::*;
use crate::event::Event;
use crate::machine::Scope;
use crate::testing::Moment;

/// Frames that are free, cached, or in slabs.
fn frames(core: &MmCore<TestMachine>) -> u64 {
    let free = core.alloc.zones()[0].free_pages() + core.alloc.pcp_pages(ZoneId(0));
    free + core.slabs.frames(core) + core.stats.read(Stat::NrFilePages) as u64
}

/// Between a reader's look at what is missing and its adding of pages there, another task writes a page, or ends the
/// file earlier.
#[test]
fn reader_adds_the_pages_that_no_other_task_has_added_or_truncated() {
    for (written, end) in [(Some(0), 8), (Some(3), 8), (Some(7), 8), (None, 5), (None, 0)] {
        let core = store(4096, 8);
        let file = disk_file(&core, 0, 8);
        let before = frames(&core);
        *core.machine.entered.lock() = Some(Box::new(move |_, scope| {
            with_store(|core| {
                if scope != Scope::FilemapAddFolio || core.cache.file(file).cached() > 0 {
                    return;
                }
                match written {
                    Some(page) => write(core, file, page * PAGE_SIZE, PAGE_SIZE, 7),
                    None => truncate(core, file, end),
                }
            });
        }));
        let expected: Vec<u64> =
            (0..end).map(|page| if written == Some(page) { 7 } else { virgin(DISK, page) }).collect();
        assert_eq!(read(&core, file, 0, 8), expected);
        *core.machine.entered.lock() = None;
        assert_eq!(core.cache.file(file).cached(), end);
        assert_eq!(frames(&core), before, "no frame may be lost");
        check(&core);
    }
}

/// The references of the only page are frozen, as those of a part are during a collapse, until the truncation has
/// dropped the shadows of all other pages.
#[test]
fn truncation_waits_for_a_page_whose_references_are_frozen() {
    const LEAVES: u64 = 61;
    let core = store(2048, 8);
    let file = disk_file(&core, 0, 64 * LEAVES);
    for leaf in (0..LEAVES).rev() {
        assert_eq!(read(&core, file, leaf * 64 + 3, 1).len(), 1);
        while core.machine.end_one() {}
        assert!(leaf == 0 || reclaim(&core, any_cached(&core, file, leaf * 64).unwrap()));
    }
    let pfn = any_cached(&core, file, 0).unwrap();
    core.frames[pfn].get(1);
    assert!(core.frames[pfn].freeze(CACHE_AND_CALLER));
    // A slab of nodes for the shadows is freed.
    core.machine.at(Moment::Event(Event::MmPageFree), move || {
        with_store(|core| {
            core.frames[pfn].unfreeze(CACHE_AND_CALLER);
            core.put(pfn);
        });
    });
    truncate(&core, file, 0);
    assert_eq!(core.cache.file(file).cached(), 0);
    check(&core);
}
