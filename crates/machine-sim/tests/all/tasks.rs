//! Tasks, waits and signals, with programs for each.

use super::acts::{PAGE, load_all, play, store_all};
use machine_sim::{MachineSpec, RunConfig, RunError, run};
use mm::knobs::Knob;
use program::{Access, AccessKind, Advice, FileSpec, Map, MapSource, Prot, Signal};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

fn config(machine: &str) -> RunConfig {
    let machine = MachineSpec::preset(machine).unwrap();
    RunConfig { memory: Some(64 << 20), verify: true, validate_every_op: true, ..RunConfig::new(machine) }
}

#[test]
fn barriers_joins_and_sleeps_wait() {
    let play = play(|os, role| {
        if role == 0 {
            let tasks: Vec<_> = (1..5).map(|role| os.spawn(role).unwrap()).collect();
            os.barrier(7, 5);
            let met = os.now();
            tasks.into_iter().for_each(|task| os.join(task));
            assert!(met >= 4_000_000 && os.now() >= met);
        } else {
            os.sleep(role as u64 * 1_000_000);
            os.barrier(7, 5);
        }
        os.progress(1);
        Ok(())
    });
    for machine in ["small", "laptop"] {
        let outcome = run(&config(machine), &play).unwrap();
        assert_eq!((outcome.progress, outcome.tasks), (5, 5));
        assert!(outcome.nanos >= 4_000_000 && outcome.metric("cpu_idle").unwrap() >= 3e6);
    }
}

#[test]
fn cpus_in_turn_are_not_kept_by_another_s_long_work() {
    const NAP: u64 = 100_000;
    for computes in [true, false] {
        let play = play(move |os, role| {
            if role == 1 {
                for _ in 0..10 {
                    let before = os.now();
                    os.sleep(NAP);
                    assert!(os.now() - before < 2 * NAP, "{} ns", os.now() - before);
                }
                return Ok(());
            }
            let addr = os.mmap(Map::anonymous(PAGE)).unwrap();
            let task = os.spawn(1).unwrap();
            for _ in 0..4 {
                match computes {
                    true => os.compute(1 << 23),
                    false => os.access(Access { addr, count: 1 << 23, mode: AccessKind::Store })?,
                }
            }
            os.join(task);
            Ok(())
        });
        let outcome = run(&RunConfig { in_turn: true, ..config("laptop") }, &play).unwrap();
        assert!(outcome.nanos > 10 * NAP);
    }
}

#[test]
fn a_signal_ends_the_process_and_not_its_parent() {
    let play = play(|os, role| {
        if role == 0 {
            let child = os.fork(1).unwrap();
            os.join(child);
            os.progress(1);
            return Ok(());
        }
        if role == 2 {
            os.barrier(1, 2);
            return os.load(0x1000);
        }
        os.spawn(2).unwrap();
        os.load(0xdead_0000)
    });
    let outcome = run(&config("small"), &play).unwrap();
    assert_eq!(outcome.signals, ["task 3 (role 1): SIGSEGV at 0xdead0000"]);
    assert_eq!(outcome.progress, 1);
}

/// Large folios have a daemon more.
#[test]
fn a_number_of_daemons_that_is_told_decides_about_seeds() {
    let seed = |order, daemons| {
        let seed = AtomicU64::new(0);
        let play = play(|os, _| {
            seed.store(os.seed(), Relaxed);
            Ok(())
        });
        let knobs = vec![(Knob::FileMaxOrder, order)];
        run(&RunConfig { knobs, daemons, ..config("small") }, &play).unwrap();
        seed.into_inner()
    };
    assert_ne!(seed(0, None), seed(4, None));
    assert_eq!(seed(0, Some(2)), seed(4, Some(2)));
    assert_eq!(seed(0, Some(2)), seed(0, None));
}

#[test]
fn a_deadlock_names_waiters_and_what_they_wait_for() {
    let error = run(
        &config("small"),
        &play(|os, _| {
            os.barrier(3, 2);
            Ok(())
        }),
    );
    let Err(RunError::Failed { reason, .. }) = error else { panic!("{error:?}") };
    assert!(reason.contains("deadlock") && reason.contains("(role 0) waits for barrier 3"), "{reason}");
}

#[test]
fn truncated_and_extended_files_read_zeroes_and_raise_sigbus() {
    let play = play(|os, _| {
        let spec = FileSpec { name: "f", size: 16 * PAGE, in_memory: false, writable: true };
        let fd = os.open(spec).unwrap();
        let source = MapSource::File { fd, offset: 0, shared: true };
        let at = os.mmap(Map { source, ..Map::anonymous(16 * PAGE) }).unwrap();
        load_all(os, at, 16 * PAGE)?;
        store_all(os, at + 4 * PAGE, 8 * PAGE)?;
        os.ftruncate(fd, 6 * PAGE).unwrap();
        assert_eq!(os.load(at + 6 * PAGE), Err(Signal::Bus { addr: at + 6 * PAGE }));
        assert_eq!(os.pwrite(fd, 8 * PAGE, PAGE), Ok(PAGE));
        load_all(os, at, 9 * PAGE)?;
        os.progress(1);
        Ok(())
    });
    let outcome = run(&config("small"), &play).unwrap();
    assert_eq!((outcome.progress, outcome.signals.len()), (1, 0), "{:?}", outcome.signals);
}

#[test]
fn advice_drops_content_and_protection_holds() {
    let play = play(|os, _| {
        let at = os.mmap(Map::anonymous(64 * PAGE)).unwrap();
        let read_only = os.mmap(Map { prot: Prot::READ, ..Map::anonymous(PAGE) }).unwrap();
        store_all(os, at, 64 * PAGE)?;
        for (part, advice) in [(0, Advice::DontNeed), (16, Advice::Free), (32, Advice::PageOut)] {
            os.madvise(at + part * PAGE, 16 * PAGE, advice).unwrap();
        }
        load_all(os, at, 64 * PAGE)?;
        os.munmap(at, 32 * PAGE).unwrap();
        assert_eq!(os.load(at), Err(Signal::Segv { addr: at }));
        assert_eq!(os.store(read_only), Err(Signal::Segv { addr: read_only }));
        os.load(read_only)?;
        os.progress(1);
        Ok(())
    });
    let outcome = run(&config("small"), &play).unwrap();
    assert_eq!((outcome.progress, outcome.signals.len()), (1, 0), "{:?}", outcome.signals);
}
