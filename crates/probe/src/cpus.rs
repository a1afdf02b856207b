//! CPUs that this process may use, and threads that stay on one.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io;

/// The numbers of the CPUs that this thread may run on, ascending.
pub fn allowed() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// Keeps this thread on one CPU, until it is dropped.
pub struct Pinned {
    before: CpuSet,
}

impl Pinned {
    /// Move this thread to a CPU.
    pub fn to(cpu: usize) -> io::Result<Pinned> {
        let before = sched_getaffinity(None)?;
        let mut set = CpuSet::new();
        set.set(cpu);
        sched_setaffinity(None, &set)?;
        Ok(Pinned { before })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // A thread that cannot leave its CPU is slower, not wrong.
        let _ = sched_setaffinity(None, &self.before);
    }
}

/// The CPUs of a list as Linux prints it: `0-3,8`.
pub(crate) fn listed(text: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse::<usize>().ok()?..=last.trim().parse::<usize>().ok()?)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_stays_on_its_cpu_while_it_is_pinned() {
        let before = allowed().unwrap();
        let pinned = Pinned::to(before[0]).unwrap();
        assert_eq!(allowed().unwrap(), before[..1]);
        drop(pinned);
        assert_eq!(allowed().unwrap(), before);
    }

    #[test]
    fn lists_of_cpus_have_ranges() {
        assert_eq!(listed("0-2,8\n"), [0, 1, 2, 8]);
        assert_eq!(listed("5"), [5]);
        assert_eq!(listed("\n"), [0usize; 0]);
    }
}
