//! The container: what goes in comes out, and whatever is wrong with a file is found and located.

use std::path::Path;

use abi::{
    AccessKind, Advice, Buffer, Call, FileAdvice, Group, GroupLimits, Map, MapSource, Prot, Remap, Text,
};
use pagefold_trace::container::VERSION;
use pagefold_trace::event::{Event, FileId, Packed, Run, ThreadId};
use pagefold_trace::header::Place;
use pagefold_trace::{Events, Reader, Source, TraceError, Unpacked, Writer};
use proptest::prelude::*;

fn run() -> impl Strategy<Value = Event> {
    let page = prop_oneof![0u64..64, any::<u64>().prop_map(|page| page >> 12)];
    let count = prop_oneof![1u32..20, 1u32..=u32::MAX];
    (page, count, 0usize..3)
        .prop_map(|(page, count, mode)| Event::Run(Run { page, count, mode: AccessKind::ALL[mode] }))
}

fn source() -> impl Strategy<Value = MapSource> {
    prop_oneof![
        Just(MapSource::Anonymous),
        Just(MapSource::AnonymousShared),
        (0u32..5, any::<u64>(), any::<bool>()).prop_map(|(fd, offset, shared)| MapSource::File {
            fd,
            offset,
            shared
        }),
    ]
}

fn map() -> impl Strategy<Value = Call<'static>> {
    (any::<[u64; 2]>(), 0u64..8, source(), any::<[bool; 3]>()).prop_map(
        |([addr, len], prot, source, [populate, locked, replaces])| {
            let (addr, prot) = (replaces.then_some(addr), Prot::from_bits(prot));
            Call::Mmap(Map { addr, len, prot, source, populate, locked })
        },
    )
}

fn call() -> impl Strategy<Value = Call<'static>> {
    let words = || any::<[u64; 2]>();
    prop_oneof![
        map(),
        words().prop_map(|[addr, len]| Call::Munmap(addr, len)),
        words().prop_map(|[addr, len]| Call::Mprotect(addr, len, Prot::RX)),
        (any::<[u64; 3]>(), any::<bool>()).prop_map(|([addr, old_len, new_len], may_move)| {
            Call::Mremap(Remap { addr, old_len, new_len, may_move, fixed: None })
        }),
        (any::<u64>(), 0usize..8).prop_map(|(addr, kind)| Call::Madvise(addr, 9, Advice::ALL[kind])),
        words().prop_map(|[addr, len]| Call::Mlock(addr, len)),
        words().prop_map(|[addr, len]| Call::Munlock(addr, len)),
        words().prop_map(|[addr, len]| Call::Msync(addr, len)),
        (any::<[u32; 2]>(), any::<[u64; 5]>(), any::<bool>()).prop_map(|([group, parent], limits, made)| {
            let [max, high, low, min, swap_max] = limits;
            let limits = GroupLimits { max, high, low, min, swap_max };
            if made {
                Call::GroupCreate(Group(parent), limits)
            } else {
                Call::GroupLimit(Group(group), limits)
            }
        }),
        (0u32..3, words(), 0usize..6).prop_map(|(fd, [offset, len], advice)| match fd {
            0 => Call::Pread(fd, Buffer::anywhere(len), offset),
            1 => Call::Pwrite(fd, Buffer::anywhere(len), offset),
            _ => Call::Fadvise(fd, offset, len, FileAdvice::ALL[advice]),
        }),
        (0u32..9, any::<u32>(), any::<u64>()).prop_map(|(kind, number, size)| match kind {
            0 => Call::Open(Text::At(Buffer::anywhere(0)), 0, false, true),
            1 => Call::Close(number),
            2 => Call::Fsync(number),
            3 => Call::Ftruncate(number, size),
            4 => Call::Spawn(number),
            5 => Call::Fork(number),
            6 => Call::Join(number),
            7 => Call::GroupEnter(Group(number)),
            _ => Call::GroupRemove(Group(number)),
        }),
    ]
}

