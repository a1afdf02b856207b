//! Following the progress of a recording, and ending it.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::codec::varint;
use crate::raw::{HEAD, Image, kind, parse_head};

/// The first and the longest nap between two looks: short programs should not wait for the recorder.
const NAPS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(100));
/// How long a program may take to end after it was asked to.
const PATIENCE: Duration = Duration::from_secs(5);

/// The progress of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Accesses that have been written out.
    pub accesses: u64,
    /// Instructions of the program that have been written out.
    pub instructions: u64,
    /// CPU time in nanoseconds that the program's processes took for that under the emulator.
    pub cpu_nanos: u64,
    /// Processes so far.
    pub processes: usize,
    /// Bytes of the raw recording, which is larger than the trace will be.
    pub bytes: u64,
}

pub(super) struct Watch {
    raw: PathBuf,
    plugin: PathBuf,
    /// By image: the bytes of its file that were looked at.
    seen: HashMap<Image, u64>,
    /// Accesses, instructions, nanoseconds of CPU time.
    sums: [u64; 3],
    nap: Duration,
}

impl Watch {
    pub fn new(raw: &Path, plugin: &Path) -> Watch {
        Watch {
            raw: raw.to_owned(),
            plugin: plugin.to_owned(),
            seen: HashMap::new(),
            sums: [0; 3],
            nap: NAPS.0,
        }
    }

    /// Wait a little.
    pub fn nap(&mut self) {
        std::thread::sleep(self.nap);
        self.nap = (self.nap * 2).min(NAPS.1);
    }

    /// Look how far the recording is.
    pub fn look(&mut self) -> Progress {
        for image in self.images() {
            // A file that cannot be read now is read later, or by the conversion, which reports the error.
            if let Ok(file) = File::open(self.raw.join(image.file_name())) {
                let seen = self.seen.entry(image).or_default();
                let _ = tally(&file, seen, &mut self.sums);
            }
        }
        let [accesses, instructions, cpu_nanos] = self.sums;
        let processes: HashSet<u32> = self.seen.keys().map(|image| image.pid).collect();
        let (processes, bytes) = (processes.len(), self.seen.values().sum());
        Progress { accesses, instructions, cpu_nanos, processes, bytes }
    }

    /// All images that have written something.
    fn images(&self) -> Vec<Image> {
        let entries = fs::read_dir(&self.raw).into_iter().flatten().flatten();
        entries.filter_map(|entry| Image::of_file(entry.file_name().to_str()?)).collect()
    }

    /// The running ones. A number may have been given to another process meanwhile, which has not loaded the plugin.
    fn running(&self) -> Vec<Pid> {
        let plugin = self.plugin.to_string_lossy();
        let ours = |pid: u32| {
            let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
            maps.contains(&*plugin).then(|| Pid::from_raw(pid as i32)).flatten()
        };
        let processes: HashSet<u32> = self.images().into_iter().map(|image| image.pid).collect();
        processes.into_iter().filter_map(ours).collect()
    }

    /// End all processes: ask them first, then kill them.
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
                    // It may have ended just now, which is the aim.
                    let _ = kill_process(pid, if insist { Signal::KILL } else { Signal::TERM });
                    asked.push(pid);
                }
            }
            std::thread::sleep(NAPS.1);
        }
    }
}

/// Add the tallies of whole chunks from `seen` on.
fn tally(file: &File, seen: &mut u64, sums: &mut [u64; 3]) -> std::io::Result<()> {
    let end = file.metadata()?.len();
    while *seen + HEAD as u64 <= end {
        let mut head = [0; HEAD];
        file.read_exact_at(&mut head, *seen)?;
        let (kind, _, length) = parse_head(&head);
        let body = *seen + HEAD as u64;
        if body + length as u64 > end {
            break;
        }
        *seen = body + length as u64;
        if kind == kind::TALLY && length <= 30 {
            let (mut bytes, mut at) = ([0; 30], 0);
            file.read_exact_at(&mut bytes[..length], body)?;
            for sum in sums.iter_mut() {
                let number = varint(&bytes[..length], &mut at);
                *sum += number.map_err(|_| std::io::Error::from(ErrorKind::InvalidData))?;
            }
        }
    }
    Ok(())
}
