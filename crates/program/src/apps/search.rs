//! A search through all files of a tree, ten times, as ripgrep does it: each pass reads every file from end
//! to end.

use super::AppOptions;
use super::parts::{Heap, Job, PAGE, must, open, part, pieces, read};
use crate::rng::Rng;
use crate::{AccessKind, Os, Signal};

/// Passes over the tree.
const PASSES: u64 = 10;
/// Bytes of ripgrep's buffer.
const BUFFER: u64 = 64 << 10;
/// Pages of a file, on average: files in Linux's tree have about 16 KiB. The size is a sum of two dice, so
/// that there are many small files; a guess.
const MEAN: u64 = 4;
/// Instructions to search a page; a guess.
const WORK: u64 = 1_000;
/// The tree is the same for all tasks and seeds.
const TREE_SEED: u64 = 7;

/// The program `file-search`.
#[derive(Clone, Debug)]
pub(super) struct Search {
    pages: u64,
    tasks: Option<u32>,
    passes: u64,
}

impl Search {
    /// A search with ten passes.
    pub(super) fn new(options: &AppOptions) -> Search {
        let tasks = options.threads.map(|tasks| AppOptions { threads: Some(tasks), ..*options }.tasks(1));
        Search { pages: options.bytes / PAGE, tasks, passes: PASSES }
    }

    pub(super) fn footprint(&self) -> u64 {
        self.pages * PAGE
    }

    /// The files of a part of the tree: the number of pages of each.
    fn files(&self, task: u32, tasks: u32) -> impl Iterator<Item = u64> {
        let pages = part(self.pages, task, tasks);
        let (mut rest, mut rng) = (pages.end - pages.start, Rng::new(TREE_SEED + u64::from(task)));
        core::iter::from_fn(move || {
            let wanted = 1 + rng.below(MEAN) + rng.below(MEAN);
            let file = wanted.min(rest);
            rest -= file;
            (file > 0).then_some(file)
        })
    }
}

impl Job for Search {
    /// One for each CPU by default.
    fn tasks(&self, cpus: u32) -> u32 {
        self.tasks.unwrap_or(cpus).min((self.pages / 16) as u32)
    }

    fn set_up<O: Os>(&self, os: &mut O) -> Result<(), Signal> {
        Heap::first(BUFFER * u64::from(self.tasks(os.cpus()))).map(os)
    }

    fn task<O: Os>(&self, os: &mut O, task: u32) -> Result<(), Signal> {
        let tasks = self.tasks(os.cpus());
        let buffer = Heap { start: Heap::first(0).start + u64::from(task) * BUFFER, len: BUFFER };
        for _ in 0..self.passes {
            let mut searched = 0;
            for (number, pages) in self.files(task, tasks).enumerate() {
                let fd = open(os, &alloc::format!("tree-{task}-{number}"), pages * PAGE)?;
                for (at, len) in pieces(0..pages * PAGE, BUFFER) {
                    read(os, fd, at, len)?;
                    buffer.touch(os, 0, len, AccessKind::Load)?;
                }
                must(os.close(fd))?;
                os.compute(pages * WORK);
                searched += pages;
            }
            let own = part(self.pages, task, tasks);
            assert_eq!(searched, own.end - own.start, "each pass must search every page");
            os.progress(searched);
        }
        Ok(())
    }
}
