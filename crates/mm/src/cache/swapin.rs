//! The swap cache: folios on their way to swap and back.

use super::CacheError;
use super::swapio::{read_slot_into, read_slots_into};
use crate::alloc::Watermark;
use crate::frame::{Frame, FrameFlags};
use crate::knobs::Knob;
use crate::machine::{Machine, Scope, Work};
use crate::memory::{AllowedReadAhead, Gfp, Memory, Shortage};
use crate::stat::Stat;
use crate::units::*;
use smallvec::SmallVec;

/// What the state of read-ahead is told and asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SwapinStep {
    /// The wanted page is in the swap cache.
    Found {
        /// It was read ahead and not used since.
        ahead: bool,
    },
    /// It is not. Which slots are worth reading with it? The state does not change, because the fault may be repeated.
    Plan,
    /// The planned slots are being read.
    Read,
}

/// Slots to read together with the wanted one, which is among them; if empty, only the wanted slot is read.
pub(crate) type Nearby = SmallVec<[SwapSlot; 32]>;

/// The folio with the content of a slot, which an entry of the caller keeps from being freed. Under the folio lock,
/// [`page_of_slot`] tells which of its pages has the content. If the slot is not in the swap cache, it is read into a
/// single page, together with its neighbours: slots that were filled together are probably needed together. Waits for
/// the device.
pub(crate) fn swapin<M: Machine>(
    memory: &Memory<M>,
    slot: SwapSlot,
    gfp: Gfp,
) -> Result<SwappedIn, CacheError> {
    swapin_near(memory, slot, gfp, |look| in_cluster(memory, slot, look))
}

/// The same; `near` chooses the slots to read together with the wanted one, which justify reclaim as that one does.
pub(crate) fn swapin_near<M: Machine>(
    memory: &Memory<M>,
    slot: SwapSlot,
    gfp: Gfp,
    near: impl Fn(SwapinStep) -> Nearby,
) -> Result<SwappedIn, CacheError> {
    let _scope = memory.scope(Scope::SwapinReadahead);
    memory.charge(Work::CacheLookup, 1);
    let mut found = memory.swap.cache_get(memory, slot);
    let (mut alone, mut waited) = (false, false);
    match found {
        // A larger folio says nothing about read-ahead, which reads single pages.
        Some(pfn) if memory.frames[pfn].order() > Order::ZERO => {}
        Some(pfn) => {
            let ahead = memory.frames[pfn].test_and_clear(FrameFlags::READAHEAD);
            memory.count(Stat::SwapRaHit, i64::from(ahead));
            near(SwapinStep::Found { ahead });
        }
        None => alone = read_nearby(memory, slot, gfp, near)?,
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
            waited = true;
        }
        if memory.frames[pfn].has(FrameFlags::UPTODATE) {
            return Ok(SwappedIn { folio: pfn, major, began_again: waited && !alone });
        }
        let failed = has_failed(memory, pfn, slot);
        memory.put(pfn);
        if failed {
            return Err(CacheError::Io);
        }
    }
}

/// Whether the read of a slot has failed. The page stays in the swap cache, and nobody gets its content, until it is
/// reclaimed: then the next task that needs it reads it again.
fn has_failed<M: Machine>(memory: &Memory<M>, pfn: Pfn, slot: SwapSlot) -> bool {
    memory.lock_folio(pfn);
    let here = page_of_slot(memory, pfn, slot).is_some();
    let failed = here && !memory.frames[pfn].has(FrameFlags::UPTODATE);
    memory.unlock_folio(pfn);
    failed
}

/// A folio from the swap cache, up to date, with a reference for the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SwappedIn {
    pub folio: Pfn,
    /// It was not in the swap cache: the caller started its read. (To wait for another task's read is no major fault.)
    pub major: bool,
    /// The caller waited for a read of several pages, or for another task's. In Linux the fault then begins again; it
    /// awaits a read of one page at once.
    pub began_again: bool,
}

/// The page of a locked folio that holds the content of a slot. `None`: the folio is no longer in the swap cache there.
pub(crate) fn page_of_slot<M: Machine>(memory: &Memory<M>, folio: Pfn, slot: SwapSlot) -> Option<Pfn> {
    let frame = &memory.frames[folio];
    debug_assert!(frame.has(FrameFlags::LOCKED));
    if !frame.has(FrameFlags::SWAPCACHE) {
        return None;
    }
    let page = slot.0.checked_sub(frame.swap_slot().0).filter(|&page| page < frame.pages())?;
    Some(folio.add(page))
}

