//! Files that the user names.

use super::*;

/// On a full disk the result is still shown, and existing files stay.
#[test]
fn full_disk_loses_no_result_and_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    fs::write(at("old.svg"), "precious").unwrap();
    let on_full_disk = |blocks: u32, args: &str| {
        // No file may grow beyond this many blocks.
        let line =
            format!("trap '' XFSZ; ulimit -f {blocks}; exec {} {args}", env!("CARGO_BIN_EXE_pagefold"));
        shell(&line)
    };
    for (blocks, args, file) in [
        (8, format!("{COMPARE} --all --json --out {}", at("dir")), "runs.jsonl"),
        (0, format!("{COMPARE} --json --svg {}", at("old.svg")), "old.svg"),
    ] {
        let output = on_full_disk(blocks, &args);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{args}: {text}");
        assert!(text.lines().count() == 1 && text.contains(file), "{args}: {text}");
        let json: Value = serde_json::from_str(&stdout(&output)).expect("the result is complete");
        assert_eq!(json["runs"], 2);
    }
    assert_eq!(fs::read_to_string(at("old.svg")).unwrap(), "precious");
    let left = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 2, "only the picture and the directory are there");
}

#[test]
fn run_directory_is_shown_and_resumed() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("result");
    let shown = dir.to_str().unwrap();
    let text = good(&format!("{COMPARE} --out {shown}"));
    assert_eq!(good(&format!("report {shown}")), text);
    assert_eq!(fs::read_to_string(dir.join("summary.txt")).unwrap(), text);
    let json: Value = serde_json::from_str(&fs::read_to_string(dir.join("summary.json")).unwrap()).unwrap();
    assert_eq!(good_json(&format!("report {shown} --json")), json);

    let nowhere = scratch.path().join("nowhere").display().to_string();
    std::os::unix::fs::symlink(scratch.path().join("no/file"), &nowhere).unwrap();
    assert!(bad(&["report", shown, "--svg", &nowhere]).contains("a link that leads nowhere"));
    let other = bad(&words(&format!("{COMPARE} --verify --out {shown}")));
    assert!(other.contains("differs from the requested experiment"), "{other}");
    assert_eq!(fs::read_to_string(dir.join("summary.txt")).unwrap(), text);

    // An incomplete directory has the seeds that all profiles have finished.
    let runs_path = dir.join("runs.jsonl");
    let runs = fs::read_to_string(&runs_path).unwrap();
    let mut lines: Vec<&str> = runs.lines().collect();
    lines.pop();
    fs::write(&runs_path, lines.join("\n") + "\n").unwrap();
    let output = pagefold(["report", shown]);
    assert_eq!(output.status.code(), Some(0));
    assert!(stderr(&output).contains("1 of 2 runs were finished"), "{}", stderr(&output));

    // The same command does only the missing runs. Existing ones are not repeated, even if their numbers were changed.
    let changed = lines.join("\n").replacen("\"nanos\":", "\"nanos\":1", 1) + "\n";
    fs::write(&runs_path, &changed).unwrap();
    assert_ne!(good(&format!("{COMPARE} --out {shown}")), text);
    assert!(fs::read_to_string(&runs_path).unwrap().starts_with(&changed));
    fs::write(&runs_path, lines.join("\n") + "\n").unwrap();
    assert_eq!(good(&format!("{COMPARE} --out {shown}")), text);
    assert_eq!(fs::read_to_string(&runs_path).unwrap().lines().count(), lines.len() + 1);
}

#[test]
fn comparison_is_drawn() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name).to_str().unwrap().to_owned();
    good(&format!("{COMPARE} --svg {} --out {}", path("a.svg"), path("result")));
    let picture = fs::read_to_string(path("a.svg")).unwrap();
    assert!(picture.starts_with("<svg ") && picture.contains(">run_time<"), "{picture}");
    good(&format!("report {} --svg {}", path("result"), path("b.svg")));
    assert_eq!(fs::read_to_string(path("b.svg")).unwrap(), picture);

    good(&format!("run zipf:16M --machine small --quiet --out {}", path("single")));
    let message = bad(&["report", &path("single"), "--svg", &path("c.svg")]);
    assert!(message.contains("no changes to draw") && !Path::new(&path("c.svg")).exists(), "{message}");
}

#[test]
fn bad_input_does_not_touch_the_output_directory() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("file"), "mine").unwrap();
    fs::create_dir(path("full")).unwrap();
    fs::write(path("full/mine"), "mine").unwrap();
    for dir in ["file", "full"] {
        bad(&["run", "zipf:32M", "--machine", "small", "--out", &path(dir)]);
    }
    bad(&["run", "zipf:32M", "--machine", "small", "--set", "vm.swapiness=1", "--out", &path("new")]);
    assert!(!Path::new(&path("new")).exists(), "bad input must not create the directory");
    bad(&["run", "zipf:32M", "--machine", "small", "--out", "/proc/no-such/dir"]);
    assert_eq!(fs::read_to_string(path("file")).unwrap(), "mine");
    assert_eq!(fs::read_dir(path("full")).unwrap().count(), 1);
}

