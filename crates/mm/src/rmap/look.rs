//! Looking around an entry that was used.
//!
//! Finding the entries of a folio costs a walk of the reverse map, and the neighbours of a used page were often used,
//! too. So when reclaim finds a used entry, it looks at the entries around it in the same table, and moves the folios
//! of used entries to the youngest generation before reclaim isolates them. A table with many used entries is walked
//! by the next aging.

use super::{Span, SpanFlags};
use crate::frame::Frame;
use crate::lru::mglru::{BATCH, LookAround, is_dense};
use crate::machine::{Machine, Work};
use crate::memory::Memory;
use crate::table::{Bits, LockedTables};
use crate::units::*;

/// The range of pages around `page` in its table and its span: at most [`BATCH`] pages, with `page` in the middle, or
/// nearer to an end at the end of the span or the table.
fn around(span: &Span, page: Vpn) -> (Vpn, Vpn) {
    let table = page.0 & !(TABLE_ENTRIES as u64 - 1);
    let (first, end) =
        (table.max(span.start.0), (table + TABLE_ENTRIES as u64).min(span.start.0 + span.pages));
    let start = page.0.saturating_sub(BATCH / 2).min(end.saturating_sub(BATCH)).max(first);
    (Vpn(start), Vpn((start + BATCH).min(end)))
}

/// Look at the entries around the used entry of `page`, which maps `target`.
pub(super) fn look_around<M: Machine>(
    memory: &Memory<M>,
    tables: &mut LockedTables<'_, M>,
    span: &Span,
    page: Vpn,
    target: &Frame,
    look: &mut LookAround,
) {
    let (start, end) = around(span, page);
    if !look.around || end.0 - start.0 <= 1 {
        return;
    }
    let Some(mut window) = tables.window(start, end.0 - start.0) else { return };
    let places = window.places();
    look.promotions.begin_window(span.flags.contains(SpanFlags::EXEC));
    let mut cleared = 0;
    for at in 0..places {
        let entry = window.read(at);
        if !entry.is_present() || !entry.has(Bits::YOUNG) {
            continue;
        }
        let pfn = memory.frames.head(entry.pfn());
        let frame = &memory.frames[pfn];
        if !look.wants(target, frame) {
            continue;
        }
        window.clear_young(at);
        cleared += 1;
        if look.activates {
            memory.lru.promote_at_once(memory, pfn, &mut look.promotions);
        } else {
            memory.lru.promote(frame, &mut look.promotions);
        }
    }
    let table = window.table();
    memory.charge(Work::EntryScan, places as u64 - cleared);
    memory.charge(Work::EntryClear, cleared);
    // The entry of `page` was young, too.
    if is_dense(places as u32, cleared as u32 + 1) && look.dense.last() != Some(&table) {
        look.dense.push(table);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_stays_within_span_and_table() {
        let span = |start, pages| Span {
            vma: VmaId(1),
            space: SpaceId(0),
            group: GroupId(0),
            start: Vpn(start),
            pages,
            index: PageIndex(0),
            flags: SpanFlags::empty(),
        };
        let window = |span: Span, page| {
            let (start, end) = around(&span, Vpn(page));
            (start.0, end.0)
        };
        assert_eq!(window(span(0, 4096), 700), (668, 732), "in the middle of the table");
        assert_eq!(window(span(0, 4096), 513), (512, 576), "at the start of the table");
        assert_eq!(window(span(0, 4096), 1022), (960, 1024), "at the end of the table");
        assert_eq!(window(span(690, 20), 700), (690, 710), "a short span");
        assert_eq!(window(span(690, 100), 700), (690, 754), "at the start of the span");
        assert_eq!(window(span(700, 1), 700), (700, 701), "a span of one page");
    }
}
