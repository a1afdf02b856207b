//! Floors 3 to 5 in one hand: the ground that files, mappings and reclaim stand on.

use crate::alloc::{Allocator, Mark, NeedsReclaim, Request, Reserve};
use crate::event::{Concern, Event};
use crate::frame::{FolioPages, FrameFlags, Mobility, Owner};
use crate::ground::Ground;
use crate::knobs::{Knob, Knobs};
use crate::lru::Lru;
use crate::machine::{Machine, Scope, Ticket, WaitKey, Work, ZoneKind};
use crate::stat::SizeStat;
use crate::swap::Swap;
use crate::table::{Landing, Tables};
use crate::tlb::{Batch, FileSettled, Finished, Gather, Refs};
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
        match (knobs.get(Knob::ThpDefrag), asked) {
            (0, _) | (2 | 3, true) => wait,
            (1, _) | (2, false) => wake,
            _ => Worth::NOTHING,
        }
    }
}

impl From<NeedsReclaim> for Shortage {
    fn from(needs: NeedsReclaim) -> Shortage {
        Shortage::Zone(needs)
    }
}

/// Folios that are freed in one step: as many as keep what is done for all of them together cheap.
const FREED_TOGETHER: usize = 32;

/// On whose behalf, and how urgently, memory is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Gfp {
    /// The group that pays.
    pub group: GroupId,
    /// The watermark that must stay.
    pub mark: Mark,
    /// How much of the reserves may be used.
    pub reserve: Reserve,
    /// May pages be read that nobody has asked for yet?
    pub read_ahead: bool,
    /// For folios of this order, and larger ones, has been done what was worth it, and smaller ones must do.
    pub given_up: Order,
    /// Is it for a fault, in a range where accesses say something about what will be used next?
    pub faulted: bool,
}

impl Gfp {
    /// The first try of an ordinary request of `group`.
    pub const fn user(group: GroupId) -> Gfp {
        let given_up = Order(MAX_ORDER.0 + 1);
        Gfp { group, mark: Mark::Low, reserve: Reserve::None, read_ahead: true, given_up, faulted: false }
    }
}

/// State of floors 3 to 5.
pub struct Memory<M> {
    ground: Ground<M>,
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
    type Target = Ground<M>;

    #[inline]
    fn deref(&self) -> &Ground<M> {
        &self.ground
    }
}

impl<M: Machine> Memory<M> {
    /// Put the rooms together.
    pub fn new(ground: Ground<M>, swap: Swap, alloc: Allocator, lru: Lru) -> Memory<M> {
        Memory { ground, swap, alloc, tables: Tables::default(), lru }
    }

    /// Floors 1 to 4.
    #[inline]
    pub fn ground(&self) -> &Ground<M> {
        &self.ground
    }

    // --- folios -------------------------------------------------------------------------------------------

    /// A movable folio for user data, charged to the group of `gfp`, with one reference. Its content is whatever was
    /// there: zero it or read into it.
    pub fn new_folio(&self, order: Order, gfp: Gfp) -> Result<Pfn, Shortage> {
        self.lru
            .groups
            .try_charge(&self.ground, gfp.group, order.frames() as u64)
            .map_err(Shortage::Group)?;
        let request = Request {
            order,
            mobility: Mobility::Movable,
            node: self.ground.node(),
            highest: ZoneKind::Movable,
            reserve: gfp.reserve,
            this_node_only: false,
            atomic: false,
        };
        match self.alloc.take(&self.ground, &request, gfp.mark) {
            Ok(fresh) => {
                let pfn = fresh.into_pfn();
                self.ground.frames[pfn].set_group(gfp.group);
                Ok(pfn)
            }
            Err(needs) => {
                self.lru.groups.uncharge(&self.ground, gfp.group, order.frames() as u64);
                Err(needs.into())
            }
        }
    }

    /// Make a new folio of several pages anonymous memory from `index` of its owner on, of which one process alone sees every
    /// page. Its content is still to be made.
    pub fn make_large_anon(&self, pfn: Pfn, owner: Owner, index: PageIndex) {
        let frame = &self.frames[pfn];
        frame.set_owner(owner, index);
        frame.set(FrameFlags::UPTODATE | FrameFlags::SWAPBACKED | FrameFlags::EXCLUSIVE);
        for tail in FolioPages::all(&self.frames, pfn).iter().skip(1) {
            self.frames[tail].assign(FrameFlags::TAIL | FrameFlags::EXCLUSIVE);
        }
        self.sizes.count(SizeStat::NrAnon, frame.order(), 1);
    }

