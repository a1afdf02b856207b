//! Files with checksums that hold and contents that no writer writes: each ends in one line that names it, before it
//! costs more than it is worth.

use std::path::{Path, PathBuf};

use abi::call::{Exit, Tell};
use abi::{AccessKind, Advice, Buffer, Call, Text};
use pagefold_trace::codec::Encoder;
use pagefold_trace::container::Packer;
use pagefold_trace::event::{Event, Run, ThreadId};
use pagefold_trace::header::{Counts, FileInfo, Place, ProcessInfo, ThreadInfo};
use pagefold_trace::{Header, Info, Reader, Replay};

/// A trace that is put together by hand. Every part of it can be made wrong before it is written.
struct Crafted {
    header: Header,
    /// By thread: its frames, as number of events and block.
    frames: Vec<Vec<(u32, Vec<u8>)>>,
}

fn run(page: u64) -> Event {
    Event::Run(Run { page, count: 3, mode: AccessKind::Load })
}

fn block(events: &[Event]) -> (u32, Vec<u8>) {
    let mut encoder = Encoder::default();
    events.iter().for_each(|event| encoder.push(event));
    let mut bytes = Vec::new();
    encoder.finish(&mut bytes);
    (events.len() as u32, bytes)
}

impl Crafted {
    /// One process; a thread for each list of frames, which are lists of events.
    fn new(threads: &[&[&[Event]]]) -> Crafted {
        let process = ProcessInfo { forked_by: None, first_thread: ThreadId(0), epochs: 0 };
        let mut header = Header { processes: vec![process], ..Header::default() };
        for thread in threads {
            let mut counts = Counts::default();
            thread.iter().flat_map(|frame| frame.iter()).for_each(|event| counts.note(event));
            let started_by = (!header.threads.is_empty()).then_some(ThreadId(0));
            header.threads.push(ThreadInfo { process: 0, started_by, counts, frames: Vec::new() });
        }
        let frames = threads.iter().map(|thread| thread.iter().map(|frame| block(frame)).collect());
        Crafted { header, frames: frames.collect() }
    }

    /// Write it under `name`, with an index that `spoil` has spoiled.
    fn write(&self, name: &str, spoil: impl FnOnce(&mut Header)) -> Kept {
        let folder = tempfile::tempdir().unwrap();
        let mut header = self.header.clone();
        let mut packer = Packer::new(Vec::new(), 3).unwrap();
        for (thread, frames) in self.frames.iter().enumerate() {
            for (events, raw) in frames {
                let at = packer.frame(thread as u32, *events, raw).unwrap();
                header.threads[thread].frames.push(at);
            }
        }
        spoil(&mut header);
        let path = folder.path().join(name);
        std::fs::write(&path, packer.finish(&header).unwrap()).unwrap();
        Kept { path, _folder: folder }
    }
}

/// A file in a folder that goes with it.
struct Kept {
    path: PathBuf,
    _folder: tempfile::TempDir,
}

fn info(path: &Path) -> Result<Info, String> {
    Reader::open(path).and_then(|reader| Info::read(&reader)).map_err(|error| error.to_string())
}

/// `info` and `run` refuse the file, in the same words.
fn refused(file: &Kept, expected: &str) {
    let by_info = info(&file.path).unwrap_err();
    let by_run = Replay::open(&file.path).err().expect("the replay takes it").to_string();
    for line in [&by_info, &by_run] {
        let name = file.path.file_name().unwrap().to_str().unwrap();
        assert!(line.contains(expected) && line.contains(name) && line.contains("record it again"), "{line}");
        assert!(!line.contains('\n'), "{line}");
    }
}

#[test]
fn a_good_one_is_read() {
    let file = Crafted::new(&[&[&[run(1)], &[run(2)]], &[&[run(1), run(7)]]]).write("good.pft", |_| {});
    let info = info(&file.path).unwrap();
    assert_eq!((info.accesses, info.curve.last().unwrap().cumulative), (12, 3));
    assert!(Replay::open(&file.path).is_ok());
}

