//! The oracle against hand-made histories.

use super::*;
use AccessKind::{Load, Store};

const RW: Prot = Prot::RW;

fn oracle() -> Oracle {
    let mut oracle = Oracle::default();
    oracle.create_space(1);
    oracle.map(1, 100, 50, RW, Backing::Anonymous);
    oracle
}

fn put(oracle: &mut Oracle, space: u32, page: u64, old: Stamp, new: Stamp) {
    oracle.access(space, page, Store, old).unwrap();
    oracle.store(space, page, new, || StoreTarget::Elsewhere);
}

#[test]
fn private_memory_reads_zero_then_the_last_store() {
    let mut oracle = oracle();
    oracle.access(1, 149, Load, 0).unwrap();
    put(&mut oracle, 1, 149, 0, 5);
    oracle.access(1, 149, Load, 5).unwrap();
    assert_eq!(oracle.access(1, 149, Load, 4).unwrap_err(), "expected stamp 5, got 4, in Anonymous");
    assert!(oracle.access(1, 150, Load, 0).unwrap_err().contains("nothing is mapped"));
    assert_eq!(oracle.report, OracleReport { checked: 5, stale: 0, violations: 2 });
}

#[test]
fn fork_copies_the_parents_content() {
    let mut oracle = oracle();
    put(&mut oracle, 1, 100, 0, 1);
    put(&mut oracle, 1, 101, 0, 2);
    oracle.fork(1, 2, 1);
    put(&mut oracle, 1, 100, 1, 3);
    oracle.access(2, 100, Load, 1).unwrap();
    oracle.access(2, 101, Load, 0).unwrap();
    assert!(
        oracle.access(2, 101, Load, 2).is_err(),
        "a page stored to during the fork has one content, not both"
    );
    assert!(oracle.access(2, 100, Load, 3).is_err());
}

#[test]
fn unmapped_pages_fault_and_a_failed_munmap_restores_them() {
    let mut oracle = oracle();
    put(&mut oracle, 1, 110, 0, 1);
    let call = oracle.begin_take(1, 105, 10, 1);
    oracle.access(1, 110, Load, 99).unwrap();
    oracle.end_take(call, false);
    oracle.access(1, 110, Load, 1).unwrap();
    let call = oracle.begin_take(1, 105, 10, 1);
    oracle.end_take(call, true);
    assert!(oracle.access(1, 110, Load, 1).is_err());
    oracle.access(1, 104, Load, 0).unwrap();
    oracle.access(1, 115, Load, 0).unwrap();
    oracle.map(1, 105, 10, RW, Backing::Anonymous);
    oracle.access(1, 110, Load, 0).unwrap();
}

#[test]
fn pages_after_madv_free_read_old_or_zero_but_not_old_after_zero() {
    let mut oracle = oracle();
    put(&mut oracle, 1, 100, 0, 1);
    let call = oracle.begin_change(1, 100, 50, 1);
    oracle.end_forget(call, Forget::Perhaps);
    oracle.access(1, 100, Load, 1).unwrap();
    oracle.access(1, 100, Load, 0).unwrap();
    assert!(oracle.access(1, 100, Load, 1).is_err());
    put(&mut oracle, 1, 100, 0, 2);
    let call = oracle.begin_change(1, 100, 50, 2);
    put(&mut oracle, 1, 101, 0, 3);
    oracle.end_forget(call, Forget::Now);
    oracle.access(1, 100, Load, 0).unwrap();
    oracle.access(1, 101, Load, 3).unwrap();
}

#[test]
fn protection_is_checked_in_both_directions() {
    let mut oracle = oracle();
    let call = oracle.begin_change(1, 120, 10, 0);
    oracle.end_protect(call, Prot::READ, true);
    assert!(oracle.access(1, 125, Store, 0).unwrap_err().contains("allows only"));
    oracle.refused((1, 125), Store, false, oracle.now()).unwrap();
    assert!(oracle.refused((1, 119), Store, false, oracle.now()).is_err());
    assert!(oracle.refused((1, 125), Load, false, oracle.now()).is_err());
}

