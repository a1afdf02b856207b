//! Imports: what a recording of another tool says is what the trace has.

use abi::{AccessKind, Call, MapSource, Prot};
use pagefold_trace::event::{Event, Run, ThreadId};
use pagefold_trace::import::{Backing, Format, ImportError, Request, Settings, import};
use pagefold_trace::{Header, Reader};
use std::io::Write;
use std::path::PathBuf;

const PAGE: u64 = 4096;
const MS: u64 = 1_000_000;
use AccessKind::{Fetch, Load, Store};

/// A folder with a recording.
struct Place {
    folder: tempfile::TempDir,
    format: Format,
    settings: Settings,
}

impl Place {
    fn new(format: Format, recording: impl AsRef<[u8]>) -> Place {
        let place = Place { folder: tempfile::tempdir().unwrap(), format, settings: Settings::default() };
        std::fs::write(place.path("in.rec"), recording).unwrap();
        place
    }

    fn with(mut self, change: impl FnOnce(&mut Settings)) -> Place {
        change(&mut self.settings);
        self
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn import(&self) -> Result<Header, ImportError> {
        let (input, output) = (self.path("in.rec"), self.path("out.pft"));
        let request =
            Request { format: self.format, input: &input, output: &output, settings: self.settings };
        import(&request, &mut || true)
    }

    fn trace(&self) -> Trace {
        let header = self.import().unwrap();
        let reader = Reader::open(&self.path("out.pft")).unwrap();
        reader.verify().unwrap();
        assert_eq!(reader.header(), &header);
        let threads = (0..header.threads.len() as u32).map(ThreadId);
        let threads = threads.map(|id| reader.stream(id).map(Result::unwrap).collect()).collect();
        Trace { header, threads }
    }

    /// The message of an import that must fail, and that no file is left.
    fn refused(&self) -> String {
        std::fs::write(self.path("out.pft"), "what was there").unwrap();
        let text = self.import().unwrap_err().to_string();
        assert!(!text.contains('\n') && text.len() < 400, "{text}");
        assert_eq!(std::fs::read(self.path("out.pft")).unwrap(), b"what was there");
        assert_eq!(std::fs::read_dir(self.folder.path()).unwrap().count(), 2, "no other file is left");
        text
    }
}

struct Trace {
    header: Header,
    threads: Vec<Vec<Event>>,
}

impl Trace {
    fn of(format: Format, recording: impl AsRef<[u8]>) -> Trace {
        Place::new(format, recording).trace()
    }

    /// Runs of a thread as page, count, mode.
    fn runs(&self, thread: usize) -> Vec<(u64, u32, AccessKind)> {
        let run = |event: &Event| match *event {
            Event::Run(Run { page, count, mode }) => Some((page, count, mode)),
            _ => None,
        };
        self.threads[thread].iter().filter_map(run).collect()
    }

    /// What a thread does but for the mappings: runs, and pauses as (0, milliseconds).
    fn paced(&self, thread: usize) -> Vec<(u64, u64)> {
        let step = |event: &Event| match *event {
            Event::Run(Run { page, count, .. }) => Some((page, u64::from(count))),
            Event::Idle { nanos } => Some((0, nanos / MS)),
            _ => None,
        };
        self.threads[thread].iter().filter_map(step).collect()
    }

