//! The gate of a space's tables: many inside, or one alone.

extern crate std;

use super::host::{TWO, at_once, explore};
use crate::lock::Gate;
use crate::primitive::{Ordering::*, modelled::AtomicU32};
use std::boxed::Box;
use std::sync::Arc;
use std::vec;
use std::vec::Vec;

/// Two numbers that only who is in alone changes, both to the same.
#[derive(Default)]
struct Guarded {
    gate: Gate,
    numbers: [AtomicU32; 2],
}

impl Guarded {
    fn compare(&self) {
        let [first, second] = self.numbers.each_ref().map(|number| number.load(Relaxed));
        assert_eq!(first, second, "one is in alone");
    }

    fn count(&self) {
        self.compare();
        self.numbers.iter().for_each(|number| number.store(number.load(Relaxed) + 1, Relaxed));
    }
}

fn on(guarded: &Arc<Guarded>, program: fn(&Guarded)) -> Box<dyn FnOnce() + Send> {
    let guarded = Arc::clone(guarded);
    Box::new(move || program(&guarded))
}

fn model(name: &str, effort: super::host::Effort, programs: Vec<fn(&Guarded)>, counted: u32) {
    explore(name, effort, move || {
        let guarded = Arc::new(Guarded::default());
        at_once(programs.iter().map(|&program| on(&guarded, program)).collect());
        let _alone = guarded.gate.try_alone().expect("everybody has left");
        guarded.compare();
        assert_eq!(guarded.numbers[0].load(Relaxed), counted);
    });
}

fn share(guarded: &Guarded) {
    let _inside = guarded.gate.share();
    guarded.compare();
}

fn alone(guarded: &Guarded) {
    let _alone = guarded.gate.alone();
    guarded.count();
}

fn become_alone(guarded: &Guarded) {
    let mut inside = guarded.gate.share();
    guarded.compare();
    inside.become_alone();
    guarded.count();
}

#[test]
fn nobody_is_inside_with_one_that_is_alone() {
    model("gate: one shares, one is alone", TWO, vec![share, alone], 1);
    #[cfg(feature = "shuttle")]
    model("gate: two share, one is alone", TWO, vec![share, share, alone], 1);
}

#[test]
fn two_that_share_can_both_become_alone_one_after_the_other() {
    model("gate: two become alone", TWO, vec![become_alone, become_alone], 2);
}

#[test]
fn a_try_finds_the_gate_free_or_gives_up() {
    let tries: fn(&Guarded) = |guarded| {
        guarded.gate.try_share().iter().for_each(|_inside| guarded.compare());
        drop(guarded.gate.try_alone());
    };
    model("gate: tries", TWO, vec![tries, alone], 1);
}
