//! Random orders, the same in each run.

use program::rng::Rng;

/// The numbers below `count` in an order that no prefetcher knows.
pub(crate) fn shuffled(count: u32) -> Vec<u32> {
    let mut numbers: Vec<u32> = (0..count).collect();
    Rng::new(count.into()).shuffle(&mut numbers);
    numbers
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
