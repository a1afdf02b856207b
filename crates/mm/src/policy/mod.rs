//! Page-replacement policies that propose: an interface for those who write one, and the best known ones.
//!
//! A [`Replace`] keeps no folios. It names places ([`Spot`]: a list and an end) and answers questions about folios that
//! it is shown ([`View`]); the lists, the memory of what was evicted, locking, counting, looking at page tables,
//! unmapping, writing and freeing are the framework's ([`lru`](crate::lru)). One instance serves one list vector, that
//! is one group on one node, under the vector's lock. Anonymous memory and files, single pages and large folios, clean
//! and dirty ones stand in the same lists.
//!
//! # What happens to a folio
//! 1. It comes: [`Replace::added`] says where to, with [`InsertReason::New`]. If it was evicted before,
//!    [`Replace::returned`] was asked first and may have left a mark on it.
//! 2. Uses through file descriptors are counted on the folio without anybody's lock ([`View::uses`]); the policy sees
//!    them when it sees the folio. Uses through page tables are seen only when somebody looks.
//! 3. Reclaim wants memory. [`Replace::next`] names a place, and [`Replace::judge`] says whether the folio there is to
//!    go, or where it belongs instead. With [`Replace::sample`] many folios are scored, and the lowest go.
//! 4. A folio that is to go is looked up in page tables (unless [`Replace::checks_references`] says no). One that was
//!    used comes back with [`InsertReason::Used`]. One that cannot be evicted now comes back with
//!    [`InsertReason::Kept`], and once its write has ended with [`InsertReason::Wanted`].
//! 5. It is evicted: [`Replace::evicted`] leaves eight bits behind, for when it returns.
//!
//! # What is checked
//! A policy only proposes. A list that does not exist is taken for the first, an empty one is passed over; both count
//! in `policy_wrong`. If nothing is evicted although folios were looked at several times over, folios are taken from
//! the tails of all lists in turn until one is; that counts in `policy_fallback`. So a policy can be slow and unwise,
//! but it cannot lose a folio, free one that is in use, or keep memory from being reclaimed.

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

/// Most lists of a policy.
pub const MAX_LISTS: usize = 24;
/// Most folios that are scored at a time.
pub const MAX_SAMPLE: usize = 128;

/// Makes the instance of a vector.
pub type MakePolicy = fn() -> Box<dyn Replace>;

/// A policy that comes with Pagefold.
#[derive(Clone, Copy, Debug)]
pub struct Rival {
    /// Its word for the knob `reclaim.policy`; also the name of the profile that chooses it.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// Makes the instance of a vector.
    pub make: MakePolicy,
}

macro_rules! rivals {
    ($($name:literal $make:expr, $help:literal;)*) => {
        /// The policies that come with Pagefold. Values of the knob `reclaim.policy` and profiles come from here.
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

/// In a mark: the use that brought the folio has not been told from others yet.
const FIRST: u8 = 0x40;

/// Uses through file descriptors since this was last asked, but for the one that brought the folio.
fn hits(folio: View<'_>) -> u32 {
    let uses = folio.take_uses();
    let first = u32::from(uses > 0 && folio.mark() & FIRST != 0);
    if first > 0 {
        folio.set_mark(folio.mark() & !FIRST);
    }
    uses - first
}

/// Which end of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Where most policies put what comes.
    Head,
    /// Where most policies take from.
    Tail,
}

/// A place: a list and its end.
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

/// Why a folio comes to a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InsertReason {
    /// It is new in memory, or was another policy's or another group's until now.
    New {
        /// An access that says something about the future needs it now; else it was read ahead, or through a file
        /// descriptor.
        faulted: bool,
        /// The task that asked for it, by the machine's numbers; 0: not known.
        task: u32,
    },
    /// It was proposed, and its entries have been used since they were last looked at. They have not any more.
    Used,
    /// It was proposed, and could not be evicted now: it is dirty, being written, locked, or held by somebody.
    Kept,
    /// Reclaim wants it next: its write has ended, or a program said that it does not need it.
    Wanted,
    /// A program said that it is cold.
    Cold,
    /// Somebody had taken it off its list for another reason, and puts it back.
    Back,
}

impl InsertReason {
    /// The end of an ordinary list that it goes to.
    #[inline]
    pub const fn end(self) -> End {
        if matches!(self, InsertReason::Wanted) { End::Tail } else { End::Head }
    }
}

/// What becomes of a folio that a policy is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Judgement {
    /// It is to go.
    Evict,
    /// It belongs there.
    Move(Spot),
}