    /// Mappings as first page, pages, rights, and for files whether they are shared.
    fn maps(&self) -> Vec<(u64, u64, Prot, Option<bool>)> {
        let map = |event: &Event| match *event {
            Event::Call { call: Call::Mmap(map), value, .. } => {
                let shared = match map.source {
                    MapSource::File { shared, .. } => Some(shared),
                    _ => None,
                };
                Some((value / PAGE, map.len / PAGE, map.prot, shared))
            }
            _ => None,
        };
        self.threads[0].iter().filter_map(map).collect()
    }
}

/// Every format refuses these.
fn refuse(format: Format, cases: &[(&str, &str)]) {
    for (recording, message) in cases {
        let text = Place::new(format, recording).refused();
        assert!(text.contains(message), "{recording:?}: {text}");
    }
}

const LACKEY: &str = "==12== Lackey, an example Valgrind tool
I  04001090,3
I  04001093,5
 S 1ffeffe78,8
I  04001ffe,4
 L 04222cac,8
 M 04222fff,1
 L 05000000,4
==12== done
";

#[test]
fn lines_of_lackey_become_maps_and_runs() {
    let trace = Trace::of(Format::Lackey, LACKEY);
    let code = Prot::READ | Prot::EXEC;
    let expected = [
        (0x4001, 2, code, Some(false)),
        (0x4222, 1, Prot::RW, None),
        (0x5000, 1, Prot::READ, Some(false)),
        (0x1f_feff, 1, Prot::RW, None),
    ];
    assert_eq!(trace.maps(), expected);
    let expected = [
        (0x4001, 2, Fetch),
        (0x1f_feff, 1, Store),
        (0x4001, 1, Fetch),
        (0x4002, 1, Fetch),
        (0x4222, 2, Load),
        (0x4222, 1, Store),
        (0x5000, 1, Load),
    ];
    assert_eq!(trace.runs(0), expected);
    let header = &trace.header;
    assert_eq!((header.data_pages, header.file_pages, header.counts().instructions), (2, 3, 3));
    assert_eq!((header.files[0].name.as_str(), header.files[0].size), ("in.rec", 3 * PAGE));
    assert_eq!(trace.threads[0].last(), Some(&Event::Compute { instructions: 3 }));
}

#[test]
fn a_wrong_line_of_lackey_is_named() {
    for bad in ["I 04001090", " L xyz,8", " L 10,0", " Q 10,8", "hello", " L 10,8,9", "\u{fffd}"] {
        let text = Place::new(Format::Lackey, format!("{LACKEY}{bad}\n")).refused();
        assert!(text.contains("in.rec:10: expected a line of lackey's like"), "{text}");
    }
    let long = "x".repeat(10_000);
    let text =
        Place::new(Format::Lackey, format!("{LACKEY}==12== {long}\n--12-- {long}\n L {long}")).refused();
    assert!(text.contains("in.rec:12: expected a line of lackey's"), "{text}");
    refuse(Format::Lackey, &[("==1== nothing\n", "in.rec: no accesses in it; make it with valgrind")]);
}

#[test]
fn accesses_beyond_the_half_of_programs_are_left_out_and_told() {
    let trace = Trace::of(Format::Lackey, " L ffffffffff600000,8\n S 7ffffffffff8,8\n L 7ffffffffff8,9\n");
    assert_eq!(trace.runs(0), [(0x7_ffff_ffff, 1, Store)]);
    assert_eq!(
        trace.header.warnings,
        ["2 accesses beyond the program's half of the address space were left out"]
    );
}

const DAMON: &str = r#"[{"kdamond_idx": 0, "context_idx": 0,
  "intervals": {"sample_us": "5000", "aggr_us": "40000", "ops_update_us": "1000000"},
  "scheme_idx": null, "target_id": 7, "scheme_filters": [],
  "snapshots": [
    {"start_time": "1000000000", "end_time": "1040000000", "total_bytes": null, "regions": [
      {"start": "4,096,000", "end": "4,104,192", "nr_accesses": {"samples": 8, "percent": null}, "age": {"usec": null}},
      {"start": "8,192,000", "end": "8,224,768", "nr_accesses": {"samples": 2, "percent": null}, "age": {}},
      {"start": "9,000,960", "end": "9,216,000", "nr_accesses": {"samples": 0, "percent": null}, "age": {}}]},
    {"start_time": "1060000000", "end_time": "1100000000", "regions": [
      {"start": 4096000, "end": 4100096, "nr_accesses": {"samples": null, "percent": 50}, "age": {}}]}]}]"#;

/// How often a page is loaded.
fn loads(trace: &Trace, page: u64) -> u64 {
    trace.runs(0).iter().filter(|run| run.0 == page && run.2 == Load).map(|run| u64::from(run.1)).sum()
}

