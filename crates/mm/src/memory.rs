//! State of floors 1 to 5, on which files, mappings and reclaim are built.

use crate::alloc::{Allocator, Means, NeedsReclaim, Reserve, Watermark};
use crate::api::ZramConfig;
use crate::event::{Concern, Event};
use crate::frame::{FrameFlags, Owner};
use crate::knobs::{Knob, Knobs, ThpDefrag};
use crate::lru::Lru;
use crate::machine::{Machine, Work};
use crate::mempolicy::NodePreference;
use crate::mmu::Mmu;
use crate::slab::{Record, Slabs};
use crate::stat::Stat;
use crate::swap::Swap;
use crate::table::{Cleaned, Landing, PageSettled, Source, Tables, UsedCopy, Waiting};
use crate::tlb::{FileSettled, UnmapBatch};
use crate::units::*;
use crate::zram::Zram;
use crate::zsmalloc::ZsMemory;
use crate::zswap::{Zswap, ZswapMemory};
use base::demand;
use std_alloc::boxed::Box;
use std_alloc::format;
use std_alloc::string::String;
use std_alloc::vec::Vec;

/// Memory that an operation could not allocate. The operation has undone its work; the facade reclaims and runs it
/// again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shortage {
    /// No zone has a block to spare.
    Zone(NeedsReclaim),
    /// This control group is at its limit.
    Group(GroupId),
    /// No free block of a large folio's order. Smaller folios would do, but compaction or reclaim may be worth it.
    Block {
        /// The request.
        needs: NeedsReclaim,
        /// Whether to retry, and to wait for other tasks.
        hard: bool,
    },
}

/// How hard to try for a block where smaller folios would do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Worth {
    /// Wake kswapd or kcompactd.
    pub wake: bool,
    /// Compact and reclaim before continuing.
    pub wait: bool,
    /// Retry, and wait for other tasks.
    pub hard: bool,
}

impl Worth {
    /// Use smaller folios at once.
    pub(crate) const NOTHING: Worth = Worth { wake: false, wait: false, hard: false };
    /// For a large folio of a file.
    pub const FILE: Worth = Worth { wake: true, wait: true, hard: false };

    /// For a large anonymous folio, by the knob `thp.defrag`. `asked`: the range is under MADV_HUGEPAGE.
    pub(crate) fn of_anon(knobs: &Knobs, asked: bool) -> Worth {
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

/// What triggered an allocation, which decides whether it counts as a use of the page's old content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AllocCause {
    /// A system call, or a fault in a range with random-access advice.
    Other,
    /// Any other fault.
    Fault,
    /// A write that overwrites the page: a refault of its old content says nothing about reuse.
    Overwrite,
}

/// The context of an allocation: who pays and how hard to try. Faults pass it by value, so it is two words that fit
/// registers.
#[derive(Clone, Copy, Debug)]
pub struct Gfp {
    /// Preferred nodes.
    pub place: NodePreference,
    /// The group to charge.
    pub group: GroupId,
    /// The watermark to respect.
    pub mark: Watermark,
    /// How far the request may dip into the reserves.
    pub reserve: Reserve,
    /// How much read-ahead is allowed.
    pub read_ahead: AllowedReadAhead,
    /// Compaction has been tried for folios of this order and above: allocate smaller ones.
    pub given_up: Order,
    /// Whether to mix mobility groups despite `vm.defrag_mode`, as the last resort.
    pub mixes: bool,
    /// What triggered the request.
    pub cause: AllocCause,
}

const _: () = assert!(size_of::<Gfp>() == 16);

/// How much read-ahead a request allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AllowedReadAhead {
    /// None.
    Nothing,
    /// From a file, the part of its window that there is room for.
    Part,
    /// The whole window, for which room is made.
    Window,
}

impl Gfp {
    /// The first attempt of an ordinary request of `group`.
    pub const fn user(group: GroupId) -> Gfp {
        Gfp {
            place: NodePreference::NEAR,
            group,
            mark: Watermark::Low,
            reserve: Reserve::None,
            read_ahead: AllowedReadAhead::Window,
            given_up: Order(MAX_ORDER.0 + 1),
            mixes: false,
            cause: AllocCause::Other,
        }
    }

