//! A short run of every target, the same each time, and what was found once.

use fuzz::{Target, alone, drive, keep_findings};
use std::path::Path;

/// Feed so many inputs. Some must be taken, or the changes leave nothing to read; some refused, or nothing is changed.
fn short(target: Target, runs: u64) {
    let _alone = alone();
    keep_findings(Path::new(env!("CARGO_TARGET_TMPDIR")).join("findings"));
    let tally = drive(target, 1, runs);
    println!("{}: {tally:?}", target.name());
    assert!(tally.taken > runs / 50 && tally.refused > runs / 50, "{tally:?}");
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
fn lackeys_output() {
    short(Target::Lackey, 20_000);
}

#[test]
fn machines() {
    short(Target::Machine, 10_000);
}

#[test]
fn what_was_found_once_is_refused() {
    let _alone = alone();
    for target in Target::ALL {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions").join(target.name());
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries {
            let file = entry.unwrap().path();
            println!("{}", file.display());
            assert!(!target.feed(&std::fs::read(&file).unwrap()), "{} is taken", file.display());
        }
    }
}
