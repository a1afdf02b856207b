//! Batches of unmapped pages whose flush is still to come.
//!
//! A task that unmaps pages may let others run before the flush. A CPU can then store to a page through a translation
//! that the page table no longer has. Such a store is not lost if the flush comes before the page is written out,
//! copied or its frame used again. The memory manager keeps the page's folio locked until then, and tells which batch
//! will flush for which pages, and when it has. Nothing else is such a promise: a task that has a folio locked for
//! another reason flushes for nothing.

use mm::event::Event;
use mm::units::{Pfn, SpaceId};
use std::collections::BTreeMap;

/// For which pages of which spaces a batch will flush.
#[derive(Default)]
pub(crate) struct Promises {
    /// The batch, by space and frame. One batch at a time can have a folio.
    open: BTreeMap<(u32, u32), u64>,
}

impl Promises {
    /// The memory manager reports an event.
    pub(crate) fn event(&mut self, event: Event, args: [u64; 4]) {
        match (event, args) {
            (Event::TlbUnmapOwed, [batch, space, first, frames]) => {
                let frames = first as u32..(first + frames) as u32;
                self.open.extend(frames.map(|pfn| ((space as u32, pfn), batch)));
            }
            (Event::TlbUnmapPaid, [paid, ..]) => self.open.retain(|_, batch| *batch != paid),
            _ => {}
        }
    }

    /// Whether a batch will flush for a page of a space.
    pub(crate) fn cover(&self, space: SpaceId, pfn: Pfn) -> bool {
        self.open.contains_key(&(space.0, pfn.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_is_for_the_pages_of_one_batch_and_ends_with_its_flush() {
        let mut promises = Promises::default();
        promises.event(Event::TlbUnmapOwed, [7, 1, 40, 2]);
        // A batch within the batch, and pages of another space.
        promises.event(Event::TlbUnmapOwed, [9, 1, 50, 1]);
        promises.event(Event::TlbUnmapOwed, [7, 2, 41, 1]);
        let covered = |promises: &Promises| {
            let all = [(1, 39), (1, 40), (1, 41), (1, 42), (1, 50), (2, 40), (2, 41)];
            all.into_iter()
                .filter(|&(space, pfn)| promises.cover(SpaceId(space), Pfn(pfn)))
                .collect::<Vec<_>>()
        };
        assert_eq!(covered(&promises), [(1, 40), (1, 41), (1, 50), (2, 41)]);
        promises.event(Event::TlbUnmapPaid, [9, 0, 0, 0]);
        assert_eq!(covered(&promises), [(1, 40), (1, 41), (2, 41)]);
        promises.event(Event::TlbUnmapPaid, [7, 0, 0, 0]);
        assert_eq!(covered(&promises), []);
    }
}
