//! khugepaged and MADV_COLLAPSE on anonymous memory that other CPUs use, under the oracle and every flush policy.

use super::acts::{
    LARGE, MIB, PAGE, POLICIES, caught, compute_for, forbid_stores, load_all, move_away_and_back, outcome,
    play, push, store_all, without_flush,
};
use machine_sim::{MachineSpec, RunConfig};
use mm::knobs::Knob;
use mm::stat::Stat;
use program::rng::Rng;
use program::{Advice, Map, Os, Program, Role, Signal};

/// khugepaged scans everything every millisecond. `between` is the knob of a folio size between single pages and 2 MiB.
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
/// Rounds if everything is validated after each operation.
const FEW: u32 = 8;

/// Tasks that use a heap, of which one changes parts of it, and a child that shares it.
struct Heap {
    rounds: u32,
}

impl Heap {
    /// Fill it with single pages or the smaller folios: a zero page in each 2 MiB prevents larger ones.
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
                // The range may consist of several, a page may be in use, or no block may be free.
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
                // Accesses to what is moved away or read-only at the moment end with a signal.
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
fn collapse_keeps_concurrent_loads_and_stores() {
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
fn structures_stay_valid_during_collapse() {
    for (policy, memory) in [(1, 32), (3, 24), (5, 32)] {
        let config = RunConfig { validate_every_op: true, ..config("small", memory * MIB, policy, None) };
        outcome(&config, &Heap { rounds: FEW });
    }
}

/// Simulated nanoseconds after which the other task has used the pages and computes.
const WHILE: u64 = 5_000_000;
/// The page in use.
const PART: u64 = HEAP + 77 * PAGE;

/// One task uses a page and computes. Another completes the 2 MiB around it, for which khugepaged has waited, and then
/// stores to it.
fn complete(os: &mut dyn Os, role: Role) -> Result<(), Signal> {
    if role == USER {
        os.load(PART)?;
        compute_for(os, 4 * WHILE);
        return os.load(PART);
    }
    os.mmap(Map { addr: Some(HEAP), ..Map::anonymous(2 * LARGE) }).unwrap();
    // A zero page in each table, so that none is mapped by a large entry, and the second table is in use.
    os.load(HEAP)?;
    os.load(HEAP + LARGE)?;
    store_all(os, HEAP, 511 * PAGE)?;
    let other = os.spawn(USER).unwrap();
    compute_for(os, WHILE);
    os.store(HEAP + 511 * PAGE)?;
    compute_for(os, WHILE);
    os.store(PART)?;
    os.join(other);
    Ok(())
}

/// What the run fails with, with flush `nth` for another CPU dropped.
fn failure(policy: u64, nth: u64) -> Option<String> {
    let mut config = config("laptop", 16 * MIB, policy, None);
    config.knobs.push((Knob::KhugepagedMaxPtesNone, 0));
    let outcome = without_flush(nth, config, &play(complete));
    outcome.map(|outcome| assert_eq!(outcome.stat(Stat::KhugepagedPagesCollapsed), 1)).err()
}

#[test]
fn a_missed_flush_of_a_collapse_is_caught() {
    for policy in 0..POLICIES {
        for reason in caught(&policy, 1..6, |nth| failure(policy, nth)) {
            assert!(reason.contains("through a TLB entry"), "{policy}: {reason}");
        }
    }
}

/// Ask for a collapse on a machine without other large folios.
fn ask(os: &mut dyn Os, _: Role) -> Result<(), Signal> {
    os.mmap(Map { addr: Some(HEAP), ..Map::anonymous(LEN) }).unwrap();
    store_all(os, HEAP, LEN)?;
    os.madvise(HEAP, LEN, Advice::NoHugePage).unwrap();
    assert!(os.madvise(HEAP, LEN, Advice::Collapse).is_err(), "the collapse must be refused");
    os.madvise(HEAP, LEN, Advice::HugePage).unwrap();
    os.madvise(HEAP, LEN, Advice::Collapse).unwrap();
    load_all(os, HEAP, LEN)
}

#[test]
fn a_program_can_ask_for_a_collapse() {
    let mut config = config("small", 64 * MIB, 1, None);
    config.knobs.extend([(Knob::HugepagesEnabled2048, 0), (Knob::ThpKhugepaged, 0)]);
    let outcome = outcome(&config, &play(ask));
    let counted = [Stat::ThpCollapseAlloc, Stat::ThpFaultAlloc].map(|stat| outcome.stat(stat));
    assert_eq!(counted, [(LEN / LARGE) as i64, 0]);
}
