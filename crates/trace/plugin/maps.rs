//! The mappings that exist when the program begins: its image, the dynamic loader, the stack.
//!
//! QEMU has them in its own address space at the guest's addresses (user-mode emulation of a 64-bit program on a
//! 64-bit host needs no offset), below all its own mappings. QEMU hides execute permission from the host, so that is
//! read from the images' program headers.

use std::fs;

use crate::event::Event;
use crate::files::Files;
use abi::{Map, MapSource, Prot};

/// A line of /proc/self/maps.
struct Line<'a> {
    start: u64,
    end: u64,
    rights: Prot,
    shared: bool,
    offset: u64,
    path: &'a str,
}

fn parse(line: &str) -> Option<Line<'_>> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let mut words = rest.splitn(5, ' ');
    let (rights, offset) = (words.next()?.as_bytes(), words.next()?);
    let path = words.nth(2).unwrap_or("").trim_start();
    let bit = |at: usize, letter: u8| rights.get(at) == Some(&letter);
    Some(Line {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        rights: Prot::from_bits(
            u64::from(bit(0, b'r')) | u64::from(bit(1, b'w')) << 1 | u64::from(bit(2, b'x')) << 2,
        ),
        shared: bit(3, b's'),
        offset: u64::from_str_radix(offset, 16).ok()?,
        path,
    })
}

/// The lowest mapped address. Before the program is loaded, that is where QEMU's own memory begins.
pub fn lowest() -> u64 {
    let text = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    text.lines().filter_map(parse).map(|line| line.start).min().unwrap_or(0)
}

/// The file (by a number) and the offset of the memory at `addr`, if processes share it.
pub fn shared_at(addr: u64) -> Option<(u64, u64)> {
    let text = fs::read_to_string("/proc/self/maps").ok()?;
    let line =
        text.lines().find(|line| parse(line).is_some_and(|line| (line.start..line.end).contains(&addr)))?;
    let parsed = parse(line).filter(|line| line.shared)?;
    let inode = line.split_ascii_whitespace().nth(4)?.parse().ok()?;
    Some((inode, parsed.offset + (addr - parsed.start)))
}

/// The ranges of addresses, as start and end in order, that the program has mapped below `limit`.
pub fn ranges(limit: u64) -> Vec<(u64, u64)> {
    let text = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for line in text.lines().filter_map(parse).filter(|line| line.start < limit) {
        match ranges.last_mut() {
            Some((_, end)) if *end == line.start => *end = line.end,
            _ => ranges.push((line.start, line.end)),
        }
    }
    ranges
}

/// The program's mappings, which are below `limit`, as events.
pub fn initial(limit: u64, files: &mut Files) -> Vec<Event> {
    let text = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut code: Vec<(String, Vec<(u64, u64)>)> = Vec::new();
    let mut events = Vec::new();
    for line in text.lines().filter_map(parse).filter(|line| line.start < limit) {
        let file = if line.path.starts_with('/') { files.by_path(line.path) } else { None };
        let mut rights = line.rights;
        let source = match file {
            Some(file) => {
                if !code.iter().any(|(path, _)| path == line.path) {
                    code.push((line.path.to_owned(), code_ranges(line.path).unwrap_or_default()));
                }
                let ranges =
                    code.iter().find(|(path, _)| path == line.path).map_or(&[][..], |(_, ranges)| ranges);
                let length = line.end - line.start;
                if ranges.iter().any(|&(from, to)| line.offset < to && from < line.offset + length) {
                    rights |= Prot::EXEC;
                }
                MapSource::File { fd: file.0, offset: line.offset, shared: line.shared }
            }
            None => MapSource::Anonymous,
        };
        let map = Map { prot: rights, source, ..Map::anonymous(line.end - line.start) };
        events.push(Event::mapped(0, line.start, map));
    }
    events
}

/// The file ranges of the executable segments of a 64-bit little-endian ELF image.
fn code_ranges(path: &str) -> Option<Vec<(u64, u64)>> {
    let bytes = fs::read(path).ok()?;
    let long = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let short = |at: usize| Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    if bytes.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let (table, size, count) = (long(32)? as usize, usize::from(short(54)?), usize::from(short(56)?));
    let mut ranges = Vec::new();
    for at in (0..count).map(|index| table + index * size) {
        let (load, flags) = (short(at)? == 1, short(at + 4)?);
        if load && flags & 1 != 0 {
            let (offset, length) = (long(at + 8)?, long(at + 32)?);
            ranges.push((offset, offset + length));
        }
    }
    Some(ranges)
}
