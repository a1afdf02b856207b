//! Ctrl-C and the signals that ask a process to end, or the flag of a caller.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, LazyLock};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::caller::Caller;
use crate::error::{Error, Result};

static REQUESTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Make Ctrl-C, SIGTERM and SIGHUP only set a flag, because an emulator that was started must be ended first. The
/// second such signal ends the process at once.
///
/// The handlers themselves set the flag. If a thread did that for them, a recorded program that ends by the same
/// Ctrl-C could be seen to end before the flag is set, and would be taken for one that failed by itself.
pub fn install() -> Result<()> {
    // A caller's signals are its own.
    if Caller::current().is_some() {
        return Ok(());
    }
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // The order matters: the first signal finds the flag unset.
        flag::register_conditional_shutdown(signal, 130, REQUESTED.clone())
            .and_then(|_| flag::register(signal, REQUESTED.clone()))
            .map_err(|error| Error::Failed(format!("cannot watch for signal {signal}: {error}")))?;
    }
    Ok(())
}

/// Whether an interrupt was requested.
pub fn requested() -> bool {
    flag().load(SeqCst)
}

/// The flag that is true once an interrupt was requested.
pub fn flag() -> Arc<AtomicBool> {
    Caller::current().map_or_else(|| REQUESTED.clone(), |caller| caller.stops())
}
