//! Sets of CPUs.

use crate::units::CpuId;

/// Most CPUs that a machine can have.
pub const MAX_CPUS: usize =
    if cfg!(any(feature = "loom", feature = "shuttle", feature = "few-cpus")) { 64 } else { 512 };

/// A set of CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CpuSet {
    words: [u64; MAX_CPUS / 64],
}

impl CpuSet {
    /// The empty set.
    pub const EMPTY: CpuSet = CpuSet { words: [0; MAX_CPUS / 64] };

    /// Add a CPU.
    #[inline]
    pub fn insert(&mut self, cpu: CpuId) {
        self.words[cpu.index() / 64] |= 1 << (cpu.0 % 64);
    }

    /// Take a CPU out.
    #[inline]
    pub fn remove(&mut self, cpu: CpuId) {
        self.words[cpu.index() / 64] &= !(1 << (cpu.0 % 64));
    }

    /// Whether the set contains `cpu`.
    #[inline]
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.words[cpu.index() / 64] & (1 << (cpu.0 % 64)) != 0
    }

    /// Whether the set is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    /// Set 64 CPUs at once, starting at `64 * index`.
    #[inline]
    pub fn set_word(&mut self, index: usize, word: u64) {
        self.words[index] = word;
    }

    /// Number of CPUs in the set.
    pub fn len(&self) -> u32 {
        self.words.iter().filter(|&&word| word != 0).map(|word| word.count_ones()).sum()
    }

    /// Whether all CPUs of this set are in `other`.
    #[inline]
    #[must_use]
    pub fn is_within(&self, other: &CpuSet) -> bool {
        // Branch-free: the result is almost always true, so an early exit would not pay.
        self.words.iter().zip(other.words).fold(0, |beyond, (&word, other)| beyond | (word & !other)) == 0
    }

    /// The CPUs that are not in `other`.
    #[must_use]
    pub fn without(&self, other: &CpuSet) -> CpuSet {
        let mut rest = *self;
        for (word, gone) in rest.words.iter_mut().zip(other.words) {
            *word &= !gone;
        }
        rest
    }

    /// Add all CPUs of `other`.
    pub fn union(&mut self, other: &CpuSet) {
        for (word, more) in self.words.iter_mut().zip(other.words) {
            *word |= more;
        }
    }

    /// The CPUs, in order.
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + use<> {
        let words = self.words;
        let (mut at, mut rest) = (0, words[0]);
        core::iter::from_fn(move || {
            while rest == 0 {
                at += 1;
                rest = *words.get(at)?;
            }
            let bit = rest.trailing_zeros();
            rest &= rest - 1;
            Some(CpuId((at * 64) as u16 + bit as u16))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std_alloc::vec::Vec;

    #[test]
    fn cpu_set_contains_inserted_cpus() {
        let mut set = CpuSet::EMPTY;
        for cpu in [0, 63, 64, 511] {
            set.insert(CpuId(cpu));
        }
        set.remove(CpuId(63));
        assert_eq!(set.iter().map(|c| c.0).collect::<Vec<_>>(), [0, 64, 511]);
        assert!(set.contains(CpuId(64)) && !set.contains(CpuId(63)) && set.len() == 3);
    }

    #[test]
    fn cpu_set_is_within_its_supersets() {
        let set = |cpus: &[u16]| {
            let mut set = CpuSet::EMPTY;
            cpus.iter().for_each(|&cpu| set.insert(CpuId(cpu)));
            set
        };
        assert!(CpuSet::EMPTY.is_within(&CpuSet::EMPTY) && set(&[1, 70]).is_within(&set(&[1, 2, 70])));
        assert!(!set(&[1, 70]).is_within(&set(&[1, 2])) && !set(&[2]).is_within(&CpuSet::EMPTY));
    }
}
