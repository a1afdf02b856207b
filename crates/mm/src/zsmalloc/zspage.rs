//! The zspages of a pool: their frames, their objects, and the lists by how full they are.

use super::class::{HEADER, MAX_FRAMES, ZsClass};
use crate::machine::ObjectPlace;
use crate::units::*;
use smallvec::SmallVec;
use std_alloc::boxed::Box;
use std_alloc::format;
use std_alloc::string::String;
use std_alloc::vec::Vec;

/// The frames of a zspage.
pub(super) type ZspageFrames = SmallVec<[Pfn; MAX_FRAMES]>;

/// Lists by fullness: empty, up to 10 %, ... up to 99 %, full.
const GROUPS: usize = 12;
const EMPTY: usize = 0;
const FULL: usize = GROUPS - 1;
/// No zspage, object or place.
const NONE: u32 = u32::MAX;

/// Objects that have one size, in a few frames.
struct Zspage {
    class: u8,
    group: u8,
    frames: ZspageFrames,
    /// Objects in use.
    used: u32,
    /// The place that was freed last; each free place holds the next.
    free: u32,
    /// By place: a handle, or [`FREE`] and the next free place.
    places: Box<[u32]>,
    prev: u32,
    next: u32,
}

/// Set in a place that is free.
const FREE: u32 = 1 << 31;

/// Where an object is.
#[derive(Clone, Copy)]
struct ZsObject {
    /// Its zspage; of a handle that is not in use, the next such handle.
    zspage: u32,
    place: u32,
    /// 0: not in use.
    bytes: u32,
}

/// The zspages of one class.
#[derive(Clone, Copy)]
struct ClassLists {
    heads: [u32; GROUPS],
    /// Objects that its zspages have room for.
    room: u64,
    /// Objects in use.
    used: u64,
}

impl ClassLists {
    /// Frames that moving objects together in this class would free.
    fn compactable(&self, class: &ZsClass) -> u64 {
        (self.room - self.used) / u64::from(class.objects) * u64::from(class.frames)
    }
}

/// All zspages of a pool.
pub(super) struct Zspages {
    lists: Vec<ClassLists>,
    zspages: Vec<Zspage>,
    /// Numbers of zspages that are not in use.
    spare: Vec<u32>,
    objects: Vec<ZsObject>,
    free_object: u32,
    in_use: u64,
    /// Frames that moving objects together would free, of all classes: reclaim asks for them often.
    compactable: u64,
}

impl Zspages {
    pub fn new(classes: usize) -> Zspages {
        let empty = ClassLists { heads: [NONE; GROUPS], room: 0, used: 0 };
        Zspages {
            lists: std_alloc::vec![empty; classes],
            zspages: Vec::new(),
            spare: Vec::new(),
            objects: Vec::new(),
            free_object: NONE,
            in_use: 0,
            compactable: 0,
        }
    }

    /// Allocate an object in a zspage of the class, the fullest that has room. Returns its handle.
    pub fn alloc(&mut self, class: &ZsClass, number: usize, bytes: u32) -> Option<u32> {
        let heads = &self.lists[number].heads;
        let zspage = heads[..FULL].iter().rev().copied().find(|&head| head != NONE)?;
        Some(self.alloc_in(class, zspage, bytes))
    }

    /// Allocate an object in a zspage that has room.
    fn alloc_in(&mut self, class: &ZsClass, zspage: u32, bytes: u32) -> u32 {
        let handle = self.new_handle(bytes);
        self.put(zspage, handle);
        let number = usize::from(self.zspages[zspage as usize].class);
        self.change(class, number, |lists| lists.used += 1);
        self.in_use += 1;
        self.regroup(class, zspage);
        handle
    }

    fn new_handle(&mut self, bytes: u32) -> u32 {
        let blank = ZsObject { zspage: NONE, place: NONE, bytes };
        match self.free_object {
            NONE => {
                self.objects.push(blank);
                self.objects.len() as u32 - 1
            }
            handle => {
                self.free_object = self.objects[handle as usize].zspage;
                self.objects[handle as usize] = blank;
                handle
            }
        }
    }

    /// Put an object into a zspage that has room; returns its place.
    fn put(&mut self, zspage: u32, handle: u32) -> u32 {
        let found = &mut self.zspages[zspage as usize];
        let place = found.free;
        let next = found.places[place as usize];
        debug_assert!(next & FREE != 0);
        found.free = if next == NONE { NONE } else { next & !FREE };
        found.places[place as usize] = handle;
        found.used += 1;
        let object = &mut self.objects[handle as usize];
        (object.zspage, object.place) = (zspage, place);
        place
    }

