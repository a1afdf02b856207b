//! What is printed: its width, its words, and where it goes.

use super::*;

/// Whatever a terminal is wide, tables and sentences fit into it; without one they have a width of their own.
#[test]
fn output_fits_the_width_of_the_terminal() {
    let scratch = tempfile::tempdir().unwrap();
    let sweep = scratch.path().join("sweep.toml");
    let axes = "[axes]\nprofile = [\"classic\", \"lazy\"]\n[show]\ncompare = \"profile\"\n\
                metrics = [\"run_time\", \"pgmajfault\", \"nr_tlb_remote_flush_received\", \"kswapd_cpu_time\"]\n";
    let run =
        "[run]\nprogram = \"zipf:2M\"\nmachine = \"small\"\nmemory = \"60%\"\nprofile = \"{profile}\"\n";
    fs::write(&sweep, format!("{run}{axes}")).unwrap();
    let lines = [
        format!("{COMPARE} --with lazy --with classic+vm.swappiness=10+vm.page-cluster=0 --all"),
        "run zipf:4M --machine small --memory 60% -q --bound --optimum --group a:memory.max=3M".to_owned(),
        "curve zipf:4M --machine small --memory 60% --memory 90% --profile classic --profile mglru --profile \
         lazy+vm.swappiness=10 --profile eager -q"
            .to_owned(),
        "bound zipf:4M --machine small --memory 60% -q".to_owned(),
        "optimum zipf:4M --machine small --memory 60% -q".to_owned(),
        format!("sweep {} --out {} -q", sweep.display(), scratch.path().join("out").display()),
        "parts --program zipf:4M --machine small --runs 2 -q".to_owned(),
        "reproduce rmap --scale 1/1024 --runs 1 -q".to_owned(),
        "list knobs".to_owned(),
        "list metrics".to_owned(),
        "list costs".to_owned(),
        format!("info {}/../../traces/redis.pft", env!("CARGO_MANIFEST_DIR")),
        "compare --help".to_owned(),
    ];
    for line in &lines {
        let wide = good(line);
        for width in [80, 60] {
            let output = command().args(words(line)).env("COLUMNS", width.to_string()).output().unwrap();
            let text = stdout(&output);
            // A cell that is too wide by itself cannot be broken, nor can a word that is alone in its line. A command
            // is there to be pasted.
            let fits = |cell: &str| cell.trim().chars().count() <= width;
            let too_wide = |line: &&str| {
                line.chars().count() > width
                    && line.split("  ").all(fits)
                    && line.trim().contains(' ')
                    && !line.starts_with("command  ")
            };
            let long: Vec<&str> = text.lines().filter(too_wide).collect();
            assert_eq!(long, [""; 0], "{line} in {width} columns:\n{text}");
            assert!(text.lines().count() >= wide.lines().count(), "{line}");
        }
        let mut broken = wide.lines().filter(|line| !line.starts_with("command  "));
        assert!(broken.all(|line| line.chars().count() <= 100), "{line}:\n{wide}");
    }
}

#[test]
fn shares_have_a_decimal_where_they_need_one() {
    let text = good("run zipf:8M --machine small --memory 50.5% -q");
    assert!(text.contains("(50.5 % of the program's 8.00 MiB)"), "{text}");
    let all = good("compare zipf:8M --machine small --memory 50% --with lazy -q --all --runs 2");
    assert!(all.contains("xN: N times the base, where neither more nor less is better"), "{all}");
}

/// 100 % of what a program has at once is less than it needs: the kernel keeps some free.
#[test]
fn memory_that_is_left_to_the_program_is_told() {
    let line = "run zipf:8M --machine small --memory 100% -q";
    let (text, json) = (good(line), good_json(&format!("{line} --json")));
    let [left, memory] = ["memory_left", "memory"].map(|key| json[key].as_u64().unwrap());
    assert!(left < memory && left > memory / 2, "{left} of {memory}");
    assert!(text.contains("\nleft     ") && text.contains("; kswapd keeps "), "{text}");
    assert!(good_json("run zipf:8M --machine small -q --json")["memory_left"].is_null());
}

#[test]
fn working_set_table_skips_nothing() {
    let trace = format!("{}/../../traces/redis.pft", env!("CARGO_MANIFEST_DIR"));
    let (text, json) = (good(&format!("info {trace}")), good_json(&format!("info {trace} --json")));
    let pages: Vec<u64> =
        json["curve"].as_array().unwrap().iter().map(|point| point["pages"].as_u64().unwrap()).collect();
    let table = text
        .lines()
        .skip_while(|line| !line.starts_with("working set"))
        .skip_while(|line| !line.contains("up to here"));
    let rows: Vec<u64> =
        table.skip(1).map_while(|line| line.split_whitespace().nth(1)?.parse().ok()).collect();
    assert_eq!(rows, pages.chunks(4).map(|four| *four.iter().max().unwrap()).collect::<Vec<_>>(), "{text}");
}

