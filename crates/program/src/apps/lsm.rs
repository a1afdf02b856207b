//! A store of sorted runs (a log-structured merge tree), as LevelDB, RocksDB and Cassandra are.
//!
//! A write goes to a log and to a table in memory. A full table is written out as a small run; when there are [`RUNS`]
//! of them they are merged into the large one, all of which is read and written. A read looks into the table, the small
//! runs from the newest on, and the large run; filters in memory tell which has the key, an index in memory tells the
//! block.
//!
//! Levels between the small runs and the largest are left out, and the large run is merged in place: real stores write
//! new files and remove the old ones piece by piece. Each task has a store of its own, for its part of the keys.

use super::parts::{Heap, Log, must, part, pieces, read, touch, write};
use super::shape::{INDEX, RUNS, Shape, TABLES};
use crate::{AccessKind, Os, Signal};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

/// Records between two syncs of the log, which stores leave to the kernel or do every ten seconds; a guess.
const SYNC: u32 = 1_000;
/// Bytes that a merge, or a run that is written, moves at once.
const CHUNK: u64 = 128 << 10;

/// A task's store.
#[derive(Debug)]
pub(super) struct Store {
    shape: Shape,
    fd: u32,
    blocks: Range<u64>,
    /// Where the small runs begin in the file.
    runs_at: u64,
    log: Log,
    table: Heap,
    /// Where in the table a key's newest record is, and how many there are.
    newest: BTreeMap<u64, u64>,
    filled: u64,
    /// Keys of the small runs, sorted, the oldest first.
    runs: Vec<Vec<u64>>,
    /// Merges done.
    merges: u64,
}

impl Store {
    /// The store of a task. Fills the index and reads the large run once.
    pub(super) fn new<O: Os>(shape: Shape, os: &mut O, name: &str, task: u32) -> Result<Store, Signal> {
        let fd = shape.open(os, name)?;
        let blocks = part(shape.blocks, task, shape.tasks);
        let own = blocks.end - blocks.start;
        assert!(own > 0, "every task has a block");
        let all_runs = blocks.start / TABLES + u64::from(task);
        let runs_at = (shape.blocks + all_runs * (RUNS + 1)) * shape.block;
        let log = runs_at + RUNS * shape.small(own);
        let records = shape.table(own);
        let table_at = shape.tables().start + (shape.table(blocks.start) + u64::from(task)) * shape.record;
        let store = Store {
            fd,
            runs_at,
            log: Log::new(fd, log..log + shape.small(own), SYNC),
            table: Heap { start: table_at & !7, len: records * shape.record },
            newest: BTreeMap::new(),
            filled: 0,
            runs: Vec::new(),
            merges: 0,
            shape,
            blocks,
        };
        for block in 0..own {
            store.shape.index().touch(os, (store.blocks.start + block) * INDEX, INDEX, AccessKind::Store)?;
            store.block(os, block)?;
        }
        Ok(store)
    }

    /// Records of the large run: the keys.
    pub(super) fn keys(&self) -> u64 {
        self.shape.records(self.blocks.end - self.blocks.start)
    }

    /// Bytes of the large run.
    pub(super) fn bytes(&self) -> u64 {
        (self.blocks.end - self.blocks.start) * self.shape.block
    }

    /// Find a record.
    pub(super) fn get<O: Os>(&self, os: &mut O, key: u64) -> Result<(), Signal> {
        let Shape { record, block, .. } = self.shape;
        if let Some(place) = self.newest.get(&key) {
            return self.table.touch(os, place * record, record, AccessKind::Load);
        }
        let in_run = |run: &Vec<u64>| run.binary_search(&key).ok();
        let found = self
            .runs
            .iter()
            .enumerate()
            .rev()
            .find_map(|(run, keys)| Some((run as u64, in_run(keys)? as u64)));
        let Some((run, place)) = found else { return self.block(os, key / (block / record)) };
        let at = self.run_at(run) + place / (block / record) * block;
        read(os, self.fd, at, block)
    }

    /// Read so many records from a key on.
    pub(super) fn scan<O: Os>(&self, os: &mut O, key: u64, records: u64) -> Result<(), Signal> {
        let each = self.shape.block / self.shape.record;
        let end = (key + records).min(self.keys()).div_ceil(each);
        (key / each..end).try_for_each(|block| self.block(os, block))
    }

    /// Write a record.
    pub(super) fn put<O: Os>(&mut self, os: &mut O, key: u64) -> Result<(), Signal> {
        let record = self.shape.record;
        self.log.append(os, record)?;
        self.table.touch(os, self.filled * record, record, AccessKind::Store)?;
        self.newest.insert(key, self.filled);
        self.filled += 1;
        if (self.filled + 1) * record > self.table.len {
            self.write_out(os)?;
        }
        Ok(())
    }

    /// Have so many writes been merged as there must have been after `puts` of them?
    pub(super) fn assert_merged(&self, puts: u64) {
        let table = self.shape.table(self.blocks.end - self.blocks.start);
        assert_eq!(self.merges, puts / table / RUNS, "{puts} records written, {table} in a table");
    }

    fn run_at(&self, run: u64) -> u64 {
        self.runs_at + run * self.shape.small(self.blocks.end - self.blocks.start)
    }

    /// Read a block of the large run.
    fn block<O: Os>(&self, os: &mut O, block: u64) -> Result<(), Signal> {
        let (number, len) = (self.blocks.start + block, self.shape.block);
        self.shape.index().touch(os, number * INDEX, INDEX, AccessKind::Load)?;
        match self.shape.mapped {
            true => touch(os, self.shape.mapping().start + number * len, len, AccessKind::Load),
            false => read(os, self.fd, number * len, len),
        }
    }

    /// Write the table out as a run, in the order of keys; merge the runs if there are enough.
    fn write_out<O: Os>(&mut self, os: &mut O) -> Result<(), Signal> {
        let record = self.shape.record;
        let each = self.shape.block / record;
        let from = self.run_at(self.runs.len() as u64);
        for place in self.newest.values() {
            self.table.touch(os, place * record, record, AccessKind::Load)?;
        }
        let bytes = (self.newest.len() as u64).div_ceil(each) * self.shape.block;
        pieces(from..from + bytes, CHUNK).try_for_each(|(at, len)| write(os, self.fd, at, len))?;
        must(os.fsync(self.fd))?;
        self.runs.push(core::mem::take(&mut self.newest).into_keys().collect());
        self.filled = 0;
        if self.runs.len() as u64 == RUNS { self.merge(os) } else { Ok(()) }
    }

    /// Read all runs from end to end, and write the large one.
    fn merge<O: Os>(&mut self, os: &mut O) -> Result<(), Signal> {
        let each = self.shape.block / self.shape.record;
        for (run, keys) in self.runs.iter().enumerate() {
            let at = self.run_at(run as u64);
            let bytes = (keys.len() as u64).div_ceil(each) * self.shape.block;
            pieces(at..at + bytes, CHUNK).try_for_each(|(at, len)| read(os, self.fd, at, len))?;
        }
        let Range { start, end } = self.blocks;
        for (at, len) in pieces(start * self.shape.block..end * self.shape.block, CHUNK) {
            read(os, self.fd, at, len)?;
            write(os, self.fd, at, len)?;
        }
        self.runs.clear();
        self.merges += 1;
        must(os.fsync(self.fd))
    }
}
