//! The oracle: what every address must read.
//!
//! A second, simple memory, kept beside the memory manager and told only of the system calls and the stores that
//! programs make. It knows no frames, no page tables and no TLBs. A page's content is a stamp (see `content`). A load
//! brings the stamp of the frame that its TLB entry led to; if that is not what the address must read, a flush was
//! missed, a page lost, or a frame given away too early.
//!
//! What it allows:
//! - private memory reads what was last stored there (a file's content, or zero, before the first store);
//! - shared memory reads what anybody last stored in the file;
//! - after MADV_FREE, until the next store, the old content or zero, and zero for good once zero was seen;
//! - while a call that takes mappings away is under way (*in flux*), its range is not judged: the program races with
//!   itself there. A store meanwhile leaves the page with more than one possible content. Nor is an access that took
//!   long ([`Moment`]) and was beside such a call for a while.

use crate::content::{ORIGINAL, Stamp};
use abi::Forget;
use mm::api::{AccessKind, Prot};
use std::collections::{BTreeMap, VecDeque};

/// How many of the calls that ended last are remembered: more than end while one access is on its way.
const REMEMBERED: usize = 256;

/// What stands behind a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Backing {
    /// Private zeroes.
    Anonymous,
    /// Pages of a file.
    File {
        /// The oracle's number of the file.
        file: u64,
        /// Page of the file at the range's start.
        offset: u64,
        /// Do stores stay private?
        private: bool,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Region {
    end: u64,
    /// `None`: a change of rights failed halfway, so they are not known.
    prot: Option<Prot>,
    backing: Backing,
}

impl Region {
    fn tail(self, by: u64) -> Region {
        let backing = match self.backing {
            Backing::File { file, offset, private } => Backing::File { file, offset: offset + by, private },
            Backing::Anonymous => Backing::Anonymous,
        };
        Region { backing, ..self }
    }
}

/// Content of a private page that differs from what stands behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Private {
    Is(Stamp),
    /// This, or what stands behind it.
    Perhaps(Stamp),
    /// Whatever is read first.
    Any,
}

#[derive(Clone, Default)]
struct Space {
    regions: BTreeMap<u64, Region>,
    pages: BTreeMap<u64, Private>,
}

struct File {
    size: u64,
    /// Where calls under way will have written to; the memory manager's size grows step by step meanwhile.
    growing: Vec<u64>,
    /// Pages that came with the device, and the stamp of the first.
    initial: (u64, Stamp),
    pages: BTreeMap<u64, Stamp>,
}

impl File {
    /// Its end, if the calls under way have done all that they are to do.
    fn end_at_most(&self) -> u64 {
        self.growing.iter().copied().fold(self.size, u64::max)
    }
}

/// A call under way.
struct Flux {
    id: u64,
    place: Place,
    since: Stamp,
    taken: Option<Taken>,
    /// Pages that were stored to meanwhile: to what was there, or to what comes there.
    stored: Vec<u64>,
}

/// When something began, in calls that had ended by then.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Moment(u64);

#[derive(Clone, Copy)]
enum Place {
    Space(u32, u64, u64),
    File(u64, u64),
}

#[derive(Default)]
struct Taken {
    regions: Vec<(u64, Region)>,
    pages: Vec<(u64, Private)>,
}

/// Where a store went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StoreTarget {
    /// To this page of this file.
    File(u64, u64),
    /// To a page of the file that was mapped there: one that has no name, or that has gone to swap meanwhile.
    MappedFile,
    /// To memory of the space's own, or to a page that was cut off its file.
    Elsewhere,
}

/// A call that takes something away has begun.
#[derive(Debug)]
#[must_use]
pub(crate) struct Change(u64);

/// The oracle's verdict on its run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OracleReport {
    /// Loads, stores and file reads that were judged.
    pub checked: u64,
    /// Accesses that used a translation which the page table no longer had: a flush was deferred.
    pub stale: u64,
    /// How many of them were wrong. A run stops at the first.
    pub violations: u64,
}

/// The oracle.
#[derive(Default)]
pub(crate) struct Oracle {
    spaces: BTreeMap<u32, Space>,
    files: BTreeMap<u64, File>,
    flux: Vec<Flux>,
    /// Where the last calls were under way, the newest last.
    past: VecDeque<Place>,
    calls: u64,
    ended: u64,
    pub(crate) report: OracleReport,
}

