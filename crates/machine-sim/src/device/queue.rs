//! Plugging and merging: from transfers of single folios to requests.
//!
//! The memory manager submits folio by folio. Linux's block layer holds back ("plugs") what a task submits until the
//! task sleeps or has submitted all, so that transfers of adjacent blocks can join one request before the first of them
//! starts. Here a CPU's plug is emptied
//!
//! - when its task sleeps, ends, leaves the memory manager, or is replaced by another;
//! - when its oldest request has waited for [`PLUG_TIME`] (daemons do none of the above for a long time);
//! - when it holds [`PLUG_REQUESTS`], or its last request has [`PLUG_PAGES`] and another one begins.
//!
//! A request that finds the device busy waits, and others may still join it: the last few waiting requests are checked.
//! No request grows beyond [`REQUEST_PAGES`]. The numbers are those of Linux 6.12 (`BLK_MAX_REQUEST_COUNT`,
//! `BLK_PLUG_FLUSH_SIZE`, `BLK_DEF_MAX_SECTORS_CAP`, the 8 of `blk_bio_list_merge`); there, a plug has no time limit,
//! but its owner closes it after each pass over a list.
//!
//! Requests start in order of arrival: there is no elevator. CPUs run one after the other on the host, and one that
//! does much without giving way is ahead of the others at its end; what it sends reaches the device when all other CPUs
//! have come to that time, or their requests would queue behind some that are sent later.

use mm::machine::Io;
use mm::units::Pfn;
use std::collections::VecDeque;

/// The most requests in a plug.
const PLUG_REQUESTS: usize = 32;
/// A request of this many pages is held back no longer: 128 KiB.
const PLUG_PAGES: u32 = 32;
/// The longest time that a plug holds a request back: 1 ms.
const PLUG_TIME: u64 = 1_000_000_000;
/// Pages of the largest request: 1280 KiB.
const REQUEST_PAGES: u32 = 320;
/// How many waiting requests are checked for one to join.
const LOOK_BACK: usize = 8;

/// Transfers of consecutive blocks in one direction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    /// In block order, each with the CPU that submitted it.
    parts: VecDeque<(Io, usize)>,
    pub(super) pages: u32,
    /// When it reached its device, by the CPUs' time.
    pub(super) arrived: u64,
}

impl Request {
    fn new(io: Io, cpu: usize) -> Request {
        Request { parts: VecDeque::from([(io, cpu)]), pages: io.pages, arrived: 0 }
    }

    /// Its parts, in block order.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &Io> {
        self.parts.iter().map(|(io, _)| io)
    }

    /// The transfer that reads or writes a frame.
    pub(crate) fn transfer_of(&self, frame: Pfn) -> Option<Io> {
        let uses = |io: &&Io| (io.frame.0..io.frame.0 + io.pages).contains(&frame.0);
        self.parts().find(uses).copied()
    }

    /// It reaches its device at `now`.
    pub(crate) fn arrive(&mut self, now: u64) {
        self.arrived = now;
    }

    /// The CPU that is interrupted at its end.
    pub(crate) fn cpu(&self) -> usize {
        self.parts[0].1
    }

    /// The number of its device.
    pub(crate) fn device(&self) -> usize {
        self.parts[0].0.device.index()
    }

    pub(super) fn write(&self) -> bool {
        self.parts[0].0.write
    }

    pub(super) fn first(&self) -> u64 {
        self.parts[0].0.block
    }

    pub(super) fn end(&self) -> u64 {
        self.first() + self.pages as u64
    }

    /// Join `other`, if it has the same direction and device and its blocks are adjacent.
    fn join(&mut self, other: Request) -> Result<(), Request> {
        let alike = self.device() == other.device() && self.write() == other.write();
        if !alike || self.pages + other.pages > REQUEST_PAGES {
            return Err(other);
        }
        if self.end() == other.first() {
            self.parts.extend(other.parts);
        } else if other.end() == self.first() {
            other.parts.into_iter().rev().for_each(|part| self.parts.push_front(part));
        } else {
            return Err(other);
        }
        self.pages += other.pages;
        Ok(())
    }
}

/// Let a request join one of `requests`, in their order. Returns it if none is adjacent.
fn join_one_of<'a>(requests: impl Iterator<Item = &'a mut Request>, request: Request) -> Option<Request> {
    let mut request = request;
    for other in requests {
        match other.join(request) {
            Ok(()) => return None,
            Err(back) => request = back,
        }
    }
    Some(request)
}

