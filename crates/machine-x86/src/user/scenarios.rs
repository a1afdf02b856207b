//! Deliberate races: programs in which some tasks use memory continuously while another changes what is
//! mapped there.
//!
//! Each scenario would expose a missing flush (the cases follow the objections to lazy flushes: a file's page
//! is written, truncated, replaced or moved while a task can still read the old one). The checker checks
//! every access. In addition, a scenario asserts its own conditions: that the watchers used the pages before
//! and after every change, and that accesses that must fail did fail.

use Kind::*;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use program::AccessKind::{self, Load, Store};
use program::rng::Rng;
use program::{Advice, FileSpec, Map, MapSource, Os, Program, Prot, Remap, Role, Signal, TaskHandle};

const PAGE: u64 = 4096;
/// Address of the watched pages.
const BASE: u64 = 0x20_0000_0000;
/// A second address.
const AWAY: u64 = 0x28_0000_0000;
/// Scratch memory of the director, which makes the changes.
const SCRATCH: u64 = 0x2c_0000_0000;
/// Number of watched pages.
const PAGES: u64 = 16;
const BYTES: u64 = PAGES * PAGE;
/// Number of changes.
const ROUNDS: u64 = 40;
/// The most watchers.
const WATCHERS: usize = 3;
/// Roles of forked children begin here.
const CHILD: Role = 1000;
/// Time between two looks at the watchers' progress, in nanoseconds.
const PAUSE: u64 = 20_000;
/// The most bytes of the file that is larger than memory.
const MAX_BYTES: u64 = 128 << 20;

/// What changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    WriteFault,
    Pwrite,
    MapOver,
    ForkWriters,
    Truncate,
    DontNeed,
    Free,
    Reclaim,
    Protect,
    Move,
    SwapFork,
}

/// One row: name, what changes, what each watcher does, help.
type Row = (&'static str, Kind, &'static [AccessKind], &'static str);

const TABLE: &[Row] = &[
    (
        "write-fault",
        WriteFault,
        &[Load, Load, Load],
        "pages of a file are reclaimed and written through another mapping while they are read",
    ),
    (
        "pwrite",
        Pwrite,
        &[Load, Load],
        "pages of a file are reclaimed and written by another process's system call while they are read",
    ),
    (
        "map-over",
        MapOver,
        &[Load, Load, Load],
        "a range is mapped to one thing after the other, and to nothing, while it is read",
    ),
    (
        "fork-writers",
        ForkWriters,
        &[Store, Store, Load],
        "a process forks again and again while its threads write",
    ),
    (
        "truncate",
        Truncate,
        &[Load, Load, Store],
        "a file is truncated and extended while it is read and written through a mapping",
    ),
    ("dontneed", DontNeed, &[Store, Load, Store], "memory is dropped (MADV_DONTNEED) while it is written"),
    ("free", Free, &[Store, Load], "memory is given up (MADV_FREE) and is reclaimed while it is written"),
    (
        "reclaim",
        Reclaim,
        &[Load, Store, Load],
        "a mapped file larger than memory is read and written at random",
    ),
    (
        "mprotect",
        Protect,
        &[Store, Store, Load],
        "memory is made read-only and writable again while it is written",
    ),
    ("mremap", Move, &[Load, Load, Load], "a mapping moves back and forth while both addresses are read"),
    (
        "swap-fork",
        SwapFork,
        &[Store, Load],
        "memory is swapped out, and then shared with a child, while it is written",
    ),
];

/// Names of all scenarios with a line of help each.
pub const LIST: &[(&str, &str)] = &{
    let mut list = [("", ""); TABLE.len()];
    let mut i = 0;
    while i < list.len() {
        list[i] = (TABLE[i].0, TABLE[i].3);
        i += 1;
    }
    list
};

/// The scenario with that name; fails with a message for people.
pub fn find(name: &str) -> Result<Scenario, String> {
    let row = TABLE.iter().find(|row| row.0 == name).ok_or_else(|| {
        let names: Vec<&str> = LIST.iter().map(|&(name, _)| name).collect();
        format!("program: no scenario is called '{name}'; there are: {}", names.join(", "))
    })?;
    Ok(Scenario { row, shared: Shared::default() })
}

/// What the tasks tell each other.
#[derive(Default, Debug)]
struct Shared {
    finished: AtomicBool,
    /// Number of passes of each watcher.
    passes: [AtomicU64; WATCHERS],
    /// Accesses that succeeded, and accesses that failed.
    served: AtomicU64,
    refused: AtomicU64,
    /// First page of the most used part of the large file.
    window: AtomicU64,
}

/// A deliberate race.
#[derive(Debug)]
pub struct Scenario {
    row: &'static Row,
    shared: Shared,
}

/// Kill the task if a call fails, which only lack of memory should cause.
fn must<T, E>(result: Result<T, E>) -> Result<T, Signal> {
    result.map_err(|_| Signal::Kill)
}

fn spec(name: &str, size: u64) -> FileSpec<'_> {
    FileSpec { name, size, in_memory: false, writable: true }
}