#[test]
fn standard_input_and_output_are_called_by_a_dash() {
    let scratch = tempfile::tempdir().unwrap();
    let with_input = |line: &str, input: &[u8]| {
        let mut child =
            command().args(words(line)).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), input).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{line}");
        stdout(&output)
    };
    let trace = scratch.path().join("x.pft").display().to_string();
    with_input(&format!("import --format lackey - -o {trace}"), b"I  00400000,4\n S 00100000,8\n");
    assert!(with_input("info -", &fs::read(&trace).unwrap()).starts_with("- ("));
    let sweep = "[run]\nprogram = \"zipf:{size}\"\nmachine = \"small\"\n[axes]\nsize = [\"1M\", \"2M\"]\n";
    let out = scratch.path().join("out");
    assert!(
        with_input(&format!("sweep - --out {} -q", out.display()), sweep.as_bytes()).contains("run_time")
    );
    let scratch = scratch.path().join("dir").display().to_string();
    for line in [
        format!("{COMPARE} --out {scratch} --svg -"),
        format!("report {scratch} --svg -"),
        "curve zipf:2M --machine small --memory 60% --memory 90% --runs 1 -q --svg -".to_owned(),
    ] {
        let picture = good(&line);
        assert!(picture.starts_with("<svg") && picture.trim_end().ends_with("</svg>"), "{line}: {picture}");
        assert!(bad(&words(&format!("{line} --json"))).contains("name a file"), "{line}");
    }
    let stacks = good("run zipf:2M --machine small --memory 60% -q --folded -");
    assert!(stacks.lines().all(|line| line.contains(';')), "{stacks}");
    assert!(bad(&["record", "-o", "-", "--", "true"]).contains("name a file"));
    assert!(!Path::new("-").exists());
}

#[test]
fn comparison_does_as_many_runs_as_its_intervals_need() {
    let line = "compare zipf:4M --machine small --memory 60% --with eager -q --seed 9";
    let (json, text) = (good_json(&format!("{line} --runs 60 --json")), good(&format!("{line} --runs 60")));
    let runs = json["runs"].as_u64().unwrap();
    assert!(
        (10..60).contains(&runs) && json["stopped_by"] == "interval" && json["runs_limit"] == 60,
        "{runs}"
    );
    assert!(text.contains("\nruns: enough; ") && text.contains("\nstars: of "), "{text}");
    documented(&[&json]);
    let few = good(&format!("{line} --runs 3"));
    assert!(few.contains("runs: the limit is 3 (--runs); fewer than 10"), "{few}");
    let short = good_json(&format!("{line} --runs 10000 --time 0.001s --json"));
    assert!(short["stopped_by"] == "time" && short["runs"].as_u64().unwrap() < 10, "{short}");
    let long = good(&format!("{line} --runs 2 --time 1e19"));
    assert!(long.contains("runs: the limit is 2 (--runs)"), "a time that no clock can show: {long}");
    assert!(bad(&words(&format!("{line} --time soon"))).contains("write 500ms, 90s, 5m or 1h"));
}

/// The result says why there are no more runs; so does its directory, later.
#[test]
fn reason_for_the_number_of_runs_is_told_and_kept() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("dir");
    let line = format!(
        "compare zipf:4M --machine small --memory 60% --with eager -q --seed 9 --jobs 1 --out {}",
        dir.display()
    );
    let report = format!("report {}", dir.display());
    let short = good(&format!("{line} --time 0.001s"));
    assert!(
        short.contains("one run has no interval\nruns: 1 in the time of --time; fewer than 10"),
        "{short}"
    );
    assert_eq!(good(&report), short);
    assert_eq!(good_json(&format!("{report} --json"))["stopped_by"], "time");
    // Those that were done before count when the same command continues.
    assert!(good(&line).contains("\nruns: enough; "));
    assert_eq!(good_json(&format!("{report} --json"))["stopped_by"], "interval");
    // An interrupted process leaves fewer runs than it might do, and no reason.
    let runs = fs::read_to_string(dir.join("runs.jsonl")).unwrap();
    let few: Vec<&str> = runs.lines().take(1 + 2 * 3).collect();
    fs::write(dir.join("runs.jsonl"), few.join("\n") + "\n").unwrap();
    let text = good(&report);
    assert!(text.contains("\nruns: 3 of 20, then interrupted; fewer than 10"), "{text}");
}

