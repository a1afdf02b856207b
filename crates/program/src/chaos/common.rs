//! A range of addresses that all threads of a process use and change as they like.
//!
//! What is known of it is one account for all. A change says first which pages it concerns, and when it has ended what
//! has become of them. Two changes of the same pages exclude each other, since nobody outside could tell which came
//! last; accesses exclude nothing. An access is held against the account only if no change was under way at its
//! beginning, and none has begun until its end.

use super::areas::{Area, Areas, PAGE};
use crate::os::{AccessKind, Prot, Signal};
use alloc::vec::Vec;
use spin::Mutex;

/// Where it lies: far below the places that a machine chooses for mappings, so that a hole in it stays one.
pub(super) const START: u64 = 1 << 32;

/// A range in bytes and pages.
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
struct Account {
    areas: Areas,
    under_way: Vec<Change>,
    begun: u64,
}

impl Account {
    fn end(&mut self, id: u64) -> Change {
        let at = self.under_way.iter().position(|change| change.id == id).expect("begun once, ended once");
        self.under_way.swap_remove(at)
    }

    fn busy(&self, range: Range) -> bool {
        self.under_way.iter().any(|change| change.ranges.iter().any(|&other| overlap(range, other)))
    }
}

/// A change that has begun.
#[must_use]
pub(super) struct Begun(u64);

/// What an access is held against.
pub(super) struct Known {
    begun: u64,
    area: Option<Area>,
    sure: bool,
}

impl Known {
    /// Rights of the range, if they are known.
    pub(super) fn rights(&self) -> Option<Prot> {
        self.area.and_then(|area| area.prot)
    }
}

/// The range of one process.
#[derive(Default, Debug)]
pub(super) struct Common(Mutex<Account>);

impl Common {
    /// A range of `pages` pages of which nothing is known.
    pub(super) fn doubtful(pages: u64) -> Common {
        let mut account = Account::default();
        account.areas.doubt(START, pages);
        Common(Mutex::new(account))
    }

    /// What is known is known of a child, too, whose fork, a change that changes nothing, ends now; but not if the
    /// child has begun to make changes.
    pub(super) fn copy_to(&self, child: &Common, begun: Begun) {
        let areas = {
            let mut account = self.0.lock();
            account.end(begun.0);
            account.areas.clone()
        };
        let mut child = child.0.lock();
        if child.begun == 0 {
            child.areas = areas;
        }
    }

    /// Some pages are about to change. `None`: somebody else changes some of them just now.
    pub(super) fn begin(&self, ranges: &[Range]) -> Option<Begun> {
        let mut account = self.0.lock();
        if ranges.iter().any(|&range| account.busy(range)) {
            return None;
        }
        account.begun += 1;
        let id = account.begun;
        account.under_way.push(Change { id, ranges: ranges.to_vec() });
        Some(Begun(id))
    }

    /// They have become what `change` says; without it nobody knows.
    pub(super) fn end(&self, begun: Begun, change: Option<impl FnOnce(&mut Areas)>) {
        let mut account = self.0.lock();
        let Change { ranges, .. } = account.end(begun.0);
        match change {
            Some(change) => change(&mut account.areas),
            None => ranges.iter().for_each(|&(addr, pages)| account.areas.doubt(addr, pages)),
        }
    }

    /// What is known of a range that begins at `addr`, up to where that ends. Returns its pages, too.
    pub(super) fn look(&self, addr: u64, pages: u64) -> (Known, u64) {
        let account = self.0.lock();
        let area = account.areas.at(addr);
        let pages = match area {
            Some(area) => pages.min((area.end() - addr) / PAGE),
            None => 1,
        };
        let sure = !account.busy((addr, pages));
        (Known { begun: account.begun, area, sure }, pages)
    }

    /// Panic if an access contradicts what was known of its page and has not changed since.
    pub(super) fn judge(&self, known: &Known, addr: u64, mode: AccessKind, outcome: Result<(), Signal>) {
        let wrong = match known.area {
            Some(area) => area.allows(mode, outcome),
            None if outcome.is_ok() => Err("could be touched, although nothing is mapped there"),
            None => Ok(()),
        };
        if let Err(text) = wrong
            && known.sure
            && self.0.lock().begun == known.begun
        {
            panic!("{addr:#x} ({mode:?}) {text}, in {:?} which threads share", known.area);
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
    fn a_change_that_failed_leaves_doubt_and_others_wait() {
        let common = Common::default();
        let prot = |common: &Common| common.look(START, 1).0.area.map(|area| area.prot);
        let change = common.begin(&[(START, 4)]).unwrap();
        assert!(common.begin(&[(START + 3 * PAGE, 1)]).is_none() && !common.look(START, 1).0.sure);
        let beside = common.begin(&[(START + 4 * PAGE, 1)]).unwrap();
        common.end(change, map(4, Prot::READ));
        common.end(beside, None::<fn(&mut Areas)>);
        assert_eq!(
            (prot(&common), common.look(START + 4 * PAGE, 1).0.rights()),
            (Some(Some(Prot::READ)), None)
        );
        let fork = common.begin(&[(START, 8)]).unwrap();
        let child = Common::doubtful(8);
        assert_eq!(prot(&child), Some(None));
        common.copy_to(&child, fork);
        assert_eq!(prot(&child), Some(Some(Prot::READ)));
    }

    #[test]
    #[should_panic(expected = "nothing is mapped there")]
    fn an_access_that_no_change_explains_is_wrong() {
        let common = Common::default();
        let (known, _) = common.look(START, 1);
        common.judge(&known, START, AccessKind::Load, Err(Signal::Segv { addr: START }));
        common.judge(&known, START, AccessKind::Load, Ok(()));
    }

    #[test]
    fn an_access_beside_a_change_is_not_judged() {
        let common = Common::default();
        let (known, _) = common.look(START, 1);
        let change = common.begin(&[(START, 1)]).unwrap();
        common.judge(&known, START, AccessKind::Load, Ok(()));
        common.end(change, None::<fn(&mut Areas)>);
    }
}
