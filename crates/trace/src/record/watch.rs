//! Looking at a recording while it is made, and ending it.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::codec::varint;
use crate::raw::{self, HEAD, kind};

/// The first nap between two looks, and the longest: short programs should not wait for us.
const NAPS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(100));
/// How long a program may take to end when it is asked to.
const PATIENCE: Duration = Duration::from_secs(5);

/// How far a recording is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Accesses that have been written out.
    pub accesses: u64,
    /// Processes so far.
    pub processes: usize,
    /// Bytes of the raw recording, which is larger than the trace will be.
    pub bytes: u64,
}

pub(super) struct Watch {
    raw: PathBuf,
    plugin: PathBuf,
    /// By process: how much of its file was looked at.
    seen: HashMap<u32, u64>,
    accesses: u64,
    nap: Duration,
}

impl Watch {
    pub fn new(raw: &Path, plugin: &Path) -> Watch {
        Watch {
            raw: raw.to_owned(),
            plugin: plugin.to_owned(),
            seen: HashMap::new(),
            accesses: 0,
            nap: NAPS.0,
        }
    }

    /// Wait a little.
    pub fn nap(&mut self) {
        std::thread::sleep(self.nap);
        self.nap = (self.nap * 2).min(NAPS.1);
    }

    /// How far is it?
    pub fn look(&mut self) -> Progress {
        for pid in self.processes() {
            // What cannot be read now is read later, or by who converts it, who can say what is wrong.
            if let Ok(file) = File::open(self.raw.join(raw::file_name(pid))) {
                let seen = self.seen.entry(pid).or_default();
                self.accesses += tally(&file, seen).unwrap_or(0);
            }
        }
        Progress { accesses: self.accesses, processes: self.seen.len(), bytes: self.seen.values().sum() }
    }

    /// All processes that have written something.
    fn processes(&self) -> Vec<u32> {
        let entries = fs::read_dir(&self.raw).into_iter().flatten().flatten();
        entries.filter_map(|entry| raw::pid_of(entry.file_name().to_str()?)).collect()
    }

    /// Those of them that run. A number can have been given to another process meanwhile, which has not loaded our
    /// plugin.
    fn running(&self) -> Vec<Pid> {
        let plugin = self.plugin.to_string_lossy();
        let ours = |pid: u32| {
            let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
            maps.contains(&*plugin).then(|| Pid::from_raw(pid as i32)).flatten()
        };
        self.processes().into_iter().filter_map(ours).collect()
    }

    /// Make all processes end: they are asked first.
    pub fn end_all(&self) {
        let begun = Instant::now();
        let mut asked: Vec<Pid> = Vec::new();
        loop {
            let running = self.running();
            if running.is_empty() {
                return;
            }
            let insist = begun.elapsed() > PATIENCE;
            for pid in running {
                if insist || !asked.contains(&pid) {
                    // It may have ended just now, which is what is wanted.
                    let _ = kill_process(pid, if insist { Signal::KILL } else { Signal::TERM });
                    asked.push(pid);
                }
            }
            std::thread::sleep(NAPS.1);
        }
    }
}

/// The accesses that whole chunks from `seen` on tell of.
fn tally(file: &File, seen: &mut u64) -> std::io::Result<u64> {
    let end = file.metadata()?.len();
    let mut accesses = 0;
    while *seen + HEAD as u64 <= end {
        let mut head = [0; HEAD];
        file.read_exact_at(&mut head, *seen)?;
        let (kind, _, length) = raw::parse_head(&head);
        let body = *seen + HEAD as u64;
        if body + length as u64 > end {
            break;
        }
        if kind == kind::TALLY && length <= 10 {
            let mut bytes = [0; 10];
            file.read_exact_at(&mut bytes[..length], body)?;
            let count = varint(&bytes[..length], &mut 0);
            accesses += count.map_err(|_| std::io::Error::from(ErrorKind::InvalidData))?;
        }
        *seen = body + length as u64;
    }
    Ok(accesses)
}
