//! The end of a space, and reaping the memory of one that the OOM killer has chosen.

use super::Spaces;
use super::zap::{Zap, zap, zap_if};
use crate::frame::{FrameFlags, Owner};
use crate::machine::{Machine, WaitKey};
use crate::mm_core::MmCore;
use crate::primitive::Ordering::*;
use crate::swap::NamedSlots;
use crate::table::{Absent, EntryRun, USER_END};
use crate::units::*;
use std_alloc::string::String;
use std_alloc::vec::Vec;

impl Spaces {
    /// Unmap everything and free the space. No task may be in it.
    pub fn exit<M: Machine>(&self, core: &MmCore<M>, id: SpaceId) {
        let space = self.at(id);
        {
            // Once the lock is held, no reaper is at work in the space, and none begins.
            let _life = space.life.lock();
            space.alive.store(false, Release);
        }
        // khugepaged may still be at work in the space, but no longer finds it.
        drop(space.mapping.write(&core.machine, WaitKey::Space(id)));
        core.tlb.destroy(core.host(), id);
        let vmas: Vec<_> = space.vmas.lock().iter().cloned().collect();
        core.gather(id, |gather| {
            for vma in &vmas {
                zap(core, Zap::of(&vma.view, vma.view.start, vma.view.end()), gather);
            }
        });
        // Unlink before the tables go: a reverse-map walk on another CPU would look for entries in them.
        for vma in vmas {
            vma.unlink(core);
        }
        core.gather(id, |gather| core.tables.destroy(core, id, gather));
        *space.vmas.lock() = Default::default();
        core.tlb.release(id);
    }

    /// Mark a space as killed, and take its private memory without waiting for its tasks, which can only fault from
    /// now on. Returns `false` if it has ended or was killed before.
    pub fn kill<M: Machine>(&self, core: &MmCore<M>, id: SpaceId) -> bool {
        let space = self.at(id);
        // The lock keeps the space alive, so its id is not reused.
        let _life = space.life.lock();
        let chosen = space.is_alive() && !space.killed.swap(true, AcqRel);
        if chosen {
            self.reap(core, id);
        }
        chosen
    }

    fn reap<M: Machine>(&self, core: &MmCore<M>, id: SpaceId) {
        core.gather(id, |gather| {
            gather.changes(Vpn(0), USER_END);
            zap_if(core, Zap::new(Vpn(0), USER_END), gather, |run| {
                let frame = run.entry.is_present().then(|| &core.frames[run.mapped(&core.frames).head]);
                !frame.is_some_and(|frame| matches!(frame.owner(), Owner::File(_)))
            });
        });
    }

    /// Check the ranges and tables of every space, and that the reverse maps hold all ranges and no others. Returns the
    /// slots of swap that entries name.
    pub(crate) fn validate<M: Machine>(&self, core: &MmCore<M>, bound: u32) -> Result<NamedSlots, String> {
        let (mut links, mut named) = (0, NamedSlots::default());
        for id in self.ids(bound) {
            let in_space = |error: String| std_alloc::format!("{id}: {error}");
            let space = self.at(id);
            let vmas = space.vmas.lock();
            vmas.validate().map_err(in_space)?;
            let mut tables = core.tables.lock(core, id);
            let entries = tables.validate().map_err(in_space)?;
            let mut inside = 0;
            for vma in vmas.iter() {
                for (owner, span) in vma.spans(id, space.group()) {
                    links += 1;
                    if !core.rmap.is_linked(owner, &span) {
                        return Err(in_space(std_alloc::format!("{owner:?} does not list {span:?}")));
                    }
                }
                let mut fault = None;
                tables.for_each(vma.view.start, vma.view.end(), |_, run| {
                    inside += run.count as u64;
                    if run.page < vma.view.start || run.end() > vma.view.end() {
                        fault = Some(std_alloc::format!("{run:?} exceeds {:?}", vma.view));
                    }
                    if !run.entry.is_present() {
                        fault = check_absent(core, &run, &mut named).err().or(fault.take());
                    }
                });
                if let Some(fault) = fault {
                    return Err(in_space(fault));
                }
            }
            if entries != inside {
                return Err(in_space(std_alloc::format!(
                    "{entries} entries, {inside} of them in mapped ranges"
                )));
            }
        }
        match core.rmap.links() {
            held if held == links => Ok(named),
            held => Err(std_alloc::format!("reverse maps hold {held} spans, ranges have {links}")),
        }
    }
}

/// Note which slots entries name, and check that somebody holds the page that they wait for: its folio stays locked, by
/// a task with a reference, until it has moved.
fn check_absent<M: Machine>(core: &MmCore<M>, run: &EntryRun, named: &mut NamedSlots) -> Result<(), String> {
    match run.entry.absent() {
        Absent::None => {}
        Absent::Swap { slot, .. } => named.add(slot, run.count),
        Absent::Moving(moving) => {
            let head = core.frames.head(moving.page());
            let frame = &core.frames[head];
            if !frame.has(FrameFlags::LOCKED) || frame.refs() <= frame.known_refs() {
                let page = run.page;
                return Err(std_alloc::format!("the entry of {page} waits for {head}, which nobody moves"));
            }
        }
    }
    Ok(())
}
