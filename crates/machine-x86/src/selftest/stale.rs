//! A CPU uses a translation until it is asked to drop it, and not after that. Without the first property no
//! run on this machine could notice a missing flush, and without the second none could be correct.

use super::check;
use crate::arch::instructions::invlpg;
use crate::arch::{cpu, paging};
use crate::{devices, log, shootdown};
use core::sync::atomic::{AtomicU64, Ordering::*};
use mm::machine::CpuSet;

/// A page without another use.
const PAGE: u64 = paging::STACKS + (1 << 38);

pub fn run() {
    let frame = |content: u64| {
        let address = devices::dma_allocate(1).expect("a page must be free");
        // SAFETY: the page was just allocated.
        unsafe { (paging::direct(address) as *mut u64).write(content) };
        address
    };
    let (first, second) = (frame(111), frame(222));
    let this = cpu::current().id();
    let other = cpu::all().iter().map(|cpu| cpu.id()).find(|&cpu| cpu != this);
    paging::replace(PAGE, first);
    let on_other = |work: &(dyn Fn() + Sync)| match other {
        Some(other) => {
            let mut target = CpuSet::EMPTY;
            target.insert(other);
            shootdown::run(&target, &|_| work(), &mut || {});
        }
        None => work(),
    };
    let read = || {
        let value = AtomicU64::new(0);
        // SAFETY: the page is mapped, to one frame or the other.
        on_other(&|| value.store(unsafe { (PAGE as *const u64).read_volatile() }, SeqCst));
        value.load(SeqCst)
    };
    let before = read();
    paging::replace(PAGE, second);
    let stale = read();
    on_other(&|| invlpg(PAGE));
    let current = read();
    check!(
        before == 111 && current == 222,
        "a page read {before}, then {current} after it was remapped and flushed"
    );
    log!("selftest: a remapped page read {stale} before its flush and {current} after it");
    devices::dma_release(first, 1);
    devices::dma_release(second, 1);
}