#[test]
fn each_page_of_a_region_is_loaded_as_often_as_damon_found_the_region_accessed() {
    let trace = Trace::of(Format::Damon, DAMON);
    assert_eq!((loads(&trace, 1000), loads(&trace, 1001)), (8 + 4, 8));
    assert!((2000..2008).all(|page| loads(&trace, page) == 2));
    // The region of eight pages has one of them in each of the eight ticks.
    let steps = trace.paced(0);
    let ticks =
        steps.split(|step| step.0 == 0).map(|tick| tick.iter().filter(|step| (2000..2008).contains(&step.0)));
    assert!(ticks.take(8).all(|tick| tick.map(|step| step.1).eq([1, 2])), "{steps:?}");
    let counts = trace.header.counts();
    // Each page is written before it is first read.
    assert_eq!((counts.loads, counts.stores, trace.header.data_pages), (20 + 16, 10, 10));
    assert_eq!(counts.idle_nanos, 100 * MS);
    // 8 ticks of 5 ms, then 20 ms in which DAMON did not look, then 8 ticks.
    let pauses: Vec<u64> = trace.paced(0).iter().filter(|step| step.0 == 0).map(|step| step.1).collect();
    assert_eq!(pauses, [vec![5; 8], vec![20], vec![5; 8]].concat());
    assert_eq!(trace.maps().len(), 2, "regions are mapped without what is between them");
    assert!(trace.header.warnings[0].contains("DAMON's samples"));
}

#[test]
fn the_seed_draws_when_a_page_is_touched() {
    let runs = |seed| Place::new(Format::Damon, DAMON).with(|with| with.seed = seed).trace().paced(0);
    assert_eq!(runs(1), runs(1));
    assert_ne!(runs(1), runs(2));
    let without = Place::new(Format::Damon, DAMON).with(|with| with.times = false).trace();
    assert_eq!((without.header.counts().idle_nanos, loads(&without, 1000)), (0, 12));
}

#[test]
fn damos_compressed_json_is_the_same_as_json() {
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    zlib.write_all(DAMON.as_bytes()).unwrap();
    let packed = zlib.finish().unwrap();
    assert_eq!(Trace::of(Format::Damon, &packed).threads, Trace::of(Format::Damon, DAMON).threads);
    let text = Place::new(Format::Damon, &packed[..packed.len() / 2]).refused();
    assert!(text.contains("its zlib data cannot be unpacked after"), "{text}");
}

fn damon_line(nanos: &str, target: u64, regions: u64, range: &str) -> String {
    format!(
        "kdamond.0  4452 [000] {nanos}: damon:damon_aggregated: target_id={target} nr_regions={regions} {range}\n"
    )
}

#[test]
fn damons_tracepoint_is_read() {
    let text = [
        damon_line("82877.100000", 9, 2, "4096000-4100096: 20 0"),
        damon_line("82877.100001", 9, 2, "8192000-8196096: 5 3"),
        "kdamond.0 4452 [000] 82877.15: damon:damon_monitor_intervals_tune: sample_us=80000\n".to_owned(),
        damon_line("82877.200000", 9, 1, "4096000-4100096: 10"),
        // A snapshot that damo adds for its time.
        damon_line("82877.300000", 9, 1, "0-0: -1 -1"),
    ];
    let trace = Trace::of(Format::Damon, text.concat());
    assert_eq!((loads(&trace, 1000), loads(&trace, 2000)), (30, 5));
    assert_eq!(trace.header.counts().idle_nanos / MS, 299, "the first is as long as the second");
    let alone = Trace::of(Format::Damon, damon_line("0.5", 9, 1, "4096000-4100096: 1 0"));
    assert_eq!((loads(&alone, 1000), alone.header.counts().idle_nanos), (1, 100 * MS));
}

#[test]
fn one_of_several_targets_is_chosen() {
    let text = [3, 9].map(|target| damon_line("1.0", target, 1, "4096000-4100096: 4 0")).concat();
    let message = Place::new(Format::Damon, &text).refused();
    assert!(
        message.contains("several targets (3, 9); choose one with --only, for example --only 3"),
        "{message}"
    );
    let trace = Place::new(Format::Damon, &text).with(|with| with.only = Some(9)).trace();
    assert_eq!(loads(&trace, 1000), 4);
    let twice = DAMON.replace("]}]}]", "]}]}, {\"target_id\": \"8\", \"snapshots\": []}]");
    assert_eq!(loads(&Trace::of(Format::Damon, &twice), 1000), 12, "a target without snapshots is none");
}

