//! The container: what goes in comes out, and whatever is wrong with a file is found and located.

use std::path::Path;

use abi::{AccessKind, Advice, FileAdvice, Group, GroupLimits, Prot};
use proptest::prelude::*;
use trace::container::VERSION;
use trace::event::{Backing, Event, FileId, Run, ThreadId};
use trace::header::Place;
use trace::{Events, Reader, Source, TraceError, Unpacked, Writer};

fn run() -> impl Strategy<Value = Event> {
    let page = prop_oneof![0u64..64, any::<u64>().prop_map(|page| page >> 12)];
    let count = prop_oneof![1u32..20, 1u32..=u32::MAX];
    (page, count, 0usize..3)
        .prop_map(|(page, count, mode)| Event::Run(Run { page, count, mode: AccessKind::ALL[mode] }))
}

fn backing() -> impl Strategy<Value = Backing> {
    prop_oneof![
        Just(Backing::Anonymous),
        Just(Backing::AnonymousShared),
        (0u32..5, any::<u64>(), any::<bool>()).prop_map(|(file, offset, shared)| Backing::File {
            file: FileId(file),
            offset,
            shared
        }),
    ]
}

fn call() -> impl Strategy<Value = Event> {
    let (a, b, c, d, e) = (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>());
    let small = any::<u32>();
    prop_oneof![
        a.prop_map(|instructions| Event::Compute { instructions }),
        b.prop_map(|nanos| Event::Idle { nanos }),
        c.prop_map(|epoch| Event::Sync { epoch }),
        d.prop_map(|epoch| Event::Skip { epoch }),
        (any::<[u64; 3]>(), 0u8..8, backing(), any::<[bool; 3]>()).prop_map(
            |([epoch, addr, len], rights, backing, [populate, locked, replaces])| Event::Map {
                epoch,
                addr,
                len,
                rights: Prot::from_bits(rights.into()),
                backing,
                populate,
                locked,
                replaces,
            }
        ),
        any::<[u64; 3]>().prop_map(|[epoch, addr, len]| Event::Unmap { epoch, addr, len }),
        any::<[u64; 3]>().prop_map(|[epoch, addr, len]| Event::Protect {
            epoch,
            addr,
            len,
            rights: Prot::RX
        }),
        any::<[u64; 5]>().prop_map(|[epoch, addr, old_len, new_len, new_addr]| Event::Remap {
            epoch,
            addr,
            old_len,
            new_len,
            new_addr
        }),
        (e, 0usize..8).prop_map(|(addr, kind)| Event::Advise { addr, len: 9, advice: Advice::ALL[kind] }),
        any::<[u64; 2]>().prop_map(|[addr, len]| Event::Lock { addr, len }),
        any::<[u64; 2]>().prop_map(|[addr, len]| Event::Unlock { addr, len }),
        any::<[u64; 2]>().prop_map(|[addr, len]| Event::Msync { addr, len }),
        (any::<[u32; 2]>(), any::<[u64; 5]>(), any::<bool>()).prop_map(|([group, parent], limits, made)| {
            let [max, high, low, min, swap_max] = limits;
            let (group, limits) = (Group(group), GroupLimits { max, high, low, min, swap_max });
            match made {
                true => Event::GroupCreate { group, parent: Group(parent), limits },
                false => Event::GroupLimit { group, limits },
            }
        }),
        (0u32..3, any::<[u64; 2]>(), 0usize..6).prop_map(|(kind, [offset, len], advice)| {
            let file = FileId(kind);
            match kind {
                0 => Event::Read { file, offset, len },
                1 => Event::Write { file, offset, len },
                _ => Event::FileAdvise { file, offset, len, advice: FileAdvice::ALL[advice] },
            }
        }),
        (0u32..12, small, any::<[u64; 2]>()).prop_map(|(kind, number, [epoch, size])| {
            let (file, thread) = (FileId(number), ThreadId(number));
            match kind {
                0 => Event::Open { file },
                1 => Event::Close { file },
                2 => Event::Fsync { file },
                3 => Event::Truncate { epoch, file, size },
                4 => Event::Spawn { thread },
                5 => Event::Fork { epoch, thread },
                6 => Event::Join { thread },
                7 => Event::GroupEnter { group: Group(number) },
                8 => Event::GroupRemove { group: Group(number) },
                9 => Event::Mark,
                10 => Event::After { thread, mark: epoch },
                _ => Event::Exec,
            }
        }),
    ]
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    prop::collection::vec(prop_oneof![4 => run(), 1 => call()], 0..200)
}

/// Can it have happened, and is it no start of a thread, of which each trace has so many and no more, and no wait for a
/// mark, of which it must have as many? And is its file one of the two that there are?
fn kept(event: &Event) -> bool {
    event.possible()
        && event.file().is_none_or(|file| file.0 < 2)
        && !matches!(event, Event::Spawn { .. } | Event::Fork { .. } | Event::After { .. })
}

proptest! {
    #[test]
    fn blocks_round_trip(events in events()) {
        let mut encoder = trace::codec::Encoder::default();
        events.iter().for_each(|event| encoder.push(event));
        let mut block = Vec::new();
        encoder.finish(&mut block);
        let mut decoder = trace::codec::Decoder::new(&block).unwrap();
        for event in &events {
            prop_assert_eq!(decoder.next(&block), Ok(Some(*event)));
        }
        prop_assert_eq!(decoder.next(&block), Ok(None));
    }

    #[test]
    fn any_bytes_are_refused_or_decoded(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(mut decoder) = trace::codec::Decoder::new(&bytes) {
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
    let of_format = |format: u8| {
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[8] = format;
        std::fs::write(&path, bytes).unwrap();
        check(&path)
    };
    assert!([1, 2, 4, VERSION as u8].into_iter().all(|format| of_format(format).is_ok()));
    assert!([0, 3, 5, 6].into_iter().all(|none| matches!(of_format(none), Err(TraceError::Damaged { .. }))));
    let error = of_format(VERSION as u8 + 1).unwrap_err();
    assert!(matches!(error, TraceError::Newer { found, known: VERSION, .. } if found == VERSION + 1));
    assert!(error.to_string().contains("update pagefold"));
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
        [Event::Spawn { thread: other }, Event::Mark, Event::Mark]
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
