//! Files, tasks, control groups and knobs.

use super::areas::{Areas, PAGE};
use super::common::{self, Common};
use super::covered::Op;
use super::{FILES, NewTask, Task, is_in_memory};
use crate::os::*;
use alloc::sync::Arc;

/// The most control groups at a time.
const MAX_GROUPS: usize = 6;

/// Knobs that may change while the machine runs, with values that make a difference on a small machine, and
/// some invalid ones.
const KNOBS: &[(&str, &[u64])] = &[
    // Not 0: then generations never swap, and memory runs out.
    ("vm.swappiness", &[1, 60, 100, 200, 201]),
    ("reclaim.policy", &[0, 1]),
    ("lru_gen.enabled", &[1, 3, 7, 8]),
    ("lru_gen.form", &[0, 1, 2]),
    ("vm.page-cluster", &[0, 3, 5]),
    ("vm.min_free_kbytes", &[0, 512, 2048]),
    ("vm.watermark_scale_factor", &[10, 200]),
    ("vm.watermark_boost_factor", &[0, 15_000]),
    ("vm.lowmem_reserve_ratio", &[0, 32, 256]),
    ("vm.percpu_pagelist_high_fraction", &[0, 8, 100]),
    ("vm.dirty_ratio", &[1, 20, 0]),
    ("vm.dirty_background_ratio", &[0, 10]),
    ("vm.dirty_expire_centisecs", &[0, 3000]),
    ("vm.dirty_writeback_centisecs", &[0, 1, 500]),
    ("queue.read_ahead_kb", &[0, 128, 2048]),
    ("file.max_order", &[0, 2, 4, 9]),
    ("shmem.max_order", &[0, 2, 4, 9]),
    ("thp.file_pmd", &[0, 1]),
    ("khugepaged.pages_to_scan", &[512, 4096]),
    ("khugepaged.max_ptes_none", &[0, 256, 511]),
    ("khugepaged.max_ptes_swap", &[0, 64, 511]),
    ("khugepaged.max_ptes_shared", &[0, 256, 511]),
    ("hugepages-16kB.enabled", &[0, 1, 2]),
    ("hugepages-64kB.enabled", &[0, 1, 2]),
    ("hugepages-512kB.enabled", &[0, 1, 2]),
    ("hugepages-2048kB.enabled", &[0, 1, 2]),
    ("thp.defrag", &[0, 1, 2, 3, 4]),
    ("compaction.folios", &[0, 1, 2, 3, 4, 5]),
    ("vm.compact_memory", &[1]),
    ("vm.compaction_proactiveness", &[0, 20, 90]),
    ("vm.extfrag_threshold", &[0, 500, 1000]),
    ("vm.compact_unevictable_allowed", &[0, 1]),
    ("fault_around_bytes", &[4096, 65_536, 2_097_152]),
    ("rmap.batch", &[0, 1]),
    ("tlb.unmap", &[0]),
    ("tlb.unmap_pages", &[1, 7, 32]),
    ("tlb.age_limit_ms", &[0, 1, 100]),
    ("tlb.pay_all", &[0, 1]),
    ("tlb_single_page_flush_ceiling", &[0, 33, 512]),
];
/// Knobs that a group may override, and one that it may not.
const GROUP_KNOBS: &[(&str, &[u64])] =
    &[("vm.swappiness", &[1, 60, 200, 201]), ("reclaim.policy", &[0, 1, 2, 4]), ("vm.page-cluster", &[0])];