fn other() -> impl Strategy<Value = Event> {
    let number = any::<u64>;
    prop_oneof![
        1 => number().prop_map(|instructions| Event::Compute { instructions }),
        1 => number().prop_map(|nanos| Event::Idle { nanos }),
        1 => number().prop_map(|epoch| Event::Sync { epoch }),
        1 => number().prop_map(|epoch| Event::Skip { epoch }),
        12 => (number(), call(), number()).prop_map(|(epoch, call, value)| Event::Call { epoch, call, value }),
        1 => Just(Event::Mark),
        1 => (any::<u32>(), number())
            .prop_map(|(thread, mark)| Event::After { thread: ThreadId(thread), mark }),
        1 => Just(Event::Exec),
        1 => (number(), any::<[u8; 2]>())
            .prop_map(|(page, [lz4, zstd])| Event::Content { page, packed: Packed { lz4, zstd } }),
    ]
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    prop::collection::vec(prop_oneof![4 => run(), 1 => other()], 0..200)
}

/// Whether the event is possible, names one of the two files, and neither starts a thread, as a trace has a fixed
/// number of them, nor waits for a mark, which the trace must have.
fn kept(event: &Event) -> bool {
    event.possible()
        && event.file().is_none_or(|file| file.0 < 2)
        && event.starts().is_none()
        && !matches!(event, Event::After { .. })
}

proptest! {
    #[test]
    fn blocks_round_trip(events in events()) {
        let mut encoder = pagefold_trace::codec::Encoder::default();
        events.iter().for_each(|event| encoder.push(event));
        let mut block = Vec::new();
        encoder.finish(&mut block);
        let mut decoder = pagefold_trace::codec::Decoder::new(&block).unwrap();
        for event in &events {
            prop_assert_eq!(decoder.next(&block), Ok(Some(*event)));
        }
        prop_assert_eq!(decoder.next(&block), Ok(None));
    }

    #[test]
    fn any_bytes_are_refused_or_decoded(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(mut decoder) = pagefold_trace::codec::Decoder::new(&bytes) {
            while let Ok(Some(_)) = decoder.next(&bytes) {}
        }
    }

    #[test]
    fn files_round_trip(first in events(), second in events(), third in events()) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pft");
        let streams: Vec<Vec<Event>> =
            [first, second, third].map(|list| list.into_iter().filter(kept).collect()).into();
        let mut writer = Writer::create(&path, "test", &["a b".into(), "c".into()], 3).unwrap();
        writer.add_file("/home/me/secret/data.db", 12345, Place::Regular);
        writer.add_file("/tmp/data.db", 1, Place::Memory);
        let root = writer.add_process(None);
        let thread = writer.add_thread(root);
        let child = writer.add_process(Some(thread));
        let longest = streams.iter().map(Vec::len).max().unwrap_or(0);
        for at in 0..longest {
            for (id, stream) in [root, thread, child].into_iter().zip(&streams) {
                if let Some(event) = stream.get(at) {
                    writer.push(id, event).unwrap();
                }
            }
        }
        let header = writer.finish().unwrap();
        let reader = Reader::open(&path).unwrap();
        prop_assert_eq!(reader.header(), &header);
        reader.verify().unwrap();
        prop_assert_eq!(&header.command, &["a b", "c"]);
        prop_assert_eq!(&header.files[0].name, "data.db");
        prop_assert_eq!(&header.files[1].name, "data.db#2");
        prop_assert_eq!(header.processes[1].forked_by, Some(thread));
        let image = reader.unpack().unwrap();
        let unpacked = Unpacked::new(&image).unwrap();
        for (id, stream) in [root, thread, child].into_iter().zip(&streams) {
            let back: Vec<Event> = reader.stream(id).map(Result::unwrap).collect();
            prop_assert_eq!(&back, stream);
            prop_assert_eq!(&events_of(&unpacked, id), stream);
        }
        // A guest must know what pages hold before it fills them.
        for process in 0..header.processes.len() as u32 {
            prop_assert!(unpacked.first_contents(process).eq(reader.first_contents(process)));
        }
    }
}

fn events_of(trace: &impl Source, thread: ThreadId) -> Vec<Event> {
    let mut stream = trace.stream(thread);
    let next = || stream.next_event().map_err(|error| error.to_string()).unwrap();
    std::iter::from_fn(next).collect()
}

/// A small trace of two threads with several frames.
fn sample(path: &Path) {
    let mut writer = Writer::create(path, "test", &["sample".into()], 3).unwrap();
    let root = writer.add_process(None);
    let other = writer.add_thread(root);
    for at in 0..500u64 {
        let page = at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let run = Event::Run(Run { page, count: at as u32 + 1, mode: AccessKind::Store });
        writer.push(if at % 3 == 0 { other } else { root }, &run).unwrap();
    }
    writer.finish().unwrap();
}

