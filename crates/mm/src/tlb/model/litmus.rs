//! {clear the entry; raise the space's generation; draw} beside {pay} beside {switch}: scenario 30, and `done`
//! against `switch`. Everything else relies on this: a CPU that is not asked checks by itself.

extern crate std;

use super::host::{EVERY, Effort, TWO, at_once, explore};
use super::machine::become_cpu;
use super::world::{NEW, World, on};
use crate::knobs::FlushPolicy;
use crate::machine::Machine;
use crate::primitive::Ordering::*;
use crate::tlb::{Range, Tlb};
use crate::units::*;
use pagefold_flush::inside::{Debt, Inside};
use std::sync::Arc;
use std::vec;

const A: SpaceId = SpaceId(0);
const B: SpaceId = SpaceId(1);
const PAGE: Vpn = Vpn(0);
const FRAME: Pfn = Pfn(1);

/// What CPU 1 runs when the others begin. It has read the page in space A before.
#[derive(Clone, Copy, Debug)]
enum Stands {
    InA,
    LazyInA,
    InB,
    LazyInB,
    Nowhere,
}

fn world(stands: Stands) -> World {
    let world = World::new(2, 2, 2);
    world.map(A, PAGE, FRAME);
    become_cpu(1);
    world.switch(A);
    assert!(world.reads_old(PAGE));
    match stands {
        Stands::InA => {}
        Stands::LazyInA => world.enter_lazy(),
        Stands::InB => world.switch(B),
        Stands::LazyInB => {
            world.switch(B);
            world.enter_lazy();
        }
        Stands::Nowhere => {
            let _off = world.mmu.machine.interrupts_off();
            world.mmu.tlb.leave(world.mmu.host(), CpuId(1));
        }
    }
    become_cpu(0);
    world
}

/// What another CPU does with the page while CPU 1 returns to the space.
fn beside(name: &str, stands: Stands, taker: fn(&World), comer: fn(&World)) {
    beside_within(EVERY, name, stands, taker, comer);
}

fn beside_within(effort: Effort, name: &str, stands: Stands, taker: fn(&World), comer: fn(&World)) {
    explore(&std::format!("{name}, {stands:?}"), effort, move || {
        let world = Arc::new(world(stands));
        at_once(vec![on(&world, 0, taker), on(&world, 1, comer)]);
    });
}

const EVERYWHERE: [Stands; 5] = [Stands::InA, Stands::LazyInA, Stands::InB, Stands::LazyInB, Stands::Nowhere];

/// Reclaim unmaps the page, and its frame is reused.
fn take_and_reuse(world: &World) {
    let pfn = world.unmap(A, PAGE).expect("the page must be mapped");
    world.reuse(pfn);
}

/// munmap clears the page, and its frame is reused.
fn flush_and_reuse(world: &World) {
    let pfn = world.clear(A, PAGE).expect("the page must be mapped");
    world.mmu.tlb.flush(world.mmu.host(), A, Range::page(PAGE));
    world.mmu.machine.fill(pfn, NEW);
}

/// CPU 1 switches to space A and reads the page twice: its entry may be cleared in between.
fn come(world: &World) {
    world.switch(A);
    world.reads_old(PAGE);
    world.reads_old(PAGE);
}

/// CPU 1 leaves and returns while others look at it.
fn go_and_come(world: &World) {
    world.enter_lazy();
    come(world);
    world.switch(B);
    come(world);
}

#[test]
fn reclaim_beside_a_switch() {
    EVERYWHERE.into_iter().for_each(|stands| beside("reclaim beside a switch", stands, take_and_reuse, come));
}

#[test]
fn munmap_beside_a_switch() {
    EVERYWHERE.into_iter().for_each(|stands| beside("munmap beside a switch", stands, flush_and_reuse, come));
}

#[test]
fn reclaim_beside_going_and_coming() {
    beside_within(TWO, "reclaim beside going and coming", Stands::InA, take_and_reuse, go_and_come);
}

#[test]
fn munmap_beside_going_and_coming() {
    beside_within(TWO, "munmap beside going and coming", Stands::InA, flush_and_reuse, go_and_come);
}

/// A CPU that runs a kernel task unloads a space that ends, or has left it already. The next space with that number
/// has none of its translations.
#[test]
fn the_end_of_a_space_beside_a_switch() {
    for stands in [Stands::LazyInA, Stands::InB, Stands::LazyInB, Stands::Nowhere] {
        explore(&std::format!("the end of a space, {stands:?}"), EVERY, move || {
            let world = Arc::new(world(stands));
            let end = |world: &World| {
                let pfn = world.clear(A, PAGE).expect("the page must be mapped");
                let tlb = &world.mmu.tlb;
                tlb.destroy(world.mmu.host(), A);
                tlb.release(A);
                assert_eq!(tlb.create(), A);
                world.mmu.machine.fill(pfn, NEW);
            };
            let other = |world: &World| world.switch(B);
            at_once(vec![on(&world, 0, end), on(&world, 1, other)]);
            become_cpu(1);
            come(&world);
        });
    }
}

