//! The size of an LSM store and where its parts are: the same for all of its tasks.

use super::parts::{Heap, must, open};
use crate::{MapSource, Os, Prot, Signal};

/// Small runs that are merged at once (LevelDB's `kL0_CompactionTrigger`, Cassandra's `min_threshold`).
pub(super) const RUNS: u64 = 4;
/// Size of the large run, in tables in memory. [`RUNS`] of them are merged at once, so it is ten times as
/// large as what is merged into it: the ratio of neighbouring levels in LevelDB and RocksDB.
pub(super) const TABLES: u64 = 40;
/// Bytes of the index and the filter for a block: a key, a position, and 10 bits for each key.
pub(super) const INDEX: u64 = 48;

/// What all tasks of a store know about it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Bytes of a record.
    pub(super) record: u64,
    /// Bytes read for one record.
    pub(super) block: u64,
    /// Whether the large run is read through a mapping instead of read(2).
    pub(super) mapped: bool,
    /// Whether records are written.
    pub(super) written: bool,
    /// Blocks of the large run.
    pub(super) blocks: u64,
    /// Tasks, which divide it.
    pub(super) tasks: u32,
}

impl Layout {
    /// A store that touches about `bytes`.
    pub(super) fn new(bytes: u64, (record, block): (u64, u64), tasks: u32) -> Layout {
        // The rest is nearly all small runs (1/10), the table and the log (1/40 each).
        let blocks = bytes * 85 / 100 / block;
        Layout { record, block, mapped: false, written: true, blocks, tasks }
    }

    /// Bytes that it touches.
    pub(super) fn footprint(&self) -> u64 {
        let table = self.table(self.blocks) * self.record;
        let changed = if self.written { 2 * table + self.small(self.blocks) * RUNS } else { 0 };
        self.blocks * self.block + self.index().len + changed
    }

    /// Whole records of `blocks` blocks.
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

    /// The index of all tasks, followed by their tables.
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
