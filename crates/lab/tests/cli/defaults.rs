//! The user's file of defaults.

use super::*;

/// Run a command with this file of defaults.
fn with_defaults(text: &str, line: &str) -> Output {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("config.toml");
    fs::write(&file, text).unwrap();
    command().env("PAGEFOLD_CONFIG", &file).args(words(line)).output().unwrap()
}

#[test]
fn defaults_of_the_user_hold_where_nothing_else_is_typed() {
    let text = "machine = \"small\"\n[run]\nruns = 2\nmemory = \"60%\"\nset = [\"vm.swappiness=7\"]\n";
    let run = |line| {
        let output = with_defaults(text, line);
        serde_json::from_str::<Value>(&stdout(&output))
            .unwrap_or_else(|_| panic!("{line}: {}", stderr(&output)))
    };
    let short = run("run zipf:2M --json -q --no-host-time");
    let typed = good_json(
        "run zipf:2M --machine small --runs 2 --memory 60% --set vm.swappiness=7 --json -q --no-host-time",
    );
    assert_eq!(short, typed);
    assert_eq!(run("run zipf:2M --machine laptop --runs 1 --json -q")["machine"], "laptop");
    // The command on a page is with the file that it was made with.
    let scratch = tempfile::tempdir().unwrap();
    let page = scratch.path().join("run.html");
    let line = format!("run zipf:2M -q --html {}", page.display());
    assert!(with_defaults(text, &line).status.success());
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("config.toml pagefold run zipf:2M"), "{page}");
}

#[test]
fn wrong_default_is_told_in_one_line_with_its_file() {
    for (text, expected) in [
        ("\nmachin = \"small\"", "config.toml: line 2: no command has an option '--machin'"),
        ("[run]\nruns = \"many\"", "config.toml: invalid value 'many' for '--runs <N>'"),
    ] {
        let output = with_defaults(text, "run zipf:2M -q");
        let said = stderr(&output);
        assert_eq!((output.status.code(), said.lines().count()), (Some(2), 1), "{said}");
        assert!(said.starts_with("pagefold: ") && said.contains(expected), "{said}");
    }
    let typed = stderr(&with_defaults("[run]\nruns = 2", "run zipf:2M -q --runs many"));
    assert!(!typed.contains("config.toml"), "{typed}");
    let missing =
        command().env("PAGEFOLD_CONFIG", "/nowhere.toml").args(["run", "zipf:2M"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(2));
    assert!(stderr(&missing).contains("PAGEFOLD_CONFIG: cannot read /nowhere.toml"), "{}", stderr(&missing));
}
