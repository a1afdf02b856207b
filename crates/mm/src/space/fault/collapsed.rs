//! The parts of a collapse of anonymous memory that work like a fault.

use super::{Fault, FaultStop};
use crate::api::AccessKind;
use crate::frame::Owner;
use crate::machine::{Machine, Work};
use crate::memory::Gfp;
use crate::mm_core::MmCore;
use crate::primitive::Ordering::*;
use crate::space::{Space, VmaFlags, VmaView};
use crate::table::{Detached, Resident};
use crate::units::*;

const PAGES: u64 = TABLE_ENTRIES as u64;

/// 2 MiB of a range that one entry could map.
#[derive(Clone, Copy)]
pub(in crate::space) struct PmdRange<'a> {
    pub(in crate::space) id: SpaceId,
    pub(in crate::space) space: &'a Space,
    pub(in crate::space) vma: &'a VmaView,
    pub(in crate::space) start: Vpn,
    pub(in crate::space) gfp: Gfp,
}

impl<'a> PmdRange<'a> {
    /// First page after it.
    pub(in crate::space) fn end(&self) -> Vpn {
        Vpn(self.start.0 + PAGES)
    }

    /// The fault of an access to one of its pages.
    pub(super) fn fault<M: Machine>(
        &self,
        core: &'a MmCore<M>,
        page: Vpn,
        access: AccessKind,
    ) -> Fault<'a, M> {
        let PmdRange { id, space, vma, gfp, .. } = *self;
        Fault { core, id, space, tree: core.tables.tree(id), vma, page, access, gfp }
    }
}

/// Swap in all pages of 2 MiB. The caller holds the mapping semaphore.
pub(in crate::space) fn swap_in_all<M: Machine>(
    core: &MmCore<M>,
    place: &PmdRange<'_>,
) -> Result<(), FaultStop> {
    for page in (place.start.0..place.end().0).map(Vpn) {
        let fault = place.fault(core, page, AccessKind::Load);
        let entry = fault.tree.look(core, page);
        if let Some((slot, exclusive)) = entry.as_swap() {
            fault.swap_fault(entry, slot, exclusive)?;
        }
    }
    Ok(())
}

/// Map `whole`, a new folio with a copy of the 2 MiB, in place of the detached table, as anonymous memory of the range.
/// The caller holds the mapping semaphore alone; its reference passes to the entry.
pub(in crate::space) fn map_copy<M: Machine>(
    core: &MmCore<M>,
    place: &PmdRange<'_>,
    detached: Detached,
    whole: Pfn,
) {
    let fault = place.fault(core, place.start, AccessKind::Store);
    core.make_large_anon(whole, Owner::Anon(fault.anon_set()), fault.vma.anon_index(place.start));
    let tables = fault.tree.lock(core, place.id);
    place.space.large.store(true, Relaxed);
    core.rmap.add_large(core, whole);
    tables.counts().add(Resident::Anon, PAGES as i64);
    core.charge(Work::EntrySet, 1);
    tables.settle().install_for(detached, whole, fault.rights(true));
    core.lru.add(core, Some(whole), false);
    if fault.vma.flags.contains(VmaFlags::LOCKED) {
        fault.mlock_page();
    }
}
