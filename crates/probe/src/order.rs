//! Random orders, the same in each run.

/// The numbers below `count` in an order that no prefetcher knows.
pub(crate) fn shuffled(count: u32) -> Vec<u32> {
    let mut numbers: Vec<u32> = (0..count).collect();
    let mut random = Random(u64::from(count));
    for end in (1..numbers.len()).rev() {
        numbers.swap(end, random.below(end as u64 + 1) as usize);
    }
    numbers
}

/// Random numbers of a seed (splitmix64).
pub(crate) struct Random(pub u64);

impl Random {
    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shuffled_numbers_are_all_there_and_have_neighbours_apart() {
        let order = shuffled(1000);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..1000).collect::<Vec<_>>());
        let near = order.windows(2).filter(|two| two[0].abs_diff(two[1]) < 8).count();
        assert!(near < 50, "{near}");
        assert_eq!(shuffled(1), [0]);
    }
}
