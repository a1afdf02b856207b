//! Reads and writes of a disk, without the page cache.

use crate::clock::nanos;
use crate::region::{Pages, Region};
use crate::{PAGE, unsupported};
use program::rng::Rng;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{pread, pwrite};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// Bytes of the scratch file.
const BYTES: usize = 64 << 20;
/// Bytes of a request in a row.
const REQUEST: usize = 1 << 20;
/// Requests of a page in a round.
const REQUESTS: usize = 16;

/// A scratch file without a name, which the system removes.
pub struct Disk {
    file: File,
    buffer: Region,
    random: Rng,
}

/// What one round measures.
#[derive(Clone, Copy, Debug)]
pub struct DiskTimes {
    /// Microseconds of a read of 4 KiB.
    pub read: f64,
    /// Microseconds of a write of 4 KiB.
    pub write: f64,
    /// MB/s of reads of 1 MiB.
    pub read_rate: f64,
    /// MB/s of writes of 1 MiB.
    pub write_rate: f64,
}

impl Disk {
    /// Write a scratch file in this folder.
    ///
    /// # Errors
    /// The file cannot be written, or its file system reads through the page cache alone.
    pub fn new(folder: &Path) -> io::Result<Disk> {
        let mut file = tempfile::tempfile_in(folder)?;
        let mut random = Rng::new(2);
        // Not zeroes, which some devices keep as no data.
        let block: Vec<u8> = (0..REQUEST / 8).flat_map(|_| random.bits().to_le_bytes()).collect();
        for _ in 0..BYTES / REQUEST {
            file.write_all(&block)?;
        }
        file.sync_all()?;
        let direct = fcntl_getfl(&file).and_then(|flags| fcntl_setfl(&file, flags | OFlags::DIRECT));
        direct.map_err(|_| unsupported("its file system has no direct reads"))?;
        let buffer = Region::new(REQUEST, Pages::Small)?;
        Ok(Disk { file, buffer, random })
    }

    /// Time all of them once.
    ///
    /// # Errors
    /// A request failed.
    pub fn round(&mut self) -> io::Result<DiskTimes> {
        let page = |time: f64| time / REQUESTS as f64 / 1000.0;
        let rate = |time: f64| REQUEST as f64 / time * 1000.0;
        Ok(DiskTimes {
            read: page(self.requests(REQUESTS, PAGE, false)?),
            write: page(self.requests(REQUESTS, PAGE, true)?),
            read_rate: rate(self.requests(1, REQUEST, false)?),
            write_rate: rate(self.requests(1, REQUEST, true)?),
        })
    }

    /// Nanoseconds of requests at random places.
    fn requests(&mut self, count: usize, bytes: usize, write: bool) -> io::Result<f64> {
        let Disk { file, buffer, random } = self;
        let buffer = &mut buffer.as_mut()[..bytes];
        let mut result = Ok(());
        let time = nanos(|| {
            for _ in 0..count {
                let place = random.below((BYTES / bytes) as u64) * bytes as u64;
                let done =
                    if write { pwrite(&*file, buffer, place) } else { pread(&*file, &mut *buffer, place) };
                result = match done {
                    Ok(all) if all == bytes => Ok(()),
                    Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
                    Err(error) => Err(io::Error::from(error)),
                };
                if result.is_err() {
                    return;
                }
            }
        });
        result.map(|()| time)
    }
}
