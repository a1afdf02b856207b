//! Ranges of program addresses.

use abi::Errno;
use mm::units::{PAGE_SIZE, Vpn, pages_of};

/// Bits of a program address.
pub const ADDRESS_BITS: u32 = 47;

/// The pages of a range given in bytes; an error if it is no valid range.
pub fn range(addr: u64, len: u64) -> Result<(Vpn, u64), Errno> {
    let end = addr.checked_add(len).filter(|&end| end <= 1 << ADDRESS_BITS);
    match end {
        Some(_) if addr.is_multiple_of(PAGE_SIZE) && len > 0 => Ok((Vpn::of(addr), pages_of(len))),
        _ => Err(Errno::Inval),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_accepts_page_aligned_program_addresses_only() {
        assert_eq!(range(0x1000, 1), Ok((Vpn(1), 1)));
        assert_eq!(range((1 << 47) - 4096, 4096).map(|(_, pages)| pages), Ok(1));
        for (addr, len) in [(1, 4096), (0, 0), (1 << 47, 1), (4096, u64::MAX), (0, u64::MAX)] {
            assert_eq!(range(addr, len), Err(Errno::Inval));
        }
    }
}
