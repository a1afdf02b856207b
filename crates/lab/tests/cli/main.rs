//! The command end to end, as a shell runs it.

mod calibrating;
mod defaults;
mod drawing;
mod explaining;
mod files;
mod groups;
mod importing;
mod needing;
mod output;
mod pages;
mod recording;
mod reproductions;
mod swapping;
mod sweeps;
mod tuning;

use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

/// Run `pagefold` with these words.
fn pagefold<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> Output {
    command().args(args).output().expect("the binary runs")
}

fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pagefold"));
    command
        .stdin(Stdio::null())
        .env_remove("RUST_BACKTRACE")
        .env_remove("COLUMNS")
        .env("PAGEFOLD_CONFIG", "");
    command
}

/// Run a line of a shell's.
fn shell(line: &str) -> Output {
    Command::new("sh").args(["-c", line]).stdin(Stdio::null()).env("PAGEFOLD_CONFIG", "").output().unwrap()
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("output is UTF-8")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("output is UTF-8")
}

/// The output of a command that must succeed.
fn good(line: &str) -> String {
    let output = pagefold(words(line));
    assert_eq!(output.status.code(), Some(0), "{line}: {}", stderr(&output));
    stdout(&output)
}

fn good_json(line: &str) -> Value {
    serde_json::from_str(&good(line)).unwrap_or_else(|error| panic!("{line}: {error}"))
}

/// The one line of the message for bad input.
fn bad<S: AsRef<std::ffi::OsStr> + std::fmt::Debug>(args: &[S]) -> String {
    let output = pagefold(args);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
    assert_eq!(text.lines().count(), 1, "{args:?}: {text}");
    assert!(text.starts_with("pagefold: "), "{args:?}: {text}");
    assert_eq!(stdout(&output), "", "{args:?}");
    text
}

/// Interrupt a command as Ctrl-C does.
fn interrupt(child: &Child) {
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
}

