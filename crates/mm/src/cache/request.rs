//! Block requests of several folios.
//!
//! A task that reads or writes folio after folio of a file fills one request while their blocks follow each other, and
//! pays for building and completing the request once. Each folio is still a transfer of its own: it is unlocked, or no
//! longer under write-back, as soon as its own pages are done. (Linux 6.12: `ext4_mpage_readpages` and
//! `ext4_bio_write_folio` add folios to one bio.) Each folio of swap has a request of its own. (There, it has a bio of
//! its own, too, which the block layer may join to others.)

use crate::machine::Io;
use crate::units::*;

/// Pages of the largest request: 1 MiB (Linux: `BIO_MAX_VECS`, for single pages).
const REQUEST_PAGES: u32 = 256;

/// The request that a task is filling.
#[derive(Default)]
pub(crate) struct BlockRequest {
    /// Where it ends: its device and the next block.
    end: Option<(DeviceId, u64)>,
    pages: u32,
}

impl BlockRequest {
    /// Add a transfer, whose direction is that of the others. Whether it continues the request; else it begins the
    /// next one.
    pub(super) fn add(&mut self, io: &Io) -> bool {
        let continues =
            self.end == Some((io.device, io.block)) && self.pages.saturating_add(io.pages) <= REQUEST_PAGES;
        self.pages = if continues { self.pages + io.pages } else { io.pages };
        self.end = Some((io.device, io.block + u64::from(io.pages)));
        continues
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adds(request: &mut BlockRequest, device: u8, block: u64, pages: u32) -> bool {
        request.add(&Io {
            device: DeviceId(device),
            write: false,
            block,
            frame: Pfn(1),
            pages,
            continues: false,
        })
    }

    #[test]
    fn a_request_goes_on_while_blocks_follow_each_other() {
        let mut request = BlockRequest::default();
        assert!(!adds(&mut request, 0, 7, 1));
        assert!(adds(&mut request, 0, 8, 4));
        assert!(adds(&mut request, 0, 12, 1));
        assert!(!adds(&mut request, 0, 14, 1), "a block is left out");
        assert!(!adds(&mut request, 1, 15, 1), "another device");
        assert!(!adds(&mut request, 1, 15, 1), "the same block");
    }

    #[test]
    fn a_request_that_is_full_is_followed_by_another() {
        let mut request = BlockRequest::default();
        for block in 0..600 {
            assert_eq!(adds(&mut request, 0, block, 1), block % 256 != 0, "block {block}");
        }
    }
}
