//! A machine that differs in one number from one that is described: `laptop+cpus=8`.

use super::MachineSpec;
use mm::machine::MAX_CPUS;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// How many times as slow disks can be, and how many times as large compressed pages.
pub(super) const FACTORS: RangeInclusive<f64> = 0.001..=1000.0;

impl MachineSpec {
    /// The same machine with a change, whose text becomes part of its name:
    /// - `cpus=N`: this number of CPUs, spread as evenly as possible over the nodes that have CPUs;
    /// - `slow=F`: every request to a disk takes `F` times as long;
    /// - `packed=F`: compressed pages are `F` times as large, but at most whole pages.
    ///
    /// # Errors
    /// It cannot have this.
    pub fn with_change(mut self, change: &str) -> Result<MachineSpec, String> {
        match change.split_once('=') {
            Some(("cpus", number)) => self.spread(number)?,
            Some(("slow", factor)) => self.slow_down(within(factor, FACTORS)?),
            Some(("packed", factor)) => self.file.storage.packed = within(factor, FACTORS)?,
            _ => return Err(format!("'{change}' is none of cpus=N, slow=FACTOR, packed=FACTOR")),
        }
        self.name = format!("{}+{change}", self.name);
        Ok(self)
    }

    fn spread(&mut self, number: &str) -> Result<(), String> {
        let nodes: Vec<_> = self.file.node.iter_mut().filter(|node| node.cpus > 0).collect();
        let sockets = nodes.len() as u32;
        let cpus = within(number, sockets..=MAX_CPUS as u32)?;
        for (index, node) in (0..).zip(nodes) {
            node.cpus = cpus / sockets + u32::from(index < cpus % sockets);
        }
        Ok(())
    }

    fn slow_down(&mut self, factor: f64) {
        for device in &mut self.file.device {
            for micros in
                [&mut device.read_us, &mut device.write_us].into_iter().chain(&mut device.sequential_us)
            {
                *micros *= factor;
            }
            device.read_mbs /= factor;
            device.write_mbs /= factor;
        }
    }

    /// How many times as large compressed pages are as what is recorded or drawn.
    pub(crate) fn packed(&self) -> f64 {
        self.file.storage.packed
    }
}

/// A number of this range.
fn within<N: FromStr + PartialOrd + std::fmt::Display>(
    text: &str,
    range: RangeInclusive<N>,
) -> Result<N, String> {
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("'{text}' is no number from {} to {}", range.start(), range.end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(preset: &str, change: &str) -> Result<MachineSpec, String> {
        MachineSpec::preset(preset).unwrap().with_change(change)
    }

    #[test]
    fn cpus_are_spread_over_the_nodes_that_have_cpus() {
        let cpus = |preset: &str, number: u32| -> Vec<u32> {
            let spec = changed(preset, &format!("cpus={number}")).unwrap();
            spec.nodes().iter().map(|node| node.cpus).collect()
        };
        assert_eq!(cpus("small", 7), [7]);
        assert_eq!(cpus("luf-cxl", 512), [512, 0]);
        assert_eq!(cpus("numa-4s-2015", 9), [3, 2, 2, 2]);
    }

    #[test]
    fn disks_take_longer_for_every_request() {
        let machine =
            changed("laptop", "slow=4").and_then(|machine| machine.with_change("packed=0.5")).unwrap();
        let disk = &machine.devices()[0];
        assert_eq!((disk.read_us, disk.write_us, disk.read_mbs), (268.0, 80.0, 875.0));
        assert_eq!((machine.name(), machine.packed()), ("laptop+slow=4+packed=0.5", 0.5));
    }

    #[test]
    fn what_a_machine_cannot_have_is_refused() {
        for (preset, change, expected) in [
            ("small", "cpus=", "'' is no number from 1 to"),
            ("small", "cpus=0", "'0' is no number from 1 to"),
            ("small", "cpus=100000", "no number from 1 to"),
            ("numa-4s-2015", "cpus=3", "'3' is no number from 4 to"),
            ("small", "slow=0", "'0' is no number from 0.001 to 1000"),
            ("small", "packed=NaN", "'NaN' is no number"),
            ("small", "disks=4", "'disks=4' is none of cpus=N, slow=FACTOR, packed=FACTOR"),
            ("small", "", "'' is none of"),
        ] {
            let error = changed(preset, change).unwrap_err();
            assert!(error.contains(expected), "{change}: {error}");
        }
    }
}
