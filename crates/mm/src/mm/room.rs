//! Making room: what an operation that ran short does before it runs again.

#[cfg(test)]
mod tests;

use super::Mm;
use crate::alloc::{COSTLY_ORDER, NeedsReclaim, Reserve, Watermark};
use crate::api::Error;
use crate::cache::CacheError;
use crate::compact::{self, Attempts, Outcome, Priority};
use crate::knobs::Knob;
use crate::machine::Machine;
use crate::memory::{Gfp, Shortage};
use crate::reclaim::{self, MAX_RECLAIM_RETRIES, Retries};
use crate::space::{FaultStop, Stop};
use crate::stat::GroupStat;
use crate::units::*;

/// An error that may mean "make room and run me again".
pub(super) trait HasShortage {
    fn shortage(&self) -> Option<Shortage>;
}

impl HasShortage for Stop {
    fn shortage(&self) -> Option<Shortage> {
        match *self {
            Stop::Shortage(shortage) => Some(shortage),
            Stop::Error(_) => None,
        }
    }
}

impl HasShortage for FaultStop {
    fn shortage(&self) -> Option<Shortage> {
        match *self {
            FaultStop::Shortage(shortage) => Some(shortage),
            FaultStop::Error(_) => None,
        }
    }
}

impl HasShortage for CacheError {
    fn shortage(&self) -> Option<Shortage> {
        match *self {
            CacheError::Shortage(shortage) => Some(shortage),
            CacheError::BeyondEnd => None,
        }
    }
}

impl<M: Machine> Mm<M> {
    /// Run a system call on a space that must be in use and not chosen to die.
    pub(super) fn on_space<R>(
        &self,
        space: SpaceId,
        op: impl FnMut(Gfp) -> Result<R, Stop>,
    ) -> Result<R, Error> {
        let found = self.spaces.get(space).ok_or(Error::NotFound)?;
        if found.is_killed() {
            return Err(Error::Killed);
        }
        Ok(self.with_room(Some(space), found.group(), op)?)
    }

    /// Run `op`; when it is short of memory, make room and run it again. The shortage comes through only if no room
    /// can be made, or if `space` was chosen to die meanwhile.
    #[inline]
    pub(super) fn with_room<R, E: HasShortage>(
        &self,
        space: Option<SpaceId>,
        group: GroupId,
        mut op: impl FnMut(Gfp) -> Result<R, E>,
    ) -> Result<R, E> {
        let mut gfp = Gfp::user(group);
        match op(gfp) {
            Err(error) if error.shortage().is_some() => self.with_room_slow(space, &mut gfp, error, op),
            done => done,
        }
    }

    #[cold]
    fn with_room_slow<R, E: HasShortage>(
        &self,
        space: Option<SpaceId>,
        gfp: &mut Gfp,
        mut error: E,
        mut op: impl FnMut(Gfp) -> Result<R, E>,
    ) -> Result<R, E> {
        let [mut zone_retries, mut group_retries] = [Retries::default(); 2];
        let mut freed = 0;
        while let Some(shortage) = error.shortage() {
            let may_retry = match shortage {
                // kswapd has been woken. What lies between the marks is for the meantime.
                Shortage::Zone(_) if gfp.mark == Watermark::Low => {
                    gfp.mark = Watermark::Min;
                    true
                }
                // What was reclaimed may lie on CPUs' lists, where no zone counts it as free.
                Shortage::Zone(_) if freed > 0 => {
                    freed = 0;
                    self.core.alloc.drain_all(self.mmu());
                    true
                }
                Shortage::Zone(needs) => {
                    freed = reclaim::direct(&self.core, &self.reclaim, self, &needs);
                    reclaim::should_retry(&self.core, &needs, freed, &mut zone_retries)
                        || freed > 0
                        || self.may_mix(gfp)
                        || self.has_hidden_room(&needs, gfp)
                        || self.out_of_memory("no zone has a page to spare", None, &mut zone_retries)
                }
                Shortage::Block { needs, hard } => {
                    // One that was made may be taken from what lies between the marks. If there is none, smaller folios
                    // are had as usual.
                    if self.make_block(&needs, hard) {
                        gfp.mark = Watermark::Min;
                    }
                    gfp.given_up = needs.order;
                    true
                }
                Shortage::Group(group) => {
                    // The room that is made is for what is needed: what is read ahead of it might fill it each time.
                    gfp.read_ahead = false;
                    self.core.lru.groups.count(group, GroupStat::Max, 1);
                    let freed = reclaim::group(&self.core, &self.reclaim, self, group, 1);
                    let wanted = "a control group is at its limit";
                    reclaim::should_retry_group(&self.core, freed, &mut group_retries)
                        || self.out_of_memory(wanted, Some(group), &mut group_retries)
                }
            };
            let dying = space.and_then(|id| self.spaces.get(id)).is_some_and(|space| space.is_killed());
            if !may_retry || dying {
                return Err(error);
            }
            match op(*gfp) {
                Ok(done) => return Ok(done),
                Err(next) => error = next,
            }
        }
        Err(error)
    }

