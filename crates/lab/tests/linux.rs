//! `pagefold linux` and `pagefold truth` from end to end, with a script instead of QEMU that prints what a guest would.
#![cfg(unix)]

mod fake;

use fake::Fake;
use serde_json::Value;
use std::fs;
use std::path::Path;

const RUN: &str = "zipf:2M --memory 16M --boots 1 -q";

/// The output of a guest that succeeds: the program does the same work as on the simulated machine.
fn said(cpus: u32, faults: u64) -> String {
    format!(
        "SeaBIOS\n@pagefold 1\n@machine cpus={cpus} nodes=1 memory=16777216\n@counter pgfault {faults}\n@counter pgmajfault 0\n\
         @counter pgscan_kswapd 0\n@counter pgscan_direct 0\n@counter pgpgin 0\n@counter pgpgout 0\n@metric read_micros 300\n\
         @metric fault_picos 9000000\n@metric kernel_pages 40\n@metric hidden_pages 900\n@metric managed_pages 20000\n\
         @condition node 0 free = 40000\n@condition node 0 managed = 50000\n\
         @condition node 0 low = 12165\n@note one thing\n@done nanos=5 accesses=12288 progress=1536 tasks=1\n@end ok\n"
    )
}

#[test]
fn counts_are_compared_with_linux_under_its_conditions() {
    let fake = Fake::new(said(2, 513));
    let text = fake.good(&format!("linux {RUN} --append cgroup_disable=memory"));
    for expected in [
        "4,096 free pages",
        "9000 ns",
        "lru_gen/enabled=0",
        "cgroup_disable=memory",
        "note: one thing",
        "node 0 low 12165 for",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let line = text.lines().find(|line| line.starts_with("pgfault ")).expect("the row of faults");
    assert!(line.ends_with("exact"), "{line}");
    let args = fake.args();
    assert!(
        args.contains("hugepages=") && args.contains("\n-smp\n2\n") && args.contains("-initrd"),
        "{args}"
    );
}

#[test]
fn json_has_the_promised_keys() {
    let fake = Fake::new(said(1, 700));
    let twin = fake.path("twin.toml");
    let more = "--cpus 1 --profile mglru --json --no-host-time";
    let text = fake.good(&format!("linux {RUN} {more} --twin {}", twin.display()));
    let json: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((&json["command"], &json["same_work"]), (&Value::from("linux"), &Value::from(true)));
    let row = json["rows"].as_array().and_then(|rows| rows.iter().find(|row| row["metric"] == "pgfault"));
    let row = row.expect("the row of faults");
    assert_eq!((&row["agreement"], &row["linux"]), (&Value::from("exact"), &Value::from(700.0)));
    assert_eq!(
        (&row["linux_ci"], &row["booted"], &row["missed"]),
        (&Value::Null, &Value::Null, &Value::from(true))
    );
    assert!(row["error_pct"].as_f64().is_some_and(|error| error < -20.0), "{row}");
    let settings = json["conditions"]["settings"].as_array().expect("settings");
    assert!(settings.contains(&Value::from("/sys/kernel/mm/lru_gen/enabled 7")), "{settings:?}");
    // The twin is a machine like any other.
    fake.good(&format!("run zipf:2M --machine {} -q", twin.display()));
}

/// The last that a kernel says that has no memory left: its reason, and then where it was.
const PANIC: &str = "SeaBIOS\n[    3.1] Kernel panic - not syncing: System is deadlocked on memory\n\
                     [    3.1] CPU: 0 PID: 1 Comm: init Not tainted 6.12\n[    3.1] Call Trace:\n\
                     [    3.2] Kernel Offset: 0x1a000000 from 0xffffffff81000000\n";

#[test]
fn failures_are_one_line_and_leave_nothing() {
    let line = format!("linux {RUN}");
    let panicked = Fake { status: 0, ..Fake::new(PANIC) };
    let message = panicked.bad(1, &line);
    assert!(message.contains("the guest's kernel panicked: System is deadlocked on memory"), "{message}");
    assert!(message.contains("replay: pagefold linux zipf:2M"), "{message}");
    let hangs = Fake { hangs: true, ..Fake::new("@pagefold 1\n") };
    let message = hangs.bad(1, &format!("{line} --timeout 1"));
    assert!(message.contains("killed (--timeout"), "{message}");
    let said_bad = "@pagefold 1\n@bad 9 pages are free, fewer than 4096\n@end bad\n";
    let small = Fake { status: 37, ..Fake::new(said_bad) };
    assert!(small.bad(2, &line).contains("9 pages are free"));
    let other = Fake::new(said(2, 513).replace("accesses=12288", "accesses=1"));
    let (code, _, message) = other.run(&line);
    assert!(code == Some(1) && message.contains("did not do the same work"), "{message}");
}

#[test]
fn a_kernel_that_panics_before_its_first_process_is_started_again() {
    let line = format!("linux {RUN} --cpus 1");
    let twice = Fake { panics: 2, ..Fake::new(said(1, 700)) };
    twice.good(&line);
    let always = Fake { panics: 3, ..Fake::new(said(1, 700)) };
    let message = always.bad(1, &line);
    assert!(message.contains("the guest's kernel panicked: Fatal exception in interrupt"), "{message}");
    let later = PANIC.replace("SeaBIOS", "@pagefold 1");
    let message = Fake { status: 0, panics: 1, ..Fake::new(later) }.bad(1, &line);
    assert!(message.contains("System is deadlocked on memory"), "{message}");
}

#[test]
fn a_recording_is_compared_with_the_program_itself() {
    let fake = Fake::new(said(2, 700).replace("accesses=12288 progress=1536", "accesses=0 progress=0"));
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../../traces/pack.pft");
    let text = fake
        .good(&format!("linux {trace} --memory 200% --boots 1 -q --with Cargo.toml --json --exe sort -r"));
    let json: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(json["same_work"], Value::Null);
    let warnings = json["warnings"].to_string();
    assert!(warnings.contains("recorded files were not on the guest's disk: "), "{warnings}");
    for (line, expected) in [
        ("linux zipf:2M --exe sort -r", "PROGRAM must be a FILE.pft"),
        (&format!("linux {trace} --exe no-such-program"), "no-such-program"),
        (&format!("linux {trace} --with no/such --exe true"), "cannot read no/such"),
        (&format!("linux {trace} --with Cargo.toml"), "--exe"),
    ] {
        let message = fake.bad(2, line);
        assert!(message.contains(expected), "{line}: {message}");
    }
}

#[test]
fn missing_tools_are_named_before_a_boot() {
    let fake = Fake::new(said(2, 513));
    for (args, variable, expected) in [
        ("linux zipf:2M --kernel no/such", "", "no/such: there is no such file"),
        ("linux zipf:2M --modules no/such", "", "no/such: there is no such folder"),
        ("linux zipf:2M --qemu no/such", "", "no/such: there is no such file"),
        ("linux zipf:2M", "PAGEFOLD_LINUX_INIT", "cargo xtask linux"),
        ("linux zipf:2M --profile s3-fifo", "", "the policies classic and mglru only"),
        ("linux zipf:2M --set file.max_order=2", "", "file.max_order=2"),
        ("linux zippf", "", "did you mean 'zipf'?"),
        ("linux zipf:2M --memory 1M", "", "too small to run"),
    ] {
        let mut command = fake.command(args);
        if !variable.is_empty() {
            command.env(variable, "no/such");
        }
        let output = command.output().expect("the binary runs");
        let message = fake::text(output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args}: {message}");
        assert!(message.contains(expected) && message.lines().count() == 1, "{args}: {message}");
    }
    assert!(!fake.path("args").exists(), "QEMU was not started");
}

/// The output of a guest that does the work of `truth`'s program sequential-file, as the simulated machine tells it.
fn said_of_sequential_file() -> String {
    let other = Fake::new(said(1, 8192));
    let args = "linux sequential-file:16M --memory 200% --cpus 1 --boots 1 -q --json";
    let output = other.command(args).output().expect("the binary runs");
    let json: Value = serde_json::from_slice(&output.stdout).expect("a result, though of different work");
    let number = |key: &str| json["work"]["simulated"][key].as_u64().expect("a number");
    let [accesses, progress, tasks] = ["accesses", "progress", "tasks"].map(number);
    said(1, 8192).replace(
        "accesses=12288 progress=1536 tasks=1",
        &format!("accesses={accesses} progress={progress} tasks={tasks}"),
    )
}

/// The command that compares one program and writes the document.
fn one_program(dir: &Path, document: &Path) -> String {
    format!("truth {} --only sequential-file --boots 1 -q --document {}", dir.display(), document.display())
}

#[test]
fn comparisons_of_different_work_are_failures() {
    let fake = Fake::new(said(1, 8192));
    let (dir, document) = (fake.path("results"), fake.path("truth.md"));
    let line = one_program(&dir, &document);
    assert!(fake.bad(1, &line).contains("2 comparisons failed"));
    let text = fs::read_to_string(&document).expect("the document");
    assert!(text.contains("| sequential-file | classic | did not do the same work: "), "{text}");
    assert!(text.contains("| open | 0 | 2 | 0 |"), "nothing of it is judged: {text}");
}

#[test]
fn the_users_own_errors_end_the_command() {
    let fake = Fake::new(said(1, 8192));
    let dir = fake.path("results");
    let message = fake.bad(2, &format!("truth {} --only no-such -q", dir.display()));
    assert!(message.contains("'no-such'"), "{message}");
    let folder = fake.path("elsewhere");
    fs::create_dir(&folder).expect("a folder");
    let mut command = fake.command(&format!("truth {} --only trace-sqlite --boots 1 -q", dir.display()));
    let output = command.current_dir(&folder).output().expect("the binary runs");
    let message = fake::text(output.stderr);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("traces/sqlite.pft"), "{message}");
    let kept = fs::read_dir(&dir).expect("the results").filter_map(|kernel| Some(kernel.ok()?.path()));
    assert!(
        kept.into_iter().all(|kernel| fs::read_dir(kernel).is_ok_and(|mut files| files.next().is_none()))
    );
    assert!(!fake.path("args").exists(), "QEMU was not started");
}

