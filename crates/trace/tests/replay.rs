//! Replay against a system that only keeps books: tasks are real threads, so order between them is up to chance
//! unless the replay keeps it.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use abi::{AccessKind, Buffer, Call};
use pagefold_trace::event::{Event, FileId, Packed, Run, ThreadId};
use pagefold_trace::header::Place;
use pagefold_trace::{Outcome, Reader, Replay, Writer};
use program::{
    Access, Advice, Errno, FileAdvice, FileSpec, Group, GroupLimits, Map, MapSource, Os, Program, Prot,
    Remap, Role, Signal, TaskHandle,
};

const PAGE: u64 = 4096;
/// A page on which the system kills the task that uses it.
const DEADLY: u64 = 666;

/// What all tasks share.
#[derive(Default)]
struct World {
    /// Mapped pages by process.
    mapped: Vec<BTreeSet<u64>>,
    /// By role, what was called.
    log: HashMap<Role, Vec<String>>,
    progress: u64,
    /// Where was written, in order.
    writes: Vec<u64>,
    files: HashMap<String, u64>,
    /// Tasks that were not joined. The starting task does not wait for them at its end: a task that waits for it
    /// would wait for them, too.
    left: Vec<JoinHandle<()>>,
}

struct Books {
    world: Arc<Mutex<World>>,
    program: Arc<Replay<Reader>>,
    process: usize,
    role: Role,
    tasks: Vec<Option<JoinHandle<()>>>,
}

impl Books {
    fn log(&self, line: String) {
        self.world.lock().unwrap().log.entry(self.role).or_default().push(line);
    }

    fn start(&mut self, role: Role, process: usize) -> TaskHandle {
        let (world, program) = (Arc::clone(&self.world), Arc::clone(&self.program));
        let task = std::thread::spawn(move || run_task(world, program, process, role));
        self.tasks.push(Some(task));
        TaskHandle(self.tasks.len() as u32 - 1)
    }
}

fn run_task(world: Arc<Mutex<World>>, program: Arc<Replay<Reader>>, process: usize, role: Role) {
    let mut os = Books { world, program: Arc::clone(&program), process, role, tasks: Vec::new() };
    let ended = program.run(&mut os, role);
    assert!(matches!(ended, Ok(()) | Err(Signal::Kill)), "{ended:?}");
    let left = std::mem::take(&mut os.tasks).into_iter().flatten();
    os.world.lock().unwrap().left.extend(left);
}

