//! What `image.rs` asks the kernel. The crate `trace` has a module of the same name.

use std::ffi::{CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

unsafe extern "C" {
    fn faccessat(folder: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int;
    fn geteuid() -> u32;
    fn getegid() -> u32;
    fn getxattr(path: *const c_char, name: *const c_char, value: *mut c_void, size: usize) -> isize;
}

/// The effective user of this process.
pub fn user() -> u32 {
    // SAFETY: the call has no precondition.
    unsafe { geteuid() }
}

/// The effective group of this process.
pub fn group() -> u32 {
    // SAFETY: the call has no precondition.
    unsafe { getegid() }
}

fn c_path(path: &Path) -> Option<CString> {
    CString::new(path.as_os_str().as_bytes()).ok()
}

/// Whether this process may execute the file.
pub fn may_execute(path: &Path) -> bool {
    const HERE: c_int = -100;
    const EXECUTE: c_int = 1;
    const EFFECTIVE: c_int = 0x200;
    // SAFETY: the path ends with a zero.
    c_path(path).is_some_and(|path| unsafe { faccessat(HERE, path.as_ptr(), EXECUTE, EFFECTIVE) == 0 })
}

/// Whether the file has capabilities.
pub fn has_capabilities(path: &Path) -> bool {
    let name = c"security.capability";
    // SAFETY: both strings end with a zero; a size of 0 asks for the length only.
    let length = |path: CString| unsafe { getxattr(path.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0) };
    c_path(path).is_some_and(|path| length(path) > 0)
}
