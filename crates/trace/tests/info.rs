//! What `pagefold info` tells of programs with threads and processes.

use abi::{AccessKind, Call, Map};
use pagefold_trace::event::{Event, Packed, Run, ThreadId};
use pagefold_trace::info::{ContentRow, PackedRow, WINDOWS};
use pagefold_trace::{Info, Reader, Writer};

const PAGE: u64 = 4096;

fn info_of(build: impl FnOnce(&mut Writer)) -> Info {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.pft");
    let mut writer = Writer::create(&path, "test", &[], 3).unwrap();
    build(&mut writer);
    writer.finish().unwrap();
    Info::read(&Reader::open(&path).unwrap()).unwrap()
}

fn map(epoch: u64, page: u64, pages: u64) -> Event {
    Event::mapped(epoch, page * PAGE, Map::anonymous(pages * PAGE))
}

/// Two threads of one process that has 1000 pages.
fn two_threads(writer: &mut Writer) -> (ThreadId, ThreadId) {
    let root = writer.add_process(None);
    let other = writer.add_thread(root);
    writer.push(root, &map(1, 1000, 1000)).unwrap();
    writer.push(root, &Event::call(Call::Spawn(other.0))).unwrap();
    (root, other)
}

fn store(writer: &mut Writer, thread: ThreadId, pages: std::ops::Range<u64>, count: u32) {
    for page in pages {
        writer.push(thread, &Event::Run(Run { page, count, mode: AccessKind::Store })).unwrap();
    }
}

/// The pages of the windows of a part of the curve, in 64ths.
fn pages(info: &Info, windows: std::ops::Range<usize>) -> Vec<u64> {
    info.curve[windows].iter().map(|point| point.pages).collect()
}

#[test]
fn what_ended_processes_had_is_not_there_with_what_later_ones_have() {
    let children = |waits: bool| {
        info_of(|writer| {
            let root = writer.add_process(None);
            writer.push(root, &map(1, 1000, 100)).unwrap();
            store(writer, root, 1000..1100, 1);
            for child in 0..8 {
                let first = writer.add_process(None);
                writer.push(root, &Event::change(2 + child, Call::Fork(first.0))).unwrap();
                store(writer, first, 1000..1080, 10);
                if waits {
                    writer.push(root, &Event::call(Call::Join(first.0))).unwrap();
                }
            }
            store(writer, root, 1000..1001, 1);
        })
    };
    let in_turn = children(true);
    assert_eq!((in_turn.footprint / PAGE, in_turn.peak / PAGE), (100 + 8 * 80, 180));
    let together = children(false);
    assert_eq!((together.footprint / PAGE, together.peak / PAGE), (100 + 8 * 80, 100 + 8 * 80));
}

#[test]
fn phases_that_follow_each_other_are_not_one() {
    let info = info_of(|writer| {
        let (root, other) = two_threads(writer);
        store(writer, root, 1000..1064, 100);
        writer.push(root, &Event::Mark).unwrap();
        writer.push(other, &Event::After { thread: root, mark: 1 }).unwrap();
        store(writer, other, 1500..1532, 200);
    });
    // The first half touches two pages in each window, the second one page in each; half of all is done then.
    assert_eq!(pages(&info, 0..32), [2; 32]);
    assert_eq!(pages(&info, 32..64), [1; 32]);
    assert_eq!((info.curve[31].accesses, info.curve[31].cumulative), (6400, 64));
    assert_eq!((info.curve[63].accesses, info.curve[63].cumulative), (12800, 96));
}

#[test]
fn threads_beside_each_other_are_one_phase() {
    let info = info_of(|writer| {
        let (root, other) = two_threads(writer);
        store(writer, root, 1000..1064, 100);
        store(writer, other, 1500..1564, 100);
    });
    assert_eq!(pages(&info, 0..64), [2; 64]);
    assert_eq!(info.curve[15].accesses, 3200);
}

#[test]
fn a_hot_page_is_hot_as_long_as_it_is_used() {
    let info = info_of(|writer| {
        let (root, other) = two_threads(writer);
        store(writer, root, 1000..1001, 64_000_000);
        store(writer, other, 1500..1502, 1000);
    });
    assert_eq!(info.curve.len() as u64, WINDOWS);
    assert_eq!(pages(&info, 0..1), [3]);
    assert_eq!(pages(&info, 1..64), [1; 63]);
    assert_eq!((info.curve[0].accesses, info.curve[1].accesses), (1_002_000, 2_002_000));
}

#[test]
fn threads_that_wait_without_end_are_told_of_all_the_same() {
    let info = info_of(|writer| {
        let root = writer.add_process(None);
        let (other, never) = (writer.add_thread(root), writer.add_thread(root));
        writer.push(root, &map(1, 1000, 1000)).unwrap();
        writer.push(root, &Event::call(Call::Spawn(other.0))).unwrap();
        for (thread, by) in [(root, other), (other, root)] {
            writer.push(thread, &Event::After { thread: by, mark: 1 }).unwrap();
            store(writer, thread, 1000..1010, 2);
            writer.push(thread, &Event::Mark).unwrap();
        }
        store(writer, never, 1100..1101, 5);
    });
    assert_eq!((info.accesses, info.curve[63].accesses, info.curve[63].cumulative), (45, 45, 11));
}

/// A window of a recording may lack the event that starts a thread: it then begins after all others.
#[test]
fn a_thread_that_begins_after_its_process_has_ended_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(&folder.path().join("late.pft"), "test", &[], 1).unwrap();
    let parent = writer.add_process(None);
    let child = writer.add_process(Some(parent));
    let late = writer.add_thread(child);
    writer.push(parent, &Event::change(1, Call::Fork(child.0))).unwrap();
    for (thread, page) in [(parent, 1), (child, 2), (late, 3)] {
        writer.push(thread, &Event::Run(Run { page, count: 1, mode: AccessKind::Store })).unwrap();
    }
    let header = writer.finish().unwrap();
    assert_eq!((header.data_pages, header.footprint), (3, 3 * 4096));
}

#[test]
fn content_is_what_was_last_told_of_each_page() {
    let info = info_of(|writer| {
        let root = writer.add_process(None);
        writer.push(root, &map(1, 1000, 100)).unwrap();
        let packed = |lz4, zstd| Packed { lz4, zstd };
        let told = [
            (1000, packed(255, 200)),
            (1001, Packed::ZERO),
            (1002, Packed::SAME),
            (1003, packed(10, 5)),
            (1000, packed(100, 50)),
            (1004, packed(255, 255)),
        ];
        for (page, packed) in told {
            writer.push(root, &Event::Content { page, packed }).unwrap();
        }
    });
    let (lz4, zstd) = (PackedRow { bytes: 110 * 16, whole: 1 }, PackedRow { bytes: 55 * 16, whole: 1 });
    assert_eq!(info.content, ContentRow { pages: 5, told: 6, zero: 1, same: 1, lz4, zstd });
}
