//! When memory counts as out.

use super::*;
use crate::reclaim::direct::{Retries, should_retry, should_retry_group};
use crate::reclaim::throttle;

/// Pages under write-back will be free: rounds without progress do not count until these pages have arrived.
#[test]
fn memory_is_not_out_during_write_back() {
    let bench = Bench::new(256);
    let pfns = bench.anons(40, ROOT, Bits::YOUNG | Bits::DIRTY);
    assert_eq!(bench.pageout(&pfns), 0);
    let mut retries = Retries::default();
    let mut again = || should_retry(&bench.core, &bench.needs(), 0, &mut retries);
    let before = bench.core.machine.now();
    assert!((0..50).all(|_| again()), "retries last until the device counts as stuck");
    assert!(bench.core.machine.now() - before >= 5_000_000_000, "the retries did not wait");
    // There is no wait for pages that have arrived and did not help.
    assert_eq!(bench.finish_io(), 40);
    assert!((0..MAX_RECLAIM_RETRIES - 1).all(|_| again()) && !again());
}

/// All pages have become active since the sizes of the lists were added up, and there is no file.
#[test]
fn memory_is_not_out_while_old_statistics_hide_active_pages() {
    let bench = Bench::new(256);
    let pfns = bench.anons(64, ROOT, Bits::empty());
    bench.core.machine.advance(2_100_000_000);
    let known = bench.core.lru.known(&bench.core, NodeId(0), ROOT);
    assert_eq!(known.pages(LruList::InactiveAnon), 64);
    pfns.iter().for_each(|&pfn| bench.core.lru.activate(&bench.core, pfn));
    let mut retries = Retries::default();
    assert_eq!(bench.direct(), 0, "by the old statistics, the inactive list is long enough");
    assert!(should_retry(&bench.core, &bench.needs(), 0, &mut retries));
    let _ = bench.direct();
    assert!(bench.core.swap.under_way() > 0 || bench.stat(Stat::PgstealDirect) > 0, "nothing was reclaimed");
}

/// A group's dirty pages stay until the flusher runs, which may take longer than all rounds without a wait.
#[test]
fn memory_is_not_out_before_the_flusher_runs() {
    let bench = Bench::new(256);
    let cache = &bench.core.cache;
    let all_rounds = || {
        let (before, mut retries) = (bench.core.machine.now(), Retries::default());
        while should_retry_group(&bench.core, 0, &mut retries) {}
        bench.core.machine.now() - before
    };
    cache.want_flusher(&bench.core);
    assert!(all_rounds() >= 1_600_000_000, "the rounds did not wait for the flusher to begin");
    assert!(cache.take_request());
    assert!(all_rounds() >= 1_600_000_000, "the rounds did not wait for the flusher to write");
    cache.has_written(&bench.core);
    assert_eq!(all_rounds(), 0, "there is nothing to wait for");
}

/// A request while the flusher writes is a new one: what it writes may be what was dirty before.
#[test]
fn flusher_owes_each_request() {
    let bench = Bench::new(256);
    let cache = &bench.core.cache;
    cache.want_flusher(&bench.core);
    assert!(cache.take_request() && !cache.take_request());
    cache.want_flusher(&bench.core);
    cache.has_written(&bench.core);
    assert!(cache.flusher_is_late() && cache.take_request());
    cache.has_written(&bench.core);
    assert!(!cache.flusher_is_late());
}

#[test]
fn retries_end_when_a_device_is_stuck() {
    let bench = Bench::new(256);
    let pfn = bench.anon(0, ROOT, Bits::YOUNG | Bits::DIRTY);
    bench.pageout(&[pfn]);
    let mut retries = Retries::default();
    while should_retry_group(&bench.core, 0, &mut retries) {}
    assert!(bench.core.machine.now() >= 16 * throttle::STUCK);
}
