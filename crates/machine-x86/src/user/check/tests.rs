//! The checker on a memory that is simple and right, used by real threads; and on one that is wrong on purpose.

use super::access::Touch;
use super::file_io::{Reading, Writing};
use super::space::{Region, Source};
use super::stamp::{SECTOR, SECTORS};
use super::*;
use abi::Forget;
use core::cell::Cell;
use core::sync::atomic::AtomicU64;
use program::rng::Rng;
use program::{AccessKind, Prot};
use std::collections::BTreeMap;
use std::sync::RwLock as StdLock;
use std::{thread, vec};

const PAGE: u64 = 4096;
const BASE: u64 = 0x1000;

type Frame = Arc<[AtomicU64; SECTORS as usize]>;

fn frame() -> Frame {
    Arc::new(core::array::from_fn(|_| AtomicU64::new(0)))
}

/// A memory: pages and the frames that they show, one word a sector.
#[derive(Default)]
struct Simple {
    pages: StdLock<BTreeMap<u64, Frame>>,
    /// What is missing lies beyond the end of a file.
    beyond: bool,
}

impl Simple {
    fn map(&self, page: u64, frame: Option<&Frame>) {
        let mut pages = self.pages.write().unwrap();
        match frame {
            Some(frame) => pages.insert(page, frame.clone()),
            None => pages.remove(&page),
        };
    }

    /// Touch the sector at `addr`. The page keeps its frame meanwhile, as on a machine whose flushes are waited for.
    fn touch<T>(&self, addr: u64, touch: impl FnOnce(&AtomicU64) -> T) -> Result<T, Signal> {
        let pages = self.pages.read().unwrap();
        let frame = pages.get(&(addr / PAGE)).ok_or(match self.beyond {
            true => Signal::Bus { addr },
            false => Signal::Segv { addr },
        })?;
        Ok(touch(&frame[(addr % PAGE / SECTOR) as usize]))
    }
}

impl Memory for Simple {
    fn load(&self, addr: u64) -> Result<u64, Signal> {
        self.touch(addr, |sector| sector.load(SeqCst))
    }

    fn store(&self, addr: u64, word: u64) -> Result<(), Signal> {
        self.touch(addr, |sector| sector.store(word, SeqCst))
    }

    fn fetch(&self, addr: u64) -> Result<(), Signal> {
        self.load(addr).map(drop)
    }

    fn dying(&self) -> bool {
        false
    }
}

/// A process with its memory.
struct World {
    checker: Checker,
    process: Arc<Process>,
    memory: Simple,
}

const PATIENCE: fn() = thread::yield_now;

impl World {
    fn new() -> World {
        let checker = Checker::new();
        let process = checker.process(0, &PATIENCE);
        World { checker, process, memory: Simple::default() }
    }

    /// A mapping of `pages` pages at `BASE`, of frames of its own.
    fn with(pages: u64, source: Source) -> (World, Vec<Frame>) {
        let world = World::new();
        world.process.map(&PATIENCE).insert(BASE / PAGE, Region::new(BASE / PAGE, pages, Prot::RW, source));
        let frames: Vec<Frame> = (0..pages).map(|_| frame()).collect();
        for (page, frame) in (BASE / PAGE..).zip(&frames) {
            world.memory.map(page, Some(frame));
        }
        (world, frames)
    }

    fn touch_as(
        &self,
        process: &Process,
        addr: u64,
        mode: AccessKind,
    ) -> Result<Result<(), Signal>, Violation> {
        let mut tally = Tally::default();
        let mut touch = Touch { memory: &self.memory, patience: &PATIENCE, tally: &mut tally };
        let outcome = touch.access(process, addr, mode);
        assert_eq!(tally.violations, outcome.is_err() as u64);
        outcome
    }

    fn touch(&self, addr: u64, mode: AccessKind) -> Result<Result<(), Signal>, Violation> {
        self.touch_as(&self.process, addr, mode)
    }

    fn fine(&self, addr: u64, mode: AccessKind) {
        assert_eq!(self.touch(addr, mode), Ok(Ok(())));
    }

    fn wrong(&self, addr: u64, mode: AccessKind, text: &str) {
        let Violation(told) = self.touch(addr, mode).expect_err(text);
        assert!(told.contains(text), "{told}");
    }
}