/// Let a request join one of the last waiting requests. Returns it if none is adjacent.
pub(super) fn join_waiting(waiting: &mut VecDeque<Request>, request: Request) -> Option<Request> {
    join_one_of(waiting.iter_mut().rev().take(LOOK_BACK), request)
}

/// Requests that a CPU's task has submitted and the devices have not received.
#[derive(Default)]
pub(crate) struct Plug {
    requests: Vec<Request>,
    opened: u64,
}

impl Plug {
    /// Whether it holds nothing back.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Whether it has held a request back for long enough.
    #[inline]
    pub(crate) fn is_due(&self, now: u64) -> bool {
        !self.is_empty() && now >= self.opened + PLUG_TIME
    }

    /// Add a transfer. `Some`: it joined a request (`true`) or became one. `None`: the plug must be emptied first.
    pub(crate) fn add(&mut self, now: u64, io: Io, cpu: usize) -> Option<bool> {
        if self.is_empty() {
            self.opened = now;
        }
        let Some(request) = join_one_of(self.requests.iter_mut().rev(), Request::new(io, cpu)) else {
            return Some(true);
        };
        let full = self.requests.len() >= PLUG_REQUESTS
            || self.requests.last().is_some_and(|last| last.pages >= PLUG_PAGES);
        if full {
            return None;
        }
        self.requests.push(request);
        Some(false)
    }

    /// What it holds back.
    pub(crate) fn requests(&self) -> impl Iterator<Item = &Request> {
        self.requests.iter()
    }

    /// Empty it.
    pub(crate) fn take(&mut self) -> Vec<Request> {
        std::mem::take(&mut self.requests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mm::units::DeviceId;

    fn io(write: bool, block: u64) -> Io {
        Io { device: DeviceId(0), write, block, frame: Pfn(block as u32), pages: 1, continues: false }
    }

    fn blocks(request: &Request) -> Vec<u64> {
        request.parts().map(|io| io.block).collect()
    }

    #[test]
    fn adjacent_requests_join_in_both_directions_and_stay_in_order() {
        let mut plug = Plug::default();
        let joined = [5, 6, 9, 4, 8, 7].map(|block| plug.add(0, io(false, block), 0).unwrap());
        assert_eq!(joined, [false, true, false, true, true, true]);
        let requests = plug.take();
        // 7 joins the first match; two requests that become adjacent do not join.
        assert_eq!(requests.iter().map(blocks).collect::<Vec<_>>(), [vec![4, 5, 6], vec![7, 8, 9]]);
        assert!(plug.is_empty());
    }

    #[test]
    fn reads_and_writes_and_devices_stay_apart() {
        let mut plug = Plug::default();
        let other = Io { device: DeviceId(1), ..io(true, 2) };
        let joined = [io(false, 1), io(true, 2), other, io(true, 3)].map(|io| plug.add(0, io, 0).unwrap());
        assert_eq!(joined, [false, false, false, true]);
    }

    #[test]
    fn a_plug_fills_up_and_grows_old() {
        let mut plug = Plug::default();
        assert!((0..PLUG_REQUESTS as u64).all(|i| plug.add(7, io(false, 2 * i), 0) == Some(false)));
        assert_eq!(plug.add(8, io(false, 1000), 0), None);
        assert_eq!(plug.add(8, io(false, 1), 0), Some(true), "a transfer that joins a request needs no room");
        assert!(!plug.is_due(PLUG_TIME) && plug.is_due(PLUG_TIME + 7));
        plug.take();
        assert!(!plug.is_due(u64::MAX));
        assert!((0..PLUG_PAGES as u64).all(|block| plug.add(0, io(false, block), 0).is_some()));
        assert_eq!(
            plug.add(0, io(false, 1000), 0),
            None,
            "a new request does not fit after one of PLUG_PAGES"
        );
    }

    #[test]
    fn no_request_grows_too_large() {
        let mut plug = Plug::default();
        let joined: Vec<_> =
            (0..REQUEST_PAGES as u64 + 1).map(|block| plug.add(0, io(true, block), 0)).collect();
        assert!(joined[1..REQUEST_PAGES as usize].iter().all(|&joined| joined == Some(true)));
        assert_eq!(joined.last(), Some(&None));
    }

    #[test]
    fn only_the_last_waiting_requests_are_joined() {
        let request = |block: u64| Request::new(io(false, block), 1);
        let mut waiting: VecDeque<Request> = (0..10).map(|i| request(10 * i)).collect();
        assert_eq!(join_waiting(&mut waiting, request(1)), Some(request(1)));
        assert_eq!(join_waiting(&mut waiting, request(21)), None);
        assert_eq!((blocks(&waiting[2]), waiting[2].cpu()), (vec![20, 21], 1));
    }
}
