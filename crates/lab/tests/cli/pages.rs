//! `--html`.

use super::*;

const RUN: &str = "run zipf:4M:2 --machine small --memory 60% -q";

/// A page, and what the command prints.
fn page(line: &str, path: &Path) -> (String, String) {
    let printed = good(&format!("{line} --html {}", path.display()));
    (fs::read_to_string(path).unwrap(), printed)
}

#[test]
fn a_page_of_a_run_is_repeatable_and_changes_no_result() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.html");
    let (first, printed) = page(RUN, &path);
    assert_eq!(printed, good(RUN));
    assert_eq!(page(RUN, &path), (first.clone(), printed));
    assert!(first.len() < 1 << 20, "{} bytes", first.len());
    for part in
        ["zipf:4M:2 took ", "Free memory", "class=\"heat\"", "exc_page_fault", "pagefold run zipf:4M:2"]
    {
        assert!(first.contains(part), "{part}");
    }
    assert!(first.contains("All knobs are at their defaults"));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no part may stay");
    let on_stdout = good(&format!("{RUN} --html -"));
    assert!(on_stdout.starts_with("<!DOCTYPE html>") && on_stdout.trim_end().ends_with("</html>"));
}

#[test]
fn a_directory_of_runs_has_a_page_of_what_it_keeps() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let compare = "compare zipf:4M --machine small --memory 60% --with lazy --set vm.swappiness=10 --runs 2 -q --jobs 1 --no-host-time";
    let (live, _) = page(&format!("{compare} --out {}", at("kept").display()), &at("live.html"));
    let (kept, _) = page(&format!("report {}", at("kept").display()), &at("kept.html"));
    assert!(live.contains("lazy against classic") && kept.contains("lazy against classic"));
    assert!(live.contains("Pressure") && !kept.contains("Pressure"));
    let again = "--base classic --with lazy --set vm.swappiness=10 --seed 1 --runs 2 --html FILE";
    assert!(kept.contains(again), "the page names the command that draws the rest");
    assert!(kept.contains("vm.swappiness"), "it lists what profiles set");
    // The directory is as without a page.
    good(&format!("{compare} --out {}", at("other").display()));
    let all = |name: &str| -> Vec<(PathBuf, String)> {
        let mut files: Vec<PathBuf> =
            fs::read_dir(at(name)).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        let read = |path: PathBuf| (path.file_name().unwrap().into(), fs::read_to_string(&path).unwrap());
        files.into_iter().map(read).collect()
    };
    assert_eq!(all("kept"), all("other"));
}

#[test]
fn a_sweep_is_shown_again_and_has_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let text = "title = \"a<b\"\n[run]\nprogram = \"zipf:{size}\"\nmachine = \"small\"\nmemory = \"60%\"\n\
                profile = \"{profile}\"\n[axes]\nprofile = [\"classic\", \"lazy\"]\nsize = [\"4M\", \"8M\"]\n\
                [show]\ncompare = \"profile\"\n";
    fs::write(at("sweep.toml"), text).unwrap();
    let sweep = format!("sweep {} --out {} -q", at("sweep.toml"), at("out"));
    assert_eq!(good(&sweep), good(&format!("report {}", at("out"))));
    let json = good_json(&format!("report {} --json", at("out")));
    assert_eq!(
        json,
        serde_json::from_str::<Value>(&fs::read_to_string(at("out/result.json")).unwrap()).unwrap()
    );
    let (page, _) = page(&format!("report {}", at("out")), Path::new(&at("page.html")));
    assert!(
        page.contains("<h1>a&lt;b</h1>")
            && page.contains("4 points.")
            && page.contains("Against profile classic")
    );
    assert!(page.contains("[show]") && page.contains("role=\"img\""), "the plan and the picture are there");
    let picture = good(&format!("report {} --svg -", at("out")));
    assert_eq!(picture, fs::read_to_string(at("out/result.svg")).unwrap());
    assert!(bad(&["report", &at("out"), "--all"]).contains("sweep.toml"));
    // An unfinished one says so.
    let runs = fs::read_to_string(at("out/runs.jsonl")).unwrap();
    let few: String = runs.split_inclusive('\n').take(3).collect();
    fs::write(at("out/runs.jsonl"), few).unwrap();
    let output = pagefold(["report", &at("out")]);
    assert!(
        output.status.success() && stderr(&output).contains("2 of 4 runs were finished"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn what_cannot_be_written_is_refused_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("old.html").display().to_string();
    fs::write(&path, "precious").unwrap();
    for (more, why) in [
        (format!("--html {path} --memory 1K"), "memory"),
        ("--html - --json".to_owned(), "standard output"),
        ("--html - --folded -".to_owned(), "where one file can go"),
        ("--html no/such/page.html".to_owned(), "no/such/page.html"),
        (format!("--html {}", folder.path().display()), "is a directory"),
        (format!("--html {path} --limit 1ms"), "had not ended"),
    ] {
        let said = bad(&words(&format!("run zipf:4M --machine small -q {more}")));
        assert!(said.contains(why), "{more}: {said}");
    }
    assert_eq!(fs::read_to_string(path).unwrap(), "precious");
}

/// The page in a browser: it says nothing on the console, and nothing is wider than a telephone but what scrolls.
#[test]
fn a_browser_shows_a_page_at_any_width() {
    if Command::new("chromium").arg("--version").output().is_err() {
        println!("SKIPPED: chromium is missing; on Debian: sudo apt-get install chromium");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let compare = "compare zipf:4M --machine small --memory 60% --with mglru --runs 2 -q --all";
    page(compare, &folder.path().join("page.html"));
    // A frame for each width; a script of the test, not of the page, measures them.
    let frames = [400, 1400]
        .map(|width| format!("<iframe src=page.html width={width} height=900 frameborder=0></iframe>"));
    let script = "onload = () => document.body.dataset.widths = [...document.querySelectorAll('iframe')].map(f => {\
                  const e = f.contentDocument.documentElement; return `${e.scrollWidth}/${e.clientWidth}`}).join()";
    let harness = folder.path().join("harness.html");
    fs::write(&harness, format!("<!DOCTYPE html><body>{}<script>{script}</script>", frames.concat()))
        .unwrap();
    let options =
        ["--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files", "--dump-dom"];
    let output = Command::new("chromium")
        .args(options)
        .args(["--enable-logging=stderr", "--hide-scrollbars", "--window-size=1500,1000"])
        .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
        .arg(format!("file://{}", harness.display()))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let (dom, log) = (stdout(&output), stderr(&output));
    assert!(!log.contains("CONSOLE"), "{log}");
    assert!(dom.contains("data-widths=\"400/400,1400/1400\""), "{dom}\n{log}");
}