impl Os for Books {
    fn access(&mut self, access: Access) -> Result<(), Signal> {
        std::thread::yield_now();
        self.log(format!("{:?} {:x} x{}", access.mode, access.addr / PAGE, access.count));
        if access.addr / PAGE == DEADLY {
            return Err(Signal::Kill);
        }
        let world = self.world.lock().unwrap();
        let known = world.mapped[self.process].contains(&(access.addr / PAGE));
        if known { Ok(()) } else { Err(Signal::Segv { addr: access.addr }) }
    }
    fn first_content(&mut self, addr: u64, packed: Packed) {
        self.log(format!("first {:x} {}", addr / PAGE, packed.lz4));
    }
    fn compute(&mut self, instructions: u64) {
        self.log(format!("compute {instructions}"));
    }
    fn mmap(&mut self, map: Map) -> Result<u64, Errno> {
        let addr = map.addr.unwrap();
        let kind = match map.source {
            MapSource::Anonymous => "anon".into(),
            MapSource::AnonymousShared => "shared".into(),
            MapSource::File { fd, offset, shared } => format!("fd{fd}+{offset:x} {shared}"),
        };
        self.log(format!("mmap {:x} {:x} {kind}", addr / PAGE, map.len));
        self.world.lock().unwrap().mapped[self.process].extend(addr / PAGE..(addr + map.len).div_ceil(PAGE));
        Ok(addr)
    }
    fn munmap(&mut self, addr: u64, len: u64) -> Result<(), Errno> {
        self.log(format!("munmap {:x} {len:x}", addr / PAGE));
        let range = addr / PAGE..(addr + len).div_ceil(PAGE);
        self.world.lock().unwrap().mapped[self.process].retain(|page| !range.contains(page));
        Ok(())
    }
    fn mprotect(&mut self, addr: u64, len: u64, prot: Prot) -> Result<(), Errno> {
        self.log(format!("mprotect {:x} {len:x} {}", addr / PAGE, prot.contains(Prot::WRITE)));
        Ok(())
    }
    fn mremap(&mut self, remap: Remap) -> Result<u64, Errno> {
        self.log(format!("mremap {remap:?}"));
        Ok(remap.fixed.unwrap_or(remap.addr))
    }
    fn madvise(&mut self, addr: u64, len: u64, advice: Advice) -> Result<(), Errno> {
        self.log(format!("madvise {:x} {len:x} {advice:?}", addr / PAGE));
        Ok(())
    }
    fn never_defer_flushes(&mut self, _: bool) {}
    fn group_create(&mut self, parent: Group, limits: GroupLimits) -> Result<Group, Errno> {
        self.log(format!("group_create {} {}", parent.0, limits.max));
        // Another number than the trace's.
        Ok(Group(40 + parent.0))
    }
    fn group_limit(&mut self, group: Group, limits: GroupLimits) -> Result<(), Errno> {
        self.log(format!("group_limit {} {}", group.0, limits.low));
        Ok(())
    }
    fn group_enter(&mut self, group: Group) -> Result<(), Errno> {
        self.log(format!("group_enter {}", group.0));
        Ok(())
    }
    fn group_remove(&mut self, group: Group) -> Result<(), Errno> {
        self.log(format!("group_remove {}", group.0));
        Ok(())
    }

    fn mlock(&mut self, _: u64, _: u64) -> Result<(), Errno> {
        Err(Errno::NoMem)
    }
    fn munlock(&mut self, _: u64, _: u64) -> Result<(), Errno> {
        Ok(())
    }
    fn msync(&mut self, addr: u64, len: u64) -> Result<(), Errno> {
        self.log(format!("msync {:x} {len:x}", addr / PAGE));
        Ok(())
    }
    fn open(&mut self, spec: FileSpec<'_>) -> Result<u32, Errno> {
        self.log(format!("open {} {} {}", spec.name, spec.size, spec.in_memory));
        let mut world = self.world.lock().unwrap();
        let fd = world.files.len() as u32;
        world.files.insert(spec.name.to_owned(), spec.size);
        Ok(fd)
    }
    fn close(&mut self, fd: u32) -> Result<(), Errno> {
        self.log(format!("close {fd}"));
        Ok(())
    }
    fn pread(&mut self, fd: u32, offset: u64, len: u64) -> Result<u64, Errno> {
        self.log(format!("pread {fd} {offset} {len}"));
        Ok(len)
    }
    fn pwrite(&mut self, fd: u32, offset: u64, len: u64) -> Result<u64, Errno> {
        self.log(format!("pwrite {fd} {offset} {len}"));
        self.world.lock().unwrap().writes.push(offset);
        Ok(len)
    }
    fn fsync(&mut self, fd: u32) -> Result<(), Errno> {
        self.log(format!("fsync {fd}"));
        Ok(())
    }
    fn ftruncate(&mut self, fd: u32, size: u64) -> Result<(), Errno> {
        self.log(format!("ftruncate {fd} {size}"));
        Ok(())
    }
    fn fadvise(&mut self, fd: u32, _: u64, _: u64, advice: FileAdvice) -> Result<(), Errno> {
        self.log(format!("fadvise {fd} {advice:?}"));
        Ok(())
    }
    fn spawn(&mut self, role: Role) -> Result<TaskHandle, Errno> {
        self.log(format!("spawn {role}"));
        Ok(self.start(role, self.process))
    }
    fn fork(&mut self, role: Role) -> Result<TaskHandle, Errno> {
        self.log(format!("fork {role}"));
        let child = {
            let mut world = self.world.lock().unwrap();
            let copy = world.mapped[self.process].clone();
            world.mapped.push(copy);
            world.mapped.len() - 1
        };
        Ok(self.start(role, child))
    }
    fn join(&mut self, task: TaskHandle) {
        self.log("join".into());
        self.tasks[task.0 as usize].take().unwrap().join().unwrap();
    }
    fn sleep(&mut self, nanos: u64) {
        std::thread::sleep(std::time::Duration::from_nanos(nanos));
    }
    fn barrier(&mut self, _: u32, _: u32) {}
    fn now(&self) -> u64 {
        0
    }
    fn cpus(&self) -> u32 {
        1
    }
    fn memory(&self) -> u64 {
        1 << 30
    }
    fn seed(&self) -> u64 {
        0
    }
    fn progress(&mut self, units: u64) {
        self.world.lock().unwrap().progress += units;
    }
}

