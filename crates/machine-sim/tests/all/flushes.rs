//! Tests of the oracle: it must catch flushes that are dropped or late, and report nothing else.
//!
//! The programs here make every flush matter at once: they use a page again right after it was unmapped or protected.

use super::acts::PAGE;
use machine_sim::{FlushFault, MachineSpec, RunConfig, RunError, run};
use program::{Advice, Map, Os, Program, Prot, Role, Signal};

const ROUNDS: u32 = 25;
/// Until then (simulated nanoseconds) the other tasks run.
const UNTIL: u64 = 4_000_000;
/// Instructions between two changes: more than a CPU may run ahead of the others.
const WHILE: u64 = 150_000;

/// How a round changes a page.
#[derive(Clone, Copy, Debug)]
enum How {
    Unmap,
    Protect,
    Forget,
    /// Reclaim unmaps it and writes it to swap.
    PageOut,
    /// A store after a fork copies the page: other tasks must see the copy, not the page that the child keeps.
    Copy,
}

/// One task changes a page and uses it again; `others` tasks on other CPUs use it all the time.
struct Changes {
    how: How,
    others: u32,
}

impl Changes {
    /// No task may store to a read-only page; a refused access is fine.
    fn try_out<O: Os>(&self, os: &mut O, at: u64) {
        let _ = os.load(at);
        if matches!(self.how, How::Protect | How::PageOut) {
            let _ = os.store(at);
        }
    }

    fn change<O: Os>(&self, os: &mut O, at: u64) {
        match self.how {
            How::Unmap => os.munmap(at, PAGE).unwrap(),
            How::Protect => os.mprotect(at, PAGE, Prot::READ).unwrap(),
            How::Forget => os.madvise(at, PAGE, Advice::DontNeed).unwrap(),
            How::PageOut => os.madvise(at, PAGE, Advice::PageOut).unwrap(),
            How::Copy => {
                let child = os.fork(CHILD).unwrap();
                os.compute(WHILE);
                os.store(at).unwrap();
                os.compute(WHILE);
                os.join(child);
            }
        }
    }
}

/// The role of children, which keep their copy of the page for a while.
const CHILD: Role = 1000;
/// Where the page is.
const AT: u64 = 0x5000_0000;

impl Program for Changes {
    unnamed!();

    fn run<O: Os>(&self, os: &mut O, role: Role) -> Result<(), Signal> {
        if role == CHILD {
            os.sleep(500_000);
            return Ok(());
        }
        if role > 0 {
            // Always awake: a sleeping CPU gets no requests.
            while os.now() < UNTIL {
                self.try_out(os, AT);
                os.compute(1000);
            }
            return Ok(());
        }
        let tasks: Vec<_> = (1..=self.others).map(|role| os.spawn(role).unwrap()).collect();
        for _ in 0..ROUNDS {
            os.mmap(Map { addr: Some(AT), ..Map::anonymous(PAGE) }).unwrap();
            os.store(AT)?;
            os.compute(WHILE);
            self.change(os, AT);
            self.try_out(os, AT);
            os.compute(WHILE);
            if matches!(self.how, How::PageOut) {
                // Others access the page while it is absent: the next round may get the same frame.
                os.munmap(AT, PAGE).unwrap();
                os.compute(WHILE);
            }
        }
        tasks.into_iter().for_each(|task| os.join(task));
        Ok(())
    }
}

/// What the oracle reports if the flush goes wrong; `None`: nothing.
fn verdict(machine: &str, program: &Changes, flush_fault: Option<FlushFault>) -> Option<String> {
    let machine = MachineSpec::preset(machine).unwrap();
    let config = RunConfig { memory: Some(64 << 20), verify: true, flush_fault, ..RunConfig::new(machine) };
    match run(&config, program) {
        Ok(outcome) => {
            assert_eq!((outcome.oracle.violations, outcome.signals.len()), (0, 0));
            None
        }
        Err(RunError::Failed { reason, .. }) => {
            assert!(reason.contains("oracle: cpu") && reason.contains("TLB entry"), "{reason}");
            Some(reason)
        }
        Err(other) => panic!("{other}"),
    }
}

/// How many of the flushes `2..20` the oracle catches if they go wrong.
fn caught(machine: &str, program: &Changes, remote: bool, delay: Option<u64>) -> usize {
    let fault = |nth| Some(FlushFault { nth, remote: Some(remote), delay });
    (2..20).filter(|&nth| verdict(machine, program, fault(nth)).is_some()).count()
}

/// How many of them matter. A translation that mprotect or MADV_DONTNEED leaves does not permit the store at the begin of
/// a round, so the CPU walks again, and the flush of the mmap that replaces the old mapping does not matter.
fn that_matter(how: How) -> usize {
    match how {
        How::Unmap => 18,
        How::Protect | How::Forget => 9,
        // One of three in each round: MADV_PAGEOUT clears young bits before it unmaps, with no access in between; fork
        // flushes because of the write protection.
        How::PageOut | How::Copy => 6,
    }
}

#[test]
fn dropped_and_late_local_flushes_are_caught() {
    for how in [How::Unmap, How::Protect, How::Forget, How::PageOut] {
        let program = Changes { how, others: 0 };
        assert_eq!(verdict("small", &program, None), None, "{how:?}");
        for delay in [None, Some(500_000)] {
            let caught = caught("small", &program, false, delay);
            assert!(caught >= that_matter(how), "{how:?}, delay {delay:?}: {caught}");
        }
    }
}

#[test]
fn dropped_and_late_remote_flushes_are_caught() {
    for others in 1..4 {
        for how in [How::Unmap, How::Protect, How::PageOut, How::Copy] {
            let program = Changes { how, others };
            assert_eq!(verdict("laptop", &program, None), None, "{how:?}");
            for delay in [None, Some(500_000)] {
                let caught = caught("laptop", &program, true, delay);
                assert!(caught >= that_matter(how), "{how:?}, {others} others, delay {delay:?}: {caught}");
            }
        }
    }
}

#[test]
fn a_fault_that_never_happens_is_not_reported() {
    let program = Changes { how: How::Unmap, others: 2 };
    let fault = FlushFault { nth: 1 << 40, remote: None, delay: None };
    assert_eq!(verdict("laptop", &program, Some(fault)), None);
}
