//! What there is one of.

use crate::disk::{self, Disk};
use crate::machine::Threads;
use conformance::IoWatch;
use mm::api::SwapArea;
use mm::knobs::Knobs;
use mm::units::DeviceId;
use mm::{Config, Mm};
use std::sync::OnceLock;

/// The device with files.
pub const FILES: DeviceId = DeviceId(0);
/// The device with swap space.
pub const SWAP: DeviceId = DeviceId(1);

static MM: OnceLock<Mm<Threads>> = OnceLock::new();

/// Transfers that are the suite's, not the memory manager's.
pub static WATCH: IoWatch = IoWatch::new();

/// The memory manager.
pub fn mm() -> &'static Mm<Threads> {
    MM.get().expect("the kernel has booted")
}

/// The machine below it.
pub fn machine() -> &'static Threads {
    mm().machine()
}

/// Bring up the machine, then the memory manager.
pub fn boot(knobs: Knobs) -> Result<(), String> {
    let (disk, requests) = Disk::new();
    let swap = vec![SwapArea { device: SWAP, pages: 16384, priority: 0 }];
    let mm = Mm::new(Threads::new(disk), Config { knobs, swap, ..Config::default() })?;
    assert!(MM.set(mm).is_ok(), "a kernel boots once");
    std::thread::spawn(move || disk::run(&requests));
    Ok(())
}