    /// Take an object out of its zspage.
    fn take_out(&mut self, handle: u32) -> u32 {
        let ZsObject { zspage, place, .. } = self.objects[handle as usize];
        let found = &mut self.zspages[zspage as usize];
        found.places[place as usize] = if found.free == NONE { NONE } else { found.free | FREE };
        found.free = place;
        found.used -= 1;
        zspage
    }

    /// Add a zspage of the class with an object. Returns the object's handle. (Another zspage may have got room
    /// meanwhile; but one without an object would never be freed.)
    pub fn add(&mut self, class: &ZsClass, number: usize, frames: ZspageFrames, bytes: u32) -> u32 {
        let next = |place: u32| if place + 1 == class.objects { NONE } else { (place + 1) | FREE };
        let places = (0..class.objects).map(next).collect();
        let zspage = Zspage {
            class: number as u8,
            group: EMPTY as u8,
            frames,
            used: 0,
            free: 0,
            places,
            prev: NONE,
            next: NONE,
        };
        let at = match self.spare.pop() {
            Some(at) => {
                self.zspages[at as usize] = zspage;
                at
            }
            None => {
                self.zspages.push(zspage);
                self.zspages.len() as u32 - 1
            }
        };
        self.change(class, number, |lists| lists.room += u64::from(class.objects));
        self.link(at, EMPTY);
        self.alloc_in(class, at, bytes)
    }

    /// Free an object. Returns the frames of its zspage if that is empty now.
    pub fn free(&mut self, classes: &[ZsClass], handle: u32) -> Option<ZspageFrames> {
        assert!(self.objects[handle as usize].bytes > 0, "object {handle} is not in use");
        let zspage = self.take_out(handle);
        self.objects[handle as usize] = ZsObject { zspage: self.free_object, place: NONE, bytes: 0 };
        self.free_object = handle;
        self.in_use -= 1;
        let number = usize::from(self.zspages[zspage as usize].class);
        self.change(&classes[number], number, |lists| lists.used -= 1);
        (self.regroup(&classes[number], zspage) == EMPTY).then(|| self.remove(&classes[number], zspage))
    }

    /// Remove an empty zspage.
    fn remove(&mut self, class: &ZsClass, zspage: u32) -> ZspageFrames {
        self.unlink(zspage);
        self.spare.push(zspage);
        let found = &mut self.zspages[zspage as usize];
        found.places = Box::default();
        let (number, frames) = (usize::from(found.class), core::mem::take(&mut found.frames));
        self.change(class, number, |lists| lists.room -= u64::from(class.objects));
        frames
    }

    /// Change the counts of a class.
    fn change(&mut self, class: &ZsClass, number: usize, change: impl FnOnce(&mut ClassLists)) {
        let lists = &mut self.lists[number];
        let before = lists.compactable(class);
        change(lists);
        self.compactable = self.compactable - before + lists.compactable(class);
    }

    /// Move a zspage to the list for its fullness; returns that.
    fn regroup(&mut self, class: &ZsClass, zspage: u32) -> usize {
        let found = &self.zspages[zspage as usize];
        let (before, now) = (usize::from(found.group), group_of(class, found.used));
        if before != now {
            self.unlink(zspage);
            self.link(zspage, now);
        }
        now
    }

    fn link(&mut self, zspage: u32, group: usize) {
        let number = usize::from(self.zspages[zspage as usize].class);
        let next = core::mem::replace(&mut self.lists[number].heads[group], zspage);
        if next != NONE {
            self.zspages[next as usize].prev = zspage;
        }
        let found = &mut self.zspages[zspage as usize];
        (found.prev, found.next, found.group) = (NONE, next, group as u8);
    }

    fn unlink(&mut self, zspage: u32) {
        let &Zspage { prev, next, class, group, .. } = &self.zspages[zspage as usize];
        match prev {
            NONE => self.lists[usize::from(class)].heads[usize::from(group)] = next,
            prev => self.zspages[prev as usize].next = next,
        }
        if next != NONE {
            self.zspages[next as usize].prev = prev;
        }
    }

    /// Where an object is.
    pub fn place(&self, classes: &[ZsClass], handle: u32) -> ObjectPlace {
        let zspage = self.objects[handle as usize].zspage;
        self.place_in(&classes[usize::from(self.zspages[zspage as usize].class)], handle)
    }

    fn place_in(&self, class: &ZsClass, handle: u32) -> ObjectPlace {
        let ZsObject { zspage, place, bytes } = self.objects[handle as usize];
        let found = &self.zspages[zspage as usize];
        let header = if class.is_whole() { 0 } else { HEADER };
        let at = place * class.size + header;
        let (number, offset) = ((at / PAGE_SIZE as u32) as usize, at % PAGE_SIZE as u32);
        let next = found.frames.get(number + 1).copied().unwrap_or(Pfn::NONE);
        ObjectPlace { frame: found.frames[number], offset, next, bytes }
    }

