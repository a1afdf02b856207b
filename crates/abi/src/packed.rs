//! What compressors make of a page.

/// What compressors make of a page: for each a number of bytes in units of 16, rounded up.
///
/// 0: all its bytes are zero. 1: it repeats one word of 8 bytes, not zero. 255: it does not get smaller than 4,080
/// bytes. No other page becomes as small as 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packed {
    /// LZ4's block format, the fast compressor.
    pub lz4: u8,
    /// A frame of zstd's level 3.
    pub zstd: u8,
}

/// Bytes of a unit of [`Packed`].
pub const PACKED_UNIT: u64 = 16;

impl Packed {
    /// All bytes are zero.
    pub const ZERO: Packed = Packed { lz4: 0, zstd: 0 };
    /// One word is repeated.
    pub const SAME: Packed = Packed { lz4: 1, zstd: 1 };
    /// The number for a page that does not get smaller.
    pub const WHOLE: u8 = u8::MAX;

    /// The number for a page that becomes this many bytes.
    pub const fn units(bytes: usize) -> u8 {
        let units = (bytes as u64).div_ceil(PACKED_UNIT);
        if units >= Packed::WHOLE as u64 { Packed::WHOLE } else { units as u8 }
    }
}
