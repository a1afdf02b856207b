//! The optimum: the fewest refaults of pages from devices that any replacement policy can have.
//!
//! Problem: a replacement policy can always be compared with a worse one. What is missing is the best possible one for
//! the accesses of this run: Belady's MIN, which knows the future, and its variant that cannot see that a use of a page
//! was the last.
//!
//! Rule: a *page* is a content that moves between frames and blocks of devices. A *use* is an access through a
//! translation, or the copy of a read(2) or write(2); each use advances time by one, unless it is of the same page as the
//! previous use. A *refault* is a use of a page that was read from a device since its last use. At each moment every page
//! that will not be read again occupies a frame. So the run itself is one of the ways to keep pages from use to use in
//! the machine's frames, and the best of these ways (see [`capacity`]) has no more refaults. It needs no knowledge of the
//! future: the choice is made when an interval ends.
//!
//! The second optimum may not evict a page before a policy could have seen that its uses have ended: a page used through
//! page tables stays in memory until its young bit is cleared, its entry is removed, or it leaves memory. These times are
//! known only afterwards, so they are recorded and the choice is made at the end (see [`residency`]).
//!
//! If it is unclear whether two contents are the same page, they count as two: that can only lower both numbers, because
//! new pages are never refaults.
//!
//! Source: L. A. Belady, A study of replacement algorithms for a virtual-storage computer, 1966.

mod capacity;
mod residency;

use mm::event::Event;
use mm::machine::Io;
use mm::units::Pfn;

use capacity::Capacity;
use residency::{Residency, fewest_returns};
use std::collections::HashMap;

/// Refaults of a run, and the fewest for its accesses.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct OptimumReport {
    /// Uses; consecutive uses of one page count once.
    pub uses: u64,
    /// Pages that were used.
    pub pages: u64,
    /// Frames that the machine has.
    pub frames: u64,
    /// Refaults of the run.
    pub refaults: u64,
    /// The fewest possible.
    pub optimum: u64,
    /// The fewest possible if a page residencies from a use until its young bit is checked.
    pub young: u64,
}

impl OptimumReport {
    /// Check the order of the numbers. An error is a bug of this observer.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.optimum <= self.young && self.young <= self.refaults {
            return Ok(());
        }
        Err(format!("the optimum exceeds what the run did: {self:?}"))
    }
}

/// How a page is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum How {
    /// Through a translation: a policy must check the young bit to know it.
    Mapped,
    /// By a system call, which the policy sees.
    Syscall,
}

/// The page number of a frame that holds a copy, until it is known which page that is.
const COPY: u32 = 1 << 31;
/// No moment.
const NEVER: u64 = 0;

/// The state of a frame.
#[derive(Clone, Copy, Default)]
struct Holder {
    /// The page that it holds; 0: a page without a number.
    page: u32,
    /// How often it was allocated.
    turn: u32,
    in_use: bool,
}

/// The state of a page.
#[derive(Clone, Copy, Default)]
struct Page {
    /// Its last use.
    last: u64,
    /// Since when it must stay in memory, if it must.
    since: u64,
    /// Where it was at its last use: frame and turn.
    place: (u32, u32),
}

/// The observer.
pub(crate) struct Optimum {
    now: u64,
    frames: Vec<Holder>,
    /// By number; number 0 is unused.
    pages: Vec<Page>,
    /// The pages that blocks of devices hold.
    blocks: HashMap<(u8, u64), u32>,
    /// For each frame that holds a copy: the page and place that it was copied from.
    copies: HashMap<u32, (u32, (u32, u32))>,
    /// The last use, if nothing else has happened since.
    latest: Option<(Pfn, How)>,
    /// Frames other than that of the page in use.
    others: u64,
    capacity: Capacity,
    residencies: Vec<Residency>,
    pages_used: u64,
    refaults: u64,
    optimum: u64,
}

impl Optimum {
    /// For a machine with frames below `end`, of which `count` are memory.
    pub(crate) fn new(end: usize, count: u64) -> Optimum {
        Optimum {
            now: NEVER,
            frames: vec![Holder::default(); end],
            pages: vec![Page::default()],
            blocks: HashMap::new(),
            copies: HashMap::new(),
            latest: None,
            others: count - 1,
            capacity: Capacity::default(),
            residencies: Vec::new(),
            pages_used: 0,
            refaults: 0,
            optimum: 0,
        }
    }

    /// The page in a frame is used.
    #[inline]
    pub(crate) fn used(&mut self, pfn: Pfn, how: How) {
        // A translation that is not flushed yet may lead to a frame that is free.
        if self.latest != Some((pfn, how)) && self.frames[pfn.index()].in_use {
            self.latest = Some((pfn, how));
            self.uses_another(pfn, how);
        }
    }

