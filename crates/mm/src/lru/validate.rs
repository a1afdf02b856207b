//! Checks of lists, sizes and charges against the frame table, while no task is inside the memory manager.

use super::vec::{ByKind, PROPOSED, ZONE_KINDS};
use super::{Lru, LruList, ROOT, mglru};
use crate::frame::{Frame, FrameFlags, List, LruGen};
use crate::machine::Machine;
use crate::platform::Platform;
use crate::units::*;
use std_alloc::format;
use std_alloc::string::String;
use std_alloc::vec;

impl Lru {
    /// Check that every folio on a list has LRU set and the flags, node and group of the list; that sizes and counters
    /// are those of the lists; and that charges are those of the folios. Returns the first fault.
    pub fn validate<M: Machine>(&self, platform: &Platform<M>) -> Result<(), String> {
        let mut totals = [0; LruList::COUNT];
        let mut listed = 0;
        for node in 0..self.nodes() {
            let node = NodeId(node as u8);
            let mut own = vec![[[0; ZONE_KINDS]; LruList::COUNT]; self.groups.bound() as usize];
            for (group, sizes) in own.iter_mut().enumerate() {
                let group = GroupId(group as u16);
                for list in LruList::ALL {
                    let (pages, folios) = self.check_list(platform, node, group, list)?;
                    sizes[list as usize] = pages;
                    listed += folios;
                }
                listed += self.check_generations(platform, node, group, sizes)?;
                listed += self.check_proposed(platform, node, group, sizes)?;
                self.check_sizes(node, group, sizes)?;
                for list in LruList::ALL {
                    totals[list as usize] += sizes[list as usize].iter().sum::<i64>();
                }
            }
            self.check_subtrees(node, &own)?;
        }
        for list in LruList::ALL {
            let counted = platform.stats.read(list.stat());
            if counted != totals[list as usize] {
                let name = list.stat().name();
                return Err(format!("{name} is {counted}, the lists hold {} pages", totals[list as usize]));
            }
        }
        let frames = || (0..platform.frames.len() as u32).map(|i| &platform.frames[Pfn(i)]);
        let flagged = frames().filter(|frame| frame.has(FrameFlags::LRU)).count();
        if flagged != listed {
            return Err(format!("{flagged} frames have LRU, {listed} are on lists"));
        }
        self.check_deferred(platform)?;
        self.check_charges(platform)
    }

    /// Check a queue: each folio has LRU set, is of the vector, has a reference, and `fits`. Returns their number.
    fn check_queue<M: Machine>(
        &self,
        platform: &Platform<M>,
        (node, group): (NodeId, GroupId),
        (at, source): (usize, &List),
        mut fits: impl FnMut(&Frame, FrameFlags) -> bool,
    ) -> Result<usize, String> {
        let fault = |what: String| format!("queue {at} of {group} on {node}: {what}");
        source.validate(&platform.frames).map_err(fault)?;
        for (pfn, frame) in source.records(&platform.frames) {
            let flags = frame.flags();
            if !flags.contains(FrameFlags::LRU) || !fits(frame, flags) {
                return Err(fault(format!("{pfn} with flags {flags:?}, queue {}", frame.queue())));
            }
            if (frame.node(), frame.group(), frame.refs() > 0) != (node, group, true) {
                let (node, group, refs) = (frame.node(), frame.group(), frame.refs());
                return Err(fault(format!("{pfn} of {group} on {node} with {refs} references")));
            }
        }
        Ok(source.len())
    }

    fn check_list<M: Machine>(
        &self,
        platform: &Platform<M>,
        node: NodeId,
        group: GroupId,
        list: LruList,
    ) -> Result<(ByKind, usize), String> {
        let lists = self.vec(node, group).lock();
        let source = &lists.lists[list as usize];
        if lists.dead && !source.is_empty() {
            return Err(format!("{list:?} of {group} on {node} belongs to a removed group"));
        }
        let mut pages = [0; ZONE_KINDS];
        let fits = |frame: &Frame, flags: FrameFlags| {
            pages[self.kind(frame.zone()) as usize] += frame.pages() as i64;
            flags.generation().is_none() && frame.queue() == 0 && LruList::of(flags) == list
        };
        let folios = self.check_queue(platform, (node, group), (list as usize, source), fits)?;
        Ok((pages, folios))
    }

