//! The second chance: what the accesses to a folio since the last scan mean for it.

use super::Reclaim;
use super::pass::{Pass, ReclaimFate, ReferenceRule};
use crate::frame::{FolioRun, Frame, FrameFlags};
use crate::knobs::Knob;
use crate::lru::mglru::Promotions;
use crate::lru::note_used;
use crate::machine::Machine;
use crate::rmap::Referenced;
use crate::units::*;

/// What the accesses to a folio mean for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReferenceVerdict {
    /// It goes to the active list (or, if it is locked in memory, to the unevictable list).
    Activate,
    /// It gets one more round on the inactive list.
    Keep,
    Reclaim,
    /// It is reclaimed if that needs no write.
    ReclaimClean,
}

/// The verdict of the second chance, and whether to set the flag REFERENCED. `was_referenced`: the flag was set in the
/// last round.
fn verdict(found: Referenced, was_referenced: bool, file: bool) -> (ReferenceVerdict, bool) {
    if found.locked {
        (ReferenceVerdict::Activate, false)
    } else if found.vmas < 0 {
        (ReferenceVerdict::Keep, false)
    } else if found.vmas > 0 {
        // Every page that was faulted in starts with a young entry, so one use means little; a second one, or use
        // through two mappings, means more. Program text is activated at once.
        let hot = was_referenced || found.vmas > 1 || (found.exec && file);
        (if hot { ReferenceVerdict::Activate } else { ReferenceVerdict::Keep }, true)
    } else if was_referenced && file {
        (ReferenceVerdict::ReclaimClean, false)
    } else {
        (ReferenceVerdict::Reclaim, false)
    }
}

/// Whether a look around another folio's entry, or a walk of page tables, has found an isolated folio of a generation
/// used. It stays, whatever its entries say, and its write-back is not counted, but for a later folio of a run: a run
/// is counted before its folios are looked at. (The form of 6.14 does not mark isolated folios.)
pub(super) fn seen_used(frame: &Frame, pass: &Pass<'_>) -> bool {
    let marks = pass.look.as_ref().is_some_and(|look| !look.promotions.is_reworked());
    marks && frame.has(FrameFlags::REFERENCED) && frame.mapcount() > 0
}

