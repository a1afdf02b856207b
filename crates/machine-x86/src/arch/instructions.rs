//! Single instructions.

use core::arch::asm;

/// Write a byte to a port.
///
/// # Safety
/// The caller must know that the device's reaction is sound.
pub unsafe fn out8(port: u16, value: u8) {
    // SAFETY: as the caller promises.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nomem, nostack, preserves_flags)) }
}

/// Write 32 bits to a port.
///
/// # Safety
/// As for [`out8`].
pub unsafe fn out32(port: u16, value: u32) {
    // SAFETY: as the caller promises.
    unsafe { asm!("out dx, eax", in("dx") port, in("eax") value, options(nomem, nostack, preserves_flags)) }
}

/// Read a byte from a port.
///
/// # Safety
/// As for [`out8`].
pub unsafe fn in8(port: u16) -> u8 {
    let value;
    // SAFETY: as the caller promises.
    unsafe { asm!("in al, dx", in("dx") port, out("al") value, options(nomem, nostack, preserves_flags)) }
    value
}

/// Write a model-specific register.
///
/// # Safety
/// The caller must know what the register does.
pub unsafe fn write_msr(register: u32, value: u64) {
    let (low, high) = (value as u32, (value >> 32) as u32);
    // SAFETY: as the caller promises.
    unsafe {
        asm!("wrmsr", in("ecx") register, in("eax") low, in("edx") high, options(nostack, preserves_flags))
    }
}

/// Read a model-specific register.
///
/// # Safety
/// The register must exist.
pub unsafe fn read_msr(register: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: as the caller promises.
    unsafe { asm!("rdmsr", in("ecx") register, out("eax") low, out("edx") high, options(nomem, nostack)) };
    (high as u64) << 32 | low as u64
}

/// The address of this CPU's last page fault.
pub fn read_cr2() -> u64 {
    let value;
    // SAFETY: reading it changes nothing.
    unsafe { asm!("mov {}, cr2", out(reg) value, options(nomem, nostack, preserves_flags)) };
    value
}

/// The loaded root table.
pub fn read_cr3() -> u64 {
    let value;
    // SAFETY: reading it changes nothing.
    unsafe { asm!("mov {}, cr3", out(reg) value, options(nomem, nostack, preserves_flags)) };
    value
}

/// Load a root table.
///
/// # Safety
/// It must have the kernel's half.
pub unsafe fn write_cr3(value: u64) {
    // SAFETY: as the caller promises.
    unsafe { asm!("mov cr3, {}", in(reg) value, options(nostack, preserves_flags)) };
}

/// The enabled processor features.
pub fn read_cr4() -> u64 {
    let value;
    // SAFETY: reading it changes nothing.
    unsafe { asm!("mov {}, cr4", out(reg) value, options(nomem, nostack, preserves_flags)) };
    value
}

/// Enable and disable processor features.
///
/// # Safety
/// They must exist, and running code must not depend on disabled ones.
pub unsafe fn write_cr4(value: u64) {
    // SAFETY: as the caller promises.
    unsafe { asm!("mov cr4, {}", in(reg) value, options(nostack, preserves_flags)) };
}

/// Drop this CPU's translation of one page.
pub fn invlpg(address: u64) {
    // SAFETY: the translation is read again from the tables.
    unsafe { asm!("invlpg [{}]", in(reg) address, options(nostack, preserves_flags)) };
}

/// The time-stamp counter.
pub fn rdtsc() -> u64 {
    // SAFETY: every x86-64 has it, and ring 0 may always read it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Enable interrupts.
pub fn enable_interrupts() {
    // SAFETY: handlers use their own stacks and preserve all state.
    unsafe { asm!("sti", options(nostack)) };
}

/// Disable interrupts.
pub fn disable_interrupts() {
    // SAFETY: this only delays interrupts.
    unsafe { asm!("cli", options(nostack)) };
}

/// Whether interrupts are enabled.
pub fn interrupts_enabled() -> bool {
    let flags: u64;
    // SAFETY: pushes to the stack and pops again.
    unsafe { asm!("pushfq", "pop {}", out(reg) flags, options(preserves_flags)) };
    flags & 0x200 != 0
}

/// Run `work` with interrupts off.
pub fn without_interrupts<T>(work: impl FnOnce() -> T) -> T {
    let enabled = interrupts_enabled();
    disable_interrupts();
    let result = work();
    if enabled {
        enable_interrupts();
    }
    result
}

/// Enable interrupts and halt until one arrives. Called with interrupts off: a pending interrupt ends the
/// halt.
pub fn wait_for_interrupt() {
    // SAFETY: `sti` takes effect after the next instruction, so no interrupt is handled between the two.
    unsafe { asm!("sti", "hlt", options(nostack)) };
}

/// The ring that this code runs in.
pub fn ring() -> u16 {
    let selector: u16;
    // SAFETY: reading a selector changes nothing, in any ring.
    unsafe { asm!("mov {0:x}, cs", out(reg) selector, options(nomem, nostack, preserves_flags)) };
    selector & 3
}
