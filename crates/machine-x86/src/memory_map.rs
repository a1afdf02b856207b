//! From the firmware's memory map to the ranges of the memory manager.
//!
//! All arithmetic uses [`Span`]s of physical bytes. The kernel's own memory is carved out first. The memory
//! manager gets only whole blocks of the rest, and only as much of each node as the run asks for: a run on a
//! machine of 64 MiB must see 64 MiB, however much the emulator has.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use mm::machine::{MemoryRange, ZoneKind};
use mm::units::{MAX_ORDER, NodeId, PAGE_SIZE, Pfn};

/// Memory below this belongs to the firmware, and to CPUs that start.
pub const LOW_END: u64 = 1 << 20;
/// Memory above this is out of reach for devices with 32-bit addresses.
const DMA32_END: u64 = 1 << 32;
/// Bytes of the largest block.
const BLOCK: u64 = PAGE_SIZE << MAX_ORDER.0;

/// Physical memory from `start` to just below `end`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// First byte.
    pub start: u64,
    /// The first byte after it.
    pub end: u64,
}

impl Span {
    /// From `start` to just below `end`; empty if `end` is below `start`.
    pub const fn new(start: u64, end: u64) -> Span {
        Span { start, end: if end < start { start } else { end } }
    }

    /// Number of bytes.
    pub const fn len(&self) -> u64 {
        self.end - self.start
    }

    /// Whether it has no bytes.
    pub const fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The common part of two spans.
    #[must_use]
    pub fn intersection(&self, other: Span) -> Span {
        Span::new(self.start.max(other.start), self.end.min(other.end))
    }
}

/// Memory of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeMemory {
    /// The memory.
    pub span: Span,
    /// The node.
    pub node: NodeId,
}

/// The pages that contain any byte of `span`.
pub fn pages_of(span: Span) -> Span {
    Span::new(span.start & !(PAGE_SIZE - 1), span.end.next_multiple_of(PAGE_SIZE))
}

/// Whole pages of ordinary memory above [`LOW_END`], in order, with adjacent spans joined.
pub fn usable(firmware: impl IntoIterator<Item = Span>) -> Vec<Span> {
    let page = |byte: u64| byte & !(PAGE_SIZE - 1);
    let whole = |span: Span| Span::new(page(span.start.saturating_add(PAGE_SIZE - 1)), page(span.end));
    let mut spans: Vec<Span> = firmware
        .into_iter()
        .map(|span| whole(Span::new(span.start.max(LOW_END), span.end)))
        .filter(|span| !span.is_empty())
        .collect();
    spans.sort_by_key(|span| span.start);
    let mut joined: Vec<Span> = Vec::new();
    for span in spans {
        match joined.last_mut() {
            Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
            _ => joined.push(span),
        }
    }
    joined
}

/// `spans` without `hole`.
pub fn without(spans: &[Span], hole: Span) -> Vec<Span> {
    let parts = |span: &Span| {
        let boundary = span.intersection(hole);
        match boundary.is_empty() {
            true => [*span, Span::new(0, 0)],
            false => [Span::new(span.start, boundary.start), Span::new(boundary.end, span.end)],
        }
    };
    spans.iter().flat_map(parts).filter(|span| !span.is_empty()).collect()
}

/// The lowest contiguous `bytes` of `spans` below `limit`, aligned to `align` (a power of two).
pub fn lowest(spans: &[Span], bytes: u64, align: u64, limit: u64) -> Option<Span> {
    spans.iter().find_map(|span| {
        let start = span.start.checked_next_multiple_of(align)?;
        let end = start.checked_add(bytes)?;
        (end <= span.end && end <= limit).then_some(Span { start, end })
    })
}

/// The ranges for the memory manager: the parts of `free` by node and kind, each beginning at a block.
///
/// `owners` has the memory of each node; other memory belongs to node 0. Unless `limits` is empty, each node
/// contributes exactly this many bytes. Fails, with a sentence for people, if a node has less.
pub fn ranges(free: &[Span], owners: &[NodeMemory], limits: &[u64]) -> Result<Vec<MemoryRange>, String> {
    let all = by_owner(free, owners);
    let ranges = if limits.is_empty() { all } else { limited(&all, limits)? };
    match ranges.is_empty() {
        true => Err("the machine has no whole block of memory for programs; use more memory".into()),
        false => Ok(ranges),
    }
}

/// Parts of `free`, split where the owner or the kind changes.
fn by_owner(free: &[Span], owners: &[NodeMemory]) -> Vec<MemoryRange> {
    let mut boundaries: Vec<u64> =
        owners.iter().flat_map(|owner| [owner.span.start, owner.span.end]).collect();
    boundaries.push(DMA32_END);
    boundaries.sort_unstable();
    let mut ranges = Vec::new();
    for span in free {
        let mut at = span.start;
        for &boundary in boundaries
            .iter()
            .filter(|boundary| (span.start + 1..span.end).contains(boundary))
            .chain([&span.end])
        {
            let node = owners.iter().find(|owner| (owner.span.start..owner.span.end).contains(&at));
            ranges.extend(range(Span::new(at, boundary), node.map_or(NodeId(0), |owner| owner.node)));
            at = boundary;
        }
    }
    ranges
}

fn range(span: Span, node: NodeId) -> Option<MemoryRange> {
    let start = span.start.checked_next_multiple_of(BLOCK)?;
    let frames = u32::try_from(span.end.saturating_sub(start) / PAGE_SIZE).ok()?;
    let kind = if start < DMA32_END { ZoneKind::Dma32 } else { ZoneKind::Normal };
    let start = Pfn(u32::try_from(start / PAGE_SIZE).ok()?);
    (frames > 0).then_some(MemoryRange { node, kind, start, frames })
}

