//! A process's mappings, as the checker knows them.
//!
//! An access holds the map shared from before it touches memory until it is checked; a call that changes the
//! map takes it exclusively, briefly before and briefly after. So no checked access overlaps the beginning or
//! the end of such a call, and an access that begins in between finds its page *changing* and is not checked.
//!
//! A store to a changing page may reach the new mapping before the map has it. If that is a file, other
//! processes see the store at once, and their accesses are checked. So a call declares at its beginning which
//! file it maps, and a store locks the shadow of that file's page, too, and marks its content unknown.

use super::backoff::Backoff;
use super::file::{File, Moment};
use super::page::{Before, Forked, Page};
use abi::Forget;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use program::{AccessKind, Prot};

/// The kind of a mapping.
#[derive(Clone)]
pub enum RegionKind {
    /// Private memory: shadows of its own pages, and the file that backs it.
    Private {
        /// One for each page of the region, beginning at `first`.
        pages: Arc<[Page]>,
        /// Index of the shadow of the region's first page.
        first: u64,
        /// A file, and its page at the region's start.
        file: Option<(Arc<File>, u64)>,
    },
    /// A file, and its page at the region's start.
    Shared(Arc<File>, u64),
}

/// A mapped range.
#[derive(Clone)]
pub struct Region {
    /// The first page after it.
    pub end: u64,
    /// Rights; `None` if a change of rights failed halfway, so that they are unknown.
    pub prot: Option<Prot>,
    /// What its pages show.
    pub kind: RegionKind,
}

/// The content of a new mapping.
#[derive(Clone)]
pub enum Source {
    /// Zeroes.
    Anonymous,
    /// A file, beginning at a page.
    File {
        /// The file.
        file: Arc<File>,
        /// Its page at the start.
        offset: u64,
        /// Whether stores reach the file.
        shared: bool,
    },
}

fn fresh(file: bool) -> Page {
    if file { Page::backed() } else { Page::zeroes() }
}

impl Region {
    /// A new mapping of `pages` pages at `start`.
    pub fn new(start: u64, pages: u64, prot: Prot, source: Source) -> Region {
        let private = |file: Option<(Arc<File>, u64)>| RegionKind::Private {
            pages: (0..pages).map(|_| fresh(file.is_some())).collect(),
            first: 0,
            file,
        };
        let kind = match source {
            Source::Anonymous => private(None),
            Source::File { file, offset, shared: false } => private(Some((file, offset))),
            Source::File { file, offset, shared: true } => RegionKind::Shared(file, offset),
        };
        Region { end: start + pages, prot: Some(prot), kind }
    }

    /// The same region without its first `by` pages.
    fn tail(&self, by: u64) -> Region {
        let mut tail = self.clone();
        match &mut tail.kind {
            RegionKind::Private { first, file, .. } => {
                *first += by;
                if let Some((_, offset)) = file {
                    *offset += by;
                }
            }
            RegionKind::Shared(_, offset) => *offset += by,
        }
        tail
    }

    /// Change its length to `pages` pages; it begins at `start`.
    fn resize(&mut self, start: u64, pages: u64) {
        let old = self.end - start;
        if let RegionKind::Private { pages: shadows, first, file } = &mut self.kind
            && pages > old
        {
            let kept = shadows[*first as usize..][..old as usize].iter().map(Page::moved);
            *shadows = kept.chain((old..pages).map(|_| fresh(file.is_some()))).collect();
            *first = 0;
        }
        self.end = start + pages;
    }

    /// The shadow of a private page, `at` pages into the region.
    pub fn own(&self, at: u64) -> Option<&Page> {
        match &self.kind {
            RegionKind::Private { pages, first, .. } => pages.get((first + at) as usize),
            RegionKind::Shared(..) => None,
        }
    }

    /// The file that stores reach, and its page `at` pages into the region.
    pub fn shared(&self, at: u64) -> Option<(Arc<File>, u64)> {
        match &self.kind {
            RegionKind::Private { .. } => None,
            RegionKind::Shared(file, offset) => Some((file.clone(), offset + at)),
        }
    }

    /// The file that is shown, and its page `at` pages into the region.
    pub fn file(&self, at: u64) -> Option<(&Arc<File>, u64)> {
        match &self.kind {
            RegionKind::Private { file, .. } => file.as_ref().map(|(file, offset)| (file, offset + at)),
            RegionKind::Shared(file, offset) => Some((file, offset + at)),
        }
    }
}

