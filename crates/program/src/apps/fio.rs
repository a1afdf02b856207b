//! fio with buffered random reads: jobs that each read blocks of a file of their own by read(2).

use super::Ask;
use super::parts::{Heap, Job, PAGE, open, part, pieces, read};
use crate::keys::{Keys, Law};
use crate::rng::Rng;
use crate::{AccessKind, Os, Signal};
use alloc::format;

/// Barrier at which all jobs begin.
const BEGIN: u32 = 2;
/// fio's default block.
pub(super) const BLOCK: u64 = PAGE;
/// Reads for each page of the files. fio is run for a time; this is a guess of about as much.
pub(super) const READS: u64 = 8;
/// Bytes of a read of the pass that lays the file out.
const CHUNK: u64 = 128 << 10;
/// Instructions of fio between two reads; a guess.
pub(super) const WORK: u64 = 2_000;

/// The jobs.
#[derive(Clone, Debug)]
pub(super) struct Fio {
    bytes: u64,
    jobs: Option<u32>,
    law: Law,
}

impl Fio {
    pub(super) fn new(ask: &Ask) -> Fio {
        let jobs = ask.threads.map(|jobs| Ask { threads: Some(jobs), ..*ask }.tasks(1));
        Fio { bytes: ask.bytes, jobs, law: ask.law.unwrap_or(Law::Uniform) }
    }

    /// Bytes of the files; the buffers are small.
    pub(super) fn footprint(&self) -> u64 {
        self.bytes
    }

    /// Whole pages of a job's file.
    fn file(&self, os: &impl Os, task: u32) -> u64 {
        let pages = part(self.bytes / PAGE, task, self.tasks(os.cpus()));
        (pages.end - pages.start) * PAGE
    }
}

impl Job for Fio {
    /// One for each CPU if nothing is said, at least 16 pages each.
    fn tasks(&self, cpus: u32) -> u32 {
        self.jobs.unwrap_or(cpus).min((self.bytes / PAGE / 16) as u32)
    }

    fn processes(&self) -> bool {
        true
    }

    fn set_up<O: Os>(&self, os: &mut O) -> Result<(), Signal> {
        Heap::first(BLOCK).map(os)
    }

    fn task<O: Os>(&self, os: &mut O, task: u32) -> Result<(), Signal> {
        let size = self.file(os, task);
        let fd = open(os, &format!("fio-{task}"), size)?;
        let buffer = Heap::first(BLOCK);
        for (at, len) in pieces(0..size, CHUNK) {
            read(os, fd, at, len)?;
        }
        os.barrier(BEGIN, self.tasks(os.cpus()));
        let blocks = size / BLOCK;
        let (mut rng, mut keys) = (Rng::new(os.seed()), Keys::new(self.law, blocks, 0));
        for _ in 0..blocks * READS {
            let block = keys.next_scattered(&mut rng);
            read(os, fd, block * BLOCK, BLOCK)?;
            // The kernel copies into the buffer, which is in use anyway.
            buffer.touch(os, 0, 8, AccessKind::Load)?;
            os.compute(WORK);
        }
        os.progress(blocks * READS);
        Ok(())
    }
}
