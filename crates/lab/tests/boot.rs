//! `pagefold boot` from end to end, with a script instead of QEMU that prints what a guest would.
#![cfg(unix)]

mod fake;

use fake::Fake;
use mm::stat::Stat;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The output of a guest for a run with these counters; the others are 0.
fn run(cpus: u32, memory: u64, done: &str, counters: &BTreeMap<&str, i64>) -> String {
    let mut said =
        format!("\x1b[2JSeaBIOS\n@pagefold 1\nmemory found\n@machine cpus={cpus} nodes=1 memory={memory}\n");
    for stat in Stat::ALL {
        let value = counters.get(stat.name()).unwrap_or(&0);
        said.push_str(&format!("@counter {} {value}\n", stat.name()));
    }
    said + &format!(
        "@metric tlb_rounds 12\n@metric disk_read_pages 64\n@done {done}\n@check checked=600 violations=0\n@end ok\n"
    )
}

/// The output of a guest with two CPUs and 32 MiB that succeeds.
fn usual() -> String {
    let counters = BTreeMap::from([("pgfault", 1234), ("pgmajfault", 34), ("nr_tlb_remote_flush", 12)]);
    run(2, 32 << 20, "nanos=1500000000 accesses=600 progress=60 tasks=1", &counters)
}

#[test]
fn booted_run_is_shown_like_a_simulated_one() {
    let fake = Fake::new(usual());
    let text = fake.good("boot zipf:16M --memory 32M --set vm.swappiness=10 --seed 3");
    let words = |start: &str| -> Vec<&str> {
        text.lines().find(|line| line.starts_with(start)).expect(start).split_whitespace().collect()
    };
    assert_eq!(words("machine"), ["machine", "booted:2:1:64M"]);
    assert_eq!(words("run_time"), ["run_time", "1.50", "s"]);
    assert_eq!(words("pgfault_minor"), ["pgfault_minor", "1.20", "k"]);
    assert_eq!(words("disk"), ["disk", "0", "256", "KiB", "0", "0", "B"]);
    assert!(!text.contains("tlb_misses") && !text.contains("kswapd_cpu_time"), "{text}");
    assert!(text.contains("note: run_time is by the guest's clock"), "{text}");
    assert!(!text.contains("\nleft "), "a guest does not tell what kswapd keeps: {text}");
    assert!(text.contains("oracle: 600 loads checked, 0 violations"), "{text}");
    let args = fake.args();
    for expected in [
        "program=zipf:16777216 seed=3 memory=33554432 swap=16384 check=1 knob.vm.swappiness=10",
        "\n-smp\n2\n",
        "tcg,thread=multi",
    ] {
        assert!(args.contains(expected), "{expected}: {args}");
    }
    let left: Vec<_> = fs::read_dir(fake.path("tmp")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left.len(), 0, "the disks are gone: {left:?}");
}

#[test]
fn json_has_the_keys_of_a_run_and_the_guest() {
    let fake = Fake::new(usual());
    let text = fake.good("boot zipf:16M --memory 32M --json --all --no-check --icount");
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&json["schema"], &json["command"]), (&Value::from(1), &Value::from("boot")));
    let guest = &json["guest"];
    assert_eq!((guest["cpus"].as_u64(), guest["memory"].as_u64()), (Some(2), Some(32 << 20)));
    assert_eq!((guest["check"].as_bool(), guest["icount"].as_bool()), (Some(false), Some(true)));
    let rows = json["rows"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["metric"] == "tlb_rounds" && row["value"] == 12.0));
    let args = fake.args();
    assert!(args.contains("check=0") && args.contains("shift=0,sleep=off"), "{args}");
}

#[test]
fn several_boots_have_an_interval() {
    let fake = Fake::new(usual());
    let text = fake.good("boot zipf:16M --memory 32M --seed 5 --runs 2 --quiet");
    assert!(text.contains("runs     2 (seeds 5..6)"), "{text}");
    assert!(fake.args().contains("seed=6"));
}

