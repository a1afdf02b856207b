//! Where the content of swap slots goes and comes from: a device, zram, zswap, or nowhere, because it is zeroes.
//!
//! What is in memory is there at once: the task that swaps out or in compresses or decompresses, and waits for nothing.
//!
//! Source: `swap_writepage` and `swap_read_folio` in mm/page_io.c of Linux 6.12.

use super::Cache;
use super::io::{count_read, keep_in_memory, submit, submit_read};
use super::request::BlockRequest;
use crate::event::{Concern, Event};
use crate::frame::FrameFlags;
use crate::knobs::ZswapForm;
use crate::machine::{Io, Machine, Work};
use crate::memory::Memory;
use crate::stat::{SizeStat, Stat};
use crate::units::*;
use crate::zram::Zram;

impl Cache {
    /// Start to write a locked folio of the swap cache to its slots, or keep its content in memory. `false`: zswap does
    /// not take it, and its group may have nothing written to devices then; it is dirty as before.
    pub(super) fn start_swap_write<M: Machine>(&self, memory: &Memory<M>, pfn: Pfn) -> bool {
        let frame = &memory.frames[pfn];
        let (slot, pages) = (frame.swap_slot(), frame.pages());
        frame.clear(FrameFlags::DIRTY);
        memory.event(Event::TlbHazard, Concern::Frames { first: pfn, count: pages }.args());
        let zeroes = memory.machine.is_zero_filled(pfn, pages);
        memory.swap.set_zeroes(slot, pages, zeroes);
        if zeroes {
            memory.count(Stat::SwpoutZero, i64::from(pages));
            return true;
        }
        if memory.packs() {
            let group = memory.lru.groups.nearest_live(frame.group());
            if self.keeps_in_zswap(memory, pfn, group) {
                return true;
            }
            if !memory.may_write_to_slot(group) {
                frame.set(FrameFlags::DIRTY);
                return false;
            }
        }
        self.write_to_slot(memory, pfn);
        true
    }

    /// Store a locked folio of the swap cache, of a group, in zswap, if zswap takes all its pages.
    fn keeps_in_zswap<M: Machine>(&self, memory: &Memory<M>, pfn: Pfn, group: GroupId) -> bool {
        let frame = &memory.frames[pfn];
        let (slot, pages) = (frame.swap_slot(), frame.pages());
        if pages > 1 && memory.knobs.zswap_form() == ZswapForm::V612 {
            return false;
        }
        let allowed = self.makes_room_in_zswap(memory, group);
        let slot_of = |page| SwapSlot(slot.0 + page);
        let stores = |page| memory.store_in_zswap((pfn.add(page), group), slot_of(page), allowed);
        let stored = (0..pages).take_while(|&page| stores(page)).count() as u32;
        if stored < pages {
            (0..pages).for_each(|page| memory.forget_in_zswap(slot_of(page)));
        }
        stored == pages
    }

    /// Write a locked page that [`read_zswap_slot`](super::swapin::read_zswap_slot) has returned to its slot, and
    /// unlock it. It is to be reclaimed once it is written.
    pub(super) fn write_from_zswap<M: Machine>(&self, memory: &Memory<M>, pfn: Pfn) {
        let frame = &memory.frames[pfn];
        memory.event(Event::TlbHazard, Concern::Frames { first: pfn, count: 1 }.args());
        frame.set(FrameFlags::RECLAIM);
        self.write_to_slot(memory, pfn);
        memory.unlock_folio(pfn);
    }

    /// Write a locked folio of the swap cache, which is clean, to its slots.
    fn write_to_slot<M: Machine>(&self, memory: &Memory<M>, pfn: Pfn) {
        let frame = &memory.frames[pfn];
        let (slot, pages) = (frame.swap_slot(), frame.pages());
        frame.set(FrameFlags::WRITEBACK);
        memory.count(Stat::PswpOut, i64::from(pages));
        memory.sizes.count(SizeStat::Swpout, frame.order(), 1);
        memory.swap.begin_write(pages);
        memory.count(Stat::NrWriteback, i64::from(pages));
        memory.count(Stat::PgpgOut, i64::from(pages) * (PAGE_SIZE / 1024) as i64);
        if let Some(place) = memory.zram_of(slot) {
            self.write_to_zram(memory, pfn, place);
            return;
        }
        let (device, block) = memory.swap.place(slot);
        let io = Io { device, write: true, block, frame: pfn, pages, continues: false };
        submit(memory, io, &mut BlockRequest::default());
    }

    /// Write a folio to its slots in zram. It is dirty again if zram could not take it.
    #[inline(never)]
    fn write_to_zram<M: Machine>(&self, memory: &Memory<M>, pfn: Pfn, (zram, number): (&Zram, u32)) {
        let (frame, zs) = (&memory.frames[pfn], memory.zs());
        if !(0..frame.pages()).all(|page| zram.write(&zs, pfn.add(page), number + page)) {
            keep_in_memory(frame);
        }
        memory.charge(Work::IoSync, 1);
        self.end_write(memory, pfn);
    }
}

/// Fill a locked page with the content of a slot, now or when its device has it. `keeps`: the slot, which one entry
/// needs, keeps its content; otherwise the page is in the swap cache, and may be the only place of it from now on.
pub(super) fn read_slot_into<M: Machine>(memory: &Memory<M>, pfn: Pfn, slot: SwapSlot, keeps: bool) {
    let frame = &memory.frames[pfn];
    let _stall = memory.refault_stall(pfn);
    if memory.swap.has_zeroes(slot) {
        memory.zero(pfn, 1);
        memory.count(Stat::SwpinZero, 1);
    } else if memory.load_from_zswap(pfn, slot, keeps) {
        if !keeps {
            frame.set(FrameFlags::DIRTY);
        }
    } else if let Some((zram, number)) = memory.zram_of(slot) {
        memory.note_disk_swapin(pfn);
        memory.count(Stat::PswpIn, 1);
        if let Some(place) = zram.read(&memory.zs(), pfn, number) {
            submit_read(memory, pfn, place, &mut BlockRequest::default());
            return;
        }
        count_read(memory, 1);
        memory.charge(Work::IoSync, 1);
    } else {
        memory.note_disk_swapin(pfn);
        memory.count(Stat::PswpIn, 1);
        submit_read(memory, pfn, memory.swap.place(slot), &mut BlockRequest::default());
        return;
    }
    frame.set(FrameFlags::UPTODATE);
    memory.unlock_folio(pfn);
}

/// Fill a locked large folio, and unlock it, from slots of zram of which none is on a backing device. The slots keep
/// their content.
pub(super) fn read_slots_into<M: Machine>(memory: &Memory<M>, pfn: Pfn, first: SwapSlot) {
    let pages = memory.frames[pfn].pages();
    let _stall = memory.refault_stall(pfn);
    if memory.swap.has_zeroes(first) {
        memory.zero(pfn, pages);
        memory.count(Stat::SwpinZero, i64::from(pages));
    } else {
        let (zram, number) = memory.zram_of(first).expect("a large folio comes back from zram alone");
        memory.count(Stat::PswpIn, i64::from(pages));
        for page in 0..pages {
            let elsewhere = zram.read(&memory.zs(), pfn.add(page), number + page);
            debug_assert_eq!(elsewhere, None, "the device has no backing device");
        }
        count_read(memory, pages);
        memory.charge(Work::IoSync, 1);
    }
    memory.unlock_folio(pfn);
}
