//! Floors 3 to 5 in one hand: the ground that files, mappings and reclaim stand on.

use crate::alloc::{Allocator, Means, NeedsReclaim, Reserve, Watermark};
use crate::event::{Concern, Event};
use crate::frame::{FrameFlags, Owner};
use crate::knobs::{Knobs, ThpDefrag};
use crate::lru::Lru;
use crate::machine::{Machine, Work};
use crate::mempolicy::NodePreference;
use crate::mmu::Mmu;
use crate::swap::Swap;
use crate::table::{Landing, Tables};
use crate::tlb::{FileSettled, UnmapBatch};
use crate::units::*;

/// What an operation could not get. It leaves nothing half done; the facade makes room and runs it again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shortage {
    /// No zone has a block to spare.
    Zone(NeedsReclaim),
    /// This control group is at its limit.
    Group(GroupId),
    /// Memory has no block for a larger folio, which smaller ones could do for; something may be done for it.
    Block {
        /// What was wanted.
        needs: NeedsReclaim,
        /// Try more than once, and wait for others?
        hard: bool,
    },
}

/// What may be done for a block that memory does not have, where smaller folios would do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Worth {
    /// Tell kswapd, or kcompactd.
    pub wake: bool,
    /// Compact and reclaim before going on.
    pub wait: bool,
    /// Try more than once, and wait for others.
    pub hard: bool,
}

impl Worth {
    /// Nothing.
    pub const NOTHING: Worth = Worth { wake: false, wait: false, hard: false };
    /// What a large folio of a file is worth.
    pub const FILE: Worth = Worth { wake: true, wait: true, hard: false };

    /// What a large folio of anonymous memory is worth, by the knob `thp.defrag`. `asked`: MADV_HUGEPAGE asked for it.
    pub fn of_anon(knobs: &Knobs, asked: bool) -> Worth {
        let wake = Worth { wake: true, ..Worth::NOTHING };
        let wait = Worth { wait: true, hard: asked, ..Worth::NOTHING };
        match (knobs.defrag(), asked) {
            (ThpDefrag::Always, _) | (ThpDefrag::DeferMadvise | ThpDefrag::Madvise, true) => wait,
            (ThpDefrag::Defer, _) | (ThpDefrag::DeferMadvise, false) => wake,
            (ThpDefrag::Madvise, false) | (ThpDefrag::Never, _) => Worth::NOTHING,
        }
    }
}

impl From<NeedsReclaim> for Shortage {
    fn from(needs: NeedsReclaim) -> Shortage {
        Shortage::Zone(needs)
    }
}

/// What memory is asked for by, as far as it says something about the use of what was there before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AllocCause {
    /// A call, or a fault in a range where accesses say nothing about what will be used next.
    Other,
    /// A fault in another range.
    Fault,
    /// A call writes over it. That its page was in memory before says nothing about what is used.
    Overwrite,
}

/// On whose behalf, and how urgently, memory is asked for. It is handed down by value through every fault: two words,
/// so that registers hold it.
#[derive(Clone, Copy, Debug)]
pub struct Gfp {
    /// Where it is to come from.
    pub place: NodePreference,
    /// The group that pays.
    pub group: GroupId,
    /// The watermark that must stay.
    pub mark: Watermark,
    /// How much of the reserves may be used.
    pub reserve: Reserve,
    /// May pages be read that nobody has asked for yet?
    pub read_ahead: bool,
    /// For folios of this order, and larger ones, has been done what was worth it, and smaller ones must do.
    pub given_up: Order,
    /// May mobility groups be mixed whatever `vm.defrag_mode` says? Nothing else has helped.
    pub mixes: bool,
    /// What asks.
    pub cause: AllocCause,
}

const _: () = assert!(size_of::<Gfp>() == 16);

impl Gfp {
    /// The first try of an ordinary request of `group`.
    pub const fn user(group: GroupId) -> Gfp {
        Gfp {
            place: NodePreference::NEAR,
            group,
            mark: Watermark::Low,
            reserve: Reserve::None,
            read_ahead: true,
            given_up: Order(MAX_ORDER.0 + 1),
            mixes: false,
            cause: AllocCause::Other,
        }
    }

    /// Is it for a fault, in a range where accesses say something about what will be used next?
    #[inline]
    pub fn is_faulted(self) -> bool {
        self.cause == AllocCause::Fault
    }

    /// What it may do to get memory.
    pub const fn means(&self) -> Means {
        Means { mark: self.mark, reserve: self.reserve, mixes: self.mixes }
    }
}

/// State of floors 3 to 5.
pub struct Memory<M> {
    mmu: Mmu<M>,
    /// Swap space.
    pub swap: Swap,
    /// Free memory.
    pub alloc: Allocator,
    /// Page tables.
    pub tables: Tables,
    /// Lists of folios by age, and the groups that they are charged to.
    pub lru: Lru,
}

impl<M> core::ops::Deref for Memory<M> {
    type Target = Mmu<M>;

