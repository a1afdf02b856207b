//! Programs that change without pause what other tasks have mapped: a deferred flush must be paid soon.

use super::{BASE, Builtin, CHILD, PAGE, must};
use crate::rng::Rng;
use crate::{Access, AccessKind, Os, Signal};

/// Accesses to a page.
const ACCESSES: u32 = 8;
/// Children that a thread forks in one pass.
const CHILDREN: u64 = 4;

fn touch<O: Os>(os: &mut O, page: u64, mode: AccessKind) -> Result<(), Signal> {
    os.access(Access { addr: BASE + page * PAGE, count: ACCESSES, mode })
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

    /// Write the even pages of a part by pwrite and the odd ones through the shared mapping.
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

    /// Fill this thread's part; then fork children one after the other, and write a page that is shared with
    /// each.
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

    /// A child: write one page in 64 of those shared with its parent, and exit.
    pub(super) fn brief_child<O: Os>(&self, os: &mut O, thread: u32) -> Result<(), Signal> {
        let part = self.part(thread);
        os.progress((part.end - part.start).div_ceil(64));
        part.step_by(64).try_for_each(|page| touch(os, page, AccessKind::Store))
    }
}
