//! A range of addresses that all threads of a process use and change concurrently.
//!
//! All threads share one record of what is known about it. A change first announces its pages, and at its end
//! records their new state. Two changes of the same pages exclude each other, since no task could tell which
//! came last; accesses exclude nothing. An access is checked against the record only if no change was ongoing
//! when it began, and none began until it ended.

use super::areas::{Area, Areas, PAGE};
use crate::os::{AccessKind, Prot, Signal};
use alloc::vec::Vec;
use spin::Mutex;

/// Its address: far below those that a machine chooses for mappings, so a hole in it stays a hole.
pub(super) const START: u64 = 1 << 32;

/// A range: address and pages.
pub(super) type Range = (u64, u64);

fn overlap(a: Range, b: Range) -> bool {
    a.0 < b.0 + b.1 * PAGE && b.0 < a.0 + a.1 * PAGE
}

#[derive(Debug)]
struct Change {
    id: u64,
    ranges: Vec<Range>,
}

#[derive(Default, Debug)]
struct Known {
    areas: Areas,
    ongoing: Vec<Change>,
    begun: u64,
}

impl Known {
    fn end(&mut self, id: u64) -> Change {
        let at = self.ongoing.iter().position(|change| change.id == id).expect("a change must end once");
        self.ongoing.swap_remove(at)
    }

    fn busy(&self, range: Range) -> bool {
        self.ongoing.iter().any(|change| change.ranges.iter().any(|&other| overlap(range, other)))
    }
}

/// A change that has begun and must be ended.
#[must_use]
pub(super) struct Ongoing(u64);

/// A snapshot that an access is checked against.
pub(super) struct Snapshot {
    begun: u64,
    area: Option<Area>,
    stable: bool,
}

impl Snapshot {
    /// Rights of the range, if known.
    pub(super) fn rights(&self) -> Option<Prot> {
        self.area.and_then(|area| area.prot)
    }
}

/// The range of one process.
#[derive(Default, Debug)]
pub(super) struct Common(Mutex<Known>);

impl Common {
    /// A range of `pages` pages about which nothing is known.
    pub(super) fn unknown(pages: u64) -> Common {
        let mut known = Known::default();
        known.areas.forget(START, pages);
        Common(Mutex::new(known))
    }

    /// End a fork, which is a change that changes nothing: what is known about the parent is known about the
    /// child, too, unless the child has begun to make changes.
    pub(super) fn finish_fork(&self, child: &Common, begun: Ongoing) {
        let areas = {
            let mut known = self.0.lock();
            known.end(begun.0);
            known.areas.clone()
        };
        let mut child = child.0.lock();
        if child.begun == 0 {
            child.areas = areas;
        }
    }

    /// Announce a change. Returns `None` if another change of some of the pages is ongoing.
    pub(super) fn begin(&self, ranges: &[Range]) -> Option<Ongoing> {
        let mut known = self.0.lock();
        if ranges.iter().any(|&range| known.busy(range)) {
            return None;
        }
        known.begun += 1;
        let id = known.begun;
        known.ongoing.push(Change { id, ranges: ranges.to_vec() });
        Some(Ongoing(id))
    }

    /// End a change and record its effect. Without an effect the pages become unknown.
    pub(super) fn end(&self, begun: Ongoing, change: Option<impl FnOnce(&mut Areas)>) {
        let mut known = self.0.lock();
        let Change { ranges, .. } = known.end(begun.0);
        match change {
            Some(change) => change(&mut known.areas),
            None => ranges.iter().for_each(|&(addr, pages)| known.areas.forget(addr, pages)),
        }
    }

    /// What is known about the area at `addr`, and how many of the `pages` it has.
    pub(super) fn snapshot(&self, addr: u64, pages: u64) -> (Snapshot, u64) {
        let known = self.0.lock();
        let area = known.areas.at(addr);
        let pages = match area {
            Some(area) => pages.min((area.end() - addr) / PAGE),
            None => 1,
        };
        let stable = !known.busy((addr, pages));
        (Snapshot { begun: known.begun, area, stable }, pages)
    }

    /// Panic if the outcome of an access contradicts what is known about its page, unless that has changed
    /// since.
    pub(super) fn check(
        &self,
        snapshot: &Snapshot,
        addr: u64,
        mode: AccessKind,
        outcome: Result<(), Signal>,
    ) {
        let wrong = match snapshot.area {
            Some(area) => area.allows(mode, outcome),
            None if outcome.is_ok() => Err("succeeded, although nothing is mapped there"),
            None => Ok(()),
        };
        if let Err(text) = wrong
            && snapshot.stable
            && self.0.lock().begun == snapshot.begun
        {
            panic!("{addr:#x} ({mode:?}) {text}, in the shared range, {:?}", snapshot.area);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::Prot;

    fn map(pages: u64, prot: Prot) -> Option<impl FnOnce(&mut Areas)> {
        Some(move |areas: &mut Areas| areas.put(Area { addr: START, pages, prot: Some(prot), file: false }))
    }

    #[test]
    fn failed_changes_leave_pages_unknown_and_overlapping_ones_are_refused() {
        let common = Common::default();
        let prot = |common: &Common| common.snapshot(START, 1).0.area.map(|area| area.prot);
        let change = common.begin(&[(START, 4)]).unwrap();
        assert!(common.begin(&[(START + 3 * PAGE, 1)]).is_none() && !common.snapshot(START, 1).0.stable);
        let beside = common.begin(&[(START + 4 * PAGE, 1)]).unwrap();
        common.end(change, map(4, Prot::READ));
        common.end(beside, None::<fn(&mut Areas)>);
        assert_eq!(
            (prot(&common), common.snapshot(START + 4 * PAGE, 1).0.rights()),
            (Some(Some(Prot::READ)), None)
        );
        let fork = common.begin(&[(START, 8)]).unwrap();
        let child = Common::unknown(8);
        assert_eq!(prot(&child), Some(None));
        common.finish_fork(&child, fork);
        assert_eq!(prot(&child), Some(Some(Prot::READ)));
    }

    #[test]
    #[should_panic(expected = "nothing is mapped there")]
    fn an_access_that_no_change_explains_panics() {
        let common = Common::default();
        let (snapshot, _) = common.snapshot(START, 1);
        common.check(&snapshot, START, AccessKind::Load, Err(Signal::Segv { addr: START }));
        common.check(&snapshot, START, AccessKind::Load, Ok(()));
    }

    #[test]
    fn an_access_during_a_change_is_not_checked() {
        let common = Common::default();
        let (snapshot, _) = common.snapshot(START, 1);
        let change = common.begin(&[(START, 1)]).unwrap();
        common.check(&snapshot, START, AccessKind::Load, Ok(()));
        common.end(change, None::<fn(&mut Areas)>);
    }
}
