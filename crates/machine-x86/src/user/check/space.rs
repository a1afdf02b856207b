//! What a process has mapped, as the checker knows it.
//!
//! An access holds the map shared from before it touches memory until it is judged; a call that changes the map takes
//! it alone for a moment before and a moment after. So no judged access overlaps the beginning or the end of such a
//! call, and those that begin in between find their page *in flux* and are not judged.
//!
//! A store in flux may reach what the call has mapped before the map tells of it. If that is a file, other processes
//! see it at once, and theirs is judged: so a call says at its beginning which file comes, and a store locks the shadow
//! of that file's page, too, and leaves it as one of which nothing is known.

use super::file::{File, Moment};
use super::page::{Before, Forked, Page};
use super::patience::Patience;
use abi::Forget;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use program::{AccessKind, Prot};

/// What stands behind a mapping.
#[derive(Clone)]
pub enum What {
    /// Private memory: shadows of its own pages, and the file behind it.
    Private {
        /// One for each page of the region, from `first` on.
        pages: Arc<[Page]>,
        /// Shadow of the region's first page.
        first: u64,
        /// A file and its page at the region's start.
        file: Option<(Arc<File>, u64)>,
    },
    /// A file, and its page at the region's start.
    Shared(Arc<File>, u64),
}

/// A mapped range.
#[derive(Clone)]
pub struct Region {
    /// First page that is not in it.
    pub end: u64,
    /// Rights; `None`: a change of rights failed halfway, so they are not known.
    pub prot: Option<Prot>,
    /// What its pages show.
    pub what: What,
}

/// What stands behind a new mapping.
#[derive(Clone)]
pub enum Source {
    /// Zeroes.
    Anonymous,
    /// A file from a page on.
    File {
        /// The file.
        file: Arc<File>,
        /// Its page at the start.
        offset: u64,
        /// Do stores reach it?
        shared: bool,
    },
}

fn fresh(file: bool) -> Page {
    if file { Page::behind() } else { Page::zeroes() }
}

impl Region {
    /// A new mapping of `pages` pages from `start` on.
    pub fn new(start: u64, pages: u64, prot: Prot, source: Source) -> Region {
        let private = |file: Option<(Arc<File>, u64)>| What::Private {
            pages: (0..pages).map(|_| fresh(file.is_some())).collect(),
            first: 0,
            file,
        };
        let what = match source {
            Source::Anonymous => private(None),
            Source::File { file, offset, shared: false } => private(Some((file, offset))),
            Source::File { file, offset, shared: true } => What::Shared(file, offset),
        };
        Region { end: start + pages, prot: Some(prot), what }
    }

    /// The same region without its first `by` pages.
    fn tail(&self, by: u64) -> Region {
        let mut tail = self.clone();
        match &mut tail.what {
            What::Private { first, file, .. } => {
                *first += by;
                if let Some((_, offset)) = file {
                    *offset += by;
                }
            }
            What::Shared(_, offset) => *offset += by,
        }
        tail
    }

    /// Make it `pages` pages long, beginning at `start`.
    fn resize(&mut self, start: u64, pages: u64) {
        let old = self.end - start;
        if let What::Private { pages: shadows, first, file } = &mut self.what
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
        match &self.what {
            What::Private { pages, first, .. } => pages.get((first + at) as usize),
            What::Shared(..) => None,
        }
    }

    /// The file that stores reach, and its page `at` pages into the region.
    pub fn shared(&self, at: u64) -> Option<(Arc<File>, u64)> {
        match &self.what {
            What::Private { .. } => None,
            What::Shared(file, offset) => Some((file.clone(), offset + at)),
        }
    }

    /// The file that is shown, and its page `at` pages into the region.
    pub fn file(&self, at: u64) -> Option<(&Arc<File>, u64)> {
        match &self.what {
            What::Private { file, .. } => file.as_ref().map(|(file, offset)| (file, offset + at)),
            What::Shared(file, offset) => Some((file, offset + at)),
        }
    }
}

