//! The generation of a folio: when it comes, when it leaves, and when it was used.

use super::{Generations, MglruPolicy, form, queue};
use crate::frame::{Frame, FrameFlags, LruGen};
use crate::knobs::Knob;
use crate::lru::policy::{
    AccessEffect, End, InsertReason, Leave, ListPosition, LockedLists, Policy, PolicyFolio,
};
use crate::lru::vec::{ByKind, ZONE_KINDS};
use crate::lru::{Lru, LruList};
use crate::machine::Machine;
use crate::platform::Platform;
use crate::units::*;
use smallvec::SmallVec;

/// The flags that count uses of a folio since it came to its generation.
pub(super) const USE_FLAGS: FrameFlags =
    FrameFlags::USES.union(FrameFlags::REFERENCED).union(FrameFlags::WORKINGSET);

const NONE: FrameFlags = FrameFlags::empty();

/// Whether it is a folio of a file, or one that reclaim may drop like one.
#[inline]
pub(super) fn is_file(flags: FrameFlags) -> bool {
    !flags.contains(FrameFlags::SWAPBACKED)
}

/// The sequence number that a folio with these flags gets.
pub(super) fn arrival(generations: &Generations, flags: FrameFlags, wanted: End) -> u64 {
    let (max, min) = (generations.max_seq(), generations.min_seq(is_file(flags)));
    if flags.contains(FrameFlags::ACTIVE) {
        max
    } else if form::must_wait(flags) {
        max - 1
    } else if wanted == End::Tail || min + super::MIN_GENERATIONS >= max {
        min
    } else {
        min + 1
    }
}

/// Note the age of a folio's generation before the folio is taken off its list to move its content, so that the content
/// gets the same age when it is put back on a list, even on another node.
pub(in crate::lru) fn note_age(generations: &Generations, frame: &Frame, flags: FrameFlags) {
    let Some(generation) = flags.generation() else { return };
    let max = generations.max_seq();
    let age = (0..LruGen::COUNT as u64).find(|&age| age <= max && LruGen::of(max - age) == generation);
    frame.set_mark(age.map_or(0, |age| age as u8 + 1));
}

fn take_age(frame: &Frame) -> Option<u64> {
    let age = frame.mark().checked_sub(1)?;
    frame.set_mark(0);
    Some(u64::from(age))
}

/// The flags after one more use through a file descriptor; `None`: they cannot count more uses.
#[inline]
pub(in crate::lru) fn after_use(flags: FrameFlags) -> Option<FrameFlags> {
    if !flags.contains(FrameFlags::REFERENCED) {
        return Some(flags | FrameFlags::REFERENCED);
    }
    if !flags.contains(FrameFlags::WORKINGSET) {
        return Some(flags | FrameFlags::WORKINGSET);
    }
    Some(flags.with_one_more_use()).filter(|&more| more != flags)
}

#[inline]
pub(in crate::lru) fn note_use(frame: &Frame, after: fn(FrameFlags) -> Option<FrameFlags>) -> AccessEffect {
    if !frame.has(FrameFlags::UNEVICTABLE) {
        frame.update(after);
    }
    AccessEffect::Noted
}

