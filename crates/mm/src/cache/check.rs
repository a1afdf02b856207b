//! Consistency of files, folios and counters.

use super::tree::{CachedFolio, MAX_INDEX, TreeEntry, TreeMark};
use super::{Cache, File};
use crate::frame::{FrameFlags, Owner};
use crate::machine::Machine;
use crate::memory::Memory;
use crate::slab::Record;
use crate::stat::Stat;
use crate::swap::NamedSlots;
use crate::units::*;
use std_alloc::format;
use std_alloc::string::String;

/// The values that the counters should have.
#[derive(Default)]
struct CountedPages {
    file: i64,
    shmem: i64,
    dirty: i64,
    writeback: i64,
    swapcached: i64,
    leaves: i64,
    nodes: u64,
    buffers: u64,
    named: NamedSlots,
}

impl Cache {
    /// Check trees against frames, the swap cache against frames, and both against the counters, while no task is
    /// inside a call; I/O may be under way. Returns the slots of swap that shmem files name, or the first fault.
    pub(crate) fn validate<M: Machine>(&self, memory: &Memory<M>) -> Result<NamedSlots, String> {
        let mut found = CountedPages::default();
        for id in self.ids() {
            self.check_file(memory, id, &mut found).map_err(|fault| format!("{id}: {fault}"))?;
        }
        check_swap_cache(memory, &mut found)?;
        let levels = [
            (Stat::NrFilePages, found.file + found.swapcached),
            (Stat::NrShmem, found.shmem),
            (Stat::NrDirty, found.dirty),
            (Stat::NrWriteback, found.writeback),
            (Stat::NrSwapcached, found.swapcached),
            (Stat::WorkingsetNodes, found.leaves),
        ];
        for (stat, right) in levels {
            let counted = memory.stats.read(stat);
            if counted != right {
                return Err(format!("{} is {counted}, found {right}", stat.name()));
            }
        }
        let (counted, leaves) = (self.shadow_leaves() as i64, found.leaves);
        if counted != leaves {
            return Err(format!("{counted} leaves of shadows are counted of {leaves}"));
        }
        memory.slabs.check(Record::TreeNode, found.nodes + memory.swap.told_nodes())?;
        memory.slabs.check(Record::BufferHead, found.buffers)?;
        Ok(found.named)
    }

    fn check_file<M: Machine>(
        &self,
        memory: &Memory<M>,
        id: FileId,
        found: &mut CountedPages,
    ) -> Result<(), String> {
        let f = self.file(id);
        let tree = f.tree.look();
        tree.validate()?;
        found.leaves += tree.count_shadow_leaves() as i64;
        found.nodes += tree.nodes();
        for (index, folio) in tree.folios_in(TreeMark::Folio, 0..MAX_INDEX) {
            let marks = [TreeMark::Dirty, TreeMark::Writeback].map(|mark| tree.has_mark(index, mark));
            check_folio(memory, f, id, index, folio, marks)
                .map_err(|fault| format!("page {index}: {fault}"))?;
            let pages = folio.pages() as i64;
            found.file += pages;
            found.buffers += pages as u64 * u64::from(memory.frames[folio.head].has(FrameFlags::BUFFERS));
            found.shmem += pages * i64::from(f.is_shmem());
            found.dirty += pages * i64::from(marks[0]);
            found.writeback += pages * i64::from(marks[1]);
        }
        for (index, entry) in tree.iter(TreeMark::Swap, 0..MAX_INDEX) {
            if !f.is_shmem() {
                return Err(format!("page {index} of a disk file is in swap"));
            }
            if let TreeEntry::Swap(slot) = entry {
                found.named.add(slot, 1);
            }
        }
        Ok(())
    }
}

fn check_folio<M: Machine>(
    memory: &Memory<M>,
    f: &File,
    id: FileId,
    index: PageIndex,
    folio: CachedFolio,
    [dirty, writeback]: [bool; 2],
) -> Result<(), String> {
    let pfn = folio.head;
    let frame = &memory.frames[pfn];
    let flags = frame.flags();
    let whole = (0..folio.pages() as u32).all(|i| memory.frames.head(pfn.add(i)) == pfn);
    if frame.order() != folio.order || !whole {
        return Err(format!("{pfn} is of {}, the tree says {}", frame.order(), folio.order));
    }
    if (frame.owner(), frame.page_index()) != (Owner::File(id), index) {
        return Err(format!("{pfn} belongs to {:?}, {}", frame.owner(), frame.page_index()));
    }
    if frame.refs() < 1 + frame.mapcount() {
        return Err(format!("{pfn} has {} references and {} mappings", frame.refs(), frame.mapcount()));
    }
    if flags.contains(FrameFlags::SWAPBACKED) != f.is_shmem() || flags.contains(FrameFlags::SWAPCACHE) {
        return Err(format!("{pfn} has {flags:?} in a file of kind {:?}", f.kind()));
    }
    if !f.is_shmem()
        && (flags.contains(FrameFlags::DIRTY), flags.contains(FrameFlags::WRITEBACK)) != (dirty, writeback)
    {
        return Err(format!("{pfn} has {flags:?}, the tree says dirty {dirty}, writeback {writeback}"));
    }
    if !flags.intersects(FrameFlags::UPTODATE | FrameFlags::LOCKED) && !f.has_read_error() {
        return Err(format!("{pfn} is neither up to date nor being read"));
    }
    if index.0 >= f.pages() {
        return Err(format!("{pfn} is after the end, {} bytes", f.size()));
    }
    Ok(())
}

fn check_swap_cache<M: Machine>(memory: &Memory<M>, found: &mut CountedPages) -> Result<(), String> {
    let mut fault = Ok(());
    memory.swap.for_cached(&mut |slot, pfn| {
        let frame = &memory.frames[pfn];
        found.swapcached += 1;
        found.writeback += i64::from(frame.has(FrameFlags::WRITEBACK));
        let knows = frame.has(FrameFlags::SWAPCACHE | FrameFlags::SWAPBACKED)
            && (frame.swap_slot().0..frame.swap_slot().0 + frame.pages()).contains(&slot.0);
        let held = frame.refs() > frame.mapcount();
        if !knows || !held || matches!(frame.owner(), Owner::File(_)) {
            fault = Err(format!(
                "{slot} caches {pfn}, which has {:?}, owner {:?}, {} references and {} mappings",
                frame.flags(),
                frame.owner(),
                frame.refs(),
                frame.mapcount()
            ));
        }
    });
    fault
}
