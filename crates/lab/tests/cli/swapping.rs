//! Kinds of swap, and areas of swap space.

use super::*;

#[test]
fn kinds_of_swap_are_compared() {
    let line = "swap zipf:8M --memory 75% --runs 2 --swappiness 60 --quiet --json";
    let json = good_json(line);
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
    documented(&[&json, &rows[1]]);
}

#[test]
fn areas_that_cannot_be_are_refused() {
    for (area, why) in [("zram:1G,algorithm=gzip", "gzip"), ("floppy:1G", "floppy"), ("zram", "zram")] {
        let message = bad(&words(&format!("run zipf:8M --memory 75% --swap {area}")));
        assert!(message.contains("--swap") && message.contains(why), "{message}");
    }
}
