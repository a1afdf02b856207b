//! Applications: what memory sees of real programs that benchmarks of replacement policies run.
//!
//! docs/programs.md tells of each what is modelled, where its numbers come from, and what is a guess. One unit of
//! progress is one operation (or transaction, or page sorted or searched). What a task does depends on the run's seed
//! alone, never on when others do what, so all policies are given the same work.

mod ask;
mod desktop;
mod fio;
mod fio_mmap;
mod groups;
mod kv;
mod llama;
mod lsm;
mod mongodb;
mod oltp;
mod parts;
mod pool;
mod search;
mod shape;
mod sort;
#[cfg(test)]
mod tests;
mod tiered;
mod warehouse;
mod ycsb;

use crate::{Os, Program, Role, Signal};
pub use ask::Ask;
use desktop::Desktop;
use fio::Fio;
use fio_mmap::FioMmap;
use groups::{ManyGroups, TwoGroups};
use kv::Kv;
use llama::Llama;
use mongodb::MongoDb;
use oltp::Oltp;
use parts::{Job, PAGE, lead};
use search::Search;
use sort::Sort;
use tiered::{Shape, Tiered};
use ycsb::Ycsb;

/// Smallest footprint.
const LEAST: u64 = 1 << 20;

/// One row of the list: how an application is made, and what it understands besides its size and its tasks.
struct Row {
    name: &'static str,
    help: &'static str,
    /// May a distribution and a share of writes be given?
    takes: Takes,
    make: fn(&Ask) -> Kind,
}

/// What may be given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Takes {
    law: bool,
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
        takes: Takes { law: true, writes: true },
        make: |ask| Kind::Kv(Kv::memcached(ask)),
    },
    Row {
        name: "redis",
        help: "the same for redis: each task is a server with objects of its own, in allocations by size",
        takes: Takes { law: true, writes: true },
        make: |ask| Kind::Kv(Kv::redis(ask)),
    },
    Row {
        name: "fio",
        help: "jobs, one for each CPU, read blocks of 4 KiB of files of their own by read(2), by DISTRIBUTION (uniform)",
        takes: Takes { law: true, writes: false },
        make: |ask| Kind::Fio(Fio::new(ask)),
    },
    Row {
        name: "fio-mmap",
        help: "threads, one for each CPU, use blocks of 4 KiB of one mapped file by DISTRIBUTION (uniform); 0% writes",
        takes: Takes { law: true, writes: true },
        make: |ask| Kind::FioMmap(FioMmap::new(ask)),
    },
    Row {
        name: "mongodb",
        help: "YCSB on a server with a cache of its own, a file of 32 KiB pages, journal and checkpoints; zipf, 5% writes",
        takes: Takes { law: true, writes: true },
        make: |ask| Kind::MongoDb(MongoDb::new(ask)),
    },
    Row {
        name: "cassandra",
        help: "YCSB on a server with a Java heap, mapped files of sorted runs, commit log and compaction; zipf, 5% writes",
        takes: Takes { law: true, writes: true },
        make: |ask| Kind::Ycsb(Ycsb::cassandra(ask)),
    },
    Row {
        name: "lsm",
        help: "YCSB on LevelDB: read(2) of 4 KiB blocks, log, sorted runs that are merged; zipf, 50% writes",
        takes: Takes { law: true, writes: true },
        make: |ask| Kind::Ycsb(Ycsb::lsm(ask)),
    },
    Row {
        name: "get-scan",
        help: "the same store, read only: GETs by DISTRIBUTION (zipf) and, one in 2000, SCANs of 10000 records",
        takes: Takes { law: true, writes: true },
        make: |ask| Kind::Ycsb(Ycsb::get_scan(ask)),
    },
    Row {
        name: "postgresql",
        help: "TPC-C on processes with a small shared buffer pool, files of 8 KiB pages, a log synced at commit",
        takes: Takes { law: false, writes: false },
        make: |ask| Kind::Oltp(Oltp::postgresql(ask)),
    },
    Row {
        name: "mariadb",
        help: "TPC-C on threads with a buffer pool of most of memory, files of 16 KiB pages, a log synced at commit",
        takes: Takes { law: false, writes: false },
        make: |ask| Kind::Oltp(Oltp::mariadb(ask)),
    },
    Row {
        name: "terasort",
        help: "Hadoop's sort: processes map, spill, merge, shuffle and reduce files of four times what they hold",
        takes: Takes { law: false, writes: false },
        make: |ask| Kind::Sort(Sort::terasort(ask)),
    },
    Row {
        name: "spark-sort",
        help: "Spark's sort: threads of one heap map, spill, shuffle and reduce",
        takes: Takes { law: false, writes: false },
        make: |ask| Kind::Sort(Sort::spark(ask)),
    },
    Row {
        name: "file-search",
        help: "read all files of a tree by read(2), ten times over, a task for each CPU",
        takes: Takes { law: false, writes: false },
        make: |ask| Kind::Search(Search::new(ask)),
    },
    Row {
        name: "two-groups",
        help: "lsm without writes, and file-search, each in a control group with less memory than it touches",
        takes: Takes { law: true, writes: true },
        make: |ask| Kind::TwoGroups(TwoGroups::new(ask)),
    },
    Row {
        name: "many-groups",
        help: "processes (THREADS of them, 100), each in a control group, fill memory and read a file; one in two goes on by Zipf's law",
        takes: Takes { law: false, writes: false },
        make: |ask| Kind::ManyGroups(ManyGroups::new(ask)),
    },
    Row {
        name: "desktop",
        help: "open programs (THREADS of them, 12) one after the other and go back to some; --all shows launch times as operation_time",
        takes: Takes { law: false, writes: false },
        make: |ask| Kind::Desktop(Desktop::new(ask)),
    },
    Row {
        name: "llama",
        help: "three processes of llama.cpp, each with a mapped model of its own and THREADS (15) threads that spin; 24 tokens",
        takes: Takes { law: false, writes: false },
        make: |ask| Kind::Llama(Llama::new(ask)),
    },
    Row {
        name: "graph500",
        help: "breadth-first searches of a graph by Zipf's law in memory (docs/programs.md: programs for tiers)",
        takes: Takes { law: false, writes: false },
        make: |ask| Kind::Tiered(Tiered::new(Shape::Graph500, ask)),
    },
    Row {
        name: "xsbench",
        help: "lookups of cross sections: by halves in a table of energies, then in many small tables",
        takes: Takes { law: false, writes: false },
        make: |ask| Kind::Tiered(Tiered::new(Shape::XsBench, ask)),
    },
    Row {
        name: "btree",
        help: "lookups of uniform keys in a tree in memory",
        takes: Takes { law: false, writes: false },
        make: |ask| Kind::Tiered(Tiered::new(Shape::BTree, ask)),
    },
    Row {
        name: "pagerank",
        help: "passes over a graph's vertices in order, of each the ranks of others by Zipf's law",
        takes: Takes { law: false, writes: false },
        make: |ask| Kind::Tiered(Tiered::new(Shape::PageRank, ask)),
    },
    Row {
        name: "silo",
        help: "YCSB's lookups by Zipf's law in a tree with records, in memory",
        takes: Takes { law: false, writes: false },
        make: |ask| Kind::Tiered(Tiered::new(Shape::Silo, ask)),
    },
    Row {
        name: "gups",
        help: "updates of 64 bytes at random, 90% of them in a third of memory",
        takes: Takes { law: false, writes: false },
        make: |ask| Kind::Tiered(Tiered::new(Shape::Gups(64), ask)),
    },
    Row {
        name: "gups-4k",
        help: "the same of objects of 4 KiB, which ask for bandwidth",
        takes: Takes { law: false, writes: false },
        make: |ask| Kind::Tiered(Tiered::new(Shape::Gups(4096), ask)),
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

/// What an application does not understand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// It chooses no keys by a distribution that could be given.
    Law,
    /// Its share of writes is part of what it is.
    Writes,
}