fn check(path: &Path) -> Result<(), TraceError> {
    Reader::open(path)?.verify()
}

#[test]
fn every_truncation_is_reported_with_its_position() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, cut) = (folder.path().join("whole.pft"), folder.path().join("cut.pft"));
    sample(&whole);
    let bytes = std::fs::read(&whole).unwrap();
    check(&whole).unwrap();
    for length in 1..bytes.len() {
        std::fs::write(&cut, &bytes[..length]).unwrap();
        let error = check(&cut).unwrap_err();
        match &error {
            TraceError::Truncated { at, .. } => assert_eq!(*at, length as u64),
            other => panic!("cut at {length}: {other}"),
        }
        let line = error.to_string();
        assert!(
            line.contains("cut.pft") && line.contains(&format!("byte {length},")) && !line.contains('\n')
        );
    }
}

/// The new file takes the name of the old one, so what has it must be a file; a link to one stays.
#[test]
fn only_a_regular_file_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let refused = |path: &Path| {
        let error = Writer::create(path, "test", &[], 3).err().expect("it is refused").to_string();
        assert!(error.starts_with(path.to_str().unwrap()), "{error}");
        error
    };
    assert!(refused(Path::new("/dev/null")).contains("not a regular file"));
    assert!(refused(folder.path()).contains("directory"));
    std::os::unix::fs::symlink(at("nowhere"), at("dangling")).unwrap();
    assert!(refused(&at("dangling")).contains("leads nowhere"));
    std::fs::write(at("old.pft"), "old").unwrap();
    std::os::unix::fs::symlink(at("old.pft"), at("link.pft")).unwrap();
    let mut writer = Writer::create(&at("link.pft"), "test", &["sample".into()], 3).unwrap();
    writer.add_process(None);
    writer.finish().unwrap();
    assert!(std::fs::symlink_metadata(at("link.pft")).unwrap().is_symlink());
    assert!(std::fs::metadata(at("old.pft")).unwrap().len() > 3);
}

#[test]
fn every_truncated_image_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.pft");
    sample(&path);
    let image = Reader::open(&path).unwrap().unpack().unwrap();
    assert!(Unpacked::new(&image).is_ok());
    for length in 0..image.len() {
        assert!(Unpacked::new(&image[..length]).is_err(), "{length} bytes");
    }
}

#[test]
fn every_flipped_bit_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, bad) = (folder.path().join("whole.pft"), folder.path().join("bad.pft"));
    sample(&whole);
    let bytes = std::fs::read(&whole).unwrap();
    for at in 0..bytes.len() {
        let mut copy = bytes.clone();
        copy[at] ^= 1 << (at % 8);
        std::fs::write(&bad, &copy).unwrap();
        let error = check(&bad).expect_err("a flipped bit went unnoticed");
        if let TraceError::Damaged { at: reported, .. } = error {
            assert!(reported <= at as u64, "flip at {at} reported at {reported}");
        }
    }
}

