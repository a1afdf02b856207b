//! What Linux says of the machine.

use crate::cpus::listed;
use std::fs::read_to_string;

/// The machine.
#[derive(Clone, Debug)]
pub struct System {
    /// Release of the kernel.
    pub kernel: String,
    /// Model of the CPU.
    pub cpu: String,
    /// Whether a hypervisor says that it is there.
    pub is_virtual: bool,
    /// CPUs of each node with memory or CPUs, those that are online.
    pub nodes: Vec<Vec<usize>>,
    /// Memory that the kernel manages, in bytes: up to 4 GiB, behind, and what it can move alone.
    pub memory: [u64; 3],
    /// Bytes of the second-level data cache.
    pub second_cache: Option<u64>,
}

impl System {
    /// This machine. What the system does not say is empty.
    pub fn here() -> System {
        let read = |path: &str| read_to_string(path).unwrap_or_default();
        let (cpu, is_virtual) = cpu(&read("/proc/cpuinfo"));
        System {
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            cpu,
            is_virtual,
            nodes: nodes(),
            memory: memory(&read("/proc/zoneinfo")),
            second_cache: second_cache(),
        }
    }

    /// Whether two CPUs are threads of one core.
    pub fn share_core(&self, one: usize, other: usize) -> bool {
        let path = format!("/sys/devices/system/cpu/cpu{one}/topology/thread_siblings_list");
        read_to_string(path).is_ok_and(|text| listed(&text).contains(&other))
    }

    /// Whether two CPUs are of one node.
    pub fn share_node(&self, one: usize, other: usize) -> bool {
        self.nodes.iter().any(|cpus| cpus.contains(&one) && cpus.contains(&other))
    }
}

/// The model, and whether there is a hypervisor.
fn cpu(cpuinfo: &str) -> (String, bool) {
    let value = |key: &str| {
        let mut lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim())
    };
    let flags = value("flags").unwrap_or_default();
    let model = value("model name").unwrap_or("an unknown CPU");
    (model.to_owned(), flags.split(' ').any(|flag| flag == "hypervisor"))
}

fn nodes() -> Vec<Vec<usize>> {
    let list = |path: String| read_to_string(path).map(|text| listed(&text)).unwrap_or_default();
    let nodes = list("/sys/devices/system/node/online".to_owned()).into_iter();
    let nodes: Vec<_> =
        nodes.map(|node| list(format!("/sys/devices/system/node/node{node}/cpulist"))).collect();
    match nodes.is_empty() {
        true => vec![list("/sys/devices/system/cpu/online".to_owned())],
        false => nodes,
    }
}

/// Bytes of managed memory: in the zones below 4 GiB, in those behind, in movable ones.
fn memory(zoneinfo: &str) -> [u64; 3] {
    let mut bytes = [0; 3];
    let mut kind = None;
    for line in zoneinfo.lines() {
        if let Some((_, zone)) = line.strip_prefix("Node ").and_then(|rest| rest.split_once("zone")) {
            kind = match zone.trim() {
                "DMA" | "DMA32" => Some(0),
                "Normal" => Some(1),
                "Movable" => Some(2),
                _ => None,
            };
        } else if let (Some(kind), Some(pages)) = (kind, line.trim().strip_prefix("managed")) {
            bytes[kind] += pages.trim().parse::<u64>().unwrap_or(0) * crate::PAGE as u64;
        }
    }
    bytes
}

/// Bytes of the first CPU's second-level cache for data.
fn second_cache() -> Option<u64> {
    (0..8).find_map(|index| {
        let read = |name: &str| {
            read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{name}")).ok()
        };
        let wanted = read("level")?.trim() == "2" && read("type")?.trim() != "Instruction";
        wanted.then(|| cache_bytes(&read("size")?))?
    })
}

/// Bytes of a text like `512K`.
fn cache_bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let (number, shift) = match text.strip_suffix('K') {
        Some(number) => (number, 10),
        None => (text.strip_suffix('M')?, 20),
    };
    Some(number.parse::<u64>().ok()? << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_and_hypervisor_are_read() {
        let text = "processor\t: 0\nmodel name\t: A CPU\nflags\t\t: fpu hypervisor vme\n";
        assert_eq!(cpu(text), ("A CPU".to_owned(), true));
        assert_eq!(cpu("flags : fpu"), ("an unknown CPU".to_owned(), false));
    }

    #[test]
    fn managed_memory_is_summed_by_zone() {
        let text = "Node 0, zone      DMA\n  pages free 1\n        managed  3840\nNode 0, zone    DMA32\n        \
                    managed  256\nNode 0, zone   Normal\n        managed  1024\nNode 0, zone  Movable\n        managed  \
                    0\nNode 0, zone   Device\n        managed  7\n";
        assert_eq!(memory(text), [4096 * 4096, 1024 * 4096, 0]);
        assert_eq!(memory(""), [0; 3]);
    }

    #[test]
    fn sizes_of_caches_have_units() {
        assert_eq!(cache_bytes("512K\n"), Some(512 << 10));
        assert_eq!(cache_bytes("2M"), Some(2 << 20));
        assert_eq!(cache_bytes("x"), None);
    }

    #[test]
    fn this_machine_is_described() {
        let here = System::here();
        assert!(!here.kernel.is_empty() && !here.cpu.is_empty());
        let cpus = crate::cpus::allowed().unwrap();
        assert!(here.share_node(cpus[0], cpus[0]), "{here:?}");
        assert!(!here.share_core(cpus[0], usize::MAX));
    }
}