#[cfg(unix)]
#[test]
fn interrupt_keeps_finished_runs() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("result");
    let line = format!("run zipf:32M --machine small --runs 10000 --jobs 1 --quiet --out {}", dir.display());
    let mut child =
        command().args(words(&line)).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A line below the heading of the file of runs shows that one has ended.
    wait_for_lines(&mut child, &dir.join("runs.jsonl"), 2);
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert!(stderr(&output).contains("interrupted after") && stderr(&output).contains("report"));
    assert_eq!(stdout(&output), "");
    good(&format!("report {}", dir.display()));
}

#[test]
fn fragmented_run_reports_its_initial_state() {
    let line = "run zipf:8M --machine small --fragment frag-50:128M,unmovable=10% --quiet";
    let json = good_json(&format!("{line} --json"));
    assert_eq!(json["fragmented"]["asked"], "frag-50:128M,unmovable=10%");
    let blocks = |group: &str| json["fragmented"]["after"]["zones"][0]["pageblocks"][group].as_f64().unwrap();
    let share = blocks("unmovable") / (blocks("unmovable") + blocks("movable") + blocks("reclaimable"));
    assert!((share - 0.1).abs() < 0.01, "{share}");
    let unusable = |when: &str| json["fragmented"][when]["unusable_pct"].as_f64().unwrap();
    assert!(unusable("before") < 2.0 && unusable("after") > 40.0);
    let text = good(line);
    for expected in
        ["begins   frag-50:128M", "before: ", "after: ", "Node 0, zone    DMA32", "Number of blocks type"]
    {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[test]
fn pictures_are_not_written_through_links_that_lead_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("link.svg");
    std::os::unix::fs::symlink(folder.path().join("nowhere"), &link).unwrap();
    let refused = bad(&words(&format!("{COMPARE} --svg {}", link.display())));
    assert!(refused.contains("it is a link that leads nowhere"), "{refused}");
    assert!(link.is_symlink() && !link.exists());
}

#[test]
fn what_varies_is_shown_and_kept() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name).to_str().unwrap().to_owned();
    let line = "compare zipf:8M:2 --machine small --memory 70% --runs 3 --with lazy --quiet --no-host-time";
    let vary = format!("{line} --vary fragment,arrival=2000us,layout");
    let json = good_json(&format!("{vary} --json"));
    assert_eq!(json["vary"], "arrival=2ms,layout,fragment");
    assert!(good_json(&format!("{line} --json")).get("vary").is_none());
    let text = good(&format!("{vary} --out {}", path("kept")));
    assert!(text.contains("varies   arrival=2ms,layout,fragment\n"), "{text}");
    assert_eq!(good(&format!("report {}", path("kept"))), text);
    let message = bad(&words(&format!("{line} --out {}", path("kept"))));
    assert!(message.contains("differs from the requested experiment"), "{message}");

    let sweep = path("sweep.toml");
    let run =
        "[run]\nprogram = \"zipf:2M\"\nmachine = \"small\"\nprofile = \"{profile}\"\nvary = \"layout\"\n";
    fs::write(&sweep, format!("runs = 2\n{run}[axes]\nprofile = [\"classic\", \"lazy\"]\n")).unwrap();
    let json = good_json(&format!("sweep {sweep} --out {} --quiet --json", path("sweep")));
    assert_eq!(json["vary"], "layout");
    assert!(good(&format!("report {}", path("sweep"))).contains("seeds also vary layout"));
    fs::write(&sweep, format!("{run}[axes]\nprofile = \"classic\"\n").replace("layout", "weather")).unwrap();
    let message = bad(&["sweep", &sweep, "--out", &path("wrong")]);
    assert!(message.contains("vary: 'weather' is none of arrival=TIME, layout, fragment"), "{message}");

    let curve = "curve zipf:2M --machine small --memory 60% --memory 80% --profile classic --runs 2 --quiet";
    let json = good_json(&format!("{curve} --vary layout --json"));
    assert_eq!(json["vary"], "layout");
    assert!(good(&format!("{curve} --vary layout")).contains("varies   layout\n"));
}

/// Seeds of one recorded trace differ more at other addresses, and all that it does is done.
#[test]
fn recorded_program_is_replayed_at_other_addresses() {
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../../traces/pack.pft");
    let line = format!("run {trace} --machine small --runs 3 --quiet --verify --json --no-host-time");
    let (off, on) = (good_json(&line), good_json(&format!("{line} --vary layout")));
    assert_eq!(on["work"], off["work"]);
    assert_eq!(on["warnings"], off["warnings"]);
    assert_ne!(on["rows"], off["rows"]);
    assert_eq!(on, good_json(&format!("{line} --vary layout")));
}
