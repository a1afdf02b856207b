//! What compressors make of pages, for compressed swap.
//!
//! For each page it is known how many bytes each compressor makes of it ([`Packed`]). This is drawn when a program
//! first stores to the page, or the recording says it. It moves as bytes do: with copies, with transfers, and into and
//! out of objects of compressed memory, which keep the oracle's stamp, too. [`program::content`] says what is drawn.
//!
//! What a file held before the run is not known either, so it is drawn. Once a program stores to the page, or to its
//! private copy, the recording knows better.

use crate::content::Stamp;
use crate::in_flight::InFlight;
use mm::machine::{Compressor, Io, ObjectPlace};
use mm::units::{PAGE_SIZE, Pfn};
use program::content::{bytes, draw, lzo_rle, mixed};
use program::{PACKED_UNIT, Packed};
use std::collections::HashMap;

/// Bytes that a compressor makes of a page that does not get smaller: a little more than there are.
const INCOMPRESSIBLE: u32 = (PAGE_SIZE + PACKED_UNIT) as u32;

/// What is known of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Page {
    packed: Packed,
    /// Whether a program has stored to it since it was zeroed or read from a file.
    stored: bool,
}

impl Page {
    const ZERO: Page = Page { packed: Packed::ZERO, stored: false };

    fn stored(packed: Packed) -> Page {
        Page { packed, stored: true }
    }
}

/// An object of compressed memory.
#[derive(Clone, Copy)]
struct Object {
    place: ObjectPlace,
    page: Page,
    stamp: Stamp,
}

/// What compressors make of all pages.
pub(crate) struct Packing {
    seed: u64,
    /// How many times as large compressed pages are as what is recorded or drawn.
    factor: f64,
    frames: Vec<Page>,
    /// Blocks that were written; others draw.
    blocks: HashMap<(u8, u64), Page>,
    /// Writes in flight.
    writes: InFlight<Page>,
    /// By the frame in which they begin.
    objects: HashMap<Pfn, Vec<Object>>,
    /// What the recording has said of a page of a space.
    told: HashMap<(u32, u64), Packed>,
}

impl Packing {
    /// Zeroes everywhere, for frames below `frames`.
    pub(crate) fn new(frames: usize, seed: u64, factor: f64) -> Packing {
        Packing {
            seed,
            factor,
            frames: vec![Page::ZERO; frames],
            blocks: HashMap::new(),
            writes: InFlight::default(),
            objects: HashMap::new(),
            told: HashMap::new(),
        }
    }

    /// Frames get other content: no object is there any more.
    fn overwrite(&mut self, first: Pfn, pages: u32) {
        if !self.objects.is_empty() {
            (0..pages).for_each(|page| drop(self.objects.remove(&first.add(page))));
        }
    }

    pub(crate) fn zero(&mut self, first: Pfn, pages: u32) {
        self.overwrite(first, pages);
        self.frames[first.index()..][..pages as usize].fill(Page::ZERO);
    }

    pub(crate) fn copy(&mut self, to: Pfn, from: Pfn, pages: u32) {
        self.overwrite(to, pages);
        self.frames.copy_within(from.index()..from.index() + pages as usize, to.index());
    }

    /// A program stores to a page of a space, or of a file. Returns whether the page still holds zeroes.
    pub(crate) fn store(&mut self, (owner, page): (u32, u64), pfn: Pfn) -> bool {
        let now = &mut self.frames[pfn.index()];
        // The recording may have told something else since a store left the page zero.
        if now.packed == Packed::ZERO || !now.stored {
            let told = self.told.get(&(owner, page)).copied();
            let was = Some(now.packed).filter(|&packed| packed != Packed::ZERO);
            let packed = told.or(was).unwrap_or_else(|| draw(self.seed, owner.into(), page));
            *now = Page::stored(packed);
        }
        now.packed == Packed::ZERO
    }

    /// The recording says what a page of a space holds, which is in this frame, if it is in memory.
    pub(crate) fn tell(&mut self, (space, page): (u32, u64), pfn: Option<Pfn>, packed: Packed) {
        self.told.insert((space, page), packed);
        if let Some(pfn) = pfn {
            self.frames[pfn.index()] = Page::stored(packed);
        }
    }

    /// A transfer is submitted.
    pub(crate) fn begin(&mut self, io: &Io) {
        self.writes.begin(io, &self.frames);
    }

