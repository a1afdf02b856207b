//! Other tools' traces.
//!
//! **lackey** is valgrind's example tool; `valgrind --tool=lackey --trace-mem=yes PROGRAM` prints a line per access:
//!
//! ```text
//! I  04001090,3       instruction fetch: address (hexadecimal), bytes
//!  L 1ffeffe7e,8      load
//!  S 1ffeffe80,8      store
//!  M 0421c7cc,4       load and store of the same place
//! ```
//!
//! Lines that begin with `==` or `--` are valgrind's own words. The format knows one thread and no system calls,
//! so the imported trace has one thread, and all pages that were touched are anonymous memory, mapped at the
//! beginning: readable, and writable or executable where that was done. Neighbouring accesses to the same page
//! in the same way become one run; nothing is reordered.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use crate::container::Writer;
use crate::error::TraceError;
use crate::event::{Event, PAGE_SHIFT, Run, ThreadId};
use crate::header::Header;
use abi::{AccessKind, Map, Prot};

/// Why nothing was imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// A line that is none of lackey's.
    #[error(
        "{}:{line}: not a line of lackey's (expected like ` L 1ffeffe7e,8`): {text:?}; use valgrind --tool=lackey --trace-mem=yes",
        path.display()
    )]
    Line {
        /// The file.
        path: PathBuf,
        /// The line's number, from 1.
        line: u64,
        /// Its beginning.
        text: String,
    },
    /// No access in the file.
    #[error("{}: no accesses in it; was it made with valgrind --tool=lackey --trace-mem=yes?", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// A file could not be read or written.
    #[error(transparent)]
    Trace(#[from] TraceError),
}

/// Bytes of a line that are looked at; lackey's are shorter.
const LINE: u64 = 256;

/// Instructions that are told at once.
const GRAIN: u64 = 1024;

/// Import lackey's output at `path` into a trace at `output`. The input is read twice.
pub fn lackey(path: &Path, output: &Path) -> Result<Header, ImportError> {
    let mut pages: BTreeMap<u64, Prot> = BTreeMap::new();
    each_access(path, |addr, size, mode| {
        for page in touched(addr, size) {
            *pages.entry(page).or_insert(Prot::READ) |= mode.needs();
        }
        Ok(())
    })?;
    if pages.is_empty() {
        return Err(ImportError::Empty { path: path.to_owned() });
    }
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let mut writer = Writer::create(output, "valgrind lackey", &[name], 15)?;
    let thread = writer.add_process(None);
    for map in maps(&pages) {
        writer.push(thread, &map)?;
    }
    let mut runs = Runs { writer: &mut writer, thread, run: None, instructions: 0 };
    each_access(path, |addr, size, mode| runs.add(addr, size, mode))?;
    runs.flush()?;
    runs.tell()?;
    Ok(writer.finish()?)
}

fn touched(addr: u64, size: u64) -> std::ops::RangeInclusive<u64> {
    addr >> PAGE_SHIFT..=addr.saturating_add(size.saturating_sub(1)) >> PAGE_SHIFT
}

/// Mappings over neighbouring pages with the same rights.
fn maps(pages: &BTreeMap<u64, Prot>) -> Vec<Event> {
    let mut areas: Vec<(u64, u64, Prot)> = Vec::new();
    for (&page, &rights) in pages {
        match areas.last_mut() {
            Some((_, end, same)) if *end == page && *same == rights => *end += 1,
            _ => areas.push((page, page + 1, rights)),
        }
    }
    let event = |(epoch, (start, end, prot)): (u64, (u64, u64, Prot))| {
        let map = Map { prot, ..Map::anonymous((end - start) << PAGE_SHIFT) };
        Event::mapped(epoch, start << PAGE_SHIFT, map)
    };
    (1..).zip(areas).map(event).collect()
}

/// Joins accesses to runs.
struct Runs<'a> {
    writer: &'a mut Writer,
    thread: ThreadId,
    run: Option<Run>,
    instructions: u64,
}

