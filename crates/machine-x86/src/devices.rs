//! What block devices and their driver need from the machine.
//!
//! The driver registers itself; it then gets the memory manager's requests and PCI's interrupts. A request
//! without a driver is a bug in the configuration of the memory manager.

use crate::arch::lock::IrqLock;
use crate::arch::paging;
use alloc::vec;
use alloc::vec::Vec;
use machine_x86::acpi::PciWindow;
use machine_x86::memory_map::Span;
use mm::machine::Io;
use spin::Once;

/// A driver of block devices.
pub struct Driver {
    /// Start a transfer; called by any task, possibly with locks held.
    pub submit: fn(Io),
    /// Handle a PCI interrupt; called with interrupts off. It must make the device deassert its interrupt.
    pub interrupt: fn(),
}

static DRIVER: Once<Driver> = Once::new();
static PCI: Once<PciWindow> = Once::new();
static DMA: IrqLock<Dma> = IrqLock::new(Dma { memory: Span::new(0, 0), used: Vec::new() });

const PAGE: u64 = 4096;

/// Register the driver. Only the first call has an effect.
pub fn set_driver(driver: Driver) {
    DRIVER.call_once(|| driver);
}

/// Start a transfer.
///
/// # Panics
/// If there is no driver.
pub fn submit(io: Io) {
    let driver = DRIVER.get().unwrap_or_else(|| panic!("{io:?} without a disk driver"));
    (driver.submit)(io);
}

/// Handle a PCI interrupt.
pub fn interrupt() {
    if let Some(driver) = DRIVER.get() {
        (driver.interrupt)();
    }
}

/// Set the address of PCI's configuration space.
pub fn set_pci(window: PciWindow) {
    let buses = window.last_bus as u64 + 1;
    paging::map_device(window.address, buses << 20);
    PCI.call_once(|| window);
}

/// PCI's configuration space, if the firmware has described it; accessed through [`paging::direct`].
pub fn pci() -> Option<PciWindow> {
    PCI.get().copied()
}

/// Memory for queues that devices read and write.
struct Dma {
    memory: Span,
    used: Vec<bool>,
}

/// Reserve memory for devices. Called once.
pub fn init_dma(memory: Span) {
    *DMA.lock() = Dma { memory, used: vec![false; (memory.len() / PAGE) as usize] };
}

/// Allocate contiguous pages of zeroes; returns their physical address. Accessed through [`paging::direct`].
pub fn dma_allocate(pages: usize) -> Option<u64> {
    let mut dma = DMA.lock();
    let starts = 0..=dma.used.len().checked_sub(pages)?;
    let start = starts.into_iter().find(|&start| !dma.used[start..start + pages].contains(&true))?;
    dma.used[start..start + pages].fill(true);
    let address = dma.memory.start + start as u64 * PAGE;
    // SAFETY: the pages are in the area, are mapped, and have no user.
    unsafe { paging::direct(address).write_bytes(0, pages * PAGE as usize) };
    Some(address)
}

/// Free pages.
pub fn dma_release(address: u64, pages: usize) {
    let mut dma = DMA.lock();
    let start = ((address - dma.memory.start) / PAGE) as usize;
    dma.used[start..start + pages].fill(false);
}