#[test]
fn damaged_records_of_damon_are_refused() {
    let line = damon_line("1.0", 9, 2, "4096-8192: 1 0");
    refuse(
        Format::Damon,
        &[
            ("", "in.rec: no accesses in it; make it with damo record"),
            ("[", "in.rec:1: not a record of damo's: EOF"),
            (
                "[\n{\"target_id\": 1,\n \"snapshots\": [{\"start_time\": 1}]}]",
                "in.rec:3: not a record of damo's: missing",
            ),
            (
                "[{\"snapshots\": []}]",
                "in.rec:1: not a record of damo's: snapshots come before their target_id",
            ),
            ("[{\"target_id\": \"x\"}]", "expected a number, found \"x\""),
            ("hello\n", "in.rec:1: expected a line of damon_aggregated like"),
            (&line, "in.rec:1: it ends after 1 of the 2 regions of a snapshot"),
            (&line.replace("8192", "0"), "in.rec:1: expected a line of damon_aggregated"),
            (
                &(line.clone() + &line.replace("1.0", "0.9")),
                "in.rec:2: its time is before that of the line before",
            ),
            (
                &(line.clone() + &line.replace("=2", "=3")),
                "in.rec:2: a snapshot has 2 regions and then nr_regions=3",
            ),
        ],
    );
}

#[test]
fn more_memory_than_can_be_imported_is_refused() {
    let text = damon_line("1.0", 9, 1, "4096-140737488355328: 20 0");
    let place = Place::new(Format::Damon, text).with(|with| with.most_pages = 1000);
    assert!(place.refused().contains("it touches more than 1000 pages of 4 KiB"));
    let beyond =
        [damon_line("1.0", 9, 2, "4096-8192: 1 0"), damon_line("1.0", 9, 2, "4096-140737488359424: 20 0")];
    let trace = Trace::of(Format::Damon, beyond.concat());
    assert_eq!(loads(&trace, 1), 1);
    assert_eq!(
        trace.header.warnings[1],
        "1 regions beyond the program's half of the address space were left out"
    );
}

const MASIM: &str = "# regions
a, 16384, none
b, 8192, /dev/zero
c, 4096

# a phase, with a comment within it
warm
3
# here
a, 0, 4096, 1, rw

second phase
4
b, 0, 1024, 100, ro
c, 1, 0, 0

idle
2
c, 0, 64, 0
";

#[test]
fn phases_of_masim_become_accesses_of_a_millisecond_each() {
    let trace = Place::new(Format::Masim, MASIM).with(|with| with.rate = 6).trace();
    let base = 64 * (1 << 30) / PAGE;
    let steps = trace.paced(0);
    let batches: Vec<Vec<u64>> = steps
        .split(|step| step.0 == 0)
        .map(|batch| batch.iter().flat_map(|step| vec![step.0 - base; step.1 as usize]).collect())
        .collect();
    // The region with a file is written first. Sequential accesses begin at the second of the four pages, and each page
    // gets a store before it is read, then loads and stores.
    assert_eq!(batches[0], [4, 5, 1, 1, 1, 2, 2, 2, 3, 3, 3, 0, 0, 0, 1, 1, 2, 2]);
    assert_eq!(batches[1], [3, 3, 0, 0, 1, 1, 2, 2, 3, 3, 0, 0]);
    assert_eq!(batches[2], [1, 1, 2, 2, 3, 3, 0, 0, 1, 1, 2, 2]);
    assert_eq!(batches[3..5], [[4, 4, 4, 5, 5, 5], [5, 4, 4, 4, 4, 5]]);
    let counts = trace.header.counts();
    // 3 ms with 6 loads and stores, 4 ms with 6 loads; 2 pages of b that the file fills, 4 of a that are filled.
    assert_eq!((counts.loads, counts.stores), (3 * 6 + 4 * 6, 3 * 6 + 2 + 4));
    assert_eq!((counts.idle_nanos, trace.header.data_pages), (9 * MS, 6));
}

#[test]
fn patterns_of_masim_are_chosen_by_probability() {
    let text = "a, 4096\nb, 4096\n\np\n1000\na, 1, 0, 3\nb, 1, 0, 1, ro\n";
    let trace = Place::new(Format::Masim, text).with(|with| with.rate = 1).trace();
    let counts = trace.header.counts();
    assert_eq!(
        counts.loads + counts.stores,
        1000 + 1,
        "the page that is only read is filled by one store more"
    );
    assert!((700..800).contains(&counts.stores), "{counts:?}");
}