fn words(frame: &Frame) -> Vec<u64> {
    frame.iter().map(|word| word.load(SeqCst)).collect()
}

fn put(frame: &Frame, words: &[u64]) {
    for (word, &old) in frame.iter().zip(words) {
        word.store(old, SeqCst);
    }
}

// --- memory that is wrong -----------------------------------------------------------------------------------

#[test]
fn old_content_is_found() {
    let (world, frames) = World::with(1, Source::Anonymous);
    world.fine(BASE, AccessKind::Load);
    world.fine(BASE, AccessKind::Store);
    let old = words(&frames[0]);
    world.fine(BASE, AccessKind::Store);
    world.fine(BASE, AccessKind::Load);
    put(&frames[0], &old);
    world.wrong(
        BASE,
        AccessKind::Load,
        "expected process 0 page 0x1 version 2; found process 0 page 0x1 version 1",
    );
    put(&frames[0], &[0; 8]);
    world.wrong(BASE, AccessKind::Load, "found zeroes in sector 0");
}

#[test]
fn partly_old_sectors_are_found() {
    let (world, frames) = World::with(1, Source::Anonymous);
    world.fine(BASE, AccessKind::Store);
    let old = words(&frames[0]);
    world.fine(BASE, AccessKind::Store);
    frames[0][5].store(old[5], SeqCst);
    world.wrong(BASE, AccessKind::Load, "in sector 5");
}

#[test]
fn sectors_in_the_wrong_order_are_found() {
    let (world, frames) = World::with(1, Source::Anonymous);
    world.fine(BASE, AccessKind::Store);
    let all = words(&frames[0]);
    put(&frames[0], &[all[1], all[0], all[2], all[3], all[4], all[5], all[6], all[7]]);
    world.wrong(BASE, AccessKind::Load, "of another sector");
}

#[test]
fn another_page_is_found() {
    let (world, frames) = World::with(2, Source::Anonymous);
    world.fine(BASE, AccessKind::Store);
    world.fine(BASE + PAGE, AccessKind::Store);
    world.memory.map(BASE / PAGE, Some(&frames[1]));
    world.wrong(BASE, AccessKind::Load, "found process 0 page 0x2 version 1");
}

#[test]
fn a_lost_store_is_found() {
    let (world, frames) = World::with(1, Source::Anonymous);
    world.fine(BASE, AccessKind::Store);
    let copy = frame();
    put(&copy, &words(&frames[0]));
    // The store goes to a frame that the page no longer has.
    world.fine(BASE, AccessKind::Store);
    world.memory.map(BASE / PAGE, Some(&copy));
    world.wrong(BASE, AccessKind::Load, "version 1");
}

#[test]
fn accesses_that_must_be_refused_are_found() {
    let (world, _) = World::with(2, Source::Anonymous);
    world.process.map(&PATIENCE).insert(1, Region::new(1, 1, Prot::READ, Source::Anonymous));
    world.wrong(BASE, AccessKind::Store, "expected a fault, the mapping allows only");
    world.process.map(&PATIENCE).insert(1, Region::new(1, 1, Prot::NONE, Source::Anonymous));
    world.wrong(BASE, AccessKind::Load, "expected a fault");
    let mut map = world.process.map(&PATIENCE);
    let flux = map.begin_take(1, 2);
    map.end_take(flux, true, &PATIENCE);
    drop(map);
    world.wrong(BASE + PAGE, AccessKind::Load, "nothing is mapped there");
}

#[test]
fn accesses_that_must_go_through_are_found() {
    let file = Arc::new(File::new(1, PAGE));
    let (world, _) = World::with(1, Source::File { file, offset: 0, shared: true });
    world.memory.map(BASE / PAGE, None);
    world.wrong(BASE, AccessKind::Load, "SIGSEGV where the mapping allows the access");
    assert!(matches!(world.touch(0x9000, AccessKind::Load), Ok(Err(Signal::Segv { .. }))));
}

// --- what may be ----------------------------------------------------------------------------------------------

