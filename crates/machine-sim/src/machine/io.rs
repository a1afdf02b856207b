//! Requests to block devices, from the plug of a CPU to their end.

use super::SimMachine;
use crate::device::{DeviceCounts, Request, Started};
use crate::profile::Sleep;
use crate::sched::{Event, Key};
use crate::spec::Hardware;
use mm::machine::{Io, WaitKey};

/// If a transfer ends while a CPU is stopped with a lock, picoseconds until it ends again.
const RETRY: u64 = 1_000_000;

impl SimMachine {
    /// An event of the scheduler happens. `io_done` tells the memory manager that a transfer has ended; `false`: that
    /// it has failed.
    pub(crate) fn handle(&self, time: u64, event: Event, mut io_done: impl FnMut(&Io, bool)) {
        match event {
            Event::Deadline(task, wait) => self.sched.borrow_mut().deadline(time, task, wait),
            Event::Submit(cpu) => self.arrive(time, cpu),
            Event::Io(..) if self.preempt.as_ref().is_some_and(|preempt| preempt.keeps_locks()) => {
                self.sched.borrow_mut().at(time + RETRY, event);
            }
            Event::Io(device, tag) => {
                let (ended, done) = self.end_io(time, device, tag);
                self.interrupt(ended.cpu(), time, || ended.parts().for_each(|io| io_done(io, done)));
            }
        }
    }

    /// Send the requests in the current CPU's plug to the devices. They arrive when no CPU can send any before them: a
    /// CPU that does much without looking at its limit, like a reclaimer, is far ahead of the others.
    #[inline]
    pub(crate) fn unplug(&self) {
        if !self.this_cpu().plug.borrow().is_empty() {
            self.unplug_all();
        }
    }

    /// The current task is about to wait, and hands its requests over. It works on before it leaves its CPU, and does
    /// not leave it if what it waits for has come by then. `false`: it had no requests.
    pub(super) fn hand_over(&self) -> bool {
        if self.this_cpu().plug.borrow().is_empty() {
            return false;
        }
        self.unplug_all();
        self.spend_hardware(Hardware::IoWait, 1);
        self.yield_if_due();
        true
    }

    #[cold]
    fn unplug_all(&self) {
        let (now, cpu) = (self.clock(), self.this_cpu());
        let requests = cpu.plug.borrow_mut().take();
        cpu.sent.borrow_mut().push_back(requests);
        self.sched.borrow_mut().at(now, Event::Submit(self.current.get()));
        self.limit.set(self.limit.get().min(now));
    }

    /// Requests of a CPU arrive at their devices.
    fn arrive(&self, now: u64, cpu: usize) {
        let requests = self.cpus[cpu].sent.borrow_mut().pop_front();
        let devices_now = self.sched.borrow().devices_time(now);
        for mut request in requests.into_iter().flatten() {
            request.arrive(now);
            let device = request.device();
            let started = self.devices.borrow_mut()[device].submit(devices_now, request);
            self.expect_end(device, started);
        }
    }

    /// What a task that sleeps on `key` sleeps on, in a profile's terms: for a frame, the transfer that uses it.
    pub(super) fn sleep_on(&self, key: Key) -> Sleep {
        let Key::Mm(WaitKey::Frame(pfn)) = key else { return Sleep::on(key) };
        let devices = self.devices.borrow();
        let mut found = devices.iter().find_map(|device| device.transfer_of(pfn));
        for cpu in self.cpus.iter() {
            let of = |request: &Request| request.transfer_of(pfn);
            found = found.or_else(|| cpu.sent.borrow().iter().flatten().find_map(of));
            found = found.or_else(|| cpu.plug.borrow().requests().find_map(of));
        }
        found.map_or(Sleep::on(key), |io| Sleep::Device { device: io.device.0, write: io.write })
    }

    /// Whether a read or write has failed so far.
    pub(crate) fn has_failed(&self, write: bool) -> bool {
        let failed = |counts: &DeviceCounts| if write { counts.failed_writes } else { counts.failed_reads };
        self.devices.borrow().iter().any(|device| failed(&device.counts) > 0)
    }

    /// Schedule the end of a request that has started, by the devices' time.
    fn expect_end(&self, device: usize, started: Option<Started>) {
        let Some(Started { tag, done }) = started else { return };
        self.sched.borrow_mut().at_devices_time(done, Event::Io(device, tag));
    }

    /// A device ends a request at `now`. Returns the request, and whether it was done.
    fn end_io(&self, now: u64, device: usize, tag: u32) -> (Request, bool) {
        let devices_now = self.sched.borrow().devices_time(now);
        let (ended, next) = self.devices.borrow_mut()[device].end(devices_now, tag);
        let done = !self.devices.borrow_mut()[device].note_end(now, &ended);
        self.expect_end(device, next);
        self.observers.transferred(now, ended.parts(), done);
        (ended, done)
    }
}
