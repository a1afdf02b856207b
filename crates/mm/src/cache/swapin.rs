//! The swap cache: folios on their way to swap and back.

use super::CacheError;
use super::io::submit_read;
use crate::frame::FrameFlags;
use crate::knobs::Knob;
use crate::machine::{Machine, Scope, Work};
use crate::memory::{Gfp, Memory, Shortage};
use crate::stat::Stat;
use crate::units::*;
use smallvec::SmallVec;

/// What a look into the swap cache for a slot brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SwapCacheLookup {
    /// A page; `ahead`: it had been read ahead, and nobody had asked for it since.
    Found {
        /// See there.
        ahead: bool,
    },
    /// Nothing.
    Missed,
}

/// Slots that are worth reading together, the wanted one among them; none: only that one is read.
pub type Nearby = SmallVec<[SwapSlot; 32]>;

/// The folio with the content of a slot, which the caller keeps from being freed by an entry of its own; which of its
/// pages it is, [`page_of_slot`] says when the folio is locked. If it is not in the swap cache, the slot is read, into
/// a single page, and neighbours with it: slots that were filled together are wanted together. Waits for the device.
pub fn swapin<M: Machine>(memory: &Memory<M>, slot: SwapSlot, gfp: Gfp) -> Result<SwappedIn, CacheError> {
    swapin_near(memory, slot, gfp, |look| in_cluster(memory, slot, look))
}

/// The same where the caller says which slots are worth reading with the wanted one.
pub fn swapin_near<M: Machine>(
    memory: &Memory<M>,
    slot: SwapSlot,
    gfp: Gfp,
    near: impl FnOnce(SwapCacheLookup) -> Nearby,
) -> Result<SwappedIn, CacheError> {
    let _scope = memory.scope(Scope::SwapinReadahead);
    memory.charge(Work::CacheLookup, 1);
    let mut found = memory.swap.cache_get(memory, slot);
    match found {
        // What has come back in a larger folio says nothing.
        Some(pfn) if memory.frames[pfn].order() > Order::ZERO => {}
        Some(pfn) => {
            let ahead = memory.frames[pfn].test_and_clear(FrameFlags::READAHEAD);
            memory.count(Stat::SwapRaHit, i64::from(ahead));
            near(SwapCacheLookup::Found { ahead });
        }
        None => read_nearby(memory, near(SwapCacheLookup::Missed), slot, gfp),
    }
    let major = found.is_none();
    loop {
        let pfn = match found.take().or_else(|| memory.swap.cache_get(memory, slot)) {
            Some(pfn) => pfn,
            None => match read_slot(memory, slot, gfp)? {
                Some(pfn) => pfn,
                None => continue,
            },
        };
        if !memory.frames[pfn].has(FrameFlags::UPTODATE) {
            memory.wait_unlocked(pfn);
        }
        if memory.frames[pfn].has(FrameFlags::UPTODATE) {
            return Ok(SwappedIn { folio: pfn, major });
        }
        memory.put(pfn);
    }
}

/// A folio from the swap cache, up to date, with a reference for the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SwappedIn {
    /// Its head.
    pub folio: Pfn,
    /// It was not in the swap cache: the caller had it read. Waiting for what somebody else reads is no major fault.
    pub major: bool,
}

/// The page of a locked folio that holds the content of a slot. `None`: the folio is no longer in the swap cache there.
pub fn page_of_slot<M: Machine>(memory: &Memory<M>, folio: Pfn, slot: SwapSlot) -> Option<Pfn> {
    let frame = &memory.frames[folio];
    debug_assert!(frame.has(FrameFlags::LOCKED));
    if !frame.has(FrameFlags::SWAPCACHE) {
        return None;
    }
    let page = slot.0.checked_sub(frame.swap_slot().0).filter(|&page| page < frame.pages())?;
    Some(folio.add(page))
}

/// The aligned cluster around a slot.
fn in_cluster<M: Machine>(memory: &Memory<M>, wanted: SwapSlot, look: SwapCacheLookup) -> Nearby {
    if let SwapCacheLookup::Found { ahead } = look {
        if ahead {
            memory.swap.readahead.hit();
        }
        return Nearby::new();
    }
    let most = 1 << memory.knobs.get(Knob::PageCluster);
    match memory.swap.readahead.window(wanted, most) {
        1 => Nearby::new(),
        pages => memory.swap.window(wanted, pages.ilog2()).map(SwapSlot).collect(),
    }
}

/// Read these slots. The wanted one itself may be left out for want of memory.
fn read_nearby<M: Machine>(memory: &Memory<M>, nearby: Nearby, wanted: SwapSlot, gfp: Gfp) {
    if !gfp.read_ahead {
        return;
    }
    for slot in nearby {
        if slot == wanted {
            if let Ok(Some(pfn)) = read_slot(memory, slot, gfp) {
                memory.put(pfn);
            }
        } else if let Ok(true) = read_ahead(memory, slot, gfp) {
            memory.count(Stat::SwapRa, 1);
        }
    }
}