    /// A transfer ends; `done`: it has not failed.
    pub(crate) fn finish(&mut self, io: &Io, done: bool) {
        if io.write {
            self.blocks.extend(self.writes.end(io).filter(|_| done));
            return;
        }
        if !done {
            return;
        }
        self.overwrite(io.frame, io.pages);
        for (page, block) in (0..io.pages).zip(io.block..) {
            let drawn = || {
                let packed = draw(self.seed, 1 << 32 | u64::from(io.device.0), block);
                Page { packed, stored: false }
            };
            let held = self.blocks.get(&(io.device.0, block)).copied().unwrap_or_else(drawn);
            self.frames[io.frame.add(page).index()] = held;
        }
    }

    /// Whether frames hold zeroes only.
    pub(crate) fn is_zero(&self, first: Pfn, pages: u32) -> bool {
        self.frames[first.index()..][..pages as usize].iter().all(|page| page.packed == Packed::ZERO)
    }

    /// Whether a page repeats one word, not zero.
    pub(crate) fn is_same(&self, page: Pfn) -> bool {
        self.frames[page.index()].packed == Packed::SAME
    }

    /// Fill a page with one word.
    pub(crate) fn fill(&mut self, page: Pfn) {
        self.overwrite(page, 1);
        self.frames[page.index()] = Page::stored(Packed::SAME);
    }

    /// How many bytes a compressor makes of a page. Packeds are in units: where in its unit a size is, is drawn.
    pub(crate) fn compressed(&self, page: Pfn, by: Compressor) -> u32 {
        let packed = self.frames[page.index()].packed;
        let units = match by {
            Compressor::Lz4 | Compressor::LzoRle => packed.lz4,
            Compressor::Zstd => packed.zstd,
        };
        let lzo = |bytes| if by == Compressor::LzoRle { lzo_rle(bytes) } else { bytes };
        let scaled = |bytes| (f64::from(lzo(bytes)) * self.factor) as u32;
        let smaller = bytes(units, mixed(self.seed, 2, page.0.into())).map(scaled);
        smaller.filter(|&bytes| u64::from(bytes) < PAGE_SIZE).map_or(INCOMPRESSIBLE, |bytes| bytes.max(1))
    }

    /// Store a page, with its stamp, in an object.
    pub(crate) fn pack(&mut self, page: Pfn, place: ObjectPlace, stamp: Stamp) {
        self.put(Object { place, page: self.frames[page.index()], stamp });
    }

    fn put(&mut self, object: Object) {
        self.remove(object.place);
        self.objects.entry(object.place.frame).or_default().push(object);
    }

    fn find(&self, place: ObjectPlace) -> Option<Object> {
        let objects = self.objects.get(&place.frame).into_iter().flatten();
        objects.copied().find(|object| object.place == place)
    }

    fn remove(&mut self, place: ObjectPlace) {
        if let Some(objects) = self.objects.get_mut(&place.frame) {
            objects.retain(|other| other.place.offset != place.offset);
        }
    }

    /// Fill a page from an object; returns the stamp.
    pub(crate) fn unpack(&mut self, place: ObjectPlace, page: Pfn) -> Stamp {
        let object = self
            .find(place)
            .unwrap_or_else(|| panic!("compressed memory must keep {place:?}, whose frame was used since"));
        self.overwrite(page, 1);
        self.frames[page.index()] = object.page;
        object.stamp
    }

