//! Applications: models of the memory accesses of real programs that benchmarks of replacement policies run.
//!
//! docs/programs.md says for each what is modelled, where its numbers come from, and what is a guess. One
//! unit of progress is one operation (or transaction, or page sorted or searched). What a task does depends
//! only on the run's seed, never on the timing of other tasks, so all policies get the same work.

mod desktop;
mod fio;
mod fio_mmap;
mod groups;
mod kv;
mod layout;
mod llama;
mod lsm;
mod mongodb;
mod oltp;
mod options;
mod parts;
mod pool;
mod search;
mod sort;
#[cfg(test)]
mod tests;
mod tiered;
mod warehouse;
mod ycsb;

use crate::{Os, Program, Role, Signal};
use desktop::Desktop;
use fio::Fio;
use fio_mmap::FioMmap;
use groups::{ManyGroups, TwoGroups};
use kv::Kv;
use llama::Llama;
use mongodb::MongoDb;
use oltp::Oltp;
pub use options::AppOptions;
use parts::{Job, PAGE, lead};
use search::Search;
use sort::Sort;
use tiered::{Tiered, Workload};
use ycsb::Ycsb;

/// Smallest footprint.
const MIN_BYTES: u64 = 1 << 20;

/// One row of the list: an application, and which options it supports besides its size and its tasks.
struct Row {
    name: &'static str,
    help: &'static str,
    /// Whether it supports a distribution and a share of writes.
    takes: Takes,
    make: fn(&AppOptions) -> Kind,
}

/// The supported options.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Takes {
    distribution: bool,
    writes: bool,
}

#[derive(Debug)]
enum Kind {
    Kv(Kv),
    Fio(Fio),
    FioMmap(FioMmap),
    MongoDb(MongoDb),
    Ycsb(Ycsb),
    Oltp(Oltp),
    Sort(Sort),
    Search(Search),
    TwoGroups(TwoGroups),
    ManyGroups(ManyGroups),
    Desktop(Desktop),
    Llama(Llama),
    Tiered(Tiered),
}

