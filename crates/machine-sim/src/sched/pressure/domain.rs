//! What the CPUs of a domain (the machine, or a control group) add up, and the averages of it.
//!
//! A CPU adds up the time in which at least one of the domain's tasks there is stalled (*some*), and in which none of
//! them works although some want to (*full*). A task that waits for memory while it runs (it reclaims, or compacts)
//! does not work either, and keeps others from working, so the CPU is full then. At the end of each period the times of
//! the CPUs become one: a mean, in which a CPU has the weight of the time in which it had tasks.
//!
//! Source of the rules: kernel/sched/psi.c of Linux 6.12. Linux weighs by jiffies, this by picoseconds.

/// The length of a period in picoseconds: two seconds and a jiffy (HZ = 250).
pub(super) const PERIOD: u64 = 2_004_000_000_000;
/// One in the fixed-point numbers of the averages: percent with eleven binary places.
const ONE: u64 = 1 << 11;
/// What a period leaves of the averages over 10, 60 and 300 seconds, in the same numbers: ONE * e^(-2 / seconds).
const KEPT: [u64; 3] = [1677, 1981, 2034];

/// How many kinds of stalls there are: memory some and full, io some and full.
pub(super) const KINDS: usize = 4;
/// Picoseconds of each kind of stall, and those in which the CPU had tasks.
type Times = [u64; KINDS + 1];

/// What of a task its domains count.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Activity {
    /// It runs, or waits for the CPU.
    pub(super) awake: bool,
    /// It waits for memory, asleep or awake.
    pub(super) stalled: bool,
    /// It does so while it runs.
    pub(super) stalled_running: bool,
    /// It sleeps until a device has done something.
    pub(super) awaits_device: bool,
}

impl Activity {
    /// What counting a task that does this adds.
    fn counts(self) -> Counts {
        let Activity { awake, stalled, stalled_running, awaits_device } = self;
        let one = |counted: bool, of: u32| u128::from(counted) << of;
        Counts(
            one(awake, Counts::AWAKE)
                + one(stalled, Counts::STALLED)
                + one(stalled && awake, Counts::STALLED_AWAKE)
                + one(stalled_running, Counts::STALLED_RUNNING)
                + one(awaits_device, Counts::AWAIT_DEVICE),
        )
    }
}

/// How many tasks do what, 24 bits each. A switch changes several at once, in one addition.
#[derive(Clone, Copy, Default)]
struct Counts(u128);

impl Counts {
    const AWAKE: u32 = 0;
    const STALLED: u32 = 24;
    const STALLED_AWAKE: u32 = 48;
    const STALLED_RUNNING: u32 = 72;
    const AWAIT_DEVICE: u32 = 96;
    /// What says that a task is stalled, or sleeps until a device has done something.
    const WAITS: u128 = Self::all_of(Self::STALLED) | Self::all_of(Self::AWAIT_DEVICE);

    const fn all_of(of: u32) -> u128 {
        0xff_ffff << of
    }

    fn of(self, of: u32) -> u32 {
        (self.0 >> of) as u32 & 0xff_ffff
    }

    fn waits(self) -> bool {
        self.0 & Self::WAITS != 0
    }
}

/// The tasks of a domain on a CPU, and what the CPU has added up.
#[derive(Clone, Default)]
pub(super) struct Cpu {
    tasks: Counts,
    /// Up to when its time is counted.
    until: u64,
    times: Times,
}

impl Cpu {
    /// Its times at `now`.
    fn times_at(&self, now: u64) -> Times {
        let passed = now.saturating_sub(self.until);
        let mut times = self.times;
        times[KINDS] += passed * u64::from(self.has_tasks());
        // Most of the time nobody waits.
        if self.tasks.waits() {
            self.add_waits(&mut times, passed);
        }
        times
    }

    fn add_waits(&self, times: &mut Times, passed: u64) {
        let some = self.tasks.of(Counts::STALLED) > 0;
        let awake = self.tasks.of(Counts::AWAKE);
        let none_works =
            awake == self.tasks.of(Counts::STALLED_AWAKE) || self.tasks.of(Counts::STALLED_RUNNING) > 0;
        let awaits = self.tasks.of(Counts::AWAIT_DEVICE) > 0;
        let states = [some, some && none_works, awaits, awaits && awake == 0];
        times.iter_mut().zip(states).for_each(|(time, holds)| *time += passed * u64::from(holds));
    }

    fn has_tasks(&self) -> bool {
        self.tasks.0 != 0
    }

    /// Count its time up to `now`. It never goes back: another CPU's clock may be behind.
    fn count(&mut self, now: u64) {
        // A task is counted out and in at one time, and a switch is two changes at one time.
        if now <= self.until {
            return;
        }
        self.times = self.times_at(now);
        self.until = now;
    }

