//! Models: the ledger under a checker that tries every order of what CPUs do, or very many.
//!
//! **What runs.** The code under test is the room itself, the real [`Tlb`](super::Tlb), `Batch` and ledger, and for
//! the models of `frames` and `storm` the real allocator too. The checker's atomics and locks stand in for real ones
//! (see `primitive::modelled` and `lock`). Each CPU of a model is a thread of the checker. What a kernel does around
//! the ledger (`world`) is cut down to what the ledger sees: a table's lock, an entry, a frame's content, interrupts
//! that are off.
//!
//! **loom** tries every order of the threads' steps, in longer models up to a number of preemptions, and every value
//! that a weak memory would let each read return; a sequentially consistent access is modelled as such (see
//! `primitive::explored`).
//! **shuttle** tries random orders, half of them by its scheduler for rare bugs (PCT, depth 3), on a memory without
//! weaknesses; it also runs the `storm`, which is too large for loom.
//!
//! **The machine** (`machine`). A CPU holds translations under numbers and drops them only when it is told to: nothing
//! is ever evicted, so that whatever may be stale is. An access walks when it misses, by a plain read of the entry. An
//! interrupt's handler runs on the thread of who sent it, while it holds the lock that stands for "interrupts are off"
//! on the target: so it comes before or after any access and any switch of that CPU, whichever the checker likes, and
//! what CPU and handler did before is seen by the other.
//!
//! **What is asserted** (numbers: invariants of the reference on deferred flushes).
//! - A program that reads through whatever its CPU holds never reads a frame that was used anew (I1 to I3), nor what a
//!   page showed before a store that it knows of (I4), nor what an address meant before munmap returned (I9).
//! - When all is quiet, each CPU that could use a translation which the tables do not have is owed for by space and
//!   file, and is not done (I5, I10). Tags get through lists, splits and merges, and are never read as older than they
//!   are (I6), here with three bits, so that they come round all the time. Nobody waits for the payment of another (I8:
//!   a wait without an end is a failure to both checkers).
//! - The order "clear, raise, draw" (I7) is what `litmus` is about.
//!
//! For each order that matters, a test whose name ends in `is_found` takes it away and shows that the checker notices.
//!
//! **What is not modelled.** Handlers of one round run one after the other, not side by side. A CPU's own catching-up
//! runs beside handlers on that CPU, which is more than an interrupt can do. The frame table, counters and knobs are
//! real memory, so every CPU sees them at once; what they hand on is ordered by locks and references that are not part
//! of these models, except where a test says so. Real page tables, faults and the reverse map are above this room: the
//! simulator's oracle has them.
//!
//! Environment: `LOOM_MAX_PREEMPTIONS` sets another number of preemptions; `MODEL_RUNS` and `MODEL_SEED` set shuttle's
//! number of runs and the seed that they are drawn from.

mod faults;
mod frames;
mod host;
mod litmus;
mod machine;
mod paying;
#[cfg(feature = "shuttle")]
mod storm;
mod world;
