//! Events as bytes: a *block* holds some events of one thread and can be decoded by itself.
//!
//! ```text
//! block   = ops_len varint, pages_len varint, ops, pages, args
//! ops     = one byte per event
//! pages   = per Run whose page is not coded in its op: zigzag varint, the distance to the page of the last run
//!           of the same mode
//! args    = varints: counts of runs, fields of the other events
//! op      = mode (bits 0-1: 0 load, 1 store, 2 fetch) for runs, with
//!           bits 2-4: count, 1 to 7, or 0: it is in args (less 8)
//!           bits 5-7: page: 0 in pages, 1 same, 2 next, 3 previous, 4 +2, 5 -2, 6 +3, 7 as in the run before
//!           3 in bits 0-1: another event, its code in bits 2-7
//! ```
//!
//! Varints are LEB128 (7 bits a byte, low bits first, the top bit says that more follow). The three columns are
//! kept apart because zstd, which follows, does better on bytes of one kind.

use crate::event::{Backing, Event, FileId, Run, ThreadId};
use abi::{AccessKind, Advice, FileAdvice, Group, GroupLimits, Prot};
use alloc::vec::Vec;

const OTHER: u8 = 3;
const PAGE_STEPS: [i64; 6] = [0, 1, -1, 2, -2, 3];

/// Codes of the events that are not runs (bits 2 to 7 of the op).
mod code {
    pub const COMPUTE: u8 = 0;
    pub const IDLE: u8 = 1;
    pub const SYNC: u8 = 2;
    pub const SKIP: u8 = 3;
    pub const MAP: u8 = 4;
    pub const UNMAP: u8 = 5;
    pub const PROTECT: u8 = 6;
    pub const REMAP: u8 = 7;
    pub const ADVISE: u8 = 8;
    pub const LOCK: u8 = 9;
    pub const UNLOCK: u8 = 10;
    pub const MSYNC: u8 = 11;
    pub const OPEN: u8 = 12;
    pub const CLOSE: u8 = 13;
    pub const READ: u8 = 14;
    pub const WRITE: u8 = 15;
    pub const FSYNC: u8 = 16;
    pub const TRUNCATE: u8 = 17;
    pub const FILE_ADVISE: u8 = 18;
    pub const SPAWN: u8 = 19;
    pub const FORK: u8 = 20;
    pub const JOIN: u8 = 21;
    pub const EXEC: u8 = 22;
    pub const GROUP_CREATE: u8 = 23;
    pub const GROUP_LIMIT: u8 = 24;
    pub const GROUP_ENTER: u8 = 25;
    pub const GROUP_REMOVE: u8 = 26;
    pub const MARK: u8 = 27;
    pub const AFTER: u8 = 28;
}

/// Append `value` as a varint.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

const fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// What both sides remember between events of a block.
#[derive(Clone, Copy, Default)]
struct Context {
    pages: [u64; 3],
    last: u64,
}

/// Builds blocks.
#[derive(Default)]
pub struct Encoder {
    context: Context,
    ops: Vec<u8>,
    pages: Vec<u8>,
    args: Vec<u8>,
}

impl Encoder {
    /// Bytes of the block so far, without its small head.
    pub fn len(&self) -> usize {
        self.ops.len() + self.pages.len() + self.args.len()
    }

    /// Has nothing been pushed since the last [`finish`](Self::finish)?
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Forget what was pushed.
    pub fn clear(&mut self) {
        self.context = Context::default();
        self.ops.clear();
        self.pages.clear();
        self.args.clear();
    }