#[test]
fn a_private_mapping_shows_the_file_until_it_is_stored_to() {
    let file = Arc::new(File::new(3, PAGE));
    let (world, frames) = World::with(1, Source::File { file: file.clone(), offset: 0, shared: false });
    world.fine(BASE, AccessKind::Load);
    let held = file.change(&PATIENCE);
    let writing = Writing::begin(&file, 0, PAGE, &PATIENCE, |at, word| {
        frames[0][(at / SECTOR) as usize].store(word, SeqCst);
    });
    writing.end(0, Some(PAGE));
    drop(held);
    world.fine(BASE, AccessKind::Load);
    put(&frames[0], &[0; 8]);
    world.wrong(BASE, AccessKind::Load, "expected file 3 page 0x0 version 1; found zeroes");
    world.fine(BASE, AccessKind::Store);
    world.fine(BASE, AccessKind::Load);
}

#[test]
fn freed_memory_is_old_or_zero_and_zero_for_good() {
    let (world, frames) = World::with(1, Source::Anonymous);
    world.fine(BASE, AccessKind::Store);
    let old = words(&frames[0]);
    let flux = world.process.map(&PATIENCE).begin_change(1, 1);
    world.process.map(&PATIENCE).end_forget(flux, Forget::Perhaps, &PATIENCE);
    world.fine(BASE, AccessKind::Load);
    put(&frames[0], &[old[0], old[1], 0, 0, 0, 0, 0, 0]);
    world.fine(BASE, AccessKind::Load);
    world.fine(BASE, AccessKind::Load);
    put(&frames[0], &[0; 8]);
    world.fine(BASE, AccessKind::Load);
    put(&frames[0], &old);
    world.wrong(BASE, AccessKind::Load, "expected zeroes");
    world.fine(BASE, AccessKind::Store);
    world.fine(BASE, AccessKind::Load);
}

#[test]
fn forgotten_memory_is_zero_unless_somebody_stored_meanwhile() {
    let (world, frames) = World::with(2, Source::Anonymous);
    world.fine(BASE, AccessKind::Store);
    world.fine(BASE + PAGE, AccessKind::Store);
    let flux = world.process.map(&PATIENCE).begin_change(1, 2);
    world.fine(BASE + PAGE, AccessKind::Store);
    world.process.map(&PATIENCE).end_forget(flux, Forget::Now, &PATIENCE);
    world.wrong(BASE, AccessKind::Load, "expected zeroes");
    put(&frames[0], &[0; 8]);
    world.fine(BASE, AccessKind::Load);
    world.fine(BASE + PAGE, AccessKind::Load);
    put(&frames[1], &[0; 8]);
    world.fine(BASE + PAGE, AccessKind::Load);
}

#[test]
fn a_moved_mapping_keeps_its_content() {
    let (world, frames) = World::with(2, Source::Anonymous);
    world.fine(BASE, AccessKind::Store);
    let flux = world.process.map(&PATIENCE).begin_take(1, 2);
    world.memory.map(1, None);
    world.memory.map(2, None);
    let new = frame();
    for (page, frame) in [(8, &frames[0]), (9, &frames[1]), (10, &new)] {
        world.memory.map(page, Some(frame));
    }
    world.process.map(&PATIENCE).end_move(flux, 8, 3, &PATIENCE);
    (8..11).for_each(|page| world.fine(page * PAGE, AccessKind::Load));
    world.fine(8 * PAGE, AccessKind::Store);
    world.fine(8 * PAGE, AccessKind::Load);
    assert!(matches!(world.touch(BASE, AccessKind::Load), Ok(Err(Signal::Segv { .. }))));
    put(&frames[1], &words(&frames[0]));
    world.wrong(9 * PAGE, AccessKind::Load, "expected zeroes");
}

#[test]
fn a_cut_takes_the_files_pages_and_private_copies() {
    let file = Arc::new(File::new(1, 2 * PAGE));
    let (world, frames) = World::with(2, Source::File { file: file.clone(), offset: 0, shared: false });
    world.fine(BASE, AccessKind::Store);
    world.fine(BASE + PAGE, AccessKind::Store);
    let held = file.change(&PATIENCE);
    let cut = file.begin_cut(1, &held).unwrap();
    put(&frames[1], &[0; 8]);
    world.fine(BASE + PAGE, AccessKind::Load);
    world.checker.end_cut(&file, cut, true, &PATIENCE);
    world.fine(BASE, AccessKind::Load);
    world.fine(BASE + PAGE, AccessKind::Load);
    world.memory.map(2, None);
    let beyond = world.memory.load(BASE + PAGE);
    assert!(beyond.is_err() && !file.has(1));
}

