//! Where the kernel, its modules, and the guest's first process are.

use crate::boot::find::{above, chosen, installed};
use crate::error::{Error, Result};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Where `cargo xtask linux` leaves the guest's first process, seen from the checkout.
pub const INIT: &str = "target/linux/x86_64-unknown-linux-gnu/release/pagefold-init";
/// Where it unpacks kernels, each in a folder with its name.
const UNPACKED: &str = "target/linux/kernels";
/// The kernel that is taken if several are unpacked and none is named: the memory manager is compared with it.
const USUAL: &str = "6.12";
/// What the kernel must have, built in or as modules.
const DRIVERS: [&str; 3] = ["virtio_pci", "virtio_blk", "ext4"];

/// A kernel that can be booted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Its image.
    pub image: PathBuf,
    /// Its version, or its file's name if that does not tell.
    pub version: String,
    /// Modules to insert, in order.
    pub modules: Vec<PathBuf>,
    /// Where its modules are, if it has any.
    folder: Option<PathBuf>,
}

impl Kernel {
    /// One whose drivers are these, and that has no others.
    #[cfg(test)]
    pub(super) fn with_drivers(image: &str, version: &str, modules: &[&str]) -> Kernel {
        let modules = modules.iter().map(PathBuf::from).collect();
        Kernel { image: image.into(), version: version.into(), modules, folder: None }
    }

    /// The same with more drivers, unless they are built in.
    ///
    /// # Errors
    /// It does not have one.
    pub fn and_drivers(&self, more: &[&str]) -> Result<Kernel> {
        let mut kernel = self.clone();
        if let Some(folder) = self.folder.as_ref().filter(|_| !more.is_empty()) {
            kernel.modules.extend(modules_of(folder, more)?);
            let mut seen = BTreeSet::new();
            kernel.modules.retain(|module| seen.insert(module.clone()));
        }
        Ok(kernel)
    }

    /// Whether this is built into the kernel and has parameters; true if nothing tells.
    pub fn has_builtin(&self, name: &str) -> bool {
        let information = self.folder.as_ref().map(|folder| folder.join("modules.builtin.modinfo"));
        let text = information.and_then(|file| std::fs::read(file).ok());
        text.is_none_or(|text| {
            let of = format!("{name}.");
            text.split(|&byte| byte == 0).any(|line| line.starts_with(of.as_bytes()))
        })
    }
}

/// The kernel: as asked for, by its file or by the name of one that was unpacked in the checkout; else the newest of
/// `/boot` that can be read, else one that was unpacked.
pub fn kernel(given: Option<&Path>, modules: Option<&Path>) -> Result<Kernel> {
    if let Some(path) = chosen(given, "PAGEFOLD_LINUX") {
        return match path.to_str().filter(|text| is_name(text) && !path.is_file()) {
            Some(name) => with_modules(unpacked(name)?, modules),
            None if path.is_file() => with_modules(path, modules),
            None => Err(Error::file("boot", &path, "there is no such file")),
        };
    }
    let installed = newest(Path::new("/boot"));
    let image = installed.or_else(|| any_of(&above(UNPACKED)?)).ok_or_else(|| {
        Error::Input(
            "there is no Linux kernel to boot: in a checkout of Pagefold, 'cargo xtask linux' unpacks one without installing \
             it; elsewhere name one with --kernel FILE --modules DIR"
                .into(),
        )
    })?;
    with_modules(image, modules)
}

/// Whether this is the name of a kernel, like 6.12 or 6.12-amd64, and no path.
pub fn is_name(text: &str) -> bool {
    let text = text.strip_suffix("-amd64").unwrap_or(text);
    text.contains('.')
        && text.split('.').all(|part| !part.is_empty() && part.chars().all(|c| c.is_ascii_digit()))
}

/// The image of the kernel with this name that was unpacked.
fn unpacked(name: &str) -> Result<PathBuf> {
    above(UNPACKED).and_then(|folder| newest(&folder.join(name).join("boot"))).ok_or_else(|| {
        Error::Input(format!(
            "Linux {name} is not unpacked: in a checkout of Pagefold, 'cargo xtask linux {name}' does that without installing \
             it; elsewhere name a kernel with --kernel FILE --modules DIR"
        ))
    })
}

/// The usual kernel of those unpacked in a folder, else the newest.
fn any_of(folder: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let images = entries.filter_map(|kernel| Some((kernel.ends_with(USUAL), newest(&kernel.join("boot"))?)));
    let rank = |(usual, image): &(bool, PathBuf)| (*usual, numbers(&version(image).unwrap_or_default()));
    images.max_by_key(rank).map(|(_, image)| image)
}

