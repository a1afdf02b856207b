//! Chooses the frames that must be in use so that free memory is in blocks of given sizes.
//!
//! An aligned block of 2^n frames is a *node*; it is *occupied* if some frame in it is in use. A free block of order n is a
//! node that is not occupied and whose buddy is, so with a(n) occupied nodes of order n there are 2 a(n+1) - a(n) free
//! blocks of order n. The wanted numbers of free blocks thus determine, from the largest order down, how many nodes must be
//! occupied, and finally how many frames. Which ones is arbitrary, except that a node with a frame in use is occupied: they
//! are drawn at random.

use super::target::ORDERS;
use program::rng::Rng;

/// Frames in a block of the largest order.
pub(crate) const LARGEST: usize = 1 << (ORDERS - 1);

/// Why there is no plan.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Unreachable {
    /// The order.
    pub(crate) order: usize,
    /// Free blocks that are wanted.
    pub(crate) wanted: u64,
    /// The most that are possible with the wanted larger blocks.
    pub(crate) most: u64,
}

/// The frames to take, in ascending order, so that there are `wanted` free blocks of each order. `busy`: whether each frame
/// is in use or does not exist; its length is a multiple of the largest block.
pub(crate) fn plan(busy: &[bool], wanted: &[u64; ORDERS], rng: &mut Rng) -> Result<Vec<usize>, Unreachable> {
    let before = Busy::new(busy);
    let mut nodes = {
        let roots: Vec<usize> = (0..busy.len()).step_by(LARGEST).collect();
        let fails = |most| Unreachable { order: ORDERS - 1, wanted: wanted[ORDERS - 1], most };
        before.keep(roots, LARGEST, wanted[ORDERS - 1], rng).map_err(fails)?
    };
    for order in (0..ORDERS - 1).rev() {
        let fails = |most| Unreachable { order, wanted: wanted[order], most };
        nodes = before.descend(&nodes, 1 << order, wanted[order], rng).map_err(fails)?;
    }
    nodes.retain(|&frame| !busy[frame]);
    nodes.sort_unstable();
    Ok(nodes)
}

/// For each frame, how many before it are in use.
struct Busy(Vec<u32>);

impl Busy {
    fn new(busy: &[bool]) -> Busy {
        let mut sum = 0;
        let counts = busy.iter().map(|&one| {
            sum += u32::from(one);
            sum
        });
        Busy(std::iter::once(0).chain(counts).collect())
    }

    fn any(&self, at: usize, frames: usize) -> bool {
        self.0[at] != self.0[at + frames]
    }

    /// Leave `free` of these nodes free, chosen at random. The error is how many can be.
    fn keep(&self, nodes: Vec<usize>, frames: usize, free: u64, rng: &mut Rng) -> Result<Vec<usize>, u64> {
        let (mut kept, mut open): (Vec<usize>, Vec<usize>) =
            nodes.into_iter().partition(|&at| self.any(at, frames));
        let occupied = (open.len() as u64).checked_sub(free).ok_or(open.len() as u64)?;
        rng.shuffle(&mut open);
        kept.extend(&open[..occupied as usize]);
        Ok(kept)
    }

    /// The occupied halves of occupied nodes, of `frames` frames each; `free` of the nodes have a free half, chosen at random.
    /// The error is how many can have one.
    fn descend(&self, parents: &[usize], frames: usize, free: u64, rng: &mut Rng) -> Result<Vec<usize>, u64> {
        let mut occupied = Vec::with_capacity(parents.len() * 2);
        let mut open = Vec::with_capacity(parents.len());
        for &parent in parents {
            let halves = [parent, parent + frames];
            match halves.map(|half| self.any(half, frames)) {
                [true, true] => occupied.extend(halves),
                [true, false] => open.push((halves[0], halves[1])),
                [false, true] => open.push((halves[1], halves[0])),
                [false, false] => {
                    let first = rng.below(2) as usize;
                    open.push((halves[first], halves[1 - first]));
                }
            }
        }
        let filled = (open.len() as u64).checked_sub(free).ok_or(open.len() as u64)?;
        rng.shuffle(&mut open);
        occupied.extend(open.iter().map(|&(one, _)| one));
        occupied.extend(open[..filled as usize].iter().map(|&(_, other)| other));
        Ok(occupied)
    }
}

