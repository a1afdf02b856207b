//! What makes the crates fit for a registry: packages that build by themselves, the oldest compiler that they promise,
//! and no change that breaks dependents unless the version says so.

use crate::kernel::root;
use crate::step::{Step, run_all};
use std::fs;
use std::process::{Command, ExitCode, Stdio};

/// Members of the workspace that are of use here alone. Their manifests say `publish = false`, which does not keep
/// cargo from making packages of them.
const UNPUBLISHED: [&str; 6] = ["xtask", "bench", "policy", "fuzz", "mutants", "pagefold-python"];

/// Makes a package of each published crate. With `verify`, builds each from its package and those of the others, as
/// users will.
pub fn packages(verify: bool) -> Step {
    let mut args = vec!["package", "--workspace", "--allow-dirty", "--quiet"];
    args.extend(UNPUBLISHED.iter().flat_map(|name| ["--exclude", name]));
    args.extend((!verify).then_some("--no-verify"));
    Step::cargo(if verify { "packages, built" } else { "packages" }, args)
}

/// Checks that the workspace compiles with the oldest compiler that its manifest promises, if that is installed.
pub fn oldest() -> ExitCode {
    let promised = match promised() {
        Ok(version) => version,
        Err(why) => {
            eprintln!("xtask: {why}");
            return ExitCode::FAILURE;
        }
    };
    let list = said_by("rustup", &["toolchain", "list"]).unwrap_or_default();
    let Some(toolchain) = toolchain(&list, &promised) else {
        println!(
            "Rust {promised} is not installed, so it was not tried (rustup toolchain install {promised})"
        );
        return ExitCode::SUCCESS;
    };
    // In a folder of its own, or each build would replace those of the usual compiler.
    let check = ["cargo", "check", "--workspace", "--all-targets", "--target-dir", "target/oldest"];
    let mut command = Command::new("rustup");
    command.args(["run", toolchain]).args(check).current_dir(root()).stdin(Stdio::null());
    match command.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: cannot run rustup: {error}");
            ExitCode::FAILURE
        }
    }
}

/// `rust-version` of the workspace.
fn promised() -> Result<String, String> {
    let path = root().join("Cargo.toml");
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let version = text.lines().find_map(|line| line.strip_prefix("rust-version = \""));
    let version = version.and_then(|rest| rest.strip_suffix('"'));
    version
        .map(str::to_owned)
        .ok_or_else(|| format!("{} has no line 'rust-version = \"...\"'", path.display()))
}

/// The toolchain of this version in rustup's list: 1.89 is also 1.89.0 and its later corrections.
fn toolchain<'a>(list: &'a str, version: &str) -> Option<&'a str> {
    let names = list.lines().filter_map(|line| line.split_whitespace().next());
    let of_version = |name: &&str| {
        name.strip_prefix(version).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-']))
    };
    names.filter(of_version).max()
}

/// Holds the interfaces of the published libraries against those of the last tag.
pub fn semver() -> ExitCode {
    let Some(tag) = said_by("git", &["describe", "--tags", "--abbrev=0", "--match", "v*"]) else {
        println!("there is no tag v... yet, so there is no interface to keep");
        return ExitCode::SUCCESS;
    };
    if said_by("cargo", &["semver-checks", "--version"]).is_none() {
        eprintln!("xtask: cargo-semver-checks is missing: cargo install cargo-semver-checks --locked");
        return ExitCode::FAILURE;
    }
    // Without the features of models and simulators: they exclude each other.
    let args = ["semver-checks", "--workspace", "--default-features", "--baseline-rev", tag.trim()];
    run_all(&[vec![Step::cargo("interfaces since the last tag", args)]])
}

/// What a command prints, if it succeeds.
fn said_by(program: &str, args: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    command.args(args).current_dir(root()).stdin(Stdio::null()).stderr(Stdio::null());
    let output = command.output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    #[test]
    fn toolchain_of_a_version_is_found_under_each_of_its_names() {
        let list = "stable-x86_64-unknown-linux-gnu (active, default)\n1.8-x86_64-unknown-linux-gnu\n\
                    1.89.0-x86_64-unknown-linux-gnu\n1.890.0-x86_64-unknown-linux-gnu\n";
        assert_eq!(toolchain(list, "1.89"), Some("1.89.0-x86_64-unknown-linux-gnu"));
        assert_eq!(toolchain("1.89\n", "1.89"), Some("1.89"));
        assert_eq!(toolchain(list, "1.9"), None);
        assert_eq!(toolchain("", "1.89"), None);
    }

    #[test]
    fn tools_are_left_out_of_the_packages() {
        let read = |folder: PathBuf| fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
        let crates = fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path());
        let others = ["xtask", "bench", "examples/policy"].map(|folder| root().join(folder));
        // Those that are workspaces of their own are no members of this one.
        let members = crates.chain(others).map(read).filter(|manifest| !manifest.contains("[workspace]\n"));
        let tools = members.filter(|manifest| manifest.contains("\npublish = false\n"));
        let name = |manifest: String| manifest.split('"').nth(1).unwrap_or_default().to_owned();
        assert_eq!(BTreeSet::from_iter(tools.map(name)), UNPUBLISHED.map(str::to_owned).into());
    }

    #[test]
    fn workspace_promises_a_compiler() {
        let version = promised().unwrap();
        assert!(version.split('.').all(|part| part.parse::<u32>().is_ok()), "{version}");
    }
}
