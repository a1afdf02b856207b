//! `import`: other tools' recordings run as what they say.

use super::*;
use std::io::Write;

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    /// Write a recording and import it with these options.
    fn import(&self, options: &str, recording: impl AsRef<[u8]>) -> String {
        fs::write(self.path("in"), recording).unwrap();
        let (input, output) = (self.path("in"), self.path("out.pft"));
        good(&format!("import --format {options} {input} -o {output}"));
        output
    }
}

const DAMON: &str =
    "kdamond.0 4452 [000] 1.1: damon:damon_aggregated: target_id=9 nr_regions=2 4096-1052672: 10 0
kdamond.0 4452 [000] 1.1: damon:damon_aggregated: target_id=9 nr_regions=2 8388608-8396800: 20 3
";

/// Per format: options, a recording, and the loads, stores, fetches and pages of the trace.
fn samples() -> Vec<(&'static str, Vec<u8>, [u64; 4])> {
    let lackey: String = (0..64)
        .map(|page| format!("I  0040{page:04x},4\n S {:08x},8\n L 00100000,8\n", 0x10_0000 + page * 4096))
        .collect();
    let view = " 1 1: 7 ifetch 4 byte(s) @ 0x401012 non-branch\n 2 1: 8 write 8 byte(s) @ 0x7ffd1b2f6a88\n";
    let oracle: Vec<u8> = [1u32, 5, 0, 8192, u32::MAX, u32::MAX].map(u32::to_le_bytes).concat();
    let champsim = [0x40_1000u64, 0, 0x7000, 0, 0x8000, 0, 0x9000, 0].map(u64::to_le_bytes).concat();
    vec![
        ("lackey", lackey.into(), [64, 64, 64, 65]),
        ("damon", DAMON.into(), [256 * 10 + 2 * 20, 258, 0, 258]),
        ("masim --rate 8", b"a, 65536\n\np\n4\na, 0, 4096, 1, rw\n".to_vec(), [32, 32 + 16, 0, 16]),
        ("perf", b"ls 12/13 1.0: cycles: 1000\nls 12/14 1.1: mem-stores: 2000\n".to_vec(), [1, 2, 0, 2]),
        ("dynamorio", view.into(), [0, 1, 1, 2]),
        ("libcachesim", oracle, [2, 0, 0, 2]),
        ("champsim", champsim, [2, 1, 1, 4]),
        ("pages --pages file", b"3\n3\n10 2 0 1\n".to_vec(), [4, 0, 0, 3]),
        ("pages", b"3\n3\n10 2 0 1\n".to_vec(), [4, 3, 0, 3]),
    ]
}

#[test]
fn an_imported_recording_runs_as_it_says() {
    let place = Place::new();
    for (options, recording, [loads, stores, fetches, pages]) in samples() {
        let trace = place.import(options, recording);
        let info = good_json(&format!("info {trace} --json"));
        let totals = ["loads", "stores", "fetches"].map(|key| info["totals"][key].as_u64().unwrap());
        assert_eq!(totals, [loads, stores, fetches], "{options}");
        assert_eq!(info["footprint"], pages * 4096, "{options}");
        let run = good_json(&format!("run {trace} --machine small --verify --quiet --json"));
        assert_eq!(run["accesses"], loads + stores + fetches, "{options}");
        assert!(good(&format!("run {trace} --machine small --quiet")).contains("run_time"), "{options}");
    }
}

#[test]
fn times_of_a_recording_are_slept() {
    let place = Place::new();
    let millis = |options: &str| {
        let trace = place.import(options, DAMON);
        good_json(&format!("info {trace} --json"))["totals"]["idle_nanos"].as_u64().unwrap() / 1_000_000
    };
    assert_eq!((millis("damon"), millis("damon --no-times")), (100, 0));
}

#[test]
fn wrong_recordings_are_refused_by_file_and_place() {
    let place = Place::new();
    fs::write(place.path("in"), "1\n2\nx\n").unwrap();
    fs::write(place.path("out.pft"), "what was there").unwrap();
    let (input, output) = (place.path("in"), place.path("out.pft"));
    let import = |format: &str| bad(&["import", "--format", format, &input, "-o", &output]);
    assert!(import("pages").contains("in:3: expected a page number"));
    assert!(import("damon").contains("in:1: expected a line of damon_aggregated"));
    assert!(import("champsim").contains("in: at byte 0: it ends after 6 of the 64 bytes of a record"));
    assert!(import("paegs").contains("pages"));
    assert!(bad(&["import", "--format", "masim", "--rate", "0", &input, "-o", &output]).contains("--rate"));
    assert_eq!(fs::read(&output).unwrap(), b"what was there");
    assert_eq!(fs::read_dir(place.0.path()).unwrap().count(), 2);
}

#[test]
fn an_interrupted_import_leaves_no_trace() {
    let place = Place::new();
    let output = place.path("out.pft");
    let mut child = command()
        .args(["import", "--format", "pages", "-", "-o", &output])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"1\n2\n").unwrap();
    wait_until_it_catches_interrupts(&child);
    interrupt(&child);
    // The signal comes before the end of the input does.
    drop(stdin);
    let ended = child.wait_with_output().unwrap();
    assert_eq!(
        (ended.status.code(), stderr(&ended).trim()),
        (Some(130), "pagefold: interrupted; nothing was written")
    );
    assert_eq!(fs::read_dir(place.0.path()).unwrap().count(), 0);
}
