//! MongoDB under YCSB: documents in a file of large pages, a cache of its own, a journal, checkpoints.

use super::AppOptions;
use super::parts::{Heap, Job, Log, PAGE, open, part};
use super::pool::Pool;
use crate::keys::{Distribution, Keys};
use crate::rng::Rng;
use crate::{AccessKind, Os, Signal};

/// WiredTiger's leaf page (`leaf_page_max`).
const LEAF: u64 = 32 << 10;
/// A YCSB document: ten fields of 100 bytes, with their names and the header of the record.
const DOCUMENT: u64 = 1_170;
/// An update changes one field; the journal gets the field and its address (a guess).
const FIELD: u64 = 100;
const JOURNAL_RECORD: u64 = 256;
/// An entry of the index by `_id`: a key of YCSB (`user` and 19 digits) and the record's number.
const ENTRY: u64 = 32;
/// Records between two syncs of a task's journal; a guess that corresponds to MongoDB's sync every 100 ms.
const SYNC: u32 = 100;
/// Checkpoints in a run; a guess, as MongoDB makes one a minute.
const CHECKPOINTS: u64 = 4;
/// Operations for each document; a guess.
const OPERATIONS: u64 = 3;
/// Instructions of the server for an operation; a guess.
const WORK: u64 = 30_000;

/// The program `mongodb`.
#[derive(Clone, Debug)]
pub(super) struct MongoDb {
    tasks: u32,
    distribution: Distribution,
    writes: u32,
    cache: u64,
    leaves: u64,
    journal: u64,
}

impl MongoDb {
    /// The cache is half of memory by default (`cacheSizeGB`), which is a quarter of the footprint if memory
    /// is half of it. The journal has a twentieth (a guess), and the file the rest.
    pub(super) fn new(options: &AppOptions) -> MongoDb {
        let bytes = options.bytes;
        let tasks = options.tasks(4).min((bytes / 4 / LEAF / 4).max(1) as u32);
        let (cache, journal) = ((bytes / 4).max(4 * LEAF), (bytes / 20).next_multiple_of(PAGE));
        let leaves = (bytes - cache - journal) / LEAF;
        let (distribution, writes) =
            (options.distribution.unwrap_or(Distribution::Zipf), options.writes.unwrap_or(5));
        MongoDb { tasks, distribution, writes, cache, leaves, journal }
    }

    pub(super) fn footprint(&self) -> u64 {
        self.cache + self.leaves * LEAF + self.journal
    }

    /// A task's part of the cache.
    fn cache_of(&self, task: u32) -> Heap {
        let frames = part(self.cache / LEAF, task, self.tasks);
        let start = Heap::first(0).start + frames.start * LEAF;
        Heap { start, len: (frames.end - frames.start) * LEAF }
    }
}

impl Job for MongoDb {
    fn tasks(&self, _: u32) -> u32 {
        self.tasks
    }

    fn set_up<O: Os>(&self, os: &mut O) -> Result<(), Signal> {
        Heap::first(self.cache).map(os)
    }

    /// Serve the documents of a part of the file; its first pages are the index.
    fn task<O: Os>(&self, os: &mut O, task: u32) -> Result<(), Signal> {
        let data = open(os, "mongodb-data", self.leaves * LEAF)?;
        let journal = open(os, "mongodb-journal", self.journal)?;
        let mut log = Log::new(journal, part(self.journal, task, self.tasks), SYNC);
        let mut pool = Pool::new(self.cache_of(task), data, LEAF);
        let leaves = part(self.leaves, task, self.tasks);
        // The largest number that leaves room for an index entry each.
        let index = (leaves.end - leaves.start).div_ceil(1 + DOCUMENT / ENTRY);
        let first = leaves.start + index;
        let documents = (leaves.end - first) * (LEAF / DOCUMENT);
        for leaf in leaves.clone() {
            pool.touch(os, leaf, (0, 64), AccessKind::Load)?;
        }
        let (mut rng, mut keys) = (Rng::new(os.seed()), Keys::new(self.distribution, documents, 0));
        let operations = documents * OPERATIONS;
        for done in 1..=operations {
            let document = keys.next_scattered(&mut rng);
            let entry = document * ENTRY;
            pool.touch(os, leaves.start + entry / LEAF % index, (entry % LEAF, ENTRY), AccessKind::Load)?;
            let (leaf, offset) =
                (first + document / (LEAF / DOCUMENT), document % (LEAF / DOCUMENT) * DOCUMENT);
            if rng.percent(self.writes.into()) {
                pool.touch(os, leaf, (offset, FIELD), AccessKind::Store)?;
                log.append(os, JOURNAL_RECORD)?;
            } else {
                pool.touch(os, leaf, (offset, DOCUMENT), AccessKind::Load)?;
            }
            os.compute(WORK);
            if done % operations.div_ceil(CHECKPOINTS) == 0 {
                pool.checkpoint(os)?;
            }
        }
        pool.assert_used();
        os.progress(operations);
        Ok(())
    }
}