/// The newest image of a folder that can be read.
fn newest(folder: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let images = entries.filter(|path| version(path).is_some() && std::fs::File::open(path).is_ok());
    images.max_by_key(|path| numbers(&version(path).unwrap_or_default()))
}

/// The version in the name of an image.
fn version(image: &Path) -> Option<String> {
    let name = image.file_name()?.to_str()?;
    name.strip_prefix("vmlinuz-").map(str::to_owned)
}

/// A version's numbers: 6.12 is newer than 6.9.
pub fn numbers(version: &str) -> Vec<u64> {
    version.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect()
}

fn with_modules(image: PathBuf, given: Option<&Path>) -> Result<Kernel> {
    let version = version(&image).unwrap_or_else(|| image.display().to_string());
    let beside = || {
        let root = image.parent()?.parent()?;
        let folder = root.join("lib/modules").join(&version);
        folder.is_dir().then_some(folder)
    };
    let Some(folder) = given.map(Path::to_owned).or_else(beside) else {
        // Everything may be built in.
        return Ok(Kernel { image, version, modules: Vec::new(), folder: None });
    };
    if !folder.is_dir() {
        return Err(Error::file("read modules from", &folder, "there is no such folder"));
    }
    let modules = modules_of(&folder, &DRIVERS)?;
    Ok(Kernel { image, version, modules, folder: Some(folder) })
}

/// The drivers' files, with what they depend on before them.
fn modules_of(folder: &Path, drivers: &[&str]) -> Result<Vec<PathBuf>> {
    let built_in = std::fs::read_to_string(folder.join("modules.builtin")).unwrap_or_default();
    let depends = std::fs::read_to_string(folder.join("modules.dep")).unwrap_or_default();
    let mut files = Vec::new();
    walk(folder, &mut files);
    let mut modules = Vec::new();
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
    let before = Before { softdep: read("modules.softdep"), alias: read("modules.alias") };
    let known = |name: &String| {
        let is = |path: &str| name_of(path) == *name;
        depends.lines().filter_map(|line| line.split_once(':')).any(|(file, _)| is(file))
    };
    let drivers = drivers.iter().flat_map(|driver| {
        let wanted = before.of(driver).into_iter().filter(known);
        wanted.chain([(*driver).to_owned()]).collect::<Vec<String>>()
    });
    for driver in drivers {
        let is = |path: &str| name_of(path) == driver;
        if built_in.lines().any(is) {
            continue;
        }
        // Only depmod lists what a module needs; it has not run for a package that was just unpacked.
        if let Some((file, needs)) =
            depends.lines().filter_map(|line| line.split_once(':')).find(|(f, _)| is(f))
        {
            let needed = needs.split_whitespace().rev().chain([file]).map(|file| folder.join(file));
            modules.extend(needed);
            continue;
        }
        let file = files.iter().find(|path| path.to_str().is_some_and(is)).ok_or_else(|| {
            Error::Input(format!(
                "{}: the kernel's module {driver} is missing, and it is not built in; choose another kernel with --kernel FILE \
                 --modules DIR ('cargo xtask linux' unpacks one)",
                folder.display()
            ))
        })?;
        modules.push(file.clone());
    }
    let mut seen = BTreeSet::new();
    modules.retain(|module| seen.insert(module.clone()));
    Ok(modules)
}

/// What modules want to be there before them without using it: ext4 asks for its checksum by the name of the algorithm.
struct Before {
    softdep: String,
    alias: String,
}

impl Before {
    /// The modules that one wants.
    fn of(&self, driver: &str) -> Vec<String> {
        let wanted = self.softdep.lines().filter_map(|line| {
            let (name, all) = line.strip_prefix("softdep ")?.split_once(" pre: ")?;
            (name == driver).then_some(all)
        });
        let module = |name: &str| {
            let mut lines =
                self.alias.lines().filter_map(|line| line.strip_prefix("alias ")?.split_once(' '));
            lines.find(|(alias, _)| *alias == name).map_or(name, |(_, module)| module).replace('-', "_")
        };
        wanted.flat_map(str::split_whitespace).map(module).collect()
    }
}

/// A module's name, which file names spell with either dash.
fn name_of(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split(".ko").next().unwrap_or(file).replace('-', "_")
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().filter_map(|entry| entry.ok()) {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => walk(&entry.path(), files),
            Ok(kind) if kind.is_file() && entry.path().to_string_lossy().contains(".ko") => {
                files.push(entry.path());
            }
            _ => {}
        }
    }
}

