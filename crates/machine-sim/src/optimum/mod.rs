//! The optimum: how few times pages have to come back from a device, whatever is evicted when.
//!
//! Problem: a replacement policy can always be compared with a worse one. What is missing is the best there could be
//! for the accesses of this run: Belady's MIN, which knows the future, and what becomes of it without sight of a page's
//! last use.
//!
//! Rule: a *page* is a content that moves between frames and blocks of devices. A *use* is an access through a
//! translation, or the copy of a read(2) or write(2); with each the time goes on by one, unless it is of the same page
//! as the one before. A *refault* is a use of a page that was read from a device since its last use. At each moment
//! every page that is not to be read again occupies a frame of its own. So the run itself is one of the ways to keep
//! pages from use to use in as many frames as the machine has, and the best of these ways (see [`room`]) has no more
//! refaults. It needs no look into the future: the choice is made where an interval ends.
//!
//! The second optimum may not give a page up before somebody could have seen that its uses have ended: who uses a page
//! through page tables keeps it in memory until its young bit is cleared, its entry is taken away, or it leaves memory.
//! These times are known only when they have passed, so they are written down and the choice is made at the end (see
//! [`stays`]).
//!
//! Where it is not clear whether two contents are the same page, they are taken for two: that can only make both
//! numbers smaller, as pages that are new are never refaults.
//!
//! Source: L. A. Belady, A study of replacement algorithms for a virtual-storage computer, 1966.

mod room;
mod stays;

use mm::event::Event;
use mm::machine::Io;
use mm::units::Pfn;
use room::Room;
use stays::{Stay, fewest_returns};
use std::collections::HashMap;

/// What a run did and what is the least on its accesses.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct OptimumReport {
    /// Uses; those of one page in a row are one.
    pub uses: u64,
    /// Pages that were used.
    pub pages: u64,
    /// Frames that the machine has.
    pub frames: u64,
    /// Refaults of the run.
    pub refaults: u64,
    /// The fewest there can be.
    pub optimum: u64,
    /// The fewest there can be if a page stays from a use until its young bit is looked at.
    pub young: u64,
}

impl OptimumReport {
    /// Are the numbers in their order? If not, something here is wrong.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.optimum <= self.young && self.young <= self.refaults {
            return Ok(());
        }
        Err(format!("the optimum is not one: {self:?}"))
    }
}

/// How a page is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum How {
    /// Through a translation: who wants to know has to look.
    Mapped,
    /// By a call, which tells.
    Syscall,
}

/// In a frame's page: it is a copy, and which page it is has yet to be seen.
const COPY: u32 = 1 << 31;
/// No moment.
const NEVER: u64 = 0;

/// What is known of a frame.
#[derive(Clone, Copy, Default)]
struct Holder {
    /// The page that it holds; 0: one that has no number yet.
    page: u32,
    /// Counts how often it was handed out.
    turn: u32,
    in_use: bool,
}

/// What is known of a page.
#[derive(Clone, Copy, Default)]
struct Page {
    /// Its last use.
    last: u64,
    /// Since when it has to stay in memory, if it has to.
    since: u64,
    /// Where it was then.
    place: (u32, u32),
}

