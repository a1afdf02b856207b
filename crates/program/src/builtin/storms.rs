//! Programs that change what others have mapped, without rest: where a flush that was put off must be paid soon.

use super::{BASE, Builtin, CHILD, PAGE, must};
use crate::rng::Rng;
use crate::{Access, AccessKind, Os, Signal};

/// Accesses to a page.
const SOME: u32 = 8;
/// Children that a thread forks in one pass.
const CHILDREN: u64 = 4;

fn touch<O: Os>(os: &mut O, page: u64, mode: AccessKind) -> Result<(), Signal> {
    os.access(Access { addr: BASE + page * PAGE, count: SOME, mode })
}

impl Builtin {
    /// Read pages of the file at random through the mapping, while a child writes this thread's part of them.
    pub(super) fn shared_writers<O: Os>(&self, os: &mut O, thread: u32) -> Result<(), Signal> {
        let child = must(os.fork(CHILD + thread))?;
        let mut rng = Rng::new(os.seed());
        let touches = self.pages() / self.threads as u64 * self.passes as u64;
        for _ in 0..touches {
            touch(os, rng.below(self.pages()), AccessKind::Load)?;
        }
        os.progress(touches);
        os.join(child);
        Ok(())
    }

    /// Write every second page of a part by pwrite, every other through the shared mapping.
    pub(super) fn shared_writer<O: Os>(&self, os: &mut O, thread: u32) -> Result<(), Signal> {
        let fd = must(os.open(self.file_spec(true)))?;
        for _ in 0..self.passes {
            for page in self.part(thread) {
                if page % 2 == 0 {
                    must(os.pwrite(fd, page * PAGE, PAGE))?;
                } else {
                    touch(os, page, AccessKind::Store)?;
                }
            }
            os.progress(self.part(thread).end - self.part(thread).start);
        }
        must(os.close(fd))
    }

    /// Fill this thread's part; then fork children one after the other, and write a page of what each shares.
    pub(super) fn fork_storm<O: Os>(&self, os: &mut O, thread: u32) -> Result<(), Signal> {
        let part = self.part(thread);
        part.clone().try_for_each(|page| touch(os, page, AccessKind::Store))?;
        os.progress(part.end - part.start);
        for _ in 0..self.passes {
            for number in 0..CHILDREN {
                let child = must(os.fork(CHILD + thread))?;
                touch(os, part.start + number, AccessKind::Store)?;
                os.join(child);
            }
        }
        Ok(())
    }

    /// A child's short life: write one page in 64 of what it shares with its parent.
    pub(super) fn short_life<O: Os>(&self, os: &mut O, thread: u32) -> Result<(), Signal> {
        let part = self.part(thread);
        os.progress((part.end - part.start).div_ceil(64));
        part.step_by(64).try_for_each(|page| touch(os, page, AccessKind::Store))
    }
}
