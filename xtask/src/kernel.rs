//! The kernel image: how cargo builds it, and where it is afterwards.

use crate::step::Step;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

const MANIFEST: &str = "crates/machine-x86/Cargo.toml";
const CONFIG: &str = "crates/machine-x86/bare.toml";
const BINARY: &str = "x86_64-unknown-linux-gnu/release/pagefold-kernel";

/// A kind of image.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The one for real runs.
    Ordinary,
    /// For tests: it can drop one flush on request.
    Faulty,
}

/// Where both kinds are built, as they share nearly everything.
const TARGET: &str = "target/x86";
/// Where a faulty image is moved, so that it is never found in place of the ordinary one.
const FAULTY: &str = "target/x86/pagefold-kernel-faulty";

impl Kind {
    fn features(self) -> &'static str {
        match self {
            Kind::Ordinary => "image",
            Kind::Faulty => "image,faulty",
        }
    }

    /// Options of cargo. Nobody measures with a faulty image, and without link-time optimisation it takes half the time
    /// to build.
    fn profile(self) -> &'static [&'static str] {
        match self {
            Kind::Ordinary => &[],
            Kind::Faulty => {
                &["--config", "profile.release.lto=false", "--config", "profile.release.codegen-units=16"]
            }
        }
    }
}

/// Build an image and print its path, which is all that goes to standard output.
pub fn build(kind: Kind) -> ExitCode {
    match image(kind) {
        Some(path) => {
            println!("{}", path.display());
            ExitCode::SUCCESS
        }
        None => ExitCode::FAILURE,
    }
}

/// Build an image; returns its path. On failure cargo has said why.
pub fn image(kind: Kind) -> Option<PathBuf> {
    let args = ["--manifest-path", MANIFEST, "--bin", "pagefold-kernel", "--features", kind.features()];
    let args = [&args[..], kind.profile()].concat();
    build_apart(&args, CONFIG, TARGET).then(|| put_in_place(&root(), kind))?
}

/// The folder of the checkout.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Build something that does not run on the host, with its own configuration and folder. Returns whether that
/// succeeded; if not, the reason was printed.
pub fn build_apart(args: &[&str], config: &str, target: &str) -> bool {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(root()).stdin(Stdio::null());
    // The caller's flags are meant for the host; they would replace the image's own.
    command.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    command.args(["build", "--release"]).args(args).args(["--config", config, "--target-dir", target]);
    match command.status() {
        Ok(status) => status.success(),
        Err(error) => {
            eprintln!("xtask: cannot run cargo: {error}");
            false
        }
    }
}

fn put_in_place(root: &Path, kind: Kind) -> Option<PathBuf> {
    let built = root.join(TARGET).join(BINARY);
    let path = match kind {
        Kind::Ordinary => built,
        Kind::Faulty => {
            let faulty = root.join(FAULTY);
            if let Err(error) = std::fs::rename(&built, &faulty) {
                eprintln!("xtask: cannot move {} to {}: {error}", built.display(), faulty.display());
                return None;
            }
            faulty
        }
    };
    Some(path.canonicalize().unwrap_or(path))
}

/// Checks and tests that need no emulator. The kernel has a workspace of its own.
pub fn checks() -> Vec<Step> {
    const IMAGE: [&str; 9] = [
        "--manifest-path",
        MANIFEST,
        "--bin",
        "pagefold-kernel",
        "--release",
        "--config",
        CONFIG,
        "--target-dir",
        TARGET,
    ];
    let on_image = |name, command, rest: &[&'static str]| {
        let args = [command].into_iter().chain(IMAGE).chain(["--features", Kind::Faulty.features()]);
        Step::cargo(name, args.chain(rest.iter().copied()))
    };
    let library = ["test", "--manifest-path", MANIFEST];
    vec![
        Step::cargo("format of the booted machine", ["fmt", "--manifest-path", MANIFEST, "--check"]),
        on_image("lints of the kernel image", "clippy", &["--", "-D", "warnings"]),
        on_image("documents of the kernel image", "doc", &["--no-deps", "--document-private-items"])
            .env("RUSTDOCFLAGS", "-D warnings"),
        Step::cargo("tests of the booted machine's library", library),
    ]
}