/// The average number of free blocks of each order if `held` random frames of `blocks` page blocks, at least one of each,
/// are in use, and these page blocks are randomly placed among `roots` largest blocks.
pub(crate) fn random_blocks(roots: u64, blocks: u64, held: u64) -> [u64; ORDERS] {
    const PAGEBLOCK: usize = ORDERS - 2;
    let in_each = held as f64 / blocks.max(1) as f64;
    let free = 1.0 - blocks as f64 / (2 * roots) as f64;
    let occupied = |order: usize| match order {
        PAGEBLOCK => blocks as f64,
        ORDERS.. => roots as f64,
        _ if order > PAGEBLOCK => roots as f64 * (1.0 - free * free),
        _ => {
            // The probability that none of the node's frames is in use.
            let all = (1 << PAGEBLOCK) as f64;
            let frames = (0..1 << order).map(f64::from);
            let none: f64 = frames.map(|i| (all - in_each - i).max(0.0) / (all - i)).product();
            blocks as f64 * (1 << (PAGEBLOCK - order)) as f64 * (1.0 - none)
        }
    };
    let mut above = roots;
    let mut free_blocks = [0; ORDERS];
    for (order, free) in free_blocks.iter_mut().enumerate().rev() {
        let (least, most) = if order == ORDERS - 1 { (0, roots) } else { (above, 2 * above) };
        let nodes = (occupied(order).round() as u64).clamp(least, most);
        *free = most - nodes;
        above = nodes;
    }
    free_blocks
}

/// Free blocks of each order.
#[cfg(test)]
pub(crate) fn free_blocks(busy: &[bool]) -> [u64; ORDERS] {
    let mut blocks = [0; ORDERS];
    let mut at = 0;
    while at < busy.len() {
        let order = (0..ORDERS).rev().find(|&order| {
            at.is_multiple_of(1 << order) && busy[at..at + (1 << order)].iter().all(|&one| !one)
        });
        blocks[order.unwrap_or(0)] += u64::from(order.is_some());
        at += 1 << order.unwrap_or(0);
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;
    use program::rng::Rng;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        /// The state that random frames in use create is reached by a plan for its blocks, even if some of those frames are
        /// in use from the begin.
        #[test]
        fn possible_states_are_reached(
            frames in proptest::collection::vec(0..4 * LARGEST, 0..400),
            already in proptest::collection::vec(any::<prop::sample::Index>(), 0..20),
            seed in any::<u64>(),
        ) {
            let mut there = vec![false; 4 * LARGEST];
            frames.iter().for_each(|&frame| there[frame] = true);
            let wanted = free_blocks(&there);
            let mut busy = vec![false; there.len()];
            if !frames.is_empty() {
                already.iter().for_each(|index| busy[*index.get(&frames)] = true);
            }
            let taken = plan(&busy, &wanted, &mut Rng::new(seed)).unwrap();
            prop_assert!(taken.iter().all(|&frame| !busy[frame]));
            taken.iter().for_each(|&frame| busy[frame] = true);
            prop_assert_eq!(free_blocks(&busy), wanted);
        }
    }

    #[test]
    fn impossible_states_are_refused() {
        let mut rng = Rng::new(1);
        let mut wanted = [0; ORDERS];
        // The buddy of each free single page must be in use.
        wanted[0] = LARGEST as u64 / 2 + 1;
        let error = plan(&[false; LARGEST], &wanted, &mut rng).unwrap_err();
        assert_eq!(error, Unreachable { order: 0, wanted: wanted[0], most: LARGEST as u64 / 2 });
        let mut wanted = [0; ORDERS];
        wanted[ORDERS - 1] = 1;
        let mut busy = [false; LARGEST];
        busy[77] = true;
        assert_eq!(plan(&busy, &wanted, &mut rng), Err(Unreachable { order: 10, wanted: 1, most: 0 }));
    }

    #[test]
    fn chance_leaves_what_it_leaves() {
        let roots = 64;
        let (blocks, held) = (96, 96 * 20);
        let wanted = random_blocks(roots, blocks, held);
        let busy = vec![false; roots as usize * LARGEST];
        let taken = plan(&busy, &wanted, &mut Rng::new(1)).unwrap();
        let off = (taken.len() as f64 - held as f64).abs() / held as f64;
        assert!(off < 0.01, "{} frames for {held}", taken.len());
        let whole = wanted[9] + 2 * wanted[10];
        assert_eq!(whole, 2 * roots - blocks);
    }
}
