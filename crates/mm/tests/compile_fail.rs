//! Shortcuts past a payment do not compile.
//!
//! Each file in `compile_fail` is a program that tries to use or change something without settling first, through the
//! crate's public interface. Beside it is the compiler's output, which `TRYBUILD=overwrite` renews for another version
//! of the compiler.
//!
//! Not for the one-threaded form, which has the same interface.
#![cfg(not(feature = "one-thread"))]

#[test]
fn shortcuts_do_not_compile() {
    let tests = trybuild::TestCases::new();
    tests.pass("tests/compile_fail/with_proofs.rs");
    tests.compile_fail("tests/compile_fail/no_*.rs");
}
