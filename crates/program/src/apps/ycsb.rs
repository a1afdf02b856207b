//! LSM stores, as benchmarks drive them: LevelDB under YCSB, LevelDB under GET and SCAN, Cassandra under
//! YCSB.

use super::AppOptions;
use super::layout::Layout;
use super::lsm::Store;
use super::parts::{Heap, Job, part};
use crate::keys::{Distribution, Keys};
use crate::rng::Rng;
use crate::{AccessKind, Os, Signal};

/// LevelDB's record: a key of 16 bytes, a value of 200, eight for the sequence number; and its block.
const LEVELDB: (u64, u64) = (224, 4 << 10);
/// Cassandra's row of ten fields of 100 bytes, with names and times; and its compression chunk.
const CASSANDRA: (u64, u64) = (1_300, 16 << 10);
/// Operations for each 4 KiB of the large run; a guess.
const OPERATIONS: u64 = 8;
/// One operation in `SCANS` is a scan, of `SCAN` records.
const SCANS: u64 = 2_000;
const SCAN: u64 = 10_000;
/// Bytes of garbage that Cassandra makes in an operation; a guess.
const GARBAGE: u64 = 16 << 10;
/// Collections of the young generation for each of the old one; a guess.
const YOUNG: u64 = 8;
/// Instructions for an operation of LevelDB, and of Cassandra; guesses.
const WORK: u64 = 10_000;
const SERVER_WORK: u64 = 50_000;

/// A store and its load.
#[derive(Clone, Debug)]
pub(super) struct Ycsb {
    name: &'static str,
    tasks: u32,
    distribution: Distribution,
    writes: u32,
    scans: bool,
    layout: Layout,
    /// Bytes of the Java heap.
    java: u64,
}

impl Ycsb {
    /// LevelDB under YCSB: workload A, unless a share of writes is given.
    pub(super) fn lsm(options: &AppOptions) -> Ycsb {
        Ycsb::new("lsm", options, 50, 8)
    }

    /// GETs of hot keys mixed with long scans.
    pub(super) fn get_scan(options: &AppOptions) -> Ycsb {
        Ycsb { scans: true, ..Ycsb::new("get-scan", options, 0, 4) }
    }

    /// Cassandra: its heap is a quarter of memory (`MAX_HEAP_SIZE`), which is an eighth of the footprint if
    /// memory is half of it.
    pub(super) fn cassandra(options: &AppOptions) -> Ycsb {
        let java = options.bytes / 8;
        let plain = Ycsb::new("cassandra", &AppOptions { bytes: options.bytes - java, ..*options }, 5, 4);
        let mut layout = Layout::new(options.bytes - java, CASSANDRA, plain.tasks);
        (layout.mapped, layout.written) = (true, plain.writes > 0);
        Ycsb { java, layout, ..plain }
    }

    fn new(name: &'static str, options: &AppOptions, writes: u32, tasks: u32) -> Ycsb {
        let (tasks, writes) = (options.tasks(tasks), options.writes.unwrap_or(writes));
        let mut layout = Layout::new(options.bytes, LEVELDB, tasks);
        layout.written = writes > 0;
        Ycsb {
            name,
            tasks,
            distribution: options.distribution.unwrap_or(Distribution::Zipf),
            writes,
            scans: false,
            layout,
            java: 0,
        }
    }

    pub(super) fn footprint(&self) -> u64 {
        self.layout.footprint() + self.java
    }

    /// A task's part of the Java heap: the young generation, and the old one, which is three times as large.
    fn java_of(&self, task: u32) -> Option<Java> {
        let own = part(self.java / 64, task, self.tasks);
        let (start, len) = (self.layout.then(self.java).start + own.start * 64, (own.end - own.start) * 64);
        let young = Heap { start, len: (len / 4) & !7 };
        let old = Heap { start: start + young.len, len: len - young.len };
        (self.java > 0).then_some(Java { young, old, at: 0, collections: 0 })
    }
}

/// A heap with garbage collection: allocations fill the young generation in order; after a number of its
/// collections, the whole old generation is read.
#[derive(Debug)]
struct Java {
    young: Heap,
    old: Heap,
    at: u64,
    collections: u64,
}

impl Java {
    fn allocate<O: Os>(&mut self, os: &mut O, bytes: u64) -> Result<(), Signal> {
        let bytes = bytes.min(self.young.len);
        if self.at + bytes > self.young.len {
            self.at = 0;
            self.collections += 1;
            if self.collections.is_multiple_of(YOUNG) {
                self.old.touch(os, 0, self.old.len, AccessKind::Load)?;
            }
        }
        self.young.touch(os, self.at, bytes, AccessKind::Store)?;
        self.at += bytes;
        Ok(())
    }
}

impl Job for Ycsb {
    fn tasks(&self, _: u32) -> u32 {
        self.tasks
    }

    fn set_up<O: Os>(&self, os: &mut O) -> Result<(), Signal> {
        if self.java > 0 {
            self.layout.then(self.java).map(os)?;
        }
        self.layout.set_up(os, self.name)
    }

    fn task<O: Os>(&self, os: &mut O, task: u32) -> Result<(), Signal> {
        let mut store = Store::new(self.layout, os, self.name, task)?;
        let mut java = self.java_of(task);
        if let Some(java) = &java {
            java.old.touch(os, 0, java.old.len, AccessKind::Store)?;
        }
        let (mut rng, mut keys) = (Rng::new(os.seed()), Keys::new(self.distribution, store.keys(), 0));
        let operations = store.bytes() / 4096 * OPERATIONS;
        let mut puts = 0;
        for _ in 0..operations {
            let key = keys.next_scattered(&mut rng);
            match () {
                () if self.scans && rng.below(SCANS) == 0 => store.scan(os, key, SCAN)?,
                () if rng.percent(self.writes.into()) => {
                    store.put(os, key)?;
                    puts += 1;
                }
                () => {
                    let start = os.now();
                    store.get(os, key)?;
                    let took = os.now() - start;
                    os.took(took);
                }
            }
            if let Some(java) = &mut java {
                java.allocate(os, GARBAGE)?;
            }
            os.compute(if java.is_some() { SERVER_WORK } else { WORK });
        }
        store.assert_merged(puts);
        os.progress(operations);
        Ok(())
    }
}
