//! Swap areas, as people write them: `DEVICE:SIZE`, or `zram:SIZE` for one in memory, with settings after commas.

use super::size::SwapSize;
use super::upkeep::{Upkeep, algorithm};
use super::{MachineSpec, SpecError};
use mm::api::{SwapArea, ZramConfig};
use mm::machine::Compressor;
use mm::units::{DeviceId, PAGE_SIZE};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::str::FromStr;

/// The name of an area in memory.
const ZRAM: &str = "zram";

/// A swap area.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SwapSpec {
    /// The name of its device, or [`ZRAM`].
    device: String,
    size: SwapSize,
    /// Areas without one get -2, -3 and so on, in their order, as from swapon.
    priority: Option<i16>,
    compressor: Compressor,
    mem_limit: Option<SwapSize>,
    upkeep: Upkeep,
}

impl SwapSpec {
    /// Whether it is in memory.
    pub fn is_zram(&self) -> bool {
        self.device == ZRAM
    }

    /// Its size in pages, on a machine with `memory` bytes.
    pub fn pages(&self, memory: u64) -> u64 {
        self.size.pages(memory)
    }

    /// The same area with this size.
    pub fn with_bytes(self, bytes: u64) -> SwapSpec {
        SwapSpec { size: SwapSize::Bytes(bytes), ..self }
    }

    /// The priority that was asked for.
    pub fn priority(&self) -> Option<i16> {
        self.priority
    }

    /// Whether its pages are written back or compressed again.
    pub fn has_upkeep(&self) -> bool {
        self.upkeep != Upkeep::default()
    }

    /// What it is in memory, on a machine with `memory` bytes.
    pub fn zram(&self, memory: u64) -> Option<ZramConfig> {
        let mem_limit = self.mem_limit.map_or(0, |limit| limit.pages(memory).max(1));
        self.is_zram().then_some(ZramConfig { mem_limit, ..ZramConfig::new(self.compressor) })
    }
}

impl FromStr for SwapSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<SwapSpec, String> {
        let mut parts = text.split(',');
        let Some((device, size)) = parts.next().and_then(|place| place.split_once(':')) else {
            return Err(format!("'{text}' is no swap area; write zram:4G or DEVICE:8G"));
        };
        let mut spec = SwapSpec {
            device: device.to_owned(),
            size: SwapSize::parse(size)?,
            priority: None,
            compressor: Compressor::LzoRle,
            mem_limit: None,
            upkeep: Upkeep::default(),
        };
        for setting in parts {
            let Some((key, value)) = setting.split_once('=') else {
                return Err(format!("'{setting}' sets nothing; write zram:4G,algorithm=zstd,priority=100"));
            };
            match key {
                "priority" => {
                    let number = value.parse().map_err(|_| format!("priority: '{value}' is no number"))?;
                    spec.priority = Some(number);
                }
                "algorithm" if spec.is_zram() => spec.compressor = algorithm(key, value)?,
                "mem_limit" if spec.is_zram() => spec.mem_limit = Some(SwapSize::parse(value)?),
                _ if spec.is_zram() && spec.upkeep.set(key, value)? => {}
                _ => return Err(format!("a swap area on {device} has no setting '{key}'")),
            }
        }
        spec.upkeep.check()?;
        Ok(spec)
    }
}

impl fmt::Display for SwapSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.device, self.size)?;
        if self.is_zram() {
            write!(f, ",algorithm={}", self.compressor.word())?;
        }
        if let Some(limit) = self.mem_limit {
            write!(f, ",mem_limit={limit}")?;
        }
        write!(f, "{}", self.upkeep)?;
        self.priority.map_or(Ok(()), |priority| write!(f, ",priority={priority}"))
    }
}

impl<'de> Deserialize<'de> for SwapSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SwapSpec, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl MachineSpec {
    /// The same machine with these swap areas instead of its own.
    pub fn with_swap(mut self, areas: &[SwapSpec]) -> Result<MachineSpec, SpecError> {
        self.file.storage.swap = None;
        self.file.storage.areas = areas.to_vec();
        self.swap_areas().map(drop)?;
        Ok(self)
    }

