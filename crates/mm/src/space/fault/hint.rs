//! Faults at entries that were marked to tell who uses their pages.

use super::{Fault, FaultStop, Served};
use crate::hot::Limits;
use crate::knobs::{Knob, numa_balancing};
use crate::machine::{Machine, Scope, Work};
use crate::space::numa::has_ample_room;
use crate::stat::Stat;
use crate::table::Bits;
use crate::units::*;

impl<M: Machine> Fault<'_, M> {
    /// The entry allows again what the range does, and its page goes where it is used, if that is worth while. Whatever comes of it, the
    /// access is tried again.
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
        let node = st.frames[head].node();
        self.count(Stat::NumaHintFaults);
        if node == here {
            self.count(Stat::NumaHintFaultsLocal);
        }
        if let Some(to) = self.wanted_on(head, node, here) {
            self.space.move_misplaced(st, self.vma, head, to);
        }
        Ok(Served::MINOR)
    }

    /// The node that a page is to be moved to, if any.
    fn wanted_on(&self, head: Pfn, node: NodeId, here: NodeId) -> Option<NodeId> {
        let (st, frame) = (self.st, &self.st.frames[head]);
        let mode = st.knobs.get(Knob::NumaBalancing);
        if mode & numa_balancing::TIERING != 0 && !st.tiers.is_top(node) {
            let pages = u64::from(frame.pages());
            let to = st.tiers.nearest_top(here);
            let limits = Limits {
                threshold_ms: st.knobs.get(Knob::NumaHotThresholdMs),
                pages_per_second: (st.knobs.get(Knob::NumaPromoteRateLimit) << 20) / PAGE_SIZE,
                adjust_ms: st.knobs.get(Knob::NumaScanPeriodMaxMs),
            };
            let now_ms = st.machine.now() / MILLISECOND;
            let verdict = st.hot.judge(head, pages, (to, has_ample_room(st, to)), now_ms, limits);
            if verdict.candidate {
                st.count(Stat::PgpromoteCandidate, pages as i64);
            }
            return verdict.promote.then_some(to);
        }
        if mode & numa_balancing::NORMAL == 0 || node == here || !st.tiers.has_memory(here) {
            return None;
        }
        st.hot.note_user(head, here, st.machine.task() & 0x00ff_ffff).then_some(here)
    }
}