/// Start reading a slot that nobody waits for. Returns whether there was anything to read.
pub(super) fn read_ahead<M: Machine>(memory: &Memory<M>, slot: SwapSlot, gfp: Gfp) -> Result<bool, Shortage> {
    let Some(pfn) = read_slot(memory, slot, gfp)? else { return Ok(false) };
    memory.frames[pfn].set(FrameFlags::READAHEAD);
    memory.put(pfn);
    Ok(true)
}

/// Add a folio for a slot to the swap cache and start its read. `None`: there is one already, or the slot is unused.
fn read_slot<M: Machine>(memory: &Memory<M>, slot: SwapSlot, gfp: Gfp) -> Result<Option<Pfn>, Shortage> {
    if memory.swap.entries(slot) == 0 || memory.swap.is_cached(slot) {
        return Ok(None);
    }
    let pfn = memory.new_folio(Order::ZERO, gfp)?;
    let frame = &memory.frames[pfn];
    frame.set(FrameFlags::LOCKED | FrameFlags::SWAPBACKED);
    let Some(shadow) = memory.swap.cache_try_insert(memory, slot, pfn) else {
        frame.clear(FrameFlags::LOCKED);
        memory.put(pfn);
        return Ok(None);
    };
    if let Some(shadow) = shadow {
        let free = || memory.swap.free_slots();
        memory.lru.refault(memory, &[(pfn, shadow)], free, gfp.is_faulted());
    }
    memory.lru.add(memory, [pfn], gfp.is_faulted());
    let (device, block) = memory.swap.place(slot);
    memory.count(Stat::PswpIn, 1);
    submit_read(memory, pfn, device, block);
    Ok(Some(pfn))
}

/// Give a locked anonymous folio a slot for each page, one behind the other, and put it into the swap cache, dirty, so
/// that it can be unmapped and written. `false`: swap is full, or has no such room.
pub fn add_to_swap<M: Machine>(memory: &Memory<M>, pfn: Pfn) -> bool {
    let _scope = memory.scope(Scope::AddToSwap);
    let (order, group) = (memory.frames[pfn].order(), memory.frames[pfn].group());
    let Some(slot) = memory.swap.alloc_run(memory, group, order) else { return false };
    memory.swap.cache_insert(memory, slot, pfn);
    memory.frames[pfn].set(FrameFlags::DIRTY);
    true
}

/// Take a locked folio out of the swap cache, leaving a shadow if given, and drop the cache's reference. The caller
/// holds another one, and the folio is not being written.
pub fn remove_from_swap_cache<M: Machine>(memory: &Memory<M>, pfn: Pfn, shadow: Option<Shadow>) {
    let frame = &memory.frames[pfn];
    debug_assert!(frame.has(FrameFlags::LOCKED) && !frame.has(FrameFlags::WRITEBACK));
    memory.swap.cache_remove(memory, frame.swap_slot(), shadow);
    let last = frame.put(1);
    debug_assert!(!last, "the caller holds {pfn}");
    let mapped = memory.frames.pages_mapped(pfn);
    if mapped > 0 && mapped < frame.pages() {
        // No page comes back any more.
        memory.lru.defer_split(memory, pfn);
    }
}

/// Take a locked folio out of the swap cache if no entry needs its slots and it is not being written. It is then dirty:
/// memory holds the only copy.
pub fn free_swap<M: Machine>(memory: &Memory<M>, pfn: Pfn) -> bool {
    let frame = &memory.frames[pfn];
    if !frame.has(FrameFlags::SWAPCACHE)
        || frame.has(FrameFlags::WRITEBACK)
        || memory.swap.entries_of_run(frame.swap_slot(), frame.pages()) > 0
    {
        return false;
    }
    remove_from_swap_cache(memory, pfn, None);
    frame.set(FrameFlags::DIRTY);
    true
}

/// Entries that mapped an anonymous folio, of which the caller has a reference, are gone. One that is left in nothing
/// but the swap cache is of no more use, as in [`drop_swap_entry`].
#[inline]
pub fn drop_unmapped<M: Machine>(memory: &Memory<M>, pfn: Pfn) {
    let frame = &memory.frames[pfn];
    if frame.has(FrameFlags::SWAPCACHE) && frame.mapcount() == 0 && memory.try_lock_folio(pfn) {
        free_swap(memory, pfn);
        memory.unlock_folio(pfn);
    }
}

/// An entry that referred to a slot is gone. If it was the last, a folio that only the swap cache still holds is of no
/// more use: it goes now, if nobody is at it. One that is mapped again keeps the slot, unless slots are scarce: as long
/// as it is not stored to, it can be evicted again without a write.
pub fn drop_swap_entry<M: Machine>(memory: &Memory<M>, slot: SwapSlot) {
    if memory.swap.free_entry(memory, slot) > 0 {
        return;
    }
    let Some(pfn) = memory.swap.cache_get(memory, slot) else { return };
    if memory.try_lock_folio(pfn) {
        let useless = memory.frames[pfn].mapcount() == 0 || memory.swap.is_half_full();
        if useless && page_of_slot(memory, pfn, slot).is_some() {
            free_swap(memory, pfn);
        }
        memory.unlock_folio(pfn);
    }
    memory.put(pfn);
}
