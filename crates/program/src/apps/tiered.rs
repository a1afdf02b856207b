//! Programs whose memory does not fit in fast memory, as papers on memory tiers measure them: graph500,
//! XSBench, a B-tree, PageRank, Silo under YCSB, and GUPS. Each fills its memory, then does a fixed number of
//! operations on it: loads and stores in the order and with the locality of the real program.
//! docs/programs.md says where the proportions come from.

use super::AppOptions;
use super::parts::{Heap, Job, part, touch};
use crate::keys::{Distribution, Keys, scattered};
use crate::rng::Rng;
use crate::{Access, AccessKind, Os, Signal};

/// The modelled programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Workload {
    /// Breadth-first searches of a graph whose vertices have very different numbers of neighbours.
    Graph500,
    /// Lookups of cross sections in tables over all energies.
    XsBench,
    /// Lookups of keys in a tree.
    BTree,
    /// The rank of each vertex of a graph, from the vertices that link to it.
    PageRank,
    /// Lookups of popular records through a tree.
    Silo,
    /// Updates of objects of this many bytes at random, most of them in a third of memory.
    Gups(u64),
}

/// One of the programs, with its size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tiered {
    workload: Workload,
    tasks: u32,
    bytes: u64,
}

/// Breadth-first searches (graph500 does 64, from as many roots), and passes of PageRank (GAP stops after
/// 20).
const SEARCHES: u64 = 3;
const PASSES: u64 = 3;
/// Neighbours of a vertex: graph500 has 16 edges for each, stored at both ends; Twitter's graph has 24.
const GRAPH500_DEGREE: u64 = 32;
const TWITTER_DEGREE: u64 = 24;
/// XSBench, large: nuclides, bytes of a grid point, grid points of each nuclide, and mean number of nuclides
/// in the material of a lookup.
const NUCLIDES: u64 = 355;
const POINT: u64 = 48;
const POINTS: u64 = 11_303;
const ASKED_NUCLIDES: u64 = 55;
/// Bytes of a tree's node and of a record: guesses.
const NODE: u64 = 256;
const FANOUT: u64 = 16;
const RECORD: u64 = 128;
/// Per cent of GUPS's updates that go to the hot third (Colloid's setting).
const HOT: u64 = 90;
/// Bytes of a cache line.
const LINE: u64 = 64;
/// Instructions between operations; a guess.
const WORK: u64 = 100;

impl Tiered {
    pub(super) fn new(workload: Workload, options: &AppOptions) -> Tiered {
        Tiered { workload, tasks: options.tasks(4), bytes: options.bytes }
    }

    pub(super) fn footprint(&self) -> u64 {
        self.bytes
    }

    fn heap(&self) -> Heap {
        Heap::first(self.bytes)
    }

    /// Operations of all tasks: enough for each page to be used often.
    fn operations(&self) -> u64 {
        let pages = self.bytes / 4096;
        match self.workload {
            Workload::Graph500 | Workload::PageRank => self.vertices(),
            Workload::XsBench => pages * 4,
            Workload::BTree | Workload::Silo => pages * 32,
            Workload::Gups(64) => pages * 128,
            Workload::Gups(_) => pages * 256,
        }
    }

    /// Number of vertices of a graph. Each has the position of its first neighbour, its neighbours, and two
    /// words of results.
    fn vertices(&self) -> u64 {
        self.bytes / self.vertex()
    }

    fn vertex(&self) -> u64 {
        match self.workload {
            Workload::Graph500 => 8 + 8 * GRAPH500_DEGREE + 8,
            _ => 8 + 4 * TWITTER_DEGREE + 4 + 4,
        }
    }
}

impl Job for Tiered {
    fn tasks(&self, _: u32) -> u32 {
        self.tasks
    }

    fn set_up<O: Os>(&self, os: &mut O) -> Result<(), Signal> {
        self.heap().map(os)
    }

