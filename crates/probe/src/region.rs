//! Memory whose mapping a probe controls.

use crate::{LARGE, PAGE, unsupported};
use rustix::fd::AsFd;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};
use std::ffi::c_void;
use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// The sizes of pages that a region asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pages {
    /// 4 KiB.
    Small,
    /// 2 MiB.
    Large,
}

/// A mapping of its own, which begins at a multiple of 2 MiB if it is anonymous. Accesses are atomic, so threads may
/// share it. A store while it is read-only ends the process, as anywhere.
pub(crate) struct Region {
    mapped: NonNull<c_void>,
    mapped_bytes: usize,
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the region, and threads access it by atomic operations alone.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Anonymous private memory.
    pub fn new(bytes: usize, pages: Pages) -> io::Result<Region> {
        let mapped_bytes = bytes + LARGE;
        let (rights, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: the system chooses a place where nothing is.
        let mapped = unsafe { rustix::mm::mmap_anonymous(null_mut(), mapped_bytes, rights, flags)? };
        let start = mapped.cast::<u8>();
        // SAFETY: the result is less than `LARGE` behind the start of a mapping that is `LARGE` longer than `bytes`.
        let start = unsafe { start.add(start.addr().wrapping_neg() % LARGE) };
        let region = Region::of(mapped, mapped_bytes, start, bytes)?;
        region.advise(match pages {
            Pages::Small => Advice::LinuxNoHugepage,
            Pages::Large => Advice::LinuxHugepage,
        })?;
        Ok(region)
    }

    /// Anonymous memory that is in large pages.
    ///
    /// # Errors
    /// The system gives none.
    pub fn in_large_pages(bytes: usize) -> io::Result<Region> {
        let region = Region::new(bytes, Pages::Large)?;
        region.write_pages();
        let known = std::fs::read_to_string("/proc/self/smaps")?;
        match large_bytes(&known, region.start.as_ptr().addr()) >= bytes as u64 {
            true => Ok(region),
            false => Err(unsupported("the system gives no transparent huge pages")),
        }
    }

    /// A private mapping of the first `bytes` of a file, to be read.
    pub fn of_file(file: impl AsFd, bytes: usize) -> io::Result<Region> {
        // SAFETY: the system chooses a place where nothing is.
        let mapped =
            unsafe { rustix::mm::mmap(null_mut(), bytes, ProtFlags::READ, MapFlags::PRIVATE, file, 0)? };
        Region::of(mapped, bytes, mapped.cast(), bytes)
    }

    fn of(mapped: *mut c_void, mapped_bytes: usize, start: *mut u8, bytes: usize) -> io::Result<Region> {
        let nowhere = || unsupported("a mapping begins at 0");
        let mapped = NonNull::new(mapped).ok_or_else(nowhere)?;
        Ok(Region { mapped, mapped_bytes, start: NonNull::new(start).ok_or_else(nowhere)?, bytes })
    }

    /// Bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where it begins.
    pub fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// A byte.
    pub fn byte(&self, at: usize) -> &AtomicU8 {
        assert!(at < self.bytes, "{at} is behind the region");
        // SAFETY: the byte is in the mapping, which lives as long as `self`, and is accessed by atomics alone.
        unsafe { AtomicU8::from_ptr(self.start.as_ptr().add(at)) }
    }

    /// Load a byte.
    #[inline]
    pub fn read(&self, at: usize) -> u8 {
        self.byte(at).load(Relaxed)
    }

    /// Store a byte.
    #[inline]
    pub fn write(&self, at: usize, byte: u8) {
        self.byte(at).store(byte, Relaxed);
    }

    /// Load a byte of each page.
    pub fn read_pages(&self) {
        (0..self.bytes).step_by(PAGE).for_each(|at| {
            std::hint::black_box(self.read(at));
        });
    }

    /// Store to each page.
    pub fn write_pages(&self) {
        (0..self.bytes).step_by(PAGE).for_each(|at| self.write(at, 1));
    }

    /// All of it, for a caller that shares it with no thread.
    pub fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: the mapping has these bytes, is readable and writable unless the caller has changed that, and
        // `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }

    /// Give its pages back; they are zeroes then.
    pub fn discard(&mut self) -> io::Result<()> {
        self.advise(Advice::LinuxDontNeed)
    }

    fn advise(&self, advice: Advice) -> io::Result<()> {
        // SAFETY: advice for a mapping of its own; what it may do to content is what the callers want.
        unsafe { rustix::mm::madvise(self.start.as_ptr().cast(), self.bytes, advice) }
            .map_err(io::Error::from)
    }

    /// Allow stores, or refuse them.
    pub fn allow_stores(&self, allow: bool) -> io::Result<()> {
        let rights = if allow { MprotectFlags::READ | MprotectFlags::WRITE } else { MprotectFlags::READ };
        // SAFETY: a mapping of its own, which stays readable.
        unsafe { rustix::mm::mprotect(self.start.as_ptr().cast(), self.bytes, rights) }
            .map_err(io::Error::from)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is the region's own, and no reference to it outlives the region. There is no remedy for
        // an error.
        let _ = unsafe { rustix::mm::munmap(self.mapped.as_ptr(), self.mapped_bytes) };
    }
}

/// Bytes in large pages from `start` on, in the mapping that has this address, as /proc/PID/smaps says.
fn large_bytes(smaps: &str, start: usize) -> u64 {
    let range = |line: &str| {
        let (from, to) = line.split_whitespace().next()?.split_once('-')?;
        Some((usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?))
    };
    let mut inside = false;
    for line in smaps.lines() {
        if let Some((from, to)) = range(line) {
            inside = (from..to).contains(&start);
        } else if let Some(rest) = line.strip_prefix("AnonHugePages:").filter(|_| inside) {
            let kib = rest.trim().trim_end_matches("kB").trim().parse::<u64>();
            return kib.unwrap_or(0) << 10;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_keep_what_is_stored_until_they_are_discarded() {
        let mut region = Region::new(4 * PAGE, Pages::Small).unwrap();
        region.write_pages();
        assert_eq!((region.read(0), region.read(3 * PAGE), region.read(1)), (1, 1, 0));
        region.allow_stores(false).unwrap();
        region.read_pages();
        region.allow_stores(true).unwrap();
        region.as_mut()[PAGE] = 7;
        assert_eq!(region.read(PAGE), 7);
        region.discard().unwrap();
        assert_eq!(region.read(PAGE), 0);
        assert_eq!(region.start.as_ptr().addr() % LARGE, 0);
    }

    #[test]
    fn large_pages_are_those_of_the_mapping_at_the_address() {
        let smaps = "1000-3000 rw-p 0 00:00 0 \nSize: 8 kB\nAnonHugePages:      2048 kB\n\
                     3000-4000 r--p 0 00:00 0 [heap]\nAnonHugePages:         0 kB\n";
        assert_eq!(large_bytes(smaps, 0x1000), 2048 << 10);
        assert_eq!(large_bytes(smaps, 0x3000), 0);
        assert_eq!(large_bytes(smaps, 0x5000), 0);
    }
}
