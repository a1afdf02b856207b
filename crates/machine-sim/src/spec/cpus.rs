//! A preset with another number of CPUs.

use super::MachineSpec;
use mm::machine::MAX_CPUS;

/// The text between the preset and the number.
const INFIX: &str = "+cpus=";

impl MachineSpec {
    /// The machine of a name `PRESET+cpus=N`: a preset with `N` CPUs, spread as evenly as possible over the nodes that have
    /// CPUs. Memory, caches and costs stay. `None` for other names.
    pub fn from_cpus_name(name: &str) -> Option<MachineSpec> {
        let (preset, number) = name.split_once(INFIX)?;
        let mut spec = MachineSpec::preset(preset).ok()?;
        let nodes: Vec<_> = spec.file.node.iter_mut().filter(|node| node.cpus > 0).collect();
        let sockets = nodes.len() as u32;
        let cpus: u32 = number.parse().ok().filter(|cpus| (sockets..=MAX_CPUS as u32).contains(cpus))?;
        for (index, node) in (0..).zip(nodes) {
            node.cpus = cpus / sockets + u32::from(index < cpus % sockets);
        }
        spec.name = name.into();
        Some(spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_spread_over_the_nodes_that_have_cpus() {
        let cpus = |name: &str| -> Vec<u32> {
            let spec = MachineSpec::from_cpus_name(name).unwrap();
            spec.nodes().iter().map(|node| node.cpus).collect()
        };
        assert_eq!(cpus("small+cpus=7"), [7]);
        assert_eq!(cpus("luf-cxl+cpus=512"), [512, 0]);
        assert_eq!(cpus("numa-4s-2015+cpus=9"), [3, 2, 2, 2]);
        for wrong in
            ["small", "small+cpus=", "small+cpus=0", "small+cpus=100000", "numa-4s-2015+cpus=3", "no+cpus=2"]
        {
            assert!(MachineSpec::from_cpus_name(wrong).is_none(), "{wrong}");
        }
    }
}
