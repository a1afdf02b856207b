use super::flusher::{flusher, write_background, write_older_than};
use super::*;
use crate::cache::tests::{check, disk_file, store, while_waiting, write};
use crate::knobs::Knob;
use crate::machine::{WaitKey, Work};
use crate::primitive::Ordering::Relaxed;
use std_alloc::boxed::Box;
use std_alloc::vec::Vec;

#[test]
fn fsync_writes_in_order_and_waits() {
    let core = store(4096, 8);
    let file = disk_file(&core, 100, 50);
    let state = Writeback::default();
    for index in [30, 7, 19, 8] {
        write(&core, file, index * PAGE_SIZE, PAGE_SIZE, index);
    }
    write_chosen(&core, file, 0..MAX_INDEX, u64::MAX, Wait::Never);
    let blocks: Vec<u64> = core.machine.ios.lock().iter().map(|io| io.block).collect();
    assert_eq!(blocks, [107, 108, 119, 130]);
    // Dirty the page again while its older content is being written.
    write(&core, file, 8 * PAGE_SIZE, PAGE_SIZE, 80);
    check(&core);
    sync_range(&core, &state, file, PageIndex(0), PageIndex(u64::MAX));
    assert!(core.machine.ios.lock().is_empty());
    assert_eq!(core.machine.block(DeviceId(0), 108), 80);
    let stats = [Stat::NrDirty, Stat::NrWriteback, Stat::NrDirtied, Stat::NrWritten, Stat::PgpgOut];
    assert_eq!(stats.map(|stat| core.stats.read(stat)), [0, 0, 5, 5, 20]);
    check(&core);
}

#[test]
fn flusher_writes_oldest_files_first_down_to_the_background_threshold() {
    let core = store(4096, 8);
    let background = limits(&core).background;
    let files = [0, 5000, 10000].map(|block| disk_file(&core, block, 0));
    for (file, pages) in files.into_iter().zip([background * 2 / 5; 3]) {
        core.machine.advance(1000);
        write(&core, file, 0, pages * PAGE_SIZE, 1);
    }
    write_background(&core);
    let dirty = files.map(|file| core.cache.is_dirty(file));
    assert_eq!(dirty, [false, true, true]);
    check(&core);
    let youngest = core.cache.file(files[2]).dirtied_at().unwrap();
    write_older_than(&core, youngest - 1);
    assert_eq!(files.map(|file| core.cache.is_dirty(file)), [false, false, true]);
    assert_eq!(core.cache.file(files[1]).dirtied_at(), None);
    check(&core);
}

/// The flusher checked, and went to sleep, before other tasks exceeded the threshold.
#[test]
fn writer_wakes_the_flusher_each_time_too_much_is_dirty() {
    let core = store(4096, 8);
    let state = Writeback::default();
    let file = disk_file(&core, 0, 0);
    write(&core, file, 0, (limits(&core).dirty + 40) * PAGE_SIZE, 1);
    // The flusher of this test writes when it is woken for the second time.
    while_waiting(&core, |core| {
        assert!(core.machine.now() < 1_000_000_000, "the writer must wake the flusher again");
        if core.machine.ticket(WaitKey::Flusher).mark > 1 {
            write_older_than(core, Nanos::MAX);
        }
    });
    balance_dirty(&core, &state, file);
    assert!(!core.cache.is_dirty(file) && core.stats.read(Stat::NrWriteback) <= limits(&core).dirty as i64);
}

/// The stop comes while the flusher waits for a device, and does not come again.
#[test]
fn flusher_stops_after_waiting_for_a_device() {
    let core = store(4096, 8);
    core.knobs.set(Knob::DirtyWritebackCentisecs, 0).unwrap();
    let file = disk_file(&core, 0, 0);
    write(&core, file, 0, PAGE_SIZE, 1);
    core.cache.want_flusher(&core);
    *core.machine.submitted.lock() = Some(Box::new(|machine| machine.stops.store(true, Relaxed)));
    flusher(&core, &Writeback::default());
    assert_eq!(core.machine.work(Work::IoSubmit), 1);
}

#[test]
fn writer_waits_until_the_device_has_caught_up() {
    let core = store(4096, 8);
    let state = Writeback::default();
    let file = disk_file(&core, 0, 0);
    let limits = limits(&core);
    write(&core, file, 0, (limits.dirty + 40) * PAGE_SIZE, 1);
    write_older_than(&core, Nanos::MAX);
    assert!(core.stats.read(Stat::NrWriteback) > limits.freerun() as i64);
    balance_dirty(&core, &state, file);
    assert!(core.stats.read(Stat::NrWriteback) <= limits.dirty as i64);
    check(&core);
}

/// Pages whose blocks follow each other cost one request; each page that is left out ends one.
#[test]
fn pages_in_a_row_are_written_by_one_request() {
    let core = store(4096, 8);
    let file = disk_file(&core, 0, 0);
    write(&core, file, 0, 100 * PAGE_SIZE, 1);
    let requests = || (core.machine.work(Work::IoSubmit), core.machine.work(Work::IoComplete));
    let sync = || sync_range(&core, &Writeback::default(), file, PageIndex(0), PageIndex(1000));
    sync();
    assert_eq!((requests(), core.stats.read(Stat::NrWritten)), ((1, 1), 100));
    write(&core, file, 0, 30 * PAGE_SIZE, 2);
    write(&core, file, 31 * PAGE_SIZE, 30 * PAGE_SIZE, 2);
    sync();
    assert_eq!((requests(), core.stats.read(Stat::NrWritten)), ((3, 3), 160));
    check(&core);
}

