//! What pages hold: how well they compress.
//!
//! Where no recording says it, it is drawn for each page: 31 % of pages do not get smaller; the others become a third
//! of a page with LZO, most of them a quarter to two fifths: what Google found of cold memory in its data centres
//! (Lagar-Cavilla et al., "Software-defined far memory in warehouse-scale computers", ASPLOS 2019). lz4 makes 1.04
//! times as many bytes as lzo-rle, and zstd 0.81 times as many: the ratios 2.63, 2.74 and 3.37 of one image of memory
//! in zram (fio, published by u/VenditatioDelendaEst for Fedora). A page draws the same whenever it is new, so runs
//! with the same seed are equal.
//!
//! The simulated machine keeps the sizes alone. A Linux guest has real compressors, so it gives pages bytes of which
//! they make that much ([`Words`]).

use crate::rng::Rng;
use abi::{PACKED_UNIT, Packed};

/// Words of a page.
const WORDS: usize = 512;
const UNIT: u32 = PACKED_UNIT as u32;
/// Bytes that a compressor makes of a page that repeats one word: a few words, and the length of the repetition.
pub const REPEATED: u32 = 32;

/// Mix numbers into one that looks random.
pub fn mixed(seed: u64, owner: u64, page: u64) -> u64 {
    Rng::new(Rng::new(seed).bits() ^ owner.rotate_left(40) ^ page).bits()
}

/// What compressors make of a page, of an owner, that no recording describes.
pub fn draw(seed: u64, owner: u64, page: u64) -> Packed {
    let bits = mixed(seed, owner, page);
    if bits % 100 < 31 {
        return Packed { lz4: Packed::WHOLE, zstd: Packed::WHOLE };
    }
    // With LZO 1024 to 1707 bytes, a third of a page in the middle.
    let lzo = 1024 + (bits >> 32) as u32 % 684;
    let units = |bytes: u32| bytes.div_ceil(UNIT) as u8;
    Packed { lz4: units(lzo * 274 / 263), zstd: units(lzo * 274 / 337) }
}

/// Bytes of a page that becomes this many units. Where in its last unit the size is, `bits` say. `None`: the page does
/// not get smaller.
pub fn bytes(units: u8, bits: u64) -> Option<u32> {
    match units {
        Packed::WHOLE => None,
        0 | 1 => Some(REPEATED),
        units => Some((u32::from(units) - 1) * UNIT + 1 + bits as u32 % UNIT),
    }
}

/// Bytes that lzo-rle makes of a page of which lz4 makes this many: 2.63 to 2.74, as above.
pub fn lzo_rle(lz4: u32) -> u32 {
    lz4 * 24 / 25
}

/// The words of a page: as many random bytes as a compressor must keep, then one byte again and again. None is zero.
/// All pages have the same random bytes, since a guest that drew each page's own would work longer for them than for
/// its program, and compressors look at one page at a time.
#[derive(Clone, Copy, Debug)]
pub struct Words {
    /// Bytes.
    random: u32,
}

/// Random words. None is zero: a page whose word is zero would be taken for a new one.
static RANDOM: [u64; WORDS] = {
    let (mut words, mut rng, mut number) = ([0; WORDS], Rng::new(0), 0);
    while number < WORDS {
        words[number] = rng.bits() | 1;
        number += 1;
    }
    words
};
/// Repeats a byte.
const REST: u64 = 0x5a5a_5a5a_5a5a_5a5a;

impl Words {
    /// Of a page that becomes this many bytes, or that does not get smaller.
    pub fn new(bytes: Option<u32>) -> Words {
        // Literals have their length with them, the repetition its distance and its length, and zstd has a header:
        // about 20 bytes with zstd, up to 33 with the others.
        Words { random: bytes.map_or(u32::MAX, |bytes| bytes.saturating_sub(REPEATED)) }
    }

    /// The word with this number.
    pub fn word(&self, number: usize) -> u64 {
        let random = RANDOM[number];
        match self.random.saturating_sub(8 * number as u32) {
            0 => REST,
            part @ 1..8 => random & !(u64::MAX << (8 * part)) | REST << (8 * part),
            _ => random,
        }
    }

    /// All words.
    pub fn all(&self) -> [u64; WORDS] {
        let mut words = RANDOM;
        let whole = (self.random as usize / 8).min(WORDS);
        words[whole..].fill(REST);
        if let Some(part) = words.get_mut(whole) {
            *part = self.word(whole);
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn drawn_pages_are_as_published() {
        let all: Vec<Packed> = (0..20_000).map(|page| draw(1, 1, page)).collect();
        let whole = all.iter().filter(|packed| packed.lz4 == Packed::WHOLE).count();
        assert!((6000..6400).contains(&whole), "{whole} of 20,000 do not get smaller");
        let small = || all.iter().filter(|packed| packed.lz4 != Packed::WHOLE);
        let mean = |of: fn(&Packed) -> u8| {
            small().map(|packed| u64::from(of(packed)) * 16).sum::<u64>() / small().count() as u64
        };
        let (lz4, zstd) = (mean(|packed| packed.lz4), mean(|packed| packed.zstd));
        assert!((1400..1450).contains(&lz4) && (1100..1150).contains(&zstd), "{lz4} {zstd}");
    }

    #[test]
    fn a_page_has_as_many_random_bytes_as_its_size_asks_for() {
        let random = |bytes| {
            let one = Words::new(bytes);
            let words = one.all();
            assert!(words.iter().enumerate().all(|(number, &word)| word != 0 && word == one.word(number)));
            let bytes = words.iter().flat_map(|word| word.to_le_bytes());
            bytes.collect::<Vec<u8>>().iter().rposition(|&byte| byte != 0x5a).map_or(0, |last| last + 1)
        };
        assert_eq!((random(Some(REPEATED)), random(Some(1032)), random(None)), (0, 1000, 4096));
        assert!((1000..=1003).contains(&random(Some(1035))));
    }
}