    /// Check the queues of a vector's generations: each folio has a generation, and its queue in its record; sizes are
    /// those of the generations in the folios' flags. Adds the pages by list to `own`; returns the number of folios.
    fn check_generations<M: Machine>(
        &self,
        platform: &Platform<M>,
        node: NodeId,
        group: GroupId,
        own: &mut [ByKind; LruList::COUNT],
    ) -> Result<usize, String> {
        let vec = self.vec(node, group);
        let generations = &vec.generations;
        let lists = vec.lock();
        let mut sizes = [[[0; ZONE_KINDS]; 2]; LruGen::COUNT];
        let mut folios = 0;
        for (at, source) in lists.lists[..PROPOSED].iter().enumerate().skip(LruList::COUNT) {
            folios += self.check_queue(platform, (node, group), (at, source), |frame, flags| {
                let (file, kind) = (!flags.contains(FrameFlags::SWAPBACKED), self.kind(frame.zone()));
                let Some(generation) = flags.generation() else { return false };
                let pages = frame.pages() as i64;
                sizes[generation.index()][file as usize][kind as usize] += pages;
                own[generations.list(generation, file) as usize][kind as usize] += pages;
                let named = frame.queue() as usize == at && mglru::is_queue_of(at, file, kind);
                named && !flags.contains(FrameFlags::ACTIVE)
            })?;
        }
        for generation in (0..LruGen::COUNT as u64).map(LruGen::of) {
            for file in [false, true] {
                let (held, told) =
                    (sizes[generation.index()][file as usize], generations.by_kind(generation, file));
                if held != told {
                    return Err(format!(
                        "{generation:?} of {group} on {node} (files: {file}) holds {held:?} pages, its sizes say {told:?}"
                    ));
                }
            }
        }
        if !generations.is_valid() {
            let min = [false, true].map(|file| generations.min_seq(file));
            return Err(format!("{group} on {node} has generations {min:?} to {}", generations.max_seq()));
        }
        Ok(folios)
    }

    /// Check the queues of a policy that proposes: each folio has its queue in its record, and the sizes that the
    /// policy gets are right. Adds the pages by list to `own`; returns the number of folios.
    fn check_proposed<M: Machine>(
        &self,
        platform: &Platform<M>,
        node: NodeId,
        group: GroupId,
        own: &mut [ByKind; LruList::COUNT],
    ) -> Result<usize, String> {
        let lists = self.vec(node, group).lock();
        let mut folios = 0;
        for (list, source) in lists.lists[PROPOSED..].iter().enumerate() {
            let (at, mut size) = (PROPOSED + list, 0);
            folios += self.check_queue(platform, (node, group), (at, source), |frame, flags| {
                size += frame.pages() as u64;
                let inactive = LruList::new(!flags.contains(FrameFlags::SWAPBACKED), false);
                own[inactive as usize][self.kind(frame.zone()) as usize] += frame.pages() as i64;
                let gone = FrameFlags::ACTIVE | FrameFlags::UNEVICTABLE | FrameFlags::GENERATION;
                frame.queue() as usize == at && !flags.intersects(gone)
            })?;
            let told = lists.proposed.as_ref().map_or(0, |proposed| proposed.sizes[list]);
            let known = lists.proposed.as_ref().map_or(0, |proposed| proposed.lists);
            if told != size || list >= known && size > 0 {
                return Err(format!(
                    "queue {at} of {group} on {node} holds {size} pages, its policy is told {told}"
                ));
            }
        }
        Ok(folios)
    }

    /// Check that the sizes of a vector's lists are those of the folios.
    fn check_sizes(
        &self,
        node: NodeId,
        group: GroupId,
        own: &[ByKind; LruList::COUNT],
    ) -> Result<(), String> {
        let lists = self.vec(node, group).lock();
        for list in LruList::ALL {
            let (held, told) = (own[list as usize], lists.pages[list as usize]);
            if held != told {
                return Err(format!(
                    "{list:?} of {group} on {node} holds {held:?} pages, its sizes say {told:?}"
                ));
            }
        }
        Ok(())
    }

    /// Check that the sizes of each subtree are the sums of its groups' sizes.
    fn check_subtrees(&self, node: NodeId, own: &[[ByKind; LruList::COUNT]]) -> Result<(), String> {
        for list in LruList::ALL {
            let mut sums = vec![[0; ZONE_KINDS]; own.len()];
            for (group, sizes) in own.iter().enumerate() {
                for above in self.groups.upwards(GroupId(group as u16)) {
                    for (sum, pages) in sums[above.index()].iter_mut().zip(sizes[list as usize]) {
                        *sum += pages;
                    }
                }
            }
            for (group, sum) in sums.iter().enumerate() {
                let counted = self.vec(node, GroupId(group as u16)).subtree(list);
                if counted != *sum {
                    let group = GroupId(group as u16);
                    return Err(format!("{list:?} below {group} on {node} is {sum:?}, counted {counted:?}"));
                }
            }
        }
        Ok(())
    }

    fn check_charges<M: Machine>(&self, platform: &Platform<M>) -> Result<(), String> {
        let mut sums = vec![0; self.groups.bound() as usize];
        for pfn in (0..platform.frames.len() as u32).map(Pfn) {
            let frame = &platform.frames[pfn];
            if frame.group() != ROOT && !frame.has(FrameFlags::TAIL) {
                for above in self.groups.upwards(frame.group()) {
                    sums[above.index()] += frame.pages() as u64;
                }
            }
        }
        for stock in self.groups.stocks.each().filter(|stock| stock.pages > 0) {
            self.groups.upwards(stock.group).for_each(|above| sums[above.index()] += stock.pages);
        }
        for group in (1..sums.len()).map(|group| GroupId(group as u16)) {
            let objects = self.groups.zswap_charged(group);
            self.groups.upwards(group).for_each(|above| sums[above.index()] += objects);
        }
        for (group, &sum) in sums.iter().enumerate() {
            let (group, usage) = (GroupId(group as u16), self.groups.usage(GroupId(group as u16)));
            if usage != sum {
                return Err(format!(
                    "{group} is charged {usage} pages, its folios, CPUs' stocks and zswap hold {sum}"
                ));
            }
        }
        Ok(())
    }
}
