//! The folder of a recording's raw files, and the remains of killed recordings.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use tempfile::TempDir;

const PREFIX: &str = "pagefold-record-";
/// The file in it that a recording keeps locked while it lives.
const LOCK: &str = "lock";

/// A folder that is removed when this is dropped or, if this process is killed, by the next recording.
pub(super) struct Scratch {
    folder: TempDir,
    _lock: File,
}

impl Scratch {
    /// Make a folder in `base`.
    pub fn new(base: &Path) -> io::Result<Scratch> {
        remove_left(base);
        loop {
            let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(base)?;
            let lock = File::create(folder.path().join(LOCK))?;
            lock.lock()?;
            // Another recording may have removed the folder as a left one just before the lock was taken.
            if folder.path().join(LOCK).exists() {
                return Ok(Scratch { folder, _lock: lock });
            }
        }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Remove the folders of recordings that are gone. A folder that cannot be removed belongs to another user.
fn remove_left(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX))
            && let Ok(lock) = File::open(entry.path().join(LOCK))
            && lock.try_lock().is_ok()
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_removed_when_its_recording_is_gone() {
        let base = tempfile::tempdir().unwrap();
        let living = Scratch::new(base.path()).unwrap();
        let gone = Scratch::new(base.path()).unwrap();
        let path = gone.path().to_owned();
        // As after a kill: the lock is gone, the folder is not.
        drop(gone._lock);
        std::mem::forget(gone.folder);
        assert!(path.exists());
        let next = Scratch::new(base.path()).unwrap();
        assert!(!path.exists() && living.path().exists() && next.path().exists());
    }
}