#[test]
fn what_is_found_in_a_confused_page_is_what_it_holds() {
    let file = Arc::new(File::new(1, PAGE));
    let (world, frames) = World::with(1, Source::File { file: file.clone(), offset: 0, shared: false });
    world.fine(BASE, AccessKind::Store);
    let kept = words(&frames[0]);
    let held = file.change(&PATIENCE);
    let cut = file.begin_cut(0, &held).unwrap();
    world.fine(BASE, AccessKind::Store);
    world.checker.end_cut(&file, cut, true, &PATIENCE);
    put(&frames[0], &kept);
    world.fine(BASE, AccessKind::Load);
    put(&frames[0], &[0; 8]);
    world.wrong(BASE, AccessKind::Load, "found zeroes");
}

#[test]
fn a_copy_made_by_populating_is_the_file_at_that_time() {
    let file = Arc::new(File::new(1, PAGE));
    let (world, frames) = World::with(1, Source::File { file: file.clone(), offset: 0, shared: false });
    let before = world.process.map(&PATIENCE).begin_populate(1, 1);
    world.process.map(&PATIENCE).end_populate(&before, &PATIENCE);
    let other = frame();
    let held = file.change(&PATIENCE);
    Writing::begin(&file, 0, PAGE, &PATIENCE, |at, word| other[(at / SECTOR) as usize].store(word, SeqCst))
        .end(0, Some(PAGE));
    drop(held);
    world.fine(BASE, AccessKind::Load);
    // It may as well be no copy; if it shows the file now, it is none.
    put(&frames[0], &words(&other));
    world.fine(BASE, AccessKind::Load);
    put(&frames[0], &[0; 8]);
    world.wrong(BASE, AccessKind::Load, "found zeroes");
}

#[test]
fn what_is_populated_again_may_be_a_copy_only_now() {
    let file = Arc::new(File::new(1, PAGE));
    let (world, frames) = World::with(1, Source::File { file: file.clone(), offset: 0, shared: false });
    let populate = || {
        let before = world.process.map(&PATIENCE).begin_populate(1, 1);
        world.process.map(&PATIENCE).end_populate(&before, &PATIENCE);
    };
    let write = |to: &Frame| {
        let held = file.change(&PATIENCE);
        Writing::begin(&file, 0, PAGE, &PATIENCE, |at, word| to[(at / SECTOR) as usize].store(word, SeqCst))
            .end(0, Some(PAGE));
        drop(held);
    };
    // At first it may only be read, and is no copy; then it may be written, and becomes one; then the file changes
    // again.
    populate();
    let (first, second) = (frame(), frame());
    write(&first);
    populate();
    write(&second);
    put(&frames[0], &words(&first));
    world.fine(BASE, AccessKind::Load);
}

/// The fault makes the copy; before the store is tried again, another thread forbids it.
#[test]
fn a_store_that_is_refused_may_leave_a_copy() {
    let file = Arc::new(File::new(1, PAGE));
    let (world, frames) = World::with(1, Source::File { file: file.clone(), offset: 0, shared: false });
    let write = |to: &Frame| {
        let held = file.change(&PATIENCE);
        Writing::begin(&file, 0, PAGE, &PATIENCE, |at, word| to[(at / SECTOR) as usize].store(word, SeqCst))
            .end(0, Some(PAGE));
        drop(held);
    };
    let forbid = |store: bool| {
        let flux = world.process.map(&PATIENCE).begin_change(1, 1);
        world.memory.map(1, None);
        if store {
            assert!(matches!(world.touch(BASE, AccessKind::Store), Ok(Err(Signal::Segv { .. }))));
        }
        world.process.map(&PATIENCE).end_protect(flux, Prot::READ, true, &PATIENCE);
        world.memory.map(1, Some(&frames[0]));
    };
    let (copied, later) = (frame(), frame());
    write(&copied);
    forbid(true);
    write(&later);
    put(&frames[0], &words(&copied));
    world.fine(BASE, AccessKind::Load);
    // If nobody was refused, there is no copy.
    put(&frames[0], &words(&later));
    world.fine(BASE, AccessKind::Load);
    forbid(false);
    put(&frames[0], &words(&copied));
    world.wrong(
        BASE,
        AccessKind::Load,
        "expected file 1 page 0x0 version 2; found file 1 page 0x0 version 1",
    );
}