/// A call under way: its range, and what it has taken out of the map.
struct Flux {
    id: u64,
    start: u64,
    end: u64,
    taken: Vec<(u64, Region)>,
    /// Something else is going to be mapped there.
    replaces: bool,
    /// That is a file which stores reach, from this page of it on.
    coming: Option<(Arc<File>, u64)>,
    /// Somebody stored there meanwhile, to what was there or to what is there now.
    stored: AtomicBool,
}

/// A call that takes mappings away, or changes them, has begun.
#[must_use]
#[derive(Clone, Copy)]
pub struct InFlux(u64);

/// Where an access goes.
pub struct Found<'a> {
    /// The mapping, and the page's place in it.
    pub region: Option<(&'a Region, u64)>,
    /// A call that is changing it.
    flux: Option<&'a Flux>,
    page: u64,
}

impl<'a> Found<'a> {
    /// Is a call changing it?
    pub fn in_flux(&self) -> bool {
        self.flux.is_some()
    }

    /// Is a call mapping something else there?
    pub fn replaced(&self) -> bool {
        self.flux.is_some_and(|flux| flux.replaces)
    }

    /// The page of a file that a call is mapping there, if stores reach it as soon as it is mapped.
    pub fn coming(&self) -> Option<(&'a Arc<File>, u64)> {
        let flux = self.flux?;
        flux.coming.as_ref().map(|(file, first)| (file, first + (self.page - flux.start)))
    }

    /// An access begins.
    pub fn stored(&self, mode: AccessKind) {
        if let (AccessKind::Store, Some(flux)) = (mode, self.flux) {
            flux.stored.store(true, Relaxed);
        }
    }
}

/// The mappings of a process.
#[derive(Default)]
pub struct Map {
    regions: BTreeMap<u64, Region>,
    flux: Vec<Flux>,
    calls: u64,
}

