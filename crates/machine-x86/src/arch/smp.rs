//! Starting the other CPUs.

use super::{apic, clock, cpu, paging};
use core::sync::atomic::{AtomicUsize, Ordering::*};

/// Where they begin in 16-bit mode; also in `boot.s`.
const START_PAGE: u64 = 0x8000;
/// How long the start of a CPU may take. Generous, because the host may be busy.
const TIMEOUT: u64 = 10_000_000_000;

unsafe extern "C" {
    static start_page_begin: u8;
    static start_page_end: u8;
    static start_page_stack: u8;
    static start_page_cpu: u8;
}

static RUNNING: AtomicUsize = AtomicUsize::new(1);

/// Number of running CPUs.
pub fn running() -> usize {
    RUNNING.load(Acquire)
}

/// Count the calling CPU as running.
pub fn count_running() {
    RUNNING.fetch_add(1, AcqRel);
}

/// Start all CPUs but the first. `stack` returns the top of a CPU's first stack. Fails with the number of a
/// CPU that does not start.
pub fn start(stack: impl Fn(usize) -> u64) -> Result<(), usize> {
    let begin = &raw const start_page_begin;
    let page = paging::direct(START_PAGE);
    let address_of = |label: *const u8| page.wrapping_add(label as usize - begin as usize) as *mut u64;
    let len = (&raw const start_page_end) as usize - begin as usize;
    // SAFETY: the page is in unused low memory, and the code is shorter than a page.
    unsafe { core::ptr::copy_nonoverlapping(begin, page, len) };
    let others = cpu::all().iter().enumerate().skip(1);
    others.clone().for_each(|(_, other)| apic::send_init(other.apic()));
    clock::spin(10_000_000);
    for (i, other) in others {
        let before = running();
        // SAFETY: words of the same page, read only by the CPU that is about to start.
        unsafe {
            address_of(&raw const start_page_stack).write_volatile(stack(i));
            address_of(&raw const start_page_cpu).write_volatile(i as u64);
        }
        apic::send_start(other.apic(), (START_PAGE / 4096) as u8);
        let end = clock::now() + TIMEOUT;
        while running() == before {
            if clock::now() > end {
                return Err(i);
            }
            core::hint::spin_loop();
        }
    }
    Ok(())
}
