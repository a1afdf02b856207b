//! The allocation slow path: making room for an operation that ran short.

#[cfg(test)]
mod tests;

use super::Mm;
use super::oom::Unmet;
use crate::alloc::{NeedsReclaim, Reserve, Watermark};
use crate::api::Error;
use crate::cache::CacheError;
use crate::compact::{self, Attempts, Outcome, Priority};
use crate::knobs::Knob;
use crate::machine::{Machine, Stall};
use crate::memory::{AllowedReadAhead, Gfp, Shortage};
use crate::reclaim::{self, MAX_RECLAIM_RETRIES, Retries};
use crate::space::{FaultStop, Stop};
use crate::stat::GroupStat;
use crate::units::*;

/// An error that may stand for a shortage: make room and run the operation again.
pub(super) trait HasShortage {
    /// What asks for memory, in the words of a report.
    const ASKING: &'static str;
    fn shortage(&self) -> Option<Shortage>;
}

impl HasShortage for Stop {
    const ASKING: &'static str = "a system call";
    fn shortage(&self) -> Option<Shortage> {
        match *self {
            Stop::Shortage(shortage) => Some(shortage),
            Stop::Error(_) => None,
        }
    }
}

impl HasShortage for FaultStop {
    const ASKING: &'static str = "a page fault";
    fn shortage(&self) -> Option<Shortage> {
        match *self {
            FaultStop::Shortage(shortage) => Some(shortage),
            FaultStop::Error(_) => None,
        }
    }
}

impl HasShortage for CacheError {
    const ASKING: &'static str = "a read or a write of a file";
    fn shortage(&self) -> Option<Shortage> {
        match *self {
            CacheError::Shortage(shortage) => Some(shortage),
            CacheError::BeyondEnd | CacheError::Io => None,
        }
    }
}

impl<M: Machine> Mm<M> {
    /// Run a system call on a space that must be in use and not killed.
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