    /// Frames that moving objects together would free.
    pub(super) fn compactable(&self) -> u64 {
        self.compactable
    }

    /// Move objects of the emptiest zspages of the class to the fullest while that can free one. What is free is added
    /// to `freed`. Returns whether any object was moved.
    pub(super) fn compact(
        &mut self,
        class: &ZsClass,
        number: usize,
        freed: &mut impl Extend<ZspageFrames>,
        mut move_object: impl FnMut(ObjectPlace, ObjectPlace),
    ) -> bool {
        let mut moved = false;
        let mut target = NONE;
        while self.lists[number].compactable(class) > 0 {
            if target == NONE {
                target = self.isolate(number, (1..FULL).rev());
            }
            let source = if target == NONE { NONE } else { self.isolate(number, 1..FULL) };
            if source == NONE {
                break;
            }
            while self.zspages[source as usize].used > 0 && self.zspages[target as usize].free != NONE {
                let mut handles = self.zspages[source as usize].places.iter().copied();
                let handle = handles.find(|&handle| handle & FREE == 0).expect("it has objects");
                let from = self.place_in(class, handle);
                self.take_out(handle);
                self.put(target, handle);
                move_object(from, self.place_in(class, handle));
                moved = true;
            }
            self.link(source, group_of(class, self.zspages[source as usize].used));
            if self.zspages[source as usize].used == 0 {
                freed.extend([self.remove(class, source)]);
            }
            if self.zspages[target as usize].free == NONE {
                self.link(target, FULL);
                target = NONE;
            }
        }
        if target != NONE {
            self.link(target, group_of(class, self.zspages[target as usize].used));
        }
        moved
    }

    /// Take the first zspage of these lists off its list.
    fn isolate(&mut self, number: usize, mut groups: impl Iterator<Item = usize>) -> u32 {
        let heads = self.lists[number].heads;
        let found = groups.find_map(|group| Some(heads[group]).filter(|&head| head != NONE));
        let Some(zspage) = found else { return NONE };
        self.unlink(zspage);
        zspage
    }

    /// Objects and zspages in use.
    pub fn records(&self) -> [u64; 2] {
        [self.in_use, (self.zspages.len() - self.spare.len()) as u64]
    }

    /// Check everything; returns the frames of all zspages.
    pub fn validate(&self, classes: &[ZsClass]) -> Result<Vec<Pfn>, String> {
        let mut frames = Vec::new();
        let mut objects = 0;
        for (number, class) in classes.iter().enumerate() {
            let (mut room, mut used) = (0, 0);
            for (group, &head) in self.lists[number].heads.iter().enumerate() {
                let mut at = head;
                while at != NONE {
                    let zspage = &self.zspages[at as usize];
                    self.validate_zspage(class, at)?;
                    if (usize::from(zspage.class), usize::from(zspage.group)) != (number, group)
                        || group != group_of(class, zspage.used)
                        || group == EMPTY
                    {
                        return Err(format!("zspage {at} with {} objects is on list {group}", zspage.used));
                    }
                    room += u64::from(class.objects);
                    used += u64::from(zspage.used);
                    frames.extend_from_slice(&zspage.frames);
                    at = zspage.next;
                }
            }
            if (room, used) != (self.lists[number].room, self.lists[number].used) {
                return Err(format!("class {} counts wrong: {used} objects of {room}", class.size));
            }
            objects += used;
        }
        if objects != self.in_use {
            return Err(format!("a pool counts {} objects of {objects}", self.in_use));
        }
        let compactable: u64 =
            self.lists.iter().zip(classes).map(|(lists, class)| lists.compactable(class)).sum();
        if compactable != self.compactable {
            return Err(format!(
                "compaction could free {compactable} frames of a pool, not {}",
                self.compactable
            ));
        }
        Ok(frames)
    }

    fn validate_zspage(&self, class: &ZsClass, at: u32) -> Result<(), String> {
        let zspage = &self.zspages[at as usize];
        let handles = || zspage.places.iter().enumerate().filter(|(_, handle)| *handle & FREE == 0);
        let lost = handles().find(|&(place, &handle)| {
            let object = &self.objects[handle as usize];
            (object.zspage, object.place) != (at, place as u32) || object.bytes == 0
        });
        if lost.is_some() || handles().count() != zspage.used as usize {
            return Err(format!("zspage {at} has {} objects, among them {lost:?}", zspage.used));
        }
        if zspage.frames.len() != class.frames as usize {
            return Err(format!("zspage {at} has {} frames", zspage.frames.len()));
        }
        Ok(())
    }
}

/// The list for a zspage with this many objects.
fn group_of(class: &ZsClass, used: u32) -> usize {
    match used {
        0 => EMPTY,
        used if used == class.objects => FULL,
        used => (100 * used / class.objects / 10 + 1) as usize,
    }
}