impl Policy for MglruPolicy {
    fn place<M: Machine>(
        &self,
        platform: &Platform<M>,
        (vec, _): LockedLists<'_>,
        folio: PolicyFolio<'_>,
        why: InsertReason,
    ) -> ListPosition {
        let (wanted, reworked) = (why.end(), form::is_reworked(&platform.knobs));
        let generations = &vec.generations;
        let mut generation = LruGen::of(0);
        let kept = if why == InsertReason::Back { take_age(folio.frame) } else { None };
        let before = folio.frame.update(|flags| {
            debug_assert!(flags.generation().is_none());
            if let Some(age) = kept {
                let min = generations.min_seq(is_file(flags));
                generation = LruGen::of(generations.max_seq().saturating_sub(age).max(min));
                return Some((flags - FrameFlags::ACTIVE).with_generation(Some(generation)));
            }
            if reworked {
                let given_up =
                    if why == InsertReason::Cold { form::MARKS | FrameFlags::WORKINGSET } else { NONE };
                let flags = flags - given_up;
                let window = [generations.min_seq(is_file(flags)), generations.max_seq()];
                let counts = form::counts_marks(&platform.knobs);
                generation = LruGen::of(form::arrival(window, flags, wanted, counts));
                return Some((flags - FrameFlags::ACTIVE).with_generation(Some(generation)));
            }
            generation = LruGen::of(arrival(generations, flags, wanted));
            let gone = FrameFlags::ACTIVE | FrameFlags::USES | FrameFlags::REFERENCED;
            let kept = if flags.contains(FrameFlags::ACTIVE) { flags - gone } else { flags };
            Some(kept.with_generation(Some(generation)))
        });
        let file = is_file(before);
        generations.add(generation, file, folio.kind, folio.pages);
        let list = generations.list(generation, file);
        ListPosition { queue: queue(generation, file, folio.kind), end: wanted, list }
    }

    fn leave(&self, (vec, _): LockedLists<'_>, folio: PolicyFolio<'_>, why: Leave) -> LruList {
        let generations = &vec.generations;
        let before = folio.frame.update(|flags| {
            let generation = flags.generation()?;
            let out = flags.with_generation(None);
            let active = why != Leave::Evict && generations.is_active(generation);
            Some(if active { out | FrameFlags::ACTIVE } else { out })
        });
        let file = is_file(before);
        let generation = before.generation().expect("the generation of a folio that leaves it");
        generations.add(generation, file, folio.kind, -folio.pages);
        generations.list(generation, file)
    }

    /// A folio that a fault brings is young (in the form of 7.2 it is marked, and young if it was of the working set);
    /// one that was read through a file descriptor is old until it is used.
    #[inline]
    fn admit<M: Machine>(&self, platform: &Platform<M>, frame: &Frame, faulted: bool) {
        if !faulted {
            return;
        }
        let flags = frame.flags();
        if !form::counts_marks(&platform.knobs) || flags.contains(FrameFlags::WORKINGSET) {
            frame.set(FrameFlags::ACTIVE);
        } else if !flags.contains(FrameFlags::REFERENCED) {
            note_use(frame, form::after_use);
        }
    }

    #[inline]
    fn used<M: Machine>(&self, platform: &Platform<M>, frame: &Frame) -> AccessEffect {
        note_use(frame, if form::is_reworked(&platform.knobs) { form::after_use } else { after_use })
    }

    fn deactivates_all(&self) -> bool {
        true
    }
}

/// Pages of one vector that changed generations and that the sizes do not include yet.
pub struct Promotions {
    node: NodeId,
    group: GroupId,
    youngest: LruGen,
    /// By generation and type.
    moved: [[ByKind; 2]; LruGen::COUNT],
    /// Pages promoted since the last update of the sizes, except those of the run.
    pages: u64,
    /// Number of consecutive folios that are alike, and what they have in common: most neighbours are alike.
    run: u64,
    alike: Alike,
    /// Whether a first use only marks a folio.
    reworked: bool,
    /// Whether eviction counts uses one by one.
    counts_marks: bool,
    /// Whether one use of program text is enough.
    keeps_text: bool,
    /// Whether what is looked at now is such text, if it is of a file.
    in_text: bool,
    /// The address of the last record whose use was counted in these entries; 0: none.
    last: usize,
}

/// What determines where a promoted folio counts.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Alike {
    /// The generation that it left, and its type.
    flags: FrameFlags,
    /// Its order and its zone.
    order_zone_node: u32,
}

impl Alike {
    const FLAGS: FrameFlags = FrameFlags::GENERATION.union(FrameFlags::SWAPBACKED);

    fn pages(self) -> u64 {
        1 << (self.order_zone_node & 0xff)
    }
}

impl Promotions {
    /// Whether a use of the folio counts. In the form of 6.14, uses of isolated folios do not.
    #[inline]
    pub(crate) fn considers(&self, flags: FrameFlags) -> bool {
        !self.reworked || flags.generation().is_some()
    }