    /// Whether a fault triggered the request, outside ranges with random-access advice.
    #[inline]
    pub(crate) fn is_faulted(self) -> bool {
        self.cause == AllocCause::Fault
    }

    /// The allocator's view of this context.
    pub const fn means(&self) -> Means {
        Means { mark: self.mark, reserve: self.reserve, mixes: self.mixes }
    }
}

/// State of floors 1 to 5.
pub struct Memory<M> {
    mmu: Mmu<M>,
    /// Swap space.
    pub swap: Swap,
    /// Free memory.
    pub alloc: Allocator,
    /// Memory of the kernel's records.
    pub slabs: Slabs,
    /// Page tables.
    pub tables: Tables,
    /// LRU lists, and the groups that folios are charged to.
    pub lru: Lru,
    /// Compressed pages in front of swap devices.
    pub(crate) zswap: Zswap,
    /// By number of the swap area: the areas that are in memory.
    pub(crate) zrams: Box<[Option<Zram>]>,
    /// Whether some slots may have content in memory.
    packs: bool,
}

impl<M> core::ops::Deref for Memory<M> {
    type Target = Mmu<M>;

    #[inline]
    fn deref(&self) -> &Mmu<M> {
        &self.mmu
    }
}

impl<M: Machine> Memory<M> {
    /// Assemble the rooms.
    pub fn new(mmu: Mmu<M>, swap: Swap, alloc: Allocator, lru: Lru) -> Memory<M> {
        let slabs = Slabs::new(mmu.machine.cpus());
        let zswap = Zswap::new(alloc.zones().iter().map(|zone| zone.managed()).sum());
        let zram = |area: Option<(u32, ZramConfig)>| area.map(|(pages, config)| Zram::new(config, pages));
        let zrams: Box<[_]> = swap.zrams().map(zram).collect();
        let packs = mmu.knobs.get(Knob::ZswapEnabled) != 0 || zrams.iter().any(Option::is_some);
        Memory { mmu, swap, alloc, slabs, tables: Tables::default(), lru, zswap, zrams, packs }
    }

    /// Whether some slots may have content in memory.
    pub(crate) fn packs(&self) -> bool {
        self.packs
    }

