//! Swap areas on Linux, and what pages hold where they are compressed.
//!
//! zram devices are numbered by the priority of their areas, as the simulated machine numbers them.

use super::conditions::value;
use crate::engine::SwapSpec;
use crate::error::{Error, Result};
use mm::knobs::Knob;
use mm::machine::Compressor;
use mm::units::PAGE_SIZE;
use std::collections::BTreeSet;

/// Requests that a disk of the twin takes at once.
pub const QUEUE_DEPTH: u64 = 128;

/// A zram device.
#[derive(Clone, Debug)]
struct Zram {
    number: usize,
    algorithm: &'static str,
    pages: u64,
    /// In pages; 0: none.
    limit: u64,
}

#[derive(Clone, Debug)]
struct Area {
    /// `None`: on the disk.
    zram: Option<Zram>,
    priority: Option<i16>,
}

/// The swap areas of a guest.
#[derive(Clone, Debug, Default)]
pub struct Areas {
    /// In the order in which they are put to use; none: the disk, if there is one for that.
    areas: Vec<Area>,
    /// The compressor by whose sizes pages have their content, if some swap is compressed.
    compressor: Option<&'static str>,
    /// zswap is before them.
    zswap: bool,
}

/// What compresses the first pages that are swapped out.
#[derive(Clone, Debug)]
pub struct Packing {
    /// As in the names of costs.
    pub compressor: String,
    /// Swap areas that it is measured with.
    pub swap: Vec<SwapSpec>,
    /// Likewise, knobs.
    pub knobs: Vec<(Knob, u64)>,
}

impl Areas {
    /// Those of `specs` on a machine with `memory` bytes, under these knobs.
    ///
    /// # Errors
    /// Linux cannot have them.
    pub fn new(specs: &[SwapSpec], memory: u64, knobs: &[(Knob, u64)]) -> Result<Areas> {
        let given = |(at, spec): (usize, &SwapSpec)| spec.priority().unwrap_or(-2 - at as i16);
        let mut ranks: Vec<usize> = (0..specs.len()).filter(|&at| specs[at].is_zram()).collect();
        ranks.sort_by_key(|&at| std::cmp::Reverse(given((at, &specs[at]))));
        let mut compressors = BTreeSet::new();
        let mut areas = Vec::new();
        for (at, spec) in specs.iter().enumerate() {
            let priority = spec.priority();
            if priority.is_some_and(|priority| priority < 0) {
                let why = "swapon takes no priority below 0; areas without one get -2, -3 and so on";
                return Err(Error::Input(format!("--swap {spec}: {why}")));
            }
            if spec.has_upkeep() {
                let why = "the guest has no one who writes pages of zram back or compresses them again";
                return Err(Error::Input(format!("--swap {spec}: {why}")));
            }
            let zram = spec.zram(memory).map(|zram| Zram {
                number: ranks.iter().position(|&ranked| ranked == at).expect("it is among them"),
                algorithm: zram.compressor.word(),
                pages: spec.pages(memory),
                limit: zram.mem_limit,
            });
            compressors.extend(zram.as_ref().map(|zram| zram.algorithm));
            areas.push(Area { zram, priority });
        }
        let zswap = value(knobs, Knob::ZswapEnabled) != 0;
        if zswap {
            compressors.insert(Compressor::of(value(knobs, Knob::ZswapCompressor)).word());
        }
        if compressors.len() > 1 {
            let all = compressors.into_iter().collect::<Vec<_>>().join(" and ");
            let why = "on Linux a page has bytes that one compressor makes a known size of; choose one";
            return Err(Error::Input(format!("{all}: {why}")));
        }
        Ok(Areas { areas, compressor: compressors.pop_first(), zswap })
    }

    /// What compresses the first pages that are swapped out, if something does.
    pub fn packing(&self) -> Option<Packing> {
        let compressor = self.compressor?;
        let rank = |(at, area): &(usize, &Area)| area.priority.unwrap_or(-2 - *at as i16);
        let first = self.areas.iter().enumerate().max_by_key(rank);
        let (area, knobs) = if self.zswap {
            let number = Compressor::WORDS.iter().position(|&word| word == compressor)? as u64;
            ("disk:64M".to_owned(), vec![(Knob::ZswapEnabled, 1), (Knob::ZswapCompressor, number)])
        } else if first.is_some_and(|(_, area)| area.zram.is_some()) {
            (format!("zram:64M,algorithm={compressor}"), Vec::new())
        } else {
            return None;
        };
        let swap = vec![area.parse().expect("it is an area")];
        Some(Packing { compressor: compressor.replace('-', "_"), swap, knobs })
    }

