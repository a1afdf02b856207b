//! Reproductions: published values next to simulated ones.

use super::*;

/// A reproduction that takes seconds.
const REPRODUCE: &str = "reproduce pfn-flush --scale 1/512 --runs 1 --no-host-time";

#[test]
fn reproduction_shows_published_and_simulated_rows() {
    let line = format!("{REPRODUCE} --quiet --json");
    let first = good(&line);
    assert_eq!(first, good(&format!("{line} --jobs 1")), "the same seed prints the same bytes");
    let json: Value = serde_json::from_str(&first).unwrap();
    assert_eq!((&json["command"], &json["complete"]), (&"reproduce".into(), &true.into()));
    let settings = json["settings"].as_array().unwrap();
    let machines: Vec<&str> = settings.iter().map(|one| one["machine"].as_str().unwrap()).collect();
    assert_eq!(machines, ["uma-1s-2015", "numa-4s-2015"]);
    for setting in settings {
        assert_eq!(setting["same_work"], true);
        let rows = setting["rows"].as_array().unwrap();
        let names: Vec<&str> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["User", "System", "Elapsed", "lru-file-mmap-read-elapsed"]);
        for row in rows {
            assert!(row["values"].as_object().unwrap().values().all(|time| time.as_f64().unwrap() > 0.0));
            let change = &row["changes"][0];
            assert!(
                change["ratio"].as_f64().unwrap() > 0.0 && change["published_ratio"].as_f64().unwrap() > 0.0
            );
        }
        let reclaimed = &setting["counts"]["pgsteal_direct"];
        assert!(reclaimed["classic"].as_f64().unwrap() + reclaimed["list"].as_f64().unwrap() > 0.0);
    }
    let text = good(&format!("{REPRODUCE} --quiet"));
    for expected in ["1 socket", "4 sockets", "620.84", "batchunmap-v6", "INVLPG", "scale         1/512"] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let row = &settings[0]["rows"][0];
    documented(&[&json, &settings[0], row, &row["changes"][0]]);
}

#[test]
fn all_takes_no_scale() {
    let message = bad(&words("reproduce all --scale 1/512"));
    assert!(message.contains("each reproduction has a scale of its own"), "{message}");
}

/// Finished runs are kept, and the same command does the rest.
#[test]
fn reproduction_resumes_after_a_kill() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("kept");
    let line = format!("{REPRODUCE} --quiet --json --out {}", dir.display());
    let whole = good(&format!("{REPRODUCE} --quiet --json"));
    assert_eq!(good(&line), whole);
    assert_eq!(std::fs::read_to_string(dir.join("result.json")).unwrap(), whole);
    // As if it was killed while it wrote the line of its third run.
    let runs = dir.join("runs.jsonl");
    let kept = std::fs::read(&runs).unwrap();
    let ends: Vec<usize> = (0..kept.len()).filter(|&at| kept[at] == b'\n').collect();
    std::fs::write(&runs, &kept[..ends[2] + 100]).unwrap();
    std::fs::remove_file(dir.join("result.json")).unwrap();
    assert_eq!(good(&line), whole);
    let again = std::fs::read(&runs).unwrap();
    assert_eq!(again[..ends[2]], kept[..ends[2]], "the first two runs are not repeated");
    assert_eq!(again.iter().filter(|&&byte| byte == b'\n').count(), ends.len());
    let message = bad(&words(&line.replace("1/512", "1/500")));
    assert!(message.contains("differs from the requested reproduction"), "{message}");
}

#[test]
fn moves_counts_the_fewest_pages_to_move() {
    // No block is free at the start, so the first huge page has to have one made.
    let line = "run zipf-hugepage:64M --machine compact-8 --memory 100% --fragment frag-100 --set \
                hugepages-2048kB.enabled=always --quiet";
    let [counted, plain] = ["--moves", ""].map(|more| good_json(&format!("{line} {more} --json")));
    let value = |name: &str| row(&counted, name)["value"].as_f64().unwrap();
    assert!(value("compaction_moved_least") > 0.0 && value("compaction_pieces_before") > 50.0);
    assert!(value("pgscan_kswapd") > 0.0);
    assert_eq!(Some(value("pgscan_kswapd")), row(&plain, "pgscan_kswapd")["value"].as_f64());
}

#[test]
fn timed_reproduction_counts_loops_and_shares() {
    let json = good_json("reproduce rmap --scale 1/256 --runs 1 --no-host-time --quiet --json");
    let setting = &json["settings"][0];
    assert_eq!((&setting["same_work"], &json["knobs"]["file.max_order"]), (&Value::Null, &9.into()));
    let row = |i: usize| {
        let values = &setting["rows"][i]["values"];
        [&values["eager+rmap.batch=0"], &values["eager"]].map(|value| value.as_f64().unwrap())
    };
    let ([loops, more], [unmap, less]) = (row(0), row(1));
    assert!(0.0 < loops && loops < more, "{loops} {more}");
    assert!(0.0 < less && less < unmap && unmap < 100.0, "{unmap} {less}");
    // Shares of parts are below the share of the whole.
    let ([removal, _], [statistics, _], [flush, _]) = (row(2), row(3), row(4));
    assert!(0.0 < statistics && statistics < removal && 0.0 < flush && removal + flush < unmap);
}

#[cfg(unix)]
#[test]
fn interrupted_reproduction_shows_finished_settings() {
    use std::io::{BufRead, BufReader};
    let line = format!("{REPRODUCE} --jobs 1").replace("--runs 1", "--runs 10000");
    let mut child =
        command().args(words(&line)).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut progress = String::new();
    errors.read_line(&mut progress).unwrap();
    assert!(progress.contains("on uma-1s-2015"), "{progress}");
    // Whatever is finished by then is shown.
    std::thread::sleep(std::time::Duration::from_secs(2));
    interrupt(&child);
    let mut message = String::new();
    errors.read_line(&mut message).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{message}");
    assert!(message.contains("interrupted after"), "{message}");
    assert_eq!(message.contains("nothing is finished"), stdout(&output).is_empty());
    assert_eq!(message.contains("is above"), stdout(&output).contains("INTERRUPTED"));
}
