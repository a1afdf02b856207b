//! Which folios are hot and which are cold: list vectors, the second chance, refault distance, and control groups.
//!
//! Each group has a vector of five lists on each node: inactive and active, for anonymous memory and for files, and one
//! for folios that must not be reclaimed. A folio's flags determine its list ([`LruList::of`]), its node and group
//! determine its vector, so a folio needs no field for them.
//!
//! # Protocol
//! The flag LRU is the right to move a folio. Only the task that clears it may take the folio off its list and change
//! what determines the list (the flags ACTIVE, UNEVICTABLE and SWAPBACKED, and the group). So a mover clears LRU, takes
//! the vector's lock, unlinks, changes flags, links, and sets LRU again; a mover that finds LRU clear leaves the folio
//! alone. A folio is isolated when LRU is clear and the task that isolated it holds a reference of its own. If LRU is
//! set when the reference count reaches zero, the folio is taken off its list before it is freed.
//!
//! When a group is removed, its folios change vectors with LRU set, under the locks of both vectors (the group's first,
//! then its parent's). So after taking a lock, a mover checks that the folio still belongs to that vector.
//!
//! Unlike in Linux there are no per-CPU batches before the lists: a folio is on its list at once.

mod access;
mod batch;
mod classic;
mod deferred;
mod folio_batch;
mod group;
mod known;
pub mod mglru;
mod policy;
mod proposed;
mod protect;
mod stock;
mod switch;
mod validate;
mod vec;
mod workingset;

pub(crate) use batch::{IsolateScan, Putback};
pub(crate) use group::Protection;
pub use group::{Groups, ROOT};
pub use known::Known;
pub use policy::PolicyKind;
pub(crate) use proposed::{Ask, note_used};
pub use protect::Claim;
pub use vec::{Cost, LruList, LruVec};

use crate::api::{Error, GroupLimits};
use crate::arena::Arena;
use crate::frame::{Frame, FrameFlags};
use crate::lock::{Guard, Lock, LockClass};
use crate::machine::{Machine, Work, ZoneKind};
use crate::platform::Platform;
use crate::policy::MakePolicy;
use crate::primitive::{AtomicU64, Ordering::*};
use crate::stat::Stat;
use crate::units::*;
use base::demand;
use batch::{push, take};
use classic::ClassicPolicy;
use folio_batch::{BatchKind, FolioBatches};
use policy::{InsertReason, Leave, ListPosition, LockedLists, Policy, PolicyCell, PolicyFolio};
use std_alloc::boxed::Box;
use vec::{ByKind, LruLists, QUEUES};

pub(crate) const MAX_SWAPPINESS: u64 = 200;

struct LockedVec<'a> {
    vec: &'a LruVec,
    lists: Guard<'a, LruLists>,
}

/// All list vectors and groups.
pub struct Lru {
    vecs: Arena<LruVec>,
    /// The control groups.
    pub groups: Groups,
    nodes: usize,
    kinds: Box<[ZoneKind]>,
    /// Folios to split when memory is needed.
    deferred: deferred::Deferred,
    batches: FolioBatches,
    policy: PolicyCell,
    /// A policy from outside that proposes.
    custom: Option<MakePolicy>,
    /// When the statistics of the vectors ([`Known`]) were added up last, since their first period began.
    added_up_at: AtomicU64,
    /// How much of the first period was over at the start.
    statistics_age: Nanos,
}

impl Lru {
    /// Empty vectors for the root group, on every node of the machine.
    pub fn new<M: Machine>(machine: &M) -> Lru {
        let memory = machine.memory();
        let nodes = memory.iter().map(|range| range.node.index() + 1).max().unwrap_or(1);
        let kinds = memory.iter().map(|range| range.kind).collect();
        let deferred = (0..nodes).map(|_| Lock::of(LockClass::SplitQueue, Default::default())).collect();
        let (groups, policy) = (Groups::new(machine.cpus()), PolicyCell::default());
        let added_up_at = AtomicU64::new(0);
        let vecs = Arena::default();
        let lru = Lru {
            vecs,
            groups,
            nodes,
            kinds,
            deferred,
            batches: FolioBatches::new(machine.cpus()),
            policy,
            custom: None,
            added_up_at,
            statistics_age: 0,
        };
        lru.make_vecs(ROOT);
        lru
    }