    fn uses_another(&mut self, pfn: Pfn, how: How) {
        let number = self.page_in(pfn);
        let place = self.place(pfn);
        let page = &mut self.pages[number as usize];
        self.now += 1;
        let now = self.now;
        if page.last == NEVER {
            self.pages_used += 1;
        } else {
            let kept = page.last + 1 == now || self.capacity.keep(page.last + 1);
            self.optimum += u64::from(!kept);
            self.refaults += u64::from(page.place != place);
        }
        self.capacity.moment(now, self.others);
        (page.last, page.place) = (now, place);
        if page.since != NEVER {
            return;
        }
        match how {
            How::Mapped => page.since = now,
            How::Syscall => self.residencies.push(Residency { page: number, start: now, end: now }),
        }
    }

    fn place(&self, pfn: Pfn) -> (u32, u32) {
        (pfn.0, self.frames[pfn.index()].turn)
    }

    fn new_page(&mut self) -> u32 {
        self.pages.push(Page::default());
        let number = self.pages.len() as u32 - 1;
        assert!(number < COPY, "a page number must fit below the mark of copies");
        number
    }

    /// The number of the page in a frame.
    fn page_in(&mut self, pfn: Pfn) -> u32 {
        let number = match self.frames[pfn.index()].page {
            0 => self.new_page(),
            COPY => self.page_of_copy(pfn),
            known => return known,
        };
        self.frames[pfn.index()].page = number;
        number
    }

    /// If the source of a copy is gone, the copy is the same page, which has moved. Otherwise the copy is a new page.
    fn page_of_copy(&mut self, pfn: Pfn) -> u32 {
        let (number, from) = self.copies.remove(&pfn.0).expect("a frame marked as a copy must have a source");
        let old = self.frames[from.0 as usize];
        let left = old.turn != from.1 || !old.in_use;
        if !left || self.pages[number as usize].place != from {
            return self.new_page();
        }
        self.pages[number as usize].place = self.place(pfn);
        number
    }

    /// A policy could see now that uses of the page have ended.
    fn seen(&mut self, pfn: Pfn) {
        let Some(&Holder { page, .. }) = self.frames.get(pfn.index()) else { return };
        if page == 0 || page == COPY {
            return;
        }
        let since = std::mem::take(&mut self.pages[page as usize].since);
        if since != NEVER {
            self.residencies.push(Residency { page, start: since, end: self.now });
        }
    }

    /// The memory manager reports an event.
    pub(crate) fn event(&mut self, event: Event, args: [u64; 4]) {
        let (first, count) = match event {
            Event::MmPageAlloc | Event::MmPageFree => (args[0] as u32, 1 << args[1]),
            Event::PteClearYoung => (args[0] as u32, args[1] as u32),
            Event::TlbStale => (args[2] as u32, (args[2] >> 40) as u32 + 1),
            _ => return,
        };
        self.latest = None;
        for pfn in (first..first + count).map(Pfn) {
            self.seen(pfn);
            match event {
                Event::MmPageAlloc => self.allocated(pfn),
                Event::MmPageFree => self.frames[pfn.index()].in_use = false,
                _ => {}
            }
        }
    }

    fn allocated(&mut self, pfn: Pfn) {
        let frame = &mut self.frames[pfn.index()];
        if frame.page == COPY {
            self.copies.remove(&pfn.0);
        }
        *frame = Holder { page: 0, turn: frame.turn + 1, in_use: true };
    }

    /// Frames are copied.
    pub(crate) fn copied(&mut self, to: Pfn, from: Pfn, count: u32) {
        self.latest = None;
        for (to, from) in (0..count).map(|i| (to.add(i), from.add(i))) {
            if self.frames[from.index()].page == 0 {
                continue;
            }
            let number = self.page_in(from);
            self.copies.insert(to.0, (number, self.place(from)));
            self.frames[to.index()].page = COPY;
        }
    }

    /// Frames are written to a device, or read from it.
    pub(crate) fn transfer(&mut self, io: &Io) {
        self.latest = None;
        for i in 0..io.pages {
            let (pfn, block) = (io.frame.add(i), (io.device.0, io.block + u64::from(i)));
            if io.write {
                let number = self.page_in(pfn);
                self.blocks.insert(block, number);
                continue;
            }
            let number = self.blocks.get(&block).copied().unwrap_or_else(|| self.new_page());
            self.blocks.insert(block, number);
            self.frames[pfn.index()].page = number;
        }
    }

    /// A program does not need the content of these blocks any more; a later use of them is of another page.
    pub(crate) fn forget(&mut self, device: u8, first: u64, count: u64) {
        if count < self.blocks.len() as u64 {
            for block in first..first + count {
                self.blocks.remove(&(device, block));
            }
        } else {
            self.blocks.retain(|&(of, block), _| of != device || block.wrapping_sub(first) >= count);
        }
    }

    /// The result until now.
    pub(crate) fn report(&self) -> OptimumReport {
        let open = self.pages.iter().zip(0..).filter(|(page, _)| page.since != NEVER);
        let open = open.map(|(page, number)| Residency { page: number, start: page.since, end: self.now });
        let frames = self.others + 1;
        OptimumReport {
            uses: self.now,
            pages: self.pages_used,
            frames,
            refaults: self.refaults,
            optimum: self.optimum,
            young: fewest_returns(self.residencies.iter().copied().chain(open).collect(), frames),
        }
    }
}

#[cfg(test)]
mod tests;
