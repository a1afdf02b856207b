//! Events as bytes: a *block* holds some events of one thread and can be decoded by itself.
//!
//! ```text
//! block   = ops_len varint, pages_len varint, ops, pages, args
//! ops     = one byte per event
//! pages   = per Run whose page is not coded in its op: varint, the number of the page in the block, from 1 in the
//!           order in which pages get one here; or 0: it gets the next number now, and a zigzag varint follows, the
//!           distance to the page that got one before
//! args    = varints: counts of runs, fields of the other events
//! op      = mode (bits 0-1: 0 load, 1 store, 2 fetch) for runs, with
//!           bits 2-4: count, 1 to 7, or 0: it is in args (less 8)
//!           bits 5-7: page: 0 in pages, 1 same, 2 next, 3 previous, 4 +2, 5 -2, 6 +3, 7 as in the run before
//!           3 in bits 0-1: another event, its code in bits 2-7
//! content = a code of its own, then in args: zigzag varint, the distance to the page of the last such event; two bytes
//! call    = a code of its own, then in args: its number, epoch, value, number of words, words (without the zeroes at
//!           the end), with number and words as in registers (see [`abi::call`])
//! ```
//!
//! Before format 8 each call had a code and fields of its own. Before format 11 pages had no numbers: each had its
//! distance to the page of the last run of the same mode. Both are still read: a block whose pages have numbers begins
//! with an op that says so and is no event.
//!
//! Numbers, because programs come back to pages in the same order again and again: the numbers repeat, which zstd sees,
//! while a distance depends on where the run before was, and is another one after each thing that differs.
//!
//! Varints are LEB128 (7 bits a byte, low bits first, the top bit says that more follow). The three columns are
//! kept apart because zstd, which follows, does better on bytes of one kind.

use crate::event::{Event, FileId, Packed, Run, ThreadId};
use abi::{AccessKind, Advice, Buffer, Call, FileAdvice, Group, GroupLimits, Map, MapSource, Prot, Remap};
use alloc::vec::Vec;

const OTHER: u8 = 3;
const PAGE_STEPS: [i64; 6] = [0, 1, -1, 2, -2, 3];

/// The format since which pages have numbers and contents are told.
const NUMBERS: u32 = 11;

/// Words of a call.
const WORDS: usize = 6;

/// Codes of the events that are not runs (bits 2 to 7 of the op). Calls before [`CALL`](code::CALL) are read only.
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
    pub const CALL: u8 = 29;
    pub const CONTENT: u8 = 30;
    /// No event: the first op of a block whose pages have numbers.
    pub const NUMBERED: u8 = 31;
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
    /// The page that got the last number.
    numbered: u64,
    /// The page of the last content.
    content: u64,
}

/// The numbers of a block's pages: a table with open addressing, as `core` has no map that hashes.
#[derive(Default)]
struct Numbers {
    /// Pages and their numbers; number 0: the slot is free. Its length is a power of two, and half of it is free.
    slots: Vec<(u64, u32)>,
    used: u32,
}

impl Numbers {
    const LEAST: usize = 1 << 10;

    fn clear(&mut self) {
        if self.used > 0 {
            self.slots.fill((0, 0));
            self.used = 0;
        }
    }

    /// The number of a page; 0 if it gets one now.
    fn of(&mut self, page: u64) -> u32 {
        if self.slots.len() < self.used as usize * 2 + 2 {
            let larger = (self.slots.len() * 2).max(Self::LEAST);
            let old = core::mem::replace(&mut self.slots, alloc::vec![(0, 0); larger]);
            old.into_iter().filter(|&(_, number)| number > 0).for_each(|slot| {
                let at = self.find(slot.0);
                self.slots[at] = slot;
            });
        }
        let at = self.find(page);
        let number = self.slots[at].1;
        if number == 0 {
            self.used += 1;
            self.slots[at] = (page, self.used);
        }
        number
    }

    /// The slot of a page, or the free one where it belongs.
    fn find(&self, page: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut at = (page.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize & mask;
        while self.slots[at].1 > 0 && self.slots[at].0 != page {
            at = (at + 1) & mask;
        }
        at
    }
}

/// Builds blocks.
#[derive(Default)]
pub struct Encoder {
    context: Context,
    numbers: Numbers,
    ops: Vec<u8>,
    pages: Vec<u8>,
    args: Vec<u8>,
}

impl Encoder {
    /// Bytes of the block so far, without its small head.
    pub fn len(&self) -> usize {
        self.ops.len() + self.pages.len() + self.args.len()
    }

    /// Whether nothing was pushed since the last [`finish`](Self::finish).
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Forget what was pushed.
    pub fn clear(&mut self) {
        self.context = Context::default();
        self.numbers.clear();
        self.ops.clear();
        self.pages.clear();
        self.args.clear();
    }

