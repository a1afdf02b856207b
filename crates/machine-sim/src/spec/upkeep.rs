//! What a program of user space does for a zram device, as people write it among the settings of an area.

use super::failures::parse_time;
use super::size::SwapSize;
use mm::api::{ZramBacking, ZramConfig, ZramPages, ZramUpkeep};
use mm::machine::Compressor;
use mm::units::DeviceId;
use mm::zram::HUGE_SIZE;
use std::fmt;

/// Pages that a program can choose, by their names in Linux's files.
const PAGES: [(&str, ZramPages); 3] = [
    ("idle", ZramPages { idle: true, huge: false }),
    ("huge", ZramPages { idle: false, huge: true }),
    ("huge_idle", ZramPages { idle: true, huge: true }),
];
/// The settings.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Upkeep {
    /// The device behind, and how much of it.
    backing: Option<(String, SwapSize)>,
    writeback: Option<ZramPages>,
    writeback_limit: Option<SwapSize>,
    recompress: Option<Compressor>,
    recompress_type: Option<ZramPages>,
    threshold: Option<u32>,
    /// Microseconds.
    idle: Option<u64>,
    every: Option<u64>,
}

fn pages(key: &str, text: &str) -> Result<ZramPages, String> {
    let found = PAGES.iter().find(|(name, _)| *name == text).map(|&(_, pages)| pages);
    found.ok_or_else(|| format!("{key}: '{text}' is none of idle, huge, huge_idle"))
}

fn name(pages: ZramPages) -> &'static str {
    PAGES.iter().find(|(_, known)| *known == pages).map_or("", |(name, _)| name)
}

fn time(key: &str, text: &str) -> Result<u64, String> {
    parse_time(text).ok_or_else(|| format!("{key}: '{text}' is no time like 30s"))
}

/// A compressor, by its name.
pub(super) fn algorithm(key: &str, text: &str) -> Result<Compressor, String> {
    let known = Compressor::WORDS.iter().position(|&word| word == text);
    let all = Compressor::WORDS.join(", ");
    known.map(|at| Compressor::ALL[at]).ok_or_else(|| format!("{key}: '{text}' is none of {all}"))
}

impl Upkeep {
    /// Take a setting. `false`: it is none of these.
    pub(super) fn set(&mut self, key: &str, value: &str) -> Result<bool, String> {
        match key {
            "backing" => {
                let place = value.split_once(':');
                let (device, size) = place.ok_or_else(|| format!("backing: '{value}' is not DEVICE:SIZE"))?;
                self.backing = Some((device.to_owned(), SwapSize::parse(size)?));
            }
            "writeback" => self.writeback = Some(pages(key, value)?),
            "writeback_limit" => self.writeback_limit = Some(SwapSize::parse(value)?),
            "recompress" => self.recompress = Some(algorithm(key, value)?),
            "recompress_type" => self.recompress_type = Some(pages(key, value)?),
            "threshold" => {
                let bytes = value.parse().ok().filter(|bytes| (1..HUGE_SIZE).contains(bytes));
                let most = HUGE_SIZE - 1;
                self.threshold =
                    Some(bytes.ok_or_else(|| format!("threshold: '{value}' is not between 1 and {most}"))?);
            }
            "idle" => self.idle = Some(time(key, value)?),
            "every" => self.every = Some(time(key, value)?).filter(|&every| every > 0),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Check that the settings make sense together.
    pub(super) fn check(&self) -> Result<(), String> {
        let works = self.writeback.is_some() || self.recompress.is_some();
        let looks = [self.writeback, self.recompress_type].iter().flatten().any(|pages| pages.idle);
        let of_recompress = self.recompress_type.is_some() || self.threshold.is_some();
        let wrong = [
            (
                self.backing.is_some() != self.writeback.is_some(),
                "backing=DEVICE:SIZE and writeback=idle need each other",
            ),
            (self.writeback_limit.is_some() && self.writeback.is_none(), "writeback_limit needs writeback"),
            (of_recompress && self.recompress.is_none(), "recompress_type and threshold need recompress"),
            (works != self.every.is_some(), "writeback or recompress, and every=TIME, need each other"),
            (looks != self.idle.is_some(), "pages that are idle, and idle=TIME, need each other"),
        ];
        let found = wrong.into_iter().find(|(is_wrong, _)| *is_wrong);
        found.map_or(Ok(()), |(_, text)| Err(text.to_owned()))
    }

    /// The device behind, and its pages.
    pub(super) fn backing(&self, memory: u64) -> Option<(&str, u64)> {
        self.backing.as_ref().map(|(device, size)| (device.as_str(), size.pages(memory)))
    }

    /// The device `config` with these settings; `backing`: where the device behind begins.
    pub(super) fn apply(
        &self,
        config: ZramConfig,
        backing: Option<(usize, u64, u32)>,
        memory: u64,
    ) -> ZramConfig {
        let backing = backing.map(|(device, block, pages)| ZramBacking {
            device: DeviceId(device as u8),
            block,
            pages,
        });
        let nanos = |micros: Option<u64>| micros.unwrap_or(0).saturating_mul(1000);
        let upkeep = self.every.map(|_| ZramUpkeep {
            every: nanos(self.every),
            idle_age: nanos(self.idle),
            recompress: self
                .recompress
                .map(|by| (self.recompress_type.unwrap_or_default(), self.threshold.unwrap_or(0), by)),
            write_back: self.writeback,
            write_back_limit: self.writeback_limit.map(|limit| limit.pages(memory)),
        });
        ZramConfig { backing, upkeep, ..config }
    }
}

impl fmt::Display for Upkeep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((device, size)) = &self.backing {
            write!(f, ",backing={device}:{size}")?;
        }
        if let Some(pages) = self.writeback {
            write!(f, ",writeback={}", name(pages))?;
        }
        if let Some(limit) = self.writeback_limit {
            write!(f, ",writeback_limit={limit}")?;
        }
        if let Some(by) = self.recompress {
            write!(f, ",recompress={}", by.word())?;
        }
        if let Some(pages) = self.recompress_type {
            write!(f, ",recompress_type={}", name(pages))?;
        }
        if let Some(bytes) = self.threshold {
            write!(f, ",threshold={bytes}")?;
        }
        let times = [("idle", self.idle), ("every", self.every)];
        times.iter().try_for_each(|(key, time)| time.map_or(Ok(()), |time| write!(f, ",{key}={time}us")))
    }
}
