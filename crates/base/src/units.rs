//! Indices and sizes. Each has its own type, so that a page number cannot be mistaken for a frame number.

/// log2 of the page size.
pub const PAGE_SHIFT: u32 = 12;
/// Bytes in a page.
pub const PAGE_SIZE: u64 = 1 << PAGE_SHIFT;
/// Entries in one page-table page.
pub const TABLE_ENTRIES: usize = 512;
/// Order of the largest block that the allocator keeps (4 MiB).
pub const MAX_ORDER: Order = Order(10);
/// Order of a page block, the unit of mobility grouping, and of a 2 MiB entry.
pub const PAGEBLOCK_ORDER: Order = Order(9);
/// Frames in a page block.
pub const PAGEBLOCK_FRAMES: u32 = PAGEBLOCK_ORDER.frames();

/// Declare types that number things.
#[macro_export]
macro_rules! index {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[repr(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// As an index into an array.
            #[inline]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                write!(f, concat!($prefix, "{:x}"), self.0)
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Debug::fmt(self, f)
            }
        }
    };
}

index!(
    /// Number of a physical frame: physical address / 4096.
    Pfn(u32), "F");
index!(
    /// Number of a virtual page: virtual address / 4096.
    Vpn(u64), "V");
index!(
    /// Index of a page in a file, or in the numbering of an anonymous mapping.
    PageIndex(u64), "I");
index!(
    /// A CPU.
    CpuId(u16), "C");
index!(
    /// A zone, numbered across all nodes.
    ZoneId(u8), "Z");
index!(
    /// An address space.
    SpaceId(u32), "S");
index!(
    /// A file: something with a page cache.
    FileId(u32), "f");
index!(
    /// log2 of a number of frames.
    Order(u8), "o");

/// A time or a duration of the machine's clock, in nanoseconds.
pub type Nanos = u64;

impl Pfn {
    /// "No frame": the end of a list, an empty slot.
    pub const NONE: Pfn = Pfn(u32::MAX);

    /// Whether this is a frame at all.
    #[inline]
    pub const fn is_some(self) -> bool {
        self.0 != u32::MAX
    }

    /// The frame `n` frames further on.
    #[inline]
    pub const fn add(self, n: u32) -> Pfn {
        Pfn(self.0 + n)
    }

    /// The buddy of the block of `order` that this frame heads.
    #[inline]
    pub const fn buddy(self, order: Order) -> Pfn {
        Pfn(self.0 ^ (1 << order.0))
    }

    /// The head of the block of `order` that contains this frame.
    #[inline]
    pub const fn align_down(self, order: Order) -> Pfn {
        Pfn(self.0 & !((1 << order.0) - 1))
    }
}

impl Order {
    /// One frame.
    pub const ZERO: Order = Order(0);

    /// Frames in a block of this order. Every hot path calls this, so it does not check that the order is less than
    /// 32.
    #[inline]
    pub const fn frames(self) -> u32 {
        1u32.wrapping_shl(self.0 as u32)
    }
}

impl Vpn {
    /// The page that contains a byte address.
    #[inline]
    pub const fn of(addr: u64) -> Vpn {
        Vpn(addr >> PAGE_SHIFT)
    }

    /// The page's first byte.
    #[inline]
    pub const fn addr(self) -> u64 {
        self.0 << PAGE_SHIFT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buddies_are_mutual_and_share_a_parent() {
        for order in 0..10 {
            let a = Pfn(0x5400).align_down(Order(order));
            let b = a.buddy(Order(order));
            assert_eq!(b.buddy(Order(order)), a);
            assert_eq!(a.align_down(Order(order + 1)), b.align_down(Order(order + 1)));
        }
    }

    #[test]
    fn names_say_what_they_number() {
        assert_eq!(std_alloc::format!("{} {:?} {}", Pfn(31), Order(9), CpuId(2)), "F1f o9 C2");
    }
}