/// The aligned cluster around a slot.
fn in_cluster<M: Machine>(memory: &Memory<M>, wanted: SwapSlot, step: SwapinStep) -> Nearby {
    let readahead = &memory.swap.readahead;
    let most = 1 << memory.knobs.get(Knob::PageCluster);
    match step {
        SwapinStep::Found { ahead: true } => readahead.hit(),
        SwapinStep::Found { ahead: false } => {}
        SwapinStep::Plan => {
            let pages = readahead.window(wanted, most);
            if pages > 1 {
                return memory.swap.window(wanted, pages.ilog2()).map(SwapSlot).collect();
            }
        }
        SwapinStep::Read => readahead.read(wanted, most),
    }
    Nearby::new()
}

/// Read the wanted slot and those that are worth reading with it. Returns whether there are none of the latter. `Err`:
/// memory is short, and nothing has changed.
fn read_nearby<M: Machine>(
    memory: &Memory<M>,
    wanted: SwapSlot,
    gfp: Gfp,
    near: impl Fn(SwapinStep) -> Nearby,
) -> Result<bool, Shortage> {
    let mut slots =
        if gfp.read_ahead == AllowedReadAhead::Window { near(SwapinStep::Plan) } else { Nearby::new() };
    // Another task may have read the wanted slot since, and the plan may lack it.
    if !slots.contains(&wanted) {
        slots.push(wanted);
    }
    let alone = slots.len() == 1;
    let needed = slots.iter().filter(|&&slot| is_unread(memory, slot)).count();
    let mut pages = memory.new_pages(needed, gfp)?.into_iter();
    near(SwapinStep::Read);
    for slot in slots.into_iter().filter(|&slot| is_unread(memory, slot)) {
        // Another task may have put one more slot to use since.
        let Some(page) = pages.next() else { break };
        if let Some(pfn) = read_into(memory, slot, page, gfp) {
            if slot != wanted {
                memory.frames[pfn].set(FrameFlags::READAHEAD);
                memory.count(Stat::SwapRa, 1);
            }
            memory.put(pfn);
        }
    }
    pages.for_each(|page| memory.put(page));
    Ok(alone)
}

/// Start reading a slot that no task waits for. Returns whether there was anything to read.
pub(super) fn read_ahead<M: Machine>(memory: &Memory<M>, slot: SwapSlot, gfp: Gfp) -> Result<bool, Shortage> {
    let Some(pfn) = read_slot(memory, slot, gfp)? else { return Ok(false) };
    memory.frames[pfn].set(FrameFlags::READAHEAD);
    memory.put(pfn);
    Ok(true)
}

/// Whether a slot is in use and not in the swap cache.
fn is_unread<M: Machine>(memory: &Memory<M>, slot: SwapSlot) -> bool {
    memory.swap.entries(slot) > 0 && !memory.swap.is_cached(slot)
}

/// Add a page for a slot to the swap cache and start its read. `None`: there is one already, or the slot is unused.
fn read_slot<M: Machine>(memory: &Memory<M>, slot: SwapSlot, gfp: Gfp) -> Result<Option<Pfn>, Shortage> {
    if !is_unread(memory, slot) {
        return Ok(None);
    }
    let pfn = memory.new_folio(Order::ZERO, gfp)?;
    Ok(read_into(memory, slot, pfn, gfp))
}

/// The same with a new page, which is freed if it is not used.
fn read_into<M: Machine>(memory: &Memory<M>, slot: SwapSlot, pfn: Pfn, gfp: Gfp) -> Option<Pfn> {
    enter(memory, slot, pfn, gfp)?;
    read_slot_into(memory, pfn, slot, false);
    Some(pfn)
}

/// Put a new page into the swap cache for a slot, locked. If it cannot be there, it is freed.
fn enter<M: Machine>(memory: &Memory<M>, slot: SwapSlot, pfn: Pfn, gfp: Gfp) -> Option<()> {
    let frame = &memory.frames[pfn];
    frame.set(FrameFlags::LOCKED | FrameFlags::SWAPBACKED);
    let Some(shadow) = memory.swap.cache_try_insert(memory, slot, pfn) else {
        frame.clear(FrameFlags::LOCKED);
        memory.put(pfn);
        return None;
    };
    if let Some(shadow) = shadow {
        let free = || memory.swap.free_slots();
        memory.lru.refault(memory, &[(pfn, shadow)], free, gfp.is_faulted());
    }
    memory.lru.add(memory, Some(pfn), gfp.is_faulted());
    Some(())
}

/// Read slots of zram, which only the caller uses, into a new folio that no other task can find. The shadow is that of
/// an earlier page in the first slot. `false`: the backing device has failed.
pub(crate) fn read_unshared<M: Machine>(
    memory: &Memory<M>,
    slot: SwapSlot,
    pfn: Pfn,
    shadow: Option<Shadow>,
    gfp: Gfp,
) -> bool {
    let is_large = memory.frames[pfn].order() != Order::ZERO;
    memory.frames[pfn].set(FrameFlags::LOCKED | FrameFlags::SWAPBACKED);
    if let Some(shadow) = shadow {
        let free = || memory.swap.free_slots();
        memory.lru.refault(memory, &[(pfn, shadow)], free, gfp.is_faulted());
    }
    if is_large {
        read_slots_into(memory, pfn, slot);
        return true;
    }
    read_slot_into(memory, pfn, slot, true);
    memory.wait_unlocked(pfn);
    memory.frames[pfn].has(FrameFlags::UPTODATE)
}

