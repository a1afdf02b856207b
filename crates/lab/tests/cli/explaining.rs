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
fn what_cannot_be_explained_is_refused() {
    refused(&[
        ("explain zipf:8M", "--with"),
        ("explain zipf:8M --with classic", "named twice"),
        ("explain zipf:8M --with clasic", "did you mean 'classic'?"),
        ("explain zipf:8M --with mglru --preempt 9", "--preempt"),
        ("explain zipf:8M --with-machine labtop", "did you mean 'laptop'?"),
        ("explain zipf:8M --with-memory 4K", "too small"),
    ]);
}
