//! A run as a trace for Perfetto (ui.perfetto.dev): what ran on each CPU, what the memory manager did for each task,
//! flushes from sender to receivers, transfers, levels and counters.
//!
//! The parts that Perfetto knows from Linux are written as Linux's would be, so that its user interface and published
//! queries take them: switches and tracepoints as ftrace events, `/proc/meminfo` and `/proc/vmstat` as `SysStats`, the
//! sizes of processes as `ProcessStats`. Scopes, flushes and transfers are track events. The numbers of fields are from
//! Perfetto's own descriptions (`protos/perfetto/trace`). docs/perfetto.md shows what to ask.

mod levels;
mod message;
#[cfg(test)]
mod tests;

use levels::Written;
use machine_sim::{Happening, Moment, NewTask, Stop, Timeline};
use message::Message;
use mm::event::Event;
use mm::machine::{CpuSet, Io};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

/// Fields of a `TracePacket`.
mod packet {
    pub(super) const FTRACE_EVENTS: u32 = 1;
    pub(super) const PROCESS_TREE: u32 = 2;
    pub(super) const TIMESTAMP: u32 = 8;
    pub(super) const SEQUENCE: u32 = 10;
    pub(super) const TRACK_EVENT: u32 = 11;
    pub(super) const INTERNED_DATA: u32 = 12;
    pub(super) const SEQUENCE_FLAGS: u32 = 13;
    pub(super) const TRACK_DESCRIPTOR: u32 = 60;
}

/// Fields of a `TrackEvent`.
mod track {
    pub(super) const TYPE: u32 = 9;
    pub(super) const NAME: u32 = 10;
    pub(super) const UUID: u32 = 11;
    pub(super) const ANNOTATION: u32 = 4;
    pub(super) const FLOWS: u32 = 47;
    pub(super) const ENDING_FLOWS: u32 = 48;
}

/// What Linux's `compact_result` has for each outcome of a compaction: skipped, deferred, continue, complete, partial
/// skipped, contended, success (`include/linux/compaction.h` of 6.12).
const COMPACT_RESULTS: [u64; 7] = [1, 2, 4, 5, 6, 7, 8];

/// What a track event does.
#[derive(Clone, Copy)]
enum Kind {
    Begin = 1,
    End = 2,
    Instant = 3,
}

/// The number of the only sequence of track events.
const SEQUENCE: u64 = 1;
/// Names that were written before are referred to by numbers.
const NEEDS_STATE: u64 = 2;
/// This packet begins the sequence.
const BEGINS_STATE: u64 = 1;

/// A row of the user interface.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Track {
    /// That of the thread with this number in the trace.
    Thread(u64),
    /// Interrupts of a CPU.
    Interrupts(u32),
    /// Transfers of a device. Transfers of which one begins before the other ends are in different lanes.
    Device { device: u8, lane: usize },
}

impl Track {
    fn uuid(self) -> u64 {
        match self {
            Track::Thread(tid) => 1 << 32 | tid,
            Track::Interrupts(cpu) => 2 << 32 | u64::from(cpu),
            Track::Device { device, lane } => 3 << 32 | u64::from(device) << 24 | lane as u64,
        }
    }
}

/// A thread of the trace. Number 0 is the idle task of all CPUs.
struct Thread {
    /// The number of its process's first thread.
    pid: u64,
    name: String,
}

/// What runs on a CPU.
#[derive(Clone, Copy)]
struct Running {
    tid: u64,
    /// How it stopped last.
    stop: Stop,
}

/// The idle task.
const IDLE: Running = Running { tid: 0, stop: Stop::Preempted };

/// Writes a trace while a run goes on. What is kept in memory does not grow with time.
pub struct Perfetto<W> {
    out: W,
    /// The first error; nothing is written after it.
    error: Option<io::Error>,
    message: Message,
    program: String,
    devices: Vec<String>,
    /// By number in the trace.
    threads: BTreeMap<u64, Thread>,
    /// The first thread of each process.
    leaders: BTreeMap<u32, u64>,
    /// The first thread of the process that each space belongs to.
    spaces: BTreeMap<u64, u64>,
    /// By CPU.
    running: Vec<Running>,
    names: BTreeMap<&'static str, u64>,
    described: BTreeSet<Track>,
    /// When the last transfer in each lane of each device has ended.
    lanes: BTreeMap<u8, Vec<u64>>,
    written: Written,
}

