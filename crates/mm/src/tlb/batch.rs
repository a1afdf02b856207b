//! What an unmapper owes: translations of folios that it has unmapped and that some CPU may still hold.

use super::{Range, Tlb};
use crate::base::Base;
use crate::machine::Machine;
use crate::units::*;

/// Debts of one reclaim or migration batch.
///
/// Rules for callers, whatever the policy: every entry that is cleared is noted; the batch is settled before a folio
/// from it is freed, and before the content of a folio with a writable or dirty entry is written to its store.
///
/// Policy today: pay at once, one flush a page.
#[must_use = "debts must be settled"]
#[derive(Default)]
pub struct Batch {
    noted: u64,
}

impl Batch {
    /// No debts.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// The entry of `page` was cleared, under the lock of the space's tables.
    pub fn note<M: Machine>(
        &mut self,
        base: &Base<M>,
        tlb: &Tlb,
        space: SpaceId,
        page: Vpn,
        _writable: bool,
    ) {
        self.noted += 1;
        tlb.flush(base, space, Range::page(page));
    }

    /// Pages noted so far.
    pub fn noted(&self) -> u64 {
        self.noted
    }

    /// Pay what is owed for entries that were writable or dirty.
    pub fn settle_dirty<M: Machine>(&mut self, _base: &Base<M>, _tlb: &Tlb) {}

    /// Pay everything.
    pub fn settle<M: Machine>(&mut self, _base: &Base<M>, _tlb: &Tlb) {}
}
