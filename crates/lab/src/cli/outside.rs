//! A replacement policy from outside: a crate of the user's, which this command is built again with.

use super::output;
use crate::error::{Error, Result};
use crate::replay;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The option, which the command follows.
const OPTION: &str = "--policy-crate";
/// What tells the command that was built which crate its policy is from.
const VARIABLE: &str = "PAGEFOLD_POLICY_CRATE";
/// This crate's folder, where it was built.
const LAB: &str = env!("CARGO_MANIFEST_DIR");
/// The name of the command that is built, and of its crate.
const NAME: &str = "pagefold-with-policy";
/// All of its source.
const MAIN: &str =
    "fn main() -> std::process::ExitCode {\n    pagefold::cli::start_with(theirs::policy)\n}\n";

/// The manifest of the command that is built.
#[derive(Serialize)]
struct Manifest<'a> {
    package: BTreeMap<&'a str, toml::Value>,
    dependencies: BTreeMap<&'a str, BTreeMap<&'a str, String>>,
    workspace: BTreeMap<&'a str, toml::Value>,
    profile: BTreeMap<&'a str, toml::Value>,
}

/// Build this command with the policy of the crate in the folder, and give the words after it to that. Returns its
/// exit code; `None` if no such folder is given.
pub(super) fn hand_over(args: &[OsString]) -> Result<Option<u8>> {
    let Some((folder, rest)) = folder(args)? else { return Ok(None) };
    let folder = std::path::absolute(folder).map_err(|error| Error::file("find", folder, error))?;
    let command = build(&folder)?;
    let status = Command::new(&command).args(rest).env(VARIABLE, &folder).status();
    let status = status.map_err(|error| Error::file("run", &command, error))?;
    Ok(Some(status.code().map_or(1, |code| code as u8)))
}

/// Note in commands that replay a run which crate this process has its policy from.
pub(super) fn note() {
    if let Some(folder) = std::env::var_os(VARIABLE) {
        replay::needs(OPTION, &folder.to_string_lossy());
    }
}

/// The folder of a policy's crate, and the words after it.
fn folder(args: &[OsString]) -> Result<Option<(&Path, &[OsString])>> {
    let [_, first, rest @ ..] = args else { return Ok(None) };
    if first == OPTION {
        let (folder, rest) = rest.split_first().ok_or_else(|| {
            Error::Input(format!("{OPTION} needs the folder of a crate (docs/policies.md)"))
        })?;
        return Ok(Some((Path::new(folder), rest)));
    }
    let text = first.to_str().and_then(|text| text.strip_prefix(OPTION)?.strip_prefix('='));
    Ok(text.map(|folder| (Path::new(folder), rest)))
}

/// Build the command below the crate's own `target`, or in that of a checkout of Pagefold, which has the crates of the
/// registry already. Pagefold's own are built once more: cargo shares none between workspaces.
fn build(folder: &Path) -> Result<PathBuf> {
    let name = package_name(&folder.join("Cargo.toml"))?;
    let root = Path::new(LAB).join("../..");
    let checkout = root.join("Cargo.lock");
    let home = folder.join("target").join(NAME);
    let target = if checkout.is_file() { root.join("target") } else { home.join("target") };
    std::fs::create_dir_all(&home).map_err(|error| Error::output("create", &home, &error))?;
    output::save(&home.join("Cargo.toml"), &manifest(folder, &name)?)?;
    output::save(&home.join("main.rs"), MAIN)?;
    // The folder may be one that the crate's repository does not ignore.
    output::save(&home.join(".gitignore"), "*\n")?;
    let lock = home.join("Cargo.lock");
    if checkout.is_file() && !lock.is_file() {
        std::fs::copy(&checkout, &lock).map_err(|error| Error::output("write", &lock, &error))?;
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let options = ["build", "--release", "--manifest-path"].map(OsStr::new);
    let mut command = Command::new(&cargo);
    command.args(options).arg(home.join("Cargo.toml")).arg("--target-dir").arg(&target);
    // Progress and messages of the compiler are no result.
    command.stdout(std::io::stderr());
    let status = command.status().map_err(|error| Error::file("run", Path::new(&cargo), error))?;
    match status.success() {
        true => Ok(target.join("release").join(NAME)),
        false => Err(Error::Input(format!(
            "the policy in {} was not built, as cargo says above; it must have 'pub fn policy() -> Box<dyn Replace>' \
             (docs/policies.md)",
            folder.display()
        ))),
    }
}

/// The name of the crate that a manifest describes.
fn package_name(manifest: &Path) -> Result<String> {
    let text = std::fs::read_to_string(manifest).map_err(|error| Error::file("read", manifest, error))?;
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        Error::file("read", manifest, error.message().replace('\n', " "))
    })?;
    let name = table.get("package").and_then(|package| package.get("name")?.as_str());
    name.map(str::to_owned).ok_or_else(|| Error::file("use", manifest, "it describes no package"))
}

