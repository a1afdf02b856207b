//! Faults at entries that were marked to tell who uses their pages.

use super::{Fault, FaultStop, Served};
use crate::hot::{Asked, Limits, PageName, Used};
use crate::knobs::{Knob, TierMigration, numa_balancing};
use crate::machine::{Machine, Scope, WaitKey, Work};
use crate::space::numa::has_ample_room;
use crate::stat::Stat;
use crate::table::Bits;
use crate::units::*;

impl<M: Machine> Fault<'_, M> {
    /// The entry allows again what the range does, and its page goes where it is used, if that is worth while. Whatever
    /// comes of it, the access is tried again.
    #[cold]
    pub(super) fn hint_fault(&self) -> Result<Served, FaultStop> {
        let st = self.st;
        let _scope = st.scope(Scope::DoNumaPage);
        let (head, here) = {
            let mut tables = self.lock();
            // Pages of the same folio that were marked with it.
            let end = Vpn((self.page.0 | (TABLE_ENTRIES as u64 - 1)) + 1).min(self.vma.end());
            let found = tables.find_run(self.page, end);
            let marked = found.filter(|run| run.entry.is_present() && !run.entry.has(Bits::USER));
            let Some(run) = marked else { return Ok(Served::MINOR) };
            tables.permit_use(&run);
            st.charge(Work::EntrySet, u64::from(run.count));
            (st.frames.head(run.entry.pfn()), st.machine.node())
        };
        let (node, pages) = (st.frames[head].node(), u64::from(st.frames[head].pages()));
        self.count(Stat::NumaHintFaults);
        if node == here {
            self.count(Stat::NumaHintFaultsLocal);
        }
        if let Some(to) = self.wanted_on(head, node, here) {
            if st.tiers.is_top(node) || st.knobs.tier_migration() == TierMigration::Exclusive {
                match (self.space.move_misplaced(st, self.vma, head, to), st.tiers.is_top(node)) {
                    (true, false) => self.note_locality(pages, (false, true)),
                    (false, true) => self.space.note_immobile(),
                    _ => {}
                }
            } else if let Some(name) = PageName::of(&st.frames[head]) {
                // Later, by a daemon: meanwhile the page is used where it is.
                st.hot.ask(Asked { page: head, name, to });
                st.charge(Work::DaemonWake, 1);
                st.machine.wake(WaitKey::Kpromoted);
            }
        }
        Ok(Served::MINOR)
    }

    fn note_locality(&self, pages: u64, told: (bool, bool)) {
        self.space.note_locality(self.st, self.id, pages, told);
    }

    /// The node that a page is to be moved to, if any.
    fn wanted_on(&self, head: Pfn, node: NodeId, here: NodeId) -> Option<NodeId> {
        let (st, frame) = (self.st, &self.st.frames[head]);
        let mode = st.knobs.get(Knob::NumaBalancing);
        if mode & numa_balancing::TIERING != 0 && !st.tiers.is_top(node) {
            let pages = u64::from(frame.pages());
            let to = st.tiers.nearest_top(here);
            let used = Used {
                page: head,
                name: PageName::of(frame),
                pages,
                to,
                ample: has_ample_room(st, to),
                now_ms: st.machine.now() / MILLISECOND,
                limits: Limits::of(&st.knobs),
            };
            let verdict = st.hot.policy(&st.knobs).used(&used);
            if verdict.candidate {
                st.count(Stat::PgpromoteCandidate, pages as i64);
            }
            return verdict.promote.then_some(to);
        }
        if mode & numa_balancing::NORMAL == 0 {
            return None;
        }
        let user = st.hot.hints.note_user(head, here, st.machine.task() & 0x00ff_ffff);
        self.note_locality(u64::from(frame.pages()), (node == here, user.private));
        (user.moves && node != here && st.tiers.has_memory(here)).then_some(here)
    }
}
