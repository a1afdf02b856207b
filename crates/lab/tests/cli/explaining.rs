//! Why a setting makes a program faster or slower.

use super::*;

#[test]
fn a_slower_disk_is_explained_by_waits_for_it() {
    let line = "explain zipf:8M --memory 75% --with-machine laptop+slow=3 --runs 2 --quiet";
    let json = good_json(&format!("{line} --json"));
    let causes = json["causes"].as_array().unwrap();
    assert_eq!((&causes[0]["kind"], &json["with_machine"]), (&"device".into(), &"laptop+slow=3".into()));
    assert!(causes[0]["share_pct"].as_f64().unwrap() > 80.0, "{}", causes[0]);
    let nanos = |value: &Value| value["diff"].as_f64().unwrap();
    let sum = causes.iter().map(nanos).sum::<f64>() + nanos(&json["unexplained"]);
    assert!((sum - nanos(&json["run_time"])).abs() < 1.0, "{sum}");
    assert_eq!(json["profiles"], json!(["classic", "classic on laptop+slow=3"]));
    documented(&[&json, &causes[0], &json["run_time"], &json["unexplained"]]);
    let text = good(line);
    for sentence in json["sentences"].as_array().unwrap() {
        let first = sentence.as_str().unwrap().split_whitespace().next().unwrap();
        assert!(text.lines().any(|line| line.starts_with(first)), "{sentence}: {text}");
    }
    assert!(text.contains("with     machine laptop+slow=3") && text.contains("not explained"), "{text}");
    assert_eq!(good(&format!("{line} --no-host-time --jobs 1")), text, "jobs do not change results");
}

#[test]
fn profiles_and_sizes_of_memory_are_explained() {
    let json = good_json("explain zipf-file:8M --memory 60% --with mglru --runs 1 --quiet --json");
    assert!(json["causes"][0]["diff_ci"].is_null() && json["sentences"].as_array().unwrap().len() > 1);
    let json = good_json("explain zipf:8M --memory 60% --with-memory 90% --runs 1 --quiet --json");
    assert!(json["run_time"]["diff"].as_f64().unwrap() < 0.0, "{json}");
    assert_eq!(json["profiles"][1], "classic with memory 90%");
}

#[test]
fn other_swap_is_explained_by_phases_and_kept() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("out");
    let line = format!(
        "explain zipf:16M --memory 85% --with-swap zram:32M --phases 4 --runs 2 --quiet --no-host-time --out {}",
        dir.display()
    );
    let json = good_json(&format!("{line} --json"));
    assert_eq!(json["profiles"].as_array().unwrap().len(), 2, "{json}");
    assert!(json["with_swap"][0].as_str().unwrap().starts_with("zram:"), "{json}");
    let causes = json["causes"].as_array().unwrap();
    assert_eq!(causes[0]["kind"], "device");
    for cause in causes {
        let phases: Vec<f64> =
            cause["phases"].as_array().unwrap().iter().map(|ns| ns.as_f64().unwrap()).collect();
        let diff = cause["diff"].as_f64().unwrap();
        assert!(phases.len() == 4 && (phases.iter().sum::<f64>() - diff).abs() < 1.0, "{cause}");
    }
    let own = |cause: &&Value| {
        let what = cause["what"].as_str().unwrap();
        what.starts_with("TLB misses and page walks on anonymous memory at 0x")
    };
    assert!(causes.iter().any(|cause| own(&cause)), "the large mapping has its misses: {json}");
    let text = good(&line);
    assert!(text.contains("with     swap zram:") && text.contains("all causes"), "{text}");
    // The runs are there; the counters of both sides are shown as those of a comparison.
    let report = good(&format!("report {}", dir.display()));
    assert!(report.contains("run_time") && report.contains("pgmajfault"), "{report}");
    assert!(fs::read_to_string(dir.join("summary.txt")).unwrap().contains("Not explained"));
}

#[test]
fn control_groups_and_fragmented_memory_can_be_explained() {
    let json = good_json(
        "explain zipf:8M --memory 64M --with mglru --group a:memory.max=5M --swap zram:16M --fragment free=60%,unusable=50% \
         --runs 1 --quiet --json",
    );
    assert_eq!(
        (&json["group"][0], &json["fragment"]),
        (&"a:memory.max=5M".into(), &"free=60%,unusable=50%".into())
    );
    let reclaim = |cause: &&Value| cause["kind"] == "reclaim" && cause["what"] == "for the limit of a group";
    assert!(json["causes"].as_array().unwrap().iter().any(|cause| reclaim(&cause)), "{json}");
}

#[test]
fn what_cannot_be_explained_is_refused() {
    refused(&[
        ("explain zipf:8M", "--with"),
        ("explain zipf:8M --with classic", "named twice"),
        ("explain zipf:8M --with clasic", "did you mean 'classic'?"),
        ("explain zipf:8M --with mglru --preempt 9", "--preempt"),
        ("explain zipf:8M --with-machine labtop", "did you mean 'laptop'?"),
        ("explain zipf:8M --with-memory 4K", "too small"),
        ("explain zipf:8M --with-swap floppy:8M", "floppy"),
        ("explain zipf:8M --with mglru --phases 0", "--phases"),
    ]);
}