/// A task's number in the trace.
fn tid(task: u32) -> u64 {
    u64::from(task) + 1
}

impl<W: Write> Perfetto<W> {
    /// A trace of `program` on a machine with these devices.
    pub fn new(out: W, program: &str, devices: Vec<String>) -> Perfetto<W> {
        let idle = Thread { pid: 0, name: "swapper".into() };
        let mut perfetto = Perfetto {
            out,
            error: None,
            message: Message::default(),
            program: program.to_owned(),
            devices,
            lanes: BTreeMap::new(),
            threads: BTreeMap::from([(0, idle)]),
            leaders: BTreeMap::new(),
            spaces: BTreeMap::new(),
            running: Vec::new(),
            names: BTreeMap::new(),
            described: BTreeSet::new(),
            written: Written::default(),
        };
        perfetto.packet(0, |packet| packet.number(packet::SEQUENCE_FLAGS, BEGINS_STATE));
        perfetto
    }

    /// Write what is left. Nothing can be written after it.
    pub fn finish(&mut self) -> io::Result<()> {
        let end = io::Error::other("the trace has ended");
        match self.error.replace(end) {
            Some(error) => Err(error),
            None => self.out.flush(),
        }
    }

    /// Write a packet.
    fn packet(&mut self, picos: u64, write: impl FnOnce(&mut Message)) {
        const PACKET: u32 = 1;
        if self.error.is_some() {
            return;
        }
        self.message.message(PACKET, |packet| {
            packet.number(packet::TIMESTAMP, picos / 1000);
            packet.number(packet::SEQUENCE, SEQUENCE);
            write(packet);
        });
        self.error = self.message.take(|bytes| self.out.write_all(bytes)).err();
    }

    /// A task exists from now on.
    fn begin(&mut self, at: Moment, task: u32, new: NewTask) {
        let tid = tid(task);
        let (pid, name, process) = match new {
            NewTask::Program { process, space, role } => {
                let pid = *self.leaders.entry(process).or_insert(tid);
                self.spaces.insert(space.into(), pid);
                (pid, format!("{}:{role}", self.program), self.program.clone())
            }
            NewTask::Kernel(name) => (tid, name.clone(), name),
        };
        self.packet(at.picos, |packet| {
            packet.message(packet::PROCESS_TREE, |tree| {
                if pid == tid {
                    tree.message(1, |fields| {
                        fields.number(1, pid);
                        fields.text(3, &process);
                    });
                }
                tree.message(2, |thread| {
                    thread.number(1, tid);
                    thread.text(2, &name);
                    thread.number(3, pid);
                });
            });
        });
        self.threads.insert(tid, Thread { pid, name });
    }

    /// Another task runs on a CPU from now on.
    fn switch(&mut self, at: Moment, next: u64) {
        let cpu = at.cpu as usize;
        if self.running.len() <= cpu {
            self.running.resize(cpu + 1, IDLE);
        }
        let before = std::mem::replace(&mut self.running[cpu], Running { tid: next, stop: Stop::Preempted });
        if before.tid == next {
            return;
        }
        const SCHED_SWITCH: u32 = 4;
        // TASK_RUNNING, TASK_INTERRUPTIBLE, EXIT_DEAD.
        let state = match before.stop {
            Stop::Preempted => 0,
            Stop::Sleeps => 1,
            Stop::Ends => 16,
        };
        let names = [before.tid, next].map(|tid| self.threads[&tid].name.clone());
        self.ftrace(at, before.tid, SCHED_SWITCH, |switch| {
            switch.text(1, &names[0]);
            switch.number(2, before.tid);
            switch.number(4, state);
            switch.text(5, &names[1]);
            switch.number(6, next);
        });
    }

