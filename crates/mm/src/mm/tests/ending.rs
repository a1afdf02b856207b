//! A space ends while another CPU works on its pages: a walk that finds the space through them must find its tables,
//! too.

use super::*;
use crate::event::Event;
use crate::frame::FolioRun;
use std_alloc::boxed::Box;
use std_alloc::sync::Arc;

const AT: Vpn = Vpn(0x5000);
const PAGES: u64 = 4;

/// A memory manager with a space that has all pages of a file and as many of its own, all of them present. A kernel
/// task on CPU 1 uses its tables.
#[cfg_attr(
    feature = "one-thread",
    expect(clippy::arc_with_non_send_sync, reason = "it is Send and Sync except with one-thread")
)]
fn bench() -> (Arc<Mm<TestMachine>>, SpaceId) {
    let mm = with_swap(TestMachine::simple(2, 4096), 64);
    let file = mm.create_file(FileKind::Shmem, PAGES * PAGE_SIZE);
    let space = mm.create_space(ROOT).unwrap();
    let shown = Backing::File { file, offset: PageIndex(0), shared: true, writable: true };
    for (at, backing) in [(AT, shown), (Vpn(AT.0 + PAGES), Backing::Anonymous)] {
        mm.mmap(space, &request(at, PAGES, backing)).unwrap();
    }
    mm.machine().run_on(1);
    mm.switch(Some(space));
    for page in (AT.0..AT.0 + 2 * PAGES).map(Vpn) {
        assert!(mm.fault(space, page, AccessKind::Store).is_ok());
    }
    mm.switch(None);
    mm.machine().run_on(0);
    (Arc::new(mm), space)
}

#[test]
fn reverse_map_walk_is_safe_against_exit() {
    let (mm, space) = bench();
    // It stays mapped, so the walk visits all spaces that map its file.
    let other = mm.fork(space).unwrap();
    mm.fault(other, AT, AccessKind::Load).unwrap();
    let page = mm.core.tables.lock(mm.mmu(), other).find(AT).unwrap().entry.pfn();
    let looking = mm.clone();
    *mm.machine().watcher.lock() = Some(Box::new(move |_, event, _| {
        if event == Event::MmPageFree {
            let [_] = looking.core.rmap.referenced(&looking.core, FolioRun::one(&page), None, None);
        }
    }));
    mm.exit_space(space);
    *mm.machine().watcher.lock() = None;
    assert!(mm.machine().events(Event::MmPageFree) > 0, "pages must be freed during the walk");
    assert_eq!(mm.validate(), Ok(()));
}

/// Exit waits for the reaper: otherwise the id could be reused while the reaper works on the space.
#[cfg(not(any(feature = "one-thread", feature = "loom", feature = "shuttle")))]
#[test]
fn exit_waits_for_the_reaper() {
    use std::sync::mpsc::channel;
    use std::time::Duration;
    let (mm, space) = bench();
    let (told, ended) = channel();
    let begun = std::sync::Mutex::new(Some(told));
    let early = Arc::new(std::sync::Mutex::new(None));
    let seen = early.clone();
    let ended = std::sync::Mutex::new(ended);
    let exit = mm.clone();
    mm.machine().run_on(1);
    mm.switch(Some(space));
    mm.machine().run_on(0);
    *mm.machine().flushed.lock() = Some(Box::new(move |_| {
        let Some(told) = begun.lock().unwrap().take() else { return };
        let exit = exit.clone();
        std::thread::spawn(move || {
            exit.exit_space(space);
            told.send(()).unwrap();
        });
        // Exit has plenty of time to overtake.
        *seen.lock().unwrap() = Some(ended.lock().unwrap().recv_timeout(Duration::from_millis(200)).is_ok());
    }));
    assert!(mm.spaces.kill(&mm.core, space));
    assert_eq!(*early.lock().unwrap(), Some(false), "exit must wait for the reaper, which must flush");
    while mm.spaces.get(space).is_some() {
        std::thread::yield_now();
    }
}

#[test]
fn dontneed_flushes_what_a_concurrent_call_cleared() {
    use crate::machine::Scope;
    let (mm, space) = bench();
    mm.machine().run_on(0);
    mm.switch(Some(space));
    mm.machine().run_on(1);
    mm.switch(Some(space));
    let page = Vpn(AT.0 + PAGES);
    let pfn = mm.core.tables.lock(mm.mmu(), space).find(page).unwrap().entry.pfn();
    mm.machine().hold(page, pfn, true);
    mm.machine().run_on(0);
    let other = mm.clone();
    let begun = core::sync::atomic::AtomicBool::new(false);
    *mm.machine().entered.lock() = Some(Box::new(move |machine, scope| {
        if scope == Scope::TlbFinishMmu && !begun.swap(true, core::sync::atomic::Ordering::Relaxed) {
            machine.run_on(1);
            other.madvise(space, page, 1, Advice::DontNeed).unwrap();
            assert!(
                machine.held(CpuId(1), page).is_none(),
                "CPU 1 still reads the page after its own MADV_DONTNEED"
            );
            machine.run_on(0);
        }
    }));
    mm.madvise(space, page, 1, Advice::DontNeed).unwrap();
}

/// A process with a page of its own and 2 MiB of shmem, of which one page is in memory. khugepaged would collapse them.
#[cfg_attr(
    feature = "one-thread",
    expect(clippy::arc_with_non_send_sync, reason = "it is Send and Sync except with one-thread")
)]
fn collapsible() -> (Arc<Mm<TestMachine>>, SpaceId) {
    let mm = with_swap(TestMachine::simple(2, 4096), 64);
    let file = mm.create_file(FileKind::Shmem, LARGE * PAGE_SIZE);
    let space = mm.create_space(ROOT).unwrap();
    let shown = Backing::File { file, offset: PageIndex(0), shared: true, writable: true };
    for (at, pages, backing) in [(AT, 1, Backing::Anonymous), (LARGE_AT, LARGE, shown)] {
        mm.mmap(space, &request(at, pages, backing)).unwrap();
        mm.fault(space, at, AccessKind::Store).unwrap();
    }
    (Arc::new(mm), space)
}

/// The daemon runs whenever the end of the process has just flushed.
#[test]
fn khugepaged_leaves_a_process_that_ends() {
    use crate::machine::Scope;
    let (mm, space) = collapsible();
    let daemon = mm.clone();
    *mm.machine().entered.lock() = Some(Box::new(move |machine, scope| {
        if scope == Scope::TlbFinishMmu {
            machine.run_on(1);
            daemon.spaces.scan_from_start(&daemon.core);
            machine.run_on(0);
        }
    }));
    mm.exit_space(space);
    *mm.machine().entered.lock() = None;
    let left = [Stat::ThpCollapseAlloc, Stat::NrMapped, Stat::NrPageTablePages];
    assert_eq!(left.map(|stat| mm.mmu().stats.read(stat)), [0; 3]);
    assert_eq!(mm.validate(), Ok(()));
}

/// It would take memory for a process that was killed to free some.
#[test]
fn khugepaged_leaves_a_killed_process() {
    for killed in [false, true] {
        let (mm, space) = collapsible();
        assert!(!killed || mm.spaces.kill(&mm.core, space));
        mm.spaces.scan_from_start(&mm.core);
        assert_eq!(mm.mmu().stats.read(Stat::ThpCollapseAlloc), i64::from(!killed));
    }
}
