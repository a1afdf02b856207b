//! Page-replacement policies that propose: an interface for authors of policies, and the best known policies.
//!
//! A [`Replace`] keeps no folios. It names positions ([`Spot`]: a list and an end) and answers questions about folios
//! that it is shown ([`View`]). The framework ([`lru`](crate::lru)) has the lists and the memory of evictions, and
//! does the locking, counting, looking at page tables, unmapping, writing and freeing. One instance serves one list
//! vector, which is one group on one node, under the vector's lock. Anonymous memory and files, single pages and
//! large folios, clean and dirty ones are in the same lists.
//!
//! # The life of a folio
//! 1. It comes: [`Replace::added`] chooses its position, with [`InsertReason::New`]. If it was evicted before,
//!    [`Replace::returned`] was called first and may have set its mark.
//! 2. The framework counts uses through file descriptors on the folio, without a lock ([`View::uses`]); the policy
//!    sees them when it sees the folio. It sees uses through page tables only when reclaim looks at them.
//! 3. Reclaim wants memory. [`Replace::next`] names a position, and [`Replace::judge`] decides whether to evict the
//!    folio there or to move it elsewhere. With [`Replace::sample`], many folios are scored and the lowest are
//!    evicted.
//! 4. Before it evicts a folio, reclaim looks at its page table entries (unless [`Replace::checks_references`]
//!    returns false). A folio that was used comes back with [`InsertReason::Used`]. One that cannot be evicted now
//!    comes back with [`InsertReason::Kept`], and after its write has ended with [`InsertReason::Wanted`].
//! 5. It is evicted: [`Replace::evicted`] leaves eight bits for its return.
//!
//! # Checks
//! A policy only proposes. The framework replaces a list that does not exist by the first and skips an empty one;
//! both count in `policy_wrong`. If nothing is evicted although folios were looked at several times, it takes folios
//! from the tails of all lists, one list after the other, until one is evicted; that counts in `policy_fallback`. So
//! a policy can be slow and unwise, but it cannot lose a folio, free one that is in use, or keep memory from being
//! reclaimed.

mod arc;
mod fifo;
mod getscan;
#[cfg(any(test, feature = "std"))]
pub mod hostile;
mod kind;
mod lfu;
mod lhd;
mod mru;
mod s3fifo;
mod sieve;

pub use kind::PolicyKind;

use crate::frame::{Frame, FrameFlags, Owner};
use crate::units::*;
use std_alloc::boxed::Box;

/// Largest number of lists of a policy.
pub(crate) const MAX_LISTS: usize = 24;
/// Most folios that are scored at a time.
pub(crate) const MAX_SAMPLE: usize = 128;

/// Makes the instance for a list vector.
pub type MakePolicy = fn() -> Box<dyn Replace>;

/// A policy that comes with Pagefold.
#[derive(Clone, Copy, Debug)]
pub struct Rival {
    /// Its word in the knob `reclaim.policy`, and the name of the profile that selects it.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// Makes the instance for a list vector.
    pub make: MakePolicy,
}

macro_rules! rivals {
    ($($name:literal $make:expr, $help:literal;)*) => {
        /// The policies that come with Pagefold. The values of the knob `reclaim.policy` and the profiles follow from
        /// this table.
        pub const RIVALS: &[Rival] = &[$(Rival { name: $name, help: $help, make: || $make },)*];
        /// Their names.
        pub const NAMES: &[&str] = &[$($name,)*];
    };
}

rivals! {
    "fifo" Box::new(fifo::Fifo),
        "first in, first out, whether pages are used or not: the simplest policy";
    "mru" Box::new(mru::Mru),
        "most recently used first: keeps a part of a loop that is larger than memory";
    "sieve" Box::<sieve::Sieve>::default(),
        "SIEVE (2024): one queue, and a hand that leaves used pages in place";
    "s3-fifo" Box::new(s3fifo::S3Fifo),
        "S3-FIFO (2023): a small queue for new pages, a main queue for those that were used in it";
    "arc" Box::<arc::Arc>::default(),
        "ARC (2003) with clocks: refaults decide how pages used once and pages used often share memory";
    "lfu" Box::new(lfu::Lfu),
        "evicts the least frequently used page of a sample";
    "lhd" Box::<lhd::Lhd>::default(),
        "least hit density (2018): evicts the page of a sample with the fewest expected hits for its space and time";
    "get-scan" Box::<getscan::GetScan>::default(),
        "evicts pages read by scans before pages read by lookups (cache_ext, 2025)";
}