type Verdict = Result<(), String>;

impl Oracle {
    // --- spaces ---

    pub(crate) fn create_space(&mut self, space: u32) {
        self.spaces.insert(space, Space::default());
    }

    /// `child` was copied from `parent`. Pages stored since `since`, when the copying began, may have either content.
    pub(crate) fn fork(&mut self, parent: u32, child: u32, since: Stamp) {
        let mut copy = self.spaces[&parent].clone();
        for page in copy.pages.values_mut() {
            if matches!(*page, Private::Is(stamp) if stamp > since) {
                *page = Private::Any;
            }
        }
        self.spaces.insert(child, copy);
    }

    pub(crate) fn exit(&mut self, space: u32) {
        self.spaces.remove(&space);
    }

    /// A new mapping.
    pub(crate) fn map(&mut self, space: u32, start: u64, pages: u64, prot: Prot, backing: Backing) {
        let region = Region { end: start + pages, prot: Some(prot), backing };
        self.space(space).take(start, region.end);
        self.space(space).regions.insert(start, region);
    }

    fn space(&mut self, space: u32) -> &mut Space {
        self.spaces.get_mut(&space).expect("the space is alive")
    }

    // --- calls under way ---

    fn begin(&mut self, place: Place, since: Stamp, taken: Option<Taken>) -> Change {
        self.calls += 1;
        self.flux.push(Flux { id: self.calls, place, since, taken, stored: Vec::new() });
        Change(self.calls)
    }

    fn end(&mut self, call: Change) -> Flux {
        let at = self.flux.iter().position(|flux| flux.id == call.0).expect("begun once, ended once");
        let flux = self.flux.remove(at);
        self.remember(flux.place);
        flux
    }

    fn remember(&mut self, place: Place) {
        self.ended += 1;
        if self.past.len() == REMEMBERED {
            self.past.pop_front();
        }
        self.past.push_back(place);
    }

    /// Now.
    pub(crate) fn now(&self) -> Moment {
        Moment(self.ended)
    }

    /// Where calls that have ended since a moment were under way; `None`: it is too long ago.
    fn ended_since(&self, since: Moment) -> Option<impl Iterator<Item = &Place>> {
        let count = usize::try_from(self.ended - since.0).ok().filter(|&count| count <= self.past.len())?;
        Some(self.past.iter().rev().take(count))
    }

    /// A call that changes rights or content of a range begins.
    pub(crate) fn begin_change(&mut self, space: u32, start: u64, pages: u64, since: Stamp) -> Change {
        self.begin(Place::Space(space, start, start + pages), since, None)
    }

    /// A call that takes mappings away begins: they are gone at once, so that the addresses may be used again as soon
    /// as the memory manager says so.
    pub(crate) fn begin_take(&mut self, space: u32, start: u64, pages: u64, since: Stamp) -> Change {
        let taken = self.space(space).take(start, start + pages);
        self.begin(Place::Space(space, start, start + pages), since, Some(taken))
    }

    /// It has ended; if it failed, all is as before. Returns the pages that were stored to meanwhile.
    pub(crate) fn end_take(&mut self, call: Change, done: bool) -> Vec<u64> {
        let flux = self.end(call);
        if let (false, Place::Space(space, start, _), Some(taken)) = (done, flux.place, flux.taken) {
            self.space(space).put(taken, start, start);
        }
        flux.stored
    }

    /// Something is mapped where these pages were stored to when that began; the stores may have gone there.
    pub(crate) fn stored_meanwhile(&mut self, space: u32, pages: Vec<u64>) {
        for page in pages {
            let region = self.region(space, page);
            if region
                .is_some_and(|(_, region)| !matches!(region.backing, Backing::File { private: false, .. }))
            {
                self.space(space).pages.insert(page, Private::Any);
            }
        }
    }