/// The manifest of the command, with the settings of Pagefold's own release build.
fn manifest(folder: &Path, name: &str) -> Result<String> {
    let text = |text: &str| toml::Value::String(text.to_owned());
    let checkout = Path::new(LAB).is_dir();
    let ours = match checkout {
        true => ("path", LAB.to_owned()),
        false => ("version", format!("={}", env!("CARGO_PKG_VERSION"))),
    };
    let theirs = BTreeMap::from([("package", name.to_owned()), ("path", folder.display().to_string())]);
    let release = toml::Table::from_iter([
        ("debug".to_owned(), toml::Value::Integer(1)),
        ("overflow-checks".to_owned(), toml::Value::Boolean(true)),
        ("panic".to_owned(), text("abort")),
        ("codegen-units".to_owned(), toml::Value::Integer(4)),
    ]);
    let bin = toml::Table::from_iter([("name".to_owned(), text(NAME)), ("path".to_owned(), text("main.rs"))]);
    let manifest = Manifest {
        package: BTreeMap::from([
            ("name", text(NAME)),
            ("version", text("0.0.0")),
            ("edition", text("2024")),
        ]),
        dependencies: BTreeMap::from([("pagefold", BTreeMap::from([ours])), ("theirs", theirs)]),
        workspace: BTreeMap::new(),
        profile: BTreeMap::from([("release", toml::Value::Table(release))]),
    };
    let body = toml::to_string(&manifest).map_err(|error| Error::Input(error.to_string()))?;
    let bin = toml::to_string(&bin).map_err(|error| Error::Input(error.to_string()))?;
    Ok(format!("{body}\n[[bin]]\n{bin}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn command_follows_the_folder() {
        for line in ["pagefold --policy-crate mine run zipf:1M", "pagefold --policy-crate=mine run zipf:1M"] {
            let args = words(line);
            let (found, rest) = folder(&args).unwrap().unwrap();
            assert_eq!((found, rest), (Path::new("mine"), &words("run zipf:1M")[..]), "{line}");
        }
        assert!(folder(&words("pagefold run zipf:1M")).unwrap().is_none());
        assert!(
            folder(&words("pagefold --policy-crate")).unwrap_err().to_string().contains("needs the folder")
        );
    }

    #[test]
    fn release_settings_are_those_of_the_workspace() {
        let root: toml::Table =
            std::fs::read_to_string(Path::new(LAB).join("../../Cargo.toml")).unwrap().parse().unwrap();
        let built: toml::Table = manifest(Path::new("/mine"), "mine").unwrap().parse().unwrap();
        assert_eq!(built["profile"]["release"], root["profile"]["release"]);
        assert_eq!(built["dependencies"]["theirs"]["package"].as_str(), Some("mine"));
        assert_eq!(built["bin"][0]["name"].as_str(), Some(NAME));
    }
}
