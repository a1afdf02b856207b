//! The coverage-guided fuzzer: libFuzzer around the targets of the crate `fuzz`, built by the ordinary toolchain.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The targets if none is named.
const TARGETS: [&str; 6] = ["container", "imports", "machine", "options", "replay", "sweep"];

/// The compiler passes that tell libFuzzer which code an input reaches. The flags are stable; cargo-fuzz uses the
/// same.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// What to fuzz, and for how long.
#[derive(Debug, PartialEq, Eq)]
pub struct Options {
    targets: Vec<&'static str>,
    runs: u64,
}

impl Options {
    /// Read the words of the command line; returns `None` if they make no sense.
    pub fn parse(mut words: &[&str]) -> Option<Options> {
        let mut options = Options { targets: TARGETS.to_vec(), runs: 1_000_000 };
        if let ["--runs", runs, rest @ ..] = words {
            options.runs = runs.parse().ok()?;
            words = rest;
        }
        if let [name] = words {
            options.targets = vec![TARGETS.into_iter().find(|target| target == name)?];
            words = &[];
        }
        words.is_empty().then_some(options)
    }
}

/// Build the fuzzer, and feed each target this many inputs. Inputs that reach new code are kept for the next run.
pub fn fuzz(options: &Options) -> ExitCode {
    let Some(folder) = build() else { return ExitCode::FAILURE };
    for target in &options.targets {
        if run(&folder, target, options.runs).is_none() {
            eprintln!(
                "xtask: the input is in {}; after the fix, move it to crates/fuzz/regressions/{target}",
                folder.display()
            );
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Build the fuzzer; returns its folder.
fn build() -> Option<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // If a target triple is named, build scripts are built without the passes.
    let host = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?.join("target/fuzz");
    let built = Command::new(cargo)
        .args([
            "build",
            "--release",
            "-p",
            "fuzz",
            "--features",
            "guided",
            "--bin",
            "guided",
            "--target",
            &host,
        ])
        .arg("--target-dir")
        .arg(&target)
        .env("RUSTFLAGS", FLAGS)
        .status();
    built.is_ok_and(|status| status.success()).then(|| target.join(&host).join("release"))
}

fn run(folder: &Path, target: &str, runs: u64) -> Option<()> {
    let corpus = folder.join("corpus").join(target);
    std::fs::create_dir_all(&corpus).ok()?;
    eprintln!("\n==> {target}: {runs} inputs");
    let ended = Command::new(folder.join("guided"))
        .current_dir(folder)
        .args([format!("-runs={runs}"), format!("-artifact_prefix={target}-")])
        .args(["-max_len=8192", "-timeout=20", "-rss_limit_mb=2048", "-print_final_stats=1", "-verbosity=1"])
        .arg(&corpus)
        .env("PAGEFOLD_FUZZ", target)
        .env("PAGEFOLD_CORPUS", &corpus)
        .status();
    ended.is_ok_and(|status| status.success()).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_parsed_and_wrong_ones_refused() {
        let all = |runs| Some(Options { targets: TARGETS.to_vec(), runs });
        assert_eq!(Options::parse(&[]), all(1_000_000));
        assert_eq!(Options::parse(&["--runs", "5"]), all(5));
        assert_eq!(
            Options::parse(&["--runs", "5", "imports"]),
            Some(Options { targets: vec!["imports"], runs: 5 })
        );
        for wrong in [&["--runs"][..], &["--runs", "x"], &["toml"], &["imports", "machine"]] {
            assert_eq!(Options::parse(wrong), None, "{wrong:?}");
        }
    }
}