impl<O: Os> Task<'_, O> {
    // --- files ---

    pub(super) fn open_file(&mut self, i: usize) {
        let name = FILES[i];
        let size = self.chaos.pages * PAGE;
        let spec = FileSpec { name, size, in_memory: is_in_memory(name), writable: true };
        let opened = self.os.open(spec);
        self.expect_success(Op::Open, &opened);
        self.files[i] = opened.ok();
    }

    pub(super) fn close_file(&mut self, i: usize) {
        let Some(fd) = self.files[i].take() else { return };
        let closed = self.os.close(fd);
        self.expect_success(Op::Close, &closed);
    }

    /// Close a file, which may be mapped, and open it again.
    pub(super) fn reopen(&mut self) {
        let i = self.rng.below(FILES.len() as u64) as usize;
        self.close_file(i);
        if self.rng.percent(50) {
            self.unmap();
        }
        self.open_file(i);
    }

    fn file(&mut self) -> Option<u32> {
        self.one_of(&self.files.clone())
    }

    pub(super) fn sync(&mut self) {
        if self.rng.percent(50) {
            let Some(file) = self.file() else { return };
            let synced = self.os.fsync(file);
            self.expect_success(Op::Fsync, &synced);
        } else if let Some(area) = self.pick() {
            let (addr, pages) = self.own.around(area);
            let synced = self.os.msync(addr, pages * PAGE);
            self.expect_success(Op::Msync, &synced);
        }
    }

    pub(super) fn read_write(&mut self) {
        let Some(file) = self.file() else { return };
        let offset = self.rng.below(self.chaos.pages * PAGE);
        let len = 1 + self.rng.below(20 * PAGE);
        let (op, moved) = match self.rng.percent(50) {
            true => (Op::Pread, self.os.pread(file, offset, len)),
            false => (Op::Pwrite, self.os.pwrite(file, offset, len)),
        };
        self.record(op, &moved);
    }

    pub(super) fn truncate(&mut self) {
        let Some(file) = self.file() else { return };
        let size = self.rng.below(self.chaos.pages * PAGE + 1);
        let truncate = self.os.ftruncate(file, size);
        self.expect_success(Op::Ftruncate, &truncate);
    }

    pub(super) fn file_advice(&mut self) {
        let Some(file) = self.file() else { return };
        let advice = self.one_of(&FileAdvice::ALL);
        let from = self.rng.below(self.chaos.pages) * PAGE;
        let advised = self.os.fadvise(file, from, self.rng.below(self.chaos.pages) * PAGE, advice);
        self.expect_success(Op::Fadvise, &advised);
    }

    // --- tasks ---

    /// A child or, in a child, perhaps a thread.
    pub(super) fn start_task(&mut self) {
        if self.forks == 0 {
            return;
        }
        self.forks -= 1;
        match self.child && self.rng.percent(50) {
            true => self.spawn(),
            false => self.fork(),
        }
        if self.rng.percent(50)
            && let Some(task) = self.tasks.pop()
        {
            self.os.join(task);
            self.record::<()>(Op::Join, &Ok(()));
        }
    }

    /// A thread, which has no areas of its own but shares the common range.
    pub(super) fn spawn(&mut self) {
        let (common, forks, child) = (self.common.clone(), self.forks, self.child);
        let role = self.chaos.register(NewTask { own: Areas::default(), common, forks, child });
        let spawned = self.os.spawn(role);
        if child {
            self.record(Op::SpawnByChild, &spawned);
        }
        match spawned {
            Ok(task) => self.tasks.push(task),
            Err(_) => drop(self.chaos.state.lock().new_tasks.remove(&role)),
        }
    }

    /// A child does the same as its parent, on copies of the forking task's areas and of the range that
    /// threads share.
    fn fork(&mut self) {
        let Some(change) = self.common.begin(&[(common::START, self.chaos.pages)]) else { return };
        // The content of the common range is known when the fork has ended; the child may run before that.
        let common = Arc::new(Common::unknown(self.chaos.pages));
        let (own, forks) = (self.own.clone(), self.forks);
        let role = self.chaos.register(NewTask { own, common: Arc::clone(&common), forks, child: true });
        let forked = self.os.fork(role);
        self.record(if self.child { Op::ForkByChild } else { Op::Fork }, &forked);
        self.common.finish_fork(&common, change);
        match forked {
            Ok(task) => self.tasks.push(task),
            Err(_) => drop(self.chaos.state.lock().new_tasks.remove(&role)),
        }
    }

    pub(super) fn pause(&mut self) {
        if self.rng.percent(30) {
            let never = self.rng.percent(50);
            self.os.never_defer_flushes(never);
            self.record::<()>(Op::NeverDefer, &Ok(()));
        } else {
            let nanos = self.rng.below(3_000_000);
            self.os.sleep(nanos);
            self.record::<()>(Op::Sleep, &Ok(()));
        }
    }

    // --- groups and knobs ---

    /// An existing or removed group, or the root.
    fn some_group(&mut self) -> Group {
        let groups = self.chaos.state.lock().groups.clone();
        let at = self.rng.below(groups.len() as u64 + 1) as usize;
        groups.get(at).copied().unwrap_or(Group::ROOT)
    }

    /// Limits about as large as the memory of a process.
    fn limits(&mut self) -> GroupLimits {
        let bytes = self.chaos.pages * PAGE;
        let mut share = |percent: u64, max: u64, otherwise: u64| match self.rng.percent(percent) {
            true => self.rng.below(max * bytes),
            false => otherwise,
        };
        GroupLimits {
            // Small limits end processes, so they are not common.
            max: share(20, 6, u64::MAX).max(bytes / 2),
            high: share(40, 4, u64::MAX).max(bytes / 2),
            low: share(30, 2, 0),
            min: share(10, 1, 0),
            swap_max: share(40, 1, u64::MAX),
        }
    }

    pub(super) fn group(&mut self) {
        let (group, limits) = (self.some_group(), self.limits());
        match self.rng.below(5) {
            0 if self.chaos.state.lock().groups.len() < MAX_GROUPS => {
                let created = self.os.group_create(group, limits);
                self.record(Op::GroupCreate, &created);
                self.chaos.state.lock().groups.extend(created);
            }
            0 => {
                let removed = self.os.group_remove(group);
                self.record(Op::GroupRemove, &removed);
                if removed.is_ok() {
                    self.chaos.state.lock().groups.retain(|&other| other != group);
                }
            }
            1 => {
                let limited = self.os.group_limit(group, limits);
                self.record(Op::GroupLimit, &limited);
            }
            2 => {
                if self.chaos.state.lock().knobs {
                    let (name, values) = self.one_of(GROUP_KNOBS);
                    let value = self.one_of(values);
                    let changed = self.os.group_knob(group, name, value);
                    self.record(Op::GroupKnob, &changed);
                }
            }
            _ => {
                let entered = self.os.group_enter(group);
                self.record(Op::GroupEnter, &entered);
            }
        }
    }

    pub(super) fn change_knob(&mut self) {
        if self.chaos.state.lock().knobs {
            let (name, values) = self.one_of(KNOBS);
            let value = self.one_of(values);
            let changed = self.os.set_knob(name, value);
            self.record(Op::SetKnob, &changed);
        }
    }
}
