//! Compression of pages, for compressed swap: LZ4, by a crate. What a CPU has made of a page stays in its buffer until
//! the memory manager has found a place for it.

use crate::arch::cpu;
use alloc::vec;
use alloc::vec::Vec;
use lz4_flex::block::{CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size};
use mm::machine::ObjectPlace;
use mm::units::{PAGE_SIZE, Pfn};
use spin::Mutex;

/// Bytes of a page.
const PAGE: usize = PAGE_SIZE as usize;
/// What a CPU compresses with.
struct Buffer {
    table: CompressTable,
    bytes: Vec<u8>,
    /// What is in `bytes`: the page, and how long it became.
    made: Option<(Pfn, usize)>,
}

/// The buffers of all CPUs.
pub struct Compression(Vec<Mutex<Buffer>>);

impl Compression {
    /// Buffers for this many CPUs.
    pub fn new(cpus: usize) -> Compression {
        let buffer = || Buffer {
            table: CompressTable::small(),
            bytes: vec![0; get_maximum_output_size(PAGE)],
            made: None,
        };
        Compression((0..cpus).map(|_| Mutex::new(buffer())).collect())
    }

    /// Use this CPU's buffer. A task that compresses does not sleep, so no other task has it.
    fn with_own<T>(&self, then: impl FnOnce(&mut Buffer) -> T) -> T {
        let mut buffer = self.0[cpu::current().id().index()].try_lock().expect("a CPU's buffer is its own");
        then(&mut buffer)
    }

    /// How many bytes a page becomes; they stay in the buffer.
    pub fn compress(&self, pfn: Pfn, page: &[u8; PAGE]) -> u32 {
        self.with_own(|buffer| {
            let made = compress_into_with_table(page, &mut buffer.bytes, &mut buffer.table);
            let made = made.expect("the buffer has room for whatever a page becomes");
            buffer.made = Some((pfn, made));
            made as u32
        })
    }

    /// Put what is in the buffer, which is of this page, into an object.
    pub fn store(&self, pfn: Pfn, object: ObjectPlace, frame: impl Fn(Pfn) -> *mut u8) {
        self.with_own(|buffer| {
            assert_eq!(buffer.made, Some((pfn, object.bytes as usize)), "the buffer has another page");
            let mut from = &buffer.bytes[..];
            for (to, len) in parts(object, &frame) {
                let (now, rest) = from.split_at(len);
                // SAFETY: the part is in frames of compressed memory, whose object is only this task's.
                unsafe { to.copy_from_nonoverlapping(now.as_ptr(), len) };
                from = rest;
            }
        });
    }

    /// Fill a page with what is in an object.
    pub fn load(&self, object: ObjectPlace, page: &mut [u8; PAGE], frame: impl Fn(Pfn) -> *mut u8) {
        self.with_own(|buffer| {
            buffer.made = None;
            gather(object, &mut buffer.bytes, &frame);
            let made = decompress_into(&buffer.bytes[..object.bytes as usize], page);
            assert!(matches!(made, Ok(PAGE)), "compressed memory has changed at {object:?}");
        });
    }

    /// Move an object.
    pub fn move_object(&self, from: ObjectPlace, to: ObjectPlace, frame: impl Fn(Pfn) -> *mut u8) {
        self.with_own(|buffer| {
            gather(from, &mut buffer.bytes, &frame);
            buffer.made = Some((Pfn::NONE, to.bytes as usize));
        });
        self.store(Pfn::NONE, to, frame);
    }
}

/// The parts of an object: where they are, and their bytes.
fn parts(object: ObjectPlace, frame: impl Fn(Pfn) -> *mut u8) -> impl Iterator<Item = (*mut u8, usize)> {
    let (offset, bytes) = (object.offset as usize, object.bytes as usize);
    let first = bytes.min(PAGE - offset);
    // SAFETY: the offset is within the frame.
    let head = (unsafe { frame(object.frame).add(offset) }, first);
    let tail = (first < bytes).then(|| (frame(object.next), bytes - first));
    core::iter::once(head).chain(tail)
}

/// Copy an object into a buffer.
fn gather(object: ObjectPlace, to: &mut [u8], frame: impl Fn(Pfn) -> *mut u8) {
    let mut at = 0;
    for (from, len) in parts(object, frame) {
        // SAFETY: the part is in frames of compressed memory, and its object stays while it is read.
        unsafe { from.copy_to_nonoverlapping(to[at..at + len].as_mut_ptr(), len) };
        at += len;
    }
}
