//! Zones and their watermarks, as /proc/zoneinfo shows them. Statistics of nodes, and lists of CPUs, are left out.

use crate::machine::SimMachine;
use mm::Mm;
use mm::alloc::{Watermark, Zone};
use mm::machine::ZoneKind;

/// The file.
pub(crate) fn zoneinfo(mm: &Mm<SimMachine>) -> String {
    mm.core().alloc.zones().iter().map(zone).collect()
}

fn zone(zone: &Zone) -> String {
    let protection = ZoneKind::ALL.map(|kind| zone.lowmem_reserve(kind).to_string()).join(", ");
    let first = format!(
        "Node {}, zone {:>8}\n  pages free     {}\n",
        zone.node().0,
        zone.kind().name(),
        zone.free_pages()
    );
    let rows = [
        ("boost", zone.boost()),
        ("min", zone.mark(Watermark::Min)),
        ("low", zone.mark(Watermark::Low)),
        ("high", zone.mark(Watermark::High)),
        ("promo", zone.mark(Watermark::Promo)),
        ("spanned", zone.spanned()),
        // A zone has no holes.
        ("present", zone.spanned()),
        ("managed", zone.managed()),
    ];
    let rows = rows.map(|(name, pages)| format!("        {name:<8} {pages}\n"));
    format!(
        "{first}{}        protection: ({protection})\n      nr_free_pages {}\n  start_pfn:           {}\n",
        rows.concat(),
        zone.free_pages(),
        zone.start().0
    )
}
