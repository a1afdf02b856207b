//! Links in Markdown, from one page to another and to files of the project, lead to files that are there.

use crate::project::{files, root};
use crate::prose::{Line, lines_of_markdown};
use crate::ratchet::{Offence, check};

/// Returns the files that `text` links to, with their lines (from 1 on).
fn targets(text: &str) -> Vec<(usize, &str)> {
    let prose = lines_of_markdown(text).into_iter().filter(|(.., kind)| *kind != Line::Code);
    prose
        .flat_map(|(at, line, _)| {
            let targets = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
            targets.map(move |(target, _)| (at + 1, target.split('#').next().unwrap_or(target)))
        })
        .filter(|(_, file)| !file.is_empty() && !file.contains("://") && !file.contains(' '))
        .collect()
}

#[test]
fn links_lead_to_files() {
    let mut offences = Vec::new();
    for page in files("", ".md") {
        let path = root().join(&page.path);
        let folder = path.parent().expect("a file is in a folder");
        let dead = targets(&page.text).into_iter().filter(|(_, target)| !folder.join(target).exists());
        offences.extend(dead.map(|(line, target)| Offence {
            path: page.path.clone(),
            line,
            name: target.to_owned(),
            complaint: "a link to a file that is not there".to_owned(),
        }));
    }
    check("links-lead-to-files", &offences);
}

#[test]
fn links_to_other_places_are_not_files() {
    let text = "see [a](a.md#part), [b](https://b.org), [c](#here)\n[d](../d.rs)\n```\n[e](e.md)\n```\n";
    assert_eq!(targets(text), [(1, "a.md"), (2, "../d.rs")]);
}
