//! What the threads of a process share: the count of address-space changes, the files, the output.
//!
//! One lock guards most of it. A call that changes the address space takes the lock when it begins and gives it back
//! when it returns, so the numbers of such calls are their order; `fork` is one of them, so in a child nobody else can
//! have been inside. The lock is never taken while a translated block runs, only between blocks: a fork waits until all
//! other threads have left theirs, and holds the lock.
//!
//! Threads hear of the ends of others while a block runs, so these have a lock of their own, which is never held for
//! longer than it takes to look. A child cannot know what state it was in, and begins with a new one.

use std::cell::UnsafeCell;
use std::collections::{HashMap, HashSet};
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::codec::put_varint;
use crate::event::PAGE_SHIFT;
use crate::files::Files;
use crate::image::Emulator;
use crate::raw::{self, Image};
use crate::system;

/// Changes of the address space so far.
pub static EPOCH: AtomicU64 = AtomicU64::new(0);
/// Raised with each of those, and whenever a thread ends: whoever sees another number looks what happened.
pub static NEWS: AtomicU64 = AtomicU64::new(0);
/// Streams given out in this process.
pub static STREAMS: AtomicU32 = AtomicU32::new(0);
/// The process that the output is of, and its image.
pub static PID: AtomicU32 = AtomicU32::new(0);
static NUMBER: AtomicU32 = AtomicU32::new(0);
/// CPU time of the process that has been told of.
static CPU_TIME: AtomicU64 = AtomicU64::new(0);

/// How the emulator was started.
pub static EMULATOR: OnceLock<Emulator> = OnceLock::new();

/// What the lock guards.
#[derive(Default)]
pub struct Shared {
    pub files: Files,
    /// The end of the heap; 0 until the program asked.
    pub heap: u64,
}

/// The threads of this process, by the kernel's numbers, and where each leaves word of its end.
#[derive(Default)]
pub struct Threads {
    /// Those that run.
    running: HashMap<u64, u64>,
    /// Those that ended before it was told where they leave word.
    early: HashSet<u64>,
    /// Those that ended, and the page where they left word.
    pub ended: Vec<(u64, u64)>,
}

impl Threads {
    /// Thread `tid` was started; at its end it leaves word at `addr`.
    pub fn started(&mut self, tid: u64, addr: u64) {
        if self.early.remove(&tid) {
            self.ended.push((addr >> PAGE_SHIFT, tid));
            NEWS.fetch_add(1, Ordering::Release);
        } else {
            self.running.insert(tid, addr);
        }
    }

    /// Thread `tid` ends.
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

/// A value that one thread uses at a time. `std`'s own may not be given back by another function than took it.
struct Lock<T> {
    held: AtomicBool,
    data: UnsafeCell<Option<T>>,
}

// SAFETY: `data` is only reached between `acquire` and `release`, by the thread that acquired.
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
        // SAFETY: nobody else has a reference, as the caller promises.
        let data = unsafe { &mut *self.data.get() };
        body(data.get_or_insert_with(T::default))
    }
}

static LOCK: Lock<Shared> = Lock::new();
static ENDS: Lock<Threads> = Lock::new();

/// The image that the output is of.
pub fn image() -> Image {
    Image { pid: PID.load(Ordering::Relaxed), number: NUMBER.load(Ordering::Relaxed) }
}

/// Begin the file of the image that this process runs, the program at `path`; see [`raw::origin`].
pub fn begin_image(origin: u64, from: Image, path: &[u8]) {
    let mut image = Image { pid: std::process::id(), number: 0 };
    if let Some(emulator) = EMULATOR.get() {
        // Images that this process had before have files, as have earlier processes of the same number.
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

/// CPU time of the process since the last time that this was asked.
pub fn more_cpu_time() -> u64 {
    let now = system::cpu_time();
    now.saturating_sub(CPU_TIME.swap(now, Ordering::Relaxed))
}

/// Append whole chunks to the output in one piece. The file is opened each time: the program may close or reuse
/// any descriptor, and a fork must not share one.
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
        // Without its output the recording is worthless, and the program's exit code says so.
        std::process::abort();
    }
}

/// Take the lock, for good until [`release`].
pub fn acquire() {
    LOCK.acquire();
}

/// Give the lock back. Only for the thread that holds it.
pub fn release() {
    LOCK.release();
}

/// Use what the lock guards; it is taken for the time of `body` unless `held` says that this thread has it.
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

/// Use what is known of the ends of threads.
pub fn with_threads<R>(body: impl FnOnce(&mut Threads) -> R) -> R {
    ENDS.acquire();
    // SAFETY: this thread holds the lock, and `body` does not come here again.
    let result = unsafe { ENDS.used(body) };
    ENDS.release();
    result
}

/// In a child that was forked: there are no other threads. One that is not here any more may have been in the middle of
/// anything, so the old value is left where it is.
pub fn forget_threads() {
    // SAFETY: the child has one thread, which does not use the value now; nothing is read or dropped.
    unsafe { ENDS.data.get().write(None) };
    ENDS.release();
}
