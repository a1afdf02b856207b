//! Finds stale translations without waiting for an access that uses one.
//!
//! Problem: the oracle checks accesses. It notices a missed flush only if a program happens to use the old translation
//! before something else drops it, and most programs do not.
//!
//! Rule: whatever any CPU could access at this moment must be right. Every translation that a CPU holds of the space
//! that it runs is compared with the page table. If they differ, the oracle is asked about a load through the old
//! translation: it must return what the address reads (invariants I3, I4 and I9: a deferred flush may leave an old
//! frame reachable as long as no access can tell). A store through it is always wrong: it would change a frame that the
//! address no longer maps (I1). Tables in walk caches must still be in the page table, in the same place.
//!
//! No program can use the following at this moment, so it is not checked: CPUs that run a kernel task or nothing, ASIDs
//! that are not loaded, spaces that have been killed, and ranges that a pending call changes. A CPU that is stopped in
//! the middle of its work (`preempt`) may be about to flush a translation that it has just removed. Loads must be right
//! even then; stores and walk caches are checked only when no task is inside the memory manager. Reclaim and migration
//! let other tasks run within a batch whose flush is still to come ([`crate::promises`]). They hold the locks of the
//! batch's folios and flush before they write, copy or free one, so what is stored to it until then is not lost. From
//! the flush on, or if the folio is not locked, such a translation is wrong.

use crate::cpu::Cpu;
use crate::simulation::Simulation;
use crate::tlb::Cached;
use mm::frame::FrameFlags;
use mm::units::{Pfn, SpaceId, Vpn};

impl<P> Simulation<'_, P> {
    /// Check all translations that programs could use. The error describes a wrong one.
    pub(crate) fn check_translations(&self) -> Result<(), String> {
        let Some(oracle) = &self.oracle else { return Ok(()) };
        let oracle = oracle.borrow();
        for (number, cpu) in self.machine().cpus.iter().enumerate() {
            let Some(space) = cpu.loaded.get().filter(|&space| !self.mm().killed(space)) else { continue };
            let root = self.mm().root(space);
            let mut outcome = Ok(());
            cpu.tlb.for_each(&mut |start, pages, cached| {
                for page in start.0..start.0 + pages {
                    let fault =
                        || self.fault_of(&oracle, space, root, Vpn(page), cached.offset_by(page - start.0));
                    if outcome.is_ok()
                        && let Some(fault) = fault()
                    {
                        outcome = Err(self.describe(number, cpu, space, Vpn(page), cached, &fault));
                    }
                }
            });
            outcome?;
            if !self.stopped_inside() {
                self.check_walk_caches(&oracle, number, cpu, space)?;
            }
        }
        Ok(())
    }

    /// What is wrong with a translation; `None`: nothing.
    fn fault_of(
        &self,
        oracle: &crate::oracle::Oracle,
        space: SpaceId,
        root: Pfn,
        page: Vpn,
        cached: Cached,
    ) -> Option<String> {
        let machine = self.machine();
        let table = match machine.look_up(root, page) {
            Some((pfn, writable)) if pfn == cached.pfn() && (writable || !cached.storable()) => return None,
            Some((pfn, true)) => format!("the table maps {pfn} for writing"),
            Some((pfn, false)) => format!("the table maps {pfn} for reading"),
            None => "the table maps nothing".into(),
        };
        let got = machine.observers.content.as_ref()?.borrow().frame(cached.pfn());
        match oracle.peek(space.0, page.0, got)? {
            Err(text) => Some(format!("{table}; {text}")),
            Ok(())
                if cached.storable() && !self.stopped_inside() && !self.will_flush(space, cached.pfn()) =>
            {
                Some(format!("{table}; a store would go through and be lost"))
            }
            Ok(()) => None,
        }
    }

    /// Whether a task that has unmapped a page, and has its folio locked, will flush for it.
    pub(crate) fn will_flush(&self, space: SpaceId, pfn: Pfn) -> bool {
        let frames = &self.mm().mmu().frames;
        let promises = &self.machine().observers.promises;
        promises.as_ref().is_some_and(|promises| promises.borrow().cover(space, pfn))
            && frames[frames.head(pfn)].has(FrameFlags::LOCKED)
    }

    fn check_walk_caches(
        &self,
        oracle: &crate::oracle::Oracle,
        number: usize,
        cpu: &Cpu,
        space: SpaceId,
    ) -> Result<(), String> {
        let root = self.mm().root(space);
        let mut outcome = Ok(());
        cpu.tlb.for_each_walk(&mut |level, page, table| {
            let now = self.machine().table_below(root, level, page);
            if outcome.is_ok() && now != Some(table) && !oracle.is_changing(space.0, page.0, 1 << (9 * level)) {
                let there = now.map_or("no table".into(), |now| format!("table {now}"));
                outcome = Err(format!(
                    "cpu {number}, {space}: stale walk cache entry of level {level} for page {page}: table {table}, but \
                     there is {there} now"
                ));
            }
        });
        outcome
    }

    fn describe(
        &self,
        number: usize,
        cpu: &Cpu,
        space: SpaceId,
        page: Vpn,
        cached: Cached,
        fault: &str,
    ) -> String {
        let frame = &self.mm().mmu().frames[cached.pfn()];
        format!(
            "cpu {number}, {space}: stale TLB entry of page {page} ({:#x}) for frame {} of age {} us: {fault}; the frame \
             has {:?}, {:?}",
            page.addr(),
            cached.pfn(),
            cached.age(cpu.clock.get() / 1000) / 1000,
            frame.owner(),
            frame.flags(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RunConfig;
    use crate::run::prepare;
    use crate::spec::MachineSpec;
    use mm::Mm;
    use mm::event::Event;
    use mm::machine::Machine;

    #[test]
    fn an_old_translation_is_excused_by_a_flush_to_come_and_not_by_a_lock_of_others() {
        let config = RunConfig { verify: true, ..RunConfig::new(MachineSpec::preset("small").unwrap()) };
        let (machine, knobs) = prepare(&config).unwrap();
        let sim = Simulation::new(Mm::new(machine, knobs).unwrap(), &(), &config);
        let (space, pfn) = (SpaceId(0), Pfn(5000));
        let frame = &sim.mm().mmu().frames[pfn];
        let excused = || sim.will_flush(space, pfn);
        let tell = |event, args| sim.machine().event(event, args);
        frame.set(FrameFlags::LOCKED);
        assert!(!excused(), "the folio is locked for something else");
        tell(Event::TlbUnmapOwed, [7, space.0.into(), pfn.0.into(), 1]);
        assert!(excused());
        assert!(!sim.will_flush(SpaceId(1), pfn) && !sim.will_flush(space, Pfn(pfn.0 + 1)));
        frame.clear(FrameFlags::LOCKED);
        assert!(!excused(), "the folio was unlocked too early");
        frame.set(FrameFlags::LOCKED);
        tell(Event::TlbUnmapPaid, [7, 0, 0, 0]);
        assert!(!excused(), "the flush has been, and the folio is still locked");
    }
}