#[test]
fn a_frame_is_indexed_once() {
    let crafted = Crafted::new(&[&[&[run(1)], &[run(2)]], &[&[run(3)]]]);
    let twice = "the index does not lead to each frame once";
    refused(&crafted.write("left-out.pft", |header| header.threads[0].frames.truncate(1)), twice);
    refused(
        &crafted.write("shared.pft", |header| {
            let frame = header.threads[0].frames[0];
            header.threads[1].frames.insert(0, frame);
        }),
        twice,
    );
    // A distance of 0: the same frame again. The header's own rule, so that such a list is never built.
    refused(
        &crafted.write("bomb.pft", |header| {
            let frame = header.threads[0].frames[0];
            header.threads[0].frames = vec![frame; 100_000];
            header.threads[0].counts.events = 100_000;
        }),
        "the header does not follow the format",
    );
    refused(
        &crafted.write("beyond.pft", |header| *header.threads[1].frames.last_mut().unwrap() = u64::MAX),
        twice,
    );
    refused(
        &crafted.write("another.pft", |header| {
            let [first, second] = &mut header.threads[..] else { unreachable!() };
            std::mem::swap(&mut first.frames[1], &mut second.frames[0]);
            second.frames.sort_unstable();
        }),
        "of another thread",
    );
}

#[test]
fn counts_are_compared_with_what_the_frames_hold() {
    let crafted = Crafted::new(&[&[&[run(1)]], &[&[run(3)]]]);
    let events = crafted.write("events.pft", |header| header.threads[0].counts.events = 1 << 45);
    refused(&events, "more or fewer events than its header says");
    let not_done = "a thread has not done what its header says";
    for name in ["loads", "stores", "fetches", "instructions", "idle", "runs"] {
        let file = crafted.write(&format!("{name}.pft"), |header| {
            // Two threads, so that their sum overflows, too.
            for thread in &mut header.threads {
                let counts = &mut thread.counts;
                *match name {
                    "loads" => &mut counts.loads,
                    "stores" => &mut counts.stores,
                    "fetches" => &mut counts.fetches,
                    "instructions" => &mut counts.instructions,
                    "idle" => &mut counts.idle_nanos,
                    _ => &mut counts.runs,
                } = u64::MAX;
            }
        });
        refused(&file, not_done);
    }
    let mut more = Crafted::new(&[&[&[run(1)]]]);
    more.frames[0][0].0 = 2;
    refused(
        &more.write("more.pft", |header| header.threads[0].counts.events = 2),
        "do not follow the format",
    );
    more.frames[0][0].0 = 1 << 30;
    let file = more.write("many.pft", |header| header.threads[0].counts.events = 1 << 30);
    refused(&file, "more events than bytes");
}

#[test]
fn sums_beyond_64_bits_end_there() {
    let compute = Event::Compute { instructions: u64::MAX };
    let file = Crafted::new(&[&[&[compute, compute]], &[&[compute]]]).write("compute.pft", |_| {});
    assert_eq!(info(&file.path).unwrap().totals.instructions, u64::MAX);
}

#[test]
fn what_no_call_can_have_done_is_refused() {
    let text = Text::At(Buffer { addr: 1 << 40, len: 5 });
    for (name, call) in [
        ("read", Call::Pread(0, Buffer::anywhere(u64::MAX), 0)),
        ("write", Call::Pwrite(0, Buffer::anywhere(1), u64::MAX)),
        ("truncate", Call::Ftruncate(0, 1 << 63)),
        ("unmap", Call::Munmap(1 << 63, 1 << 63)),
        ("advise", Call::Madvise(u64::MAX, u64::MAX, Advice::Cold)),
        ("exit", Call::Exit(Exit::default())),
        ("tell", Call::Tell(Tell::Panic, text)),
        ("barrier", Call::Barrier(0, 2)),
        ("knob", Call::SetKnob(text, 1)),
    ] {
        let event = Event::call(call);
        let file = Crafted::new(&[&[&[event, event]]]).write(&format!("{name}.pft"), |_| {});
        refused(&file, "what no call can have done");
    }
}

