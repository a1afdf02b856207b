//! What the threads of a process share: the count of address-space changes, the files, the output.
//!
//! One lock guards most of it. A call that changes the address space takes the lock when it begins and releases it
//! when it returns, so the numbers of such calls are their order. `fork` is one of them, so no other thread can have
//! held the lock when a child begins. The lock is taken only between translated blocks, never while one runs: a fork
//! waits until all other threads have left their blocks, and holds the lock.
//!
//! Threads learn of the ends of others while a block runs, so these have a lock of their own, which is held only for a
//! short look. A child cannot know the state of that lock, and begins with a new one.

use std::cell::UnsafeCell;
use std::collections::{HashMap, HashSet};
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::codec::put_varint;
use crate::event::{Event, PAGE_SHIFT};
use crate::files::Files;
use crate::image::Emulator;
use crate::raw::{self, Image};
use crate::sample::{self, Places, Rule, mix};
use crate::system;

/// Changes of the address space so far.
pub static EPOCH: AtomicU64 = AtomicU64::new(0);
/// Raised with each address-space change and each end of a thread: a thread that finds another number catches up.
pub static NEWS: AtomicU64 = AtomicU64::new(0);
/// Streams numbered in this process.
pub static STREAMS: AtomicU32 = AtomicU32::new(0);
/// The process and the image that the output is about.
pub static PID: AtomicU32 = AtomicU32::new(0);
static NUMBER: AtomicU32 = AtomicU32::new(0);
/// CPU time of the process that has been reported.
static CPU_TIME: AtomicU64 = AtomicU64::new(0);

/// Instructions that are left until accesses are recorded.
pub static QUIET: AtomicU64 = AtomicU64::new(0);

/// Instructions were executed while accesses are not recorded. Returns whether they are from now on.
pub fn quietly(instructions: u64) -> bool {
    let less = |left: u64| Some(left.saturating_sub(instructions));
    let before = QUIET.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).unwrap_or(0);
    before <= instructions
}

/// A number that tells this process from others, and is the same whenever the program does the same.
pub static LINEAGE: AtomicU64 = AtomicU64::new(0);
/// Processes that it has forked.
static FORKED: AtomicU64 = AtomicU64::new(0);

/// The salt of the program that this process becomes, see [`Rule`].
pub fn salt_of_next() -> u64 {
    mix(LINEAGE.load(Ordering::Relaxed), u64::MAX)
}

/// A process is about to be forked.
pub fn forks() {
    FORKED.fetch_add(1, Ordering::Relaxed);
}

/// Which pages are recorded.
pub fn rule() -> Rule {
    EMULATOR
        .get()
        .map_or(Rule { one_in: 1, salt: 0 }, |emulator| Rule { one_in: emulator.sample, salt: emulator.salt })
}

/// How the emulator was started.
pub static EMULATOR: OnceLock<Emulator> = OnceLock::new();

/// What the lock guards.
#[derive(Default)]
pub struct Shared {
    pub files: Files,
    /// The end of the heap; 0 until the program has asked for it.
    pub heap: u64,
}

/// The threads of this process, by the kernel's numbers, and the address that is cleared at the end of each.
#[derive(Default)]
pub struct Threads {
    /// Running threads.
    running: HashMap<u64, u64>,
    /// Threads that ended before their address was known.
    early: HashSet<u64>,
    /// The page of the cleared address and the number of each ended thread.
    pub ended: Vec<(u64, u64)>,
    /// The mappings that decide which pages are recorded; empty if all are.
    pub places: Arc<Places>,
}

impl Threads {
    /// Note that thread `tid` was started; its end clears the word at `addr`.
    pub fn started(&mut self, tid: u64, addr: u64) {
        if self.early.remove(&tid) {
            self.ended.push((addr >> PAGE_SHIFT, tid));
            NEWS.fetch_add(1, Ordering::Release);
        } else {
            self.running.insert(tid, addr);
        }
    }

    /// Note that thread `tid` ends.
    pub fn ends(&mut self, tid: u64) {
        match self.running.remove(&tid) {
            Some(addr) => {
                self.ended.push((addr >> PAGE_SHIFT, tid));
                NEWS.fetch_add(1, Ordering::Release);
            }
            None => drop(self.early.insert(tid)),
        }
    }
}

/// A value that one thread uses at a time. `std`'s guards cannot be released in another function than took them.
struct Lock<T> {
    held: AtomicBool,
    data: UnsafeCell<Option<T>>,
}

// SAFETY: `data` is only reached between `acquire` and `release`, by the thread that acquired the lock.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T: Default> Lock<T> {
    const fn new() -> Lock<T> {
        Lock { held: AtomicBool::new(false), data: UnsafeCell::new(None) }
    }

    fn acquire(&self) {
        while self.held.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            std::thread::yield_now();
        }
    }

    fn release(&self) {
        self.held.store(false, Ordering::Release);
    }

    /// Use the value.
    ///
    /// # Safety
    /// The calling thread must have acquired the lock, and `body` must not use it.
    unsafe fn used<R>(&self, body: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: no other thread has a reference, as the caller promises.
        let data = unsafe { &mut *self.data.get() };
        body(data.get_or_insert_with(T::default))
    }
}