/// A thread that stores where another maps a file may reach the file before that call has ended, and other processes
/// see it at once.
#[test]
fn a_store_beside_a_call_that_maps_a_file_may_be_seen_by_others() {
    let file = Arc::new(File::new(1, 2 * PAGE));
    // Over private memory, and where nothing is mapped.
    for mapped in [true, false] {
        let (world, frames) = World::with(1, Source::File { file: file.clone(), offset: 1, shared: true });
        let other = BASE + 8 * PAGE;
        if mapped {
            let region = Region::new(other / PAGE, 1, Prot::RW, Source::Anonymous);
            world.process.map(&PATIENCE).insert(other / PAGE, region);
        }
        world.fine(BASE, AccessKind::Store);
        let coming = Some((file.clone(), 0));
        let flux = world.process.map(&PATIENCE).begin_replace(other / PAGE - 1, 2, coming);
        // The kernel has mapped the file; the call has not come back.
        world.memory.map(other / PAGE, Some(&frames[0]));
        world.fine(other, AccessKind::Store);
        world.fine(BASE, AccessKind::Load);
        world.fine(BASE, AccessKind::Store);
        world.fine(BASE, AccessKind::Load);
        let source = Source::File { file: file.clone(), offset: 0, shared: true };
        let region = Region::new(other / PAGE - 1, 2, Prot::RW, source);
        let mut map = world.process.map(&PATIENCE);
        map.insert(other / PAGE - 1, region);
        map.end_replace(flux, true, &PATIENCE);
        drop(map);
        world.fine(other, AccessKind::Load);
        world.fine(BASE, AccessKind::Store);
        put(&frames[0], &[0; 8]);
        world.wrong(other, AccessKind::Load, "expected file 1 page 0x1");
    }
}

/// Two stores may each reach the page that the other is for: both lock the file's first page first.
#[test]
fn stores_beside_calls_that_exchange_two_pages_do_not_wait_for_each_other() {
    let file = Arc::new(File::new(1, 2 * PAGE));
    let (world, _) = World::with(2, Source::File { file: file.clone(), offset: 0, shared: true });
    let shadow = |page| file.page(page).unwrap();
    for (at, coming) in [(0, 1), (1, 0)] {
        let start = BASE / PAGE + at;
        let call = world.process.map(&PATIENCE).begin_replace(start, 1, Some((file.clone(), coming)));
        let first = Cell::new(Some(shadow(0).lock(&PATIENCE)));
        let patience = || {
            drop(shadow(1).lock(&|| panic!("who waits for the first page has locked the second")));
            drop(first.take());
        };
        let mut touch = Touch { memory: &world.memory, patience: &patience, tally: &mut Tally::default() };
        assert_eq!(touch.access(&world.process, start * PAGE, AccessKind::Store), Ok(Ok(())));
        assert!(first.take().is_none(), "nobody has waited for the first page");
        world.process.map(&PATIENCE).end_replace(call, false, &PATIENCE);
    }
}

/// The end of a call on what was mapped there before comes after the next mapping.
#[test]
fn a_copy_made_by_populating_beside_the_end_of_another_call_is_one() {
    let file = Arc::new(File::new(1, PAGE));
    let (world, frames) = World::with(1, Source::Anonymous);
    let unmapped = world.process.map(&PATIENCE).begin_take(1, 1);
    let region = Region::new(1, 1, Prot::RW, Source::File { file: file.clone(), offset: 0, shared: false });
    let mut map = world.process.map(&PATIENCE);
    map.insert(1, region);
    let before = map.begin_populate(1, 1);
    map.end_populate(&before, &PATIENCE);
    map.end_take(unmapped, true, &PATIENCE);
    drop(map);
    let held = file.change(&PATIENCE);
    let other = frame();
    Writing::begin(&file, 0, PAGE, &PATIENCE, |at, word| other[(at / SECTOR) as usize].store(word, SeqCst))
        .end(0, Some(PAGE));
    drop(held);
    put(&frames[0], &[0; 8]);
    world.fine(BASE, AccessKind::Load);
}

