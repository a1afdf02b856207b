//! Sampled reads of memory, as hardware does it (PEBS): of every `every` lines that a CPU reads, one records its frame.
//!
//! A record takes time of the CPU. It goes into the CPU's buffer, and when that is half full, its reader is woken;
//! records that find the buffer full are lost. As everything that is charged for memory, only reads after a TLB miss
//! are seen.

use mm::units::Pfn;
use std::cell::{Cell, RefCell};

/// Records of a CPU's buffer: 32 pages with records of 40 bytes, as MEMTIS has them.
const BUFFER: usize = 32 * 4096 / 40;

/// Sampling on all CPUs.
#[derive(Default)]
pub(crate) struct Sampler {
    /// One line in this many is sampled; 0: none.
    every: Cell<u64>,
    /// By CPU, lines until the next sample.
    left: Vec<Cell<u64>>,
    buffers: Vec<RefCell<Vec<Pfn>>>,
    lost: Cell<u64>,
}

impl Sampler {
    pub(super) fn new(cpus: usize) -> Sampler {
        let zeroes = || (0..cpus).map(|_| Cell::new(0));
        Sampler { left: zeroes().collect(), buffers: vec![RefCell::default(); cpus], ..Sampler::default() }
    }

    /// Whether it samples.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.every.get() != 0
    }

    pub(super) fn start(&self, every: u64) {
        self.every.set(every);
        // CPUs must not sample all at once.
        let all = self.left.len() as u64;
        self.left.iter().zip(1..).for_each(|(left, cpu)| left.set(every * cpu / all));
    }

    /// A CPU reads lines of a frame. Returns `None` if no line was sampled, else whether to wake the buffer's reader.
    pub(crate) fn read(&self, cpu: usize, pfn: Pfn, lines: u64) -> Option<bool> {
        let left = &self.left[cpu];
        if left.get() > lines {
            left.set(left.get() - lines);
            return None;
        }
        // At most one of the lines that are read together is sampled.
        left.set(self.every.get());
        let mut buffer = self.buffers[cpu].borrow_mut();
        if buffer.len() == BUFFER {
            self.lost.set(self.lost.get() + 1);
            return Some(false);
        }
        buffer.push(pfn);
        Some(buffer.len() == BUFFER / 2)
    }

    /// Hand over all records, CPU by CPU. Returns how many were lost.
    pub(crate) fn take(&self, each: &mut dyn FnMut(Pfn)) -> u64 {
        for buffer in &self.buffers {
            let taken = buffer.take();
            taken.into_iter().for_each(&mut *each);
        }
        self.lost.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RunConfig;
    use crate::machine::SimMachine;
    use crate::spec::MachineSpec;
    use mm::machine::Machine;

    #[test]
    fn one_line_in_n_is_sampled_and_records_without_room_are_lost() {
        let spec = MachineSpec::preset("tiers").unwrap();
        let machine = SimMachine::new(spec.clone(), &RunConfig::new(spec), false).unwrap();
        let read = |times: u64| {
            for i in 0..times as u32 {
                machine.memory_time(machine.this_cpu(), Pfn(i % 64), 1);
            }
        };
        let taken = || {
            let mut frames = 0;
            let lost = machine.take_samples(&mut |_| frames += 1);
            (frames, lost)
        };
        read(1000);
        assert_eq!(taken(), (0, 0));
        machine.sample(10);
        read(1000);
        assert_eq!(taken(), (100, 0));
        let before = machine.now();
        read(10 * (BUFFER as u64 + 7));
        assert_eq!(taken(), (BUFFER, 7));
        assert_eq!(machine.now() - before, (BUFFER as u64 + 7) * 250);
    }
}
