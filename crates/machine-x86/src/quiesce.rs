//! The end of a run, before its structures are validated.

use crate::{disk, sched};

/// Tasks that remain when the daemons have ended: the calling one, and the disks'.
const REMAINING_TASKS: usize = 2;

/// Wait until the daemons and all transfers have ended, so that structures can be validated when nothing
/// changes them. Called by the first task, after all others have ended.
pub fn quiesce() {
    sched::stop();
    while sched::alive() > REMAINING_TASKS || !disk::is_idle() {
        sched::yield_now();
    }
}
