//! Isolating the folios of a range that are to be moved.

use super::{Spaces, Stop};
use crate::api::Error;
use crate::frame::List;
use crate::machine::{Machine, WaitKey};
use crate::migrate;
use crate::mm_core::MmCore;
use crate::units::*;

/// Result of a walk of a range for [`migrate`](crate::migrate).
#[derive(Debug, Default)]
pub(crate) struct Collected {
    /// Isolated folios; the tail is the first.
    pub folios: List,
    /// Pages of the range that are mapped.
    pub mapped: u64,
    /// Pages whose folio could not be isolated, or is already being moved.
    pub refused: u64,
}

impl Spaces {
    /// Isolate the folios that have a page mapped in `[start, end)` and whose node is `wanted`.
    pub fn collect<M: Machine>(
        &self,
        core: &MmCore<M>,
        id: SpaceId,
        (start, end): (Vpn, Vpn),
        wanted: impl Fn(NodeId) -> bool,
    ) -> Result<Collected, Stop> {
        let space = self.get(id).ok_or(Error::NotFound)?;
        let _held = space.mapping.read(&core.machine, WaitKey::Space(id));
        let mut found = Collected::default();
        let mut last = Pfn::NONE;
        let mut tables = core.tables.lock(core, id);
        tables.for_each(start, end, |_, run| {
            let shown = run.end().min(end).0 - run.page.max(start).0;
            if run.entry.as_migrating().is_some() {
                (found.mapped, found.refused) = (found.mapped + shown, found.refused + shown);
            }
            if !run.entry.is_present() || run.entry.pfn() == core.zero {
                return;
            }
            found.mapped += shown;
            let head = run.mapped(&core.frames).head;
            if head == last || !wanted(core.frames[head].node()) {
                return;
            }
            match migrate::isolate(core, head) {
                Ok(_) => {
                    found.folios.push_head(&core.frames, head);
                    last = head;
                }
                Err(_) => found.refused += shown,
            }
        });
        Ok(found)
    }
}
