//! Faults that were found once, each with the smallest program that met it.

use machine_sim::{MachineSpec, RunConfig, run};
use program::{Advice, FileSpec, Map, Os, Program, Role, Signal};

const PAGE: u64 = 4096;

struct Play(fn(&mut dyn Os, Role) -> Result<(), Signal>);

impl Program for Play {
    fn name(&self) -> &str {
        "play"
    }

    fn footprint(&self) -> u64 {
        1 << 20
    }

    fn run<O: Os>(&self, os: &mut O, role: Role) -> Result<(), Signal> {
        (self.0)(os, role)
    }
}

fn play(machine: &str, seed: u64, act: fn(&mut dyn Os, Role) -> Result<(), Signal>) {
    let machine = MachineSpec::preset(machine).unwrap();
    let memory = Some(32 << 20);
    let config = RunConfig { memory, seed, verify: true, validate_every_op: true, ..RunConfig::new(machine) };
    let outcome = run(&config, &Play(act)).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((outcome.oracle.violations, outcome.signals.len()), (0, 0), "{:?}", outcome.signals);
}

/// A page was stored to after MADV_FREE; then fork shares it, and the parent gets a copy of its own. That it was stored to
/// is told by the child's entry alone: reclaim must not drop the page as if MADV_FREE had been the last word on it.
#[test]
fn a_forked_page_is_not_dropped_after_it_was_stored_to_again() {
    play("small", 1, |os, role| {
        const AT: u64 = 0x5000_0000;
        const PAGES: u64 = 8;
        let all = |os: &mut dyn Os, store: bool| {
            (0..PAGES).map(|page| AT + page * PAGE).try_for_each(|at| match store {
                true => os.store(at),
                false => os.load(at),
            })
        };
        if role == 1 {
            os.sleep(1_000_000);
            os.madvise(AT, PAGES * PAGE, Advice::PageOut).unwrap();
            return all(os, false);
        }
        os.mmap(Map { addr: Some(AT), ..Map::anonymous(PAGES * PAGE) }).unwrap();
        all(os, true)?;
        os.madvise(AT, PAGES * PAGE, Advice::Free).unwrap();
        all(os, true)?;
        let child = os.fork(1).unwrap();
        all(os, true)?;
        os.join(child);
        all(os, false)
    });
}

/// Writers and cutters of one file at once: each call has the file for itself, so that what a write puts down is cut off as
/// a whole or not at all.
#[test]
fn writing_does_not_race_with_cutting() {
    for seed in 1..6 {
        play("laptop", seed, |os, role| {
            const SIZE: u64 = 96 * PAGE;
            let spec = FileSpec { name: "f", size: SIZE, in_memory: false, writable: true };
            let fd = os.open(spec).unwrap();
            if role == 0 {
                let tasks: Vec<_> = (1..4).map(|role| os.fork(role).unwrap()).collect();
                tasks.into_iter().for_each(|task| os.join(task));
                return Ok(());
            }
            let mut rng = program::rng::Rng::new(os.seed());
            for _ in 0..40 {
                let at = rng.below(SIZE);
                if role == 1 {
                    os.ftruncate(fd, at).unwrap();
                } else {
                    // Parts of pages: they are read in first, and the writer waits.
                    os.pwrite(fd, at, 1 + rng.below(SIZE - at)).unwrap();
                    os.pread(fd, 0, SIZE).unwrap();
                }
            }
            Ok(())
        });
    }
}
