//! **lackey** is valgrind's example tool; `valgrind --tool=lackey --trace-mem=yes PROGRAM` prints a line per access:
//!
//! ```text
//! I  04001090,3       instruction fetch: address (hexadecimal), bytes
//!  L 1ffeffe7e,8      load
//!  S 1ffeffe80,8      store
//!  M 0421c7cc,4       load and store of the same place
//! ```
//!
//! Lines that begin with `==` or `--` are valgrind's own words. The format knows one thread and no system calls.
//! Source: valgrind's manual and its output.

use abi::AccessKind;

use super::error::ImportError;
use super::input::Input;
use super::step::{Sink, Step};

/// Read lackey's output.
pub(super) fn read(input: Input, sink: &mut Sink<'_>) -> Result<(), ImportError> {
    let mut lines = input.lines();
    while lines.advance()? {
        let text = lines.text();
        if text.is_empty() || text.starts_with(b"==") || text.starts_with(b"--") {
            continue;
        }
        let (kind, addr, bytes) =
            parse(text).ok_or_else(|| lines.unlike("a line of lackey's like ` L 1ffeffe7e,8`"))?;
        let mut access = |mode| sink(Step::Access { task: 0, addr, bytes, mode, times: 1 });
        match kind {
            b'I' => {
                access(AccessKind::Fetch)?;
                sink(Step::Instructions { task: 0, count: 1 })?;
            }
            b'L' => access(AccessKind::Load)?,
            b'S' => access(AccessKind::Store)?,
            _ => {
                access(AccessKind::Load)?;
                access(AccessKind::Store)?;
            }
        }
    }
    Ok(())
}

/// Kind, address and bytes of an access line.
fn parse(line: &[u8]) -> Option<(u8, u64, u64)> {
    let line = line.trim_ascii_start();
    let (&kind, rest) = line.split_first().filter(|(kind, _)| b"ILSM".contains(kind))?;
    let rest = rest.strip_prefix(b" ")?.trim_ascii_start();
    let comma = rest.iter().position(|&byte| byte == b',')?;
    let addr = u64::from_str_radix(std::str::from_utf8(&rest[..comma]).ok()?, 16).ok()?;
    let size = std::str::from_utf8(&rest[comma + 1..]).ok()?.parse().ok()?;
    // The largest access of any instruction is far below a page; more is not an access.
    (1..=4096).contains(&size).then_some((kind, addr, size))
}