const TABLE: &[Row] = &[
    Row {
        name: "memcached",
        help: "store small objects in slabs, then SET and GET them by DISTRIBUTION (uniform), N% of them SETs (9%)",
        takes: Takes { distribution: true, writes: true },
        make: |options| Kind::Kv(Kv::memcached(options)),
    },
    Row {
        name: "memcached-2k",
        help: "as memcached, with objects of 2 kB",
        takes: Takes { distribution: true, writes: true },
        make: |options| Kind::Kv(Kv::memcached_2k(options)),
    },
    Row {
        name: "redis",
        help: "as memcached, for redis: each task is a server with its own objects, in size classes",
        takes: Takes { distribution: true, writes: true },
        make: |options| Kind::Kv(Kv::redis(options)),
    },
    Row {
        name: "fio",
        help: "jobs, one for each CPU, read blocks of 4 KiB from their own files by read(2), by DISTRIBUTION (uniform)",
        takes: Takes { distribution: true, writes: false },
        make: |options| Kind::Fio(Fio::new(options)),
    },
    Row {
        name: "fio-advised",
        help: "as fio, with jobs that advise POSIX_FADV_RANDOM before they read, as fio does by default",
        takes: Takes { distribution: true, writes: false },
        make: |options| Kind::Fio(Fio::advised(options)),
    },
    Row {
        name: "fio-mmap",
        help: "threads, one for each CPU, access blocks of 4 KiB of one mapped file by DISTRIBUTION (uniform); 0% writes",
        takes: Takes { distribution: true, writes: true },
        make: |options| Kind::FioMmap(FioMmap::new(options)),
    },
    Row {
        name: "mongodb",
        help: "YCSB on a server with a cache of its own, a file of 32 KiB pages, journal and checkpoints; zipf, 5% writes",
        takes: Takes { distribution: true, writes: true },
        make: |options| Kind::MongoDb(MongoDb::new(options)),
    },
    Row {
        name: "cassandra",
        help: "YCSB on a server with a Java heap, mapped files of sorted runs, commit log and compaction; zipf, 5% writes",
        takes: Takes { distribution: true, writes: true },
        make: |options| Kind::Ycsb(Ycsb::cassandra(options)),
    },
    Row {
        name: "lsm",
        help: "YCSB on LevelDB: read(2) of 4 KiB blocks, log, sorted runs that are merged; zipf, 50% writes",
        takes: Takes { distribution: true, writes: true },
        make: |options| Kind::Ycsb(Ycsb::lsm(options)),
    },
    Row {
        name: "get-scan",
        help: "as lsm, read only: GETs by DISTRIBUTION (zipf) and, one in 2000, SCANs of 10000 records",
        takes: Takes { distribution: true, writes: true },
        make: |options| Kind::Ycsb(Ycsb::get_scan(options)),
    },
    Row {
        name: "postgresql",
        help: "TPC-C on processes with a small shared buffer pool, files of 8 KiB pages, a log synced at commit",
        takes: Takes { distribution: false, writes: false },
        make: |options| Kind::Oltp(Oltp::postgresql(options)),
    },
    Row {
        name: "mariadb",
        help: "TPC-C on threads with a buffer pool of most of memory, files of 16 KiB pages, a log synced at commit",
        takes: Takes { distribution: false, writes: false },
        make: |options| Kind::Oltp(Oltp::mariadb(options)),
    },
    Row {
        name: "terasort",
        help: "Hadoop's sort: processes map, spill, merge, shuffle and reduce files that are larger than memory",
        takes: Takes { distribution: false, writes: false },
        make: |options| Kind::Sort(Sort::terasort(options)),
    },
    Row {
        name: "spark-sort",
        help: "Spark's sort: threads of one heap map, spill, shuffle and reduce",
        takes: Takes { distribution: false, writes: false },
        make: |options| Kind::Sort(Sort::spark(options)),
    },
    Row {
        name: "file-search",
        help: "read all files of a tree by read(2), ten times, with a task for each CPU",
        takes: Takes { distribution: false, writes: false },
        make: |options| Kind::Search(Search::new(options)),
    },
    Row {
        name: "two-groups",
        help: "lsm without writes, and file-search, each in a control group with less memory than it touches",
        takes: Takes { distribution: true, writes: true },
        make: |options| Kind::TwoGroups(TwoGroups::new(options)),
    },
    Row {
        name: "many-groups",
        help: "processes (THREADS of them, 100), each in a control group, fill memory and read a file; every second one continues by Zipf's law",
        takes: Takes { distribution: false, writes: false },
        make: |options| Kind::ManyGroups(ManyGroups::new(options)),
    },
    Row {
        name: "desktop",
        help: "open programs (THREADS of them, 12) one after the other and return to some; --all shows launch times as operation_time",
        takes: Takes { distribution: false, writes: false },
        make: |options| Kind::Desktop(Desktop::new(options)),
    },
    Row {
        name: "llama",
        help: "three processes of llama.cpp, each with a mapped model of its own and THREADS (15) threads that spin; 24 tokens",
        takes: Takes { distribution: false, writes: false },
        make: |options| Kind::Llama(Llama::new(options)),
    },
    Row {
        name: "graph500",
        help: "breadth-first searches of a graph by Zipf's law in memory (docs/programs.md: programs for tiers)",
        takes: Takes { distribution: false, writes: false },
        make: |options| Kind::Tiered(Tiered::new(Workload::Graph500, options)),
    },
    Row {
        name: "xsbench",
        help: "lookups of cross sections: by binary search in a table of energies, then in many small tables",
        takes: Takes { distribution: false, writes: false },
        make: |options| Kind::Tiered(Tiered::new(Workload::XsBench, options)),
    },
    Row {
        name: "btree",
        help: "lookups of uniform keys in a tree in memory",
        takes: Takes { distribution: false, writes: false },
        make: |options| Kind::Tiered(Tiered::new(Workload::BTree, options)),
    },
    Row {
        name: "pagerank",
        help: "passes over a graph's vertices in order, reading for each the ranks of others by Zipf's law",
        takes: Takes { distribution: false, writes: false },
        make: |options| Kind::Tiered(Tiered::new(Workload::PageRank, options)),
    },
    Row {
        name: "silo",
        help: "YCSB's lookups by Zipf's law in a tree with records, in memory",
        takes: Takes { distribution: false, writes: false },
        make: |options| Kind::Tiered(Tiered::new(Workload::Silo, options)),
    },
    Row {
        name: "gups",
        help: "updates of 64 bytes at random, 90% of them in a third of memory",
        takes: Takes { distribution: false, writes: false },
        make: |options| Kind::Tiered(Tiered::new(Workload::Gups(64), options)),
    },
    Row {
        name: "gups-4k",
        help: "as gups, with objects of 4 KiB, which need bandwidth",
        takes: Takes { distribution: false, writes: false },
        make: |options| Kind::Tiered(Tiered::new(Workload::Gups(4096), options)),
    },
];

