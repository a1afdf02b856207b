//! What is compressed comes back.

use crate::harness::Harness;
use crate::kit::{Kit, ensure};
use crate::raw::{ORDINARY, Tree};
use crate::report::{NotPassed, Verdict};
use mm::machine::{Asid, Compressor, Machine, ObjectPlace};
use mm::primitive::AtomicU32;
use mm::units::*;

const COMPRESSORS: [Compressor; 3] = [Compressor::LzoRle, Compressor::Lz4, Compressor::Zstd];
const PAGE: u32 = PAGE_SIZE as u32;

/// Pages that a check maps: what is compressed, what it is unpacked to, and the frames that objects are in.
struct Pages<'k, H: Harness> {
    tree: Tree<'k, H>,
    kit: &'k Kit<'k, H>,
    frames: [Pfn; 6],
}

/// Indexes in [`Pages::frames`], which are those of pages, too.
const SOURCES: [usize; 2] = [0, 1];
const TARGET: usize = 2;
const HOMES: [usize; 3] = [3, 4, 5];

impl<'k, H: Harness> Pages<'k, H> {
    fn new(kit: &'k Kit<'k, H>) -> Result<Pages<'k, H>, NotPassed> {
        let tree = Tree::new(kit)?;
        let mut frames = [Pfn::NONE; 6];
        for (index, frame) in frames.iter_mut().enumerate() {
            *frame = tree.frames.one()?;
            kit.machine().zero(*frame, 1);
            tree.map(index, *frame, ORDINARY);
        }
        Ok(Pages { tree, kit, frames })
    }

    /// Compress a page. Skips the check if the machine has not made it smaller.
    fn compress(&self, index: usize, by: Compressor) -> Result<u32, NotPassed> {
        let bytes = self.kit.machine().compress(self.frames[index], by);
        ensure!(bytes > 0, "compress() by {by:?} makes no byte of page {index}");
        if bytes < PAGE { Ok(bytes) } else { Err(NotPassed::Skipped("the machine does not compress")) }
    }

    /// Where an object is that begins in a frame.
    fn place(&self, home: usize, offset: u32, bytes: u32) -> ObjectPlace {
        let [frame, next] = [home, home + 1].map(|home| self.frames[HOMES[home % HOMES.len()]]);
        let next = if offset + bytes > PAGE { next } else { Pfn::NONE };
        ObjectPlace { frame, offset, next, bytes }
    }

    /// Unpack an object, which must be what a page was filled with.
    fn is(&self, object: ObjectPlace, by: Compressor, source: usize, seed: u64) -> Verdict {
        self.kit.machine().zero(self.frames[TARGET], 1);
        self.kit.machine().unpack(object, self.frames[TARGET], by);
        self.tree.repeats(TARGET, seed, source)
    }
}

pub(crate) fn whole<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    kit.on_each_in_turn(|_| {
        let pages = Pages::new(kit)?;
        let _loaded = pages.tree.load_root(Asid(0), false);
        pages.tree.fill(SOURCES[0], 1)?;
        let object = pages.place(0, 0, PAGE);
        kit.machine().pack(pages.frames[SOURCES[0]], object);
        kit.machine().zero(pages.frames[TARGET], 1);
        kit.machine().unpack(object, pages.frames[TARGET], Compressor::Lz4);
        pages.tree.holds(TARGET, 1, SOURCES[0])
    })
}

pub(crate) fn round_trip<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    kit.on_each_in_turn(|_| {
        let pages = Pages::new(kit)?;
        let _loaded = pages.tree.load_root(Asid(0), false);
        for (seed, by) in (1..).zip(COMPRESSORS) {
            let mut objects = [None; 2];
            // The first object goes over into the next frame, and the second begins where it ends.
            for source in SOURCES {
                pages.tree.repeat(source, seed)?;
                let bytes = pages.compress(source, by)?;
                let first: Option<ObjectPlace> = objects[0];
                let object = match first {
                    None => pages.place(0, PAGE - bytes / 2, bytes),
                    Some(first) => pages.place(1, first.offset + first.bytes - PAGE, bytes),
                };
                kit.machine().pack(pages.frames[source], object);
                objects[source] = Some(object);
            }
            for (source, object) in objects.into_iter().enumerate() {
                pages.is(object.expect("both are stored"), by, source, seed)?;
            }
        }
        Ok(())
    })
}

pub(crate) fn moved<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    kit.on_each_in_turn(|_| {
        let pages = Pages::new(kit)?;
        let _loaded = pages.tree.load_root(Asid(0), false);
        let by = Compressor::Lz4;
        pages.tree.repeat(SOURCES[0], 1)?;
        let bytes = pages.compress(SOURCES[0], by)?;
        let (from, to) = (pages.place(0, 64, bytes), pages.place(1, PAGE - bytes / 2, bytes));
        kit.machine().pack(pages.frames[SOURCES[0]], from);
        kit.machine().move_object(from, to);
        kit.machine().zero(from.frame, 1);
        pages.is(to, by, SOURCES[0], 1)
    })
}

pub(crate) fn buffers<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    let cpus = kit.cpus();
    if cpus.len() < 2 {
        return Err(NotPassed::Skipped("there is one CPU"));
    }
    let arrived = AtomicU32::new(0);
    kit.on_each(&cpus, |cpu| {
        let pages = Pages::new(kit)?;
        let _loaded = pages.tree.load_root(Asid(0), false);
        let (by, seed) = (Compressor::Lz4, 1 + cpu.index() as u64);
        pages.tree.repeat(SOURCES[0], seed)?;
        let bytes = pages.compress(SOURCES[0], by)?;
        // A task must not sleep between the two: another of this CPU could compress.
        kit.spin_barrier(&arrived, cpus.len())?;
        let object = pages.place(0, 64, bytes);
        kit.machine().pack(pages.frames[SOURCES[0]], object);
        pages.is(object, by, SOURCES[0], seed)
    })
}

pub(crate) fn same<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    kit.on_each_in_turn(|_| {
        let pages = Pages::new(kit)?;
        let _loaded = pages.tree.load_root(Asid(0), false);
        let source = pages.frames[SOURCES[0]];
        pages.tree.fill(SOURCES[0], 1)?;
        let zeroes = kit.machine().is_zero_filled(source, 1);
        ensure!(!zeroes, "is_zero_filled() of a page that was stored to");
        let known = kit.harness.words() == 1 || kit.machine().same_filled(source).is_none();
        ensure!(known, "same_filled() of a page whose words differ");
        pages.tree.one_word(SOURCES[0], 7)?;
        let Some(word) = kit.machine().same_filled(source) else {
            return Err(NotPassed::Skipped("the machine does not know what pages hold"));
        };
        kit.machine().fill(pages.frames[TARGET], word);
        pages.tree.holds_one_word(TARGET, 7)
    })
}
