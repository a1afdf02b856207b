//! Programs side by side in control groups of their own: YCSB on an LSM store, read only, and a file
//! search; or many small processes.

use super::AppOptions;
use super::parts::{Heap, Job, PAGE, lead, must, open, part, pieces, read};
use super::search::Search;
use super::ycsb::Ycsb;
use crate::keys::scattered;
use crate::rng::Rng;
use crate::zipf::Zipf;
use crate::{AccessKind, Group, GroupLimits, Os, Role, Signal};
use alloc::format;
use alloc::vec::Vec;

/// Roles of the second program begin here; those of the first begin at 1.
const SECOND: Role = 1 << 12;
/// memory.max of each group, in per cent of its program's footprint. The search's is as published (1 GiB,
/// which is 70 % of its tree); the store's is a guess (10 %, as published, would leave a small store no room
/// for its threads).
const STORE_LIMIT: u64 = 50;
const SEARCH_LIMIT: u64 = 70;
/// The smallest limit of a group: what a process needs that does nothing.
const MIN_LIMIT: u64 = 256 * PAGE;

/// The program `two-groups`.
#[derive(Clone, Debug)]
pub(super) struct TwoGroups {
    store: Ycsb,
    search: Search,
}

impl TwoGroups {
    /// Each gets half of the footprint and half of the tasks.
    pub(super) fn new(options: &AppOptions) -> TwoGroups {
        let threads = options.threads.map_or(2, |threads| threads.div_ceil(2));
        let half = AppOptions { bytes: options.bytes / 2, threads: Some(threads), ..*options };
        let writes = Some(options.writes.unwrap_or(0));
        TwoGroups { store: Ycsb::lsm(&AppOptions { writes, ..half }), search: Search::new(&half) }
    }

    pub(super) fn footprint(&self) -> u64 {
        self.store.footprint() + self.search.footprint()
    }

    /// Run the first task of one of the programs, in a group of its own.
    fn enter<O: Os>(&self, os: &mut O, job: &impl Job, first: Role, max: u64) -> Result<(), Signal> {
        let limits = GroupLimits { max: max.max(MIN_LIMIT), ..GroupLimits::default() };
        let group = must(os.group_create(Group::ROOT, limits))?;
        must(os.group_enter(group))?;
        lead(job, os, first)
    }

    pub(super) fn run<O: Os>(&self, os: &mut O, role: Role) -> Result<(), Signal> {
        let (store, search) =
            (self.store.footprint() * STORE_LIMIT / 100, self.search.footprint() * SEARCH_LIMIT / 100);
        match role {
            0 => {
                let programs = [must(os.fork(1))?, must(os.fork(SECOND))?];
                programs.into_iter().for_each(|program| os.join(program));
                Ok(())
            }
            1 => self.enter(os, &self.store, 1, store),
            SECOND => self.enter(os, &self.search, SECOND, search),
            2..SECOND => self.store.task(os, role - 1),
            _ => self.search.task(os, role - SECOND),
        }
    }
}

/// Processes by default.
const PROCESSES: u32 = 100;
/// For each page of a process: touches of its memory, and reads of its file.
const TOUCHES: u64 = 8;
/// Barriers: all memory is filled; all work is done.
const BEGIN: u32 = 2;
const END: u32 = 3;

/// The program `many-groups`: processes, each in a group of its own without limits, to show from which groups
/// reclaim of the node takes memory.
#[derive(Clone, Debug)]
pub(super) struct ManyGroups {
    bytes: u64,
    groups: u32,
}

impl ManyGroups {
    /// At least 16 pages for each group.
    pub(super) fn new(options: &AppOptions) -> ManyGroups {
        let max = (options.bytes / PAGE / 16) as u32;
        ManyGroups { bytes: options.bytes, groups: options.threads.unwrap_or(PROCESSES).clamp(1, max) }
    }

    pub(super) fn footprint(&self) -> u64 {
        self.bytes
    }

    pub(super) fn run<O: Os>(&self, os: &mut O, role: Role) -> Result<(), Signal> {
        if role > 0 {
            return self.process(os, role - 1);
        }
        let processes = (1..=self.groups).map(|role| must(os.fork(role))).collect::<Result<Vec<_>, _>>()?;
        processes.into_iter().for_each(|process| os.join(process));
        Ok(())
    }

    /// Half of a process's pages are memory, half are its file. Odd processes use neither after filling them.
    fn process<O: Os>(&self, os: &mut O, number: u32) -> Result<(), Signal> {
        let group = must(os.group_create(Group::ROOT, GroupLimits::default()))?;
        must(os.group_enter(group))?;
        let share = part(self.bytes / PAGE, number, self.groups);
        let pages = (share.end - share.start) / 2;
        let (heap, size) = (Heap::first(pages * PAGE), (share.end - share.start - pages) * PAGE);
        heap.map(os)?;
        let fd = open(os, &format!("group-{number}"), size)?;
        for page in 0..pages {
            heap.touch(os, page * PAGE, 8, AccessKind::Store)?;
        }
        for (at, len) in pieces(0..size, PAGE) {
            read(os, fd, at, len)?;
        }
        os.barrier(BEGIN, self.groups);
        let touches = if number.is_multiple_of(2) { pages * TOUCHES } else { 0 };
        let (mut rng, zipf) = (Rng::new(os.seed()), Zipf::new(pages));
        for _ in 0..touches {
            let mode = if rng.below(4) == 0 { AccessKind::Store } else { AccessKind::Load };
            heap.touch(os, scattered(zipf.next(&mut rng), pages) * PAGE, 8, mode)?;
            read(os, fd, scattered(zipf.next(&mut rng), pages) * PAGE, PAGE)?;
        }
        os.progress(touches);
        os.barrier(END, self.groups);
        Ok(())
    }
}
