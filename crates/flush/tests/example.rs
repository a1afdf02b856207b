//! The example kernel runs on threads, with a policy that waits and with one that does not.
#![cfg(not(feature = "one-thread"))]

use pagefold_flush::Shape;

#[path = "../examples/kernel/threads.rs"]
mod threads;

#[test]
fn processes_read_what_they_wrote() {
    threads::run_all(Shape::Collect { listed: false }, false, 50_000);
    threads::run_all(Shape::Collect { listed: true }, false, 50_000);
    threads::run_all(Shape::Defer { at_ticks: false }, false, 50_000);
    threads::run_all(Shape::Now { spares_unused: false }, false, 50_000);
}
