//! Sizes of swap areas, as people write them: `4G`, or `50%` of the machine's memory.

use super::Bytes;
use mm::units::PAGE_SIZE;
use std::fmt;

/// A size: bytes, or a share of the machine's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SwapSize {
    Bytes(u64),
    Percent(u64),
}

impl SwapSize {
    pub(super) fn parse(text: &str) -> Result<SwapSize, String> {
        let size = match text.strip_suffix('%') {
            Some(share) => {
                share.parse().ok().filter(|share| (1..=1000).contains(share)).map(SwapSize::Percent)
            }
            None => Bytes::parse(text).map(|bytes| SwapSize::Bytes(bytes.0)),
        };
        size.ok_or_else(|| format!("'{text}' is not a size like 4G or 50%"))
    }

    pub(super) fn pages(self, memory: u64) -> u64 {
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
