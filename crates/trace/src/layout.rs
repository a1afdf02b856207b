//! A trace at other addresses than it was recorded at.
//!
//! A replay maps memory where the recorded program had it. On another day the kernel would have placed it elsewhere
//! (address-space randomisation), and what depends on addresses would come out otherwise: which sets of a TLB pages
//! share, which pages a fault maps around its own, which table an entry is in, in what order aging meets pages.
//!
//! A trace's meaning stays the same if each range that one of its events names is moved as a whole, and no two ranges
//! come to overlap. So all ranges of all processes that touch or overlap, at whatever time, are one *island*, together
//! with the pages that are touched, and an island moves as a whole. (A forked child has its parent's addresses, so all
//! processes share the islands.)
//!
//! Linux draws a place for each of program, mappings and stack: islands that are less than [`APART`] pages apart are a
//! *region*, and all islands of a region move down by the same number of pages, but for two things:
//! - Islands with alignment move by whole blocks of 2 MiB: those with a mapping of 2 MiB or more that begins at such a
//!   block, as the kernel gives large mappings, with one that the program cut to one, as allocators do, or with advice
//!   to use large folios.
//! - An island moves by some blocks more where the one above it would otherwise come to overlap it.

use crate::event::{Event, PAGE_SHIFT, Packed, Run, ThreadId};
use crate::header::Header;
use crate::source::{Events, Source};
use abi::{Advice, Call};
use program::rng::Rng;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Pages of 2 MiB.
const BLOCK: u64 = 512;
/// Regions are this many pages apart: 1 GiB.
const APART: u64 = 1 << 18;
/// The most blocks by which a region moves.
const BLOCKS: u64 = 256;
/// No mapping of a program is placed below this page, or ends above that one.
const LOWEST: u64 = 16;
const HIGHEST: u64 = 1 << (47 - PAGE_SHIFT);

/// Pages that move together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Island {
    start: u64,
    end: u64,
    /// Whether it moves by whole blocks.
    aligned: bool,
}

/// The islands of a trace, ascending.
#[derive(Debug, Default)]
pub struct Islands(Vec<Island>);

impl Islands {
    /// Read all of a trace.
    pub fn of<'a, S: Source>(source: &'a S) -> Result<Islands, <S::Stream<'a> as Events>::Error> {
        let mut found = Found::default();
        for thread in (0..source.header().threads.len() as u32).map(ThreadId) {
            let (mut stream, mut mapped) = (source.stream(thread), (0, 0));
            while let Some(event) = stream.next_event()? {
                found.note(&event, &mut mapped);
            }
        }
        Ok(found.islands())
    }

    /// Places for the islands, drawn from a seed. If the lowest do not fit, nothing is moved.
    fn draw(&self, seed: u64) -> Layout {
        let mut rng = Rng::new(seed);
        let mut moved: Vec<Moved> = Vec::with_capacity(self.0.len());
        // The start of the island above, by how much that moved, and by how much its region does.
        let (mut above, mut least, mut drawn) = (u64::MAX, 0_u64, (0, 0));
        for (at, island) in self.0.iter().enumerate().rev() {
            let gap = above - island.end;
            if gap >= APART {
                drawn = self.draw_region(at, &mut rng);
            }
            let (blocks, pages) = drawn;
            let wanted = blocks * BLOCK + if island.aligned { 0 } else { pages };
            let missing = least.saturating_sub(gap.saturating_add(wanted)).div_ceil(BLOCK);
            let down = if island.end > HIGHEST { 0 } else { wanted + missing * BLOCK };
            if down > island.start.saturating_sub(LOWEST) {
                return Layout::default();
            }
            moved.push(Moved { start: island.start, end: island.end, down });
            (above, least) = (island.start, down);
        }
        moved.reverse();
        Layout(moved)
    }

    /// By how many blocks, and pages more, the region moves whose highest island this is. It keeps half of the room
    /// below it, for islands that have to move farther.
    fn draw_region(&self, highest: usize, rng: &mut Rng) -> (u64, u64) {
        let mut lowest = highest;
        while lowest > 0 && self.0[lowest].start - self.0[lowest - 1].end < APART {
            lowest -= 1;
        }
        let below = lowest.checked_sub(1).map_or(LOWEST, |below| self.0[below].end);
        let room = self.0[lowest].start.saturating_sub(below) / 2;
        (rng.below((room / BLOCK).min(BLOCKS) + 1), rng.below(room.min(BLOCK - 1) + 1))
    }
}

/// What a pass over a trace has found.
#[derive(Default)]
struct Found {
    /// Islands by their starts: the end, and whether it is aligned. No two touch.
    islands: BTreeMap<u64, (u64, bool)>,
    /// The one that was found last.
    last: Option<Island>,
}

impl Found {
    /// Note an event of a thread, whose last mapping is `mapped`.
    fn note(&mut self, event: &Event, mapped: &mut (u64, u64)) {
        match *event {
            Event::Run(Run { page, .. }) | Event::Content { page, .. } => {
                self.add((page, page.saturating_add(1)), false);
            }
            Event::Call { call: Call::Mmap(map), value, .. } => {
                *mapped = pages(value, map.len);
                self.add(*mapped, is_large(*mapped) && mapped.0.is_multiple_of(BLOCK));
            }
            Event::Call { call: Call::Mremap(remap), value, .. } => {
                self.add(pages(remap.addr, remap.old_len), false);
                self.add(pages(value, remap.new_len), false);
            }
            Event::Call { call, .. } => {
                if let Some((addr, len)) = call.range() {
                    let range = pages(addr, len);
                    let large = matches!(call, Call::Madvise(_, _, Advice::HugePage | Advice::Collapse));
                    let cuts = matches!(call, Call::Munmap(..)) && cuts_to_block(*mapped, range);
                    self.add(range, large || cuts);
                }
            }
            _ => {}
        }
    }

