use super::flusher::{flusher, write_background, write_older_than};
use super::*;
use crate::cache::tests::{check, disk_file, store, write};
use crate::knobs::Knob;
use std_alloc::vec::Vec;

#[test]
fn fsync_writes_in_order_and_waits() {
    let st = store(4096, 8);
    let file = disk_file(&st, 100, 50);
    let state = Writeback::default();
    for index in [30, 7, 19, 8] {
        write(&st, file, index * PAGE_SIZE, PAGE_SIZE, index);
    }
    write_chosen(&st, file, 0..MAX_INDEX, u64::MAX, Wait::Never);
    let blocks: Vec<u64> = st.machine.pending().iter().map(|io| io.block).collect();
    assert_eq!(blocks, [107, 108, 119, 130]);
    // Dirty again while the older state is under way.
    write(&st, file, 8 * PAGE_SIZE, PAGE_SIZE, 80);
    check(&st);
    sync_range(&st, &state, file, PageIndex(0), PageIndex(u64::MAX));
    assert!(st.machine.pending().is_empty());
    assert_eq!(st.machine.block(DeviceId(0), 108), 80);
    let stats = [Stat::NrDirty, Stat::NrWriteback, Stat::NrDirtied, Stat::NrWritten, Stat::PgpgOut];
    assert_eq!(stats.map(|stat| st.stats.read(stat)), [0, 0, 5, 5, 20]);
    check(&st);
}

#[test]
fn the_flusher_writes_the_oldest_first_down_to_the_background_share() {
    let st = store(4096, 8);
    let background = limits(&st).background;
    let files = [0, 5000, 10000].map(|block| disk_file(&st, block, 0));
    for (file, pages) in files.into_iter().zip([background / 2, background / 2, background / 2]) {
        st.machine.advance(1000);
        write(&st, file, 0, pages * PAGE_SIZE, 1);
    }
    write_background(&st);
    let dirty = files.map(|file| st.cache.is_dirty(file));
    assert_eq!(dirty, [false, true, true]);
    check(&st);
    let youngest = st.cache.file(files[2]).dirtied_at().unwrap();
    write_older_than(&st, youngest - 1);
    assert_eq!(files.map(|file| st.cache.is_dirty(file)), [false, false, true]);
    assert_eq!(st.cache.file(files[1]).dirtied_at(), None);
    check(&st);
}

/// It is told to stop while it waits for a device, and nobody tells it again.
#[test]
fn the_flusher_does_not_sleep_through_the_end() {
    let st = store(4096, 8);
    st.knobs.set(Knob::DirtyWritebackCentisecs, 0).unwrap();
    let file = disk_file(&st, 0, 0);
    write(&st, file, 0, PAGE_SIZE, 1);
    st.cache.want_flusher(st.memory());
    st.machine.stop_at_next_transfer();
    flusher(&st, &Writeback::default());
    assert_eq!(st.machine.submitted(), 1);
}

#[test]
fn a_writer_waits_until_the_device_has_caught_up() {
    let st = store(4096, 8);
    let state = Writeback::default();
    let file = disk_file(&st, 0, 0);
    let limits = limits(&st);
    write(&st, file, 0, (limits.dirty + 40) * PAGE_SIZE, 1);
    write_older_than(&st, Nanos::MAX);
    assert!(st.stats.read(Stat::NrWriteback) > limits.freerun() as i64);
    balance_dirty(&st, &state, file);
    assert!(st.stats.read(Stat::NrWriteback) <= limits.dirty as i64);
    check(&st);
}
