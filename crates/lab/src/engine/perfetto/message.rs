//! The part of protocol buffers that writing a trace needs (protobuf.dev/programming-guides/encoding).

/// A message that is being written.
#[derive(Default)]
pub(super) struct Message(Vec<u8>);

/// How a field's value is written.
const VARINT: u32 = 0;
const FIXED_64: u32 = 1;
const BYTES: u32 = 2;

/// Bytes for the length of a message within a message, which is known only after it. A varint may be longer than it
/// must be.
const LENGTH: usize = 4;

impl Message {
    /// A number. Negative ones of all types are written as 64 bits.
    pub(super) fn number(&mut self, field: u32, value: u64) {
        self.tag(field, VARINT);
        self.varint(value);
    }

    /// A number in 8 bytes.
    pub(super) fn fixed(&mut self, field: u32, value: u64) {
        self.tag(field, FIXED_64);
        self.0.extend(value.to_le_bytes());
    }

    /// A text.
    pub(super) fn text(&mut self, field: u32, value: &str) {
        self.tag(field, BYTES);
        self.varint(value.len() as u64);
        self.0.extend(value.as_bytes());
    }

    /// A message within this one.
    pub(super) fn message(&mut self, field: u32, write: impl FnOnce(&mut Message)) {
        self.tag(field, BYTES);
        let at = self.0.len();
        self.0.extend([0; LENGTH]);
        write(self);
        let length = self.0.len() - at - LENGTH;
        assert!(length < 1 << (7 * LENGTH), "a message must have less than 256 MiB");
        for (i, byte) in self.0[at..at + LENGTH].iter_mut().enumerate() {
            let more = if i + 1 < LENGTH { 0x80 } else { 0 };
            *byte = (length >> (7 * i) & 0x7f) as u8 | more;
        }
    }

    /// What was written; begins again.
    pub(super) fn take<T>(&mut self, with: impl FnOnce(&[u8]) -> T) -> T {
        let result = with(&self.0);
        self.0.clear();
        result
    }

    fn tag(&mut self, field: u32, kind: u32) {
        self.varint(u64::from(field << 3 | kind));
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}
