//! The simulated machine that a Linux guest was: its CPUs, memory and swap space, and as slow.
//!
//! An emulated CPU needs many times as long for a kernel's work as a real one, but a second of the guest is a second.
//! Where the kernel waits or counts time (write-back, naps of reclaim), a machine with a real CPU's speed would get
//! further in between. So the twin's clock is as slow as the guest's CPU was, by what a fault on new memory took, and
//! its disk as slow as the guest's.

use super::unequal::QUEUE_DEPTH;
use crate::boot::{Second, Shape};
use crate::engine::{Machine, Program};
use crate::error::Result;
use mm::stat::Stat;
use mm::units::PAGE_SIZE;

/// Clock of the machine that the twin is made from, in GHz.
const GHZ: f64 = 3.0;
/// Memory of the machine on which full speed is measured.
const FULL_SPEED_MEMORY: u64 = 256 << 20;
/// Clocks that are believed.
const SLOWEST: f64 = 0.1;

/// What was measured in the guest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed {
    /// Nanoseconds of a fault on new memory.
    pub fault_nanos: f64,
    /// Microseconds of a read from a disk.
    pub read_micros: f64,
}

/// The description of a machine of this shape, with a clock in GHz and latency of its disk.
fn description(shape: &Shape, ghz: f64, micros: f64) -> String {
    let swapping = match shape.swap * PAGE_SIZE {
        0 => String::new(),
        bytes => format!("swap = \"disk\"\nswap_size = {bytes}\n"),
    };
    let nodes = nodes(shape);
    format!(
        "description = \"the twin of a Linux guest\"\n\
         [cpu]\nghz = {ghz:.3}\nasids = 0\nhw_young = true\nhw_nonleaf_young = true\nsource = \"the guest's faults on new memory\"\n\
         [tlb]\n\
         l1d_4k = {{ entries = 64, ways = 4 }}\nl1d_2m = {{ entries = 32, ways = 4 }}\nl1i_4k = {{ entries = 128, ways = 8 }}\n\
         l1i_2m = {{ entries = 8, ways = 8 }}\nl2 = {{ entries = 1536, ways = 12 }}\npde = {{ entries = 32, ways = 4 }}\n\
         pdpte = {{ entries = 4, ways = 4 }}\npml4e = {{ entries = 2, ways = 2 }}\nlines = 1024\n\
         source = \"as the preset small\"\n\
         {nodes}\
         [[device]]\nname = \"disk\"\nsize = \"500G\"\nread_us = {micros:.0}\nwrite_us = {micros:.0}\nread_mbs = 1000\n\
         write_mbs = 1000\nqueue_depth = {QUEUE_DEPTH}\njitter_pct = 10\nsource = \"the guest's disks; bandwidth: estimate\"\n\
         [storage]\nfiles = \"disk\"\n{swapping}"
    )
}

/// The nodes, with memory as firmware tells the guest of it.
fn nodes(shape: &Shape) -> String {
    let (told, preset) = shape.told();
    let node = |(number, bytes): (usize, &u64)| {
        let (latency, bandwidth) = if shape.cpus_of(number as u32) > 0 { told.near } else { told.far };
        format!(
            "[[node]]\ncpus = {}\nmemory = [{{ size = {bytes}, zone = \"dma32\" }}]\nlatency_ns = {latency}\n\
             bandwidth_gbs = {bandwidth}\nsource = \"as the preset {preset}\"\n",
            shape.cpus_of(number as u32)
        )
    };
    let mut text: String = shape.memory_by_node().iter().enumerate().map(node).collect();
    if shape.count() > 1 {
        let far = told.distance;
        text.push_str(&format!(
            "[distance]\nrows = [[10, {far}], [{far}, 10]]\nhop_ns = {}\nsource = \"as the preset {preset}\"\n",
            told.hop
        ));
    }
    text
}

/// The twin, and its description.
pub fn twin(name: &str, shape: &Shape, speed: Speed) -> Result<(Machine, String)> {
    let ghz = (GHZ * fault_at_full_speed()? / speed.fault_nanos.max(1.0)).clamp(SLOWEST, GHZ);
    let micros = speed.read_micros.clamp(10.0, 1e6);
    let text = description(shape, ghz, micros);
    Ok((Machine::from_toml(name, &text)?, text))
}

/// Nanoseconds of a fault on new memory, on the simulated machine at its full speed.
fn fault_at_full_speed() -> Result<f64> {
    let shape = Shape::new(1, Second::Missing, FULL_SPEED_MEMORY, 0)?;
    let machine = Machine::from_toml("full speed", &description(&shape, GHZ, 100.0))?;
    let program = Program::find("sequential:8M")?;
    let record = program.measure(&machine.config(), "classic")?;
    let faults = record.counters.get(Stat::Pgfault.name()).copied().unwrap_or(1).max(1);
    Ok(record.nanos as f64 / faults as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boot::Ratio;

    #[test]
    fn a_slow_guest_has_a_slow_twin() {
        let full = fault_at_full_speed().unwrap();
        let speed = Speed { fault_nanos: full * 10.0, read_micros: 250.0 };
        let shape = |second, swap| Shape::new(2, second, 64 << 20, swap).unwrap();
        let (_, text) = twin("t", &shape(Second::Missing, 16384), speed).unwrap();
        assert!(text.contains("ghz = 0.300") && text.contains("read_us = 250"), "{text}");
        let fast = Speed { fault_nanos: 0.0, read_micros: 0.0 };
        let (_, text) = twin("t", &shape(Second::Missing, 0), fast).unwrap();
        assert!(text.contains("ghz = 3.000") && !text.contains("swap"), "{text}");
        let (machine, text) = twin("t", &shape(Second::Slow(Ratio(1, 3)), 0), fast).unwrap();
        assert!(text.contains("cpus = 0\nmemory = [{ size = 50331648"), "{text}");
        assert_eq!(machine.memory(), 64 << 20);
    }
}
