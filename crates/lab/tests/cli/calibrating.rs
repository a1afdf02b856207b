//! `calibrate`, on the machine of the test. What it measures is no matter here.
#![cfg(target_os = "linux")]

use super::*;

#[test]
fn measured_machine_is_one_to_run_on() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("mine.toml");
    let shown = path.to_str().unwrap();
    let line = format!("calibrate --seconds 1 --unstable --quiet --json --out {shown}");
    let json = good_json(&line);
    let rows = json["rows"].as_array().unwrap();
    documented(&[&json, &rows[0]]);
    let table: toml::Table = fs::read_to_string(&path).unwrap().parse().unwrap();
    let base: toml::Table = include_str!("../../../machine-sim/machines/laptop.toml").parse().unwrap();
    for row in rows.iter().filter(|row| row["written"] == true) {
        assert!(row["median"].is_number() && !row["method"].as_str().unwrap().is_empty(), "{row}");
        let key = row["key"].as_str().unwrap();
        let source = source(&table, key).unwrap_or_else(|| panic!("{key} has no source"));
        let date = json["date"].as_str().unwrap();
        assert!(source.contains(row["method"].as_str().unwrap()) && source.contains(date), "{key}: {source}");
    }
    assert!(rows.iter().any(|row| row["key"] == "costs.work.syscall" && row["written"] == true), "{json}");
    for key in ["asids", "hw_young", "hw_nonleaf_young"] {
        assert_eq!(table["cpu"][key], base["cpu"][key], "{key}");
    }
    assert_eq!(
        (&table["storage"], &table["device"][0]["size"]),
        (&base["storage"], &base["device"][0]["size"])
    );
    assert!(table["device"][0]["source"].as_str().unwrap().starts_with("not measured, from laptop: "));
    let run = good_json(&format!("run zipf:4M --machine {shown} --quiet --json"));
    assert_eq!(run["machine"], shown);
}

/// The source of the number at a key: that of its table or, of a level of the TLB, of the table above.
fn source(table: &toml::Table, key: &str) -> Option<String> {
    let mut steps: Vec<&str> = key.split('.').collect();
    loop {
        let into = |value: &toml::Value, step: &&str| match step.parse::<usize>() {
            Ok(at) => value.as_array()?.get(at).cloned(),
            Err(_) => value.get(*step).cloned(),
        };
        let place =
            steps.iter().try_fold(toml::Value::Table(table.clone()), |value, step| into(&value, step));
        if let Some(source) = place.and_then(|place| Some(place.get("source")?.as_str()?.to_owned())) {
            return Some(source);
        }
        steps.pop()?;
    }
}

#[test]
fn bad_arguments_leave_an_existing_file_as_it_is() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("mine.toml");
    fs::write(&path, "old").unwrap();
    let out = format!("--out {}", path.display());
    refused(&[
        (format!("calibrate --base labtop {out}").as_str(), "did you mean 'laptop'?"),
        (format!("calibrate --base laptop+cpus=8 {out}").as_str(), "name a preset or a file"),
        (format!("calibrate --seconds 0 {out}").as_str(), "--seconds"),
        (format!("calibrate --disk no/such/folder {out}").as_str(), "cannot measure no/such/folder"),
        ("calibrate --out no/such/mine.toml", "its folder does not exist"),
        ("calibrate --json --out -", "name a file"),
    ]);
    assert_eq!(fs::read_to_string(&path).unwrap(), "old");
}

#[test]
fn interrupted_calibration_leaves_an_existing_file_as_it_is() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("mine.toml");
    fs::write(&path, "old").unwrap();
    let child = command()
        .args(["calibrate", "--seconds", "3600", "--quiet", "--out", path.to_str().unwrap()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until_it_catches_interrupts(&child);
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert!(stderr(&output).contains("interrupted; no machine was written"), "{}", stderr(&output));
    assert_eq!(fs::read_to_string(&path).unwrap(), "old");
}