const SECOND: Nanos = 1_000_000_000;
/// Times at which the tests begin: nothing depends on how long the machine has run.
const UPTIMES: [Nanos; 3] = [0, SECOND, 3600 * SECOND];

/// The file is written faster than the device is.
#[test]
fn writers_wait_at_any_time() {
    for uptime in UPTIMES {
        let core = store(1 << 14, 8);
        core.machine.set_clock(uptime);
        let file = disk_file(&core, 0, 0);
        let queue = QUEUE_PAGES as u64;
        write(&core, file, 0, 2 * queue * PAGE_SIZE, 1);
        write_older_than(&core, Nanos::MAX);
        let written = core.stats.read(Stat::NrWriteback) as u64;
        assert!((queue / 2..queue + LOOK_EVERY).contains(&written), "{written} pages are being written");
        // Too much is dirty until most of these writes have ended.
        write(&core, file, 2 * queue * PAGE_SIZE, (limits(&core).dirty - queue / 4) * PAGE_SIZE, 1);
        assert!(balance_dirty(&core, &Writeback::default(), file), "the writer must sleep");
        let dirty = [Stat::NrDirty, Stat::NrWriteback].map(|stat| core.stats.read(stat) as u64);
        assert!(dirty[0] + dirty[1] <= limits(&core).dirty, "{dirty:?}");
        check(&core);
    }
}

/// All dirty pages are being written already, with an older content.
#[test]
fn flusher_sleeps_until_pages_can_be_written_again() {
    for uptime in UPTIMES {
        let core = store(4096, 8);
        core.machine.set_clock(uptime);
        let file = disk_file(&core, 0, 0);
        let bytes = (limits(&core).background + 40) * PAGE_SIZE;
        write(&core, file, 0, bytes, 1);
        write_older_than(&core, Nanos::MAX);
        write(&core, file, 0, bytes, 2);
        let rounds = AtomicU32::new(0);
        *core.machine.entered.lock() = Some(Box::new(move |_, scope| {
            let round = if scope == Scope::DoWritepages { rounds.fetch_add(1, Relaxed) } else { 0 };
            assert!(round < 10_000, "the flusher must sleep");
        }));
        write_background(&core);
        assert!(core.stats.read(Stat::NrDirty) as u64 <= limits(&core).background);
        check(&core);
    }
}

/// `vm.dirty_expire_centisecs` is 30 s, and `vm.dirty_writeback_centisecs` 5 s.
#[test]
fn flusher_writes_pages_once_they_are_old() {
    for uptime in UPTIMES {
        let core = store(4096, 8);
        core.machine.set_clock(uptime);
        let file = disk_file(&core, 0, 0);
        write(&core, file, 0, PAGE_SIZE, 1);
        *core.machine.submitted.lock() = Some(Box::new(move |machine| {
            let age = (machine.now() - uptime) / SECOND;
            assert!((30..=35).contains(&age), "a page is written after {age} s");
        }));
        *core.machine.idle.lock() = Some(Box::new(move |machine| {
            machine.stops.store(machine.now() > uptime + 60 * SECOND, Relaxed);
        }));
        flusher(&core, &Writeback::default());
        assert_eq!((core.cache.is_dirty(file), core.machine.block(DeviceId(0), 0)), (false, 1));
        check(&core);
    }
}

#[test]
fn flusher_without_an_interval_leaves_old_pages_dirty() {
    let core = store(4096, 8);
    core.knobs.set(Knob::DirtyWritebackCentisecs, 0).unwrap();
    let file = disk_file(&core, 0, 0);
    write(&core, file, 0, PAGE_SIZE, 1);
    core.machine.advance(3600 * SECOND);
    *core.machine.idle.lock() = Some(Box::new(|machine| {
        machine.stops.store(true, Relaxed);
        machine.wake(WaitKey::Flusher);
    }));
    flusher(&core, &Writeback::default());
    assert!(core.cache.is_dirty(file));
    assert_eq!(core.machine.now(), 3600 * SECOND, "the flusher must sleep without an end");
}

/// The folios have four pages, and nothing is dirty any more.
#[test]
fn fsync_waits_for_each_large_folio() {
    let core = store(4096, 8);
    core.knobs.set(Knob::FileMaxOrder, 2).unwrap();
    let file = disk_file(&core, 0, 0);
    write(&core, file, 0, 16 * PAGE_SIZE, 1);
    write_older_than(&core, Nanos::MAX);
    assert_eq!(core.machine.ios.lock().len(), 4);
    sync_range(&core, &Writeback::default(), file, PageIndex(0), PageIndex(16));
    assert_eq!((core.machine.ios.lock().len(), core.stats.read(Stat::NrWriteback)), (0, 0));
    check(&core);
}
