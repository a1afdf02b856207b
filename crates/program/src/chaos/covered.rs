//! Which operations the random program has done so far, and their outcomes.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The outcome of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    Done,
    /// It returned an error.
    Refused,
    /// It raised a signal that the program expected to be possible.
    Signalled,
}

const OUTCOMES: [&str; 3] = ["done", "refused", "signalled"];

macro_rules! ops {
    ($($op:ident $name:literal $($outcome:ident)*;)*) => {
        /// An operation.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(usize)]
        pub(super) enum Op {
            $($op,)*
        }

        /// The name of each, and the outcomes that a long run must show.
        const OPS: &[(&str, &[Outcome])] = &[$(($name, &[$(Outcome::$outcome,)*]),)*];
    };
}

ops! {
    Mmap "mmap" Done;
    MmapLocked "mmap_locked" Done;
    MmapPopulate "mmap_populate" Done;
    MmapOver "mmap_over" Done;
    MmapOverSeveral "mmap_over_several" Done;
    Munmap "munmap" Done;
    Mprotect "mprotect" Done;
    Mremap "mremap" Done Refused;
    MremapPart "mremap_part" Done;
    MremapFixed "mremap_fixed" Done;
    Madvise "madvise" Done Refused;
    Mlock "mlock" Done;
    Munlock "munlock" Done;
    MovePages "move_pages" Done;
    MigratePages "migrate_pages" Done;
    Mbind "mbind" Done;
    SetMempolicy "set_mempolicy" Done;
    Msync "msync" Done;
    Fsync "fsync" Done;
    Pread "pread" Done;
    Pwrite "pwrite" Done;
    Ftruncate "ftruncate" Done;
    Fadvise "fadvise" Done;
    Close "close" Done;
    Open "open" Done;
    NeverDefer "never_defer_flushes" Done;
    Fork "fork" Done;
    ForkByChild "fork_by_child" Done;
    SpawnByChild "spawn_by_child" Done;
    Join "join" Done;
    Sleep "sleep" Done;
    GroupCreate "group_create" Done;
    GroupLimit "group_limit" Done;
    GroupKnob "group_knob" Done Refused;
    GroupEnter "group_enter" Done;
    GroupRemove "group_remove" Done Refused;
    SetKnob "set_knob" Done Refused;
    Load "load" Done Signalled;
    Store "store" Done Signalled;
    Fetch "fetch" Done Signalled;
    SharedMmap "shared_mmap" Done;
    SharedMunmap "shared_munmap" Done;
    SharedMprotect "shared_mprotect" Done Refused;
    SharedMremap "shared_mremap" Done Refused;
    SharedMadvise "shared_madvise" Done Refused;
    SharedMlock "shared_mlock" Done;
    SharedMunlock "shared_munlock" Done;
    SharedMovePages "shared_move_pages" Done;
    SharedLoad "shared_load" Done Signalled;
    SharedStore "shared_store" Done Signalled;
    SharedFetch "shared_fetch" Done Signalled;
}

/// How often each operation had each outcome.
#[derive(Debug)]
pub(super) struct Covered(Box<[[AtomicU64; OUTCOMES.len()]]>);

impl Default for Covered {
    fn default() -> Covered {
        Covered((0..OPS.len()).map(|_| Default::default()).collect())
    }
}

impl Covered {
    pub(super) fn add(&self, op: Op, outcome: Outcome, times: u64) {
        self.0[op as usize][outcome as usize].fetch_add(times, Relaxed);
    }

    /// Every outcome that has occurred, or must occur in a long run, as `mmap/done`.
    pub(super) fn list(&self) -> impl Iterator<Item = (String, u64)> + '_ {
        OPS.iter().zip(&*self.0).flat_map(|((name, required), counts)| {
            let all = [Outcome::Done, Outcome::Refused, Outcome::Signalled].into_iter();
            all.filter_map(move |outcome| {
                let times = counts[outcome as usize].load(Relaxed);
                let shown = times > 0 || required.contains(&outcome);
                shown.then(|| (format!("{name}/{}", OUTCOMES[outcome as usize]), times))
            })
        })
    }
}