    /// Move an object. One that nothing was stored in yet holds nothing at its new place either.
    pub(crate) fn move_object(&mut self, from: ObjectPlace, to: ObjectPlace) {
        match self.find(from) {
            Some(object) => self.put(Object { place: to, ..object }),
            None => self.remove(to),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use program::content::REPEATED;

    #[test]
    fn a_page_keeps_its_sizes_in_objects_and_on_devices() {
        let mut packing = Packing::new(8, 1, 1.0);
        assert!(packing.is_zero(Pfn(0), 8));
        packing.store((1, 5), Pfn(2));
        let packed = packing.frames[2];
        assert_ne!(packed, Page::ZERO);
        let place = ObjectPlace { frame: Pfn(6), offset: 8, next: Pfn(7), bytes: 1400 };
        let moved = ObjectPlace { frame: Pfn(5), ..place };
        packing.pack(Pfn(2), place, 77);
        packing.move_object(place, moved);
        packing.zero(Pfn(6), 1);
        assert_eq!((packing.unpack(moved, Pfn(3)), packing.frames[3]), (77, packed));
        let io = |write, frame| Io {
            device: mm::units::DeviceId(1),
            write,
            block: 4,
            frame,
            pages: 1,
            continues: false,
        };
        packing.begin(&io(true, Pfn(3)));
        packing.finish(&io(true, Pfn(3)), true);
        packing.finish(&io(false, Pfn(1)), true);
        assert_eq!(packing.frames[1], packed);
        // The same page draws the same again.
        packing.zero(Pfn(2), 1);
        packing.store((1, 5), Pfn(2));
        assert_eq!(packing.frames[2], packed);
        packing.tell((1, 5), Some(Pfn(2)), Packed::SAME);
        assert!(packing.is_same(Pfn(2)) && packing.compressed(Pfn(2), Compressor::Lz4) == REPEATED);
    }

    #[test]
    fn sizes_are_scaled_up_to_a_whole_page() {
        let size = |factor, packed| {
            let mut packing = Packing::new(1, 1, factor);
            packing.tell((1, 5), Some(Pfn(0)), packed);
            packing.compressed(Pfn(0), Compressor::Lz4)
        };
        let third = Packed { lz4: 86, zstd: 70 };
        let whole = Packed { lz4: Packed::WHOLE, zstd: Packed::WHOLE };
        assert_eq!(size(0.5, third), size(1.0, third) / 2);
        assert_eq!((size(4.0, third), size(0.1, whole)), (INCOMPRESSIBLE, INCOMPRESSIBLE));
        assert_eq!(size(0.001, Packed::SAME), 1);
    }

    #[test]
    fn a_page_keeps_what_the_recording_said() {
        let mut packing = Packing::new(4, 1, 1.0);
        packing.tell((1, 5), None, Packed::SAME);
        packing.tell((1, 6), None, Packed::ZERO);
        assert!(!packing.store((1, 5), Pfn(0)) && packing.is_same(Pfn(0)));
        assert!(packing.store((1, 6), Pfn(1)) && packing.is_zero(Pfn(1), 1));
        packing.tell((1, 6), Some(Pfn(1)), Packed { lz4: 7, zstd: 6 });
        assert!(!packing.store((1, 6), Pfn(1)));
        assert!(!packing.store((2, 6), Pfn(2)), "another space draws");
    }

    /// As a program's relocations, which it stores to its private copies of a file's pages.
    #[test]
    fn a_private_copy_of_a_file_becomes_what_the_recording_said() {
        let mut packing = Packing::new(4, 1, 1.0);
        let read = Io {
            device: mm::units::DeviceId(0),
            write: false,
            block: 9,
            frame: Pfn(0),
            pages: 1,
            continues: false,
        };
        packing.finish(&read, true);
        let file = packing.frames[0].packed;
        assert_ne!(file, Packed::ZERO);
        let third = Packed { lz4: 86, zstd: 70 };
        packing.tell((1, 5), None, third);
        for (page, expected) in [(5, third), (6, file)] {
            packing.copy(Pfn(1), Pfn(0), 1);
            packing.store((1, page), Pfn(1));
            assert_eq!(packing.frames[1].packed, expected, "of page {page}");
        }
        // What the program stored stays when it is read again.
        let place = ObjectPlace { frame: Pfn(3), offset: 0, next: Pfn(3), bytes: 1400 };
        packing.pack(Pfn(1), place, 7);
        packing.unpack(place, Pfn(2));
        packing.tell((1, 6), None, third);
        packing.store((1, 6), Pfn(2));
        assert_eq!(packing.frames[2].packed, file);
    }

    /// A pool may move an object between its allocation and the store of a page in it.
    #[test]
    fn an_object_moves_before_it_holds_a_page() {
        let mut packing = Packing::new(8, 1, 1.0);
        let place = ObjectPlace { frame: Pfn(6), offset: 8, next: Pfn(7), bytes: 1400 };
        let moved = ObjectPlace { frame: Pfn(5), ..place };
        // The page of an object that was freed.
        packing.pack(Pfn(2), moved, 76);
        packing.move_object(place, moved);
        assert!(packing.find(moved).is_none());
        packing.pack(Pfn(2), moved, 77);
        assert_eq!(packing.unpack(moved, Pfn(3)), 77);
    }

    #[test]
    #[should_panic(expected = "whose frame was used since")]
    fn an_object_whose_frame_was_used_is_missed() {
        let mut packing = Packing::new(8, 1, 1.0);
        let place = ObjectPlace { frame: Pfn(6), offset: 8, next: Pfn(7), bytes: 1400 };
        packing.pack(Pfn(2), place, 77);
        packing.zero(Pfn(6), 1);
        packing.unpack(place, Pfn(3));
    }
}
