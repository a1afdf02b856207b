//! The limit of shadows of evicted pages.
//!
//! A leaf of a tree that holds only shadows uses memory for pages that are not there. All such leaves are in one
//! queue, in the order in which they lost their last page. There may be one for every eight pages on the lists (with
//! 64 shadows in a leaf, these are eight times the pages of the lists); if there are more, the oldest are dropped.

#[cfg(test)]
mod tests;

use super::Cache;
use super::tree::{NodeChanges, PageTree, ShadowLeaf};
use crate::lock::{Guard, Lock};
use crate::lru::LruList;
use crate::machine::Machine;
use crate::memory::Memory;
use crate::primitive::{AtomicI64, Ordering::Relaxed};
use crate::slab::Record;
use crate::stat::Stat;
use crate::units::*;
use std_alloc::collections::VecDeque;

/// Number of leaves that are always allowed.
const LEAST: u64 = 64;
/// Number of leaves that are dropped in addition, so that the next eviction does not have to drop again.
const SLACK: u64 = 32;

/// All leaves that hold only shadows, oldest first.
#[derive(Default)]
pub(super) struct Shadows {
    /// Number of leaves in `queue` that still hold only shadows.
    live: AtomicI64,
    /// It may have leaves that are in use again: their stamps no longer match.
    queue: Lock<VecDeque<(FileId, ShadowLeaf)>>,
}

impl Cache {
    /// Unlock the tree of `file`, and account for its changes.
    #[inline]
    pub(super) fn unlock_tree<M: Machine>(
        &self,
        memory: &Memory<M>,
        file: FileId,
        mut tree: Guard<'_, PageTree>,
    ) {
        let changes = tree.take_node_changes();
        drop(tree);
        if !changes.is_none() {
            self.apply_shadow_changes(memory, file, changes);
        }
    }

    #[cold]
    fn apply_shadow_changes<M: Machine>(&self, memory: &Memory<M>, file: FileId, changes: NodeChanges) {
        memory.note_records(Record::TreeNode, changes.nodes);
        let live = (self.shadows.live.fetch_add(changes.change, Relaxed) + changes.change).max(0) as u64;
        memory.count(Stat::WorkingsetNodes, changes.change);
        if !changes.leaves.is_empty() {
            let mut queue = self.shadows.queue.lock();
            queue.extend(changes.leaves.iter().map(|&leaf| (file, leaf)));
            let stale = queue.len() as u64 > 2 * live + LEAST;
            drop(queue);
            if stale {
                self.forget_stale();
            }
        }
        let limit = shadow_limit(memory);
        if live > limit {
            self.drop_shadow_leaves(memory, live - limit + SLACK);
        }
    }

    fn drop_shadow_leaves<M: Machine>(&self, memory: &Memory<M>, count: u64) {
        let mut left = count;
        while left > 0 {
            let Some((id, leaf)) = self.shadows.queue.lock().pop_front() else { return };
            let mut tree = self.file(id).tree.lock();
            if tree.drop_shadow_leaf(leaf) > 0 {
                let changes = tree.take_node_changes();
                self.shadows.live.fetch_add(changes.change, Relaxed);
                drop(tree);
                memory.note_records(Record::TreeNode, changes.nodes);
                memory.count(Stat::WorkingsetNodes, changes.change);
                memory.count(Stat::WorkingsetNodereclaim, 1);
                left -= 1;
            }
        }
    }

    /// Remove leaves from the queue that are in use again.
    fn forget_stale(&self) {
        let all = core::mem::take(&mut *self.shadows.queue.lock());
        let kept: VecDeque<_> =
            all.into_iter().filter(|&(id, leaf)| self.file(id).tree.look().is_shadow_leaf(leaf)).collect();
        let mut queue = self.shadows.queue.lock();
        // Leaves that came in the meantime are younger.
        let newer = core::mem::replace(&mut *queue, kept);
        queue.extend(newer);
    }

    pub(crate) fn shadow_leaves(&self) -> u64 {
        self.shadows.live.load(Relaxed).max(0) as u64
    }
}

fn shadow_limit<M: Machine>(memory: &Memory<M>) -> u64 {
    let vecs = (0..memory.lru.nodes()).map(|node| memory.lru.node_vec(NodeId(node as u8)));
    let pages: u64 = vecs.flat_map(|vec| LruList::ALL.map(|list| vec.pages(list))).sum();
    (pages / 8).max(LEAST)
}
