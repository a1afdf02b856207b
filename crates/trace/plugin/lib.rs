//! The part of the trace recorder that runs inside QEMU's user-mode emulator.
//!
//! `qemu-x86_64 -plugin libpagefold_recorder.so,dir=FOLDER,window=32,owner=PID PROGRAM` writes one file per image of a
//! process into FOLDER (for the format, see `crates/trace/src/raw.rs`). The crate uses only `std` and the crate `abi`,
//! so that the build script of `trace` can compile it with `rustc` alone and the binary `pagefold` can contain it. It
//! has three sources of events: each entry into a translated block (instructions, fetches), each load and store, and
//! each system call with its return.
//!
//! State is per guest thread, indexed by QEMU's number of the virtual CPU. All callbacks for a CPU run on that CPU's
//! own host thread, so this state needs no lock; see [`shared`] for what threads share.

extern crate alloc;

#[allow(dead_code, reason = "shared with the crate trace, which uses the rest")]
#[path = "../src/codec.rs"]
mod codec;
#[allow(dead_code, reason = "shared with the crate trace, which uses the rest")]
#[path = "../src/event.rs"]
mod event;
#[allow(dead_code, reason = "shared with the crate trace, which uses the rest")]
#[path = "../src/image.rs"]
mod image;
#[allow(dead_code, reason = "shared with the crate trace, which uses the rest")]
#[path = "../src/ranges.rs"]
mod ranges;
#[allow(dead_code, reason = "shared with the crate trace, which uses the rest")]
#[path = "../src/raw.rs"]
mod raw;

mod ask;
mod calls;
mod content;
mod exec;
mod files;
mod guard;
mod maps;
mod order;
mod qemu;
mod sample;
mod shared;
mod syscalls;
mod system;
mod thread;
mod window;

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use abi::AccessKind;
use calls::Call;
use event::{PAGE_SHIFT, PAGE_SIZE};
use image::Emulator;
use qemu::{Block, Info, PluginId};
use raw::{Image, origin};
use shared::EMULATOR;
use thread::Thread;

/// The interface version that this plugin was made for; QEMU looks for this symbol.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: c_int = 1;

/// Most threads at a time, more than any recorded program has.
const MOST_THREADS: usize = 4096;
/// Bits of a block's user data that hold its address; the bits above hold its number of instructions.
const ADDRESS_BITS: u32 = 52;

static THREADS: [AtomicPtr<Thread>; MOST_THREADS] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; MOST_THREADS];
/// The process is ending: nothing more is recorded.
static FINISHED: AtomicBool = AtomicBool::new(false);
/// See [`store_bit`].
static STORE: AtomicU32 = AtomicU32::new(0);
/// The running program.
static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
/// Where QEMU's own memory begins.
static LIMIT: AtomicU64 = AtomicU64::new(0);
/// Whether the program is for x86-64. Otherwise its calls have the common numbers.
static X86: AtomicBool = AtomicBool::new(true);

/// Where QEMU's own memory begins.
fn limit() -> u64 {
    LIMIT.load(Ordering::Relaxed)
}

/// The running program.
fn program() -> PathBuf {
    PROGRAM.get().cloned().unwrap_or_default()
}

/// The state of the calling thread, which runs on CPU `index`.
#[inline]
fn current(index: c_uint) -> Option<&'static mut Thread> {
    if FINISHED.load(Ordering::Relaxed) {
        return None;
    }
    let slot = THREADS.get(index as usize)?;
    let mut thread = slot.load(Ordering::Relaxed);
    if thread.is_null() {
        thread = begin(slot);
    }
    // SAFETY: the pointer came from `Box::into_raw` in `begin` and is freed only in `on_cpu_exit`, by the same
    // host thread; each CPU has one host thread and callbacks do not nest, so the reference is the only one.
    Some(unsafe { &mut *thread })
}

#[cold]
fn begin(slot: &AtomicPtr<Thread>) -> *mut Thread {
    let window = EMULATOR.get().map_or(window::USUAL, |emulator| emulator.window as usize);
    let mut thread = Box::new(Thread::begin(window));
    if thread.is_first() {
        let maps = shared::with(false, |shared| maps::initial(limit(), &mut shared.files));
        maps.iter().for_each(|map| thread.changed(false, map));
    }
    let thread = Box::into_raw(thread);
    slot.store(thread, Ordering::Relaxed);
    thread
}

