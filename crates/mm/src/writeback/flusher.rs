//! The flusher daemon.

use super::limits::is_over_background;
use super::{PATIENCE, Wait, Writeback, write_chosen};
use crate::cache::tree::MAX_INDEX;
use crate::knobs::Knob;
use crate::machine::{Machine, Scope, WaitKey};
use crate::mm_core::MmCore;
use crate::primitive::Ordering::Relaxed;
use crate::units::*;

/// Pages of one file written before another file has its turn: 4 MiB.
const CHUNK_PAGES: u64 = 1024;
/// Nanoseconds in the unit of the knobs.
const CENTISECOND: Nanos = 10_000_000;

/// Write dirty pages until the machine stops.
pub fn flusher<M: Machine>(core: &MmCore<M>, state: &Writeback) {
    let mut next_round = core.machine.now() + interval(core).unwrap_or(0);
    while !core.machine.stopping() {
        let ticket = core.machine.ticket(WaitKey::Flusher);
        state.writing.store(true, Relaxed);
        if core.cache.take_request() {
            write_older_than(core, Nanos::MAX);
            core.cache.has_written(core);
        }
        write_background(core);
        let now = core.machine.now();
        let interval = interval(core);
        if let Some(interval) = interval.filter(|_| now >= next_round) {
            let expire = core.knobs.get(Knob::DirtyExpireCentisecs) * CENTISECOND;
            if let Some(before) = now.checked_sub(expire) {
                write_older_than(core, before);
            }
            next_round = now + interval;
        }
        state.writing.store(false, Relaxed);
        // The machine may have stopped while the flusher waited for a device.
        if !core.machine.stopping() {
            core.machine.wait(ticket, interval.map(|_| next_round));
        }
    }
}

/// Time between checks of the age of dirty pages; `None`: never check.
fn interval<M: Machine>(core: &MmCore<M>) -> Option<Nanos> {
    Some(core.knobs.get(Knob::DirtyWritebackCentisecs) * CENTISECOND).filter(|&interval| interval > 0)
}

/// Write files, the longest dirty first, until less than the background share is dirty.
pub(super) fn write_background<M: Machine>(core: &MmCore<M>) {
    let _scope = core.scope(Scope::WbWriteback);
    while is_over_background(core) && !core.machine.stopping() {
        let Some((file, _)) = oldest(core) else { return };
        if write_file(core, file, CHUNK_PAGES) == 0 && core.cache.is_dirty(file) {
            // All its dirty pages are being written already, with older content.
            core.cache.wait_for_a_write(core, core.machine.now() + PATIENCE);
        }
    }
}

/// Write all files that became dirty at `before` or earlier.
pub(super) fn write_older_than<M: Machine>(core: &MmCore<M>, before: Nanos) {
    let _scope = core.scope(Scope::WbWriteback);
    for file in core.cache.ids() {
        if core.cache.file(file).dirtied_at().is_some_and(|at| at <= before) {
            write_file(core, file, u64::MAX);
        }
        if core.machine.stopping() {
            return;
        }
    }
}

fn oldest<M: Machine>(core: &MmCore<M>) -> Option<(FileId, Nanos)> {
    let dirty = core.cache.ids().filter_map(|file| Some((file, core.cache.file(file).dirtied_at()?)));
    dirty.min_by_key(|&(_, at)| at)
}

/// Start writing at most `most` dirty pages of a file. Returns the number of pages started.
fn write_file<M: Machine>(core: &MmCore<M>, file: FileId, most: u64) -> u64 {
    let f = core.cache.file(file);
    let since = f.dirtied_at();
    // Pages that become dirty from now on set the time again.
    f.note_dirtied(None);
    let started = write_chosen(core, file, 0..MAX_INDEX, most, Wait::Never);
    if core.cache.is_dirty(file) {
        f.note_dirtied(since.or(Some(core.machine.now())));
    }
    started
}
