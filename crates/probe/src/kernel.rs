//! System calls, faults, and calls that change mappings, per page.

use crate::PAGE;
use crate::clock::{nanos, quickest, shortest};
use crate::region::{Pages, Region};
use rustix::fd::OwnedFd;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::hint::black_box;
use std::io;

/// Pages that are timed together: few, so that frames come back from the list of the CPU that freed them.
const PAGES: usize = 128;
/// System calls that are timed together.
const CALLS: u32 = 1000;

/// Paths through the kernel that have no other work than the kernel's own.
pub struct Kernel {
    many: Region,
    one: Region,
    file: OwnedFd,
}

/// Nanoseconds of one call or of one page.
#[derive(Clone, Copy, Debug)]
pub struct KernelTimes {
    /// getpid.
    pub call: f64,
    /// The first load of a page of anonymous memory, which maps the page of zeroes.
    pub zero_fault: f64,
    /// The first store to a page of anonymous memory, without clearing it.
    pub fault: f64,
    /// The first load of a page of a file that is in the page cache, by a map of 4 KiB pages, with those around it.
    pub file_fault: f64,
    /// Taking the right to store from a page.
    pub protect: f64,
    /// Unmapping a page of anonymous memory, and freeing it.
    pub unmap: f64,
}

impl Kernel {
    /// Set memory up.
    ///
    /// # Errors
    /// The system has none.
    pub fn new() -> io::Result<Kernel> {
        let file = memfd_create("probe", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, (PAGES * PAGE) as u64)?;
        let zeroes = vec![0u8; PAGES * PAGE];
        rustix::io::pwrite(&file, &zeroes, 0)?;
        Ok(Kernel { many: region(PAGES)?, one: region(1)?, file })
    }

    /// Time all of them once.
    ///
    /// # Errors
    /// A call failed.
    pub fn round(&mut self) -> io::Result<KernelTimes> {
        Ok(KernelTimes {
            call: quickest(call),
            zero_fault: shortest(|| self.zero_fault())?,
            fault: self.fault()?,
            file_fault: shortest(|| self.file_fault())?,
            protect: self.protect()?,
            unmap: unmap()?,
        })
    }

    fn zero_fault(&mut self) -> io::Result<f64> {
        self.many.discard()?;
        Ok(each(nanos(|| self.many.read_pages())))
    }

    fn fault(&mut self) -> io::Result<f64> {
        let fault = shortest(|| {
            self.many.discard()?;
            Ok(nanos(|| self.many.write_pages()))
        })?;
        // The kernel has just cleared the same pages, from the same place in the caches.
        let mut clear = || self.many.as_mut().chunks_mut(PAGE).for_each(|page| black_box(page).fill(0));
        Ok(each(fault - quickest(|| nanos(&mut clear))))
    }

    fn file_fault(&mut self) -> io::Result<f64> {
        let file = Region::of_file(&self.file, PAGES * PAGE)?;
        Ok(each(nanos(|| file.read_pages())))
    }

    /// The call for many pages, less the call for one.
    fn protect(&mut self) -> io::Result<f64> {
        let time = |region: &Region| -> io::Result<f64> {
            region.write_pages();
            let mut result = Ok(());
            let time = nanos(|| result = region.allow_stores(false));
            result?;
            region.allow_stores(true)?;
            Ok(time)
        };
        let [many, one] = [&self.many, &self.one].map(|region| shortest(|| time(region)));
        Ok((many? - one?) / (PAGES - 1) as f64)
    }
}

/// A system call that does nothing but look a number up.
fn call() -> f64 {
    let calls = || {
        (0..CALLS).for_each(|_| {
            black_box(rustix::process::getpid());
        })
    };
    nanos(calls) / f64::from(CALLS)
}

fn region(pages: usize) -> io::Result<Region> {
    Region::new(pages * PAGE, Pages::Small)
}

fn each(time: f64) -> f64 {
    time / PAGES as f64
}

/// Unmapping many pages, less unmapping one.
fn unmap() -> io::Result<f64> {
    let time = |pages: usize| -> io::Result<f64> {
        let region = region(pages)?;
        region.write_pages();
        Ok(nanos(move || drop(region)))
    };
    let [many, one] = [PAGES, 1].map(|pages| shortest(|| time(pages)));
    Ok((many? - one?) / (PAGES - 1) as f64)
}
