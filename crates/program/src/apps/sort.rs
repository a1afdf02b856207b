//! Sorts that are larger than memory: map, spill, shuffle, merge.
//!
//! Each task maps its part of the input into a buffer. A full buffer is sorted and spilled, ordered by the
//! reducer that gets it. After all tasks have mapped, each reads its part of what every other task has
//! written (the shuffle), merges it, and writes the output.
//!
//! *terasort* (Hadoop): a task is a process with a heap of its own, and merges its spills into one file
//! before the shuffle.
//!
//! *spark-sort*: tasks are threads of one executor, whose heap they divide, and the shuffle reads the spills
//! themselves.

use super::AppOptions;
use super::parts::{Heap, Job, PAGE, must, open, part, pieces, read, write};
use crate::rng::Rng;
use crate::{AccessKind, Os, Signal};
use core::ops::Range;

/// The barrier between map and reduce.
const MAPPED: u32 = 3;
/// Bytes of one read or write: Hadoop's `io.file.buffer.size` is 4 KiB, but streams read ahead to 128.
const CHUNK: u64 = 128 << 10;
/// How full the buffer is when it is spilled (`mapreduce.map.sort.spill.percent`), in per cent.
const SPILL: u64 = 80;
/// Random touches for each page of the buffer while it is sorted, which models the comparisons; a guess.
const SORT: u64 = 4;
/// Instructions for a page of records that is mapped, sorted or merged; a guess.
const WORK: u64 = 40_000;

/// The programs `terasort` and `spark-sort`.
#[derive(Clone, Debug)]
pub(super) struct Sort {
    name: &'static str,
    merges: bool,
    tasks: u32,
    /// Pages of the input, of every copy of it, and of the buffers.
    input: u64,
    buffers: u64,
}

impl Sort {
    /// Hadoop: input, spills, merged spills and output have the same size. So do all buffers, roughly:
    /// `mapreduce.task.io.sort.mb` is 100 MB for a block of 128 MB.
    pub(super) fn terasort(options: &AppOptions) -> Sort {
        Sort::new("terasort", options, true, 4)
    }

    /// Spark: input, shuffle files and output; its memory is as large as one of them (a guess).
    pub(super) fn spark(options: &AppOptions) -> Sort {
        Sort::new("spark-sort", options, false, 4)
    }

    fn new(name: &'static str, options: &AppOptions, merges: bool, tasks: u32) -> Sort {
        let copies = if merges { 4 } else { 3 };
        let input = options.bytes / PAGE / (copies + 1);
        let buffers = if merges { input * 4 / 5 } else { input };
        // Every reducer gets at least a page of every spill.
        let max = (1..=options.tasks(tasks))
            .take_while(|&tasks| u64::from(tasks) * u64::from(tasks) * 8 <= input)
            .last();
        Sort { name, merges, tasks: max.unwrap_or(1), input, buffers }
    }

    pub(super) fn footprint(&self) -> u64 {
        let copies = if self.merges { 4 } else { 3 };
        (copies * self.input + self.buffers) * PAGE
    }

    fn file<O: Os>(&self, os: &mut O, kind: &str) -> Result<u32, Signal> {
        open(os, &alloc::format!("{}-{kind}", self.name), self.input * PAGE)
    }

    fn own(&self, task: u32) -> Range<u64> {
        part(self.input, task, self.tasks)
    }

    fn buffer(&self, task: u32) -> Heap {
        let pages = part(self.buffers, task, self.tasks);
        Heap { start: Heap::first(0).start + pages.start * PAGE, len: (pages.end - pages.start) * PAGE }
    }

    /// Pages in a buffer when it is spilled.
    fn spill(&self, task: u32) -> u64 {
        (self.buffer(task).len / PAGE * SPILL / 100).max(1)
    }

    /// Read the input into the buffer, and sort and spill it whenever it is full.
    fn map<O: Os>(&self, os: &mut O, task: u32) -> Result<(), Signal> {
        let (input, spills) = (self.file(os, "input")?, self.file(os, "spills")?);
        let (buffer, mut rng) = (self.buffer(task), Rng::new(os.seed()));
        for (first, pages) in pieces(self.own(task), self.spill(task)) {
            for (at, len) in pieces(first * PAGE..(first + pages) * PAGE, CHUNK) {
                read(os, input, at, len)?;
                buffer.touch(os, at - first * PAGE, len, AccessKind::Store)?;
            }
            for _ in 0..pages * SORT {
                buffer.touch(os, rng.below(pages) * PAGE + rng.below(512) * 8, 8, AccessKind::Store)?;
            }
            os.compute(pages * WORK);
            for (at, len) in pieces(first * PAGE..(first + pages) * PAGE, CHUNK) {
                buffer.touch(os, at - first * PAGE, len, AccessKind::Load)?;
                write(os, spills, at, len)?;
            }
        }
        os.progress(self.own(task).end - self.own(task).start);
        Ok(())
    }