impl Runs<'_> {
    fn add(&mut self, addr: u64, size: u64, mode: AccessKind) -> Result<(), ImportError> {
        self.instructions += u64::from(mode == AccessKind::Fetch);
        for page in touched(addr, size) {
            match &mut self.run {
                Some(run) if run.page == page && run.mode == mode && run.count < u32::MAX => run.count += 1,
                _ => {
                    self.flush()?;
                    self.run = Some(Run { page, count: 1, mode });
                }
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), ImportError> {
        if self.instructions >= GRAIN {
            self.tell()?;
        }
        if let Some(run) = self.run.take() {
            self.writer.push(self.thread, &Event::Run(run))?;
        }
        Ok(())
    }

    fn tell(&mut self) -> Result<(), ImportError> {
        let instructions = std::mem::take(&mut self.instructions);
        if instructions > 0 {
            self.writer.push(self.thread, &Event::Compute { instructions })?;
        }
        Ok(())
    }
}

fn each_access(
    path: &Path,
    mut each: impl FnMut(u64, u64, AccessKind) -> Result<(), ImportError>,
) -> Result<(), ImportError> {
    let file = File::open(path).map_err(TraceError::io(path, "open"))?;
    let mut reader = BufReader::with_capacity(1 << 18, file);
    let mut line = Vec::new();
    let mut number = 0;
    loop {
        line.clear();
        if reader.by_ref().take(LINE).read_until(b'\n', &mut line).map_err(TraceError::io(path, "read"))? == 0
        {
            return Ok(());
        }
        number += 1;
        if line.len() as u64 == LINE && line.last() != Some(&b'\n') {
            // Words of valgrind may be longer. A line of lackey's that is so long is none.
            reader.skip_until(b'\n').map_err(TraceError::io(path, "read"))?;
        }
        let text = line.trim_ascii_end();
        if text.is_empty() || text.starts_with(b"==") || text.starts_with(b"--") {
            continue;
        }
        let Some((kind, addr, size)) = parse(text) else {
            let text = String::from_utf8_lossy(text).chars().take(60).collect();
            return Err(ImportError::Line { path: path.to_owned(), line: number, text });
        };
        match kind {
            b'I' => each(addr, size, AccessKind::Fetch)?,
            b'L' => each(addr, size, AccessKind::Load)?,
            b'S' => each(addr, size, AccessKind::Store)?,
            _ => {
                each(addr, size, AccessKind::Load)?;
                each(addr, size, AccessKind::Store)?;
            }
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::Reader;

    const GOLDEN: &str = "==12== Lackey, an example Valgrind tool
I  04001090,3
I  04001093,5
 S 1ffeffe78,8
I  04001ffe,4
 L 04222cac,8
 M 04222fff,1
==12== done
";

    fn import(text: &str) -> Result<(Header, Vec<Event>), ImportError> {
        let folder = tempfile::tempdir().unwrap();
        let (input, output) = (folder.path().join("in.txt"), folder.path().join("out.pft"));
        std::fs::write(&input, text).unwrap();
        let header = lackey(&input, &output)?;
        let reader = Reader::open(&output).unwrap();
        Ok((header, reader.stream(ThreadId(0)).map(Result::unwrap).collect()))
    }

    #[test]
    fn lines_become_maps_and_runs() {
        let (header, events) = import(GOLDEN).unwrap();
        let map = |epoch, page: u64, pages: u64, rights: u8| {
            let map = Map { prot: Prot::from_bits(rights.into()), ..Map::anonymous(pages << PAGE_SHIFT) };
            Event::mapped(epoch, page << PAGE_SHIFT, map)
        };
        let run = |page, count, mode| Event::Run(Run { page, count, mode });
        let expected = [
            map(1, 0x4001, 2, 5),
            map(2, 0x4222, 1, 3),
            map(3, 0x1ffeff, 1, 3),
            run(0x4001, 2, AccessKind::Fetch),
            run(0x1ffeff, 1, AccessKind::Store),
            run(0x4001, 1, AccessKind::Fetch),
            run(0x4002, 1, AccessKind::Fetch),
            run(0x4222, 2, AccessKind::Load),
            run(0x4222, 1, AccessKind::Store),
            Event::Compute { instructions: 3 },
        ];
        assert_eq!(events, expected);
        assert_eq!((header.footprint, header.counts().accesses()), (4 * 4096, 8));
    }

    #[test]
    fn a_wrong_line_is_named() {
        for bad in ["I 04001090", " L xyz,8", " L 10,0", " Q 10,8", "hello", " L 10,8,9", "\u{fffd}"] {
            let error = import(&format!("{GOLDEN}{bad}\n")).unwrap_err().to_string();
            assert!(error.contains("in.txt:9: not a line of lackey's"), "{error}");
            assert!(!error.contains('\n'));
        }
        let long = "x".repeat(10_000);
        let error =
            import(&format!("{GOLDEN}==12== {long}\n--12-- {long}\n L {long}")).unwrap_err().to_string();
        assert!(error.contains("in.txt:11: not a line of lackey's") && error.len() < 400, "{error}");
        let error = import("==1== nothing\n").unwrap_err().to_string();
        assert!(error.contains("in.txt: no accesses"), "{error}");
    }
}
