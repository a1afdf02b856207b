//! Tells the build scripts of dependents where this crate's sources are, wherever cargo has put them: that of
//! `pagefold-trace` compiles the recorder's plugin with them. Cargo passes it on as `DEP_PAGEFOLD_ABI_SOURCES`, for
//! which the manifest must have a key `links`; nothing is linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let folder =
        std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR for build scripts");
    println!("cargo::metadata=SOURCES={folder}/src");
}
