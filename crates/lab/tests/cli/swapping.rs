//! Kinds of swap, and areas of swap space.

use super::*;

#[test]
fn kinds_of_swap_are_compared() {
    let line = "swap zipf:8M --memory 75% --runs 2 --swappiness 60 --quiet --json";
    let whole = good_json(line);
    let json = &whole["cases"][0];
    let rows = json["rows"].as_array().unwrap();
    let kinds: Vec<&str> = rows.iter().map(|row| row["swap"].as_str().unwrap()).collect();
    let expected = ["none", "disk", "zram 25%", "zram 50%", "zram 100%", "zswap, disk", "zram 50%, disk"];
    assert_eq!(kinds, expected);
    assert_eq!((&rows[0]["killed"], &rows[1]["killed"]), (&2.into(), &0.into()));
    let value = |row: usize, name: &str| rows[row][name].as_f64().unwrap();
    assert_eq!((value(1, "compression"), value(1, "compressed_max")), (0.0, 0.0));
    for compressed in [5, 6] {
        assert!(
            value(compressed, "compression") > 0.0 && value(compressed, "compressed_max") > 0.0,
            "{json}"
        );
    }
    let best = json["best"].as_u64().unwrap() as usize;
    let advice = json["advice"].as_str().unwrap();
    assert!(advice.starts_with(&format!("{} at swappiness 60 took the least time", kinds[best])), "{advice}");
    assert!(advice.contains("The program ran out of memory with none"), "{advice}");
    documented(&[&whole, json, &rows[1]]);
}

/// Runs are kept, and a program that takes too long is a result.
#[test]
fn several_sizes_are_drawn_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let line = format!(
        "swap zipf:8M --memory 75%,150% --runs 1 --swappiness 60 --zram 50 --quiet --out {} --svg {}",
        path("out"),
        path("swap.svg")
    );
    let first = good(&line);
    assert!(
        first.contains("Of 2 cases")
            && std::fs::read_to_string(path("swap.svg")).unwrap().contains("zram 50%")
    );
    assert_eq!(std::fs::read_to_string(path("out/result.csv")).unwrap().lines().count(), 1 + 2 * 5);
    assert_eq!(good(&line), first, "nothing runs again");
    let other = bad(&words(&line.replace("--runs 1", "--runs 2")));
    assert!(other.contains("out"), "{other}");
    let slow = good_json(
        "swap phases:64M --memory 150% --swappiness 60 --zram 50 --runs 1 --limit 1 --quiet --json",
    );
    let rows = slow["cases"][0]["rows"].as_array().unwrap();
    assert!(
        rows.iter().all(|row| row["too_long"] == 1 || row["run_time"][0].as_f64().unwrap() < 1e9),
        "{slow}"
    );
}

#[test]
fn areas_that_cannot_be_are_refused() {
    for (area, why) in [("zram:1G,algorithm=gzip", "gzip"), ("floppy:1G", "floppy"), ("zram", "zram")] {
        let message = bad(&words(&format!("run zipf:8M --memory 75% --swap {area}")));
        assert!(message.contains("--swap") && message.contains(why), "{message}");
    }
}
