//! Requests to the kernel that `std` has no function for.

use std::ffi::{CString, c_char, c_int, c_long, c_void};

#[repr(C)]
struct Part {
    base: *mut c_void,
    len: usize,
}

#[repr(C)]
struct Time {
    seconds: c_long,
    nanos: c_long,
}

unsafe extern "C" {
    fn clock_gettime(clock: c_int, time: *mut Time) -> c_int;
    fn process_vm_readv(
        pid: c_int,
        local: *const Part,
        locals: usize,
        remote: *const Part,
        remotes: usize,
        flags: usize,
    ) -> isize;
    fn execve(path: *const c_char, words: *const *const c_char, variables: *const *const c_char) -> c_int;
    fn fcntl(fd: c_int, command: c_int, argument: c_long) -> c_int;
    fn syscall(number: c_long, a: c_long, b: c_long) -> c_long;
    fn pthread_sigmask(how: c_int, set: *const [u64; 16], old: *mut [u64; 16]) -> c_int;
}

fn clock(number: c_int) -> u64 {
    let mut time = Time { seconds: 0, nanos: 0 };
    // SAFETY: `time` is a `timespec` that may be written.
    unsafe { clock_gettime(number, &mut time) };
    time.seconds as u64 * 1_000_000_000 + time.nanos as u64
}

/// The system's monotonic clock in nanoseconds, the same in all processes.
pub fn now() -> u64 {
    clock(1)
}

/// CPU time of this process in nanoseconds.
pub fn cpu_time() -> u64 {
    clock(2)
}

/// Copy from the program's memory at `addr`; returns how many bytes were there. The program may have given an address
/// that is not mapped: the kernel reports that without harm, while a load would fault.
fn read(addr: u64, bytes: &mut [u8]) -> usize {
    let local = Part { base: bytes.as_mut_ptr().cast(), len: bytes.len() };
    let remote = Part { base: addr as *mut c_void, len: bytes.len() };
    // SAFETY: `local` may be written; the kernel checks `remote`.
    let got = unsafe { process_vm_readv(std::process::id() as c_int, &local, 1, &remote, 1, 0) };
    got.max(0) as usize
}

/// Copy all of the program's memory at `addr`, or return `None`.
pub fn read_exact(addr: u64, bytes: &mut [u8]) -> Option<()> {
    (read(addr, bytes) == bytes.len()).then_some(())
}

/// The string at `addr` in the program's memory, without its final zero.
pub fn string(addr: u64) -> Option<Vec<u8>> {
    const PAGE: u64 = 4096;
    let (mut out, mut at) = (Vec::new(), addr);
    loop {
        let mut bytes = [0; PAGE as usize];
        let length = (PAGE - at % PAGE) as usize;
        read_exact(at, &mut bytes[..length])?;
        let end = bytes[..length].iter().position(|&byte| byte == 0);
        out.extend_from_slice(&bytes[..end.unwrap_or(length)]);
        if end.is_some() {
            return Some(out);
        }
        at += length as u64;
    }
}

/// The strings that the list of pointers at `addr` leads to. No list counts as an empty one, as in Linux.
pub fn strings(addr: u64) -> Option<Vec<Vec<u8>>> {
    let (mut out, mut at) = (Vec::new(), addr);
    while at != 0 {
        let mut pointer = [0; 8];
        read_exact(at, &mut pointer)?;
        match u64::from_ne_bytes(pointer) {
            0 => break,
            pointer => out.push(string(pointer)?),
        }
        at += 8;
    }
    Some(out)
}

/// Become another program. Returns only if that fails.
pub fn execute(words: Vec<Vec<u8>>, variables: Vec<Vec<u8>>) {
    let strings = |list: Vec<Vec<u8>>| -> Option<Vec<CString>> {
        list.into_iter().map(|word| CString::new(word).ok()).collect()
    };
    let (Some(words), Some(variables)) = (strings(words), strings(variables)) else { return };
    let pointers = |list: &[CString]| -> Vec<*const c_char> {
        list.iter().map(|word| word.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (argv, envp) = (pointers(&words), pointers(&variables));
    // SAFETY: both lists end with a null pointer, and all that they point to outlives the call.
    unsafe { execve(argv[0], argv.as_ptr(), envp.as_ptr()) };
}

/// Whether the descriptor is closed by `execve`.
pub fn closes_on_exec(fd: c_int) -> bool {
    const GET_FLAGS: c_int = 1;
    // SAFETY: the call reads a descriptor's flags; it fails if the descriptor is not open.
    let flags = unsafe { fcntl(fd, GET_FLAGS, 0) };
    flags > 0 && flags & 1 != 0
}

/// Duplicate a descriptor to a number that programs do not use; the copy stays open.
pub fn keep_open(fd: c_int) -> Option<c_int> {
    const DUPLICATE: c_int = 0;
    const FROM: c_long = 900;
    // SAFETY: the call makes a new descriptor, which no other code uses.
    let kept = unsafe { fcntl(fd, DUPLICATE, FROM) };
    (kept >= 0).then_some(kept)
}

/// Send a signal. The plugin's own `kill` is another function.
pub fn kill(pid: c_int, signal: c_int) -> c_long {
    const KILL: c_long = if cfg!(target_arch = "aarch64") { 129 } else { 62 };
    // SAFETY: the call has no precondition.
    unsafe { syscall(KILL, pid.into(), signal.into()) }
}

/// Run `body` while no signal is delivered to this thread.
pub fn without_signals(body: impl FnOnce()) {
    const SET: c_int = 2;
    let (all, mut before) = ([u64::MAX; 16], [0; 16]);
    // SAFETY: both are sets of signals, of the size that the C library uses.
    unsafe { pthread_sigmask(SET, &all, &mut before) };
    body();
    // SAFETY: as above.
    unsafe { pthread_sigmask(SET, &before, std::ptr::null_mut()) };
}
