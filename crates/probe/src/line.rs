//! A cache line that two CPUs write by turns.

use crate::clock::{nanos, quickest};
use crate::helper::Helper;
use std::hint::spin_loop;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Messages there and back that are timed together.
const MESSAGES: u32 = 500;
/// Looks at the line after which a thread sees whether it should end.
const LOOKS: u32 = 1000;
const OURS: u32 = 0;
const THEIRS: u32 = 1;

/// A word in a line of its own; CPUs fetch lines in pairs.
#[repr(align(128))]
struct Word(AtomicU32);

/// The line, and the thread at its other end.
pub struct Line {
    word: Arc<Word>,
    helper: Helper,
}

impl Word {
    /// Hand the line to the other side, if it is `from`'s turn.
    fn pass(&self, from: u32, to: u32) -> bool {
        self.0.compare_exchange_weak(from, to, Relaxed, Relaxed).is_ok()
    }
}

impl Line {
    /// Start a thread on another CPU than the caller's.
    ///
    /// # Errors
    /// It gets no time there.
    pub fn new(other: usize) -> io::Result<Line> {
        let word = Arc::new(Word(AtomicU32::new(OURS)));
        let theirs = word.clone();
        let helper = Helper::start(other, move || {
            for _ in 0..LOOKS {
                if !theirs.pass(THEIRS, OURS) {
                    spin_loop();
                }
            }
        })?;
        Ok(Line { word, helper })
    }

    /// Nanoseconds of one way.
    ///
    /// # Errors
    /// The thread gets no time.
    pub fn round(&mut self) -> io::Result<f64> {
        self.helper.work(true)?;
        let time = quickest(|| nanos(|| self.exchange()));
        self.helper.work(false)?;
        Ok(time / f64::from(2 * MESSAGES))
    }

    fn exchange(&self) {
        for _ in 0..MESSAGES {
            while !self.word.pass(OURS, THEIRS) {
                spin_loop();
            }
        }
        while self.word.0.load(Relaxed) != OURS {
            spin_loop();
        }
    }
}
