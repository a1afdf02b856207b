//! Compressing and decompressing pages.

use crate::PAGE;
use crate::clock::{nanos, shortest};
use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size};
use program::rng::Rng;
use std::hint::black_box;
use std::io;
use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::compress_bound;

/// zstd's level: the one that Linux uses for compressed swap unless it is told another.
const LEVEL: i32 = 3;
/// Pages, and those of them that no compressor makes smaller: 31 % in Google's data centres (Lagar-Cavilla et al.,
/// ASPLOS 2019).
const PAGES: usize = 16;
const NOISE: usize = 5;

/// Pages, and compressors.
pub struct Compression {
    pages: Vec<Vec<u8>>,
    room: Vec<u8>,
    table: CompressTable,
    zstd: Compressor<'static>,
    unzstd: Decompressor<'static>,
}

/// Nanoseconds of a page. Pages that do not get smaller are compressed, and never decompressed, as in Linux.
#[derive(Clone, Copy, Debug)]
pub struct CompressionTimes {
    /// lz4.
    pub lz4: f64,
    /// lz4, back.
    pub unlz4: f64,
    /// zstd.
    pub zstd: f64,
    /// zstd, back.
    pub unzstd: f64,
}

impl Compression {
    /// Make pages: 31 % noise, and the others records as programs have them on their heaps.
    ///
    /// # Errors
    /// zstd has no memory.
    pub fn new() -> io::Result<Compression> {
        let mut random = Rng::new(1);
        let pages =
            (0..PAGES).map(|page| if page < NOISE { noise(&mut random) } else { records(&mut random) });
        Ok(Compression {
            pages: pages.collect(),
            room: vec![0; get_maximum_output_size(PAGE).max(compress_bound(PAGE))],
            table: CompressTable::default(),
            zstd: Compressor::new(LEVEL)?,
            unzstd: Decompressor::new()?,
        })
    }

    /// Time all of them once.
    ///
    /// # Errors
    /// A compressor failed.
    pub fn round(&mut self) -> io::Result<CompressionTimes> {
        let Compression { pages, room, table, zstd, unzstd } = self;
        let mut lz4 = |page: &[u8], room: &mut [u8]| {
            compress_into_with_table(page, room, table).map_err(io::Error::other)
        };
        let unlz4 = |packed: &[u8], room: &mut [u8]| decompress_into(packed, room).map_err(io::Error::other);
        let [lz4, unlz4] = times(pages, room, &mut lz4, unlz4)?;
        let mut pack = |page: &[u8], room: &mut [u8]| zstd.compress_to_buffer(page, room);
        let unpack = |packed: &[u8], room: &mut [u8]| unzstd.decompress_to_buffer(packed, room);
        let [zstd, unzstd] = times(pages, room, &mut pack, unpack)?;
        Ok(CompressionTimes { lz4, unlz4, zstd, unzstd })
    }
}

/// Nanoseconds a page of compressing all, and of decompressing those that get smaller.
fn times(
    pages: &[Vec<u8>],
    room: &mut [u8],
    mut pack: impl FnMut(&[u8], &mut [u8]) -> io::Result<usize>,
    mut unpack: impl FnMut(&[u8], &mut [u8]) -> io::Result<usize>,
) -> io::Result<[f64; 2]> {
    let packing = timed(pages, |page| pack(page, room))?;
    let mut packed = Vec::new();
    for page in &pages[NOISE..] {
        let bytes = pack(page, room)?;
        packed.push(room[..bytes].to_vec());
    }
    let unpacking = timed(&packed, |bytes| unpack(bytes, &mut room[..PAGE]))?;
    Ok([packing, unpacking])
}

/// Nanoseconds of `work` for one of these.
fn timed(pages: &[Vec<u8>], mut work: impl FnMut(&[u8]) -> io::Result<usize>) -> io::Result<f64> {
    let mut all = || pages.iter().try_for_each(|page| work(page).map(|bytes| assert!(black_box(bytes) > 0)));
    let time = shortest(|| {
        let mut result = Ok(());
        let time = nanos(|| result = all());
        result.map(|()| time)
    })?;
    Ok(time / pages.len() as f64)
}

fn noise(random: &mut Rng) -> Vec<u8> {
    (0..PAGE / 8).flat_map(|_| random.bits().to_le_bytes()).collect()
}

/// Records of 64 bytes: a type, pointers into one heap, small numbers, a short name, and nothing.
fn records(random: &mut Rng) -> Vec<u8> {
    const HEAP: u64 = 0x7f3a_5800_0000;
    let record = |_| {
        let mut pointer = || HEAP + random.below(1 << 20) * 16;
        let (left, right) = (pointer(), pointer());
        let (kind, count, length) = (random.below(4), random.below(1000), random.below(12));
        let name =
            [*b"node\0\0\0\0", *b"string\0\0", *b"vector\0\0", *b"element\0"][random.below(4) as usize];
        let words =
            [0x55d0_c0de_0000 + kind * 0x140, left, right, count, length, u64::from_le_bytes(name), 0, 1];
        words.into_iter().flat_map(u64::to_le_bytes).collect::<Vec<u8>>()
    };
    (0..PAGE / 64).flat_map(record).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_compress_as_the_simulator_draws_them() {
        let mut compression = Compression::new().unwrap();
        let Compression { pages, room, table, zstd, .. } = &mut compression;
        let (mut lz4s, mut zstds) = (Vec::new(), Vec::new());
        for page in &*pages {
            lz4s.push(compress_into_with_table(page, room, table).unwrap());
            zstds.push(zstd.compress_to_buffer(page, &mut room[..]).unwrap());
        }
        assert!(
            lz4s[..NOISE].iter().chain(&zstds[..NOISE]).all(|&bytes| bytes >= PAGE),
            "{lz4s:?} {zstds:?}"
        );
        // With lz4 26 to 43 %, with zstd 20 to 34 %.
        assert!(lz4s[NOISE..].iter().all(|bytes| (1065..1780).contains(bytes)), "{lz4s:?}");
        assert!(zstds[NOISE..].iter().all(|bytes| (832..1390).contains(bytes)), "{zstds:?}");
        assert!(compression.round().is_ok());
    }
}