fn map_at<O: Os>(os: &mut O, addr: u64, prot: Prot, source: MapSource) -> Result<(), Signal> {
    let map = Map { addr: Some(addr), len: BYTES, prot, source, populate: false, locked: false };
    must(os.mmap(map)).map(drop)
}

fn shared(fd: u32) -> MapSource {
    MapSource::File { fd, offset: 0, shared: true }
}

/// Touch the pages of a range in order.
fn sweep<O: Os>(os: &mut O, addr: u64, mode: AccessKind) -> Result<(), Signal> {
    (0..PAGES).try_for_each(|page| touch(os, addr + page * PAGE, mode))
}

fn touch<O: Os>(os: &mut O, addr: u64, mode: AccessKind) -> Result<(), Signal> {
    match mode {
        Store => os.store(addr),
        _ => os.load(addr),
    }
}

/// An access that must fail with SIGSEGV (or, with `bus`, with SIGBUS).
fn expect_signal<O: Os>(os: &mut O, addr: u64, mode: AccessKind, bus: bool) -> Result<(), Signal> {
    match touch(os, addr, mode) {
        Err(Signal::Segv { .. }) if !bus => Ok(()),
        Err(Signal::Bus { .. }) if bus => Ok(()),
        Err(Signal::Kill) => Err(Signal::Kill),
        other => panic!("{mode:?} of {addr:#x} must fail, but ended in {other:?}"),
    }
}

/// Reclaim a range, and reuse what it freed at once: a task with a stale translation would read the new
/// content.
fn reclaim<O: Os>(os: &mut O, addr: u64, len: u64) -> Result<(), Signal> {
    must(os.madvise(addr, len, Advice::PageOut))?;
    map_at(os, SCRATCH, Prot::RW, MapSource::Anonymous)?;
    sweep(os, SCRATCH, Store)
}

impl Program for Scenario {
    fn name(&self) -> &str {
        self.row.0
    }

    fn footprint(&self) -> u64 {
        if self.row.1 == Reclaim { MAX_BYTES } else { 3 * BYTES }
    }

    fn run<O: Os>(&self, os: &mut O, role: Role) -> Result<(), Signal> {
        match role {
            0 => self.run_director(os),
            CHILD.. => self.child(os, role - CHILD),
            watcher => {
                let outcome = self.watch(os, watcher as usize - 1);
                if outcome.is_err() {
                    self.shared.finished.store(true, Release);
                }
                outcome
            }
        }
    }
}

impl Scenario {
    fn kind(&self) -> Kind {
        self.row.1
    }

    /// Whether some accesses of watchers must fail.
    fn refuses(&self) -> bool {
        matches!(self.kind(), MapOver | Truncate | Protect | Move)
    }

    fn watchers(&self) -> usize {
        self.row.2.len()
    }