#[test]
fn wrong_configurations_of_masim_are_refused() {
    refuse(
        Format::Masim,
        &[
            ("", "in.rec: no accesses in it; docs/imports.md shows"),
            ("a\n", "in.rec:1: expected a region like `name, 10000000`"),
            ("a, 0\n", "in.rec:1: expected a region"),
            ("a, 4096\n\np\n", "in.rec:3: a phase ends after its name; its milliseconds are missing"),
            ("a, 4096\n\np\nsoon\n", "in.rec:4: expected the milliseconds of a phase, found \"soon\""),
            ("a, 4096\n\np\n5\n", "in.rec:4: a phase ends before its first pattern"),
            ("a, 4096\n\np\n5\nb, 0, 1, 1\n", "in.rec:5: expected a pattern like"),
            ("a, 4096\n\np\n5\na, 0, 1, 1, xo\n", "in.rec:5: expected a pattern like"),
        ],
    );
}

const PERF: &str = "# a comment
     Web Content    4711/4712   82877.315000: cpu/mem-loads,ldlat=30/P:   7f2b10a3c0d8   10668100842 |OP LOAD|LVL L1
     Web Content    4711/4711 [003]   82877.316000:      10000 cpu/mem-stores/P:     7f2b10a3d000
     Web Content    4711/4712   82877.318000: ibs_op//:     7f2b10a3c0e8  88000182 |OP STORE|LVL L1 hit|SNP N/A
     Web Content    4711/4712   82877.319000: ibs_op//:                0  88000182 |OP LOAD|LVL L1 hit|SNP N/A
     Web Content    4711/4712   82877.320000: ibs_op//:     7f2b10a3c0e8  1 |OP N/A|LVL N/A|SNP N/A
     Web Content    4711/4711   82877.321000000: cycles:P:     7f2b10a3e000
";

#[test]
fn samples_of_perf_become_accesses_at_their_times() {
    let trace = Trace::of(Format::Perf, PERF);
    let (first, second) = (0x7_f2b1_0a3c, 0x7_f2b1_0a3d);
    assert_eq!(trace.runs(0), [(first, 1, Store), (first, 1, Load), (first, 1, Store)]);
    assert_eq!(trace.runs(1), [(second, 1, Store), (second + 1, 1, Store), (second + 1, 1, Load)]);
    assert_eq!(trace.paced(0), [(first, 1), (first, 1), (0, 3), (first, 1), (0, 1), (0, 1)]);
    assert_eq!(trace.paced(1), [(0, 1), (second, 1), (0, 5), (second + 1, 1), (second + 1, 1)]);
    let warnings = &trace.header.warnings;
    assert!(warnings[0].contains("made from samples"), "{warnings:?}");
    assert_eq!(
        warnings[1..],
        ["1 samples of no access were left out", "1 samples without an address were left out"]
    );
}

#[test]
fn one_of_several_processes_is_chosen() {
    let text = format!("{PERF}ls 12/12 82878.0: cycles: 1000\n");
    let message = Place::new(Format::Perf, &text).refused();
    assert!(message.contains("several processes (4711, 12)"), "{message}");
    let trace = Place::new(Format::Perf, &text).with(|with| with.only = Some(12)).trace();
    assert_eq!(trace.runs(0), [(1, 1, Store), (1, 1, Load)]);
}

#[test]
fn lines_that_are_no_samples_are_refused() {
    refuse(
        Format::Perf,
        &[
            ("ls 12 1.0: cycles: 1000\n", "in.rec:1: expected a sample like"),
            ("ls 12/12 cycles: 1000\n", "perf script -F comm,pid,tid,time,event,addr,data_src"),
            ("ls 12/12 1.0: cycles:\n", "in.rec:1: expected a sample like"),
            ("ls 12/12 1.0: cycles: symbol\n", "in.rec:1: expected a sample like"),
        ],
    );
}

const VIEW: &str = "Output format:
<--record#-> <--instr#->: <---tid---> <record details>
------------------------------------------------------------
           1           0:     2765542 <marker: version 5>
           2           0:     2765542 <marker: timestamp 13319413770947383>
           3           1:     2765542 ifetch       8 byte(s) @ 0x0000000000401012 48 8d 34 25 00 20 40 lea
           3           1:     2765542                                             00
           4           2:     2765542 ifetch       3 byte(s) @ 0x0000000000401ffe 48 89 e7 mov    %rsp -> %rdi
           5           2:     2765542 write        8 byte(s) @ 0x00007ffd1b2f6a88 by PC 0x0000000000401ffe
           6           2:     2765542 pref-r-L1    1 byte(s) @ 0x00007ffd1b2f6a88 by PC 0x0000000000401ffe
