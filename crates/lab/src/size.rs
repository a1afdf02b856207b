//! Sizes as users write them: `4096`, `256M`, `1.5G`, and shares: `50%`.

use crate::human;

/// Bytes of `text`; K, M, G and T are powers of 1024, with or without a following `B` or `iB`.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let bad = || format!("'{text}' is not a size; write bytes, or a number with K, M, G or T, like 256M");
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let shift = match suffix.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(bad()),
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole
            .checked_mul(1 << shift)
            .ok_or_else(|| format!("'{text}' is more than 64 bits can hold"));
    }
    let fraction: f64 = number.parse().map_err(|_| bad())?;
    let bytes = fraction * (1u64 << shift) as f64;
    // Half a byte is a mistake, and beyond 2^53 a double no longer counts bytes.
    if shift == 0 || bytes > (1u64 << 53) as f64 { Err(bad()) } else { Ok(bytes as u64) }
}

/// A limit of a group: bytes, a share or `max`; 0 is a limit.
pub fn parse_limit(text: &str) -> Result<Memory, String> {
    match text {
        "max" => Ok(Memory::Bytes(u64::MAX)),
        share if share.ends_with('%') => share.parse(),
        bytes => parse_bytes(bytes).map(Memory::Bytes),
    }
}

/// The memory of a machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Memory {
    /// A number of bytes.
    Bytes(u64),
    /// A share of the most memory that the program has at once, 1.0 for all of it.
    Share(f64),
}

impl Memory {
    /// Bytes, for a program that has at most `peak_live` bytes at once.
    pub fn resolve(self, peak_live: u64) -> u64 {
        match self {
            Memory::Bytes(bytes) => bytes,
            Memory::Share(share) => (peak_live as f64 * share) as u64,
        }
    }
}

/// As people write it: `50%`, `256 MiB`.
impl std::fmt::Display for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Memory::Share(share) => f.write_str(&human::share(share).replace(' ', "")),
            Memory::Bytes(bytes) => f.write_str(&human::bytes(bytes as f64)),
        }
    }
}

impl std::str::FromStr for Memory {
    type Err = String;

    fn from_str(text: &str) -> Result<Memory, String> {
        let Some(number) = text.strip_suffix('%') else {
            let bytes = parse_bytes(text)?;
            // A share of a small program may be as little; as bytes it is a forgotten sign.
            return match bytes {
                0 => Err("a machine needs some memory".to_owned()),
                1..=100 => Err(format!("a machine needs more than {bytes} bytes; did you mean {bytes}%?")),
                bytes => Ok(Memory::Bytes(bytes)),
            };
        };
        match number.trim().parse::<f64>() {
            Ok(percent) if percent > 0.0 && percent <= 100_000.0 => Ok(Memory::Share(percent / 100.0)),
            _ => Err(format!("'{text}' is not a share; write a percentage above 0, up to 100000%, like 50%")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_may_have_a_suffix() {
        for (text, expected) in [
            ("0", 0),
            ("4096", 4096),
            ("64K", 64 << 10),
            ("256m", 256 << 20),
            ("256MiB", 256 << 20),
            ("1.5G", 3 << 29),
            ("2T", 2 << 40),
            ("12B", 12),
        ] {
            assert_eq!(parse_bytes(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn malformed_sizes_are_refused() {
        for text in
            ["", "M", "-1", "1x", "1.5", "12 M", "1..5G", "99999999999T", "18446744073709551616", "1e3"]
        {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
        for text in ["0", "0%", "-5%", "%", "nan%", "inf%", "1e9%"] {
            assert!(text.parse::<Memory>().is_err(), "{text}");
        }
    }

    #[test]
    fn share_is_relative_to_the_peak() {
        assert_eq!("50%".parse::<Memory>().unwrap().resolve(1000), 500);
        assert_eq!("12.5%".parse::<Memory>().unwrap().resolve(1000), 125);
        assert_eq!("1K".parse::<Memory>().unwrap().resolve(7), 1024);
    }
}
