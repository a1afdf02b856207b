//! **perf**'s memory samples (Intel's PEBS, AMD's IBS, Arm's SPE), a line each:
//!
//! ```text
//! perf mem record -- PROGRAM
//! perf script -F comm,pid,tid,time,event,addr,data_src
//!
//! redis-server 4711/4712  82877.315633: cpu/mem-loads,ldlat=30/P:  7f2b10a3c0d8  10668100842 |OP LOAD|LVL L3 hit|...
//! ```
//!
//! The CPU in brackets may be there, and a number of events before the event's name. What a sample did is in its data
//! source; without that, an event with "store" in its name stored, and any other loaded. A sample without an address,
//! of no access, or of the kernel's memory is left out. Each other one becomes one access, at its time.
//!
//! Source: `perf_sample__fprintf_start` and its callers in Linux's `tools/perf/builtin-script.c`, and outputs in the
//! mailing list's archive. No machine with such samples was at hand.

use abi::AccessKind;

use super::error::ImportError;
use super::input::{Input, Lines};
use super::settings::Settings;
use super::step::{Sink, Step};

/// A sample.
struct Sample {
    pid: u64,
    tid: u64,
    nanos: u64,
    addr: u64,
    /// `None`: no access.
    mode: Option<AccessKind>,
}

/// Read samples.
pub(super) fn read(input: Input, settings: &Settings, sink: &mut Sink<'_>) -> Result<(), ImportError> {
    let mut lines = input.lines();
    let mut only = settings.only;
    while lines.advance()? {
        if lines.text().is_empty() || lines.text().starts_with(b"#") {
            continue;
        }
        let sample = parse(&lines).ok_or_else(|| {
            lines.unlike("a sample like `name 4711/4712 82877.315633: cpu/mem-loads/P: 7f2b10a3c0d8`")
        })?;
        if *only.get_or_insert(sample.pid) != sample.pid {
            let first = only.unwrap_or(sample.pid);
            if settings.only.is_some() {
                continue;
            }
            let path = lines.path().to_owned();
            return Err(ImportError::Several { path, kind: "processes", first, second: sample.pid });
        }
        sink(Step::At { task: sample.tid, nanos: sample.nanos })?;
        sink(match (sample.addr, sample.mode) {
            (0, _) => Step::LeftOut("samples without an address"),
            (_, None) => Step::LeftOut("samples of no access"),
            (addr, Some(mode)) => Step::Access { task: sample.tid, addr, bytes: 1, mode, times: 1 },
        })?;
    }
    Ok(())
}

fn parse(lines: &Lines) -> Option<Sample> {
    // The command's name can have blanks, so the columns are found by the time.
    let words: Vec<&str> = lines.words().collect();
    let (at, nanos) = (0..words.len()).find_map(|at| Some((at, time(words[at])?)))?;
    let task = at.checked_sub(1).filter(|&before| words[before].starts_with('[')).unwrap_or(at);
    let (pid, tid) = words.get(task.checked_sub(1)?)?.split_once('/')?;
    let rest = &words[at + 1..];
    let counted = rest.first()?.bytes().all(|byte| byte.is_ascii_digit());
    let rest = &rest[usize::from(counted)..];
    let (event, addr) = (rest.first()?.strip_suffix(':')?, rest.get(1)?);
    Some(Sample {
        pid: pid.parse().ok()?,
        tid: tid.parse().ok()?,
        nanos,
        addr: u64::from_str_radix(addr, 16).ok()?,
        mode: mode(event, lines.text()),
    })
}

/// Seconds with a fraction and a colon, in nanoseconds.
fn time(word: &str) -> Option<u64> {
    let (seconds, fraction) = word.strip_suffix(':')?.split_once('.')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(seconds) || !is_number(fraction) || fraction.len() > 9 {
        return None;
    }
    let scale = 10u64.pow(9 - fraction.len() as u32);
    seconds
        .parse::<u64>()
        .ok()?
        .checked_mul(1_000_000_000)?
        .checked_add(fraction.parse::<u64>().ok()? * scale)
}

/// What the sample did.
fn mode(event: &str, text: &[u8]) -> Option<AccessKind> {
    const MARK: &[u8] = b"|OP ";
    let Some(at) = text.windows(MARK.len()).position(|part| part == MARK) else {
        return Some(if event.contains("store") { AccessKind::Store } else { AccessKind::Load });
    };
    let operation = text[at + MARK.len()..].split(|&byte| byte == b'|').next().unwrap_or_default();
    let has = |name: &str| operation.windows(name.len()).any(|part| part == name.as_bytes());
    [("STORE", AccessKind::Store), ("LOAD", AccessKind::Load), ("EXEC", AccessKind::Fetch)]
        .into_iter()
        .find(|(name, _)| has(name))
        .map(|(_, mode)| mode)
}