#[test]
fn stores_to_shared_files_are_seen_by_all_and_private_copies_by_one() {
    let mut oracle = oracle();
    oracle.create_space(2);
    oracle.create_file(7, 8 * 4096, 1000);
    oracle.map(1, 200, 8, RW, Backing::File { file: 7, offset: 0, private: false });
    oracle.map(2, 300, 4, RW, Backing::File { file: 7, offset: 4, private: true });
    oracle.access(2, 301, Load, 1005).unwrap();
    put(&mut oracle, 1, 205, 1005, 1);
    oracle.access(2, 301, Load, 1).unwrap();
    put(&mut oracle, 2, 301, 1, 2);
    oracle.file_read(7, 5, 1, oracle.now()).unwrap();
    oracle.file_write(7, 5, 3);
    oracle.access(1, 205, Load, 3).unwrap();
    oracle.access(2, 301, Load, 2).unwrap();
    let call = oracle.begin_truncate(7, 5 * 4096, 3);
    oracle.end_truncate(call, 5 * 4096, false);
    oracle.access(2, 301, Load, 2).unwrap();
    let call = oracle.begin_truncate(7, 5 * 4096, 3);
    oracle.end_truncate(call, 5 * 4096, true);
    oracle.refused((2, 301), Load, true, oracle.now()).unwrap();
    let call = oracle.begin_truncate(7, 8 * 4096, 3);
    oracle.end_truncate(call, 8 * 4096, true);
    oracle.access(2, 301, Load, 0).unwrap();
    oracle.access(1, 204, Load, 1004).unwrap();
}

/// A call that writes beyond the end extends the file step by step: a CPU may read the new pages before the call ends.
#[test]
fn pages_beyond_eof_may_exist_while_a_write_extends_the_file() {
    let mut oracle = oracle();
    oracle.create_file(3, 6 << 12, 0);
    oracle.map(1, 200, 50, RW, Backing::File { file: 3, offset: 0, private: false });
    assert!(oracle.peek(1, 212, 0).unwrap().is_err());
    oracle.begin_write(3, 20 << 12);
    oracle.peek(1, 212, 0).unwrap().unwrap();
    assert!(oracle.peek(1, 220, 0).unwrap().is_err());
    // The write was short.
    oracle.end_write(3, 10 << 12, 20 << 12);
    oracle.peek(1, 209, 0).unwrap().unwrap();
    assert!(oracle.peek(1, 212, 0).unwrap().is_err());
}

#[test]
fn mremap_moves_content() {
    let mut oracle = oracle();
    put(&mut oracle, 1, 110, 0, 1);
    put(&mut oracle, 1, 149, 0, 2);
    let call = oracle.begin_take(1, 100, 50, 2);
    oracle.end_move(call, 500, 80);
    oracle.access(1, 510, Load, 1).unwrap();
    oracle.access(1, 579, Load, 0).unwrap();
    assert!(oracle.access(1, 110, Load, 1).is_err());
    let call = oracle.begin_take(1, 500, 80, 2);
    oracle.end_move(call, 500, 20);
    oracle.access(1, 510, Load, 1).unwrap();
    assert!(oracle.access(1, 549, Load, 2).is_err());
}

#[test]
fn a_store_that_races_with_munmap_changes_the_file_only_if_it_reached_it() {
    let mut oracle = Oracle::default();
    oracle.create_space(1);
    oracle.create_file(7, 8 * 4096, 0);
    let shared = Backing::File { file: 7, offset: 0, private: false };
    oracle.map(1, 10, 8, RW, shared);
    let call = oracle.begin_take(1, 10, 8, 0);
    // A store to the new mapping, and one to the old.
    oracle.store(1, 10, 5, || StoreTarget::Elsewhere);
    oracle.store(1, 11, 6, || StoreTarget::File(7, 1));
    let stored = oracle.end_take(call, true);
    oracle.map(1, 10, 8, RW, Backing::Anonymous);
    oracle.raced_with_stores(1, stored);
    oracle.map(1, 30, 8, RW, shared);
    for (page, stamp) in [(10, 5), (11, 0), (30, 0), (31, 6)] {
        oracle.access(1, page, Load, stamp).unwrap();
    }
}

#[test]
fn a_page_populated_for_reading_follows_its_file() {
    let mut oracle = Oracle::default();
    oracle.create_space(1);
    oracle.create_file(7, 8 * 4096, ORIGINAL);
    oracle.map(1, 10, 8, Prot::READ, Backing::File { file: 7, offset: 0, private: true });
    // The device came with one page; the other was written while the range was populated.
    oracle.file_write(7, 1, 6);
    oracle.populated(1, 10, 8, 5);
    oracle.access(1, 10, Load, ORIGINAL).unwrap();
    oracle.access(1, 11, Load, 6).unwrap();
    for (index, stamp) in [(0, 8), (1, 9)] {
        oracle.file_write(7, index, stamp);
        oracle.access(1, 10 + index, Load, stamp).unwrap();
    }
    assert!(oracle.access(1, 10, Load, ORIGINAL).is_err(), "a page that has followed its file is no copy");
}