    /// The same, with a policy from outside that can be selected.
    pub(crate) fn with_custom(self, custom: Option<MakePolicy>) -> Lru {
        Lru { custom, ..self }
    }

    /// The same, with statistics that were added up so long before the start.
    pub(crate) fn with_age(self, statistics_age: Nanos) -> Lru {
        Lru { statistics_age, ..self }
    }

    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// Kind of a zone.
    #[inline]
    pub fn kind(&self, zone: ZoneId) -> ZoneKind {
        self.kinds[zone.index()]
    }

    /// The vector of a group on a node.
    #[inline]
    pub fn vec(&self, node: NodeId, group: GroupId) -> &LruVec {
        &self.vecs[(group.index() * self.nodes + node.index()) as u32]
    }

    /// The root group's vector: its sizes are those of the whole node.
    #[inline]
    pub(crate) fn node_vec(&self, node: NodeId) -> &LruVec {
        self.vec(node, ROOT)
    }

    fn make_vecs(&self, group: GroupId) {
        for node in 0..self.nodes {
            let vec = self.vecs.ensure((group.index() * self.nodes + node) as u32);
            let policy = self.groups.policy(group).unwrap_or(self.policy());
            vec.lock().proposed = self.new_proposed(policy);
            vec.set_policy(policy);
        }
    }

    // --- groups ---

    /// Create a group below `parent`. Fails if there is no such parent, or if all 65536 numbers of a run have been
    /// used. `prepare` is called before the group is visible.
    pub fn create_group(
        &self,
        parent: GroupId,
        limits: GroupLimits,
        prepare: impl FnOnce(GroupId),
    ) -> Result<GroupId, Error> {
        let _tree = self.groups.tree.lock();
        let group = self.groups.insert(parent, limits)?;
        self.make_vecs(group);
        prepare(group);
        self.groups.publish(group);
        Ok(group)
    }

    /// The memory limits of a group.
    pub fn group_limits(&self, group: GroupId) -> Result<GroupLimits, Error> {
        if self.groups.is_live(group) { Ok(self.groups.memory_limits(group)) } else { Err(Error::NotFound) }
    }

    /// Remove a group other than the root that has no groups below and no spaces. Its folios and their charges go to
    /// its parent.
    pub fn remove_group<M: Machine>(&self, platform: &Platform<M>, group: GroupId) -> Result<(), Error> {
        let _tree = self.groups.tree.lock();
        let parent = self.groups.unlink(group)?;
        self.groups.drain_stocks(platform, group);
        for node in 0..self.nodes {
            self.reparent(platform, NodeId(node as u8), group, parent);
        }
        Ok(())
    }

    fn reparent<M: Machine>(&self, platform: &Platform<M>, node: NodeId, group: GroupId, parent: GroupId) {
        let (from, to) = (self.vec(node, group), self.vec(node, parent));
        let mut from = LockedVec { vec: from, lists: from.lock() };
        let mut to = LockedVec { vec: to, lists: to.lock() };
        from.lists.dead = true;
        // Those on classic lists follow as they are.
        for queue in LruList::COUNT..QUEUES {
            self.reparent_queue(platform, (group, queue), parent, (&mut from, &mut to));
        }
        from.lists.proposed = None;
        for list in LruList::ALL {
            let i = list as usize;
            if to.vec.policy() != PolicyKind::Classic && LruList::EVICTABLE.contains(&list) {
                self.reparent_queue(platform, (group, i), parent, (&mut from, &mut to));
            }
            while let Some(pfn) = from.lists.lists[i].pop_head(&platform.frames) {
                let frame = &platform.frames[pfn];
                self.groups.transfer_charge(group, parent, frame.pages() as u64);
                frame.set_group(parent);
                to.lists.lists[i].push_tail(&platform.frames, pfn);
            }
            let pages = core::mem::take(&mut from.lists.pages[i]);
            for (kind, pages) in pages.iter().enumerate() {
                to.lists.pages[i][kind] += pages;
            }
            from.vec.add_subtree(list, &pages.map(|pages| -pages));
        }
        let cost = core::mem::take(&mut from.lists.cost);
        to.lists.cost.anon += cost.anon;
        to.lists.cost.file += cost.file;
    }

