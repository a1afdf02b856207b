//! The end of a run, before its structures are validated.

use crate::{disk, sched};

/// Tasks that are left when the daemons have ended: the caller, and the task of the disks.
const LEFT: usize = 2;

/// Waits until the daemons and all transfers have ended: then nothing changes the structures, and they can be validated.
/// The first task calls this when all tasks of programs have ended.
pub fn quiesce() {
    sched::stop();
    while sched::alive() > LEFT || !disk::is_idle() {
        sched::yield_now();
    }
}
