//! A page becomes writable, or a file's content changes, while a CPU still reads through a stale translation.

extern crate std;

use super::host::{THREE, at_once, explore};
use super::machine::become_cpu;
use super::world::{FILE, NEW, OLD, World, on};
use crate::primitive::{Ordering::*, modelled::AtomicU32};
use crate::tlb::Range;
use crate::units::*;
use std::sync::Arc;
use std::vec;

const A: SpaceId = SpaceId(0);
const PAGE: Vpn = Vpn(0);
/// The frames of the page at first and later.
const FIRST: Pfn = Pfn(0);
const SECOND: Pfn = Pfn(1);

fn world() -> World {
    let world = World::new(3, 1, 2);
    world.map(A, PAGE, FIRST);
    for cpu in [1, 2] {
        become_cpu(cpu);
        world.switch(A);
    }
    assert!(world.reads_old(PAGE));
    become_cpu(0);
    world
}

/// CPU 0 reclaims the page, CPU 1 runs `write` and signals when its store is visible, CPU 2 reads: after the signal
/// it must not read the old content.
fn beside_a_reader(name: &str, write: fn(&World, &AtomicU32)) {
    explore(name, THREE, move || {
        let world = Arc::new(world());
        let written = Arc::new(AtomicU32::new(0));
        let told = Arc::clone(&written);
        at_once(vec![
            on(&world, 0, |world| {
                world.unmap(A, PAGE);
            }),
            on(&world, 1, move |world| write(world, &written)),
            on(&world, 2, move |world| {
                let known = told.load(Acquire) == 1;
                let read = world.mmu.machine.load(PAGE);
                assert!(!known || read != Some(OLD), "a page was read as it was before a visible store");
            }),
        ]);
        world.check_debts();
    });
}

/// Map a copy of the page's frame in its place, after clearing and flushing its entry.
fn copy(world: &World) {
    let machine = &world.mmu.machine;
    if machine.clear(A, PAGE).is_some() {
        world.mmu.tlb.flush(world.mmu.host(), A, Range::page(PAGE));
    }
    machine.fill(SECOND, machine.content(FIRST));
    machine.map(A, PAGE, SECOND, true);
}

/// The program on this CPU stores, unless reclaim came first.
fn store(world: &World, written: &AtomicU32) {
    if world.mmu.machine.store(PAGE, NEW) {
        written.store(1, Release);
    }
}

/// The frame with the file's page. If the space has lost the page, it returns in another frame.
fn frame_of_file(world: &World) -> Pfn {
    let machine = &world.mmu.machine;
    let _tables = world.lock_tables(A);
    if machine.mapped(A, PAGE).is_some() { FIRST } else { SECOND }
}

fn write(world: &World, frame: Pfn, written: &AtomicU32) {
    world.mmu.machine.fill(frame, NEW);
    written.store(1, Release);
}

#[test]
fn a_writable_fault_beside_a_stale_reader() {
    beside_a_reader("a writable fault beside a stale reader", |world, written| {
        {
            let _tables = world.lock_tables(A);
            world.mmu.tlb.settle_space(world.mmu.host(), A);
            copy(world);
        }
        store(world, written);
    });
}

#[test]
fn a_write_to_a_file_beside_a_stale_reader() {
    beside_a_reader("write(2) beside a stale reader", |world, written| {
        let frame = frame_of_file(world);
        let settled = world.mmu.tlb.settle_file(world.mmu.host(), FILE);
        assert_eq!(settled.file(), FILE);
        write(world, frame, written);
    });
}

// --- what the models must find
// ---------------------------------------------------------------------------------------------

/// F10: the entry becomes writable, another thread stores, and only then the space's debt is paid.
#[test]
#[should_panic(expected = "a page was read as it was before a visible store")]
fn a_payment_after_the_entry_is_writable_is_found() {
    beside_a_reader("found: a payment after the entry is writable", |world, written| {
        let _tables = world.lock_tables(A);
        copy(world);
        store(world, written);
        world.mmu.tlb.settle_space(world.mmu.host(), A);
    });
}

/// The file's debt is paid after its content has changed.
#[test]
#[should_panic(expected = "a page was read as it was before a visible store")]
fn a_payment_after_the_write_is_found() {
    beside_a_reader("found: a payment after the write", |world, written| {
        let frame = frame_of_file(world);
        write(world, frame, written);
        assert_eq!(world.mmu.tlb.settle_file(world.mmu.host(), FILE).file(), FILE);
    });
}
