//! Which thread waited for which: from what each call did, to pairs of a mark and the place that comes after it.
//!
//! All steps of all processes are processed in the order of time. A step counts twice: where its call began, because
//! others can have waited for that, and where it ended, because it can have waited for others. A call is never found
//! to have waited for something that began after its own end, so a replay that keeps these pairs always finishes.
//!
//! - *A futex*: a waiter comes after the last wake of it. A wake of all (a barrier, a broadcast) comes after all
//!   threads that waited then: the last thread to reach a barrier waits for no other, but would be too early without
//!   them.
//! - *A pipe or socket*: the read of a byte comes after its write; a read of the end comes after the writers' last
//!   call. A write to a pipe beyond its room comes after the read that made room.
//! - *A connection* is accepted after it was requested, *a thread* joined after its end.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::raw::{Deed, Step};

/// A thread of the recording: the image that it runs, its stream.
pub(super) type Stream = (u32, u32);

/// A call: its stream and its number there.
type Place = (Stream, u64);

/// Bytes that a pipe holds by default.
const PIPE: u64 = 65536;

/// The marks that others wait for, and the calls that wait for each.
#[derive(Default)]
pub(super) struct Order {
    /// By stream: calls whose marks are waited for, in order.
    marks: HashMap<Stream, Vec<u64>>,
    /// By call: the calls that it waited for until it ended.
    waits: HashMap<Place, Vec<Place>>,
    /// By call: the calls that come before its begin.
    joins: HashMap<Place, Vec<Place>>,
}

impl Order {
    /// Find the order in the steps of all streams; `process_of` has the process of each image.
    pub fn new(steps: &[(Stream, Step)], process_of: &[u32]) -> Order {
        let mut moments: Vec<(u64, bool, usize)> = Vec::with_capacity(2 * steps.len());
        for (at, (_, step)) in steps.iter().enumerate() {
            moments.push((step.begin, false, at));
            if step.end != 0 {
                moments.push((step.end.max(step.begin), true, at));
            }
        }
        moments.sort_unstable();
        let mut state =
            State { process_of, peers: peers(steps, &moments), starts: starts(steps), ..State::default() };
        for (_, ends, at) in moments {
            let (stream, step) = &steps[at];
            if ends { state.end(*stream, step) } else { state.begin(*stream, step) }
        }
        let mut order = Order { waits: state.waits, joins: state.joins, marks: HashMap::new() };
        for &(stream, call) in order.waits.values().chain(order.joins.values()).flatten() {
            order.marks.entry(stream).or_default().push(call);
        }
        for calls in order.marks.values_mut() {
            calls.sort_unstable();
            calls.dedup();
        }
        order
    }

    /// Whether a call waits for the mark of this one.
    pub fn is_awaited(&self, stream: Stream, call: u64) -> bool {
        self.mark(stream, call).is_some()
    }

    /// Number of awaited marks of the stream.
    pub fn marks_of(&self, stream: Stream) -> u64 {
        self.marks.get(&stream).map_or(0, |calls| calls.len() as u64)
    }

    /// What the call waited for until it ended: threads and their marks as numbered in a trace.
    pub fn awaited_by(&self, stream: Stream, call: u64) -> impl Iterator<Item = (Stream, u64)> {
        self.numbered(self.waits.get(&(stream, call)))
    }

    /// What must come before the call begins.
    pub fn joined_by(&self, stream: Stream, call: u64) -> impl Iterator<Item = (Stream, u64)> {
        self.numbered(self.joins.get(&(stream, call)))
    }

    fn numbered<'a>(&'a self, places: Option<&'a Vec<Place>>) -> impl Iterator<Item = (Stream, u64)> + 'a {
        let places = places.into_iter().flatten();
        places.filter_map(|&(stream, call)| Some((stream, self.mark(stream, call)?)))
    }

    fn mark(&self, stream: Stream, call: u64) -> Option<u64> {
        let at = self.marks.get(&stream)?.binary_search(&call).ok()?;
        Some(at as u64 + 1)
    }
}

/// A thing through which tasks wait: common to all processes, or of one image.
type Key = (Option<u32>, u64);

