//! A thread on a CPU of its own that works or rests as its owner says.

use crate::cpus::Pinned;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const REST: u8 = 0;
const WORK: u8 = 1;
const END: u8 = 2;
/// How long a thread may take to begin: another program may have its CPU.
const PATIENCE: Duration = Duration::from_secs(5);

/// The thread. While it rests it sleeps, so its CPU is idle.
pub(crate) struct Helper {
    wanted: Arc<AtomicU8>,
    state: Arc<AtomicU8>,
    thread: Option<JoinHandle<()>>,
}

impl Helper {
    /// Start one that rests. `work` is called again and again while it works.
    pub fn start(cpu: usize, work: impl Fn() + Send + 'static) -> io::Result<Helper> {
        let [wanted, state] = [REST, END].map(|first| Arc::new(AtomicU8::new(first)));
        let (told, own) = (wanted.clone(), state.clone());
        let thread = std::thread::Builder::new().spawn(move || {
            let Ok(_pinned) = Pinned::to(cpu) else { return };
            loop {
                match told.load(SeqCst) {
                    REST => {
                        own.store(REST, SeqCst);
                        std::thread::park();
                    }
                    WORK => {
                        work();
                        own.store(WORK, SeqCst);
                    }
                    _ => return,
                }
            }
        })?;
        let helper = Helper { wanted, state, thread: Some(thread) };
        helper.reach(REST)?;
        Ok(helper)
    }

    /// Have it work, or rest, and wait until it does.
    pub fn work(&self, work: bool) -> io::Result<()> {
        let wanted = if work { WORK } else { REST };
        self.wanted.store(wanted, SeqCst);
        self.wake();
        self.reach(wanted)
    }

    fn wake(&self) {
        self.thread.iter().for_each(|thread| thread.thread().unpark());
    }

    fn reach(&self, state: u8) -> io::Result<()> {
        let start = Instant::now();
        while self.state.load(SeqCst) != state {
            if start.elapsed() > PATIENCE || self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "a thread gets no time on its CPU"));
            }
            std::thread::yield_now();
        }
        Ok(())
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.wanted.store(END, SeqCst);
        self.wake();
        // A thread that panicked has said so.
        self.thread.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn helper_works_only_while_it_is_told_to() {
        let count = Arc::new(AtomicU64::new(0));
        let counted = count.clone();
        let cpu = crate::cpus::allowed().unwrap()[0];
        let count_up = move || {
            counted.fetch_add(1, SeqCst);
        };
        let helper = Helper::start(cpu, count_up).unwrap();
        assert_eq!(count.load(SeqCst), 0);
        helper.work(true).unwrap();
        assert!(count.load(SeqCst) > 0);
        helper.work(false).unwrap();
        let rested = count.load(SeqCst);
        drop(helper);
        assert_eq!(count.load(SeqCst), rested);
    }
}
