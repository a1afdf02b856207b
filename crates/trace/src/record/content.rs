//! What compressors make of the pages that the plugin has looked at.

use std::collections::HashMap;

use crate::codec::{Malformed, varint};
use crate::event::{Event, PAGE_SIZE, Packed};
use lz4_flex::block::{compress_into, get_maximum_output_size};

/// zstd's level: the one that Linux uses for compressed swap unless it is told another.
const LEVEL: i32 = 3;

/// The compressors, and what was told of pages.
pub(super) struct Contents {
    zstd: zstd::bulk::Compressor<'static>,
    room: Vec<u8>,
    /// By process and page.
    told: HashMap<(u32, u64), Packed>,
}

impl Contents {
    pub fn new() -> std::io::Result<Contents> {
        let page = PAGE_SIZE as usize;
        let room = get_maximum_output_size(page).max(zstd::zstd_safe::compress_bound(page));
        let zstd = zstd::bulk::Compressor::new(LEVEL)?;
        Ok(Contents { zstd, room: vec![0; room], told: HashMap::new() })
    }

    /// Pass the events that the body of a chunk is for a process: those of pages of which something else was told.
    pub fn events(&mut self, process: u32, body: &[u8]) -> Result<Vec<Event>, Malformed> {
        let (mut at, mut events) = (0, Vec::new());
        while at < body.len() {
            let page = varint(body, &mut at)?;
            at += 1;
            let packed = match body.get(at - 1) {
                Some(0) => Packed::ZERO,
                Some(1) => Packed::SAME,
                Some(2) => {
                    let bytes = body.get(at..at + PAGE_SIZE as usize).ok_or(Malformed)?;
                    at += bytes.len();
                    self.pack(bytes)
                }
                _ => return Err(Malformed),
            };
            if self.told.insert((process, page), packed) != Some(packed) {
                events.push(Event::Content { page, packed });
            }
        }
        Ok(events)
    }

    /// A page that is too long for the room, which has enough, would be one that does not get smaller.
    fn pack(&mut self, page: &[u8]) -> Packed {
        let lz4 = compress_into(page, &mut self.room).map_or(page.len(), |len| len);
        let zstd = self.zstd.compress_to_buffer(page, &mut self.room[..]).unwrap_or(page.len());
        Packed { lz4: Packed::units(lz4), zstd: Packed::units(zstd) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::put_varint;
    use program::PACKED_UNIT;
    use program::content::Words;

    fn body(page: u64, kind: u8, bytes: &[u8]) -> Vec<u8> {
        let mut body = Vec::new();
        put_varint(&mut body, page);
        body.push(kind);
        body.extend_from_slice(bytes);
        body
    }

    #[test]
    fn pages_are_told_when_they_have_changed() {
        let mut contents = Contents::new().unwrap();
        let text: Vec<u8> =
            b"the quick brown fox jumps over the lazy dog. ".iter().copied().cycle().take(4096).collect();
        let mut state = 1u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .take(4096)
        .collect();
        let chunk = [body(5, 0, &[]), body(6, 1, &[]), body(7, 2, &text), body(8, 2, &noise)].concat();
        let told = contents.events(0, &chunk).unwrap();
        let packed: Vec<Packed> = told
            .iter()
            .map(|event| match event {
                Event::Content { packed, .. } => *packed,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(packed[..2], [Packed::ZERO, Packed::SAME]);
        assert!(
            packed[2].lz4 > 1 && packed[2].lz4 < 10 && packed[2].zstd > 1 && packed[2].zstd < 10,
            "{packed:?}"
        );
        assert_eq!(packed[3], Packed { lz4: Packed::WHOLE, zstd: Packed::WHOLE });
        assert_eq!(contents.events(0, &chunk), Ok(vec![]));
        assert_eq!(contents.events(1, &chunk).unwrap().len(), 4, "another process has pages of its own");
        assert_eq!(contents.events(0, &body(5, 1, &[])).unwrap().len(), 1);
        assert_eq!(contents.events(0, &body(5, 3, &[])), Err(Malformed));
        assert_eq!(contents.events(0, &body(5, 2, &text[1..])), Err(Malformed));
    }

    /// What a Linux guest puts into pages becomes as small as the simulated machine takes it to be.
    #[test]
    fn made_pages_have_the_sizes_that_they_are_made_for() {
        let mut contents = Contents::new().unwrap();
        let bytes = |words: Words| words.all().into_iter().flat_map(u64::to_le_bytes).collect::<Vec<u8>>();
        for wanted in (64_i64..4000).step_by(7) {
            let page = bytes(Words::new(Some(wanted as u32)));
            let Packed { lz4, zstd } = contents.pack(&page);
            for units in [lz4, zstd] {
                let off = i64::from(units) * PACKED_UNIT as i64 - wanted;
                // Compressors add about 20 bytes (zstd), or 33 and one more for each 255 (lz4), where 32 are taken off;
                // and units are rounded up.
                assert!((-13..=32).contains(&off), "{units} units for {wanted} bytes");
            }
        }
        let page = bytes(Words::new(None));
        assert_eq!(contents.pack(&page), Packed { lz4: Packed::WHOLE, zstd: Packed::WHOLE });
    }
}
