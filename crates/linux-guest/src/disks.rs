//! How long a disk takes, while the CPUs are idle and while they work.
//!
//! A disk's time is the host's. While all CPUs are idle, a second of the guest is one, too; but where time counts
//! instructions, the host needs several seconds for one in which a CPU works, so a disk that working CPUs wait for
//! answers sooner by the guest's clock. The kernel's statistics of the disk tell how long its requests took.

use crate::report::{self, print};
use crate::sys::{self, nr};
use alloc::boxed::Box;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

/// The disk with files, as good as that for swapping.
const DISK: &str = "/dev/vda";
/// Bytes of a small read and of a large one.
const SMALL: usize = 4096;
const LARGE: usize = 128 << 10;
/// Reads of each kind. The statistics are in milliseconds, so there are many.
const IDLE: u64 = 1024;
const IDLE_LARGE: u64 = 512;
const WORKING: u64 = 4096;
/// Words of a working process's stack.
const STACK: usize = 512;

/// What a read takes, in nanoseconds.
#[derive(Clone, Copy, Default)]
pub struct DiskTimes {
    idle: u64,
    idle_large: u64,
    working: u64,
}

impl DiskTimes {
    /// Report it.
    pub fn tell(&self) {
        print(format_args!("@metric warm_disk_idle_nanos {}", self.idle));
        print(format_args!("@metric warm_disk_idle_large_nanos {}", self.idle_large));
        print(format_args!("@metric warm_disk_working_nanos {}", self.working));
    }
}

/// Measure it on a machine with this many CPUs.
pub fn probe(cpus: u32) -> DiskTimes {
    let measure = || {
        // The first reads of the disk's file are from the host's disk.
        reads(LARGE, IDLE_LARGE)?;
        let idle = reads(SMALL, IDLE)?;
        let idle_large = reads(LARGE, IDLE_LARGE)?;
        let workers = (0..cpus).map(|_| Worker::start()).collect::<Result<Vec<Worker>, sys::Code>>()?;
        let working = reads(SMALL, WORKING)?;
        workers.into_iter().try_for_each(Worker::end)?;
        Ok(DiskTimes { idle, idle_large, working })
    };
    measure().unwrap_or_else(|why: sys::Code| report::failed(format_args!("{DISK}: error {}", why.0)))
}

/// Nanoseconds that a read of `len` bytes takes, by `count` of them, past the page cache.
fn reads(len: usize, count: u64) -> Result<u64, sys::Code> {
    let mut buffer = vec![0u8; len + SMALL];
    let start = (buffer.as_ptr() as usize).next_multiple_of(SMALL) - buffer.as_ptr() as usize;
    let disk = sys::open(DISK, sys::O_RDONLY | sys::O_DIRECT)?;
    let before = millis()?;
    for _ in 0..count {
        sys::read(disk, &mut buffer[start..start + len])?;
    }
    let nanos = (millis()? - before) * 1_000_000 / count;
    sys::close(disk)?;
    Ok(nanos)
}

/// Milliseconds that all reads so far have taken.
fn millis() -> Result<u64, sys::Code> {
    let text = sys::read_text(&format!("/sys/block/{}/stat", DISK.trim_start_matches("/dev/")))?;
    Ok(text.split_whitespace().nth(3).and_then(|word| word.parse().ok()).unwrap_or(0))
}

/// A process that uses the time that no other task wants.
struct Worker {
    pid: u64,
    _stack: Box<[u128]>,
}

impl Worker {
    fn start() -> Result<Worker, sys::Code> {
        const SIGCHLD: u64 = 17;
        let mut stack = vec![0u128; STACK].into_boxed_slice();
        let top = stack.as_mut_ptr_range().end as u64;
        // SAFETY: only the new process uses the stack, which stays until that has ended.
        let pid = unsafe { sys::linux_clone(SIGCHLD, top, work as *const () as u64, 0, 0) };
        if pid < 0 {
            return Err(sys::Code(-pid as i32));
        }
        Ok(Worker { pid: pid as u64, _stack: stack })
    }

    fn end(self) -> Result<(), sys::Code> {
        const SIGKILL: u64 = 9;
        // SAFETY: the process is a child that does nothing.
        unsafe { sys::call(nr::KILL, [self.pid, SIGKILL]) }?;
        sys::wait_for(self.pid as i64, true).map(drop)
    }
}

extern "C" fn work(_: u64) -> ! {
    sys::enter_idle_class();
    loop {
        core::hint::spin_loop();
    }
}