/// What became of a slot that zswap was to give up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ZswapRead {
    /// A new, locked page of the swap cache has its content, with a reference for the caller.
    Done(Pfn),
    /// It is in the swap cache already.
    Cached,
    /// zswap does not have it any more, or there is no memory.
    Failed,
}

/// Read what zswap has of a slot into a new page, to write it to the slot.
pub(super) fn read_zswap_slot<M: Machine>(memory: &Memory<M>, slot: SwapSlot, gfp: Gfp) -> ZswapRead {
    if memory.swap.is_cached(slot) {
        return ZswapRead::Cached;
    }
    take_from_zswap(memory, slot, gfp).map_or(ZswapRead::Failed, ZswapRead::Done)
}

fn take_from_zswap<M: Machine>(memory: &Memory<M>, slot: SwapSlot, gfp: Gfp) -> Option<Pfn> {
    if !is_unread(memory, slot) {
        return None;
    }
    let low = memory.new_folio(Order::ZERO, gfp);
    let pfn = low.or_else(|_| memory.new_folio(Order::ZERO, Gfp { mark: Watermark::Min, ..gfp })).ok()?;
    enter(memory, slot, pfn, gfp)?;
    if !memory.zswap.take_to_write(&memory.zswap_memory(), pfn, slot) {
        remove_from_swap_cache(memory, pfn, None);
        memory.unlock_folio(pfn);
        memory.put(pfn);
        return None;
    }
    memory.frames[pfn].set(FrameFlags::UPTODATE);
    Some(pfn)
}

/// Put a locked anonymous folio into the swap cache, with consecutive slots for its pages, and mark it dirty, so that
/// it can be unmapped and written. Returns `false` if swap has no such slots.
pub(crate) fn add_to_swap<M: Machine>(memory: &Memory<M>, pfn: Pfn) -> bool {
    let _scope = memory.scope(Scope::AddToSwap);
    let (order, group) = (memory.frames[pfn].order(), memory.frames[pfn].group());
    let Some(slot) = memory.swap.alloc_run(memory, group, order) else { return false };
    memory.swap.cache_insert(memory, slot, pfn);
    memory.note_swap_nodes();
    memory.frames[pfn].set(FrameFlags::DIRTY);
    true
}

/// Take a locked folio out of the swap cache, leave the shadow if given, and drop the cache's reference. The caller
/// holds another one, and the folio is not under write-back.
pub(crate) fn remove_from_swap_cache<M: Machine>(memory: &Memory<M>, pfn: Pfn, shadow: Option<Shadow>) {
    let frame = &memory.frames[pfn];
    debug_assert!(frame.has(FrameFlags::LOCKED) && !frame.has(FrameFlags::WRITEBACK));
    memory.remove_from_swap(frame.swap_slot(), shadow);
    memory.note_swap_nodes();
    let last = frame.put(1);
    debug_assert!(!last, "the caller must hold folio {pfn}");
    let mapped = memory.frames.pages_mapped(pfn);
    if mapped > 0 && mapped < frame.pages() {
        // Its unmapped pages cannot be mapped again from now on.
        memory.lru.defer_split(memory, pfn);
    }
}

/// Take a locked folio out of the swap cache if no entry needs its slots and it is not under write-back. It is dirty
/// then, because memory holds the only copy.
pub(crate) fn free_swap<M: Machine>(memory: &Memory<M>, pfn: Pfn) -> bool {
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

/// Entries that mapped an anonymous folio, to which the caller has a reference, were removed. If only the swap cache
/// still holds the folio, it is freed, as in [`drop_swap_entry`].
#[inline]
pub(crate) fn drop_unmapped<M: Machine>(memory: &Memory<M>, frame: &Frame, pfn: Pfn) {
    if frame.has(FrameFlags::SWAPCACHE) && frame.mapcount() == 0 && memory.try_lock_folio(pfn) {
        free_swap(memory, pfn);
        memory.unlock_folio(pfn);
    }
}

/// An entry that referred to a slot was removed. If it was the last, and only the swap cache still holds the folio, the
/// folio is freed now, unless it is in use. A folio that is mapped again keeps its slot, unless slots are scarce: until
/// it is stored to, it can be evicted again without a write.
pub(crate) fn drop_swap_entry<M: Machine>(memory: &Memory<M>, slot: SwapSlot) {
    #[expect(clippy::disallowed_methods, reason = "callers have removed the entry")]
    let left = memory.free_swap_entry(slot);
    if left > 0 {
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
