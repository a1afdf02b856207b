//! Block devices: how long a transfer takes.
//!
//! A device works on `queue_depth` requests at a time; each needs its latency, and all share the bandwidth. A request
//! begins when a slot is free. It ends after its latency and its transfer, and not before the data of all earlier ones
//! could pass.
//!
//! No two requests of a real device take the same time. Each request's latency is drawn evenly from `jitter_pct` percent
//! below to above the stated one. The draws are the run's: another seed, other moments at which the same data arrives. That
//! is what repeated runs of a program without random choices of its own differ by.

use crate::spec::Bytes;
use program::rng::Rng;
use serde::Deserialize;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A block device's description.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceSpec {
    /// Its name.
    pub name: String,
    /// Its size.
    pub size: Bytes,
    /// Microseconds of one read of a page, alone.
    pub read_us: f64,
    /// Microseconds of one write of a page, alone.
    pub write_us: f64,
    /// MB (10^6 bytes) a second of large reads.
    pub read_mbs: f64,
    /// MB a second of large writes.
    pub write_mbs: f64,
    /// Requests that it works on at a time.
    pub queue_depth: u32,
    /// How much a request's latency differs from the stated one at most, in percent of it.
    #[serde(default)]
    pub jitter_pct: f64,
    /// Where the numbers come from.
    pub source: String,
}

impl DeviceSpec {
    pub(crate) fn check(&self) -> Result<(), String> {
        let positive = |name: &str, value: f64| match value > 0.0 && value <= 1e9 {
            true => Ok(()),
            false => Err(format!("\"{}\": {name} is {value}, not above 0", self.name)),
        };
        positive("read_us", self.read_us)?;
        positive("write_us", self.write_us)?;
        positive("read_mbs", self.read_mbs)?;
        positive("write_mbs", self.write_mbs)?;
        if !(0.0..100.0).contains(&self.jitter_pct) {
            return Err(format!("\"{}\": jitter_pct is {}, not 0 to below 100", self.name, self.jitter_pct));
        }
        match self.queue_depth {
            1..=65536 => Ok(()),
            depth => Err(format!("\"{}\": queue_depth is {depth}, not 1 to 65536", self.name)),
        }
    }
}

/// What a device has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeviceCounts {
    /// Read requests.
    pub reads: u64,
    /// Pages read.
    pub read_pages: u64,
    /// Write requests.
    pub writes: u64,
    /// Pages written.
    pub written_pages: u64,
    /// Picoseconds in which it had work.
    pub busy: u64,
}

/// A device at work. Times are in picoseconds.
pub(crate) struct Device {
    latency: [u64; 2],
    page: [u64; 2],
    /// Largest deviation of a latency, in 2^-32 of it, and where deviations come from.
    jitter: u64,
    rng: Rng,
    /// When each slot becomes free; the first to do so on top.
    slots: BinaryHeap<Reverse<u64>>,
    /// When the data of all requests so far has passed.
    bus: u64,
    /// Until when it is known to be busy.
    busy_until: u64,
    pub(crate) counts: DeviceCounts,
}

impl Device {
    /// The device of that description, in a run with that seed.
    pub(crate) fn new(spec: &DeviceSpec, seed: u64) -> Device {
        let picos = |us: f64| (us * 1e6).round() as u64;
        let page = |mbs: f64| (4096.0 * 1e6 / mbs).round() as u64;
        let page = [page(spec.read_mbs), page(spec.write_mbs)];
        let latency = [spec.read_us, spec.write_us];
        Device {
            // The stated latency is that of a whole one-page request.
            latency: std::array::from_fn(|i| picos(latency[i]).saturating_sub(page[i])),
            page,
            jitter: (spec.jitter_pct / 100.0 * (1u64 << 32) as f64) as u64,
            rng: Rng::new(seed),
            slots: (0..spec.queue_depth).map(|_| Reverse(0)).collect(),
            bus: 0,
            busy_until: 0,
            counts: DeviceCounts::default(),
        }
    }

    /// Take a request at `now`; returns when it will be done.
    pub(crate) fn submit(&mut self, now: u64, write: bool, pages: u32) -> u64 {
        let Reverse(free) = self.slots.pop().expect("a device has slots");
        let start = now.max(free);
        let transfer = self.page[write as usize] * pages as u64;
        self.bus = self.bus.max(start) + transfer;
        let done = (start + self.latency(write) + transfer).max(self.bus);
        self.slots.push(Reverse(done));
        self.counts.busy += done - now.max(self.busy_until).min(done);
        self.busy_until = self.busy_until.max(done);
        let (requests, moved) = match write {
            false => (&mut self.counts.reads, &mut self.counts.read_pages),
            true => (&mut self.counts.writes, &mut self.counts.written_pages),
        };
        *requests += 1;
        *moved += pages as u64;
        done
    }

    /// This request's latency.
    fn latency(&mut self, write: bool) -> u64 {
        let stated = self.latency[write as usize];
        if self.jitter == 0 {
            return stated;
        }
        let deviation = self.rng.below(2 * self.jitter + 1);
        let scaled = |by: u64| ((stated as u128 * by as u128) >> 32) as u64;
        stated - scaled(self.jitter) + scaled(deviation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(queue_depth: u32) -> Device {
        jittery(queue_depth, 0.0)
    }

    fn jittery(queue_depth: u32, jitter_pct: f64) -> Device {
        let spec = DeviceSpec {
            name: "d".into(),
            size: Bytes(1 << 30),
            read_us: 100.0,
            write_us: 20.0,
            read_mbs: 4096.0,
            write_mbs: 2048.0,
            queue_depth,
            jitter_pct,
            source: "test".into(),
        };
        Device::new(&spec, 7)
    }

    #[test]
    fn one_request_takes_its_latency() {
        let mut device = device(4);
        assert_eq!(device.submit(0, false, 1), 100_000_000);
        assert_eq!(device.submit(500_000_000, true, 1), 520_000_000);
        assert_eq!(device.counts.busy, 120_000_000);
    }

    #[test]
    fn requests_beyond_the_queue_wait_for_a_slot() {
        let mut device = device(2);
        assert_eq!(device.submit(0, false, 1), 100_000_000);
        assert_eq!(device.submit(0, false, 1), 100_000_000);
        assert_eq!(device.submit(0, false, 1), 200_000_000);
        assert_eq!(device.counts.busy, 200_000_000);
    }

    #[test]
    fn a_flood_runs_at_the_bandwidth() {
        let mut device = device(1024);
        let last = (0..1000).map(|_| device.submit(0, false, 256)).max().unwrap();
        // 256,000 pages at one a microsecond.
        assert_eq!(last / 1_000_000, 256_000);
    }

    #[test]
    fn latencies_stay_within_the_jitter_and_use_all_of_it() {
        let mut device = jittery(1, 10.0);
        let mut now = 0;
        let times: Vec<u64> = (0..1000)
            .map(|_| {
                let begun = now;
                now = device.submit(now, false, 1);
                now - begun
            })
            .collect();
        let (least, most) =
            (times.iter().min().unwrap() / 1_000_000, times.iter().max().unwrap() / 1_000_000);
        assert_eq!((least, most), (90, 109));
    }
}