    // --- one folio ---

    /// Put new folios, which are on no list, where the policy wants them. Consecutive folios of one vector and zone
    /// need its lock and a change of its sizes only once. `faulted`: a fault needs or reads them, in a range where
    /// accesses predict further accesses. Each folio has a reference that keeps it.
    #[inline]
    pub fn add<M: Machine>(
        &self,
        platform: &Platform<M>,
        folios: impl IntoIterator<Item = Pfn>,
        faulted: bool,
    ) {
        let mut rest = folios.into_iter();
        let why = InsertReason::New { faulted, task: platform.machine.task() };
        let with_record = |pfn| (pfn, &platform.frames[pfn]);
        let place = |frame: &Frame| (frame.zone(), frame.group());
        let mut next = rest.next().map(with_record);
        while let Some((mut pfn, first)) = next {
            let mut frame = first;
            let policy = self.policy_of(first);
            let completes = self.batches.completes(platform, BatchKind::Add, first);
            let mut held = self.lock_live(first, completes);
            // Pages of the last folios, which went to this list.
            let (mut list, mut pages, mut count) = (LruList::Unevictable, 0, 0);
            loop {
                demand!(!frame.has(FrameFlags::LRU), [pfn]; "folio {pfn} must not be on a list yet");
                if policy != PolicyKind::Classic {
                    policy.admit(platform, frame, faulted);
                }
                let to = self.enqueue(platform, &mut held, (pfn, frame), why);
                frame.set(FrameFlags::LRU);
                if to != list && pages > 0 {
                    self.account_one(platform, &mut held, first, list, pages);
                    pages = 0;
                }
                list = to;
                pages += i64::from(frame.pages());
                count += 1;
                next = rest.next().map(with_record);
                match next {
                    Some(other) if place(other.1) == place(first) => (pfn, frame) = other,
                    _ => break,
                }
            }
            self.account_one(platform, &mut held, first, list, pages);
            self.batches.charge(platform, BatchKind::Add, completes, count);
            drop(held);
        }
    }

    /// Clear the flags that are only about folios on lists.
    #[inline]
    fn forget_list<M: Machine>(&self, platform: &Platform<M>, frame: &Frame) {
        if frame.has(FrameFlags::MLOCKED) {
            platform.count(Stat::NrMlock, -(frame.pages() as i64));
        }
        frame.clear(FrameFlags::LRU | LIST_FLAGS);
    }

    /// Take a folio off its list, with an additional reference. Returns `false` if another task has done so. The caller
    /// holds a reference.
    pub(crate) fn isolate<M: Machine>(&self, platform: &Platform<M>, pfn: Pfn) -> bool {
        self.isolate_if(platform, pfn, |_, _, _| ())
    }

    /// The same, before the folio's content is moved: the copy, or the folio, gets its old generation again when it is
    /// put back.
    pub(crate) fn isolate_to_move<M: Machine>(&self, platform: &Platform<M>, pfn: Pfn) -> bool {
        self.isolate_if(platform, pfn, mglru::note_age)
    }

    #[inline]
    fn isolate_if<M: Machine>(
        &self,
        platform: &Platform<M>,
        pfn: Pfn,
        note: impl FnOnce(&mglru::Generations, &Frame, FrameFlags),
    ) -> bool {
        let frame = &platform.frames[pfn];
        if !frame.test_and_clear(FrameFlags::LRU) {
            return false;
        }
        frame.get(1);
        let mut held = self.lock_of(frame);
        platform.charge(Work::LruMove, 1);
        let flags = frame.flags();
        self.unlink(platform, &mut held, pfn, Leave::Other);
        note(&held.vec.generations, frame, flags);
        true
    }