    pub(crate) fn is_reworked(&self) -> bool {
        self.reworked
    }

    /// Entries of another part of a table are looked at from now on. `executable`: code may be.
    #[inline]
    pub(crate) fn begin_window(&mut self, executable: bool) {
        self.in_text = executable && self.keeps_text;
        self.last = 0;
    }

    /// Whether the entry before showed this folio's use, too: the entries of a large folio in one window show one use.
    #[inline]
    fn was_shown(&mut self, frame: &Frame) -> bool {
        let address = core::ptr::from_ref(frame).addr();
        core::mem::replace(&mut self.last, address) == address
    }

    /// The flags of an isolated folio that was used, as text if `executed`, and whether the use keeps it.
    #[inline]
    pub(crate) fn after_eviction_look(&self, flags: FrameFlags, executed: bool) -> (FrameFlags, bool) {
        form::after_eviction_look(flags, self.counts_marks, executed && self.keeps_text && is_file(flags))
    }

    /// The node of the vector.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// The group of the vector.
    pub fn group(&self) -> GroupId {
        self.group
    }

    /// Pages promoted since the last update of the sizes.
    pub fn pages(&self) -> u64 {
        self.pages + self.run * self.alike.pages()
    }
}

/// What reclaim finds around the entries of isolated folios of a vector.
pub struct LookAround {
    /// Neighbours that were used.
    pub promotions: Promotions,
    /// The youngest generation at the beginning.
    pub seq: u64,
    /// Tables with many used entries.
    pub dense: SmallVec<[Pfn; 16]>,
    /// Whether to look around at all.
    pub around: bool,
    /// Whether used neighbours move to the youngest generation's list at once, and count as activated. A task that
    /// walks page tables in this pass keeps the sizes that have changed, so it only renumbers folios.
    pub activates: bool,
}

impl LookAround {
    /// Whether to promote the folio of an entry near that of `target`: it must be of the vector. Anonymous memory is
    /// promoted only near anonymous memory: near pages of a file it may not be swappable.
    #[inline]
    pub(crate) fn wants(&self, target: &Frame, frame: &Frame) -> bool {
        let place = (self.promotions.node, self.promotions.group);
        let flags = frame.flags();
        let considered = self.promotions.considers(flags) && (frame.node(), frame.group()) == place;
        considered && (is_file(flags) || !is_file(target.flags()))
    }
}

impl Lru {
    /// The state to look around entries of folios of a vector, if its policy does so. `walks`: the task walks page
    /// tables in this pass.
    pub fn look<M: Machine>(
        &self,
        platform: &Platform<M>,
        (node, group): (NodeId, GroupId),
        walks: bool,
    ) -> Option<LookAround> {
        let generations = &self.vec(node, group).generations;
        let (seq, around) = (generations.max_seq(), platform.knobs.get(Knob::LruGenLookAround) != 0);
        let begin = || LookAround {
            promotions: self.promotions(platform, node, group),
            seq,
            dense: SmallVec::new(),
            around,
            activates: !walks,
        };
        generations.is_on().then(begin)
    }

    /// No promotions yet. They go to the present youngest generation of the vector.
    pub(crate) fn promotions<M: Machine>(
        &self,
        platform: &Platform<M>,
        node: NodeId,
        group: GroupId,
    ) -> Promotions {
        let youngest = LruGen::of(self.vec(node, group).generations.max_seq());
        Promotions {
            node,
            group,
            youngest,
            moved: Default::default(),
            pages: 0,
            run: 0,
            alike: Alike::default(),
            reworked: form::is_reworked(&platform.knobs),
            counts_marks: form::counts_marks(&platform.knobs),
            keeps_text: form::keeps_text(&platform.knobs),
            in_text: false,
            last: 0,
        }
    }

