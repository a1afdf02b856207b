//! What races with page faults: a file that is cut, and shmem on its way to swap.
//!
//! The tasks are threads of one process, which all touch the same few pages; one of them cuts the file and makes it
//! longer again, or has it paged out. Work takes time meanwhile ([`Threads::dawdle`]): a CPU often stands where another
//! can overtake it.

use super::{BLOCK, Found, Shared, Task, together};
use crate::kernel::{self, FILES};
use crate::task;
use mm::api::*;
use mm::machine::Machine;
use mm::units::*;
use std::sync::Arc;

/// Pages of the file.
const PAGES: u64 = 16;
/// What each task does, in rounds.
const ROUNDS: u64 = 60;

/// Run both. The memory manager's own assertions see much of what can go wrong.
pub fn run() -> Found<String> {
    kernel::machine().dawdle(true);
    let disk = FileKind::Disk { device: FILES, block: 2 * BLOCK };
    let found = race(disk, Task::cut_or_touch).and_then(|()| race(FileKind::Shmem, Task::page_out_or_store));
    kernel::machine().dawdle(false);
    found.map(|()| "faults beside truncation and beside swapping out: fine".into())
}

fn race(kind: FileKind, act: fn(&mut Task) -> Found<()>) -> Found<()> {
    let mm = kernel::mm();
    let tasks = kernel::machine().cpus();
    let shared = Arc::new(Shared::new(mm.create_file(kind, PAGES * PAGE_SIZE), PAGES));
    let space = mm.create_space(GroupId(0)).map_err(|error| format!("create_space: {error:?}"))?;
    let first = Task::new(shared.clone(), 0, space);
    let backing = Backing::File { file: shared.file, offset: PageIndex(0), shared: true, writable: true };
    let file = first.map(None, PAGES, backing)?;
    let found = together(tasks, move |number| {
        let mut task = Task { file, ..Task::new(shared.clone(), number, space) };
        task::enter(Some(space));
        let done = act(&mut task);
        task::enter(None);
        done
    });
    mm.exit_space(space);
    found
}

impl Task {
    /// The first task cuts and stores; the others load, and give up what they have mapped. Behind the file's end they
    /// get signals.
    fn cut_or_touch(&mut self) -> Found<()> {
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
                    Err(signal) => return Err(self.wrong(&format!("an access ends in {signal:?}"))),
                }
            }
            if self.number > 0 {
                self.drop_entries()?;
            }
        }
        Ok(())
    }

    /// The first task has all paged out. Each of the others finds in its own pages what it stored last.
    fn page_out_or_store(&mut self) -> Found<()> {
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
                    return Err(self.wrong(&format!("page {page} of shmem holds {got}, not {last}")));
                }
                self.store(at, 1, round)?;
                *last = round;
            }
            self.drop_entries()?;
        }
        Ok(())
    }

    fn drop_entries(&self) -> Found<()> {
        let at = self.file;
        self.call("madvise", |mm, space| mm.madvise(space, at, PAGES, Advice::DontNeed))
    }
}
