//! Programs beside each other in control groups of their own: YCSB on a store of sorted runs, read only, and a file
//! search; or many small ones.

use super::Ask;
use super::parts::{Heap, Job, PAGE, lead, must, open, part, pieces, read};
use super::search::Search;
use super::ycsb::Ycsb;
use crate::keys::scattered;
use crate::rng::Rng;
use crate::zipf::Zipf;
use crate::{AccessKind, Group, GroupLimits, Os, Role, Signal};
use alloc::format;
use alloc::vec::Vec;

/// Roles of the second program begin here; those of the first at 1.
const SECOND: Role = 1 << 12;
/// memory.max of each group, in per cent of its program's footprint: the search's as published (1 GiB for a tree of
/// which that is 70 %), the store's a guess (10 % as published would leave a small one no room for its threads).
const STORE: u64 = 50;
const SEARCH: u64 = 70;
/// The least that a group is given: what a process needs that does nothing.
const LEAST: u64 = 256 * PAGE;

/// The two.
#[derive(Clone, Debug)]
pub(super) struct TwoGroups {
    store: Ycsb,
    search: Search,
}

impl TwoGroups {
    /// Each has half of the footprint, and half of the tasks.
    pub(super) fn new(ask: &Ask) -> TwoGroups {
        let threads = ask.threads.map_or(2, |threads| threads.div_ceil(2));
        let half = Ask { bytes: ask.bytes / 2, threads: Some(threads), ..*ask };
        let writes = Some(ask.writes.unwrap_or(0));
        TwoGroups { store: Ycsb::lsm(&Ask { writes, ..half }), search: Search::new(&half) }
    }

    pub(super) fn footprint(&self) -> u64 {
        self.store.footprint() + self.search.footprint()
    }

    /// Be the first task of one of the programs, in a group of its own.
    fn enter<O: Os>(&self, os: &mut O, job: &impl Job, first: Role, max: u64) -> Result<(), Signal> {
        let limits = GroupLimits { max: max.max(LEAST), ..GroupLimits::default() };
        let group = must(os.group_create(Group::ROOT, limits))?;
        must(os.group_enter(group))?;
        lead(job, os, first)
    }

    pub(super) fn run<O: Os>(&self, os: &mut O, role: Role) -> Result<(), Signal> {
        let (store, search) = (self.store.footprint() * STORE / 100, self.search.footprint() * SEARCH / 100);
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

/// Processes if nothing is said.
const MANY: u32 = 100;
/// Touches of a process's pages and reads of its file for each of them.
const TOUCHES: u64 = 8;
/// Barriers: all memory is filled; all work is done.
const BEGIN: u32 = 2;
const END: u32 = 3;

/// Processes, each in a group of its own, without limits: what reclaim of the node takes from whom.
#[derive(Clone, Debug)]
pub(super) struct ManyGroups {
    bytes: u64,
    groups: u32,
}

impl ManyGroups {
    /// At least 16 pages each.
    pub(super) fn new(ask: &Ask) -> ManyGroups {
        let most = (ask.bytes / PAGE / 16) as u32;
        ManyGroups { bytes: ask.bytes, groups: ask.threads.unwrap_or(MANY).clamp(1, most) }
    }

    pub(super) fn footprint(&self) -> u64 {
        self.bytes
    }

    pub(super) fn run<O: Os>(&self, os: &mut O, role: Role) -> Result<(), Signal> {
        if role > 0 {
            return self.member(os, role - 1);
        }
        let members = (1..=self.groups).map(|role| must(os.fork(role))).collect::<Result<Vec<_>, _>>()?;
        members.into_iter().for_each(|member| os.join(member));
        Ok(())
    }

    /// Half of a process's pages are memory, half its file. Odd ones only hold theirs.
    fn member<O: Os>(&self, os: &mut O, number: u32) -> Result<(), Signal> {
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
