//! fio with `ioengine=mmap` and `thread`: threads that share one space read and write blocks of one mapped file.

use super::Ask;
use super::fio::{BLOCK, READS, WORK};
use super::parts::{Heap, Job, PAGE, open, part};
use crate::keys::{Keys, Law};
use crate::rng::Rng;
use crate::{AccessKind, MapSource, Os, Prot, Signal};

/// Barrier at which all threads begin.
const BEGIN: u32 = 2;
/// Words of 8 bytes of a block that are used: fio fills and checks whole blocks.
const WORDS: u64 = BLOCK / 8;

/// The threads.
#[derive(Clone, Debug)]
pub(super) struct FioMmap {
    bytes: u64,
    ask: Ask,
    law: Law,
    /// Writes among a hundred blocks.
    writes: u32,
}

impl FioMmap {
    pub(super) fn new(ask: &Ask) -> FioMmap {
        FioMmap {
            bytes: ask.bytes,
            ask: *ask,
            law: ask.law.unwrap_or(Law::Uniform),
            writes: ask.writes.unwrap_or(0),
        }
    }

    /// Bytes of the file.
    pub(super) fn footprint(&self) -> u64 {
        self.bytes
    }

    fn file(&self) -> Heap {
        Heap::first(self.bytes)
    }
}

impl Job for FioMmap {
    /// One for each CPU if nothing is said.
    fn tasks(&self, cpus: u32) -> u32 {
        self.ask.tasks(cpus)
    }

    fn set_up<O: Os>(&self, os: &mut O) -> Result<(), Signal> {
        let fd = open(os, "fio-mmap", self.bytes)?;
        // As fio maps it: for what the job does.
        let prot = if self.writes > 0 { Prot::RW } else { Prot::READ };
        self.file().map_as(os, MapSource::File { fd, offset: 0, shared: true }, prot)
    }

    fn task<O: Os>(&self, os: &mut O, task: u32) -> Result<(), Signal> {
        let (file, tasks, blocks) = (self.file(), self.tasks(os.cpus()), self.bytes / BLOCK);
        let own = part(blocks, task, tasks);
        for block in own.clone() {
            file.touch(os, block * BLOCK, 8, AccessKind::Load)?;
        }
        os.barrier(BEGIN, tasks);
        let (mut rng, mut keys) = (Rng::new(os.seed()), Keys::new(self.law, blocks, 0));
        let uses = (own.end - own.start) * READS;
        for _ in 0..uses {
            let block = keys.next_scattered(&mut rng);
            let mode =
                if rng.below(100) < u64::from(self.writes) { AccessKind::Store } else { AccessKind::Load };
            file.touch(os, block * BLOCK, WORDS * 8, mode)?;
            os.compute(WORK);
        }
        os.progress(uses);
        Ok(())
    }
}

const _: () = assert!(BLOCK == PAGE, "a block is touched by one access");
