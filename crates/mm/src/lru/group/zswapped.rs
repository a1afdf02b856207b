//! What groups have in zswap: their limits of it, and the bytes that are charged to them.
//!
//! The objects of a group's pages are charged to the group as memory: whole pages for the bytes of all of them. (Linux
//! charges through CPUs' stocks of bytes, which may hold a page more each.) Like the charges of its folios, they go to
//! the parent when the group is removed. The root's own pages are not counted; its counts are those of all other groups
//! together.
//!
//! Source: `obj_cgroup_may_zswap`, `obj_cgroup_charge_zswap`, `mem_cgroup_zswap_writeback_enabled` in mm/memcontrol.c
//! of Linux 6.12.

use super::{Groups, ROOT};
use crate::api::{Error, ZswapLimits};
use crate::machine::{Machine, SharedLine, Work};
use crate::platform::Platform;
use crate::primitive::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use crate::units::*;

/// A group's part in zswap.
#[derive(Default)]
pub(super) struct GroupZswap {
    max: AtomicU64,
    writeback: AtomicBool,
    /// Bytes of its own pages.
    own: AtomicU64,
    /// Bytes and number of its pages and those of the groups below.
    bytes: AtomicI64,
    pages: AtomicI64,
}

impl GroupZswap {
    pub(super) fn set(&self, limits: ZswapLimits) {
        self.max.store(limits.max, Relaxed);
        self.writeback.store(limits.writeback, Relaxed);
    }

    /// Pages that its own bytes are charged as.
    fn charged(&self) -> u64 {
        self.own.load(Relaxed).div_ceil(PAGE_SIZE)
    }
}

impl Groups {
    /// The limits of zswap of a group.
    pub(crate) fn zswap_limits(&self, group: GroupId) -> ZswapLimits {
        let zswap = &self.at(group).zswap;
        ZswapLimits { max: zswap.max.load(Relaxed), writeback: zswap.writeback.load(Relaxed) }
    }

    /// Set them, for a group other than the root.
    pub(crate) fn set_zswap_limits(&self, group: GroupId, limits: ZswapLimits) -> Result<(), Error> {
        self.check_own(group)?;
        self.at(group).zswap.set(limits);
        Ok(())
    }

    /// Bytes in zswap, and of how many pages they are, of a group and the groups below.
    pub(crate) fn zswap_usage(&self, group: GroupId) -> [u64; 2] {
        let zswap = &self.at(group).zswap;
        [&zswap.bytes, &zswap.pages].map(|count| count.load(Relaxed).max(0) as u64)
    }

    /// Bytes of a group's own pages.
    pub(crate) fn zswap_own(&self, group: GroupId) -> u64 {
        self.at(group).zswap.own.load(Relaxed)
    }

    /// Pages that the objects of a group's own pages are charged as.
    pub(in crate::lru) fn zswap_charged(&self, group: GroupId) -> u64 {
        self.at(group).zswap.charged()
    }

    /// Whether no group from this one upwards has reached its memory.zswap.max.
    pub(crate) fn may_zswap(&self, group: GroupId) -> bool {
        self.upwards(group).take_while(|&level| level != ROOT).all(|level| {
            let max = self.at(level).zswap.max.load(Relaxed);
            max == u64::MAX || self.zswap_usage(level)[0] / PAGE_SIZE < max
        })
    }

    /// Whether pages that zswap does not take, or does not keep, may be written to their devices: if no group from this
    /// one upwards has memory.zswap.writeback at 0.
    pub(crate) fn may_write_from_zswap(&self, group: GroupId) -> bool {
        let own = |level: &GroupId| *level != ROOT;
        self.upwards(group).take_while(own).all(|level| self.at(level).zswap.writeback.load(Relaxed))
    }

    /// Charge an object of `bytes` to a group, whatever its limits, or uncharge one of that many below zero.
    pub(crate) fn charge_zswap<M: Machine>(&self, platform: &Platform<M>, group: GroupId, bytes: i64) {
        if group == ROOT {
            return;
        }
        let zswap = &self.at(group).zswap;
        // One step, as other tasks may charge the same group: a part of a page that is lost would stay charged.
        let before = zswap.own.fetch_add(bytes as u64, Relaxed);
        let own = before.wrapping_add_signed(bytes);
        for level in self.upwards(group) {
            self.at(level).zswap.bytes.fetch_add(bytes, Relaxed);
            self.at(level).zswap.pages.fetch_add(bytes.signum(), Relaxed);
        }
        let by = own.div_ceil(PAGE_SIZE) as i64 - before.div_ceil(PAGE_SIZE) as i64;
        if by != 0 {
            platform.charge(Work::GroupCharge, 1);
            for level in self.upwards(group) {
                platform.machine.writes(SharedLine::GroupUsage(level));
                self.force(level, by);
            }
        }
    }

    /// The objects of a removed group's pages are of a group above from now on.
    pub(crate) fn reparent_zswap(&self, from: GroupId, to: GroupId) {
        let gone = &self.at(from).zswap;
        let (charged, bytes) = (gone.charged(), gone.own.swap(0, Relaxed));
        let pages = gone.pages.swap(0, Relaxed);
        gone.bytes.store(0, Relaxed);
        self.transfer_charge(from, to, charged);
        if to == ROOT {
            self.at(ROOT).zswap.bytes.fetch_sub(bytes as i64, Relaxed);
            self.at(ROOT).zswap.pages.fetch_sub(pages, Relaxed);
            return;
        }
        let kept = &self.at(to).zswap;
        let before = kept.own.fetch_add(bytes, Relaxed);
        // Two parts of pages may have become one.
        let by = (before + bytes).div_ceil(PAGE_SIZE) as i64 - (before.div_ceil(PAGE_SIZE) + charged) as i64;
        self.upwards(to).for_each(|level| self.force(level, by));
    }
}