#[test]
fn reads_of_files_are_judged() {
    let file = File::new(1, 2 * PAGE);
    let mut bytes = BTreeMap::new();
    let held = file.change(&PATIENCE);
    // The second page only in part.
    let len = PAGE + 2 * SECTOR;
    Writing::begin(&file, 0, len, &PATIENCE, |at, word| {
        bytes.insert(at, word);
    })
    .end(0, Some(len));
    drop(held);
    let mut tally = Tally::default();
    let mut read = |bytes: &BTreeMap<u64, u64>| {
        let word = |at| bytes.get(&at).copied().unwrap_or(0);
        Reading::begin(&file, 100, 2 * PAGE - 100).end(100, 2 * PAGE - 100, word, &mut tally)
    };
    assert_eq!(read(&bytes), Ok(()));
    bytes.insert(PAGE, 0);
    assert_eq!(read(&bytes), Ok(()), "a page that was written in part is old or new, sector by sector");
    bytes.insert(SECTOR, 0);
    let Violation(text) = read(&bytes).unwrap_err();
    assert!(text.contains("read() of page 0x0 of file 1") && text.contains("sector 1"), "{text}");
    assert_eq!((tally.checked, tally.violations), (5, 1));
}

#[test]
fn a_child_reads_what_its_parent_had_and_not_what_it_stores_later() {
    let (world, frames) = World::with(1, Source::Anonymous);
    world.fine(BASE, AccessKind::Store);
    let begun = world.process.map(&PATIENCE).begin_fork();
    world.checker.fork(&world.process, 7, &begun, &PATIENCE);
    let child = world.checker.process(7, &PATIENCE);
    assert_eq!(world.touch_as(&child, BASE, AccessKind::Load), Ok(Ok(())));
    let kept = words(&frames[0]);
    world.fine(BASE, AccessKind::Store);
    assert!(world.touch_as(&child, BASE, AccessKind::Load).is_err());
    put(&frames[0], &kept);
    assert_eq!(world.touch_as(&child, BASE, AccessKind::Store), Ok(Ok(())));
    assert_eq!(world.touch_as(&child, BASE, AccessKind::Load), Ok(Ok(())));
    world.wrong(BASE, AccessKind::Load, "found process 7 page 0x1 version 2");
    world.checker.leave(&child, &PATIENCE);
}

// --- several threads ------------------------------------------------------------------------------------------

/// Threads load and store at random while `meanwhile` does something else; nothing may be found.
fn storm(world: &World, pages: u64, rounds: u64, meanwhile: impl FnOnce() + Send) {
    thread::scope(|scope| {
        for seed in 0..3 {
            scope.spawn(move || {
                let mut rng = Rng::new(seed);
                for _ in 0..rounds {
                    let mode = if rng.percent(40) { AccessKind::Store } else { AccessKind::Load };
                    if let Err(Violation(text)) = world.touch(BASE + rng.below(pages) * PAGE, mode) {
                        panic!("{text}");
                    }
                }
            });
        }
        scope.spawn(meanwhile);
    });
}

#[test]
fn loads_and_stores_at_the_same_time_are_fine() {
    for shared in [false, true] {
        let file = Arc::new(File::new(1, 4 * PAGE));
        let source = if shared { Source::File { file, offset: 0, shared } } else { Source::Anonymous };
        let (world, _) = World::with(4, source);
        storm(&world, 4, 20_000, || {});
    }
}

#[test]
fn forgetting_at_the_same_time_is_fine() {
    let (world, _) = World::with(4, Source::Anonymous);
    storm(&world, 4, 20_000, || {
        for _ in 0..500 {
            let flux = world.process.map(&PATIENCE).begin_change(1, 4);
            // As when pages are unmapped: each is replaced by one of zeroes, all sectors at once.
            (1..5).for_each(|page| world.memory.map(page, Some(&frame())));
            world.process.map(&PATIENCE).end_forget(flux, Forget::Now, &PATIENCE);
        }
    });
}

