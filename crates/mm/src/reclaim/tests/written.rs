//! Pages that reclaim writes.

use super::*;
use crate::knobs::FlushPolicy;
use crate::machine::Scope;
use std_alloc::boxed::Box;

/// A bench whose flushes are deferred, and whose swap has nothing to write: all content is zeroes.
fn deferring() -> Bench {
    let mut machine = TestMachine::simple(1, 2048);
    machine.compresses = true;
    let bench = Bench::on(machine, 64);
    let core = &bench.core;
    core.knobs.set(Knob::TlbUnmap, FlushPolicy::Lazy.value()).unwrap();
    // Otherwise nothing is to be flushed.
    core.tlb.switch(core.host(), bench.space, core.tables.root(bench.space));
    bench
}

#[test]
fn pages_whose_writes_end_at_once_are_freed_in_the_same_pass() {
    let bench = deferring();
    let pfns = bench.anons(40, ROOT, Bits::YOUNG | Bits::DIRTY);
    assert_eq!(bench.pageout(&pfns), 40);
    assert_eq!(bench.stat(Stat::SwpoutZero), 40);
    assert!((0..40).all(|page| bench.entry(page).as_swap().is_some()));
    assert!(pfns.iter().all(|&pfn| bench.core.frames[pfn].refs() == 0));
}

/// Another task may find the page in the swap cache after its write has ended.
#[test]
fn page_that_is_found_after_its_write_is_kept() {
    let bench: &'static Bench = Box::leak(Box::new(deferring()));
    let core = &bench.core;
    let pfn = bench.anon(0, ROOT, Bits::YOUNG | Bits::DIRTY);
    *core.machine.entered.lock() = Some(Box::new(move |_, scope| {
        if scope == Scope::RemoveMapping {
            bench.core.frames[pfn].get(1);
        }
    }));
    assert_eq!(bench.pageout(&[pfn]), 0);
    assert_eq!((core.frames[pfn].refs(), core.frames[pfn].has(FrameFlags::SWAPCACHE)), (2, true));
    core.put(pfn);
    bench.validate();
}

/// A range may be locked in memory after reclaim has looked at its entries.
#[test]
fn page_of_a_range_that_was_locked_meanwhile_is_not_written() {
    let bench = Bench::new(64);
    let pfn = bench.anon(0, ROOT, Bits::DIRTY);
    bench.core.rmap.relink(Owner::Anon(bench.set), bench.span(ROOT, SpanFlags::LOCKED));
    // This does not look at the entry before it unmaps the page.
    assert_eq!(bench.pageout(&[pfn]), 0);
    assert!(bench.entry(0).is_present() && bench.core.frames[pfn].has(FrameFlags::ACTIVE));
    assert_eq!(bench.stat(Stat::PswpOut), 0);
}
