//! PostgreSQL and MariaDB under TPC-C: warehouses, each with its tables and their indexes, a buffer pool, a log synced
//! at commit.
//!
//! A task serves one warehouse, as TPC-C's terminals have a home. *postgresql*: processes, pages of 8 KiB in shared
//! memory, a small pool in front of the page cache. *mariadb*: threads, pages of 16 KiB in private memory, a pool of
//! most of memory.

use super::Ask;
use super::parts::{Heap, Job, Log, PAGE, open, part};
use super::pool::Pool;
use super::warehouse::{Access, Table, Warehouse};
use crate::rng::Rng;
use crate::{AccessKind, MapSource, Os, Prot, Signal};

/// Checkpoints in a run: five minutes apart in PostgreSQL; a guess.
const CHECKPOINTS: u64 = 4;
/// Pages of the footprint for each transaction; a guess.
const TRANSACTION: u64 = 2;
/// Bytes of the log for each row that is changed: header, and the row (a guess).
const LOGGED: u64 = 120;
/// Instructions of the server for a row; a guess.
const WORK: u64 = 10_000;

/// The server.
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
    /// `shared_buffers` is a quarter of memory, as its documentation says to begin with: an eighth of the footprint, if
    /// memory is half of it.
    pub(super) fn postgresql(ask: &Ask) -> Oltp {
        Oltp::new("postgresql", ask, 8 << 10, ask.bytes / 8)
    }

    /// `innodb_buffer_pool_size` is 80 % of memory, as its documentation has it for servers of their own.
    pub(super) fn mariadb(ask: &Ask) -> Oltp {
        Oltp::new("mariadb", ask, 16 << 10, ask.bytes * 2 / 5)
    }

    fn new(name: &'static str, ask: &Ask, page: u64, pool: u64) -> Oltp {
        // Every warehouse has some pages of each table, and of the pool.
        let tasks = ask.tasks(4).min((pool / page / 8).max(1) as u32);
        let (pool, log) = (pool.max(8 * page), (ask.bytes / 20).next_multiple_of(PAGE));
        let pages = (ask.bytes - pool - log) / page;
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

/// What a task works with.
struct Session {
    pool: Pool,
    log: Log,
    /// Rows changed since the last commit.
    changed: u64,
}

impl Session {
    /// Look a row up: the root of the index, the leaf, the row.
    fn row<O: Os>(&mut self, os: &mut O, table: &Table, row: u64, access: Access) -> Result<(), Signal> {
        let place = table.find(row);
        self.pool.touch(os, table.root(), (0, 64), AccessKind::Load)?;
        let (leaf, index) = place.index;
        // A row that comes has to be entered there.
        let mode = if access == Access::Insert { AccessKind::Store } else { AccessKind::Load };
        self.pool.touch(os, leaf, (index, 16), mode)?;
        let (page, offset) = place.row;
        let mode = if access == Access::Read { AccessKind::Load } else { AccessKind::Store };
        self.pool.touch(os, page, (offset, table.row_bytes()), mode)?;
        self.changed += u64::from(access != Access::Read);
        os.compute(WORK);
        Ok(())
    }

    /// The log is on the disk before a transaction that has changed something ends.
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