    /// Before somebody has to go: what lies on CPUs' lists is free memory, too, and so is what kswapd was to make room
    /// for because mobility groups were mixed. Is that enough? (Linux gives CPUs' lists back from time to time, and
    /// kswapd lowers the marks again; but who needs one page just after another that has raised the marks does not wait
    /// for either.) Asked once: an operation that needs two pages where one was hidden would ask for ever.
    fn has_hidden_room(&self, needs: &NeedsReclaim, gfp: &mut Gfp) -> bool {
        let &NeedsReclaim { order, node, highest, among } = needs;
        let alloc = &self.core.alloc;
        if gfp.reserve == Reserve::Boost {
            return false;
        }
        alloc.drain_all(self.mmu());
        let enough = |&zone: &ZoneId| {
            among.contains(alloc.zone(zone).node()) && alloc.allows_last(zone, order, highest)
        };
        gfp.reserve = Reserve::Boost;
        alloc.zonelist(node, highest).iter().any(enough)
    }

    /// Reclaim was of no use. Where mobility groups are kept apart, they are mixed now; `false`: they have been.
    fn may_mix(&self, gfp: &mut Gfp) -> bool {
        let apart = self.core.knobs.get(Knob::DefragMode) != 0;
        apart && !core::mem::replace(&mut gfp.mixes, true)
    }

    /// Somebody would like a block of this size, but can do without: compact and reclaim for it. `hard`: more than
    /// once, and wait for others. Is there one then?
    fn make_block(&self, needs: &NeedsReclaim, hard: bool) -> bool {
        let (core, costly) = (&self.core, needs.order > COSTLY_ORDER);
        // It was looked for above the low mark. What lies between the marks is for the meantime.
        if compact::has_block(core, needs) {
            return true;
        }
        let mut attempts = Attempts::default();
        if costly {
            // There is likely to be enough free memory, in pieces.
            let made = compact::direct(core, needs, Priority::Async);
            let no_use = matches!(made.outcome, Outcome::Skipped | Outcome::Deferred);
            if made.there || !hard && no_use {
                return made.there;
            }
            if !hard {
                attempts = Attempts::only_async();
            }
        }
        let mut drained = false;
        for _ in 0..MAX_RECLAIM_RETRIES {
            let freed = reclaim::direct(core, &self.reclaim, self, needs);
            if compact::has_block(core, needs) {
                return true;
            }
            if freed > 0 && !core::mem::replace(&mut drained, true) {
                // Parts of a block may lie on other CPUs' lists.
                core.alloc.drain_all(core);
                if compact::has_block(core, needs) {
                    return true;
                }
            }
            let made = compact::direct(core, needs, attempts.priority());
            if made.there || !hard || costly || freed == 0 || !attempts.again(core, needs, made.outcome) {
                return made.there;
            }
        }
        false
    }

    /// A group that has taken pages above its high limit reclaims as many before it takes more. One that has only been
    /// found there need not: else each fault of a group that nothing can be taken from would look through all of it.
    #[inline]
    pub(super) fn stay_below_high(&self, group: GroupId) {
        if let Some((over, pages)) = self.core.lru.groups.taken_over_high(group) {
            self.core.lru.groups.count(over, GroupStat::High, 1);
            reclaim::group(&self.core, &self.reclaim, self, over, pages);
        }
    }
}