/// The observer.
pub(crate) struct Optimum {
    now: u64,
    frames: Vec<Holder>,
    /// By number; the first is none.
    pages: Vec<Page>,
    /// What blocks of devices hold.
    blocks: HashMap<(u8, u64), u32>,
    /// What frames are copies of: page and place.
    copies: HashMap<u32, (u32, (u32, u32))>,
    /// The last use, if nothing has happened since.
    latest: Option<(Pfn, How)>,
    /// Frames besides the one in use.
    others: u64,
    room: Room,
    stays: Vec<Stay>,
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
            room: Room::default(),
            stays: Vec::new(),
            pages_used: 0,
            refaults: 0,
            optimum: 0,
        }
    }

    /// The page in a frame is used.
    #[inline]
    pub(crate) fn used(&mut self, pfn: Pfn, how: How) {
        // A translation that is not flushed yet may still be used: nobody has this frame any more, or yet.
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
            let kept = page.last + 1 == now || self.room.keep(page.last + 1);
            self.optimum += u64::from(!kept);
            self.refaults += u64::from(page.place != place);
        }
        self.room.moment(now, self.others);
        (page.last, page.place) = (now, place);
        if page.since != NEVER {
            return;
        }
        match how {
            How::Mapped => page.since = now,
            How::Syscall => self.stays.push(Stay { page: number, start: now, end: now }),
        }
    }

    fn place(&self, pfn: Pfn) -> (u32, u32) {
        (pfn.0, self.frames[pfn.index()].turn)
    }

    fn new_page(&mut self) -> u32 {
        self.pages.push(Page::default());
        let number = self.pages.len() as u32 - 1;
        assert!(number < COPY, "so many pages cannot be told apart");
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

    /// What was copied has moved, if it is no longer where it was. Else it is still that page, and its copy is another.
    fn page_of_copy(&mut self, pfn: Pfn) -> u32 {
        let (number, from) = self.copies.remove(&pfn.0).expect("it is marked as a copy");
        let old = self.frames[from.0 as usize];
        let left = old.turn != from.1 || !old.in_use;
        if !left || self.pages[number as usize].place != from {
            return self.new_page();
        }
        self.pages[number as usize].place = self.place(pfn);
        number
    }

    /// Nobody needs to wait any more to see that uses of the page have ended.
    fn looked_at(&mut self, pfn: Pfn) {
        let Some(&Holder { page, .. }) = self.frames.get(pfn.index()) else { return };
        if page == 0 || page == COPY {
            return;
        }
        let since = std::mem::take(&mut self.pages[page as usize].since);
        if since != NEVER {
            self.stays.push(Stay { page, start: since, end: self.now });
        }
    }

    /// The memory manager tells of something.
    pub(crate) fn event(&mut self, event: Event, args: [u64; 4]) {
        let (first, count) = match event {
            Event::MmPageAlloc | Event::MmPageFree => (args[0] as u32, 1 << args[1]),
            Event::PteClearYoung => (args[0] as u32, args[1] as u32),
            Event::TlbStale => (args[2] as u32, (args[2] >> 40) as u32 + 1),
            _ => return,
        };
        self.latest = None;
        for pfn in (first..first + count).map(Pfn) {
            self.looked_at(pfn);
            match event {
                Event::MmPageAlloc => self.handed_out(pfn),
                Event::MmPageFree => self.frames[pfn.index()].in_use = false,
                _ => {}
            }
        }
    }

    fn handed_out(&mut self, pfn: Pfn) {
        let frame = &mut self.frames[pfn.index()];
        if frame.page == COPY {
            self.copies.remove(&pfn.0);
        }
        *frame = Holder { page: 0, turn: frame.turn + 1, in_use: true };
    }

    /// Frames get the content of others.
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

    /// A program does not need what these blocks hold: if it does after all, that is another page.
    pub(crate) fn forget(&mut self, device: u8, first: u64, count: u64) {
        if count < self.blocks.len() as u64 {
            for block in first..first + count {
                self.blocks.remove(&(device, block));
            }
        } else {
            self.blocks.retain(|&(of, block), _| of != device || block.wrapping_sub(first) >= count);
        }
    }

    /// What was found until now.
    pub(crate) fn report(&self) -> OptimumReport {
        let open = self.pages.iter().zip(0..).filter(|(page, _)| page.since != NEVER);
        let open = open.map(|(page, number)| Stay { page: number, start: page.since, end: self.now });
        let frames = self.others + 1;
        OptimumReport {
            uses: self.now,
            pages: self.pages_used,
            frames,
            refaults: self.refaults,
            optimum: self.optimum,
            young: fewest_returns(self.stays.iter().copied().chain(open).collect(), frames),
        }
    }
}

#[cfg(test)]
mod tests;
