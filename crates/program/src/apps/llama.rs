//! Language models: processes of llama.cpp, each answering from its own mapped model. Every token is a pass
//! over all tensors of the model, in order, shared among threads that spin while they wait for each other.

use super::AppOptions;
use super::parts::{Heap, PAGE, must, open, part, touch};
use crate::{Access, AccessKind, FileSpec, MapSource, Os, Prot, Role, Signal};
use alloc::format;
use alloc::vec::Vec;

/// Processes, and threads of each, as in the LUF series.
const PROCESSES: u32 = 3;
const THREADS: u32 = 15;
/// Passes: one for the prompt of 5 tokens (the words "who are you"), and one for each of the 19 tokens up to 24.
const PASSES: u64 = 20;
const PROMPT: u64 = 5;
/// Layers of Llama 2 70B, and the tensors of a layer that are multiplied, in thousands of weights: query,
/// key, value, output, and the three of the feed-forward net (8192 wide, 8 heads of 128 for keys and values,
/// 28672 between).
const LAYERS: u64 = 80;
const TENSORS: [u64; 7] = [67_109, 8_389, 8_389, 67_109, 234_881, 234_881, 234_881];
/// The token embedding and the output tensor, 32000 x 8192 each.
const EMBEDDING: u64 = 262_144;
/// The model's bytes for each byte of its cache of keys and values: that is 160 MiB (512 tokens, 80 layers,
/// 1024 values of 2 bytes for both) for 70 GiB.
const CACHE_PART: u64 = 448;
/// Tokens that the cache has room for.
const CONTEXT: u64 = 512;
/// Bytes of a vector between layers, for each token: 8192 numbers of 4 bytes.
const VECTOR: u64 = 8192 * 4;
/// Bytes of the vectors of four operations.
const VECTORS: u64 = 4 * PROMPT * VECTOR;
/// Pages of code: of the program and its libraries, and of one operation's inner loop; guesses.
const CODE: u64 = 512;
const LOOP: u64 = 3;
/// Instructions for a page of 8-bit weights with AVX2; an estimate.
const WORK: u64 = 800;

/// The program `llama`.
#[derive(Clone, Debug)]
pub(super) struct Llama {
    /// Pages of a model, and of each half of its cache.
    pages: u64,
    cache: u64,
    threads: u32,
}

/// The mappings of a process.
#[derive(Clone, Copy)]
struct Maps {
    model: Heap,
    code: Heap,
    keys: Heap,
    values: Heap,
    /// Vectors between layers, and the page with the threads' barrier.
    vectors: Heap,
    barrier: Heap,
}

/// A thread of a process.
struct Thread<'a> {
    job: &'a Llama,
    maps: Maps,
    process: u32,
    number: u32,
}