/// A call in progress: its range, and what it has removed from the map.
struct Change {
    id: u64,
    start: u64,
    end: u64,
    taken: Vec<(u64, Region)>,
    /// Whether it maps something else there.
    replaces: bool,
    /// That is a shared file, beginning at this page.
    incoming: Option<(Arc<File>, u64)>,
    /// A task stored there during the call, to the old or the new mapping.
    stored: AtomicBool,
}

/// Identifies a call that is removing or changing mappings.
#[must_use]
#[derive(Clone, Copy)]
pub struct ChangeId(u64);

/// The target of an access.
pub struct Lookup<'a> {
    /// The mapping, and the page's position in it.
    pub region: Option<(&'a Region, u64)>,
    /// A call that is changing the page's mapping.
    change: Option<&'a Change>,
    page: u64,
}

impl<'a> Lookup<'a> {
    /// Whether a call is changing it.
    pub fn is_changing(&self) -> bool {
        self.change.is_some()
    }

    /// Whether a call is mapping something else there.
    pub fn replaced(&self) -> bool {
        self.change.is_some_and(|change| change.replaces)
    }

    /// The page of a shared file that a call is mapping there, which stores may reach before the map has it.
    pub fn incoming(&self) -> Option<(&'a Arc<File>, u64)> {
        let change = self.change?;
        change.incoming.as_ref().map(|(file, first)| (file, first + (self.page - change.start)))
    }

    /// Record that an access begins.
    pub fn stored(&self, mode: AccessKind) {
        if let (AccessKind::Store, Some(change)) = (mode, self.change) {
            change.stored.store(true, Relaxed);
        }
    }
}

/// The mappings of a process.
#[derive(Default)]
pub struct Map {
    regions: BTreeMap<u64, Region>,
    changes: Vec<Change>,
    calls: u64,
}

