//! **Page numbers**, as the reference strings of replacement papers are written.
//!
//! A line with one number, decimal or with `0x`, is a reference to that page: the files of the LIRS paper. A line with
//! four is one to as many pages as the second number says, beginning at the first: the files of the ARC paper, whose
//! last two numbers say nothing of pages. Empty lines, lines that begin with `#`, and the breakpoints of the LIRS
//! paper's programs (`*`) are passed over.
//!
//! Sources: the README beside the LIRS traces in the Maven package `com.github.ben-manes.caffeine:simulator:3.1.8`,
//! whose traces were read; the four numbers (first block, blocks, one that is not used, number of the request) are as
//! readers of ARC's files describe them, none of which was at hand.

use std::path::Path;

use abi::AccessKind;

use super::Accesses;
use super::error::ImportError;
use super::input::Input;
use super::step::{Sink, Step};
use crate::event::{PAGE_SHIFT, PAGE_SIZE};

/// The address of page 0: above all that Linux keeps from programs.
const BASE: u64 = 4 << 30;
/// Page numbers are below this one.
const END: u64 = 1 << 34;

/// Read page numbers.
pub(super) fn read(input: Input, sink: &mut Sink<'_>) -> Result<(), ImportError> {
    let mut lines = input.lines();
    while lines.advance()? {
        let mut words = lines.words();
        let Some(word) = words.next().filter(|word| !word.starts_with(['#', '*'])) else { continue };
        let rest = [words.next(), words.next(), words.next(), words.next()];
        let (first, pages) = match (number(word), rest) {
            (Some(page), [None, ..]) => (page, Some(1)),
            (Some(page), [Some(pages), Some(_), Some(_), None]) => (page, number(pages)),
            _ => return Err(lines.unlike("a page number, or the four numbers of ARC's files")),
        };
        match pages.and_then(|pages| first.checked_add(pages)) {
            Some(end) if end > first && end <= END => {
                let bytes = (end - first) * PAGE_SIZE;
                sink(Step::Access {
                    task: 0,
                    addr: BASE + (first << PAGE_SHIFT),
                    bytes,
                    mode: AccessKind::Load,
                    times: 1,
                })?;
            }
            _ => return Err(lines.unlike("pages with numbers below 2^34, at least one")),
        }
    }
    Ok(())
}

/// Pass on accesses that are in memory, of which the first is at `first` in the array `name`.
pub(super) fn pass_on(
    name: &Path,
    first: u64,
    accesses: Accesses<'_>,
    sink: &mut Sink<'_>,
) -> Result<(), ImportError> {
    let Accesses { pages, stores, threads } = accesses;
    for (at, &page) in pages.iter().enumerate() {
        if page >= END {
            return Err(ImportError::Line {
                path: name.to_owned(),
                line: first + at as u64,
                what: format!("expected a page number below 2^34, found {page}"),
            });
        }
        let is_store = stores.get(at).copied().unwrap_or(false);
        sink(Step::Access {
            task: threads.get(at).copied().unwrap_or(0),
            addr: BASE + (page << PAGE_SHIFT),
            bytes: PAGE_SIZE,
            mode: if is_store { AccessKind::Store } else { AccessKind::Load },
            times: 1,
        })?;
    }
    Ok(())
}

fn number(word: &str) -> Option<u64> {
    match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::{Format, Pieces, Request, Settings, import, import_accesses};

    /// The bytes of the trace that `make` writes, or why it writes none.
    fn trace(make: impl FnOnce(&Path) -> Result<(), ImportError>) -> Result<Vec<u8>, String> {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("out.pft");
        make(&output).map_err(|error| error.to_string())?;
        Ok(std::fs::read(output).unwrap())
    }

    fn of_memory(pieces: &mut Pieces<'_>) -> Result<Vec<u8>, String> {
        let (format, input, settings) = (Format::Pages, Path::new("pages"), Settings::default());
        trace(|output| import_accesses(&Request { format, input, output, settings }, pieces).map(drop))
    }

    #[test]
    fn numbers_in_memory_become_the_trace_of_a_file_with_them() {
        let pages: Vec<u64> = (0..5000).map(|n| n * 7919 % 300).collect();
        let folder = tempfile::tempdir().unwrap();
        let input = &folder.path().join("pages");
        std::fs::write(input, pages.iter().map(|page| format!("{page}\n")).collect::<String>()).unwrap();
        let (format, settings) = (Format::Pages, Settings::default());
        let of_file =
            trace(|output| import(&Request { format, input, output, settings }, &mut || true).map(drop));
        let accesses = |pages| Accesses { pages, stores: &[], threads: &[] };
        let of_memory = of_memory(&mut |take| pages.chunks(999).all(|piece| take(accesses(piece))));
        assert!(of_file.is_ok() && of_memory == of_file);
    }

    #[test]
    fn a_number_that_is_too_large_is_named_with_its_place() {
        let pages = [&[7; 5][..], &[7, END]];
        let accesses = |pages| Accesses { pages, stores: &[], threads: &[] };
        let refused = of_memory(&mut |take| pages.iter().all(|piece| take(accesses(piece))));
        assert_eq!(refused.unwrap_err(), "pages:6: expected a page number below 2^34, found 17179869184");
        let ended = of_memory(&mut |_| false);
        assert_eq!(ended.unwrap_err(), ImportError::Interrupted.to_string());
    }
}
