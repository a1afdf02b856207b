//! A short run of every target, the same each time, and all previous findings.

use fuzz::{Target, drive, exclusive, keep_findings};
use std::path::Path;

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
fn lackey_output() {
    short(Target::Lackey, 20_000);
}

#[test]
fn machines() {
    short(Target::Machine, 10_000);
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
