//! What `pagefold linux` boots: the guest's first process, which is built, and a kernel, which is found or unpacked.
//! Nothing of Linux is installed, and nothing of it is part of the project.

use crate::built::pagefold;
use crate::kernel::{build_apart, root};
use crate::step::Step;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

const MANIFEST: &str = "crates/linux-guest/Cargo.toml";
const CONFIG: &str = "crates/linux-guest/static.toml";
/// Where the first process is built.
const TARGET: &str = "target/linux";
/// Where a package is unpacked.
const UNPACKED: &str = "target/linux/kernel";
/// Beginnings of package names, best first: the version that the memory manager is compared with, then any.
const WANTED: [&str; 2] = ["linux-image-6.12.", "linux-image-"];
/// The end of the names: Debian's kernel for virtual machines, whose needed drivers are built in or few modules.
const KIND: &str = "-cloud-amd64-unsigned";

/// What the test boots, with a text that the result must contain: counts that depend on the program alone, under both
/// policies, and a run short of memory, which must end with the same work as on the simulated machine.
const CASES: [(&str, &str); 4] = [
    ("sequential:8M --memory 200% --cpus 1", "0 missed"),
    ("sequential:8M --memory 200% --cpus 2 --profile mglru", "0 missed"),
    ("map-storm:8M --memory 200% --cpus 1", "work done: the same on both"),
    ("zipf:16M:3 --memory 50%", "work done: the same on both"),
];

/// Build the first process and find a kernel.
pub fn prepare() -> ExitCode {
    match build().and_then(|()| kernel()) {
        Ok(kernel) => {
            println!("{kernel}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("xtask: {why}; give 'pagefold linux' a kernel with --kernel FILE --modules DIR");
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), String> {
    let args = ["--manifest-path", MANIFEST, "--bin", "pagefold-init", "--features", "image"];
    build_apart(&args, CONFIG, TARGET)
        .then_some(())
        .ok_or_else(|| "the first process was not built".to_owned())
}

fn kernel() -> Result<String, String> {
    let there = readable(Path::new("/boot")).or_else(|| readable(&root().join(UNPACKED).join("boot")));
    there.map_or_else(unpack, Ok)
}

/// Run a few programs on Linux, if a kernel is available.
pub fn test() -> ExitCode {
    if let Err(why) = build() {
        eprintln!("xtask: {why}");
        return ExitCode::FAILURE;
    }
    if let Err(why) = kernel() {
        eprintln!("xtask: nothing is run on Linux: {why}");
        return ExitCode::SUCCESS;
    }
    let Some(pagefold) = pagefold() else { return ExitCode::FAILURE };
    let mut status = ExitCode::SUCCESS;
    for (case, expected) in CASES {
        let mut command = Command::new(&pagefold);
        command.arg("linux").args(case.split_whitespace()).args([
            "--runs",
            "1",
            "--quiet",
            "--timeout",
            "120",
        ]);
        let output = command.current_dir(root()).stdin(Stdio::null()).output();
        let said = output.map(|output| {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            (text(&output.stdout), text(&output.stderr))
        });
        let (result, errors) = said.unwrap_or_else(|error| (String::new(), error.to_string()));
        let good = result.contains(expected);
        println!("{} linux {case}", if good { "ok  " } else { "FAIL" });
        if !good {
            eprintln!("{result}{errors}");
            status = ExitCode::FAILURE;
        }
    }
    status
}

/// Checks of the first process that need no guest.
pub fn checks() -> Vec<Step> {
    const IMAGE: [&str; 10] = [
        "--manifest-path",
        MANIFEST,
        "--bin",
        "pagefold-init",
        "--features",
        "image",
        "--config",
        CONFIG,
        "--target-dir",
        TARGET,
    ];
    let lints = ["clippy", "--release"].into_iter().chain(IMAGE).chain(["--", "-D", "warnings"]);
    vec![
        Step::cargo("format of the Linux guest", ["fmt", "--manifest-path", MANIFEST, "--check"]),
        Step::cargo("lints of the Linux guest", lints),
        Step::xtask("programs on Linux", ["linux-test"]),
    ]
}

/// A readable kernel in a folder.
fn readable(folder: &Path) -> Option<String> {
    let entries = std::fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let is_kernel = |name: &str| name.starts_with("vmlinuz-");
    let mut kernels =
        entries.filter(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(is_kernel));
    kernels.find(|path| std::fs::File::open(path).is_ok()).map(|path| path.display().to_string())
}

/// Download Debian's package and unpack it.
fn unpack() -> Result<String, String> {
    let folder = root().join(TARGET);
    let names = output("apt-cache", &["pkgnames", "linux-image-"], &folder)?;
    let package = choose(&names)
        .ok_or("the package lists have no linux-image for virtual machines ('apt-get update' first?)")?;
    output("apt-get", &["download", package], &folder)?;
    let files = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let archive =
        files.filter_map(|entry| entry.ok()).map(|entry| entry.file_name().to_string_lossy().into_owned());
    let archive = archive.filter(|name| name.starts_with(package) && name.ends_with(".deb")).max();
    let archive = archive.ok_or_else(|| format!("apt-get download {package} left no file"))?;
    output("dpkg-deb", &["-x", &archive, "kernel"], &folder)?;
    let _ = std::fs::remove_file(folder.join(&archive));
    readable(&root().join(UNPACKED).join("boot")).ok_or_else(|| format!("{package} has no kernel"))
}

/// The newest package of the best kind.
fn choose(names: &str) -> Option<&str> {
    let newest = |start: &str| {
        let all = names.lines().filter(|name| name.starts_with(start) && name.ends_with(KIND));
        all.max_by_key(|name| numbers(name))
    };
    WANTED.iter().find_map(|start| newest(start))
}

/// The numbers in a name: 6.12.117 is newer than 6.12.9.
fn numbers(name: &str) -> Vec<u64> {
    name.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect()
}

/// Run a tool; returns its standard output, or its complaint.
fn output(tool: &str, args: &[&str], folder: &Path) -> Result<String, String> {
    let mut command = Command::new(tool);
    command.args(args).current_dir(folder).stdin(Stdio::null());
    let output = command.output().map_err(|error| format!("cannot run {tool}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{tool} {} failed: {}", args.join(" "), said.lines().next().unwrap_or("it said nothing")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_kernel_for_virtual_machines_is_chosen() {
        let names = "linux-image-6.12.9+deb12-cloud-amd64-unsigned\nlinux-image-6.12.117+deb12-amd64-unsigned\n\
                     linux-image-6.12.10+deb12-cloud-amd64-unsigned\nlinux-image-6.13.1+deb13-cloud-amd64-unsigned\n";
        assert_eq!(choose(names), Some("linux-image-6.12.10+deb12-cloud-amd64-unsigned"));
        let others = "linux-image-6.1.0-9-cloud-amd64-unsigned\nlinux-image-6.1.0-13-cloud-amd64-unsigned\n";
        assert_eq!(choose(others), Some("linux-image-6.1.0-13-cloud-amd64-unsigned"));
        assert_eq!(choose("bash\n"), None);
    }
}
