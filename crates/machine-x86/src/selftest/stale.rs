//! A CPU goes on using a translation until it is asked to drop it, and then no longer: without the first, no run on
//! this machine could notice a missing flush; without the second, none could be right.

use super::check;
use crate::arch::instructions::invlpg;
use crate::arch::{cpu, paging};
use crate::{devices, log, shootdown};
use core::sync::atomic::{AtomicU64, Ordering::*};
use mm::machine::CpuSet;

/// A page that nothing else uses.
const PAGE: u64 = paging::STACKS + (1 << 38);

pub fn run() {
    let frame = |content: u64| {
        let address = devices::dma_allocate(1).expect("a page for the test");
        // SAFETY: the page was just allocated.
        unsafe { (paging::direct(address) as *mut u64).write(content) };
        address
    };
    let (first, second) = (frame(111), frame(222));
    let me = cpu::current().id();
    let other = cpu::all().iter().map(|cpu| cpu.id()).find(|&cpu| cpu != me);
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
    let fresh = read();
    check!(
        before == 111 && fresh == 222,
        "a page read {before}, then {fresh} after it was changed and flushed"
    );
    log!("selftest: a changed page read {stale} before its flush and {fresh} after it");
    devices::dma_release(first, 1);
    devices::dma_release(second, 1);
}