    /// Merge the spills of a task: read them in parallel, write one file.
    fn merge<O: Os>(&self, os: &mut O, task: u32) -> Result<(), Signal> {
        let (spills, merged) = (self.file(os, "spills")?, self.file(os, "merged")?);
        let own = self.own(task);
        for reducer in 0..self.tasks {
            let mut pages = 0;
            for (first, len) in pieces(own.clone(), self.spill(task)) {
                let wanted = part(len, reducer, self.tasks);
                read_pages(os, spills, first + wanted.start..first + wanted.end)?;
                pages += wanted.end - wanted.start;
            }
            let from = own.start + self.pages_before(task, reducer);
            assert_eq!(pages, self.pages_before(task, reducer + 1) - self.pages_before(task, reducer));
            for (at, len) in pieces(from * PAGE..(from + pages) * PAGE, CHUNK) {
                write(os, merged, at, len)?;
            }
            os.compute(pages * WORK);
        }
        must(os.close(spills))
    }

    /// Pages of a mapper's output for the reducers before this one.
    fn pages_before(&self, mapper: u32, reducer: u32) -> u64 {
        pieces(self.own(mapper), self.spill(mapper))
            .map(|(_, len)| part(len, reducer, self.tasks).start)
            .sum()
    }

    /// Read a reducer's part of every mapper's output into the buffer, merge it, and write the output.
    fn reduce<O: Os>(&self, os: &mut O, task: u32) -> Result<u64, Signal> {
        let output = self.file(os, "output")?;
        let from = self.file(os, if self.merges { "merged" } else { "spills" })?;
        let buffer = self.buffer(task);
        let written = (0..task).map(|reducer| self.pages_for(reducer)).sum::<u64>();
        let mut fetched = 0;
        for mapper in 0..self.tasks {
            let own = self.own(mapper);
            let (first, end) = (self.pages_before(mapper, task), self.pages_before(mapper, task + 1));
            if self.merges {
                read_pages(os, from, own.start + first..own.start + end)?;
            } else {
                for (spill, len) in pieces(own, self.spill(mapper)) {
                    let wanted = part(len, task, self.tasks);
                    read_pages(os, from, spill + wanted.start..spill + wanted.end)?;
                }
            }
            for page in fetched..fetched + end - first {
                buffer.touch(os, page * PAGE % buffer.len, PAGE, AccessKind::Store)?;
            }
            fetched += end - first;
        }
        os.compute(fetched * WORK);
        for page in 0..fetched {
            buffer.touch(os, page * PAGE % buffer.len, PAGE, AccessKind::Load)?;
            write(os, output, (written + page) * PAGE, PAGE)?;
        }
        must(os.fsync(output))?;
        os.progress(fetched);
        Ok(fetched)
    }

    /// Pages that a reducer gets from all mappers.
    fn pages_for(&self, reducer: u32) -> u64 {
        (0..self.tasks)
            .map(|mapper| self.pages_before(mapper, reducer + 1) - self.pages_before(mapper, reducer))
            .sum()
    }
}

fn read_pages<O: Os>(os: &mut O, fd: u32, pages: Range<u64>) -> Result<(), Signal> {
    pieces(pages.start * PAGE..pages.end * PAGE, CHUNK).try_for_each(|(at, len)| read(os, fd, at, len))
}

impl Job for Sort {
    fn tasks(&self, _: u32) -> u32 {
        self.tasks
    }

    fn processes(&self) -> bool {
        self.merges
    }

    fn set_up<O: Os>(&self, os: &mut O) -> Result<(), Signal> {
        let all: u64 = (0..self.tasks).map(|reducer| self.pages_for(reducer)).sum();
        assert_eq!(all, self.input, "reducers must get what mappers read");
        assert!(self.spill(0) < self.own(0).end, "a task's input must be larger than its buffer");
        Heap::first(self.buffers * PAGE).map(os)
    }

    fn task<O: Os>(&self, os: &mut O, task: u32) -> Result<(), Signal> {
        self.map(os, task)?;
        if self.merges {
            self.merge(os, task)?;
        }
        os.barrier(MAPPED, self.tasks);
        let pages_for = self.reduce(os, task)?;
        assert_eq!(pages_for, self.pages_for(task), "the reducer must fetch all of its pages");
        Ok(())
    }
}
