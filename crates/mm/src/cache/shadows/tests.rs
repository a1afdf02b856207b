//! The queue of leaves that hold only shadows.

use super::*;
use crate::api::FileAdvice;
use crate::cache::tests::{any_cached, check, disk_file, read, reclaim, store};
use crate::cache::tree::{CachedFolio, TreeEntry};

/// Pages of a leaf.
const LEAF: u64 = 64;

/// One leaf loses its page again and again while others hold only shadows; then all are in use.
#[test]
fn leaves_that_are_used_again_do_not_accumulate() {
    const LEAVES: u64 = 60;
    let core = store(4096, 8);
    let file = disk_file(&core, 0, LEAVES * LEAF);
    core.cache.advise(file, FileAdvice::Random);
    let fill = |leaf| {
        read(&core, file, leaf * LEAF, 1);
        while core.machine.end_one() {}
    };
    let evict = |leaf| {
        assert!(reclaim(&core, any_cached(&core, file, leaf * LEAF).unwrap()));
        let queued = core.cache.shadows.queue.lock().len() as u64;
        let live = core.cache.shadow_leaves();
        assert!((live..=2 * live + LEAST).contains(&queued), "{queued} are queued for {live}");
    };
    (0..LEAVES).for_each(fill);
    for _ in 0..3 {
        (0..LEAVES).for_each(evict);
        for _ in 0..100 {
            fill(0);
            evict(0);
        }
        (0..LEAVES).for_each(fill);
        assert_eq!(core.cache.shadow_leaves(), 0);
    }
    check(&core);
}

/// A task has left only shadows in a leaf. Another task puts a page there, and its change is counted first.
#[test]
fn a_leaf_may_be_used_again_before_it_is_counted() {
    let core = store(4096, 8);
    let file = disk_file(&core, 0, LEAF);
    let put = |entry| {
        let mut tree = core.cache.file(file).tree.lock();
        tree.insert(PageIndex(3), entry);
        tree.take_node_changes()
    };
    let count = |changes| core.cache.apply_shadow_changes(&core, file, changes);
    let (page, shadow) = (TreeEntry::Folio(CachedFolio::single(Pfn(100))), TreeEntry::Shadow(Shadow(1)));
    count(put(page));
    let (evicted, back) = (put(shadow), put(page));
    count(back);
    count(evicted);
    assert_eq!(core.cache.shadow_leaves(), 0);
    count(put(shadow));
    assert_eq!(core.cache.shadow_leaves(), 1);
    check(&core);
}