fn play(replay: &Arc<Replay<Reader>>) -> (World, Outcome) {
    let world = Arc::new(Mutex::new(World { mapped: vec![BTreeSet::new()], ..World::default() }));
    run_task(Arc::clone(&world), Arc::clone(replay), 0, 0);
    let next = || world.lock().unwrap().left.pop();
    while let Some(task) = next() {
        task.join().unwrap();
    }
    (Arc::into_inner(world).unwrap().into_inner().unwrap(), replay.outcome())
}

fn store(page: u64, count: u32) -> Event {
    Event::Run(Run { page, count, mode: AccessKind::Store })
}

fn map(epoch: u64, page: u64, pages: u64, source: MapSource) -> Event {
    Event::mapped(epoch, page * PAGE, Map { source, ..Map::anonymous(pages * PAGE) })
}

fn pread(file: FileId, offset: u64, len: u64) -> Event {
    Event::call(Call::Pread(file.0, Buffer::anywhere(len), offset))
}

fn pwrite(file: FileId, offset: u64, len: u64) -> Event {
    Event::call(Call::Pwrite(file.0, Buffer::anywhere(len), offset))
}

fn replay_of(path: &Path, build: impl FnOnce(&mut Writer)) -> Arc<Replay<Reader>> {
    let mut writer = Writer::create(path, "test", &[], 3).unwrap();
    build(&mut writer);
    writer.finish().unwrap();
    Arc::new(Replay::open(path).unwrap())
}

#[test]
fn a_thread_makes_the_calls_that_were_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let replay = replay_of(&folder.path().join("calls.pft"), |writer| {
        let file = writer.add_file("/var/x.db", 5000, Place::Regular);
        let shm = writer.add_file("/dev/shm/y", 0, Place::Memory);
        let root = writer.add_process(None);
        let shared = MapSource::File { fd: file.0, offset: PAGE, shared: true };
        for event in [
            map(1, 100, 4, MapSource::Anonymous),
            store(100, 7),
            Event::Compute { instructions: 33 },
            Event::opened(file),
            Event::opened(file),
            map(2, 200, 2, shared),
            pread(file, 10, 20),
            pwrite(shm, 0, 20),
            Event::change(3, Call::Ftruncate(shm.0, 4)),
            Event::call(Call::Fsync(file.0)),
            Event::call(Call::Close(file.0)),
            Event::call(Call::Close(file.0)),
            store(999, 5),
            store(200, 1),
            Event::call(Call::Mlock(0, 1)),
            Event::Skip { epoch: 4 },
            Event::change(5, Call::Munmap(100 * PAGE, 4 * PAGE)),
        ] {
            writer.push(root, &event).unwrap();
        }
    });
    assert_eq!((replay.name(), replay.footprint()), ("calls", 5 * PAGE));
    for _ in 0..2 {
        let (world, outcome) = play(&replay);
        let expected = "mmap 64 4000 anon; Store 64 x7; compute 33; open x.db 5000 false; \
            mmap c8 2000 fd0+1000 true; pread 0 10 20; open y 0 true; pwrite 1 0 20; ftruncate 1 4; fsync 0; \
            close 0; Store 3e7 x5; Store c8 x1; munmap 64 4000";
        assert_eq!(world.log[&0].join("; "), expected);
        assert_eq!((world.progress, outcome.accesses, outcome.skipped), (8, 8, 5));
        assert_eq!(outcome.first_skipped, Some((ThreadId(0), 999 * PAGE)));
        assert_eq!(outcome.failed_calls, 1);
        assert_eq!(outcome.first_failed, Some((ThreadId(0), "mlock", Errno::NoMem)));
        assert_eq!((outcome.killed, outcome.broken), (0, None));
    }
}

