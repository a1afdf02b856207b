//! Programs with memory that does not fit into fast memory, as papers on tiers measure them: graph500, XSBench, a
//! B-tree, PageRank, Silo under YCSB, and GUPS. Each fills its memory, then does a fixed number of operations on it:
//! loads and stores in the order and with the locality of the real one. docs/programs.md tells where the proportions
//! come from.

use super::Ask;
use super::parts::{Heap, Job, part, touch};
use crate::keys::{Keys, Law, scattered};
use crate::rng::Rng;
use crate::{Access, AccessKind, Os, Signal};

/// Which of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shape {
    /// Breadth-first searches of a graph whose vertices have very different numbers of neighbours.
    Graph500,
    /// Lookups of cross sections in tables over all energies.
    XsBench,
    /// Lookups of keys in a tree.
    BTree,
    /// Ranks of a graph's vertices by those that lead to them.
    PageRank,
    /// Lookups of popular records by a tree.
    Silo,
    /// Updates of objects of so many bytes at random, most of them in a third of memory.
    Gups(u64),
}

/// One of them, of a size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tiered {
    shape: Shape,
    tasks: u32,
    bytes: u64,
}

/// Breadth-first searches of graph500 (64, with as many roots; fewer here), and passes of PageRank (GAP's limit is 20).
const SEARCHES: u64 = 3;
const PASSES: u64 = 3;
/// Neighbours of a vertex: graph500 has 16 edges for each, and both ends know of it; Twitter's graph has 24.
const GRAPH500_DEGREE: u64 = 32;
const TWITTER_DEGREE: u64 = 24;
/// XSBench, large: nuclides, grid points of each, bytes of a grid point; nuclides of the material that is asked for, in
/// the mean.
const NUCLIDES: u64 = 355;
const POINT: u64 = 48;
const POINTS: u64 = 11_303;
const ASKED_NUCLIDES: u64 = 55;
/// Bytes of a tree's node and of a record: guesses.
const NODE: u64 = 256;
const FANOUT: u64 = 16;
const RECORD: u64 = 128;
/// Parts in a hundred of GUPS's updates that go to the hot third (Colloid's setting).
const HOT: u64 = 90;
/// Bytes of a cache line.
const LINE: u64 = 64;
/// Instructions between operations; a guess.
const WORK: u64 = 100;

impl Tiered {
    pub(super) fn new(shape: Shape, ask: &Ask) -> Tiered {
        Tiered { shape, tasks: ask.tasks(4), bytes: ask.bytes }
    }

    pub(super) fn footprint(&self) -> u64 {
        self.bytes
    }

    fn heap(&self) -> Heap {
        Heap::first(self.bytes)
    }

    /// Operations of all tasks: so many for each page that every page is met often.
    fn operations(&self) -> u64 {
        let pages = self.bytes / 4096;
        match self.shape {
            Shape::Graph500 | Shape::PageRank => self.vertices(),
            Shape::XsBench => pages * 4,
            Shape::BTree | Shape::Silo => pages * 32,
            Shape::Gups(64) => pages * 128,
            Shape::Gups(_) => pages * 256,
        }
    }

    /// Vertices of a graph: what is kept of each is its first neighbour's place, its neighbours, and two words of
    /// results.
    fn vertices(&self) -> u64 {
        self.bytes / self.vertex()
    }

    fn vertex(&self) -> u64 {
        match self.shape {
            Shape::Graph500 => 8 + 8 * GRAPH500_DEGREE + 8,
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
        match self.shape {
            Shape::Graph500 => {
                for search in 0..SEARCHES {
                    walk.search(os, operations.clone(), search)?;
                    os.barrier(1 + search as u32, self.tasks);
                }
            }
            Shape::PageRank => {
                for pass in 0..PASSES {
                    walk.rank(os, operations.clone())?;
                    os.barrier(1 + pass as u32, self.tasks);
                }
            }
            Shape::XsBench => (0..done).try_for_each(|_| walk.cross_section(os))?,
            Shape::BTree => {
                let mut keys = Keys::new(Law::Uniform, self.bytes / NODE, 0);
                (0..done).try_for_each(|_| walk.look_up(os, &mut keys, self.bytes, None))?;
            }
            Shape::Silo => {
                let records = self.bytes / (RECORD + RECORD / 2);
                let mut keys = Keys::new(Law::Zipf, records, 0);
                let tree = self.bytes - records * RECORD;
                (0..done).try_for_each(|_| walk.look_up(os, &mut keys, tree, Some(records)))?;
            }
            Shape::Gups(object) => (0..done).try_for_each(|_| walk.update(os, object))?,
        }
        os.progress(done);
        Ok(())
    }
}

/// A task on its way through memory.
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

    /// A vertex that many lead to, more or less: by Zipf's law, as in graphs whose edges attach to what has edges.
    fn popular(&mut self, vertices: u64) -> u64 {
        let rank = crate::zipf::Zipf::new(vertices).next(&mut self.rng);
        scattered(rank, vertices)
    }

    /// A part of a breadth-first search: vertices in no order, of each its place, its neighbours, and for each of them
    /// whether it was seen.
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

    /// A part of a pass: vertices in order, of each its neighbours' share of rank.
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

    /// One lookup of XSBench: an energy is found by halves in the table of all energies; its row says where each
    /// nuclide's grid has it.
    fn cross_section<O: Os>(&mut self, os: &mut O) -> Result<(), Signal> {
        // Of each energy: itself, and a row of one number for each nuclide; as many energies as there is room for.
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

    /// One lookup in a tree of `bytes`: a node of each level, and the record, if there are some.
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
        // From the leaf up; the levels stand behind each other, the leaves first.
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

    /// One update: an object is read and written.
    fn update<O: Os>(&mut self, os: &mut O, object: u64) -> Result<(), Signal> {
        let objects = self.job.bytes / object;
        let hot = (objects / 3).max(1);
        // The hot third is not the first that was filled.
        let at =
            if self.rng.percent(HOT) { objects - 1 - self.rng.below(hot) } else { self.rng.below(objects) };
        // A line at a time, as vector instructions copy.
        let (addr, count) = (self.base + at * object, (object / LINE) as u32);
        os.access(Access { addr, count, mode: AccessKind::Load })?;
        os.access(Access { addr, count, mode: AccessKind::Store })?;
        os.compute(WORK);
        Ok(())
    }
}
