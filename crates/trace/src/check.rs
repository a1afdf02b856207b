//! Checks that a trace's events match its header.
//!
//! The header's counts are shown to users and divide a trace into windows. During a replay threads wait for its
//! address-space changes, so a missing change would be waited for without end; a thread that is started twice would
//! start others twice, and so on. A caller that reads all events of a trace passes them to a [`Check`], in any order
//! of threads.

use crate::event::{Event, ThreadId};
use crate::header::{Counts, Header};
use abi::Call;

/// Counts what a header has counted.
pub(crate) struct Check {
    /// By thread: its process, and what it did.
    threads: Vec<(usize, Counts)>,
    /// By process.
    changes: Vec<Changes>,
    /// By thread: whether it was started.
    started: Vec<bool>,
    /// By thread: the marks that it comes to, and the last one that is waited for.
    marks: Vec<(u64, u64)>,
}

/// Which of the changes 1 to some number were met, a bit for each. A header says no more changes than there are events.
struct Changes {
    met: Vec<u64>,
    missing: u64,
}

impl Changes {
    fn new(last: u64) -> Changes {
        Changes { met: vec![0; last.div_ceil(64) as usize], missing: last }
    }

    /// Note a change. Returns whether it is new. Changes after the last are ignored.
    fn note(&mut self, change: u64, last: u64) -> bool {
        if change == 0 || change > last {
            return true;
        }
        let (word, bit) = ((change - 1) / 64, 1 << ((change - 1) % 64));
        let word = &mut self.met[word as usize];
        let new = *word & bit == 0;
        *word |= bit;
        self.missing -= u64::from(new);
        new
    }
}

impl Check {
    pub fn new(header: &Header) -> Check {
        Check {
            threads: header
                .threads
                .iter()
                .map(|thread| (thread.process as usize, Counts::default()))
                .collect(),
            changes: header.processes.iter().map(|process| Changes::new(process.epochs)).collect(),
            // The first thread is there from the beginning.
            started: (0..header.threads.len()).map(|thread| thread == 0).collect(),
            marks: vec![(0, 0); header.threads.len()],
        }
    }

    /// An event of a thread.
    #[inline]
    pub fn note(&mut self, header: &Header, thread: ThreadId, event: &Event) -> Result<(), &'static str> {
        let (process, counts) = &mut self.threads[thread.0 as usize];
        counts.note(event);
        match event {
            Event::Run(_) => Ok(()),
            Event::Mark => {
                self.marks[thread.0 as usize].0 += 1;
                Ok(())
            }
            Event::After { thread, mark } => match self.marks.get_mut(thread.0 as usize) {
                Some((_, awaited)) => {
                    *awaited = (*awaited).max(*mark);
                    Ok(())
                }
                None => Err("a thread waits for one that is not there"),
            },
            _ if !event.possible() => Err("an event says what no call can have done"),
            _ if event.file().is_some_and(|file| file.0 as usize >= header.files.len()) => {
                Err("an event names a file that is not there")
            }
            _ => match event.epoch() {
                Some(change) if !self.changes[*process].note(change, header.processes[*process].epochs) => {
                    Err("a change of an address space is there twice")
                }
                _ => self.start(header, thread, event),
            },
        }
    }

    /// A thread is started once: by its own process, or as the first of another.
    fn start(&mut self, header: &Header, by: ThreadId, event: &Event) -> Result<(), &'static str> {
        let Some(thread) = event.starts() else { return Ok(()) };
        let spawned = matches!(event, Event::Call { call: Call::Spawn(_), .. });
        let process = |thread: ThreadId| self.threads.get(thread.0 as usize).map(|(process, _)| *process);
        let fits = match (spawned, process(thread)) {
            (true, its) => its == process(by),
            (_, Some(its)) => its != 0 && header.processes[its].first_thread == thread,
            (_, None) => false,
        };
        match fits && !std::mem::replace(&mut self.started[thread.0 as usize], true) {
            true => Ok(()),
            false => Err("a thread is started twice, or by whom it does not belong to"),
        }
    }

    /// That was all.
    pub fn finish(&self, header: &Header) -> Result<(), &'static str> {
        if !self.threads.iter().zip(&header.threads).all(|((_, counts), thread)| *counts == thread.counts) {
            return Err("a thread has not done what its header says");
        }
        if !self.marks.iter().all(|(marks, awaited)| awaited <= marks) {
            return Err("a thread waits for a mark that never comes");
        }
        match self.changes.iter().all(|changes| changes.missing == 0) {
            true => Ok(()),
            false => Err("changes of an address space are missing that its header promises"),
        }
    }
}
