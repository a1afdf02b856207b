//! The optimum of who cannot see that a use was the last one.

use super::room::Room;

/// Moments from `start` to `end`, both included, at which a page has to be in memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Stay {
    pub(super) page: u32,
    pub(super) start: u64,
    pub(super) end: u64,
}

/// The fewest times that pages have to come back if they are in memory during `stays`, with `frames` frames. Each
/// moment is the start of one stay at most; stays of a page may overlap.
pub(super) fn fewest_returns(mut stays: Vec<Stay>, frames: u64) -> u64 {
    stays.sort_unstable();
    stays.dedup_by(|next, before| {
        let joined = next.page == before.page && next.start <= before.end + 1;
        if joined {
            before.end = before.end.max(next.end);
        }
        joined
    });
    // Memory is fullest where a stay starts: room is asked for at these moments only.
    let mut ends: Vec<u64> = stays.iter().map(|stay| stay.end).collect();
    ends.sort_unstable();
    let mut starts: Vec<(u64, Option<u64>)> = stays.iter().map(|stay| (stay.start, None)).collect();
    for (i, pair) in stays.windows(2).enumerate() {
        if pair[0].page == pair[1].page {
            starts[i + 1].1 = Some(pair[0].end);
        }
    }
    drop(stays);
    starts.sort_unstable();
    let (mut room, mut ended, mut returns) = (Room::default(), 0, 0);
    for (i, &(start, before)) in starts.iter().enumerate() {
        if let Some(end) = before {
            let first = starts[..i].partition_point(|&(start, _)| start <= end);
            let kept = first == i || room.keep(starts[first].0);
            returns += u64::from(!kept);
        }
        while ended < ends.len() && ends[ended] < start {
            ended += 1;
        }
        let here = (i + 1 - ended) as u64;
        room.moment(start, frames.saturating_sub(here));
    }
    returns
}
