//! System calls, one by one.

mod hosted;

use abi::call::{Tell, unpair};
use abi::{Buffer, Call, Errno, Group, GroupLimits, Map, MapSource, Prot, Text};
use hosted::{Body, Hosted, Report, Setup, run};
use mm::Mm;
use mm::knobs::Knob;
use mm::units::FileId;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

type Syscall<'a> = &'a dyn Fn(Call<'_>) -> Result<u64, Errno>;

fn run_body(body: Body) -> Report {
    run(&Setup { body: Some(body), check: false, ..Setup::new("sequential:1048576") })
}

/// A buffer for calls that may be anywhere in memory.
fn bytes(bytes: &'static [u8]) -> Buffer {
    Buffer { addr: bytes.as_ptr().expose_provenance() as u64, len: bytes.len() as u64 }
}

fn open(call: Syscall, name: &str, size: u64, writable: bool) -> Result<(u32, u32), Errno> {
    call(Call::Open(Text::Said(name), size, false, writable)).map(unpair)
}

#[test]
fn files_are_found_by_name_and_descriptors_are_reused() {
    run_body(|call| {
        assert_eq!(open(call, "a", 8192, true), Ok((0, 0)));
        assert_eq!(open(call, "b", 8192, false), Ok((1, 1)));
        assert_eq!(open(call, "a", 1, false), Ok((2, 0)));
        assert_eq!(call(Call::Close(1)), Ok(0));
        assert_eq!(call(Call::Close(1)), Err(Errno::BadF));
        assert_eq!(open(call, "c", 0, true), Ok((1, 2)));
        assert_eq!(open(call, &"a".repeat(4096), 0, true), Err(Errno::Inval));
        assert_eq!(open(call, &"a".repeat(4095), 0, true), Ok((3, 3)));
        assert_eq!(open(call, "huge", 1 << 60, true), Err(Errno::NoSpc));
    });
}

#[test]
fn pread_returns_what_pwrite_wrote() {
    run_body(|call| {
        let (fd, _) = open(call, "a", 5000, true).unwrap();
        let (read_only, _) = open(call, "a", 0, false).unwrap();
        let text = bytes(b"across the border of two pages");
        assert_eq!(call(Call::Pwrite(read_only, text, 0)), Err(Errno::BadF));
        assert_eq!(call(Call::Pwrite(fd, text, 4090)), Ok(text.len));
        let read_back = [const { AtomicU64::new(0) }; 8];
        let buffer = Buffer { addr: read_back.as_ptr().expose_provenance() as u64, len: 64 };
        let read = |offset| call(Call::Pread(read_only, buffer, offset));
        assert_eq!(read(4090), Ok(64));
        let got: Vec<u8> = read_back.iter().flat_map(|word| word.load(SeqCst).to_ne_bytes()).collect();
        assert!(got.starts_with(b"across the border of two pages\0"));
        assert_eq!((read(4990), read(5000), read(u64::MAX)), (Ok(10), Ok(0), Ok(0)));
        assert_eq!(call(Call::Pwrite(fd, text, 1 << 50)), Err(Errno::NoSpc));
        assert_eq!(call(Call::Pwrite(fd, text, u64::MAX)), Err(Errno::Inval));
        assert_eq!(call(Call::Ftruncate(read_only, 0)), Err(Errno::Inval));
        assert_eq!(call(Call::Ftruncate(fd, 1 << 50)), Err(Errno::NoSpc));
        assert_eq!(call(Call::Ftruncate(fd, 4092)), Ok(0));
        assert_eq!((read(4090), call(Call::Fsync(fd))), (Ok(2), Ok(0)));
    });
}

/// A file may grow to the end of the blocks that it got when it was created.
#[test]
fn files_grow_to_their_last_block() {
    run_body(|call| {
        let (fd, _) = open(call, "a", 5000, true).unwrap();
        let (text, most) = (bytes(b"the last bytes"), 1 << 28);
        assert_eq!(call(Call::Pwrite(fd, text, most - text.len)), Ok(text.len));
        assert_eq!(call(Call::Pwrite(fd, text, most - text.len + 1)), Err(Errno::NoSpc));
        assert_eq!(
            (call(Call::Ftruncate(fd, most)), call(Call::Ftruncate(fd, most + 1))),
            (Ok(0), Err(Errno::NoSpc))
        );
    });
}

/// A reader holds a reference to the folio that it reads, which keeps its content but not its place in the
/// file.
#[test]
fn a_read_is_complete_if_the_file_is_truncated_during_it() {
    const LEN: u64 = 16 << 12;
    let body: Body = |call| {
        let (fd, file) = open(call, "a", 2 * LEN, true).unwrap();
        assert_eq!(FileId(file), FILE);
        let words = |first: u64| (first..first + LEN / 8).map(AtomicU64::new).collect::<Vec<_>>();
        let (written, read_back) = (words(1), words(1 << 32));
        let buffer =
            |words: &[AtomicU64]| Buffer { addr: words.as_ptr().expose_provenance() as u64, len: LEN };
        assert_eq!(call(Call::Pwrite(fd, buffer(&written), LEN)), Ok(LEN));
        assert_eq!(call(Call::Pread(fd, buffer(&read_back), LEN)), Ok(LEN));
        assert!(
            written
                .iter()
                .zip(&read_back)
                .all(|(written, read_back)| written.load(SeqCst) == read_back.load(SeqCst))
        );
        assert_eq!(call(Call::Pread(fd, buffer(&read_back), LEN)), Ok(0));
    };
    let truncate = |mm: &Mm<Hosted>| mm.ftruncate(FILE, 0).unwrap();
    // With folios of several pages.
    let knobs = vec![(Knob::FileMaxOrder, 4)];
    let setup = Setup::new("sequential:1048576");
    run(&Setup { body: Some(body), during_reads: Some(truncate), knobs, check: false, ..setup });
}

const FILE: FileId = FileId(0);

#[test]
fn invalid_ranges_and_missing_rights_are_refused() {
    run_body(|call| {
        let (fd, _) = open(call, "a", 8192, false).unwrap();
        let file = |offset, prot| {
            let source = MapSource::File { fd, offset, shared: true };
            call(Call::Mmap(Map { source, prot, ..Map::anonymous(4096) }))
        };
        assert_eq!(file(1, Prot::READ), Err(Errno::Inval));
        assert_eq!(file(0, Prot::RW), Err(Errno::Access));
        let addr = file(4096, Prot::READ).unwrap();
        assert_eq!(call(Call::Mprotect(addr, 4096, Prot::RW)), Err(Errno::Access));
        assert_eq!(call(Call::Munmap(addr + 1, 4096)), Err(Errno::Inval));
        assert_eq!(call(Call::Munmap(addr, u64::MAX)), Err(Errno::Inval));
        assert_eq!(call(Call::Munmap(addr, 4096)), Ok(0));
        assert_eq!(call(Call::Msync(addr, 4096)), Err(Errno::Fault));
        let unknown = MapSource::File { fd: 7, offset: 0, shared: false };
        assert_eq!(call(Call::Mmap(Map { source: unknown, ..Map::anonymous(4096) })), Err(Errno::BadF));
    });
}

#[test]
fn tasks_sleep_join_and_report() {
    let report = run_body(|call| {
        let before = call(Call::Now()).unwrap();
        assert_eq!(call(Call::Sleep(1_000_000)), Ok(0));
        assert!(call(Call::Now()).unwrap() >= before + 1_000_000);
        assert_eq!(call(Call::Barrier(1, 1)), Ok(0));
        assert_eq!(call(Call::Join(u32::MAX)), Ok(0));
        // Role 1 of the program touches unmapped memory, and a signal ends it.
        let (task, process) = unpair(call(Call::Fork(1)).unwrap());
        assert_eq!((call(Call::Join(task)), process), (Ok(0), 1));
        assert_eq!(call(Call::Yield()), Ok(0));
        assert_eq!(call(Call::Tell(Tell::Violation, Text::Said("nothing was wrong"))), Ok(0));
    });
    assert_eq!(report.violations, ["nothing was wrong"]);
    assert_eq!(report.signals.len(), 1);
    assert!(report.signals[0].contains("(role 1): SIGSEGV at 0x"), "{:?}", report.signals);
    assert_eq!(report.totals.tasks, 2);
}

/// A signal ends a process. Its other tasks stop waiting, make no more calls, and may panic without failing the run.
#[test]
fn tasks_of_a_process_that_dies_do_not_wait() {
    let body: Body = |call| {
        // Role 1 of the program touches unmapped memory.
        call(Call::Spawn(1)).unwrap();
        assert_eq!(call(Call::Barrier(1, 2)), Ok(0));
        assert_eq!(call(Call::Yield()), Ok(1));
        assert_eq!(call(Call::Mmap(Map::anonymous(4096))), Err(Errno::NoMem));
        assert_eq!(call(Call::Tell(Tell::Panic, Text::Said("its calls fail"))), Ok(0));
    };
    let report = run_body(body);
    assert!(report.signals[0].contains("(role 1): SIGSEGV at 0x"), "{:?}", report.signals);
    assert_eq!((report.signals.len(), report.totals.tasks), (1, 2));
}

#[test]
fn a_panic_of_a_task_that_lives_fails_the_run() {
    let body: Body = |call| {
        call(Call::Tell(Tell::Panic, Text::Said("a page is lost"))).unwrap();
    };
    let setup = Setup::new("sequential:1048576");
    let report = run(&Setup { body: Some(body), may_panic: true, check: false, ..setup });
    assert_eq!(report.panics, ["a page is lost"]);
}

/// The kernel kills the process that has the most memory, which notices that when it makes a call.
#[test]
fn a_process_that_was_chosen_notices() {
    const MOST: u64 = 9 << 20;
    const ROUNDS: usize = 100_000;
    let large: Body = |call| {
        call(Call::Fork(1)).unwrap();
        call(Call::Mmap(Map { populate: true, ..Map::anonymous(MOST) })).unwrap();
        call(Call::Barrier(1, 2)).unwrap();
        assert!((0..ROUNDS).any(|_| call(Call::Yield()) == Ok(1)));
    };
    let small: Body = |call| {
        call(Call::Barrier(1, 2)).unwrap();
        call(Call::Mmap(Map { populate: true, ..Map::anonymous(MOST / 2) })).unwrap();
        call(Call::Mmap(Map { populate: true, ..Map::anonymous(MOST / 4) })).unwrap();
    };
    let setup = Setup::new("sequential:1048576");
    let report = run(&Setup { body: Some(large), other: Some(small), swap: 0, check: false, ..setup });
    assert_eq!(report.signals.len(), 1, "{:?}", report.signals);
    assert!(report.signals[0].ends_with("SIGKILL: out of memory"), "{:?}", report.signals);
}

/// A group that the program creates has a number for a name, below the path of its parent.
#[test]
fn groups_that_a_program_creates_are_called_by_their_numbers() {
    let body: Body = |call| {
        let create = |parent| call(Call::GroupCreate(Group(parent), GroupLimits::default()));
        assert_eq!((create(Group::ROOT.0), create(1), create(3)), (Ok(2), Ok(3), Ok(4)));
    };
    let groups = vec!["web:processes=0".parse().unwrap()];
    let report = run(&Setup { body: Some(body), groups, check: false, ..Setup::new("sequential:1048576") });
    let names: Vec<&str> = report.groups.iter().map(|group| group.name.as_str()).collect();
    assert_eq!(names, ["web", "2", "web/3", "web/3/4"]);
}

#[test]
fn groups_are_created_entered_and_removed_and_knobs_are_checked() {
    run_body(|call| {
        let create = |parent| call(Call::GroupCreate(parent, GroupLimits::default()));
        assert_eq!(
            (create(Group::ROOT), create(Group(1)), create(Group(9))),
            (Ok(1), Ok(2), Err(Errno::NoEnt))
        );
        assert_eq!(call(Call::GroupEnter(Group(2))), Ok(0));
        let limits = GroupLimits { max: 1 << 20, ..GroupLimits::default() };
        let limit = |group| call(Call::GroupLimit(group, limits));
        assert_eq!(
            (limit(Group(1)), limit(Group::ROOT), limit(Group(1 << 20))),
            (Ok(0), Err(Errno::Inval), Err(Errno::NoEnt))
        );
        let remove = |group| call(Call::GroupRemove(Group(group)));
        assert_eq!((remove(2), remove(1)), (Err(Errno::Busy), Err(Errno::Busy)));
        assert_eq!(call(Call::GroupEnter(Group::ROOT)), Ok(0));
        assert_eq!((remove(2), remove(1), remove(1)), (Ok(0), Ok(0), Err(Errno::NoEnt)));
        let knob = |name, value| call(Call::SetKnob(Text::Said(name), value));
        assert_eq!((knob("vm.swappiness", 100), knob("vm.swappiness", 201)), (Ok(0), Err(Errno::Inval)));
        assert_eq!((knob("vm.none", 0), knob("tlb.unmap", 0)), (Err(Errno::NoEnt), Err(Errno::Access)));
    });
}
