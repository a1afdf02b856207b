//! A short run of every target, the same each time, and all previous findings.

use abi::{Call, Map, MapSource, Prot};
use fuzz::{Target, drive, exclusive, keep_findings};
use std::path::Path;
use trace::Writer;
use trace::event::Event;
use trace::header::Place;

/// Feed `runs` inputs. Some must be accepted, or changes leave nothing to read; some must be rejected, or
/// nothing is changed.
fn short(target: Target, runs: u64) {
    let _exclusive = exclusive();
    keep_findings(Path::new(env!("CARGO_TARGET_TMPDIR")).join("findings"));
    let tally = drive(target, 1, runs);
    println!("{}: {tally:?}", target.name());
    assert!(tally.accepted > runs / 50 && tally.rejected > runs / 50, "{tally:?}");
}

#[test]
fn containers() {
    short(Target::Container, 6000);
}

#[test]
fn replays() {
    short(Target::Replay, 500);
}

#[test]
fn imports() {
    short(Target::Imports, 10_000);
}

#[test]
fn machines() {
    short(Target::Machine, 10_000);
}

#[test]
fn options() {
    short(Target::Options, 3000);
}

#[test]
fn sweeps() {
    short(Target::Sweep, 3000);
}

/// A trace of a few bytes whose files have 2^40 each: it shows them, cuts them and makes them long again, and maps the
/// end of one. Feeding it checks what the run uses.
#[test]
fn length_of_a_file_costs_nothing() {
    const LONG: u64 = 1 << 40;
    let _exclusive = exclusive();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.pft");
    let mut writer = Writer::create(&path, "long", &["long".into()], 1).unwrap();
    writer.add_file("/tmp/data", LONG, Place::Regular);
    writer.add_file("/dev/shm/shared", LONG, Place::Memory);
    let root = writer.add_process(None);
    let mut epoch = 0..;
    let mut push = |event: Event| writer.push(root, &event).unwrap();
    for (fd, shared) in [(0, false), (1, true)] {
        let at = 0x5000_0000 << fd;
        let source = |offset| MapSource::File { fd, offset, shared };
        let map = |source, populate| Map {
            addr: Some(at),
            len: 1 << 20,
            prot: Prot::RW,
            source,
            populate,
            locked: false,
        };
        push(Event::mapped(epoch.next().unwrap(), at, map(source(0), true)));
        push(Event::change(epoch.next().unwrap(), Call::Ftruncate(fd, 1 << 13)));
        push(Event::change(epoch.next().unwrap(), Call::Ftruncate(fd, LONG)));
        push(Event::change(epoch.next().unwrap(), Call::Ftruncate(fd, LONG / 2)));
        push(Event::mapped(epoch.next().unwrap(), at, map(source(LONG / 2 - 4096), true)));
    }
    writer.finish().unwrap();
    assert!(Target::Replay.feed(&std::fs::read(&path).unwrap()), "the trace is valid");
}

#[test]
fn previous_findings_are_rejected() {
    let _exclusive = exclusive();
    for target in Target::ALL {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions").join(target.name());
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries {
            let file = entry.unwrap().path();
            println!("{}", file.display());
            assert!(!target.feed(&std::fs::read(&file).unwrap()), "{} is accepted", file.display());
        }
    }
}