/// Before anything else happens in it, each process is told what its pages will hold.
#[test]
fn files_that_were_there_before_are_those_with_content() {
    let folder = tempfile::tempdir().unwrap();
    let replay = replay_of(&folder.path().join("files.pft"), |writer| {
        writer.add_file("/var/x.db", 5000, Place::Regular);
        writer.add_file("/var/new", 0, Place::Regular);
        writer.add_file("/dev/shm/y", 4096, Place::Memory);
        writer.add_process(None);
    });
    let files: Vec<_> = replay.files().map(|file| (file.name, file.size, file.in_memory)).collect();
    assert_eq!(files, [("x.db", 5000, false), ("y", 4096, true)]);
}

#[test]
fn pages_are_told_of_before_their_first_store() {
    let folder = tempfile::tempdir().unwrap();
    let replay = replay_of(&folder.path().join("contents.pft"), |writer| {
        let root = writer.add_process(None);
        let packed = |lz4| Packed { lz4, zstd: 2 };
        for event in [
            map(1, 100, 4, MapSource::Anonymous),
            store(100, 1),
            Event::Content { page: 100, packed: packed(9) },
            Event::Content { page: 101, packed: packed(8) },
            Event::Content { page: 100, packed: packed(7) },
        ] {
            writer.push(root, &event).unwrap();
        }
    });
    let (world, _) = play(&replay);
    let expected = "first 64 9; first 65 8; mmap 64 4000 anon; Store 64 x1";
    assert_eq!(world.log[&0].join("; "), expected);
}

/// A thread that waits for what a killed one would have done ends, and the trace is not at fault.
#[test]
fn who_waits_for_a_killed_thread_ends() {
    let folder = tempfile::tempdir().unwrap();
    let replay = replay_of(&folder.path().join("killed.pft"), |writer| {
        let root = writer.add_process(None);
        let other = writer.add_thread(root);
        writer.push(root, &Event::call(Call::Spawn(other.0))).unwrap();
        writer.push(root, &store(DEADLY, 1)).unwrap();
        writer.push(root, &map(1, 100, 1, MapSource::Anonymous)).unwrap();
        writer.push(other, &Event::Sync { epoch: 1 }).unwrap();
        writer.push(other, &store(100, 1)).unwrap();
    });
    let (_, outcome) = play(&replay);
    assert_eq!((outcome.killed, outcome.broken), (1, None));
}

#[test]
fn groups_have_the_machines_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let replay = replay_of(&folder.path().join("groups.pft"), |writer| {
        let root = writer.add_process(None);
        let (group, below) = (Group(7), Group(3));
        let limits = GroupLimits { max: 100, low: 5, ..GroupLimits::default() };
        let made = |group: Group, parent| {
            let call = Call::GroupCreate(parent, limits);
            Event::Call { epoch: 0, call, value: group.0.into() }
        };
        for event in [
            made(group, Group::ROOT),
            made(below, group),
            Event::call(Call::GroupLimit(group, limits)),
            Event::call(Call::GroupEnter(below)),
            Event::call(Call::GroupEnter(Group::ROOT)),
            Event::call(Call::GroupRemove(below)),
            Event::call(Call::GroupEnter(Group(9))),
        ] {
            writer.push(root, &event).unwrap();
        }
    });
    let (world, outcome) = play(&replay);
    let expected = "group_create 0 100; group_create 40 100; group_limit 40 5; group_enter 80; group_enter 0; \
        group_remove 80";
    assert_eq!(world.log[&0].join("; "), expected);
    assert_eq!(outcome.first_failed, Some((ThreadId(0), "group_enter", Errno::NoEnt)));
}

