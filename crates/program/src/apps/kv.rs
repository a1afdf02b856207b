//! Key-value stores in memory, as memtier_benchmark drives them: objects in a heap, found through a table of
//! pointers.
//!
//! *memcached*: threads share all objects. An item is one piece: header, key and value. GET counts a
//! reference in the header, so it writes, too. *redis*: its one thread serves all clients, so tasks are
//! servers, each with objects of its own. An object is an entry of the table, its key, and its value with a
//! header; GET stores the time in the value's header.
//!
//! Keys are loaded in their order, so neighbouring keys are neighbours in memory.

use super::AppOptions;
use super::parts::{Heap, Job, PAGE, part};
use crate::keys::{Distribution, Keys, scattered};
use crate::rng::Rng;
use crate::{AccessKind, Os, Signal};
use alloc::vec::Vec;

/// The barrier after all objects are loaded.
const LOADED: u32 = 1;
/// Bytes of a pointer in the table.
const POINTER: u64 = 8;
/// Operations for each page of the heap, so that each page is accessed several times.
const OPERATIONS: u64 = 8;
/// Instructions of the server for an operation; a guess.
const WORK: u64 = 5_000;

/// Bytes of the pieces of an object; each kind of piece fills pages of its own. The last holds the value.
///
/// memcached: a header of 48 bytes, 8 of CAS, a key of 16 and a zero, a value of 32 and its end, in a chunk
/// of the slab class of 120.
const ITEM: &[u64] = &[120];
/// The same with a value of 2,048 bytes, in a chunk of 2,320.
const LARGE_ITEM: &[u64] = &[2320];
/// redis: an entry of 24 bytes and a key of 16 with header and zero, both in allocations of 32; the value in one of 64.
const OBJECT: &[u64] = &[32, 32, 64];

/// The programs `memcached` and `redis`.
#[derive(Clone, Debug)]
pub(super) struct Kv {
    pieces: &'static [u64],
    servers: bool,
    objects: u64,
    tasks: u32,
    distribution: Distribution,
    writes: u32,
}

impl Kv {
    /// memcached, with its 4 threads.
    pub(super) fn memcached(options: &AppOptions) -> Kv {
        Kv::new(options, ITEM, false, 4)
    }

    /// The same with objects of 2 kB.
    pub(super) fn memcached_2k(options: &AppOptions) -> Kv {
        Kv::new(options, LARGE_ITEM, false, 4)
    }

    /// redis, with one server.
    pub(super) fn redis(options: &AppOptions) -> Kv {
        Kv::new(options, OBJECT, true, 1)
    }

    fn new(options: &AppOptions, pieces: &'static [u64], servers: bool, tasks: u32) -> Kv {
        let tasks = options.tasks(tasks);
        // The table has up to two pointers for each object.
        let each = pieces.iter().sum::<u64>() + 2 * POINTER;
        let objects = options.bytes / each;
        // memtier_benchmark's defaults: uniform keys, one SET for ten GETs.
        Kv {
            pieces,
            servers,
            objects,
            tasks,
            distribution: options.distribution.unwrap_or(Distribution::Uniform),
            writes: options.writes.unwrap_or(9),
        }
    }

    /// Objects of one table.
    fn objects_per_table(&self) -> u64 {
        if self.servers { self.objects / u64::from(self.tasks) } else { self.objects }
    }

    /// The table of a server, followed by a heap for each kind of piece.
    fn heaps(&self, server: u32) -> Vec<Heap> {
        let objects = self.objects_per_table();
        let lens = || {
            core::iter::once(objects.next_power_of_two() * POINTER)
                .chain(self.pieces.iter().map(|piece| objects * piece))
        };
        // The heaps of all servers, one after the other.
        let lens = (0..=server).flat_map(|_| lens());
        let next_heap = |last: &mut Option<Heap>, len| {
            *last = Some(last.map_or(Heap::first(len), |last| last.then(len)));
            *last
        };
        lens.scan(None, next_heap).skip(server as usize * (1 + self.pieces.len())).collect()
    }

    /// Bytes of all heaps.
    pub(super) fn footprint(&self) -> u64 {
        let servers = if self.servers { u64::from(self.tasks) } else { 1 };
        servers * self.heaps(0).iter().map(|heap| heap.len).sum::<u64>()
    }

    /// Look up or enter a key's pointer.
    fn pointer<O: Os>(&self, os: &mut O, table: Heap, key: u64, mode: AccessKind) -> Result<(), Signal> {
        let bucket = scattered(key, self.objects_per_table().next_power_of_two());
        table.touch(os, bucket * POINTER, POINTER, mode)
    }

    /// One SET or GET.
    fn operation<O: Os>(&self, os: &mut O, heaps: &[Heap], key: u64, set: bool) -> Result<(), Signal> {
        let [table, keys @ .., values] = heaps else { unreachable!("a store must have a table and values") };
        let [key_pieces @ .., value] = self.pieces else { unreachable!("an object must have a value") };
        self.pointer(os, *table, key, AccessKind::Load)?;
        for (heap, piece) in keys.iter().zip(key_pieces) {
            heap.touch(os, key * piece, *piece, AccessKind::Load)?;
        }
        if set {
            values.touch(os, key * value, *value, AccessKind::Store)?;
        } else {
            values.touch(os, key * value, *value, AccessKind::Load)?;
            values.touch(os, key * value, 8, AccessKind::Store)?;
        }
        os.compute(WORK);
        Ok(())
    }

    fn load<O: Os>(&self, os: &mut O, heaps: &[Heap], keys: core::ops::Range<u64>) -> Result<(), Signal> {
        for key in keys.clone() {
            self.pointer(os, heaps[0], key, AccessKind::Store)?;
            for (heap, piece) in heaps[1..].iter().zip(self.pieces) {
                heap.touch(os, key * piece, *piece, AccessKind::Store)?;
            }
        }
        os.progress(keys.end - keys.start);
        Ok(())
    }
}

impl Job for Kv {
    fn tasks(&self, _: u32) -> u32 {
        self.tasks
    }

    fn processes(&self) -> bool {
        self.servers
    }

    fn set_up<O: Os>(&self, os: &mut O) -> Result<(), Signal> {
        let servers = if self.servers { self.tasks } else { 1 };
        (0..servers).flat_map(|server| self.heaps(server)).try_for_each(|heap| heap.map(os))
    }

    fn task<O: Os>(&self, os: &mut O, task: u32) -> Result<(), Signal> {
        let objects = self.objects_per_table();
        let (heaps, own) = match self.servers {
            true => (self.heaps(task), 0..objects),
            false => (self.heaps(0), part(objects, task, self.tasks)),
        };
        self.load(os, &heaps, own.clone())?;
        os.barrier(LOADED, self.tasks);
        let mut rng = Rng::new(os.seed());
        let mut keys = Keys::new(self.distribution, objects, own.start);
        let operations = self.footprint() / PAGE * OPERATIONS / u64::from(self.tasks);
        for _ in 0..operations {
            let key = keys.next(&mut rng);
            let set = rng.percent(self.writes.into());
            self.operation(os, &heaps, key, set)?;
        }
        os.progress(operations);
        Ok(())
    }
}
