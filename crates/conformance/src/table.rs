//! All checks, in the order in which they run. Each relies only on what those before it have shown.

use crate::harness::Harness;
use crate::kit::Kit;
use crate::report::Verdict;
use crate::{compression, memory, shootdown, storage, topology, translation, waiting, whole};
use std_alloc::vec::Vec;

pub(crate) struct Check<H> {
    pub group: &'static str,
    pub name: &'static str,
    pub full_name: &'static str,
    /// What a pass shows, in the words of the contract.
    pub shows: &'static str,
    pub body: fn(&Kit<'_, H>) -> Verdict,
}

macro_rules! checks {
    ($($group:ident { $($name:literal $body:path: $shows:literal;)* })*) => {
        pub(crate) fn checks<H: Harness>() -> Vec<Check<H>> {
            std_alloc::vec![$($(Check {
                group: stringify!($group),
                name: $name,
                full_name: concat!(stringify!($group), ".", $name),
                shows: $shows,
                body: $body,
            },)*)*]
        }
    };
}

checks! {
    topology {
        "cpus" topology::cpus: "cpu() names the CPU that runs the task, on each of cpus()";
        "nodes" topology::node_numbers: "nodes are numbered from 0 without gaps, and there is memory";
        "distances" topology::distances: "distance() is symmetric; 10 means local, and nothing else does";
        "memory" topology::memory: "memory() is ascending, aligned to the largest block, without overlaps; DMA32 ends at 4 GiB";
        "clock" topology::clock: "now() advances, and never goes back on one CPU";
        "running" topology::running: "stopping() is false while the machine runs";
    }
    memory {
        "zero" memory::zero: "zero() clears the frames that it names, and no others";
        "copy" memory::copy: "copy() copies the frames that it names, and changes no others";
        "table" memory::table: "table() of a frame that was zeroed is an empty table, and keeps what is stored";
        "shared" memory::seen_by_all: "a CPU reads what another CPU has stored";
    }
    translation {
        "walk" translation::walk: "an access reaches the frame that the loaded tables map; where they map none, it faults, and leaves no translation behind";
        "read-only" translation::read_only: "an entry without WRITE refuses stores; added rights are seen after at most one fault";
        "no-exec" translation::no_exec: "an entry with NO_EXEC refuses fetches";
        "kernel-only" translation::kernel_only: "an entry without USER refuses programs";
        "young" translation::young: "has_hw_pte_young(): a load sets YOUNG; else an old entry faults; neither sets DIRTY";
        "dirty" translation::dirty: "a store sets DIRTY, also where a load has been before";
        "young-tables" translation::young_tables: "has_hw_nonleaf_young(): an access sets YOUNG of the upper entries that it walks";
        "flush-pages" translation::flush_pages: "after flush(Pages), no access to any of these pages uses an old translation";
        "flush-current" translation::flush_current: "after flush(Current), no access uses an old translation";
        "flush-all" translation::flush_all: "after flush(All), no access uses an old translation";
        "flush-tables" translation::flush_tables: "after each kind of flush, no walk goes through a table that was removed";
        "load-root" translation::load_root: "load_root() without keep drops all translations of its number";
        "no-asids" translation::no_asids: "with no address-space numbers, every load of a root flushes";
        "asids" translation::asids: "translations of one address-space number are not used under another";
        "asids-flush" translation::asids_flushed: "flush(All) reaches all numbers, flush(Current) and flush(Pages) the loaded one";
        "own-root" translation::own_root: "load_root(NONE) is a root that maps no program's memory";
    }
    shootdown {
        "idle" shootdown::idle: "from each CPU: remote runs once on each target and on no other CPU, before the call returns; local runs once";
        "kernel" shootdown::in_kernel: "the same while the targets spin in the kernel";
        "program" shootdown::in_program: "the same while the targets run a program";
        "crossing" shootdown::concurrent: "all CPUs call it for all others at once, and each call returns";
        "lock" shootdown::lock_held: "the initiator may hold a lock that the targets spin for";
        "flush" shootdown::translations: "after all CPUs have flushed, none uses an old translation";
        "broadcast" shootdown::broadcast: "has_broadcast_flush(): after flush_everywhere() of all, and of a page of a root, no CPU uses an old translation";
    }
    waiting {
        "not-lost" waiting::not_lost: "a wake-up between ticket() and wait() ends the wait";
        "deadline" waiting::deadline: "wait() returns false at its deadline, not before, if no wake-up came";
        "old-wakes" waiting::old_wakes: "a wake-up from before the ticket does not end the wait";
        "wakes-all" waiting::wakes_all: "wake() ends the waits of all tasks, on all CPUs; a task that sleeps leaves its CPU to others";
        "keys" waiting::keys: "a wake-up of another key does not end the wait";
        "in-turn" waiting::in_turn: "tasks that wake each other many times, on two CPUs and on one, all make progress";
        "io-context" waiting::in_io_context: "wake() works in the context in which the kernel calls io_done()";
        "resched" waiting::resched: "resched() lets another task of the CPU run soon";
    }
    storage {
        "read-back" storage::reads_back: "submit() reads from a block what it wrote there, from each CPU";
        "neighbours" storage::neighbours: "a transfer of several pages keeps their order and leaves other blocks and frames alone";
        "many" storage::many: "many transfers at once all complete, once each, and do not mix";
    }
    compression {
        "whole" compression::whole: "pack() into an object of a whole page keeps the page, and unpack() fills another with it";
        "round-trip" compression::round_trip: "compress(), pack(), unpack(): the page comes back, by each compressor, from two frames, beside another object";
        "moved" compression::moved: "move_object() leaves nothing behind that unpack() needs";
        "buffers" compression::buffers: "what a CPU has compressed is not disturbed by other CPUs that compress";
        "same" compression::same: "is_zero_filled() and same_filled() are right, and fill() makes the page again";
    }
    whole {
        "pages" whole::pages: "mmap, store, load, munmap on each CPU: memory begins as zeroes, holds what is stored, and is gone after munmap";
        "one-space" whole::one_space: "threads of one space see each other's stores; what one thread protects or unmaps is gone for all";
        "under-fire" whole::concurrent_unmap: "pages are unmapped again and again while all CPUs read them: no CPU reads old content";
        "fork" whole::fork: "children on all CPUs, with children of their own, have their parents' content and do not share their stores";
        "spaces" whole::spaces: "more spaces than address-space numbers, all at one address, come and go on all CPUs";
        "file" whole::file: "a file is larger than its group's limit: every word is read back";
        "swap" whole::swap: "anonymous memory is larger than its group's limit: every word is read back";
        "memory-file" whole::short_of_memory_file: "a file is larger than all memory: every word is read back";
        "memory-swap" whole::short_of_memory_swap: "anonymous memory is larger than all memory: every word is read back";
        "nothing-left" whole::all_released: "after all spaces have ended, nothing is mapped, dirty or under writeback";
    }
}