    /// The area that `storage.swap` names.
    pub fn device_swap(&self) -> Option<SwapSpec> {
        let (device, pages) = self.swap()?;
        let device = self.devices()[device].name.clone();
        let size = SwapSize::Bytes(u64::from(pages) * PAGE_SIZE);
        let compressor = Compressor::LzoRle;
        let (mem_limit, upkeep) = (None, Upkeep::default());
        Some(SwapSpec { device, size, priority: None, compressor, mem_limit, upkeep })
    }

    /// Its swap areas. An area on a device is in the device's first blocks.
    pub fn swap_areas(&self) -> Result<Vec<SwapArea>, SpecError> {
        let fail = |message: String| Err(SpecError::new("swap", message));
        let on_device = |(device, pages): (usize, u32)| SwapArea {
            device: DeviceId(device as u8),
            pages,
            priority: 0,
            zram: None,
        };
        let mut found: Vec<SwapArea> = self.swap().map(on_device).into_iter().collect();
        for (number, area) in self.file.storage.areas.iter().enumerate() {
            let Ok(pages) = u32::try_from(area.size.pages(self.memory())) else {
                return fail(format!("{area} has more than 16 TiB"));
            };
            let zram = area.zram(self.memory());
            let device = match area.is_zram() {
                true => usize::from(u8::MAX),
                false => match self.device(&area.device) {
                    Some(device) => device,
                    None => return fail(format!("there is no device \"{}\"", area.device)),
                },
            };
            let room = self.devices().get(device).map_or(u64::MAX, |device| device.size.0 / PAGE_SIZE);
            if u64::from(pages) > room {
                return fail(format!("{area} is larger than its device"));
            }
            if zram.is_none() && found.iter().any(|other| other.device.index() == device) {
                return fail(format!("\"{}\" has two areas", area.device));
            }
            let priority = area.priority.unwrap_or(-2 - number as i16);
            found.push(SwapArea { device: DeviceId(device as u8), pages, priority, zram });
        }
        self.back_zrams(&mut found)?;
        found.retain(|area| area.pages > 0);
        match found.iter().map(|area| u64::from(area.pages)).sum::<u64>() >= 1 << 32 {
            true => fail("the areas together have more than 16 TiB".into()),
            false => Ok(found),
        }
    }
}

impl MachineSpec {
    /// Give zram devices what is done for them, and their backing devices: behind the swap area of a device, one after
    /// the other.
    fn back_zrams(&self, areas: &mut [SwapArea]) -> Result<(), SpecError> {
        let fail = |message: String| Err(SpecError::new("swap", message));
        let first = areas.len() - self.file.storage.areas.len();
        for (number, spec) in self.file.storage.areas.iter().enumerate() {
            let Some(config) = areas[first + number].zram else { continue };
            let mut place = None;
            if let Some((name, pages)) = spec.upkeep.backing(self.memory()) {
                let Some(device) = self.device(name) else {
                    return fail(format!("there is no device \"{name}\""));
                };
                let block = self.taken(areas, device);
                let room = (self.devices()[device].size.0 / PAGE_SIZE).saturating_sub(block);
                let Some(pages) = u32::try_from(pages).ok().filter(|&pages| u64::from(pages) <= room) else {
                    return fail(format!("{spec} does not fit on its backing device"));
                };
                place = Some((device, block, pages));
            }
            areas[first + number].zram = Some(spec.upkeep.apply(config, place, self.memory()));
        }
        Ok(())
    }

