//! Random events: most like those of real programs, some with boundary values.

use crate::bytes::{number, pick};
use abi::{AccessKind, Advice, FileAdvice, Group, GroupLimits, Prot};
use program::rng::Rng;
use trace::event::{Backing, Event, FileId, Run, ThreadId};

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

fn file(rng: &mut Rng) -> FileId {
    FileId(if rng.percent(95) { rng.below(2) as u32 } else { number(rng) as u32 })
}

fn thread(rng: &mut Rng) -> ThreadId {
    ThreadId(if rng.percent(95) { rng.below(4) as u32 } else { number(rng) as u32 })
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
        7 => Event::Unmap { epoch: epoch(rng), addr: addr(rng), len: len(rng) },
        8 => Event::Protect {
            epoch: epoch(rng),
            addr: addr(rng),
            len: len(rng),
            rights: Prot::from_bits(rng.below(8)),
        },
        9 => remap(rng),
        10 => Event::Advise { addr: addr(rng), len: len(rng), advice: pick(rng, &Advice::ALL) },
        11 => Event::Lock { addr: addr(rng), len: len(rng) },
        12 => Event::Unlock { addr: addr(rng), len: len(rng) },
        13 => Event::Msync { addr: addr(rng), len: len(rng) },
        14 => Event::Read { file: file(rng), offset: offset(rng), len: len(rng) },
        15 => Event::Write { file: file(rng), offset: offset(rng), len: len(rng) },
        16 => Event::Truncate { epoch: epoch(rng), file: file(rng), size: offset(rng) },
        17 => {
            let advice = pick(rng, &FileAdvice::ALL);
            Event::FileAdvise { file: file(rng), offset: offset(rng), len: len(rng), advice }
        }
        18 if rng.percent(30) => group(rng),
        18 if rng.percent(40) => {
            let (thread, mark) = (ThreadId(rng.below(3) as u32), rng.below(MARKS + 1));
            pick(rng, &[Event::Mark, Event::Mark, Event::After { thread, mark }])
        }
        18 => pick(rng, &[Event::Open { file: FileId(0) }, Event::Close { file: FileId(0) }, Event::Exec]),
        _ if rng.percent(20) => {
            let (epoch, thread) = (epoch(rng), thread(rng));
            pick(rng, &[Event::Spawn { thread }, Event::Fork { epoch, thread }])
        }
        _ => {
            let (thread, file) = (thread(rng), file(rng));
            pick(rng, &[Event::Join { thread }, Event::Fsync { file }])
        }
    }
}

fn group(rng: &mut Rng) -> Event {
    let number = |rng: &mut Rng| Group(rng.below(4) as u32);
    let (group, parent, max) = (number(rng), number(rng), len(rng));
    let limits = GroupLimits { max, ..GroupLimits::default() };
    pick(
        rng,
        &[
            Event::GroupCreate { group, parent, limits },
            Event::GroupLimit { group, limits },
            Event::GroupEnter { group },
            Event::GroupRemove { group },
        ],
    )
}

fn map(rng: &mut Rng) -> Event {
    let backing = match rng.below(4) {
        0 => Backing::Anonymous,
        1 => Backing::AnonymousShared,
        kind => Backing::File { file: file(rng), offset: offset(rng), shared: kind == 2 },
    };
    Event::Map {
        epoch: epoch(rng),
        addr: addr(rng),
        len: len(rng),
        rights: Prot::RW | Prot::from_bits(rng.below(8)),
        backing,
        populate: rng.percent(20),
        locked: rng.percent(10),
        replaces: rng.percent(20),
    }
}

fn remap(rng: &mut Rng) -> Event {
    let (addr, new_addr) = (addr(rng), addr(rng));
    Event::Remap { epoch: epoch(rng), addr, old_len: len(rng), new_len: len(rng), new_addr }
}
