//! Hinting faults: at entries that NUMA balancing has marked, to learn which node uses their pages.

use super::{Fault, FaultStop, Served};
use crate::hot::{Asked, HotAccess, HotLimits, PageName};
use crate::knobs::{Knob, TierMigration, numa_balancing};
use crate::machine::{Machine, Scope, WaitKey, Work};
use crate::space::numa::has_ample_memory;
use crate::stat::Stat;
use crate::table::{Bits, EntryRun, LockedTables};
use crate::units::*;

impl<M: Machine> Fault<'_, M> {
    /// Restore the rights of the entry, and move its page to the node that uses it if that is worth it. The access is
    /// tried again in any case. While the page is moved no CPU can use the entry, so that moving it needs no flush.
    #[cold]
    pub(super) fn hint_fault(&self) -> Result<Served, FaultStop> {
        let core = self.core;
        let _scope = core.scope(Scope::DoNumaPage);
        let marked = self.marked(&mut self.lock());
        let Some(run) = marked else { return Ok(Served::MINOR) };
        let (head, here) = (core.frames.head(run.entry.pfn()), core.machine.node());
        let (node, pages) = (core.frames[head].node(), u64::from(core.frames[head].pages()));
        self.count(Stat::NumaHintFaults);
        if node == here {
            self.count(Stat::NumaHintFaultsLocal);
        }
        let mut moved = false;
        if let Some(to) = self.target_node(head, node, here) {
            if core.tiers.is_top(node) || core.knobs.tier_migration() == TierMigration::Exclusive {
                moved = self.space.move_misplaced(core, self.vma, head, to);
                match (moved, core.tiers.is_top(node)) {
                    (true, false) => self.note_locality(pages, (false, true)),
                    (false, true) => self.space.note_immobile(),
                    _ => {}
                }
            } else if let Some(name) = PageName::of(&core.frames[head]) {
                // A daemon moves it later; until then it is used where it is.
                core.hot.ask(Asked { page: head, name, to });
                core.charge(Work::DaemonWake, 1);
                core.machine.wake(WaitKey::Kpromoted);
            }
        }
        let mut tables = self.lock();
        if let Some(run) = self.marked(&mut tables) {
            tables.permit_use(&run);
            // The move has set the entry otherwise.
            core.charge(Work::EntrySet, if moved { 0 } else { u64::from(run.count) });
        }
        Ok(Served::MINOR)
    }

    /// The entry, with those of other pages of its folio behind it, if it is marked.
    fn marked(&self, tables: &mut LockedTables<'_, M>) -> Option<EntryRun> {
        let end = Vpn((self.page.0 | (TABLE_ENTRIES as u64 - 1)) + 1).min(self.vma.end());
        let found = tables.find_run(self.page, end);
        found.filter(|run| run.entry.is_present() && !run.entry.has(Bits::USER))
    }

    fn note_locality(&self, pages: u64, locality: (bool, bool)) {
        self.space.note_locality(self.core, self.id, pages, locality);
    }

    /// The node that the page should be moved to, if any.
    fn target_node(&self, head: Pfn, node: NodeId, here: NodeId) -> Option<NodeId> {
        let (core, frame) = (self.core, &self.core.frames[head]);
        let mode = core.knobs.get(Knob::NumaBalancing);
        if mode & numa_balancing::TIERING != 0 && !core.tiers.is_top(node) {
            let pages = u64::from(frame.pages());
            let to = core.tiers.nearest_top(here);
            let used = HotAccess {
                page: head,
                name: PageName::of(frame),
                pages,
                to,
                ample: has_ample_memory(core, to),
                now_ms: core.machine.now() / MILLISECOND,
                limits: HotLimits::of(&core.knobs),
            };
            let verdict = core.hot.policy(&core.knobs).used(&used);
            if verdict.candidate {
                core.count(Stat::PgpromoteCandidate, pages as i64);
            }
            return verdict.promote.then_some(to);
        }
        if mode & numa_balancing::NORMAL == 0 {
            return None;
        }
        let user = core.hot.hints.note_user(head, here, core.machine.task() & 0x00ff_ffff);
        self.note_locality(u64::from(frame.pages()), (node == here, user.private));
        (user.moves && node != here && core.tiers.has_memory(here)).then_some(here)
    }
}