    /// Is there a block of `order` to be had near this CPU, without taking what stands below the mark? Asked before a large
    /// folio is made where smaller ones would do: nobody is woken, and nothing reclaimed, to put a block together that is
    /// only convenient.
    pub fn has_block(&self, order: Order, gfp: Gfp) -> bool {
        let highest = ZoneKind::Movable;
        let mut zones = self.alloc.zones_of(self.ground.node(), highest);
        zones.any(|zone| zone.watermark_ok(order, gfp.mark, highest, gfp.reserve))
    }

    /// The same; where there is none, do what a block is worth. `Err`: somebody above is to make one, and to ask again.
    pub fn find_block(&self, order: Order, gfp: Gfp, worth: Worth) -> Result<bool, Shortage> {
        if self.has_block(order, gfp) {
            return Ok(true);
        }
        let base = &self.ground;
        let needs = NeedsReclaim { order, node: base.node(), highest: ZoneKind::Movable };
        if gfp.given_up <= order {
            // It may have been made on another node.
            let mut zones = self.alloc.zonelist(needs.node, needs.highest).iter();
            return Ok(
                zones.any(|&id| self.alloc.watermark_ok(id, order, gfp.mark, needs.highest, gfp.reserve))
            );
        }
        if worth.wake {
            self.alloc.wake_for_block(base, needs.node, needs.order, needs.highest);
        }
        if worth.wait { Err(Shortage::Block { needs, hard: worth.hard }) } else { Ok(false) }
    }

    /// Drop one reference of a folio; the last one frees it.
    #[inline]
    pub fn put(&self, pfn: Pfn) {
        if self.ground.frames[pfn].put(1) {
            self.free_folio(pfn);
        }
    }

    /// Drop `n` references of a folio; the last one frees it.
    #[inline]
    pub fn put_many(&self, pfn: Pfn, n: u32) {
        if self.ground.frames[pfn].put(n) {
            self.free_folio(pfn);
        }
    }

    /// Drop references of several folios, so many of each; those that were the last free it.
    pub fn put_folios(&self, folios: impl IntoIterator<Item = (Pfn, u32)>) {
        let (mut dead, mut count) = ([Pfn::NONE; FREED_TOGETHER], 0);
        for (pfn, refs) in folios {
            if self.ground.frames[pfn].put(refs) {
                dead[count] = pfn;
                count += 1;
                if count == FREED_TOGETHER {
                    self.free_folios(&dead);
                    count = 0;
                }
            }
        }
        self.free_folios(&dead[..count]);
    }

    /// Free a folio that nobody refers to.
    pub fn free_folio(&self, pfn: Pfn) {
        self.free_folios(&[pfn]);
    }

    /// Free folios that nobody refers to. What many have in common (a list vector, a group, a zone) is locked and counted once
    /// for all that follow each other.
    pub fn free_folios(&self, folios: &[Pfn]) {
        let _scope = self.ground.scope(Scope::FolioPut);
        if self.lru.remove_many(&self.ground, folios) {
            folios.iter().for_each(|&pfn| self.unmake_large_anon(pfn));
        }
        self.alloc.free_many(&self.ground, folios);
    }

    /// If a folio that is about to be freed is one of [`Memory::make_large_anon`], it is one no more.
    #[cold]
    fn unmake_large_anon(&self, pfn: Pfn) {
        let frame = &self.frames[pfn];
        if frame.order() > Order::ZERO && frame.is_anon() {
            self.lru.forget_split(&self.ground, pfn);
            self.sizes.drop_from(SizeStat::NrAnon, frame.order(), 1);
            // The records of tails stay as they are until the block takes another shape.
            for tail in FolioPages::all(&self.frames, pfn).iter().skip(1) {
                self.frames[tail].assign(FrameFlags::TAIL);
            }
        }
    }

    // --- folio locks --------------------------------------------------------------------------------------

    /// Lock a folio if nobody has.
    #[inline]
    pub fn try_lock_folio(&self, pfn: Pfn) -> bool {
        self.ground.frames[pfn].test_and_set(FrameFlags::LOCKED)
    }

    /// Lock a folio, sleeping while somebody else has. The caller holds a reference.
    pub fn lock_folio(&self, pfn: Pfn) {
        while !self.try_lock_folio(pfn) {
            self.wait_while(pfn, FrameFlags::LOCKED);
        }
    }

    /// Unlock a folio.
    #[inline]
    pub fn unlock_folio(&self, pfn: Pfn) {
        let frame = &self.ground.frames[pfn];
        debug_assert!(frame.has(FrameFlags::LOCKED));
        frame.clear(FrameFlags::LOCKED);
        // Looked at by itself, as a clear that is not asked what stood before is one step of hardware's. Who waits says so before the
        // last look at the lock, so either that saw it open or this sees who waits.
        if frame.has(FrameFlags::WAITERS) {
            self.wake_folio(pfn);
        }
    }