/// A side that fails is named, and the others are measured and shown. (Demotion is what makes this size enough.)
#[test]
fn side_that_fails_is_named_beside_the_others() {
    let line = "compare zipf:64M --machine luf-cxl --memory 66M --runs 2 -q --base classic+numa.demotion_enabled=1 \
                --with classic --with lazy+numa.demotion_enabled=1";
    let output = pagefold(words(line));
    let (text, message) = (stdout(&output), stderr(&output));
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.starts_with("pagefold: classic: ") && message.contains("ran out of memory"), "{message}");
    assert!(text.contains("\nclassic FAILED: ") && text.contains("lazy+"), "{text}");
    let time = text.lines().find(|line| line.starts_with("run_time")).expect("there is a table");
    assert_eq!(time.matches('[').count(), 1, "{text}");
    let json: Value = serde_json::from_str(&stdout(&pagefold(words(&format!("{line} --json"))))).unwrap();
    assert_eq!(json["profiles"], json!(["classic+numa.demotion_enabled=1", "lazy+numa.demotion_enabled=1"]));
    assert!(json["failed"]["classic"].as_str().unwrap().contains("ran out of memory"), "{json}");
    documented(&[&json]);
    // The directory keeps the failure.
    let scratch = tempfile::tempdir().unwrap();
    let [dir, svg] = ["dir", "x.svg"].map(|name| scratch.path().join(name).display().to_string());
    let kept = pagefold(words(&format!("{line} --out {dir}")));
    assert_eq!((good(&format!("report {dir}")), stdout(&kept)), (text.clone(), text));
    assert_eq!(good_json(&format!("report {dir} --json"))["failed"], json["failed"]);
    // Without the base nothing is compared: all runs are done, and there are no changes to draw.
    let swapped = line.replace("--with classic ", "").replace("--base ", "--base classic --with ");
    let swapped = swapped.replace("--runs 2", "--runs 6");
    let output = pagefold(words(&format!("{swapped} --svg {svg}")));
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("lazy+") && !stdout(&output).contains("change"), "{}", stdout(&output));
    assert!(stdout(&output).contains("(seeds 1..6)") && !Path::new(&svg).exists(), "{}", stdout(&output));
    let alone = line.replace("--with lazy+numa.demotion_enabled=1", "");
    let text = stdout(&pagefold(words(&alone)));
    assert!(
        text.contains("classic FAILED") && !text.contains("runs: ") && !text.contains("stars: "),
        "{text}"
    );
    let bound = "bound zipf:64M --machine luf-cxl --memory 66M -q --profile classic \
                 --profile lazy+numa.demotion_enabled=1";
    let output = pagefold(words(bound));
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("\nclassic FAILED: ") && text.contains("\nlazy+"), "{text}");
    // If all fail, it is the input.
    let all = bad(&words("compare zipf:64M --machine luf-cxl --memory 48M --with lazy -q"));
    assert!(all.starts_with("pagefold: classic: 48.0 MiB"), "{all}");
}

#[test]
fn policy_crate_that_is_none_is_told_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().display().to_string();
    let run = ["run", "zipf:1M", "-q"];
    let said = bad(&[&["--policy-crate", &at][..], &run].concat());
    assert!(said.contains(&format!("cannot read {at}/Cargo.toml")), "{said}");
    fs::write(folder.path().join("Cargo.toml"), "[workspace]\n").unwrap();
    let said = bad(&[&["--policy-crate", &at][..], &run].concat());
    assert!(said.contains("it describes no package"), "{said}");
    assert!(bad(&["--policy-crate"]).contains("needs the folder of a crate"));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is written beside it");
}

/// The files that `--proc` writes have Linux's shapes, and say the same as the result and as each other.
#[test]
fn files_of_proc_are_written() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("proc");
    let line = format!(
        "run zipf:8M --machine small --memory 60% -q --json --proc {} --out {}",
        dir.display(),
        scratch.path().join("out").display()
    );
    let result: Value = serde_json::from_str(&good(&line)).unwrap();
    let read = |name: &str| fs::read_to_string(dir.join(name)).unwrap();
    let count = |name: &str| -> u64 {
        let text = read("vmstat");
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap().parse().unwrap()
    };
    let majors = result["rows"].as_array().unwrap().iter().find(|row| row["metric"] == "pgmajfault").unwrap();
    assert_eq!(majors["value"], count("pgmajfault") as f64);
    let zoneinfo = read("zoneinfo");
    assert!(zoneinfo.starts_with("Node 0, zone "), "{zoneinfo}");
    let free: u64 = zoneinfo
        .lines()
        .filter_map(|line| line.strip_prefix("  pages free ")?.trim().parse::<u64>().ok())
        .sum();
    assert_eq!(free, count("nr_free_pages"));
    let blocks = |line: &str| -> u64 {
        let orders = line.split_whitespace().skip(4).enumerate();
        orders.map(|(order, blocks)| blocks.parse::<u64>().unwrap() << order).sum()
    };
    assert_eq!(read("buddyinfo").lines().map(blocks).sum::<u64>(), free);
    for file in ["memory", "io"] {
        let text = read(&format!("pressure/{file}"));
        let words: Vec<&str> = text.lines().map(|line| line.split(" avg10=").next().unwrap()).collect();
        assert_eq!(words, ["some", "full"], "{text}");
    }
    // Runs that are kept have them, too.
    let before = read("vmstat");
    fs::write(dir.join("vmstat"), "other").unwrap();
    good(&line);
    assert_eq!(read("vmstat"), before);
    let file = dir.join("vmstat");
    let text = bad(&words(&format!("run zipf:4M --machine small --proc {}", file.display())));
    assert!(text.contains("it is not a directory"), "{text}");
    assert_eq!(read("vmstat"), before);
}
