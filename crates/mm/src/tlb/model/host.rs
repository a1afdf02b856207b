//! The checker that runs the models: loom or shuttle, by feature.

extern crate std;

use std::boxed::Box;
use std::string::String;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;
use std::vec::Vec;

/// How far to explore a model.
#[derive(Clone, Copy)]
#[allow(dead_code, reason = "each checker uses its own")]
pub(super) struct Effort {
    /// loom: the number of times a thread is preempted at most; `None`: every order.
    pub preemptions: Option<usize>,
    /// shuttle: runs of each of its two schedulers.
    pub runs: usize,
}

/// For short models of two threads.
pub(super) const EVERY: Effort = Effort { preemptions: None, runs: 3_000 };
/// For long ones of them.
pub(super) const TWO: Effort = Effort { preemptions: Some(3), runs: 3_000 };
/// For models of three threads.
pub(super) const THREE: Effort = Effort { preemptions: Some(3), runs: 3_000 };
/// For long ones of these.
pub(super) const LONG: Effort = Effort { preemptions: Some(2), runs: 3_000 };

/// Run a model in all orders, or in many, and report their number.
pub(super) fn explore(name: &str, effort: Effort, model: impl Fn() + Send + Sync + 'static) {
    let count = Arc::new(AtomicU64::new(0));
    let counted = {
        let count = Arc::clone(&count);
        move || {
            count.fetch_add(1, Relaxed);
            model();
        }
    };
    let start = Instant::now();
    let how = checker::run(effort, counted);
    let seconds = start.elapsed().as_secs_f64();
    std::println!("model: {name}: {} executions, {seconds:.1} s, {how}", count.load(Relaxed));
}

/// Run these at the same time, and wait for all of them.
pub(super) fn at_once(programs: Vec<Box<dyn FnOnce() + Send>>) {
    let threads: Vec<_> = programs.into_iter().map(checker::spawn).collect();
    for thread in threads {
        thread.join().expect("every thread of the model must succeed");
    }
}

#[cfg(feature = "loom")]
mod checker {
    use super::*;
    pub use loom::thread::spawn;

    pub fn run(effort: Effort, model: impl Fn() + Send + Sync + 'static) -> String {
        let mut builder = loom::model::Builder::new();
        builder.max_branches = 100_000;
        builder.preemption_bound = builder.preemption_bound.or(effort.preemptions);
        let bound = builder.preemption_bound;
        builder.check(model);
        bound.map_or("loom, every order".into(), |bound| std::format!("loom, up to {bound} preemptions"))
    }
}

#[cfg(feature = "shuttle")]
mod checker {
    use super::*;
    use shuttle::scheduler::{PctScheduler, RandomScheduler};
    pub use shuttle::thread::spawn;
    use shuttle::{Config, Runner};

    pub fn run(effort: Effort, model: impl Fn() + Send + Sync + 'static) -> String {
        let number = |name, default| std::env::var(name).map_or(default, |text| text.parse().expect(name));
        let seed: u64 = number("MODEL_SEED", 1);
        let runs = number("MODEL_RUNS", effort.runs as u64) as usize;
        let model = Arc::new(model);
        let again = Arc::clone(&model);
        let mut config = Config::new();
        // The default is 32 KiB, and inlined functions share one stack frame.
        config.stack_size = 256 << 10;
        Runner::new(RandomScheduler::new_from_seed(seed, runs), config.clone()).run(move || model());
        Runner::new(PctScheduler::new_from_seed(seed, 3, runs), config).run(move || again());
        std::format!("shuttle, seed {seed}")
    }
}
