//! A controller that finds how much memory a control group needs, as Meta's senpai does: in each interval it looks how
//! long the group's tasks waited for memory, or for devices if that was longer, and asks for a little of the group's
//! memory (`memory.reclaim`) if it was less than the target. While they wait longer it asks for nothing, and what the
//! group needs comes back.
//!
//! Waits for devices count because a page that comes back is pressure of memory only if it was active before, and of a
//! group that has been squeezed hard, hardly any is.
//!
//! How much it asks for: the group's memory, times `max_probe`, times the share of the target by which the wait is
//! below it. Sources: the formula of TMO (Weiner et al., ASPLOS 2022, section 3.3); interval, target and largest probe
//! of the plugin `senpai` of oomd, which has a target for io, too.

use crate::config::RunError;
use crate::sched::Collected;
use crate::simulation::Simulation;
use crate::spec::Senpai;
use mm::units::{GroupId, PAGE_SIZE};

/// Picoseconds of a microsecond.
const MICROSECOND: u64 = 1_000_000;

impl<P> Simulation<'_, P> {
    /// The group that the configuration has controlled.
    pub(crate) fn controlled(&self) -> Result<Option<(&Senpai, GroupId)>, RunError> {
        let Some(senpai) = &self.config.senpai else { return Ok(None) };
        let Some(group) = self.kernel.group_named(&senpai.group) else {
            let why = format!("senpai: there is no group '{}' when the run begins", senpai.group);
            return Err(RunError::Input(why));
        };
        Ok(Some((senpai, group)))
    }

    /// Control the group until the machine stops.
    pub(crate) fn control(&self) {
        let Ok(Some((senpai, group))) = self.controlled() else { return };
        let machine = self.machine();
        let mut collected = Collected::of(machine.cpus.len());
        let mut before = [0; 2];
        while self.sleep_until(machine.clock().saturating_add(senpai.interval_us.saturating_mul(MICROSECOND)))
        {
            let waited = machine.sched.borrow().some(machine.clock(), group, &mut collected);
            let longest = (0..2).map(|kind| waited[kind] - before[kind]).max().unwrap_or(0);
            let stalled_us = longest / MICROSECOND;
            before = waited;
            let pages = self.mm().group_account(group).map_or(0, |account| account.usage[0]);
            let probe = senpai.probe(pages, stalled_us);
            // The group may have been removed.
            let reclaimed = if probe > 0 { self.mm().reclaim_group(group, probe).unwrap_or(0) } else { 0 };
            let mut state = self.state.borrow_mut();
            let outcome = &mut state.senpai;
            outcome.looks += 1;
            outcome.above_target += u64::from(stalled_us >= senpai.pressure_us);
            outcome.asked += probe * PAGE_SIZE;
            outcome.reclaimed += reclaimed * PAGE_SIZE;
            outcome.current.push(pages * PAGE_SIZE);
        }
    }
}