/// In a mark: the use that brought in the folio has not been subtracted yet.
const FIRST: u8 = 0x40;

/// Uses through file descriptors since the last call, without the use that brought in the folio.
fn hits(folio: View<'_>) -> u32 {
    let uses = folio.take_uses();
    let first = u32::from(uses > 0 && folio.mark() & FIRST != 0);
    if first > 0 {
        folio.set_mark(folio.mark() & !FIRST);
    }
    uses - first
}

/// [`Replace::added`] of a policy with two lists, the second of which takes folios that are used again. `second` in
/// the mark: the folio belongs to it.
fn added_to_two(folio: View<'_>, why: InsertReason, second: u8) -> Spot {
    match why {
        InsertReason::New { .. } => folio.set_mark(folio.mark() & second | FIRST),
        InsertReason::Used if folio.mark() & FIRST != 0 => folio.set_mark(folio.mark() & !FIRST),
        InsertReason::Used => folio.set_mark(second),
        InsertReason::Cold => folio.set_mark(0),
        InsertReason::Wanted => return Spot::tail(list_of_two(folio, second)),
        InsertReason::Kept | InsertReason::Back => {}
    }
    Spot::head(list_of_two(folio, second))
}

fn list_of_two(folio: View<'_>, second: u8) -> usize {
    usize::from(folio.mark() & second != 0)
}

/// An end of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Where most policies insert.
    Head,
    /// Where most policies evict.
    Tail,
}

/// A position: a list and an end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Spot {
    /// Number of the list.
    pub list: usize,
    /// Its end.
    pub end: End,
}

impl Spot {
    /// The head of a list.
    pub const fn head(list: usize) -> Spot {
        Spot { list, end: End::Head }
    }

    /// The tail of a list.
    pub const fn tail(list: usize) -> Spot {
        Spot { list, end: End::Tail }
    }
}

/// Why a folio is inserted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InsertReason {
    /// It is new in memory, or belonged to another policy or group until now.
    New {
        /// Whether an access that predicts further use needs it now. Otherwise it was read ahead, or through a file
        /// descriptor.
        faulted: bool,
        /// The task that asked for it, as the machine numbers tasks; 0 if not known.
        task: u32,
    },
    /// It was proposed, and its entries had been used since the last look. The look has cleared that.
    Used,
    /// It was proposed and cannot be evicted now: it is dirty, under writeback, locked, or referenced.
    Kept,
    /// Reclaim should take it next: its write has ended, or a program has said that it does not need it.
    Wanted,
    /// A program has said that it is cold.
    Cold,
    /// It was off its list for another reason and is put back.
    Back,
}

impl InsertReason {
    /// The end of an ordinary list for this reason.
    #[inline]
    pub const fn end(self) -> End {
        if matches!(self, InsertReason::Wanted) { End::Tail } else { End::Head }
    }
}

/// A policy's decision on a folio.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Judgement {
    /// Evict it.
    Evict,
    /// Move it there.
    Move(Spot),
}

/// What is known of an evicted folio that returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Past {
    /// The bits that [`Replace::evicted`] returned.
    pub left: u8,
    /// Pages evicted from its vector since.
    pub distance: u64,
    /// Pages in the vector now.
    pub resident: u64,
}

/// The number of folios to score, and the number to evict of them: those with the lowest scores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// Folios to score, at most [`MAX_SAMPLE`].
    pub of: usize,
    /// Folios to evict.
    pub take: usize,
}

