//! Maps by small keys.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A hash map whose order depends on its history only.
pub(super) type Map<K, V> = HashMap<K, V, BuildHasherDefault<KeyHasher>>;

/// A hash of a few small numbers, each mixed in with one multiplication.
#[derive(Default)]
pub(super) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte as u64));
    }

    #[inline]
    fn write_u8(&mut self, value: u8) {
        self.write_u64(value as u64);
    }

    #[inline]
    fn write_u32(&mut self, value: u32) {
        self.write_u64(value as u64);
    }

    /// Discriminants of enums are hashed by this.
    #[inline]
    fn write_isize(&mut self, value: isize) {
        self.write_u64(value as u64);
    }

    #[inline]
    fn write_u64(&mut self, value: u64) {
        // 2^64 divided by the golden ratio; the map takes its bits from both ends.
        let mixed = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }
}