    /// What was taken has moved to `to`, with `pages` pages now.
    pub(crate) fn end_move(&mut self, call: Change, to: u64, pages: u64) {
        let flux = self.end(call);
        let (Place::Space(space, start, end), Some(mut taken)) = (flux.place, flux.taken) else { return };
        let old = end - start;
        taken.regions.retain_mut(|(from, region)| {
            if region.end == end || region.end > start + pages {
                region.end = start + pages;
            }
            *from < start + pages
        });
        taken.pages.retain(|&(page, _)| page < start + pages);
        let space = self.space(space);
        if pages > old || to != start {
            space.take(to, to + pages);
        }
        space.put(taken, start, to);
    }

    /// A change of rights has ended.
    pub(crate) fn end_protect(&mut self, call: Change, prot: Prot, done: bool) {
        if let Place::Space(space, start, end) = self.end(call).place {
            let space = self.space(space);
            let (taken, prot) = (space.take(start, end), done.then_some(prot));
            let regions = taken.regions.into_iter().map(|(at, region)| (at, Region { prot, ..region }));
            space.put(Taken { regions: regions.collect(), pages: taken.pages }, start, start);
        }
    }

    /// A call that changes content has ended.
    pub(crate) fn end_forget(&mut self, call: Change, forget: Forget) {
        let flux = self.end(call);
        let Place::Space(space, start, end) = flux.place else { return };
        let space = self.space(space);
        let pages: Vec<_> = space.pages.range(start..end).map(|(&page, &private)| (page, private)).collect();
        for (page, private) in pages {
            match (forget, private) {
                (Forget::Now, Private::Is(stamp)) if stamp > flux.since => {
                    space.pages.insert(page, Private::Perhaps(stamp));
                }
                (Forget::Now, _) => {
                    space.pages.remove(&page);
                }
                (Forget::Perhaps, Private::Is(stamp)) => {
                    space.pages.insert(page, Private::Perhaps(stamp));
                }
                _ => {}
            }
        }
    }

    /// A call has faulted a range in, so pages of files may have become private copies, of what they held at a moment
    /// since `since`.
    pub(crate) fn populated(&mut self, space: u32, start: u64, pages: u64, since: Stamp) {
        let regions: Vec<_> =
            self.space(space).regions.range(..start + pages).map(|(&at, &r)| (at, r)).collect();
        for (at, region) in regions {
            let Backing::File { file, offset, private: true } = region.backing else { continue };
            for page in at.max(start)..region.end.min(start + pages) {
                let behind = self.file_page(file, page - at + offset);
                // What came with the device is older than every store.
                let newer = behind > since && behind < ORIGINAL;
                let copy = if newer { Private::Any } else { Private::Perhaps(behind) };
                let pages = &mut self.space(space).pages;
                match pages.get(&page) {
                    // That copy, or if there was none the one that was made now.
                    Some(&before @ Private::Perhaps(_)) if before != copy => {
                        _ = pages.insert(page, Private::Any)
                    }
                    Some(_) => {}
                    None => _ = pages.insert(page, copy),
                }
            }
        }
    }

    // --- files ---

    /// A file of `size` bytes that comes with content: its pages hold `stamp`, `stamp + 1`, ... (`stamp` 0: zeroes).
    pub(crate) fn create_file(&mut self, file: u64, size: u64, stamp: Stamp) {
        let pages = if stamp == 0 { 0 } else { size.div_ceil(4096) };
        self.files.insert(
            file,
            File { size, growing: Vec::new(), initial: (pages, stamp), pages: BTreeMap::new() },
        );
    }

    fn file_page(&self, file: u64, index: u64) -> Stamp {
        let Some(file) = self.files.get(&file) else { return 0 };
        match file.pages.get(&index) {
            Some(&stamp) => stamp,
            None if index < file.initial.0 => file.initial.1 + index,
            None => 0,
        }
    }

    pub(crate) fn begin_truncate(&mut self, file: u64, size: u64, since: Stamp) -> Change {
        let shorter = self.files.get(&file).map_or(size, |file| file.size.min(size));
        self.begin(Place::File(file, shorter.div_ceil(4096)), since, None)
    }

