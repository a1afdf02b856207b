//! Read-ahead of single pages, which are added and submitted in runs.

use super::Cache;
use super::file::File;
use super::io::{count_read, submit};
use super::membership::RUN;
use super::readahead::PagesToRead;
use super::request::BlockRequest;
use crate::alloc::Watermark;
use crate::folio::NewPages;
use crate::frame::FrameFlags;
use crate::machine::{Io, Machine, Scope};
use crate::memory::{AllowedReadAhead, Gfp, Memory, Shortage};
use crate::units::*;
use core::ops::Range;
use smallvec::SmallVec;

type Places = SmallVec<[(PageIndex, Pfn); RUN]>;

impl Cache {
    /// Start to read pages that are not cached, as single pages. Stops when the given ones are used up and memory is
    /// short.
    pub(super) fn read_pages<M: Machine>(
        &self,
        memory: &Memory<M>,
        id: FileId,
        what: PagesToRead,
        mut gfp: Gfp,
        request: &mut BlockRequest,
    ) {
        let PagesToRead { range, mark, pages } = what;
        let f = self.file(id);
        let mut pages = pages.into_iter();
        let mut from = range.start;
        while from < range.end {
            let mut places = Places::new();
            {
                let tree = f.tree.look();
                while from < range.end && places.len() < RUN {
                    let index = PageIndex(from);
                    match tree.folio(index) {
                        Some(folio) => from = folio.end(index),
                        None => {
                            places.push((index, Pfn::NONE));
                            from += 1;
                        }
                    }
                }
            }
            let complete = self.add_pages(memory, id, &mut places, &mut pages, &mut gfp).is_ok();
            if let Some(&(_, pfn)) = places.iter().find(|(index, _)| Some(index.0) == mark) {
                memory.frames[pfn].set(FrameFlags::READAHEAD);
            }
            self.fill_pages(memory, f, &places, request);
            if !complete {
                break;
            }
        }
        // Other tasks have read some.
        pages.for_each(|pfn| memory.put(pfn));
    }

    /// Allocate pages for those of a range that are not cached, or for the first of them if a part is enough. `Err`:
    /// memory is short.
    pub(super) fn pages_to_read<M: Machine>(
        &self,
        memory: &Memory<M>,
        id: FileId,
        range: Range<u64>,
        mut gfp: Gfp,
    ) -> Result<NewPages, Shortage> {
        let missing = {
            let tree = self.file(id).tree.look();
            range.filter(|&index| tree.folio(PageIndex(index)).is_none()).count()
        };
        let mut pages = NewPages::new();
        for _ in 0..missing {
            match new_page(memory, &mut gfp) {
                Ok(pfn) => pages.push(pfn),
                Err(_) if gfp.read_ahead == AllowedReadAhead::Part && !pages.is_empty() => break,
                Err(shortage) => {
                    memory.put_folios(pages.into_iter().map(|pfn| (pfn, 1)));
                    return Err(shortage);
                }
            }
        }
        Ok(pages)
    }

    /// Take or allocate pages for some places and add them ([`Cache::add`]). `places` has the added pages afterwards.
    /// `Err`: memory was short for some.
    fn add_pages<M: Machine>(
        &self,
        memory: &Memory<M>,
        id: FileId,
        places: &mut Places,
        pages: &mut impl Iterator<Item = Pfn>,
        gfp: &mut Gfp,
    ) -> Result<(), Shortage> {
        let _scope = memory.scope(Scope::FilemapAddFolio);
        let mut result = Ok(());
        for at in 0..places.len() {
            match pages.next().map_or_else(|| new_page(memory, gfp), Ok) {
                Ok(pfn) => places[at].1 = pfn,
                Err(shortage) => {
                    places.truncate(at);
                    result = Err(shortage);
                    break;
                }
            }
        }
        let added = self.add(memory, id, Order::ZERO, places, *gfp);
        places.truncate(added);
        result
    }

    /// Start to fill new, locked pages. Each is unlocked when it is up to date.
    fn fill_pages<M: Machine>(
        &self,
        memory: &Memory<M>,
        f: &File,
        places: &Places,
        request: &mut BlockRequest,
    ) {
        let [Some(&(first, _)), Some(&(last, _))] = [places.first(), places.last()] else { return };
        let _stall = places.iter().find_map(|&(_, pfn)| memory.refault_stall(pfn));
        if f.is_shmem() || !f.extents.lock().holds_all(first.0..last.0 + 1) {
            return places.iter().for_each(|&(_, pfn)| self.fill(memory, f, pfn, request));
        }
        count_read(memory, places.len() as u32);
        for &(index, frame) in places {
            let (device, block) = f.place(index);
            submit(memory, Io { device, write: false, block, frame, pages: 1, continues: false }, request);
        }
    }
}

/// Allocate a page for read-ahead. Below the low mark it may use the pages down to the min mark: they are for the time
/// until kswapd, which the first such page wakes, has made room.
#[inline]
fn new_page<M: Machine>(memory: &Memory<M>, gfp: &mut Gfp) -> Result<Pfn, Shortage> {
    match memory.new_folio(Order::ZERO, *gfp) {
        Err(Shortage::Zone(_)) if gfp.mark == Watermark::Low => {
            gfp.mark = Watermark::Min;
            memory.new_folio(Order::ZERO, *gfp)
        }
        other => other,
    }
}
