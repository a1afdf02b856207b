//! The flusher.

use super::limits::is_over_background;
use super::{PATIENCE, Wait, Writeback, write_chosen};
use crate::cache::tree::MAX_INDEX;
use crate::knobs::Knob;
use crate::machine::{Machine, Scope, WaitKey};
use crate::primitive::Ordering::Relaxed;
use crate::store::Store;
use crate::units::*;

/// Pages of one file that are written before another has its turn: 4 MiB.
const CHUNK_PAGES: u64 = 1024;
/// Nanoseconds in the unit of the knobs.
const CENTISECOND: Nanos = 10_000_000;

/// Write dirty pages until the machine stops.
pub fn flusher<M: Machine>(st: &Store<M>, state: &Writeback) {
    let mut next_round = st.machine.now() + interval(st).unwrap_or(0);
    while !st.machine.stopping() {
        let ticket = st.machine.ticket(WaitKey::Flusher);
        state.writing.store(true, Relaxed);
        if st.cache.take_flusher_wanted() {
            write_older_than(st, Nanos::MAX);
        }
        write_background(st);
        let now = st.machine.now();
        let interval = interval(st);
        if let Some(interval) = interval.filter(|_| now >= next_round) {
            let expire = st.knobs.get(Knob::DirtyExpireCentisecs) * CENTISECOND;
            if let Some(before) = now.checked_sub(expire) {
                write_older_than(st, before);
            }
            next_round = now + interval;
        }
        state.writing.store(false, Relaxed);
        // It may have been told to stop while it waited for a device.
        if !st.machine.stopping() {
            st.machine.wait(ticket, interval.map(|_| next_round));
        }
    }
}

/// Time between looks at the age of dirty pages; `None`: never look.
fn interval<M: Machine>(st: &Store<M>) -> Option<Nanos> {
    Some(st.knobs.get(Knob::DirtyWritebackCentisecs) * CENTISECOND).filter(|&interval| interval > 0)
}

/// Write, the longest dirty files first, until less than the background share is dirty.
pub(super) fn write_background<M: Machine>(st: &Store<M>) {
    let _scope = st.scope(Scope::WbWriteback);
    while is_over_background(st) && !st.machine.stopping() {
        let Some((file, _)) = oldest(st) else { return };
        if write_file(st, file, CHUNK_PAGES) == 0 && st.cache.is_dirty(file) {
            // Its dirty pages are all being written already, in an older state.
            st.cache.wait_for_a_write(st.memory(), st.machine.now() + PATIENCE);
        }
    }
}

/// Write all files that have been dirty since `before` or longer.
pub(super) fn write_older_than<M: Machine>(st: &Store<M>, before: Nanos) {
    let _scope = st.scope(Scope::WbWriteback);
    for file in st.cache.ids() {
        if st.cache.file(file).dirtied_at().is_some_and(|at| at <= before) {
            write_file(st, file, u64::MAX);
        }
        if st.machine.stopping() {
            return;
        }
    }
}

fn oldest<M: Machine>(st: &Store<M>) -> Option<(FileId, Nanos)> {
    let dirty = st.cache.ids().filter_map(|file| Some((file, st.cache.file(file).dirtied_at()?)));
    dirty.min_by_key(|&(_, at)| at)
}

/// Start writing at most `most` dirty pages of a file.
fn write_file<M: Machine>(st: &Store<M>, file: FileId, most: u64) -> u64 {
    let f = st.cache.file(file);
    let since = f.dirtied_at();
    // Pages that become dirty from now on set the clock anew.
    f.note_dirtied(None);
    let started = write_chosen(st, file, 0..MAX_INDEX, most, Wait::Never);
    if st.cache.is_dirty(file) {
        f.note_dirtied(since.or(Some(st.machine.now())));
    }
    started
}
