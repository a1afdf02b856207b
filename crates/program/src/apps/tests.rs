//! Applications on a system that only records which pages they touch.

use super::*;
use crate::{Access, Advice, Errno, FileAdvice, FileSpec, Map, MapSource, Prot, Remap, TaskHandle};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

/// Tasks run one after the other, so barriers need not block.
#[derive(Default)]
struct Recorder {
    /// Names of files; a descriptor is the index.
    files: Vec<String>,
    /// Mapped files: length and descriptor by the start of the range.
    mapped: BTreeMap<u64, (u64, u32)>,
    waiting: Vec<Role>,
    anonymous: BTreeSet<u64>,
    cached: BTreeSet<(u32, u64)>,
    progress: u64,
    task: u64,
}

impl Recorder {
    fn file(&mut self, fd: u32, offset: u64, len: u64) -> Result<u64, Errno> {
        self.cached.extend((offset / PAGE..(offset + len).div_ceil(PAGE)).map(|page| (fd, page)));
        Ok(len)
    }
}

impl Os for Recorder {
    fn access(&mut self, access: Access) -> Result<(), Signal> {
        let file = self.mapped.range(..=access.addr).next_back();
        match file.filter(|&(start, &(len, _))| access.addr < start + len) {
            Some((&start, &(_, fd))) => drop(self.file(fd, access.addr - start, 1)),
            None => drop(self.anonymous.insert(access.addr / PAGE)),
        }
        Ok(())
    }

    fn compute(&mut self, _: u64) {}

    fn mmap(&mut self, map: Map) -> Result<u64, Errno> {
        let at = map.addr.ok_or(Errno::NoSys)?;
        if let MapSource::File { fd, .. } = map.source {
            self.mapped.insert(at, (map.len, fd));
        }
        Ok(at)
    }

    fn open(&mut self, spec: FileSpec<'_>) -> Result<u32, Errno> {
        let known = self.files.iter().position(|name| name == spec.name);
        Ok(known.unwrap_or_else(|| {
            self.files.push(spec.name.into());
            self.files.len() - 1
        }) as u32)
    }

    fn pread(&mut self, fd: u32, offset: u64, len: u64) -> Result<u64, Errno> {
        self.file(fd, offset, len)
    }

    fn pwrite(&mut self, fd: u32, offset: u64, len: u64) -> Result<u64, Errno> {
        self.file(fd, offset, len)
    }

    fn spawn(&mut self, role: Role) -> Result<TaskHandle, Errno> {
        self.waiting.push(role);
        Ok(TaskHandle(role))
    }

    fn fork(&mut self, role: Role) -> Result<TaskHandle, Errno> {
        self.spawn(role)
    }

    fn now(&self) -> u64 {
        0
    }

    fn cpus(&self) -> u32 {
        4
    }

    fn memory(&self) -> u64 {
        1 << 40
    }

    fn seed(&self) -> u64 {
        self.task
    }

    fn progress(&mut self, units: u64) {
        self.progress += units;
    }

    fn close(&mut self, _: u32) -> Result<(), Errno> {
        Ok(())
    }

    fn fsync(&mut self, _: u32) -> Result<(), Errno> {
        Ok(())
    }

    fn join(&mut self, _: TaskHandle) {}
    fn barrier(&mut self, _: u32, _: u32) {}
    fn sleep(&mut self, _: u64) {}
    fn never_defer_flushes(&mut self, _: bool) {}
    fn fadvise(&mut self, _: u32, _: u64, _: u64, _: FileAdvice) -> Result<(), Errno> {
        Ok(())
    }

    // Not called by any application here.
    fn munmap(&mut self, _: u64, _: u64) -> Result<(), Errno> {
        Err(Errno::NoSys)
    }
    fn mprotect(&mut self, _: u64, _: u64, _: Prot) -> Result<(), Errno> {
        Err(Errno::NoSys)
    }
    fn mremap(&mut self, _: Remap) -> Result<u64, Errno> {
        Err(Errno::NoSys)
    }
    fn madvise(&mut self, _: u64, _: u64, _: Advice) -> Result<(), Errno> {
        Err(Errno::NoSys)
    }
    fn mlock(&mut self, _: u64, _: u64) -> Result<(), Errno> {
        Err(Errno::NoSys)
    }
    fn munlock(&mut self, _: u64, _: u64) -> Result<(), Errno> {
        Err(Errno::NoSys)
    }
    fn msync(&mut self, _: u64, _: u64) -> Result<(), Errno> {
        Err(Errno::NoSys)
    }
    fn ftruncate(&mut self, _: u32, _: u64) -> Result<(), Errno> {
        Err(Errno::NoSys)
    }
}

fn record(app: &App) -> Recorder {
    let mut recorder = Recorder { waiting: [0].into(), ..Recorder::default() };
    while let Some(role) = recorder.waiting.pop() {
        recorder.task += 1;
        app.run(&mut recorder, role).unwrap();
    }
    recorder
}

#[test]
fn applications_touch_their_footprint() {
    // A desktop's programs wait for each other. Programs in groups, and processes with models, use the same
    // addresses in each process.
    let others = ["desktop", "two-groups", "many-groups", "llama"];
    for row in TABLE.iter().filter(|row| !others.contains(&row.name)) {
        for (mib, threads) in [(16, None), (16, Some(7)), (3, Some(2))] {
            let options = AppOptions { bytes: mib << 20, threads, distribution: None, writes: None };
            let app = from_name(row.name, options).unwrap().unwrap();
            let recorder = record(&app);
            let touched = (recorder.anonymous.len() + recorder.cached.len()) as u64 * PAGE;
            let footprint = app.footprint();
            let asked = footprint * 100 / (mib << 20);
            assert!((75..=101).contains(&asked), "{}:{mib}M: a footprint of {footprint} bytes", row.name);
            let share = touched * 100 / footprint;
            assert!(
                (85..=105).contains(&share),
                "{}:{mib}M, {threads:?}: {touched} of {footprint}",
                row.name
            );
        }
    }
}
