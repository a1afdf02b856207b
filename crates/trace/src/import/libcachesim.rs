//! **libCacheSim**'s binary traces of requests for objects, little-endian and packed:
//!
//! ```text
//! oracleGeneral  u32 seconds, u64 object, u32 bytes, i64 number of the object's next request (none: -1 or the largest)
//! lcs            1024 or 8192 bytes that begin and end with 0x123456789abcdef0 and have the version after the first
//!                8, then requests:
//!   version 1    as oracleGeneral
//!   2            u32 seconds, u64 object, u32 bytes, u8 operation, 3 bytes tenant, i64 next
//!   3            u32 seconds, u64 object, i64 bytes, u8 operation, 3 bytes tenant, u32 lifetime, i64 next
//!   4 to 8       as 3, and then 1, 2, 4, 8 or 16 × u32 of the user's
//! ```
//!
//! Objects are numbers without order (hashes, block numbers), so they come in the order of their first request, each
//! on pages of its own. One that comes back larger than it was moves to new pages. A request touches as many pages as
//! it has bytes: it stores if its operation does (set, add, cas, replace, append, prepend, incr, decr, write, update),
//! else it loads. Deletions are left out.
//!
//! Source: libCacheSim's readers `oracleGeneralBin.h` and `lcs.h` (versions of 2024 and 2025), and `enum.h`.

use std::collections::HashMap;

use abi::AccessKind;

use super::error::ImportError;
use super::input::Input;
use super::step::{Sink, Step};
use crate::event::{PAGE_SHIFT, PAGE_SIZE};

/// What lcs begins and ends its header with.
const MAGIC: u64 = 0x1234_5678_9abc_def0;
/// Bytes of a request by version of lcs, from 1.
const RECORDS: [usize; 8] = [24, 28, 36, 40, 44, 52, 68, 100];
/// Lengths of headers.
const HEADERS: [usize; 2] = [1024, 8192];
/// Where objects begin.
const BASE: u64 = 4 << 30;
/// Operations that store, by libCacheSim's numbers.
const STORES: [u8; 10] = [3, 4, 5, 6, 7, 8, 10, 11, 13, 14];
/// The operation that deletes.
const DELETE: u8 = 9;
/// The largest number of an operation, and the one of requests whose operation is not known, which load.
const LAST: u8 = 14;
const UNKNOWN: u8 = 255;

/// A request.
struct Request {
    seconds: u32,
    object: u64,
    bytes: u64,
    operation: u8,
    /// The number of the object's next request, if the format tells and there is one.
    next: Option<u64>,
}

/// Read requests.
pub(super) fn read(mut input: Input, sink: &mut Sink<'_>) -> Result<(), ImportError> {
    let mut record = [0; RECORDS[RECORDS.len() - 1]];
    let mut objects = Objects { known: HashMap::new(), end: BASE >> PAGE_SHIFT };
    let mut at = 0;
    if !input.record(&mut record[..RECORDS[0]])? {
        return Ok(());
    }
    let mut version = 1;
    let mut ready = true;
    if long(&record, 0) == MAGIC {
        version = header(&mut input, long(&record, 8))?;
        ready = false;
    }
    let length = RECORDS[version - 1];
    for number in 0.. {
        if !std::mem::take(&mut ready) {
            at = input.at();
            if !input.record(&mut record[..length])? {
                break;
            }
        }
        let request = parse(&record, version).ok_or_else(|| {
            input.refuse(at, "not a request of libCacheSim's: no such operation, or a size below 0")
        })?;
        if request.next.is_some_and(|next| next < number) {
            let what = format!(
                "not a request of libCacheSim's: it is number {number}, and its object's next is said to be number {}",
                request.next.unwrap_or(0)
            );
            return Err(input.refuse(at, what));
        }
        objects.ask(&request, sink)?;
    }
    Ok(())
}

/// Read the rest of the header, of which 24 bytes are read. Returns the version.
fn header(input: &mut Input, version: u64) -> Result<usize, ImportError> {
    let mut read = RECORDS[0];
    let mut rest = [0; HEADERS[1]];
    for length in HEADERS {
        let piece = &mut rest[..length - read];
        if !input.record(piece)? {
            return Err(input.refuse(input.at(), "it ends after the header of an lcs trace"));
        }
        read = length;
        if long(piece, piece.len() - 8) == MAGIC {
            let known = usize::try_from(version).ok().filter(|version| (1..=RECORDS.len()).contains(version));
            // Until the end of 2024 the header told the fields in letters, from '<' on.
            let old = version.to_le_bytes()[0] == b'<';
            return known.ok_or_else(|| match old {
                true => input.refuse(8, "an lcs trace of before its version 1; convert it again"),
                false => input.refuse(8, format!("lcs has versions 1 to 8, this is {version}")),
            });
        }
    }
    Err(input.refuse(0, "the header of an lcs trace does not end as it should"))
}

fn parse(record: &[u8], version: usize) -> Option<Request> {
    let (bytes, operation, next) = match version {
        1 => (u64::from(int(record, 12)), 0, long(record, 16)),
        2 => (u64::from(int(record, 12)), record[16], long(record, 20)),
        _ => (u64::try_from(long(record, 12) as i64).ok()?, record[20], long(record, 28)),
    };
    let next = Some(next).filter(|&next| next != u64::MAX && next != i64::MAX as u64);
    let request = Request { seconds: int(record, 0), object: long(record, 4), bytes, operation, next };
    (operation <= LAST || operation == UNKNOWN).then_some(request)
}

fn int(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]))
}

/// Where objects are.
struct Objects {
    /// By object, its first page and its pages.
    known: HashMap<u64, (u64, u64)>,
    /// The first page that is free.
    end: u64,
}

impl Objects {
    fn ask(&mut self, request: &Request, sink: &mut Sink<'_>) -> Result<(), ImportError> {
        let nanos = u64::from(request.seconds) * 1_000_000_000;
        sink(Step::At { task: 0, nanos })?;
        if request.operation == DELETE {
            return sink(Step::LeftOut("deletions of objects"));
        }
        let pages = request.bytes.div_ceil(PAGE_SIZE).max(1);
        let place = self.known.entry(request.object).or_insert((0, 0));
        if place.1 < pages {
            *place = (self.end, pages);
            self.end = self.end.saturating_add(pages);
        }
        let mode = if STORES.contains(&request.operation) { AccessKind::Store } else { AccessKind::Load };
        let addr = place.0.saturating_mul(PAGE_SIZE);
        sink(Step::Access { task: 0, addr, bytes: pages.saturating_mul(PAGE_SIZE), mode, times: 1 })
    }
}