fn key(stream: Stream, step: &Step) -> Key {
    ((!step.common).then_some(stream.0), step.key)
}

/// Pairs of connected sockets.
fn peers(steps: &[(Stream, Step)], moments: &[(u64, bool, usize)]) -> HashMap<u64, u64> {
    let mut peers = HashMap::new();
    let mut asked: HashMap<u64, VecDeque<u64>> = HashMap::new();
    for &(_, ends, at) in moments {
        let step = &steps[at].1;
        let pair = match (step.deed, ends) {
            (Deed::Pair, true) => Some((step.key, step.more)),
            (Deed::Connect, false) => {
                asked.entry(step.key).or_default().push_back(step.more);
                None
            }
            (Deed::Accept, true) => {
                asked.get_mut(&step.key).and_then(VecDeque::pop_front).map(|by| (by, step.more))
            }
            _ => None,
        };
        if let Some((one, other)) = pair {
            peers.insert(one, other);
            peers.insert(other, one);
        }
    }
    peers
}

/// By image and thread number: when threads of that number were started, and the address that each one's end clears.
fn starts(steps: &[(Stream, Step)]) -> HashMap<(u32, u64), Vec<(u64, u64)>> {
    let mut starts: HashMap<(u32, u64), Vec<(u64, u64)>> = HashMap::new();
    for (stream, step) in steps.iter().filter(|(_, step)| step.deed == Deed::Start) {
        starts.entry((stream.0, step.more)).or_default().push((step.begin, step.key));
    }
    starts
}

/// A pipe, or the incoming bytes of one socket.
#[derive(Default)]
struct Channel {
    /// Bytes that were written, and bytes that were read.
    written: u64,
    read: u64,
    /// Writes that are not all read yet, and reads: the last byte of each.
    puts: VecDeque<(u64, Place)>,
    takes: VecDeque<(u64, Place)>,
    /// The writers' last call.
    last: Option<Place>,
    /// Processes that write to it.
    writers: Vec<u32>,
}

/// The call that reached this byte.
fn reached(calls: &VecDeque<(u64, Place)>, byte: u64) -> Option<Place> {
    calls.get(calls.partition_point(|&(end, _)| end < byte)).map(|&(_, by)| by)
}

#[derive(Default)]
struct State<'a> {
    process_of: &'a [u32],
    peers: HashMap<u64, u64>,
    starts: HashMap<(u32, u64), Vec<(u64, u64)>>,
    /// The last wake of a futex.
    wakes: HashMap<Key, (u64, Place)>,
    /// The futex that the waiters of another were moved to.
    moved: HashMap<Key, Key>,
    /// The calls that wait at a futex.
    waiting: HashMap<Key, Vec<Place>>,
    channels: HashMap<u64, Channel>,
    asked: HashMap<u64, VecDeque<Place>>,
    ended: HashMap<(u32, u64), Place>,
    waits: HashMap<Place, Vec<Place>>,
    joins: HashMap<Place, Vec<Place>>,
    /// By waiting and awaited stream: the last call that was waited for. Earlier ones need no pair.
    known: BTreeMap<(Stream, Stream), u64>,
}

