//! Faults that were found once, each with the smallest program that met it.

use machine_sim::{MachineSpec, RunConfig, run};
use program::{Advice, FileSpec, Map, Os, Program, Prot, Role, Signal};

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

fn play(machine: &str, seed: u64, validate: bool, act: fn(&mut dyn Os, Role) -> Result<(), Signal>) {
    let machine = MachineSpec::preset(machine).unwrap();
    let memory = Some(32 << 20);
    let config =
        RunConfig { memory, seed, verify: true, validate_every_op: validate, ..RunConfig::new(machine) };
    let outcome = run(&config, &Play(act)).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((outcome.oracle.violations, outcome.signals.len()), (0, 0), "{:?}", outcome.signals);
}

/// A page was stored to after MADV_FREE; then fork shares it, and the parent gets a copy of its own. That it was stored to
/// is told by the child's entry alone: reclaim must not drop the page as if MADV_FREE had been the last word on it.
#[test]
fn a_forked_page_is_not_dropped_after_it_was_stored_to_again() {
    play("small", 1, true, |os, role| {
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

/// Cutting a file beside writing it: a writer that waits for a page to come back from swap must not find, when it goes on,
/// that the file ends before it.
#[test]
fn writing_does_not_race_with_cutting() {
    const SIZE: u64 = 32 * PAGE;
    fn cut_or_write(os: &mut dyn Os, role: Role, fd: u32) {
        let mut rng = program::rng::Rng::new(os.seed());
        let map = Map::file_shared(fd, SIZE, Prot::RW);
        let at = os.mmap(map).unwrap();
        for _ in 0..60 {
            let from = rng.below(SIZE);
            match role {
                1 => os.ftruncate(fd, from).unwrap(),
                2 | 3 => {
                    let len = 1 + rng.below(SIZE - from);
                    assert_eq!(os.pwrite(fd, from, len), Ok(len));
                }
                _ => {
                    // Only this process touches the pages, or they could not be paged out on request.
                    (0..SIZE / PAGE).for_each(|page| {
                        let _ = os.store(at + page * PAGE);
                    });
                    os.madvise(at, SIZE, Advice::PageOut).unwrap();
                    os.sleep(50_000);
                }
            }
            os.compute(rng.below(100_000));
        }
    }
    for seed in 1..6 {
        play("laptop", seed, false, |os, role| {
            let spec = FileSpec { name: "f", size: SIZE, in_memory: true, writable: true };
            let fd = os.open(spec).unwrap();
            if role > 0 {
                cut_or_write(os, role, fd);
                return Ok(());
            }
            let tasks: Vec<_> = (1..5).map(|role| os.fork(role).unwrap()).collect();
            tasks.into_iter().for_each(|task| os.join(task));
            Ok(())
        });
    }
}