    /// Write an event that Linux would write while thread `tid` runs.
    fn ftrace(&mut self, at: Moment, tid: u64, field: u32, write: impl FnOnce(&mut Message)) {
        self.packet(at.picos, |packet| {
            packet.message(packet::FTRACE_EVENTS, |bundle| {
                bundle.number(1, u64::from(at.cpu));
                bundle.message(2, |event| {
                    event.number(1, at.picos / 1000);
                    event.number(2, tid);
                    event.message(field, write);
                });
            });
        });
    }

    /// A tracepoint of the memory manager, if Perfetto knows it.
    fn event(&mut self, at: Moment, event: Event, args: [u64; 4]) {
        let [a, b, c, d] = args;
        let (field, values): (u32, &[(u32, u64)]) = match event {
            Event::MmVmscanDirectReclaimBegin => (46, &[(1, a)]),
            Event::MmVmscanDirectReclaimEnd => (47, &[(1, a)]),
            Event::MmVmscanKswapdWake => (48, &[(1, a), (2, b)]),
            Event::MmVmscanKswapdSleep => (49, &[(1, a)]),
            Event::MmCompactionBegin => (99, &[(2, c), (3, d)]),
            Event::MmCompactionEnd => (103, &[(2, b), (3, c), (6, COMPACT_RESULTS[d as usize])]),
            Event::MmCompactionKcompactdWake => (108, &[(1, a), (2, b), (4, c)]),
            Event::MmCompactionMigratepages => (109, &[(1, b), (2, c)]),
            Event::MmCompactionWakeupKcompactd => (112, &[(1, a), (2, b), (4, c)]),
            Event::MarkVictim => (334, &[(1, self.spaces.get(&a).copied().unwrap_or(0))]),
            Event::MmVmscanMemcgReclaimBegin => (607, &[]),
            Event::MmVmscanMemcgReclaimEnd => (608, &[(1, a)]),
            _ => return,
        };
        let running = self.running.get(at.cpu as usize).map_or(0, |running| running.tid);
        let tid = at.task.map_or(running, tid);
        self.ftrace(at, tid, field, |fields| {
            values.iter().for_each(|&(field, value)| fields.number(field, value));
        });
    }

    /// The track of what happens.
    fn track(&self, at: Moment) -> Track {
        at.task.map_or(Track::Interrupts(at.cpu), |task| Track::Thread(tid(task)))
    }

    /// Write an event of a track. `more`: fields besides its track, its type and its name.
    fn track_event(
        &mut self,
        picos: u64,
        (track, kind): (Track, Kind),
        name: Option<&'static str>,
        more: impl FnOnce(&mut Message),
    ) {
        self.describe(picos, track);
        let next = self.names.len() as u64 + 1;
        let number = name.map(|name| *self.names.entry(name).or_insert(next));
        self.packet(picos, |packet| {
            packet.number(packet::SEQUENCE_FLAGS, NEEDS_STATE);
            if let (Some(name), Some(number)) = (name, number)
                && number == next
            {
                packet.message(packet::INTERNED_DATA, |data| {
                    data.message(2, |entry| {
                        entry.number(1, number);
                        entry.text(2, name);
                    });
                });
            }
            packet.message(packet::TRACK_EVENT, |event| {
                event.number(track::TYPE, kind as u64);
                event.number(track::UUID, track.uuid());
                number.iter().for_each(|&number| event.number(track::NAME, number));
                more(event);
            });
        });
    }

    /// Write what a track is, once.
    fn describe(&mut self, picos: u64, track: Track) {
        if !self.described.insert(track) {
            return;
        }
        let name = match track {
            Track::Thread(tid) => {
                let Thread { pid, name } = &self.threads[&tid];
                let (pid, name) = (*pid, name.clone());
                return self.packet(picos, |packet| {
                    packet.message(packet::TRACK_DESCRIPTOR, |descriptor| {
                        descriptor.number(1, track.uuid());
                        descriptor.message(4, |thread| {
                            thread.number(1, pid);
                            thread.number(2, tid);
                            thread.text(5, &name);
                        });
                    });
                });
            }
            Track::Interrupts(cpu) => format!("CPU {cpu} interrupts"),
            Track::Device { device, .. } => {
                let name = self.devices.get(usize::from(device));
                name.cloned().unwrap_or_else(|| format!("device {device}"))
            }
        };
        self.packet(picos, |packet| {
            packet.message(packet::TRACK_DESCRIPTOR, |descriptor| {
                descriptor.number(1, track.uuid());
                descriptor.text(2, &name);
            });
        });
    }