/// Names of the applications with a line of help each.
pub const LIST: &[(&str, &str)] = &{
    let mut list = [("", ""); TABLE.len()];
    let mut i = 0;
    while i < list.len() {
        list[i] = (TABLE[i].name, TABLE[i].help);
        i += 1;
    }
    list
};

/// An application.
#[derive(Debug)]
pub struct App {
    name: &'static str,
    kind: Kind,
}

/// An option that an application does not support.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unsupported {
    /// It does not choose keys by a distribution, or by a fixed one.
    Distribution,
    /// Its share of writes is fixed.
    Writes,
}

/// The application with that name.
pub fn from_name(name: &str, options: AppOptions) -> Option<Result<App, Unsupported>> {
    let row = TABLE.iter().find(|row| row.name == name)?;
    let bytes = options.bytes.max(MIN_BYTES).next_multiple_of(PAGE);
    Some(match row.takes {
        Takes { distribution: false, .. } if options.distribution.is_some() => Err(Unsupported::Distribution),
        Takes { writes: false, .. } if options.writes.is_some() => Err(Unsupported::Writes),
        _ => Ok(App { name: row.name, kind: (row.make)(&AppOptions { bytes, ..options }) }),
    })
}

impl App {
    /// Whether the out-of-memory killer may kill it without the run having failed.
    pub fn may_be_oom_killed(&self) -> bool {
        matches!(self.kind, Kind::Desktop(_))
    }
}

/// Run a task of a job whose first task has role 0.
fn run_job<J: Job, O: Os>(job: &J, os: &mut O, role: Role) -> Result<(), Signal> {
    if role == 0 { lead(job, os, 0) } else { job.task(os, role) }
}

impl Program for App {
    fn name(&self) -> &str {
        self.name
    }

    fn footprint(&self) -> u64 {
        match &self.kind {
            Kind::Kv(job) => job.footprint(),
            Kind::Fio(job) => job.footprint(),
            Kind::FioMmap(job) => job.footprint(),
            Kind::MongoDb(job) => job.footprint(),
            Kind::Ycsb(job) => job.footprint(),
            Kind::Oltp(job) => job.footprint(),
            Kind::Sort(job) => job.footprint(),
            Kind::Search(job) => job.footprint(),
            Kind::TwoGroups(job) => job.footprint(),
            Kind::ManyGroups(job) => job.footprint(),
            Kind::Desktop(job) => job.footprint(),
            Kind::Llama(job) => job.footprint(),
            Kind::Tiered(job) => job.footprint(),
        }
    }

    fn run<O: Os>(&self, os: &mut O, role: Role) -> Result<(), Signal> {
        match &self.kind {
            Kind::Kv(job) => run_job(job, os, role),
            Kind::Fio(job) => run_job(job, os, role),
            Kind::FioMmap(job) => run_job(job, os, role),
            Kind::MongoDb(job) => run_job(job, os, role),
            Kind::Ycsb(job) => run_job(job, os, role),
            Kind::Oltp(job) => run_job(job, os, role),
            Kind::Sort(job) => run_job(job, os, role),
            Kind::Search(job) => run_job(job, os, role),
            Kind::TwoGroups(job) => job.run(os, role),
            Kind::ManyGroups(job) => job.run(os, role),
            Kind::Desktop(job) => job.run(os, role),
            Kind::Llama(job) => job.run(os, role),
            Kind::Tiered(job) => run_job(job, os, role),
        }
    }
}
