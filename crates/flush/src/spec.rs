//! What a TLB is: a specification that runs, for tests and models of kernels.
//!
//! A CPU does not read page tables at each access. This is what it may do instead:
//!
//! 1. *It keeps what it read.* An access for which nothing is cached reads the entry (a walk): at any moment, without
//!    a lock. If the entry maps a frame, the CPU caches page, frame and right to write, under the address-space number
//!    that is loaded. It also caches where the table is, and walks through a cached table without looking above it.
//! 2. *It uses what it kept*, whatever the entry says meanwhile. What is cached under another number waits until that
//!    number is loaded again: the number counts, not the root.
//! 3. *It asks again only for more rights.* A store for which a translation without the right to write is cached walks
//!    once more. An absent entry is never cached, so an entry that gains a page or a right needs no flush.
//! 4. *It forgets when it is told*: by a flush, or when a number is loaded whose translations are not to be kept. Each
//!    flush of translations drops cached tables of their number, too.
//! 5. *It may forget at any moment.* Here it never does, because a kernel sees a fault only through what is kept.
//!
//! Each access is one step: an interrupt comes before or after it. A program that reads through a [`Cache`] after every
//! call of a kernel finds what the kernel forgot to flush.

use crate::host::{Asid, Broadcast, Flush};
use base::units::*;
use std_alloc::vec::Vec;

/// What an entry maps.
///
/// ```
/// # use pagefold_flush::{Order, Pfn, Vpn, spec::Translation};
/// let page = Translation { page: Vpn(5), frame: Pfn(3), order: Order::ZERO, writable: false };
/// let large = Translation { page: Vpn(512), frame: Pfn(1024), order: Order(9), writable: true };
/// assert_ne!(page, large);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Translation {
    /// The first page.
    pub page: Vpn,
    /// Its frame; the others follow.
    pub frame: Pfn,
    /// log2 of the number of pages.
    pub order: Order,
    /// Whether it allows stores.
    pub writable: bool,
}

impl Translation {
    fn frame_of(&self, page: Vpn) -> Option<Pfn> {
        let offset = page.0.checked_sub(self.page.0).filter(|&offset| offset >> self.order.0 == 0)?;
        Some(Pfn(self.frame.0 + offset as u32))
    }
}

/// Page tables, as a walk reads them.
///
/// ```
/// use pagefold_flush::{Asid, Flush, Order, Pfn, Vpn, spec::{Cache, Tables, Translation}};
///
/// /// One table, with one entry.
/// struct OneEntry(Option<Pfn>);
/// impl Tables for OneEntry {
///     fn table(&self, root: Pfn, _page: Vpn) -> Option<Pfn> {
///         Some(root)
///     }
///     fn entry(&self, _table: Pfn, page: Vpn) -> Option<Translation> {
///         self.0.map(|frame| Translation { page, frame, order: Order::ZERO, writable: false })
///     }
/// }
///
/// let mut cpu = Cache::default();
/// cpu.load(Pfn(100), Asid(0), false);
/// assert_eq!(cpu.translate(Vpn(5), false, &OneEntry(Some(Pfn(3)))), Some(Pfn(3)));
/// let cleared = OneEntry(None);
/// assert_eq!(cpu.translate(Vpn(5), false, &cleared), Some(Pfn(3)), "the CPU still uses it");
/// assert_eq!(cpu.translate(Vpn(5), true, &cleared), None, "a store walks");
/// cpu.flush(Flush::Pages { start: Vpn(5), count: 1, stride: Order::ZERO });
/// assert_eq!(cpu.translate(Vpn(5), false, &cleared), None);
/// ```
pub trait Tables {
    /// The table that maps a page, in the tree under a root.
    fn table(&self, root: Pfn, page: Vpn) -> Option<Pfn>;

    /// What the entry of a page maps in a table. The table may have left its tree since the CPU cached where it is.
    fn entry(&self, table: Pfn, page: Vpn) -> Option<Translation>;
}