    /// Transfer the charge and the marks of use of an isolated folio to a new folio that has its content and that no
    /// task can find yet. The mappings that lock it in memory say so themselves ([`Lru::keep_locked`]).
    pub(crate) fn succeed<M: Machine>(&self, platform: &Platform<M>, from: Pfn, to: Pfn) {
        let (from, to) = (&platform.frames[from], &platform.frames[to]);
        let known = FrameFlags::ACTIVE
            | FrameFlags::UNEVICTABLE
            | FrameFlags::WORKINGSET
            | FrameFlags::REFERENCED
            | FrameFlags::USES;
        to.set(from.flags() & known);
        to.set_mark(from.mark());
        from.set_mark(0);
        to.set_group(from.group());
        from.set_group(ROOT);
    }

    /// Put an isolated folio back on the list of its present flags. The caller still has to drop its reference.
    pub(crate) fn putback<M: Machine>(&self, platform: &Platform<M>, pfn: Pfn) {
        self.insert(platform, pfn, InsertReason::Back, 1);
    }

    /// Split a folio to which no other task can get a reference into folios of order `to`, by `split`. They take its
    /// place on its list; if it is on none, neither are they.
    pub fn split<M: Machine>(&self, platform: &Platform<M>, pfn: Pfn, to: Order, split: impl FnOnce()) {
        let (frame, pages) = (&platform.frames[pfn], platform.frames[pfn].pages());
        if !frame.test_and_clear(FrameFlags::LRU) {
            split();
            let parts = (to.frames()..pages).step_by(to.frames() as usize);
            parts.for_each(|i| platform.frames[pfn.add(i)].set_mark(frame.mark()));
            return;
        }
        let mut held = self.lock_of(frame);
        platform.charge(Work::LruMove, 1);
        let queue = queue_of(frame);
        split();
        frame.set(FrameFlags::LRU);
        let mut last = pfn;
        for part in (to.frames()..pages).step_by(to.frames() as usize).map(|i| pfn.add(i)) {
            held.lists.lists[queue as usize].insert_behind(&platform.frames, last, part);
            platform.frames[part].set_queue(frame.queue());
            platform.frames[part].set_mark(frame.mark());
            platform.frames[part].set(FrameFlags::LRU);
            last = part;
        }
    }

    /// Put a folio on its list, for `moves` units of work.
    fn insert<M: Machine>(&self, platform: &Platform<M>, pfn: Pfn, why: InsertReason, moves: u64) {
        let frame = &platform.frames[pfn];
        demand!(!frame.has(FrameFlags::LRU), [pfn]; "folio {pfn} must not be on a list yet");
        let mut held = self.lock_live(frame, true);
        platform.charge(Work::LruMove, moves);
        self.link(platform, &mut held, pfn, why);
        frame.set(FrameFlags::LRU);
    }