    fn task<O: Os>(&self, os: &mut O, task: u32) -> Result<(), Signal> {
        let own = part(self.bytes / 4096, task, self.tasks);
        let heap = self.heap();
        heap.touch(os, own.start * 4096, (own.end - own.start) * 4096, AccessKind::Store)?;
        os.barrier(0, self.tasks);
        let mut walk = Walk { job: self, rng: Rng::new(os.seed()), base: heap.start };
        let operations = part(self.operations(), task, self.tasks);
        let done = operations.end - operations.start;
        match self.workload {
            Workload::Graph500 => {
                for search in 0..SEARCHES {
                    walk.search(os, operations.clone(), search)?;
                    os.barrier(1 + search as u32, self.tasks);
                }
            }
            Workload::PageRank => {
                for pass in 0..PASSES {
                    walk.rank(os, operations.clone())?;
                    os.barrier(1 + pass as u32, self.tasks);
                }
            }
            Workload::XsBench => (0..done).try_for_each(|_| walk.cross_section(os))?,
            Workload::BTree => {
                let mut keys = Keys::new(Distribution::Uniform, self.bytes / NODE, 0);
                (0..done).try_for_each(|_| walk.look_up(os, &mut keys, self.bytes, None))?;
            }
            Workload::Silo => {
                let records = self.bytes / (RECORD + RECORD / 2);
                let mut keys = Keys::new(Distribution::Zipf, records, 0);
                let tree = self.bytes - records * RECORD;
                (0..done).try_for_each(|_| walk.look_up(os, &mut keys, tree, Some(records)))?;
            }
            Workload::Gups(object) => (0..done).try_for_each(|_| walk.update(os, object))?,
        }
        os.progress(done);
        Ok(())
    }
}

/// The accesses of a task.
struct Walk<'a> {
    job: &'a Tiered,
    rng: Rng,
    base: u64,
}

