//! Where the kernel's image and QEMU are.

use crate::error::{Error, Result};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where `cargo xtask kernel` leaves the image, seen from the checkout.
pub const IMAGE: &str = "target/x86/x86_64-unknown-linux-gnu/release/pagefold-kernel";

/// The emulator's program.
const QEMU: &str = "qemu-system-x86_64";

/// What builds it, in the checkout.
const SOURCE: &str = "crates/machine-x86/bare.toml";

/// The kernel's image: as asked for, as `PAGEFOLD_KERNEL` says, or the checkout's, which is built if it was not yet, or
/// not since its sources changed.
pub fn kernel(given: Option<&Path>) -> Result<PathBuf> {
    if let Some(path) = chosen(given, "PAGEFOLD_KERNEL") {
        return match path.is_file() {
            true => Ok(path),
            false => {
                Err(Error::file("boot", &path, "there is no such file ('cargo xtask kernel' builds one)"))
            }
        };
    }
    if let Some(image) = above(IMAGE) {
        let Some(source) = changed_source(&image) else { return Ok(image) };
        eprintln!("pagefold: {} is newer than the kernel", source.display());
    }
    let source = above(SOURCE).ok_or_else(|| {
        Error::input(
            "there is no kernel to boot, and no checkout of Pagefold around to build one in: name one with --kernel or PAGEFOLD_KERNEL",
        )
    })?;
    build(source.ancestors().nth(SOURCE.split('/').count()).expect("the name was appended to the checkout's"))
}

/// A source of an image that is newer than it. Cargo leaves the list of sources beside the image.
fn changed_source(image: &Path) -> Option<PathBuf> {
    let list = std::fs::read_to_string(image.with_extension("d")).ok()?;
    let changed = |path: &Path| path.metadata().and_then(|file| file.modified()).ok();
    let built = changed(image)?;
    let (_, sources) = list.lines().next()?.split_once(": ")?;
    // A blank within a path has a backslash before it.
    let sources = sources.replace("\\ ", "\0");
    let mut paths = sources.split(' ').map(|path| PathBuf::from(path.replace('\0', " ")));
    paths.find(|source| changed(source).is_some_and(|time| time > built))
}

/// Build the kernel. What cargo has to say goes to standard error.
fn build(checkout: &Path) -> Result<PathBuf> {
    eprintln!("pagefold: building the kernel, which is done once for its sources ('cargo xtask kernel')");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let done =
        cargo.args(["xtask", "kernel"]).current_dir(checkout).stdin(Stdio::null()).stdout(Stdio::null());
    let image = checkout.join(IMAGE);
    match done.status() {
        Ok(status) if status.success() && image.is_file() => Ok(image),
        Ok(_) => Err(Error::input("the kernel could not be built: cargo says why above")),
        Err(error) => {
            Err(Error::Input(format!("the kernel could not be built: cargo does not run: {error}")))
        }
    }
}

/// What the checkout that we are in, or were built in, has under this name.
pub(crate) fn above(name: &str) -> Option<PathBuf> {
    let starts = [std::env::current_dir().ok(), std::env::current_exe().ok()];
    starts.iter().flatten().find_map(|start| above_of(start, name))
}

fn above_of(start: &Path, name: &str) -> Option<PathBuf> {
    start.ancestors().map(|dir| dir.join(name)).find(|path| path.exists())
}

/// QEMU for a whole PC: as asked for, as `PAGEFOLD_QEMU` says, or the one that is installed.
pub fn qemu(given: Option<&Path>) -> Result<PathBuf> {
    if let Some(path) = chosen(given, "PAGEFOLD_QEMU") {
        return match path.is_file() {
            true => Ok(path),
            false => Err(Error::file("run QEMU as", &path, "there is no such file")),
        };
    }
    installed(QEMU)
        .ok_or_else(|| Error::Input(format!("{QEMU} is missing; on Debian: apt-get install qemu-system-x86")))
}

/// The version that an emulator tells, if it does.
pub fn version(qemu: &Path) -> Option<String> {
    let output = Command::new(qemu).arg("--version").stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split_once(" version ")?.1.split_whitespace().next().map(str::to_owned)
}

/// A program that PATH leads to, or the folders of administrators, which ordinary users' paths often lack.
pub(crate) fn installed(program: &str) -> Option<PathBuf> {
    in_path(std::env::var_os("PATH"), program).or_else(|| in_path(Some("/usr/sbin:/sbin".into()), program))
}

fn in_path(path: Option<OsString>, program: &str) -> Option<PathBuf> {
    std::env::split_paths(&path?).map(|dir| dir.join(program)).find(|file| file.is_file())
}

/// A file as asked for, or as a variable says.
pub(crate) fn chosen(given: Option<&Path>, variable: &str) -> Option<PathBuf> {
    let variable = || std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    given.map(Path::to_owned).or_else(variable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn an_image_is_found_from_anywhere_in_the_checkout() {
        let scratch = tempfile::tempdir().unwrap();
        let image = scratch.path().join(IMAGE);
        let deep = scratch.path().join("crates/lab");
        fs::create_dir_all(image.parent().unwrap()).unwrap();
        fs::create_dir_all(&deep).unwrap();
        assert_eq!(above_of(&deep, IMAGE), None);
        fs::write(&image, "").unwrap();
        assert_eq!(above_of(&deep, IMAGE), Some(image.clone()));
        assert_eq!(kernel(Some(&image)).unwrap(), image);
    }

    #[test]
    fn an_image_is_stale_when_one_of_its_sources_is_newer() {
        let scratch = tempfile::tempdir().unwrap();
        let [image, list, old, new] =
            ["kernel", "kernel.d", "old.rs", "the new.rs"].map(|name| scratch.path().join(name));
        let make = |path: &Path, seconds| {
            let file = fs::File::create(path).unwrap();
            file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds)).unwrap();
        };
        make(&image, 20);
        assert_eq!(changed_source(&image), None, "nothing tells its sources");
        make(&old, 10);
        make(&new, 30);
        let sources = |sources: &[&Path]| {
            let sources: Vec<String> =
                sources.iter().map(|path| path.display().to_string().replace(' ', "\\ ")).collect();
            fs::write(&list, format!("{}: {}\n", image.display(), sources.join(" "))).unwrap();
        };
        sources(&[&old, &scratch.path().join("gone.rs")]);
        assert_eq!(changed_source(&image), None);
        sources(&[&old, &new]);
        assert_eq!(changed_source(&image), Some(new.clone()));
    }

    #[test]
    fn a_kernel_that_cannot_be_built_is_said() {
        // No checkout: cargo knows no such command there.
        let scratch = tempfile::tempdir().unwrap();
        let message = build(scratch.path()).unwrap_err().to_string();
        assert!(message.contains("could not be built"), "{message}");
    }

    #[test]
    fn what_is_missing_is_said_with_its_remedy() {
        let missing = Path::new("no/such");
        let message = kernel(Some(missing)).unwrap_err().to_string();
        assert!(message.contains("no/such") && message.contains("cargo xtask kernel"), "{message}");
        assert!(qemu(Some(missing)).unwrap_err().to_string().contains("no/such"));
        assert_eq!(in_path(Some("/no/such/dir".into()), QEMU), None);
        assert_eq!(in_path(None, QEMU), None);
    }
}
