//! The oracle: what every address must read.
//!
//! The oracle is a second, simple memory. It is told of the system calls and the stores that programs make, and of
//! nothing else: it knows no frames, no page tables and no TLBs. A page's content is a stamp (see `content`). A load
//! returns the stamp of the frame that its TLB entry led to; if that is not what the address must read, a flush was
//! missed, a page lost, or a frame freed too early.
//!
//! What it allows:
//! - private memory reads what was last stored there (a file's content, or zero, before the first store);
//! - shared memory reads what any process last stored in the file;
//! - after MADV_FREE, until the next store, memory reads the old content or zero, and only zero once zero was read;
//! - while a call that changes mappings or a file's size is *pending*, its range is not checked: the program races with
//!   itself there. A store that races with the call leaves the page with more than one possible content. A slow access
//!   ([`Moment`]) that overlapped such a call in time is not checked either.

mod taken;

use crate::content::{ORIGINAL, Stamp};
use abi::Forget;
use mm::api::{AccessKind, Prot};
use std::collections::{BTreeMap, VecDeque};

/// How many ended calls are remembered: more than end during one access.
const REMEMBERED: usize = 256;

/// What backs a mapped range.
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
        /// Whether stores stay private.
        private: bool,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Region {
    end: u64,
    /// `None`: unknown, because mprotect failed halfway.
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

/// Content of a private page that may differ from its backing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Private {
    Is(Stamp),
    /// This, or the content of the backing.
    OrBacking(Stamp),
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
    /// Where pending writes will end; the memory manager's size grows step by step until then.
    pending_ends: Vec<u64>,
    /// Pages that the device came with, and the stamp of the first.
    initial: (u64, Stamp),
    pages: BTreeMap<u64, Stamp>,
    /// Older contents that pages may have again, because they could not be written to their device.
    lost: BTreeMap<u64, Vec<Stamp>>,
}

impl File {
    /// Its size, if all pending writes complete.
    fn max_size(&self) -> u64 {
        self.pending_ends.iter().copied().fold(self.size, u64::max)
    }
}

/// A call that has begun and not ended.
struct Pending {
    id: u64,
    place: Place,
    since: Stamp,
    taken: Option<Taken>,
    /// Pages that were stored to during the call: in the old mapping, or in the new one.
    stored: Vec<u64>,
}

/// A moment, as the number of calls that had ended by then.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Moment(u64);

/// What a call changes: pages of a space from the first to before the second, or a file's pages from one on.
#[derive(Clone, Copy)]
enum Place {
    Space(u32, u64, u64),
    File(u64, u64),
}

/// What a call takes out of a space.
#[derive(Default)]
struct Taken {
    regions: Vec<(u64, Region)>,
    pages: Vec<(u64, Private)>,
}

/// What a store changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StoreTarget {
    /// This page of this file.
    File(u64, u64),
    /// A page of the file that was mapped there: one without a name, or one that is in swap by now.
    MappedFile,
    /// Private memory, or a page that was truncated.
    Elsewhere,
}

/// A call that has begun; it must be ended.
#[derive(Debug)]
#[must_use]
pub(crate) struct Change(u64);

/// The oracle's verdict on its run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OracleReport {
    /// Loads, stores and file reads that were checked.
    pub checked: u64,
    /// Accesses through a translation that the page table no longer had: a flush was deferred.
    pub stale: u64,
    /// Checked accesses that were wrong. A run stops at the first.
    pub violations: u64,
}

/// The oracle.
#[derive(Default)]
pub(crate) struct Oracle {
    spaces: BTreeMap<u32, Space>,
    files: BTreeMap<u64, File>,
    pending: Vec<Pending>,
    /// What the last ended calls changed, the newest last.
    past: VecDeque<Place>,
    calls: u64,
    ended: u64,
    pub(crate) report: OracleReport,
}

type Verdict = Result<(), String>;

impl Oracle {
    // --- spaces ---

    pub(crate) fn create_space(&mut self, space: u32) {
        self.add_space(space, Space::default());
    }

    /// `child` was copied from `parent`. Pages stored to after `since`, when the copy began, may have either content.
    pub(crate) fn fork(&mut self, parent: u32, child: u32, since: Stamp) {
        let mut copy = self.spaces[&parent].clone();
        for page in copy.pages.values_mut() {
            if matches!(*page, Private::Is(stamp) if stamp > since) {
                *page = Private::Any;
            }
        }
        self.add_space(child, copy);
    }

    fn add_space(&mut self, number: u32, space: Space) {
        assert!(
            self.spaces.insert(number, space).is_none(),
            "space {number} must not exist when it is created"
        );
    }

