//! madvise.

use super::unmap::{resident_kind, zap};
use super::vma::{VmaFlags, VmaView};
use super::{Spaces, Stop};
use crate::api::{Advice, Error};
use crate::cache::{drop_swap_entry, free_swap};
use crate::frame::FrameFlags;
use crate::machine::{Machine, WaitKey, Work};
use crate::stat::Stat;
use crate::store::Store;
use crate::table::{Absent, Bits, Leaf, Locked};
use crate::tlb::{Gather, Purpose, stale};
use crate::units::*;
use std_alloc::vec::Vec;

/// What the facade, which stands above reclaim and read-ahead, is left to do.
#[derive(Debug, Default)]
pub struct Advised {
    /// Folios taken off their lists, with a reference each, that are to be reclaimed now.
    pub page_out: Vec<Pfn>,
    /// Parts of files that are to be read in: file, first index, number of pages.
    pub will_need: Vec<(FileId, PageIndex, u64)>,
}

impl Spaces {
    /// madvise, but for the reading and reclaiming that it asks for.
    pub fn madvise<M: Machine>(
        &self,
        st: &Store<M>,
        id: SpaceId,
        start: Vpn,
        pages: u64,
        advice: Advice,
    ) -> Result<Advised, Stop> {
        let end = Vpn(start.0 + pages);
        let space = self.at(id);
        let mut advised = Advised::default();
        if matches!(advice, Advice::Normal | Advice::Random | Advice::Sequential) {
            let _held = space.mapping.write(&st.machine, WaitKey::Space(id));
            let covered = space.vmas.lock().covers(start, end);
            self.change_ranges(st, id, start, end, |vmas, at| {
                vmas.update(at, |vma| {
                    vma.view.flags.remove(VmaFlags::SEQUENTIAL | VmaFlags::RANDOM);
                    vma.view.flags.set(VmaFlags::SEQUENTIAL, advice == Advice::Sequential);
                    vma.view.flags.set(VmaFlags::RANDOM, advice == Advice::Random);
                });
            });
            return if covered { Ok(advised) } else { Err(Error::NotMapped.into()) };
        }
        let _held = space.mapping.read(&st.machine, WaitKey::Space(id));
        let (views, covered) = {
            let vmas = space.vmas.lock();
            (vmas.overlapping(start, end).map(|vma| vma.view).collect::<Vec<_>>(), vmas.covers(start, end))
        };
        let purpose = match advice {
            Advice::DontNeed | Advice::Free => Purpose::Meaning,
            _ => Purpose::Age,
        };
        st.gather(id, purpose, |gather| {
            views.iter().try_for_each(|view| {
                let (from, to) = (start.max(view.start), end.min(view.end()));
                advise_range(st, id, view, from, to, advice, gather, &mut advised)
            })
        })?;
        // As the system call does: the mapped parts are served, then the holes are complained about.
        if covered { Ok(advised) } else { Err(Error::NotMapped.into()) }
    }
}

#[allow(clippy::too_many_arguments)]
fn advise_range<M: Machine>(
    st: &Store<M>,
    id: SpaceId,
    vma: &VmaView,
    from: Vpn,
    to: Vpn,
    advice: Advice,
    gather: &mut Gather,
    advised: &mut Advised,
) -> Result<(), Error> {
    let locked = vma.flags.contains(VmaFlags::LOCKED);
    match advice {
        Advice::DontNeed | Advice::Cold | Advice::PageOut if locked => return Err(Error::Invalid),
        Advice::Free if locked || vma.file.is_some() => return Err(Error::Invalid),
        Advice::DontNeed => {
            gather.changes(from, to);
            zap(st, id, vma, from, to, gather);
        }
        Advice::WillNeed => {
            advised.will_need.extend(vma.file_index(from).map(|(file, index)| (file, index, to.0 - from.0)));
        }
        _ => {
            let mut tables = st.tables.lock(st.memory().ground(), id);
            tables.for_each(from, to, &mut |tables, leaf| match advice {
                Advice::Free => lazyfree_entry(st, tables, leaf, gather),
                Advice::Cold => {
                    cold_entry(st, tables, leaf, gather);
                }
                _ => {
                    let cold = cold_entry(st, tables, leaf, gather);
                    let alone = cold.filter(|&pfn| st.frames[pfn].mapcount() == 1);
                    advised.page_out.extend(alone.filter(|&pfn| st.lru.isolate(st.memory().ground(), pfn)));
                }
            });
        }
    }
    Ok(())
}

/// Forget that a page was used, and let its folio go first when memory is wanted.
fn cold_entry<M: Machine>(
    st: &Store<M>,
    tables: &mut Locked<'_, M>,
    leaf: Leaf,
    gather: &mut Gather,
) -> Option<Pfn> {
    let pfn = leaf.entry.is_present().then(|| leaf.entry.pfn()).filter(|&pfn| pfn != st.zero)?;
    if leaf.entry.has(Bits::YOUNG) {
        tables.clear_young(leaf.slot);
        st.charge(Work::EntryClear, 1);
        gather.touched(leaf.page);
    }
    st.frames[pfn].clear(FrameFlags::REFERENCED);
    st.lru.deactivate(st.memory().ground(), pfn);
    Some(pfn)
}

/// MADV_FREE of one page: its content may be dropped until it is written again.
fn lazyfree_entry<M: Machine>(st: &Store<M>, tables: &mut Locked<'_, M>, leaf: Leaf, gather: &mut Gather) {
    if let Some((slot, _)) = leaf.entry.as_swap() {
        tables.clear(leaf.slot, Absent::None);
        tables.counts().add(crate::table::Resident::Swap, -1);
        drop_swap_entry(st.memory(), slot);
        return;
    }
    let pfn = leaf.entry.pfn();
    let frame = &st.frames[pfn];
    if pfn == st.zero || resident_kind(st, pfn) != crate::table::Resident::Anon || frame.mapcount() != 1 {
        return;
    }
    if !st.try_lock_folio(pfn) {
        return;
    }
    let in_swap_cache = frame.has(FrameFlags::SWAPCACHE) && !free_swap(st.memory(), pfn);
    if !in_swap_cache {
        frame.clear(FrameFlags::DIRTY);
        // The flush comes before a store can set the bit again unseen: a CPU that holds a dirty translation does not
        // set it in the entry.
        tables.clear_young_and_dirty(leaf.slot);
        st.charge(Work::EntryClear, 1);
        stale(st.memory().ground(), &leaf.cleared(tables.space(), leaf.entry, pfn), true);
        gather.touched(leaf.page);
        if frame.has(FrameFlags::SWAPBACKED) {
            st.lru.lazyfree(st.memory().ground(), pfn);
            st.count(Stat::Pglazyfree, frame.pages() as i64);
        }
    }
    st.unlock_folio(pfn);
}
