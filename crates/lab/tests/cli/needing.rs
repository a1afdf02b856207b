//! How much memory a program needs, and controllers of control groups.

use super::*;

const NEED: &str = "need zipf:4M --machine small --slower 5,50 --runs 2 --quiet --no-host-time";

#[test]
fn need_finds_memory_high_and_prints_the_lines_that_set_it() {
    let json = good_json(&format!("{NEED} --json"));
    let (peak, rows) = (json["peak"].as_u64().unwrap(), json["rows"].as_array().unwrap());
    assert_eq!((json["command"].as_str(), rows.len()), (Some("need"), 2));
    let highs: Vec<u64> = rows.iter().map(|row| row["enough"]["high"].as_u64().unwrap()).collect();
    assert!(0 < highs[1] && highs[1] <= highs[0] && highs[0] <= peak, "{json:#}");
    assert!(json["measured"].as_array().unwrap().len() <= 14);
    assert!(json["controller"]["looks"].as_f64().unwrap() > 0.0, "{json:#}");
    let text = good(NEED);
    for high in highs {
        let line = format!("systemctl set-property container.service MemoryHigh={high}");
        assert!(text.contains(&line) && text.contains(&format!("memory.high={high} ")), "{text}");
    }
}

#[test]
fn need_continues_in_its_directory() {
    let scratch = tempfile::tempdir().unwrap();
    let command = format!("{NEED} --json --out {}", scratch.path().join("need").display());
    let first = good(&command);
    assert_eq!(good(&command), first);
    bad(&words(&format!("{command} --seed 7")));
}

#[test]
fn need_refuses_what_it_cannot_do() {
    refused(&[
        ("need", "PROGRAM"),
        ("need zipf:1M --slower 0", "'0' is not a slow-down"),
        ("need zipf:1M --senpai probe=1", "--senpai: 'probe=1' is none of"),
        ("need zipf:1M --group ..", "is no path of a group"),
        ("run zipf:1M --machine small --senpai web --quiet", "there is no group 'web'"),
        ("run zipf:1M --senpai web:interval=1", "interval: '1' is no time"),
    ]);
}

#[test]
fn a_run_shows_what_its_controller_did_and_the_pressure_of_its_group() {
    let run = "run zipf:4M --machine small --group web:memory.high=75% --senpai web:interval=1ms --quiet";
    let text = good(&format!("{run} --all"));
    assert!(text.contains("senpai   web:interval=1000us,pressure=10000us,max_probe=1%\n"), "{text}");
    assert!(text.contains("memory.pressure of web\nsome avg10=") && text.contains("senpai_looks"), "{text}");
    let json = good_json(&format!("{run} --json --all"));
    let group = &json["groups"]["classic"][0];
    let total = |line: &str| group["pressure"]["memory.pressure"][line]["total"].as_f64().unwrap();
    assert!(total("some") >= total("full") && total("some") > 0.0, "{group:#}");
}
