//! The local APIC of each CPU: its timer, and interrupts between CPUs.

use super::instructions::without_interrupts;
use super::paging;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Address of its registers, the same on every CPU.
pub const ADDRESS: u64 = 0xfee0_0000;

/// Vector of the timer.
pub const TIMER: u8 = 0xec;
/// Vector that asks a CPU to check the run queue.
pub const RESCHEDULE: u8 = 0xed;
/// Vector that asks a CPU to drop translations.
pub const SHOOTDOWN: u8 = 0xee;
/// Vector of spurious interrupts.
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
    // SAFETY: the registers are always mapped, and reading the ones used here has no side effects.
    unsafe { register(offset).read_volatile() }
}

fn write(offset: u64, value: u32) {
    // SAFETY: the registers are always mapped; the functions below write values that the manual allows.
    unsafe { register(offset).write_volatile(value) }
}

/// This CPU's local APIC id.
pub fn id() -> u32 {
    read(ID) >> 24
}

/// Enable interrupts of this CPU's APIC.
pub fn enable() {
    write(SPURIOUS_VECTOR, 0x100 | SPURIOUS as u32);
    write(TASK_PRIORITY, 0);
    write(TIMER_DIVIDER, BY_16);
    write(TIMER_VECTOR, MASKED | TIMER as u32);
}

/// Acknowledge the current interrupt.
pub fn end_of_interrupt() {
    write(END, 0);
}

/// Interrupt the CPU whose APIC id is `target`.
pub fn send(target: u32, vector: u8) {
    command(target, vector as u32);
}

/// Send INIT to a CPU, to prepare it for [`send_start`].
pub fn send_init(target: u32) {
    command(target, 0x4500);
}

/// Start a CPU at the physical address `page * 4096`.
pub fn send_start(target: u32, page: u8) {
    command(target, 0x4600 | page as u32);
}

fn command(target: u32, command: u32) {
    const PENDING: u32 = 1 << 12;
    // An interrupt handler between the two writes could send an interrupt, too.
    without_interrupts(|| {
        write(COMMAND_TARGET, target << 24);
        write(COMMAND, command);
        while read(COMMAND) & PENDING != 0 {
            core::hint::spin_loop();
        }
    });
}

/// Count the timer's counts while `work` runs.
pub fn count_during(work: impl FnOnce()) -> u32 {
    write(TIMER_START, u32::MAX);
    work();
    let remaining = read(TIMER_NOW);
    write(TIMER_START, 0);
    u32::MAX - remaining
}

/// Set the period of all CPUs' timers.
pub fn set_period(counts: u32) {
    PERIOD.store(counts.max(1), Relaxed);
}

/// Start this CPU's timer.
pub fn start_timer() {
    start_timer_every(PERIOD.load(Relaxed));
}

/// Stop this CPU's timer.
pub fn stop_timer() {
    write(TIMER_START, 0);
}

/// Start this CPU's timer with a period of `counts` counts.
pub fn start_timer_every(counts: u32) {
    write(TIMER_VECTOR, PERIODIC | TIMER as u32);
    write(TIMER_START, counts);
}
