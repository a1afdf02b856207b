//! Tasks run on every CPU, sleep, and are woken.

use super::check;
use crate::arch::{clock, cpu};
use crate::sched::{self, Key};
use crate::{log, machine};
use alloc::format;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering::*};
use mm::machine::{Machine, Ticket, WaitKey};

const MS: u64 = 1_000_000;
/// A test that takes longer has failed.
const TIMEOUT: u64 = 20_000 * MS;
const WAKES: u64 = 500;

pub fn run() {
    time();
    tickets();
    ping_pong();
    every_cpu();
}

fn time() {
    let (start, ticks) = (clock::now(), cpu::current().counts.ticks.load(Relaxed));
    sched::sleep_until(start + 20 * MS);
    let slept = clock::now() - start;
    check!(slept >= 20 * MS, "a sleep of 20 ms took {slept} ns");
    let total: u64 = cpu::all().iter().map(|cpu| cpu.counts.ticks.load(Relaxed)).sum::<u64>();
    check!(total > ticks, "the timer does not tick");
    log!("selftest: a sleep of 20 ms took {} us", slept / 1000);
}

/// A wake-up between ticket and wait is not lost; one before the ticket has no effect.
fn tickets() {
    let machine = machine::mm().machine();
    let key = WaitKey::Reclaim(mm::units::NodeId(63));
    let soon = || Some(clock::now() + 5 * MS);
    machine.wake(key);
    let ticket: Ticket = machine.ticket(key);
    check!(!machine.wait(ticket, soon()), "a wake-up before the ticket ended a wait");
    let ticket = machine.ticket(key);
    machine.wake(key);
    check!(machine.wait(ticket, soon()), "a wake-up after the ticket was lost");
    check!(!machine.wait(machine.ticket(WaitKey::Timer), soon()), "a sleep ended without a wake-up");
    log!("selftest: tickets keep wake-ups");
}

/// Two tasks wake each other.
fn ping_pong() {
    let count = Arc::new(AtomicU64::new(0));
    let player = |this: u64, count: Arc<AtomicU64>| {
        move || {
            let keys = [Key::Other(100, 0), Key::Other(100, 1)];
            while count.load(SeqCst) < WAKES {
                let mark = sched::mark(keys[this as usize]);
                if count.load(SeqCst) % 2 == this {
                    count.fetch_add(1, SeqCst);
                    sched::wake(keys[1 - this as usize]);
                } else {
                    sched::wait(keys[this as usize], mark, Some(clock::now() + TIMEOUT));
                }
            }
            sched::wake(keys[1 - this as usize]);
        }
    };
    sched::spawn("ping", None, player(0, count.clone()));
    sched::spawn("pong", None, player(1, count.clone()));
    until("two tasks that wake each other stopped", || count.load(SeqCst) >= WAKES);
    log!("selftest: {WAKES} wake-ups of two tasks by each other");
}

/// With twice as many tasks as CPUs, each CPU is used.
fn every_cpu() {
    let cpus = cpu::all().len() as u64;
    let seen = Arc::new([const { AtomicU64::new(0) }; 4]);
    let ended = Arc::new(AtomicU64::new(0));
    let all = move |seen: &[AtomicU64; 4]| {
        seen.iter().map(|word| word.load(SeqCst).count_ones() as u64).sum::<u64>() == cpus
    };
    for i in 0..2 * cpus {
        let (seen, ended) = (seen.clone(), ended.clone());
        sched::spawn(format!("walker {i}"), None, move || {
            let end = clock::now() + TIMEOUT;
            while !all(&seen) && clock::now() < end {
                let this = cpu::current().id().index();
                seen[this / 64].fetch_or(1 << (this % 64), SeqCst);
                sched::yield_now();
            }
            ended.fetch_add(1, SeqCst);
        });
    }
    until("tasks did not end", || ended.load(SeqCst) == 2 * cpus);
    check!(all(&seen), "not every cpu runs tasks");
    log!("selftest: tasks ran on {cpus} cpus");
}

/// Log what each task waits for.
pub(super) fn log_tasks() {
    sched::describe(|task, state, key| log!("{} is {state} {key:?}", task.name()));
}

/// Poll every millisecond until `done` returns true, or fail with `problem`.
pub(super) fn until(problem: &str, done: impl Fn() -> bool) {
    let end = clock::now() + TIMEOUT;
    while !done() {
        if clock::now() >= end {
            log_tasks();
        }
        check!(clock::now() < end, "{problem}");
        sched::sleep_until(clock::now() + MS);
    }
}
