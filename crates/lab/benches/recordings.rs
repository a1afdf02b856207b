//! Commands that start others, each recorded by one `pagefold record`: what it costs, whether the trace holds under the
//! oracle, and whether a process of it does what the same program does when it is recorded alone.
//!
//! Programs that are not installed are left out. `cargo bench -p pagefold --bench recordings -- NAME...` measures some.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// A command, and parts of it that can run alone. All are run by `sh` in a new folder.
struct Case {
    name: &'static str,
    /// What must be there before.
    prepare: &'static str,
    /// What is recorded. The words are a shell's: redirections are the recorder's own and so the command's.
    command: &'static str,
    /// After the command has run, in the same folder. The first word of each line is a program: the last that the
    /// process has become, `PROGRAM/N` for the Nth such process (`PROGRAM#2` is another file of that name). The rest
    /// runs it; RECORD is the recorder.
    parts: &'static str,
}

const CASES: [Case; 8] = [
    Case {
        name: "make",
        prepare: "python3 $TRACES/project.py project 4",
        command: "make -C project -s",
        parts: "cc1/1 cd project; eval $RECORD $(gcc '-###' -O1 -c main.c 2>&1 | grep /cc1)
x86_64-linux-gnu-as/1 cd project; gcc -O1 -S main.c -o main.s; $RECORD as --64 -o main.o main.s
cc1/3 cd project; eval $RECORD $(gcc '-###' -O1 -c part1.c 2>&1 | grep /cc1)
x86_64-linux-gnu-as/3 cd project; gcc -O1 -S part1.c -o part1.s; $RECORD as --64 -o part1.o part1.s
x86_64-linux-gnu-ar/1 cd project; rm parts.a; $RECORD ar rcs parts.a part0.o part1.o part2.o part3.o
x86_64-linux-gnu-ld.bfd/1 cd project; eval $RECORD $(gcc '-###' -o program main.o parts.a 2>&1 | grep /collect2)",
    },
    Case {
        name: "pipeline",
        prepare: "seq 1 60000 | awk '{ print $1 * 7919 % 10007 }' >numbers",
        command: "sh -c 'sort numbers | uniq -c | sort -rn | head -n 3'",
        parts: "sort/1 $RECORD sort numbers >sorted
uniq/1 $RECORD uniq -c <sorted >counted
sort/2 cat counted | $RECORD sort -rn | head -n 3",
    },
    Case {
        name: "gcc",
        prepare: "for n in $(seq 300); do echo \"int f$n(int x) { return x * $n + (x >> 3); }\"; done >a.c; \
                  echo 'int main(void) { return 0; }' >b.c",
        command: "gcc -O1 a.c b.c -o a",
        parts: "cc1/1 eval $RECORD $(gcc '-###' -O1 -c a.c 2>&1 | grep /cc1)
x86_64-linux-gnu-as/1 gcc -O1 -S a.c -o a.s; $RECORD as --64 -o a.o a.s
cc1/2 eval $RECORD $(gcc '-###' -O1 -c b.c 2>&1 | grep /cc1)
x86_64-linux-gnu-ld.bfd/1 gcc -O1 -c a.c; gcc -O1 -c b.c; eval $RECORD $(gcc '-###' a.o b.o -o a 2>&1 | grep /collect2)",
    },
    Case {
        name: "python",
        prepare: "{ echo '#!/usr/bin/env python3'; echo 'd = {str(i * 7919 % 10007): i for i in range(60000)}'; } >a.py; \
                  chmod +x a.py",
        command: "./a.py",
        parts: "python3.11/1 $RECORD python3 a.py",
    },
    Case {
        name: "node",
        prepare: "cp $TRACES/words.js .",
        command: "node --max-old-space-size=32 words.js 2000",
        parts: "node/1 $RECORD node --max-old-space-size=32 words.js 2000",
    },
    Case {
        name: "jvm",
        prepare: "javac -d . $TRACES/Words.java",
        command: "java -Xms16m -Xmx16m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp . Words 2000",
        parts: "java/1 $RECORD java -Xms16m -Xmx16m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp . Words 2000",
    },
    Case {
        name: "git",
        prepare: "python3 $TRACES/project.py project 200; cd project; git init -q; git config pack.threads 1; git add .; \
                  git -c user.name=a -c user.email=a@b commit -qm all; cd ..; cp -r project again",
        command: "git -C project repack -adq",
        parts: "git#2/1 $RECORD git -C again pack-objects --keep-true-parents --honor-pack-keep --non-empty --all --reflog \
                --indexed-objects --unpack-unreachable --local --quiet --delta-base-offset pack </dev/null",
    },
    Case {
        name: "tar with xz",
        prepare: "python3 $TRACES/project.py project 300",
        command: "tar cf a.tar.xz -I 'xz -2' project",
        parts: "tar/1 $RECORD tar cf - project >a.tar
xz/1 $RECORD xz -2 <a.tar >again.xz",
    },
];

/// A folder with the case prepared in it.
struct Prepared(tempfile::TempDir);

impl Prepared {
    fn new(case: &Case) -> Option<Prepared> {
        let folder = Prepared(tempfile::tempdir().expect("a folder must be made"));
        folder.shell(case.prepare, "").then_some(folder)
    }

