//! Programs that use more memory than there is, in several spaces: reclaim, swap and deferred flushes in real
//! parallelism.

use super::program::{Program, run_all};
use super::{check, ram_disk};
use crate::{disk, log, machine};
use mm::stat::Stat;
use mm::units::DeviceId;

/// Passes of each thread over its memory.
const PASSES: u64 = 3;
const PAGE: u64 = 4096;
const SPACES: u64 = 2;
/// The disk with the swap space of the command line.
const SWAP_DEVICE: DeviceId = DeviceId(1);

/// `base` has `pages` pages of this thread. Odd threads access them in large steps.
extern "C" fn thread(base: u64, pages: u64, number: u64, _: u64) -> ! {
    let step = if number.is_multiple_of(2) { 1 } else { (pages / 3) | 1 };
    let mut accesses = 0;
    for pass in 0..PASSES {
        let mut page = 0;
        for _ in 0..pages {
            let word = (base + page * PAGE + 16) as *mut u64;
            let stamp = |pass: u64| number << 48 | pass << 32 | page;
            // SAFETY: the page is mapped for this thread alone, until it has ended.
            let found = unsafe { word.read_volatile() };
            let expected = if pass == 0 { 0 } else { stamp(pass) };
            assert!(
                found == expected,
                "thread {number}: page {page} has {found:#x} instead of {expected:#x}"
            );
            // SAFETY: as above.
            unsafe { word.write_volatile(stamp(pass + 1)) };
            accesses += 2;
            page = (page + step) % pages;
        }
    }
    super::program::end(accesses)
}

/// Returns the numbers of accesses and threads.
pub fn run(swap: u32) -> (u64, u64) {
    if disk::pages(SWAP_DEVICE).is_none() {
        ram_disk::start(swap);
    }
    let mm = machine::mm();
    let threads = 2 * crate::arch::cpu::all().len() as u64;
    // A quarter more than there is, but leave half of swap free, because pages being swapped out take slots,
    // too. A step must not divide the number of pages.
    let free = mm.free_pages();
    let pages = (free + (free / 4).min(swap as u64 / 2)) / (threads * SPACES);
    let pages = pages / 3 * 3 + 1;
    let program = Program { entry: thread, threads, own: pages, shared: 0, spaces: SPACES };
    let accesses = run_all(&program, |_, _| {});
    let stat = |stat| mm.mmu().stats.read(stat);
    check!(stat(Stat::PswpOut) > 0, "nothing was swapped out");
    log!(
        "selftest: {} pages swapped out, {} in, {} remote flushes",
        stat(Stat::PswpOut),
        stat(Stat::PswpIn),
        stat(Stat::NrTlbRemoteFlush)
    );
    (accesses, threads * SPACES)
}