    /// The first block of a device that no swap area and no zram device has.
    pub(crate) fn taken(&self, areas: &[SwapArea], device: usize) -> u64 {
        let ends = areas.iter().filter_map(|area| match area.zram {
            None => (area.device.index() == device).then_some(u64::from(area.pages)),
            Some(zram) => {
                let backing = zram.backing.filter(|backing| backing.device.index() == device)?;
                Some(backing.block + u64::from(backing.pages))
            }
        });
        ends.max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_are_read_and_written() {
        for text in [
            "zram:4294967296,algorithm=lzo-rle",
            "zram:50%,algorithm=zstd,mem_limit=10%,priority=100",
            "nvme0:8589934592,priority=-3",
            "zram:50%,algorithm=lz4,backing=nvme0:1073741824,writeback=huge_idle,writeback_limit=10%,recompress=zstd,\
             recompress_type=huge,threshold=3000,idle=1000us,every=500us",
        ] {
            assert_eq!(text.parse::<SwapSpec>().unwrap().to_string(), text);
        }
        for (text, expected) in [
            ("zram", "is no swap area"),
            ("zram:x", "is not a size"),
            ("zram:1G,algorithm=lz77", "is none of lzo-rle, lz4, zstd"),
            ("nvme0:1G,algorithm=lz4", "has no setting 'algorithm'"),
            ("zram:1G,priority", "sets nothing"),
            ("zram:1G,backing=nvme0:1G", "need each other"),
            ("zram:1G,writeback=all", "is none of idle, huge, huge_idle"),
            ("zram:1G,recompress=zstd", "every=TIME"),
            ("zram:1G,recompress=zstd,every=1s,threshold=4000", "is not between 1 and 3624"),
            ("zram:1G,recompress=zstd,every=1s,recompress_type=idle", "idle=TIME"),
            ("zram:1G,every=soon", "is no time like 30s"),
            ("nvme0:1G,writeback=idle", "has no setting 'writeback'"),
        ] {
            let error = text.parse::<SwapSpec>().unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn areas_are_checked_against_the_machine() {
        let laptop = || MachineSpec::preset("laptop").unwrap().with_memory(1 << 30).unwrap();
        let areas = |texts: &[&str]| {
            let specs: Vec<SwapSpec> = texts.iter().map(|text| text.parse().unwrap()).collect();
            laptop().with_swap(&specs).and_then(|spec| spec.swap_areas())
        };
        let found =
            areas(&["zram:50%,algorithm=lz4,mem_limit=64M", "nvme0:1G", "zram:4M,priority=5"]).unwrap();
        let zram = |mem_limit, compressor| Some(ZramConfig { mem_limit, ..ZramConfig::new(compressor) });
        assert_eq!(
            found.iter().map(|area| (area.pages, area.priority, area.zram)).collect::<Vec<_>>(),
            [
                (131_072, -2, zram(16_384, Compressor::Lz4)),
                (262_144, -3, None),
                (1024, 5, zram(0, Compressor::LzoRle))
            ]
        );
        for (texts, expected) in [
            (&["sda:1G"][..], "there is no device \"sda\""),
            (&["nvme0:1G", "nvme0:1G"], "has two areas"),
            (&["nvme0:600G"], "is larger than its device"),
            (&["zram:20T"], "more than 16 TiB"),
        ] {
            let error = areas(texts).unwrap_err().to_string();
            assert!(error.contains(expected), "{texts:?}: {error}");
        }
        assert_eq!(laptop().swap_areas().unwrap().len(), 1);
        assert!(areas(&[]).unwrap().is_empty());
    }

    #[test]
    fn backing_devices_come_behind_the_swap_area() {
        let laptop = || MachineSpec::preset("laptop").unwrap().with_memory(1 << 30).unwrap();
        let backed = |size| format!("zram:1G,backing=nvme0:{size},writeback=huge,every=1s");
        let areas = |texts: &[String]| {
            let specs: Vec<SwapSpec> = texts.iter().map(|text| text.parse().unwrap()).collect();
            laptop().with_swap(&specs).and_then(|spec| spec.swap_areas())
        };
        let found = areas(&[backed("8M"), "nvme0:4M".into(), backed("4M")]).unwrap();
        let places = found.iter().map(|area| {
            area.zram.and_then(|zram| zram.backing).map(|backing| (backing.block, backing.pages))
        });
        assert_eq!(places.collect::<Vec<_>>(), [Some((1024, 2048)), None, Some((3072, 1024))]);
        assert_eq!(laptop().taken(&found, 0), 4096);
        let error = areas(&[backed("900G")]).unwrap_err().to_string();
        assert!(error.contains("does not fit on its backing device"), "{error}");
    }
}