/// The state of the thread that runs on CPU `index`, if it has nothing to take note of: it has begun, no other thread
/// has changed the address space, and the process is not ending.
#[inline(always)]
fn undisturbed(index: c_uint) -> Option<&'static mut Thread> {
    let thread = THREADS.get(index as usize)?.load(Ordering::Relaxed);
    if thread.is_null() {
        return None;
    }
    // SAFETY: as in `current`.
    let thread = unsafe { &mut *thread };
    (thread.news == shared::NEWS.load(Ordering::Relaxed)).then_some(thread)
}

extern "C" fn on_block(index: c_uint, data: *mut c_void) {
    let data = data as u64;
    let page = (data & ((1 << ADDRESS_BITS) - 1)) >> PAGE_SHIFT;
    if let Some(thread) = undisturbed(index)
        && !thread.window.block()
        && thread.window.hit_fetch(page)
    {
        thread.instructions += data >> ADDRESS_BITS;
        return;
    }
    block(index, data >> ADDRESS_BITS, page);
}

#[inline(never)]
fn block(index: c_uint, instructions: u64, page: u64) {
    let Some(thread) = current(index) else { return };
    thread.follow();
    thread.instructions += instructions;
    if thread.window.is_due() && thread.window.is_full() {
        thread.drain();
    }
    thread.touch(page, AccessKind::Fetch, 1);
}

extern "C" fn on_access(index: c_uint, info: u32, addr: u64, instruction: *mut c_void) {
    /// Most bytes that an access has.
    const LONGEST: u64 = 64;
    if let Some(thread) = undisturbed(index)
        && addr % PAGE_SIZE <= PAGE_SIZE - LONGEST
        && thread.window.hit(addr >> PAGE_SHIFT, mode(info))
    {
        return;
    }
    access(index, info, addr, instruction as u64);
}

#[inline(always)]
fn mode(info: u32) -> AccessKind {
    if info & STORE.load(Ordering::Relaxed) != 0 { AccessKind::Store } else { AccessKind::Load }
}

/// The bit in QEMU's information about an access that marks a store. QEMU's function for it is called once per bit
/// here, instead of once per access.
fn store_bit() -> Option<u32> {
    // SAFETY: the function only looks at the bits of its argument.
    let is_store = |info: u32| unsafe { qemu::qemu_plugin_mem_is_store(info) };
    let mut bits = (0..u32::BITS).map(|bit| 1 << bit).filter(|&bit| is_store(bit));
    let found = bits.next().filter(|_| !is_store(0))?;
    bits.next().is_none().then_some(found)
}

#[inline(never)]
fn access(index: c_uint, info: u32, addr: u64, instruction: u64) {
    let Some(thread) = current(index) else { return };
    thread.follow();
    // SAFETY: `info` is what QEMU passed for this access; the function only looks at its bits.
    let size = unsafe { qemu::qemu_plugin_mem_size_shift(info) };
    let (first, last) = (addr >> PAGE_SHIFT, addr.wrapping_add((1u64 << size) - 1) >> PAGE_SHIFT);
    let mode = mode(info);
    thread.touch(first, mode, 1);
    match mode {
        // Hardware that loads a word to store it again faults once, for the store.
        AccessKind::Store if thread.loaded == (instruction, addr) => thread.window.store_was_first(first),
        AccessKind::Store => {}
        _ => thread.loaded = (instruction, addr),
    }
    if last != first {
        thread.touch(last, mode, 1);
    }
}

extern "C" fn on_translate(_: PluginId, block: *mut Block) {
    // SAFETY: QEMU passes a block that is valid during this callback; all indices of instructions are below their
    // number.
    unsafe {
        let count = qemu::qemu_plugin_tb_n_insns(block);
        let start = qemu::qemu_plugin_tb_vaddr(block);
        let data = |addr: u64, count: usize| (addr | (count as u64) << ADDRESS_BITS) as *mut c_void;
        qemu::qemu_plugin_register_vcpu_tb_exec_cb(block, on_block, qemu::NO_REGS, data(start, count));
        let mut page = start >> PAGE_SHIFT;
        for at in 0..count {
            let instruction = qemu::qemu_plugin_tb_get_insn(block, at);
            let addr = qemu::qemu_plugin_insn_vaddr(instruction);
            if addr >> PAGE_SHIFT != page {
                page = addr >> PAGE_SHIFT;
                let data = data(addr, 0);
                qemu::qemu_plugin_register_vcpu_insn_exec_cb(instruction, on_block, qemu::NO_REGS, data);
            }
            let (flags, which, data) = (qemu::NO_REGS, qemu::MEM_RW, addr as *mut c_void);
            qemu::qemu_plugin_register_vcpu_mem_cb(instruction, on_access, flags, which, data);
        }
    }
}

