//! Sweeps: no finished run is lost or repeated.

use super::*;
use std::time::Duration;

/// 24 runs of a few milliseconds each.
const SWEEP: &str = r#"
title = "small"
runs = 3
[run]
program = "zipf:{size}"
machine = "small"
memory = "{memory}%"
profile = "{profile}"
[axes]
profile = ["classic", "lazy"]
size = ["2M", "3M"]
memory = [60, 80]
[show]
compare = "profile"
"#;

fn file(folder: &Path, text: &str) -> String {
    let path = folder.join("sweep.toml");
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn lines(dir: &Path) -> Vec<String> {
    let text = fs::read_to_string(dir.join("runs.jsonl")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn killed_sweep_loses_and_repeats_no_finished_run() {
    let scratch = tempfile::tempdir().unwrap();
    let file = file(scratch.path(), SWEEP);
    let at = |name: &str| scratch.path().join(name);
    let sweep = |dir: &Path| format!("sweep {file} --out {} --quiet --jobs 2", dir.display());
    let whole = good(&sweep(&at("whole")));
    let dir = at("killed");
    let mut before: Vec<String> = Vec::new();
    for kill in 0..50 {
        let mut child = command().args(words(&sweep(&dir))).stdout(Stdio::null()).spawn().unwrap();
        // Each time at another moment; how far it gets depends on the computer.
        std::thread::sleep(Duration::from_micros(2_000 + 1_370 * kill));
        child.kill().unwrap();
        child.wait().unwrap();
        let now = lines(&dir);
        // The last line may have been half written, and a sweep that is done puts its lines in order.
        let finished = &before[..before.len().saturating_sub(1)];
        assert!(finished.iter().all(|line| now.contains(line)), "finished runs are kept");
        before = now;
    }
    assert_eq!(good(&sweep(&dir)), whole);
    // Runs end in any order; in a directory that has all of them they are in that of the sweep.
    for name in ["runs.jsonl", "result.txt", "result.json", "result.csv", "result.svg"] {
        let read = |dir: &str| fs::read_to_string(at(dir).join(name)).unwrap();
        assert_eq!(read("killed"), read("whole"), "{name}");
    }
    let all = lines(&dir);
    let runs: std::collections::BTreeSet<String> =
        all[1..].iter().map(|line| serde_json::from_str::<Value>(line).unwrap()["key"].to_string()).collect();
    assert_eq!((all.len(), runs.len()), (25, 24), "a line for each run, and the first line");
    // A finished sweep runs nothing.
    good(&sweep(&dir));
    assert_eq!(lines(&dir), all);
}

#[test]
fn sweep_resumes_after_a_full_disk() {
    let scratch = tempfile::tempdir().unwrap();
    let (file, dir) = (file(scratch.path(), SWEEP), scratch.path().join("out"));
    let line = format!(
        "trap '' XFSZ; ulimit -f 60; exec {} sweep {file} --out {} -q",
        env!("CARGO_BIN_EXE_pagefold"),
        dir.display()
    );
    let output = shell(&line);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.lines().count() == 1 && text.contains("runs.jsonl") && text.contains("continues"), "{text}");
    let kept = lines(&dir);
    assert!((2..25).contains(&kept.len()), "{}", kept.len());
    good(&format!("sweep {file} --out {} -q", dir.display()));
    let all = lines(&dir);
    assert!(kept.iter().all(|line| all.contains(line)), "finished runs are kept");
    assert_eq!(all.len(), 25);
}

#[test]
fn wrong_sweep_files_are_refused_before_any_run() {
    let scratch = tempfile::tempdir().unwrap();
    let out = scratch.path().join("out");
    for (from, to, expected) in [
        (
            "\"small\"\nmemory",
            "\"smal\"\nmemory",
            "size=2M, memory=60: unknown machine 'smal'; did you mean 'small'?",
        ),
        ("[60, 80]", "[60, 0]", "memory=0: memory: '0%' is not a share"),
        ("[\"2M\", ", "[\"2X\", ", "size=2X"),
        ("\"lazy\"]", "\"lasy\"]", "profile=lasy, size=2M, memory=60: unknown profile 'lasy'"),
        ("compare = \"profile\"", "compares = \"profile\"", "line 14: unknown field `compares`"),
        ("{size}", "{sizes}", "there is no axis 'sizes'"),
        ("compare", "metrics = []\ncompare", "'metrics' names none"),
        ("compare", "metrics = [\"run_tim\"]\ncompare", "unknown metric 'run_tim'"),
    ] {
        let file = file(scratch.path(), &SWEEP.replace(from, to));
        let text = bad(&words(&format!("sweep {file} --out {} -q", out.display())));
        assert!(text.contains(expected), "{text}");
        assert!(lines(&out).len() <= 1, "a run was done: {text}");
        let _ = fs::remove_dir_all(&out);
    }
    bad(&words(&format!("sweep {} --out {}", scratch.path().join("none.toml").display(), out.display())));
    bad(&words("sweep examples/sweeps/luf.toml"));
}

#[test]
fn picture_names_what_each_cut_is_compared_with() {
    let scratch = tempfile::tempdir().unwrap();
    let cuts = "metrics = [\"run_time\", \"pgfree\"]\n[[cut]]\n[[cut]]\nprofile = [\"lazy\", \"classic\"]\n";
    let picture = |name: &str, text: &str| {
        let (file, out) = (file(scratch.path(), text), scratch.path().join(name));
        good(&format!("sweep {file} --out {} -q", out.display()));
        fs::read_to_string(out.join("result.svg")).unwrap()
    };
    let two = picture("two", &format!("{SWEEP}{cuts}"));
    assert!(two.contains("run_time over size, against lazy") && two.contains("against classic"), "{two}");
    assert!(two.contains("(up is more, not better)") && !two.contains("Change against "), "{two}");
    let one = picture("one", SWEEP);
    assert!(one.contains("Change against classic") && !one.contains(", against "), "{one}");
}

#[test]
fn point_that_cannot_run_is_shown_as_missing() {
    let scratch = tempfile::tempdir().unwrap();
    let text = SWEEP.replace("\"small\"\nmemory", "\"compact-8\"\nmemory").replace("[60, 80]", "[5, 200]");
    let text = text.replace("zipf:{size}", "anon-w-rand:{size}").replace("[\"2M\", \"3M\"]", "[\"64M\"]");
    let file = file(scratch.path(), &text);
    let out = scratch.path().join("out").display().to_string();
    let json = good_json(&format!("sweep {file} --out {out} -q --json"));
    let rows = json["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    let shown = |memory: &str| {
        let row = rows.iter().find(|row| row["values"]["memory"] == memory).unwrap();
        (row["shown"].as_array().unwrap().len(), row["missing"].is_string())
    };
    assert_eq!((shown("5"), shown("200")), ((0, true), (2, false)), "{json}");
    documented(&[&json, &rows[1], &rows[1]["shown"][0]]);
}

/// What a sweep and a comparison say of the same runs: sign, number and unit, in JSON and in the table.
#[test]
fn sweep_and_comparison_agree() {
    let scratch = tempfile::tempdir().unwrap();
    let text = SWEEP.replace("\"2M\", \"3M\"", "\"32M\"").replace("60, 80", "90");
    let metrics = ["run_time", "pgmajfault", "tlb_misses", "pgpgin", "kswapd_cpu_time"];
    let shown = format!("compare = \"profile\"\nmetrics = {metrics:?}");
    let file = file(scratch.path(), &text.replace("compare = \"profile\"", &shown));
    let sweep = format!("sweep {file} --out {} -q", scratch.path().join("out").display());
    let compare = "compare zipf:32M --machine small --memory 90% --with lazy --runs 3 -q";
    let (swept, compared) = (good_json(&format!("{sweep} --json")), good_json(&format!("{compare} --json")));
    assert_eq!((&swept["schema"], &compared["schema"]), (&json!(2), &json!(1)));
    let of_lazy = |rows: &Value, key: &str, name: &str| -> Value {
        let mut rows = rows.as_array().unwrap().iter();
        let found = rows.find(|row| row[key] == name && row["profile"] != "classic");
        found.unwrap_or_else(|| panic!("{name}")).clone()
    };
    let lazy =
        swept["rows"].as_array().unwrap().iter().find(|row| row["values"]["profile"] == "lazy").unwrap();
    let (sweep_text, compare_text) = (good(&sweep), good(compare));
    let mut changes = 0;
    for name in metrics {
        let (one, other) =
            (of_lazy(&lazy["shown"], "metric", name), of_lazy(&compared["rows"], "metric", name));
        for (left, right) in
            [("mean", "value"), ("ci", "ci"), ("unit", "unit"), ("better", "better"), ("ratio", "ratio")]
                .into_iter()
                .chain([("change_pct", "change_pct"), ("change_ci", "change_ci_pct")])
        {
            assert_eq!(one[left], other[right], "{name}: {left}");
        }
        let change = other["change_pct"].as_f64().unwrap();
        changes += u32::from(change != 0.0);
        let text = format!("{change:+.2}%");
        assert!(sweep_text.contains(&text) && compare_text.contains(&text), "{name}: {text}\n{sweep_text}");
    }
    assert!(changes > 2, "{sweep_text}");
    assert!(sweep_text.contains("+ is better, - is worse"), "{sweep_text}");
}

#[test]
fn runs_are_written_as_parquet_by_builds_that_can() {
    let scratch = tempfile::tempdir().unwrap();
    let (file, out) = (file(scratch.path(), SWEEP), scratch.path().join("out").display().to_string());
    good(&format!("sweep {file} --out {out} -q"));
    let table = scratch.path().join("runs.parquet");
    fs::write(&table, "what was there").unwrap();
    let report = format!("report {out} --parquet {}", table.display());
    if cfg!(feature = "parquet") {
        assert_eq!(good(&report), good(&format!("report {out}")));
        let bytes = fs::read(&table).unwrap();
        assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
    } else {
        let text = bad(&words(&report));
        assert!(text.contains("runs.parquet") && text.contains("--features parquet"), "{text}");
        assert_eq!(fs::read(&table).unwrap(), b"what was there");
    }
}
