//! Operations that change mappings: of a task's own areas, and of the range that threads share.

use super::areas::{Area, Areas, PAGE};
use super::common::{self, Range};
use super::covered::Op;
use super::{FILES, MAX_AREAS, Task};
use crate::os::*;

impl<O: Os> Task<'_, O> {
    /// What to map, and whether it is a file or shared.
    fn source(&mut self) -> (MapSource, bool) {
        match self.rng.below(7) {
            0..3 => (MapSource::Anonymous, false),
            3 => (MapSource::AnonymousShared, true),
            n => {
                let i = self.rng.below(FILES.len() as u64) as usize;
                let Some(fd) = self.files[i] else { return (MapSource::Anonymous, false) };
                // Some mappings begin where a large folio begins.
                let first = if self.rng.percent(30) { 0 } else { self.rng.below(self.chaos.pages) };
                (MapSource::File { fd, offset: first * PAGE, shared: n != 4 }, true)
            }
        }
    }

    pub(super) fn map(&mut self) {
        if self.own.len() >= MAX_AREAS {
            return self.unmap();
        }
        let (source, file) = self.source();
        // Many file mappings are read-only: reclaim may defer their flushes.
        let prot = match self.rng.below(100) {
            0..8 => Prot::RX,
            n if n < if file { 50 } else { 75 } => Prot::RW,
            _ => Prot::READ,
        };
        if self.rng.percent(30) && self.own.len() > 0 {
            return self.map_over(prot, source, file);
        }
        let (op, max) = match self.rng.below(100) {
            0..8 => (Op::MmapLocked, self.chaos.pages.min(16)),
            8..18 => (Op::MmapPopulate, self.chaos.pages),
            _ => (Op::Mmap, self.chaos.pages),
        };
        let pages = self.some_pages(max);
        let (populate, locked) = (op == Op::MmapPopulate, op == Op::MmapLocked);
        let mapped = self.os.mmap(Map { addr: None, len: pages * PAGE, prot, source, populate, locked });
        self.expect_success(op, &mapped);
        if let Ok(addr) = mapped {
            self.own.put(Area { addr, pages, prot: Some(prot), file });
        }
    }

    /// Map something else exactly over areas or parts of them.
    fn map_over(&mut self, prot: Prot, source: MapSource, file: bool) {
        let Some(area) = self.pick() else { return };
        let around = if self.rng.percent(50) { self.own.around(area) } else { (area.addr, area.pages) };
        let (addr, pages) = if self.rng.percent(50) { around } else { self.part(around) };
        let several = self.own.at(addr).is_some_and(|first| first.end() < addr + pages * PAGE);
        let op = if several { Op::MmapOverSeveral } else { Op::MmapOver };
        let map = Map { addr: Some(addr), len: pages * PAGE, prot, source, populate: false, locked: false };
        let mapped = self.os.mmap(map);
        self.expect_success(op, &mapped);
        match mapped {
            Ok(_) => self.own.put(Area { addr, pages, prot: Some(prot), file }),
            Err(_) => self.give_up_range((addr, pages)),
        }
    }

    /// Forget a range for good after a call on it has failed, perhaps halfway: if it is a hole now, another
    /// task may map memory there soon.
    fn give_up_range(&mut self, (addr, pages): Range) {
        self.own.take(addr, pages);
    }

    /// Unmap all or a part of an area, or of several adjacent areas.
    pub(super) fn unmap(&mut self) {
        let Some(area) = self.pick() else { return };
        let whole = if self.rng.percent(20) { self.own.around(area) } else { (area.addr, area.pages) };
        let (addr, pages) = if self.rng.percent(50) { whole } else { self.part(whole) };
        // Before the call: as soon as it is a hole, another task may get it.
        self.own.take(addr, pages);
        let unmapped = self.os.munmap(addr, pages * PAGE);
        self.expect_success(Op::Munmap, &unmapped);
    }

    pub(super) fn protect(&mut self) {
        let Some(area) = self.pick() else { return };
        let whole = if self.rng.percent(20) { self.own.around(area) } else { (area.addr, area.pages) };
        let (addr, pages) = if self.rng.percent(50) { whole } else { self.part(whole) };
        let prot = self.rights();
        let protected = self.os.mprotect(addr, pages * PAGE, prot);
        self.expect_success(Op::Mprotect, &protected);
        match protected {
            Ok(()) => self.own.protect(addr, pages, prot),
            Err(_) => self.give_up_range((addr, pages)),
        }
    }

    pub(super) fn remap(&mut self) {
        let Some(area) = self.pick() else { return };
        if self.rng.percent(40) {
            return self.remap_fixed(area);
        }
        let whole = self.rng.percent(50);
        let (addr, old) = if whole { (area.addr, area.pages) } else { self.part((area.addr, area.pages)) };
        let new = self.some_pages(self.chaos.pages);
        let may_move = self.rng.percent(80);
        let (old_len, new_len) = (old * PAGE, new * PAGE);
        // The part that is cut off becomes a hole during the call.
        let before = self.own.clone();
        self.own.take(addr, old);
        let moved = self.os.mremap(Remap { addr, old_len, new_len, may_move, fixed: None });
        self.record(if whole { Op::Mremap } else { Op::MremapPart }, &moved);
        match moved {
            Ok(addr) => self.own.put(Area { addr, pages: new, ..area }),
            Err(Errno::NoMem) => {}
            Err(_) => self.own = before,
        }
    }

    /// Move a part of an area over a part of another.
    fn remap_fixed(&mut self, area: Area) {
        let (addr, old) = self.part((area.addr, area.pages));
        let Some(target) = self.pick() else { return };
        let (to, new) = self.part((target.addr, target.pages));
        if addr < to + new * PAGE && to < addr + old * PAGE {
            return;
        }
        let (old_len, new_len) = (old * PAGE, new * PAGE);
        let before = self.own.clone();
        self.own.take(addr, old);
        let moved = self.os.mremap(Remap { addr, old_len, new_len, may_move: true, fixed: Some(to) });
        self.record(Op::MremapFixed, &moved);
        match moved {
            Ok(_) => self.own.put(Area { addr: to, pages: new, ..area }),
            Err(Errno::NoMem) => self.give_up_range((to, new)),
            Err(_) => self.own = before,
        }
    }

    pub(super) fn advise(&mut self) {
        let Some(area) = self.pick() else { return };
        let (addr, pages) = match self.rng.percent(30) {
            true => self.own.around(area),
            false => self.part((area.addr, area.pages)),
        };
        let advice = self.one_of(&Advice::ALL);
        // May be refused, for locked areas or for MADV_FREE of files.
        let advised = self.os.madvise(addr, pages * PAGE, advice);
        self.record(Op::Madvise, &advised);
    }

    pub(super) fn lock(&mut self) {
        let Some(area) = self.pick() else { return };
        let (addr, pages) = self.part((area.addr, area.pages));
        // Locking faults pages in, which fails where the area forbids it or the file is shorter.
        if self.rng.percent(40) {
            let locked = self.os.mlock(addr, pages.min(8) * PAGE);
            self.record(Op::Mlock, &locked);
        } else {
            let unlocked = self.os.munlock(area.addr, area.pages * PAGE);
            self.record(Op::Munlock, &unlocked);
        }
    }

    /// Move pages to another node or to other frames, which the program cannot see.
    pub(super) fn migrate(&mut self) {
        if self.rng.percent(10) {
            let (from, to) = (self.rng.below(4), 1 + self.rng.below(3));
            let moved = self.os.migrate_pages(from, to);
            self.record(Op::MigratePages, &moved);
            return;
        }
        if self.rng.percent(10) {
            let policy = self.policy();
            let set = self.os.set_mempolicy(policy);
            self.record(Op::SetMempolicy, &set);
            return;
        }
        let Some(area) = self.pick() else { return };
        let (addr, pages) = self.own.around(area);
        if self.rng.percent(20) {
            let (policy, moving) = (self.policy(), self.rng.percent(50));
            let bound = self.os.mbind(addr, pages * PAGE, policy, moving);
            self.record(Op::Mbind, &bound);
            return;
        }
        let moved = self.move_pages((addr, pages));
        self.record(Op::MovePages, &moved);
    }

    /// A policy that includes all possible nodes: whether memory fits on one of them is not known.
    fn policy(&mut self) -> MemPolicy {
        let mode = self.one_of(&PolicyMode::ALL);
        let nodes = match mode {
            PolicyMode::Default => 0,
            PolicyMode::Bind => self.one_of(&[0b01, 0b11]),
            _ => self.one_of(&[0b01, 0b10, 0b11]),
        };
        MemPolicy { mode, nodes }
    }

    /// May be refused if the machine has no such node.
    fn move_pages(&mut self, (addr, pages): Range) -> Result<u64, Errno> {
        let node = self.one_of(&[None, None, Some(0), Some(1)]);
        self.os.move_pages(addr, pages * PAGE, node)
    }

    // --- the range that threads share ---

    fn common_part(&mut self) -> Range {
        self.part((common::START, self.chaos.pages))
    }

    /// Change a part of the range that threads share. If that fails, its state is unknown.
    pub(super) fn change_common(&mut self) {
        let (addr, pages) = self.common_part();
        let len = pages * PAGE;
        match self.rng.below(20) {
            0..7 => {
                let ((source, file), prot) = (self.source(), self.rights());
                // The checker of stores that race with the call must know a shared page by its file's name.
                let unnamed = source == MapSource::AnonymousShared;
                let (source, file) = if unnamed { (MapSource::Anonymous, false) } else { (source, file) };
                let map = Map { addr: Some(addr), len, prot, source, populate: false, locked: false };
                let map = Map { populate: self.rng.percent(20), ..map };
                self.change(
                    Op::SharedMmap,
                    &[(addr, pages)],
                    |os| os.mmap(map).map(drop),
                    |areas| {
                        areas.put(Area { addr, pages, prot: Some(prot), file });
                    },
                );
            }
            7..9 => self.change(
                Op::SharedMunmap,
                &[(addr, pages)],
                |os| os.munmap(addr, len),
                |areas| {
                    areas.take(addr, pages);
                },
            ),
            9..12 => {
                let prot = self.rights();
                let protect = |os: &mut O| os.mprotect(addr, len, prot);
                self.change(Op::SharedMprotect, &[(addr, pages)], protect, |areas| {
                    areas.protect(addr, pages, prot);
                });
            }
            12..15 => self.move_common((addr, pages)),
            15 => {
                let Some(change) = self.common.begin(&[(addr, pages)]) else { return };
                let moved = self.move_pages((addr, pages));
                self.record(Op::SharedMovePages, &moved);
                self.common.end(change, Some(|_: &mut Areas| ()));
            }
            16..18 => {
                let advice = self.one_of(&Advice::ALL);
                self.change_nothing(Op::SharedMadvise, (addr, pages), |os| os.madvise(addr, len, advice));
            }
            18 => {
                let pages = pages.min(8);
                self.change_nothing(Op::SharedMlock, (addr, pages), |os| os.mlock(addr, pages * PAGE));
            }
            _ => {
                let all = (common::START, self.chaos.pages);
                let range = if self.rng.percent(50) { all } else { (addr, pages) };
                self.change_nothing(Op::SharedMunlock, range, |os| os.munlock(range.0, range.1 * PAGE));
            }
        }
    }

    fn move_common(&mut self, (addr, pages): Range) {
        let (to, new) = self.common_part();
        if addr < to + new * PAGE && to < addr + pages * PAGE {
            return;
        }
        let remap =
            Remap { addr, old_len: pages * PAGE, new_len: new * PAGE, may_move: true, fixed: Some(to) };
        let remap = |os: &mut O| os.mremap(remap).map(drop);
        self.change(Op::SharedMremap, &[(addr, pages), (to, new)], remap, |areas| {
            match areas.take(addr, pages).first() {
                Some(&area) => areas.put(Area { addr: to, pages: new, ..area }),
                None => areas.forget(to, new),
            }
        });
    }

    /// Make a call that changes nothing that is known, whether it fails or not.
    fn change_nothing(&mut self, op: Op, range: Range, call: impl FnOnce(&mut O) -> Result<(), Errno>) {
        let Some(change) = self.common.begin(&[range]) else { return };
        let result = call(self.os);
        self.record(op, &result);
        self.common.end(change, Some(|_: &mut Areas| ()));
    }

    /// Announce a change, make it, and record its effect.
    fn change(
        &mut self,
        op: Op,
        ranges: &[Range],
        call: impl FnOnce(&mut O) -> Result<(), Errno>,
        effect: impl FnOnce(&mut Areas),
    ) {
        let Some(change) = self.common.begin(ranges) else { return };
        let result = call(self.os);
        self.record(op, &result);
        self.common.end(change, result.is_ok().then_some(effect));
    }
}