#[test]
fn a_file_that_is_not_there_is_refused() {
    let event = Event::call(Call::Fsync(u32::MAX));
    refused(&Crafted::new(&[&[&[event, event]]]).write("file.pft", |_| {}), "names a file that is not there");
    // Nor is it written: a writer has a place for each file up to the largest.
    let folder = tempfile::tempdir().unwrap();
    let mut writer = pagefold_trace::Writer::create(&folder.path().join("a.pft"), "test", &[], 3).unwrap();
    let root = writer.add_process(None);
    assert!(writer.push(root, &event).is_err());
}

#[test]
fn changes_that_a_header_promises_are_there_once() {
    let skip = |epoch| Event::Skip { epoch };
    let good = Crafted::new(&[&[&[skip(2)]], &[&[skip(1), skip(9)]]]);
    assert!(info(&good.write("good.pft", |header| header.processes[0].epochs = 2).path).is_ok());
    refused(&good.write("missing.pft", |header| header.processes[0].epochs = 3), "are missing");
    let many = good.write("many.pft", |header| header.processes[0].epochs = u64::MAX);
    refused(&many, "the header does not follow the format");
    let twice = Crafted::new(&[&[&[skip(2)]], &[&[skip(1), skip(2)]]]);
    refused(&twice.write("twice.pft", |header| header.processes[0].epochs = 2), "there twice");
}

#[test]
fn a_thread_is_started_once_and_where_it_belongs() {
    let (spawn, again) = (Event::call(Call::Spawn(1)), Event::call(Call::Spawn(0)));
    assert!(info(&Crafted::new(&[&[&[spawn]], &[&[run(1)]]]).write("good.pft", |_| {}).path).is_ok());
    let twice = "started twice";
    refused(&Crafted::new(&[&[&[spawn, spawn]], &[&[run(1)]]]).write("twice.pft", |_| {}), twice);
    refused(&Crafted::new(&[&[&[again]]]).write("again.pft", |_| {}), twice);
    refused(&Crafted::new(&[&[&[spawn]]]).write("nobody.pft", |_| {}), twice);
    let fork = Event::call(Call::Fork(0));
    refused(&Crafted::new(&[&[&[fork]]]).write("fork.pft", |_| {}), twice);
}

#[test]
fn numbers_of_the_header_can_be() {
    let crafted = Crafted::new(&[&[&[run(1)]]]);
    let malformed = "the header does not follow the format";
    refused(&crafted.write("footprint.pft", |header| header.footprint = u64::MAX), malformed);
    refused(&crafted.write("pages.pft", |header| header.data_pages = u64::MAX), malformed);
    let size = u64::MAX;
    let file = FileInfo { name: "a".into(), size, place: Place::Memory };
    refused(&crafted.write("file.pft", |header| header.files.push(file)), malformed);
    refused(&crafted.write("by.pft", |header| header.threads[0].started_by = Some(ThreadId(9))), malformed);
}

#[test]
fn what_unpacks_to_more_than_is_written_is_not_unpacked() {
    let crafted = Crafted::new(&[&[&[run(1)]]]);
    let large = "a frame is larger than any that is written";
    refused(&crafted.write("header.pft", |header| header.command = vec![String::new(); 3 << 20]), large);
    let one = vec![run(1); (1 << 20) + 200];
    let file = Crafted::new(&[&[&one]]).write("frame.pft", |_| {});
    refused(&file, large);
}

#[test]
fn of_many_threads_each_is_followed_to_its_end() {
    // More than keep their frames between windows; each in two frames that several windows end in.
    let pages = |thread: u64, frame: u64| -> Vec<Event> {
        (0..40).map(|page| run(thread << 20 | frame << 10 | page)).collect()
    };
    let events: Vec<[Vec<Event>; 2]> = (0..100).map(|thread| [pages(thread, 0), pages(thread, 1)]).collect();
    let frames: Vec<[&[Event]; 2]> = events.iter().map(|[a, b]| [&a[..], &b[..]]).collect();
    let threads: Vec<&[&[Event]]> = frames.iter().map(|frames| &frames[..]).collect();
    let file = Crafted::new(&threads).write("threads.pft", |_| {});
    let info = info(&file.path).unwrap();
    assert_eq!(info.runs, [8000, 0, 0]);
    assert_eq!(info.curve.last().unwrap().cumulative, 8000);
    assert!(info.curve.windows(2).all(|pair| pair[0].accesses < pair[1].accesses));
}