    /// Append the block to `out` and begin a new one.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        let numbered = !self.pages.is_empty();
        put_varint(out, self.ops.len() as u64 + u64::from(numbered));
        put_varint(out, self.pages.len() as u64);
        if numbered {
            out.push(OTHER | code::NUMBERED << 2);
        }
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
            Event::Call { epoch, call, value } => {
                let (number, words) = call.encode(|_| Buffer::anywhere(0));
                let used = words.iter().rposition(|&word| word != 0).map_or(0, |last| last + 1);
                self.other(code::CALL, &[number, epoch, value, used as u64]);
                self.fields(&words[..used]);
            }
            Event::Exec => self.other(code::EXEC, &[]),
            Event::Content { page, packed } => {
                let step = page.wrapping_sub(self.context.content) as i64;
                self.context.content = page;
                self.other(code::CONTENT, &[zigzag(step)]);
                self.args.extend([packed.lz4, packed.zstd]);
            }
            Event::Mark => self.other(code::MARK, &[]),
            Event::After { thread, mark } => self.other(code::AFTER, &[u64::from(thread.0), mark]),
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
                let number = self.numbers.of(run.page);
                put_varint(&mut self.pages, number.into());
                if number == 0 {
                    let step = run.page.wrapping_sub(context.numbered) as i64;
                    put_varint(&mut self.pages, zigzag(step));
                    context.numbered = run.page;
                }
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
}

/// A block that does not follow the rules; holds the position in it, in bytes of its column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

/// Reads one block. Give it the same bytes at each call; it only keeps positions, so that a block and its reader
/// can live in one structure.
#[derive(Clone, Default)]
pub struct Decoder {
    context: Context,
    /// The pages that have numbers; `None` in a block of an older format.
    numbered: Option<Vec<u64>>,
    op: usize,
    ops_end: usize,
    page: usize,
    pages_end: usize,
    arg: usize,
    format: u32,
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
        let numbered = ops > 0 && block[at] == OTHER | code::NUMBERED << 2;
        Ok(Decoder {
            context: Context::default(),
            numbered: numbered.then(Vec::new),
            op: at + usize::from(numbered),
            ops_end,
            page: ops_end,
            pages_end,
            arg: pages_end,
            format: if numbered { NUMBERS } else { 1 },
        })
    }

