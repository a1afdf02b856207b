//! move_pages and migrate_pages, mbind and set_mempolicy.

#[cfg(test)]
mod tests;

use super::Mm;
use crate::alloc::{Fresh, Watermark};
use crate::api::Error;
use crate::machine::Machine;
use crate::mempolicy::{MemPolicy, NodePreference};
use crate::migrate::{self, Done, MigrateReason, Mode, Target};
use crate::mm_core::MmCore;
use crate::table::USER_END;
use crate::units::*;
use abi::PolicyMode;

/// Pages of a space that are searched before the folios found are moved: those of one table.
const WINDOW: u64 = TABLE_ENTRIES as u64;

/// Result of a call that moves pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Moved {
    /// Mapped pages of the interval.
    pub mapped: u64,
    /// Pages of folios that were moved, including pages outside of the interval.
    pub moved: u64,
    /// Pages of folios that should have moved, but could not.
    pub failed: u64,
}

/// Frames of one node; `None`: of the node that the page is on.
struct OnNode(Option<NodeId>);

impl<M: Machine> Target<M> for OnNode {
    fn take(&mut self, core: &MmCore<M>, from: Pfn, order: Order) -> Option<Fresh> {
        let node = self.0.unwrap_or(core.frames[from].node());
        // kswapd has been woken. Until it has freed memory, a single page may come from between the watermarks.
        let page =
            || (order == Order::ZERO).then(|| migrate::frame_on(core, node, order, Watermark::Min)).flatten();
        migrate::frame_on(core, node, order, Watermark::Low).or_else(page)
    }

    fn give_back(&mut self, core: &MmCore<M>, unused: Fresh) {
        core.put(unused.into_pfn());
    }
}

/// From which of the nodes that are left migrate_pages moves next, and to which: one to which nothing is to be moved
/// first, if there is any, so that no page moves twice. (`do_migrate_pages` in mm/mempolicy.c of Linux 6.12.)
fn next_pair(from: Nodes, to: Nodes, left: Nodes) -> Option<(NodeId, NodeId)> {
    let (sources, targets) = (from.named().count(), to.named().count());
    let target = move |source: NodeId| {
        let before = from.named().take_while(|&node| node < source).count();
        to.named().nth(before % targets).filter(|&target| target != source)
    };
    let stays = move |node: NodeId| sources != targets && to.contains(node);
    let pairs = left
        .named()
        .filter(move |&source| !stays(source))
        .filter_map(move |source| Some((source, target(source)?)));
    pairs.clone().find(|&(_, target)| !left.contains(target)).or_else(|| pairs.last())
}

impl<M: Machine> Mm<M> {
    /// move_pages for the pages of an interval, even if other spaces map them: to `node`; `None`: to other frames of
    /// the same node. Holes are allowed. [`Error::NoMemory`]: the node had no frame for all of them; earlier pages
    /// have moved.
    pub fn move_pages(
        &self,
        space: SpaceId,
        start: Vpn,
        pages: u64,
        node: Option<NodeId>,
    ) -> Result<Moved, Error> {
        let end = start.0.checked_add(pages).filter(|&end| end <= USER_END.0).ok_or(Error::Invalid)?;
        if node.is_some_and(|node| !self.has_memory(node)) {
            return Err(Error::NotFound);
        }
        self.move_range(space, (start.0, end), node, |on| Some(on) != node)
    }

    /// migrate_pages: move all pages of a space from the nodes `from` to the nodes `to`: from the first node to the
    /// first, and so on; `to` repeats if it has fewer. If their numbers differ, pages that are on one of `to` stay. Bit
    /// n of a set is node n. Returns the number of pages that could not be moved.
    pub fn migrate_pages(&self, space: SpaceId, from: u64, to: u64) -> Result<u64, Error> {
        let (from, to) = (Nodes(from), Nodes(to));
        if to == Nodes(0) || to.named().any(|node| !self.has_memory(node)) {
            return Err(Error::Invalid);
        }
        let (mut left, mut failed) = (from, 0);
        while let Some((source, target)) = next_pair(from, to, left) {
            left.0 &= !(1 << source.0);
            let mut at = Vpn(0);
            while let Some(range) = self.spaces.get(space).ok_or(Error::NotFound)?.range_from(at, |_| true) {
                at = range.end();
                let moved = self.move_range(space, (range.start.0, at.0), Some(target), |on| on == source)?;
                failed += moved.failed;
            }
        }
        Ok(failed)
    }

