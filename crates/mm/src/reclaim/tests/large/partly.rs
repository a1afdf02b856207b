//! Folios of which only a part is mapped.

use super::*;

/// The first page, whose record is the folio's, is freed like any other.
#[test]
fn reclaim_frees_the_first_page_of_a_folio_that_is_mapped_without_it() {
    let bench = Bench::new(0);
    let pfn = bench.large(0, 4);
    bench.forget(0, 1);
    assert_eq!((bench.direct(), bench.sizes(4, &[SizeStat::Split])), (1, vec![1]));
    assert!(bench.entry(0).is_none() && (1..16).all(|page| bench.entry(page).is_present()));
    assert_eq!((bench.stat(Stat::NrAnonPages), bench.core.frames[pfn].refs()), (15, 0));
    bench.check(&[pfn.add(1), pfn.add(15)]);
}
