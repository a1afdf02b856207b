//! Tasks, waits and signals, with programs for each.

use machine_sim::{MachineSpec, RunConfig, RunError, run};
use program::{Advice, FileSpec, Map, MapSource, Os, Program, Prot, Role, Signal};

fn config(machine: &str) -> RunConfig {
    let machine = MachineSpec::preset(machine).unwrap();
    RunConfig { memory: Some(64 << 20), verify: true, validate_every_op: true, ..RunConfig::new(machine) }
}

struct Play(fn(&mut dyn Stage, Role) -> Result<(), Signal>);

/// What plays use of `Os`, as an object-safe trait, so that they can be plain functions.
trait Stage {
    fn spawn(&mut self, role: Role) -> program::TaskHandle;
    fn fork(&mut self, role: Role) -> program::TaskHandle;
    fn join(&mut self, task: program::TaskHandle);
    fn barrier(&mut self, id: u32, tasks: u32);
    fn sleep(&mut self, nanos: u64);
    fn now(&self) -> u64;
    fn map(&mut self, map: Map) -> u64;
    fn unmap(&mut self, addr: u64, len: u64);
    fn advise(&mut self, addr: u64, len: u64, advice: Advice);
    fn file(&mut self, size: u64) -> u32;
    fn cut(&mut self, fd: u32, size: u64);
    fn write(&mut self, fd: u32, offset: u64, len: u64) -> u64;
    fn load(&mut self, addr: u64) -> Result<(), Signal>;
    fn store(&mut self, addr: u64) -> Result<(), Signal>;
    fn progress(&mut self);
}

impl<O: Os> Stage for O {
    fn spawn(&mut self, role: Role) -> program::TaskHandle {
        Os::spawn(self, role).unwrap()
    }
    fn fork(&mut self, role: Role) -> program::TaskHandle {
        Os::fork(self, role).unwrap()
    }
    fn join(&mut self, task: program::TaskHandle) {
        Os::join(self, task)
    }
    fn barrier(&mut self, id: u32, tasks: u32) {
        Os::barrier(self, id, tasks)
    }
    fn sleep(&mut self, nanos: u64) {
        Os::sleep(self, nanos)
    }
    fn now(&self) -> u64 {
        Os::now(self)
    }
    fn map(&mut self, map: Map) -> u64 {
        self.mmap(map).unwrap()
    }
    fn unmap(&mut self, addr: u64, len: u64) {
        self.munmap(addr, len).unwrap()
    }
    fn advise(&mut self, addr: u64, len: u64, advice: Advice) {
        self.madvise(addr, len, advice).unwrap()
    }
    fn file(&mut self, size: u64) -> u32 {
        self.open(FileSpec { name: "f", size, in_memory: false, writable: true }).unwrap()
    }
    fn cut(&mut self, fd: u32, size: u64) {
        self.ftruncate(fd, size).unwrap()
    }
    fn write(&mut self, fd: u32, offset: u64, len: u64) -> u64 {
        self.pwrite(fd, offset, len).unwrap()
    }
    fn load(&mut self, addr: u64) -> Result<(), Signal> {
        Os::load(self, addr)
    }
    fn store(&mut self, addr: u64) -> Result<(), Signal> {
        Os::store(self, addr)
    }
    fn progress(&mut self) {
        Os::progress(self, 1)
    }
}

impl Program for Play {
    unnamed!();
    fn run<O: Os>(&self, os: &mut O, role: Role) -> Result<(), Signal> {
        (self.0)(os, role)
    }
}

#[test]
fn barriers_joins_and_sleeps_wait() {
    let play = Play(|os, role| {
        if role == 0 {
            let tasks: Vec<_> = (1..5).map(|role| os.spawn(role)).collect();
            os.barrier(7, 5);
            let met = os.now();
            tasks.into_iter().for_each(|task| os.join(task));
            assert!(met >= 4_000_000 && os.now() >= met);
        } else {
            os.sleep(role as u64 * 1_000_000);
            os.barrier(7, 5);
        }
        os.progress();
        Ok(())
    });
    for machine in ["small", "laptop"] {
        let outcome = run(&config(machine), &play).unwrap();
        assert_eq!((outcome.progress, outcome.tasks), (5, 5));
        assert!(outcome.nanos >= 4_000_000 && outcome.metric("cpu_idle").unwrap() >= 3e6);
    }
}

#[test]
fn a_signal_ends_the_process_and_not_its_parent() {
    let play = Play(|os, role| {
        if role == 0 {
            let child = os.fork(1);
            os.join(child);
            os.progress();
            return Ok(());
        }
        if role == 2 {
            os.barrier(1, 2);
            return os.load(0x1000);
        }
        let _ = os.spawn(2);
        os.load(0xdead_0000)
    });
    let outcome = run(&config("small"), &play).unwrap();
    assert_eq!(outcome.signals, ["task 3 (role 1): SIGSEGV at 0xdead0000"]);
    assert_eq!(outcome.progress, 1);
}

#[test]
fn a_deadlock_names_waiters_and_what_they_wait_for() {
    let error = run(
        &config("small"),
        &Play(|os, _| {
            os.barrier(3, 2);
            Ok(())
        }),
    );
    let Err(RunError::Failed { reason, .. }) = error else { panic!("{error:?}") };
    assert!(reason.contains("deadlock") && reason.contains("(role 0) waits for barrier 3"), "{reason}");
}

#[test]
fn truncated_and_extended_files_read_zeroes_and_raise_sigbus() {
    let play = Play(|os, _| {
        const PAGE: u64 = 4096;
        let fd = os.file(16 * PAGE);
        let source = MapSource::File { fd, offset: 0, shared: true };
        let map = Map { source, ..Map::anonymous(16 * PAGE) };
        let at = os.map(map);
        (0..16).try_for_each(|page| os.load(at + page * PAGE))?;
        (4..12).try_for_each(|page| os.store(at + page * PAGE))?;
        os.cut(fd, 6 * PAGE);
        assert_eq!(os.load(at + 6 * PAGE), Err(Signal::Bus { addr: at + 6 * PAGE }));
        assert_eq!(os.write(fd, 8 * PAGE, PAGE), PAGE);
        (0..9).try_for_each(|page| os.load(at + page * PAGE))?;
        os.progress();
        Ok(())
    });
    let outcome = run(&config("small"), &play).unwrap();
    assert_eq!((outcome.progress, outcome.signals.len()), (1, 0), "{:?}", outcome.signals);
}

#[test]
fn advice_drops_content_and_protection_holds() {
    let play = Play(|os, _| {
        let at = os.map(Map::anonymous(64 << 12));
        let read_only = os.map(Map { prot: Prot::READ, ..Map::anonymous(4096) });
        (0..64).try_for_each(|page| os.store(at + (page << 12)))?;
        os.advise(at, 16 << 12, Advice::DontNeed);
        os.advise(at + (16 << 12), 16 << 12, Advice::Free);
        os.advise(at + (32 << 12), 16 << 12, Advice::PageOut);
        (0..64).try_for_each(|page| os.load(at + (page << 12)))?;
        os.unmap(at, 32 << 12);
        assert_eq!(os.load(at), Err(Signal::Segv { addr: at }));
        assert_eq!(os.store(read_only), Err(Signal::Segv { addr: read_only }));
        os.load(read_only)?;
        os.progress();
        Ok(())
    });
    let outcome = run(&config("small"), &play).unwrap();
    assert_eq!((outcome.progress, outcome.signals.len()), (1, 0), "{:?}", outcome.signals);
}
