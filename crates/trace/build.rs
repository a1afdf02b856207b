//! Compiles the recorder's plugin, so that the binary can carry it.
//!
//! The plugin is a shared library that QEMU loads. It uses nothing but `std` and the crate `abi`, so `rustc` alone
//! builds both: no C compiler, no download, and no artifact dependency, which stable Cargo does not have. Its sources
//! are in this package, and the build script of `abi` says where that crate's are.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    // Without the recorder nothing needs the plugin.
    if env::var_os("CARGO_FEATURE_STD").is_none() {
        return;
    }
    let (plugin, abi) = (Path::new("plugin"), PathBuf::from(variable("DEP_PAGEFOLD_ABI_SOURCES")));
    for sources in ["build.rs", "plugin", &abi.to_string_lossy()] {
        println!("cargo::rerun-if-changed={sources}");
    }
    for shared in ["codec.rs", "event.rs", "image.rs", "ranges.rs", "raw.rs"] {
        println!("cargo::rerun-if-changed=src/{shared}");
    }
    let out = PathBuf::from(variable("OUT_DIR"));
    let library = out.join("libabi.rlib");
    compile(&abi, &["--crate-name", "abi", "--crate-type", "rlib"], &library);
    let with_abi = format!("abi={}", library.display());
    let options = [
        "--crate-name",
        "pagefold_recorder",
        "--crate-type",
        "cdylib",
        "-C",
        "strip=symbols",
        "--extern",
        &with_abi,
    ];
    compile(plugin, &options, &out.join("recorder.so"));
}

fn compile(source: &Path, options: &[&str], to: &Path) {
    let status = Command::new(variable("RUSTC"))
        .args(["--edition", "2024", "-C", "opt-level=3", "-C", "panic=abort", "-C", "codegen-units=1"])
        .args(["--cap-lints", "allow", "--target", &variable("TARGET")])
        .args(options)
        .arg("-o")
        .arg(to)
        .arg(source.join("lib.rs"))
        .status();
    match status {
        Ok(status) if status.success() => {}
        other => panic!("cannot compile the recorder's plugin in {}: {other:?}", source.display()),
    }
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name} for build scripts"))
}