#[test]
fn kept_comparisons_become_a_document() {
    let fake = Fake::new(said_of_sequential_file());
    let (dir, document) = (fake.path("results"), fake.path("truth.md"));
    let line = one_program(&dir, &document);
    fake.good(&line);
    let text = fs::read_to_string(&document).expect("the document");
    assert!(text.contains("### sequential-file") && text.contains("note: one thing."), "{text}");
    fs::remove_file(fake.path("args")).expect("QEMU was started");
    fake.good(&format!("{line} --csv {}", fake.path("truth.csv").display()));
    assert!(!fake.path("args").exists(), "nothing is made twice");
    assert!(fs::read_to_string(fake.path("truth.csv")).is_ok_and(|text| text.contains(",sequential-file,")));
    let list = fake.path("causes.toml");
    let row = "[[cause]]\ncount = 'pgfault'\ncause = 'the guest is a script'\n";
    fs::write(&list, row).expect("it can be written");
    assert!(fake.bad(2, &format!("{line} --causes {}", list.display())).contains("run"));
    fs::write(&list, format!("{row}program = 'sequential-file'\nrun = 'cargo test'\n"))
        .expect("it can be written");
    fake.good(&format!("{line} --causes {}", list.display()));
    let text = fs::read_to_string(&document).expect("the document");
    assert!(text.contains("| **missed**: the guest is a script (`cargo test`) |"), "{text}");
    let other = fake.bad(2, &line.replace("--boots 1", "--boots 2"));
    assert!(other.contains("made with '--runs 1 --boots 1', and not with '--runs 1 --boots 2'"), "{other}");
}

