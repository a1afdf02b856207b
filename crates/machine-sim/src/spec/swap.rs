//! Swap areas, as people write them: `DEVICE:SIZE`, or `zram:SIZE` for one in memory, with settings after commas.

use super::{Bytes, MachineSpec, SpecError};
use mm::api::{SwapArea, ZramConfig};
use mm::machine::Compressor;
use mm::units::{DeviceId, PAGE_SIZE};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::str::FromStr;

/// The name of an area in memory.
const ZRAM: &str = "zram";

/// A size: bytes, or a share of the machine's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SwapSize {
    Bytes(u64),
    Percent(u64),
}

impl SwapSize {
    fn parse(text: &str) -> Result<SwapSize, String> {
        let size = match text.strip_suffix('%') {
            Some(share) => {
                share.parse().ok().filter(|share| (1..=1000).contains(share)).map(SwapSize::Percent)
            }
            None => Bytes::parse(text).map(|bytes| SwapSize::Bytes(bytes.0)),
        };
        size.ok_or_else(|| format!("'{text}' is not a size like 4G or 50%"))
    }

    fn pages(self, memory: u64) -> u64 {
        match self {
            SwapSize::Bytes(bytes) => bytes / PAGE_SIZE,
            SwapSize::Percent(share) => (u128::from(memory) * u128::from(share) / 100) as u64 / PAGE_SIZE,
        }
    }
}

impl fmt::Display for SwapSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SwapSize::Bytes(bytes) => write!(f, "{bytes}"),
            SwapSize::Percent(share) => write!(f, "{share}%"),
        }
    }
}

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
}

impl SwapSpec {
    /// Whether it is in memory.
    pub fn is_zram(&self) -> bool {
        self.device == ZRAM
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
                "algorithm" if spec.is_zram() => {
                    let known = Compressor::WORDS.iter().position(|&word| word == value);
                    let all = Compressor::WORDS.join(", ");
                    let found = known.ok_or_else(|| format!("algorithm: '{value}' is none of {all}"))?;
                    spec.compressor = Compressor::ALL[found];
                }
                "mem_limit" if spec.is_zram() => spec.mem_limit = Some(SwapSize::parse(value)?),
                _ => return Err(format!("a swap area on {device} has no setting '{key}'")),
            }
        }
        Ok(spec)
    }
}

impl fmt::Display for SwapSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.device, self.size)?;
        if self.is_zram() {
            write!(f, ",algorithm={}", Compressor::WORDS[self.compressor.value() as usize])?;
        }
        if let Some(limit) = self.mem_limit {
            write!(f, ",mem_limit={limit}")?;
        }
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
        Some(SwapSpec { device, size, priority: None, compressor: Compressor::LzoRle, mem_limit: None })
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
            let mem_limit = area.mem_limit.map_or(0, |limit| limit.pages(self.memory()).max(1));
            let zram = area.is_zram().then_some(ZramConfig { compressor: area.compressor, mem_limit });
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
        found.retain(|area| area.pages > 0);
        match found.iter().map(|area| u64::from(area.pages)).sum::<u64>() >= 1 << 32 {
            true => fail("the areas together have more than 16 TiB".into()),
            false => Ok(found),
        }
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
        ] {
            assert_eq!(text.parse::<SwapSpec>().unwrap().to_string(), text);
        }
        for (text, expected) in [
            ("zram", "is no swap area"),
            ("zram:x", "is not a size"),
            ("zram:1G,algorithm=lz77", "is none of lzo-rle, lz4, zstd"),
            ("nvme0:1G,algorithm=lz4", "has no setting 'algorithm'"),
            ("zram:1G,priority", "sets nothing"),
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
        let zram = |mem_limit, compressor| Some(ZramConfig { compressor, mem_limit });
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
}