    /// A range moves as a whole, with all that it touches.
    fn add(&mut self, (start, end): (u64, u64), aligned: bool) {
        let known = |last: Island| last.start <= start && end <= last.end && (last.aligned || !aligned);
        if self.last.is_some_and(known) {
            return;
        }
        let mut island = Island { start, end, aligned };
        while let Some((&first, &(last, aligned))) = self.islands.range(..=island.end).next_back()
            && island.start <= last
        {
            self.islands.remove(&first);
            island.start = island.start.min(first);
            island.end = island.end.max(last);
            island.aligned |= aligned;
        }
        self.islands.insert(island.start, (island.end, island.aligned));
        self.last = Some(island);
    }

    fn islands(self) -> Islands {
        let island = |(start, (end, aligned))| Island { start, end, aligned };
        Islands(self.islands.into_iter().map(island).collect())
    }
}

/// The pages of a range in bytes; an empty one counts as a page.
const fn pages(addr: u64, len: u64) -> (u64, u64) {
    let first = addr >> PAGE_SHIFT;
    let last = addr.saturating_add(len.saturating_sub(1)) >> PAGE_SHIFT;
    (first, last + 1)
}

const fn is_large((start, end): (u64, u64)) -> bool {
    end - start >= BLOCK
}

/// Whether unmapping `cut` leaves of a large mapping what begins or ends at a block.
fn cuts_to_block(mapped: (u64, u64), cut: (u64, u64)) -> bool {
    let front = cut.0 == mapped.0 && cut.1 < mapped.1 && cut.1.is_multiple_of(BLOCK);
    let back = cut.1 == mapped.1 && cut.0 > mapped.0 && cut.0.is_multiple_of(BLOCK);
    is_large(mapped) && (front || back)
}

/// Pages, and by how many they are moved down.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Moved {
    start: u64,
    end: u64,
    down: u64,
}

/// Where the pages of a trace are, ascending; all others are where they were.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Layout(Vec<Moved>);

impl Layout {
    /// By how much a page is moved. `recent` says what the last look-up found.
    #[inline]
    fn down(&self, page: u64, recent: &mut Moved) -> u64 {
        if page < recent.start || recent.end <= page {
            let at = self.0.partition_point(|moved| moved.end <= page);
            let found = self.0.get(at).filter(|moved| moved.start <= page);
            *recent = found.copied().unwrap_or(Moved { start: page, end: page + 1, down: 0 });
        }
        recent.down
    }

    fn page(&self, page: &mut u64, recent: &mut Moved) {
        *page -= self.down(*page, recent);
    }

    fn addr(&self, addr: &mut u64, recent: &mut Moved) {
        *addr -= self.down(*addr >> PAGE_SHIFT, recent) << PAGE_SHIFT;
    }

    /// The event at its other addresses.
    #[inline]
    fn event(&self, mut event: Event, recent: &mut Moved) -> Event {
        match &mut event {
            Event::Run(run) => self.page(&mut run.page, recent),
            Event::Content { page, .. } => self.page(page, recent),
            Event::Call { call, value, .. } => self.call(call, value, recent),
            _ => {}
        }
        event
    }

    fn call(&self, call: &mut Call<'static>, value: &mut u64, recent: &mut Moved) {
        match call {
            Call::Mmap(map) => {
                self.addr(value, recent);
                map.addr = map.addr.map(|_| *value);
            }
            Call::Mremap(remap) => {
                self.addr(&mut remap.addr, recent);
                self.addr(value, recent);
                remap.fixed = remap.fixed.map(|_| *value);
            }
            other => other.addr_mut().into_iter().for_each(|addr| self.addr(addr, recent)),
        }
    }
}

/// A trace at other addresses.
#[derive(Clone)]
pub struct Elsewhere<S> {
    source: S,
    layout: Arc<Layout>,
}

impl<S: Source> Elsewhere<S> {
    /// The trace that has these islands, at addresses that are drawn from a seed.
    pub fn new(source: S, islands: &Islands, seed: u64) -> Elsewhere<S> {
        Elsewhere { source, layout: Arc::new(islands.draw(seed)) }
    }
}

impl<S: Source> Source for Elsewhere<S> {
    type Stream<'a>
        = Stream<'a, S::Stream<'a>>
    where
        S: 'a;

    fn header(&self) -> &Header {
        self.source.header()
    }

    fn stream(&self, thread: ThreadId) -> Self::Stream<'_> {
        Stream { events: self.source.stream(thread), layout: &self.layout, recent: Moved::default() }
    }

    fn first_contents(&self, process: u32) -> impl Iterator<Item = (u64, Packed)> {
        let (layout, mut recent) = (&self.layout, Moved::default());
        let contents = self.source.first_contents(process);
        contents.map(move |(page, packed)| (page - layout.down(page, &mut recent), packed))
    }
}

/// The events of a thread of [`Elsewhere`].
pub struct Stream<'a, E> {
    events: E,
    layout: &'a Layout,
    recent: Moved,
}

impl<E: Events> Events for Stream<'_, E> {
    type Error = E::Error;

    #[inline]
    fn next_event(&mut self) -> Result<Option<Event>, E::Error> {
        let event = self.events.next_event()?;
        Ok(event.map(|event| self.layout.event(event, &mut self.recent)))
    }
}

#[cfg(test)]
mod tests;
