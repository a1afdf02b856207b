//! A program of the system's own, which runs instead of one that is part of this image: the one that was recorded.

use crate::report;
use crate::sys::{self, Code, nr};
use crate::task::RunState;
use alloc::vec::Vec;
use program::Role;

/// Where the disk with its files is mounted, which is the root that it sees.
pub const ROOT: &str = "/files";
/// What it is: the folder to run in, its path, the number of its arguments, these, and its environment. Each ends with
/// a zero.
const DESCRIPTION: &str = "/original";

/// Mount what programs expect below their root.
pub fn prepare() {
    for (device, at, kind, options) in [
        ("proc", "/files/proc", "proc", ""),
        ("dev", "/files/dev", "devtmpfs", ""),
        ("sys", "/files/sys", "sysfs", ""),
        ("shm", "/files/dev/shm", "tmpfs", "size=1024G,nr_inodes=0"),
    ] {
        if let Err(why) = sys::mount(device, at, kind, options) {
            report::failed(format_args!("{at} cannot be mounted: error {}", why.0));
        }
    }
}

/// What the program's first process runs: the program takes its place.
pub fn run(_: &'static RunState, _: u32, _: Role) {
    let why = start().err().unwrap_or(Code(0));
    report::failed(format_args!("the program cannot be started: error {}", why.0));
}

fn start() -> Result<(), Code> {
    let text = sys::read_file(DESCRIPTION)?;
    let parts: Vec<&[u8]> = text.split_inclusive(|byte| *byte == 0).collect();
    let [folder, path, count, rest @ ..] = &parts[..] else { return Err(Code(0)) };
    let text = |bytes: &[u8]| core::str::from_utf8(bytes).unwrap_or_default().trim_end_matches('\0').parse();
    let count: usize = text(count).unwrap_or(0);
    let (words, variables) = rest.split_at_checked(count).ok_or(Code(0))?;
    sys::on_path(nr::CHROOT, ROOT)?;
    // SAFETY: the folder ends with a zero.
    unsafe { sys::call(nr::CHDIR, [folder.as_ptr() as u64]) }?;
    // Errors are shown; all else is of no interest.
    let null = sys::open("/dev/null", sys::O_RDWR)?;
    for fd in [0, 1] {
        // SAFETY: nothing reads from or writes to either any more.
        unsafe { sys::call(nr::DUP2, [null.into(), fd]) }?;
    }
    sys::close(null)?;
    Err(sys::become_program(path, words, variables))
}
