//! What a space has mapped: pages by kind, and page tables.

use crate::frame::{Frame, FrameFlags, Owner};
use crate::primitive::{AtomicI64, AtomicU32, Ordering::*};

/// Kinds of resident pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resident {
    /// Anonymous pages.
    Anon,
    /// Pages of files on devices.
    File,
    /// Pages of shmem.
    Shmem,
    /// Entries in swap.
    Swap,
}

impl Resident {
    /// The kind that the pages of a folio count as where they are mapped.
    #[inline]
    pub fn of(head: &Frame) -> Resident {
        match head.owner() {
            Owner::Anon(_) => Resident::Anon,
            // A page that was truncated from its file has no owner any more, but counts as before.
            _ if head.has(FrameFlags::SWAPBACKED) => Resident::Shmem,
            _ => Resident::File,
        }
    }
}

/// Counters of one space.
#[derive(Default)]
pub struct Counts {
    resident: [AtomicI64; 4],
    /// Page-table pages.
    pub(super) tables: AtomicU32,
}

impl Counts {
    /// Number of pages of one kind.
    pub fn get(&self, kind: Resident) -> i64 {
        self.resident[kind as usize].load(Relaxed)
    }

    pub(super) fn all(&self) -> [i64; 4] {
        self.resident.each_ref().map(|count| count.load(Relaxed))
    }

    /// Number of pages in memory.
    pub fn rss(&self) -> u64 {
        self.all()[..3].iter().sum::<i64>().max(0) as u64
    }

    /// Number of page-table pages.
    pub fn tables(&self) -> u32 {
        self.tables.load(Relaxed)
    }

    /// Number of mapped pages.
    pub fn pages(&self) -> u64 {
        self.all().iter().sum::<i64>().max(0) as u64
    }

    /// Count pages that were mapped or unmapped.
    #[inline]
    pub fn add(&self, kind: Resident, by: i64) {
        self.resident[kind as usize].fetch_add(by, Relaxed);
    }
}