    /// Run `op`; if it is short of memory, make room and run it again. Returns the shortage only if no room can be
    /// made, or if `space` was killed in the meantime.
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
        let (mut freed, mut rounds) = (0, 0);
        let unmet = |why, needs| Unmet { why, asking: E::ASKING, space, needs };
        while let Some(shortage) = error.shortage() {
            let may_retry = match shortage {
                // kswapd has been woken. Until it has freed memory, use what is between the watermarks.
                Shortage::Zone(_) if gfp.mark == Watermark::Low => {
                    gfp.mark = Watermark::Min;
                    true
                }
                Shortage::Zone(needs) if self.lacks_only_a_block(&needs, gfp) => {
                    rounds += 1;
                    // Others may take each block that is made.
                    gfp.mixes = rounds > MAX_RECLAIM_RETRIES || !self.make_block(&needs.whole_block(), true);
                    true
                }
                // Reclaimed pages may be on CPUs' lists, which zones do not count as free.
                Shortage::Zone(_) if freed > 0 => {
                    freed = 0;
                    self.core.alloc.drain_after_reclaim(self.mmu());
                    true
                }
                Shortage::Zone(needs) => {
                    freed = reclaim::direct(&self.core, &self.reclaim, self, &needs);
                    rounds += 1;
                    (rounds > MAX_RECLAIM_RETRIES && gives_up_read_ahead(gfp))
                        || reclaim::should_retry(&self.core, &needs, freed, &mut zone_retries)
                        || freed > 0
                        || gives_up_read_ahead(gfp)
                        || self.may_mix(gfp)
                        || self.drain_and_unboost(&needs, gfp)
                        || {
                            let why = "no zone that it may use has a page to spare";
                            self.out_of_memory(&unmet(why, Some(needs)), None, &mut zone_retries)
                        }
                }
                Shortage::Block { needs, hard } => {
                    // The block that was made may be below the low watermark. Without one, the operation falls back to
                    // smaller folios.
                    if self.make_block(&needs, hard) {
                        gfp.mark = Watermark::Min;
                    }
                    gfp.given_up = needs.order;
                    true
                }
                Shortage::Group(group) => {
                    self.core.lru.groups.count(group, GroupStat::Max, 1);
                    let stall = self.core.stall(Stall::Memory);
                    let freed = reclaim::group(&self.core, &self.reclaim, self, group, 1);
                    drop(stall);
                    rounds += 1;
                    let unmet = unmet("a control group is at its limit", None);
                    if freed == 0 {
                        self.core.lru.groups.drain_stocks(&self.core, group);
                    }
                    // Read-ahead could fill the room each time.
                    (rounds > MAX_RECLAIM_RETRIES && gives_up_read_ahead(gfp))
                        || reclaim::should_retry_group(&self.core, freed, &mut group_retries)
                        || gives_up_read_ahead(gfp)
                        || self.out_of_memory(&unmet, Some(group), &mut group_retries)
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

    /// Last resort before the OOM killer: pages on CPUs' lists, and those that kswapd reclaims for a boosted watermark
    /// after mobility groups were mixed, are free memory, too. Returns whether that is enough. (Linux drains CPUs'
    /// lists from time to time, and kswapd lowers boosted watermarks again; an allocation that follows another one
    /// that raised the watermark waits for neither.) It tries once for an operation: one that needs two pages where
    /// only one was hidden would retry for ever.
    fn drain_and_unboost(&self, needs: &NeedsReclaim, gfp: &mut Gfp) -> bool {
        let &NeedsReclaim { order, node, highest, among, .. } = needs;
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

    /// Whether there is memory enough for a request, but in page blocks of other mobility groups, which
    /// `vm.defrag_mode` keeps it out of. Reclaim alone would free more of the same for ever. (Linux 6.15 does, and
    /// swaps out what it can; Weiner's fix of June 2026 has such requests make page blocks, too.)
    fn lacks_only_a_block(&self, needs: &NeedsReclaim, gfp: &Gfp) -> bool {
        needs.apart && !gfp.mixes && compact::has_block(&self.core, needs)
    }

    /// Reclaim did not help. If mobility groups are kept apart, mix them now; `false`: they are mixed already.
    fn may_mix(&self, gfp: &mut Gfp) -> bool {
        let apart = self.core.knobs.get(Knob::DefragMode) != 0;
        apart && !core::mem::replace(&mut gfp.mixes, true)
    }

    /// Compact and reclaim for a block; without it the operation falls back. `hard`: more than once, and with waits.
    /// Returns whether there is a block.
    fn make_block(&self, needs: &NeedsReclaim, hard: bool) -> bool {
        let (core, costly) = (&self.core, needs.is_costly());
        // The allocation looked above the low watermark; the block may be between the watermarks.
        if compact::has_block(core, needs) {
            return true;
        }
        let mut attempts = Attempts::default();
        if costly {
            // There is probably enough free memory, but fragmented.
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
                // Parts of a block may be on other CPUs' lists.
                core.alloc.drain_after_reclaim(core);
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

    /// A group that has charged more than `spared` pages above its high limit reclaims as many before it charges more.
    /// A group that is merely above it does not: if nothing could be reclaimed, each of its faults would scan all of
    /// it.
    #[inline]
    pub(super) fn stay_below_high(&self, group: GroupId, spared: u64) {
        if let Some((over, pages)) = self.core.lru.groups.taken_over_high(group, spared) {
            self.core.lru.groups.count(over, GroupStat::High, 1);
            let _stall = self.core.stall(Stall::Memory);
            reclaim::group(&self.core, &self.reclaim, self, over, pages);
        }
    }
}

/// Go on with the part of read-ahead that there is room for, and then without it, if the operation had it: room that
/// cannot be made for read-ahead is no reason to run out of memory.
fn gives_up_read_ahead(gfp: &mut Gfp) -> bool {
    let next = match gfp.read_ahead {
        AllowedReadAhead::Window => AllowedReadAhead::Part,
        AllowedReadAhead::Part => AllowedReadAhead::Nothing,
        AllowedReadAhead::Nothing => return false,
    };
    gfp.read_ahead = next;
    true
}
