//! Tells the program which commit it was built from, for its results.

use std::path::Path;
use std::process::Command;

/// Where cargo writes the commit that a package was made from.
const PACKAGED: &str = ".cargo_vcs_info.json";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // A package is no checkout, and the folder that cargo keeps it in may belong to one of something else.
    let commit = if Path::new(PACKAGED).exists() { packaged() } else { checked_out() };
    println!("cargo::rustc-env=PAGEFOLD_COMMIT={}", commit.unwrap_or_else(|| "unknown".to_owned()));
}

fn packaged() -> Option<String> {
    println!("cargo::rerun-if-changed={PACKAGED}");
    let text = std::fs::read_to_string(PACKAGED).ok()?;
    let (_, rest) = text.split_once("\"sha1\": \"")?;
    rest.get(..12).map(str::to_owned)
}

fn checked_out() -> Option<String> {
    // HEAD names the branch, its log changes with every commit: watching both rebuilds exactly when the answer changes.
    // Only files that exist may be named; a missing one would rebuild every time.
    for name in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", name])
            && Path::new(&path).exists()
        {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}
