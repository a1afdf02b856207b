//! The local interrupt controller of each CPU: its timer, and interrupts from CPU to CPU.

use super::instructions::without_interrupts;
use super::paging;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Where its registers are, on every CPU the same.
pub const ADDRESS: u64 = 0xfee0_0000;

/// Vector of the timer.
pub const TIMER: u8 = 0xec;
/// Vector by which a CPU is asked to look at the run queue.
pub const RESCHEDULE: u8 = 0xed;
/// Vector by which a CPU is asked to drop translations.
pub const SHOOTDOWN: u8 = 0xee;
/// Vector of interrupts that went away before they were taken.
pub const SPURIOUS: u8 = 0xff;

const ID: u64 = 0x20;
const TASK_PRIORITY: u64 = 0x80;
const END: u64 = 0xb0;
const SPURIOUS_VECTOR: u64 = 0xf0;
const COMMAND: u64 = 0x300;
const COMMAND_TARGET: u64 = 0x310;
const TIMER_VECTOR: u64 = 0x320;
const TIMER_START: u64 = 0x380;
const TIMER_NOW: u64 = 0x390;
const TIMER_DIVIDER: u64 = 0x3e0;

const BY_16: u32 = 3;
const PERIODIC: u32 = 1 << 17;
const MASKED: u32 = 1 << 16;

/// Timer counts between two ticks.
static PERIOD: AtomicU32 = AtomicU32::new(0);

fn register(offset: u64) -> *mut u32 {
    paging::direct(ADDRESS + offset) as *mut u32
}

fn read(offset: u64) -> u32 {
    // SAFETY: the registers are mapped from the start, and none that is read here changes by being read.
    unsafe { register(offset).read_volatile() }
}

fn write(offset: u64, value: u32) {
    // SAFETY: the registers are mapped from the start; the functions below write what the manual allows.
    unsafe { register(offset).write_volatile(value) }
}

/// This CPU's number among the controllers.
pub fn id() -> u32 {
    read(ID) >> 24
}

/// Let this CPU be interrupted.
pub fn enable() {
    write(SPURIOUS_VECTOR, 0x100 | SPURIOUS as u32);
    write(TASK_PRIORITY, 0);
    write(TIMER_DIVIDER, BY_16);
    write(TIMER_VECTOR, MASKED | TIMER as u32);
}

/// The interrupt has been taken care of.
pub fn end_of_interrupt() {
    write(END, 0);
}

/// Interrupt the CPU whose controller is `target`.
pub fn send(target: u32, vector: u8) {
    command(target, vector as u32);
}

/// Put a CPU into the state from which [`send_start`] gets it.
pub fn send_init(target: u32) {
    command(target, 0x4500);
}

/// Let a CPU begin at physical address `page * 4096`.
pub fn send_start(target: u32, page: u8) {
    command(target, 0x4600 | page as u32);
}

fn command(target: u32, command: u32) {
    const PENDING: u32 = 1 << 12;
    // An interrupt between the two writes could send one of its own.
    without_interrupts(|| {
        write(COMMAND_TARGET, target << 24);
        write(COMMAND, command);
        while read(COMMAND) & PENDING != 0 {
            core::hint::spin_loop();
        }
    });
}

/// Counts that the timer makes while `work` runs.
pub fn count_during(work: impl FnOnce()) -> u32 {
    write(TIMER_START, u32::MAX);
    work();
    let left = read(TIMER_NOW);
    write(TIMER_START, 0);
    u32::MAX - left
}

/// All CPUs' timers tick every `counts` counts.
pub fn set_period(counts: u32) {
    PERIOD.store(counts.max(1), Relaxed);
}

/// This CPU's timer ticks from now on.
pub fn start_timer() {
    start_timer_every(PERIOD.load(Relaxed));
}

/// This CPU's timer stands still.
pub fn stop_timer() {
    write(TIMER_START, 0);
}

/// This CPU's timer ticks every `counts` counts from now on.
pub fn start_timer_every(counts: u32) {
    write(TIMER_VECTOR, PERIODIC | TIMER as u32);
    write(TIMER_START, counts);
}
