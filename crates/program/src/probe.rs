//! What a machine takes for the kinds of work that most of a memory manager's time goes to.
//!
//! [`Probe`] is a program, so the same measurement runs on each machine: the simulated twin of a Linux guest gets costs
//! with which the probe takes as long there as in the guest.

use crate::{Advice, Errno, FileSpec, Map, MapSource, Os, Packed, Program, Role, Signal};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes of a page.
const PAGE: u64 = 4096;
/// Pages of each measurement.
const PAGES: u64 = 512;
/// Instructions of the measurement of [`Os::compute`].
const INSTRUCTIONS: u64 = 200_000;
/// Measurements after which one that does not agree with itself gives its last result.
const ROUNDS: u32 = 20;

/// What was measured, in picoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Times {
    /// A store to a new page: a fault that clears a page.
    pub fault: u64,
    /// A load from a new page: a fault that maps the page of zeroes.
    pub zero_fault: u64,
    /// The first store to a page of a file that is mapped private: a fault that copies it.
    pub copy_fault: u64,
    /// A read of a page that is in memory.
    pub read: u64,
    /// An instruction of [`Os::compute`].
    pub instruction: u64,
    /// To compress a page that is swapped out, beyond what a page of zeroes takes.
    pub pack: u64,
    /// To decompress one that comes back, likewise.
    pub unpack: u64,
}

impl Times {
    /// The times with their names.
    pub fn named(&self) -> [(&'static str, u64); 7] {
        let &Times { fault, zero_fault, copy_fault, read, instruction, pack, unpack } = self;
        [
            ("fault_picos", fault),
            ("zero_fault_picos", zero_fault),
            ("copy_fault_picos", copy_fault),
            ("read_picos", read),
            ("instruction_picos", instruction),
            ("pack_picos", pack),
            ("unpack_picos", unpack),
        ]
    }
}

/// The measurement. One task runs it.
#[derive(Debug, Default)]
pub struct Probe {
    times: [AtomicU64; 7],
    /// What is swapped out is compressed.
    packs: bool,
}

impl Probe {
    /// What was measured; zeroes before the run.
    pub fn times(&self) -> Times {
        let [fault, zero_fault, copy_fault, read, instruction, pack, unpack] =
            [0, 1, 2, 3, 4, 5, 6].map(|at: usize| self.times[at].load(Relaxed));
        Times { fault, zero_fault, copy_fault, read, instruction, pack, unpack }
    }

    /// One for a machine that compresses what it swaps out first.
    pub fn of_packing() -> Probe {
        Probe { packs: true, ..Probe::default() }
    }
}

impl Program for Probe {
    fn name(&self) -> &str {
        "probe"
    }

    fn footprint(&self) -> u64 {
        2 * PAGES * PAGE
    }

    fn run<O: Os>(&self, os: &mut O, _role: Role) -> Result<(), Signal> {
        let file = open(os).ok();
        let beyond = |os: &mut O, comes_back: bool| match self.packs {
            true => until_agreed(os, |os| beyond_zeroes(os, comes_back)),
            false => 0,
        };
        let found = [
            until_agreed(os, |os| mapped(os, MapSource::Anonymous, |os, at| touch(os, at, O::store))),
            until_agreed(os, |os| mapped(os, MapSource::Anonymous, |os, at| touch(os, at, O::load))),
            until_agreed(os, |os| copy_fault(os, file)),
            until_agreed(os, |os| reads(os, file)),
            until_agreed(os, |os| Some(timed(os, INSTRUCTIONS, |os| os.compute(INSTRUCTIONS)))),
            beyond(os, false),
            beyond(os, true),
        ];
        self.times.iter().zip(found).for_each(|(place, picos)| place.store(picos, Relaxed));
        if let Some(fd) = file {
            let _ = os.ftruncate(fd, 0);
            let _ = os.close(fd);
        }
        Ok(())
    }
}

/// Measure until two results in a row differ by less than a twentieth, since a single one means little on a busy host.
/// Returns 0 if the system lacks what is measured.
fn until_agreed<O: Os>(os: &mut O, measure: impl Fn(&mut O) -> Option<u64>) -> u64 {
    let mut last = 0;
    for _ in 0..ROUNDS {
        let Some(this) = measure(os) else { return 0 };
        if this.abs_diff(last) * 20 <= this {
            return this.min(last);
        }
        last = this;
    }
    last
}

/// The time of `work` in picoseconds, divided by `units`.
fn timed<O: Os>(os: &mut O, units: u64, work: impl FnOnce(&mut O)) -> u64 {
    let start = os.now();
    work(os);
    os.now().saturating_sub(start) * 1000 / units
}

/// The time of a load or store for each of the pages at `at`.
fn touch<O: Os>(os: &mut O, at: u64, one: fn(&mut O, u64) -> Result<(), Signal>) -> u64 {
    timed(os, PAGES, |os| {
        for page in 0..PAGES {
            let _ = one(os, at + page * PAGE);
        }
    })
}

/// Run `work` with pages of `source` mapped private, whose address it gets.
fn mapped<O: Os>(os: &mut O, source: MapSource, work: impl FnOnce(&mut O, u64) -> u64) -> Option<u64> {
    let at = os.mmap(Map { source, ..Map::anonymous(PAGES * PAGE) }).ok()?;
    // One fault a page, whatever the run's setting is.
    let _ = os.madvise(at, PAGES * PAGE, Advice::NoHugePage);
    let picos = work(os, at);
    os.munmap(at, PAGES * PAGE).ok()?;
    Some(picos)
}

fn copy_fault<O: Os>(os: &mut O, file: Option<u32>) -> Option<u64> {
    let source = MapSource::File { fd: file?, offset: 0, shared: false };
    mapped(os, source, |os, at| {
        touch(os, at, O::load);
        touch(os, at, O::store)
    })
}

/// A page as compressors leave those that get smaller, in the middle.
const USUAL: Packed = Packed { lz4: 89, zstd: 70 };

/// How much longer such pages take than pages of zeroes, to go to swap space or to come back.
fn beyond_zeroes<O: Os>(os: &mut O, comes_back: bool) -> Option<u64> {
    let mut swapped = |packed| {
        mapped(os, MapSource::Anonymous, |os, at| {
            (0..PAGES).for_each(|page| os.content(at + page * PAGE, packed));
            touch(os, at, O::store);
            let goes = timed(os, PAGES, |os| _ = os.madvise(at, PAGES * PAGE, Advice::PageOut));
            let comes = touch(os, at, O::load);
            if comes_back { comes } else { goes }
        })
    };
    Some(swapped(USUAL)?.saturating_sub(swapped(Packed::ZERO)?))
}

/// The time of a read of each page in memory.
fn reads<O: Os>(os: &mut O, file: Option<u32>) -> Option<u64> {
    let fd = file?;
    Some(timed(os, PAGES, |os| {
        for page in 0..PAGES {
            let _ = os.pread(fd, page * PAGE, PAGE);
        }
    }))
}

/// A file in memory whose pages are all there.
fn open<O: Os>(os: &mut O) -> Result<u32, Errno> {
    let fd = os.open(FileSpec { name: "probe", size: PAGES * PAGE, in_memory: true, writable: true })?;
    os.pwrite(fd, 0, PAGES * PAGE)?;
    Ok(fd)
}
