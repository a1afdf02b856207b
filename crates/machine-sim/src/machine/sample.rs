//! Sampled reads of memory, as hardware does it (PEBS): of every so many lines that a CPU reads, one tells its frame.
//!
//! A record takes time of the CPU. It goes into a buffer of the CPU's own, and when that is half full, who reads it is
//! woken; what finds it full is lost. Like all that is charged for memory here, only reads after a miss of the TLBs are
//! seen.

use super::{Cpu, SimMachine};
use crate::sched::Key;
use crate::spec::Hardware;
use mm::machine::WaitKey;
use mm::units::Pfn;
use std::cell::{Cell, RefCell};

/// Records of a CPU's buffer: 32 pages with records of 40 bytes, as MEMTIS has them.
const BUFFER: usize = 32 * 4096 / 40;

/// Sampling on all CPUs.
#[derive(Default)]
pub(crate) struct Sampler {
    /// One line in so many; 0: none.
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

    /// Does it sample?
    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.every.get() != 0
    }

    pub(super) fn start(&self, every: u64) {
        self.every.set(every);
        // Not all CPUs at once.
        let all = self.left.len() as u64;
        self.left.iter().zip(1..).for_each(|(left, cpu)| left.set(every * cpu / all));
    }

    /// Hand over what there is, CPU by CPU. Returns what was lost.
    pub(super) fn take(&self, each: &mut dyn FnMut(Pfn)) -> u64 {
        for buffer in &self.buffers {
            let taken = buffer.take();
            taken.into_iter().for_each(&mut *each);
        }
        self.lost.take()
    }
}

impl SimMachine {
    /// A CPU reads lines of a frame.
    #[cold]
    pub(super) fn sample_read(&self, cpu: &Cpu, pfn: Pfn, lines: u64) {
        let (sampler, at) = (&self.sampler, self.current.get());
        let left = &sampler.left[at];
        if left.get() > lines {
            return left.set(left.get() - lines);
        }
        // Of lines that are read together one is a sample, at most.
        left.set(sampler.every.get());
        cpu.spend(self.spec.costs().hardware(Hardware::Sample));
        let mut buffer = sampler.buffers[at].borrow_mut();
        if buffer.len() == BUFFER {
            return sampler.lost.set(sampler.lost.get() + 1);
        }
        buffer.push(pfn);
        if buffer.len() == BUFFER / 2 {
            drop(buffer);
            self.wake_key(Key::Mm(WaitKey::Kpromoted));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::RunConfig;
    use crate::spec::MachineSpec;
    use mm::machine::Machine;

    #[test]
    fn one_line_in_so_many_is_sampled_and_what_finds_no_room_is_lost() {
        let spec = MachineSpec::preset("tiers").unwrap();
        let machine = SimMachine::new(spec.clone(), &RunConfig::new(spec)).unwrap();
        let read = |times: u64| {
            for i in 0..times as u32 {
                machine.memory_time(machine.here(), Pfn(i % 64), 1);
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