    pub(crate) fn exit(&mut self, space: u32) {
        assert!(self.spaces.remove(&space).is_some(), "space {space} must exist until its last task ends");
    }

    /// A new mapping.
    pub(crate) fn map(&mut self, space: u32, start: u64, pages: u64, prot: Prot, backing: Backing) {
        let region = Region { end: start + pages, prot: Some(prot), backing };
        self.space(space).take(start, region.end);
        self.space(space).regions.insert(start, region);
    }

    fn space(&mut self, space: u32) -> &mut Space {
        self.spaces.get_mut(&space).expect("a space must exist while calls and stores use it")
    }

    // --- pending calls ---

    fn begin(&mut self, place: Place, since: Stamp, taken: Option<Taken>) -> Change {
        self.calls += 1;
        self.pending.push(Pending { id: self.calls, place, since, taken, stored: Vec::new() });
        Change(self.calls)
    }

    fn end(&mut self, call: Change) -> Pending {
        let at = self.pending.iter().position(|pending| pending.id == call.0).expect("a call must end once");
        let pending = self.pending.remove(at);
        self.remember(pending.place);
        pending
    }

    fn remember(&mut self, place: Place) {
        self.ended += 1;
        if self.past.len() == REMEMBERED {
            self.past.pop_front();
        }
        self.past.push_back(place);
    }

    /// The current moment.
    pub(crate) fn now(&self) -> Moment {
        Moment(self.ended)
    }

    /// What the calls changed that have ended since a moment; `None`: that is too long ago.
    fn ended_since(&self, since: Moment) -> Option<impl Iterator<Item = &Place>> {
        let count = usize::try_from(self.ended - since.0).ok().filter(|&count| count <= self.past.len())?;
        Some(self.past.iter().rev().take(count))
    }

    /// A call that changes protection or content of a range begins.
    pub(crate) fn begin_change(&mut self, space: u32, start: u64, pages: u64, since: Stamp) -> Change {
        self.begin(Place::Space(space, start, start + pages), since, None)
    }

    /// A call that removes mappings begins. They are gone at once: the memory manager may reuse the addresses early.
    pub(crate) fn begin_take(&mut self, space: u32, start: u64, pages: u64, since: Stamp) -> Change {
        let taken = self.space(space).take(start, start + pages);
        self.begin(Place::Space(space, start, start + pages), since, Some(taken))
    }

    /// Such a call has ended; if it was not `done`, all is as before. Returns the pages that were stored to during it.
    pub(crate) fn end_take(&mut self, call: Change, done: bool) -> Vec<u64> {
        let call = self.end(call);
        if let (false, Place::Space(space, start, _), Some(taken)) = (done, call.place, call.taken) {
            self.space(space).put(taken, start, start);
        }
        call.stored
    }

    /// A range was mapped; its pages that were stored to during that call may have these stores in the new mapping.
    pub(crate) fn raced_with_stores(&mut self, space: u32, pages: Vec<u64>) {
        for page in pages {
            let region = self.region(space, page);
            if region
                .is_some_and(|(_, region)| !matches!(region.backing, Backing::File { private: false, .. }))
            {
                self.space(space).pages.insert(page, Private::Any);
            }
        }
    }