    /// A CPU asks others to flush: an arrow leads to each of them.
    fn ask(&mut self, at: Moment, round: u64, targets: &CpuSet) {
        let track = (self.track(at), Kind::Instant);
        self.track_event(at.picos, track, Some("tlb_shootdown"), |event| {
            targets.iter().for_each(|target| event.fixed(track::FLOWS, flow(round, target.index() as u32)));
        });
    }

    /// A CPU begins to flush because another asked.
    fn receive(&mut self, at: Moment, round: u64) {
        let track = (Track::Interrupts(at.cpu), Kind::Begin);
        self.track_event(at.picos, track, Some("tlb_shootdown"), |event| {
            event.fixed(track::ENDING_FLOWS, flow(round, at.cpu));
        });
    }

    /// A device has done a transfer: draw it, in the first lane that was free.
    fn transfer(&mut self, end: u64, io: &Io, since: u64, done: bool) {
        let lanes = self.lanes.entry(io.device.0).or_default();
        let lane = lanes.iter().position(|&free| free <= since).unwrap_or(lanes.len());
        match lanes.get_mut(lane) {
            Some(free) => *free = end,
            None => lanes.push(end),
        }
        let name = match (io.write, done) {
            (false, true) => "read",
            (true, true) => "write",
            (false, false) => "read (failed)",
            (true, false) => "write (failed)",
        };
        let track = Track::Device { device: io.device.0, lane };
        self.track_event(since, (track, Kind::Begin), Some(name), |event| {
            annotate(event, "block", io.block);
            annotate(event, "pages", io.pages.into());
        });
        self.track_event(end, (track, Kind::End), None, |_| {});
    }
}

/// The number of the arrow from the sender of a round to a receiver.
fn flow(round: u64, receiver: u32) -> u64 {
    round << 16 | u64::from(receiver)
}

/// Give a track event an argument.
fn annotate(event: &mut Message, name: &str, value: u64) {
    event.message(track::ANNOTATION, |annotation| {
        annotation.text(10, name);
        annotation.number(3, value);
    });
}

impl<W: Write + Send> Timeline for Perfetto<W> {
    fn happens(&mut self, at: Moment, what: Happening<'_>) {
        let here = self.track(at);
        match what {
            Happening::Begins(task, new) => self.begin(at, task, new),
            Happening::Runs => self.switch(at, at.task.map_or(0, tid)),
            Happening::Idles => self.switch(at, 0),
            Happening::Stops(stop) => {
                if let Some(running) = self.running.get_mut(at.cpu as usize) {
                    running.stop = stop;
                }
            }
            Happening::Enters(scope) => {
                self.track_event(at.picos, (here, Kind::Begin), Some(scope.name()), |_| {});
            }
            Happening::Leaves(_) | Happening::Answers => {
                self.track_event(at.picos, (here, Kind::End), None, |_| {});
            }
            Happening::Event(event, args) => self.event(at, event, args),
            Happening::Asks(round, targets) => self.ask(at, round, targets),
            Happening::Receives(round) => self.receive(at, round),
            // It does not watch these.
            Happening::Uses { .. } => {}
            Happening::Transfers { io, since, done } => self.transfer(at.picos, io, since, done),
            Happening::Shows(levels) => {
                let mut written = std::mem::take(&mut self.written);
                self.packet(at.picos, |packet| written.system(&levels, packet));
                let leaders = std::mem::take(&mut self.leaders);
                self.packet(at.picos, |packet| {
                    written.processes(levels.processes, |process| leaders[&process], packet);
                });
                (self.leaders, self.written) = (leaders, written);
            }
        }
    }
}
