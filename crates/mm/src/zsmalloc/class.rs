//! Size classes of compressed memory.
//!
//! Source: mm/zsmalloc.c of Linux 6.12, for pages of 4 KiB, 64-bit handles and CONFIG_ZSMALLOC_CHAIN_SIZE = 8.

use crate::units::PAGE_SIZE;
use std_alloc::vec::Vec;

/// Bytes of the handle in front of each object (ZS_HANDLE_SIZE).
pub(super) const HEADER: u32 = 8;
/// The most frames of a zspage (ZS_MAX_PAGES_PER_ZSPAGE).
pub(super) const MAX_FRAMES: usize = 8;
/// The smallest class (ZS_MIN_ALLOC_SIZE).
const LEAST: u32 = 32;
/// From one class to the next (ZS_SIZE_CLASS_DELTA).
const STEP: u32 = 16;
const PAGE: u32 = PAGE_SIZE as u32;
/// Classes before any are merged (ZS_SIZE_CLASSES).
const CLASSES: u32 = (PAGE - LEAST).div_ceil(STEP) + 1;

/// Objects of one size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ZsClass {
    /// Bytes of an object with its handle.
    pub size: u32,
    /// Frames of a zspage.
    pub frames: u32,
    /// Objects of a zspage.
    pub objects: u32,
}

impl ZsClass {
    /// The class for objects of `size` bytes with their handles: as many frames as leave the least over.
    fn new(size: u32) -> ZsClass {
        let waste = |&frames: &u32| frames * PAGE % size;
        let frames = match size.is_power_of_two() {
            true => 1,
            false => (1..=MAX_FRAMES as u32).min_by_key(waste).expect("there is a smallest"),
        };
        ZsClass { size, frames, objects: frames * PAGE / size }
    }

    /// Whether an object fills its zspage, a single frame. Its handle is kept elsewhere then.
    pub(super) fn is_whole(&self) -> bool {
        (self.frames, self.objects) == (1, 1)
    }
}

/// The fewest bytes that need a frame of their own (zs_huge_class_size).
pub const HUGE_SIZE: u32 = 3625;

/// All classes.
pub(super) struct ZsClasses {
    /// The smallest first. Of neighbours with equal zspages, the largest serves all.
    pub classes: Vec<ZsClass>,
    /// By size, the class that serves it.
    by_size: Vec<u8>,
}

impl ZsClasses {
    pub fn new() -> ZsClasses {
        let mut found: Vec<ZsClass> = Vec::new();
        let mut by_size = std_alloc::vec![0; CLASSES as usize];
        for index in (0..CLASSES).rev() {
            let class = ZsClass::new((LEAST + index * STEP).min(PAGE));
            let merges =
                found.last().is_some_and(|last| (last.frames, last.objects) == (class.frames, class.objects));
            if !merges {
                found.push(class);
            }
            by_size[index as usize] = found.len() as u8 - 1;
        }
        let last = found.len() as u8 - 1;
        found.reverse();
        by_size.iter_mut().for_each(|class| *class = last - *class);
        ZsClasses { classes: found, by_size }
    }

    /// The class of an object of `bytes`, without its handle.
    pub fn of(&self, bytes: u32) -> usize {
        let index = (bytes + HEADER).saturating_sub(LEAST).div_ceil(STEP).min(CLASSES - 1);
        self.by_size[index as usize].into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zspages_have_the_frames_that_leave_least_over() {
        // By hand: 48 bytes leave 16 of one frame, 32 of two, none of three. 2720: 1376 of 1, 32 of 2, 1408 of 3,
        // 64 of 4, 1440 of 5, 96 of 6, 1472 of 7, 128 of 8. 3264: 832, 1664, 2496, 64, ...
        for (size, frames, objects) in
            [(32, 1, 128), (48, 3, 256), (64, 1, 64), (2048, 1, 2), (2720, 2, 3), (3264, 4, 5), (4096, 1, 1)]
        {
            assert_eq!(ZsClass::new(size), ZsClass { size, frames, objects });
        }
    }

    #[test]
    fn classes_with_equal_zspages_are_merged_into_the_largest() {
        let classes = ZsClasses::new();
        let of = |bytes| classes.classes[classes.of(bytes)];
        assert_eq!([1, 24, 25].map(|bytes| of(bytes).size), [32, 32, 48]);
        // 9 objects of 3632 bytes fit into 8 frames; from 3648 on, 8 frames have room for 8, one for each.
        assert_eq!(of(HUGE_SIZE - 1), ZsClass { size: 3632, frames: 8, objects: 9 });
        assert_eq!(of(HUGE_SIZE), ZsClass { size: 4096, frames: 1, objects: 1 });
        assert_eq!(of(4096), of(HUGE_SIZE));
        assert!(of(4096).is_whole() && !of(HUGE_SIZE - 1).is_whole());
        assert_eq!(classes.classes.len(), 119);
        // Every object fits into its class, and no smaller class has the same zspages.
        for bytes in 1..=4088 {
            assert!(of(bytes).size >= bytes + HEADER || of(bytes).is_whole(), "{bytes}");
        }
        let zspages = |class: &ZsClass| (class.frames, class.objects);
        assert!(classes.classes.windows(2).all(|two| zspages(&two[0]) != zspages(&two[1])));
    }
}
