//! Watermarks: how much of a zone stays free for which requests, and when reclaim starts and stops.
//!
//! A zone has four marks. Requests that may sleep stop at *min*, kswapd is woken at *low* and works until *high*;
//! *promo* is one step higher, for memory that is kept ready for promotions. `min` is the zone's share of
//! `min_free_kbytes`, which by default grows with the square root of memory; the marks above it follow in equal
//! steps.

use crate::machine::ZoneKind;
use crate::units::*;

/// Sizes of the CPUs' lists of a zone, in pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PcpSizes {
    /// Pages that one exchange between a list and the buddy moves, before scaling.
    pub batch: u32,
    /// Pages that a CPU's lists may always hold.
    pub high_min: u32,
    /// Pages that they may grow to.
    pub high_max: u32,
}

/// One of a zone's watermarks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
#[repr(u8)]
pub enum Watermark {
    /// Below this is a reserve for requests that cannot wait.
    Min,
    /// kswapd is woken at this mark.
    Low,
    /// kswapd stops at this mark.
    High,
    /// Room for promotions.
    Promo,
}

impl Watermark {
    /// Number of marks.
    pub const COUNT: usize = 4;
}

/// The right of a request to memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Means {
    /// The watermark that it must leave.
    pub mark: Watermark,
    /// How far below the watermark it may go.
    pub reserve: Reserve,
    /// Whether it may mix mobility groups even where `vm.defrag_mode` keeps them apart.
    pub mixes: bool,
}

impl Means {
    /// The right of a caller that will try nothing else.
    pub const fn new(mark: Watermark, reserve: Reserve) -> Means {
        Means { mark, reserve, mixes: true }
    }
}

/// How far below a mark a request may go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reserve {
    /// Not at all.
    None,
    /// Not at all, but boosts do not count.
    Boost,
    /// Half of it: requests of high priority.
    High,
    /// Half, and a quarter of the rest: requests that can neither wait nor reclaim.
    Atomic,
    /// Half of it: a process that is being killed and will free more than it takes.
    Oom,
    /// All of it: reclaim itself.
    All,
}

impl Reserve {
    #[inline]
    pub(super) fn lower(self, mark: u64) -> u64 {
        match self {
            Reserve::None | Reserve::Boost => mark,
            Reserve::High | Reserve::Oom => mark - mark / 2,
            Reserve::Atomic => {
                let half = mark - mark / 2;
                half - half / 4
            }
            Reserve::All => 0,
        }
    }
}

/// Whether more than `mark` + `reserve` pages of `free` remain without all but one page of the request.
#[inline]
pub(super) fn above(free: u64, order: Order, mark: u64, reserve: u64) -> bool {
    free > mark + reserve + (order.frames() as u64 - 1)
}

/// The default of `min_free_kbytes` for this many KiB of memory outside Movable zones.
pub fn default_min_free_kbytes(lowmem_kib: u64) -> u64 {
    int_sqrt(lowmem_kib * 16).clamp(128, 262_144)
}

/// The input for the marks of a zone.
#[derive(Clone, Copy, Debug)]
pub struct MarkInput {
    /// Kind of zone.
    pub kind: ZoneKind,
    /// Its pages.
    pub managed: u64,
    /// Pages of all zones that are not Movable.
    pub lowmem: u64,
    /// `min_free_kbytes` in pages.
    pub min_free: u64,
    /// `watermark_scale_factor`.
    pub scale: u64,
}

/// The marks min, low, high and promo of a zone, in pages.
pub fn marks(input: MarkInput) -> [u64; Watermark::COUNT] {
    let MarkInput { kind, managed, lowmem, min_free, scale } = input;
    let share = min_free * managed / lowmem.max(1);
    let min = match kind {
        // Requests that may go below min rarely want movable memory.
        ZoneKind::Movable => (managed / 1024).clamp(32, 128),
        _ => share,
    };
    let gap = (share / 4).max(managed * scale / 10_000);
    [min, min + gap, min + 2 * gap, min + 3 * gap]
}

/// The limit of a boost of the marks: at least a page block, unless the marks or the factor are 0.
pub(super) fn max_boost(high: u64, factor: u64) -> u64 {
    match high * factor / 10_000 {
        0 => 0,
        pages => pages.max(PAGEBLOCK_ORDER.frames() as u64),
    }
}

