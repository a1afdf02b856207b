//! Language models: processes of llama.cpp, each of which answers from a model of its own that it has mapped. Every
//! token is a pass over all tensors of the model, in their order, shared among threads that spin where they wait for
//! each other.

use super::Ask;
use super::parts::{Heap, PAGE, must, open, part, touch};
use crate::{Access, AccessKind, FileSpec, MapSource, Os, Prot, Role, Signal};
use alloc::format;
use alloc::vec::Vec;

/// Processes, and threads of each, as the LUF series starts them.
const PROCESSES: u32 = 3;
const THREADS: u32 = 15;
/// Passes: one for the prompt of 5 tokens ("who are you?"), one for each of the others of 24.
const PASSES: u64 = 20;
const PROMPT: u64 = 5;
/// Layers of Llama 2 70B, and the tensors of one that are multiplied with, in thousands of weights: query, key, value,
/// output, and the three of the feed-forward net (8192 wide, 8 heads of 128 for keys and values, 28672 between).
const LAYERS: u64 = 80;
const TENSORS: [u64; 7] = [67_109, 8_389, 8_389, 67_109, 234_881, 234_881, 234_881];
/// The token embedding and the output tensor, 32000 x 8192 each.
const EMBEDDING: u64 = 262_144;
/// Of the model's bytes, the part that its cache of keys and values has: 160 MiB (512 tokens, 80 layers, 1024 values of
/// 2 bytes for both) for 70 GiB.
const CACHE_PART: u64 = 448;
/// Tokens that the cache has room for.
const CONTEXT: u64 = 512;
/// Bytes of a vector between layers, for each token: 8192 numbers of 4 bytes; and of the widest one.
const VECTOR: u64 = 8192 * 4;
/// Bytes of the vectors of four operations.
const VECTORS: u64 = 4 * PROMPT * VECTOR;
/// Pages of code: the program's and its libraries', and of one operation's inner loop; guesses.
const CODE: u64 = 512;
const LOOP: u64 = 3;
/// Instructions for a page of weights of 8 bits with AVX2; an estimate.
const WORK: u64 = 800;

/// The processes.
#[derive(Clone, Debug)]
pub(super) struct Llama {
    /// Pages of a model, and of each half of its cache.
    pages: u64,
    cache: u64,
    threads: u32,
}

/// What a process has mapped.
#[derive(Clone, Copy)]
struct Maps {
    model: Heap,
    code: Heap,
    keys: Heap,
    values: Heap,
    /// Vectors between layers, and where threads look for each other.
    vectors: Heap,
    meeting: Heap,
}

/// A thread of a process.
struct Thread<'a> {
    job: &'a Llama,
    maps: Maps,
    process: u32,
    number: u32,
}

impl Llama {
    pub(super) fn new(ask: &Ask) -> Llama {
        let threads = ask.threads.unwrap_or(THREADS);
        let all = ask.bytes / PAGE / u64::from(PROCESSES);
        let cache = (all / CACHE_PART / 2).max(LAYERS);
        let pages = all.saturating_sub(2 * cache + VECTORS / PAGE).max(1);
        Llama { pages, cache, threads }
    }

    pub(super) fn footprint(&self) -> u64 {
        let Maps { model, keys, values, vectors, .. } = self.maps();
        u64::from(PROCESSES) * (model.len + keys.len + values.len + vectors.len)
    }

    fn maps(&self) -> Maps {
        let cache = self.cache * PAGE;
        let model = Heap::first(self.pages * PAGE);
        let code = model.then(CODE * PAGE);
        let keys = code.then(cache);
        let values = keys.then(cache);
        let vectors = values.then(VECTORS);
        Maps { model, code, keys, values, vectors, meeting: vectors.then(PAGE) }
    }

    pub(super) fn run<O: Os>(&self, os: &mut O, role: Role) -> Result<(), Signal> {
        let (process, number) = (role / self.threads, role % self.threads);
        let thread = Thread { job: self, maps: self.maps(), process, number };
        if number > 0 {
            return thread.answer(os);
        }
        let others = if role == 0 { 1..PROCESSES } else { 0..0 };
        let start = |process| must(os.fork(process * self.threads));
        let others = others.map(start).collect::<Result<Vec<_>, _>>()?;
        thread.set_up(os)?;
        let first = process * self.threads;
        let start = |role| must(os.spawn(role));
        let threads = (first + 1..first + self.threads).map(start).collect::<Result<Vec<_>, _>>()?;
        thread.answer(os)?;
        threads.into_iter().chain(others).for_each(|task| os.join(task));
        Ok(())
    }
}

