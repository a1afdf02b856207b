//! Two programs beside each other in control groups of their own: YCSB on a store of sorted runs, read only, and a file search.

use super::Ask;
use super::parts::{Job, PAGE, lead, must};
use super::search::Search;
use super::ycsb::Ycsb;
use crate::{Group, GroupLimits, Os, Role, Signal};

/// Roles of the second program begin here; those of the first at 1.
const SECOND: Role = 1 << 12;
/// memory.max of each group, in per cent of its program's footprint: the search's as published (1 GiB for a tree of which that is
/// 70 %), the store's a guess (10 % as published would leave a small one no room for its threads).
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