    /// Lock the vector of a folio that is on no list. If its group was removed, the folio and its charge go to the
    /// nearest live group above first. `seen`: in simulated time the lock is taken.
    #[inline(always)]
    fn lock_live(&self, frame: &Frame, seen: bool) -> LockedVec<'_> {
        loop {
            let held = self.lock_if(frame, seen);
            if !held.lists.dead {
                return held;
            }
            drop(held);
            self.leave_dead_group(frame);
        }
    }

    #[cold]
    fn leave_dead_group(&self, frame: &Frame) {
        let (dead, live) = (frame.group(), self.groups.nearest_live(frame.group()));
        self.groups.transfer_charge(dead, live, frame.pages() as u64);
        frame.set_group(live);
    }

    /// Move a folio whose LRU flag the caller has cleared to the list of its flags after the flags `set` are set and
    /// `clear` are cleared.
    fn relink<M: Machine>(
        &self,
        platform: &Platform<M>,
        pfn: Pfn,
        (kind, why): (BatchKind, InsertReason),
        set: FrameFlags,
        clear: FrameFlags,
    ) {
        let frame = &platform.frames[pfn];
        let completes = self.batches.completes(platform, kind, frame);
        let mut held = self.lock_if(frame, completes);
        self.batches.charge(platform, kind, completes, 1);
        self.unlink(platform, &mut held, pfn, Leave::Other);
        frame.set(set);
        frame.clear(clear);
        self.link(platform, &mut held, pfn, why);
        frame.set(FrameFlags::LRU);
    }

    #[inline(always)]
    fn lock_of(&self, frame: &Frame) -> LockedVec<'_> {
        self.lock_if(frame, true)
    }

    #[inline(always)]
    fn lock_if(&self, frame: &Frame, seen: bool) -> LockedVec<'_> {
        loop {
            let group = frame.group();
            let vec = self.vec(frame.node(), group);
            let lists = if seen { vec.lock() } else { vec.look() };
            if frame.group() == group {
                return LockedVec { vec, lists };
            }
        }
    }

    #[inline]
    fn folio<'a>(&self, frame: &'a Frame) -> PolicyFolio<'a> {
        PolicyFolio { frame, kind: self.kind(frame.zone()), pages: frame.pages() as i64 }
    }

    /// Take a folio off its queue.
    fn unlink<M: Machine>(&self, platform: &Platform<M>, held: &mut LockedVec<'_>, pfn: Pfn, why: Leave) {
        let frame = &platform.frames[pfn];
        match PolicyKind::that_placed(frame, frame.flags()) {
            PolicyKind::Classic => {
                let list = ClassicPolicy.leave((held.vec, &mut held.lists), self.folio(frame), why);
                held.lists.lists[list as usize].remove(&platform.frames, frame);
                self.account_one(platform, held, frame, list, -(frame.pages() as i64));
            }
            policy => self.unlink_placed(platform, held, frame, policy, why),
        }
    }

    /// The same for a folio whose record has its queue.
    #[inline(never)]
    fn unlink_placed<M: Machine>(
        &self,
        platform: &Platform<M>,
        held: &mut LockedVec<'_>,
        frame: &Frame,
        policy: PolicyKind,
        why: Leave,
    ) {
        held.lists.lists[frame.queue() as usize].remove(&platform.frames, frame);
        let list = policy.leave((held.vec, &mut held.lists), self.folio(frame), why);
        frame.set_queue(0);
        self.account_one(platform, held, frame, list, -(frame.pages() as i64));
    }

    fn link<M: Machine>(
        &self,
        platform: &Platform<M>,
        held: &mut LockedVec<'_>,
        pfn: Pfn,
        why: InsertReason,
    ) {
        let frame = &platform.frames[pfn];
        let list = self.enqueue(platform, held, (pfn, frame), why);
        self.account_one(platform, held, frame, list, frame.pages() as i64);
    }

    /// Put a folio on a queue; returns the list that it counts on. A folio that must stay in memory always goes to the
    /// unevictable list.
    #[inline(always)]
    fn enqueue<M: Machine>(
        &self,
        platform: &Platform<M>,
        held: &mut LockedVec<'_>,
        (pfn, frame): (Pfn, &Frame),
        why: InsertReason,
    ) -> LruList {
        settle_evictable(platform, frame);
        let place = self.place(platform, (held.vec, &mut held.lists), frame, why);
        push(platform, &mut held.lists.lists[place.queue as usize], pfn, place.end);
        place.list
    }

    /// The position for a folio; sets the queue in its record.
    #[inline(always)]
    fn place<M: Machine>(
        &self,
        platform: &Platform<M>,
        at: LockedLists<'_>,
        frame: &Frame,
        why: InsertReason,
    ) -> ListPosition {
        match at.0.policy() {
            PolicyKind::Classic => classic::place(frame, why),
            policy => self.place_by(policy, platform, at, (frame, why)),
        }
    }

    #[inline(never)]
    fn place_by<M: Machine>(
        &self,
        policy: PolicyKind,
        platform: &Platform<M>,
        at: LockedLists<'_>,
        (frame, why): (&Frame, InsertReason),
    ) -> ListPosition {
        if frame.has(FrameFlags::UNEVICTABLE) {
            let list = LruList::Unevictable;
            return ListPosition { queue: list as u8, end: why.end(), list };
        }
        let place = policy.place(platform, at, self.folio(frame), why);
        frame.set_queue(place.queue);
        place
    }

    #[inline]
    fn account_one<M: Machine>(
        &self,
        platform: &Platform<M>,
        held: &mut LockedVec<'_>,
        frame: &Frame,
        list: LruList,
        by: i64,
    ) {
        let (node, kind) = (frame.node(), self.kind(frame.zone()));
        held.lists.pages[list as usize][kind as usize] += by;
        held.vec.add_subtree_of(list, kind, by);
        for group in self.groups.above(frame.group()) {
            self.vec(node, group).add_subtree_of(list, kind, by);
        }
        platform.count(list.stat(), by);
    }

    /// Change the sizes of a list of the vector whose lock is held.
    #[inline]
    fn account<M: Machine>(
        &self,
        platform: &Platform<M>,
        lists: &mut LruLists,
        (node, group): (NodeId, GroupId),
        list: LruList,
        by: &ByKind,
    ) {
        for (size, by) in lists.pages[list as usize].iter_mut().zip(by) {
            *size += by;
        }
        for group in self.groups.upwards(group) {
            self.vec(node, group).add_subtree(list, by);
        }
        platform.count(list.stat(), by.iter().sum());
    }

    // --- walks ---

    /// The next group of a walk over the groups below `top` that shares its position with all partial walks on the
    /// node, so that a reclaimer continues where the last one stopped. `cycle` is `None` at the start of the caller's
    /// walk, which keeps it from then on. The walk ends when it, or another one, has reached the end.
    pub(crate) fn next_shared(&self, top: GroupId, node: NodeId, cycle: &mut Option<u32>) -> Option<GroupId> {
        let vec = self.vec(node, top);
        let starts = cycle.is_none();
        loop {
            let walks = vec.walks.load(Acquire);
            if starts {
                *cycle = Some(walks);
            } else if *cycle != Some(walks) {
                return None;
            }
            let at = vec.walk_at.load(Acquire);
            let next = self.groups.next(top, group::from_link(at));
            if vec.walk_at.compare_exchange(at, group::to_link(next), AcqRel, Acquire).is_err() {
                continue;
            }
            if next.is_some() {
                return next;
            }
            vec.walks.fetch_add(1, AcqRel);
            if !starts {
                return None;
            }
        }
    }
}

