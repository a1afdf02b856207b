//! Knobs that suit a program.

use super::*;

/// A search of a few settings that takes a moment.
const LINE: &str = "tune zipf:8M --memory 75% --runs 4 --budget 16 --quiet --no-host-time";

#[test]
fn the_best_setting_is_judged_with_seeds_that_the_search_did_not_see() {
    let line = format!(
        "{LINE} --json --knob vm.page-cluster=0..3 --knob tlb.unmap=batch,eager --base classic+tlb.unmap=eager"
    );
    let json = good_json(&line);
    assert_eq!((&json["search_seeds"], &json["unseen_seeds"]), (&json!([1, 2]), &json!([3, 4])));
    let tried = json["tried"].as_array().unwrap();
    assert!((1..=7).contains(&tried.len()), "{json}");
    let gain = |tried: &Value| tried["worth"]["pct"].as_f64().unwrap_or(f64::MIN);
    let most = tried.iter().map(gain).fold(f64::MIN, f64::max);
    match json["best"]["search"]["pct"].as_f64() {
        Some(best) => assert_eq!(best, most),
        None => assert!(most <= 0.0, "{json}"),
    }
    documented(&[&json, &json["knobs"][0], &tried[0], &tried[0]["worth"]]);
    assert_eq!(json["knobs"][0]["values"], json!(["0", "1", "2", "3"]));
    let text = good(&line.replace("--json ", ""));
    assert!(text.contains("seeds 3..4, which the search did not see"), "{text}");
    assert_eq!(text, good(&line.replace("--json ", "--jobs 1 ")), "repeated, and with other threads");
}

/// Without read-ahead each page of a file that is read from beginning to end is read alone.
#[test]
fn winner_comes_with_lines_for_linux_and_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out").display().to_string();
    let line = format!(
        "{} --knob queue.read_ahead_kb=0,128 --knob lru.batch=15 --base classic+queue.read_ahead_kb=0 --out {out}",
        LINE.replace("zipf:8M", "read-stream:8M")
    );
    let text = good(&line);
    for expected in [
        "queue.read_ahead_kb=128 has a better run_time than classic+queue.read_ahead_kb=0: +9",
        "\n  echo 128 | tee /sys/block/*/queue/read_ahead_kb\n",
        "\nAt each boot, in /etc/tmpfiles.d/90-pagefold.conf:\n  w /sys/block/*/queue/read_ahead_kb - - - - 128\n",
        "\nTo take it back:\n  echo 0 | tee /sys/block/*/queue/read_ahead_kb\n  rm -f /etc/tmpfiles.d/90-pagefold.conf\n",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let kept = fs::read_to_string(folder.path().join("out/runs.jsonl")).unwrap();
    assert_eq!(good(&line), text, "nothing runs again");
    assert_eq!(fs::read_to_string(folder.path().join("out/runs.jsonl")).unwrap(), kept);
    assert_eq!(fs::read_to_string(folder.path().join("out/result.txt")).unwrap(), text);
    let other = bad(&words(&line.replace("--budget 16", "--budget 12")));
    assert!(other.contains("differs from the requested tuning"), "{other}");
}

#[test]
fn limits_of_groups_are_searched_and_set_by_systemd() {
    let line =
        format!("{LINE} --group web:memory.high=50% --knob web:memory.high=100% --metric pgmajfault --json");
    let json = good_json(&line.replace("--memory 75% ", ""));
    let apply = json["apply"][0].as_str().unwrap_or_else(|| panic!("{json}"));
    assert!(apply.starts_with("systemctl set-property web.service MemoryHigh="), "{apply}");
    assert!(json["recommended"]["group"][0].as_str().unwrap().starts_with("web:memory.high="), "{json}");
}

#[test]
fn wrong_input_is_refused_in_one_line() {
    for (more, expected) in [
        ("--knob vm.swapiness=0..9", "did you mean 'vm.swappiness'?"),
        ("--knob web:memory.high=50%", "--group web makes one"),
        ("--base clasic", "did you mean 'classic'?"),
        ("--budget 3", "need 4 runs"),
        ("--runs 3", "4..=10000"),
        ("--metric run_tme", "unknown metric 'run_tme'"),
        ("--metric nr_free_pages", "neither more nor less"),
        ("--fragment fragg", "fragg"),
    ] {
        let line = match more.starts_with("--budget") || more.starts_with("--runs") {
            true => format!("tune zipf:8M --memory 75% --runs 4 --quiet {more}")
                .replace("--runs 4 --quiet --runs", "--quiet --runs"),
            false => format!("{LINE} {more}"),
        };
        let message = bad(&words(&line));
        assert!(message.contains(expected), "{more}: {message}");
    }
}

#[cfg(unix)]
#[test]
fn interrupt_shows_the_best_so_far_and_recommends_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("tuned");
    let line = format!(
        "tune zipf:8M --memory 75% --runs 4 --budget 100000 --jobs 1 --quiet --out {}",
        dir.display()
    );
    let mut child =
        command().args(words(&line)).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Two runs of the base and twenty of the first ten settings are there, so one of these is whole.
    wait_for_lines(&mut child, &dir.join("runs.jsonl"), 23);
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert!(stderr(&output).contains("the same command continues"), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains(" so far") && !text.contains("To apply it"), "{text}");
    assert_eq!(fs::read_to_string(dir.join("result.txt")).unwrap(), text);
}
