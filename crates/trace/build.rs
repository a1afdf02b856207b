//! Compiles the recorder's plugin, so that the binary can carry it.
//!
//! The plugin is a shared library that QEMU loads. It uses nothing but `std`, so `rustc` alone builds it: no C
//! compiler, no download, and no artifact dependency, which stable Cargo does not have.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    // Without the recorder nothing needs the plugin.
    if env::var_os("CARGO_FEATURE_STD").is_none() {
        return;
    }
    let plugin = Path::new(env!("CARGO_MANIFEST_DIR")).join("../recorder-plugin/src");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={}", plugin.display());
    for shared in ["codec.rs", "event.rs", "raw.rs"] {
        println!("cargo::rerun-if-changed=src/{shared}");
    }
    let out = PathBuf::from(variable("OUT_DIR")).join("recorder.so");
    let status = Command::new(variable("RUSTC"))
        .args(["--crate-name", "pagefold_recorder", "--crate-type", "cdylib", "--edition", "2024"])
        .args(["-C", "opt-level=3", "-C", "panic=abort", "-C", "strip=symbols", "-C", "codegen-units=1"])
        .args(["--cap-lints", "allow", "--target", &variable("TARGET")])
        .arg("-o")
        .arg(&out)
        .arg(plugin.join("lib.rs"))
        .status();
    match status {
        Ok(status) if status.success() => {}
        other => panic!("cannot compile the recorder's plugin in {}: {other:?}", plugin.display()),
    }
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name} for build scripts"))
}