impl State<'_> {
    /// The process of a stream.
    fn process(&self, stream: Stream) -> u32 {
        self.process_of.get(stream.0 as usize).copied().unwrap_or(stream.0)
    }

    fn begin(&mut self, stream: Stream, step: &Step) {
        let (place, key) = ((stream, step.call), key(stream, step));
        match step.deed {
            Deed::Wait => self.waiting.entry(key).or_default().push(place),
            Deed::WakeOne | Deed::WakeAll | Deed::Requeue => self.wake(key, step, place),
            Deed::Put => self.put(step.key, step.more, place),
            Deed::Send => {
                if let Some(&peer) = self.peers.get(&step.key) {
                    self.put(peer, step.more, place);
                }
            }
            Deed::Close => {
                let read_at = self.peers.get(&step.key).copied().unwrap_or(step.key);
                let process = self.process(stream);
                let channel = self.channels.entry(read_at).or_default();
                if channel.writers.contains(&process) {
                    channel.last = Some(place);
                }
            }
            Deed::Connect => self.asked.entry(step.key).or_default().push_back(place),
            Deed::End => {
                self.ended.insert((stream.0, step.key), place);
                let starts = self.starts.get(&(stream.0, step.key)).into_iter().flatten();
                if let Some(&(_, at)) = starts.rev().find(|(started, _)| *started <= step.begin) {
                    self.wakes.insert((Some(stream.0), at), (step.begin, place));
                }
            }
            Deed::EndProcess => {
                let process = self.process(stream);
                for channel in self.channels.values_mut().filter(|one| one.writers.contains(&process)) {
                    channel.last = Some(place);
                }
            }
            Deed::Take | Deed::Pair | Deed::Accept | Deed::Start | Deed::Join => {}
        }
    }

    fn wake(&mut self, key: Key, step: &Step, place: Place) {
        self.wakes.insert(key, (step.begin, place));
        match step.deed {
            Deed::Requeue => drop(self.moved.insert(key, (key.0, step.more))),
            Deed::WakeAll if step.more > 0 => {
                for by in self.waiting.get(&key).cloned().unwrap_or_default() {
                    if self.is_news(place, by) {
                        self.joins.entry(place).or_default().push(by);
                    }
                }
            }
            _ => {}
        }
    }

    fn put(&mut self, channel: u64, bytes: u64, place: Place) {
        let process = self.process(place.0);
        let channel = self.channels.entry(channel).or_default();
        channel.written += bytes;
        channel.puts.push_back((channel.written, place));
        channel.last = Some(place);
        if !channel.writers.contains(&process) {
            channel.writers.push(process);
        }
    }

    fn end(&mut self, stream: Stream, step: &Step) {
        let (place, key) = ((stream, step.call), key(stream, step));
        match step.deed {
            Deed::Wait => {
                if let Some(waiting) = self.waiting.get_mut(&key) {
                    waiting.retain(|&other| other != place);
                }
                let moved = self.moved.get(&key).and_then(|to| self.wakes.get(to));
                let last = self.wakes.get(&key).into_iter().chain(moved).max().map(|&(_, by)| by);
                self.after(place, last);
            }
            Deed::Take => self.take(step.key, step.more, place),
            Deed::Put => {
                let room = self.channels.get(&step.key).and_then(|channel| {
                    let end = channel.puts.iter().rev().find(|(_, by)| *by == place)?.0;
                    let needed = end.checked_sub(PIPE).filter(|&needed| needed > 0)?;
                    reached(&channel.takes, needed)
                });
                self.after(place, room);
            }
            Deed::Accept => {
                let by = self.asked.get_mut(&step.key).and_then(VecDeque::pop_front);
                self.after(place, by);
            }
            Deed::Join => {
                let by = self.ended.get(&(stream.0, step.key)).copied();
                self.after(place, by);
            }
            _ => {}
        }
    }

    fn take(&mut self, channel: u64, bytes: u64, place: Place) {
        let Some(channel) = self.channels.get_mut(&channel) else { return };
        let by = if bytes == 0 {
            channel.last
        } else {
            channel.read += bytes;
            let read = channel.read;
            // More is kept than is needed, for writes that have not ended yet.
            channel.takes.push_back((read, place));
            while channel.takes.front().is_some_and(|(end, _)| end + 4 * PIPE < read) {
                channel.takes.pop_front();
            }
            let by = reached(&channel.puts, read);
            while channel.puts.front().is_some_and(|(end, _)| end + 4 * PIPE < read) {
                channel.puts.pop_front();
            }
            by
        };
        self.after(place, by);
    }

    /// Note that the call that ended at `place` waited for what began at `by`.
    fn after(&mut self, place: Place, by: Option<Place>) {
        if let Some(by) = by
            && self.is_news(place, by)
        {
            self.waits.entry(place).or_default().push(by);
        }
    }

    /// Whether `place` is not yet known to come after `by`.
    fn is_news(&mut self, place: Place, by: Place) -> bool {
        if place.0 == by.0 {
            return false;
        }
        let known = self.known.entry((place.0, by.0)).or_default();
        let news = *known < by.1;
        *known = by.1.max(*known);
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Stream = (1, 0);
    const B: Stream = (1, 1);
    const C: Stream = (2, 0);

    fn step(call: u64, deed: Deed, key: u64, more: u64, begin: u64, end: u64) -> Step {
        Step { call, deed, common: matches!(deed, Deed::Put | Deed::Take), key, more, begin, end }
    }

    fn waited(steps: &[(Stream, Step)], stream: Stream, call: u64) -> Vec<(Stream, u64)> {
        Order::new(steps, &[]).awaited_by(stream, call).collect()
    }

    #[test]
    fn a_futex_waiter_comes_after_the_wake_and_a_barrier_after_all_waiters() {
        let steps = [
            (A, step(1, Deed::Wait, 7, 0, 10, 50)),
            (B, step(1, Deed::Wait, 7, 0, 20, 60)),
            (B, step(2, Deed::WakeOne, 8, 1, 90, 95)),
            ((1, 2), step(1, Deed::WakeAll, 7, 2, 40, 55)),
            // The same address in another process.
            (C, step(1, Deed::Wait, 7, 0, 20, 60)),
        ];
        assert_eq!(waited(&steps, A, 1), [((1, 2), 1)]);
        assert_eq!(waited(&steps, B, 1), [((1, 2), 1)]);
        assert_eq!(Order::new(&steps, &[]).joined_by((1, 2), 1).collect::<Vec<_>>(), [(A, 1), (B, 1)]);
        assert_eq!(waited(&steps, C, 1), []);
        assert!(!Order::new(&steps, &[]).is_awaited(B, 2));
    }

    #[test]
    fn a_byte_is_read_after_its_write_and_written_after_room_was_made() {
        let steps = [
            (A, step(1, Deed::Put, 9, 100, 10, 11)),
            (A, step(2, Deed::Put, 9, 100, 12, 13)),
            (C, step(1, Deed::Take, 9, 100, 5, 14)),
            (C, step(2, Deed::Take, 9, 50, 15, 16)),
            (A, step(3, Deed::Put, 9, PIPE, 17, 40)),
            (C, step(3, Deed::Take, 9, 100, 30, 31)),
            (A, step(4, Deed::EndProcess, 0, 0, 41, 0)),
            (C, step(4, Deed::Take, 9, PIPE, 42, 43)),
            (C, step(5, Deed::Take, 9, 0, 44, 45)),
        ];
        assert_eq!(waited(&steps, C, 1), [(A, 1)]);
        assert_eq!(waited(&steps, C, 2), [(A, 2)]);
        // The third write ends at byte 65,736: 200 bytes must have been read, which the third read does.
        assert_eq!(waited(&steps, A, 3), [(C, 1)]);
        // By its end the writer has made four marks, all of them awaited.
        assert_eq!(waited(&steps, C, 5), [(A, 4)]);
    }

    #[test]
    fn calls_wait_for_connected_sockets_and_ended_threads() {
        let common = |stream, step: Step| (stream, Step { common: true, ..step });
        let steps = [
            common(A, step(1, Deed::Connect, 3, 70, 10, 20)),
            common(A, step(2, Deed::Send, 70, 5, 21, 22)),
            common(C, step(1, Deed::Accept, 3, 80, 1, 30)),
            common(C, step(2, Deed::Take, 80, 5, 31, 32)),
            (A, step(3, Deed::Start, 500, 9, 40, 41)),
            (B, step(1, Deed::End, 9, 0, 50, 0)),
            (A, step(4, Deed::Wait, 500, 0, 45, 60)),
            ((1, 2), step(1, Deed::Join, 9, 0, 61, 62)),
        ];
        assert_eq!(waited(&steps, C, 1), [(A, 1)]);
        assert_eq!(waited(&steps, C, 2), [(A, 2)]);
        assert_eq!(waited(&steps, A, 4), [(B, 1)]);
        assert_eq!(waited(&steps, (1, 2), 1), [(B, 1)]);
    }
}
