//! Races with page faults: truncation of a file, and swapping of shmem.
//!
//! The tasks are threads of one process, which all touch the same few pages; one of them truncates the file
//! and extends it again, or pages it out. During this, work takes time ([`Threads::set_slow`]), so that CPUs
//! often overtake each other.

use super::{BLOCK, Checked, Shared, Task, run_tasks};
use crate::kernel::{self, FILES};
use crate::task;
use mm::api::*;
use mm::machine::Machine;
use mm::units::*;
use std::sync::Arc;

/// Pages of the file.
const PAGES: u64 = 16;
/// Rounds of each task.
const ROUNDS: u64 = 60;

/// Run both races. The memory manager's own assertions notice much of what can go wrong.
pub fn run() -> Checked<String> {
    kernel::machine().set_slow(true);
    let disk = FileKind::Disk { device: FILES, block: 2 * BLOCK };
    let result =
        race(disk, Task::truncate_or_touch).and_then(|()| race(FileKind::Shmem, Task::page_out_or_store));
    kernel::machine().set_slow(false);
    result.map(|()| "faults during truncation and during swap-out: fine".into())
}

fn race(kind: FileKind, body: fn(&mut Task) -> Checked<()>) -> Checked<()> {
    let mm = kernel::mm();
    let tasks = kernel::machine().cpus();
    let shared = Arc::new(Shared::new(mm.create_file(kind, PAGES * PAGE_SIZE), PAGES));
    let space = mm.create_space(GroupId(0)).map_err(|error| format!("create_space: {error:?}"))?;
    let first = Task::new(shared.clone(), 0, space);
    let backing = Backing::File { file: shared.file, offset: PageIndex(0), shared: true, writable: true };
    let file = first.map(None, PAGES, backing)?;
    let result = run_tasks(tasks, move |number| {
        let mut task = Task { file, ..Task::new(shared.clone(), number, space) };
        task::enter(Some(space));
        let result = body(&mut task);
        task::enter(None);
        result
    });
    mm.exit_space(space);
    result
}

impl Task {
    /// The first task truncates and stores; the others load, and drop their mappings. Accesses beyond the
    /// file's end raise signals.
    fn truncate_or_touch(&mut self) -> Checked<()> {
        let file = self.shared.file;
        for _ in 0..ROUNDS {
            if self.number == 0 {
                let keep = self.below(PAGES) * PAGE_SIZE;
                self.call("ftruncate", |mm, _| mm.ftruncate(file, keep))?;
                self.call("ftruncate", |mm, _| mm.ftruncate(file, PAGES * PAGE_SIZE))?;
            }
            for _ in 0..4 {
                let page = Vpn(self.file.0 + self.below(PAGES));
                let access = if self.number == 0 { AccessKind::Store } else { AccessKind::Load };
                match self.reach(page, 1, access, 1) {
                    Ok(_) | Err(FaultError::Bus) => {}
                    Err(signal) => return Err(self.failure(&format!("an access ends in {signal:?}"))),
                }
            }
            if self.number > 0 {
                self.unmap_pages()?;
            }
        }
        Ok(())
    }

    /// The first task pages everything out. Each of the others checks that its own pages hold what it stored
    /// last.
    fn page_out_or_store(&mut self) -> Checked<()> {
        let mut stored = [0; PAGES as usize];
        let others = kernel::machine().cpus() as u64 - 1;
        for round in 1..=ROUNDS {
            if self.number == 0 {
                let at = self.file;
                self.call("madvise", |mm, space| mm.madvise(space, at, PAGES, Advice::PageOut))?;
                continue;
            }
            for page in (self.number - 1..PAGES).step_by(others as usize) {
                let (at, last) = (Vpn(self.file.0 + page), &mut stored[page as usize]);
                let got = self.load(at, 1)?;
                if got != *last {
                    return Err(self.failure(&format!("page {page} of shmem holds {got}, not {last}")));
                }
                self.store(at, 1, round)?;
                *last = round;
            }
            self.unmap_pages()?;
        }
        Ok(())
    }

    fn unmap_pages(&self) -> Checked<()> {
        let at = self.file;
        self.call("madvise", |mm, space| mm.madvise(space, at, PAGES, Advice::DontNeed))
    }
}