#[test]
fn several_cpus_take_short_turns_when_time_counts_instructions() {
    for (cpus, words, short) in [(2, "--icount", true), (1, "--icount", false), (2, "", false)] {
        let fake = Fake::new(said(cpus, 513));
        fake.good(&format!("linux {RUN} --cpus {cpus} {words}"));
        assert_eq!(fake.args().contains("filter-buffer,id=turns"), short, "{cpus} {words}");
    }
}

#[test]
fn instructions_of_a_kernel_are_counted() {
    let done = said(1, 0);
    let text =
        done.replace("@done nanos=5 accesses=12288 progress=1536 tasks=1\n", "@insns munmap_1 7001.5 64\n");
    let fake = Fake::new(text);
    let table = fake.good("linux --bench -q");
    assert!(
        table.contains("munmap_1") && table.contains("7,002") && table.contains("unmap 1 touched page"),
        "{table}"
    );
    assert!(fake.args().contains("init_on_alloc=0") && fake.args().contains("shift=0"));
    let json: Value = serde_json::from_str(&fake.good("linux --bench -q --json")).expect("JSON");
    assert_eq!(
        (&json["command"], &json["rows"][0]["linux"]),
        (&Value::from("linux-bench"), &Value::from(7001.5))
    );
    assert_eq!(json["rows"][0]["ratio"], Value::Null);
    assert!(fake.bad(2, "linux zipf:2M --bench").contains("cannot be used with"));
}