    /// One task that did `before` does `after` from `now` on; a task that is elsewhere does nothing here.
    fn change(&mut self, now: u64, before: Activity, after: Activity) {
        self.count(now);
        self.tasks.0 = self.tasks.0 + after.counts().0 - before.counts().0;
    }
}

/// Makes one time of those of the CPUs, each time that it collects.
#[derive(Clone)]
pub(crate) struct Collected {
    /// What it has collected of each CPU.
    seen: Vec<Times>,
    /// Picoseconds of each kind.
    totals: [u64; KINDS],
}

impl Collected {
    pub(crate) fn of(cpus: usize) -> Collected {
        Collected { seen: vec![Times::default(); cpus], totals: [0; KINDS] }
    }

    /// Add what CPUs have added up since the last time.
    fn collect(&mut self, cpus: &[Cpu], now: u64) {
        let (mut weighted, mut weights) = ([0_u128; KINDS], 0_u128);
        for (seen, cpu) in self.seen.iter_mut().zip(cpus) {
            let times = cpu.times_at(now);
            // A change that came from a CPU whose clock was behind may have taken time back.
            let passed: Times = std::array::from_fn(|kind| times[kind].saturating_sub(seen[kind]));
            *seen = std::array::from_fn(|kind| times[kind].max(seen[kind]));
            let weight = u128::from(passed[KINDS]);
            weights += weight;
            weighted.iter_mut().zip(passed).for_each(|(sum, time)| *sum += u128::from(time) * weight);
        }
        for (total, sum) in self.totals.iter_mut().zip(weighted) {
            *total += (sum / weights.max(1)) as u64;
        }
    }
}

/// The stalls of one kind at some time.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Stalls {
    /// Picoseconds of all time.
    pub(crate) total: u64,
    /// Averages over 10, 60 and 300 seconds when the last period ended, in hundredths of a percent.
    pub(crate) averages: [u64; 3],
}

/// The machine, or a control group.
#[derive(Clone)]
pub(super) struct Domain {
    cpus: Vec<Cpu>,
    collected: Collected,
    /// The totals that averages have.
    averaged: [u64; KINDS],
    /// By kind, over 10, 60 and 300 seconds.
    averages: [[u64; 3]; KINDS],
    period_ends: u64,
}

impl Domain {
    /// Without tasks, from `now` on.
    pub(super) fn new(cpus: usize, now: u64) -> Domain {
        Domain {
            cpus: vec![Cpu::default(); cpus],
            collected: Collected::of(cpus),
            averaged: [0; KINDS],
            averages: [[0; 3]; KINDS],
            period_ends: now + PERIOD,
        }
    }

    /// A task that did `before` on a CPU does `after` on another or the same from `now` on.
    #[inline]
    pub(super) fn change(&mut self, now: u64, before: (usize, Activity), after: (usize, Activity)) {
        if now >= self.period_ends {
            self.end_periods(now);
        }
        let ((from, before), (to, after)) = (before, after);
        if from == to {
            self.cpus[to].change(now, before, after);
        } else {
            self.cpus[from].change(now, before, Activity::default());
            self.cpus[to].change(now, Activity::default(), after);
        }
    }

    fn end_periods(&mut self, now: u64) {
        while now >= self.period_ends {
            self.collected.collect(&self.cpus, self.period_ends);
            self.average();
            self.period_ends += PERIOD;
        }
    }

    fn average(&mut self) {
        for ((averages, averaged), total) in
            self.averages.iter_mut().zip(&mut self.averaged).zip(self.collected.totals)
        {
            // More than a period cannot pass in one; what is too much counts in the next.
            let sample = (total - *averaged).min(PERIOD);
            *averaged += sample;
            let percent = sample * 100 / PERIOD * ONE;
            for (average, kept) in averages.iter_mut().zip(KEPT) {
                // Rounded towards where it goes, so that it arrives there.
                let up = if percent >= *average { ONE - 1 } else { 0 };
                *average = (*average * kept + percent * (ONE - kept) + up) / ONE;
            }
        }
    }

    /// What was added up until now, by kind. A look from outside: it changes nothing.
    pub(super) fn stalls(&self, now: u64) -> [Stalls; KINDS] {
        let mut domain = self.clone();
        domain.end_periods(now);
        domain.collected.collect(&domain.cpus, now);
        std::array::from_fn(|kind| Stalls {
            total: domain.collected.totals[kind],
            averages: domain.averages[kind].map(|average| average * 100 / ONE),
        })
    }

    /// Picoseconds until now in which a task waited for memory, and for a device, as `own` has collected them: they
    /// never get less.
    pub(super) fn some(&self, own: &mut Collected, now: u64) -> [u64; 2] {
        own.collect(&self.cpus, now);
        let [memory, _, io, _] = own.totals;
        [memory, io]
    }

    #[cfg(test)]
    pub(super) fn tasks_on(&self, cpu: usize) -> bool {
        self.cpus[cpu].has_tasks()
    }
}
