//! Pages of files that programs execute.

use super::*;
use crate::frame::FolioPages;

/// A place beside the anonymous memory.
const TEXT: Vpn = Vpn(START.0 + 8192);

#[test]
fn used_program_text_stays_active() {
    let bench = Bench::new(0);
    let core = &bench.core;
    core.knobs.set(Knob::MemcgFlushMs, 0).unwrap();
    // The costs of few pages would be forgotten at once.
    bench.anons(64, ROOT, Bits::empty());
    bench.clean_file(0..1, ROOT);
    let span = Span { vma: VmaId(2), start: TEXT, ..bench.span(ROOT, SpanFlags::EXEC) };
    core.rmap.link(Owner::File(bench.file), span);
    let pfn = bench.folio(0).unwrap();
    let frame = &core.frames[pfn];
    frame.get(1);
    core.rmap.add_range(core, FolioPages::one(&core.frames, pfn));
    let mut tables = core.tables.lock(core, bench.space);
    let slot = tables.reserve(&core.alloc, TEXT, MEANS).unwrap();
    tables.place(slot, pfn, Bits::PRESENT | Bits::USER | Bits::YOUNG);
    tables.counts().add(Resident::File, 1);
    drop(tables);
    core.lru.activate(core, pfn);
    let mut sc = ScanControl::new(32, Order::ZERO, ZoneKind::Movable);
    sc.priority = 0;
    bench.cx().shrink_node(NodeId(0), &mut sc);
    assert_eq!((bench.stat(Stat::Pgrefill), bench.stat(Stat::Pgdeactivate)), (1, 0));
    assert!(frame.has(FrameFlags::ACTIVE) && frame.mapcount() == 1);
    assert_eq!(core.lru.node_vec(NodeId(0)).cost().file, 1, "it was looked at in vain");
}