static LOCK: Lock<Shared> = Lock::new();
static ENDS: Lock<Threads> = Lock::new();

/// The image that the output is about.
pub fn image() -> Image {
    Image { pid: PID.load(Ordering::Relaxed), number: NUMBER.load(Ordering::Relaxed) }
}

/// Begin the file of the image that this process runs, the program at `path`; see [`raw::origin`].
pub fn begin_image(origin: u64, from: Image, path: &[u8]) {
    let mut image = Image { pid: std::process::id(), number: 0 };
    if let Some(emulator) = EMULATOR.get() {
        // Earlier images of this process, and earlier processes of the same number, have files already.
        let file = |image: Image| emulator.folder.join(image.file_name());
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        while matches!(options.open(file(image)), Err(error) if error.kind() == ErrorKind::AlreadyExists) {
            image.number += 1;
        }
    }
    PID.store(image.pid, Ordering::Relaxed);
    NUMBER.store(image.number, Ordering::Relaxed);
    EPOCH.store(0, Ordering::Relaxed);
    STREAMS.store(0, Ordering::Relaxed);
    CPU_TIME.store(system::cpu_time(), Ordering::Relaxed);
    let mut out = Vec::new();
    raw::put_chunk(&mut out, raw::kind::PROCESS, 0, |body| {
        [origin, from.pid.into(), from.number.into()].into_iter().for_each(|number| put_varint(body, number));
        body.extend_from_slice(path);
    });
    write(&out);
}

/// CPU time of the process since the last call.
pub fn more_cpu_time() -> u64 {
    let now = system::cpu_time();
    now.saturating_sub(CPU_TIME.swap(now, Ordering::Relaxed))
}

/// Append whole chunks to the output in one piece. The file is opened each time: the program may close or reuse any
/// descriptor, and a forked child must not share one.
pub fn write(chunks: &[u8]) {
    if chunks.is_empty() {
        return;
    }
    let Some(emulator) = EMULATOR.get() else { return };
    let path = emulator.folder.join(image().file_name());
    let result =
        OpenOptions::new().create(true).append(true).open(&path).and_then(|mut file| file.write_all(chunks));
    if let Err(error) = result {
        eprintln!("pagefold recorder: {}: cannot write: {error}", path.display());
        // Without its output the recording is worthless; the program's exit code reports that.
        std::process::abort();
    }
}

/// Take the lock until [`release`].
pub fn acquire() {
    LOCK.acquire();
}

/// Release the lock. Only for the thread that holds it.
pub fn release() {
    LOCK.release();
}

/// Use what the lock guards. The lock is taken during `body`, unless this thread holds it already (`held`).
pub fn with<R>(held: bool, body: impl FnOnce(&mut Shared) -> R) -> R {
    if !held {
        acquire();
    }
    // SAFETY: this thread holds the lock, and `body` cannot get here again: nothing below calls back.
    let result = unsafe {
        LOCK.used(|shared| {
            let result = body(shared);
            // Files must be described before the events that name them.
            write(&std::mem::take(&mut shared.files.fresh));
            result
        })
    };
    if !held {
        release();
    }
    result
}

/// Use the known ends of threads.
pub fn with_threads<R>(body: impl FnOnce(&mut Threads) -> R) -> R {
    ENDS.acquire();
    // SAFETY: this thread holds the lock, and `body` does not get here again.
    let result = unsafe { ENDS.used(body) };
    ENDS.release();
    result
}

/// Begin again in a forked child, which has one thread: `places` is what that knew. A thread that no longer exists may
/// have been in the middle of anything, so the old value is leaked.
pub fn forget_threads(places: Arc<Places>) {
    // SAFETY: the child has one thread, which does not use the value now; nothing is read or dropped.
    unsafe { ENDS.data.get().write(Some(Threads { places, ..Threads::default() })) };
    ENDS.release();
    let lineage = mix(LINEAGE.load(Ordering::Relaxed), FORKED.swap(0, Ordering::Relaxed));
    LINEAGE.store(lineage, Ordering::Relaxed);
}

/// The address space has changed: note what decides which pages are recorded. The lock is `held`, or not.
pub fn changed(held: bool, event: &Event) {
    if !rule().samples() {
        return;
    }
    let number = |file| with(held, |shared| shared.files.number(file));
    with_threads(|threads| sample::follow(&mut threads.places, event, number));
    // Threads look again: those that began to look when the call began have not seen this.
    NEWS.fetch_add(1, Ordering::Release);
}