    /// Set up, start the watchers, make the changes, and check that they were watched.
    fn run_director<O: Os>(&self, os: &mut O) -> Result<(), Signal> {
        let (first, second) = self.set_up(os)?;
        let mut watchers: Vec<TaskHandle> = Vec::new();
        for watcher in 1..=self.watchers() {
            watchers.push(must(os.spawn(watcher as Role))?);
        }
        let outcome = (0..ROUNDS).try_for_each(|round| {
            os.progress(1);
            self.change(os, round, first, second)
        });
        self.shared.finished.store(true, Release);
        watchers.into_iter().for_each(|watcher| os.join(watcher));
        outcome?;
        let (served, refused) = (self.shared.served.load(Relaxed), self.shared.refused.load(Relaxed));
        assert!(served > 0, "{}: no watcher made an access", self.name());
        assert!(!self.refuses() || refused > 0, "{}: no watcher's access failed", self.name());
        Ok(())
    }

    /// Open the files and map the first content of the watched pages.
    fn set_up<O: Os>(&self, os: &mut O) -> Result<(u32, u32), Signal> {
        let size = self.file_bytes(os);
        let first = must(os.open(spec("scenario-a", size)))?;
        let second = must(os.open(spec("scenario-b", BYTES)))?;
        match self.kind() {
            WriteFault | Pwrite => {
                map_at(os, BASE, Prot::READ, shared(first))?;
                map_at(os, AWAY, Prot::RW, shared(first))?;
            }
            MapOver => map_at(os, BASE, Prot::READ, shared(first))?,
            Truncate => map_at(os, BASE, Prot::RW, shared(first))?,
            Reclaim => {
                let map = Map::file_shared(first, size, Prot::RW);
                must(os.mmap(Map { addr: Some(BASE), ..map }))?;
            }
            ForkWriters | DontNeed | Free | Protect | Move | SwapFork => {
                map_at(os, BASE, Prot::RW, MapSource::Anonymous)?;
                sweep(os, BASE, Store)?;
            }
        }
        Ok((first, second))
    }

    /// Bytes of the first file.
    fn file_bytes<O: Os>(&self, os: &O) -> u64 {
        match self.kind() {
            Reclaim => (os.memory() + os.memory() / 4).min(MAX_BYTES).next_multiple_of(PAGE),
            _ => BYTES,
        }
    }

    /// Wait until every watcher has begun and ended a pass.
    fn wait_for_watchers<O: Os>(&self, os: &mut O) {
        let passes = || self.shared.passes[..self.watchers()].iter().map(|passes| passes.load(Acquire));
        let before: Vec<u64> = passes().collect();
        while passes().zip(&before).any(|(now, &before)| now < before + 2) {
            if self.shared.finished.load(Acquire) {
                return;
            }
            os.sleep(PAUSE);
        }
    }

    /// Make one change of the watched pages, between two passes of all watchers.
    fn change<O: Os>(&self, os: &mut O, round: u64, first: u32, second: u32) -> Result<(), Signal> {
        self.wait_for_watchers(os);
        match self.kind() {
            WriteFault => {
                reclaim(os, BASE, BYTES)?;
                sweep(os, AWAY, Store)?;
            }
            Pwrite => {
                reclaim(os, BASE, BYTES)?;
                self.fork_and_join(os, first)?;
            }
            MapOver => self.map_over(os, round, first, second)?,
            ForkWriters => self.fork_and_join(os, 0)?,
            Truncate => {
                must(os.ftruncate(first, 0))?;
                expect_signal(os, BASE, Load, true)?;
                self.wait_for_watchers(os);
                must(os.ftruncate(first, BYTES))?;
                os.load(BASE)?;
            }
            DontNeed => {
                must(os.madvise(BASE, BYTES, Advice::DontNeed))?;
                map_at(os, SCRATCH, Prot::RW, MapSource::Anonymous)?;
                sweep(os, SCRATCH, Store)?;
            }
            Free => {
                must(os.madvise(BASE, BYTES, Advice::Free))?;
                reclaim(os, BASE, BYTES)?;
            }
            Reclaim => {
                let size = self.file_bytes(os);
                let at = self.shared.window.load(Relaxed) * PAGE;
                reclaim(os, BASE + at, BYTES)?;
                let next = round * (size - BYTES) / ROUNDS / PAGE;
                self.shared.window.store(next, Relaxed);
            }
            Protect => {
                must(os.mprotect(BASE, BYTES, Prot::READ))?;
                expect_signal(os, BASE, Store, false)?;
                os.load(BASE)?;
                self.wait_for_watchers(os);
                must(os.mprotect(BASE, BYTES, Prot::RW))?;
                os.store(BASE)?;
            }
            Move => {
                let (from, to) = if round.is_multiple_of(2) { (BASE, AWAY) } else { (AWAY, BASE) };
                let remap =
                    Remap { addr: from, old_len: BYTES, new_len: BYTES, may_move: true, fixed: Some(to) };
                must(os.mremap(remap))?;
                expect_signal(os, from, Load, false)?;
                sweep(os, to, Load)?;
            }
            SwapFork => {
                reclaim(os, BASE, BYTES)?;
                self.fork_and_join(os, 0)?;
            }
        }
        self.wait_for_watchers(os);
        // The director's own CPU has flushed: this checks the current content, not what watchers may still
        // use.
        let changed = !self.refuses() && self.kind() != Reclaim;
        if changed { sweep(os, BASE, Load) } else { Ok(()) }
    }

