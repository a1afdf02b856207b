//! Out of memory: the choice of a victim, and a readable report.

use super::Mm;
use crate::alloc::{NeedsReclaim, Watermark};
use crate::event::Event;
use crate::machine::{Machine, Scope};
use crate::reclaim::Retries;
use crate::stat::{GroupStat, Stat};
use crate::table::Resident;
use crate::units::*;
use std_alloc::format;
use std_alloc::string::String;
use std_alloc::vec::Vec;

/// Record of one out-of-memory kill.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OomReport {
    /// The space that was chosen.
    pub victim: SpaceId,
    /// Its resident pages.
    pub rss: u64,
    /// One line: who asked for what, and what was free where.
    pub reason: String,
    /// Readable text: what was wanted, free pages and watermarks, lists, candidates.
    pub text: String,
}

/// A request that no memory was found for.
pub(super) struct Unmet {
    pub(super) why: &'static str,
    /// What asks.
    pub(super) asking: &'static str,
    /// The space that it asks for, if it is for one.
    pub(super) space: Option<SpaceId>,
    /// The request, unless a limit is what stops it.
    pub(super) needs: Option<NeedsReclaim>,
}

impl Unmet {
    /// What the memory manager decides by itself.
    pub(super) const fn by_kernel(why: &'static str) -> Unmet {
        Unmet { why, asking: "the kernel", space: None, needs: None }
    }
}

/// Most candidates in a report.
const CANDIDATES_SHOWN: usize = 8;

impl<M: Machine> Mm<M> {
    /// Out-of-memory kills so far.
    pub fn oom_reports(&self) -> Vec<OomReport> {
        self.oom.lock().clone()
    }

    /// Whether the space was killed. Its tasks must end.
    pub fn killed(&self, space: SpaceId) -> bool {
        self.spaces.get(space).is_some_and(|space| space.is_killed())
    }

    /// Kill the largest space (in `group`, if given): take its private memory and mark it killed. Returns `false` if
    /// there is no candidate left.
    pub(super) fn out_of_memory(&self, unmet: &Unmet, group: Option<GroupId>, retries: &mut Retries) -> bool {
        let _scope = self.mmu().scope(Scope::OutOfMemory);
        *retries = Retries::default();
        let mut candidates: Vec<(u64, SpaceId)> = self.oom_candidates(group);
        candidates.sort_by_key(|&(badness, id)| (core::cmp::Reverse(badness), id));
        let Some(&(_, victim)) = candidates.first() else { return false };
        if let Some(group) = group {
            self.core.lru.groups.count(group, GroupStat::Oom, 1);
        }
        let rss = self.rss(victim);
        let reason = self.oom_reason(unmet);
        let text = self.oom_text(&reason, &candidates);
        if self.spaces.kill(&self.core, victim) {
            self.mmu().count(Stat::OomKill, 1);
            self.core.lru.groups.count(self.group_of(victim), GroupStat::OomKill, 1);
            self.mmu().event(Event::MarkVictim, [victim.0 as u64, 0, 0, 0]);
            self.oom.lock().push(OomReport { victim, rss, reason, text });
        }
        // Otherwise it has ended since, which freed its memory.
        true
    }

    /// Spaces that may be killed, with what that would free: resident pages, swap and tables.
    fn oom_candidates(&self, group: Option<GroupId>) -> Vec<(u64, SpaceId)> {
        let may = |id: &SpaceId| {
            // A space that was listed may have ended since.
            let Some(space) = self.spaces.get(*id) else { return false };
            let inside = group.is_none_or(|group| self.core.lru.groups.is_below(space.group(), group));
            !space.is_killed() && inside
        };
        let badness = |id: SpaceId| {
            let counts = self.core.tables.tree(id).counts();
            counts.rss() + counts.get(Resident::Swap).max(0) as u64 + counts.tables() as u64
        };
        self.spaces.ids(self.core.tlb.bound()).filter(may).map(|id| (badness(id), id)).collect()
    }

    fn oom_reason(&self, unmet: &Unmet) -> String {
        let &Unmet { why, asking, space, needs } = unmet;
        let of_space = space.map_or(String::new(), |space| format!(" of space {}", space.0));
        let Some(needs) = needs else { return format!("{asking}{of_space}: {why}") };
        let mut text = format!(
            "{asking}{of_space} wanted order {} on node {}, zone {} or below, and {why}; free:",
            needs.order.0,
            needs.node.0,
            needs.highest.name()
        );
        for (at, zone) in self.core.alloc.zones().iter().filter(|zone| zone.managed() > 0).enumerate() {
            let refused = zone.kind() > needs.highest || !needs.could_use(zone);
            text += &format!(
                "{} node {} {} {} of {} pages{}",
                if at > 0 { "," } else { "" },
                zone.node().0,
                zone.kind().name(),
                zone.free_pages(),
                zone.managed(),
                if refused { " (not for this request)" } else { "" }
            );
        }
        text
    }

    fn oom_text(&self, reason: &str, candidates: &[(u64, SpaceId)]) -> String {
        let mut text = String::new();
        text += &format!("out of memory: {reason}\n");
        for zone in self.core.alloc.zones() {
            text += &format!(
                "  zone {} node {}: free {} min {} low {} high {} managed {}\n",
                zone.id(),
                zone.node(),
                zone.free_pages(),
                zone.mark(Watermark::Min),
                zone.mark(Watermark::Low),
                zone.mark(Watermark::High),
                zone.managed()
            );
        }
        for stat in [
            Stat::NrInactiveAnon,
            Stat::NrActiveAnon,
            Stat::NrInactiveFile,
            Stat::NrActiveFile,
            Stat::NrUnevictable,
            Stat::NrDirty,
            Stat::NrWriteback,
            Stat::NrPageTablePages,
        ] {
            text += &format!("  {} {}\n", stat.name(), self.mmu().stats.read(stat));
        }
        text +=
            &format!("  swap: {} of {} slots free\n", self.core.swap.free_slots(), self.core.swap.total());
        for (badness, id) in candidates.iter().take(CANDIDATES_SHOWN) {
            text += &format!("  space {id}: {badness} pages with swap and tables\n");
        }
        text
    }
}
