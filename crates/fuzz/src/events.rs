//! Random events: most like those of real programs, some with boundary values.

use crate::bytes::{number, pick};
use abi::{AccessKind, Advice, Buffer, Call, FileAdvice, Group, GroupLimits, Map, MapSource, Prot, Remap};
use program::rng::Rng;
use trace::event::{Event, FileId, Packed, Run, ThreadId};

/// Where mappings and accesses begin, so that they overlap.
const AT: u64 = 0x5000_0000;

/// Marks of each thread that others wait for.
pub const MARKS: u64 = 3;

fn addr(rng: &mut Rng) -> u64 {
    if rng.percent(90) { AT + (rng.below(64) << 12) } else { number(rng) }
}

fn len(rng: &mut Rng) -> u64 {
    if rng.percent(90) { (1 + rng.below(32)) << 12 } else { number(rng) }
}

fn offset(rng: &mut Rng) -> u64 {
    if rng.percent(90) { rng.below(16) << 12 } else { number(rng) }
}

fn file(rng: &mut Rng) -> u32 {
    if rng.percent(95) { rng.below(2) as u32 } else { number(rng) as u32 }
}

fn thread(rng: &mut Rng) -> u32 {
    if rng.percent(95) { rng.below(4) as u32 } else { number(rng) as u32 }
}

fn epoch(rng: &mut Rng) -> u64 {
    if rng.percent(95) { rng.below(6) } else { number(rng) }
}

/// A random event.
pub fn event(rng: &mut Rng) -> Event {
    if rng.percent(40) {
        let page = addr(rng) >> 12;
        let count = if rng.percent(90) { 1 + rng.below(9) as u32 } else { number(rng) as u32 };
        return Event::Run(Run { page, count, mode: pick(rng, &AccessKind::ALL) });
    }
    match rng.below(20) {
        0 => Event::Compute { instructions: number(rng) },
        1 => Event::Idle { nanos: number(rng) },
        2 => Event::Sync { epoch: epoch(rng) },
        3 => Event::Skip { epoch: epoch(rng) },
        4..7 => map(rng),
        7 => Event::change(epoch(rng), Call::Munmap(addr(rng), len(rng))),
        8 => {
            let prot = Prot::from_bits(rng.below(8));
            Event::change(epoch(rng), Call::Mprotect(addr(rng), len(rng), prot))
        }
        9 => remap(rng),
        10 => Event::call(Call::Madvise(addr(rng), len(rng), pick(rng, &Advice::ALL))),
        11 => Event::call(Call::Mlock(addr(rng), len(rng))),
        12 => Event::call(Call::Munlock(addr(rng), len(rng))),
        13 => Event::call(Call::Msync(addr(rng), len(rng))),
        14 => Event::call(Call::Pread(file(rng), Buffer::anywhere(len(rng)), offset(rng))),
        15 => Event::call(Call::Pwrite(file(rng), Buffer::anywhere(len(rng)), offset(rng))),
        16 => Event::change(epoch(rng), Call::Ftruncate(file(rng), offset(rng))),
        17 => {
            let advice = pick(rng, &FileAdvice::ALL);
            Event::call(Call::Fadvise(file(rng), offset(rng), len(rng), advice))
        }
        18 if rng.percent(30) => group(rng),
        18 if rng.percent(40) => {
            let (thread, mark) = (ThreadId(rng.below(3) as u32), rng.below(MARKS + 1));
            pick(rng, &[Event::Mark, Event::Mark, Event::After { thread, mark }])
        }
        18 if rng.percent(20) => any_call(rng),
        18 if rng.percent(20) => {
            let packed = Packed { lz4: number(rng) as u8, zstd: number(rng) as u8 };
            Event::Content { page: addr(rng) >> 12, packed }
        }
        18 => pick(rng, &[Event::opened(FileId(0)), Event::call(Call::Close(0)), Event::Exec]),
        _ if rng.percent(20) => {
            let (epoch, thread) = (epoch(rng), thread(rng));
            pick(rng, &[Event::call(Call::Spawn(thread)), Event::change(epoch, Call::Fork(thread))])
        }
        _ => {
            let (thread, file) = (thread(rng), file(rng));
            pick(rng, &[Event::call(Call::Join(thread)), Event::call(Call::Fsync(file))])
        }
    }
}

/// Whatever registers may hold.
fn any_call(rng: &mut Rng) -> Event {
    let call = std::iter::repeat_with(|| {
        let number = if rng.percent(50) { rng.below(230) } else { 0x1000 + rng.below(24) };
        let args =
            std::array::from_fn(|_| if rng.percent(70) { rng.below(4) } else { crate::bytes::number(rng) });
        Call::decode(number, args, &(0..u64::MAX)).ok()
    });
    let call = call.flatten().next().expect("there is no end of them");
    Event::Call { epoch: epoch(rng), call, value: number(rng) }
}

fn group(rng: &mut Rng) -> Event {
    let number = |rng: &mut Rng| Group(rng.below(4) as u32);
    let (group, parent, max) = (number(rng), number(rng), len(rng));
    let limits = GroupLimits { max, ..GroupLimits::default() };
    let made = Event::Call { epoch: 0, call: Call::GroupCreate(parent, limits), value: group.0.into() };
    let calls = [Call::GroupLimit(group, limits), Call::GroupEnter(group), Call::GroupRemove(group)];
    if rng.percent(25) { made } else { Event::call(pick(rng, &calls)) }
}

fn map(rng: &mut Rng) -> Event {
    let source = match rng.below(4) {
        0 => MapSource::Anonymous,
        1 => MapSource::AnonymousShared,
        kind => MapSource::File { fd: file(rng), offset: offset(rng), shared: kind == 2 },
    };
    let (at, replaces) = (addr(rng), rng.percent(20));
    let map = Map {
        addr: replaces.then_some(at),
        len: len(rng),
        prot: Prot::RW | Prot::from_bits(rng.below(8)),
        source,
        populate: rng.percent(20),
        locked: rng.percent(10),
    };
    Event::mapped(epoch(rng), at, map)
}

fn remap(rng: &mut Rng) -> Event {
    let (addr, value) = (addr(rng), addr(rng));
    let remap = Remap { addr, old_len: len(rng), new_len: len(rng), may_move: value != addr, fixed: None };
    Event::Call { epoch: epoch(rng), call: Call::Mremap(remap), value }
}
