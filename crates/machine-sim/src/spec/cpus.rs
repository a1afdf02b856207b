//! The same machine with another number of CPUs.

use super::MachineSpec;
use mm::machine::MAX_CPUS;

/// Text between a preset and the number.
const INFIX: &str = "+cpus=";

impl MachineSpec {
    /// The machine of the name `PRESET+cpus=N`, if it is such a name: a preset whose nodes with CPUs have `N` together,
    /// as even as they can be. Its memory, caches and costs stay.
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
    fn cpus_are_shared_out_among_the_nodes_that_have_some() {
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