    /// Append the block to `out` and begin a new one.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        put_varint(out, self.ops.len() as u64);
        put_varint(out, self.pages.len() as u64);
        out.extend_from_slice(&self.ops);
        out.extend_from_slice(&self.pages);
        out.extend_from_slice(&self.args);
        self.clear();
    }

    /// Add an event.
    pub fn push(&mut self, event: &Event) {
        match *event {
            Event::Run(run) => self.run(run),
            Event::Compute { instructions } => self.other(code::COMPUTE, &[instructions]),
            Event::Idle { nanos } => self.other(code::IDLE, &[nanos]),
            Event::Sync { epoch } => self.other(code::SYNC, &[epoch]),
            Event::Skip { epoch } => self.other(code::SKIP, &[epoch]),
            Event::Map { epoch, addr, len, rights, backing, populate, locked, replaces } => {
                let (kind, file, offset) = match backing {
                    Backing::Anonymous => (0, 0, 0),
                    Backing::AnonymousShared => (1, 0, 0),
                    Backing::File { file, offset, shared } => (2 + u64::from(shared), file.0, offset),
                };
                let flags = rights.bits()
                    | u64::from(populate) << 3
                    | u64::from(locked) << 4
                    | u64::from(replaces) << 5
                    | kind << 6;
                self.other(code::MAP, &[epoch, addr, len, flags, u64::from(file), offset]);
            }
            Event::Unmap { epoch, addr, len } => self.other(code::UNMAP, &[epoch, addr, len]),
            Event::Protect { epoch, addr, len, rights } => {
                self.other(code::PROTECT, &[epoch, addr, len, rights.bits()])
            }
            Event::Remap { epoch, addr, old_len, new_len, new_addr } => {
                self.other(code::REMAP, &[epoch, addr, old_len, new_len, new_addr])
            }
            Event::Advise { addr, len, advice } => self.other(code::ADVISE, &[addr, len, advice.code()]),
            Event::Lock { addr, len } => self.other(code::LOCK, &[addr, len]),
            Event::Unlock { addr, len } => self.other(code::UNLOCK, &[addr, len]),
            Event::Msync { addr, len } => self.other(code::MSYNC, &[addr, len]),
            Event::Open { file } => self.other(code::OPEN, &[u64::from(file.0)]),
            Event::Close { file } => self.other(code::CLOSE, &[u64::from(file.0)]),
            Event::Read { file, offset, len } => self.other(code::READ, &[u64::from(file.0), offset, len]),
            Event::Write { file, offset, len } => self.other(code::WRITE, &[u64::from(file.0), offset, len]),
            Event::Fsync { file } => self.other(code::FSYNC, &[u64::from(file.0)]),
            Event::Truncate { epoch, file, size } => {
                self.other(code::TRUNCATE, &[epoch, u64::from(file.0), size])
            }
            Event::FileAdvise { file, offset, len, advice } => {
                self.other(code::FILE_ADVISE, &[u64::from(file.0), offset, len, advice.code()])
            }
            Event::Spawn { thread } => self.other(code::SPAWN, &[u64::from(thread.0)]),
            Event::Fork { epoch, thread } => self.other(code::FORK, &[epoch, u64::from(thread.0)]),
            Event::Join { thread } => self.other(code::JOIN, &[u64::from(thread.0)]),
            Event::Exec => self.other(code::EXEC, &[]),
            Event::Mark => self.other(code::MARK, &[]),
            Event::After { thread, mark } => self.other(code::AFTER, &[u64::from(thread.0), mark]),
            Event::GroupCreate { group, parent, limits } => {
                self.other(code::GROUP_CREATE, &[u64::from(group.0), u64::from(parent.0)]);
                self.limits(&limits);
            }
            Event::GroupLimit { group, limits } => {
                self.other(code::GROUP_LIMIT, &[u64::from(group.0)]);
                self.limits(&limits);
            }
            Event::GroupEnter { group } => self.other(code::GROUP_ENTER, &[u64::from(group.0)]),
            Event::GroupRemove { group } => self.other(code::GROUP_REMOVE, &[u64::from(group.0)]),
        }
    }

    fn run(&mut self, run: Run) {
        let context = &mut self.context;
        let mode = run.mode as usize;
        let step = run.page.wrapping_sub(context.pages[mode]) as i64;
        let page_code = match PAGE_STEPS.iter().position(|&known| known == step) {
            Some(position) => position as u8 + 1,
            None if run.page == context.last => 7,
            None => {
                put_varint(&mut self.pages, zigzag(step));
                0
            }
        };
        context.pages[mode] = run.page;
        context.last = run.page;
        let count_code = if (1..8).contains(&run.count) {
            run.count as u8
        } else {
            put_varint(&mut self.args, u64::from(run.count).wrapping_sub(8));
            0
        };
        self.ops.push(run.mode as u8 | count_code << 2 | page_code << 5);
    }

    fn other(&mut self, code: u8, fields: &[u64]) {
        self.ops.push(OTHER | code << 2);
        self.fields(fields);
    }

    fn fields(&mut self, fields: &[u64]) {
        for &field in fields {
            put_varint(&mut self.args, field);
        }
    }

    fn limits(&mut self, limits: &GroupLimits) {
        let &GroupLimits { max, high, low, min, swap_max } = limits;
        self.fields(&[max, high, low, min, swap_max]);
    }
}

