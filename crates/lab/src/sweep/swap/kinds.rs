//! Kinds of swap: where pages go that memory has no room for, and the lines that set Linux so.

use crate::engine::SwapSpec;

/// A kind of swap.
#[derive(Clone, Debug, PartialEq)]
pub struct Kind {
    /// Its name in tables.
    pub name: String,
    /// Swap areas, as `--swap` takes them.
    pub areas: Vec<String>,
    /// Whether zswap is in front of them.
    pub zswap: bool,
    /// Lines for Linux.
    pub apply: Vec<String>,
}

impl Kind {
    fn new(name: &str, areas: &[&str], apply: Vec<String>) -> Kind {
        Kind {
            name: name.into(),
            areas: areas.iter().map(|&area| area.into()).collect(),
            zswap: false,
            apply,
        }
    }

    /// Whether there is a swap area at all.
    pub fn swaps(&self) -> bool {
        self.name != NONE
    }
}

/// The name of the kind without swap.
const NONE: &str = "none";
/// That of the kind that uses the disk alone.
pub(super) const DISK: &str = "disk";

/// All kinds on a machine whose own area is `disk`: with zram of these shares of memory, in per cent, alone, and with
/// the middle one before the disk.
pub fn kinds(disk: Option<&SwapSpec>, zram: &[u32], algorithm: &str) -> Vec<Kind> {
    let mut kinds = vec![Kind::new(NONE, &["zram:0"], vec!["swapoff -a".into()])];
    let disk = disk.map(SwapSpec::to_string);
    if let Some(disk) = &disk {
        kinds.push(Kind::new(DISK, &[disk], Vec::new()));
    }
    for share in zram {
        let area = format!("zram:{share}%,algorithm={algorithm}");
        kinds.push(Kind::new(&format!("zram {share}%"), &[&area], generator(*share, algorithm)));
    }
    let (Some(disk), Some(share)) = (disk, zram.get(zram.len() / 2)) else { return kinds };
    let zswap = Kind::new("zswap, disk", &[&disk], parameters(algorithm));
    kinds.push(Kind { zswap: true, ..zswap });
    let area = format!("zram:{share}%,algorithm={algorithm},priority=100");
    kinds.push(Kind::new(&format!("zram {share}%, disk"), &[&area, &disk], generator(*share, algorithm)));
    kinds
}

/// The file that zram-generator reads.
fn generator(share: u32, algorithm: &str) -> Vec<String> {
    let size = format!("zram-size = ram * {}", f64::from(share) / 100.0);
    let algorithm = format!("compression-algorithm = {algorithm}");
    ["/etc/systemd/zram-generator.conf:", "[zram0]", &size, &algorithm].map(str::to_owned).into()
}

/// zswap's parameters. The compressor comes first: it cannot be changed for pages that are kept already.
fn parameters(algorithm: &str) -> Vec<String> {
    let set = |(name, value)| format!("echo {value} > /sys/module/zswap/parameters/{name}");
    [("compressor", algorithm), ("enabled", "Y")].map(set).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_a_disk_for_swap_has_the_kinds_in_memory_only() {
        let names = |disk: Option<&SwapSpec>, zram: &[u32]| -> Vec<String> {
            kinds(disk, zram, "zstd").into_iter().map(|kind| kind.name).collect()
        };
        assert_eq!(names(None, &[25, 50, 100]), ["none", "zram 25%", "zram 50%", "zram 100%"]);
        let disk = "nvme0:8G".parse().unwrap();
        let all = ["none", "disk", "zram 25%", "zram 50%", "zram 100%", "zswap, disk", "zram 50%, disk"];
        assert_eq!(names(Some(&disk), &[25, 50, 100]), all);
        assert_eq!(names(Some(&disk), &[200])[4], "zram 200%, disk");
    }

    #[test]
    fn areas_can_be_read() {
        for kind in kinds(Some(&"nvme0:8G".parse().unwrap()), &[25, 200], "lz4") {
            assert!(kind.areas.iter().all(|area| area.parse::<SwapSpec>().is_ok()), "{kind:?}");
            assert_eq!(kind.swaps(), kind.name != "none");
        }
    }
}
