//! The recorded traces of the repository, replayed on a system that keeps address spaces and file sizes but no
//! pages: every access must be to memory that is mapped, with the right to it, inside its file.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, RwLock};
use std::thread::JoinHandle;

use pagefold_trace::{Reader, Replay};
use program::{
    Access, Advice, Errno, FileAdvice, FileSpec, Map, MapSource, Os, Program, Prot, Remap, Role, Signal,
    TaskHandle,
};

/// End, rights, and the file with the offset of the mapping's first byte.
type Area = (u64, Prot, Option<(u32, u64)>);

/// Mappings by their first byte.
#[derive(Clone, Default)]
struct Space(BTreeMap<u64, Area>);

impl Space {
    /// Cut `[start, end)` out and return the pieces.
    fn cut(&mut self, start: u64, end: u64) -> Vec<(u64, Area)> {
        let hit: Vec<_> =
            self.0.range(..end).filter(|(_, area)| area.0 > start).map(|(&at, &area)| (at, area)).collect();
        let mut pieces = Vec::new();
        for (at, (to, prot, file)) in hit {
            self.0.remove(&at);
            let part = |from: u64| file.map(|(file, offset)| (file, offset + (from - at)));
            if at < start {
                self.0.insert(at, (start, prot, file));
            }
            if to > end {
                self.0.insert(end, (to, prot, part(end)));
            }
            let from = at.max(start);
            pieces.push((from, (to.min(end), prot, part(from))));
        }
        pieces
    }

    fn find(&self, addr: u64) -> Option<(u64, Area)> {
        let (&at, &area) = self.0.range(..=addr).next_back()?;
        (addr < area.0).then_some((at, area))
    }
}

#[derive(Default)]
struct Files {
    numbers: HashMap<String, u32>,
    sizes: Vec<u64>,
}

#[derive(Default)]
struct World {
    files: Mutex<Files>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
    /// Tasks that have ended.
    ended: Mutex<HashSet<Role>>,
    end: Condvar,
}

struct Light {
    world: Arc<World>,
    program: Arc<Replay<Reader>>,
    space: Arc<RwLock<Space>>,
    /// The area that was used last, valid while the space has not changed.
    recent: Option<(u64, Area)>,
}

fn up(addr: u64) -> u64 {
    addr.div_ceil(4096) * 4096
}

impl Light {
    fn start(&self, space: Arc<RwLock<Space>>, role: Role) {
        let (world, program) = (Arc::clone(&self.world), Arc::clone(&self.program));
        let task = std::thread::spawn(move || {
            let mut os = Light { world, program: Arc::clone(&program), space, recent: None };
            program.run(&mut os, role).unwrap();
            os.world.ended.lock().unwrap().insert(role);
            os.world.end.notify_all();
        });
        self.world.tasks.lock().unwrap().push(task);
    }

    fn check(&mut self, access: Access) -> Result<(), Signal> {
        let (addr, wrong) = (access.addr, Signal::Segv { addr: access.addr });
        // Threads change the space under each other, so only the area's own rights are remembered between calls.
        self.recent = self.space.read().unwrap().find(addr);
        let (start, (_, prot, file)) = self.recent.ok_or(wrong)?;
        if !prot.contains(access.mode.needs()) {
            return Err(wrong);
        }
        match file {
            Some((file, offset))
                if offset + (addr - start) >= up(self.world.files.lock().unwrap().sizes[file as usize]) =>
            {
                Err(Signal::Bus { addr })
            }
            _ => Ok(()),
        }
    }
}

impl Os for Light {
    fn access(&mut self, access: Access) -> Result<(), Signal> {
        let result = self.check(access);
        if let Err(signal) = result {
            eprintln!("{signal:x?} by {access:x?}");
        }
        result
    }
    fn compute(&mut self, _: u64) {}
    fn mmap(&mut self, map: Map) -> Result<u64, Errno> {
        let addr = map.addr.ok_or(Errno::Inval)?;
        let file = match map.source {
            MapSource::File { fd, offset, .. } => Some((fd, offset)),
            _ => None,
        };
        let mut space = self.space.write().unwrap();
        space.cut(addr, up(addr + map.len));
        space.0.insert(addr, (up(addr + map.len), map.prot, file));
        Ok(addr)
    }
    fn munmap(&mut self, addr: u64, len: u64) -> Result<(), Errno> {
        self.space.write().unwrap().cut(addr, up(addr + len));
        Ok(())
    }
    fn mprotect(&mut self, addr: u64, len: u64, prot: Prot) -> Result<(), Errno> {
        let mut space = self.space.write().unwrap();
        for (at, (end, _, file)) in space.cut(addr, up(addr + len)) {
            space.0.insert(at, (end, prot, file));
        }
        Ok(())
    }
    fn mremap(&mut self, remap: Remap) -> Result<u64, Errno> {
        let mut space = self.space.write().unwrap();
        let old = space.cut(remap.addr, up(remap.addr + remap.old_len));
        let &(_, (_, prot, file)) = old.first().ok_or(Errno::Fault)?;
        let addr = remap.fixed.unwrap_or(remap.addr);
        space.cut(addr, up(addr + remap.new_len));
        space.0.insert(addr, (up(addr + remap.new_len), prot, file));
        Ok(addr)
    }
    fn madvise(&mut self, _: u64, _: u64, _: Advice) -> Result<(), Errno> {
        Ok(())
    }
    fn never_defer_flushes(&mut self, _: bool) {}