    /// set_mempolicy: the policy of a space for ranges that have none. Its children inherit it.
    pub fn set_mempolicy(&self, space: SpaceId, policy: MemPolicy) -> Result<(), Error> {
        self.check_policy(policy)?;
        self.spaces.get(space).ok_or(Error::NotFound)?.set_policy(policy);
        Ok(())
    }

    /// mbind: the policy of an interval without holes. `moving` (MPOL_MF_MOVE_ALL): also move pages that are
    /// elsewhere, even if other spaces map them. Returns the number of pages that could not be moved.
    pub fn mbind(
        &self,
        space: SpaceId,
        start: Vpn,
        pages: u64,
        policy: MemPolicy,
        moving: bool,
    ) -> Result<u64, Error> {
        self.check_policy(policy)?;
        let end = start.0.checked_add(pages).filter(|&end| end <= USER_END.0).ok_or(Error::Invalid)?;
        self.on_space(space, |_| self.spaces.mbind(&self.core, space, (start, Vpn(end)), policy))?;
        if !moving || policy.is_default() {
            return Ok(0);
        }
        let here = self.mmu().node();
        let target = |index| NodePreference::by(policy, index).choose(self.machine(), here, Order::ZERO).0;
        if policy.mode() != PolicyMode::Interleave {
            let there = policy.nodes();
            let moved = self.move_range(space, (start.0, end), Some(target(0)), |on| !there.contains(on))?;
            return Ok(moved.failed);
        }
        let mut failed = 0;
        let mut at = start;
        while at.0 < end {
            let found = self.spaces.get(space).ok_or(Error::NotFound)?.range_from(at, |_| true);
            let Some(range) = found.filter(|range| range.start.0 < end) else { break };
            at = at.max(range.start);
            while at < range.end().min(Vpn(end)) {
                let node = target(range.anon_index(at).0);
                failed += self.move_range(space, (at.0, at.0 + 1), Some(node), |on| on != node)?.failed;
                at = Vpn(at.0 + 1);
            }
        }
        Ok(failed)
    }

    fn check_policy(&self, policy: MemPolicy) -> Result<(), Error> {
        let known = policy.nodes().named().all(|node| self.has_memory(node));
        if known { Ok(()) } else { Err(Error::Invalid) }
    }

    fn has_memory(&self, node: NodeId) -> bool {
        self.core.alloc.zones().iter().any(|zone| zone.node() == node)
    }

    fn move_range(
        &self,
        space: SpaceId,
        (start, end): (u64, u64),
        node: Option<NodeId>,
        wanted: impl Fn(NodeId) -> bool,
    ) -> Result<Moved, Error> {
        let mut sum = Moved::default();
        let mut at = start;
        while at < end {
            let next = ((at | (WINDOW - 1)) + 1).min(end);
            let range = (Vpn(at), Vpn(next));
            let found = self.on_space(space, |_| self.spaces.collect(&self.core, space, range, &wanted))?;
            let mut target = OnNode(node);
            let done =
                migrate::folios(&self.core, found.folios, &mut target, Mode::Sync, MigrateReason::Call);
            let Done { moved, failed, left, no_room, .. } = done;
            sum.mapped += found.mapped;
            sum.moved += moved;
            sum.failed += failed + left + found.refused;
            if no_room {
                return Err(Error::NoMemory);
            }
            at = next;
        }
        Ok(sum)
    }
}
