//! The first of two passes: which pages a recording touches and how, its tasks, and when it begins.
//!
//! What it keeps is a few bits for each page, so its size is that of the memory that was touched and not that of the
//! recording.

use std::collections::{BTreeMap, HashSet};

use abi::{AccessKind, Map, MapSource, Prot};

use super::settings::Backing;
use super::step::Step;
use crate::event::{Event, PAGE_SHIFT};
use crate::pages::PageSet;

/// Pages that nothing touched between two that something did, at most, which are mapped with these. Each mapping is a
/// record in the kernel, and a heap of which every tenth page was sampled is one mapping nevertheless.
const GAP: u64 = 512;

/// Pages of an access.
pub(super) fn touched(addr: u64, bytes: u64) -> std::ops::RangeInclusive<u64> {
    addr >> PAGE_SHIFT..=addr.saturating_add(bytes.saturating_sub(1)) >> PAGE_SHIFT
}

/// What was found.
pub(super) struct Survey {
    touched: PageSet,
    stored: PageSet,
    fetched: PageSet,
    tasks: Vec<u64>,
    known: HashSet<u64>,
    origin: Option<u64>,
    left_out: BTreeMap<&'static str, u64>,
    last: Option<(u64, AccessKind)>,
    most: u64,
}

impl Survey {
    /// Of a recording that may touch `most` pages.
    pub fn new(most: u64) -> Survey {
        Survey {
            touched: PageSet::default(),
            stored: PageSet::default(),
            fetched: PageSet::default(),
            tasks: Vec::new(),
            known: HashSet::new(),
            origin: None,
            left_out: BTreeMap::new(),
            last: None,
            most,
        }
    }

    /// Note a step. False if too many pages are touched.
    pub fn note(&mut self, step: Step) -> bool {
        match step {
            Step::Access { task, addr, bytes, mode, .. } => {
                self.meet(task);
                return touched(addr, bytes).all(|page| self.touch(page, mode));
            }
            Step::Instructions { task, .. } => self.meet(task),
            Step::At { task, nanos } => {
                self.meet(task);
                self.origin.get_or_insert(nanos);
            }
            Step::LeftOut(what) => *self.left_out.entry(what).or_default() += 1,
        }
        true
    }

    fn touch(&mut self, page: u64, mode: AccessKind) -> bool {
        if self.last.replace((page, mode)) == Some((page, mode)) {
            return true;
        }
        self.touched.insert(page);
        match mode {
            AccessKind::Load => {}
            AccessKind::Store => drop(self.stored.insert(page)),
            AccessKind::Fetch => drop(self.fetched.insert(page)),
        }
        self.touched.len() <= self.most
    }

    fn meet(&mut self, task: u64) {
        if self.tasks.last() != Some(&task) && self.known.insert(task) {
            self.tasks.push(task);
        }
    }

    /// Whether nothing was touched.
    pub fn is_empty(&self) -> bool {
        self.touched.len() == 0
    }

    /// The tasks, in the order in which they come.
    pub fn tasks(&self) -> &[u64] {
        &self.tasks
    }

    /// The first time that the recording tells, or 0.
    pub fn origin(&self) -> u64 {
        self.origin.unwrap_or(0)
    }

    /// What has no place in a trace, and how often it came.
    pub fn left_out(&self) -> impl Iterator<Item = String> {
        self.left_out.iter().map(|(what, times)| format!("{times} {what} were left out"))
    }

    /// The mappings that the pages are in, with those of a file from offset 0 on, and the file's bytes.
    pub fn maps(&self, backing: Backing, file: u32) -> (Vec<Event>, u64) {
        let mut length = 0;
        let event = |(epoch, area): (u64, Area)| {
            let len = (area.end - area.start) << PAGE_SHIFT;
            let source = match area.shared {
                None => MapSource::Anonymous,
                Some(shared) => {
                    let offset = length;
                    length += len;
                    MapSource::File { fd: file, offset, shared }
                }
            };
            let map = Map { prot: area.prot, source, ..Map::anonymous(len) };
            Event::mapped(epoch, area.start << PAGE_SHIFT, map)
        };
        let maps = (1..).zip(self.areas(backing)).map(event).collect();
        (maps, length)
    }

    /// Neighbouring pages of one kind.
    fn areas(&self, backing: Backing) -> Vec<Area> {
        let gap = if backing == Backing::Program { 0 } else { GAP };
        let mut areas: Vec<Area> = Vec::new();
        for page in self.touched.ascending() {
            let new = self.area(page, backing);
            match areas.last_mut() {
                Some(area) if area.is_like(&new) && page - area.end <= gap => area.end = page + 1,
                _ => areas.push(new),
            }
        }
        areas
    }

    fn area(&self, page: u64, backing: Backing) -> Area {
        let executed = if self.fetched.contains(page) { Prot::EXEC } else { Prot::NONE };
        let (prot, shared) = match backing {
            Backing::Program if self.stored.contains(page) => (Prot::RW, None),
            Backing::Program => (Prot::READ, Some(false)),
            Backing::Anonymous => (Prot::RW, None),
            Backing::File => (Prot::RW, Some(true)),
        };
        Area { start: page, end: page + 1, prot: prot | executed, shared }
    }
}

/// Pages from `start` to before `end`.
struct Area {
    start: u64,
    end: u64,
    prot: Prot,
    /// Of a file, whether stores reach it.
    shared: Option<bool>,
}

impl Area {
    fn is_like(&self, other: &Area) -> bool {
        (self.prot, self.shared) == (other.prot, other.shared)
    }
}
