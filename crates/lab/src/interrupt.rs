//! Ctrl-C, and signals that ask a process to end: the first asks politely, the second insists.

use crate::error::{Error, Result};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// From now on Ctrl-C, SIGTERM and SIGHUP only set a flag: what was started, an emulator for one, has to be ended
/// first. A second one ends the process at once.
pub fn install() -> Result<()> {
    ctrlc::set_handler(|| {
        if REQUESTED.swap(true, SeqCst) {
            std::process::exit(130);
        }
    })
    .map_err(|error| Error::Failed(format!("cannot watch for Ctrl-C: {error}")))
}

/// Has it been pressed?
pub fn requested() -> bool {
    REQUESTED.load(SeqCst)
}