    fn mlock(&mut self, _: u64, _: u64) -> Result<(), Errno> {
        Ok(())
    }
    fn munlock(&mut self, _: u64, _: u64) -> Result<(), Errno> {
        Ok(())
    }
    fn msync(&mut self, _: u64, _: u64) -> Result<(), Errno> {
        Ok(())
    }
    fn open(&mut self, spec: FileSpec<'_>) -> Result<u32, Errno> {
        let mut files = self.world.files.lock().unwrap();
        let next = files.sizes.len() as u32;
        let number = *files.numbers.entry(spec.name.to_owned()).or_insert(next);
        if number == next {
            files.sizes.push(spec.size);
        }
        Ok(number)
    }
    fn close(&mut self, _: u32) -> Result<(), Errno> {
        Ok(())
    }
    fn pread(&mut self, fd: u32, offset: u64, len: u64) -> Result<u64, Errno> {
        let size = self.world.files.lock().unwrap().sizes[fd as usize];
        if offset + len <= size { Ok(len) } else { Err(Errno::Inval) }
    }
    fn pwrite(&mut self, fd: u32, offset: u64, len: u64) -> Result<u64, Errno> {
        let size = &mut self.world.files.lock().unwrap().sizes[fd as usize];
        *size = (*size).max(offset + len);
        Ok(len)
    }
    fn fsync(&mut self, _: u32) -> Result<(), Errno> {
        Ok(())
    }
    fn ftruncate(&mut self, fd: u32, size: u64) -> Result<(), Errno> {
        self.world.files.lock().unwrap().sizes[fd as usize] = size;
        Ok(())
    }
    fn fadvise(&mut self, _: u32, _: u64, _: u64, _: FileAdvice) -> Result<(), Errno> {
        Ok(())
    }
    fn spawn(&mut self, role: Role) -> Result<TaskHandle, Errno> {
        self.start(Arc::clone(&self.space), role);
        Ok(TaskHandle(role))
    }
    fn fork(&mut self, role: Role) -> Result<TaskHandle, Errno> {
        let copy = self.space.read().unwrap().clone();
        self.start(Arc::new(RwLock::new(copy)), role);
        Ok(TaskHandle(role))
    }
    fn join(&mut self, TaskHandle(role): TaskHandle) {
        let ended = self.world.ended.lock().unwrap();
        drop(self.world.end.wait_while(ended, |ended| !ended.contains(&role)).unwrap());
    }
    fn sleep(&mut self, _: u64) {
        std::thread::sleep(std::time::Duration::from_micros(10));
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
    fn progress(&mut self, _: u64) {}
}

fn replay(path: &Path) {
    let program = Arc::new(Replay::open(path).unwrap());
    let world = Arc::new(World::default());
    let space = Arc::default();
    let mut os = Light { world: Arc::clone(&world), program: Arc::clone(&program), space, recent: None };
    program.run(&mut os, 0).unwrap();
    loop {
        // A task may start others, so the list is taken out again until it stays empty.
        let tasks = std::mem::take(&mut *world.tasks.lock().unwrap());
        if tasks.is_empty() {
            break;
        }
        tasks.into_iter().for_each(|task| task.join().unwrap());
    }
    let outcome = program.outcome();
    // PostgreSQL holds its folder by a segment of SysV shared memory, which recordings do not have.
    let known = if path.ends_with("postgresql.pft") { 2 } else { 0 };
    assert_eq!(outcome.skipped, known, "{}: {:?}", path.display(), outcome.first_skipped);
    assert_eq!(outcome.failed_calls, 0, "{}: {:?}", path.display(), outcome.first_failed);
    assert_eq!(outcome.accesses + outcome.skipped, program.header().counts().accesses());
    let begins_late = |warning: &String| warning.starts_with("of the first ");
    assert!(program.header().warnings.iter().all(begins_late), "{:?}", program.header().warnings);
}

#[test]
fn recorded_traces_replay_without_a_fault() {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../traces"));
    let extra = std::env::var_os("PAGEFOLD_TRACE").map(PathBuf::from);
    let traces = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut count = 0;
    for path in traces.filter(|path| path.extension().is_some_and(|end| end == "pft")).chain(extra) {
        assert!(std::fs::metadata(&path).unwrap().len() <= 4 << 20, "{}: over 4 MiB", path.display());
        replay(&path);
        count += 1;
    }
    println!("{count} traces");
}
