//! fio with buffered random reads: jobs that each read blocks from a file of their own by read(2).

use super::AppOptions;
use super::parts::{Heap, Job, PAGE, must, open, part, pieces, read};
use crate::keys::{Distribution, Keys};
use crate::rng::Rng;
use crate::{AccessKind, FileAdvice, Os, Signal};
use alloc::format;

/// The barrier before the measured reads.
const BEGIN: u32 = 2;
/// fio's default block size.
pub(super) const BLOCK: u64 = PAGE;
/// Reads for each page of the files. fio runs for a time; this is a guess at a comparable number.
pub(super) const READS: u64 = 8;
/// Bytes of one read in the pass before.
const CHUNK: u64 = 128 << 10;
/// Instructions of fio between two reads; a guess.
pub(super) const WORK: u64 = 2_000;

/// The program `fio`.
#[derive(Clone, Debug)]
pub(super) struct Fio {
    bytes: u64,
    jobs: Option<u32>,
    distribution: Distribution,
    /// Jobs say that they read at random, as fio's default `fadvise_hint` has it.
    advises: bool,
}

impl Fio {
    /// fio with `fadvise_hint=0`.
    pub(super) fn new(options: &AppOptions) -> Fio {
        Fio::with_hint(options, false)
    }

    /// fio as it is by default.
    pub(super) fn advised(options: &AppOptions) -> Fio {
        Fio::with_hint(options, true)
    }

    fn with_hint(options: &AppOptions, advises: bool) -> Fio {
        let jobs = options.threads.map(|jobs| AppOptions { threads: Some(jobs), ..*options }.tasks(1));
        Fio {
            bytes: options.bytes,
            jobs,
            distribution: options.distribution.unwrap_or(Distribution::Uniform),
            advises,
        }
    }

    /// Bytes of the files; the buffers are negligible.
    pub(super) fn footprint(&self) -> u64 {
        self.bytes
    }

    /// Bytes of a job's file, whole pages.
    fn file(&self, os: &impl Os, task: u32) -> u64 {
        let pages = part(self.bytes / PAGE, task, self.tasks(os.cpus()));
        (pages.end - pages.start) * PAGE
    }
}

impl Job for Fio {
    /// One for each CPU by default, with at least 16 pages each.
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
        if self.advises {
            must(os.fadvise(fd, 0, size, FileAdvice::Random))?;
        }
        os.barrier(BEGIN, self.tasks(os.cpus()));
        let blocks = size / BLOCK;
        let (mut rng, mut keys) = (Rng::new(os.seed()), Keys::new(self.distribution, blocks, 0));
        for _ in 0..blocks * READS {
            let block = keys.next_scattered(&mut rng);
            read(os, fd, block * BLOCK, BLOCK)?;
            // The kernel copies into the buffer, which is used anyway.
            buffer.touch(os, 0, 8, AccessKind::Load)?;
            os.compute(WORK);
        }
        os.progress(blocks * READS);
        Ok(())
    }
}