------------------------------------------------------------
           7           3:     2765543 ifetch       2 byte(s) @ 0x0000000000401026 non-branch
           8           3:     2765543 read         8 byte(s) @ 0x00007ffd1b2f6a88 by PC 0x0000000000401026
           9           3:     2765543 ifetch       2 byte(s) @ 0x0000000000401026 non-fetched instruction
          10           3:     2765543 <thread 2765543 exited>
View tool results:
              3 : total instructions
";

#[test]
fn records_of_dynamorio_become_the_accesses_of_its_threads() {
    let trace = Trace::of(Format::Dynamorio, VIEW);
    assert_eq!(trace.runs(0), [(0x401, 2, Fetch), (0x402, 1, Fetch), (0x7_ffd1_b2f6, 1, Store)]);
    assert_eq!(trace.runs(1), [(0x401, 1, Fetch), (0x7_ffd1_b2f6, 1, Load)]);
    let code = Prot::READ | Prot::EXEC;
    assert_eq!(trace.maps(), [(0x401, 2, code, Some(false)), (0x7_ffd1_b2f6, 1, Prot::RW, None)]);
    assert_eq!(trace.header.counts().instructions, 3);
    assert_eq!(trace.threads[1][0], Event::Sync { epoch: 2 }, "a thread begins when all is mapped");
}

#[test]
fn lines_that_are_not_views_are_refused() {
    refuse(
        Format::Dynamorio,
        &[
            ("Hello, world!\n", "in.rec:1: expected a line of view's like"),
            ("1 1: 7 read 8 bytes\n", "in.rec:1: expected a line of view's like"),
            ("1 1: 7 read 0 byte(s) @ 0x10\n", "in.rec:1: expected a line of view's like"),
            ("1 1: 7 reads 8 byte(s) @ 0x10\n", "in.rec:1: expected a line of view's like"),
            ("1 1: T7 read 8 byte(s) @ 0x10\n", "drrun -t drmemtrace -tool view"),
        ],
    );
}

/// Requests of seconds, object, bytes, operation.
type Requests = [(u32, u64, u32, u8)];

const REQUESTS: &Requests = &[
    (100, 1 << 60, 1, 12),
    (100, 5, 8193, 13),
    (102, 1 << 60, 4096, 1),
    (103, 5, 1, 9),
    (103, 1 << 60, 5000, 3),
];

fn oracle_general(requests: &Requests) -> Vec<u8> {
    let mut out = Vec::new();
    for (number, &(seconds, object, bytes, _)) in requests.iter().enumerate() {
        let later = requests.iter().skip(number + 1).position(|request| request.1 == object);
        let next = later.map_or(-1, |after| (number + 1 + after) as i64);
        out.extend(seconds.to_le_bytes());
        out.extend(object.to_le_bytes());
        out.extend(bytes.to_le_bytes());
        out.extend(next.to_le_bytes());
    }
    out
}

fn lcs(requests: &Requests, version: u64, header: usize) -> Vec<u8> {
    const MAGIC: u64 = 0x1234_5678_9abc_def0;
    let mut out = vec![0; header];
    out[..8].copy_from_slice(&MAGIC.to_le_bytes());
    out[8..16].copy_from_slice(&version.to_le_bytes());
    out[header - 8..].copy_from_slice(&MAGIC.to_le_bytes());
    for &(seconds, object, bytes, operation) in requests {
        out.extend(seconds.to_le_bytes());
        out.extend(object.to_le_bytes());
        out.extend(&u64::from(bytes).to_le_bytes()[..if version > 2 { 8 } else { 4 }]);
        let tail = [0, 4, 8, 12, 16, 24, 40, 72][version as usize - 1];
        if tail > 0 {
            out.extend([operation, 0xff, 0xff, 0xff]);
            out.extend(&[0; 4][..if version > 2 { 4 } else { 0 }]);
        }
        out.extend(i64::MAX.to_le_bytes());
        out.extend(vec![7; [0, 0, 0, 4, 8, 16, 32, 64][version as usize - 1]]);
    }
    out
}