    /// The file has `size` bytes now, if the call was `done`: not by a process that was killed before. What lay beyond
    /// is gone, private copies of it too.
    pub(crate) fn end_truncate(&mut self, call: Change, size: u64, done: bool) {
        let Place::File(id, _) = self.end(call).place else { return };
        if !done {
            return;
        }
        let Some(file) = self.files.get_mut(&id) else { return };
        // Not where it may have ended when the call began: somebody may have written beyond that since.
        let first = size.div_ceil(4096);
        if size < file.size {
            file.pages.split_off(&first);
            file.initial.0 = file.initial.0.min(first);
            self.spaces.values_mut().for_each(|space| space.drop_private(id, first));
            // What a call has just taken away comes back with the copies that were dropped, or with the others.
            self.flux
                .iter_mut()
                .filter_map(|flux| flux.taken.as_mut())
                .for_each(|taken| taken.blur(id, first));
        }
        file.size = size;
    }

    /// A page of the file was read by a system call, which looked for it after `since`.
    pub(crate) fn file_read(&mut self, file: u64, index: u64, got: Stamp, since: Moment) -> Verdict {
        if self.file_in_flux(file, index) || self.file_was_in_flux(file, index, since) {
            return Ok(());
        }
        self.report.checked += 1;
        let expected = self.file_page(file, index);
        self.judge(expected == got, || {
            format!("read() of page {index}: expected stamp {expected}, got {got}")
        })
    }

    /// A page of the file was written by a system call, or through a shared mapping.
    pub(crate) fn file_write(&mut self, file: u64, index: u64, stamp: Stamp) {
        if let Some(file) = self.files.get_mut(&file) {
            file.pages.insert(index, stamp);
        }
    }

    /// A system call begins to write up to there.
    pub(crate) fn file_grows(&mut self, file: u64, end: u64) {
        if let Some(file) = self.files.get_mut(&file) {
            file.growing.push(end);
        }
    }

    /// One that was to write up to `planned` has ended, and has written up to `end`.
    pub(crate) fn file_grew(&mut self, file: u64, end: u64, planned: u64) {
        let Some(known) = self.files.get_mut(&file) else { return };
        let at = known.growing.iter().position(|&end| end == planned).expect("it began");
        known.growing.swap_remove(at);
        if known.size < end {
            let first = std::mem::replace(&mut known.size, end) / 4096;
            self.remember(Place::File(file, first));
        }
    }

    fn file_in_flux(&self, file: u64, index: u64) -> bool {
        self.flux.iter().any(|flux| flux.place.is_in_file(file, index))
    }

    fn file_was_in_flux(&self, file: u64, index: u64, since: Moment) -> bool {
        self.ended_since(since).is_none_or(|mut places| places.any(|place| place.is_in_file(file, index)))
    }

    // --- accesses ---

    fn in_flux(&self, space: u32, page: u64, region: Option<(u64, Region)>) -> bool {
        if self.flux.is_empty() {
            return false;
        }
        self.flux.iter().any(|flux| flux.place.is_in_space(space, page))
            || matches!(region, Some((start, Region { backing: Backing::File { file, offset, .. }, .. }))
                if self.file_in_flux(file, page - start + offset))
    }

    fn was_in_flux(&self, space: u32, page: u64, region: Option<(u64, Region)>, since: Moment) -> bool {
        let here = |place: &Place| {
            place.is_in_space(space, page)
                || matches!(region, Some((start, Region { backing: Backing::File { file, offset, .. }, .. }))
                    if place.is_in_file(file, page - start + offset))
        };
        self.ended_since(since).is_none_or(|mut places| places.any(here))
    }

    fn region(&self, space: u32, page: u64) -> Option<(u64, Region)> {
        let (&start, &region) = self.spaces.get(&space)?.regions.range(..=page).next_back()?;
        (page < region.end).then_some((start, region))
    }

    fn judge(&mut self, right: bool, text: impl FnOnce() -> String) -> Verdict {
        match right {
            true => Ok(()),
            false => {
                self.report.violations += 1;
                Err(text())
            }
        }
    }

