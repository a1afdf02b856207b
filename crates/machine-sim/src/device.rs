//! Block devices: how long a transfer takes.
//!
//! A device serves `queue_depth` requests at a time; each has its latency, and all share the bandwidth. Requests start
//! in order, each when a tag is free. A request ends after its latency and its transfer, but not before the data of all
//! requests that started earlier could be transferred. All of its pages arrive at its end, with one interrupt.
//!
//! Pages that are submitted one by one for consecutive blocks become one request (see `device/queue.rs`), with one
//! latency and the transfers of all pages. A request that continues where the last one ended may have a lower latency:
//! the heads of a disk are there already.
//!
//! The requests of a real device vary in time. Each request's latency is drawn uniformly from `jitter_pct` percent
//! below to `jitter_pct` percent above the stated one, and a few may be `late` besides. With another seed the same data
//! arrives at other times: this is the only difference between runs of a program that makes no random choices.

mod queue;

pub(crate) use queue::{Plug, Request};

use crate::spec::{Bytes, Failures, MILLION};
use mm::machine::Io;
use mm::units::Pfn;
use program::rng::Rng;
use serde::Deserialize;
use std::collections::VecDeque;

/// A block device's description.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceSpec {
    /// Its name.
    pub name: String,
    /// Its size.
    pub size: Bytes,
    /// Microseconds of a single read of a page.
    pub read_us: f64,
    /// Microseconds of a single write of a page.
    pub write_us: f64,
    /// Microseconds of a read or write that continues where the last request ended; by default as any other.
    pub sequential_us: Option<f64>,
    /// MB (10^6 bytes) per second of large reads.
    pub read_mbs: f64,
    /// MB per second of large writes.
    pub write_mbs: f64,
    /// Requests that it serves at a time.
    pub queue_depth: u32,
    /// The largest deviation of a request's latency from the stated one, in percent.
    #[serde(default)]
    pub jitter_pct: f64,
    /// Requests that take longer.
    #[serde(default)]
    pub late: Late,
    /// How often its requests fail.
    #[serde(default)]
    pub fails: Failures,
    /// Where the numbers come from.
    pub source: String,
}

/// Requests that take longer than others, by chance: a device's own work in between, or a host's.
#[derive(Clone, Copy, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Late {
    /// How many, in percent.
    pub share_pct: f64,
    /// How much longer, in microseconds.
    pub us: f64,
}

/// What a device has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeviceCounts {
    /// Read requests.
    pub reads: u64,
    /// Pages read.
    pub read_pages: u64,
    /// Reads that joined another's request.
    pub read_merges: u64,
    /// Write requests.
    pub writes: u64,
    /// Pages written.
    pub written_pages: u64,
    /// Writes that joined another's request.
    pub write_merges: u64,
    /// Picoseconds in which it had requests to serve.
    pub busy: u64,
    /// Picoseconds of the CPUs' time that reads took.
    pub read_time: u64,
    /// Pages of reads that failed.
    pub failed_reads: u64,
    /// Pages of writes that failed.
    pub failed_writes: u64,
}

/// The start of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Started {
    /// Its tag.
    pub(crate) tag: u32,
    /// When it ends.
    pub(crate) done: u64,
}

/// A device. Times are in picoseconds.
pub(crate) struct Device {
    latency: [u64; 2],
    /// Latency of a request that continues the last one.
    sequential: [u64; 2],
    page: [u64; 2],
    /// The largest deviation of a latency, in 2^-32 of it, and the generator that draws deviations.
    jitter: u64,
    rng: Rng,
    /// The share of late requests, in 2^-32, and how late they are.
    late: (u64, u64),
    /// Requests that have started, by tag.
    tags: Vec<Option<Request>>,
    free: Vec<u32>,
    /// Requests that wait for a tag, oldest first.
    waiting: VecDeque<Request>,
    /// The block after the last request that started.
    head: u64,
    /// When the data of all requests so far is transferred.
    bus: u64,
    /// When it will have served all requests so far.
    busy_until: u64,
    fails: Failures,
    /// Draws which requests fail.
    fate: Rng,
    pub(crate) counts: DeviceCounts,
}

