//! The Python package: built as a wheel, installed in an environment of its own below target/, and tested there.

use crate::kernel::root;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

const MANIFEST: &str = "crates/python/Cargo.toml";
/// The packages that the tests need.
const NEEDED: &str = "crates/python/tests/requirements.txt";
const TESTS: &str = "crates/python/tests";
const SETTINGS: &str = "crates/python/pyproject.toml";
const FOLDER: &str = "target/python";

/// Build the wheel and test it. Without Python or without the packages that the tests need it says so and succeeds.
pub fn test() -> ExitCode {
    let python = match environment() {
        Ok(python) => python,
        Err(why) => {
            println!("python: skipped, because {why}");
            return ExitCode::SUCCESS;
        }
    };
    let tested = wheel(&python).and_then(|wheel| {
        run(&python, &["-m", "pip", "install", "-q", "--no-deps", "--force-reinstall", &text(&wheel)])?;
        run(&python, &["-m", "unittest", "discover", "-s", TESTS])?;
        run(&python, &["-m", "mypy.stubtest", "--mypy-config-file", SETTINGS, "pagefold._pagefold"])
    });
    match tested {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}

/// The interpreter of the environment, which is made if it is not there.
fn environment() -> Result<PathBuf, String> {
    let folder = root().join(FOLDER);
    let python = folder.join("venv/bin/python");
    let installed = folder.join("installed");
    let needed = fs::read_to_string(root().join(NEEDED)).map_err(|error| format!("{NEEDED}: {error}"))?;
    if fs::read_to_string(&installed).is_ok_and(|installed| installed == needed) && python.is_file() {
        return Ok(python);
    }
    run(Path::new("python3"), &["-m", "venv", "--clear", &text(&folder.join("venv"))])
        .map_err(|why| format!("{why}; on Debian: sudo apt-get install python3-venv"))?;
    run(
        &python,
        &["-m", "pip", "install", "-q", "--no-compile", "--disable-pip-version-check", "-r", NEEDED],
    )
    .map_err(|why| format!("{why}; it needs the package index of pip"))?;
    fs::write(&installed, needed).map_err(|error| format!("{}: {error}", installed.display()))?;
    Ok(python)
}

/// Build the wheel as tests are built; returns its path.
fn wheel(python: &Path) -> Result<PathBuf, String> {
    let out = root().join(FOLDER).join("wheel");
    // An older version would stay beside it.
    let _ = fs::remove_dir_all(&out);
    let target = root().join("target");
    let build = [
        "-m",
        "maturin",
        "build",
        "--profile",
        "dev",
        "--compatibility",
        "linux",
        "--locked",
        "-m",
        MANIFEST,
    ];
    let folders = ["--target-dir", &text(&target), "--out", &text(&out)];
    run(python, &[&build[..], &folders].concat())?;
    let entries = fs::read_dir(&out).map_err(|error| format!("{}: {error}", out.display()))?;
    let wheel = entries.filter_map(|entry| Some(entry.ok()?.path())).next();
    wheel.ok_or_else(|| format!("{}: there is no wheel", out.display()))
}

fn run(program: &Path, args: &[&str]) -> Result<(), String> {
    let line = format!("{} {}", program.display(), args.join(" "));
    let status = Command::new(program).args(args).current_dir(root()).stdin(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(format!("'{line}' failed")),
        Err(error) => Err(format!("'{line}' did not start: {error}")),
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