    /// Have promotions go to the present youngest generation of the vector.
    #[inline]
    pub(crate) fn aim(&self, promotions: &mut Promotions) {
        let vec = self.vec(promotions.node, promotions.group);
        let youngest = LruGen::of(vec.generations.max_seq());
        if youngest != promotions.youngest {
            self.end_run(promotions);
            promotions.youngest = youngest;
        }
    }

    /// Move a folio of the vector that was used through a page table to the youngest generation, without a lock. An
    /// isolated folio is marked, so that reclaim spares it.
    #[inline]
    pub(crate) fn promote(&self, frame: &Frame, promotions: &mut Promotions) {
        let youngest = promotions.youngest;
        let (before, promoted) = if promotions.reworked {
            if promotions.was_shown(frame) {
                return;
            }
            let look = |flags| form::after_look(flags, promotions.in_text && is_file(flags));
            let before = frame.update(|flags| {
                let generation = flags.generation()?;
                let (seen, promoted) = look(flags);
                Some(seen.with_generation(Some(if promoted { youngest } else { generation })))
            });
            (before, look(before).1)
        } else {
            let before = frame.update(|flags| match flags.generation() {
                None => Some(flags | FrameFlags::REFERENCED),
                Some(_) => Some((flags - USE_FLAGS).with_generation(Some(youngest))),
            });
            (before, true)
        };
        let alike = Alike { flags: before & Alike::FLAGS, order_zone_node: frame.order_zone_node() };
        if promoted && alike == promotions.alike && promotions.run > 0 {
            promotions.run += 1;
        } else if promoted && before.generation().is_some_and(|old| old != youngest) {
            self.end_run(promotions);
            (promotions.alike, promotions.run) = (alike, 1);
        }
    }

    /// The same with the list's lock: the folio goes to the youngest generation's list.
    pub(crate) fn promote_at_once<M: Machine>(
        &self,
        platform: &Platform<M>,
        pfn: Pfn,
        promotions: &mut Promotions,
    ) {
        let (frame, youngest) = (&platform.frames[pfn], promotions.youngest);
        if promotions.was_shown(frame) {
            return;
        }
        let promotions = &*promotions;
        let moves = |flags: FrameFlags| flags.generation().is_some_and(|old| old != youngest);
        let look = |flags| promotions.after_eviction_look(flags, promotions.in_text);
        let before = frame.update(|flags| match flags.generation() {
            Some(_) if promotions.reworked => Some(look(flags).0),
            Some(_) => moves(flags).then(|| flags - USE_FLAGS),
            None if promotions.reworked => None,
            None => Some(flags | FrameFlags::REFERENCED),
        });
        if moves(before) && (!promotions.reworked || look(before).1) {
            self.activate(platform, pfn);
        }
    }

    #[cold]
    fn end_run(&self, promotions: &mut Promotions) {
        let (alike, pages) =
            (promotions.alike, core::mem::take(&mut promotions.run) * promotions.alike.pages());
        let Some(old) = alike.flags.generation().filter(|_| pages > 0) else { return };
        let kind = self.kind(ZoneId((alike.order_zone_node >> 8) as u8)) as usize;
        let file = is_file(alike.flags) as usize;
        promotions.moved[old.index()][file][kind] -= pages as i64;
        promotions.moved[promotions.youngest.index()][file][kind] += pages as i64;
        promotions.pages += pages;
    }

    pub(crate) fn tell_promotions<M: Machine>(&self, platform: &Platform<M>, promotions: &mut Promotions) {
        let place = (promotions.node, promotions.group);
        let vec = self.vec(place.0, place.1);
        self.end_run(promotions);
        if promotions.pages > 0 {
            let mut lists = vec.lock();
            for generation in (0..LruGen::COUNT as u64).map(LruGen::of) {
                for file in [false, true] {
                    let by = core::mem::take(&mut promotions.moved[generation.index()][file as usize]);
                    if by == [0; ZONE_KINDS] {
                        continue;
                    }
                    vec.generations.add_all(generation, file, &by);
                    let list = vec.generations.list(generation, file);
                    self.account(platform, &mut lists, place, list, &by);
                }
            }
            promotions.pages = 0;
        }
    }
}