#[test]
fn kept_boots_judge_again_without_a_kernel() {
    let fake = Fake::new(said_of_sequential_file());
    let (dir, document) = (fake.path("results"), fake.path("truth.md"));
    let line = one_program(&dir, &document);
    fake.good(&line);
    fs::remove_file(fake.path("args")).expect("QEMU was started");
    let folder = fs::read_dir(&dir).expect("the results").next().expect("a kernel").expect("a folder").path();
    let [result, boots] =
        ["json", "boots.json"].map(|end| folder.join(format!("sequential-file.classic.{end}")));
    let before = fs::read_to_string(&result).expect("a result");
    let rows = |text: &str| serde_json::from_str::<Value>(text).expect("a result")["rows"].clone();
    let again = format!("truth {} --only sequential-file -q --again", dir.display());
    for there in [true, false] {
        if !there {
            fs::remove_file(&result).expect("a result");
        }
        let mut command = fake.command(&again);
        command.env("PAGEFOLD_LINUX", "no/such").env("PAGEFOLD_QEMU", "no/such");
        assert!(command.status().expect("the binary runs").success());
        assert_eq!(rows(&fs::read_to_string(&result).expect("a result")), rows(&before));
    }
    fs::remove_file(&result).expect("a result");
    fake.good(&line);
    assert!(!fake.path("args").exists(), "boots that are there are not made again");
    let text = fs::read_to_string(&boots).expect("boots").replace("--cpus 1", "--cpus 2");
    fs::write(&boots, text).expect("boots");
    let message = fake.bad(2, &again);
    assert!(message.contains("sequential-file.classic.boots.json: the boots are of "), "{message}");
    let message = fake.bad(2, &format!("truth {} --only zipf-1cpu -q --again", dir.display()));
    assert!(message.contains("there are no boots of these programs"), "{message}");
}

#[test]
fn a_failed_comparison_is_kept_with_its_reason_until_it_is_retried() {
    let fake = Fake { status: 0, ..Fake::new(PANIC) };
    let (dir, document) = (fake.path("results"), fake.path("truth.md"));
    let line = one_program(&dir, &document);
    assert!(fake.bad(1, &line).contains("2 comparisons failed"));
    let text = fs::read_to_string(&document).expect("the document");
    assert!(
        text.contains("| sequential-file | mglru | the guest's kernel panicked: System is deadlocked"),
        "{text}"
    );
    fs::remove_file(fake.path("args")).expect("QEMU was started");
    assert!(fake.bad(1, &line).contains("2 comparisons failed"), "it is not forgotten");
    assert!(!fake.path("args").exists(), "nor tried again");
    let mended = Fake { said: said_of_sequential_file(), status: 33, ..fake };
    mended.good(&format!("{line} --retry"));
    let text = fs::read_to_string(&document).expect("the document");
    assert!(!text.contains("## Failed comparisons"), "{text}");
}

#[test]
fn a_guest_that_kills_the_program_is_a_failed_comparison() {
    let text = said(1, 0).replace("@done nanos", "@oom process 131 was killed\n@done nanos");
    let fake = Fake { status: 35, ..Fake::new(text.replace("@end ok", "@end failed")) };
    let (dir, document) = (fake.path("results"), fake.path("truth.md"));
    let message = fake.bad(1, &one_program(&dir, &document));
    assert!(message.contains("2 comparisons failed"), "{message}");
    let text = fs::read_to_string(&document).expect("the document");
    assert!(text.contains("too little memory to run this program: process 131 was killed"), "{text}");
}

#[test]
fn what_is_held_out_is_run_on_request() {
    let fake = Fake { status: 0, ..Fake::new(PANIC) };
    let dir = fake.path("results");
    let line = format!("truth {} --only held-phases --boots 1 -q", dir.display());
    assert!(fake.bad(2, &line).contains("--held-out"));
    assert!(!fake.path("args").exists(), "QEMU was not started");
    fake.bad(1, &format!("{line} --held-out"));
    assert!(fake.args().contains("-smp"));
}
