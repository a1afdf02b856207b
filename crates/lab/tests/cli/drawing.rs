//! `run --perfetto`.

use super::*;

const RUN: &str = "run zipf:4M --machine small --memory 60% -q";

#[test]
fn a_drawing_is_repeatable_and_changes_no_result() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let plain = good(RUN);
    assert_eq!(good(&format!("{RUN} --perfetto {}", path("a"))), plain);
    assert_eq!(good(&format!("{RUN} --perfetto {}", path("b"))), plain);
    let drawn = fs::read(path("a")).unwrap();
    assert!(drawn.len() > 10_000 && drawn == fs::read(path("b")).unwrap());
    assert!(drawn.windows(14).any(|bytes| bytes == b"exc_page_fault"));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "no part may stay");
}

/// What happened until then is drawn.
#[test]
fn a_run_that_is_given_up_leaves_its_drawing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut");
    let output = pagefold(words(&format!("{RUN} --limit 1ms --perfetto {}", path.display())));
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(fs::metadata(path).unwrap().len() > 1000);
}

#[test]
fn a_drawing_is_of_one_run_and_goes_to_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("old");
    fs::write(&path, "precious").unwrap();
    let path = path.display().to_string();
    for (more, why) in [
        (format!("--perfetto {path} --runs 2"), "leave --runs out"),
        (format!("--perfetto {path} --memory 1K"), "memory"),
        (format!("--perfetto {path} --out {path}.d"), "--out"),
        ("--perfetto -".into(), "standard output"),
        ("--perfetto no/such/file".into(), "no/such/file"),
    ] {
        let said = bad(&words(&format!("run zipf:4M --machine small -q {more}")));
        assert!(said.contains(why), "{more}: {said}");
    }
    assert_eq!(fs::read_to_string(path).unwrap(), "precious");
}