    /// Sleep until nobody has the folio locked. The caller holds a reference.
    pub fn wait_unlocked(&self, pfn: Pfn) {
        self.wait_while(pfn, FrameFlags::LOCKED);
    }

    /// A ticket for the moment at which a folio is unlocked that is locked now, and cannot be unlocked meanwhile, nor freed before.
    pub fn unlock_ticket(&self, pfn: Pfn) -> Ticket {
        let ticket = self.ground.machine.ticket(WaitKey::Frame(pfn));
        let before = self.frames[pfn].set(FrameFlags::WAITERS);
        debug_assert!(before.contains(FrameFlags::LOCKED), "nobody would wake who waits for {pfn}");
        ticket
    }

    /// Sleep until the folio is not being written. The caller holds a reference.
    pub fn wait_writeback(&self, pfn: Pfn) {
        self.wait_while(pfn, FrameFlags::WRITEBACK);
    }

    /// Wake all who wait on the folio's lock or write-back.
    pub fn wake_folio(&self, pfn: Pfn) {
        self.ground.frames[pfn].clear(FrameFlags::WAITERS);
        self.ground.machine.wake(WaitKey::Frame(pfn));
    }

    fn wait_while(&self, pfn: Pfn, flag: FrameFlags) {
        let frame = &self.frames[pfn];
        while frame.has(flag) {
            let ticket = self.ground.machine.ticket(WaitKey::Frame(pfn));
            frame.set(FrameFlags::WAITERS);
            if !frame.has(flag) {
                return;
            }
            let _scope = self.ground.scope(Scope::FolioWaitBit);
            self.ground.machine.wait(ticket, None);
        }
    }

    // --- gathers ------------------------------------------------------------------------------------------

    /// Change entries of a space: `change` notes what it takes away. When this returns, that has been flushed, what else was
    /// owed for the space has been paid, and pages and tables that nothing refers to any more are free. Of a space that has
    /// ended nothing is flushed: no CPU runs it.
    ///
    /// `change` must not hold the lock of the space's tables when it returns.
    pub fn gather<R>(&self, space: SpaceId, change: impl FnOnce(&mut Gather) -> R) -> R {
        self.tlb.gather(&self.ground, space, change, |Finished { folios, tables }| {
            self.put_folios(folios.iter().copied());
            self.tables.free_tables(&self.ground, &self.alloc, tables);
        })
    }

    /// Drop references that entries held, after their flush; the last one frees the folio.
    #[expect(clippy::disallowed_methods, reason = "they are dropped here")]
    pub fn put_refs(&self, refs: Refs) {
        let (head, count) = refs.into_parts();
        if count > 0 {
            self.put_many(head, count);
        }
    }

    // --- content ------------------------------------------------------------------------------------------

    /// Zero pages of a folio that nobody sees yet.
    #[expect(clippy::disallowed_methods, reason = "nobody sees the pages")]
    pub fn zero(&self, first: Pfn, count: u32) {
        self.assert_unseen(first);
        self.ground.machine.zero(first, count);
        self.ground.charge(Work::ZeroPage, u64::from(count));
    }

    /// Copy pages to some of a folio that nobody sees yet.
    #[expect(clippy::disallowed_methods, reason = "nobody sees the pages that are written")]
    pub fn copy(&self, to: Pfn, from: Pfn, count: u32) {
        self.assert_unseen(to);
        self.ground.machine.copy(to, from, count);
        self.ground.charge(Work::CopyPage, u64::from(count));
    }

    /// Copy a folio that is moved to a new one of its size. Nobody maps it, and `batch`, in which the loss of its entries was noted, owes
    /// nothing for those that allowed stores; it is locked, so that it stays so.
    pub fn copy_folio(&self, from: Pfn, to: Pfn, batch: &Batch) -> Landing {
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

    /// Zero pages of a folio of a file, of which nobody holds a translation that was taken away.
    #[expect(clippy::disallowed_methods, reason = "what was owed for the file has been paid")]
    pub fn zero_in_file(&self, first: Pfn, count: u32, settled: &FileSettled) {
        let head = &self.frames[self.frames.head(first)];
        assert_eq!(head.owner(), Owner::File(settled.file()), "{first} is of another file");
        self.ground.machine.zero(first, count);
        self.ground.charge(Work::ZeroPage, u64::from(count));
    }

    /// Is a page mapped by nobody, and in no cache, or without content there yet? What others can see changes with a proof that
    /// nobody has an old translation of it.
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
