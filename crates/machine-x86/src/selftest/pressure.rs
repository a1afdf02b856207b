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

/// The same with pages that compress differently: no words but one, one word everywhere, half noise, or noise alone.
/// Every word is read again.
extern "C" fn packed_thread(base: u64, pages: u64, number: u64, _: u64) -> ! {
    let mut accesses = 0;
    for pass in 0..PASSES {
        for page in 0..pages {
            let stamp = |pass: u64| number << 48 | pass << 32 | page << 1 | 1;
            for at in 0..PAGE / 8 {
                let word = (base + page * PAGE + at * 8) as *mut u64;
                let expected = if pass == 0 { 0 } else { packed_word(stamp(pass), page, at) };
                // SAFETY: the page is mapped for this thread alone, until it has ended.
                let found = unsafe { word.read_volatile() };
                assert!(
                    found == expected,
                    "thread {number}: word {at} of page {page} is {found:#x} instead of {expected:#x}"
                );
                // SAFETY: as above.
                unsafe { word.write_volatile(packed_word(stamp(pass + 1), page, at)) };
                accesses += 2;
            }
        }
    }
    super::program::end(accesses)
}

/// A word of such a page.
fn packed_word(stamp: u64, page: u64, at: u64) -> u64 {
    let noise = (stamp ^ at << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let noise = (noise ^ noise >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    match page % 4 {
        0 => {
            if at == 2 {
                stamp
            } else {
                0
            }
        }
        1 => stamp,
        2 => {
            if at.is_multiple_of(2) {
                noise ^ noise >> 32
            } else {
                0
            }
        }
        _ => noise ^ noise >> 32,
    }
}

/// Returns the numbers of accesses and threads. `swap`: pages of swap space. `packs`: some of it is compressed.
pub fn run(swap: u32, packs: bool) -> (u64, u64) {
    if disk::pages(SWAP_DEVICE).is_none() && !packs {
        ram_disk::start(swap);
    }
    let mm = machine::mm();
    let threads = 2 * crate::arch::cpu::all().len() as u64;
    // A quarter more than there is, but leave half of swap free, because pages being swapped out take slots,
    // too. A step must not divide the number of pages.
    let free = mm.free_pages();
    let pages = (free + (free / 4).min(swap as u64 / 2)) / (threads * SPACES);
    let pages = pages / 3 * 3 + 1;
    let entry = if packs { packed_thread } else { thread };
    let program = Program { entry, threads, own: pages, shared: 0, spaces: SPACES };
    let accesses = run_all(&program, |_, _| {});
    let stat = |stat| mm.mmu().stats.read(stat);
    check!(stat(Stat::PswpOut) + stat(Stat::Zswpout) > 0, "nothing was swapped out");
    if packs {
        check_packed();
    }
    log!(
        "selftest: {} pages swapped out, {} in, {} remote flushes",
        stat(Stat::PswpOut),
        stat(Stat::PswpIn),
        stat(Stat::NrTlbRemoteFlush)
    );
    (accesses, threads * SPACES)
}

/// Each way of keeping a page was met.
fn check_packed() {
    let mm = machine::mm();
    for stat in mm.zram_stats() {
        log!("selftest: {stat:?}");
        check!(stat.huge_pages_since > 0, "zram has kept no page whole");
        check!(stat.failed_writes == 0, "zram has lost {} writes", stat.failed_writes);
    }
    if let Some(stat) = mm.zswap_stat() {
        log!("selftest: {stat:?}");
        check!(mm.mmu().stats.read(Stat::Zswpin) > 0, "nothing came back from zswap");
    }
}
