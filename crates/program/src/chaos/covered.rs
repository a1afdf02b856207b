//! What the random program has done so far, and what came of it.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What came of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Came {
    Done,
    /// It returned an error.
    Refused,
    /// It raised a signal that the program knew might come.
    Signalled,
}

const OUTCOMES: [&str; 3] = ["done", "refused", "signalled"];

macro_rules! acts {
    ($($act:ident $name:literal $($outcome:ident)*;)*) => {
        /// An operation.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(usize)]
        pub(super) enum Act {
            $($act,)*
        }

        /// Name of each, and what must come of it sooner or later.
        const ACTS: &[(&str, &[Came])] = &[$(($name, &[$(Came::$outcome,)*]),)*];
    };
}

acts! {
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

/// How often each came to what.
#[derive(Debug)]
pub(super) struct Covered(Box<[[AtomicU64; OUTCOMES.len()]]>);

impl Default for Covered {
    fn default() -> Covered {
        Covered((0..ACTS.len()).map(|_| Default::default()).collect())
    }
}

impl Covered {
    pub(super) fn add(&self, act: Act, came: Came, times: u64) {
        self.0[act as usize][came as usize].fetch_add(times, Relaxed);
    }

    /// Everything that has happened or must happen in a program that runs for long enough, as `mmap/done`.
    pub(super) fn list(&self) -> impl Iterator<Item = (String, u64)> + '_ {
        ACTS.iter().zip(&*self.0).flat_map(|((name, must), counts)| {
            let all = [Came::Done, Came::Refused, Came::Signalled].into_iter();
            all.filter_map(move |came| {
                let times = counts[came as usize].load(Relaxed);
                let shown = times > 0 || must.contains(&came);
                shown.then(|| (format!("{name}/{}", OUTCOMES[came as usize]), times))
            })
        })
    }
}
