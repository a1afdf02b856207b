//! Debian's kernels by name, unpacked without installing them.
//!
//! The machine's package manager downloads them, from the mirror that it uses anyway, but with lists and settings of
//! its own in a private folder: so suites that the machine does not use can be asked, and nothing of the machine
//! changes.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Names, and the suites of Debian that have such kernels.
const KERNELS: [(&str, &[&str]); 5] = [
    ("6.1", &["bookworm"]),
    ("6.12", &["trixie", "bookworm-backports"]),
    ("6.12-amd64", &["trixie"]),
    ("7.2", &["trixie-backports", "sid"]),
    ("7.3", &["trixie-backports", "sid"]),
];
/// Suites for other names.
const SUITES: [&str; 5] = ["bookworm", "bookworm-backports", "trixie", "trixie-backports", "sid"];
/// Ends of package names, best first: Debian's kernel for virtual machines, whose needed drivers are built in or few
/// modules. The second is the same without a signature.
const KINDS: [&str; 2] = ["-cloud-amd64", "-cloud-amd64-unsigned"];
/// The kernel for computers, which is asked for by a name with this end: it has zswap.
const COMPUTERS: &str = "-amd64";
/// Ends of names of kernels that end like that and are others.
const OTHERS: [&str; 2] = ["-cloud-amd64", "-rt-amd64"];
/// Debian's keys, where Debian has them.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// A private package manager in a folder.
pub struct Apt {
    folder: PathBuf,
    config: PathBuf,
}

impl Apt {
    /// Set it up and download the lists of the suites that have these kernels.
    pub fn new(folder: &Path, kernels: &[String]) -> Result<Apt, String> {
        for part in ["state/lists/partial", "cache/archives/partial", "downloads"] {
            let path = folder.join(part);
            std::fs::create_dir_all(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        let sources = tool("apt-get", &["indextargets", "--format", TARGET, "Created-By: Packages"], None)?;
        let mirror = mirror(&sources).ok_or("the machine's package manager knows no mirror of Debian")?;
        let signed = if Path::new(KEYS).exists() { format!("[signed-by={KEYS}] ") } else { String::new() };
        let source = |suite| format!("deb {signed}{mirror} {suite} main\n");
        let apt = Apt { folder: folder.to_owned(), config: folder.join("apt.conf") };
        write(&folder.join("sources.list"), &suites(kernels).into_iter().map(source).collect::<String>())?;
        write(&apt.config, &apt.settings())?;
        apt.run("apt-get", &["update"])?;
        Ok(apt)
    }

    fn settings(&self) -> String {
        let folder = self.folder.display();
        format!(
            "Dir::State \"{folder}/state\";\nDir::Cache \"{folder}/cache\";\n\
             Dir::Etc::SourceList \"{folder}/sources.list\";\nDir::Etc::SourceParts \"/dev/null\";\n\
             Acquire::Languages \"none\";\nAcquire::IndexTargets::deb::DEP-11::DefaultEnabled \"false\";\n\
             APT::Sandbox::User \"root\";\n"
        )
    }

    fn run(&self, name: &str, args: &[&str]) -> Result<String, String> {
        tool(name, args, Some((&self.folder.join("downloads"), &self.config)))
    }

    /// Download the kernel with this name, and unpack it as `target`, with its image in `boot` and its modules in
    /// `lib/modules`. Returns the image.
    pub fn unpack(&self, kernel: &str, target: &Path) -> Result<PathBuf, String> {
        let names =
            self.run("apt-cache", &["pkgnames", &format!("linux-image-{}.", parts_of_name(kernel).0)])?;
        let package = choose(&names, kernel).ok_or_else(|| {
            format!(
                "{} have no kernel {kernel} for virtual machines",
                suites(&[kernel.to_owned()]).join(", ")
            )
        })?;
        let depends = self.run("apt-cache", &["depends", package])?;
        let parts = parts(package, &depends);
        let all: Vec<&str> = ["download", package].into_iter().chain(parts).collect();
        self.run("apt-get", &all)?;
        let (downloads, new) = (self.folder.join("downloads"), target.with_extension("new"));
        let _ = std::fs::remove_dir_all(&new);
        for archive in files(&downloads)?.iter().filter(|file| file.ends_with(".deb")) {
            let (archive, into) = (downloads.join(archive), new.display().to_string());
            tool("dpkg-deb", &["-x", &archive.display().to_string(), &into], None)?;
            let _ = std::fs::remove_file(&archive);
        }
        let image = arrange(&new)?;
        let _ = std::fs::remove_dir_all(target);
        std::fs::rename(&new, target).map_err(|error| format!("{}: {error}", target.display()))?;
        Ok(target.join("boot").join(image))
    }
}

/// What is asked about the machine's sources.
const TARGET: &str = "$(REPO_URI) $(RELEASE) $(ORIGIN)";

/// The mirror of Debian among the machine's sources. Security updates have one of their own, without the suites.
fn mirror(sources: &str) -> Option<&str> {
    let of_debian = |line: &&str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.first().is_some_and(|uri| uri.trim_end_matches('/').ends_with("/debian"))
            || words.get(1).is_some_and(|suite| SUITES.contains(suite)) && words.last() == Some(&"Debian")
    };
    sources.lines().find(of_debian)?.split_whitespace().next()
}

/// The suites to ask for these kernels.
fn suites(kernels: &[String]) -> Vec<&'static str> {
    let of =
        |kernel: &String| KERNELS.iter().find(|(name, _)| name == kernel).map_or(&SUITES[..], |row| row.1);
    SUITES.into_iter().filter(|suite| kernels.iter().any(|kernel| of(kernel).contains(suite))).collect()
}

