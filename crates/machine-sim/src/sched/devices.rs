//! The time of devices that take an emulator's host's time.
//!
//! While all CPUs are idle, a second of theirs is one of the host's. While one works, the host needs longer for it, so
//! more of the devices' time passes. What a device does ends by its own time; when that is by the CPUs', depends on
//! whether they work until then.

use super::{Event, Timed};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Parts of a pace.
const WHOLE: u64 = 1 << 16;

/// Times are in picoseconds.
pub(super) struct DevicesTime {
    /// How much passes while a CPU works for [`WHOLE`].
    pace: u64,
    /// The CPUs' time so far, and the devices' at that.
    now: u64,
    passed: u64,
    /// By the devices' time.
    events: BinaryHeap<Reverse<Timed>>,
    inserted: u64,
}

impl DevicesTime {
    /// `None`: both times are the same.
    pub(super) fn new(pace: f64) -> Option<DevicesTime> {
        let pace = (pace * WHOLE as f64).round() as u64;
        (pace > WHOLE).then(|| DevicesTime {
            pace,
            now: 0,
            passed: 0,
            events: BinaryHeap::new(),
            inserted: 0,
        })
    }

    /// What passes of it in `picos` of a CPU's work.
    fn in_work(&self, picos: u64) -> u64 {
        (u128::from(picos) * u128::from(self.pace) / u128::from(WHOLE)) as u64
    }

    /// CPUs have worked until `time`.
    pub(super) fn go_on_working(&mut self, time: u64) {
        if time > self.now {
            self.passed += self.in_work(time - self.now);
            self.now = time;
        }
    }

    /// All CPUs were idle until `time`.
    pub(super) fn go_on_idle(&mut self, time: u64) {
        if time > self.now && time < u64::MAX {
            self.passed += time - self.now;
            self.now = time;
        }
    }

    /// The devices' time at a time of CPUs that work.
    pub(super) fn of(&self, time: u64) -> u64 {
        match time >= self.now {
            true => self.passed + self.in_work(time - self.now),
            false => self.passed.saturating_sub(self.in_work(self.now - time)),
        }
    }

    pub(super) fn at(&mut self, time: u64, event: Event) {
        self.inserted += 1;
        self.events.push(Reverse(Timed { key: (time as u128) << 64 | self.inserted as u128, event }));
    }

    /// When the next event comes, by the CPUs' time, if they go on working or being idle; or when it has come, while
    /// they worked.
    pub(super) fn next(&self, work: bool) -> u64 {
        let Some(Reverse(event)) = self.events.peek() else { return u64::MAX };
        let of_work =
            |picos: u64| (u128::from(picos) * u128::from(WHOLE)).div_ceil(u128::from(self.pace)) as u64;
        match event.time().checked_sub(self.passed) {
            None => self.now - of_work(self.passed - event.time()).min(self.now),
            Some(left) if work => self.now + of_work(left),
            Some(left) => self.now + left,
        }
    }

    /// Remove the next event, if it has come.
    pub(super) fn pop(&mut self) -> Option<Event> {
        let Reverse(event) = self.events.peek()?;
        (event.time() <= self.passed).then_some(())?;
        self.events.pop().map(|Reverse(event)| event.event)
    }
}
