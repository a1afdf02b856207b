//! Passes the linker script of the image to the linker, by its absolute path.

fn main() {
    let folder = std::env::var("CARGO_MANIFEST_DIR").expect("cargo must set CARGO_MANIFEST_DIR");
    for file in ["linker.ld", "src/arch/boot.s", "src/arch/trap.s", "src/arch/switch.s", "src/arch/memory.s"]
    {
        println!("cargo:rerun-if-changed={file}");
    }
    if std::env::var_os("CARGO_FEATURE_IMAGE").is_some() {
        println!("cargo:rustc-link-arg-bins=-T{folder}/linker.ld");
    }
}
