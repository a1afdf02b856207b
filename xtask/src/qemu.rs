//! QEMU's user-mode emulator, which the tests of the recorder need. It is the only tool that cargo cannot bring.

use std::path::Path;
use std::process::{Command, Stdio};

const PROGRAM: &str = "qemu-x86_64";
const PACKAGE: &str = "qemu-user";

/// Is it installed?
pub fn is_there() -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(PROGRAM).is_file()))
}

/// Install it where that is possible without asking; elsewhere say which command does it. Never fails: the tests that need it
/// leave themselves out where it is missing.
pub fn provide() {
    if is_there() {
        return;
    }
    let debian = Path::new("/etc/debian_version").exists();
    if debian
        && is_root()
        && apt_get(&["update"])
        && apt_get(&["install", "-y", "--no-install-recommends", PACKAGE])
    {
        eprintln!("xtask: installed {PACKAGE}");
    }
    if !is_there() {
        eprintln!(
            "xtask: {PROGRAM} is missing, so recording is not tested; on Debian: sudo apt-get install {PACKAGE}"
        );
    }
}

fn is_root() -> bool {
    let answer = Command::new("id").arg("-u").output();
    answer.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

fn apt_get(args: &[&str]) -> bool {
    let mut command = Command::new("apt-get");
    command.args(args).env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null()).stdout(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
