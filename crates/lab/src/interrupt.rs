//! Ctrl-C and the signals that ask a process to end.

use crate::error::{Error, Result};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Make Ctrl-C, SIGTERM and SIGHUP only set a flag, because an emulator that was started must be ended first. The
/// second such signal ends the process at once.
pub fn install() -> Result<()> {
    ctrlc::set_handler(|| {
        if REQUESTED.swap(true, SeqCst) {
            std::process::exit(130);
        }
    })
    .map_err(|error| Error::Failed(format!("cannot watch for Ctrl-C: {error}")))
}

/// Whether an interrupt was requested.
pub fn requested() -> bool {
    REQUESTED.load(SeqCst)
}