impl Map {
    /// The mapping of a page.
    pub fn find(&self, page: u64) -> Lookup<'_> {
        let mapped = self.regions.range(..=page).next_back().filter(|(_, region)| page < region.end);
        let region = mapped.map(|(start, region)| (region, page - start));
        let mut found = Lookup { region, change: None, page };
        for change in self.changes.iter().filter(|change| (change.start..change.end).contains(&page)) {
            if found.change.is_none_or(|other| !other.replaces) {
                found.change = Some(change);
            }
            if found.region.is_none() {
                let taken = change.taken.iter().find(|(start, region)| (*start..region.end).contains(&page));
                found.region = taken.map(|(start, region)| (region, page - start));
            }
        }
        found
    }

    /// Every region that overlaps a range, with its start, without those that a call in progress has removed.
    fn overlapping(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, &Region)> {
        let before = self.regions.range(..start).next_back().filter(move |(_, region)| region.end > start);
        before.into_iter().chain(self.regions.range(start..end)).map(|(&at, region)| (at, region))
    }

    /// Add a new mapping.
    pub fn insert(&mut self, start: u64, region: Region) {
        self.take(start, region.end);
        self.regions.insert(start, region);
    }

    /// Remove a range, splitting regions at its ends.
    fn take(&mut self, start: u64, end: u64) -> Vec<(u64, Region)> {
        for at in [start, end] {
            let crossing = self.regions.range_mut(..at).next_back().filter(|(_, region)| region.end > at);
            if let Some((&first, region)) = crossing {
                let tail = region.tail(at - first);
                region.end = at;
                self.regions.insert(at, tail);
            }
        }
        let mut taken = self.regions.split_off(&start);
        self.regions.append(&mut taken.split_off(&end));
        taken.into_iter().collect()
    }

    fn begin(&mut self, start: u64, end: u64, taken: Vec<(u64, Region)>) -> &mut Change {
        self.calls += 1;
        let (replaces, incoming, stored) = (false, None, AtomicBool::new(false));
        self.changes.push(Change { id: self.calls, start, end, taken, replaces, incoming, stored });
        self.changes.last_mut().expect("a change was just added")
    }

    /// Begin a call that changes rights or content of a range.
    pub fn begin_change(&mut self, start: u64, pages: u64) -> ChangeId {
        ChangeId(self.begin(start, start + pages, Vec::new()).id)
    }

    /// Begin a call that removes mappings. They are removed at once, because the addresses may be reused as
    /// soon as the kernel has done so.
    pub fn begin_take(&mut self, start: u64, pages: u64) -> ChangeId {
        let taken = self.take(start, start + pages);
        ChangeId(self.begin(start, start + pages, taken).id)
    }

    /// Begin a call that maps something else over a range. `incoming`: the shared file that it maps, with its
    /// first page.
    pub fn begin_replace(&mut self, start: u64, pages: u64, incoming: Option<(Arc<File>, u64)>) -> ChangeId {
        let taken = self.take(start, start + pages);
        let change = self.begin(start, start + pages, taken);
        (change.replaces, change.incoming) = (true, incoming);
        ChangeId(change.id)
    }

    fn end(&mut self, call: ChangeId) -> Change {
        let at = self.changes.iter().position(|change| change.id == call.0).expect("a change must end once");
        self.changes.remove(at)
    }

    /// End the call; if it failed, the old mappings stay.
    pub fn end_take(&mut self, call: ChangeId, done: bool, backoff: &dyn Backoff) {
        let change = self.end(call);
        if !done {
            for (at, region) in change.taken {
                mark_raced_unknown(&region, at, backoff);
                self.regions.insert(at, region);
            }
        }
    }

    /// End a call after the new mapping is in the map; if it failed, the old mappings stay.
    pub fn end_replace(&mut self, call: ChangeId, done: bool, backoff: &dyn Backoff) {
        let (start, end) = {
            let change =
                self.changes.iter().find(|change| change.id == call.0).expect("a change must end once");
            (change.start, if change.stored.load(Relaxed) { change.end } else { change.start })
        };
        self.end_take(call, done, backoff);
        if done {
            for page in start..end {
                let Some((region, at)) = self.find(page).region else { continue };
                let file = region.file(at).and_then(|(file, index)| file.page(index));
                if let Some(shadow) = region.own(at).or(file) {
                    shadow.lock(backoff).mark_unknown();
                }
            }
        }
    }

    /// End a call that has moved the removed range to `to`, where it now has `pages` pages.
    pub fn end_move(&mut self, call: ChangeId, to: u64, pages: u64, backoff: &dyn Backoff) {
        let Change { start, end, mut taken, .. } = self.end(call);
        let new_end = start + pages;
        taken.retain_mut(|(at, region)| {
            mark_raced_unknown(region, *at, backoff);
            if *at < new_end && (region.end == end || region.end > new_end) {
                region.resize(*at, new_end - *at);
            }
            *at < new_end
        });
        if new_end > end || to != start {
            self.take(to, to + pages);
        }
        for (at, mut region) in taken {
            region.end = region.end - start + to;
            self.regions.insert(at - start + to, region);
        }
    }

    /// End a change of rights.
    pub fn end_protect(&mut self, call: ChangeId, prot: Prot, done: bool, backoff: &dyn Backoff) {
        let change = self.end(call);
        for (at, mut region) in self.take(change.start, change.end) {
            region.prot = done.then_some(prot);
            for page in own_pages(&region, at, at, region.end) {
                page.lock(backoff).take_raced();
            }
            self.regions.insert(at, region);
        }
    }

    /// End a call that removes content.
    pub fn end_forget(&mut self, call: ChangeId, forget: Forget, backoff: &dyn Backoff) {
        let Change { start, end, .. } = self.end(call);
        let others: Vec<_> = self.changes.iter().map(|change| (change.start, change.end)).collect();
        for (at, region) in self.overlapping(start, end) {
            let (from, to) = (at.max(start), region.end.min(end));
            for (page, shadow) in (from..to).zip(own_pages(region, at, from, to)) {
                let locked = shadow.lock(backoff);
                let raced = locked.take_raced();
                if raced && others.iter().any(|&(start, end)| (start..end).contains(&page)) {
                    locked.set_raced();
                }
                match forget {
                    Forget::Now if !raced => locked.forget(region.file(0).is_some()),
                    Forget::Now | Forget::Perhaps => locked.maybe_forget(),
                    Forget::Not => {}
                }
            }
        }
    }

    /// The pages of private file mappings in a range that a call is about to fault in, with the state of each
    /// file page. Pages that are already private are included.
    pub fn begin_populate(&self, start: u64, pages: u64) -> Vec<(u64, Before)> {
        let mut before = Vec::new();
        for (at, region) in self.overlapping(start, start + pages) {
            let RegionKind::Private { file: Some((file, offset)), .. } = &region.kind else { continue };
            for page in at.max(start)..region.end.min(start + pages) {
                before.extend(file.page(offset + page - at).map(|shadow| (page, shadow.before())));
            }
        }
        before
    }

    /// End the call: the pages may now be copies of the file's content at some moment during it. If another
    /// call is changing a page, its content becomes unknown, even if that other call has nearly ended and
    /// concerned an earlier mapping.
    pub fn end_populate(&self, before: &[(u64, Before)], backoff: &dyn Backoff) {
        for &(page, ref before) in before {
            let found = self.find(page);
            let Some((region, at)) = found.region else { continue };
            let (Some(own), Some((file, index))) = (region.own(at), region.file(at)) else { continue };
            if found.is_changing() {
                own.lock(backoff).mark_unknown();
            } else if let Some(backing) = file.page(index) {
                own.lock(backoff).maybe_copied(backing.since(before));
            }
        }
    }

    /// The file was truncated: private copies of its pages from `first` on are gone. What calls in progress
    /// have removed from the map may have lost them or not.
    pub fn truncate(&mut self, file: &Arc<File>, first: u64, backoff: &dyn Backoff) {
        let shown = |region: &Region| match &region.kind {
            RegionKind::Private { file: Some((shown, offset)), .. } if Arc::ptr_eq(shown, file) => {
                Some(*offset)
            }
            _ => None,
        };
        for (&at, region) in &self.regions {
            let Some(offset) = shown(region) else { continue };
            for page in own_pages(region, at, at + first.saturating_sub(offset), region.end) {
                let locked = page.lock(backoff);
                if locked.take_raced() { locked.mark_unknown() } else { locked.forget(true) }
            }
        }
        for (at, region) in self.changes.iter().flat_map(|change| &change.taken) {
            let Some(offset) = shown(region) else { continue };
            for page in own_pages(region, *at, at + first.saturating_sub(offset), region.end) {
                page.lock(backoff).mark_unknown();
            }
        }
    }
}

