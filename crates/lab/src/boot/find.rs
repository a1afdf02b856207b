//! Where the kernel's image and QEMU are.

use crate::error::{Error, Result};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Where `cargo xtask kernel` leaves the image, seen from the checkout.
pub const IMAGE: &str = "target/x86/x86_64-unknown-linux-gnu/release/pagefold-kernel";

/// The emulator's program.
const QEMU: &str = "qemu-system-x86_64";

/// The kernel's image: as asked for, as `PAGEFOLD_KERNEL` says, or what was built in the checkout.
pub fn kernel(given: Option<&Path>) -> Result<PathBuf> {
    if let Some(path) = chosen(given, "PAGEFOLD_KERNEL") {
        return match path.is_file() {
            true => Ok(path),
            false => {
                Err(Error::file("boot", &path, "there is no such file ('cargo xtask kernel' builds one)"))
            }
        };
    }
    above(IMAGE).ok_or_else(|| {
        Error::Input(format!(
            "there is no kernel to boot: in a checkout of Pagefold, 'cargo xtask kernel' builds {IMAGE}; elsewhere name one with \
             --kernel or PAGEFOLD_KERNEL"
        ))
    })
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
    in_path(std::env::var_os("PATH"))
        .ok_or_else(|| Error::Input(format!("{QEMU} is missing; on Debian: apt-get install qemu-system-x86")))
}

fn in_path(path: Option<OsString>) -> Option<PathBuf> {
    let path = path?;
    std::env::split_paths(&path).map(|dir| dir.join(QEMU)).find(|program| program.is_file())
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
    fn what_is_missing_is_said_with_its_remedy() {
        let missing = Path::new("no/such");
        let message = kernel(Some(missing)).unwrap_err().to_string();
        assert!(message.contains("no/such") && message.contains("cargo xtask kernel"), "{message}");
        assert!(qemu(Some(missing)).unwrap_err().to_string().contains("no/such"));
        assert_eq!(in_path(Some("/no/such/dir".into())), None);
        assert_eq!(in_path(None), None);
    }
}
