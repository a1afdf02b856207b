//! khugepaged, and MADV_COLLAPSE, at work on anonymous memory that other CPUs load from and store to all the time,
//! under the oracle and every policy of flushes.

use super::acts::{compute_for, forbid_stores, move_away_and_back, outcome, push};
use machine_sim::{FlushFault, MachineSpec, RunConfig, RunError, run};
use mm::knobs::{FlushPolicy, Knob};
use mm::stat::Stat;
use program::rng::Rng;
use program::{Advice, Map, Os, Program, Role, Signal};

const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;
const LARGE: u64 = 2 * MIB;
const POLICIES: u64 = FlushPolicy::COUNT;

/// khugepaged looks at all there is every millisecond. The size of folios between single pages and 2 MiB is of this
/// order.
fn config(machine: &str, memory: u64, policy: u64, between: Option<Knob>) -> RunConfig {
    let machine = MachineSpec::preset(machine).unwrap();
    let mut knobs = vec![
        (Knob::HugepagesEnabled2048, 2),
        (Knob::ThpKhugepaged, 1),
        (Knob::KhugepagedScanSleepMillisecs, 1),
        (Knob::KhugepagedAllocSleepMillisecs, 1),
        (Knob::TlbUnmap, policy),
        (Knob::TlbAgeLimitMs, 5),
    ];
    knobs.extend(between.map(|knob| (knob, 2)));
    RunConfig { memory: Some(memory), verify: true, bound: true, knobs, ..RunConfig::new(machine) }
}

const HEAP: u64 = 0x4000_0000;
const LEN: u64 = 8 * MIB;
const ELSEWHERE: u64 = 0x6000_0000;
const PRESSURE: u64 = 0x7000_0000;
const CHANGER: Role = 1;
const USER: Role = 2;
const OTHER: Role = 3;
const PUSHER: Role = 4;
const CHILD: Role = 5;
const ROUNDS: u32 = 100;
/// Where everything is checked after each step.
const FEW: u32 = 8;

/// Tasks that use a heap, one of which changes parts of it, and a child that shares it.
struct Heap {
    rounds: u32,
}

impl Heap {
    /// Make it of single pages, or of the folios between: a page of zeroes in each 2 MiB is in the way of larger ones.
    fn grow<O: Os>(os: &mut O) {
        os.mmap(Map { addr: Some(HEAP), ..Map::anonymous(LEN) }).unwrap();
        for page in (0..LEN).step_by(PAGE as usize) {
            let at = HEAP + page;
            let _ = if page % LARGE == 0 { os.load(at) } else { os.store(at) };
        }
    }

    fn part(rng: &mut Rng) -> (u64, u64) {
        let first = rng.below(LEN / PAGE);
        let pages = 1 + rng.below(60);
        (HEAP + first * PAGE, pages.min(LEN / PAGE - first) * PAGE)
    }

    fn change<O: Os>(&self, os: &mut O) {
        let mut rng = Rng::new(os.seed() ^ 0x4ea9);
        for _ in 0..self.rounds {
            let (at, len) = Heap::part(&mut rng);
            match rng.below(9) {
                0 => forbid_stores(os, at, len),
                1 => {
                    os.munmap(at, len).unwrap();
                    os.mmap(Map { addr: Some(at), ..Map::anonymous(len) }).unwrap();
                }
                2 => move_away_and_back(os, at, len, ELSEWHERE),
                3 if os.mlock(at, len).is_ok() => os.munlock(at, len).unwrap(),
                4 => os.madvise(at, len, Advice::DontNeed).unwrap(),
                5 => os.madvise(at, len, Advice::Cold).unwrap(),
                // The range may be in parts, a page in use, or no block to be had.
                6 => _ = os.madvise(at / LARGE * LARGE, LARGE, Advice::Collapse),
                _ => os.madvise(at, len, Advice::PageOut).unwrap(),
            }
            os.compute(100_000);
        }
    }

    fn visit<O: Os>(&self, os: &mut O, role: Role) {
        let mut rng = Rng::new(os.seed() ^ role as u64);
        for _ in 0..4 * self.rounds {
            let (at, len) = Heap::part(&mut rng);
            for page in (at..at + len).step_by(PAGE as usize) {
                // What is moved away or read-only meanwhile is a signal.
                let _ = if rng.percent(40) { os.store(page) } else { os.load(page) };
            }
        }
    }
}

impl Program for Heap {
    unnamed!();

    fn run<O: Os>(&self, os: &mut O, role: Role) -> Result<(), Signal> {
        match role {
            CHANGER => self.change(os),
            PUSHER => return push(os, PRESSURE),
            USER | OTHER | CHILD => self.visit(os, role),
            _ => {
                Heap::grow(os);
                let mut tasks: Vec<_> =
                    [CHANGER, USER, OTHER, PUSHER].map(|role| os.spawn(role).unwrap()).into();
                os.compute(3_000_000);
                tasks.push(os.fork(CHILD).unwrap());
                self.visit(os, role);
                tasks.into_iter().for_each(|task| os.join(task));
            }
        }
        Ok(())
    }
}