    fn trace(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Run a line; `record` is what RECORD stands for.
    fn shell(&self, line: &str, record: &str) -> bool {
        let mut sh = Command::new("sh");
        sh.args(["-ec", line]).current_dir(self.0.path()).stdin(Stdio::null());
        // Interpreters that are shell scripts in PATH are not what is measured.
        sh.env("PATH", "/usr/bin:/bin").env("RECORD", record);
        sh.env("TRACES", concat!(env!("CARGO_MANIFEST_DIR"), "/../../traces"));
        sh.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    }

    /// Record by a line with RECORD in it.
    fn record(&self, line: &str, name: &str) -> Option<Value> {
        let trace = self.trace(name);
        let record = format!("{} record -o {} --", env!("CARGO_BIN_EXE_pagefold"), trace.display());
        self.shell(line, &record).then(|| pagefold(&["info", "--json"], &trace)).flatten()
    }
}

fn pagefold(words: &[&str], trace: &Path) -> Option<Value> {
    let output = Command::new(env!("CARGO_BIN_EXE_pagefold")).args(words).arg(trace).output().ok()?;
    serde_json::from_slice(&output.stdout).ok()
}

/// CPU seconds of children that have ended.
fn cpu() -> f64 {
    const TICKS: f64 = 100.0;
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(13).take(2).filter_map(|word| word.parse::<f64>().ok()).sum::<f64>() / TICKS
}

/// Accesses of the `nth` process whose last program is `program`.
fn accesses(info: &Value, program: &str, nth: usize) -> Option<u64> {
    let is =
        |row: &&Value| row["programs"].as_array().and_then(|names| names.last()?.as_str()) == Some(program);
    let process = info["processes"].as_array()?.iter().filter(is).nth(nth - 1)?["process"].as_u64()?;
    let threads = info["threads"].as_array()?.iter().filter(|row| row["process"] == process);
    let count = |row: &Value| {
        let counts = ["loads", "stores", "fetches"].map(|key| row["counts"][key].as_u64().unwrap_or(0));
        counts.iter().sum::<u64>()
    };
    Some(threads.map(count).sum())
}

/// A process is the same up to this difference, in per cent.
const NEAR: f64 = 1.0;

fn measure(case: &Case) {
    const TIMES: usize = 5;
    let left_out = |why: &str| println!("{:12} left out: {why}", case.name);
    let Some(folders) = (0..TIMES).map(|_| Prepared::new(case)).collect::<Option<Vec<_>>>() else {
        return left_out("it cannot be prepared here");
    };
    let before = cpu();
    if !folders.iter().all(|folder| folder.shell(case.command, "")) {
        return left_out("it does not run here");
    }
    let alone = (cpu() - before) / TIMES as f64;
    let folder = Prepared::new(case).expect("it was prepared before");
    let before = cpu();
    let recorded = folder.record(&format!("$RECORD {}", case.command), "whole.pft");
    let times = (cpu() - before) / alone;
    let Some(whole) = recorded else { return left_out("it cannot be recorded") };
    let verified = pagefold(&["run", "--verify", "--memory", "70%", "--json"], &folder.trace("whole.pft"));
    let oracle = verified.as_ref().map(|run| (&run["oracle"]["checked"], &run["oracle"]["violations"]));
    let (checked, violations) = oracle.map_or(("-".into(), "failed".into()), |(checked, violations)| {
        (checked.to_string(), violations.to_string())
    });
    let number = |key: &str| whole[key].as_f64().unwrap_or(0.0);
    println!(
        "{:12} {:9} {:12} {:8.4} {alone:8.3} {times:6.0} {checked:>12} {violations:>10} {:8}",
        case.name,
        whole["processes"].as_array().map_or(0, Vec::len),
        number("accesses"),
        number("file_bytes") / number("accesses"),
        whole["warnings"].as_array().map_or(0, Vec::len),
    );
    for line in case.parts.lines() {
        let (part, command) = line.split_once(' ').expect("a part has a name and a command");
        let (program, nth) = part.split_once('/').expect("a part has a number");
        let there = accesses(&whole, program, nth.parse().expect("a part has a number"));
        let name = program.split('#').next().unwrap_or_default();
        let alone = || folder.record(command, "part.pft").and_then(|info| accesses(&info, name, 1));
        let Some((there, first)) = there.zip(alone()) else {
            println!("  {part:26} left out: it is not in there, or cannot be recorded alone");
            continue;
        };
        let change = |of: u64| 100.0 * (of as f64 / first as f64 - 1.0);
        print!("  {part:26} {there:12} {first:12} {:+8.2} %", change(there));
        // Is that the program's own chance? Then it differs from itself, too.
        let again = if change(there).abs() > NEAR { alone() } else { None };
        println!(
            "{}",
            again.map(|again| format!(" (alone again {:+.2} %)", change(again))).unwrap_or_default()
        );
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    // `cargo test --benches` only wants to know that it runs.
    if std::env::args().any(|word| word == "--test") {
        return;
    }
    println!("command      processes     accesses  bytes/a  CPU s   times   checked    violations warnings");
    println!("  a process of it                in there        alone   change");
    let wanted =
        |case: &&Case| words.is_empty() || words.iter().any(|word| case.name.starts_with(word.as_str()));
    CASES.iter().filter(wanted).for_each(measure);
}
