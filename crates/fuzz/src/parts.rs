//! A container, taken apart and repacked with valid checksums.
//!
//! This reads as much as possible, whatever the checksums say, so that one change can build on the damage of
//! another.

use trace::Header;
use trace::codec::Decoder;
use trace::container::Packer;
use trace::header::Counts;

const PREAMBLE: usize = 16;
const HEAD: usize = 24;
const META: u32 = u32::MAX;
/// Larger frames, unpacked, are left out.
const LARGE: usize = 1 << 16;

/// A frame of events.
#[derive(Clone)]
pub struct Frame {
    pub thread: u32,
    pub events: u32,
    pub raw: Vec<u8>,
}

/// The parts of a container.
pub struct Parts {
    pub frames: Vec<Frame>,
    pub header: Vec<u8>,
}

/// The words of a frame's head.
fn words(bytes: &[u8], at: usize) -> Option<[u32; 4]> {
    let head = bytes.get(at..at.checked_add(HEAD)?)?;
    Some(std::array::from_fn(|word| {
        u32::from_le_bytes([head[word * 4], head[word * 4 + 1], head[word * 4 + 2], head[word * 4 + 3]])
    }))
}

/// The frames whose heads and data are in the file, in order: position and words of the head.
pub fn heads(bytes: &[u8]) -> impl Iterator<Item = (usize, [u32; 4])> {
    let mut next = Some(PREAMBLE);
    std::iter::from_fn(move || {
        let at = next.take()?;
        let head = words(bytes, at)?;
        let end = at + HEAD + head[3] as usize;
        next = (head[0] != META).then_some(end);
        (end <= bytes.len()).then_some((at, head))
    })
}

impl Parts {
    /// Take it apart; `None` without a header.
    pub fn of(bytes: &[u8]) -> Option<Parts> {
        let mut frames = Vec::new();
        for (at, [thread, events, _, data_len]) in heads(bytes) {
            let data = &bytes[at + HEAD..][..data_len as usize];
            let Ok(raw) = zstd::bulk::decompress(data, LARGE) else { continue };
            match thread {
                META => return Some(Parts { frames, header: raw }),
                _ => frames.push(Frame { thread, events, raw }),
            }
        }
        None
    }

    /// Repack it.
    pub fn pack(&self) -> Vec<u8> {
        let mut packer = Packer::new(Vec::new(), 1).expect("writing to memory must succeed");
        for frame in &self.frames {
            packer.frame(frame.thread, frame.events, &frame.raw).expect("writing to memory must succeed");
        }
        packer.finish_raw(&self.header).expect("writing to memory must succeed")
    }

    /// Set index and counts to what the frames contain, if their events can be read, so that a reader
    /// continues to the events.
    pub fn fix_counts(&mut self) {
        let Ok(mut header) = Header::decode(&self.header) else { return };
        for thread in &mut header.threads {
            (thread.counts, thread.frames) = (Counts::default(), Vec::new());
        }
        self.frames.retain(|frame| (frame.thread as usize) < header.threads.len());
        let packed = self.pack();
        for (frame, (at, _)) in self.frames.iter_mut().zip(heads(&packed)) {
            let thread = &mut header.threads[frame.thread as usize];
            thread.frames.push(at as u64);
            let before = thread.counts.events;
            if let Ok(mut decoder) = Decoder::new(&frame.raw) {
                while let Ok(Some(event)) = decoder.next(&frame.raw) {
                    thread.counts.note(&event);
                }
            }
            frame.events = (thread.counts.events - before) as u32;
        }
        let mut events = vec![0; header.processes.len()];
        header.threads.iter().for_each(|thread| events[thread.process as usize] += thread.counts.events);
        for (process, events) in header.processes.iter_mut().zip(events) {
            process.epochs = process.epochs.min(events);
        }
        self.header = header.encode();
    }
}

/// Fix all checksums of a container and the content of its trailer, in place.
pub fn fix_checksums(bytes: &mut [u8]) {
    let found: Vec<(usize, [u32; 4])> = heads(bytes).collect();
    for &(at, [.., data_len]) in &found {
        let data = crc32fast::hash(&bytes[at + HEAD..][..data_len as usize]);
        let head = crc32fast::hash(&bytes[at..at + 16]);
        bytes[at + 16..at + 20].copy_from_slice(&head.to_le_bytes());
        bytes[at + 20..at + 24].copy_from_slice(&data.to_le_bytes());
    }
    let length = bytes.len();
    let Some(&(meta, _)) = found.last() else { return };
    if length < PREAMBLE + HEAD {
        return;
    }
    let trailer = &mut bytes[length - 24..];
    trailer[..8].copy_from_slice(&(meta as u64).to_le_bytes());
    trailer[8..16].copy_from_slice(&(length as u64).to_le_bytes());
    let crc = crc32fast::hash(&trailer[..16]);
    trailer[16..20].copy_from_slice(&crc.to_le_bytes());
    trailer[20..].copy_from_slice(b"PFT.");
}