/// Shadows of a region's private pages in `[from, to)`; `at` is the region's start.
fn own_pages(region: &Region, at: u64, from: u64, to: u64) -> impl Iterator<Item = &Page> {
    (from..to.max(from)).filter_map(move |page| region.own(page - at))
}

fn mark_raced_unknown(region: &Region, at: u64, backoff: &dyn Backoff) {
    for page in own_pages(region, at, at, region.end) {
        let locked = page.lock(backoff);
        if locked.take_raced() {
            locked.mark_unknown();
        }
    }
}

/// The state of a map when a fork began.
pub struct ForkedMap {
    regions: Vec<ForkedRegion>,
}

struct ForkedRegion {
    start: u64,
    region: Region,
    pages: Vec<Forked>,
    file: Option<Moment>,
}

impl Map {
    /// Begin a fork. No other call that changes the map may be in progress until it ends.
    pub fn begin_fork(&self) -> ForkedMap {
        let regions = self.regions.iter().map(|(&start, region)| {
            let pages = own_pages(region, start, start, region.end).map(Page::fork).collect();
            let file = region.file(0).map(|(file, _)| file.moment());
            ForkedRegion { start, region: region.clone(), pages, file }
        });
        ForkedMap { regions: regions.collect() }
    }
}

impl ForkedMap {
    /// The child's map, after the fork. No store of the parent may be in progress.
    pub fn end_fork(&self) -> Map {
        let regions = self.regions.iter().map(|ForkedRegion { start, region, pages, .. }| {
            let mut child = region.clone();
            if let RegionKind::Private { pages: shadows, first, .. } = &mut child.kind {
                let now = own_pages(region, *start, *start, region.end);
                *shadows = now.zip(pages).map(|(page, fork_state)| page.forked(fork_state)).collect();
                *first = 0;
            }
            (*start, child)
        });
        Map { regions: regions.collect(), ..Map::default() }
    }

    /// Files that were truncated during the fork may or may not have lost the child's private copies. Called
    /// after the child is visible to tasks that truncate files, and before it runs.
    pub fn allow_for_truncations(&self, child: &Map, backoff: &dyn Backoff) {
        for ForkedRegion { start, region, file, .. } in &self.regions {
            let truncated =
                file.zip(region.file(0)).is_some_and(|(moment, (file, _))| file.any_truncation_since(moment));
            let Some(child) = child.regions.get(start).filter(|_| truncated) else { continue };
            for page in own_pages(child, *start, *start, child.end) {
                page.lock(backoff).mark_unknown();
            }
        }
    }
}
