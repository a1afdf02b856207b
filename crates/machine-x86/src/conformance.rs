//! The suite of the crate `conformance`, on this kernel and its machine.

use crate::arch::touch;
use crate::machine::{X86, mm};
use crate::{disk, log, report, sched};
use alloc::string::String;
use conformance::{Harness, IoWatch, Report, Scratch};
use core::fmt::Arguments;
use mm::Mm;
use mm::machine::Io;
use mm::units::{CpuId, DeviceId, PAGE_SHIFT, SpaceId, Vpn};

/// The suite's own transfers.
static WATCH: IoWatch = IoWatch::new();

/// `ret`.
const RETURN: u64 = 0xc3;

fn is_watched(io: &Io) -> bool {
    WATCH.claims(io)
}

/// Run all checks, report, and end the run.
pub fn run() -> ! {
    disk::watch(is_watched);
    let mut results = Report::new();
    conformance::run(&Kernel, &mut results);
    let mut table = String::new();
    results.print(&mut table).expect("writing to a string must succeed");
    table.lines().for_each(|line| log!("{line}"));
    // A check never needs more than memory and swap hold, so a kill is a fault that its message should explain.
    mm().oom_reports().iter().flat_map(|oom| oom.text.lines()).for_each(|line| log!("{line}"));
    report::counters(&mm().mmu().stats);
    report::metrics();
    match results.failures().count() {
        0 => report::end_ok(),
        failures => report::failed(format_args!("{failures} checks of the machine failed")),
    }
}

struct Kernel;

/// The byte address of a word of a page.
fn address(page: Vpn, word: usize) -> u64 {
    (page.0 << PAGE_SHIFT) + word as u64 * 8
}

impl Harness for Kernel {
    type Machine = X86;

    fn mm(&self) -> &Mm<X86> {
        mm()
    }

    fn start(&self, cpu: CpuId, entry: fn(usize), argument: usize) {
        sched::spawn_on(cpu, "check", move || entry(argument));
    }

    fn pause(&self) {
        sched::yield_now();
    }

    fn spin(&self) {
        core::hint::spin_loop();
    }

    fn enter(&self, space: Option<SpaceId>) {
        sched::set_space(space);
    }

    /// An ordinary task of this kernel reports the ends of transfers.
    fn in_io_context(&self, entry: fn(usize), argument: usize) -> bool {
        entry(argument);
        true
    }

    fn load(&self, page: Vpn, word: usize) -> Option<u64> {
        // SAFETY: the programs' half of the address space maps only frames of the memory manager.
        unsafe { touch::load(address(page, word)) }.ok()
    }

    fn store(&self, page: Vpn, word: usize, value: u64) -> bool {
        // SAFETY: as above; frames that are writable through that half belong to programs.
        unsafe { touch::store(address(page, word), value) }.is_ok()
    }

    /// The kernel may access every present page.
    fn has_program_rights(&self) -> bool {
        false
    }

    fn code(&self) -> Option<u64> {
        Some(RETURN)
    }

    fn fetch(&self, page: Vpn) -> bool {
        // SAFETY: the suite stores only the code of a return there.
        unsafe { touch::fetch(address(page, 0)) }.is_ok()
    }

    fn scratch(&self) -> Option<Scratch> {
        let device = DeviceId(0);
        let pages = disk::pages(device)?;
        Some(Scratch { device, block: 0, blocks: pages })
    }

    fn watch(&self) -> &IoWatch {
        &WATCH
    }

    /// An emulator is slow.
    fn effort(&self) -> u32 {
        1
    }

    fn progress(&self, line: Arguments<'_>) {
        log!("{line}");
    }

    fn give_up(&self, why: &str) -> ! {
        report::failed(format_args!("{why}"))
    }
}
