//! A space ends while another CPU works on its pages: what finds the space by them must find its tables, too.

use super::*;
use crate::event::Event;
use crate::testing::TestMachine;
use std_alloc::boxed::Box;
use std_alloc::sync::Arc;
use std_alloc::vec;

const AT: Vpn = Vpn(0x5000);
const PAGES: u64 = 4;
const GROUP: GroupId = GroupId(0);

/// A memory manager with a space that has all pages of a file and as many of its own, all of them present; a kernel
/// task on CPU 1 uses its tables.
#[cfg_attr(
    feature = "one-thread",
    expect(clippy::arc_with_non_send_sync, reason = "it is both but for machines that run on one thread")
)]
fn bench() -> (Arc<Mm<TestMachine>>, SpaceId) {
    let swap = vec![SwapArea { device: DeviceId(0), pages: 64, priority: 0 }];
    let mm = Mm::new(TestMachine::simple(2, 4096), Config { swap, ..Config::default() }).unwrap();
    let file = mm.create_file(FileKind::Shmem, PAGES * PAGE_SIZE);
    let space = mm.create_space(GROUP).unwrap();
    let shown = Backing::File { file, offset: PageIndex(0), shared: true, writable: true };
    for (at, backing) in [(AT, shown), (Vpn(AT.0 + PAGES), Backing::Anonymous)] {
        let prot = Prot::READ | Prot::WRITE;
        let request =
            MapRequest { at: Some(at), pages: PAGES, prot, backing, locked: false, populate: false };
        mm.mmap(space, &request).unwrap();
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
fn a_page_is_looked_for_while_a_space_that_maps_it_ends() {
    let (mm, space) = bench();
    // It stays mapped, so it is looked for in all spaces that map its file.
    let other = mm.fork(space).unwrap();
    mm.fault(other, AT, AccessKind::Load).unwrap();
    let page = mm.core.tables.lock(mm.mmu(), other).find(AT).unwrap().entry.pfn();
    let looking = mm.clone();
    *mm.machine().watcher.lock() = Some(Box::new(move |_, event, _| {
        if event == Event::MmPageFree {
            looking.core.rmap.referenced(&looking.core, page, None, None);
        }
    }));
    mm.exit_space(space);
    *mm.machine().watcher.lock() = None;
    assert!(mm.machine().events(Event::MmPageFree) > 0, "nothing happened meanwhile");
    assert_eq!(mm.validate(), Ok(()));
}

/// Who ends waits for who takes the space apart from outside: else its number could become another's meanwhile.
#[cfg(not(any(feature = "one-thread", feature = "loom", feature = "shuttle")))]
#[test]
fn a_space_does_not_end_while_it_is_reaped() {
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
        // It has all the time that it could want to overtake.
        *seen.lock().unwrap() = Some(ended.lock().unwrap().recv_timeout(Duration::from_millis(200)).is_ok());
    }));
    assert!(mm.spaces.kill(&mm.core, space));
    assert_eq!(*early.lock().unwrap(), Some(false), "it ended in the midst, or nothing was flushed");
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
    let begun = std_alloc::rc::Rc::new(core::cell::Cell::new(false));
    *mm.machine().entered.lock() = Some(Box::new(move |machine, scope| {
        if scope == Scope::TlbFinishMmu && !begun.replace(true) {
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
