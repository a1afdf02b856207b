//! Conditions that are not equal: what the guest has otherwise than the simulated machine.
//!
//! The guest tells what it has (`@condition NAME VALUE`): its zones' sizes, watermarks and list sizes, its disks'
//! queues, the limits of dirty memory, and each setting as the kernel gives it back. Here is what the simulated machine
//! has by the same names.

use super::areas::QUEUE_DEPTH;
use super::conditions::{Setting, min_free, value};
use super::twin::kernels_of;
use crate::boot::Shape;
use mm::alloc::watermark::{MarkInput, PcpSizes, marks, pcp_sizes};
use mm::knobs::Knob;
use mm::machine::ZoneKind;
use mm::units::PAGE_SIZE;
use mm::writeback::DirtyLimits;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unequal {
    /// What it is.
    pub what: String,
    /// Linux's.
    pub linux: String,
    /// The simulated machine's.
    pub simulated: String,
}

impl Unequal {
    /// For people.
    pub fn to_text(&self) -> String {
        format!("{} {} for {}", self.what, self.linux, self.simulated)
    }
}

/// What the guest has otherwise, among what both have. The twin's kernel has `kernels` pages.
pub fn unequal(
    found: &[(String, String)],
    (shape, kernels): (&Shape, u64),
    knobs: &[(Knob, u64)],
    settings: &[Setting],
) -> Vec<Unequal> {
    let mut ours = of_zones(shape, kernels, knobs);
    ours.extend(of_disks(shape));
    ours.extend(settings.iter().map(|Setting { file, value, .. }| (file.clone(), value.clone())));
    let differs = |(what, linux): &(String, String)| {
        let (simulated, linux) = (ours.get(what)?, as_written(linux));
        (*simulated != linux).then(|| Unequal {
            what: what.trim_start_matches("/proc/sys/").trim_start_matches("/sys/").to_owned(),
            linux,
            simulated: simulated.clone(),
        })
    };
    found.iter().filter_map(differs).collect()
}

/// A setting as it was written: kernels mark the chosen word of several, and give some numbers back in hex or as words.
fn as_written(text: &str) -> String {
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(word, _)| word);
    let text = chosen.unwrap_or(text).trim();
    let number = text.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
    match (number, text) {
        (Some(number), _) => number.to_string(),
        (None, "false" | "N") => "0".to_owned(),
        (None, "true" | "Y") => "1".to_owned(),
        (None, _) => text.to_owned(),
    }
}

/// Of the nodes' only zones, and of all memory.
fn of_zones(shape: &Shape, kernels: u64, knobs: &[(Knob, u64)]) -> BTreeMap<String, String> {
    let pages = shape.memory() / PAGE_SIZE;
    let kernels = |bytes: u64| kernels_of(shape, kernels, bytes);
    let lowmem = pages + shape.memory_by_node().iter().map(|&bytes| kernels(bytes)).sum::<u64>();
    let min_free_kbytes = min_free(knobs, pages);
    let mut ours = BTreeMap::new();
    for (node, bytes) in shape.memory_by_node().iter().enumerate() {
        let managed = bytes / PAGE_SIZE + kernels(*bytes);
        let [min, low, high, promo] = marks(MarkInput {
            kind: ZoneKind::Dma32,
            managed,
            lowmem,
            min_free: min_free_kbytes / (PAGE_SIZE / 1024),
            scale: value(knobs, Knob::WatermarkScaleFactor),
        });
        let cpus = u64::from(match shape.cpus_of(node as u32) {
            0 => shape.cpus,
            own => own,
        });
        let PcpSizes { batch, high_min, high_max } =
            pcp_sizes(managed, low, cpus, value(knobs, Knob::PercpuPagelistHighFraction));
        for (name, pages) in [
            ("managed", managed),
            ("min", min),
            ("low", low),
            ("high", high),
            ("promo", promo),
            ("list batch", batch.into()),
            ("list high_min", high_min.into()),
            ("list high_max", high_max.into()),
        ] {
            ours.insert(format!("node {node} {name}"), pages.to_string());
        }
    }
    let ratio = |knob| value(knobs, knob);
    let limits = DirtyLimits::new(pages, ratio(Knob::DirtyRatio), ratio(Knob::DirtyBackgroundRatio));
    ours.insert("nr_dirty_threshold".into(), limits.dirty.to_string());
    ours.insert("nr_dirty_background_threshold".into(), limits.background.to_string());
    ours
}

/// Of the disks with files and for swapping.
fn of_disks(shape: &Shape) -> BTreeMap<String, String> {
    let disks = ["vda", "vdb"].iter().take(1 + usize::from(shape.swap > 0));
    let queue = [
        ("rotational", "0".to_owned()),
        ("scheduler", "none".to_owned()),
        ("nr_requests", QUEUE_DEPTH.to_string()),
        ("wbt_lat_usec", "0".to_owned()),
    ];
    let of_disk = |disk| queue.iter().map(move |(name, value)| (format!("{disk} {name}"), value.clone()));
    disks.flat_map(of_disk).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boot::Second;

    #[test]
    fn what_the_guest_has_otherwise_is_listed() {
        let shape = Shape::new(2, Second::Missing, 32 << 20, 4096).unwrap();
        let file = "/sys/kernel/mm/lru_gen/enabled".to_owned();
        let settings = [Setting { file: file.clone(), value: "7".into(), may_lack: false }];
        let (kernels, knobs) = (1000, [(Knob::WatermarkScaleFactor, 2500)]);
        let told = |all: &[(&str, &str)]| {
            let found: Vec<(String, String)> =
                all.iter().map(|(what, value)| ((*what).to_owned(), (*value).to_owned())).collect();
            unequal(&found, (&shape, kernels), &knobs, &settings)
        };
        assert_eq!(
            told(&[
                ("node 0 managed", "9192"),
                (&file, "0x0007"),
                ("vdb scheduler", "[none] mq-deadline"),
                ("vda rotational", "false"),
                ("a thing that only Linux has", "5"),
            ]),
            []
        );
        let found = told(&[("node 0 low", "12165"), (&file, "0x0000"), ("vda scheduler", "none [bfq]")]);
        let texts: Vec<String> = found.iter().map(Unequal::to_text).collect();
        assert_eq!(
            texts,
            ["node 0 low 12165 for 2479", "kernel/mm/lru_gen/enabled 0 for 7", "vda scheduler bfq for none"]
        );
    }
}
