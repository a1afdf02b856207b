//! What `pagefold linux` boots: the guest's first process, which is built, and kernels, which are found or unpacked.
//! Nothing of Linux is installed, and nothing of it is part of the project.

use crate::built::pagefold;
use crate::debian::Apt;
use crate::kernel::{build_apart, root};
use crate::step::Step;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

const MANIFEST: &str = "crates/linux-guest/Cargo.toml";
const CONFIG: &str = "crates/linux-guest/static.toml";
/// Where the first process is built.
const TARGET: &str = "target/linux";
/// Where kernels are unpacked, each in a folder with its name.
const UNPACKED: &str = "target/linux/kernels";
/// Where the package manager keeps what it needs for that.
const APT: &str = "target/linux/apt";
/// The kernel that is unpacked if none is named: the memory manager is compared with it.
const USUAL: &str = "6.12";

/// What the test boots, with a text that the result must contain: counts that depend on the program alone, under both
/// policies, a run short of memory, and recorded programs short of memory and with much, one of them of processes that
/// open the same new files at the same time, which must all end with the same work as on the simulated machine.
const CASES: [(&str, &str); 7] = [
    ("sequential:8M --memory 200% --cpus 1", "0 missed"),
    ("sequential:8M --memory 200% --cpus 2 --profile mglru", "0 missed"),
    ("map-storm:8M --memory 200% --cpus 1", "work done: the same on both"),
    ("zipf:16M:3 --memory 50%", "work done: the same on both"),
    ("traces/redis.pft --memory 50%", "work done: the same on both"),
    ("traces/redis.pft --memory 200%", "work done: the same on both"),
    ("traces/pack.pft --memory 200%", "work done: the same on both"),
];

/// Build the first process, and unpack the kernels with these names, unless they are there; without names, find any.
pub fn prepare(names: &[&str]) -> ExitCode {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let found =
        build().and_then(|()| if names.is_empty() { kernel().map(|one| vec![one]) } else { kernels(&names) });
    match found {
        Ok(kernels) => {
            kernels.iter().for_each(|kernel| println!("{kernel}"));
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
    let unpacked = || {
        let folders = std::fs::read_dir(root().join(UNPACKED)).ok()?;
        best(folders.filter_map(|folder| readable(&folder.ok()?.path().join("boot"))))
    };
    let there = readable(Path::new("/boot")).or_else(unpacked);
    there.map_or_else(|| Ok(kernels(&[USUAL.to_owned()])?.remove(0)), Ok)
}

/// The images of the kernels with these names, which are unpacked unless they are there.
fn kernels(names: &[String]) -> Result<Vec<String>, String> {
    let folder = |name: &String| root().join(UNPACKED).join(name);
    let missing = |name: &&String| readable(&folder(name).join("boot")).is_none();
    let missing: Vec<String> = names.iter().filter(missing).cloned().collect();
    if !missing.is_empty() {
        std::fs::create_dir_all(root().join(APT)).map_err(|error| format!("{APT}: {error}"))?;
        let private = root().join(APT).canonicalize().map_err(|error| format!("{APT}: {error}"))?;
        let apt = Apt::new(&private, &missing)?;
        std::fs::create_dir_all(root().join(UNPACKED)).map_err(|error| format!("{UNPACKED}: {error}"))?;
        for name in &missing {
            apt.unpack(name, &folder(name))?;
        }
    }
    let image =
        |name| readable(&folder(name).join("boot")).ok_or_else(|| format!("{name}: there is no image"));
    names.iter().map(image).collect()
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
            "--boots",
            "1",
            "--quiet",
            "--timeout",
            "300",
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

/// The usual kernel of several that were unpacked, else the newest, as 'pagefold linux' takes them.
fn best(images: impl Iterator<Item = String>) -> Option<String> {
    let usual = format!("{UNPACKED}/{USUAL}/");
    images.max_by_key(|image| {
        let version = image.rsplit('/').next().unwrap_or_default().split(|c: char| !c.is_ascii_digit());
        let numbers: Vec<u64> = version.filter_map(|word| word.parse().ok()).collect();
        (image.contains(&usual), numbers)
    })
}

/// The newest readable kernel in a folder.
fn readable(folder: &Path) -> Option<String> {
    let entries = std::fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let is_kernel = |name: &str| name.starts_with("vmlinuz-");
    let kernels =
        entries.filter(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(is_kernel));
    let readable = kernels.filter(|path| std::fs::File::open(path).is_ok());
    best(readable.map(|path| path.display().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_kernel_is_taken_else_the_newest() {
        let unpacked = |name: &str, version: &str| format!("/x/{UNPACKED}/{name}/boot/vmlinuz-{version}");
        let [old, usual, new] = [("6.1", "6.1.0-50"), ("6.12", "6.12.117"), ("7.3", "7.3.4")]
            .map(|(name, version)| unpacked(name, version));
        let all = [new.clone(), usual.clone(), old.clone()];
        assert_eq!(best(all.into_iter()), Some(usual));
        assert_eq!(best([new.clone(), old].into_iter()), Some(new));
        let boot = ["/boot/vmlinuz-6.9.3", "/boot/vmlinuz-6.12.1"].map(str::to_owned);
        assert_eq!(best(boot.clone().into_iter()), Some(boot[1].clone()));
    }
}