/// A block that does not follow the rules; holds the position in it, in bytes of its column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

/// Reads one block. Give it the same bytes at each call; it only keeps positions, so that a block and its reader
/// can live in one structure.
#[derive(Clone, Default)]
pub struct Decoder {
    context: Context,
    op: usize,
    ops_end: usize,
    page: usize,
    pages_end: usize,
    arg: usize,
}

impl Decoder {
    /// Begin to read `block`.
    pub fn new(block: &[u8]) -> Result<Decoder, Malformed> {
        let mut at = 0;
        let ops = usize::try_from(varint(block, &mut at)?).map_err(|_| Malformed)?;
        let pages = usize::try_from(varint(block, &mut at)?).map_err(|_| Malformed)?;
        let ops_end = at.checked_add(ops).ok_or(Malformed)?;
        let pages_end = ops_end.checked_add(pages).ok_or(Malformed)?;
        if pages_end > block.len() {
            return Err(Malformed);
        }
        Ok(Decoder { context: Context::default(), op: at, ops_end, page: ops_end, pages_end, arg: pages_end })
    }

    /// The next event, `None` at the end of the block.
    #[inline]
    pub fn next(&mut self, block: &[u8]) -> Result<Option<Event>, Malformed> {
        if self.op == self.ops_end {
            return Ok(None);
        }
        let op = *block.get(self.op).ok_or(Malformed)?;
        self.op += 1;
        if op & 3 == OTHER {
            return self.other(op >> 2, block).map(Some);
        }
        let mode = AccessKind::ALL[usize::from(op & 3)];
        let base = self.context.pages[usize::from(op & 3)];
        let page = match op >> 5 {
            0 => {
                if self.page >= self.pages_end {
                    return Err(Malformed);
                }
                base.wrapping_add(unzigzag(varint(block, &mut self.page)?) as u64)
            }
            7 => self.context.last,
            code => base.wrapping_add(PAGE_STEPS[usize::from(code - 1)] as u64),
        };
        self.context.pages[usize::from(op & 3)] = page;
        self.context.last = page;
        let count = match op >> 2 & 7 {
            0 => varint(block, &mut self.arg)?.wrapping_add(8) as u32,
            small => u32::from(small),
        };
        Ok(Some(Event::Run(Run { page, count, mode })))
    }