/// The guest's first process: as `PAGEFOLD_LINUX_INIT` says, or what was built in the checkout.
pub fn init() -> Result<PathBuf> {
    let found = chosen(None, "PAGEFOLD_LINUX_INIT").or_else(|| above(INIT));
    found.filter(|path| path.is_file()).ok_or_else(|| {
        Error::Input(format!(
            "the guest's first process is missing: in a checkout of Pagefold, 'cargo xtask linux' builds {INIT}; elsewhere name \
             it with PAGEFOLD_LINUX_INIT"
        ))
    })
}

/// The program that makes file systems.
pub fn mke2fs() -> Result<PathBuf> {
    installed("mke2fs")
        .ok_or_else(|| Error::Input("mke2fs is missing; on Debian: apt-get install e2fsprogs".into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn touch(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }

    #[test]
    fn the_newest_kernel_is_taken_with_its_modules() {
        let scratch = tempfile::tempdir().unwrap();
        for name in ["vmlinuz-6.9.3-amd64", "vmlinuz-6.12.1-amd64", "config-7"] {
            touch(&scratch.path().join("boot").join(name));
        }
        let image = newest(&scratch.path().join("boot")).unwrap();
        assert!(image.ends_with("vmlinuz-6.12.1-amd64"));
        let modules = scratch.path().join("lib/modules/6.12.1-amd64");
        fs::create_dir_all(&modules).unwrap();
        let missing = with_modules(image.clone(), None).unwrap_err();
        assert!(missing.to_string().contains("virtio_pci is missing"), "{missing}");
        fs::write(modules.join("modules.builtin"), "kernel/drivers/virtio/virtio_pci.ko\n").unwrap();
        let blk = modules.join("kernel/drivers/block/virtio_blk.ko.xz");
        touch(&blk);
        touch(&modules.join("kernel/fs/ext4/ext4.ko.xz"));
        let plain = with_modules(image.clone(), None).unwrap();
        assert_eq!(plain.modules, [blk.clone(), modules.join("kernel/fs/ext4/ext4.ko.xz")]);
        fs::write(
            modules.join("modules.dep"),
            "fs/ext4/ext4.ko.xz: fs/jbd2.ko.xz lib/crc16.ko.xz\nlib/crc16.ko.xz:\n",
        )
        .unwrap();
        fs::write(modules.join("modules.softdep"), "softdep ext4 pre: crypto-crc32c\n").unwrap();
        fs::write(modules.join("modules.alias"), "alias crypto-crc32c crc16\n").unwrap();
        let Kernel { modules: found, version, .. } = with_modules(image, None).unwrap();
        let expected =
            ["lib/crc16.ko.xz", "fs/jbd2.ko.xz", "fs/ext4/ext4.ko.xz"].map(|name| modules.join(name));
        assert_eq!((&found[1..], version.as_str()), (&expected[..], "6.12.1-amd64"));
    }

    #[test]
    fn what_is_built_in_has_its_parameters_listed() {
        let scratch = tempfile::tempdir().unwrap();
        let of = |text: &str| {
            fs::write(scratch.path().join("modules.builtin.modinfo"), text).unwrap();
            Kernel { folder: Some(scratch.path().into()), ..Kernel::with_drivers("vmlinuz", "6.12", &[]) }
        };
        let listed = of("virtio.license=GPL\0zswap.parm=enabled:bool\0");
        assert!(listed.has_builtin("zswap") && !listed.has_builtin("swap"));
        assert!(!of("virtio.license=GPL\0virtio.zswap.x=1\0").has_builtin("zswap"));
        assert!(Kernel::with_drivers("vmlinuz", "6.12", &[]).has_builtin("zswap"));
    }

    #[test]
    fn the_usual_kernel_of_several_is_taken() {
        let scratch = tempfile::tempdir().unwrap();
        let image = |name: &str, version: &str| {
            let path = scratch.path().join(name).join("boot").join(format!("vmlinuz-{version}"));
            touch(&path);
            path
        };
        let newer = image("7.3", "7.3.4+deb13-cloud-amd64");
        assert_eq!(any_of(scratch.path()), Some(newer));
        let usual = image("6.12", "6.12.117-cloud-amd64");
        assert_eq!(any_of(scratch.path()), Some(usual));
    }

    #[test]
    fn kernels_have_names_that_are_no_paths() {
        assert!(is_name("6.12") && is_name("7.3.4") && is_name("6.12-amd64"));
        assert!(["vmlinuz-6.12", "6.12/vmlinuz", "6", "6.", ""].iter().all(|text| !is_name(text)));
        let message = kernel(Some(Path::new("1.0")), None).unwrap_err().to_string();
        assert!(message.contains("cargo xtask linux 1.0"), "{message}");
    }

    #[test]
    fn what_is_missing_is_said_with_its_remedy() {
        let message = kernel(Some(Path::new("no/such")), None).unwrap_err().to_string();
        assert!(message.contains("no/such"), "{message}");
    }
}