impl Llama {
    pub(super) fn new(options: &AppOptions) -> Llama {
        let threads = options.threads.unwrap_or(THREADS);
        let all = options.bytes / PAGE / u64::from(PROCESSES);
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
        Maps { model, code, keys, values, vectors, barrier: vectors.then(PAGE) }
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
    /// Map the model, the code, and the writable memory.
    fn set_up<O: Os>(&self, os: &mut O) -> Result<(), Signal> {
        let Maps { model, code, keys, values, vectors, barrier } = self.maps;
        let file = open(os, &format!("model-{}", self.process), model.len)?;
        model.map_as(os, MapSource::File { fd: file, offset: 0, shared: true }, Prot::READ)?;
        let program = FileSpec { name: "llama", size: code.len, in_memory: false, writable: false };
        let fd = must(os.open(program))?;
        code.map_as(os, MapSource::File { fd, offset: 0, shared: false }, Prot::RX)?;
        [keys, values, vectors, barrier].into_iter().try_for_each(|heap| heap.map(os))
    }

    /// All passes.
    fn answer<O: Os>(&self, os: &mut O) -> Result<(), Signal> {
        let mut context = 0;
        for pass in 0..PASSES {
            let start = os.now();
            let tokens = if pass == 0 { PROMPT } else { 1 };
            self.pass(os, context, tokens)?;
            context += tokens;
            if self.number == 0 {
                os.progress(tokens);
                os.took(os.now() - start);
            }
        }
        Ok(())
    }

    /// One pass over the model for `tokens` tokens after `context` ones.
    fn pass<O: Os>(&self, os: &mut O, context: u64, tokens: u64) -> Result<(), Signal> {
        let layer: u64 = TENSORS.iter().sum();
        let all = LAYERS * layer + 2 * EMBEDDING;
        let place =
            |weights: u64| (u128::from(self.job.pages) * u128::from(weights) / u128::from(all)) as u64;
        // A row of the embedding for each token.
        for token in 0..tokens {
            self.maps.model.touch(
                os,
                place((context + token) * 1031 % EMBEDDING) * PAGE,
                512,
                AccessKind::Load,
            )?;
        }
        for number in 0..LAYERS {
            let mut at = EMBEDDING + number * layer;
            for (op, size) in TENSORS.into_iter().enumerate() {
                if op == 3 {
                    self.attend(os, number, context, tokens)?;
                }
                self.multiply(os, place(at)..place(at + size), op as u64, tokens)?;
                at += size;
            }
        }
        self.multiply(os, place(all - EMBEDDING)..self.job.pages, 0, tokens)
    }

    /// Multiply this thread's rows of a tensor by the vectors.
    fn multiply<O: Os>(
        &self,
        os: &mut O,
        pages: core::ops::Range<u64>,
        op: u64,
        tokens: u64,
    ) -> Result<(), Signal> {
        let Thread { job, maps, number, .. } = *self;
        let own = part(pages.end - pages.start, number, job.threads);
        self.fetch_code(os, op)?;
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
        self.barrier(os)
    }

    /// Store the keys and values of the tokens, and read those of all tokens so far.
    fn attend<O: Os>(&self, os: &mut O, layer: u64, context: u64, tokens: u64) -> Result<(), Signal> {
        let Thread { job, maps, number, .. } = *self;
        let each = maps.keys.len / LAYERS;
        let place = |heap: Heap, offset: u64| heap.start + layer * each + offset % each;
        self.fetch_code(os, 7)?;
        for token in context..context + tokens {
            let row = each / CONTEXT;
            let own = part(row.max(8), number, job.threads);
            touch(
                os,
                place(maps.keys, token * row + own.start),
                (own.end - own.start).min(row),
                AccessKind::Store,
            )?;
            // Values are stored by component, so those of one token are as far apart as the context is long.
            let own = part(each / PAGE, number, job.threads);
            for page in own {
                os.store(place(maps.values, page * PAGE + token * 2))?;
            }
        }
        self.barrier(os)?;
        let own = part(((context + tokens) * each / CONTEXT).max(8), number, job.threads);
        touch(os, place(maps.keys, own.start), own.end - own.start, AccessKind::Load)?;
        for page in part(each / PAGE, number, job.threads) {
            os.access(Access {
                addr: place(maps.values, page * PAGE),
                count: tokens as u32,
                mode: AccessKind::Load,
            })?;
        }
        self.barrier(os)
    }

    /// Fetch the code of an operation.
    fn fetch_code<O: Os>(&self, os: &mut O, op: u64) -> Result<(), Signal> {
        for page in op * LOOP..(op + 1) * LOOP {
            let addr = self.maps.code.start + page * PAGE;
            os.access(Access { addr, count: 64, mode: AccessKind::Fetch })?;
        }
        Ok(())
    }

    /// Spin until all threads of the process have arrived.
    fn barrier<O: Os>(&self, os: &mut O) -> Result<(), Signal> {
        os.store(self.maps.barrier.start)?;
        os.spin_barrier(self.process, self.job.threads);
        Ok(())
    }
}
