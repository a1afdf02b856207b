//! Running code on other CPUs, to make them drop translations.
//!
//! Problem: an initiator waits for CPUs that may also be initiators, and wait for it.
//!
//! Rule: each CPU has one request as an initiator, and an inbox of the initiators that wait for it. A CPU that
//! waits handles requests at the same time: by interrupt, or, if its interrupts are off, by polling. A handler
//! never takes a lock, and a CPU that waits here never holds a lock that is held with interrupts off. So every
//! wait ends.
//!
//! A request is on its initiator's stack; the initiator returns only after the last target has answered.

use crate::arch::apic;
use crate::arch::cpu::{self, Cpu, MAX_CPUS};
use crate::arch::instructions::{
    disable_interrupts, enable_interrupts, interrupts_enabled, wait_for_interrupt,
};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use mm::machine::{CpuSet, RemoteCall};

/// A request of an initiator.
struct Request {
    call: UnsafeCell<Option<*const RemoteCall<'static>>>,
    /// Targets that have not answered.
    pending: AtomicU32,
    /// Whether the initiator sleeps until the last answer.
    sleeping: AtomicBool,
}

/// How often an initiator polls for answers before it sleeps. If CPUs are threads of an emulator on a host
/// with fewer cores, a spinning CPU keeps its targets from running.
const SPINS: u32 = 200;

// SAFETY: the initiator writes the call while no target has the request in its inbox, and targets read it
// only while they have; inboxes order the two.
unsafe impl Sync for Request {}

impl Request {
    const fn new() -> Request {
        Request { call: UnsafeCell::new(None), pending: AtomicU32::new(0), sleeping: AtomicBool::new(false) }
    }
}

static REQUESTS: [Request; MAX_CPUS] = [const { Request::new() }; MAX_CPUS];

/// Run `remote` on all of `targets` and `local` on this CPU, and wait for all.
pub fn run(targets: &CpuSet, remote: &RemoteCall<'_>, local: &mut dyn FnMut()) {
    let this_cpu = cpu::current();
    let request = &REQUESTS[this_cpu.id().index()];
    let count = targets.len();
    this_cpu.counts.rounds.fetch_add(1, Relaxed);
    this_cpu.counts.ipis_sent.fetch_add(count as u64, Relaxed);
    debug_assert_eq!(request.pending.load(Relaxed), 0, "a CPU must have only one request at a time");
    let call = core::ptr::from_ref(remote);
    // SAFETY: only the lifetime changes; the wait below keeps the targets' use of it inside this call. No
    // target reads it now.
    unsafe {
        *request.call.get() =
            Some(core::mem::transmute::<*const RemoteCall<'_>, *const RemoteCall<'static>>(call))
    };
    request.pending.store(count, Release);
    let bit = 1 << (this_cpu.id().0 % 64);
    for target in targets.iter().map(|target| cpu::all()[target.index()]) {
        target.inbox[this_cpu.id().index() / 64].fetch_or(bit, SeqCst);
        apic::send(target.apic(), apic::SHOOTDOWN);
    }
    local();
    await_answers(request);
}

/// Handle requests while waiting: by interrupts, or by polling if they are off.
fn await_answers(request: &Request) {
    let interrupts_off = !interrupts_enabled();
    let mut spins = 0;
    while request.pending.load(Acquire) != 0 {
        spins += 1;
        if interrupts_off {
            handle_requests();
        } else if spins > SPINS {
            sleep(request);
        }
        core::hint::spin_loop();
    }
}

/// Sleep until an interrupt, unless all answers are there. The last target sends an interrupt if it sees that
/// the initiator sleeps; the initiator checks for answers after it has set the flag.
fn sleep(request: &Request) {
    request.sleeping.store(true, SeqCst);
    disable_interrupts();
    if request.pending.load(SeqCst) != 0 {
        wait_for_interrupt();
    }
    enable_interrupts();
    request.sleeping.store(false, SeqCst);
}

/// Handle all requests in this CPU's inbox. Interrupts are off.
pub fn handle_requests() {
    let this_cpu = cpu::current();
    for (word, waiting) in this_cpu.inbox.iter().enumerate() {
        let mut initiators = waiting.swap(0, SeqCst);
        while initiators != 0 {
            let initiator = word * 64 + initiators.trailing_zeros() as usize;
            initiators &= initiators - 1;
            answer(this_cpu, initiator);
        }
    }
}

fn answer(this_cpu: &Cpu, initiator: usize) {
    let request = &REQUESTS[initiator];
    // SAFETY: the inbox shows that the initiator has a request and waits for this CPU, so the call is valid.
    let call = unsafe { &*(*request.call.get()).expect("a request must have a call") };
    if cfg!(feature = "faulty") {
        this_cpu.in_remote_call.store(true, Relaxed);
    }
    call(this_cpu.id());
    if cfg!(feature = "faulty") {
        this_cpu.in_remote_call.store(false, Relaxed);
    }
    this_cpu.counts.ipis_received.fetch_add(1, Relaxed);
    if request.pending.fetch_sub(1, SeqCst) == 1 && request.sleeping.load(SeqCst) {
        apic::send(cpu::all()[initiator].apic(), apic::SHOOTDOWN);
    }
}

/// The number of the remote flush that is omitted, from 1 up; 0 for none.
pub static OMITTED: AtomicU64 = AtomicU64::new(0);
static REMOTE_FLUSHES: AtomicU64 = AtomicU64::new(0);

/// Whether this flush, which this CPU is about to do, is omitted. Never in builds that are not for tests.
pub fn is_omitted() -> bool {
    if !cfg!(feature = "faulty") || !cpu::current().in_remote_call.load(Relaxed) {
        return false;
    }
    REMOTE_FLUSHES.fetch_add(1, Relaxed) + 1 == OMITTED.load(Relaxed)
}