#[test]
fn mappings_are_there_when_another_thread_uses_them_and_not_gone_before() {
    let folder = tempfile::tempdir().unwrap();
    let replay = replay_of(&folder.path().join("order.pft"), |writer| {
        let root = writer.add_process(None);
        let other = writer.add_thread(root);
        writer.push(root, &Event::call(Call::Spawn(other.0))).unwrap();
        for round in 0..40 {
            let (first, page) = (round * 2 + 1, 1000 + round % 3);
            writer.push(root, &map(first, page, 1, MapSource::Anonymous)).unwrap();
            writer.push(other, &Event::Sync { epoch: first }).unwrap();
            for _ in 0..5 {
                writer.push(other, &store(page, 1)).unwrap();
            }
            let gone = Event::change(first + 1, Call::Munmap(page * PAGE, PAGE));
            writer.push(root, &gone).unwrap();
        }
    });
    let (world, outcome) = play(&replay);
    assert_eq!((outcome.accesses, outcome.skipped, outcome.failed_calls), (200, 0, 0));
    assert!(world.mapped[0].is_empty());
}

#[test]
fn children_inherit_and_are_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let file = FileId(0);
    let replay = replay_of(&folder.path().join("fork.pft"), |writer| {
        writer.add_file("log", 0, Place::Regular);
        let root = writer.add_process(None);
        writer.push(root, &map(1, 7, 1, MapSource::Anonymous)).unwrap();
        writer.push(root, &Event::opened(file)).unwrap();
        let child = writer.add_process(Some(root));
        writer.push(root, &Event::change(2, Call::Fork(child.0))).unwrap();
        writer.push(root, &Event::call(Call::Join(child.0))).unwrap();
        writer.push(child, &store(7, 3)).unwrap();
        writer.push(child, &pwrite(file, 0, 9)).unwrap();
        writer.push(child, &map(1, 8, 1, MapSource::Anonymous)).unwrap();
        writer.push(child, &store(8, 3)).unwrap();
    });
    let (world, outcome) = play(&replay);
    assert_eq!(world.log[&0].join("; "), "mmap 7 1000 anon; open log 0 false; fork 1; join");
    assert_eq!(world.log[&1].join("; "), "Store 7 x3; pwrite 0 0 9; mmap 8 1000 anon; Store 8 x3");
    assert_eq!((outcome.accesses, outcome.skipped), (6, 0));
}

#[test]
fn changes_that_were_lost_are_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let replay = replay_of(&folder.path().join("cut.pft"), |writer| {
        let root = writer.add_process(None);
        let other = writer.add_thread(root);
        writer.push(root, &map(1, 7, 1, MapSource::Anonymous)).unwrap();
        writer.push(root, &Event::call(Call::Spawn(other.0))).unwrap();
        // Change 2 was in a buffer that was lost.
        writer.push(root, &map(3, 8, 1, MapSource::Anonymous)).unwrap();
        writer.push(other, &Event::Sync { epoch: 3 }).unwrap();
        writer.push(other, &store(7, 1)).unwrap();
    });
    assert_eq!(replay.header().processes[0].epochs, 1);
    assert_eq!(play(&replay).1.accesses, 1);
}

