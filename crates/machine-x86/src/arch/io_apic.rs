//! The I/O APICs. All interrupts of PCI devices use one vector on the first CPU.

use super::apic;
use super::paging;
use machine_x86::acpi::IoApic;

/// Vector of PCI devices' interrupts.
pub const PCI: u8 = 0x30;
/// Global interrupts of PCI devices.
const PCI_INTERRUPTS: core::ops::Range<u32> = 16..24;

const VERSION: u32 = 1;
const TABLE: u32 = 0x10;
const MASKED: u32 = 1 << 16;
const LEVEL: u32 = 1 << 15;
const ACTIVE_LOW: u32 = 1 << 13;

fn read(chip: &IoApic, index: u32) -> u32 {
    let select = paging::direct(chip.address) as *mut u32;
    // SAFETY: the registers are at the address from the firmware, which is mapped as a device's.
    unsafe {
        select.write_volatile(index);
        select.byte_add(0x10).read_volatile()
    }
}

fn write(chip: &IoApic, index: u32, value: u32) {
    let select = paging::direct(chip.address) as *mut u32;
    // SAFETY: as above; called while one CPU runs, so no other code selects another register in between.
    unsafe {
        select.write_volatile(index);
        select.byte_add(0x10).write_volatile(value);
    }
}

/// Send PCI's interrupts, and no others, to this CPU. Called once, while one CPU runs.
pub fn init(chips: &[IoApic]) {
    for chip in chips {
        paging::map_device(chip.address, 0x20);
        let inputs = (read(chip, VERSION) >> 16 & 0xff) + 1;
        for input in 0..inputs {
            let wanted = PCI_INTERRUPTS.contains(&(chip.first + input));
            let low = if wanted { LEVEL | ACTIVE_LOW | PCI as u32 } else { MASKED };
            write(chip, TABLE + 2 * input + 1, apic::id() << 24);
            write(chip, TABLE + 2 * input, low);
        }
    }
}