impl<M: Machine> Reclaim<'_, M> {
    /// Look at the accesses to a run of isolated, locked folios, and clear the young bits. Returns the folios that may
    /// be reclaimed, and the bits of those of them that may be reclaimed only if that needs no write. Sets the `fates`
    /// of the other folios.
    pub(super) fn check_references<'r, const N: usize>(
        self,
        run: FolioRun<'r, N>,
        pass: &mut Pass<'_>,
        fates: &mut [ReclaimFate; N],
    ) -> (FolioRun<'r, N>, u32) {
        let look = pass.look.as_mut();
        let found = self.core.rmap.referenced(self.core, run, pass.sc.target, look);
        let damon = self.core.knobs.get(Knob::DamonReclaimEnabled) != 0;
        let mut if_clean = 0;
        let wanted = run.filter(|at, pfn| {
            // One folio at a time: a change of all that was found would copy it.
            let found = if damon { self.with_damons_look(pfn, found[at]) } else { found[at] };
            match self.judge(pfn, found, pass) {
                ReferenceVerdict::Reclaim => return true,
                ReferenceVerdict::ReclaimClean => {
                    if_clean |= 1 << at;
                    return true;
                }
                ReferenceVerdict::Activate => fates[at] = ReclaimFate::Activate,
                ReferenceVerdict::Keep => fates[at] = ReclaimFate::Keep,
            }
            false
        });
        (wanted, if_clean)
    }

    /// DAMON has taken young bits that reclaim should have found; and it should know of those that reclaim has found.
    #[cold]
    #[inline(never)]
    fn with_damons_look(self, pfn: Pfn, found: Referenced) -> Referenced {
        let frame = &self.core.frames[pfn];
        if found.vmas > 0 {
            frame.clear(FrameFlags::IDLE);
        }
        let taken = found.vmas >= 0 && frame.test_and_clear(FrameFlags::YOUNG);
        Referenced { vmas: found.vmas + i32::from(taken), ..found }
    }

    #[inline(always)]
    fn judge(self, pfn: Pfn, found: Referenced, pass: &Pass<'_>) -> ReferenceVerdict {
        if pass.rule == ReferenceRule::AnyUse {
            return self.judge_any(pfn, found);
        }
        if let Some(look) = pass.look.as_ref().filter(|look| look.promotions.is_reworked()) {
            return self.second_use(pfn, found, &look.promotions);
        }
        if !found.locked && seen_used(&self.core.frames[pfn], pass) {
            // By the look around the entry of another folio of the run.
            return ReferenceVerdict::Keep;
        }
        self.second_chance(pfn, found)
    }

    #[inline(always)]
    fn second_chance(self, pfn: Pfn, found: Referenced) -> ReferenceVerdict {
        let frame = &self.core.frames[pfn];
        let flags = frame.flags();
        let was = flags.contains(FrameFlags::REFERENCED);
        let (verdict, mark) = verdict(found, was, !flags.contains(FrameFlags::SWAPBACKED));
        if found.locked {
            self.core.lru.mlock(self.core, pfn);
        }
        if mark && !was {
            frame.set(FrameFlags::REFERENCED);
        } else if was && !mark {
            frame.clear(FrameFlags::REFERENCED);
        }
        verdict
    }

    /// For generations in the form of 6.14: an unused folio is reclaimed; the first use that is found marks the folio
    /// (unless one is enough), and from the second on it goes to one of the youngest generations.
    #[inline(never)]
    fn second_use(self, pfn: Pfn, found: Referenced, promotions: &Promotions) -> ReferenceVerdict {
        if found.locked {
            self.core.lru.mlock(self.core, pfn);
            return ReferenceVerdict::Activate;
        }
        if found.vmas <= 0 {
            return if found.vmas == 0 { ReferenceVerdict::Reclaim } else { ReferenceVerdict::Keep };
        }
        let look = |flags| promotions.after_eviction_look(flags, found.exec);
        let before = self.core.frames[pfn].update(|flags| Some(look(flags).0));
        if look(before).1 { ReferenceVerdict::Activate } else { ReferenceVerdict::Keep }
    }

    /// For a policy that proposes. The policy judges uses through file descriptors, which the flags tell, itself.
    #[inline(never)]
    fn judge_any(self, pfn: Pfn, found: Referenced) -> ReferenceVerdict {
        if found.locked {
            self.core.lru.mlock(self.core, pfn);
        } else if found.vmas > 0 {
            note_used(&self.core.frames[pfn]);
        } else if found.vmas == 0 {
            return ReferenceVerdict::Reclaim;
        } else {
            return ReferenceVerdict::Keep;
        }
        ReferenceVerdict::Activate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_chance_verdicts() {
        let seen = |vmas, exec, locked| Referenced { vmas, exec, locked };
        use ReferenceVerdict::*;
        let table = [
            // found, flag before, file -> verdict, flag after
            (seen(0, false, false), false, true, (Reclaim, false)),
            (seen(0, false, false), true, true, (ReclaimClean, false)),
            (seen(0, false, false), true, false, (Reclaim, false)),
            (seen(1, false, false), false, true, (Keep, true)),
            (seen(1, false, false), true, false, (Activate, true)),
            (seen(2, false, false), false, false, (Activate, true)),
            (seen(1, true, false), false, true, (Activate, true)),
            (seen(1, true, false), false, false, (Keep, true)),
            (seen(-1, false, false), true, true, (Keep, false)),
            (seen(1, false, true), true, true, (Activate, false)),
        ];
        for (found, was, file, expected) in table {
            assert_eq!(verdict(found, was, file), expected, "{found:?} {was} {file}");
        }
    }
}
