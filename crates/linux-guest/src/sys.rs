//! System calls of Linux on x86-64, without a C library.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::arch::{asm, global_asm};
use core::ffi::CStr;
use program::{Call, Errno};

/// System call numbers.
pub mod nr {
    #![allow(missing_docs)]
    pub const READ: u64 = 0;
    pub const WRITE: u64 = 1;
    pub const OPEN: u64 = 2;
    pub const MMAP: u64 = 9;
    pub const MUNMAP: u64 = 11;
    pub const SIGACTION: u64 = 13;
    pub const YIELD: u64 = 24;
    pub const MREMAP: u64 = 25;
    pub const MADVISE: u64 = 28;
    pub const DUP2: u64 = 33;
    pub const NANOSLEEP: u64 = 35;
    pub const GETPID: u64 = 39;
    pub const EXECVE: u64 = 59;
    pub const EXIT: u64 = 60;
    pub const WAIT4: u64 = 61;
    pub const KILL: u64 = 62;
    pub const CHDIR: u64 = 80;
    pub const RENAME: u64 = 82;
    pub const MKDIR: u64 = 83;
    pub const RMDIR: u64 = 84;
    pub const UNLINK: u64 = 87;
    pub const GETRUSAGE: u64 = 98;
    pub const SYSLOG: u64 = 103;
    pub const SETSCHEDULER: u64 = 144;
    pub const MLOCK: u64 = 149;
    pub const MLOCKALL: u64 = 151;
    pub const CHROOT: u64 = 161;
    pub const SYNC: u64 = 162;
    pub const MOUNT: u64 = 165;
    pub const SWAPON: u64 = 167;
    pub const IOPL: u64 = 172;
    pub const FUTEX: u64 = 202;
    pub const CLOCK_GETTIME: u64 = 228;
    pub const EXIT_GROUP: u64 = 231;
    pub const MBIND: u64 = 237;
    pub const FALLOCATE: u64 = 285;
    pub const FINIT_MODULE: u64 = 313;
}

/// Flag of `open`: read only.
pub const O_RDONLY: u64 = 0;
/// Write only.
pub const O_WRONLY: u64 = 1;
/// Read and write.
pub const O_RDWR: u64 = 2;
/// Create the file.
pub const O_CREAT: u64 = 0o100;
/// Bypass the page cache.
pub const O_DIRECT: u64 = 0o40000;

/// An error number of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Code(pub i32);

/// No such file.
pub const ENOENT: Code = Code(2);
/// A disk is smaller than it should be.
const ENODATA: Code = Code(61);
/// Linux has no such call.
const ENOSYS: Code = Code(38);
/// No child to wait for.
pub const ECHILD: Code = Code(10);

impl From<Code> for Errno {
    fn from(code: Code) -> Errno {
        const EPERM: i32 = 1;
        match code.0 {
            EPERM => Errno::Access,
            other => Errno::from_number(other as u64).unwrap_or(Errno::Inval),
        }
    }
}