/// Wait until a command catches Ctrl-C: before that, it would just end.
fn wait_until_it_catches_interrupts(child: &Child) {
    let catches = || {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() >> 1 & 1 == 1
    };
    while !catches() {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Wait until a command has written this many lines into a file, or has ended; two minutes at most.
fn wait_for_lines(child: &mut Child, file: &Path, lines: usize) {
    for _ in 0..6000 {
        let are_there = fs::read_to_string(file).is_ok_and(|text| text.matches('\n').count() >= lines);
        if are_there || child.try_wait().unwrap().is_some() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The row of a metric.
fn row<'a>(json: &'a Value, metric: &str) -> &'a Value {
    let mut rows = json["rows"].as_array().expect("there are rows").iter();
    rows.find(|row| row["metric"] == metric).unwrap_or_else(|| panic!("{metric}"))
}

/// docs/json.md names all keys of these objects.
fn documented(objects: &[&Value]) {
    let document = include_str!("../../../../docs/json.md");
    for key in objects.iter().flat_map(|object| object.as_object().expect("it is an object").keys()) {
        assert!(document.contains(&format!("`{key}`")), "docs/json.md does not name {key}");
    }
}

/// A comparison of a small program with little memory, which takes a moment.
const COMPARE: &str =
    "compare zipf:32M --machine small --memory 60% --with classic+vm.swappiness=0 --runs 2 --quiet";

#[test]
fn help_names_every_command_and_shows_examples() {
    let help = good("--help");
    let commands = words(
        "run compare explain reproduce parts bound optimum curve scale boot linux truth report record import info calibrate list",
    );
    for word in commands.iter().copied().chain(["Examples:", "Exit codes:"]) {
        assert!(help.contains(word), "{word}");
    }
    for command in commands {
        assert!(good(&format!("{command} --help")).contains("Example"), "{command}");
    }
    assert!(good("--version").starts_with("pagefold "));
}

/// Each line is refused with a message that has the expected words, and leaves no file.
fn refused(lines: &[(&str, &str)]) {
    for (line, expected) in lines {
        let message = bad(&words(line));
        assert!(message.contains(expected), "{line}: {message}");
        assert!(!Path::new("x.pft").exists(), "{line}");
    }
}

#[test]
fn bad_input_of_runs_is_refused_in_one_line() {
    refused(&[
        ("", "no command given"),
        ("comprae zipf", "'compare'"),
        ("run", "PROGRAM"),
        ("run zipf --memori 1G", "'--memory'"),
        ("run zipf --fragment frag-75", "none of the presets"),
        ("run zipf:8M --machine small --placement", "placement needs memory of two tiers"),
        (
            "run zipf:8M --machine small --fragment free=60%,orders=100/0/0/0/0/0/0/0/0/0/0",
            "cannot be reached",
        ),
        ("boot zipf --fragment frag-50", "'--fragment'"),
        ("boot zipf --group a:frobs=1", "no setting 'frobs'"),
        ("run zipf:1M --group a:memory.mx=1M", "did you mean 'memory.max'?"),
        ("run zipf:1M --group a:memory.max=1Q", "'1Q' is not a size"),
        ("run zipf:1M --group a --group b", "which processes begin in 'b'"),
        ("run zipf:1M --group a --group a", "named twice"),
        ("run zipf:1M --group a:processes=0 --group b:processes=0-", "cannot begin in two groups"),
        ("run zipf:8M --group tight:memory.max=1M,memory.swap.max=0", "'tight' is too small"),
        ("run zipff", "did you mean 'zipf'?"),
        ("run zipf:12Q", "is not a size"),
        ("run zipf:", "is not a size"),
        ("run zipf --machine labtop", "did you mean 'laptop'?"),
        ("run zipf --machine ./no-such.toml", "no-such.toml"),
        ("run zipf --profile clasic", "did you mean 'classic'?"),
        ("run zipf --profile classic+swappiness=1", "did you mean 'vm.swappiness'?"),
        ("run zipf --set vm.swapiness=1", "did you mean 'vm.swappiness'?"),
        ("run zipf --set vm.swappiness", "KNOB=VALUE"),
        ("run zipf --set vm.swappiness=high", "whole number"),
        ("run zipf --set vm.swappiness=999", "between 0 and 200"),
        ("run zipf --memory lots", "is not a size"),
        ("run zipf --memory 0%", "is not a share"),
        ("run zipf --memory 999999%", "up to 100000%"),
        ("run zipf --memory -5", "'-5' is not a size"),
        ("run zipf --memory 50", "did you mean 50%?"),
        ("run zipf:4K --machine small --memory 2%", "pagefold list machines')\n"),
        ("run zipf --memory 1000T", "more than 8T; give it less"),
        ("run zipf --memory 4K", "too small"),
        ("run zipf:8M --limit 1ms", "had not ended after 1.00 ms"),
        ("run zipf:8M --limit 1ns", "'1ns' is not a time"),
        ("run zipf --runs 0", "'--runs <N>'"),
        ("run zipf --seed -1", "--seed"),
        ("run zipf --seed 18446744073709551615 --runs 2", "leaves no room"),
    ]);
}

#[test]
fn bad_input_of_other_commands_is_refused_in_one_line() {
    refused(&[
        ("compare zipf", "--with"),
        ("bound", "PROGRAM"),
        ("bound zipf --profile lasy", "did you mean 'lazy'?"),
        ("bound zipf --profile lazy --profile lazy", "named twice"),
        ("compare zipf --with classic", "named twice"),
        ("compare zipf --with mglru --optimum --preempt 9", "exclude each other"),
        ("optimum", "--built-in SIZE"),
        ("optimum zipf --profile mglru --profile mglru", "named twice"),
        ("optimum --built-in 12Q", "is not a size"),
        ("curve", "PROGRAM"),
        ("scale mmap1_threads:4M", "only its name"),
        ("scale mmap1_threads --cpus 8", "the machine has 4"),
        ("curve zipf --memory 50%", "at least two sizes"),
        ("curve zipf --profile mglru --profile mglru", "named twice"),
        ("curve zipf --svg no-such-dir/x.svg", "its folder does not exist"),
        ("run no-such-file.pft", "no-such-file.pft"),
        ("info no-such-file.pft", "no-such-file.pft"),
        ("info Cargo.toml", "not a Pagefold trace"),
        ("run Cargo.toml", "not a Pagefold trace"),
        ("report no-such-dir", "config.json"),
        ("compare zipf --with classic+vm.swappiness=1 --svg no-such-dir/x.svg", "its folder does not exist"),
        ("list knob", "'knobs'"),
        ("reproduce", "NAME"),
        ("reproduce pfn-flash", "did you mean 'pfn-flush'?"),
        ("reproduce pfn-flush --scale 2", "like 1/16"),
        ("reproduce pfn-flush --scale 0.00001", "choose a larger scale"),
        ("reproduce mglru --scale 1/10000", "choose a larger scale"),
        ("run lru-file-mmap-read:64M", "give it less with --memory"),
        ("run chaos:31T", "the machine's disk for files"),
        ("run zipf:1M --bound --preempt 4", "--preempt and --bound exclude each other"),
        ("bound zipf:1M --preempt 4", "--preempt and --bound exclude each other"),
        ("import --format lackey no-such-file -o x.pft", "no-such-file"),
        ("import --format lackey Cargo.toml -o x.pft", "Cargo.toml"),
        ("record -o x.pft -- no-such-program", ""),
        ("record -o x.pft -- false", ""),
        ("record -o x.pft", "COMMAND"),
        ("parts --memory 0", "a machine needs some memory"),
        ("parts --program zipff", "did you mean 'zipf'?"),
        (
            "parts --program zipf:8M --machine small --runs 1 --metric run_tim --quiet",
            "unknown metric 'run_tim'",
        ),
    ]);
}

#[test]
fn lists_are_printed_as_text_and_as_json() {
    for (topic, key, name) in [
        ("machines", "machine", "laptop"),
        ("profiles", "profile", "classic"),
        ("programs", "program", "zipf"),
        ("knobs", "knob", "vm.swappiness"),
        ("counters", "counter", "pgmajfault"),
        ("metrics", "metric", "run_time"),
        ("events", "event", "mm_page_alloc"),
        ("reproductions", "reproduction", "pfn-flush"),
        ("costs", "work", "zero_page"),
    ] {
        let text = good(&format!("list {topic}"));
        assert!(text.lines().any(|line| line.split_whitespace().next() == Some(name)), "{topic}: {text}");
        let json = good_json(&format!("list {topic} --json"));
        assert!(json.as_array().unwrap().iter().any(|row| row[key] == name), "{topic}");
    }
}

#[test]
fn every_cost_has_a_source() {
    for cost in good_json("list costs --machine laptop --json").as_array().unwrap() {
        assert!(!cost["source"].as_str().unwrap().is_empty(), "{cost}");
        assert!(cost["ns"].as_f64().unwrap() >= 0.0, "{cost}");
    }
}

#[cfg(unix)]
#[test]
fn closed_pipe_is_no_error() {
    let mut child =
        command().args(["list", "counters"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
}

/// Short of memory, so that pages go out and come back.
#[test]
fn recorded_programs_replay_under_the_oracle() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces");
    for name in ["postgresql", "memcached", "jvm", "node", "numpy", "transformer", "compile", "pack"] {
        let trace = folder.join(name).with_extension("pft");
        let json = good_json(&format!("run {} --memory 60% --verify --json --quiet", trace.display()));
        let oracle = &json["oracle"];
        assert!(oracle["checked"].as_u64().is_some_and(|checked| checked > 1_000_000), "{name}: {oracle}");
        assert_eq!(oracle["violations"], 0, "{name}: {oracle}");
    }
}

/// Memory that is mapped, used and unmapped again and again is not needed at once.
#[test]
fn share_of_memory_is_relative_to_the_peak() {
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces/cc1.pft");
    let json = good_json(&format!("run {} --memory 50% --json --quiet", trace.display()));
    let bytes = |key: &str| json[key].as_u64().unwrap();
    assert!(bytes("peak_live") < bytes("footprint"), "{json}");
    assert_eq!(bytes("memory"), bytes("peak_live") / 2);
}

#[test]
fn run_without_reclaim_has_a_warning() {
    let warnings = |memory: &str| {
        let json = good_json(&format!("run zipf:8M --machine small --memory {memory} --json --quiet"));
        json["warnings"].clone()
    };
    let fits = "nothing was reclaimed: what the program uses fits in 64.0 MiB";
    assert_eq!((warnings("64M"), warnings("4M")), (json!([fits]), json!([])));
}

/// More pages allocated, or more of them active, is neither better nor worse.
#[test]
fn neutral_counters_are_neither_better_nor_worse() {
    let json = good_json(&format!("{COMPARE} --all --json"));
    let row = |name: &str| {
        let rows = json["rows"].as_array().unwrap();
        let mut of_name = rows.iter().filter(|row| row["metric"] == name && row["profile"] != "classic");
        of_name.next().unwrap_or_else(|| panic!("{name}")).clone()
    };
    let (neutral, worse) = (row("pgfree"), row("pgscan_anon"));
    assert!(
        neutral["better"].is_null() && neutral["change_pct"].is_null() && neutral["change_ci_pct"].is_null()
    );
    assert!(neutral["ratio"].as_f64().unwrap() > 0.0);
    assert_eq!(worse["better"], "lower");
    assert!(
        good(&format!("{COMPARE} --all"))
            .lines()
            .any(|line| line.starts_with("pgfree ") && line.contains(" x"))
    );
}

#[test]
fn json_of_compare_has_the_promised_keys() {
    let json = good_json(&format!("{COMPARE} --json"));
    let keys = |object: &Value| object.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
    let promised = |names: &str| words(names).into_iter().map(str::to_owned).collect::<BTreeSet<_>>();
    // A promise to users' scripts: docs/json.md. Keys are only ever added.
    let result = "accesses base command commit confidence costs devices footprint host_seconds knobs machine memory \
                  memory_left oracle peak_live profiles program rows runs runs_limit same_work schema seed stopped_by version \
                  warnings work";
    assert_eq!(keys(&json), promised(result));
    assert_eq!(json["profiles"], json!(["classic", "classic+vm.swappiness=0"]));
    assert_eq!(
        (&json["program"], &json["machine"], &json["runs"]),
        (&"zipf:32M".into(), &"small".into(), &2.into())
    );
    assert_eq!(json["knobs"]["classic+vm.swappiness=0"]["vm.swappiness"], 0);
    assert_eq!(json["same_work"], true);
    assert_eq!(json["work"]["classic"], json["work"]["classic+vm.swappiness=0"]);
    assert!(json["accesses"].as_u64().unwrap() > 0 && json["host_seconds"].as_f64().unwrap() > 0.0);
    for row in json["rows"].as_array().unwrap() {
        let row_keys = "better change_bootstrap_pct change_ci_pct change_pct ci diff diff_ci metric profile ratio \
                        unit value";
        assert_eq!(keys(row), promised(row_keys));
        assert_eq!(row["ci"].as_array().unwrap().len(), 2);
        assert_eq!(row["diff"].is_null(), row["profile"] == "classic");
    }
}

#[test]
fn every_listed_metric_is_measured() {
    let of_one_tier =
        good_json("run zipf:32M --machine small --memory 60% --bound --optimum --moves --quiet --json");
    let of_two = good_json("run zipf:8M --machine tiers --memory 40M --placement --quiet --json");
    let value = |metric: &str| {
        let rows = [&of_one_tier, &of_two].into_iter().flat_map(|json| json["rows"].as_array().unwrap());
        rows.into_iter().find(|row| row["metric"] == metric).and_then(|row| row["value"].as_f64())
    };
    for metric in good_json("list metrics --json").as_array().unwrap() {
        assert!(value(metric["metric"].as_str().unwrap()).is_some(), "{metric}");
    }
    // With less memory than the program uses, pages are reclaimed, which takes time.
    for metric in ["run_time", "pgfault_minor", "tlb_misses", "pgscan_kswapd", "kswapd_cpu_time"] {
        assert!(value(metric).unwrap() > 0.0, "{metric}");
    }
}

#[test]
fn completions_and_man_pages_cover_every_command() {
    let help = good("--help");
    let listed =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).map(|line| line.strip_prefix("  "));
    let names = listed.map_while(|line| line.filter(|line| !line.is_empty()));
    let commands: Vec<&str> =
        names.filter(|line| !line.starts_with(' ')).filter_map(|line| line.split(' ').next()).collect();
    assert!(commands.contains(&"sweep") && commands.contains(&"doctor"), "{commands:?}");
    let folder = tempfile::tempdir().unwrap();
    good(&format!("man {}", folder.path().display()));
    let completions = ["bash", "zsh", "fish"].map(|shell| good(&format!("completions {shell}")));
    for command in commands.into_iter().filter(|&command| command != "help") {
        assert!(completions.iter().all(|text| text.contains(command)), "{command}");
        let page = folder.path().join(format!("pagefold-{command}.1"));
        assert!(fs::read_to_string(&page).is_ok_and(|text| text.contains(".SH")), "{page:?}");
    }
    for name in ["mglru", "vm.swappiness=", "icelake-96", "zipf-file", "pfn-flush"] {
        let offered = |text: &String| text.contains(name);
        assert!(completions.iter().all(offered), "completions offer {name}");
    }
    // Programs and machines may be files.
    let offers_files = |line: &&str| line.contains("; _files}") || line.contains(" -r -F -a ");
    for (script, start, count) in [
        (1, ":program -- ", 2),
        (1, "--program=[", 1),
        (1, "--machine=[", 2),
        (2, "run\" -l machine ", 1),
        (2, "parts\" -l program ", 1),
    ] {
        let mut lines = completions[script].lines().filter(|line| line.contains(start)).peekable();
        assert!(lines.peek().is_some() && lines.filter(offers_files).count() >= count, "{start}");
    }
    assert!(good_json("doctor --json").as_array().unwrap().len() > 4);
    assert!(bad(&["completions", "elbash"]).contains("elbash"));
}

#[test]
fn same_seed_prints_the_same_bytes() {
    let line = format!("{COMPARE} --json --no-host-time --verify");
    let first = good(&line);
    assert_eq!(first, good(&line));
    assert_eq!(first, good(&format!("{line} --jobs 1")), "the number of threads changes nothing");
    let other = good(&format!("{line} --seed 2"));
    assert_ne!(first, other);
    // Also with optional counts.
    for line in [
        "run btree:4M:2 --machine tiers:1:2 --memory 5M --profile tpp --placement --all",
        "run zipf:16M --machine small --memory 60% --bound --optimum --moves --all",
    ] {
        let line = format!("{line} --json --quiet --no-host-time");
        assert_eq!(good(&line), good(&line));
    }
    let json: Value = serde_json::from_str(&first).unwrap();
    assert!(json["oracle"]["checked"].as_u64().unwrap() > 0);
    assert_eq!(json["oracle"]["violations"], 0);
}

#[test]
fn table_has_the_base_first() {
    let text = good(COMPARE);
    let heading = text.lines().find(|line| line.starts_with("metric")).expect("there is a table");
    assert_eq!(words(heading)[..4], ["metric", "classic", "classic+vm.swappiness=0", "change"]);
    assert!(text.contains("work done: the same on all sides"), "{text}");
}

#[test]
fn bound_is_below_the_flushes_of_every_policy() {
    let line = "bound zipf:16M --machine small --memory 60% --quiet --no-host-time";
    let text = good(line);
    let rows = |name: &str| text.lines().filter(|row| words(row).first() == Some(&name)).count();
    assert_eq!(rows("profile"), 2, "{text}");
    for policy in ["eager", "classic", "list", "lazy", "abis", "latr"] {
        assert_eq!(rows(policy), 2, "{policy}: {text}");
    }
    let json = good_json(&format!("{line} --json --profile eager --profile classic+vm.swappiness=100"));
    assert_eq!((&json["command"], &json["runs"]), (&"bound".into(), &1.into()));
    assert_eq!(json["profiles"], json!(["eager", "classic+vm.swappiness=100"]));
    for bound in json["bounds"].as_array().unwrap() {
        let number = |level: &str, what: &str| bound[level][what].as_u64().unwrap();
        for what in ["rounds", "receptions"] {
            let own = bound[what].as_u64().unwrap();
            assert!(number("l1", what) <= number("l2", what) && number("l1", what) <= own, "{bound}");
        }
        documented(&[&json, bound, &bound["l1"]]);
    }
    assert_eq!(good(line), text);
    // Other commands have these rows only with --bound.
    let compare = |more: &str| {
        let json = good_json(&format!("compare zipf:16M --machine small --with eager --quiet --json{more}"));
        json["rows"].as_array().unwrap().iter().filter(|row| row["metric"] == "tlb_rounds_bound_l1").count()
    };
    assert_eq!((compare(""), compare(" --bound")), (0, 2));
}

#[test]
fn documents_match_the_code() {
    let machines = include_str!("../../../../docs/machines.md");
    assert!(machines.contains(include_str!("../../../machine-sim/machines/small.toml")), "docs/machines.md");
    let json = good_json("run zipf:1M --machine small --quiet --json");
    let device = json["devices"]["classic"].as_object().unwrap().values().next().unwrap();
    let random = good_json("run chaos:1M:20 --machine small --quiet --json");
    assert!(random["covered"]["chaos:mmap/done"].as_u64().unwrap() > 0);
    documented(&[&json, &random, &json["rows"][0], &json["work"]["classic"], device]);
}

#[test]
fn curve_shows_more_and_less_memory() {
    let folder = tempfile::tempdir().unwrap();
    let svg = folder.path().join("curve.svg");
    let line = "curve stream:24M --machine small --memory 100% --memory 50% --memory 4K --memory 150% --profile classic --profile lfu \
                --runs 2 --quiet --no-host-time";
    let json = good_json(&format!("{line} --json --svg {}", svg.display()));
    let rows = json["rows"].as_array().unwrap();
    let sizes: Vec<_> = rows.iter().map(|row| row["memory"].as_u64().unwrap()).collect();
    let peak = json["peak_live"].as_u64().unwrap();
    assert_eq!(sizes[..4], [4096, 4096, peak / 2, peak / 2], "from the least");
    assert!(rows[0]["missing"].as_str().unwrap().contains("too small") && rows[0]["run_time"].is_null());
    // Each pass over the file reads all of it again with half of the memory, and nothing with all of it.
    assert!(rows[2]["refaults"]["mean"].as_f64() > Some(1000.0) && rows[6]["refaults"]["mean"] == 0.0);
    assert!(rows[2]["run_time"]["mean"].as_f64() > rows[6]["run_time"]["mean"].as_f64());
    assert!(rows[2]["run_time"]["interval"].is_array());
    let picture = std::fs::read_to_string(svg).unwrap();
    assert!(picture.contains("<svg") && picture.contains("lfu") && picture.contains("150%"));
    // Each run is a dot, and the kernel's share of the memory is told.
    assert_eq!(rows[2]["run_time"]["runs"].as_array().unwrap().len(), 2);
    assert!(picture.matches("class=\"l0 dot\"").count() >= 2 * 3 * 3, "{picture}");
    let left = rows[4]["left"].as_u64().unwrap();
    assert!(left < peak && left > peak * 9 / 10, "{left} of {peak}");
    documented(&[&json, &rows[0], &rows[2]["run_time"]]);
    let text = good(line);
    assert!(text.contains("left: to the program and its page tables"), "{text}");
    assert!(text.contains("150 %") && text.contains("run time") && text.contains("too small"), "{text}");
}

/// The random program does something else with each seed, so its run times always differ.
#[test]
fn curve_adds_sizes_where_runs_differ() {
    let line =
        "curve chaos:8M --machine small --memory 30% --memory 60% --profile classic --quiet --no-host-time";
    let added = |more: &str| -> Vec<bool> {
        let json = good_json(&format!("{line} {more} --json"));
        json["rows"].as_array().unwrap().iter().map(|row| row["added"] == true).collect()
    };
    assert_eq!(added("--between 2"), [false, true, true, false]);
    assert_eq!(added("--between 0"), [false, false]);
    assert_eq!(added("--runs 1 --between 2").len(), 2, "one run does not differ from itself");
    assert!(good(line).contains("+: added, as run times"));
}

/// The random program keeps what its tasks tell each other. Runs shared that, so they took whatever course those at the
/// same time took.
#[test]
fn runs_of_the_random_program_do_not_know_each_other() {
    let json = |more: &str| {
        let line = format!("run chaos:4M --machine small --memory 60% -q --json --no-host-time {more}");
        good_json(&line)["rows"].clone()
    };
    let both = json("--runs 2 --jobs 2");
    assert_eq!(both, json("--runs 2 --jobs 1"));
    let mean = |row: &Value, other: &Value| {
        (row["value"].as_f64().unwrap() + other["value"].as_f64().unwrap()) / 2.0
    };
    let (first, second) = (json("--seed 1"), json("--seed 2"));
    let alone = mean(&first[0], &second[0]);
    assert!((both[0]["value"].as_f64().unwrap() / alone - 1.0).abs() < 1e-9, "{both}");
}

#[test]
fn parts_shows_what_each_part_of_mglru_is_worth() {
    let line =
        "parts --program zipf:2M --machine small --runs 2 --metric pgfault_minor --quiet --no-host-time";
    let json = good_json(&format!("{line} --json"));
    let parts = json["parts"].as_array().unwrap();
    let row = &json["programs"][0];
    assert_eq!((parts.len(), row["alone"].as_array().unwrap().len()), (7, 7));
    assert!(row["mglru"]["pct"].is_number() && row["mglru"]["ci_pct"].is_array(), "{row}");
    documented(&[&json, row, &row["mglru"]]);
    let text = good(line);
    assert!(text.contains("look-around") && text.lines().any(|line| line.starts_with("zipf:2M")), "{text}");
}

#[test]
fn optimum_compares_policies_with_the_fewest_refaults() {
    let line = "optimum zipf:24M stream:24M --machine small --memory 50% --memory 4K --profile classic --profile lfu --quiet \
                --no-host-time";
    let json = good_json(&format!("{line} --json"));
    assert_eq!((&json["command"], &json["profiles"]), (&"optimum".into(), &json!(["classic", "lfu"])));
    let rows = json["rows"].as_array().unwrap();
    let places: Vec<_> =
        rows.iter().map(|row| (&row["program"], &row["profile"], row["missing"].is_null())).collect();
    assert_eq!(places.len(), 8);
    assert_eq!(places[5], (&"stream:24M".into(), &"lfu".into(), true));
    assert!(rows[2]["missing"].as_str().unwrap().contains("too small") && rows[2]["refaults"].is_null());
    assert_eq!(rows[4]["optimum"], 3072);
    assert_eq!(json["means"]["lfu"]["cases"], 2);
    let text = good(line);
    assert!(
        text.contains("pages x optimum") && text.contains("note: zipf:24M at 4.00 KiB, classic:"),
        "{text}"
    );
    let run = good_json("run stream:24M --machine small --memory 50% --optimum --json --quiet");
    assert_eq!(row(&run, "refaults_optimum")["value"], 3072.0);
}

#[test]
fn run_shows_costs_and_devices() {
    let line = "run zipf:32M --machine small --memory 60% --quiet";
    let text = good(line);
    assert!(text.lines().any(|line| words(line).starts_with(&["kernel", "work", "count"])), "{text}");
    assert!(text.lines().any(|line| words(line).first() == Some(&"fault_entry")), "{text}");
    assert!(text.lines().any(|line| words(line).starts_with(&["device", "reads"])), "{text}");
    let json = good_json(&format!("{line} --json"));
    assert!(json["costs"]["classic"]["fault_entry"]["count"].as_u64().unwrap() > 0);
    let device = json["devices"]["classic"].as_object().unwrap().values().next().unwrap();
    assert!(device["writes"].as_f64().unwrap() > 0.0, "{device}");
}

#[test]
fn profile_tree_and_folded_stacks_add_up() {
    let dir = tempfile::tempdir().unwrap();
    let folded = dir.path().join("zipf.folded");
    let run = format!("run zipf:32M --machine small --memory 60% --folded {}", folded.display());
    let json = good_json(&format!("{run} --profile-tree --runs 2 --json"));
    let tree = &json["profile_tree"];
    let cpu: f64 =
        tree["children"].as_array().unwrap().iter().filter_map(|c| c["total_picos"].as_f64()).sum();
    assert_eq!(tree["total_picos"].as_f64(), Some(cpu));
    // Every picosecond of the tree is in a stack, rounded to nanoseconds.
    let stacks = fs::read_to_string(&folded).unwrap();
    let nanos: f64 =
        stacks.lines().map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum();
    assert!((nanos - cpu / 1000.0).abs() <= stacks.lines().count() as f64, "{nanos} of {cpu}");
    assert!(stacks.lines().any(|line| line.starts_with("program;exc_page_fault;")), "{stacks}");
    assert!(!good(&run).contains("exc_page_fault"), "only the stacks were requested");
    assert!(good(&format!("{run} --profile-tree")).contains("    exc_page_fault"));
    let nowhere = bad(&["run", "zipf:1M", "--folded", "no/such/file"]);
    assert!(nowhere.contains("no/such/file"), "{nowhere}");
}

#[test]
fn locks_and_cache_lines_are_told_in_records_of_their_own() {
    let run = "run stream:16M:4 --machine laptop --memory 50% --quiet --locks";
    let json = good_json(&format!("{run} --json"));
    let (locks, lines) = (json["locks"].as_array().unwrap(), json["lines"].as_array().unwrap());
    let keys = |object: &Value| object.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    for lock in locks {
        assert_eq!(keys(lock), ["contended", "held", "holders", "lock", "longest", "taken", "waited"]);
        assert!(!lock["lock"].as_str().unwrap().ends_with("_line"), "{lock}");
    }
    for line in lines {
        assert_eq!(keys(line), ["fetched", "line", "longest", "took"]);
        assert!(line["line"].as_str().unwrap().ends_with("_line"), "{line}");
    }
    documented(&[&locks[0], &lines[0]]);
    let frames = lines.iter().find(|line| line["line"] == "frame_line").expect("frames have lines");
    let [fetched, took, longest] = ["fetched", "took", "longest"].map(|key| frames[key].as_u64().unwrap());
    assert!(fetched > 0 && took >= longest && longest > 0, "{frames}");
    let text = good(run);
    let heading = |text: &str, of: &[&str]| {
        text.lines().any(|line| line.split_whitespace().take(of.len()).eq(of.iter().copied()))
    };
    assert!(heading(&text, &["lock", "taken", "contended"]), "{text}");
    assert!(heading(&text, &["line", "fetched", "took", "longest"]), "{text}");
    // Of a CPU that is alone there is nothing to tell.
    let alone = good_json("run stream:4M --machine small --quiet --locks --json");
    assert_eq!((&alone["locks"], &alone["lines"]), (&json!([]), &json!([])));
    let without = good_json("run stream:4M --machine small --quiet --json");
    assert!(without["locks"].is_null() && without["lines"].is_null());
}

#[test]
fn machine_may_be_described_in_a_file() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("mine.toml");
    let shown = path.to_str().unwrap().to_owned();
    let preset = include_str!("../../../machine-sim/machines/small.toml");
    fs::write(&path, preset).unwrap();
    let json = good_json(&format!("run zipf:16M --machine {shown} --quiet --json"));
    assert_eq!(json["machine"], shown.as_str());
    fs::write(&path, format!("{preset}\nsurprise = 1\n")).unwrap();
    let message = bad(&["run", "zipf:16M", "--machine", &shown]);
    assert!(message.contains("mine.toml") && message.contains("line"), "{message}");
}

#[test]
fn out_of_memory_without_swap_is_explained() {
    let message = bad(&["run", "zipf:64M", "--machine", "luf-cxl", "--memory", "48M", "--quiet"]);
    assert!(message.contains("ran out of memory") && message.contains("has no swap"), "{message}");
    // Node, zone, order, who asked, and what was free elsewhere.
    for part in [" wanted order 0 on node 0, zone ", " of space ", "; free: node 0 ", ", node 1 Movable "] {
        assert!(message.contains(part), "{part}: {message}");
    }
}

#[test]
fn a_truncated_trace_is_refused_by_name() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("in"), "I  00400000,4\n S 00100000,8\n").unwrap();
    good(&format!("import --format lackey {} -o {}", path("in"), path("out.pft")));
    let whole = fs::read(path("out.pft")).unwrap();
    for length in [0, 3, whole.len() / 2, whole.len() - 1] {
        fs::write(path("cut.pft"), &whole[..length]).unwrap();
        let message = bad(&["run", &path("cut.pft"), "--machine", "small"]);
        assert!(message.contains("cut.pft"), "{message}");
    }
}