    /// An access of `kind` went through and met content `got`.
    pub(crate) fn access(&mut self, space: u32, page: u64, kind: AccessKind, got: Stamp) -> Verdict {
        let region = self.region(space, page);
        if self.in_flux(space, page, region) {
            return Ok(());
        }
        self.report.checked += 1;
        let Some((start, region)) = region else {
            return self.judge(false, || "expected a fault, nothing is mapped there".into());
        };
        if let Some(prot) = region.prot {
            let allowed = match kind {
                AccessKind::Load => !prot.is_empty(),
                kind => prot.contains(kind.needs()),
            };
            self.judge(allowed, || format!("expected a fault, the mapping allows only {prot:?}"))?;
        }
        let behind = match region.backing {
            Backing::Anonymous => 0,
            Backing::File { file, offset, .. } => self.file_page(file, page - start + offset),
        };
        let pages = &mut self.space(space).pages;
        let expected = match pages.get(&page).copied() {
            None => behind,
            Some(Private::Is(stamp)) => stamp,
            Some(Private::Perhaps(stamp)) if got == stamp => stamp,
            Some(Private::Perhaps(_)) => {
                if got == behind {
                    pages.remove(&page);
                }
                behind
            }
            Some(Private::Any) => {
                // What also stands behind it need not be a copy.
                let known = if got == behind { Private::Perhaps(got) } else { Private::Is(got) };
                pages.insert(page, known);
                got
            }
        };
        self.judge(expected == got, || {
            format!("expected stamp {expected}, got {got}, in {:?}", region.backing)
        })
    }

    /// Is a call under way that takes mappings of a range away?
    pub(crate) fn busy(&self, space: u32, start: u64, pages: u64) -> bool {
        self.flux.iter().any(|flux| {
            matches!(flux.place, Place::Space(s, a, b) if s == space && a < start + pages && start < b)
        })
    }

    /// Would it be right if a load met `got` now? Nothing is counted, and nothing is learned from the answer. `None`:
    /// nobody can say, because a call is under way there.
    pub(crate) fn glance(&self, space: u32, page: u64, got: Stamp) -> Option<Verdict> {
        let region = self.region(space, page);
        if self.in_flux(space, page, region) {
            return None;
        }
        Some(self.glance_at(space, page, region, got))
    }

    fn glance_at(&self, space: u32, page: u64, region: Option<(u64, Region)>, got: Stamp) -> Verdict {
        let (start, region) = region.ok_or("nothing is mapped there")?;
        if region.prot.is_some_and(|prot| prot.is_empty()) {
            return Err("the mapping allows nothing".into());
        }
        let mut behind = 0;
        if let Backing::File { file, offset, .. } = region.backing {
            let index = page - start + offset;
            if self.files.get(&file).is_some_and(|file| index >= file.end_at_most().div_ceil(4096)) {
                return Err("the file ends before it".into());
            }
            behind = self.file_page(file, index);
        }
        let right = match self.spaces.get(&space).and_then(|space| space.pages.get(&page)) {
            None => got == behind,
            Some(&Private::Is(stamp)) => got == stamp,
            Some(&Private::Perhaps(stamp)) => got == stamp || got == behind,
            Some(Private::Any) => true,
        };
        if right { Ok(()) } else { Err(format!("it must not read stamp {got}, in {:?}", region.backing)) }
    }

    /// A store left `stamp`. To be called after [`Oracle::access`]. Where a call is under way that takes the page away
    /// or maps another there, `went` tells where it went.
    pub(crate) fn store(&mut self, space: u32, page: u64, stamp: Stamp, went: impl FnOnce() -> StoreTarget) {
        match self.region(space, page) {
            Some((start, Region { backing: Backing::File { file, offset, private: false }, .. })) => {
                self.file_write(file, page - start + offset, stamp);
            }
            Some(_) => {
                self.space(space).pages.insert(page, Private::Is(stamp));
            }
            None => self.store_in_flux(space, page, stamp, went()),
        }
    }

    /// A store raced with a call that takes the page away. If it went to a file, the file has it, also when the call
    /// has ended; memory of the space's own may be lost or moved with it. That a file was shown there says nothing:
    /// what takes its place may be mapped already.
    fn store_in_flux(&mut self, space: u32, page: u64, stamp: Stamp, went: StoreTarget) {
        let mut written = None;
        for flux in &mut self.flux {
            let (Place::Space(s, a, b), Some(taken)) = (flux.place, &mut flux.taken) else { continue };
            if s != space || !(a..b).contains(&page) {
                continue;
            }
            flux.stored.push(page);
            let around = taken.regions.iter().find(|(start, region)| (*start..region.end).contains(&page));
            match around {
                Some(&(start, Region { backing: Backing::File { file, offset, private: false }, .. })) => {
                    written = Some((file, page - start + offset));
                }
                _ => taken.pages.push((page, Private::Any)),
            }
        }
        let written = match went {
            StoreTarget::File(file, index) => Some((file, index)),
            StoreTarget::MappedFile => written,
            StoreTarget::Elsewhere => None,
        };
        if let Some((file, index)) = written {
            self.file_write(file, index, stamp);
        }
    }

