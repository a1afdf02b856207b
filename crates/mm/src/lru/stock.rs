//! Charges that CPUs hold in stock.
//!
//! A counter of pages that all CPUs change would be a shared cache line in each fault. So a CPU charges a group for
//! several pages at once and keeps what it does not need yet; later charges of the same group come from there. It has
//! a stock of one group only. What is in stock counts as used, and returns to the group when the group's limit or its
//! end asks for it.
//!
//! Source: `try_charge_memcg`, `consume_stock`, `refill_stock` and `drain_all_stock` in mm/memcontrol.c of Linux 6.12.

use crate::lock::Lock;
use crate::units::*;
use std_alloc::boxed::Box;

/// Pages of a group that a CPU has charged and not used.
#[derive(Clone, Copy)]
pub(super) struct Stock {
    /// The group.
    pub(super) group: GroupId,
    /// Number of pages.
    pub(super) pages: u64,
}

impl Stock {
    const EMPTY: Stock = Stock { group: GroupId(0), pages: 0 };
}

/// The stocks of all CPUs.
pub(super) struct Stocks(Box<[Lock<Stock>]>);

impl Stocks {
    pub(super) fn new(cpus: usize) -> Stocks {
        Stocks((0..cpus).map(|_| Lock::new(Stock::EMPTY)).collect())
    }

    /// Take `pages` of a group from a CPU's stock; `false` if it has fewer.
    pub(super) fn take(&self, cpu: CpuId, group: GroupId, pages: u64) -> bool {
        let mut stock = self.0[cpu.index()].lock();
        let enough = stock.group == group && stock.pages >= pages;
        if enough {
            stock.pages -= pages;
        }
        enough
    }

    /// Add `pages` of a group, at most `most` in all. Returns what must be uncharged instead: the stock of another
    /// group, or one that has become too large.
    pub(super) fn put(&self, cpu: CpuId, group: GroupId, pages: u64, most: u64) -> Option<Stock> {
        let mut stock = self.0[cpu.index()].lock();
        let old = *stock;
        if old.group != group {
            *stock = Stock { group, pages };
            return Some(old);
        }
        stock.pages += pages;
        (stock.pages > most).then(|| core::mem::replace(&mut *stock, Stock { group, pages: 0 }))
    }

    /// Take the stocks whose group is `wanted` from all CPUs.
    pub(super) fn drain(&self, wanted: impl Fn(GroupId) -> bool) -> impl Iterator<Item = Stock> {
        self.0.iter().filter_map(move |stock| {
            let mut stock = stock.lock();
            (stock.pages > 0 && wanted(stock.group)).then(|| core::mem::replace(&mut *stock, Stock::EMPTY))
        })
    }

    /// What each CPU has in stock.
    pub(super) fn each(&self) -> impl Iterator<Item = Stock> {
        self.0.iter().map(|stock| *stock.lock())
    }
}