/// Flags that are only about a folio on a list, or about to be put on one.
const LIST_FLAGS: FrameFlags = FrameFlags::ACTIVE
    .union(FrameFlags::UNEVICTABLE)
    .union(FrameFlags::MLOCKED)
    .union(FrameFlags::WORKINGSET)
    .union(FrameFlags::GENERATION)
    .union(FrameFlags::USES);

/// The queue of a folio.
#[inline]
fn queue_of(frame: &Frame) -> u8 {
    match frame.queue() {
        0 => LruList::of(frame.flags()) as u8,
        queue => queue,
    }
}

/// Whether the folio may be reclaimed at all.
#[inline]
pub(crate) fn evictable(frame: &Frame) -> bool {
    !frame.has(FrameFlags::MLOCKED)
}

/// Set UNEVICTABLE according to MLOCKED. The folio is off its list.
#[inline]
fn settle_evictable<M: Machine>(platform: &Platform<M>, frame: &Frame) {
    let flags = frame.flags();
    if !flags.intersects(FrameFlags::MLOCKED | FrameFlags::UNEVICTABLE) {
        return;
    }
    let (locked, listed) = (flags.contains(FrameFlags::MLOCKED), flags.contains(FrameFlags::UNEVICTABLE));
    if locked {
        if flags.contains(FrameFlags::ACTIVE) {
            frame.clear(FrameFlags::ACTIVE);
        }
        if !listed {
            frame.set(FrameFlags::UNEVICTABLE);
            platform.count(Stat::UnevictablePgsCulled, frame.pages() as i64);
        }
    } else if listed {
        frame.clear(FrameFlags::UNEVICTABLE);
        platform.count(Stat::UnevictablePgsRescued, frame.pages() as i64);
    }
}

#[cfg(test)]
mod tests;
