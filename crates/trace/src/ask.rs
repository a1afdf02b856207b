//! What `image.rs` asks the kernel; the plugin has a module of that name, too.

use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, accessat, getxattr};

/// The user whose rights this process has.
pub fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The group whose rights this process has.
pub fn group() -> u32 {
    rustix::process::getegid().as_raw()
}

/// Whether this process may execute the file.
pub fn may_execute(path: &Path) -> bool {
    accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS).is_ok()
}

/// Whether the file has capabilities.
pub fn has_capabilities(path: &Path) -> bool {
    // No room for the value asks for its length.
    getxattr(path, "security.capability", &mut [0u8; 0][..]).is_ok_and(|length| length > 0)
}
