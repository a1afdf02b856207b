//! Random numbers for programs: the same on every machine, integers only.

/// Weyl constant of the generator.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The seed of a task's random choices. It is the same on every machine, so that all make the same accesses.
pub const fn task_seed(seed: u64, task: u32) -> u64 {
    Rng::new(seed.wrapping_add(STEP.wrapping_mul(task as u64))).bits()
}

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014): small, and good
/// enough to choose pages.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator with a seed.
    pub const fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// 64 random bits.
    #[inline]
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        let z = self.0;
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which must not be 0. The bias is below n / 2^64.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        ((self.bits() as u128 * n as u128) >> 64) as u64
    }

    /// Shuffle items; all orders are equally likely.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }

    /// True with a probability of `share` percent.
    #[inline]
    pub fn percent(&mut self, share: u64) -> bool {
        self.below(100) < share
    }
}
