//! What recording costs: the CPU time of programs by themselves, and how many times that they take under the emulator,
//! with the recorder's callbacks but nothing recorded, with all written out, and with the conversion to a trace.
//!
//! Programs that are not installed are left out. The last column tells the conversion alone, which is done once, at the
//! end, by this process.

use std::path::Path;
use std::process::{Command, Stdio};

use pagefold_trace::record::{RecordOptions, record};

/// Clock ticks of the CPU time of this process, and of its children that have ended.
fn cpu() -> [f64; 2] {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let fields: Vec<f64> =
        after_name.split_whitespace().skip(11).filter_map(|word| word.parse().ok()).collect();
    [fields[0] + fields[1], fields[2] + fields[3]]
}

/// CPU seconds of this process and of its children during `body`.
fn during(body: impl FnOnce() -> bool) -> Option<[f64; 2]> {
    const TICKS: f64 = 100.0;
    let before = cpu();
    let good = body();
    let after = cpu();
    good.then(|| std::array::from_fn(|at| (after[at] - before[at]) / TICKS))
}

fn run(folder: &Path, words: &[&str]) -> bool {
    let mut command = Command::new(words[0]);
    let command = command.args(&words[1..]).current_dir(folder).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

fn measure(folder: &Path, name: &str, words: &[&str]) {
    // A program that takes some hundredths of a second is measured ten times.
    const TIMES: usize = 10;
    let alone = during(|| (0..TIMES).all(|_| run(folder, words)));
    let emulated = during(|| run(folder, &[&["qemu-x86_64"], words].concat()));
    let (Some(alone), Some(emulated)) = (alone, emulated) else {
        return println!("{name:10}  left out: it does not run here, or not under qemu-x86_64");
    };
    let alone = alone[1] / TIMES as f64;
    let recorded = |after: u64| {
        let mut options =
            RecordOptions::new(folder.join("x.pft"), words.iter().map(|word| (*word).into()).collect());
        options.after = after;
        during(|| record(&options).is_ok())
    };
    let (Some(callbacks), Some(whole)) = (recorded(u64::MAX), recorded(0)) else {
        return println!("{name:10}  left out: it cannot be recorded");
    };
    let times = [emulated[1], callbacks[1], whole[1], whole[0] + whole[1]].map(|seconds| seconds / alone);
    let [emulated, callbacks, written, all] = times;
    println!(
        "{name:10} {alone:8.3} {emulated:9.1} {callbacks:10.1} {written:8.1} {all:6.1} {:10.1}",
        whole[0] / alone
    );
}

const LOOP: &str = "import json, re
d = {str(i * 7919 % 10007): [i, str(i) * 3] for i in range(60000)}
s = json.dumps(d)
assert len(json.loads(s)) < len(re.findall(r'[0-9]+', s))";

const TABLE: &str = "create table t (a integer primary key, b text);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 60000)
insert into t select i, i * 7919 % 10007 || 'x' from n;
create index tb on t (b);
create table u as select count(distinct b), sum(length(b)) from t where b like '1%';";

fn main() {
    // `cargo test --benches` only wants to know that it runs.
    if std::env::args().any(|word| word == "--test") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder must be made");
    let folder = folder.path();
    let code: String =
        (0..600).map(|at| format!("int f{at}(int x) {{ return x * {at} + (x >> 3); }}\n")).collect();
    let text: Vec<u8> = (0..4_000_000u64).map(|at| ((at * at) >> 7) as u8 & 63).collect();
    std::fs::write(folder.join("a.c"), code).expect("a file must be written");
    std::fs::write(folder.join("text"), text).expect("a file must be written");
    let cc1 = Command::new("gcc").arg("-print-prog-name=cc1").output();
    let cc1 = cc1.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    println!("recorder   CPU s    times alone: emulator, callbacks, written, all; of that the conversion");
    let at = |name: &str| format!("/usr/bin/{name}");
    let place = |name: &str| folder.join(name).display().to_string();
    measure(folder, "gzip", &[&at("gzip"), "-kf", &place("text")]);
    measure(folder, "sqlite", &[&at("sqlite3"), ":memory:", TABLE]);
    measure(folder, "python", &[&at("python3"), "-c", LOOP]);
    measure(folder, "cc1", &[&cc1, "-quiet", "-O2", &place("a.c"), "-o", &place("a.s")]);
}
