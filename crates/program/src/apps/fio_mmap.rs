//! fio with `ioengine=mmap` and `thread`: threads of one process read and write blocks of one mapped file.

use super::AppOptions;
use super::fio::{BLOCK, READS, WORK};
use super::parts::{Heap, Job, open, part};
use crate::keys::{Distribution, Keys};
use crate::rng::Rng;
use crate::{AccessKind, MapSource, Os, Prot, Signal};

/// The barrier before the measured accesses.
const BEGIN: u32 = 2;

/// The program `fio-mmap`.
#[derive(Clone, Debug)]
pub(super) struct FioMmap(AppOptions);

impl FioMmap {
    pub(super) fn new(options: &AppOptions) -> FioMmap {
        FioMmap(*options)
    }

    /// Bytes of the file.
    pub(super) fn footprint(&self) -> u64 {
        self.0.bytes
    }

    fn file(&self) -> Heap {
        Heap::first(self.0.bytes)
    }

    /// Writes among a hundred blocks.
    fn writes(&self) -> u64 {
        self.0.writes.unwrap_or(0).into()
    }
}

impl Job for FioMmap {
    /// One for each CPU by default.
    fn tasks(&self, cpus: u32) -> u32 {
        self.0.tasks(cpus)
    }

    fn set_up<O: Os>(&self, os: &mut O) -> Result<(), Signal> {
        let fd = open(os, "fio-mmap", self.0.bytes)?;
        // Like fio, map it with the rights that the job needs.
        let prot = if self.writes() > 0 { Prot::RW } else { Prot::READ };
        self.file().map_as(os, MapSource::File { fd, offset: 0, shared: true }, prot)
    }

    fn task<O: Os>(&self, os: &mut O, task: u32) -> Result<(), Signal> {
        let (file, tasks, blocks) = (self.file(), self.tasks(os.cpus()), self.0.bytes / BLOCK);
        let own = part(blocks, task, tasks);
        for block in own.clone() {
            file.touch(os, block * BLOCK, 8, AccessKind::Load)?;
        }
        os.barrier(BEGIN, tasks);
        let (mut rng, mut keys) =
            (Rng::new(os.seed()), Keys::new(self.0.distribution.unwrap_or(Distribution::Uniform), blocks, 0));
        let uses = (own.end - own.start) * READS;
        for _ in 0..uses {
            let block = keys.next_scattered(&mut rng);
            let mode = if rng.percent(self.writes()) { AccessKind::Store } else { AccessKind::Load };
            // fio fills and checks whole blocks.
            file.touch(os, block * BLOCK, BLOCK, mode)?;
            os.compute(WORK);
        }
        os.progress(uses);
        Ok(())
    }
}
