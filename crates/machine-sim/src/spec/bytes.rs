//! Numbers of bytes as people write them.

use serde::{Deserialize, Deserializer};

/// A number of bytes: an integer, or text with K, M, G or T (powers of 1024).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bytes(pub u64);

impl Bytes {
    /// Read `8G`, `256M`, `4096`.
    pub fn parse(text: &str) -> Option<Bytes> {
        let text = text.trim();
        let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let shift = match text[split..].trim() {
            "" | "B" => 0,
            "K" | "KiB" => 10,
            "M" | "MiB" => 20,
            "G" | "GiB" => 30,
            "T" | "TiB" => 40,
            _ => return None,
        };
        text[..split].parse::<u64>().ok()?.checked_mul(1 << shift).map(Bytes)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Number(u64),
            Text(String),
        }
        match Either::deserialize(deserializer)? {
            Either::Number(bytes) => Ok(Bytes(bytes)),
            Either::Text(text) => Bytes::parse(&text).ok_or_else(|| {
                serde::de::Error::custom(format!("\"{text}\" is not a size like \"8G\" or 4096"))
            }),
        }
    }
}
