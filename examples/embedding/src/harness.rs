//! The kernel, as the conformance suite drives it.

use crate::kernel::{self, FILES};
use crate::machine::Threads;
use crate::task;
use conformance::{Harness, IoWatch, Scratch};
use mm::Mm;
use mm::api::AccessKind;
use mm::units::{CpuId, SpaceId, Vpn};
use std::fmt::Arguments;

/// This kernel.
pub struct Embedding;

impl Harness for Embedding {
    type Machine = Threads;

    fn mm(&self) -> &Mm<Threads> {
        kernel::mm()
    }

    fn start(&self, cpu: CpuId, entry: fn(usize), argument: usize) {
        task::start(cpu, move || entry(argument));
    }

    fn pause(&self) {
        task::yield_cpu();
    }

    fn spin(&self) {
        std::thread::yield_now();
    }

    fn enter(&self, space: Option<SpaceId>) {
        task::enter(space);
    }

    fn in_io_context(&self, entry: fn(usize), argument: usize) -> bool {
        // Another kernel task of this CPU, as in `disk`.
        entry(argument);
        true
    }

    fn load(&self, page: Vpn, word: usize) -> Option<u64> {
        kernel::machine().access(page, word, AccessKind::Load, 0)
    }

    fn store(&self, page: Vpn, word: usize, value: u64) -> bool {
        kernel::machine().access(page, word, AccessKind::Store, value).is_some()
    }

    /// Any word is code here: these CPUs only fetch.
    fn code(&self) -> Option<u64> {
        Some(1)
    }

    fn fetch(&self, page: Vpn) -> bool {
        kernel::machine().access(page, 0, AccessKind::Fetch, 0).is_some()
    }

    fn spin_as_program(&self, page: Vpn) -> bool {
        while self.load(page, 0) == Some(0) {
            std::thread::yield_now();
        }
        true
    }

    fn scratch(&self) -> Option<Scratch> {
        Some(Scratch { device: FILES, block: 0, blocks: 1 << 16 })
    }

    fn watch(&self) -> &IoWatch {
        &kernel::WATCH
    }

    fn progress(&self, line: Arguments<'_>) {
        eprintln!("{line}");
    }

    fn give_up(&self, why: &str) -> ! {
        eprintln!("{why}: tasks do not end");
        std::process::exit(1)
    }
}
