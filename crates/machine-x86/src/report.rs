//! The output of a run: lines that begin with `@` are records for the host's side; all other lines are a log.

use crate::arch::{self, cpu, serial};
use crate::arena;
use core::fmt::{self, Arguments, Display};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use kernel::GroupOutcome;
use mm::machine::Io;
use mm::stat::{Stat, Stats};

/// How a run ends; the values are for the emulator's exit device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Ok = 0x10,
    Failed = 0x11,
    Bad = 0x12,
}

static ENDING: AtomicBool = AtomicBool::new(false);

/// Counters of the disks, which the driver updates.
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

impl DiskCounts {
    /// Count a transfer.
    #[inline]
    pub fn count(&self, io: &Io) {
        let (requests, pages) = match io.write {
            true => (&self.writes, &self.written_pages),
            false => (&self.reads, &self.read_pages),
        };
        requests.fetch_add(1, Relaxed);
        pages.fetch_add(io.pages as u64, Relaxed);
    }
}

/// Counters of the disks.
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

/// The first line. It begins with a line end, because the firmware does not end its last line.
pub fn begin() {
    log!("\n@pagefold 1");
}

/// The machine of the run.
pub fn machine(cpus: usize, nodes: usize, memory: u64) {
    log!("@machine cpus={cpus} nodes={nodes} memory={memory}");
}

/// All counters of the memory manager.
pub fn counters(stats: &Stats) {
    for &stat in Stat::ALL {
        log!("@counter {} {}", stat.name(), stats.read(stat));
    }
}

/// All counters of the machine.
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

/// The content of a control group's files.
pub fn group(group: &GroupOutcome) {
    let limits = group.limits.iter().flatten().map(|value| ("limits", value));
    let usage = group.usage.iter().map(|value| ("usage", value));
    let stat = group.stat.iter().map(|value| ("stat", value));
    let events = group.events.iter().map(|value| ("events", value));
    for (part, (name, value)) in limits.chain(usage).chain(stat).chain(events) {
        log!("@group {} {part} {name} {value}", group.name);
    }
}

/// The work is done, in this time and with these sums.
pub fn done(nanos: u64, accesses: u64, progress: u64, tasks: u64) {
    log!("@done nanos={nanos} accesses={accesses} progress={progress} tasks={tasks}");
}

/// The sums of the checker.
pub fn check(checked: u64, violations: u64) {
    log!("@check checked={checked} violations={violations}");
}

/// A `violation`: a load did not return the last store. A `signal` that ended a program. An `oom`: a process was chosen
/// to be killed for lack of memory. Or a `note` for readers of the run's numbers.
pub fn text(kind: &str, text: impl Display) {
    log!("@{kind} {text}");
}

/// Instructions of `units` of `name`; `tenths` of an instruction for each unit.
pub fn instructions(name: &str, tenths: u64, units: u64) {
    log!("@insns {name} {}.{} {units}", tenths / 10, tenths % 10);
}

/// End the run successfully.
pub fn end_ok() -> ! {
    finish(End::Ok, None)
}

/// End the run as failed, for a reason that was reported before.
pub fn end_failed() -> ! {
    finish(End::Failed, None)
}

/// End the run as failed, for this reason.
pub fn failed(reason: Arguments<'_>) -> ! {
    finish(End::Failed, Some(reason))
}

/// End the run: it asks for something impossible.
pub fn bad(reason: Arguments<'_>) -> ! {
    finish(End::Bad, Some(reason))
}

/// End the run because a program has panicked. The address of its message is the program's, so it is read only if it is
/// in the arena.
pub fn program_panic(address: u64, len: u64) -> ! {
    let text = match arena::contains(address, len) {
        // SAFETY: the arena is mapped, and any bytes may be read.
        true => unsafe { core::slice::from_raw_parts(address as *const u8, len as usize) },
        false => b"a message outside the arena",
    };
    let shown = core::str::from_utf8(text).unwrap_or("a message that is not UTF-8");
    failed(format_args!("program on cpu {}: {}", cpu::current().id().0, OneLine(shown)))
}

/// Text with line ends replaced by spaces.
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

/// The first CPU that gets here ends the run; others wait for that.
fn finish(end: End, reason: Option<Arguments<'_>>) -> ! {
    arch::instructions::disable_interrupts();
    if ENDING.swap(true, AcqRel) {
        loop {
            core::hint::spin_loop();
        }
    }
    let (key, word) = match end {
        End::Ok => ("", "ok"),
        End::Failed => ("@failed", "failed"),
        End::Bad => ("@bad", "bad"),
    };
    if let Some(reason) = reason {
        serial::write_last_line(format_args!("{key} {reason}"));
    }
    serial::write_last_line(format_args!("@end {word}"));
    arch::exit(end as u8)
}
