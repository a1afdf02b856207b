//! Every order of small programs: three CPUs, two spaces of three pages, all policies, and two operations of each CPU.
//!
//! The ledger is the real one, the TLBs are those of the specification, and the kernel around them (`world`) is the
//! test kernel with locks, faults, swap and reclaim. An operation is a few steps, each of which is one call of the
//! ledger or one access of a program; a CPU may be anywhere in its operation while others make theirs. After each step
//! every translation that a program could use must lead to what its page shows; at the end, each page must have its
//! last store. States that were met before are not continued again: the state is the kernel's, the TLBs' and the
//! ledger's, with generations counted back from the newest.
//!
//! What is checked up to these numbers is the order of calls. Orders within a call are for the models of `mm`
//! (`tlb::model`), on a weak memory.

// A ledger's state is open with this feature only. Not in the manifest: copies of the crate for tests have no `tests`.
#![cfg(feature = "inside")]

mod explore;
#[path = "../kernel/mod.rs"]
#[allow(dead_code, reason = "each test uses a part")]
mod kernel;
mod world;

use explore::explore;
use kernel::*;
use pagefold_flush::Shape;
use world::Op::*;
use world::{Kind, Op, Wrong};

const POLICIES: [(&str, Shape); 6] = [
    ("eager", Shape::Now { spares_unused: false }),
    ("abis", Shape::Now { spares_unused: true }),
    ("batch", Shape::Collect { listed: false }),
    ("list", Shape::Collect { listed: true }),
    ("lazy", Shape::Defer { at_ticks: false }),
    ("latr", Shape::Defer { at_ticks: true }),
];

/// What each CPU may do. CPU 0 begins in a kernel task, the others in space A.
fn many() -> [Vec<Op>; CPUS] {
    [
        vec![Reclaim(A, P), Reclaim(A, Q), Unmap(A, P), Protect(A, Q), Come(A), Read(P)],
        vec![Read(P), Write(Q), Reclaim(B, P), Come(B), Idle, Tick],
        vec![Read(Q), Write(P), Reclaim(A, R), Come(A), Idle],
    ]
}

/// Fewer, for two operations of each.
fn some() -> [Vec<Op>; CPUS] {
    [
        vec![Reclaim(A, P), Reclaim(A, Q), Unmap(A, P)],
        vec![Read(P), Write(Q), Come(B)],
        vec![Write(P), Reclaim(A, R), Idle],
    ]
}

/// The kernels that the tests are about: all policies, in two forms where a free frame can owe something.
fn kernels(wrong: Option<Wrong>) -> impl Iterator<Item = (String, Kind)> {
    POLICIES.into_iter().flat_map(move |(name, shape)| {
        let forms = [("", false), (", clean frames first", true)];
        let differ = if matches!(shape, Shape::Now { .. }) { 1 } else { 2 };
        let kernel = move |(form, clean_first)| (format!("{name}{form}"), Kind { shape, clean_first, wrong });
        forms.into_iter().take(differ).map(kernel)
    })
}

/// No order shows a fault, under any policy.
fn none_is_wrong(operations: &[Vec<Op>; CPUS], each: u32) {
    for (name, kernel) in kernels(None) {
        let found = explore(kernel, operations, each);
        println!("{name}, {each} of each CPU: {} states, {} steps", found.states, found.steps);
        assert_eq!(found.fault, None, "under {name}");
    }
}

#[test]
fn every_order_of_an_operation() {
    none_is_wrong(&many(), 1);
}

#[test]
fn every_order_of_two_operations() {
    none_is_wrong(&some(), 2);
}

/// The operations in which a fault can show.
fn of(wrong: Wrong) -> ([Vec<Op>; CPUS], u32) {
    match wrong {
        Wrong::AddressIsPaidForTooLate => ([vec![Reclaim(A, P)], vec![Write(P)], vec![Write(P)]], 1),
        Wrong::LoadIsNotTold | Wrong::DeafAtLoads => {
            ([vec![Unmap(A, P), Unmap(B, P)], vec![Come(A), Come(B), Read(P)], vec![]], 3)
        }
        _ => (many(), 1),
    }
}

/// Each of these breaks the kernel or its host at one place.
#[test]
fn planted_faults_are_found() {
    for wrong in Wrong::ALL {
        let (operations, each) = of(wrong);
        let search = |(name, kernel)| {
            let found = explore(kernel, &operations, each);
            found.fault.map(|fault| (name, found.states, fault))
        };
        let found = kernels(Some(wrong)).find_map(search);
        let (name, states, fault) = found.unwrap_or_else(|| panic!("{wrong:?} must be found"));
        println!("{wrong:?}: under {name}, after {states} states: {fault}");
    }
}