/// Make a system call.
///
/// # Safety
/// The call's own conditions: its arguments must be valid, and nothing may rely on memory that it unmaps.
#[inline]
pub unsafe fn call<const N: usize>(number: u64, args: [u64; N]) -> Result<u64, Code> {
    const { assert!(N <= 6, "a system call has at most six arguments") };
    let mut all = [0; 6];
    all[..N].copy_from_slice(&args);
    let mut result = number;
    // SAFETY: the kernel preserves all other registers.
    unsafe {
        asm!("syscall", inlateout("rax") result, in("rdi") all[0], in("rsi") all[1], in("rdx") all[2], in("r10") all[3],
            in("r8") all[4], in("r9") all[5], lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    let result = result as i64;
    if (-4095..0).contains(&result) { Err(Code(-result as i32)) } else { Ok(result as u64) }
}

/// Make a system call that Linux has in the form in which programs make it.
///
/// # Safety
/// As [`call`].
pub unsafe fn make(what: Call<'_>) -> Result<u64, Code> {
    let (number, args) = what.on_linux().ok_or(ENOSYS)?;
    // SAFETY: the caller keeps the conditions of the call.
    unsafe { call(number, args) }
}

/// A string for the kernel, without inner zero bytes.
fn c_string(text: &str) -> Vec<u8> {
    text.bytes().filter(|byte| *byte != 0).chain([0]).collect()
}

/// Open a file.
pub fn open(path: &str, flags: u64) -> Result<u32, Code> {
    let path = c_string(path);
    // SAFETY: the path ends with a zero.
    unsafe { call(nr::OPEN, [path.as_ptr() as u64, flags, 0o644]) }.map(|fd| fd as u32)
}

/// Close a file.
pub fn close(fd: u32) -> Result<(), Code> {
    // SAFETY: the call accesses no memory.
    unsafe { make(Call::Close(fd)) }.map(drop)
}

/// Read into `buffer`.
pub fn read(fd: u32, buffer: &mut [u8]) -> Result<usize, Code> {
    // SAFETY: the kernel writes only to the buffer.
    unsafe { call(nr::READ, [fd.into(), buffer.as_mut_ptr() as u64, buffer.len() as u64]) }
        .map(|got| got as usize)
}

/// Write all of `bytes`.
pub fn write(fd: u32, mut bytes: &[u8]) -> Result<(), Code> {
    while !bytes.is_empty() {
        // SAFETY: the kernel only reads the bytes.
        let done = unsafe { call(nr::WRITE, [fd.into(), bytes.as_ptr() as u64, bytes.len() as u64]) }?;
        bytes = &bytes[done as usize..];
    }
    Ok(())
}

/// The first `len` bytes of a disk, past the page cache, in memory that is asked for once and never given back.
pub fn read_disk(device: &str, len: usize) -> Result<&'static [u8], Code> {
    const PAGE: usize = 4096;
    const MOST: usize = 1 << 20;
    // Direct reads want aligned memory and whole sectors.
    let room = len.div_ceil(PAGE);
    let pages: &'static mut [Page] = vec![Page([0; PAGE]); room].leak();
    // SAFETY: pages are bytes, whatever is in them.
    let bytes = unsafe { core::slice::from_raw_parts_mut(pages.as_mut_ptr().cast::<u8>(), room * PAGE) };
    let fd = open(device, O_RDONLY | O_DIRECT)?;
    let mut done = 0;
    while done < len {
        let end = bytes.len().min(done + MOST);
        match read(fd, &mut bytes[done..end])? {
            0 => return Err(ENODATA),
            got => done += got,
        }
    }
    close(fd)?;
    Ok(&bytes[..len])
}

/// A page of a disk.
#[derive(Clone)]
#[repr(C, align(4096))]
struct Page([u8; 4096]);

/// The content of a file.
pub fn read_file(path: &str) -> Result<Vec<u8>, Code> {
    let fd = open(path, O_RDONLY)?;
    let (mut bytes, mut len) = (Vec::new(), 0);
    let result = loop {
        bytes.resize(len + 65536, 0);
        match read(fd, &mut bytes[len..]) {
            Ok(0) => break Ok(()),
            Ok(got) => len += got,
            Err(why) => break Err(why),
        }
    };
    bytes.truncate(len);
    close(fd)?;
    result.map(|()| bytes)
}

/// The content of a text file.
pub fn read_text(path: &str) -> Result<String, Code> {
    read_file(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Write `text` to an existing file.
pub fn write_file(path: &str, text: &str) -> Result<(), Code> {
    let fd = open(path, O_WRONLY)?;
    let done = write(fd, text.as_bytes());
    close(fd)?;
    done
}

/// Create a directory.
pub fn mkdir(path: &str) -> Result<(), Code> {
    let path = c_string(path);
    // SAFETY: the path ends with a zero.
    unsafe { call(nr::MKDIR, [path.as_ptr() as u64, 0o755]) }.map(drop)
}

/// Give a file another name.
pub fn rename(from: &str, to: &str) -> Result<(), Code> {
    let [from, to] = [from, to].map(c_string);
    // SAFETY: both paths end with a zero.
    unsafe { call(nr::RENAME, [from.as_ptr() as u64, to.as_ptr() as u64]) }.map(drop)
}

/// Make a call whose only argument is a path.
pub fn on_path(number: u64, path: &str) -> Result<(), Code> {
    let path = c_string(path);
    // SAFETY: the path ends with a zero.
    unsafe { call(number, [path.as_ptr() as u64, 0]) }.map(drop)
}

/// Swap to a device.
pub fn swap_on(device: &str, flags: u64) -> Result<(), Code> {
    let device = c_string(device);
    // SAFETY: the path ends with a zero.
    unsafe { call(nr::SWAPON, [device.as_ptr() as u64, flags]) }.map(drop)
}

/// The id of this process.
pub fn own_process() -> u64 {
    // SAFETY: the call accesses no memory.
    unsafe { call::<0>(nr::GETPID, []) }.unwrap_or(0)
}

/// Mount a file system at a new directory.
pub fn mount(device: &str, at: &str, kind: &str, options: &str) -> Result<(), Code> {
    let _ = mkdir(at);
    let [device, at, kind, options] = [device, at, kind, options].map(c_string);
    let args = [&device, &at, &kind].map(|text| text.as_ptr() as u64);
    const NOATIME: u64 = 1024;
    // SAFETY: all texts end with a zero.
    unsafe { call(nr::MOUNT, [args[0], args[1], args[2], NOATIME, options.as_ptr() as u64]) }.map(drop)
}

/// Insert a module from a file that may be compressed; it is no error if the module is loaded.
pub fn insert_module(path: &str) -> Result<(), Code> {
    const COMPRESSED: u64 = 4;
    const EEXIST: Code = Code(17);
    let fd = open(path, O_RDONLY)?;
    let flags = if path.ends_with(".ko") { 0 } else { COMPRESSED };
    let empty: &CStr = c"";
    // SAFETY: the parameters end with a zero.
    let result = unsafe { call(nr::FINIT_MODULE, [fd.into(), empty.as_ptr() as u64, flags]) };
    close(fd)?;
    result.map(drop).or_else(|why| if why == EEXIST { Ok(()) } else { Err(why) })
}

/// Monotonic time in nanoseconds.
pub fn now() -> u64 {
    let mut time = [0u64; 2];
    const MONOTONIC: u64 = 1;
    // SAFETY: the kernel writes the two words.
    let _ = unsafe { call(nr::CLOCK_GETTIME, [MONOTONIC, time.as_mut_ptr() as u64]) };
    time[0] * 1_000_000_000 + time[1]
}

/// Sleep for `nanos` nanoseconds.
pub fn sleep(nanos: u64) {
    let time = [nanos / 1_000_000_000, nanos % 1_000_000_000];
    // SAFETY: the kernel reads the two words.
    let _ = unsafe { call(nr::NANOSLEEP, [time.as_ptr() as u64, 0]) };
}

/// Use only the time that no other task wants, from now on.
pub fn enter_idle_class() {
    const IDLE_CLASS: u64 = 5;
    let priority = 0u32;
    // SAFETY: the kernel reads the priority.
    let _ = unsafe { call(nr::SETSCHEDULER, [0, IDLE_CLASS, &raw const priority as u64]) };
}

/// Let other tasks run.
pub fn yield_now() {
    // SAFETY: the call accesses no memory.
    let _ = unsafe { call::<0>(nr::YIELD, []) };
}

/// Sleep until a call of [`wake`], unless the word is no longer `expected`.
pub fn wait(word: &core::sync::atomic::AtomicU32, expected: u32) {
    // SAFETY: the word is valid.
    let _ = unsafe { call(nr::FUTEX, [word.as_ptr() as u64, 0, expected.into(), 0]) };
}

/// Wake all tasks that wait for the word to change.
pub fn wake(word: &core::sync::atomic::AtomicU32) {
    // SAFETY: the word is valid.
    let _ = unsafe { call(nr::FUTEX, [word.as_ptr() as u64, 1, i32::MAX as u64]) };
}

/// How a child ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ended {
    /// Its process id.
    pub pid: u64,
    /// The signal that killed it, or 0.
    pub signal: u32,
    /// What it returned, if it was not killed.
    pub status: u32,
}

/// Wait for a child (-1: any). Returns `None` if `block` is false and no child has ended.
pub fn wait_for(pid: i64, block: bool) -> Result<Option<Ended>, Code> {
    const NO_HANG: u64 = 1;
    const ALL: u64 = 0x4000_0000;
    let mut status = 0u32;
    let flags = ALL | if block { 0 } else { NO_HANG };
    // SAFETY: the kernel writes the status.
    let pid = unsafe { call(nr::WAIT4, [pid as u64, &raw mut status as u64, flags, 0]) }?;
    Ok((pid != 0).then_some(Ended { pid, signal: status & 0x7f, status: status >> 8 & 0xff }))
}

/// What the kernel has said so far, without what no longer fits into its buffer.
pub fn kernel_messages() -> String {
    const READ_ALL: u64 = 3;
    let mut bytes = vec![0u8; 256 << 10];
    // SAFETY: the kernel writes into the buffer.
    let len = unsafe { call(nr::SYSLOG, [READ_ALL, bytes.as_mut_ptr() as u64, bytes.len() as u64]) };
    bytes.truncate(len.unwrap_or(0) as usize);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Nanoseconds that children which were waited for have spent in user mode, and in the kernel.
pub fn childrens_time() -> [u64; 2] {
    const CHILDREN: u64 = -1i64 as u64;
    let mut usage = [0u64; 18];
    // SAFETY: the kernel writes the record, which has 18 words.
    let _ = unsafe { call(nr::GETRUSAGE, [CHILDREN, usage.as_mut_ptr() as u64]) };
    [0, 2].map(|at| usage[at] * 1_000_000_000 + usage[at + 1] * 1000)
}

/// Become another program: its path, its arguments and its environment, each of which ends with a zero. Returns only
/// if that is not possible.
pub fn become_program(path: &[u8], words: &[&[u8]], variables: &[&[u8]]) -> Code {
    let pointers =
        |texts: &[&[u8]]| -> Vec<u64> { texts.iter().map(|text| text.as_ptr() as u64).chain([0]).collect() };
    let (words, variables) = (pointers(words), pointers(variables));
    let args = [path.as_ptr() as u64, words.as_ptr() as u64, variables.as_ptr() as u64];
    // SAFETY: the caller's texts end with a zero, and both lists with a null pointer.
    unsafe { call(nr::EXECVE, args) }.err().unwrap_or(ENOSYS)
}

/// Exit the process, or with [`nr::EXIT`] the thread.
pub fn exit(how: u64, status: u32) -> ! {
    loop {
        // SAFETY: nothing runs after it.
        let _ = unsafe { call(how, [status.into()]) };
    }
}

/// End the machine by writing to a port of the emulator.
pub fn end_machine(value: u8) -> ! {
    // SAFETY: the port belongs to the emulator's exit device; a write to it does not return.
    unsafe {
        let _ = call(nr::IOPL, [3]);
        asm!("out dx, al", in("dx") 0xf4u16, in("al") value, options(nostack, nomem));
    }
    exit(nr::EXIT_GROUP, 1)
}

global_asm!(
    // (flags, top of the new stack, function, its argument, where the task's number goes and is cleared when it ends)
    ".globl linux_clone",
    "linux_clone:",
    "sub rsi, 16",
    "mov [rsi], rdx",
    "mov [rsi + 8], rcx",
    "mov rdx, r8",
    "mov r10, r8",
    "xor r8d, r8d",
    "mov eax, 56",
    "syscall",
    "test rax, rax",
    "jz 2f",
    "ret",
    "2:",
    "xor ebp, ebp",
    "pop rax",
    "pop rdi",
    "call rax",
    "ud2",
);

unsafe extern "C" {
    /// Start a task. Returns the kernel's result.
    pub fn linux_clone(flags: u64, stack: u64, function: u64, argument: u64, number: u64) -> i64;
}