#[test]
fn what_is_loaded_and_stored_meanwhile_is_right() {
    let mut counts = [0; 3];
    for policy in 0..POLICIES {
        for (seed, memory, between) in
            [(1, 128, None), (2, 24, None), (3, 128, Some(Knob::HugepagesEnabled64)), (4, 24, None)]
        {
            let config = RunConfig { seed, ..config("laptop", memory * MIB, policy, between) };
            let outcome = outcome(&config, &Heap { rounds: ROUNDS });
            let counted = [Stat::KhugepagedPagesCollapsed, Stat::ThpSplitPmd, Stat::PswpIn];
            for (sum, stat) in counts.iter_mut().zip(counted) {
                *sum += outcome.stat(stat);
            }
        }
    }
    let [collapsed, split, swapped] = counts;
    assert!(
        collapsed > 200 && split > 100 && swapped > 100,
        "{collapsed} collapsed, {split} split, {swapped}"
    );
}

#[test]
fn every_structure_stays_whole_when_memory_is_collapsed() {
    for (policy, memory) in [(1, 32), (3, 24), (5, 32)] {
        let config = RunConfig { validate_every_op: true, ..config("small", memory * MIB, policy, None) };
        outcome(&config, &Heap { rounds: FEW });
    }
}

/// Simulated nanoseconds in which the other task has used the pages, and computes.
const WHILE: u64 = 5_000_000;
/// A page that is used.
const PART: u64 = HEAP + 77 * PAGE;

/// One task uses a page and computes. Another completes the 2 MiB around it, which khugepaged has waited for, and then
/// stores to it.
struct Completes;

impl Program for Completes {
    unnamed!();

    fn run<O: Os>(&self, os: &mut O, role: Role) -> Result<(), Signal> {
        if role == USER {
            os.load(PART)?;
            compute_for(os, 4 * WHILE);
            return os.load(PART);
        }
        os.mmap(Map { addr: Some(HEAP), ..Map::anonymous(2 * LARGE) }).unwrap();
        // A page of zeroes in each table, so that none is mapped whole, and the second is in use.
        os.load(HEAP)?;
        os.load(HEAP + LARGE)?;
        for page in 0..511 {
            os.store(HEAP + page * PAGE)?;
        }
        let other = os.spawn(USER).unwrap();
        compute_for(os, WHILE);
        os.store(HEAP + 511 * PAGE)?;
        compute_for(os, WHILE);
        os.store(PART)?;
        os.join(other);
        Ok(())
    }
}

/// What the run fails with, with flush `nth` for another CPU dropped.
fn verdict(policy: u64, nth: u64) -> Option<String> {
    let flush_fault = Some(FlushFault { nth, remote: Some(true), delay: None });
    let mut config = config("laptop", 16 * MIB, policy, None);
    config.knobs.push((Knob::KhugepagedMaxPtesNone, 0));
    match run(&RunConfig { flush_fault, bound: false, ..config }, &Completes) {
        Ok(outcome) => {
            assert_eq!(outcome.signals, Vec::<String>::new());
            assert_eq!(outcome.stat(Stat::KhugepagedPagesCollapsed), 1);
            None
        }
        Err(RunError::Failed { reason, .. }) => Some(reason),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn a_flush_that_is_missed_when_memory_is_collapsed_is_caught() {
    for policy in 0..POLICIES {
        assert_eq!(verdict(policy, 1 << 40), None, "{policy}");
        let caught: Vec<String> = (1..6).filter_map(|nth| verdict(policy, nth)).collect();
        assert!(!caught.is_empty(), "{policy}");
        for reason in caught {
            assert!(reason.contains("through a TLB entry"), "{policy}: {reason}");
        }
    }
}

/// A program that asks for it, where nothing else makes large folios.
struct Asks;

impl Program for Asks {
    unnamed!();

    fn run<O: Os>(&self, os: &mut O, _: Role) -> Result<(), Signal> {
        os.mmap(Map { addr: Some(HEAP), ..Map::anonymous(LEN) }).unwrap();
        (HEAP..HEAP + LEN).step_by(PAGE as usize).try_for_each(|at| os.store(at))?;
        os.madvise(HEAP, LEN, Advice::NoHugePage).unwrap();
        assert!(os.madvise(HEAP, LEN, Advice::Collapse).is_err(), "it is forbidden");
        os.madvise(HEAP, LEN, Advice::HugePage).unwrap();
        os.madvise(HEAP, LEN, Advice::Collapse).unwrap();
        (HEAP..HEAP + LEN).step_by(PAGE as usize).try_for_each(|at| os.load(at))
    }
}

#[test]
fn a_program_can_ask_for_it() {
    let mut config = config("small", 64 * MIB, 1, None);
    config.knobs.extend([(Knob::HugepagesEnabled2048, 0), (Knob::ThpKhugepaged, 0)]);
    let outcome = outcome(&config, &Asks);
    let counted = [Stat::ThpCollapseAlloc, Stat::ThpFaultAlloc].map(|stat| outcome.stat(stat));
    assert_eq!(counted, [(LEN / LARGE) as i64, 0]);
}