    /// mremap has moved what was taken to `to`, where it has `pages` pages.
    pub(crate) fn end_move(&mut self, call: Change, to: u64, pages: u64) {
        let call = self.end(call);
        let (Place::Space(space, start, end), Some(mut taken)) = (call.place, call.taken) else { return };
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

    /// mprotect has ended.
    pub(crate) fn end_protect(&mut self, call: Change, prot: Prot, done: bool) {
        if let Place::Space(space, start, end) = self.end(call).place {
            let space = self.space(space);
            let (taken, prot) = (space.take(start, end), done.then_some(prot));
            let regions = taken.regions.into_iter().map(|(at, region)| (at, Region { prot, ..region }));
            space.put(Taken { regions: regions.collect(), pages: taken.pages }, start, start);
        }
    }

    /// A call that drops content has ended.
    pub(crate) fn end_forget(&mut self, call: Change, forget: Forget) {
        let call = self.end(call);
        let Place::Space(space, start, end) = call.place else { return };
        let space = self.space(space);
        let pages: Vec<_> = space.pages.range(start..end).map(|(&page, &private)| (page, private)).collect();
        for (page, private) in pages {
            match (forget, private) {
                (Forget::Now, Private::Is(stamp)) if stamp > call.since => {
                    space.pages.insert(page, Private::OrBacking(stamp));
                }
                (Forget::Now, _) => {
                    space.pages.remove(&page);
                }
                (Forget::Perhaps, Private::Is(stamp)) => {
                    space.pages.insert(page, Private::OrBacking(stamp));
                }
                _ => {}
            }
        }
    }

    /// A call has populated a range, so pages of files may have been copied to private ones, with the content that they
    /// had at some moment after `since`.
    pub(crate) fn populated(&mut self, space: u32, start: u64, pages: u64, since: Stamp) {
        let regions: Vec<_> =
            self.space(space).regions.range(..start + pages).map(|(&at, &r)| (at, r)).collect();
        for (at, region) in regions {
            let Backing::File { file, offset, private: true } = region.backing else { continue };
            // Beyond the end of its file nothing is populated, however long the range is.
            let in_file = self.files.get(&file).map_or(0, |file| file.max_size().div_ceil(4096));
            let end = region.end.min(start + pages).min(at + in_file.saturating_sub(offset));
            for page in at.max(start)..end {
                let backing = self.file_page(file, page - at + offset);
                // What the device came with is older than every store.
                let index = page - at + offset;
                let lost = self.files.get(&file).is_some_and(|file| file.lost.contains_key(&index));
                let newer = lost || backing > since && backing < ORIGINAL;
                let copy = if newer { Private::Any } else { Private::OrBacking(backing) };
                let pages = &mut self.space(space).pages;
                match pages.get(&page) {
                    // That copy, or the one made now if there was none.
                    Some(&before @ Private::OrBacking(_)) if before != copy => {
                        _ = pages.insert(page, Private::Any)
                    }
                    Some(_) => {}
                    None => _ = pages.insert(page, copy),
                }
            }
        }
    }

    // --- files ---

    /// A file of `size` bytes is created. Its pages hold `stamp`, `stamp + 1`, ... (`stamp` 0: zeroes).
    pub(crate) fn create_file(&mut self, file: u64, size: u64, stamp: Stamp) {
        let pages = if stamp == 0 { 0 } else { size.div_ceil(4096) };
        self.files.insert(
            file,
            File {
                size,
                pending_ends: Vec::new(),
                initial: (pages, stamp),
                pages: BTreeMap::new(),
                lost: BTreeMap::new(),
            },
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

    /// What the page must hold if a reader has got `got`.
    fn page_as_read(&self, file: u64, index: u64, got: Stamp) -> Stamp {
        let older = self.files.get(&file).and_then(|file| file.lost.get(&index));
        let is_older = older.is_some_and(|older| older.contains(&got));
        if is_older { got } else { self.file_page(file, index) }
    }

    /// A page could not be written to its device, which still has older content. Until the page is written again it may
    /// have either.
    pub(crate) fn may_lose(&mut self, file: u64, index: u64, older: Stamp) {
        if let Some(file) = self.files.get_mut(&file) {
            file.lost.entry(index).or_default().push(older);
        }
    }

    pub(crate) fn begin_truncate(&mut self, file: u64, size: u64, since: Stamp) -> Change {
        let shorter = self.files.get(&file).map_or(size, |file| file.size.min(size));
        self.begin(Place::File(file, shorter.div_ceil(4096)), since, None)
    }

    /// The file has `size` bytes now, if the call was `done`: a process may have been killed before. Pages beyond that
    /// are gone, and private copies of them, too.
    pub(crate) fn end_truncate(&mut self, call: Change, size: u64, done: bool) {
        let Place::File(id, _) = self.end(call).place else { return };
        if !done {
            return;
        }
        let Some(file) = self.files.get_mut(&id) else { return };
        // Not the end at the start of the call: another task may have written beyond that.
        let first = size.div_ceil(4096);
        if size < file.size {
            file.pages.split_off(&first);
            file.lost.split_off(&first);
            file.initial.0 = file.initial.0.min(first);
            self.spaces.values_mut().for_each(|space| space.drop_private(id, first));
            // What a pending call has taken may come back with these copies or without them.
            self.pending
                .iter_mut()
                .filter_map(|call| call.taken.as_mut())
                .for_each(|taken| taken.lose_copies(id, first));
        }
        file.size = size;
    }

    /// A system call read a page of the file. It looked the page up after `since`.
    pub(crate) fn file_read(&mut self, file: u64, index: u64, got: Stamp, since: Moment) -> Verdict {
        if self.is_file_pending(file, index) || self.was_file_pending(file, index, since) {
            return Ok(());
        }
        self.report.checked += 1;
        let expected = self.page_as_read(file, index, got);
        self.check(expected == got, || {
            format!("read() of page {index}: expected stamp {expected}, got {got}")
        })
    }

    /// A system call, or a store to a shared mapping, wrote a page of the file.
    pub(crate) fn file_write(&mut self, file: u64, index: u64, stamp: Stamp) {
        if let Some(file) = self.files.get_mut(&file) {
            file.pages.insert(index, stamp);
            file.lost.remove(&index);
        }
    }

    /// A system call begins to write up to `end`.
    pub(crate) fn begin_write(&mut self, file: u64, end: u64) {
        if let Some(file) = self.files.get_mut(&file) {
            file.pending_ends.push(end);
        }
    }

    /// A system call that was to write up to `planned` has ended, and has written up to `end`.
    pub(crate) fn end_write(&mut self, file: u64, end: u64, planned: u64) {
        let Some(known) = self.files.get_mut(&file) else { return };
        let at = known
            .pending_ends
            .iter()
            .position(|&end| end == planned)
            .expect("a write must begin before it ends");
        known.pending_ends.swap_remove(at);
        if known.size < end {
            let first = std::mem::replace(&mut known.size, end) / 4096;
            self.remember(Place::File(file, first));
        }
    }

    fn is_file_pending(&self, file: u64, index: u64) -> bool {
        self.pending.iter().any(|call| call.place.is_in_file(file, index))
    }

    fn was_file_pending(&self, file: u64, index: u64, since: Moment) -> bool {
        self.ended_since(since).is_none_or(|mut places| places.any(|place| place.is_in_file(file, index)))
    }

    // --- accesses ---

    fn is_pending(&self, space: u32, page: u64, region: Option<(u64, Region)>) -> bool {
        self.pending.iter().any(|call| call.place.covers(space, page, region))
    }

    fn was_pending(&self, space: u32, page: u64, region: Option<(u64, Region)>, since: Moment) -> bool {
        self.ended_since(since).is_none_or(|mut places| places.any(|place| place.covers(space, page, region)))
    }

    fn region(&self, space: u32, page: u64) -> Option<(u64, Region)> {
        let (&start, &region) = self.spaces.get(&space)?.regions.range(..=page).next_back()?;
        (page < region.end).then_some((start, region))
    }

    fn check(&mut self, right: bool, text: impl FnOnce() -> String) -> Verdict {
        match right {
            true => Ok(()),
            false => {
                self.report.violations += 1;
                Err(text())
            }
        }
    }

    /// An access of `kind` succeeded and found the content `got`.
    pub(crate) fn access(&mut self, space: u32, page: u64, kind: AccessKind, got: Stamp) -> Verdict {
        let region = self.region(space, page);
        if self.is_pending(space, page, region) {
            return Ok(());
        }
        self.report.checked += 1;
        let Some((start, region)) = region else {
            return self.check(false, || "expected a fault, nothing is mapped there".into());
        };
        if let Some(prot) = region.prot {
            let allowed = match kind {
                AccessKind::Load => !prot.is_empty(),
                kind => prot.contains(kind.needs()),
            };
            self.check(allowed, || format!("expected a fault, the mapping allows only {prot:?}"))?;
        }
        let backing = match region.backing {
            Backing::Anonymous => 0,
            Backing::File { file, offset, .. } => self.page_as_read(file, page - start + offset, got),
        };
        let pages = &mut self.space(space).pages;
        let expected = match pages.get(&page).copied() {
            None => backing,
            Some(Private::Is(stamp)) => stamp,
            Some(Private::OrBacking(stamp)) if got == stamp => stamp,
            Some(Private::OrBacking(_)) => {
                if got == backing {
                    pages.remove(&page);
                }
                backing
            }
            Some(Private::Any) => {
                // A page with the content of its backing need not be a copy.
                let known = if got == backing { Private::OrBacking(got) } else { Private::Is(got) };
                pages.insert(page, known);
                got
            }
        };
        self.check(expected == got, || {
            format!("expected stamp {expected}, got {got}, in {:?}", region.backing)
        })
    }

    /// Whether a pending call changes mappings of a range.
    pub(crate) fn is_changing(&self, space: u32, start: u64, pages: u64) -> bool {
        self.pending.iter().any(|call| {
            matches!(call.place, Place::Space(s, a, b) if s == space && a < start + pages && start < b)
        })
    }

    /// Whether it would be right if a load found `got` now, without counting it or learning from it. `None`: unknown,
    /// because a pending call changes that page.
    pub(crate) fn peek(&self, space: u32, page: u64, got: Stamp) -> Option<Verdict> {
        let region = self.region(space, page);
        if self.is_pending(space, page, region) {
            return None;
        }
        Some(self.peek_at(space, page, region, got))
    }

    fn peek_at(&self, space: u32, page: u64, region: Option<(u64, Region)>, got: Stamp) -> Verdict {
        let (start, region) = region.ok_or("nothing is mapped there")?;
        if region.prot.is_some_and(|prot| prot.is_empty()) {
            return Err("the mapping allows nothing".into());
        }
        let mut backing = 0;
        if let Backing::File { file, offset, .. } = region.backing {
            let index = page - start + offset;
            if self.files.get(&file).is_some_and(|file| index >= file.max_size().div_ceil(4096)) {
                return Err("the file ends before it".into());
            }
            backing = self.page_as_read(file, index, got);
        }
        let right = match self.spaces.get(&space).and_then(|space| space.pages.get(&page)) {
            None => got == backing,
            Some(&Private::Is(stamp)) => got == stamp,
            Some(&Private::OrBacking(stamp)) => got == stamp || got == backing,
            Some(Private::Any) => true,
        };
        if right { Ok(()) } else { Err(format!("it must not read stamp {got}, in {:?}", region.backing)) }
    }

    /// A store wrote `stamp`; [`Oracle::access`] must come first. If a pending call removes the page or maps another
    /// there, `target` tells what the store changed.
    pub(crate) fn store(
        &mut self,
        space: u32,
        page: u64,
        stamp: Stamp,
        target: impl FnOnce() -> StoreTarget,
    ) {
        match self.region(space, page) {
            Some((start, Region { backing: Backing::File { file, offset, private: false }, .. })) => {
                self.file_write(file, page - start + offset, stamp);
            }
            Some(_) => {
                self.space(space).pages.insert(page, Private::Is(stamp));
            }
            None => self.racing_store(space, page, stamp, target()),
        }
    }

    /// A store raced with a call that removes the page. If it changed a file, the file keeps it when the call has
    /// ended; private memory may be lost or moved with it. A file that was mapped there is no proof that it was
    /// changed: what replaces it may be mapped already.
    fn racing_store(&mut self, space: u32, page: u64, stamp: Stamp, target: StoreTarget) {
        let mut written = None;
        for call in &mut self.pending {
            let (Place::Space(s, a, b), Some(taken)) = (call.place, &mut call.taken) else { continue };
            if s != space || !(a..b).contains(&page) {
                continue;
            }
            call.stored.push(page);
            let around = taken.regions.iter().find(|(start, region)| (*start..region.end).contains(&page));
            match around {
                Some(&(start, Region { backing: Backing::File { file, offset, private: false }, .. })) => {
                    written = Some((file, page - start + offset));
                }
                _ => taken.pages.push((page, Private::Any)),
            }
        }
        let written = match target {
            StoreTarget::File(file, index) => Some((file, index)),
            StoreTarget::MappedFile => written,
            StoreTarget::Elsewhere => None,
        };
        if let Some((file, index)) = written {
            self.file_write(file, index, stamp);
        }
    }

    /// An access failed with SIGSEGV (or, if `beyond`, with SIGBUS). It began at `since`.
    pub(crate) fn refused(
        &mut self,
        (space, page): (u32, u64),
        kind: AccessKind,
        beyond: bool,
        since: Moment,
    ) -> Verdict {
        let region = self.region(space, page);
        if self.is_pending(space, page, region) || self.was_pending(space, page, region, since) {
            return Ok(());
        }
        self.report.checked += 1;
        let Some((start, region)) = region else {
            return self.check(!beyond, || "SIGBUS where nothing is mapped".into());
        };
        let Some(prot) = region.prot else { return Ok(()) };
        if !beyond {
            return self.check(!prot.contains(kind.needs()), || {
                "SIGSEGV where the mapping allows the access".into()
            });
        }
        let inside = match region.backing {
            Backing::Anonymous => true,
            Backing::File { file, offset, .. } => {
                self.files.get(&file).is_some_and(|file| page - start + offset < file.size.div_ceil(4096))
            }
        };
        self.check(!inside, || format!("SIGBUS where the mapping has a page, in {:?}", region.backing))
    }
}

impl Place {
    /// Whether this is a page of a space, or that page of the file which is mapped there.
    fn covers(&self, space: u32, page: u64, region: Option<(u64, Region)>) -> bool {
        self.is_in_space(space, page)
            || matches!(region, Some((start, Region { backing: Backing::File { file, offset, .. }, .. }))
                if self.is_in_file(file, page - start + offset))
    }

    fn is_in_space(&self, space: u32, page: u64) -> bool {
        matches!(*self, Place::Space(id, start, end) if id == space && (start..end).contains(&page))
    }

    fn is_in_file(&self, file: u64, index: u64) -> bool {
        matches!(*self, Place::File(id, first) if id == file && index >= first)
    }
}

#[cfg(test)]
mod tests;
