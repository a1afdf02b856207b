//! The kernel's global state.

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

/// Transfers of the conformance suite, which the memory manager must not see.
pub static WATCH: IoWatch = IoWatch::new();

/// The memory manager.
pub fn mm() -> &'static Mm<Threads> {
    MM.get().expect("the kernel must have booted")
}

/// The machine below the memory manager.
pub fn machine() -> &'static Threads {
    mm().machine()
}

/// Start the machine, then the memory manager.
pub fn boot(knobs: Knobs) -> Result<(), String> {
    let (disk, requests) = Disk::new();
    let swap = vec![SwapArea { device: SWAP, pages: 16384, priority: 0, zram: None }];
    let mm = Mm::new(Threads::new(disk), Config { knobs, swap, ..Config::default() })?;
    assert!(MM.set(mm).is_ok(), "a kernel must boot only once");
    std::thread::spawn(move || disk::run(&requests));
    Ok(())
}
