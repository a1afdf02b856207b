//! PostgreSQL and MariaDB under TPC-C: warehouses with their tables and indexes, a buffer pool, a log synced
//! at commit.
//!
//! A task serves one warehouse, as each terminal of TPC-C has a home warehouse. *postgresql*: processes,
//! pages of 8 KiB in shared memory, a small pool above the page cache. *mariadb*: threads, pages of 16 KiB in
//! private memory, a pool of most of memory.

use super::AppOptions;
use super::parts::{Heap, Job, Log, PAGE, open, part};
use super::pool::Pool;
use super::warehouse::{RowAccess, Table, Warehouse};
use crate::rng::Rng;
use crate::{AccessKind, MapSource, Os, Prot, Signal};

/// Checkpoints in a run; a guess, as they are five minutes apart in PostgreSQL.
const CHECKPOINTS: u64 = 4;
/// Pages of the footprint for each transaction; a guess.
const TRANSACTION: u64 = 2;
/// Bytes of the log for each changed row: header, and the row (a guess).
const LOGGED: u64 = 120;
/// Instructions of the server for a row; a guess.
const WORK: u64 = 10_000;

/// The programs `postgresql` and `mariadb`.
#[derive(Clone, Debug)]
pub(super) struct Oltp {
    name: &'static str,
    shared: bool,
    page: u64,
    tasks: u32,
    pool: u64,
    pages: u64,
    log: u64,
}

impl Oltp {
    /// `shared_buffers` is a quarter of memory, where its documentation suggests to start: an eighth of the
    /// footprint, if memory is half of it.
    pub(super) fn postgresql(options: &AppOptions) -> Oltp {
        Oltp::new("postgresql", options, 8 << 10, options.bytes / 8)
    }

    /// `innodb_buffer_pool_size` is 80 % of memory, as its documentation suggests for dedicated servers.
    pub(super) fn mariadb(options: &AppOptions) -> Oltp {
        Oltp::new("mariadb", options, 16 << 10, options.bytes * 2 / 5)
    }

    fn new(name: &'static str, options: &AppOptions, page: u64, pool: u64) -> Oltp {
        // Every warehouse has some pages of each table, and of the pool.
        let tasks = options.tasks(4).min((pool / page / 8).max(1) as u32);
        let (pool, log) = (pool.max(8 * page), (options.bytes / 20).next_multiple_of(PAGE));
        let pages = (options.bytes - pool - log) / page;
        let tasks = tasks.min((pages / Warehouse::LEAST_PAGES).max(1) as u32);
        Oltp { name, shared: name == "postgresql", page, tasks, pool, pages, log }
    }

    pub(super) fn footprint(&self) -> u64 {
        self.pool + self.pages * self.page + self.log
    }

    fn pool_of(&self, task: u32) -> Heap {
        let frames = part(self.pool / self.page, task, self.tasks);
        let start = Heap::first(0).start + frames.start * self.page;
        Heap { start, len: (frames.end - frames.start) * self.page }
    }
}

/// The state of a task.
struct Session {
    pool: Pool,
    log: Log,
    /// Rows changed since the last commit.
    changed: u64,
}

impl Session {
    /// Access a row: the root of the index, the leaf, the row.
    fn row<O: Os>(&mut self, os: &mut O, table: &Table, row: u64, access: RowAccess) -> Result<(), Signal> {
        let location = table.find(row);
        self.pool.touch(os, table.root(), (0, 64), AccessKind::Load)?;
        let (leaf, index) = location.index;
        // A new row must be entered in the index.
        let mode = if access == RowAccess::Insert { AccessKind::Store } else { AccessKind::Load };
        self.pool.touch(os, leaf, (index, 16), mode)?;
        let (page, offset) = location.row;
        let mode = if access == RowAccess::Read { AccessKind::Load } else { AccessKind::Store };
        self.pool.touch(os, page, (offset, table.row_bytes()), mode)?;
        self.changed += u64::from(access != RowAccess::Read);
        os.compute(WORK);
        Ok(())
    }

    /// Write the log to the disk before a transaction with changes ends.
    fn commit<O: Os>(&mut self, os: &mut O) -> Result<(), Signal> {
        match core::mem::take(&mut self.changed) {
            0 => Ok(()),
            changed => self.log.append(os, changed * LOGGED),
        }
    }
}

impl Job for Oltp {
    fn tasks(&self, _: u32) -> u32 {
        self.tasks
    }

    fn processes(&self) -> bool {
        self.shared
    }

    fn set_up<O: Os>(&self, os: &mut O) -> Result<(), Signal> {
        let source = if self.shared { MapSource::AnonymousShared } else { MapSource::Anonymous };
        Heap::first(self.pool).map_as(os, source, Prot::RW)
    }

    fn task<O: Os>(&self, os: &mut O, task: u32) -> Result<(), Signal> {
        let (data, log) = (alloc::format!("{}-data", self.name), alloc::format!("{}-log", self.name));
        let (data, log) = (open(os, &data, self.pages * self.page)?, open(os, &log, self.log)?);
        let own = part(self.pages, task, self.tasks);
        let log = Log::new(log, part(self.log, task, self.tasks), 1);
        let mut session = Session { pool: Pool::new(self.pool_of(task), data, self.page), log, changed: 0 };
        let mut warehouse = Warehouse::new(own.clone(), self.page);
        for page in own {
            session.pool.touch(os, page, (0, 64), AccessKind::Load)?;
        }
        let mut rng = Rng::new(os.seed());
        let transactions = self.footprint() / PAGE / TRANSACTION / u64::from(self.tasks);
        for done in 1..=transactions {
            warehouse.transaction(&mut rng, |table, row, access| session.row(os, table, row, access))?;
            session.commit(os)?;
            if done % transactions.div_ceil(CHECKPOINTS) == 0 {
                session.pool.checkpoint(os)?;
            }
        }
        session.pool.assert_used();
        os.progress(transactions);
        Ok(())
    }
}
