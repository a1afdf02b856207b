//! Machines drawn from a seed: small, and of every shape, for programs that search for bugs.

use super::MachineSpec;
use program::rng::Rng;

/// The prefix of the name of such a machine.
const PREFIX: &str = "random:";

impl MachineSpec {
    /// The machine that a seed draws: 1 to 8 CPUs (one in eight: 16 to 32) on one or two nodes, 16 to 48 MB in one or
    /// two zones each, with and without swap space, hardware that sets young bits, and address-space numbers. One in
    /// four has TLBs so large that a translation stays until it is flushed. Its name is `random:SEED`.
    pub fn random(seed: u64) -> MachineSpec {
        let name = format!("{PREFIX}{seed}");
        MachineSpec::from_toml(&name, &describe(&mut Rng::new(seed)))
            .expect("a drawn machine must pass the checks")
    }

    /// The machine of a name `random:SEED`. `None` for other names.
    pub fn from_random_name(name: &str) -> Option<MachineSpec> {
        name.strip_prefix(PREFIX)?.parse().ok().map(MachineSpec::random)
    }
}

fn pick<'a>(rng: &mut Rng, from: &[&'a str]) -> &'a str {
    from[rng.below(from.len() as u64) as usize]
}

fn describe(rng: &mut Rng) -> String {
    let nodes = 1 + rng.below(2);
    let many = rng.below(8) == 0;
    let cpus = if many { (16 + rng.below(17)) / nodes } else { 1 + rng.below(8 / nodes) };
    let asids = pick(rng, &["0", "1", "6"]);
    let (young, nonleaf) = (rng.percent(50), rng.percent(50));
    let broadcast = rng.percent(20);
    let small = ("{ entries = 8, ways = 2 }", "{ entries = 32, ways = 4 }");
    let usual = ("{ entries = 64, ways = 4 }", "{ entries = 1536, ways = 12 }");
    let endless = ("{ entries = 512, ways = 8 }", "{ entries = 16384, ways = 16 }");
    let (l1, l2) = [small, usual, usual, endless][rng.below(4) as usize];
    let mut text = format!(
        "description = 'drawn from a seed'
[cpu]
ghz = 3.0
asids = {asids}
hw_young = {young}
hw_nonleaf_young = {nonleaf}
broadcast_flush = {broadcast}
source = 'drawn'
[tlb]
l1d_4k = {l1}
l1d_2m = {l1}
l1i_4k = {l1}
l1i_2m = {l1}
l2 = {l2}
pde = {{ entries = 32, ways = 4 }}
pdpte = {{ entries = 4, ways = 4 }}
pml4e = {{ entries = 2, ways = 2 }}
lines = 1024
source = 'drawn'
"
    );
    for node in 0..nodes {
        // A second node may have memory only.
        let cpus = if node == 1 && rng.percent(30) { 0 } else { cpus };
        text += &describe_node(rng, node, cpus);
    }
    if nodes == 2 {
        text += "[distance]\nrows = [[10, 20], [20, 10]]\nhop_ns = 60\nsource = 'drawn'\n";
    }
    let (read, depth) = (pick(rng, &["5", "80", "4000"]), pick(rng, &["1", "4", "128"]));
    text += &format!(
        "[[device]]
name = 'disk'
size = '100G'
read_us = {read}
write_us = 20
read_mbs = 500
write_mbs = 300
queue_depth = {depth}
source = 'drawn'
[storage]
files = 'disk'
"
    );
    match pick(rng, &["", "8M", "64M", "64M"]) {
        "" => text,
        size => text + &format!("swap = 'disk'\nswap_size = '{size}'\n"),
    }
}

fn describe_node(rng: &mut Rng, node: u64, cpus: u64) -> String {
    let sizes = ["8M", "12292K", "24M"];
    let zones = match (node, rng.below(3)) {
        (0, 0) => vec!["dma32"],
        (0, 1) => vec!["dma32", "normal"],
        (0, _) => vec!["normal", "movable"],
        (_, 0) => vec!["movable"],
        (_, _) => vec!["normal"],
    };
    let ranges: Vec<String> = zones
        .iter()
        .map(|zone| {
            // The sum must be enough for the smallest machine.
            let size = if zones.len() == 1 { pick(rng, &["16M", "32764K"]) } else { pick(rng, &sizes) };
            format!("{{ size = '{size}', zone = '{zone}' }}")
        })
        .collect();
    format!(
        "[[node]]
cpus = {cpus}
memory = [{}]
latency_ns = {}
bandwidth_gbs = 12
source = 'drawn'
",
        ranges.join(", "),
        80 + 100 * node
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_draw_machines_of_every_shape() {
        let drawn: Vec<MachineSpec> = (0..200).map(MachineSpec::random).collect();
        let some = |what: fn(&MachineSpec) -> bool| {
            assert!(drawn.iter().any(what) && !drawn.iter().all(what));
        };
        some(|spec| spec.nodes().len() == 2);
        some(|spec| spec.nodes().iter().any(|node| node.cpus == 0));
        some(|spec| spec.cpus() == 1);
        some(|spec| spec.cpus() == 8);
        some(|spec| spec.cpus() > 15);
        some(|spec| spec.tlb().l2.entries == 16384);
        some(|spec| !spec.swap_areas().unwrap().is_empty());
        some(|spec| spec.cpu().hw_young);
        some(|spec| spec.cpu().asids == 0);
        some(|spec| spec.ranges().len() > spec.nodes().len());
    }

    #[test]
    fn the_name_draws_the_machine_again() {
        let (drawn, again) = (MachineSpec::random(7), MachineSpec::from_random_name("random:7").unwrap());
        assert_eq!((drawn.name(), drawn.ranges()), (again.name(), again.ranges()));
        assert!(MachineSpec::from_random_name("random:x").is_none());
        assert!(MachineSpec::from_random_name("laptop").is_none());
    }
}
