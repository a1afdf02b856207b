//! The simulator beside what boots of Linux counted (`truth/`), without a kernel: no fewer counts may be near Linux's
//! than docs/truth.md says.

use crate::built;
use crate::summary::{Sums, said};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

const BOOTS: &str = "truth";
const DOCUMENT: &str = "docs/truth.md";
/// By how many per cent of the judged counts those near Linux's may be fewer.
const TOLERANCE: usize = 1;

/// The counts of the settings that are judged open, by kernel.
type Summary = BTreeMap<String, Sums>;

/// Judge all kept boots again, and hold the summary against the document's.
pub fn check() -> ExitCode {
    match judge() {
        Ok((before, now)) => {
            let (table, worse) = compare(&before, &now);
            print!("{table}");
            worse.iter().for_each(|line| println!("{line}"));
            if worse.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(problem) => {
            eprintln!("xtask: {problem}");
            ExitCode::FAILURE
        }
    }
}

/// What the document says, and what comes out now.
fn judge() -> Result<(Summary, Summary), String> {
    let pagefold = built::pagefold().ok_or("the command cannot be built")?;
    let scratch = pagefold.with_file_name("truth");
    let copied = copy_boots(Path::new(BOOTS), &scratch);
    copied.map_err(|error| format!("{BOOTS} cannot be copied to {}: {error}", scratch.display()))?;
    let document = scratch.join("truth.md");
    let mut command = Command::new(&pagefold);
    command.arg("truth").arg(&scratch).args(["--again", "--quiet", "--document"]).arg(&document);
    let ended = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
    // Exit code 1: a comparison failed, which the document tells.
    ended.map_err(|error| format!("{}: {error}", pagefold.display()))?;
    let read = |path: &Path| {
        let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok::<_, String>(open(&text))
    };
    Ok((read(Path::new(DOCUMENT))?, read(&document)?))
}

/// Copy what boots counted, and nothing that was compared with it before.
fn copy_boots(from: &Path, to: &Path) -> io::Result<()> {
    if to.exists() {
        fs::remove_dir_all(to)?;
    }
    for kernel in fs::read_dir(from)? {
        let kernel = kernel?;
        if !kernel.file_type()?.is_dir() {
            continue;
        }
        let folder = to.join(kernel.file_name());
        fs::create_dir_all(&folder)?;
        for file in fs::read_dir(kernel.path())? {
            let name = file?.file_name();
            if name.to_string_lossy().ends_with(".boots.json") {
                fs::copy(kernel.path().join(&name), folder.join(&name))?;
            }
        }
    }
    Ok(())
}

/// The rows of a document's summary for the settings that are judged open.
fn open(document: &str) -> Summary {
    let rows = said(document).into_iter().filter(|((_, set), _)| set == "open");
    rows.map(|((kernel, _), sums)| (kernel, sums)).collect()
}

/// A table of the counts near Linux's, and a line about each kernel with which they became fewer.
fn compare(before: &Summary, now: &Summary) -> (String, Vec<String>) {
    let (mut table, mut worse) = (String::new(), Vec::new());
    if before.is_empty() {
        worse.push(format!("{DOCUMENT} has no summary"));
    }
    for (kernel, before) in before {
        let Some(now) = now.get(kernel) else {
            worse.push(format!("{kernel}: nothing was judged"));
            continue;
        };
        table += &format!(
            "{kernel:<12} {:>4} of {:>4} counts within 10 % of Linux's; {DOCUMENT}: {} of {}\n",
            now.within_10, now.judged, before.within_10, before.judged
        );
        // Shares in per cent, without dividing.
        let share = |of: &Sums, other: &Sums| of.within_10.saturating_mul(other.judged).saturating_mul(100);
        if share(now, before) + TOLERANCE * now.judged * before.judged < share(before, now) {
            worse.push(format!(
                "{kernel}: fewer than {DOCUMENT} says: mend it, or say why and make that again"
            ));
        }
        if now.failed > before.failed {
            worse.push(format!("{kernel}: {} comparisons failed", now.failed));
        }
    }
    (table, worse)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(near: usize, of: usize) -> Summary {
        Summary::from([("6.12".to_owned(), Sums { judged: of, within_10: near, ..Sums::default() })])
    }

    #[test]
    fn fewer_near_counts_fail() {
        assert!(compare(&judged(441, 552), &judged(436, 552)).1.is_empty());
        assert!(compare(&judged(441, 552), &judged(450, 560)).1.is_empty());
        assert_eq!(compare(&judged(441, 552), &judged(435, 552)).1.len(), 1);
        assert_eq!(compare(&judged(441, 552), &Summary::new()).1.len(), 1);
        assert_eq!(compare(&Summary::new(), &judged(1, 1)).1.len(), 1);
    }
}