#[test]
fn requests_of_oracle_general_load_their_objects() {
    let trace = Trace::of(Format::Libcachesim, oracle_general(REQUESTS));
    let first = (4 << 30) / PAGE;
    // A request touches as many pages as it has bytes. The first object moves when it grows to two pages.
    let runs: Vec<u64> = trace.runs(0).iter().map(|run| run.0 - first).collect();
    assert_eq!(runs, [0, 1, 2, 3, 0, 1, 4, 5]);
    // Without operations all requests load.
    assert!(trace.runs(0).iter().all(|run| run.2 == Load));
    assert_eq!(trace.maps(), [(first, 6, Prot::RW, Some(true))], "objects are pages of a file");
    assert_eq!((trace.header.file_pages, trace.header.counts().idle_nanos), (6, 3_000 * MS));
}

#[test]
fn every_version_of_lcs_is_read() {
    let expected = Trace::of(Format::Libcachesim, lcs(REQUESTS, 2, 1024));
    let first = (4 << 30) / PAGE;
    let runs = [
        (first, 1, Load),
        (first + 1, 1, Store),
        (first + 2, 1, Store),
        (first + 3, 1, Store),
        (first, 1, Load),
        (first + 4, 1, Store),
        (first + 5, 1, Store),
    ];
    assert_eq!(expected.runs(0), runs);
    assert_eq!(expected.header.warnings, ["1 deletions of objects were left out"]);
    for version in 3..=8 {
        assert_eq!(Trace::of(Format::Libcachesim, lcs(REQUESTS, version, 8192)).threads, expected.threads);
    }
    let plain = Trace::of(Format::Libcachesim, lcs(REQUESTS, 1, 8192));
    assert_eq!(plain.runs(0), Trace::of(Format::Libcachesim, oracle_general(REQUESTS)).runs(0));
}

#[test]
fn damaged_traces_of_libcachesim_are_refused() {
    let refused = |bytes: &[u8], message: &str| {
        let text = Place::new(Format::Libcachesim, bytes).refused();
        assert!(text.contains(message), "{text}");
    };
    let (oracle, lcs_) = (oracle_general(REQUESTS), lcs(REQUESTS, 3, 8192));
    refused(&oracle[..30], "in.rec: at byte 24: it ends after 6 of the 24 bytes of a record");
    refused(&lcs_[..8200], "in.rec: at byte 8192: it ends after 8 of the 36 bytes of a record");
    refused(&lcs_[..2000], "it ends after 976 of the 7168 bytes of a record");
    refused(
        &[lcs(REQUESTS, 3, 4096), vec![0; 8192]].concat(),
        "the header of an lcs trace does not end as it should",
    );
    refused(
        &[&lcs_[..8], b"<IQIq", &lcs_[13..]].concat(),
        "in.rec: at byte 8: an lcs trace of before its version 1",
    );
    refused(
        &[&lcs_[..8], &[9], &lcs_[9..]].concat(),
        "in.rec: at byte 8: lcs has versions 1 to 8, this is 9",
    );
    refused(&[&lcs_[..8192 + 20], &[99], &lcs_[8192 + 21..]].concat(), "no such operation");
    let mut wrong = oracle.clone();
    wrong[24 + 16..24 + 24].copy_from_slice(&0u64.to_le_bytes());
    refused(
        &wrong,
        "in.rec: at byte 24: not a request of libCacheSim's: it is number 1, and its object's next",
    );
}

fn instruction(at: u64, stores: [u64; 2], loads: [u64; 4]) -> Vec<u8> {
    let mut out = at.to_le_bytes().to_vec();
    out.extend([1, 0, 6, 7, 8, 9, 10, 11]);
    stores.iter().chain(&loads).for_each(|addr| out.extend(addr.to_le_bytes()));
    out
}

fn champsim() -> Vec<u8> {
    [instruction(0x40_1000, [0, 0], [0x7000, 0, 0x8000, 0]), instruction(0x40_1004, [0x7008, 0], [0; 4])]
        .concat()
}

