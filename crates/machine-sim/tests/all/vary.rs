//! What `vary` lets differ between seeds: only that, the same for the same seed, and nothing without it.

use super::acts::{LARGE, PAGE, outcome, play, unharmed};
use machine_sim::{MachineSpec, Outcome, RunConfig, RunError, run};
use program::{Map, Os, Role, Signal};
use std::collections::BTreeSet;
use std::sync::Mutex;

fn config(vary: &str, seed: u64) -> RunConfig {
    let vary = if vary.is_empty() { Default::default() } else { vary.parse().unwrap() };
    let machine = MachineSpec::preset("laptop").unwrap();
    RunConfig { memory: Some(256 << 20), seed, vary, verify: true, ..RunConfig::new(machine) }
}

/// What tasks note, by role, in a run of a program in which the first task starts a thread and a process.
fn noted(config: &RunConfig, note: impl Fn(&mut dyn Os, Role) -> Result<u64, Signal>) -> [u64; 3] {
    let all = Mutex::new([0; 3]);
    let play = play(|os, role| {
        let value = note(os, role)?;
        all.lock().unwrap()[role as usize] = value;
        if role == 0 {
            let tasks = [os.spawn(1).unwrap(), os.fork(2).unwrap()];
            tasks.into_iter().for_each(|task| os.join(task));
        }
        Ok(())
    });
    unharmed(config, &play);
    *all.lock().unwrap()
}

/// A function of the seed differs between seeds, and repeats with each.
fn differs<T: Ord + std::fmt::Debug>(of: impl Fn(u64) -> T) {
    let all: BTreeSet<T> = (1..=8).map(&of).collect();
    assert_eq!(all.len(), 8, "{all:?}");
    assert!(all.contains(&of(5)), "{all:?}");
    assert_eq!(of(5), of(5));
}

#[test]
fn every_task_but_the_first_begins_later() {
    const MOST: u64 = 40_000_000;
    let starts = |vary, seed| noted(&config(vary, seed), |os, _| Ok(os.now()));
    let off = starts("", 5);
    differs(|seed| starts("arrival=40ms", seed));
    for seed in 1..=8 {
        let on = starts("arrival=40ms", seed);
        assert_eq!(on[0], off[0]);
        let late = [1, 2].map(|task| on[task].saturating_sub(off[task]));
        // Other tasks run at other times, so costs differ a little, too.
        assert!(late.iter().all(|&late| late < MOST + 1_000_000), "{late:?}");
        assert!(late.iter().any(|&late| late > 100_000) && late[0] != late[1], "{late:?}");
    }
    assert_eq!(starts("layout", 5)[1..].iter().map(|&at| at / 1_000_000).max(), Some(off[2] / 1_000_000));
}

#[test]
fn mappings_are_placed_elsewhere() {
    let placed = |pages: u64| {
        move |vary: &str, seed| {
            noted(&config(vary, seed), |os, _| Ok(os.mmap(Map::anonymous(pages * PAGE)).unwrap()))
        }
    };
    let small = placed(3);
    let off = small("", 5);
    assert_eq!((off, off), (small("", 6), small("arrival=40ms,fragment", 6)));
    differs(|seed| small("layout", seed));
    let on: Vec<[u64; 3]> = (1..=8).map(|seed| small("layout", seed)).collect();
    // Below the usual place, by at most 2^28 pages; threads and children are in the same layout.
    assert!(on.iter().all(|on| on[0] < off[0] && off[0] - on[0] <= PAGE << 28), "{on:?}");
    assert!(
        on.iter().all(|on| on[0] - on[1] == 3 * PAGE && on[0] > on[2] && on[0] - on[2] <= 6 * PAGE),
        "{on:?}"
    );
    let large = placed(1024);
    let on: BTreeSet<u64> = (1..=8).flat_map(|seed| large("layout", seed)).collect();
    assert!(on.len() > 8 && on.iter().all(|at| at.is_multiple_of(LARGE)), "{on:?}");
}

fn begun(vary: &str, seed: u64) -> Outcome {
    let stores = play(|os, _| {
        let at = os.mmap(Map::anonymous(64 * LARGE)).unwrap();
        (0..64 * LARGE / PAGE).try_for_each(|page| os.store(at + page * PAGE))
    });
    outcome(&config(vary, seed), &stores)
}

#[test]
fn memory_begins_in_pieces() {
    assert!(begun("arrival=1ms,layout", 1).fragmented.is_none());
    let unusable = |seed| {
        let made = begun("fragment", seed).fragmented.unwrap();
        assert!(made.asked.ends_with("% of free 2 MiB blocks broken"), "{}", made.asked);
        assert!(made.before.unusable() < 5.0 && made.after.unusable() <= 82.0, "{}", made.after.unusable());
        // In 256 MiB up to 80 % of 128 blocks lose 64 KiB each.
        assert!(made.held[0] <= 103 * 16 && made.held[1] == 0, "{:?}", made.held);
        (made.after.unusable() * 10.0) as u64
    };
    differs(unusable);
}

#[test]
fn runs_without_it_are_as_before() {
    let (default, off) =
        (begun("", 3), run(&RunConfig { vary: Default::default(), ..config("", 3) }, &play(|_, _| Ok(()))));
    assert!(default.fragmented.is_none() && off.unwrap().fragmented.is_none());
    for vary in ["fragment", "layout", "arrival=1ms"] {
        let one = |seed| begun(vary, seed).nanos;
        assert_eq!(one(4), one(4), "{vary}");
    }
    // A program of one task has nobody who arrives late.
    assert_eq!(begun("arrival=50ms", 3).stats, default.stats);
    assert_eq!(begun("arrival=50ms", 3).nanos, default.nanos);
}

#[test]
fn a_state_is_given_or_drawn() {
    let nothing = play(|_, _| Ok(()));
    let given = RunConfig { fragment: Some("frag-50".parse().unwrap()), ..config("fragment", 1) };
    let optimum = RunConfig { optimum: true, ..config("fragment", 1) };
    for (config, expected) in
        [(given, "vary: memory begins in a state that is given"), (optimum, "there is no optimum")]
    {
        match run(&config, &nothing) {
            Err(error @ RunError::Input(_)) => assert!(error.to_string().contains(expected), "{error}"),
            other => panic!("{other:?}"),
        }
    }
}