impl Map {
    /// The mapping of a page.
    pub fn find(&self, page: u64) -> Found<'_> {
        let mapped = self.regions.range(..=page).next_back().filter(|(_, region)| page < region.end);
        let region = mapped.map(|(start, region)| (region, page - start));
        let mut found = Found { region, flux: None, page };
        for flux in self.flux.iter().filter(|flux| (flux.start..flux.end).contains(&page)) {
            if found.flux.is_none_or(|other| !other.replaces) {
                found.flux = Some(flux);
            }
            if found.region.is_none() {
                let taken = flux.taken.iter().find(|(start, region)| (*start..region.end).contains(&page));
                found.region = taken.map(|(start, region)| (region, page - start));
            }
        }
        found
    }

    /// Every region that overlaps a range, with its start; those that a call under way has taken are left out.
    fn overlapping(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, &Region)> {
        let before = self.regions.range(..start).next_back().filter(move |(_, region)| region.end > start);
        before.into_iter().chain(self.regions.range(start..end)).map(|(&at, region)| (at, region))
    }

    /// A new mapping.
    pub fn insert(&mut self, start: u64, region: Region) {
        self.take(start, region.end);
        self.regions.insert(start, region);
    }

    /// Take a range out, cutting regions at its ends.
    fn take(&mut self, start: u64, end: u64) -> Vec<(u64, Region)> {
        for at in [start, end] {
            let cut = self.regions.range_mut(..at).next_back().filter(|(_, region)| region.end > at);
            if let Some((&first, region)) = cut {
                let tail = region.tail(at - first);
                region.end = at;
                self.regions.insert(at, tail);
            }
        }
        let mut taken = self.regions.split_off(&start);
        self.regions.append(&mut taken.split_off(&end));
        taken.into_iter().collect()
    }

    fn begin(&mut self, start: u64, end: u64, taken: Vec<(u64, Region)>) -> &mut Flux {
        self.calls += 1;
        let (replaces, coming, stored) = (false, None, AtomicBool::new(false));
        self.flux.push(Flux { id: self.calls, start, end, taken, replaces, coming, stored });
        self.flux.last_mut().expect("just put there")
    }

    /// A call that changes rights or content of a range begins.
    pub fn begin_change(&mut self, start: u64, pages: u64) -> InFlux {
        InFlux(self.begin(start, start + pages, Vec::new()).id)
    }

    /// A call that takes mappings away begins. They are gone at once, so that the addresses may be used again as soon
    /// as the kernel says so.
    pub fn begin_take(&mut self, start: u64, pages: u64) -> InFlux {
        let taken = self.take(start, start + pages);
        InFlux(self.begin(start, start + pages, taken).id)
    }

    /// A call that maps something else over a range begins. `coming`: the file, from a page on, if that is one which
    /// stores reach.
    pub fn begin_replace(&mut self, start: u64, pages: u64, coming: Option<(Arc<File>, u64)>) -> InFlux {
        let taken = self.take(start, start + pages);
        let flux = self.begin(start, start + pages, taken);
        (flux.replaces, flux.coming) = (true, coming);
        InFlux(flux.id)
    }

    fn end(&mut self, call: InFlux) -> Flux {
        let at = self.flux.iter().position(|flux| flux.id == call.0).expect("begun once, ended once");
        self.flux.remove(at)
    }

    /// It has ended; if it failed, all is as before.
    pub fn end_take(&mut self, call: InFlux, done: bool, patience: &dyn Patience) {
        let flux = self.end(call);
        if !done {
            for (at, region) in flux.taken {
                confuse_raced(&region, at, patience);
                self.regions.insert(at, region);
            }
        }
    }

    /// Something else is mapped, and in the map; if not `done`, all is as before.
    pub fn end_replace(&mut self, call: InFlux, done: bool, patience: &dyn Patience) {
        let (start, end) = {
            let flux = self.flux.iter().find(|flux| flux.id == call.0).expect("begun once, ended once");
            (flux.start, if flux.stored.load(Relaxed) { flux.end } else { flux.start })
        };
        self.end_take(call, done, patience);
        if done {
            for page in start..end {
                let Some((region, at)) = self.find(page).region else { continue };
                let file = region.file(at).and_then(|(file, index)| file.page(index));
                if let Some(shadow) = region.own(at).or(file) {
                    shadow.lock(patience).confuse();
                }
            }
        }
    }

    /// What was taken has moved to `to`, with `pages` pages now.
    pub fn end_move(&mut self, call: InFlux, to: u64, pages: u64, patience: &dyn Patience) {
        let Flux { start, end, mut taken, .. } = self.end(call);
        let new_end = start + pages;
        taken.retain_mut(|(at, region)| {
            confuse_raced(region, *at, patience);
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

    /// A change of rights has ended.
    pub fn end_protect(&mut self, call: InFlux, prot: Prot, done: bool, patience: &dyn Patience) {
        let flux = self.end(call);
        for (at, mut region) in self.take(flux.start, flux.end) {
            region.prot = done.then_some(prot);
            for page in own_pages(&region, at, at, region.end) {
                page.lock(patience).take_raced();
            }
            self.regions.insert(at, region);
        }
    }

    /// A call that takes content away has ended.
    pub fn end_forget(&mut self, call: InFlux, forget: Forget, patience: &dyn Patience) {
        let Flux { start, end, .. } = self.end(call);
        let others: Vec<_> = self.flux.iter().map(|flux| (flux.start, flux.end)).collect();
        for (at, region) in self.overlapping(start, end) {
            let (from, to) = (at.max(start), region.end.min(end));
            for (page, shadow) in (from..to).zip(own_pages(region, at, from, to)) {
                let locked = shadow.lock(patience);
                let raced = locked.take_raced();
                if raced && others.iter().any(|&(start, end)| (start..end).contains(&page)) {
                    locked.set_raced();
                }
                match forget {
                    Forget::Now if !raced => locked.forget(region.file(0).is_some()),
                    Forget::Now | Forget::Perhaps => locked.perhaps_forget(),
                    Forget::Not => {}
                }
            }
        }
    }

    /// Pages of private mappings of files in a range that a call is going to fault in, with what each file page is
    /// before. Those already private are among them.
    pub fn begin_populate(&self, start: u64, pages: u64) -> Vec<(u64, Before)> {
        let mut before = Vec::new();
        for (at, region) in self.overlapping(start, start + pages) {
            let What::Private { file: Some((file, offset)), .. } = &region.what else { continue };
            for page in at.max(start)..region.end.min(start + pages) {
                before.extend(file.page(offset + page - at).map(|shadow| (page, shadow.before())));
            }
        }
        before
    }

    /// It has done so: pages may be copies now, of what the file held at a moment in between. Of what another call is
    /// changing nothing is known, be it that this call has all but ended, and was about something that was mapped there
    /// before.
    pub fn end_populate(&self, before: &[(u64, Before)], patience: &dyn Patience) {
        for &(page, ref before) in before {
            let found = self.find(page);
            let Some((region, at)) = found.region else { continue };
            let (Some(own), Some((file, index))) = (region.own(at), region.file(at)) else { continue };
            if found.in_flux() {
                own.lock(patience).confuse();
            } else if let Some(behind) = file.page(index) {
                own.lock(patience).perhaps_copied(behind.since(before));
            }
        }
    }

    /// The file was cut: private copies of its pages from `first` on are gone. What calls under way have taken out of
    /// the map may have lost them or not.
    pub fn cut(&mut self, file: &Arc<File>, first: u64, patience: &dyn Patience) {
        let shown = |region: &Region| match &region.what {
            What::Private { file: Some((shown, offset)), .. } if Arc::ptr_eq(shown, file) => Some(*offset),
            _ => None,
        };
        for (&at, region) in &self.regions {
            let Some(offset) = shown(region) else { continue };
            for page in own_pages(region, at, at + first.saturating_sub(offset), region.end) {
                let locked = page.lock(patience);
                if locked.take_raced() { locked.confuse() } else { locked.forget(true) }
            }
        }
        for (at, region) in self.flux.iter().flat_map(|flux| &flux.taken) {
            let Some(offset) = shown(region) else { continue };
            for page in own_pages(region, *at, at + first.saturating_sub(offset), region.end) {
                page.lock(patience).confuse();
            }
        }
    }
}

/// Shadows of a region's private pages in `[from, to)`; `at` is its start.
fn own_pages(region: &Region, at: u64, from: u64, to: u64) -> impl Iterator<Item = &Page> {
    (from..to.max(from)).filter_map(move |page| region.own(page - at))
}

fn confuse_raced(region: &Region, at: u64, patience: &dyn Patience) {
    for page in own_pages(region, at, at, region.end) {
        let locked = page.lock(patience);
        if locked.take_raced() {
            locked.confuse();
        }
    }
}

/// A map as it was when a fork began.
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
    /// A fork begins. No other call that changes the map is under way until it ends.
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
    /// The child's map, when the fork has ended and no store of the parent is under way.
    pub fn end_fork(&self) -> Map {
        let regions = self.regions.iter().map(|ForkedRegion { start, region, pages, .. }| {
            let mut child = region.clone();
            if let What::Private { pages: shadows, first, .. } = &mut child.what {
                let now = own_pages(region, *start, *start, region.end);
                *shadows = now.zip(pages).map(|(page, begun)| page.forked(begun)).collect();
                *first = 0;
            }
            (*start, child)
        });
        Map { regions: regions.collect(), ..Map::default() }
    }

    /// Files that were cut meanwhile may or may not have lost the child's private copies. To be called once the child
    /// is known to all who cut files, and before it runs.
    pub fn allow_for_cuts(&self, child: &Map, patience: &dyn Patience) {
        for ForkedRegion { start, region, file, .. } in &self.regions {
            let cut = file.zip(region.file(0)).is_some_and(|(moment, (file, _))| file.any_cut_since(moment));
            let Some(child) = child.regions.get(start).filter(|_| cut) else { continue };
            for page in own_pages(child, *start, *start, child.end) {
                page.lock(patience).confuse();
            }
        }
    }
}