    /// Kernel modules that they need.
    pub fn drivers(&self) -> Vec<&'static str> {
        let crypto = match self.compressor {
            Some("lzo-rle") => Some("lzo_rle"),
            other => other,
        };
        let zram = self.areas.iter().any(|area| area.zram.is_some());
        crypto.into_iter().chain(zram.then_some("zram")).collect()
    }

    /// Pages of zram devices.
    pub fn zram_pages(&self) -> u64 {
        self.areas.iter().filter_map(|area| area.zram.as_ref()).map(|zram| zram.pages).sum()
    }

    /// Lines of the guest's configuration. `disk`: there is a disk for swapping.
    pub(super) fn lines(&self, has_disk: bool) -> Vec<String> {
        let mut lines: Vec<String> =
            self.compressor.map(|compressor| format!("contents {compressor}")).into_iter().collect();
        for area in &self.areas {
            let priority = area.priority.map(|priority| format!("priority {priority}"));
            match &area.zram {
                Some(Zram { number, algorithm, pages, limit }) => {
                    lines.extend(priority);
                    let [bytes, limit] = [pages, limit].map(|pages| pages * PAGE_SIZE);
                    lines.push(format!("zram {number} {algorithm} {bytes} {limit}"));
                }
                None if has_disk => {
                    lines.extend(priority);
                    lines.extend(disk("vdb", "swap"));
                }
                None => {}
            }
        }
        if self.areas.is_empty() && has_disk {
            lines.extend(disk("vdb", "swap"));
        }
        lines
    }
}

/// Lines that put a disk to use. A kernel asks whether it is rotational then. As the twin's, it takes as many requests
/// at once, in order, and does not throttle writes; a scheduler has limits of its own, so it goes first.
pub(super) fn disk(disk: &str, use_it: &str) -> [String; 5] {
    let queue = format!("/sys/block/{disk}/queue");
    [
        format!("write {queue}/rotational 0"),
        use_it.to_owned(),
        format!("try {queue}/scheduler none"),
        format!("try {queue}/nr_requests {QUEUE_DEPTH}"),
        format!("try {queue}/wbt_lat_usec 0"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn areas(texts: &[&str], knobs: &[(Knob, u64)]) -> Result<Areas> {
        let specs: Vec<SwapSpec> = texts.iter().map(|text| text.parse().unwrap()).collect();
        Areas::new(&specs, 32 << 20, knobs)
    }

    #[test]
    fn zram_is_numbered_by_priority_and_put_to_use_in_order() {
        let found =
            areas(&["zram:25%", "disk:64M,priority=3", "zram:50%,mem_limit=8M,priority=5"], &[]).unwrap();
        let lines = found.lines(true);
        let wanted = [
            "contents lzo-rle",
            "zram 1 lzo-rle 8388608 0",
            "priority 3",
            "swap",
            "priority 5",
            "zram 0 lzo-rle 16777216 8388608",
        ];
        let kept: Vec<&String> = lines.iter().filter(|line| !line.contains("/sys/")).collect();
        assert_eq!(kept, wanted);
        assert_eq!((found.drivers(), found.zram_pages()), (vec!["lzo_rle", "zram"], 6144));
    }

    #[test]
    fn zswap_decides_what_pages_hold() {
        let knobs = [(Knob::ZswapEnabled, 1), (Knob::ZswapCompressor, Compressor::Zstd.value())];
        let found = areas(&[], &knobs).unwrap();
        assert_eq!((found.lines(false), found.drivers()), (vec!["contents zstd".to_owned()], vec!["zstd"]));
        let error = areas(&["zram:25%,algorithm=lz4"], &knobs).unwrap_err();
        assert!(error.exit_code() == 2 && error.to_string().starts_with("lz4 and zstd: "), "{error}");
        assert!(areas(&["zram:25%,recompress=zstd,every=1s"], &[]).is_err());
        assert!(areas(&["disk:64M,priority=-5"], &[]).unwrap_err().to_string().contains("below 0"));
        assert_eq!(areas(&[], &[]).unwrap().lines(true), disk("vdb", "swap"));
    }
}