/// The version in a kernel's name, and the kinds that it may be of.
fn parts_of_name(kernel: &str) -> (&str, &'static [&'static str]) {
    match kernel.strip_suffix(COMPUTERS) {
        Some(version) => (version, &[COMPUTERS]),
        None => (kernel, &KINDS),
    }
}

/// The newest package of the best kind.
fn choose<'a>(names: &'a str, kernel: &str) -> Option<&'a str> {
    let (version, kinds) = parts_of_name(kernel);
    let start = format!("linux-image-{version}.");
    let is = |name: &str, kind: &str| {
        let kind_is = |end: &str| name.ends_with(end);
        name.starts_with(&start) && kind_is(kind) && (kind != COMPUTERS || !OTHERS.into_iter().any(kind_is))
    };
    let newest = |kind: &&str| names.lines().filter(|name| is(name, kind)).max_by_key(|name| numbers(name));
    kinds.iter().find_map(newest)
}

/// The numbers in a name: 6.12.117 is newer than 6.12.9.
fn numbers(name: &str) -> Vec<u64> {
    name.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect()
}

/// The packages that a kernel's image and modules are in besides its own, which newer ones are divided into: those of
/// the same version.
fn parts<'a>(package: &str, depends: &'a str) -> Vec<&'a str> {
    let version = package.trim_start_matches("linux-image-");
    let needed = depends.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    needed.filter(|name| name.starts_with("linux-") && name.ends_with(version)).collect()
}

/// Put everything where it was before packages were divided and `/usr` merged. Returns the image's name.
fn arrange(root: &Path) -> Result<String, String> {
    let moved = |from: &Path, to: &Path| {
        if let Some(parent) = to.parent() {
            std::fs::create_dir_all(parent).map_err(|error| format!("{}: {error}", parent.display()))?;
        }
        std::fs::rename(from, to).map_err(|error| format!("{}: {error}", from.display()))
    };
    let modules = root.join("lib/modules");
    let merged = root.join("usr/lib/modules");
    if merged.is_dir() && !modules.is_dir() {
        moved(&merged, &modules)?;
    }
    let version = files(&modules)?.pop().ok_or("the package has no modules")?;
    let name = format!("vmlinuz-{version}");
    let image = root.join("boot").join(&name);
    if !image.is_file() {
        moved(&modules.join(&version).join("vmlinuz"), &image)?;
    }
    // What modules need is known only afterwards.
    let root = root.display().to_string();
    let depmod = ["depmod", "/usr/sbin/depmod", "/sbin/depmod"];
    let tried = depmod.iter().map(|depmod| tool(depmod, &["-b", &root, &version], None));
    tried
        .into_iter()
        .find(Result::is_ok)
        .unwrap_or(Err("depmod is missing; on Debian: apt-get install kmod".into()))?;
    Ok(name)
}

