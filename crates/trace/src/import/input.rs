//! Files of other tools: unpacked if they are compressed, in lines or in records, with their places for messages.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::{MultiGzDecoder, ZlibDecoder};

use super::error::ImportError;
use super::settings::Format;
use crate::error::TraceError;

/// Bytes of a line that are looked at. What matters of a line is far before.
const LINE: u64 = 1024;
/// Bytes that are read at once.
const BUFFER: usize = 1 << 18;

/// A file that is being read.
pub(super) struct Input {
    path: PathBuf,
    format: Format,
    reader: Box<dyn BufRead>,
    packing: Option<&'static str>,
    /// Bytes that were read, after unpacking.
    at: u64,
}

impl Input {
    /// Open a file. gzip and zstd are known by their first bytes. So is zlib, which only damo uses: the mark is short,
    /// and a binary file of another tool could begin like it.
    pub fn open(path: &Path, format: Format) -> Result<Input, ImportError> {
        let file = File::open(path).map_err(TraceError::io(path, "open"))?;
        let mut reader = BufReader::with_capacity(BUFFER, file);
        let head = reader.fill_buf().map_err(TraceError::io(path, "read"))?;
        let buffered = |reader: Box<dyn Read>| Box::new(BufReader::with_capacity(BUFFER, reader));
        let (reader, packing): (Box<dyn BufRead>, _) = match head {
            [0x1f, 0x8b, 8, ..] => (buffered(Box::new(MultiGzDecoder::new(reader))), Some("gzip")),
            [0x28, 0xb5, 0x2f, 0xfd, ..] => {
                let unpacked = zstd::Decoder::with_buffer(reader).map_err(TraceError::io(path, "unpack"))?;
                (buffered(Box::new(unpacked)), Some("zstd"))
            }
            [0x78, 0x01 | 0x5e | 0x9c | 0xda, ..] if format == Format::Damon => {
                (buffered(Box::new(ZlibDecoder::new(reader))), Some("zlib"))
            }
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => return Err(foreign(path, "xz", format)),
            [b'B', b'Z', b'h', b'1'..=b'9', ..] => return Err(foreign(path, "bzip2", format)),
            _ => (Box::new(reader), None),
        };
        Ok(Input { path: path.to_owned(), format, reader, packing, at: 0 })
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the next record begins.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// The first byte that is no blank, without taking it.
    pub fn first_byte(&mut self) -> Result<Option<u8>, ImportError> {
        loop {
            let (blanks, found) = match self.reader.fill_buf() {
                Ok([]) => return Ok(None),
                Ok(there) => {
                    let blanks = there.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
                    (blanks, there.get(blanks).copied())
                }
                Err(error) => return Err(self.unreadable(error)),
            };
            if found.is_some() {
                return Ok(found);
            }
            self.reader.consume(blanks);
        }
    }

    /// Fill `record` with the next bytes; false at the end of the file, which may not be within a record.
    pub fn record(&mut self, record: &mut [u8]) -> Result<bool, ImportError> {
        let mut there = 0;
        while there < record.len() {
            match self.reader.read(&mut record[there..]) {
                Ok(0) if there == 0 => return Ok(false),
                Ok(0) => {
                    let what = format!("it ends after {there} of the {} bytes of a record", record.len());
                    return Err(self.refuse(self.at, what));
                }
                Ok(bytes) => there += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.unreadable(error)),
            }
        }
        self.at += there as u64;
        Ok(true)
    }

    /// Lines of text.
    pub fn lines(self) -> Lines {
        Lines { input: self, line: Vec::new(), number: 0 }
    }

    /// Something is wrong with what is at byte `at`.
    pub fn refuse(&self, at: u64, what: impl std::fmt::Display) -> ImportError {
        let what = format!("{what}; {}", self.format.remedy());
        ImportError::Record { path: self.path.clone(), at, what }
    }

    /// An error of the reader, which is the system's or that of what unpacks.
    pub fn unreadable(&self, source: io::Error) -> ImportError {
        let path = self.path.clone();
        match self.packing {
            Some(packing) => ImportError::Packed { path, packing, at: self.at, source },
            None => TraceError::io(&self.path, "read")(source).into(),
        }
    }

    /// Something is wrong with a line, where the caller counts lines.
    pub fn refuse_line(&self, line: u64, what: impl std::fmt::Display) -> ImportError {
        let what = format!("{what}; {}", self.format.remedy());
        ImportError::Line { path: self.path.clone(), line, what }
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.reader.read(buffer)?;
        self.at += bytes as u64;
        Ok(bytes)
    }
}

fn foreign(path: &Path, tool: &'static str, format: Format) -> ImportError {
    ImportError::Foreign { path: path.to_owned(), tool, format: format.name() }
}

/// The lines of a file.
pub(super) struct Lines {
    input: Input,
    line: Vec<u8>,
    number: u64,
}

impl Lines {
    /// Go to the next line; false at the end.
    pub fn advance(&mut self) -> Result<bool, ImportError> {
        self.line.clear();
        let Input { reader, .. } = &mut self.input;
        let read = reader.by_ref().take(LINE).read_until(b'\n', &mut self.line);
        let mut bytes = read.map_err(|error| self.input.unreadable(error))?;
        if bytes as u64 == LINE && self.line.last() != Some(&b'\n') {
            bytes += self.input.reader.skip_until(b'\n').map_err(|error| self.input.unreadable(error))?;
        }
        self.input.at += bytes as u64;
        self.number += u64::from(bytes > 0);
        Ok(bytes > 0)
    }

    /// The line, without its end. Of a long line, the beginning.
    pub fn text(&self) -> &[u8] {
        self.line.trim_ascii_end()
    }

    /// The line as words.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        let words = self.text().split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
        // A word that is no text equals none that is looked for.
        words.map(|word| std::str::from_utf8(word).unwrap_or("\u{fffd}"))
    }

    /// The line is not what it should be.
    pub fn unlike(&self, expected: &str) -> ImportError {
        let text: String = String::from_utf8_lossy(self.text()).chars().take(60).collect();
        self.refuse(format!("expected {expected}, found {text:?}"))
    }

    /// Something is wrong with the line.
    pub fn refuse(&self, what: impl std::fmt::Display) -> ImportError {
        self.input.refuse_line(self.number, what)
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.input.path
    }
}