impl Device {
    /// The device of this description, in a run with this seed.
    pub(crate) fn new(spec: &DeviceSpec, seed: u64) -> Device {
        let picos = |us: f64| (us * 1e6).round() as u64;
        let page = [spec.read_mbs, spec.write_mbs].map(|mbs| (4096.0 * 1e6 / mbs).round() as u64);
        let stated = [spec.read_us, spec.write_us];
        // A stated latency is that of a whole one-page request.
        let latency = |i: usize, us: f64| picos(us).saturating_sub(page[i]);
        Device {
            latency: std::array::from_fn(|i| latency(i, stated[i])),
            sequential: std::array::from_fn(|i| latency(i, spec.sequential_us.unwrap_or(stated[i]))),
            page,
            jitter: (spec.jitter_pct / 100.0 * (1u64 << 32) as f64) as u64,
            rng: Rng::new(seed),
            late: ((spec.late.share_pct / 100.0 * (1u64 << 32) as f64) as u64, picos(spec.late.us)),
            tags: Vec::new(),
            free: (0..spec.queue_depth).rev().collect(),
            waiting: VecDeque::new(),
            head: u64::MAX,
            bus: 0,
            busy_until: 0,
            fails: spec.fails,
            fate: Rng::new(seed ^ 0x6661_696c),
            counts: DeviceCounts::default(),
        }
    }

    /// Take a request at `now`. `None`: it waits, or has joined a waiting one.
    pub(crate) fn submit(&mut self, now: u64, request: Request) -> Option<Started> {
        let write = request.write();
        let Some(request) = queue::join_waiting(&mut self.waiting, request) else {
            self.merged(write);
            return None;
        };
        let (requests, _) = self.counted(write);
        *requests += 1;
        match self.free.pop() {
            Some(tag) => Some(self.start(now, tag, request)),
            None => {
                self.waiting.push_back(request);
                None
            }
        }
    }

    /// A request ends at `now`, by the CPUs' time. Returns whether it has failed, with all of its pages.
    pub(crate) fn note_end(&mut self, now: u64, request: &Request) -> bool {
        let write = request.write();
        if !write {
            self.counts.read_time += now.saturating_sub(request.arrived);
        }
        let share = u64::from(self.fails.share(write, now));
        let failed = share > 0 && self.fate.below(u64::from(MILLION)) < share;
        if failed {
            let DeviceCounts { failed_reads, failed_writes, .. } = &mut self.counts;
            *(if write { failed_writes } else { failed_reads }) += u64::from(request.pages);
        }
        failed
    }

    /// The request of this tag ends at `now`. Another may start.
    pub(crate) fn end(&mut self, now: u64, tag: u32) -> (Request, Option<Started>) {
        let ended = self.tags[tag as usize].take().expect("a tag that ends must belong to a started request");
        let next = match self.waiting.pop_front() {
            Some(next) => Some(self.start(now, tag, next)),
            None => {
                self.free.push(tag);
                None
            }
        };
        (ended, next)
    }

    /// The transfer under way that reads or writes a frame.
    pub(crate) fn transfer_of(&self, frame: Pfn) -> Option<Io> {
        self.tags.iter().flatten().chain(&self.waiting).find_map(|request| request.transfer_of(frame))
    }

    /// Count submitted pages.
    pub(crate) fn add_pages(&mut self, write: bool, pages: u32) {
        let (_, moved) = self.counted(write);
        *moved += pages as u64;
    }

    /// Count a submission that joined another.
    pub(crate) fn merged(&mut self, write: bool) {
        match write {
            false => self.counts.read_merges += 1,
            true => self.counts.write_merges += 1,
        }
    }

    fn counted(&mut self, write: bool) -> (&mut u64, &mut u64) {
        match write {
            false => (&mut self.counts.reads, &mut self.counts.read_pages),
            true => (&mut self.counts.writes, &mut self.counts.written_pages),
        }
    }

    fn start(&mut self, start: u64, tag: u32, request: Request) -> Started {
        let write = request.write() as usize;
        let stated = if request.first() == self.head { self.sequential[write] } else { self.latency[write] };
        self.head = request.end();
        let transfer = self.page[write] * request.pages as u64;
        self.bus = self.bus.max(start) + transfer;
        let done = (start + self.jittered(stated) + self.delay() + transfer).max(self.bus);
        self.counts.busy += done - start.max(self.busy_until).min(done);
        self.busy_until = self.busy_until.max(done);
        if self.tags.len() <= tag as usize {
            self.tags.resize_with(tag as usize + 1, || None);
        }
        let before = self.tags[tag as usize].replace(request);
        assert!(before.is_none(), "tag {tag} of a device must serve one request at a time");
        Started { tag, done }
    }

    /// How late the next request is.
    fn delay(&mut self) -> u64 {
        let (share, long) = self.late;
        if share > 0 && self.rng.below(1 << 32) < share { long } else { 0 }
    }

    /// The stated latency plus a random deviation.
    fn jittered(&mut self, stated: u64) -> u64 {
        if self.jitter == 0 {
            return stated;
        }
        let deviation = self.rng.below(2 * self.jitter + 1);
        let scaled = |by: u64| ((stated as u128 * by as u128) >> 32) as u64;
        stated - scaled(self.jitter) + scaled(deviation)
    }
}

#[cfg(test)]
mod tests;