    /// What compressed memory is made of.
    pub(crate) fn zs(&self) -> ZsMemory<'_, M> {
        ZsMemory { mmu: &self.mmu, alloc: &self.alloc, slabs: &self.slabs }
    }

    /// The same for zswap, with the groups that it charges.
    pub(crate) fn zswap_memory(&self) -> ZswapMemory<'_, M> {
        ZswapMemory { zs: self.zs(), groups: &self.lru.groups }
    }

    /// The zram device that holds a slot, and the slot's number there.
    #[inline]
    pub(crate) fn zram_of(&self, slot: SwapSlot) -> Option<(&Zram, u32)> {
        if !self.packs {
            return None;
        }
        let (area, number) = self.swap.in_area(slot);
        Some((self.zrams[area].as_ref()?, number))
    }

    /// Store a locked page of the swap cache, of a group, in zswap. `allowed`: the group's limits let it. `false`: it
    /// is not there.
    pub(crate) fn store_in_zswap(
        &self,
        (page, group): (Pfn, GroupId),
        slot: SwapSlot,
        allowed: bool,
    ) -> bool {
        self.zswap.store(&self.zswap_memory(), (page, group), slot, allowed)
    }

    /// zswap shall not have anything of a slot.
    pub(crate) fn forget_in_zswap(&self, slot: SwapSlot) {
        self.zswap.invalidate(&self.zswap_memory(), slot);
    }

    /// Whether pages of a group may be written to devices: as long as zswap is off, those of all groups.
    pub(crate) fn may_write_to_slot(&self, group: GroupId) -> bool {
        self.mmu.knobs.get(Knob::ZswapEnabled) == 0 || self.lru.groups.may_write_from_zswap(group)
    }

    /// A page is being read from a device: zswap's shrinker should have kept it.
    pub(crate) fn note_disk_swapin(&self, page: Pfn) {
        if self.packs && self.mmu.knobs.get(Knob::ZswapEnabled) != 0 {
            let frame = &self.mmu.frames[page];
            self.zswap.note_disk_swapin(self.lru.groups.nearest_live(frame.group()), frame.node());
        }
    }

    /// Fill a page that no task uses yet with what zswap has of a slot. `keeps`: zswap keeps it.
    pub(crate) fn load_from_zswap(&self, page: Pfn, slot: SwapSlot, keeps: bool) -> bool {
        self.zswap.is_used() && self.zswap.load(&self.zswap_memory(), page, slot, keeps)
    }

    /// A slot is free: what is kept of its content in memory goes.
    #[inline]
    fn forget_slot(&self, slot: SwapSlot) {
        if self.packs {
            self.forget_packed(slot);
        }
    }

    #[inline(never)]
    fn forget_packed(&self, slot: SwapSlot) {
        self.zswap.invalidate(&self.zswap_memory(), slot);
        if let Some((zram, number)) = self.zram_of(slot) {
            zram.slot_free_notify(&self.zs(), number);
        }
    }

    /// Drop an entry's reference to a slot. Returns the number of entries left.
    pub(crate) fn free_swap_entry(&self, slot: SwapSlot) -> u32 {
        #[expect(clippy::disallowed_methods, reason = "callers have removed the entry")]
        self.swap.free_entry(self, slot, |slot| self.forget_slot(slot))
    }

    /// End that the cache holds a slot ([`Swap::cache_remove`]).
    pub(crate) fn remove_from_swap(&self, slot: SwapSlot, shadow: Option<Shadow>) {
        self.swap.cache_remove(self, slot, shadow, |slot| self.forget_slot(slot));
    }

    /// Check compressed memory. Returns the first error.
    pub(crate) fn validate_packed(&self) -> Result<(), String> {
        let mut records = Vec::from(self.zswap.records());
        self.zswap.pool().validate(&self.mmu)?;
        self.zswap.validate(&self.lru.groups, |slot| self.swap.is_used(slot))?;
        let mut frames = self.zswap.pool().total_pages();
        for (area, zram) in self.zrams.iter().enumerate() {
            let Some(zram) = zram else { continue };
            zram.pool().validate(&self.mmu)?;
            zram.validate(|number| self.swap.is_used(self.swap.slot_in(area, number)))?;
            records.extend(zram.records());
            frames += zram.pool().total_pages();
        }
        if self.mmu.stats.read(Stat::NrZspages) != frames as i64 {
            return Err(format!("pools have {frames} frames, not as nr_zspages says"));
        }
        for record in [Record::ZsHandle, Record::Zspage, Record::ZswapEntry] {
            let found = records.iter().filter(|(kind, _)| *kind == record).map(|(_, count)| count).sum();
            self.slabs.check(record, found)?;
        }
        Ok(())
    }

    /// The number of records of a kind has changed.
    #[inline]
    pub(crate) fn note_records(&self, record: Record, by: i64) {
        self.slabs.change(self, &self.alloc, record, by);
    }

    /// The swap cache may have other nodes than before.
    #[inline]
    pub(crate) fn note_swap_nodes(&self) {
        self.note_records(Record::TreeNode, self.swap.take_node_changes());
    }

    /// Zero pages of a folio that no other task or CPU can see yet.
    #[expect(clippy::disallowed_methods, reason = "no translation or cache shows the pages yet")]
    pub fn zero(&self, first: Pfn, count: u32) {
        self.assert_unseen(first);
        self.mmu.machine.zero(first, count);
        self.mmu.charge(Work::ZeroPage, u64::from(count));
    }

    /// Zero a page that was just handed out, unless that has been done already.
    #[inline]
    pub(crate) fn zero_new(&self, page: Pfn) {
        if !self.mmu.clears_pages() {
            self.zero(page, 1);
        }
    }

    /// Copy pages into part of a folio that no other task or CPU can see yet.
    #[inline]
    pub fn copy(&self, to: Pfn, from: Source) {
        let (from, count) = from.pages();
        self.copy_pages(to, from, count);
    }

    #[expect(clippy::disallowed_methods, reason = "no translation or cache shows the destination yet")]
    fn copy_pages(&self, to: Pfn, from: Pfn, count: u32) {
        self.assert_unseen(to);
        self.mmu.machine.copy(to, from, count);
        self.mmu.charge(Work::CopyPage, u64::from(count));
    }

    /// Pay what is owed for the file of a locked folio, so that an entry may allow stores to it.
    #[inline]
    pub(crate) fn settle_page(&self, folio: Pfn) -> PageSettled {
        PageSettled::new(self, folio)
    }

    /// Copy a folio to the new folio that replaces it. The source is locked, all its entries wait, and `batch`, which
    /// took them, has paid for those that allowed stores, so that no CPU can store to it.
    pub(crate) fn copy_folio(&self, waiting: Waiting, to: Pfn, batch: &UnmapBatch) -> Landing {
        let from = waiting.head();
        let landing = self.copied(waiting, to, batch);
        self.copy_pages(to, from, self.frames[from].pages());
        landing
    }

    /// Copy a page of one process that is still mapped to one that no other task can see yet. The copy misses later
    /// stores, of which the entry's dirty bit tells.
    #[expect(clippy::disallowed_methods, reason = "it copies the page")]
    pub(crate) fn copy_in_use(&self, cleaned: Cleaned, to: Pfn) -> UsedCopy {
        let from = cleaned.head();
        assert!(self.frames[from].has(FrameFlags::LOCKED), "folio {from} must be locked to be copied");
        self.copy_pages(to, from, self.frames[from].pages());
        cleaned.copied(to)
    }

    /// As [`Self::copy_folio`] for a page that [`Self::copy_in_use`] copied before it was unmapped.
    ///
    /// # Panics
    /// If the entry was dirty: a store came after the copy began.
    pub(crate) fn copied_in_use(&self, waiting: Waiting, copy: UsedCopy, batch: &UnmapBatch) -> Landing {
        let (from, to) = copy.into_frames();
        let current = from == waiting.head() && !waiting.is_dirty();
        assert!(current, "the copy of {} must have its last store to replace it", waiting.head());
        self.copied(waiting, to, batch)
    }

    fn copied(&self, waiting: Waiting, to: Pfn, batch: &UnmapBatch) -> Landing {
        let from = waiting.head();
        let frame = &self.frames[from];
        demand!(
            frame.has(FrameFlags::LOCKED) && frame.mapcount() == 0, [from];
            "{from} must be locked and unmapped to be replaced by a copy"
        );
        let concern = Concern::Frames { first: from, count: frame.pages() };
        self.event(Event::TlbHazard, concern.args());
        #[expect(clippy::disallowed_methods, reason = "the folio was copied")]
        waiting.copied(to, batch)
    }

    /// Zero pages of a file's folio. `settled` proves that no CPU holds a stale translation to the file.
    #[expect(clippy::disallowed_methods, reason = "the file's debt is settled")]
    pub(crate) fn zero_in_file(&self, first: Pfn, count: u32, settled: &FileSettled) {
        let head = &self.frames[self.frames.head(first)];
        assert_eq!(head.owner(), Owner::File(settled.file()), "{first} must belong to the settled file");
        self.mmu.machine.zero(first, count);
        self.mmu.charge(Work::ZeroPage, u64::from(count));
    }

    /// Assert that no page table maps `page` and that no cache shows its content. Content that others can see changes
    /// only with a proof that no stale translation exists.
    #[inline]
    fn assert_unseen(&self, page: Pfn) {
        let frame = &self.frames[page];
        let looked_at = FrameFlags::EXCLUSIVE | FrameFlags::TAIL | FrameFlags::SWAPCACHE;
        // Fast path: anonymous, exclusive to one process, and unmapped.
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
        assert!(!seen, "{page} of {:?} must not be visible while it is filled", frame.owner());
    }
}
