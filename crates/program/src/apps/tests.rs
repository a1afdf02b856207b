//! Applications on a system that only notes which pages they touch.

use super::*;
use crate::{Access, Advice, Errno, FileAdvice, FileSpec, Map, MapSource, Prot, Remap, TaskHandle};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

/// Tasks run one after the other, so barriers need not hold them up.
#[derive(Default)]
struct Notes {
    /// Names of files; a descriptor is its place.
    files: Vec<String>,
    /// Where files are mapped: the file by the range's start, with its length.
    mapped: BTreeMap<u64, (u64, u32)>,
    waiting: Vec<Role>,
    anonymous: BTreeSet<u64>,
    cached: BTreeSet<(u32, u64)>,
    progress: u64,
    task: u64,
}

impl Notes {
    fn file(&mut self, fd: u32, offset: u64, len: u64) -> Result<u64, Errno> {
        self.cached.extend((offset / PAGE..(offset + len).div_ceil(PAGE)).map(|page| (fd, page)));
        Ok(len)
    }
}

impl Os for Notes {
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

    // What no application here calls.
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
    fn fadvise(&mut self, _: u32, _: u64, _: u64, _: FileAdvice) -> Result<(), Errno> {
        Err(Errno::NoSys)
    }
}

fn notes(app: &App) -> Notes {
    let mut notes = Notes { waiting: [0].into(), ..Notes::default() };
    while let Some(role) = notes.waiting.pop() {
        notes.task += 1;
        app.run(&mut notes, role).unwrap();
    }
    notes
}

#[test]
fn applications_touch_the_footprint_that_they_promise() {
    // A desktop's programs wait for each other; programs in groups, and processes with models, have the same addresses.
    let others = ["desktop", "two-groups", "many-groups", "llama"];
    for row in TABLE.iter().filter(|row| !others.contains(&row.name)) {
        for (mib, threads) in [(16, None), (16, Some(7)), (3, Some(2))] {
            let ask = Ask { bytes: mib << 20, threads, law: None, writes: None };
            let app = from_name(row.name, ask).unwrap().unwrap();
            let notes = notes(&app);
            let touched = (notes.anonymous.len() + notes.cached.len()) as u64 * PAGE;
            let promised = app.footprint();
            let asked = promised * 100 / (mib << 20);
            assert!((75..=101).contains(&asked), "{}:{mib}M: {promised} bytes promised", row.name);
            let share = touched * 100 / promised;
            assert!((85..=105).contains(&share), "{}:{mib}M, {threads:?}: {touched} of {promised}", row.name);
        }
    }
}