/// What is known of an evicted folio that returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Past {
    /// What [`Replace::evicted`] left behind.
    pub left: u8,
    /// Pages that were evicted from its vector since.
    pub distance: u64,
    /// Pages that the vector holds now.
    pub resident: u64,
}

/// How many folios are scored, and how many of them go: those with the lowest scores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// Folios to score, at most [`MAX_SAMPLE`].
    pub of: usize,
    /// Folios to take.
    pub take: usize,
}

/// A folio, as a policy sees it.
#[derive(Clone, Copy)]
pub struct View<'a> {
    frame: &'a Frame,
    list: usize,
}

impl<'a> View<'a> {
    /// A folio that stands on a list (any number, if it stands on none).
    pub(crate) fn new(frame: &'a Frame, list: usize) -> View<'a> {
        View { frame, list }
    }

    /// The list that it stands on. Means nothing in [`Replace::added`], [`Replace::returned`] and [`Replace::evicted`].
    pub fn list(&self) -> usize {
        self.list
    }

    /// Pages.
    pub fn pages(&self) -> u64 {
        self.frame.pages() as u64
    }

    /// Can it go nowhere but to swap? Else it is a file's, or may be dropped like one.
    pub fn is_anon(&self) -> bool {
        self.frame.has(FrameFlags::SWAPBACKED)
    }

    /// Must it be written before it can go?
    pub fn is_dirty(&self) -> bool {
        self.frame.has(FrameFlags::DIRTY)
    }

    /// Do page tables map it?
    pub fn is_mapped(&self) -> bool {
        self.frame.mapcount() > 0
    }

    /// The file or the anonymous memory that it is part of.
    pub fn owner(&self) -> Owner {
        self.frame.owner()
    }

    /// Its place there.
    pub fn index(&self) -> PageIndex {
        self.frame.page_index()
    }

    /// Uses through file descriptors since they were last taken, at most 5.
    pub fn uses(&self) -> u32 {
        let flags = self.frame.flags();
        if !flags.contains(FrameFlags::REFERENCED) {
            return 0;
        }
        1 + u32::from(flags.contains(FrameFlags::WORKINGSET)) + flags.uses()
    }

    /// The same, and forget them.
    pub fn take_uses(&self) -> u32 {
        let uses = self.uses();
        if uses > 0 {
            self.frame.clear(FrameFlags::REFERENCED | FrameFlags::WORKINGSET | FrameFlags::USES);
        }
        uses
    }

    /// What the policy has noted on the folio; at first 0. Stays while the folio is in memory and its vector's policy
    /// is the same.
    pub fn mark(&self) -> u8 {
        self.frame.mark()
    }

    /// Note something on the folio.
    pub fn set_mark(&self, mark: u8) {
        self.frame.set_mark(mark);
    }
}

/// A page-replacement policy. All methods but one have a default; see the [module](self) for when each is called.
pub trait Replace: Send {
    /// Number of lists, 1 to [`MAX_LISTS`]; asked once.
    fn lists(&self) -> usize {
        1
    }

    /// Does it matter to the policy whether page tables were used? If not, they are not looked at before a folio goes.
    /// Asked once.
    fn checks_references(&self) -> bool {
        true
    }

    /// To take those with the lowest [`Replace::score`] of many, instead of asking [`Replace::judge`]. The others go to
    /// their list's other end. Asked once.
    fn sample(&self) -> Option<Sample> {
        None
    }

    /// A folio comes: where to? It may be one that the policy knows nothing of, whatever the reason.
    fn added(&mut self, folio: View<'_>, why: InsertReason) -> Spot;

    /// A folio is about to come that was evicted before. It has no mark yet.
    fn returned(&mut self, _folio: View<'_>, _past: Past) {}

    /// Where is a folio to be taken from next? `sizes` has the pages of each list; not all are empty.
    fn next(&mut self, sizes: &[u64]) -> Spot;

    /// What becomes of the folio that stands where [`Replace::next`] said?
    fn judge(&mut self, _folio: View<'_>) -> Judgement {
        Judgement::Evict
    }

    /// How much is it worth to keep it?
    fn score(&mut self, _folio: View<'_>) -> u64 {
        0
    }

    /// The folio is evicted: what is to be known of it if it returns?
    fn evicted(&mut self, _folio: View<'_>) -> u8 {
        0
    }

    /// The folio leaves its list, but not because of a judgement: it is freed, or somebody has taken it away.
    fn removed(&mut self, _folio: View<'_>) {}
}