/// Names of a folder's files, in order.
fn files(folder: &Path) -> Result<Vec<String>, String> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    Ok(names)
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Run a tool, in a folder with a private package manager's settings if they are given; returns its standard output, or
/// its complaint.
fn tool(name: &str, args: &[&str], with: Option<(&Path, &Path)>) -> Result<String, String> {
    let mut command = Command::new(name);
    command.args(args).stdin(Stdio::null());
    if let Some((folder, config)) = with {
        command.current_dir(folder).env("APT_CONFIG", config);
    }
    let output = command.output().map_err(|error| format!("cannot run {name}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{name} {} failed: {}", args.join(" "), said.lines().next().unwrap_or("it said nothing")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_kernel_for_virtual_machines_is_chosen() {
        let names = "linux-image-6.12.9+deb12-cloud-amd64-unsigned\nlinux-image-6.12.118+deb13-amd64\n\
                     linux-image-6.12.10+deb13-cloud-amd64\nlinux-image-6.12.9+deb13-cloud-amd64\n\
                     linux-image-6.1.0-50-cloud-amd64\n";
        assert_eq!(choose(names, "6.12"), Some("linux-image-6.12.10+deb13-cloud-amd64"));
        assert_eq!(choose(names, "6.1"), Some("linux-image-6.1.0-50-cloud-amd64"));
        assert_eq!(choose(names, "6.12-amd64"), Some("linux-image-6.12.118+deb13-amd64"));
        let unsigned = "linux-image-6.12.9+deb12-cloud-amd64-unsigned\n";
        assert_eq!(choose(unsigned, "6.12"), Some("linux-image-6.12.9+deb12-cloud-amd64-unsigned"));
        assert_eq!(choose("bash\n", "6.12"), None);
    }

    #[test]
    fn the_packages_of_a_divided_kernel_are_those_of_its_version() {
        let depends = "linux-image-7.3.4-cloud-amd64\n  PreDepends: linux-base\n |Depends: dracut\n\
                       \x20 Depends: linux-base-7.3.4-cloud-amd64\n  Depends: linux-binary-7.3.4-cloud-amd64\n\
                       \x20 Breaks: linux-old-7.3.4-cloud-amd64\n";
        let found = parts("linux-image-7.3.4-cloud-amd64", depends);
        assert_eq!(found, ["linux-base-7.3.4-cloud-amd64", "linux-binary-7.3.4-cloud-amd64"]);
    }

    #[test]
    fn the_machines_own_mirror_is_asked_for_the_suites_of_the_kernels() {
        let sources = "https://deb.nodesource.com/node_20.x/ nodistro Node Source\n\
                       http://mirror.org/debian-security/ bookworm-security Debian\n\
                       http://mirror.org/pub/debian/ bookworm Debian\n";
        assert_eq!(mirror(sources), Some("http://mirror.org/pub/debian/"));
        assert_eq!(mirror("http://127.0.0.1/cache/ trixie Debian\n"), Some("http://127.0.0.1/cache/"));
        assert_eq!(mirror("http://archive.ubuntu.com/ubuntu/ noble Ubuntu\n"), None);
        let of =
            |names: &[&str]| suites(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<String>>());
        assert_eq!(of(&["6.1", "7.2"]), ["bookworm", "trixie-backports", "sid"]);
        assert_eq!(of(&["6.16"]), SUITES);
    }

    #[test]
    fn images_and_modules_are_put_where_they_always_were() {
        let root = std::env::temp_dir().join(format!("pagefold-arrange-{}", std::process::id()));
        let modules = root.join("usr/lib/modules/7.3.4-cloud-amd64");
        std::fs::create_dir_all(modules.join("kernel")).unwrap();
        std::fs::write(modules.join("vmlinuz"), "image").unwrap();
        // Without depmod the rest is done, too.
        let _ = arrange(&root);
        let image = std::fs::read_to_string(root.join("boot/vmlinuz-7.3.4-cloud-amd64"));
        let there = root.join("lib/modules/7.3.4-cloud-amd64/kernel").is_dir();
        std::fs::remove_dir_all(&root).unwrap();
        assert!(image.is_ok_and(|text| text == "image") && there);
    }
}