/// Sizes of the CPUs' lists of a zone with `managed` pages and a low mark of `low`, shared by `cpus` CPUs.
/// `fraction` is `percpu_pagelist_high_fraction`.
pub fn pcp_sizes(managed: u64, low: u64, cpus: u64, fraction: u64) -> PcpSizes {
    /// Without a fraction, the lists of a zone never hold more than an eighth of it.
    const LEAST_FRACTION: u64 = 8;
    // 0.1 % of the zone, at most 1 MiB, and a quarter of that since it is scaled up again; then 2^n - 1, which
    // spreads the pages of alternating takers over cache colours better than 2^n.
    let quarter = ((managed >> 10).min(256) / 4).max(1);
    let batch = ((1 << (quarter + quarter / 2).ilog2()) - 1u64).max(1);
    let share = |pages: u64| (pages / cpus.max(1)).max(batch * 4) as u32;
    let (high_min, high_max) = match fraction {
        0 => (share(low), share(managed / LEAST_FRACTION)),
        n => (share(managed / n), share(managed / n)),
    };
    PcpSizes { batch: batch as u32, high_min, high_max: high_max.max(high_min) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_zone(managed: u64, kind: ZoneKind) -> [u64; 4] {
        let min_free = default_min_free_kbytes(managed * 4) / 4;
        marks(MarkInput { kind, managed, lowmem: managed, min_free, scale: 10 })
    }

    #[test]
    fn watermarks_match_the_reference_examples() {
        assert_eq!(one_zone(4_000_000, ZoneKind::Normal), [4000, 8000, 12000, 16000]);
        // 64 MiB: min_free 1024 KiB = 256 pages; a quarter of that exceeds 0.1 % of the zone.
        assert_eq!(
            one_zone(16_384, ZoneKind::Normal),
            [256, 320, 384, 448],
            "a quarter of min between marks"
        );
    }

    #[test]
    fn min_free_follows_the_square_root_within_limits() {
        assert_eq!(default_min_free_kbytes(16_000_000), 16_000);
        assert_eq!(default_min_free_kbytes(16 << 20), 16_384);
        assert_eq!(default_min_free_kbytes(1), 128);
        assert_eq!(default_min_free_kbytes(1 << 40), 262_144);
    }

    #[test]
    fn a_movable_zone_has_a_small_min_but_whole_gaps() {
        let [min, low, high, promo] = one_zone(4_000_000, ZoneKind::Movable);
        assert_eq!((min, low - min, high - low, promo - high), (128, 4000, 4000, 4000));
        assert_eq!(one_zone(8_192, ZoneKind::Movable)[0], 32);
    }

    #[test]
    fn rights_lower_the_mark() {
        let marks = [Reserve::None, Reserve::High, Reserve::Atomic, Reserve::Oom, Reserve::All];
        assert_eq!(marks.map(|r| r.lower(4000)), [4000, 2000, 1500, 2000, 0]);
        assert_eq!(Reserve::High.lower(7), 4);
    }

    #[test]
    fn free_memory_must_exceed_the_mark() {
        assert!(!above(4000, Order::ZERO, 4000, 0));
        assert!(above(4001, Order::ZERO, 4000, 0));
        assert!(!above(4001, Order::ZERO, 4000, 1));
        assert!(!above(4511, Order(9), 4000, 0));
        assert!(above(4512, Order(9), 4000, 0));
    }

    #[test]
    fn boosts_are_limited_by_the_high_mark() {
        assert_eq!((max_boost(12_000, 15_000), max_boost(100, 15_000), max_boost(100, 0)), (18_000, 512, 0));
    }

    #[test]
    fn list_sizes_follow_zone_and_cpus() {
        let sizes = |managed, low, cpus, fraction| {
            let s = pcp_sizes(managed, low, cpus, fraction);
            (s.batch, s.high_min, s.high_max)
        };
        assert_eq!(sizes(4_000_000, 8000, 8, 0), (63, 1000, 62_500));
        assert_eq!(sizes(4_000_000, 8000, 8, 100), (63, 5000, 5000));
        assert_eq!(sizes(1024, 100, 4, 0), (1, 25, 32));
    }
}