fn call(number: i64) -> Option<Call> {
    if X86.load(Ordering::Relaxed) { calls::x86_64(number) } else { calls::common(number) }
}

/// Run `body` with the thread marked as busy.
fn busy(index: c_uint, body: impl FnOnce(&mut Thread)) {
    let Some(thread) = current(index) else { return };
    thread.busy.store(true, Ordering::SeqCst);
    if !FINISHED.load(Ordering::SeqCst) {
        body(thread);
    }
    thread.busy.store(false, Ordering::SeqCst);
}

extern "C" fn on_syscall(
    _: PluginId,
    index: c_uint,
    number: i64,
    a: u64,
    b: u64,
    c: u64,
    d: u64,
    e: u64,
    f: u64,
    _: u64,
    _: u64,
) {
    busy(index, |thread| match call(number) {
        Some(call) => {
            let args = [a, b, c, d, e, f];
            syscalls::enter(thread, call, args);
            if let Call::Exec | Call::ExecAt = call {
                exec::attempt(thread, call, &args, || settle(Some(index)), resume);
            }
        }
        // Any call may block for long, so earlier accesses must not wait in the window.
        None => {
            thread.drain();
            thread.rest();
        }
    });
}

extern "C" fn on_syscall_return(_: PluginId, index: c_uint, _: i64, result: i64) {
    busy(index, |thread| {
        let parent = shared::image();
        if result == 0 && std::process::id() != parent.pid {
            begin_child(index, thread, parent);
        } else {
            syscalls::leave(thread, result);
        }
    });
}

/// Begin a child that was just forked: of all threads, only the calling one lives on in it, and it holds the lock.
fn begin_child(index: c_uint, thread: &mut Thread, parent: Image) {
    for (at, slot) in THREADS.iter().enumerate() {
        if at != index as usize {
            // The other threads' states are leaked: these threads may have been in the middle of anything.
            slot.store(std::ptr::null_mut(), Ordering::Relaxed);
        }
    }
    thread.pending = None;
    shared::begin_image(origin::FORK, parent, program().as_os_str().as_bytes());
    shared::forget_threads(thread.sample.places());
    shared::with(true, |shared| shared.files.describe_all());
    thread.begin_child();
    shared::release();
    guard::begin();
}

extern "C" fn on_cpu_exit(_: PluginId, index: c_uint) {
    let Some(slot) = THREADS.get(index as usize) else { return };
    if FINISHED.load(Ordering::SeqCst) {
        return;
    }
    let thread = slot.swap(std::ptr::null_mut(), Ordering::Relaxed);
    if !thread.is_null() {
        // SAFETY: the pointer came from `Box::into_raw` in `begin`; the CPU is gone, so nothing uses it any more.
        let mut thread = unsafe { Box::from_raw(thread) };
        thread.end();
    }
}

/// Stop recording, and write out what all threads have so far, except that of the CPU `except`.
fn settle(except: Option<c_uint>) {
    FINISHED.store(true, Ordering::SeqCst);
    // The callbacks look at FINISHED only when there is news.
    shared::NEWS.fetch_add(1, Ordering::SeqCst);
    let others = THREADS.iter().enumerate().filter(|(at, _)| except != Some(*at as c_uint));
    let others: Vec<_> =
        others.map(|(_, slot)| slot.load(Ordering::Acquire)).filter(|thread| !thread.is_null()).collect();
    if !others.is_empty() {
        // If QEMU has not stopped the CPUs, one may be in the middle of a callback, which is over within this time.
        std::thread::sleep(Duration::from_millis(10));
    }
    for thread in others {
        // SAFETY: FINISHED keeps the callbacks for blocks and accesses out, so only a system-call callback could be
        // using the state, and the loop waits for that to end.
        let thread = unsafe {
            while (*thread).busy.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            &mut *thread
        };
        thread.end();
    }
}

/// Record again after [`settle`].
fn resume() {
    FINISHED.store(false, Ordering::SeqCst);
}

/// End the recording of this process.
fn finish() {
    if FINISHED.swap(true, Ordering::SeqCst) {
        return;
    }
    settle(None);
    let mut out = Vec::new();
    raw::put_chunk(&mut out, raw::kind::PROCESS_END, 0, |_| ());
    shared::write(&out);
}

extern "C" fn on_exit(_: PluginId, _: *mut c_void) {
    finish();
}