/// A block as it was written before format 8: each call has a code, and fields of its own.
#[test]
fn calls_of_older_formats_are_read() {
    let limits = [5, 6, 7, 8, 9];
    let group_limits = GroupLimits { max: 5, high: 6, low: 7, min: 8, swap_max: 9 };
    let file = MapSource::File { fd: 3, offset: 4096, shared: true };
    let map = Map { addr: Some(8192), source: file, locked: true, ..Map::anonymous(4096) };
    let remap = Remap { addr: 1, old_len: 2, new_len: 3, may_move: true, fixed: None };
    let made = Call::GroupCreate(Group(1), group_limits);
    let cases: [(u8, Vec<u64>, Event); 23] = [
        (4, vec![2, 8192, 4096, 0b1111_0011, 3, 4096], Event::mapped(2, 8192, map)),
        (4, vec![2, 8192, 4096, 0b0000_0011, 0, 0], Event::mapped(2, 8192, Map::anonymous(4096))),
        (5, vec![3, 1, 2], Event::change(3, Call::Munmap(1, 2))),
        (6, vec![3, 1, 2, 5], Event::change(3, Call::Mprotect(1, 2, Prot::RX))),
        (7, vec![3, 1, 2, 3, 4], Event::Call { epoch: 3, call: Call::Mremap(remap), value: 4 }),
        (8, vec![1, 2, 5], Event::call(Call::Madvise(1, 2, Advice::Free))),
        (9, vec![1, 2], Event::call(Call::Mlock(1, 2))),
        (10, vec![1, 2], Event::call(Call::Munlock(1, 2))),
        (11, vec![1, 2], Event::call(Call::Msync(1, 2))),
        (12, vec![7], Event::opened(FileId(7))),
        (13, vec![7], Event::call(Call::Close(7))),
        (14, vec![7, 1, 2], Event::call(Call::Pread(7, Buffer::anywhere(2), 1))),
        (15, vec![7, 1, 2], Event::call(Call::Pwrite(7, Buffer::anywhere(2), 1))),
        (16, vec![7], Event::call(Call::Fsync(7))),
        (17, vec![3, 7, 1], Event::change(3, Call::Ftruncate(7, 1))),
        (18, vec![7, 1, 2, 5], Event::call(Call::Fadvise(7, 1, 2, FileAdvice::NoReuse))),
        (19, vec![7], Event::call(Call::Spawn(7))),
        (20, vec![3, 7], Event::change(3, Call::Fork(7))),
        (21, vec![7], Event::call(Call::Join(7))),
        (23, [&[4, 1], &limits[..]].concat(), Event::Call { epoch: 0, call: made, value: 4 }),
        (24, [&[4], &limits[..]].concat(), Event::call(Call::GroupLimit(Group(4), group_limits))),
        (25, vec![4], Event::call(Call::GroupEnter(Group(4)))),
        (26, vec![4], Event::call(Call::GroupRemove(Group(4)))),
    ];
    for (code, fields, expected) in cases {
        let mut block = vec![1, 0, 3 | code << 2];
        fields.iter().for_each(|&field| pagefold_trace::codec::put_varint(&mut block, field));
        let mut decoder = pagefold_trace::codec::Decoder::new(&block).unwrap();
        assert_eq!(decoder.next(&block), Ok(Some(expected)), "code {code}");
    }
}

/// Check a trace whose preamble says this format from now on.
fn check_as(path: &Path, format: u8) -> Result<(), TraceError> {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[8] = format;
    std::fs::write(path, bytes).unwrap();
    check(path)
}

#[test]
fn other_files_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.pft");
    for content in [&b""[..], b"hello", b"\x7fELF\x02\x01\x01\0 and so on, longer than a preamble"] {
        std::fs::write(&path, content).unwrap();
        assert!(matches!(check(&path), Err(TraceError::NotATrace { .. })), "{content:?}");
    }
    assert!(matches!(check(folder.path()), Err(TraceError::NotATrace { .. })));
    let missing = check(&folder.path().join("none.pft")).unwrap_err().to_string();
    assert!(missing.contains("none.pft: cannot open"), "{missing}");
    sample(&path);
    let of_format = |format| check_as(&path, format);
    assert!(of_format(VERSION as u8).is_ok());
    assert!(
        [0, 3, 5, 6, 9, 10]
            .into_iter()
            .all(|none| matches!(of_format(none), Err(TraceError::Damaged { .. })))
    );
    let error = of_format(VERSION as u8 + 1).unwrap_err();
    assert!(matches!(error, TraceError::Newer { found, known: VERSION, .. } if found == VERSION + 1));
    assert!(error.to_string().contains("update pagefold"));
}

#[test]
fn format_is_not_older_than_its_events() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.pft");
    let near = Event::Run(Run { page: 1, count: 1, mode: AccessKind::Load });
    let far = Event::Run(Run { page: 77, count: 1, mode: AccessKind::Load });
    let content = Event::Content { page: 77, packed: Packed::SAME };
    for (event, oldest) in [(near, 1), (Event::Mark, 7), (far, 11), (content, 11)] {
        let mut writer = Writer::create(&path, "test", &[], 3).unwrap();
        let root = writer.add_process(None);
        writer.push(root, &event).unwrap();
        writer.finish().unwrap();
        let of_format = |format| check_as(&path, format);
        for format in [1, 2, 4, 7, 8, VERSION as u8] {
            match of_format(format) {
                Ok(()) => assert!(format >= oldest, "{event:?} in {format}"),
                Err(error) => {
                    assert!(format < oldest, "{event:?} in {format}: {error}");
                    let error = error.to_string();
                    assert!(error.contains("at byte 8: its events are of a newer format"), "{error}");
                }
            }
        }
    }
}