/// The application of that name.
pub fn from_name(name: &str, ask: Ask) -> Option<Result<App, Refused>> {
    let row = TABLE.iter().find(|row| row.name == name)?;
    let bytes = ask.bytes.max(LEAST).next_multiple_of(PAGE);
    Some(match row.takes {
        Takes { law: false, .. } if ask.law.is_some() => Err(Refused::Law),
        Takes { writes: false, .. } if ask.writes.is_some() => Err(Refused::Writes),
        _ => Ok(App { name: row.name, kind: (row.make)(&Ask { bytes, ..ask }) }),
    })
}

impl App {
    /// May it be killed for want of memory without the run having failed?
    pub fn may_die(&self) -> bool {
        matches!(self.kind, Kind::Desktop(_))
    }
}

/// Play a part of a job whose first task has role 0.
fn play<J: Job, O: Os>(job: &J, os: &mut O, role: Role) -> Result<(), Signal> {
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
            Kind::Kv(job) => play(job, os, role),
            Kind::Fio(job) => play(job, os, role),
            Kind::FioMmap(job) => play(job, os, role),
            Kind::MongoDb(job) => play(job, os, role),
            Kind::Ycsb(job) => play(job, os, role),
            Kind::Oltp(job) => play(job, os, role),
            Kind::Sort(job) => play(job, os, role),
            Kind::Search(job) => play(job, os, role),
            Kind::TwoGroups(job) => job.run(os, role),
            Kind::ManyGroups(job) => job.run(os, role),
            Kind::Desktop(job) => job.run(os, role),
            Kind::Llama(job) => job.run(os, role),
            Kind::Tiered(job) => play(job, os, role),
        }
    }
}
