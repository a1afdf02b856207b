//! Switching to another task on the same CPU: two threads pass a byte through pipes.

use crate::clock::{nanos, shortest};
use crate::cpus::Pinned;
use rustix::fd::OwnedFd;
use rustix::io::{read, write};
use rustix::pipe::{PipeFlags, pipe_with};
use std::io;
use std::thread::JoinHandle;

/// Bytes there and back that are timed together.
const BYTES: u32 = 50;

/// Two threads of one CPU, and pipes between them.
pub struct Switching {
    there: Option<OwnedFd>,
    back: OwnedFd,
    own: (OwnedFd, OwnedFd),
    thread: Option<JoinHandle<()>>,
}

impl Switching {
    /// Start the other thread, on the caller's CPU.
    ///
    /// # Errors
    /// There are no pipes.
    pub fn new(cpu: usize) -> io::Result<Switching> {
        let pipe = || pipe_with(PipeFlags::CLOEXEC);
        let ((at, there), (back, answer), own) = (pipe()?, pipe()?, pipe()?);
        let thread = std::thread::Builder::new().spawn(move || {
            // Elsewhere it would not switch: the pipes close, and the caller's write fails.
            let Ok(_pinned) = Pinned::to(cpu) else { return };
            let mut byte = [0];
            // The pipe ends when its other end is dropped.
            while read(&at, &mut byte).is_ok_and(|count| count > 0) && write(&answer, &byte).is_ok() {}
        })?;
        Ok(Switching { there: Some(there), back, own, thread: Some(thread) })
    }

    /// Nanoseconds of one switch: half of a byte's way there and back, less the same calls without another thread.
    ///
    /// # Errors
    /// A call failed.
    pub fn round(&mut self) -> io::Result<f64> {
        let there = self.there.as_ref().ok_or(io::ErrorKind::BrokenPipe)?;
        let with = shortest(|| exchange(there, &self.back, BYTES))?;
        let calls = shortest(|| exchange(&self.own.1, &self.own.0, 2 * BYTES))?;
        Ok((with - calls) / f64::from(2 * BYTES))
    }
}

/// Nanoseconds of writing a byte and reading one, `count` times.
fn exchange(to: &OwnedFd, from: &OwnedFd, count: u32) -> io::Result<f64> {
    let mut result = Ok(());
    let time = nanos(|| {
        let mut byte = [0];
        for _ in 0..count {
            result = write(to, &byte).and_then(|_| read(from, &mut byte)).map(drop);
            if result.is_err() {
                return;
            }
        }
    });
    result?;
    Ok(time)
}

impl Drop for Switching {
    fn drop(&mut self) {
        self.there = None;
        // A thread that panicked has said so.
        self.thread.take().map(JoinHandle::join);
    }
}
