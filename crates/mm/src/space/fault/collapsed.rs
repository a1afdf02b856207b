//! What a collapse of anonymous memory does as a fault does.

use super::{Fault, FaultStop};
use crate::api::AccessKind;
use crate::frame::Owner;
use crate::machine::{Machine, Work};
use crate::memory::Gfp;
use crate::mm_core::MmCore;
use crate::primitive::Ordering::*;
use crate::space::{Space, VmaFlags, VmaView};
use crate::table::{Detached, Entry, Resident};
use crate::units::*;

const PAGES: u64 = TABLE_ENTRIES as u64;

/// Bring back what the 2 MiB from `start` on have in swap. The mapping semaphore is held.
pub(in crate::space) fn bring_back<M: Machine>(
    core: &MmCore<M>,
    (id, space): (SpaceId, &Space),
    vma: &VmaView,
    start: Vpn,
    gfp: Gfp,
) -> Result<(), FaultStop> {
    let (tree, access) = (core.tables.tree(id), AccessKind::Load);
    for page in (start.0..start.0 + PAGES).map(Vpn) {
        let fault = Fault { core, id, space, tree, vma, page, access, gfp };
        let entry = fault.lock().find(page).map_or(Entry::NONE, |leaf| leaf.entry);
        if let Some((slot, exclusive)) = entry.as_swap() {
            fault.swap_fault(entry, slot, exclusive)?;
        }
    }
    Ok(())
}

/// Make `whole`, a new folio of 2 MiB that holds what the 512 pages from `start` on show, anonymous memory of this
/// range, and map it in the place of their table. The mapping semaphore is held alone, and the caller's reference goes
/// to the entry.
pub(in crate::space) fn map_copy<M: Machine>(
    core: &MmCore<M>,
    (id, space): (SpaceId, &Space),
    vma: &VmaView,
    start: Vpn,
    detached: Detached,
    whole: Pfn,
    gfp: Gfp,
) {
    let (base, tree, access) = (core, core.tables.tree(id), AccessKind::Store);
    let fault = Fault { core, id, space, tree, vma, page: start, access, gfp };
    core.make_large_anon(whole, Owner::Anon(fault.anon_set()), vma.anon_index(start));
    let mut tables = fault.lock();
    space.large.store(true, Relaxed);
    core.rmap.add_large(base, whole);
    tables.counts().add(Resident::Anon, PAGES as i64);
    core.charge(Work::EntrySet, 1);
    tables.settle().install_for(detached, whole, fault.rights(true));
    core.lru.add(base, [whole], false);
    if vma.flags.contains(VmaFlags::LOCKED) {
        fault.mlock_page();
    }
}
