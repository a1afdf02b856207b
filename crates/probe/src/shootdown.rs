//! Flushes that interrupt other CPUs.
//!
//! mprotect takes the right to store from a page, and gives it back. The first has all CPUs that run this process drop
//! their translation, so it sends them interrupts and waits for their answers; while no other CPU runs the process, it
//! sends none. Threads on other CPUs load from the page all the time, so they have the translation. A change counts
//! only if they have all gone on during it: a CPU that runs another program meanwhile is not interrupted.

use crate::PAGE;
use crate::clock::nanos;
use crate::fit;
use crate::helper::Helper;
use crate::region::{Pages, Region};
use crate::unsupported;
use std::hint::black_box;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Changes of rights of which a round takes the median, for each number of CPUs.
const CHANGES: usize = 30;
/// How long a round waits for them: the other CPUs may be busy.
const PATIENCE: Duration = Duration::from_millis(100);
/// Loads of a thread that it counts as one step: some tens of nanoseconds, far less than a change.
const LOADS: u32 = 100;
/// The most other CPUs.
const MOST: usize = 64;

/// How far a thread has come, in a line of its own.
#[derive(Default)]
#[repr(align(128))]
struct Steps(AtomicU64);

/// Flushes of one page on other CPUs.
pub struct Shootdown {
    page: Arc<Region>,
    helpers: Vec<(Helper, Arc<Steps>)>,
    /// Numbers of other CPUs that are timed, from 0 on.
    counts: Vec<usize>,
}

impl Shootdown {
    /// Start threads on these CPUs, which are not the caller's.
    ///
    /// # Errors
    /// There is no other CPU, or a thread gets no time there.
    pub fn new(others: &[usize]) -> io::Result<Shootdown> {
        if others.is_empty() {
            return Err(unsupported("one CPU"));
        }
        let page = Arc::new(Region::new(PAGE, Pages::Small)?);
        page.write(0, 1);
        let start = |&cpu: &usize| {
            let (page, steps) = (page.clone(), Arc::new(Steps::default()));
            let counted = steps.clone();
            Helper::start(cpu, move || step(&page, &counted)).map(|helper| (helper, steps))
        };
        let helpers = others.iter().take(MOST).map(start);
        let helpers = helpers.collect::<io::Result<Vec<_>>>()?;
        let counts = counts(helpers.len());
        Ok(Shootdown { page, helpers, counts })
    }

    /// Nanoseconds that a flush takes longer with the first other CPU, and with each further one (NaN if there is
    /// none).
    ///
    /// # Errors
    /// A call failed, or a thread gets no time.
    pub fn round(&mut self) -> io::Result<[f64; 2]> {
        let mut points = Vec::new();
        for &count in &self.counts {
            for (number, (helper, _)) in self.helpers.iter().enumerate() {
                helper.work(number < count)?;
            }
            points.push((count as f64, self.changes(count)?));
        }
        for (helper, _) in &self.helpers {
            helper.work(false)?;
        }
        Ok(read(&points))
    }

    /// Nanoseconds of one change of rights and back while this many threads go on; NaN: they never did.
    fn changes(&self, count: usize) -> io::Result<f64> {
        let (end, mut times) = (Instant::now() + PATIENCE, Vec::new());
        while times.len() < CHANGES && Instant::now() < end {
            // Of changes that begin at any time, those would be left in which this thread lost its CPU.
            let Some(before) = self.go_on(count, end) else { break };
            let mut result = Ok(());
            let time = nanos(|| {
                result = self.page.allow_stores(false).and_then(|()| self.page.allow_stores(true));
            });
            result?;
            // The entry must allow stores again, or there is nothing to take away.
            self.page.write(0, 1);
            if self.have_gone_on(count, &before) {
                times.push(time);
            }
        }
        Ok(fit::median(times))
    }

    /// Wait until the first threads go on, and return how far they are; `None`: some had no CPU until `end`.
    fn go_on(&self, count: usize, end: Instant) -> Option<Vec<u64>> {
        let first = self.steps(count);
        while !self.have_gone_on(count, &first) {
            if Instant::now() > end {
                return None;
            }
        }
        Some(self.steps(count))
    }

    fn have_gone_on(&self, count: usize, since: &[u64]) -> bool {
        self.steps(count).iter().zip(since).all(|(now, before)| now > before)
    }

    fn steps(&self, count: usize) -> Vec<u64> {
        self.helpers[..count].iter().map(|(_, steps)| steps.0.load(Relaxed)).collect()
    }
}

/// What a thread on another CPU does.
fn step(page: &Region, steps: &Steps) {
    (0..LOADS).for_each(|_| {
        black_box(page.read(0));
    });
    steps.0.fetch_add(1, Relaxed);
}

/// 0, 1, 2, 4 ... up to all.
fn counts(all: usize) -> Vec<usize> {
    let doubled = (0..).map(|power| 1 << power).take_while(|&count| count < all);
    std::iter::once(0).chain(doubled).chain([all]).collect()
}

/// What the first other CPU costs, and each further one, of times by number of other CPUs. The first point is of none.
fn read(points: &[(f64, f64)]) -> [f64; 2] {
    let alone = points[0].1;
    match fit::line(&points[1..]) {
        Some(fit) => [fit.at_zero + fit.slope - alone, fit.slope],
        None => [points[1].1 - alone, f64::NAN],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_cpus_double_up_to_all() {
        assert_eq!(counts(1), [0, 1]);
        assert_eq!(counts(2), [0, 1, 2]);
        assert_eq!(counts(6), [0, 1, 2, 4, 6]);
    }

    #[test]
    fn first_cpu_and_further_ones_are_read_from_the_slope() {
        let points: Vec<(f64, f64)> = [1.0, 2.0, 4.0].map(|count| (count, 1000.0 + 50.0 * count)).into();
        let points = [vec![(0.0, 300.0)], points].concat();
        let [first, further] = read(&points);
        assert!((first - 750.0).abs() < 1e-6 && (further - 50.0).abs() < 1e-6, "{first} {further}");
        let [first, further] = read(&points[..2]);
        assert!(first == 750.0 && further.is_nan());
    }
}