/// A block as it was written before format 11: each page has its distance to the last one of the same mode.
#[test]
fn pages_of_older_formats_are_read() {
    let block = [2, 3, 1 << 2, 1 << 2, 154, 1, 9];
    let mut decoder = pagefold_trace::codec::Decoder::new(&block).unwrap();
    for page in [77, 72] {
        let run = Run { page, count: 1, mode: AccessKind::Load };
        assert_eq!(decoder.next(&block), Ok(Some(Event::Run(run))));
    }
}

/// A page costs a byte when it comes again, wherever the one before was.
#[test]
fn a_block_names_its_pages_by_number() {
    let mut encoder = pagefold_trace::codec::Encoder::default();
    let pages = [1 << 30, 7, 1 << 30, 1 << 20, 7, 1 << 30];
    let runs = pages.map(|page| Event::Run(Run { page, count: 1, mode: AccessKind::Load }));
    let mut lengths = Vec::new();
    for run in &runs {
        encoder.push(run);
        lengths.push(encoder.len());
    }
    let mut block = Vec::new();
    encoder.finish(&mut block);
    let mut decoder = pagefold_trace::codec::Decoder::new(&block).unwrap();
    for (at, run) in runs.iter().enumerate() {
        if at > 2 {
            decoder.rest();
            decoder.wake(&block).unwrap();
        }
        assert_eq!(decoder.next(&block), Ok(Some(*run)));
    }
    let cost: Vec<usize> = lengths.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!([cost[1], cost[3], cost[4]], [2; 3], "an op and a number: {cost:?}");
}

#[test]
fn a_dropped_writer_leaves_what_was_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.pft");
    std::fs::write(&path, "precious").unwrap();
    let mut writer = Writer::create(&path, "test", &[], 3).unwrap();
    let root = writer.add_process(None);
    writer.push(root, &Event::Exec).unwrap();
    drop(writer);
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    let error = Writer::create(&folder.path().join("no/such/x.pft"), "test", &[], 3).err().unwrap();
    assert!(error.to_string().contains("no/such/x.pft"), "{error}");
}

#[test]
fn long_threads_have_many_frames_and_a_bounded_reader() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.pft");
    let mut writer = Writer::create(&path, "test", &[], 1).unwrap();
    let root = writer.add_process(None);
    let event = |at: u64| Event::Run(Run { page: at * 7919 % 100_003, count: 9, mode: AccessKind::Load });
    for at in 0..1_000_000 {
        writer.push(root, &event(at)).unwrap();
    }
    let header = writer.finish().unwrap();
    assert!(header.threads[0].frames.len() > 3);
    assert_eq!(header.footprint, 100_003 * 4096);
    let reader = Reader::open(&path).unwrap();
    assert!(reader.stream(root).enumerate().all(|(at, got)| got.unwrap() == event(at as u64)));
    assert_eq!(reader.stream(ThreadId(7)).count(), 0);
    let image = reader.unpack().unwrap();
    let unpacked = Unpacked::new(&image).unwrap();
    assert!(events_of(&unpacked, root).into_iter().enumerate().all(|(at, got)| got == event(at as u64)));
    assert!(events_of(&unpacked, ThreadId(7)).is_empty());
}

#[test]
fn a_wait_for_a_mark_that_is_not_there_is_damage() {
    let folder = tempfile::tempdir().unwrap();
    let verified = |mark: u64, of: u32| {
        let path = folder.path().join("marks.pft");
        let mut writer = Writer::create(&path, "test", &[], 3).unwrap();
        let root = writer.add_process(None);
        let other = writer.add_thread(root);
        [Event::call(Call::Spawn(other.0)), Event::Mark, Event::Mark]
            .iter()
            .for_each(|event| writer.push(root, event).unwrap());
        writer.push(other, &Event::After { thread: ThreadId(of), mark }).unwrap();
        writer.finish().unwrap();
        check(&path)
    };
    assert!(verified(2, 0).is_ok());
    for (mark, of, why) in [(3, 0, "for a mark that never comes"), (1, 2, "for one that is not there")] {
        let error = verified(mark, of).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}
