//! The end of a space, and taking the memory of one that must die.

use super::Spaces;
use super::unmap::{zap, zap_if};
use crate::frame::Owner;
use crate::machine::{Machine, WaitKey};
use crate::mm_core::MmCore;
use crate::primitive::Ordering::*;
use crate::table::USER_END;
use crate::units::*;
use std_alloc::string::String;
use std_alloc::vec::Vec;

impl Spaces {
    /// Unmap everything and forget the space. No task is in it any more.
    pub fn exit<M: Machine>(&self, core: &MmCore<M>, id: SpaceId) {
        let space = self.at(id);
        {
            // Whoever reaps it has done, and nobody begins to.
            let _life = space.life.lock();
            space.alive.store(false, Release);
        }
        // khugepaged may be at work in it, which finds it no more from now on.
        drop(space.mapping.write(&core.machine, WaitKey::Space(id)));
        core.tlb.destroy(core, id);
        let vmas: Vec<_> = space.vmas.lock().iter().cloned().collect();
        core.gather(id, |gather| {
            for vma in &vmas {
                zap(core, id, &vma.view, vma.view.start, vma.view.end(), gather);
            }
        });
        // Before the tables go: whoever walks a reverse map on another CPU would look for entries in them.
        for vma in vmas {
            vma.unlink(core);
        }
        core.gather(id, |gather| core.tables.destroy(core, id, gather));
        *space.vmas.lock() = Default::default();
        core.tlb.release(id);
    }

    /// Choose a space to die, and take its private memory without waiting for its tasks: they can only fault. `false`:
    /// it has ended meanwhile, or was chosen before.
    pub fn kill<M: Machine>(&self, core: &MmCore<M>, id: SpaceId) -> bool {
        let space = self.at(id);
        // While it is held, the space does not end, so its id does not become another's.
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
            zap_if(core, id, (Vpn(0), USER_END), false, gather, |run| {
                let frame = run.entry.is_present().then(|| &core.frames[run.mapped(&core.frames).head]);
                !frame.is_some_and(|frame| matches!(frame.owner(), Owner::File(_)))
            });
        });
    }

    /// Check the ranges and tables of every space, and that reverse maps know all ranges and no others.
    pub fn validate<M: Machine>(&self, core: &MmCore<M>, bound: u32) -> Result<(), String> {
        let mut links = 0;
        for id in self.ids(bound) {
            let in_space = |fault: String| std_alloc::format!("{id}: {fault}");
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
                        return Err(in_space(std_alloc::format!("{owner:?} does not know {span:?}")));
                    }
                }
                let mut astray = None;
                tables.for_each(vma.view.start, vma.view.end(), |_, run| {
                    inside += run.count as u64;
                    if run.page < vma.view.start || run.end() > vma.view.end() {
                        astray = Some(run);
                    }
                });
                if let Some(run) = astray {
                    return Err(in_space(std_alloc::format!("{run:?} reaches out of {:?}", vma.view)));
                }
            }
            if entries != inside {
                return Err(in_space(std_alloc::format!(
                    "{entries} entries, {inside} of them in mapped ranges"
                )));
            }
        }
        match core.rmap.links() {
            known if known == links => Ok(()),
            known => Err(std_alloc::format!("reverse maps know {known} ranges, there are {links}")),
        }
    }
}