#[test]
fn failed_guest_is_a_failed_run_with_a_replay() {
    let first = usual();
    let failed = |line: &str, status| Fake { status, ..Fake::new(first.replace("@end ok", line)) };
    for (fake, expected) in [
        (
            failed("@violation space 1 page 7\n@end failed", 35),
            "the checker found 1 violation; the first: space 1 page 7",
        ),
        (failed("@signal segv\n@end failed", 35), "ended by a signal: segv"),
        (failed("@failed index out of bounds\n@end failed", 35), "an assertion of the guest failed: index"),
        (failed("@failed double fault", 1), "stopped without '@end': double fault"),
        (
            failed("", 0),
            "stopped without '@end': QEMU ended with exit status: 0; the last line of its log: 'memory found'",
        ),
        (failed("@end failed", 35), "the guest failed"),
        (failed("@end ok", 35), "the guest said '@end ok', but QEMU ended with exit status: 35"),
        (failed("@end ok\n@end ok", 33), "nothing may follow '@end'"),
        (failed("@counter pgfoo 1\n@end ok", 33), "no counter 'pgfoo'"),
        (Fake::new("@pagefold 2\n@end ok"), "line 1 of the guest's output, '@pagefold 2'"),
        (Fake::new("@pagefold 1\n@end ok"), "without saying '@machine'"),
        (Fake::new("@garbage"), "has not said '@pagefold' first"),
        (Fake::new(first.replace("cpus=2", "cpus=1")), "runs with 1 CPUs and was given 2"),
        (Fake::new(first.replace("violations=0", "violations=2")), "found 2 violations"),
        (
            Fake { error: "no such device", status: 1, ..Fake::new("") },
            "said 'no such device'; it has logged nothing",
        ),
    ] {
        let message = fake.bad(1, "boot zipf:16M --memory 32M --quiet --seed 9");
        assert!(message.contains(expected), "{expected}: {message}");
        let replay = "replay: pagefold boot zipf:16M --profile classic --cpus 2 --memory 33554432 --swap 67108864 \
                      --seed 9";
        assert!(message.contains(replay), "{message}");
    }
}

#[test]
fn refusal_of_the_guest_is_bad_input() {
    for (said, status, expected) in [
        ("@pagefold 1\n@bad there is no scenario 'x'\n@end bad", 37, "there is no scenario 'x'"),
        ("@pagefold 1\n@end bad", 37, "refused its input"),
        (
            "@pagefold 1\n@oom 900 pages resident\n@signal kill\n@end failed",
            35,
            "too little memory to run this program",
        ),
    ] {
        let message = Fake { status, ..Fake::new(said) }.bad(2, "boot zipf:16M --memory 32M --quiet");
        assert!(message.contains(expected), "{expected}: {message}");
    }
}

#[test]
fn program_may_be_killed_if_the_guest_expects_it() {
    let said = usual().replace("@end ok", "@oom 900 pages resident\n@signal kill\n@end ok");
    assert!(Fake::new(&said).good("boot chaos:2M --memory 32M --quiet").contains("pgfault_minor"));
}

#[test]
fn guest_that_does_not_end_is_killed() {
    let silent = Fake { hangs: true, ..Fake::new("@pagefold 1\nreclaim begins\n") };
    let message = silent.bad(1, "boot zipf:16M --memory 32M --timeout 1");
    assert!(message.contains("had not ended after 1 second and was killed"), "{message}");
    assert!(message.contains("the last line of its log: 'reclaim begins'"), "{message}");
}

#[test]
fn ctrl_c_kills_the_guest() {
    let silent = Fake { hangs: true, ..Fake::new("@pagefold 1\n") };
    let child =
        silent.command("boot zipf:16M --memory 32M --timeout 60").stderr(Stdio::piped()).spawn().unwrap();
    while !silent.path("args").exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let message = fake::text(output.stderr);
    assert!(message.contains("interrupted; QEMU was killed"), "{message}");
}

#[test]
fn bad_input_is_refused_before_a_boot() {
    let fake = Fake::new("");
    for (line, expected) in [
        ("", "PROGRAM"),
        ("zipff", "did you mean 'zipf'?"),
        ("../../traces/no-such.pft", "no-such.pft"),
        ("zipf --cpus 17", "--cpus"),
        ("zipf --nodes 3", "--nodes"),
        ("zipf --memory 1M", "at least 8M"),
        ("zipf --memory 9M --nodes 2", "at least 16M"),
        ("zipf --profile lasy", "did you mean 'lazy'?"),
        ("zipf --swap much", "is not a size"),
        ("zipf --bench", "--bench"),
        ("zipf --kernel no/such", "no/such"),
        ("zipf --qemu no/such", "no/such"),
        ("selftest --side-by-side", "is not a program"),
        ("zipf:1G --side-by-side --memory 3G", "above 4 GiB"),
    ] {
        let message = fake.bad(2, &format!("boot {line}"));
        assert!(message.contains(expected) && message.lines().count() == 1, "{line}: {message}");
        assert!(!fake.path("args").exists(), "{line}: nothing is started");
    }
}

#[test]
fn trace_is_put_into_the_guests_memory() {
    let fake = Fake { status: 37, ..Fake::new("@pagefold 1\n@bad no disk\n@end bad\n") };
    let message = fake.bad(2, "boot ../../traces/sqlite.pft --memory 50% --quiet");
    assert!(message.contains("no disk"), "{message}");
    let args = fake.args();
    // Half of 20,524 pages.
    assert!(args.contains("program=trace seed=1 memory=42037248 "), "{args}");
    assert!(args.contains("-initrd\n") && args.contains("/trace\n"), "{args}");
}

