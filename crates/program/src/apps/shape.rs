//! How large a store of sorted runs is, and where its parts are: the same for all of its tasks.

use super::parts::{Heap, must, open};
use crate::{MapSource, Os, Prot, Signal};

/// Small runs that are merged at once (LevelDB's `kL0_CompactionTrigger`, Cassandra's `min_threshold`).
pub(super) const RUNS: u64 = 4;
/// Tables in memory that the large run has as many bytes as: with [`RUNS`] of them it is ten times what is merged into
/// it, LevelDB's and RocksDB's ratio of neighbouring levels.
pub(super) const TABLES: u64 = 40;
/// Bytes of the index and the filter for a block: a key, a place, and 10 bits for each key.
pub(super) const INDEX: u64 = 48;

/// What all tasks of a store know of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Bytes of a record.
    pub(super) record: u64,
    /// Bytes that are read for one.
    pub(super) block: u64,
    /// Is the large run read through a mapping, not by read(2)?
    pub(super) mapped: bool,
    /// Is anything ever written?
    pub(super) written: bool,
    /// Blocks of the large run.
    pub(super) blocks: u64,
    /// Tasks, which divide it.
    pub(super) tasks: u32,
}

impl Shape {
    /// A store that touches about `bytes`.
    pub(super) fn new(bytes: u64, (record, block): (u64, u64), tasks: u32) -> Shape {
        // With the small runs (1/10), the table and the log (1/40 each) that is nearly all.
        let blocks = bytes * 85 / 100 / block;
        Shape { record, block, mapped: false, written: true, blocks, tasks }
    }

    /// Bytes that it touches.
    pub(super) fn footprint(&self) -> u64 {
        let table = self.table(self.blocks) * self.record;
        let changed = if self.written { 2 * table + self.small(self.blocks) * RUNS } else { 0 };
        self.blocks * self.block + self.index().len + changed
    }

    /// Records of `blocks` blocks, whole ones.
    pub(super) fn records(&self, blocks: u64) -> u64 {
        blocks * (self.block / self.record)
    }

    /// Records that a table in memory holds.
    pub(super) fn table(&self, blocks: u64) -> u64 {
        (self.records(blocks) / TABLES).max(1)
    }

    /// Bytes of a small run.
    pub(super) fn small(&self, blocks: u64) -> u64 {
        self.table(blocks).div_ceil(self.block / self.record) * self.block
    }

    /// The index of all tasks, and then their tables.
    pub(super) fn index(&self) -> Heap {
        Heap::first(self.blocks * INDEX)
    }

    pub(super) fn tables(&self) -> Heap {
        self.index().then((self.table(self.blocks) + u64::from(self.tasks)) * self.record)
    }

    pub(super) fn mapping(&self) -> Heap {
        self.tables().then(self.blocks * self.block)
    }

    /// The memory after the store's.
    pub(super) fn then(&self, len: u64) -> Heap {
        self.mapping().then(len)
    }

    /// Map what tasks share.
    pub(super) fn set_up<O: Os>(&self, os: &mut O, name: &str) -> Result<(), Signal> {
        self.index().map(os)?;
        self.tables().map(os)?;
        let fd = self.open(os, name)?;
        if self.mapped {
            self.mapping().map_as(os, MapSource::File { fd, offset: 0, shared: true }, Prot::READ)?;
        }
        must(os.close(fd))
    }

    /// The file: the large runs of all tasks, their small runs, their logs.
    pub(super) fn open<O: Os>(&self, os: &mut O, name: &str) -> Result<u32, Signal> {
        let room = self.small(self.blocks) + u64::from(self.tasks) * self.block;
        open(os, name, self.blocks * self.block + (RUNS + 1) * room)
    }
}
