//! Other tools' recordings, imported and read back. The first byte of an input chooses the format.

use crate::{bytes, one_line, with_file, within};
use program::rng::Rng;
use trace::Reader;
use trace::import::{Format, Request, Settings, import};

/// Words to insert.
const WORDS: &[&str] = &[
    "I",
    " L",
    " S",
    " M",
    "==1==",
    "--",
    ",",
    ":",
    "4096",
    "4097",
    "0",
    "-1",
    "ffffffffffffffff",
    "1.0:",
    "read",
    "write",
    "ifetch",
    "byte(s)",
    "@",
    "0x10",
    "ro",
    "rw",
    "null",
    "\"8,192\"",
    "\"samples\"",
    "\"target_id\"",
    "\"snapshots\"",
    "{",
    "]",
    "damon:damon_aggregated:",
    "|OP STORE|",
];

const LACKEY: &str = "==12== Lackey, an example Valgrind tool
I  04001090,3
 S 1ffeffe78,8
 L 04222cac,8
 M 04222fff,1
I  04001ffe,4
--12-- done
";
const DAMON: &str = r#"[{"intervals": {"sample_us": "5000", "aggr_us": "40000"}, "target_id": 7, "snapshots": [
{"start_time": "1000", "end_time": "41000", "regions": [
{"start": "4,096", "end": "8,192", "nr_accesses": {"samples": 8, "percent": null}},
{"start": "81920", "end": "90112", "nr_accesses": {"samples": null, "percent": 50}}]}]}]"#;
const TRACEPOINT: &str =
    "kdamond.0 4452 [000] 1.1: damon:damon_aggregated: target_id=9 nr_regions=2 4096-8192: 20 0
kdamond.0 4452 [000] 1.1: damon:damon_aggregated: target_id=9 nr_regions=2 81920-90112: 1 3
kdamond.0 4452 [000] 1.2: damon:damon_aggregated: target_id=9 nr_regions=1 4096-8192: 0 1
";
const MASIM: &str = "a, 16384, none\nb, 8192, /dev/zero\n\np\n3\na, 0, 4096, 1, rw\nb, 1, 64, 5\n";
const PERF: &str = "ls 12/12 [003] 1.5: 100 cpu/mem-stores/P: 7f2b10a3d000
ls 12/13 2.5: ibs_op//: 7f2b10a3c0e8 88 |OP LOAD|LVL L1 hit
";
const VIEW: &str = "Output format:
 1 0: 7 <marker: version 5>
 2 1: 7 ifetch 8 byte(s) @ 0x401012 48 8d 34
 3 1: 8 write 8 byte(s) @ 0x7ffd1b2f6a88 by PC 0x401012
 2 1: 7 ifetch 8 byte(s) @ 0x401012 non-branch
";

/// Valid inputs to start from.
pub fn seeds() -> Vec<Vec<u8>> {
    let text = [
        (Format::Lackey, LACKEY),
        (Format::Lackey, " L ffffffffffffffff,1\n S 0,4096\n"),
        (Format::Damon, DAMON),
        (Format::Damon, TRACEPOINT),
        (Format::Masim, MASIM),
        (Format::Perf, PERF),
        (Format::Dynamorio, VIEW),
        (Format::Pages, "3\n*\n0x3\n10 2 0 1\n"),
    ];
    let text = text.map(|(format, text)| (format, text.as_bytes().to_vec()));
    let request = |seconds: u8, object: u8, bytes: u8, next: u64| {
        let mut out = vec![seconds, 0, 0, 0, object, 0, 0, 0, 0, 0, 0, 0, 7, bytes, 0, 0];
        out.extend(next.to_le_bytes());
        out
    };
    let oracle = [request(1, 5, 33, 2), request(1, 6, 0, u64::MAX), request(2, 5, 33, u64::MAX)].concat();
    let mut lcs = vec![0; 1024];
    for at in [0, 1016] {
        lcs[at..at + 8].copy_from_slice(&0x1234_5678_9abc_def0u64.to_le_bytes());
    }
    lcs[8] = 1;
    let champsim = [0x40_1000u64, 1, 0x7000, 0, 0x8000, 0, 0x9000, 0].map(u64::to_le_bytes).concat();
    let binary = [
        (Format::Libcachesim, oracle.clone()),
        (Format::Libcachesim, [lcs, oracle].concat()),
        (Format::Champsim, champsim.repeat(2)),
    ];
    text.into_iter()
        .chain(binary)
        .map(|(format, recording)| [vec![format as u8], recording].concat())
        .collect()
}

/// The format that the input chooses, and the recording.
fn parts(input: &[u8]) -> (Format, &[u8]) {
    let (&first, recording) = input.split_first().unwrap_or((&0, &[]));
    (Format::ALL[usize::from(first) % Format::ALL.len()], recording)
}

/// A changed copy of the input.
pub fn mutate(rng: &mut Rng, input: &[u8]) -> Vec<u8> {
    let (format, recording) = parts(input);
    let changed = match format {
        Format::Libcachesim | Format::Champsim => bytes::mutate(rng, recording),
        _ => bytes::mutate_text(rng, recording, WORDS),
    };
    let format = if rng.below(50) == 0 { rng.below(256) as u8 } else { format as u8 };
    [vec![format], changed].concat()
}

/// What importing `len` bytes may use: a full frame, sets of as many pages as are allowed here, and for each line a
/// thread, the mappings, and the footprint.
const fn memory(len: usize) -> usize {
    (8 << 20) + 256 * len
}

/// Import it. The result must be a valid trace.
pub fn feed(input: &[u8]) -> bool {
    let (format, recording) = parts(input);
    with_file("in.recording", recording, |path| {
        let output = path.with_extension("pft");
        let settings = Settings { most_pages: 4096, rate: 10, ..Settings::default() };
        let request = Request { format, input: path, output: &output, settings };
        // A configuration or a region of a few bytes can ask for any number of accesses: the caller ends them.
        let mut asked = 0;
        let mut go_on = || {
            asked += 1;
            asked < 2
        };
        match within(memory(input.len()), || import(&request, &mut go_on)) {
            Err(error) => {
                one_line(&error);
                false
            }
            Ok(header) => {
                let reader = Reader::open(&output).expect("an imported trace must be readable");
                reader.verify().expect("an imported trace must be valid");
                assert_eq!(reader.header(), &header);
                true
            }
        }
    })
}
