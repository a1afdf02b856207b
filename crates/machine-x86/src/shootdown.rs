//! Running code on other CPUs, to make them drop translations.
//!
//! Problem: an initiator waits for CPUs that may themselves be initiators, and wait for it.
//!
//! Rule: each CPU has one request, of its own making, and an inbox that says whose requests wait for it. Whoever waits
//! answers meanwhile: by interrupt, or, if its interrupts are off, by looking. A CPU never takes a lock in the answer,
//! and a lock that is held with interrupts off is never held by one who waits here. So every wait ends.
//!
//! A request lives on its initiator's stack; the initiator leaves only after the last target has said that it is done.

use crate::arch::apic;
use crate::arch::cpu::{self, Cpu, MAX_CPUS};
use crate::arch::instructions::{
    disable_interrupts, enable_interrupts, interrupts_enabled, wait_for_interrupt,
};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use mm::machine::{CpuSet, RemoteCall};

/// A request, by initiator.
struct Request {
    call: UnsafeCell<Option<*const RemoteCall<'static>>>,
    /// Targets that are not done.
    pending: AtomicU32,
    /// Does the initiator sleep until the last answer?
    resting: AtomicBool,
}

/// So often an initiator looks for answers before it rests. Where CPUs are threads of an emulator on a host with fewer
/// cores, one that spins keeps those that it waits for from running.
const SPINS: u32 = 200;

// SAFETY: the call is written by the initiator while no target has the request in its inbox, and read by targets only
// while they have; inboxes order the two.
unsafe impl Sync for Request {}

impl Request {
    const fn new() -> Request {
        Request { call: UnsafeCell::new(None), pending: AtomicU32::new(0), resting: AtomicBool::new(false) }
    }
}

static REQUESTS: [Request; MAX_CPUS] = [const { Request::new() }; MAX_CPUS];

/// Run `remote` on all of `targets`, `local` here meanwhile, and wait for all.
pub fn run(targets: &CpuSet, remote: &RemoteCall<'_>, local: &mut dyn FnMut()) {
    let me = cpu::current();
    let request = &REQUESTS[me.id().index()];
    let count = targets.len();
    me.counts.rounds.fetch_add(1, Relaxed);
    me.counts.ipis_sent.fetch_add(count as u64, Relaxed);
    debug_assert_eq!(request.pending.load(Relaxed), 0, "a CPU has one request at a time");
    let call = core::ptr::from_ref(remote);
    // SAFETY: only the lifetime changes; the wait below keeps targets' use of it inside of this call. No target reads
    // it now.
    unsafe {
        *request.call.get() =
            Some(core::mem::transmute::<*const RemoteCall<'_>, *const RemoteCall<'static>>(call))
    };
    request.pending.store(count, Release);
    let bit = 1 << (me.id().0 % 64);
    for target in targets.iter().map(|target| cpu::all()[target.index()]) {
        target.inbox[me.id().index() / 64].fetch_or(bit, SeqCst);
        apic::send(target.apic(), apic::SHOOTDOWN);
    }
    local();
    await_answers(request);
}

/// Interrupts come while this waits, or are looked for if they are off.
fn await_answers(request: &Request) {
    let deaf = !interrupts_enabled();
    let mut spins = 0;
    while request.pending.load(Acquire) != 0 {
        spins += 1;
        if deaf {
            serve();
        } else if spins > SPINS {
            rest(request);
        }
        core::hint::spin_loop();
    }
}

/// Sleep until an interrupt, unless all answers are there: the last target sends one if it sees that the initiator
/// rests, and the initiator looks for answers after it has said so.
fn rest(request: &Request) {
    request.resting.store(true, SeqCst);
    disable_interrupts();
    if request.pending.load(SeqCst) != 0 {
        wait_for_interrupt();
    }
    enable_interrupts();
    request.resting.store(false, SeqCst);
}

/// Answer all requests that wait for this CPU. Interrupts are off.
pub fn serve() {
    let me = cpu::current();
    for (word, waiting) in me.inbox.iter().enumerate() {
        let mut initiators = waiting.swap(0, SeqCst);
        while initiators != 0 {
            let initiator = word * 64 + initiators.trailing_zeros() as usize;
            initiators &= initiators - 1;
            answer(me, initiator);
        }
    }
}

fn answer(me: &Cpu, initiator: usize) {
    let request = &REQUESTS[initiator];
    // SAFETY: the inbox said that the initiator has made a request and waits for this CPU, so the call is there and
    // alive.
    let call = unsafe { &*(*request.call.get()).expect("a request has a call") };
    if cfg!(feature = "faulty") {
        me.serving.store(true, Relaxed);
    }
    call(me.id());
    if cfg!(feature = "faulty") {
        me.serving.store(false, Relaxed);
    }
    me.counts.ipis_received.fetch_add(1, Relaxed);
    if request.pending.fetch_sub(1, SeqCst) == 1 && request.resting.load(SeqCst) {
        apic::send(cpu::all()[initiator].apic(), apic::SHOOTDOWN);
    }
}

/// Which flush, of those that other CPUs were asked for, is left out; counted from 1, 0 for none.
pub static DROPPED: AtomicU64 = AtomicU64::new(0);
static ASKED: AtomicU64 = AtomicU64::new(0);

/// Is this flush, which this CPU is about to do, to be left out? Never in builds that are not for tests.
pub fn is_dropped() -> bool {
    if !cfg!(feature = "faulty") || !cpu::current().serving.load(Relaxed) {
        return false;
    }
    ASKED.fetch_add(1, Relaxed) + 1 == DROPPED.load(Relaxed)
}