    fn map_over<O: Os>(&self, os: &mut O, round: u64, first: u32, second: u32) -> Result<(), Signal> {
        match round % 4 {
            0 => {
                reclaim(os, BASE, BYTES)?;
                map_at(os, BASE, Prot::READ, shared(second))?;
            }
            1 => {
                reclaim(os, BASE, BYTES)?;
                map_at(os, BASE, Prot::RW, MapSource::Anonymous)?;
                sweep(os, BASE, Store)?;
            }
            2 => {
                must(os.munmap(BASE, BYTES))?;
                return expect_signal(os, BASE, Load, false);
            }
            _ => {
                map_at(os, BASE, Prot::READ, shared(first))?;
            }
        }
        sweep(os, BASE, Load)
    }

    /// Fork a child and wait for its end.
    fn fork_and_join<O: Os>(&self, os: &mut O, fd: u32) -> Result<(), Signal> {
        let child = must(os.fork(CHILD + fd))?;
        os.join(child);
        Ok(())
    }

    /// A child writes what it shares with its parent: the file `fd`, or memory that is copied on write.
    fn child<O: Os>(&self, os: &mut O, fd: Role) -> Result<(), Signal> {
        if self.kind() == Pwrite {
            return (0..PAGES).try_for_each(|page| must(os.pwrite(fd, page * PAGE, PAGE)).map(drop));
        }
        sweep(os, BASE, Load)?;
        (0..PAGES).step_by(2).try_for_each(|page| os.store(BASE + page * PAGE))?;
        sweep(os, BASE, Load)
    }

    /// Use the pages again and again until the changes are finished.
    fn watch<O: Os>(&self, os: &mut O, number: usize) -> Result<(), Signal> {
        let mode = self.row.2[number];
        let mut rng = Rng::new(os.seed());
        let pages = self.file_bytes(os) / PAGE;
        while !self.shared.finished.load(Acquire) {
            for page in 0..PAGES {
                let addr = match self.kind() {
                    Reclaim if rng.percent(50) => BASE + rng.below(pages) * PAGE,
                    Reclaim => BASE + (self.shared.window.load(Relaxed) + page) * PAGE,
                    Move if rng.percent(50) => AWAY + page * PAGE,
                    _ => BASE + page * PAGE,
                };
                match touch(os, addr, mode) {
                    Ok(()) => self.shared.served.fetch_add(1, Relaxed),
                    Err(Signal::Kill) => return Err(Signal::Kill),
                    Err(_) => self.shared.refused.fetch_add(1, Relaxed),
                };
            }
            os.progress(PAGES);
            self.shared.passes[number].fetch_add(1, AcqRel);
        }
        Ok(())
    }
}
