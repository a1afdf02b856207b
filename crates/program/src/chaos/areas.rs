//! What a task knows about ranges of addresses.

use crate::os::{AccessKind, Prot, Signal};
use alloc::vec::Vec;

pub(super) const PAGE: u64 = 4096;

/// A range of addresses with a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Area {
    pub(super) addr: u64,
    pub(super) pages: u64,
    /// Rights; `None` if nothing is known, not even whether it is mapped.
    pub(super) prot: Option<Prot>,
    /// Whether it maps a file or shared memory, which may be shorter than the range.
    pub(super) file: bool,
}

impl Area {
    pub(super) fn end(&self) -> u64 {
        self.addr + self.pages * PAGE
    }

    /// Panic if the outcome of an access contradicts what is known.
    pub(super) fn check(&self, addr: u64, mode: AccessKind, outcome: Result<(), Signal>) {
        if let Err(text) = self.allows(mode, outcome) {
            panic!("{addr:#x} ({mode:?}) {text}, in {self:?}");
        }
    }

    /// Returns an error if an access must not have this outcome.
    pub(super) fn allows(&self, mode: AccessKind, outcome: Result<(), Signal>) -> Result<(), &'static str> {
        let Some(prot) = self.prot else { return Ok(()) };
        let allowed = prot.contains(mode.needs());
        match outcome {
            // Not every machine distinguishes fetches from loads.
            Ok(()) if !(allowed || mode == AccessKind::Fetch && prot.contains(Prot::READ)) => {
                Err("succeeded, although its area forbids it")
            }
            Err(Signal::Segv { .. }) if allowed => Err("failed, although its area allows it"),
            // Beyond the end of a file, or of anonymous shared memory that mremap has grown.
            Err(Signal::Bus { .. }) if !self.file => Err("is in no file"),
            _ => Ok(()),
        }
    }
}

/// Ranges that do not overlap.
#[derive(Clone, Default, Debug)]
pub(super) struct Areas(Vec<Area>);

impl Areas {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn get(&self, i: usize) -> Area {
        self.0[i]
    }

    /// The area with an address.
    pub(super) fn at(&self, addr: u64) -> Option<Area> {
        self.0.iter().copied().find(|area| (area.addr..area.end()).contains(&addr))
    }

    /// Remove a range; returns what was there.
    pub(super) fn take(&mut self, addr: u64, pages: u64) -> Vec<Area> {
        let end = addr + pages * PAGE;
        let mut taken = Vec::new();
        for area in core::mem::take(&mut self.0) {
            let (from, to) = (area.addr.max(addr), area.end().min(end));
            if from >= to {
                self.0.push(area);
                continue;
            }
            let part = |from: u64, to: u64| Area { addr: from, pages: (to - from) / PAGE, ..area };
            taken.push(part(from, to));
            let rest = [part(area.addr, from), part(to, area.end())];
            self.0.extend(rest.into_iter().filter(|area| area.pages > 0));
        }
        taken
    }

    /// Record a new mapping, which replaces what was there.
    pub(super) fn put(&mut self, area: Area) {
        self.take(area.addr, area.pages);
        self.0.push(area);
    }

    /// Record new rights for everything mapped in a range.
    pub(super) fn protect(&mut self, addr: u64, pages: u64, prot: Prot) {
        for area in self.take(addr, pages) {
            self.0.push(Area { prot: Some(prot), ..area });
        }
    }

    /// Record that nothing is known about a range.
    pub(super) fn forget(&mut self, addr: u64, pages: u64) {
        self.put(Area { addr, pages, prot: None, file: true });
    }

    /// The longest known range around an area without a hole.
    pub(super) fn around(&self, area: Area) -> (u64, u64) {
        let (mut from, mut to) = (area.addr, area.end());
        while let Some(before) = self.0.iter().find(|other| other.end() == from) {
            from = before.addr;
        }
        while let Some(after) = self.0.iter().find(|other| other.addr == to) {
            to = after.end();
        }
        (from, (to - from) / PAGE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn area(page: u64, pages: u64, prot: Prot) -> Area {
        Area { addr: page * PAGE, pages, prot: Some(prot), file: false }
    }

    #[test]
    fn a_range_is_cut_out_of_overlapping_areas() {
        let mut areas = Areas::default();
        areas.put(area(0, 10, Prot::RW));
        areas.put(area(10, 4, Prot::READ));
        assert_eq!(areas.around(areas.at(0).unwrap()), (0, 14));
        assert_eq!(areas.take(8 * PAGE, 4), vec![area(8, 2, Prot::RW), area(10, 2, Prot::READ)]);
        assert_eq!((areas.at(8 * PAGE), areas.at(12 * PAGE)), (None, Some(area(12, 2, Prot::READ))));
        areas.protect(2 * PAGE, 2, Prot::NONE);
        assert_eq!(areas.at(3 * PAGE), Some(area(2, 2, Prot::NONE)));
        assert_eq!((areas.len(), areas.at(4 * PAGE)), (4, Some(area(4, 4, Prot::RW))));
        areas.forget(0, 20);
        assert_eq!((areas.len(), areas.at(5 * PAGE).unwrap().prot), (1, None));
    }

    #[test]
    fn outcomes_that_contradict_the_rights_are_found() {
        let (segv, bus) = (Err(Signal::Segv { addr: 0 }), Err(Signal::Bus { addr: 0 }));
        let read_only = area(0, 1, Prot::READ);
        assert!(
            read_only.allows(AccessKind::Load, Ok(())).is_ok()
                && read_only.allows(AccessKind::Store, segv).is_ok()
        );
        assert!(
            read_only.allows(AccessKind::Load, segv).is_err()
                && read_only.allows(AccessKind::Store, Ok(())).is_err()
        );
        assert!(read_only.allows(AccessKind::Load, bus).is_err());
        assert!(Area { file: true, ..read_only }.allows(AccessKind::Load, bus).is_ok());
        assert!(area(0, 1, Prot::RX).allows(AccessKind::Fetch, segv).is_err());
        assert!(area(0, 1, Prot::NONE).allows(AccessKind::Fetch, Ok(())).is_err());
        assert!(Area { prot: None, ..read_only }.allows(AccessKind::Store, Ok(())).is_ok());
    }
}