    /// An access was refused with SIGSEGV (or, `beyond`, with SIGBUS). It began at `since`.
    pub(crate) fn refused(
        &mut self,
        (space, page): (u32, u64),
        kind: AccessKind,
        beyond: bool,
        since: Moment,
    ) -> Verdict {
        let region = self.region(space, page);
        if self.in_flux(space, page, region) || self.was_in_flux(space, page, region, since) {
            return Ok(());
        }
        self.report.checked += 1;
        let Some((start, region)) = region else {
            return self.judge(!beyond, || "SIGBUS where nothing is mapped".into());
        };
        let Some(prot) = region.prot else { return Ok(()) };
        if !beyond {
            return self.judge(!prot.contains(kind.needs()), || {
                "SIGSEGV where the mapping allows the access".into()
            });
        }
        let inside = match region.backing {
            Backing::Anonymous => true,
            Backing::File { file, offset, .. } => {
                self.files.get(&file).is_some_and(|file| page - start + offset < file.size.div_ceil(4096))
            }
        };
        self.judge(!inside, || format!("SIGBUS where the mapping has a page, in {:?}", region.backing))
    }
}

impl Place {
    fn is_in_space(&self, space: u32, page: u64) -> bool {
        matches!(*self, Place::Space(id, start, end) if id == space && (start..end).contains(&page))
    }

    fn is_in_file(&self, file: u64, index: u64) -> bool {
        matches!(*self, Place::File(id, first) if id == file && index >= first)
    }
}

impl Taken {
    /// Private copies of pages of `file` from `first` on may have been dropped.
    fn blur(&mut self, id: u64, first: u64) {
        for &(start, region) in &self.regions {
            let Backing::File { file, offset, private: true } = region.backing else { continue };
            let cut = start + first.saturating_sub(offset)..region.end;
            for (page, private) in &mut self.pages {
                if let Private::Is(stamp) = *private
                    && file == id
                    && cut.contains(page)
                {
                    *private = Private::Perhaps(stamp);
                }
            }
        }
    }
}

impl Space {
    /// Take a range out, cutting regions at its ends.
    fn take(&mut self, start: u64, end: u64) -> Taken {
        for at in [start, end] {
            let cut = self.regions.range_mut(..at).next_back().filter(|(_, region)| region.end > at);
            if let Some((&first, region)) = cut {
                let tail = region.tail(at - first);
                region.end = at;
                self.regions.insert(at, tail);
            }
        }
        let mut rest = self.regions.split_off(&start);
        self.regions.append(&mut rest.split_off(&end));
        let mut pages = self.pages.split_off(&start);
        self.pages.append(&mut pages.split_off(&end));
        Taken { regions: rest.into_iter().collect(), pages: pages.into_iter().collect() }
    }

    /// Put back what was taken from `from`, at `to`.
    fn put(&mut self, taken: Taken, from: u64, to: u64) {
        for (start, region) in taken.regions {
            self.regions.insert(start - from + to, Region { end: region.end - from + to, ..region });
        }
        self.pages.extend(taken.pages.into_iter().map(|(page, private)| (page - from + to, private)));
    }

    /// Private copies of pages of `file` from `first` on are dropped.
    fn drop_private(&mut self, id: u64, first: u64) {
        for (&start, region) in &self.regions {
            if let Backing::File { file, offset, private: true } = region.backing
                && file == id
            {
                let from = start + first.saturating_sub(offset);
                let gone: Vec<u64> = match from < region.end {
                    true => self.pages.range(from..region.end).map(|(&page, _)| page).collect(),
                    false => continue,
                };
                for page in gone {
                    self.pages.remove(&page);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
