//! fork: the child maps what the parent maps; private pages are shared until one of them writes.

use super::vma::Vma;
use super::{Spaces, Stop};
use crate::event::{Concern, Event};
use crate::frame::FrameFlags;
use crate::machine::{Machine, WaitKey, Work};
use crate::memory::Gfp;
use crate::store::Store;
use crate::table::{Absent, Bits, Leaf, Locked, Resident, Rights, Settled};
use crate::tlb::{Range, stale};
use crate::units::*;
use std_alloc::vec::Vec;

impl Spaces {
    /// A copy of `parent`.
    pub fn fork<M: Machine>(&self, st: &Store<M>, parent: SpaceId, gfp: Gfp) -> Result<SpaceId, Stop> {
        let child = self.create(st, gfp)?;
        let held = self.at(parent).mapping.write(&st.machine, WaitKey::Space(parent));
        // The parent loses the right to write to its private pages.
        st.tlb.begin_tightening(parent);
        let ranges: Vec<Vma> = self.at(parent).vmas.lock().iter().cloned().collect();
        let mut outcome = Ok(());
        for range in &ranges {
            outcome = self.copy_range(st, parent, child, range, gfp);
            if outcome.is_err() {
                break;
            }
        }
        // Before it goes on, no CPU may still have it.
        st.tlb.flush(st.memory().ground(), parent, Range::ALL);
        st.tlb.end_tightening(parent);
        let concern = Concern::FlushedAtOnce { space: parent, first: Vpn(0), count: u64::MAX };
        st.event(Event::TlbHazard, concern.args());
        drop(held);
        if let Err(stop) = outcome {
            self.exit(st, child);
            return Err(stop);
        }
        Ok(child)
    }

    fn copy_range<M: Machine>(
        &self,
        st: &Store<M>,
        parent: SpaceId,
        child: SpaceId,
        source: &Vma,
        gfp: Gfp,
    ) -> Result<(), Stop> {
        let space = self.at(child);
        let mut copy = source.clone();
        copy.view.id = self.new_vma_id();
        // The child may map pages of all sets of its parent; what it makes itself goes to a set of its own, later.
        copy.view.anon = None;
        // Locks on memory are not inherited.
        copy.view.flags.remove(super::VmaFlags::LOCKED);
        copy.link(st, child, space.group());
        space.vmas.lock().insert(copy);
        st.charge(Work::VmaChange, 1);
        // Pages of files that no private copy was made of can be faulted in again.
        if source.sets.is_empty() {
            return Ok(());
        }
        self.copy_entries(st, parent, child, source, gfp)
    }

    fn copy_entries<M: Machine>(
        &self,
        st: &Store<M>,
        parent: SpaceId,
        child: SpaceId,
        range: &Vma,
        gfp: Gfp,
    ) -> Result<(), Stop> {
        let base = st.memory().ground();
        let mut from = st.tables.lock(base, parent);
        let mut to = st.tables.lock(base, child).settle();
        let mut outcome = Ok(());
        from.for_each(range.view.start, range.view.end(), &mut |from, leaf| {
            if outcome.is_ok() {
                outcome = to
                    .reserve(&st.alloc, leaf.page, gfp.mark, gfp.reserve)
                    .map(|slot| copy_entry(st, from, &mut to, leaf, slot, range.view.is_shared()))
                    .map_err(Stop::from);
            }
        });
        outcome
    }
}

/// Share one page, or one slot of swap, between parent and child.
fn copy_entry<M: Machine>(
    st: &Store<M>,
    from: &mut Locked<'_, M>,
    to: &mut Settled<'_, M>,
    leaf: Leaf,
    slot: crate::table::Slot,
    shared: bool,
) {
    st.charge(Work::EntrySet, 1);
    if let Some((swap, _)) = leaf.entry.as_swap() {
        st.swap.dup(swap);
        let shared = Absent::Swap { slot: swap, exclusive: false };
        from.clear(leaf.slot, shared);
        to.clear(slot, shared);
        to.counts().add(Resident::Swap, 1);
        return;
    }
    let mut entry = leaf.entry;
    if !shared && entry.has(Bits::WRITE) {
        let old = from.forbid_writes(leaf.slot);
        stale(st.memory().ground(), &leaf.cleared(from.space(), old, old.pfn()), true);
        entry = old.without(Bits::WRITE);
    }
    let pfn = entry.pfn();
    if pfn != st.zero {
        let frame = &st.frames[pfn];
        if frame.is_anon() {
            frame.clear(FrameFlags::EXCLUSIVE);
        }
        frame.get(1);
        st.rmap.add(st.memory().ground(), pfn);
        to.counts().add(super::unmap::resident_kind(st, pfn), 1);
    }
    // The child has not used it. That a private page was written must be told by either entry, whichever is left: the
    // page may not be dropped as if MADV_FREE had been the last word on it.
    let forget = if shared { Rights::YOUNG | Rights::DIRTY } else { Rights::YOUNG };
    to.inherit(slot, from, leaf.slot, forget);
}
