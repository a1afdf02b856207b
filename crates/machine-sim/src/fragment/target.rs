//! The textual description of a state of memory, for machine files and the command line.

use crate::spec::Bytes;
use mm::units::MAX_ORDER;
use std::str::FromStr;

/// The number of orders.
pub(crate) const ORDERS: usize = MAX_ORDER.0 as usize + 1;

/// The sizes of free blocks.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Pieces {
    /// The share of free memory in free blocks of each order.
    Orders([f64; ORDERS]),
    /// The share of free memory that is of no use for a block of 2 MiB (the unusable index); block sizes are random.
    Unusable(f64),
    /// Quicksilver's state: of `of` bytes in 2 MiB blocks (all free ones, if `None`), the share `whole` stays whole;
    /// the last 64 KiB of each other free block are taken.
    Quicksilver { whole: f64, of: Option<u64> },
}

/// A state of memory that a run begins with.
#[derive(Clone, PartialEq, Debug)]
pub struct Fragmentation {
    text: String,
    /// The share of memory that is free.
    pub(crate) free: Option<f64>,
    pub(crate) pieces: Pieces,
    /// Shares of page blocks that are unmovable, and reclaimable.
    pub(crate) unmovable: f64,
    pub(crate) reclaimable: f64,
}

/// The valid forms, for messages.
const FORMS: &str = "write frag-50, frag-100:8G, or free=60%,unusable=90%,unmovable=20%,reclaimable=5%; in place of unusable, \
                     orders=S0/S1/.../S10, shares of the free memory";

impl Fragmentation {
    /// The state in which this share of the free 2 MiB blocks, in thousandths, is broken as by Quicksilver's program.
    pub(crate) fn broken(thousandths: u64) -> Fragmentation {
        let text = format!("{:.1}% of free 2 MiB blocks broken", thousandths as f64 / 10.0);
        let pieces = Pieces::Quicksilver { whole: 1.0 - thousandths as f64 / 1000.0, of: None };
        Fragmentation { text, free: None, pieces, unmovable: 0.0, reclaimable: 0.0 }
    }

    /// The description.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl std::fmt::Display for Fragmentation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Fragmentation {
    type Err = String;

    fn from_str(text: &str) -> Result<Fragmentation, String> {
        let wrong = |why: String| format!("'{text}' is no state of memory: {why}; {FORMS}");
        let (mut free, mut pieces, mut groups) = (None, None, [0.0; 2]);
        for part in text.split(',') {
            let one = |pieces: &mut Option<Pieces>, new| match pieces.replace(new) {
                None => Ok(()),
                Some(_) => Err(wrong("the pieces are told twice".into())),
            };
            match part.split_once('=') {
                None => one(&mut pieces, quicksilver(part).map_err(wrong)?)?,
                Some(("free", value)) => free = Some(share(value).map_err(wrong)?),
                Some(("unusable", value)) => {
                    one(&mut pieces, Pieces::Unusable(share(value).map_err(wrong)?))?
                }
                Some(("orders", value)) => one(&mut pieces, Pieces::Orders(orders(value).map_err(wrong)?))?,
                Some(("unmovable", value)) => groups[0] = share(value).map_err(wrong)?,
                Some(("reclaimable", value)) => groups[1] = share(value).map_err(wrong)?,
                Some((key, _)) => return Err(wrong(format!("there is no '{key}'"))),
            }
        }
        let pieces = pieces.ok_or_else(|| wrong("nothing is said of the pieces".into()))?;
        match (&pieces, free) {
            (Pieces::Quicksilver { .. }, Some(_)) => {
                Err(wrong("how much is free follows from frag-...".into()))
            }
            (Pieces::Quicksilver { .. }, None) | (_, Some(_)) => {
                let [unmovable, reclaimable] = groups;
                Ok(Fragmentation { text: text.to_owned(), free, pieces, unmovable, reclaimable })
            }
            (_, None) => Err(wrong("how much is free is not said".into())),
        }
    }
}

/// `frag-P` or `frag-P:SIZE`.
fn quicksilver(text: &str) -> Result<Pieces, String> {
    let unknown = || format!("'{text}' is none of the presets");
    let (percent, size) = match text.strip_prefix("frag-").ok_or_else(unknown)?.split_once(':') {
        Some((percent, size)) => (percent, Some(size)),
        None => (text.trim_start_matches("frag-"), None),
    };
    let whole = match percent {
        "50" => 0.5,
        "100" => 0.0,
        _ => return Err(unknown()),
    };
    let bytes =
        |size| Bytes::parse(size).map(|bytes| bytes.0).ok_or_else(|| format!("'{size}' is not a size"));
    Ok(Pieces::Quicksilver { whole, of: size.map(bytes).transpose()? })
}

/// Read a share in per cent as a part of 1.
fn share(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse::<f64>().ok();
    let fits = number.filter(|number| (0.0..=100.0).contains(number));
    fits.map(|number| number / 100.0).ok_or_else(|| format!("'{text}' is no share between 0% and 100%"))
}

fn orders(text: &str) -> Result<[f64; ORDERS], String> {
    let shares = text.split('/').map(share).collect::<Result<Vec<_>, _>>()?;
    let shares: [f64; ORDERS] =
        shares.try_into().map_err(|_| format!("'{text}' has not one share for each of {ORDERS} orders"))?;
    let sum = shares.iter().sum::<f64>() * 100.0;
    if (sum - 100.0).abs() > 0.5 {
        return Err(format!("the shares of orders add up to {sum:.1}%"));
    }
    Ok(shares)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Fragmentation, String> {
        text.parse()
    }

    #[test]
    fn states_are_read() {
        let half = read("frag-50:8G,unmovable=3").unwrap();
        assert_eq!(half.pieces, Pieces::Quicksilver { whole: 0.5, of: Some(8 << 30) });
        assert_eq!(
            (half.free, half.unmovable, half.to_string().as_str()),
            (None, 0.03, "frag-50:8G,unmovable=3")
        );
        let aged = read("free=60%,unusable=90%,unmovable=20%,reclaimable=5%").unwrap();
        assert_eq!((aged.free, aged.pieces, aged.reclaimable), (Some(0.6), Pieces::Unusable(0.9), 0.05));
        let even = read("free=50,orders=10/10/10/10/10/10/10/10/10/10/0").unwrap();
        assert_eq!(even.pieces, Pieces::Orders([0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.0]));
    }

    #[test]
    fn errors_are_one_line() {
        for (text, expected) in [
            ("frag-75", "'frag-75' is none of the presets"),
            ("frag-50:8Q", "'8Q' is not a size"),
            ("free=50%", "nothing is said of the pieces"),
            ("unusable=50%", "how much is free is not said"),
            ("frag-50,free=50%", "follows from frag-"),
            ("free=101%,unusable=5%", "no share between"),
            ("free=50%,unusable=5%,orders=100", "not one share for each of 11 orders"),
            ("free=50%,orders=1/1/1/1/1/1/1/1/1/1/1", "add up to 11.0%"),
            ("free=50%,unusable=5%,frag-50", "told twice"),
            ("speed=9", "there is no 'speed'"),
        ] {
            let message = read(text).unwrap_err();
            assert!(message.contains(expected) && !message.contains('\n'), "{text}: {message}");
        }
    }
}
