//! Anonymous folios that are only partly mapped.
//!
//! A page of a larger folio that is not mapped any more stays in memory until the whole folio is freed. Splitting the
//! folio at once would be useless if the rest is about to be unmapped, too. So the folio is put on a queue of its node,
//! and split when memory is needed (`reclaim`), or removed from the queue if it is freed before. This is Linux's
//! deferred split queue.
//!
//! A folio is on the queue while it has the flag PARTIALLY_MAPPED, which changes under the queue's lock. Its own links
//! are used by its LRU list, so the queue links the records of first tails. A queue holds no references: to take a
//! folio from it gets one, or finds that the folio is being freed; a folio is removed from the queue before it is
//! freed.

use super::Lru;
use crate::frame::{FrameFlags, List};
use crate::lock::Lock;
use crate::machine::Machine;
use crate::platform::Platform;
use crate::stat::SizeStat;
use crate::units::*;
use std_alloc::boxed::Box;
use std_alloc::format;
use std_alloc::string::String;

/// The queues, by node.
pub(super) type Deferred = Box<[Lock<List>]>;

/// The folio of a queue's entry.
fn head_of<M: Machine>(platform: &Platform<M>, tail: Pfn) -> Pfn {
    platform.frames[tail].as_tail()
}

impl Lru {
    /// Queue a folio that is mapped only in part now for a split. Folios of files are not queued, nor those in the swap
    /// cache, whose unmapped pages may be mapped again. The caller holds a reference.
    #[cold]
    pub(crate) fn defer_split<M: Machine>(&self, platform: &Platform<M>, head: Pfn) {
        let frame = &platform.frames[head];
        if frame.order() == Order::ZERO || !frame.is_anon() {
            return;
        }
        if frame.has(FrameFlags::MLOCKED) {
            // The part that was unmapped may have locked it in memory. If the rest does, too, reclaim finds out.
            self.munlock(platform, head);
        }
        if frame.has_any(FrameFlags::PARTIALLY_MAPPED | FrameFlags::SWAPCACHE) {
            return;
        }
        let mut queue = self.deferred[frame.node().index()].lock();
        if frame.test_and_set(FrameFlags::PARTIALLY_MAPPED) {
            queue.push_tail(&platform.frames, head.add(1));
            platform.sizes.count(SizeStat::SplitDeferred, frame.order(), 1);
            platform.sizes.count(SizeStat::NrAnonPartiallyMapped, frame.order(), 1);
        }
    }

    /// Remove a large anonymous folio that is about to be freed or split from the queue.
    pub(crate) fn forget_split<M: Machine>(&self, platform: &Platform<M>, head: Pfn) {
        let frame = &platform.frames[head];
        if !frame.has(FrameFlags::PARTIALLY_MAPPED) {
            return;
        }
        let mut queue = self.deferred[frame.node().index()].lock();
        if frame.test_and_clear(FrameFlags::PARTIALLY_MAPPED) {
            queue.remove(&platform.frames, &platform.frames[head.add(1)]);
            platform.sizes.drop_from(SizeStat::NrAnonPartiallyMapped, frame.order(), 1);
        }
    }

    /// Number of folios of a node that are queued for a split.
    pub(crate) fn splits_deferred(&self, node: NodeId) -> usize {
        self.deferred[node.index()].lock().len()
    }

    /// The folio of a node that has been queued longest, with a reference. It goes to the end of the queue. `None`: the
    /// queue is empty, or the folio is being freed.
    pub(crate) fn next_deferred<M: Machine>(&self, platform: &Platform<M>, node: NodeId) -> Option<Pfn> {
        let mut queue = self.deferred[node.index()].lock();
        let tail = queue.pop_head(&platform.frames)?;
        queue.push_tail(&platform.frames, tail);
        let head = head_of(platform, tail);
        platform.try_get(head).then_some(head)
    }

    /// Check that the queues hold the folios that have the flag, and that the counters count them and all large
    /// anonymous folios.
    pub(super) fn check_deferred<M: Machine>(&self, platform: &Platform<M>) -> Result<(), String> {
        let mut queued = [0; PAGEBLOCK_ORDER.0 as usize + 1];
        for (node, queue) in self.deferred.iter().enumerate() {
            let queue = queue.lock();
            queue.validate(&platform.frames)?;
            for head in queue.iter(&platform.frames).map(|tail| head_of(platform, tail)) {
                let frame = &platform.frames[head];
                let wanted = FrameFlags::HEAD | FrameFlags::PARTIALLY_MAPPED;
                if !frame.has(wanted) || !frame.is_anon() || frame.node().index() != node || frame.refs() == 0
                {
                    return Err(format!("{head} waits to be split, with {:?}", frame.flags()));
                }
                queued[frame.order().0 as usize] += 1;
            }
        }
        let mut folios = [0; PAGEBLOCK_ORDER.0 as usize + 1];
        let mut flagged = 0;
        for frame in (0..platform.frames.len() as u32).map(|i| &platform.frames[Pfn(i)]) {
            if frame.refs() > 0 && frame.has(FrameFlags::HEAD) && frame.is_anon() {
                folios[frame.order().0 as usize] += 1;
            }
            flagged += u64::from(frame.has(FrameFlags::PARTIALLY_MAPPED));
        }
        if flagged != queued.iter().sum::<u64>() {
            return Err(format!("{flagged} folios have PARTIALLY_MAPPED, {queued:?} wait to be split"));
        }
        let levels = [(SizeStat::NrAnon, folios), (SizeStat::NrAnonPartiallyMapped, queued)];
        for (level, found) in levels {
            for (order, found) in (0..).map(Order).zip(found).skip(1) {
                let counted = platform.sizes.read(level, order);
                if counted != found {
                    return Err(format!("{} of {order} is {counted}, there are {found}", level.name()));
                }
            }
        }
        Ok(())
    }
}