    #[inline]
    fn deref(&self) -> &Mmu<M> {
        &self.mmu
    }
}

impl<M: Machine> Memory<M> {
    /// Put the rooms together.
    pub fn new(mmu: Mmu<M>, swap: Swap, alloc: Allocator, lru: Lru) -> Memory<M> {
        Memory { mmu, swap, alloc, tables: Tables::default(), lru }
    }

    /// Floors 1 to 4.
    #[inline]
    pub fn mmu(&self) -> &Mmu<M> {
        &self.mmu
    }

    /// Zero pages of a folio that nobody sees yet.
    #[expect(clippy::disallowed_methods, reason = "nobody sees the pages")]
    pub fn zero(&self, first: Pfn, count: u32) {
        self.assert_unseen(first);
        self.mmu.machine.zero(first, count);
        self.mmu.charge(Work::ZeroPage, u64::from(count));
    }

    /// Copy pages to some of a folio that nobody sees yet.
    #[expect(clippy::disallowed_methods, reason = "nobody sees the pages that are written")]
    pub fn copy(&self, to: Pfn, from: Pfn, count: u32) {
        self.assert_unseen(to);
        self.mmu.machine.copy(to, from, count);
        self.mmu.charge(Work::CopyPage, u64::from(count));
    }

    /// Copy a folio that is moved to a new one of its size. Nobody maps it, and `batch`, in which the loss of its
    /// entries was noted, owes nothing for those that allowed stores; it is locked, so that it stays so.
    #[expect(clippy::disallowed_methods, reason = "it is a copy")]
    pub fn copy_folio(&self, from: Pfn, to: Pfn, batch: &UnmapBatch) -> Landing {
        let frame = &self.frames[from];
        assert!(
            frame.has(FrameFlags::LOCKED) && frame.mapcount() == 0,
            "{from} is copied while it is in use"
        );
        assert!(!batch.owes_for_writable(), "{from} is copied while CPUs may store to it");
        let concern = Concern::Frames { first: from, count: frame.pages() };
        self.event(Event::TlbHazard, concern.args());
        self.copy(to, from, frame.pages());
        Landing::copied(from, to)
    }

    /// Copy a folio that is used meanwhile to one that nobody sees yet. What is stored to it from now on is not in the
    /// copy.
    pub fn copy_in_use(&self, from: Pfn, to: Pfn) {
        assert!(self.frames[from].has(FrameFlags::LOCKED), "{from} is copied by who has not locked it");
        self.copy(to, from, self.frames[from].pages());
    }

    /// A folio was copied while it was in use, and the entries that were then taken away say that it was not written
    /// since: as [`Self::copy_folio`], without the copy.
    #[expect(clippy::disallowed_methods, reason = "it is a copy, and nobody has written since")]
    pub fn copied_in_use(&self, from: Pfn, to: Pfn, batch: &UnmapBatch) -> Landing {
        let frame = &self.frames[from];
        assert!(frame.has(FrameFlags::LOCKED) && frame.mapcount() == 0, "{from} is in use after its copy");
        assert!(!batch.owes_for_writable(), "{from} counts as copied while CPUs may store to it");
        let concern = Concern::Frames { first: from, count: frame.pages() };
        self.event(Event::TlbHazard, concern.args());
        Landing::copied(from, to)
    }

    /// Zero pages of a folio of a file, of which nobody holds a translation that was taken away.
    #[expect(clippy::disallowed_methods, reason = "what was owed for the file has been paid")]
    pub fn zero_in_file(&self, first: Pfn, count: u32, settled: &FileSettled) {
        let head = &self.frames[self.frames.head(first)];
        assert_eq!(head.owner(), Owner::File(settled.file()), "{first} is of another file");
        self.mmu.machine.zero(first, count);
        self.mmu.charge(Work::ZeroPage, u64::from(count));
    }

    /// Is a page mapped by nobody, and in no cache, or without content there yet? What others can see changes with a
    /// proof that nobody has an old translation of it.
    #[inline]
    fn assert_unseen(&self, page: Pfn) {
        let frame = &self.frames[page];
        let looked_at = FrameFlags::EXCLUSIVE | FrameFlags::TAIL | FrameFlags::SWAPCACHE;
        // The common case: of anonymous memory, and of one process alone, which does not map it.
        let private = frame.flags() & looked_at == FrameFlags::EXCLUSIVE && frame.mapcount() == 0;
        if !private {
            self.assert_unseen_by_others(page);
        }
    }

    #[inline(never)]
    fn assert_unseen_by_others(&self, page: Pfn) {
        let frame = &self.frames[self.frames.head(page)];
        let cached = || frame.has(FrameFlags::SWAPCACHE) || !frame.is_anon();
        let seen = frame.mapcount() > 0 || frame.has(FrameFlags::UPTODATE) && cached();
        assert!(!seen, "{page} of {:?} is filled where others can see it", frame.owner());
    }
}