#[test]
fn protecting_at_the_same_time_is_fine() {
    let (world, frames) = World::with(2, Source::Anonymous);
    storm(&world, 2, 20_000, || {
        for round in 0..1000 {
            let prot = if round % 2 == 0 { Prot::NONE } else { Prot::RW };
            let flux = world.process.map(&PATIENCE).begin_change(1, 2);
            for (page, frame) in (1..).zip(&frames) {
                world.memory.map(page, (prot == Prot::RW).then_some(frame));
            }
            world.process.map(&PATIENCE).end_protect(flux, prot, true, &PATIENCE);
        }
    });
}

#[test]
fn moving_at_the_same_time_is_fine() {
    let (world, frames) = World::with(2, Source::Anonymous);
    storm(&world, 12, 20_000, || {
        for round in 0..1000 {
            let (from, to) = if round % 2 == 0 { (1, 9) } else { (9, 1) };
            // As a call does that names the place: the storm goes there, too.
            let (taken, there) = {
                let mut map = world.process.map(&PATIENCE);
                (map.begin_take(from, 2), map.begin_replace(to, 2, None))
            };
            for (page, frame) in (0..).zip(&frames) {
                world.memory.map(from + page, None);
                world.memory.map(to + page, Some(frame));
            }
            let mut map = world.process.map(&PATIENCE);
            map.end_move(taken, to, 2, &PATIENCE);
            map.end_replace(there, true, &PATIENCE);
        }
    });
}

#[test]
fn cutting_and_writing_at_the_same_time_is_fine() {
    let file = Arc::new(File::new(1, 4 * PAGE));
    let (mut world, _) = World::with(4, Source::File { file: file.clone(), offset: 0, shared: true });
    world.memory.beyond = true;
    let world = world;
    storm(&world, 4, 20_000, || {
        let mut rng = Rng::new(9);
        for _ in 0..500 {
            let held = file.change(&PATIENCE);
            let size = rng.below(4 * PAGE);
            if let Some(cut) = file.begin_cut(size, &held) {
                for page in cut.first..4 {
                    world.memory.map(page + 1, None);
                }
                world.checker.end_cut(&file, cut, true, &PATIENCE);
            }
            let old = file.size().div_ceil(PAGE);
            for page in old..4 {
                world.memory.map(page + 1, Some(&frame()));
            }
            file.set_size(4 * PAGE, &held);
            let (offset, len) = (rng.below(2 * PAGE), 1 + rng.below(2 * PAGE));
            let (offset, len) = file_io::whole_stamps(offset, len);
            let mut put = vec![];
            let writing = Writing::begin(&file, offset, len, &PATIENCE, |at, word| put.push((at, word)));
            for (at, word) in put {
                world.memory.store(BASE + at, word).unwrap();
            }
            writing.end(offset, Some(len));
        }
    });
}

#[test]
fn children_that_are_forked_at_the_same_time_are_fine() {
    let (world, _) = World::with(4, Source::Anonymous);
    storm(&world, 4, 20_000, || {
        for number in 1..60 {
            let begun = world.process.map(&PATIENCE).begin_fork();
            // As copy on write does it: a page is copied between two stores to its sectors.
            let memory = Simple::default();
            for (&page, old) in world.memory.pages.read().unwrap().iter() {
                let copy = frame();
                put(&copy, &words(old));
                memory.map(page, Some(&copy));
            }
            world.checker.fork(&world.process, number, &begun, &PATIENCE);
            let process = world.checker.process(number, &PATIENCE);
            let mut tally = Tally::default();
            for mode in [AccessKind::Load, AccessKind::Store, AccessKind::Load] {
                for page in 1..5 {
                    let mut touch = Touch { memory: &memory, patience: &PATIENCE, tally: &mut tally };
                    assert_eq!(touch.access(&process, page * PAGE, mode), Ok(Ok(())));
                }
            }
            world.checker.leave(&process, &PATIENCE);
        }
    });
}
