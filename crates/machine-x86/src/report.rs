//! What a run says: lines that begin with `@`, each a record; the host's side reads them. All other lines are a log.

use crate::arch::{self, cpu, serial};
use crate::arena;
use core::fmt::{self, Arguments, Display};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use kernel::GroupOutcome;
use mm::stat::{Stat, Stats};

/// How a run ends, as the emulator's exit device is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Fine = 0x10,
    Failed = 0x11,
    Bad = 0x12,
}

static ENDING: AtomicBool = AtomicBool::new(false);

/// Counters of disks, which the driver adds to.
pub struct DiskCounts {
    /// Requests to read.
    pub reads: AtomicU64,
    /// Pages read.
    pub read_pages: AtomicU64,
    /// Requests to write.
    pub writes: AtomicU64,
    /// Pages written.
    pub written_pages: AtomicU64,
}

/// Counters of disks.
pub static DISKS: DiskCounts = DiskCounts {
    reads: AtomicU64::new(0),
    read_pages: AtomicU64::new(0),
    writes: AtomicU64::new(0),
    written_pages: AtomicU64::new(0),
};

/// Write a line of the log.
#[macro_export]
macro_rules! log {
    ($($text:tt)*) => { $crate::arch::serial::write_line(format_args!($($text)*)) };
}

/// The first line. What the firmware says before it does not end its last line.
pub fn begin() {
    log!("\n@pagefold 1");
}

/// What the run is on.
pub fn machine(cpus: usize, nodes: usize, memory: u64) {
    log!("@machine cpus={cpus} nodes={nodes} memory={memory}");
}

/// All counters of the memory manager.
pub fn counters(stats: &Stats) {
    for &stat in Stat::ALL {
        log!("@counter {} {}", stat.name(), stats.read(stat));
    }
}

/// All that the machine has counted.
pub fn metrics() {
    let sum = |of: fn(&cpu::Counts) -> &AtomicU64| -> u64 {
        cpu::all().iter().map(|cpu| of(&cpu.counts).load(Relaxed)).sum()
    };
    let disk = |count: &AtomicU64| count.load(Relaxed);
    for (name, value) in [
        ("tlb_rounds", sum(|counts| &counts.rounds)),
        ("ipis_sent", sum(|counts| &counts.ipis_sent)),
        ("ipis_received", sum(|counts| &counts.ipis_received)),
        ("context_switches", sum(|counts| &counts.switches)),
        ("timer_ticks", sum(|counts| &counts.ticks)),
        ("disk_reads", disk(&DISKS.reads)),
        ("disk_read_pages", disk(&DISKS.read_pages)),
        ("disk_writes", disk(&DISKS.writes)),
        ("disk_written_pages", disk(&DISKS.written_pages)),
    ] {
        log!("@metric {name} {value}");
    }
}

/// What the files of a control group say.
pub fn group(group: &GroupOutcome) {
    let limits = group.limits.iter().flatten().map(|value| ("limits", value));
    let usage = group.usage.iter().map(|value| ("usage", value));
    let stat = group.stat.iter().map(|value| ("stat", value));
    let events = group.events.iter().map(|value| ("events", value));
    for (part, (name, value)) in limits.chain(usage).chain(stat).chain(events) {
        log!("@group {} {part} {name} {value}", group.name);
    }
}

/// The work is done: how long it took, and how much it was.
pub fn done(nanos: u64, accesses: u64, progress: u64, tasks: u64) {
    log!("@done nanos={nanos} accesses={accesses} progress={progress} tasks={tasks}");
}

/// What the checker has looked at.
pub fn check(checked: u64, violations: u64) {
    log!("@check checked={checked} violations={violations}");
}

/// A load did not return the last store.
pub fn violation(text: impl Display) {
    log!("@violation {text}");
}

/// A reader of the run's numbers should know this.
pub fn note(text: impl Display) {
    log!("@note {text}");
}

/// A program was ended by a signal.
pub fn signal(text: impl Display) {
    log!("@signal {text}");
}

/// A program was chosen to die for want of memory.
pub fn oom(text: impl Display) {
    log!("@oom {text}");
}

/// Instructions that `units` of `name` took. `tenths`: of an instruction, for one unit.
pub fn instructions(name: &str, tenths: u64, units: u64) {
    log!("@insns {name} {}.{} {units}", tenths / 10, tenths % 10);
}

/// End the run: it went well.
pub fn end_ok() -> ! {
    finish(End::Fine, None)
}

/// End the run: what was reported before says that it failed.
pub fn end_failed() -> ! {
    finish(End::Failed, None)
}

/// End the run: it failed, for this reason.
pub fn failed(reason: Arguments<'_>) -> ! {
    finish(End::Failed, Some(reason))
}

/// End the run: it was asked for something that cannot be.
pub fn bad(reason: Arguments<'_>) -> ! {
    finish(End::Bad, Some(reason))
}

/// Ends the run because a program has panicked with this message. The address is the program's, so it is read only if it
/// is in the arena.
pub fn program_panic(address: u64, len: u64) -> ! {
    let text = match arena::contains(address, len) {
        // SAFETY: the arena is mapped, and the kernel reads bytes whatever they are.
        true => unsafe { core::slice::from_raw_parts(address as *const u8, len as usize) },
        false => b"a message outside of the arena",
    };
    let shown = core::str::from_utf8(text).unwrap_or("a message that is no text");
    failed(format_args!("program on cpu {}: {}", cpu::current().id().0, OneLine(shown)))
}

/// Shows text with its line ends replaced by spaces.
pub struct OneLine<'a>(pub &'a str);

impl Display for OneLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.split(['\n', '\r']).enumerate().try_for_each(|(i, part)| {
            if i > 0 {
                f.write_str(" ")?;
            }
            f.write_str(part)
        })
    }
}

/// The first CPU to come here ends the run; others wait for that.
fn finish(end: End, reason: Option<Arguments<'_>>) -> ! {
    arch::instructions::disable_interrupts();
    if ENDING.swap(true, AcqRel) {
        loop {
            core::hint::spin_loop();
        }
    }
    let (key, word) = match end {
        End::Fine => ("", "ok"),
        End::Failed => ("@failed", "failed"),
        End::Bad => ("@bad", "bad"),
    };
    if let Some(reason) = reason {
        serial::write_last_line(format_args!("{key} {reason}"));
    }
    serial::write_last_line(format_args!("@end {word}"));
    arch::exit(end as u8)
}