/// With LATR, a CPU pays at its ticks and is then not asked.
#[test]
fn a_tick_beside_reclaim() {
    beside_within(TWO, "a tick beside reclaim", Stands::InA, take_and_reuse, |world| {
        world.set_policy(FlushPolicy::Latr.value());
        world.tick();
        come(world);
        world.tick();
        world.reads_old(PAGE);
    });
}

// --- what the models must find
// ---------------------------------------------------------------------------------------------

/// F11: the generation is drawn before the space's is raised. A CPU that switches in between is done with the debt
/// and keeps its translations.
#[test]
#[should_panic(expected = "a stale translation led to a reused frame")]
fn a_draw_before_the_raise_is_found() {
    let taker = |world: &World| {
        let tlb = &world.mmu.tlb;
        let context = &tlb.contexts()[A.0];
        let pfn = world.clear(A, PAGE).expect("the page must be mapped");
        let generation = tlb.draw();
        context.generation.fetch_add(1, SeqCst);
        let debt = Debt { cpus: context.cpus(), generation };
        let generation = tlb.owe_frame(world.mmu.host(), ZoneId(0), &debt);
        world.mmu.frames[pfn].set_debt(generation.tag());
        world.reuse(pfn);
    };
    beside("found: a draw before the raise", Stands::InB, taker, come);
}

/// A flush that checks for lazy CPUs before it raises the space's generation.
#[test]
#[should_panic(expected = "a stale translation led to a reused frame")]
fn a_look_for_lazy_cpus_before_the_raise_is_found() {
    let taker = |world: &World| {
        let tlb = &world.mmu.tlb;
        let lazy = tlb.cpus()[1].is_lazy();
        let pfn = world.clear(A, PAGE).expect("the page must be mapped");
        if lazy {
            tlb.contexts()[A.0].generation.fetch_add(1, SeqCst);
        } else {
            tlb.flush(world.mmu.host(), A, Range::page(PAGE));
        }
        world.mmu.machine.fill(pfn, NEW);
    };
    beside("found: a look for lazy CPUs too soon", Stands::LazyInA, taker, come);
}

/// A switch to space A that omits or exchanges steps.
fn switch_wrongly(world: &World, steps: fn(&Tlb, CpuId) -> u64) {
    let platform = &world.mmu;
    let _off = platform.machine.interrupts_off();
    let (tlb, me) = (&world.mmu.tlb, platform.machine.cpu());
    let (state, context) = (&tlb.cpus()[me.index()], &tlb.contexts()[A.0]);
    tlb.leave_context(platform.host(), me);
    let drawn = tlb.newest();
    let newest = steps(tlb, me);
    let (asid, keep) = state.load(A, context.id.load(Acquire), newest);
    platform.machine.load_root(platform.machine.root(A), asid, keep);
    state.set_done(drawn, 0);
}

/// The space's generation is read before the CPU joins its set: a CPU that raises it in between asks no CPU.
#[test]
#[should_panic(expected = "a stale translation led to a reused frame")]
fn a_generation_read_before_joining_is_found() {
    beside("found: a generation read too soon", Stands::InB, take_and_reuse, |world| {
        switch_wrongly(world, |tlb, me| {
            let newest = tlb.contexts()[A.0].generation.load(SeqCst);
            tlb.cpus()[me.index()].begin_load();
            tlb.contexts()[A.0].join(me);
            newest
        });
        world.reads_old(PAGE);
    });
}

/// A CPU that has read the space's generation still looks as if it ran no programs.
#[test]
#[should_panic(expected = "a stale translation led to a reused frame")]
fn an_arrival_that_is_not_told_is_found() {
    beside("found: an arrival that is not told", Stands::LazyInB, take_and_reuse, |world| {
        switch_wrongly(world, |tlb, me| {
            tlb.contexts()[A.0].join(me);
            tlb.contexts()[A.0].generation.load(SeqCst)
        });
        world.reads_old(PAGE);
    });
}

/// A return from a kernel task that compares generations before it announces itself.
#[test]
#[should_panic(expected = "a stale translation led to a reused frame")]
fn a_return_that_is_told_too_late_is_found() {
    beside("found: a return told too late", Stands::LazyInA, take_and_reuse, |world| {
        let machine = &world.mmu.machine;
        {
            let _off = machine.interrupts_off();
            let (tlb, state) = (&world.mmu.tlb, &world.mmu.tlb.cpus()[1]);
            let newest = tlb.contexts()[A.0].generation.load(SeqCst);
            assert!(state.generation() <= newest);
            if state.generation() != newest {
                machine.flush(crate::machine::Flush::Current);
                state.set_generation(newest);
            }
            state.set_lazy(false);
        }
        world.reads_old(PAGE);
    });
}