/// Replaces the C library's `kill`, as the plugin is loaded before it. When a signal ends the program, the emulator
/// calls this for itself and does not tell the plugin otherwise. (The program's own calls do not go through the
/// library.)
#[unsafe(no_mangle)]
pub extern "C" fn kill(pid: c_int, signal: c_int) -> c_int {
    if pid as u32 == shared::image().pid && pid as u32 == std::process::id() {
        finish();
    }
    system::kill(pid, signal) as c_int
}

/// Read the plugin's arguments: `dir=FOLDER`, `window=PAGES`, `owner=PID`, `quiet=INSTRUCTIONS`, `sample=N` and
/// `salt=NUMBER`, and `after=NUMBER` in an image that is not the first of its process.
fn configure<'a>(arguments: impl Iterator<Item = &'a str>) -> Result<(Emulator, Option<u32>), String> {
    let (mut folder, mut window, mut owner) = (None, window::USUAL as u32, 0);
    let (mut quiet, mut sample, mut salt, mut after) = (0, 1, 0, None);
    for argument in arguments {
        let (name, value) = argument.split_once('=').unwrap_or((argument, ""));
        let long = || value.parse::<u64>().map_err(|_| format!("{name}={value}: not a number"));
        let number = || value.parse::<u32>().map_err(|_| format!("{name}={value}: not a number"));
        match name {
            "dir" => folder = Some(PathBuf::from(value)),
            "window" => window = number()?,
            "owner" => owner = number()?,
            "quiet" => quiet = long()?,
            "sample" => sample = long()?,
            "salt" => salt = long()?,
            "after" => after = Some(number()?),
            _ => {
                return Err(format!(
                    "{argument}: no such argument; known are dir=, window=, owner=, quiet=, sample=, salt= and after="
                ));
            }
        }
    }
    let folder = folder.ok_or("dir= is missing")?;
    let program = std::fs::read_link("/proc/self/exe").map_err(|error| format!("/proc/self/exe: {error}"))?;
    // The folder is next to the plugin.
    let plugin = folder.with_file_name("recorder.so");
    Ok((Emulator { program, plugin, folder, window, owner, quiet, sample, salt }, after))
}

/// Install the plugin; QEMU calls this after it has loaded it.
///
/// # Safety
/// `info` and `argv` must be as QEMU's plugin interface promises.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: PluginId,
    info: *const Info,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    // SAFETY: QEMU passes a valid `Info` and `argc` strings that live as long as the plugin.
    let (target, arguments) = unsafe {
        let arguments: Vec<_> =
            (0..argc.max(0) as usize).map(|at| CStr::from_ptr(*argv.add(at)).to_string_lossy()).collect();
        (CStr::from_ptr((*info).target_name).to_string_lossy(), arguments)
    };
    X86.store(target == "x86_64", Ordering::Relaxed);
    let (emulator, after) = match configure(arguments.iter().map(AsRef::as_ref)) {
        Ok(found) => found,
        Err(message) => {
            eprintln!("pagefold recorder: {message}");
            return 1;
        }
    };
    let Some(store) = store_bit() else {
        eprintln!("pagefold recorder: this emulator tells loads and stores apart in an unknown way");
        return 1;
    };
    STORE.store(store, Ordering::Relaxed);
    LIMIT.store(maps::lowest(), Ordering::Relaxed);
    let path = exec::told();
    shared::QUIET.store(emulator.quiet, Ordering::Relaxed);
    shared::LINEAGE.store(emulator.salt, Ordering::Relaxed);
    EMULATOR.get_or_init(|| emulator);
    let (how, number) = after.map_or((origin::FIRST, 0), |number| (origin::EXEC, number));
    shared::begin_image(how, Image { pid: std::process::id(), number }, path.as_os_str().as_bytes());
    PROGRAM.get_or_init(|| path);
    guard::begin();
    // SAFETY: the callbacks have the signatures that the interface requires, and live as long as the plugin.
    unsafe {
        qemu::qemu_plugin_register_vcpu_tb_trans_cb(id, on_translate);
        qemu::qemu_plugin_register_vcpu_syscall_cb(id, on_syscall);
        qemu::qemu_plugin_register_vcpu_syscall_ret_cb(id, on_syscall_return);
        qemu::qemu_plugin_register_vcpu_exit_cb(id, on_cpu_exit);
        qemu::qemu_plugin_register_atexit_cb(id, on_exit, std::ptr::null_mut());
    }
    0
}
