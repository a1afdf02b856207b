//! The shortcuts past a payment do not compile.
//!
//! Each file in `compile_fail` is a program that tries to use or change something without settling first, through the
//! crate's public interface, and beside it is what the compiler says. `TRYBUILD=overwrite` renews that, where another
//! compiler uses other words.
//!
//! Not for the one-threaded form, whose interface is the same.
#![cfg(not(feature = "one-thread"))]

#[test]
fn shortcuts_do_not_compile() {
    let tests = trybuild::TestCases::new();
    tests.pass("tests/compile_fail/with_proofs.rs");
    tests.compile_fail("tests/compile_fail/no_*.rs");
}
