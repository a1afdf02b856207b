//! Files at their edges: the first page, a hole behind the content, a page far away, a window that cannot follow.

use super::*;

/// The hole is the last page of a window. The device has old content there.
#[test]
fn a_hole_behind_the_content_reads_as_zeroes() {
    let core = store(4096, 8);
    let file = disk_file(&core, 0, 3);
    core.cache.set_size(file, 4 * PAGE_SIZE);
    assert_eq!(read(&core, file, 0, 4), [virgin(DISK, 0), virgin(DISK, 1), virgin(DISK, 2), 0]);
    check(&core);
}

/// In a file of three pages the mark of the first window is on the first page.
#[test]
fn short_files_can_be_read_again_page_by_page() {
    let core = store(4096, 8);
    for pages in 1..6 {
        let file = disk_file(&core, 100 * pages, pages);
        for page in (0..pages).chain(0..pages) {
            assert_eq!(read(&core, file, page, 1), [virgin(DISK, 100 * pages + page)]);
            while core.machine.end_one() {}
        }
        check(&core);
    }
}

/// Its offset in bytes has 53 bits.
#[test]
fn a_page_far_behind_the_end_can_be_written() {
    let core = store(4096, 8);
    let file = disk_file(&core, 0, 1);
    let page = 1 << 40;
    write(&core, file, page * PAGE_SIZE, PAGE_SIZE, 7);
    assert_eq!(read(&core, file, page - 1, 3), [0, 7]);
    check(&core);
}

/// There is no free page, so an attempt to read the next window would fail.
#[test]
fn a_marked_page_is_used_if_nothing_may_be_read_ahead() {
    let random = ReadHint { fault: true, random: true, ..ReadHint::default() };
    let cases = [
        ("read-ahead is off", 0, ReadHint::default(), AllowedReadAhead::Window),
        ("faults come at random", 128, random, AllowedReadAhead::Window),
        ("memory is short", 128, ReadHint::default(), AllowedReadAhead::Nothing),
    ];
    for (what, window, hint, read_ahead) in cases {
        let core = store(4096, 8);
        let file = disk_file(&core, 0, 64);
        // Four pages are read, and the second is marked.
        read(&core, file, 0, 1);
        while core.machine.end_one() {}
        core.knobs.set(Knob::ReadAheadKb, window).unwrap();
        let gfp = Gfp { mark: Watermark::Min, read_ahead, ..ROOT };
        let held: Vec<Pfn> = core::iter::from_fn(|| core.new_folio(Order::ZERO, gfp).ok()).collect();
        let page = core.cache.get_page(&core, file, PageIndex(1), hint, gfp);
        assert_eq!(page.map(|page| core.machine.stamp(page.pfn)), Ok(virgin(DISK, 1)), "{what}");
        core.put(page.unwrap().folio);
        assert_eq!(pages_read(&core), 4, "{what}");
        held.into_iter().for_each(|pfn| core.put(pfn));
        check(&core);
    }
}