impl Thread<'_> {
    /// Map the model, the code, and what is written.
    fn set_up<O: Os>(&self, os: &mut O) -> Result<(), Signal> {
        let Maps { model, code, keys, values, vectors, meeting } = self.maps;
        let file = open(os, &format!("model-{}", self.process), model.len)?;
        model.map_as(os, MapSource::File { fd: file, offset: 0, shared: true }, Prot::READ)?;
        let program = FileSpec { name: "llama", size: code.len, in_memory: false, writable: false };
        let fd = must(os.open(program))?;
        code.map_as(os, MapSource::File { fd, offset: 0, shared: false }, Prot::RX)?;
        [keys, values, vectors, meeting].into_iter().try_for_each(|heap| heap.map(os))
    }

    /// All passes.
    fn answer<O: Os>(&self, os: &mut O) -> Result<(), Signal> {
        let mut known = 0;
        for pass in 0..PASSES {
            let begun = os.now();
            let tokens = if pass == 0 { PROMPT } else { 1 };
            self.pass(os, known, tokens)?;
            known += tokens;
            if self.number == 0 {
                os.progress(tokens);
                os.took(os.now() - begun);
            }
        }
        Ok(())
    }

    /// One pass over the model for some tokens, when as many are known.
    fn pass<O: Os>(&self, os: &mut O, known: u64, tokens: u64) -> Result<(), Signal> {
        let layer: u64 = TENSORS.iter().sum();
        let all = LAYERS * layer + 2 * EMBEDDING;
        let place =
            |weights: u64| (u128::from(self.job.pages) * u128::from(weights) / u128::from(all)) as u64;
        // A row of the embedding for each token.
        for token in 0..tokens {
            self.maps.model.touch(
                os,
                place((known + token) * 1031 % EMBEDDING) * PAGE,
                512,
                AccessKind::Load,
            )?;
        }
        for number in 0..LAYERS {
            let mut at = EMBEDDING + number * layer;
            for (op, size) in TENSORS.into_iter().enumerate() {
                if op == 3 {
                    self.attend(os, number, known, tokens)?;
                }
                self.multiply(os, place(at)..place(at + size), op as u64, tokens)?;
                at += size;
            }
        }
        self.multiply(os, place(all - EMBEDDING)..self.job.pages, 0, tokens)
    }

    /// This thread's rows of a tensor, times the vectors.
    fn multiply<O: Os>(
        &self,
        os: &mut O,
        pages: core::ops::Range<u64>,
        op: u64,
        tokens: u64,
    ) -> Result<(), Signal> {
        let Thread { job, maps, number, .. } = *self;
        let own = part(pages.end - pages.start, number, job.threads);
        self.run_loop(os, op)?;
        for page in pages.start + own.start..pages.start + own.end {
            let addr = maps.model.start + page * PAGE;
            os.access(Access { addr, count: (PAGE / 8) as u32, mode: AccessKind::Load })?;
            os.compute(WORK * tokens);
        }
        for token in 0..tokens {
            let out = part(VECTOR, number, job.threads);
            let place = maps.vectors.start + (op % 4 * PROMPT + token) * VECTOR;
            touch(os, place + out.start, out.end - out.start, AccessKind::Store)?;
        }
        self.meet(os)
    }

    /// Keep the keys and values of the tokens, and look at those of all before.
    fn attend<O: Os>(&self, os: &mut O, layer: u64, known: u64, tokens: u64) -> Result<(), Signal> {
        let Thread { job, maps, number, .. } = *self;
        let each = maps.keys.len / LAYERS;
        let place = |heap: Heap, offset: u64| heap.start + layer * each + offset % each;
        self.run_loop(os, 7)?;
        for token in known..known + tokens {
            let row = each / CONTEXT;
            let own = part(row.max(8), number, job.threads);
            touch(
                os,
                place(maps.keys, token * row + own.start),
                (own.end - own.start).min(row),
                AccessKind::Store,
            )?;
            // Values stand by component, so that those of one token lie as far apart as the context is long.
            let own = part(each / PAGE, number, job.threads);
            for page in own {
                os.store(place(maps.values, page * PAGE + token * 2))?;
            }
        }
        self.meet(os)?;
        let own = part(((known + tokens) * each / CONTEXT).max(8), number, job.threads);
        touch(os, place(maps.keys, own.start), own.end - own.start, AccessKind::Load)?;
        for page in part(each / PAGE, number, job.threads) {
            os.access(Access {
                addr: place(maps.values, page * PAGE),
                count: tokens as u32,
                mode: AccessKind::Load,
            })?;
        }
        self.meet(os)
    }

    /// Fetch the code of an operation.
    fn run_loop<O: Os>(&self, os: &mut O, op: u64) -> Result<(), Signal> {
        for page in op * LOOP..(op + 1) * LOOP {
            let addr = self.maps.code.start + page * PAGE;
            os.access(Access { addr, count: 64, mode: AccessKind::Fetch })?;
        }
        Ok(())
    }

    /// Spin until all threads of the process are here.
    fn meet<O: Os>(&self, os: &mut O) -> Result<(), Signal> {
        os.store(self.maps.meeting.start)?;
        os.spin_barrier(self.process, self.job.threads);
        Ok(())
    }
}