    /// The oldest format that has all that was read so far.
    pub fn format(&self) -> u32 {
        self.format
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
            0 => self.page(block, base)?,
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

    /// The next of the pages; `base` is that of the last run of the same mode.
    #[inline]
    fn page(&mut self, block: &[u8], base: u64) -> Result<u64, Malformed> {
        let pages = block.get(..self.pages_end).ok_or(Malformed)?;
        let mut next = || varint(pages, &mut self.page);
        let Some(numbered) = &mut self.numbered else {
            return Ok(base.wrapping_add(unzigzag(next()?) as u64));
        };
        match next()? {
            0 => {
                let page = numbered.last().unwrap_or(&0).wrapping_add(unzigzag(next()?) as u64);
                numbered.push(page);
                Ok(page)
            }
            number => numbered.get(number as usize - 1).copied().ok_or(Malformed),
        }
    }

    /// Give back what it remembers of the block, until [`wake`](Self::wake).
    pub fn rest(&mut self) {
        self.numbered = self.numbered.take().map(|_| Vec::new());
    }

    /// Remember again what [`rest`](Self::rest) gave back.
    pub fn wake(&mut self, block: &[u8]) -> Result<(), Malformed> {
        let end = core::mem::replace(&mut self.page, self.ops_end);
        while self.numbered.is_some() && self.page < end {
            self.page(block, 0)?;
        }
        self.page = end;
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn other(&mut self, code: u8, block: &[u8]) -> Result<Event, Malformed> {
        self.format = self.format.max(match code {
            code::CONTENT => NUMBERS,
            code::CALL => 8,
            code::MARK | code::AFTER => 7,
            code::GROUP_CREATE..=code::GROUP_REMOVE => 4,
            _ => 1,
        });
        let mut field = || varint(block, &mut self.arg);
        Ok(match code {
            code::COMPUTE => Event::Compute { instructions: field()? },
            code::IDLE => Event::Idle { nanos: field()? },
            code::SYNC => Event::Sync { epoch: field()? },
            code::SKIP => Event::Skip { epoch: field()? },
            code::EXEC => Event::Exec,
            code::CONTENT => {
                let page = self.context.content.wrapping_add(unzigzag(field()?) as u64);
                self.context.content = page;
                let (lz4, zstd) = match block.get(self.arg..) {
                    Some(&[lz4, zstd, ..]) => (lz4, zstd),
                    _ => return Err(Malformed),
                };
                self.arg += 2;
                Event::Content { page, packed: Packed { lz4, zstd } }
            }
            code::MARK => Event::Mark,
            code::AFTER => Event::After { thread: ThreadId(narrow(field()?)?), mark: field()? },
            code::CALL => call(field)?,
            _ => old_call(code, field)?,
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

fn call(mut field: impl FnMut() -> Result<u64, Malformed>) -> Result<Event, Malformed> {
    let (number, epoch, value, used) = (field()?, field()?, field()?, field()?);
    let mut words = [0; WORDS];
    let used = usize::try_from(used).ok().and_then(|used| words.get_mut(..used)).ok_or(Malformed)?;
    for word in used {
        *word = field()?;
    }
    let anywhere = 0..u64::MAX;
    let call = Call::decode(number, words, &anywhere).map_err(|_| Malformed)?;
    Ok(Event::Call { epoch, call, value })
}

/// A call as it was written before format 8.
fn old_call(code: u8, mut field: impl FnMut() -> Result<u64, Malformed>) -> Result<Event, Malformed> {
    Ok(match code {
        code::MAP => {
            let (epoch, addr, len, flags) = (field()?, field()?, field()?, field()?);
            let (fd, offset) = (narrow(field()?)?, field()?);
            let source = match flags >> 6 {
                0 => MapSource::Anonymous,
                1 => MapSource::AnonymousShared,
                2 => MapSource::File { fd, offset, shared: false },
                3 => MapSource::File { fd, offset, shared: true },
                _ => return Err(Malformed),
            };
            let flag = |bit: u32| flags >> bit & 1 != 0;
            let (populate, locked, replaces) = (flag(3), flag(4), flag(5));
            let prot = Prot::from_bits(flags);
            let map = Map { addr: replaces.then_some(addr), len, prot, source, populate, locked };
            Event::mapped(epoch, addr, map)
        }
        code::UNMAP => Event::change(field()?, Call::Munmap(field()?, field()?)),
        code::PROTECT => {
            Event::change(field()?, Call::Mprotect(field()?, field()?, Prot::from_bits(field()?)))
        }
        code::REMAP => {
            let (epoch, addr, old_len, new_len, value) = (field()?, field()?, field()?, field()?, field()?);
            let remap = Remap { addr, old_len, new_len, may_move: value != addr, fixed: None };
            Event::Call { epoch, call: Call::Mremap(remap), value }
        }
        code::ADVISE => {
            let (addr, len) = (field()?, field()?);
            Event::call(Call::Madvise(addr, len, Advice::from_code(field()?).ok_or(Malformed)?))
        }
        code::LOCK => Event::call(Call::Mlock(field()?, field()?)),
        code::UNLOCK => Event::call(Call::Munlock(field()?, field()?)),
        code::MSYNC => Event::call(Call::Msync(field()?, field()?)),
        code::SPAWN => Event::call(Call::Spawn(narrow(field()?)?)),
        code::FORK => Event::change(field()?, Call::Fork(narrow(field()?)?)),
        code::JOIN => Event::call(Call::Join(narrow(field()?)?)),
        code::GROUP_CREATE => {
            let (group, parent) = (narrow(field()?)?, Group(narrow(field()?)?));
            let call = Call::GroupCreate(parent, limits(field)?);
            Event::Call { epoch: 0, call, value: group.into() }
        }
        code::GROUP_LIMIT => Event::call(Call::GroupLimit(Group(narrow(field()?)?), limits(field)?)),
        code::GROUP_ENTER => Event::call(Call::GroupEnter(Group(narrow(field()?)?))),
        code::GROUP_REMOVE => Event::call(Call::GroupRemove(Group(narrow(field()?)?))),
        _ => old_file_call(code, field)?,
    })
}

fn old_file_call(code: u8, mut field: impl FnMut() -> Result<u64, Malformed>) -> Result<Event, Malformed> {
    Ok(match code {
        code::OPEN => Event::opened(FileId(narrow(field()?)?)),
        code::CLOSE => Event::call(Call::Close(narrow(field()?)?)),
        code::READ | code::WRITE => {
            let (fd, offset, buffer) = (narrow(field()?)?, field()?, Buffer::anywhere(field()?));
            let transfer = if code == code::READ { Call::Pread } else { Call::Pwrite };
            Event::call(transfer(fd, buffer, offset))
        }
        code::FSYNC => Event::call(Call::Fsync(narrow(field()?)?)),
        code::TRUNCATE => Event::change(field()?, Call::Ftruncate(narrow(field()?)?, field()?)),
        code::FILE_ADVISE => {
            let (fd, offset, len) = (narrow(field()?)?, field()?, field()?);
            let advice = FileAdvice::from_code(field()?).ok_or(Malformed)?;
            Event::call(Call::Fadvise(fd, offset, len, advice))
        }
        _ => return Err(Malformed),
    })
}

fn limits(mut field: impl FnMut() -> Result<u64, Malformed>) -> Result<GroupLimits, Malformed> {
    Ok(GroupLimits { max: field()?, high: field()?, low: field()?, min: field()?, swap_max: field()? })
}

fn narrow(value: u64) -> Result<u32, Malformed> {
    u32::try_from(value).map_err(|_| Malformed)
}
