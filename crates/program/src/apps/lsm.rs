//! An LSM store (log-structured merge tree), like LevelDB, RocksDB and Cassandra.
//!
//! A write goes to a log and to a table in memory. A full table is written as a small sorted run; [`RUNS`] of
//! them are merged into the large run, which is then read and written as a whole. A read looks in the table,
//! the small runs from the newest on, and the large run. Filters in memory tell which of them has the key,
//! and an index in memory gives the block.
//!
//! Levels between the small runs and the largest are left out, and the large run is merged in place: real
//! stores write new files and remove the old ones piece by piece. Each task has a store of its own, for its
//! part of the keys.

use super::layout::{INDEX, Layout, RUNS, TABLES};
use super::parts::{Heap, Log, must, part, pieces, read, touch, write};
use crate::{AccessKind, Os, Signal};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

/// Records between two syncs of the log; a guess, as stores leave this to the kernel or do it every ten
/// seconds.
const SYNC: u32 = 1_000;
/// Bytes of one read or write of a merge, or of a new run.
const CHUNK: u64 = 128 << 10;

/// A task's store.
#[derive(Debug)]
pub(super) struct Store {
    layout: Layout,
    fd: u32,
    blocks: Range<u64>,
    /// Where the small runs begin in the file.
    runs_at: u64,
    log: Log,
    table: Heap,
    /// The index in the table of a key's newest record, and the number of records.
    newest: BTreeMap<u64, u64>,
    used: u64,
    /// Keys of the small runs, sorted, oldest run first.
    runs: Vec<Vec<u64>>,
    /// Number of merges.
    merges: u64,
}

impl Store {
    /// The store of a task. Fills the index and reads the large run once.
    pub(super) fn new<O: Os>(layout: Layout, os: &mut O, name: &str, task: u32) -> Result<Store, Signal> {
        let fd = layout.open(os, name)?;
        let blocks = part(layout.blocks, task, layout.tasks);
        let own = blocks.end - blocks.start;
        assert!(own > 0, "every task must have a block");
        let all_runs = blocks.start / TABLES + u64::from(task);
        let runs_at = (layout.blocks + all_runs * (RUNS + 1)) * layout.block;
        let log = runs_at + RUNS * layout.small(own);
        let records = layout.table(own);
        let table_at = layout.tables().start + (layout.table(blocks.start) + u64::from(task)) * layout.record;
        let store = Store {
            fd,
            runs_at,
            log: Log::new(fd, log..log + layout.small(own), SYNC),
            table: Heap { start: table_at & !7, len: records * layout.record },
            newest: BTreeMap::new(),
            used: 0,
            runs: Vec::new(),
            merges: 0,
            layout,
            blocks,
        };
        for block in 0..own {
            store.layout.index().touch(os, (store.blocks.start + block) * INDEX, INDEX, AccessKind::Store)?;
            store.block(os, block)?;
        }
        Ok(store)
    }

    /// Records of the large run; these are the keys.
    pub(super) fn keys(&self) -> u64 {
        self.layout.records(self.blocks.end - self.blocks.start)
    }

    /// Bytes of the large run.
    pub(super) fn bytes(&self) -> u64 {
        (self.blocks.end - self.blocks.start) * self.layout.block
    }

    /// Find a record.
    pub(super) fn get<O: Os>(&self, os: &mut O, key: u64) -> Result<(), Signal> {
        let Layout { record, block, .. } = self.layout;
        if let Some(index) = self.newest.get(&key) {
            return self.table.touch(os, index * record, record, AccessKind::Load);
        }
        let in_run = |run: &Vec<u64>| run.binary_search(&key).ok();
        let found = self
            .runs
            .iter()
            .enumerate()
            .rev()
            .find_map(|(run, keys)| Some((run as u64, in_run(keys)? as u64)));
        let Some((run, index)) = found else { return self.block(os, key / (block / record)) };
        let at = self.run_at(run) + index / (block / record) * block;
        read(os, self.fd, at, block)
    }

    /// Read `records` records, beginning at a key.
    pub(super) fn scan<O: Os>(&self, os: &mut O, key: u64, records: u64) -> Result<(), Signal> {
        let each = self.layout.block / self.layout.record;
        let end = (key + records).min(self.keys()).div_ceil(each);
        (key / each..end).try_for_each(|block| self.block(os, block))
    }

    /// Write a record.
    pub(super) fn put<O: Os>(&mut self, os: &mut O, key: u64) -> Result<(), Signal> {
        let record = self.layout.record;
        self.log.append(os, record)?;
        self.table.touch(os, self.used * record, record, AccessKind::Store)?;
        self.newest.insert(key, self.used);
        self.used += 1;
        if (self.used + 1) * record > self.table.len {
            self.flush_table(os)?;
        }
        Ok(())
    }

    /// Assert that the number of merges fits `puts` writes.
    pub(super) fn assert_merged(&self, puts: u64) {
        let table = self.layout.table(self.blocks.end - self.blocks.start);
        assert_eq!(
            self.merges,
            puts / table / RUNS,
            "merges after {puts} writes, with {table} records in a table"
        );
    }

    fn run_at(&self, run: u64) -> u64 {
        self.runs_at + run * self.layout.small(self.blocks.end - self.blocks.start)
    }

    /// Read a block of the large run.
    fn block<O: Os>(&self, os: &mut O, block: u64) -> Result<(), Signal> {
        let (number, len) = (self.blocks.start + block, self.layout.block);
        self.layout.index().touch(os, number * INDEX, INDEX, AccessKind::Load)?;
        match self.layout.mapped {
            true => touch(os, self.layout.mapping().start + number * len, len, AccessKind::Load),
            false => read(os, self.fd, number * len, len),
        }
    }

    /// Write the table as a run, in the order of keys; merge the runs if there are enough.
    fn flush_table<O: Os>(&mut self, os: &mut O) -> Result<(), Signal> {
        let record = self.layout.record;
        let each = self.layout.block / record;
        let from = self.run_at(self.runs.len() as u64);
        for index in self.newest.values() {
            self.table.touch(os, index * record, record, AccessKind::Load)?;
        }
        let bytes = (self.newest.len() as u64).div_ceil(each) * self.layout.block;
        pieces(from..from + bytes, CHUNK).try_for_each(|(at, len)| write(os, self.fd, at, len))?;
        must(os.fsync(self.fd))?;
        self.runs.push(core::mem::take(&mut self.newest).into_keys().collect());
        self.used = 0;
        if self.runs.len() as u64 == RUNS { self.merge(os) } else { Ok(()) }
    }

    /// Read all runs from end to end, and rewrite the large one.
    fn merge<O: Os>(&mut self, os: &mut O) -> Result<(), Signal> {
        let each = self.layout.block / self.layout.record;
        for (run, keys) in self.runs.iter().enumerate() {
            let at = self.run_at(run as u64);
            let bytes = (keys.len() as u64).div_ceil(each) * self.layout.block;
            pieces(at..at + bytes, CHUNK).try_for_each(|(at, len)| read(os, self.fd, at, len))?;
        }
        let Range { start, end } = self.blocks;
        for (at, len) in pieces(start * self.layout.block..end * self.layout.block, CHUNK) {
            read(os, self.fd, at, len)?;
            write(os, self.fd, at, len)?;
        }
        self.runs.clear();
        self.merges += 1;
        must(os.fsync(self.fd))
    }
}
