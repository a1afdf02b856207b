//! GET-SCAN: folios that a scan reads do not push out those of random lookups.
//!
//! A task that reads several windows of a file in sequence is scanning. Folios that it brings in go to a list of
//! their own, which is evicted first. A folio of that list that another task uses joins the others, which have a
//! second chance.
//!
//! Source: workload and idea are cache_ext's (Zussman and others, SOSP 2025, section 5.3). There the program says
//! which of its threads scan; here the policy recognises them.

use super::{FIRST, InsertReason, Judgement, Replace, Spot, View, hits};
use crate::frame::Owner;

const GET: usize = 0;
const SCAN: usize = 1;
/// Tasks that are tracked at a time.
const TASKS: usize = 64;
/// Consecutive pages that make a scan: two read-ahead windows.
const ROW: u64 = if cfg!(test) { 4 } else { 64 };

/// How a task reads.
#[derive(Clone, Copy)]
struct Reader {
    task: u32,
    owner: Owner,
    next: u64,
    row: u64,
}

pub(super) struct GetScan([Reader; TASKS]);

impl Default for GetScan {
    fn default() -> Self {
        GetScan([Reader { task: 0, owner: Owner::None, next: 0, row: 0 }; TASKS])
    }
}

impl GetScan {
    /// Whether the task that brings in the folio is scanning.
    fn scans(&mut self, folio: View<'_>, task: u32) -> bool {
        let (owner, index) = (folio.owner(), folio.index().0);
        let reader = &mut self.0[task as usize % TASKS];
        let goes_on = reader.task == task && reader.owner == owner && reader.next == index;
        let row = if goes_on { reader.row + folio.pages() } else { folio.pages() };
        *reader = Reader { task, owner, next: index + folio.pages(), row };
        row >= ROW
    }
}

impl Replace for GetScan {
    fn lists(&self) -> usize {
        2
    }

    fn added(&mut self, folio: View<'_>, why: InsertReason) -> Spot {
        let list = match why {
            InsertReason::New { task, .. } => {
                folio.set_mark(FIRST);
                if !folio.is_anon() && self.scans(folio, task) { SCAN } else { GET }
            }
            InsertReason::Cold => SCAN,
            _ => GET,
        };
        Spot { list, end: why.end() }
    }

    fn next(&mut self, sizes: &[u64]) -> Spot {
        // A scan needs the folios read ahead of its position soon.
        Spot::tail(if sizes[SCAN] > ROW || sizes[GET] == 0 { SCAN } else { GET })
    }

    fn judge(&mut self, folio: View<'_>) -> Judgement {
        if hits(folio) > 0 { Judgement::Move(Spot::head(GET)) } else { Judgement::Evict }
    }
}