#[test]
fn instructions_of_champsim_become_fetches_loads_and_stores() {
    let trace = Trace::of(Format::Champsim, champsim());
    assert_eq!(
        trace.runs(0),
        [(0x401, 1, Fetch), (7, 1, Load), (8, 1, Load), (0x401, 1, Fetch), (7, 1, Store)]
    );
    assert_eq!(
        (trace.header.counts().instructions, trace.header.data_pages, trace.header.file_pages),
        (2, 1, 2)
    );
    let all =
        Place::new(Format::Champsim, champsim()).with(|with| with.backing = Some(Backing::Anonymous)).trace();
    // All is anonymous, and the three pages are filled before they are read.
    assert_eq!((all.header.data_pages, all.header.file_pages, all.header.counts().stores), (3, 0, 1 + 3));
}

#[test]
fn damaged_traces_of_champsim_are_refused() {
    let text = Place::new(Format::Champsim, &champsim()[..100]).refused();
    assert!(text.contains("in.rec: at byte 64: it ends after 36 of the 64 bytes of a record"), "{text}");
    let mut wrong = champsim();
    wrong[64 + 9] = 2;
    let text = Place::new(Format::Champsim, wrong).refused();
    assert!(text.contains("in.rec: at byte 64: not an instruction of ChampSim's"), "{text}");
}

#[test]
fn page_numbers_become_references_in_their_order() {
    let trace = Trace::of(Format::Pages, "# LIRS\n3\n*\n0x3\n\n0\r\n10 2 0 1\n");
    let first = (4 << 30) / PAGE;
    let expected = [
        (first + 3, 1, Store),
        (first + 3, 2, Load),
        (first, 1, Store),
        (first, 1, Load),
        (first + 10, 1, Store),
        (first + 10, 1, Load),
        (first + 11, 1, Store),
        (first + 11, 1, Load),
    ];
    assert_eq!(trace.runs(0), expected);
    let place = Place::new(Format::Pages, "3\n3\n0\n").with(|with| with.backing = Some(Backing::File));
    assert_eq!(place.trace().runs(0), [(first + 3, 2, Load), (first, 1, Load)]);
    refuse(
        Format::Pages,
        &[
            (
                "1\n2 3\n",
                "in.rec:2: expected a page number, or the four numbers of ARC's files, found \"2 3\"",
            ),
            ("page\n", "in.rec:1: expected a page number"),
            ("-1\n", "in.rec:1: expected a page number"),
            ("17179869184\n", "in.rec:1: expected pages with numbers below 2^34"),
            ("1 0 0 0\n", "in.rec:1: expected pages with numbers below 2^34, at least one"),
        ],
    );
}

#[test]
fn compressed_recordings_are_unpacked_or_the_command_is_told() {
    let plain = Trace::of(Format::Champsim, champsim()).threads;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(&champsim()).unwrap();
    let gzip = gzip.finish().unwrap();
    assert_eq!(Trace::of(Format::Champsim, &gzip).threads, plain);
    let zstd = zstd::encode_all(&champsim()[..], 3).unwrap();
    assert_eq!(Trace::of(Format::Champsim, &zstd).threads, plain);
    let text = Place::new(Format::Champsim, &gzip[..gzip.len() - 12]).refused();
    assert!(text.contains("its gzip data cannot be unpacked after"), "{text}");
    let text = Place::new(Format::Champsim, &zstd[..zstd.len() - 3]).refused();
    assert!(text.contains("its zstd data cannot be unpacked after"), "{text}");
    for (mark, command) in [
        (&b"\xfd7zXZ\0"[..], "xz -dc FILE | pagefold import --format champsim - -o TRACE"),
        (b"BZh9", "bzip2 -dc FILE | pagefold import --format champsim - -o TRACE"),
    ] {
        assert!(Place::new(Format::Champsim, mark).refused().contains(command));
    }
}

#[test]
fn an_import_that_is_ended_leaves_no_trace() {
    let place = Place::new(Format::Pages, "1\n2\n".repeat(40_000));
    let (input, output) = (place.path("in.rec"), place.path("out.pft"));
    let request = Request { format: Format::Pages, input: &input, output: &output, settings: place.settings };
    // 80,000 steps in each pass: the caller is asked once in each. It ends the second.
    for asked in 0..2 {
        let mut times = 0;
        let ended = import(&request, &mut || {
            times += 1;
            times <= asked
        });
        assert!(matches!(ended, Err(ImportError::Interrupted)), "{ended:?}");
        assert_eq!(std::fs::read_dir(place.folder.path()).unwrap().count(), 1);
    }
}
