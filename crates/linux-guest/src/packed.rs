//! Compressed swap: zram devices, what pages hold, and what both kinds of compressed swap tell.

use crate::lock::Lock;
use crate::report::print;
use crate::swap;
use crate::sys::{self, Code};
use crate::touch;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use program::content::{self, Words};
use program::{Packed, Signal};

const PAGE: u64 = 4096;
/// Where the kernel tells of zswap.
const ZSWAP: &str = "/sys/kernel/debug/zswap";

/// Set a zram device up, and swap to it.
pub fn swap_to_zram(
    number: u32,
    (algorithm, bytes, limit): (&str, u64, u64),
    priority: Option<u32>,
) -> Result<(), Code> {
    let folder = format!("/sys/block/zram{number}");
    if number > 0 {
        sys::read_text("/sys/class/zram-control/hot_add")?;
    }
    sys::write_file(&format!("{folder}/comp_algorithm"), algorithm)?;
    sys::write_file(&format!("{folder}/disksize"), &format!("{bytes}"))?;
    sys::write_file(&format!("{folder}/mem_limit"), &format!("{limit}"))?;
    swap::on(&format!("/dev/zram{number}"), priority)
}

/// What pages hold: as the simulated machine takes it, in bytes of which the compressor makes that much.
pub struct Contents {
    seed: u64,
    /// The compressor's share of what is known of a page, and bytes of a page of that many units.
    units: fn(Packed) -> u8,
    bytes: fn(u32) -> u32,
    /// The id of the program's first process.
    first: AtomicU64,
    /// What the recording has said, by process and page, if it has said something.
    told: Lock<BTreeMap<(u64, u64), Packed>>,
    has_told: AtomicBool,
}

impl Contents {
    /// For this compressor, if there is such a one.
    pub fn of(compressor: &str, seed: u64) -> Option<Contents> {
        let units: fn(Packed) -> u8 = match compressor {
            "lz4" | "lzo-rle" => |packed| packed.lz4,
            "zstd" => |packed| packed.zstd,
            _ => return None,
        };
        let bytes: fn(u32) -> u32 = if compressor == "lzo-rle" { content::lzo_rle } else { |bytes| bytes };
        let (first, told) = (AtomicU64::new(0), Lock::new(BTreeMap::new()));
        Some(Contents { seed, units, bytes, first, told, has_told: AtomicBool::new(false) })
    }

    /// The number of a process: the first one's is 0.
    pub fn process(&self) -> u64 {
        let own = sys::own_process();
        let first = self.first.compare_exchange(0, own, SeqCst, SeqCst).unwrap_or_else(|first| first);
        own.wrapping_sub(if first == 0 { own } else { first })
    }

    /// What a page of a process holds; `None`: zeroes.
    pub fn words(&self, process: u64, page: u64) -> Option<Words> {
        let told = match self.has_told.load(Relaxed) {
            true => self.told.with(|told| told.get(&(process, page)).copied()),
            false => None,
        };
        let packed = told.unwrap_or_else(|| content::draw(self.seed, process, page));
        if packed == Packed::ZERO {
            return None;
        }
        let bits = content::mixed(self.seed, process, !page);
        Some(Words::new(content::bytes((self.units)(packed), bits).map(self.bytes)))
    }

    /// The recording says what a page of a process holds when it is new.
    pub fn tell(&self, process: u64, addr: u64, packed: Packed) {
        self.told.with(|told| told.insert((process, addr / PAGE), packed));
        self.has_told.store(true, Relaxed);
    }
}

/// Store to a word of a page that holds these. The word that is stored is the page's, so the page stays as
/// compressible as it is. One that still holds zeroes gets all of them; the store comes first, since a fault on a load
/// would be another.
pub fn store(addr: u64, words: Option<&Words>) -> Result<(), Signal> {
    let Some(words) = words else { return touch::store(addr, 0) };
    touch::store(addr, words.word((addr % PAGE / 8) as usize))?;
    match touch::load(addr ^ 8)? {
        0 => touch::fill(addr & !(PAGE - 1), &words.all()),
        _ => Ok(()),
    }
}

/// What compressed swap holds, by name.
pub type Levels = Vec<(String, u64)>;

/// What it holds now.
pub fn levels() -> Levels {
    let mut levels = Levels::new();
    // One device after the other, until there is none.
    for number in 0.. {
        let Ok(text) = sys::read_text(&format!("/sys/block/zram{number}/mm_stat")) else { break };
        const NAMES: [&str; 9] = [
            "orig_data_size",
            "compr_data_size",
            "mem_used_total",
            "",
            "mem_used_max",
            "same_pages",
            "pages_compacted",
            "huge_pages",
            "huge_pages_since",
        ];
        let values = text.split_whitespace().map(|word| word.parse().unwrap_or(0));
        let named = NAMES.iter().zip(values).filter(|(name, _)| !name.is_empty());
        levels.extend(named.map(|(name, value)| (format!("zram{number}_{name}"), value)));
    }
    let zswap = |name: &str| sys::read_text(&format!("{ZSWAP}/{name}")).ok()?.trim().parse::<u64>().ok();
    for name in
        ["pool_total_size", "stored_pages", "pool_limit_hit", "reject_compress_poor", "reject_alloc_fail"]
    {
        // A compressor that runs out of room says so by an error.
        let more = if name == "reject_compress_poor" { zswap("reject_compress_fail") } else { None };
        let value = zswap(name).map(|value| value + more.unwrap_or(0));
        levels.extend(value.map(|value| (format!("zswap_{name}"), value)));
    }
    levels
}

/// Begin to note the most that zram uses.
pub fn begin_most() {
    for number in 0.. {
        if sys::write_file(&format!("/sys/block/zram{number}/mem_used_max"), "0").is_err() {
            break;
        }
    }
}

/// Report what has come since `before`; the most that was used is no sum.
pub fn tell(before: &Levels, after: &Levels) {
    for ((name, before), (_, after)) in before.iter().zip(after) {
        let since = if name.ends_with("_max") { *after } else { after.saturating_sub(*before) };
        print(format_args!("@metric {name} {since}"));
    }
}
