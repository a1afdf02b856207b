//! The optimum of a policy that cannot see that a use was the last one.

use super::capacity::Capacity;

/// The moments from `start` to `end`, both included, at which a page must be in memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Residency {
    pub(super) page: u32,
    pub(super) start: u64,
    pub(super) end: u64,
}

/// The fewest refaults if pages are in memory during `residencies`, with `frames` frames. At most one residency starts at
/// each moment; those of one page may overlap.
pub(super) fn fewest_returns(mut residencies: Vec<Residency>, frames: u64) -> u64 {
    residencies.sort_unstable();
    residencies.dedup_by(|next, before| {
        let joined = next.page == before.page && next.start <= before.end + 1;
        if joined {
            before.end = before.end.max(next.end);
        }
        joined
    });
    // Memory is fullest when a residency starts, so only these moments matter.
    let mut ends: Vec<u64> = residencies.iter().map(|residency| residency.end).collect();
    ends.sort_unstable();
    let mut starts: Vec<(u64, Option<u64>)> =
        residencies.iter().map(|residency| (residency.start, None)).collect();
    for (i, pair) in residencies.windows(2).enumerate() {
        if pair[0].page == pair[1].page {
            starts[i + 1].1 = Some(pair[0].end);
        }
    }
    drop(residencies);
    starts.sort_unstable();
    let (mut capacity, mut ended, mut returns) = (Capacity::default(), 0, 0);
    for (i, &(start, before)) in starts.iter().enumerate() {
        if let Some(end) = before {
            let first = starts[..i].partition_point(|&(start, _)| start <= end);
            let kept = first == i || capacity.keep(starts[first].0);
            returns += u64::from(!kept);
        }
        while ended < ends.len() && ends[ended] < start {
            ended += 1;
        }
        let here = (i + 1 - ended) as u64;
        capacity.moment(start, frames.saturating_sub(here));
    }
    returns
}