    #[cold]
    #[inline(never)]
    fn other(&mut self, code: u8, block: &[u8]) -> Result<Event, Malformed> {
        let mut field = || varint(block, &mut self.arg);
        Ok(match code {
            code::COMPUTE => Event::Compute { instructions: field()? },
            code::IDLE => Event::Idle { nanos: field()? },
            code::SYNC => Event::Sync { epoch: field()? },
            code::SKIP => Event::Skip { epoch: field()? },
            code::MAP => {
                let (epoch, addr, len, flags) = (field()?, field()?, field()?, field()?);
                let (file, offset) = (FileId(narrow(field()?)?), field()?);
                let backing = match flags >> 6 {
                    0 => Backing::Anonymous,
                    1 => Backing::AnonymousShared,
                    2 => Backing::File { file, offset, shared: false },
                    3 => Backing::File { file, offset, shared: true },
                    _ => return Err(Malformed),
                };
                let flag = |bit: u32| flags >> bit & 1 != 0;
                Event::Map {
                    epoch,
                    addr,
                    len,
                    rights: Prot::from_bits(flags),
                    backing,
                    populate: flag(3),
                    locked: flag(4),
                    replaces: flag(5),
                }
            }
            code::UNMAP => Event::Unmap { epoch: field()?, addr: field()?, len: field()? },
            code::PROTECT => Event::Protect {
                epoch: field()?,
                addr: field()?,
                len: field()?,
                rights: Prot::from_bits(field()?),
            },
            code::REMAP => Event::Remap {
                epoch: field()?,
                addr: field()?,
                old_len: field()?,
                new_len: field()?,
                new_addr: field()?,
            },
            code::ADVISE => Event::Advise {
                addr: field()?,
                len: field()?,
                advice: Advice::from_code(field()?).ok_or(Malformed)?,
            },
            code::LOCK => Event::Lock { addr: field()?, len: field()? },
            code::UNLOCK => Event::Unlock { addr: field()?, len: field()? },
            code::MSYNC => Event::Msync { addr: field()?, len: field()? },
            code::OPEN => Event::Open { file: FileId(narrow(field()?)?) },
            code::CLOSE => Event::Close { file: FileId(narrow(field()?)?) },
            code::READ => Event::Read { file: FileId(narrow(field()?)?), offset: field()?, len: field()? },
            code::WRITE => Event::Write { file: FileId(narrow(field()?)?), offset: field()?, len: field()? },
            code::FSYNC => Event::Fsync { file: FileId(narrow(field()?)?) },
            code::TRUNCATE => {
                Event::Truncate { epoch: field()?, file: FileId(narrow(field()?)?), size: field()? }
            }
            code::FILE_ADVISE => Event::FileAdvise {
                file: FileId(narrow(field()?)?),
                offset: field()?,
                len: field()?,
                advice: FileAdvice::from_code(field()?).ok_or(Malformed)?,
            },
            code::SPAWN => Event::Spawn { thread: ThreadId(narrow(field()?)?) },
            code::FORK => Event::Fork { epoch: field()?, thread: ThreadId(narrow(field()?)?) },
            code::JOIN => Event::Join { thread: ThreadId(narrow(field()?)?) },
            code::EXEC => Event::Exec,
            code::MARK => Event::Mark,
            code::AFTER => Event::After { thread: ThreadId(narrow(field()?)?), mark: field()? },
            code::GROUP_CREATE..=code::GROUP_REMOVE => group_event(code, field)?,
            _ => return Err(Malformed),
        })
    }
}

/// Read a varint at `at` and move past it.
#[inline]
pub fn varint(bytes: &[u8], at: &mut usize) -> Result<u64, Malformed> {
    let first = *bytes.get(*at).ok_or(Malformed)?;
    *at += 1;
    if first < 0x80 {
        return Ok(u64::from(first));
    }
    let mut value = u64::from(first & 0x7f);
    for shift in (7..64).step_by(7) {
        let byte = *bytes.get(*at).ok_or(Malformed)?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(Malformed)
}

fn group_event(code: u8, mut field: impl FnMut() -> Result<u64, Malformed>) -> Result<Event, Malformed> {
    let group = Group(narrow(field()?)?);
    let parent = if code == code::GROUP_CREATE { Group(narrow(field()?)?) } else { Group::ROOT };
    Ok(match code {
        code::GROUP_CREATE => Event::GroupCreate { group, parent, limits: limits(field)? },
        code::GROUP_LIMIT => Event::GroupLimit { group, limits: limits(field)? },
        code::GROUP_ENTER => Event::GroupEnter { group },
        _ => Event::GroupRemove { group },
    })
}

fn limits(mut field: impl FnMut() -> Result<u64, Malformed>) -> Result<GroupLimits, Malformed> {
    Ok(GroupLimits { max: field()?, high: field()?, low: field()?, min: field()?, swap_max: field()? })
}

fn narrow(value: u64) -> Result<u32, Malformed> {
    u32::try_from(value).map_err(|_| Malformed)
}