/// A folio, as a policy sees it.
#[derive(Clone, Copy)]
pub struct View<'a> {
    frame: &'a Frame,
    list: usize,
}

impl<'a> View<'a> {
    /// A folio on a list (any number if it is on none).
    pub(crate) fn new(frame: &'a Frame, list: usize) -> View<'a> {
        View { frame, list }
    }

    /// The list that it is on. Meaningless in [`Replace::added`], [`Replace::returned`] and [`Replace::evicted`].
    pub fn list(&self) -> usize {
        self.list
    }

    /// Its size in pages.
    pub fn pages(&self) -> u64 {
        self.frame.pages() as u64
    }

    /// Whether it can only go to swap. Otherwise it belongs to a file or may be dropped like a file's folio.
    pub fn is_anon(&self) -> bool {
        self.frame.has(FrameFlags::SWAPBACKED)
    }

    /// Whether it must be written before its eviction.
    pub fn is_dirty(&self) -> bool {
        self.frame.has(FrameFlags::DIRTY)
    }

    /// Whether page tables map it.
    pub fn is_mapped(&self) -> bool {
        self.frame.mapcount() > 0
    }

    /// The file or the anonymous memory that it belongs to.
    pub fn owner(&self) -> Owner {
        self.frame.owner()
    }

    /// Its index there.
    pub fn index(&self) -> PageIndex {
        self.frame.page_index()
    }

    /// Uses through file descriptors since the last [`View::take_uses`], at most 5.
    pub fn uses(&self) -> u32 {
        let flags = self.frame.flags();
        if !flags.contains(FrameFlags::REFERENCED) {
            return 0;
        }
        1 + u32::from(flags.contains(FrameFlags::WORKINGSET)) + flags.uses()
    }

    /// [`View::uses`], and reset them.
    pub fn take_uses(&self) -> u32 {
        let uses = self.uses();
        if uses > 0 {
            self.frame.clear(FrameFlags::REFERENCED | FrameFlags::WORKINGSET | FrameFlags::USES);
        }
        uses
    }

    /// The policy's mark on the folio, initially 0. It stays while the folio is in memory and the vector keeps its
    /// policy.
    pub fn mark(&self) -> u8 {
        self.frame.mark()
    }

    /// Set the mark.
    pub fn set_mark(&self, mark: u8) {
        self.frame.set_mark(mark);
    }
}

/// A page-replacement policy. All methods but two have a default. The [module](self) says when each is called.
pub trait Replace: Send {
    /// Number of lists, 1 to [`MAX_LISTS`]. Called once.
    fn lists(&self) -> usize {
        1
    }

    /// Whether the policy cares about uses through page tables. If not, reclaim does not look at them before it
    /// evicts a folio. Called once.
    fn checks_references(&self) -> bool {
        true
    }

    /// Evict the folios with the lowest [`Replace::score`] of a sample instead of calling [`Replace::judge`]. The
    /// others go to the other end of their list. Called once.
    fn sample(&self) -> Option<Sample> {
        None
    }

    /// Choose the position of a folio that comes. For any reason it may be a folio that the policy does not know.
    fn added(&mut self, folio: View<'_>, why: InsertReason) -> Spot;

    /// An evicted folio is about to return. It has no mark yet.
    fn returned(&mut self, _folio: View<'_>, _past: Past) {}

    /// Choose where to take a folio from. `sizes` has the pages of each list; not all are empty.
    fn next(&mut self, sizes: &[u64]) -> Spot;

    /// Decide on the folio at the position that [`Replace::next`] returned.
    fn judge(&mut self, _folio: View<'_>) -> Judgement {
        Judgement::Evict
    }

    /// How much it is worth to keep the folio.
    fn score(&mut self, _folio: View<'_>) -> u64 {
        0
    }

    /// The folio is evicted. Returns bits for its return.
    fn evicted(&mut self, _folio: View<'_>) -> u8 {
        0
    }

    /// The folio leaves its list for another reason than a decision of the policy: it is freed or isolated.
    fn removed(&mut self, _folio: View<'_>) {}
}