#[test]
fn threads_that_wait_for_each_other_end() {
    let folder = tempfile::tempdir().unwrap();
    let skip = |epoch| Event::Skip { epoch };
    // One that waits for a change of its own; two that do so crosswise, while a parent waits for both to end.
    let alone = replay_of(&folder.path().join("alone.pft"), |writer| {
        let root = writer.add_process(None);
        [skip(2), skip(1)].iter().for_each(|event| writer.push(root, event).unwrap());
    });
    let crosswise = replay_of(&folder.path().join("crosswise.pft"), |writer| {
        let parent = writer.add_process(None);
        let first = writer.add_process(Some(parent));
        let second = writer.add_thread(first);
        let fork = Event::change(1, Call::Fork(first.0));
        [fork, Event::call(Call::Join(first.0))].iter().for_each(|event| writer.push(parent, event).unwrap());
        let spawn = Event::call(Call::Spawn(second.0));
        [spawn, skip(2), skip(3)].iter().for_each(|event| writer.push(first, event).unwrap());
        [skip(4), skip(1)].iter().for_each(|event| writer.push(second, event).unwrap());
    });
    for replay in [alone, crosswise] {
        let (_, outcome) = play(&replay);
        let why = outcome.broken.unwrap();
        assert!(
            why.contains(replay.name()) && why.contains("wait for each other") && !why.contains('\n'),
            "{why}"
        );
    }
}

#[test]
fn who_waited_for_another_waits_again() {
    let folder = tempfile::tempdir().unwrap();
    // In turn, 20 times; each of the three turns' first is the one that has slept.
    let replay = replay_of(&folder.path().join("turns.pft"), |writer| {
        let file = writer.add_file("log", 0, Place::Regular);
        let root = writer.add_process(None);
        let other = writer.add_thread(root);
        let child = writer.add_process(None);
        writer.push(root, &Event::change(0, Call::Fork(child.0))).unwrap();
        writer.push(root, &Event::call(Call::Spawn(other.0))).unwrap();
        let ring = [root, other, child];
        for turn in 0..60 {
            let (thread, next) = (ring[turn % 3], ring[(turn + 1) % 3]);
            writer.push(thread, &Event::Idle { nanos: 300_000 }).unwrap();
            writer.push(thread, &pwrite(file, turn as u64, 1)).unwrap();
            writer.push(thread, &Event::Mark).unwrap();
            writer.push(next, &Event::After { thread, mark: turn as u64 / 3 + 1 }).unwrap();
        }
    });
    let (world, outcome) = play(&replay);
    assert_eq!(world.writes, (0..60).collect::<Vec<u64>>());
    assert_eq!((outcome.failed_calls, outcome.unordered), (0, 0));
    assert_eq!(outcome.notes(), [""; 0]);
}

#[test]
fn what_never_comes_is_waited_for_until_nothing_else_can_come() {
    let folder = tempfile::tempdir().unwrap();
    let replay = replay_of(&folder.path().join("never.pft"), |writer| {
        let root = writer.add_process(None);
        let (other, never) = (writer.add_thread(root), writer.add_thread(root));
        writer.push(root, &map(1, 7, 1, MapSource::Anonymous)).unwrap();
        writer.push(root, &Event::call(Call::Spawn(other.0))).unwrap();
        writer.push(root, &Event::After { thread: never, mark: 1 }).unwrap();
        writer.push(root, &map(2, 8, 1, MapSource::Anonymous)).unwrap();
        // This thread's change has to wait for the one before.
        writer.push(other, &map(3, 9, 1, MapSource::Anonymous)).unwrap();
        writer.push(other, &store(8, 1)).unwrap();
        writer.push(never, &Event::Mark).unwrap();
    });
    let (_, outcome) = play(&replay);
    assert_eq!((outcome.accesses, outcome.unordered, &outcome.broken), (1, 1, &None));
    assert!(
        outcome.notes()[0].contains("1 times a thread of the trace was to wait"),
        "{:?}",
        outcome.notes()
    );
}
