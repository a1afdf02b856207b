//! Charges that CPUs hold in stock.
//!
//! A counter of pages that all CPUs change would be a shared cache line in each fault. So a CPU charges a group for
//! several pages at once and keeps what it does not need yet; later charges of the same group come from there. It has
//! a stock of one group only. What is in stock counts as used, and returns to the group when the group's limit or its
//! end asks for it.
//!
//! Source: `try_charge_memcg`, `consume_stock`, `refill_stock` and `drain_all_stock` in mm/memcontrol.c of Linux 6.12.

use super::group::{Groups, ROOT};
use crate::knobs::Knob;
use crate::lock::Lock;
use crate::machine::{Machine, Work};
use crate::platform::Platform;
use crate::units::*;
use std_alloc::boxed::Box;

/// Pages of a group that a CPU has charged and not used.
#[derive(Clone, Copy)]
struct Stock {
    group: GroupId,
    pages: u64,
}

/// The stocks of all CPUs.
pub(super) struct Stocks(Box<[Lock<Stock>]>);

impl Stocks {
    pub(super) fn new(cpus: usize) -> Stocks {
        let empty = || Lock::new(Stock { group: ROOT, pages: 0 });
        Stocks((0..cpus).map(|_| empty()).collect())
    }

    /// Take `pages` of a group from a CPU's stock; `false` if it has fewer.
    fn take(&self, cpu: CpuId, group: GroupId, pages: u64) -> bool {
        let mut stock = self.0[cpu.index()].lock();
        let enough = stock.group == group && stock.pages >= pages;
        if enough {
            stock.pages -= pages;
        }
        enough
    }

    /// Add `pages` of a group, at most `most` in all. Returns what must be uncharged instead: the stock of another
    /// group, or one that has become too large.
    fn put(&self, cpu: CpuId, group: GroupId, pages: u64, most: u64) -> Option<Stock> {
        let mut stock = self.0[cpu.index()].lock();
        let old = *stock;
        if old.group != group {
            *stock = Stock { group, pages };
            return Some(old);
        }
        stock.pages += pages;
        (stock.pages > most).then(|| core::mem::replace(&mut *stock, Stock { group, pages: 0 }))
    }

    /// What CPUs have in stock, by group.
    pub(super) fn each(&self) -> impl Iterator<Item = (GroupId, u64)> + '_ {
        self.0.iter().map(|stock| {
            let stock = stock.lock();
            (stock.group, stock.pages)
        })
    }
}

impl Groups {
    /// Charge `pages` to a group, from this CPU's stock if it has enough. `Err`: this group, or one above, would
    /// exceed its maximum; nothing is charged.
    pub(crate) fn try_charge<M: Machine>(
        &self,
        platform: &Platform<M>,
        group: GroupId,
        pages: u64,
    ) -> Result<(), GroupId> {
        if group == ROOT {
            return Ok(());
        }
        platform.charge(Work::GroupCharge, 1);
        let (cpu, batch) = (platform.machine.cpu(), platform.knobs.get(Knob::MemcgChargeBatch));
        if self.stocks.take(cpu, group, pages) {
            return Ok(());
        }
        if batch > pages && self.charge_upwards(group, batch).is_ok() {
            if let Some(old) = self.stocks.put(cpu, group, batch - pages, batch) {
                self.uncharge_upwards(old.group, old.pages);
            }
            return Ok(());
        }
        self.charge_upwards(group, pages)
    }

    /// Return what all CPUs have in stock of the groups below `top`, itself included.
    pub(crate) fn drain_stocks(&self, top: GroupId) {
        for stock in &*self.stocks.0 {
            if let Some(drained) = self.drain_stock(stock, top) {
                self.uncharge_upwards(drained.group, drained.pages);
            }
        }
    }

    fn drain_stock(&self, stock: &Lock<Stock>, top: GroupId) -> Option<Stock> {
        let mut stock = stock.lock();
        let wanted = stock.pages > 0 && self.is_below(stock.group, top);
        wanted.then(|| core::mem::replace(&mut *stock, Stock { group: ROOT, pages: 0 }))
    }
}