#[test]
fn a_page_populated_again_may_become_a_copy() {
    let mut oracle = Oracle::default();
    oracle.create_space(1);
    oracle.create_file(7, 8 * 4096, ORIGINAL);
    oracle.map(1, 10, 8, Prot::READ, Backing::File { file: 7, offset: 0, private: true });
    // A read-only mapping shows its file, which the oracle does not know for certain.
    oracle.populated(1, 10, 8, 5);
    // The file changes, the mapping becomes writable, and mlock makes copies; no access comes in between.
    oracle.file_write(7, 0, 6);
    let call = oracle.begin_change(1, 10, 8, 7);
    oracle.end_protect(call, RW, true);
    oracle.populated(1, 10, 8, 7);
    oracle.file_write(7, 0, 8);
    oracle.access(1, 10, Load, 6).unwrap();
    assert!(oracle.access(1, 10, Load, 8).is_err(), "a page that has differed from its file is a copy");
    // A page of the file that has not changed in between allows one content only.
    oracle.file_write(7, 1, 9);
    assert!(oracle.access(1, 11, Load, 6).is_err());
    oracle.access(1, 11, Load, ORIGINAL + 1).unwrap();
}

#[test]
fn peek_agrees_with_access_and_changes_nothing() {
    let mut oracle = oracle();
    put(&mut oracle, 1, 100, 0, 5);
    let before = oracle.report.clone();
    assert_eq!(oracle.peek(1, 100, 5), Some(Ok(())));
    assert!(oracle.peek(1, 100, 4).unwrap().is_err());
    assert!(oracle.peek(1, 99, 0).unwrap().is_err());
    let call = oracle.begin_take(1, 100, 10, 5);
    assert!(
        oracle.peek(1, 100, 4).is_none() && oracle.is_changing(1, 90, 11) && !oracle.is_changing(1, 90, 10)
    );
    oracle.end_take(call, true);
    assert!(oracle.peek(1, 100, 5).unwrap().is_err());
    assert_eq!(oracle.report, before);
}

/// A file is truncated while a range that maps it is moved: private copies in the range may be gone.
#[test]
fn truncation_during_mremap_leaves_private_copies_uncertain() {
    for dropped in [false, true] {
        let mut oracle = oracle();
        oracle.create_file(3, 50 << 12, 0);
        oracle.map(1, 200, 50, RW, Backing::File { file: 3, offset: 0, private: true });
        put(&mut oracle, 1, 220, 0, 7);
        put(&mut oracle, 1, 205, 0, 8);
        let moving = oracle.begin_take(1, 200, 50, 8);
        let cutting = oracle.begin_truncate(3, 10 << 12, 8);
        oracle.end_truncate(cutting, 10 << 12, true);
        oracle.end_move(moving, 300, 50);
        let cutting = oracle.begin_truncate(3, 50 << 12, 8);
        oracle.end_truncate(cutting, 50 << 12, true);
        oracle.access(1, 320, Load, if dropped { 0 } else { 7 }).unwrap();
        assert!(oracle.access(1, 305, Load, 0).is_err(), "the page is below the new size");
    }
}

/// A range is mapped over a file and populated: stores during the call change the one or the other; the frame tells which.
#[test]
fn a_store_that_races_with_mmap_over_a_file_changes_the_file_only_if_it_reached_it() {
    for (target, expected) in [(StoreTarget::File(3, 5), 7), (StoreTarget::Elsewhere, 1)] {
        let mut oracle = oracle();
        oracle.create_file(3, 50 << 12, 0);
        oracle.map(1, 200, 50, RW, Backing::File { file: 3, offset: 0, private: false });
        put(&mut oracle, 1, 205, 0, 1);
        let over = oracle.begin_take(1, 200, 50, 1);
        oracle.access(1, 205, Store, 0).unwrap();
        oracle.store(1, 205, 7, || target);
        let stored = oracle.end_take(over, true);
        oracle.map(1, 200, 50, RW, Backing::Anonymous);
        oracle.raced_with_stores(1, stored);
        oracle.file_read(3, 5, expected, oracle.now()).unwrap();
        oracle.access(1, 205, Load, 7).unwrap();
    }
}
