//! A preset with its memory split differently between its nodes.

use super::{Bytes, MachineSpec, lay_out};

impl MachineSpec {
    /// The machine of a name `PRESET:A:B`: a preset of two nodes with `A` parts of its memory on the first and `B` parts on
    /// the second. `None` for other names.
    pub fn from_ratio_name(name: &str) -> Option<MachineSpec> {
        let mut words = name.split(':');
        let mut spec = MachineSpec::preset(words.next()?).ok()?;
        let [a, b] = parts(words, 1024).filter(|_| spec.file.node.len() == 2)?;
        let total = spec.memory();
        let first = total * a / (a + b);
        for (node, bytes) in spec.file.node.iter_mut().zip([first, total - first]) {
            let before = node.memory();
            for range in &mut node.memory {
                range.size =
                    Bytes((u128::from(range.size.0) * u128::from(bytes) / u128::from(before)) as u64);
            }
        }
        spec.name = name.into();
        spec.ranges = lay_out(&spec.file.node, total).ok()?;
        Some(spec)
    }
}

/// Two parts of a whole, each at most `most`.
pub(super) fn parts<'a>(words: impl Iterator<Item = &'a str>, most: u64) -> Option<[u64; 2]> {
    let part = |word: &str| word.parse().ok().filter(|part| (1..=most).contains(part));
    words.map(part).collect::<Option<Vec<u64>>>()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_split_as_the_name_says() {
        let frames = |name: &str, bytes: u64| -> Vec<u32> {
            let spec = MachineSpec::from_ratio_name(name).unwrap().with_memory(bytes).unwrap();
            spec.ranges().iter().map(|range| range.frames).collect()
        };
        // Frames are whole.
        assert_eq!(frames("tiers:1:8", 90 << 20), [2559, 20481]);
        assert_eq!(frames("tiers:1:2", 90 << 20), [7680, 15360]);
        assert_eq!(MachineSpec::from_ratio_name("tiers:1:8").unwrap().name(), "tiers:1:8");
        for wrong in ["tiers", "tiers:1", "tiers:1:0", "tiers:1:2:3", "laptop:1:2", "unknown:1:2"] {
            assert!(MachineSpec::from_ratio_name(wrong).is_none(), "{wrong}");
        }
    }
}