#[test]
fn check_prints_the_guests_report() {
    let fake = Fake::new(
        "firmware\n@pagefold 1\npaging: ok\nshootdown: ok\n@check checked=1000 violations=0\n@end ok\n",
    );
    let text = fake.good("boot selftest --cpus 4 --quiet");
    assert_eq!(
        text,
        "paging: ok\nshootdown: ok\nselftest: ok on 4 CPUs, 1 node, 256 MiB; 1,000 loads checked\n"
    );
    let json: Value = serde_json::from_str(&fake.good("boot scenario:takeoff --json")).unwrap();
    assert_eq!(json["check"], "scenario:takeoff");
    assert_eq!(json["lines"], serde_json::json!(["paging: ok", "shootdown: ok"]));
    assert!(fake.args().contains("program=scenario:takeoff"));
    let failing = Fake { status: 35, ..Fake::new("@pagefold 1\npaging: no\n@failed paging\n@end failed\n") };
    let message = failing.bad(1, "boot conformance --quiet");
    assert!(
        message.contains("paging: no\n") && message.contains("replay: pagefold boot conformance"),
        "{message}"
    );
}

#[test]
fn benchmark_is_compared_with_linux() {
    let fake = Fake::new("@pagefold 1\n@insns anon_fault 1000.5 4096\n@end ok\n");
    let text = fake.good("boot --bench --quiet");
    assert!(
        text.lines().filter(|line| line.starts_with("anon_fault") && line.contains("3,061")).count() == 2,
        "{text}"
    );
    let args = fake.args();
    assert!(
        args.contains("program=bench") && args.contains("\n-smp\n4\n") && args.contains("thread=single"),
        "{args}"
    );
    let json: Value = serde_json::from_str(&fake.good("boot --bench --json --quiet")).unwrap();
    assert_eq!((&json["command"], &json["rows"][0]["cpus"]), (&Value::from("boot-bench"), &Value::from(1)));
    assert!(json["rows"][0]["ratio"].is_number() && json["linux_source"].is_string());
}

/// The counts of the simulated twin, as a guest would print them.
fn twin(line: &str) -> (String, BTreeMap<&'static str, i64>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pagefold"));
    command.env("PAGEFOLD_CONFIG", "");
    let output = command.arg("run").args(line.split_whitespace()).output().expect("the binary runs");
    let json: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", fake::text(output.stderr)));
    let work = &json["work"]["classic"];
    let done = format!(
        "nanos=5 accesses={} progress={} tasks={}",
        work["accesses"], work["progress"], work["tasks"]
    );
    let counter = |stat: &Stat| {
        let rows = json["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row["metric"] == stat.name());
        (stat.name(), row.map_or(0, |row| row["value"].as_f64().unwrap() as i64))
    };
    (done, Stat::ALL.iter().map(counter).collect())
}

#[test]
fn side_by_side_compares_simulated_and_booted_machine() {
    let (done, mut counters) = twin("uniform:1M --machine booted:1:1:64M --memory 32M --all --json --quiet");
    assert!(counters["pgfault"] > 200, "{counters:?}");
    let line = "boot uniform:1M --cpus 1 --memory 32M --side-by-side --quiet";
    let text = Fake::new(run(1, 32 << 20, &done, &counters)).good(line);
    let (_, _, log) = Fake::new(format!("hello\n{}", run(1, 32 << 20, &done, &counters)))
        .run("boot uniform:1M --cpus 1 --memory 32M --side-by-side");
    assert!(!log.contains("hello"), "a guest that works is silent: {log}");
    let row = text.lines().find(|line| line.starts_with("pgfault")).unwrap();
    assert!(row.contains("+0.00%") && row.ends_with("exact"), "{text}");
    assert!(text.contains("work done: the same on both") && text.contains("profile  classic"), "{text}");

    *counters.get_mut("pgfault").unwrap() += 1;
    let wrong = Fake::new(run(1, 32 << 20, &done, &counters));
    let (code, text, message) = wrong.run(&format!("{line} --json"));
    assert_eq!(code, Some(1), "{message}");
    assert!(message.contains("counts that must be equal differ: pgfault"), "{message}");
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&json["command"], &json["same_work"]), (&Value::from("side-by-side"), &Value::from(true)));
    let row = &json["rows"][0];
    assert_eq!((&row["metric"], &row["agreement"]), (&Value::from("pgfault"), &Value::from("exact")));
    assert!(row["diff_pct"].as_f64().unwrap() > 0.0);

    let other = Fake::new(run(1, 32 << 20, "nanos=5 accesses=1 progress=1 tasks=1", &counters));
    assert!(other.run(line).2.contains("did not do the same work"));
}
