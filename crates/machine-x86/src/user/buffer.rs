//! Bytes that ring 3 and ring 0 exchange.
//!
//! Ring 0 writes to them without the compiler's knowledge, so they are atomic words, and only their address
//! is passed on.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A buffer in the user arena, which grows and never shrinks.
#[derive(Default)]
pub(super) struct Buffer {
    words: Vec<AtomicU64>,
}

impl Buffer {
    /// Ensure room for `bytes` bytes. The content is undefined.
    pub(super) fn reserve(&mut self, bytes: u64) {
        let words = bytes.div_ceil(8) as usize;
        if words > self.words.len() {
            self.words.resize_with(words, AtomicU64::default);
        }
    }

    /// Address of the first byte, aligned to words.
    pub(super) fn addr(&self) -> u64 {
        self.words.as_ptr().expose_provenance() as u64
    }

    /// Store a text; returns its address and length.
    pub(super) fn store_text(&mut self, text: &str) -> abi::Buffer {
        self.reserve(text.len() as u64);
        for (word, bytes) in self.words.iter().zip(text.as_bytes().chunks(8)) {
            let mut whole = [0; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(whole), Relaxed);
        }
        abi::Buffer { addr: self.addr(), len: text.len() as u64 }
    }

    pub(super) fn word(&self, index: u64) -> u64 {
        self.words[index as usize].load(Relaxed)
    }

    pub(super) fn set_word(&self, index: u64, word: u64) {
        self.words[index as usize].store(word, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_stored_as_its_bytes() {
        let mut buffer = Buffer::default();
        let stored = buffer.store_text("chaos-shared");
        assert_eq!((stored.addr, stored.len), (buffer.addr(), 12));
        assert_eq!(buffer.word(0).to_ne_bytes(), *b"chaos-sh");
        assert_eq!(buffer.word(1).to_ne_bytes(), *b"ared\0\0\0\0");
    }
}
