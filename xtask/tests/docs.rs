//! The form of the pages for people.

use std::fs;
use std::path::{Path, PathBuf};

/// Columns of prose, as CONTRIBUTING.md says.
const MAX_WIDTH: usize = 100;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace").to_owned()
}

fn pages(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            found.extend(pages(&path));
        } else if path.extension().is_some_and(|kind| kind == "md") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Lines of prose that are too wide. Rows of tables, code, headings and pictures cannot be broken.
fn too_wide(text: &str) -> Vec<(usize, usize)> {
    let mut code = false;
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        let free = fence || code || line.starts_with("    ") || line.contains('|');
        let free = free || ["#", "![", "<!--", "`"].iter().any(|start| line.starts_with(start));
        let width = line.chars().count();
        if !free && width > MAX_WIDTH && line.trim().contains(' ') {
            found.push((at + 1, width));
        }
    }
    found
}

#[test]
fn prose_is_wrapped() {
    let root = root();
    let mut all = pages(&root.join("docs"));
    all.extend(
        ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "traces/README.md"].map(|page| root.join(page)),
    );
    let mut complaints = Vec::new();
    for page in all {
        let shown = page.strip_prefix(&root).unwrap().display().to_string();
        for (line, width) in too_wide(&fs::read_to_string(&page).unwrap()) {
            complaints.push(format!("{shown}:{line}: {width} columns of prose, more than {MAX_WIDTH}"));
        }
    }
    assert!(complaints.is_empty(), "prose-fits:\n{}", complaints.join("\n"));
}

/// Links from one page to another, and to files of the project, lead somewhere.
#[test]
fn links_lead_to_files() {
    let root = root();
    let mut all = pages(&root.join("docs"));
    all.extend(["README.md", "CONTRIBUTING.md", "traces/README.md"].map(|page| root.join(page)));
    let mut complaints = Vec::new();
    for page in all {
        let text = fs::read_to_string(&page).unwrap();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = target.split('#').next().unwrap();
            let elsewhere = file.is_empty() || file.contains("://") || file.contains(' ');
            if !elsewhere && !page.parent().unwrap().join(file).exists() {
                complaints.push(format!("{}: {target}", page.strip_prefix(&root).unwrap().display()));
            }
        }
    }
    assert!(complaints.is_empty(), "links that lead nowhere:\n{}", complaints.join("\n"));
}
