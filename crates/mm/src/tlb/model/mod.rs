//! Models: the ledger under a checker that tries every order of what CPUs do, or very many.
//!
//! **What runs.** The code under test is the room itself, the real [`Tlb`](super::Tlb), `UnmapBatch` and ledger; the
//! models of `frames` and `storm` also use the real allocator. The checker's atomics and locks replace real ones (see
//! `primitive::modelled` and `lock`). Each CPU of a model is a thread of the checker. The kernel around the ledger
//! (`world`) is reduced to what the ledger sees: tables' locks, an entry, a frame's content, interrupts that are off.
//! The gate of a space's tables (`gate`) is the real one.
//!
//! **loom** tries every order of the threads' steps, in longer models up to a number of preemptions, and every value
//! that a weak memory would let each read return. It models a sequentially consistent access as such (see
//! `primitive::explored`).
//! **shuttle** tries random orders, half of them by its scheduler for rare bugs (PCT, depth 3), on a memory without
//! weaknesses. It also runs the `storm`, which is too large for loom.
//!
//! **The machine** (`machine`). A CPU caches translations under numbers and drops them only on request: nothing is
//! ever evicted, so every translation that may be stale is. An access that misses walks by a plain read of the entry.
//! The handler of an interrupt runs on the sender's thread while it holds the lock that represents "interrupts are
//! off" on the target. So it comes before or after any access and any switch of that CPU, as the checker chooses, and
//! CPU and handler see what the other did before.
//!
//! **What is asserted** (numbers: invariants of the reference on deferred flushes).
//! - A program that reads through its CPU's translations never reads a reused frame (I1 to I3), nor the content of a
//!   page before a store that is visible to it (I4), nor the content of an address before munmap returned (I9).
//! - When all is quiet, a CPU that could use a translation which is not in the tables any more is recorded as owing
//!   with space and file, and is not done (I5, I10). Tags survive lists, splits and merges, and are never read as
//!   older than they are (I6); here they have three bits, so that they wrap all the time. No payer waits for another
//!   (I8: both checkers report an endless wait).
//! - `litmus` checks the order "clear, raise, draw" (I7).
//!
//! For each order that matters, a test whose name ends in `is_found` breaks it and shows that the checker notices.
//!
//! **What is not modelled.** Handlers of one round run one after the other, not in parallel. A CPU's own catching-up
//! runs in parallel with handlers on that CPU, which is more than an interrupt can do. The frame table, counters and
//! knobs are real memory, so every CPU sees them at once; the order of what they pass on depends on locks and
//! references that are not part of these models, unless a test says so. Real page tables, faults and the reverse map
//! are above this room: the simulator's oracle checks them.
//!
//! Environment: `LOOM_MAX_PREEMPTIONS` sets another number of preemptions; `MODEL_RUNS` and `MODEL_SEED` set
//! shuttle's number of runs and the seed for them.

mod faults;
mod frames;
mod gate;
mod host;
mod litmus;
mod machine;
mod paying;
#[cfg(feature = "shuttle")]
mod storm;
mod world;
