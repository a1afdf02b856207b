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

use abi::AccessKind;

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

fn number(word: &str) -> Option<u64> {
    match word.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}