impl Walk<'_> {
    fn word<O: Os>(&self, os: &mut O, offset: u64, mode: AccessKind) -> Result<(), Signal> {
        os.access(Access { addr: self.base + offset.min(self.job.bytes - 8) / 8 * 8, count: 1, mode })
    }

    fn range<O: Os>(&self, os: &mut O, offset: u64, len: u64) -> Result<(), Signal> {
        touch(os, self.base + offset, len.min(self.job.bytes - offset), AccessKind::Load)
    }

    /// A random vertex by Zipf's law: graphs in which new edges prefer well-connected vertices have such
    /// degrees.
    fn popular(&mut self, vertices: u64) -> u64 {
        let rank = crate::zipf::Zipf::new(vertices).next(&mut self.rng);
        scattered(rank, vertices)
    }

    /// A part of a breadth-first search: vertices in a scattered order; for each its position, its
    /// neighbours, and whether each neighbour was visited.
    fn search<O: Os>(&mut self, os: &mut O, own: core::ops::Range<u64>, root: u64) -> Result<(), Signal> {
        let vertices = self.job.vertices();
        let (lists, parents) = (8 * vertices, (8 + 8 * GRAPH500_DEGREE) * vertices);
        for i in own {
            let vertex = scattered(i + root * 7919, vertices);
            self.word(os, 8 * vertex, AccessKind::Load)?;
            self.range(os, lists + 8 * GRAPH500_DEGREE * vertex, 8 * GRAPH500_DEGREE)?;
            for _ in 0..GRAPH500_DEGREE / 4 {
                let other = self.popular(vertices);
                self.word(os, parents + 8 * other, AccessKind::Load)?;
            }
            self.word(os, parents + 8 * scattered(i * 31 + 17, vertices), AccessKind::Store)?;
            os.compute(WORK);
        }
        Ok(())
    }

    /// A part of a pass: vertices in order, and for each its neighbours' shares of rank.
    fn rank<O: Os>(&mut self, os: &mut O, own: core::ops::Range<u64>) -> Result<(), Signal> {
        let vertices = self.job.vertices();
        let (lists, shares) = (8 * vertices, (8 + 4 * TWITTER_DEGREE) * vertices);
        let scores = shares + 4 * vertices;
        for vertex in own {
            self.word(os, 8 * vertex, AccessKind::Load)?;
            self.range(os, lists + 4 * TWITTER_DEGREE * vertex, 4 * TWITTER_DEGREE)?;
            for _ in 0..TWITTER_DEGREE / 4 {
                let other = self.popular(vertices);
                self.word(os, shares + 4 * other, AccessKind::Load)?;
            }
            self.word(os, scores + 4 * vertex, AccessKind::Store)?;
            os.compute(WORK);
        }
        Ok(())
    }

    /// One lookup of XSBench: a binary search in the table of all energies finds a row, which has the
    /// position in each nuclide's grid.
    fn cross_section<O: Os>(&mut self, os: &mut O) -> Result<(), Signal> {
        // For each energy: its value, and a row of one number for each nuclide; as many energies as fit.
        let row = 8 + 4 * NUCLIDES;
        let grids = (self.job.bytes / 32).min(NUCLIDES * POINTS * POINT);
        let energies = (self.job.bytes - grids) / row;
        let wanted = self.rng.below(energies);
        let (mut low, mut high) = (0, energies);
        while high - low > 1 {
            let middle = (low + high) / 2;
            self.word(os, grids + 8 * middle, AccessKind::Load)?;
            if middle <= wanted { low = middle } else { high = middle }
        }
        self.range(os, grids + 8 * energies + 4 * NUCLIDES * low, 4 * ASKED_NUCLIDES)?;
        let points = (grids / NUCLIDES / POINT).max(1);
        for nuclide in 0..ASKED_NUCLIDES {
            let point = (low * points / energies + nuclide) % points;
            self.range(os, (nuclide * points + point) * POINT, 2 * POINT)?;
        }
        os.compute(WORK * ASKED_NUCLIDES);
        Ok(())
    }

    /// One lookup in a tree of `bytes`: a node of each level, and the record, if there are records.
    fn look_up<O: Os>(
        &mut self,
        os: &mut O,
        keys: &mut Keys,
        bytes: u64,
        records: Option<u64>,
    ) -> Result<(), Signal> {
        let key = keys.next_scattered(&mut self.rng);
        let leaves = (bytes / NODE * (FANOUT - 1) / FANOUT).max(1);
        let of_leaf = records.map_or(1, |records| records.div_ceil(leaves));
        let mut node = (key / of_leaf).min(leaves - 1);
        let (mut level, mut start) = (leaves, 0);
        let mut path = [0; 16];
        let mut depth = 0;
        // From the leaf up. Levels follow each other in memory, beginning with the leaves.
        loop {
            path[depth] = start + node;
            depth += 1;
            if level == 1 || depth == path.len() {
                break;
            }
            start += level;
            (level, node) = (level.div_ceil(FANOUT), node / FANOUT);
        }
        for &node in path[..depth].iter().rev() {
            self.word(os, node * NODE, AccessKind::Load)?;
            self.word(os, node * NODE + NODE / 2, AccessKind::Load)?;
        }
        if let Some(records) = records {
            self.range(os, bytes + key.min(records - 1) * RECORD, RECORD)?;
        }
        os.compute(WORK);
        Ok(())
    }

    /// One update: read and write an object.
    fn update<O: Os>(&mut self, os: &mut O, object: u64) -> Result<(), Signal> {
        let objects = self.job.bytes / object;
        let hot = (objects / 3).max(1);
        // The hot third is not the part that was filled first.
        let at =
            if self.rng.percent(HOT) { objects - 1 - self.rng.below(hot) } else { self.rng.below(objects) };
        // A cache line at a time, as vector instructions copy.
        let (addr, count) = (self.base + at * object, (object / LINE) as u32);
        os.access(Access { addr, count, mode: AccessKind::Load })?;
        os.access(Access { addr, count, mode: AccessKind::Store })?;
        os.compute(WORK);
        Ok(())
    }
}
