//! **DynamoRIO**'s drmemtrace shows a trace as text with its tool `view`, a line per record:
//!
//! ```text
//!            9           1:     2765542 ifetch       3 byte(s) @ 0x00007f5f7c1d6290 48 89 e7   mov    %rsp -> %rdi
//!           10           1:     2765542 write        8 byte(s) @ 0x00007ffd1b2f6a88 by PC 0x00007f5f7c1d6290
//!           11           1:     2765542 <marker: timestamp 13319413770947383>
//! ```
//!
//! The columns are the number of the record and of the instruction, the thread, and what it did. An instruction whose
//! bytes need two lines has only them in the second. Prefetches and flushes of caches are no accesses. Timestamps count
//! the time under the tracer, which slows the program down, so they are not kept.
//! Source: DynamoRIO's `clients/drcachesim/tools/view.cpp`, and the outputs in its tests.

use abi::AccessKind;

use super::error::ImportError;
use super::input::{Input, Lines};
use super::step::{Sink, Step};

/// What a line says.
enum Said {
    /// Nothing that matters here.
    Nothing,
    Access(Step),
}

/// Read the text of `view`.
pub(super) fn read(input: Input, sink: &mut Sink<'_>) -> Result<(), ImportError> {
    let mut lines = input.lines();
    while lines.advance()? {
        match parse(&lines) {
            Some(Said::Nothing) => {}
            Some(Said::Access(step)) => {
                sink(step)?;
                if let Step::Access { task, mode: AccessKind::Fetch, .. } = step {
                    sink(Step::Instructions { task, count: 1 })?;
                }
            }
            None => {
                return Err(
                    lines.unlike("a line of view's like `10 1: 2765542 write 8 byte(s) @ 0x7ffd1b2f6a88`")
                );
            }
        }
    }
    Ok(())
}

fn parse(lines: &Lines) -> Option<Said> {
    let text = lines.text().trim_ascii_start();
    if text.is_empty() || is_frame(text) {
        return Some(Said::Nothing);
    }
    let mut words = lines.words();
    words.next()?.parse::<u64>().ok()?;
    words.next()?.strip_suffix(':')?.parse::<u64>().ok()?;
    let task = words.next()?.parse().ok()?;
    let mode = match words.next()? {
        "ifetch" if text.ends_with(b"non-fetched instruction") => return Some(Said::Nothing),
        "ifetch" => AccessKind::Fetch,
        "read" => AccessKind::Load,
        "write" => AccessKind::Store,
        word if is_other(word) => return Some(Said::Nothing),
        word => {
            let is_byte = |word: &str| word.len() == 2 && u8::from_str_radix(word, 16).is_ok();
            return (is_byte(word) && words.all(is_byte)).then_some(Said::Nothing);
        }
    };
    let bytes = words.next()?.parse().ok().filter(|bytes| (1..=4096).contains(bytes))?;
    if (words.next()?, words.next()?) != ("byte(s)", "@") {
        return None;
    }
    let addr = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
    Some(Said::Access(Step::Access { task, addr, bytes, mode, times: 1 }))
}

/// Lines around the records.
fn is_frame(text: &[u8]) -> bool {
    let marks = ["Output format:", "<--record#->", "-----", "=====", "View tool results:"];
    marks.iter().any(|mark| text.starts_with(mark.as_bytes())) || text.ends_with(b": total instructions")
}

/// Records that touch nothing.
fn is_other(word: &str) -> bool {
    word.starts_with("pref") || ["<marker:", "<thread", "<entry", "iflush", "dflush"].contains(&word)
}