/// Pages that one table maps.
const PAGES_OF_A_TABLE: u64 = 512;

/// The translations and tables that one CPU has cached, each with its number and with the root that was walked.
///
/// ```
/// # use pagefold_flush::{Asid, Flush, Pfn, spec::Cache};
/// let mut cpu = Cache::default();
/// cpu.load(Pfn(100), Asid(0), false);
/// cpu.flush(Flush::Current);
/// assert_eq!(cpu.usable().count(), 0);
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default, Hash)]
pub struct Cache {
    loaded: Option<(Pfn, Asid)>,
    kept: Vec<(Pfn, Asid, Translation)>,
    /// The tables of page numbers divided by [`PAGES_OF_A_TABLE`].
    tables: Vec<(Pfn, Asid, u64, Pfn)>,
}

impl Cache {
    /// The CPU loads a root under a number. [`Pfn::NONE`]: it can use no translation from now on.
    pub fn load(&mut self, root: Pfn, asid: Asid, keep: bool) {
        if !keep {
            self.drop_where(|_, number| number == asid, Flush::All);
        }
        self.loaded = root.is_some().then_some((root, asid));
    }

    /// The CPU drops translations.
    pub fn flush(&mut self, what: Flush) {
        match (what, self.loaded) {
            (Flush::All, _) => self.drop_where(|_, _| true, what),
            (_, Some((_, loaded))) => self.drop_where(|_, number| number == loaded, what),
            (_, None) => {}
        }
    }

    /// All CPUs drop translations; this is one of them.
    pub fn broadcast(&mut self, what: Broadcast) {
        match what {
            Broadcast::All => self.drop_where(|_, _| true, Flush::All),
            Broadcast::Of(root, what) => self.drop_where(|of, _| of == root, what),
        }
    }

    fn drop_where(&mut self, is_meant: impl Fn(Pfn, Asid) -> bool, what: Flush) {
        let covers = |kept: &Translation| match what {
            Flush::All | Flush::Current => true,
            Flush::Pages { start, count, stride } => {
                let end = start.0 + (u64::from(count) << stride.0);
                kept.page.0 < end && start.0 < kept.page.0 + (1 << kept.order.0)
            }
        };
        self.kept.retain(|(root, number, kept)| !(is_meant(*root, *number) && covers(kept)));
        self.tables.retain(|(root, number, ..)| !is_meant(*root, *number));
    }

    /// A program on this CPU reads a page or stores to it. Returns the frame that the access reaches; `None`: a fault.
    pub fn translate(&mut self, page: Vpn, store: bool, tables: &impl Tables) -> Option<Pfn> {
        let (root, asid) = self.loaded?;
        let usable = |(_, number, kept): &(Pfn, Asid, Translation)| {
            kept.frame_of(page).filter(|_| *number == asid && (kept.writable || !store))
        };
        if let Some(frame) = self.kept.iter().find_map(usable) {
            return Some(frame);
        }
        let region = page.0 / PAGES_OF_A_TABLE;
        let cached = self.tables.iter().find(|(_, number, of, _)| (*number, *of) == (asid, region));
        let table = match cached {
            Some(&(.., table)) => table,
            None => {
                let table = tables.table(root, page)?;
                self.tables.push((root, asid, region, table));
                table
            }
        };
        let entry = tables.entry(table, page).filter(|entry| entry.writable || !store)?;
        self.kept.retain(|(_, number, kept)| *number != asid || kept.frame_of(page).is_none());
        self.kept.push((root, asid, entry));
        entry.frame_of(page)
    }

    /// What a program on this CPU can use without a walk.
    pub fn usable(&self) -> impl Iterator<Item = Translation> {
        let loaded = self.loaded;
        let of_it = move |&&(_, number, _): &&(Pfn, Asid, Translation)| {
            loaded.is_some_and(|(_, asid)| asid == number)
        };
        self.kept.iter().filter(of_it).map(|&(.., kept)| kept)
    }
}