fn limited(all: &[MemoryRange], limits: &[u64]) -> Result<Vec<MemoryRange>, String> {
    if let Some(range) = all.iter().find(|range| range.node.index() >= limits.len()) {
        return Err(format!("node {} has memory, but memory= has no size for it", range.node.0));
    }
    let mut ranges = Vec::new();
    for (node, limit) in limits.iter().enumerate() {
        let (node, share) = (NodeId(node as u8), limit / PAGE_SIZE);
        let mut missing = share;
        for range in all.iter().filter(|range| range.node == node) {
            let frames = missing.min(range.frames as u64) as u32;
            if frames > 0 {
                ranges.push(MemoryRange { frames, ..*range });
            }
            missing -= frames as u64;
        }
        if missing > 0 {
            return Err(format!(
                "node {} has only {} of the {} MiB that memory= asks for; use more memory or ask for less",
                node.0,
                ((share - missing) * PAGE_SIZE) >> 20,
                (share * PAGE_SIZE).div_ceil(1 << 20),
            ));
        }
    }
    ranges.sort_by_key(|range| range.start);
    Ok(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    fn owner(node: u8, start: u64, end: u64) -> NodeMemory {
        NodeMemory { node: NodeId(node), span: Span::new(start, end) }
    }

    #[test]
    fn only_whole_pages_above_the_firmware_are_usable() {
        let map = [Span::new(4 * MIB, 6 * MIB), Span::new(0, 2 * MIB + 5), Span::new(6 * MIB, 7 * MIB - 1)];
        assert_eq!(usable(map), [Span::new(MIB, 2 * MIB), Span::new(4 * MIB, 7 * MIB - PAGE_SIZE)]);
        assert_eq!(usable([Span::new(u64::MAX - 5, u64::MAX)]), []);
    }

    #[test]
    fn a_hole_splits_a_span() {
        let spans = [Span::new(0, 10), Span::new(20, 30)];
        assert_eq!(without(&spans, Span::new(5, 25)), [Span::new(0, 5), Span::new(25, 30)]);
        assert_eq!(without(&spans, Span::new(2, 3)), [Span::new(0, 2), Span::new(3, 10), Span::new(20, 30)]);
        assert_eq!(without(&spans, Span::new(10, 20)), spans);
    }

    #[test]
    fn the_lowest_fit_is_taken() {
        let spans = [Span::new(3, 10), Span::new(20, 60)];
        assert_eq!(lowest(&spans, 6, 4, 100), Some(Span::new(4, 10)));
        assert_eq!(lowest(&spans, 7, 4, 100), Some(Span::new(20, 27)));
        assert_eq!(lowest(&spans, 7, 4, 26), None);
    }

    #[test]
    fn ranges_begin_at_blocks_and_end_at_nodes_and_kinds() {
        let free = [Span::new(5 * MIB, 100 * MIB), Span::new(DMA32_END, DMA32_END + 64 * MIB)];
        let owners = [owner(0, 0, 64 * MIB), owner(1, 64 * MIB, DMA32_END + 64 * MIB)];
        let found = ranges(&free, &owners, &[]).unwrap();
        let seen: Vec<_> = found.iter().map(|r| (r.node.0, r.kind, r.start.0 >> 8, r.frames >> 8)).collect();
        assert_eq!(
            seen,
            [(0, ZoneKind::Dma32, 8, 56), (1, ZoneKind::Dma32, 64, 36), (1, ZoneKind::Normal, 4096, 64)]
        );
    }

    #[test]
    fn limits_are_exact_to_the_page() {
        let free = [Span::new(8 * MIB, 256 * MIB)];
        let owners = [owner(0, 0, 128 * MIB), owner(1, 128 * MIB, 256 * MIB)];
        let found = ranges(&free, &owners, &[40 * MIB + PAGE_SIZE, 80 * MIB]).unwrap();
        assert_eq!(found.iter().map(|r| r.frames).collect::<Vec<_>>(), vec![10241, 20480]);
        let wrong = |limits: &[u64]| ranges(&free, &owners, limits).unwrap_err();
        assert!(wrong(&[125 * MIB, MIB]).contains("node 0 has only 120 of the 125 MiB"));
        assert!(wrong(&[MIB]).contains("node 1 has memory"));
        assert!(wrong(&[5, 5]).contains("no whole block"));
    }

    proptest! {
        #[test]
        fn ranges_are_ordered_aligned_and_limited(
            map in prop::collection::vec((0u64..1 << 34, 0u64..1 << 30), 0..6),
            boundary in 0u64..1 << 34,
            limits in prop::option::of([0u64..1 << 30, 0u64..1 << 30]),
        ) {
            let free = usable(map.into_iter().map(|(start, len)| Span::new(start, start + len)));
            let owners = [owner(0, 0, boundary), owner(1, boundary, 1 << 35)];
            let limits = limits.as_ref().map_or(&[][..], |limits| &limits[..]);
            if let Ok(found) = ranges(&free, &owners, limits) {
                let mut end = 0;
                for range in &found {
                    prop_assert!(range.start.0 >= end && range.start.align_down(MAX_ORDER) == range.start);
                    end = range.start.0 + range.frames;
                }
                let frames: u64 = found.iter().map(|range| range.frames as u64).sum();
                let wanted: u64 = limits.iter().map(|limit| limit / PAGE_SIZE).sum();
                prop_assert!(limits.is_empty() || frames == wanted);
            }
        }
    }
}
