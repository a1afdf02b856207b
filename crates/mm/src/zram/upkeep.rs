//! What is done for a device again and again: marking idle pages, compressing pages again, writing them to the backing
//! device.
//!
//! A page that is written there leaves its object only when it is on the device, and only if it was not used meanwhile:
//! a use, or another content, takes the mark away that says so.

use super::{Zram, ZramPage, ZramSlot};
use crate::api::ZramPages;
use crate::machine::Machine;
use crate::primitive::Ordering::Relaxed;
use crate::units::*;
use crate::zsmalloc::{ZsHandle, ZsMemory};

impl Zram {
    /// Mark the pages that were not used for `age` as idle, and the others as not.
    pub(crate) fn mark_idle(&self, now: Nanos, age: Nanos) {
        for slot in &mut self.table.lock().slots {
            if matches!(slot.page, ZramPage::Object(..)) && !slot.leaves {
                slot.idle = slot.accessed.saturating_add(age) < now;
            }
        }
    }

    /// Compress a page by the second algorithm, if it is one of those to which this is to be done. `page` is the
    /// caller's own. A page that needs no smaller object then is not tried again.
    pub(crate) fn recompress<M: Machine>(&self, memory: &ZsMemory<'_, M>, page: Pfn, at: u32) {
        let Some((pages, threshold, by)) = self.config.upkeep.and_then(|upkeep| upkeep.recompress) else {
            return;
        };
        let Some((old, before)) = self.begin_recompression(memory, page, at, (pages, threshold)) else {
            return;
        };
        let bytes = self.compress(memory, page, by);
        let saves = self.pool.class_of(bytes) < self.pool.class_of(before);
        let wanted = saves && (threshold == 0 || bytes < threshold);
        let new = if wanted { self.pool.alloc(memory, bytes) } else { None };
        if let Some(new) = new {
            self.pool.with_place(new, |place| memory.mmu.machine.pack(page, place));
        }
        let mut table = self.table.lock();
        let slot = &mut table.slots[at as usize];
        // Another task may have read the page, written it, or freed it.
        let (same, accessed) = (core::mem::take(&mut slot.leaves), slot.accessed);
        slot.incompressible |= same && !saves;
        let gone = new.map(|new| {
            if !same {
                return new;
            }
            let object = ZramPage::Object(new, bytes);
            table.replace(at, ZramSlot { again: true, ..ZramSlot::new(object, accessed) });
            old
        });
        drop(table);
        if let Some(gone) = gone {
            self.pool.free(memory, gone);
        }
    }

    /// Fill `page` with what is to be compressed again, and mark it as unused since. Returns its object.
    fn begin_recompression<M: Machine>(
        &self,
        memory: &ZsMemory<'_, M>,
        page: Pfn,
        at: u32,
        (pages, threshold): (ZramPages, u32),
    ) -> Option<(ZsHandle, u32)> {
        let mut table = self.table.lock();
        let slot = &mut table.slots[at as usize];
        let (handle, bytes) = slot.chosen(pages)?;
        if slot.again || slot.incompressible || bytes < threshold {
            return None;
        }
        (slot.idle, slot.leaves) = (false, true);
        let work = self.unpack(memory, page, false, (handle, bytes));
        drop(table);
        memory.mmu.charge(work, 1);
        Some((handle, bytes))
    }

    /// Whether another page may be written to the backing device.
    pub(crate) fn may_write_back(&self) -> bool {
        let wanted = self.config.upkeep.is_some_and(|upkeep| upkeep.write_back.is_some());
        wanted && self.table.lock().limit > 0
    }

    /// Take a free block of the backing device; with it comes its place.
    pub(crate) fn take_block(&self) -> Option<(u32, (DeviceId, u64))> {
        let backing = self.config.backing?;
        let mut table = self.table.lock();
        let block = match table.free_blocks.pop_first() {
            Some(block) => block,
            None if table.next_block >= backing.pages => return None,
            None => {
                table.next_block += 1;
                table.next_block - 1
            }
        };
        drop(table);
        Some((block, self.place_of(block)?))
    }

    /// Give a block back.
    pub(crate) fn free_block(&self, block: u32) {
        self.table.lock().free_blocks.insert(block);
    }

    /// Where a block is.
    pub(super) fn place_of(&self, block: u32) -> Option<(DeviceId, u64)> {
        self.config.backing.map(|backing| (backing.device, backing.block + u64::from(block)))
    }

    /// Fill `page` with a page that is to be written to the backing device. `false`: it is not to be.
    pub(crate) fn begin_write_back<M: Machine>(&self, memory: &ZsMemory<'_, M>, page: Pfn, at: u32) -> bool {
        let Some(pages) = self.config.upkeep.and_then(|upkeep| upkeep.write_back) else { return false };
        let mut table = self.table.lock();
        let slot = &mut table.slots[at as usize];
        let Some(object) = slot.chosen(pages) else { return false };
        slot.leaves = true;
        let work = self.unpack(memory, page, slot.again, object);
        drop(table);
        memory.mmu.charge(work, 1);
        true
    }

    /// The write of a page has ended. Returns whether the block holds the page from now on: not if the device has
    /// failed, or if the page was used meanwhile.
    pub(crate) fn end_write_back<M: Machine>(
        &self,
        memory: &ZsMemory<'_, M>,
        at: u32,
        block: u32,
        written: bool,
    ) -> bool {
        let mut table = self.table.lock();
        let leaves = core::mem::take(&mut table.slots[at as usize].leaves);
        self.counters.bd_writes.fetch_add(u64::from(written), Relaxed);
        if !written || !leaves {
            table.slots[at as usize].idle = false;
            return false;
        }
        table.limit -= u64::from(table.limit < u64::MAX);
        let slot = ZramSlot::new(ZramPage::Written(block), 0);
        let old = table.replace(at, slot);
        drop(table);
        self.free(memory, old);
        true
    }
}
