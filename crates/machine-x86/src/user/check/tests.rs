//! The checker on a simple, correct memory, used by real threads; and on one that is wrong on purpose.

use super::access::CheckedAccess;
use super::file_io::{FileRead, FileWrite};
use super::space::{Region, Source};
use super::stamp::{SECTOR, SECTORS};
use super::*;
use abi::Forget;
use core::cell::Cell;
use core::sync::atomic::AtomicU64;
use program::AccessKind::{self, Load, Store};
use program::Prot;
use program::rng::Rng;
use std::collections::BTreeMap;
use std::sync::RwLock as StdLock;
use std::{thread, vec};

const PAGE: u64 = 4096;
const BASE: u64 = 0x1000;

type Frame = Arc<[AtomicU64; SECTORS as usize]>;

fn frame() -> Frame {
    Arc::new(core::array::from_fn(|_| AtomicU64::new(0)))
}

/// A memory: pages and their frames, one word a sector.
#[derive(Default)]
struct TestMemory {
    pages: StdLock<BTreeMap<u64, Frame>>,
    /// Whether missing pages are beyond the end of a file.
    beyond: bool,
}

impl TestMemory {
    fn map(&self, page: u64, frame: Option<&Frame>) {
        let mut pages = self.pages.write().unwrap();
        match frame {
            Some(frame) => pages.insert(page, frame.clone()),
            None => pages.remove(&page),
        };
    }

    /// Access the sector at `addr`. The page keeps its frame during the access, as on a machine that waits
    /// for flushes.
    fn touch<T>(&self, addr: u64, touch: impl FnOnce(&AtomicU64) -> T) -> Result<T, Signal> {
        let pages = self.pages.read().unwrap();
        let frame = pages.get(&(addr / PAGE)).ok_or(match self.beyond {
            true => Signal::Bus { addr },
            false => Signal::Segv { addr },
        })?;
        Ok(touch(&frame[(addr % PAGE / SECTOR) as usize]))
    }
}

impl Memory for TestMemory {
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
struct Fixture {
    checker: Checker,
    process: Arc<Process>,
    memory: TestMemory,
}

const BACKOFF: fn() = thread::yield_now;

impl Fixture {
    fn new() -> Fixture {
        let checker = Checker::default();
        let process = checker.process(0, &BACKOFF);
        Fixture { checker, process, memory: TestMemory::default() }
    }

    fn map(&self) -> spin::RwLockWriteGuard<'_, Map> {
        self.process.map(&BACKOFF)
    }

    /// A file, and a mapping of all its `pages` pages at `BASE`.
    fn with_file(pages: u64, shared: bool) -> (Fixture, Vec<Frame>, Arc<File>) {
        let file = Arc::new(File::new(1, pages * PAGE));
        let (fixture, frames) = Fixture::with(pages, Source::File { file: file.clone(), offset: 0, shared });
        (fixture, frames, file)
    }

    /// A mapping of `pages` pages at `BASE`, with frames of their own.
    fn with(pages: u64, source: Source) -> (Fixture, Vec<Frame>) {
        let fixture = Fixture::new();
        fixture.map().insert(BASE / PAGE, Region::new(BASE / PAGE, pages, Prot::RW, source));
        let frames: Vec<Frame> = (0..pages).map(|_| frame()).collect();
        for (page, frame) in (BASE / PAGE..).zip(&frames) {
            fixture.memory.map(page, Some(frame));
        }
        (fixture, frames)
    }

    fn touch_as(
        &self,
        process: &Process,
        addr: u64,
        mode: AccessKind,
    ) -> Result<Result<(), Signal>, Violation> {
        let mut tally = Tally::default();
        let mut touch = CheckedAccess { memory: &self.memory, backoff: &BACKOFF, tally: &mut tally };
        let outcome = touch.access(process, addr, mode);
        assert_eq!(tally.violations, outcome.is_err() as u64);
        outcome
    }

    fn touch(&self, addr: u64, mode: AccessKind) -> Result<Result<(), Signal>, Violation> {
        self.touch_as(&self.process, addr, mode)
    }

    fn expect_ok<const N: usize>(&self, addr: u64, modes: [AccessKind; N]) {
        modes.into_iter().for_each(|mode| assert_eq!(self.touch(addr, mode), Ok(Ok(())), "{mode:?}"));
    }

    /// Fault the first page in.
    fn populate(&self) {
        let before = self.map().begin_populate(1, 1);
        self.map().end_populate(&before, &BACKOFF);
    }

    fn expect_violation(&self, addr: u64, mode: AccessKind, text: &str) {
        let Violation(message) = self.touch(addr, mode).expect_err(text);
        assert!(message.contains(text), "{message}");
    }
}

fn words(frame: &Frame) -> Vec<u64> {
    frame.iter().map(|word| word.load(SeqCst)).collect()
}

/// Write the first page of a file; the words go to a frame.
fn write(file: &File, to: &Frame) {
    let _guard = file.change(&BACKOFF);
    FileWrite::begin(file, 0, PAGE, &BACKOFF, |at, word| to[(at / SECTOR) as usize].store(word, SeqCst))
        .end(0, Some(PAGE));
}

fn set_words(frame: &Frame, words: &[u64]) {
    for (word, &old) in frame.iter().zip(words) {
        word.store(old, SeqCst);
    }
}

// --- wrong memory -----------------------------------------------------------------------------------

#[test]
fn old_content_is_a_violation() {
    let (fixture, frames) = Fixture::with(1, Source::Anonymous);
    fixture.expect_ok(BASE, [Load, Store]);
    let old = words(&frames[0]);
    fixture.expect_ok(BASE, [Store, Load]);
    set_words(&frames[0], &old);
    fixture.expect_violation(
        BASE,
        Load,
        "expected process 0 page 0x1 version 2; found process 0 page 0x1 version 1",
    );
    set_words(&frames[0], &[0; 8]);
    fixture.expect_violation(BASE, Load, "found zeroes in sector 0");
}

#[test]
fn a_partly_old_page_is_a_violation() {
    let (fixture, frames) = Fixture::with(1, Source::Anonymous);
    fixture.expect_ok(BASE, [Store]);
    let old = words(&frames[0]);
    fixture.expect_ok(BASE, [Store]);
    frames[0][5].store(old[5], SeqCst);
    fixture.expect_violation(BASE, Load, "in sector 5");
}

#[test]
fn swapped_sectors_are_a_violation() {
    let (fixture, frames) = Fixture::with(1, Source::Anonymous);
    fixture.expect_ok(BASE, [Store]);
    let all = words(&frames[0]);
    set_words(&frames[0], &[all[1], all[0], all[2], all[3], all[4], all[5], all[6], all[7]]);
    fixture.expect_violation(BASE, Load, "of another sector");
}

#[test]
fn content_of_another_page_is_a_violation() {
    let (fixture, frames) = Fixture::with(2, Source::Anonymous);
    fixture.expect_ok(BASE, [Store]);
    fixture.expect_ok(BASE + PAGE, [Store]);
    fixture.memory.map(BASE / PAGE, Some(&frames[1]));
    fixture.expect_violation(BASE, Load, "found process 0 page 0x2 version 1");
}

#[test]
fn a_lost_store_is_a_violation() {
    let (fixture, frames) = Fixture::with(1, Source::Anonymous);
    fixture.expect_ok(BASE, [Store]);
    let copy = frame();
    set_words(&copy, &words(&frames[0]));
    // The store goes to a frame that the page no longer has.
    fixture.expect_ok(BASE, [Store]);
    fixture.memory.map(BASE / PAGE, Some(&copy));
    fixture.expect_violation(BASE, Load, "version 1");
}

#[test]
fn success_of_a_forbidden_access_is_a_violation() {
    let (fixture, _) = Fixture::with(2, Source::Anonymous);
    fixture.map().insert(1, Region::new(1, 1, Prot::READ, Source::Anonymous));
    fixture.expect_violation(BASE, Store, "expected a fault, the mapping allows only");
    fixture.map().insert(1, Region::new(1, 1, Prot::NONE, Source::Anonymous));
    fixture.expect_violation(BASE, Load, "expected a fault");
    let mut map = fixture.map();
    let change = map.begin_take(1, 2);
    map.end_take(change, true, &BACKOFF);
    drop(map);
    fixture.expect_violation(BASE + PAGE, Load, "nothing is mapped there");
}

#[test]
fn failure_of_an_allowed_access_is_a_violation() {
    let (fixture, ..) = Fixture::with_file(1, true);
    fixture.memory.map(BASE / PAGE, None);
    fixture.expect_violation(BASE, Load, "SIGSEGV where the mapping allows the access");
    assert!(matches!(fixture.touch(0x9000, Load), Ok(Err(Signal::Segv { .. }))));
}

// --- allowed content ----------------------------------------------------------------------------------------------

#[test]
fn private_mapping_shows_the_file_until_the_first_store() {
    let (fixture, frames, file) = Fixture::with_file(1, false);
    fixture.expect_ok(BASE, [Load]);
    write(&file, &frames[0]);
    fixture.expect_ok(BASE, [Load]);
    set_words(&frames[0], &[0; 8]);
    fixture.expect_violation(BASE, Load, "expected file 1 page 0x0 version 1; found zeroes");
    fixture.expect_ok(BASE, [Store, Load]);
}

#[test]
fn freed_memory_is_old_or_zero_and_then_stays_zero() {
    let (fixture, frames) = Fixture::with(1, Source::Anonymous);
    fixture.expect_ok(BASE, [Store]);
    let old = words(&frames[0]);
    let change = fixture.map().begin_change(1, 1);
    fixture.map().end_forget(change, Forget::Perhaps, &BACKOFF);
    fixture.expect_ok(BASE, [Load]);
    set_words(&frames[0], &[old[0], old[1], 0, 0, 0, 0, 0, 0]);
    fixture.expect_ok(BASE, [Load, Load]);
    set_words(&frames[0], &[0; 8]);
    fixture.expect_ok(BASE, [Load]);
    set_words(&frames[0], &old);
    fixture.expect_violation(BASE, Load, "expected zeroes");
    fixture.expect_ok(BASE, [Store, Load]);
}

#[test]
fn dropped_memory_is_zero_unless_a_store_raced() {
    let (fixture, frames) = Fixture::with(2, Source::Anonymous);
    fixture.expect_ok(BASE, [Store]);
    fixture.expect_ok(BASE + PAGE, [Store]);
    let change = fixture.map().begin_change(1, 2);
    fixture.expect_ok(BASE + PAGE, [Store]);
    fixture.map().end_forget(change, Forget::Now, &BACKOFF);
    fixture.expect_violation(BASE, Load, "expected zeroes");
    set_words(&frames[0], &[0; 8]);
    fixture.expect_ok(BASE, [Load]);
    fixture.expect_ok(BASE + PAGE, [Load]);
    set_words(&frames[1], &[0; 8]);
    fixture.expect_ok(BASE + PAGE, [Load]);
}

#[test]
fn moved_mapping_keeps_its_content() {
    let (fixture, frames) = Fixture::with(2, Source::Anonymous);
    fixture.expect_ok(BASE, [Store]);
    let change = fixture.map().begin_take(1, 2);
    fixture.memory.map(1, None);
    fixture.memory.map(2, None);
    let new = frame();
    for (page, frame) in [(8, &frames[0]), (9, &frames[1]), (10, &new)] {
        fixture.memory.map(page, Some(frame));
    }
    fixture.map().end_move(change, 8, 3, &BACKOFF);
    (8..11).for_each(|page| fixture.expect_ok(page * PAGE, [Load]));
    fixture.expect_ok(8 * PAGE, [Store, Load]);
    assert!(matches!(fixture.touch(BASE, Load), Ok(Err(Signal::Segv { .. }))));
    set_words(&frames[1], &words(&frames[0]));
    fixture.expect_violation(9 * PAGE, Load, "expected zeroes");
}

#[test]
fn truncation_removes_pages_and_private_copies() {
    let (fixture, frames, file) = Fixture::with_file(2, false);
    fixture.expect_ok(BASE, [Store]);
    fixture.expect_ok(BASE + PAGE, [Store]);
    let guard = file.change(&BACKOFF);
    let truncation = file.begin_truncate(1, &guard).unwrap();
    set_words(&frames[1], &[0; 8]);
    fixture.expect_ok(BASE + PAGE, [Load]);
    fixture.checker.end_truncate(&file, truncation, true, &BACKOFF);
    fixture.expect_ok(BASE, [Load]);
    fixture.expect_ok(BASE + PAGE, [Load]);
    fixture.memory.map(2, None);
    let beyond = fixture.memory.load(BASE + PAGE);
    assert!(beyond.is_err() && !file.has(1));
}

#[test]
fn a_load_decides_the_content_of_an_unknown_page() {
    let (fixture, frames, file) = Fixture::with_file(1, false);
    fixture.expect_ok(BASE, [Store]);
    let kept = words(&frames[0]);
    let guard = file.change(&BACKOFF);
    let truncation = file.begin_truncate(0, &guard).unwrap();
    fixture.expect_ok(BASE, [Store]);
    fixture.checker.end_truncate(&file, truncation, true, &BACKOFF);
    set_words(&frames[0], &kept);
    fixture.expect_ok(BASE, [Load]);
    set_words(&frames[0], &[0; 8]);
    fixture.expect_violation(BASE, Load, "found zeroes");
}

#[test]
fn populate_may_copy_the_file_of_that_time() {
    let (fixture, frames, file) = Fixture::with_file(1, false);
    fixture.populate();
    let other = frame();
    write(&file, &other);
    fixture.expect_ok(BASE, [Load]);
    // It may also be no copy: it is none if it shows the file now.
    set_words(&frames[0], &words(&other));
    fixture.expect_ok(BASE, [Load]);
    set_words(&frames[0], &[0; 8]);
    fixture.expect_violation(BASE, Load, "found zeroes");
}

#[test]
fn populate_again_may_make_a_later_copy() {
    let (fixture, frames, file) = Fixture::with_file(1, false);
    // At first the page is read-only and is no copy; then it is writable and becomes one; then the file
    // changes again.
    fixture.populate();
    let (first, second) = (frame(), frame());
    write(&file, &first);
    fixture.populate();
    write(&file, &second);
    set_words(&frames[0], &words(&first));
    fixture.expect_ok(BASE, [Load]);
}

/// The fault makes the copy; before the store is retried, another thread forbids it.
#[test]
fn a_failed_store_may_leave_a_copy() {
    let (fixture, frames, file) = Fixture::with_file(1, false);
    let forbid = |store: bool| {
        let change = fixture.map().begin_change(1, 1);
        fixture.memory.map(1, None);
        if store {
            assert!(matches!(fixture.touch(BASE, Store), Ok(Err(Signal::Segv { .. }))));
        }
        fixture.map().end_protect(change, Prot::READ, true, &BACKOFF);
        fixture.memory.map(1, Some(&frames[0]));
    };
    let (copied, later) = (frame(), frame());
    write(&file, &copied);
    forbid(true);
    write(&file, &later);
    set_words(&frames[0], &words(&copied));
    fixture.expect_ok(BASE, [Load]);
    // Without a failed store there is no copy.
    set_words(&frames[0], &words(&later));
    fixture.expect_ok(BASE, [Load]);
    forbid(false);
    set_words(&frames[0], &words(&copied));
    fixture.expect_violation(
        BASE,
        Load,
        "expected file 1 page 0x0 version 2; found file 1 page 0x0 version 1",
    );
}

/// A thread that stores where another one is mapping a file may reach the file before that call has ended,
/// and other processes see the store at once.
#[test]
fn a_store_during_mmap_of_a_file_may_be_seen_by_others() {
    let file = Arc::new(File::new(1, 2 * PAGE));
    // Over private memory, and where nothing is mapped.
    for mapped in [true, false] {
        let (fixture, frames) =
            Fixture::with(1, Source::File { file: file.clone(), offset: 1, shared: true });
        let other = BASE + 8 * PAGE;
        if mapped {
            let region = Region::new(other / PAGE, 1, Prot::RW, Source::Anonymous);
            fixture.map().insert(other / PAGE, region);
        }
        fixture.expect_ok(BASE, [Store]);
        let incoming = Some((file.clone(), 0));
        let change = fixture.map().begin_replace(other / PAGE - 1, 2, incoming);
        // The kernel has mapped the file, but the call has not returned.
        fixture.memory.map(other / PAGE, Some(&frames[0]));
        fixture.expect_ok(other, [Store]);
        fixture.expect_ok(BASE, [Load, Store, Load]);
        let source = Source::File { file: file.clone(), offset: 0, shared: true };
        let region = Region::new(other / PAGE - 1, 2, Prot::RW, source);
        let mut map = fixture.map();
        map.insert(other / PAGE - 1, region);
        map.end_replace(change, true, &BACKOFF);
        drop(map);
        fixture.expect_ok(other, [Load]);
        fixture.expect_ok(BASE, [Store]);
        set_words(&frames[0], &[0; 8]);
        fixture.expect_violation(other, Load, "expected file 1 page 0x1");
    }
}

/// Each of two stores may reach the other's page: both lock the file's first page first.
#[test]
fn stores_during_calls_that_exchange_two_pages_do_not_deadlock() {
    let (fixture, _, file) = Fixture::with_file(2, true);
    let shadow = |page| file.page(page).unwrap();
    for (at, incoming) in [(0, 1), (1, 0)] {
        let start = BASE / PAGE + at;
        let call = fixture.map().begin_replace(start, 1, Some((file.clone(), incoming)));
        let first = Cell::new(Some(shadow(0).lock(&BACKOFF)));
        let backoff = || {
            drop(
                shadow(1).lock(&|| panic!("a store that waits for the first page must not hold the second")),
            );
            drop(first.take());
        };
        let mut touch =
            CheckedAccess { memory: &fixture.memory, backoff: &backoff, tally: &mut Tally::default() };
        assert_eq!(touch.access(&fixture.process, start * PAGE, Store), Ok(Ok(())));
        assert!(first.take().is_none(), "the store must wait for the first page");
        fixture.map().end_replace(call, false, &BACKOFF);
    }
}

/// A call about an earlier mapping ends after the next mapping was made.
#[test]
fn populate_before_the_end_of_an_earlier_call_may_make_a_copy() {
    let file = Arc::new(File::new(1, PAGE));
    let (fixture, frames) = Fixture::with(1, Source::Anonymous);
    let unmapped = fixture.map().begin_take(1, 1);
    let region = Region::new(1, 1, Prot::RW, Source::File { file: file.clone(), offset: 0, shared: false });
    let mut map = fixture.map();
    map.insert(1, region);
    let before = map.begin_populate(1, 1);
    map.end_populate(&before, &BACKOFF);
    map.end_take(unmapped, true, &BACKOFF);
    drop(map);
    write(&file, &frame());
    set_words(&frames[0], &[0; 8]);
    fixture.expect_ok(BASE, [Load]);
}

#[test]
fn file_reads_are_checked() {
    let file = File::new(1, 2 * PAGE);
    let mut bytes = BTreeMap::new();
    let guard = file.change(&BACKOFF);
    // Only a part of the second page.
    let len = PAGE + 2 * SECTOR;
    FileWrite::begin(&file, 0, len, &BACKOFF, |at, word| {
        bytes.insert(at, word);
    })
    .end(0, Some(len));
    drop(guard);
    let mut tally = Tally::default();
    let mut read = |bytes: &BTreeMap<u64, u64>| {
        let word = |at| bytes.get(&at).copied().unwrap_or(0);
        FileRead::begin(&file, 100, 2 * PAGE - 100).end(100, 2 * PAGE - 100, word, &mut tally)
    };
    assert_eq!(read(&bytes), Ok(()));
    bytes.insert(PAGE, 0);
    assert_eq!(read(&bytes), Ok(()), "each sector of a partly written page may be old or new");
    bytes.insert(SECTOR, 0);
    let Violation(text) = read(&bytes).unwrap_err();
    assert!(text.contains("read() of page 0x0 of file 1") && text.contains("sector 1"), "{text}");
    assert_eq!((tally.checked, tally.violations), (5, 1));
}

#[test]
fn a_child_reads_its_parents_old_content_but_not_later_stores() {
    let (fixture, frames) = Fixture::with(1, Source::Anonymous);
    fixture.expect_ok(BASE, [Store]);
    let fork_state = fixture.map().begin_fork();
    fixture.checker.fork(&fixture.process, 7, &fork_state, &BACKOFF);
    let child = fixture.checker.process(7, &BACKOFF);
    assert_eq!(fixture.touch_as(&child, BASE, Load), Ok(Ok(())));
    let kept = words(&frames[0]);
    fixture.expect_ok(BASE, [Store]);
    assert!(fixture.touch_as(&child, BASE, Load).is_err());
    set_words(&frames[0], &kept);
    assert_eq!(fixture.touch_as(&child, BASE, Store), Ok(Ok(())));
    assert_eq!(fixture.touch_as(&child, BASE, Load), Ok(Ok(())));
    fixture.expect_violation(BASE, Load, "found process 7 page 0x1 version 2");
    fixture.checker.leave(&child, &BACKOFF);
}

// --- several threads ------------------------------------------------------------------------------------------

/// Threads load and store at random while `other` runs; there must be no violation.
fn storm(fixture: &Fixture, pages: u64, rounds: u64, other: impl FnOnce() + Send) {
    thread::scope(|scope| {
        for seed in 0..3 {
            scope.spawn(move || {
                let mut rng = Rng::new(seed);
                for _ in 0..rounds {
                    let mode = if rng.percent(40) { Store } else { Load };
                    if let Err(Violation(text)) = fixture.touch(BASE + rng.below(pages) * PAGE, mode) {
                        panic!("{text}");
                    }
                }
            });
        }
        scope.spawn(other);
    });
}

#[test]
fn concurrent_loads_and_stores_pass() {
    for shared in [false, true] {
        let file = Arc::new(File::new(1, 4 * PAGE));
        let source = if shared { Source::File { file, offset: 0, shared } } else { Source::Anonymous };
        let (fixture, _) = Fixture::with(4, source);
        storm(&fixture, 4, 20_000, || {});
    }
}

#[test]
fn concurrent_dontneed_passes() {
    let (fixture, _) = Fixture::with(4, Source::Anonymous);
    storm(&fixture, 4, 20_000, || {
        for _ in 0..500 {
            let change = fixture.map().begin_change(1, 4);
            // As in an unmap: each page is replaced by one of zeroes, all sectors at once.
            (1..5).for_each(|page| fixture.memory.map(page, Some(&frame())));
            fixture.map().end_forget(change, Forget::Now, &BACKOFF);
        }
    });
}

#[test]
fn concurrent_mprotect_passes() {
    let (fixture, frames) = Fixture::with(2, Source::Anonymous);
    storm(&fixture, 2, 20_000, || {
        for round in 0..1000 {
            let prot = if round % 2 == 0 { Prot::NONE } else { Prot::RW };
            let change = fixture.map().begin_change(1, 2);
            for (page, frame) in (1..).zip(&frames) {
                fixture.memory.map(page, (prot == Prot::RW).then_some(frame));
            }
            fixture.map().end_protect(change, prot, true, &BACKOFF);
        }
    });
}

#[test]
fn concurrent_mremap_passes() {
    let (fixture, frames) = Fixture::with(2, Source::Anonymous);
    storm(&fixture, 12, 20_000, || {
        for round in 0..1000 {
            let (from, to) = if round % 2 == 0 { (1, 9) } else { (9, 1) };
            // Like mremap with a fixed address, where other threads also access memory.
            let (taken, target) = {
                let mut map = fixture.map();
                (map.begin_take(from, 2), map.begin_replace(to, 2, None))
            };
            for (page, frame) in (0..).zip(&frames) {
                fixture.memory.map(from + page, None);
                fixture.memory.map(to + page, Some(frame));
            }
            let mut map = fixture.map();
            map.end_move(taken, to, 2, &BACKOFF);
            map.end_replace(target, true, &BACKOFF);
        }
    });
}

#[test]
fn concurrent_truncate_and_write_pass() {
    let (mut fixture, _, file) = Fixture::with_file(4, true);
    fixture.memory.beyond = true;
    let fixture = fixture;
    storm(&fixture, 4, 20_000, || {
        let mut rng = Rng::new(9);
        for _ in 0..500 {
            let guard = file.change(&BACKOFF);
            let size = rng.below(4 * PAGE);
            if let Some(truncation) = file.begin_truncate(size, &guard) {
                for page in truncation.first..4 {
                    fixture.memory.map(page + 1, None);
                }
                fixture.checker.end_truncate(&file, truncation, true, &BACKOFF);
            }
            let old = file.size().div_ceil(PAGE);
            for page in old..4 {
                fixture.memory.map(page + 1, Some(&frame()));
            }
            file.set_size(4 * PAGE, &guard);
            let (offset, len) = (rng.below(2 * PAGE), 1 + rng.below(2 * PAGE));
            let (offset, len) = file_io::whole_stamps(offset, len);
            let mut set_words = vec![];
            let writing =
                FileWrite::begin(&file, offset, len, &BACKOFF, |at, word| set_words.push((at, word)));
            for (at, word) in set_words {
                fixture.memory.store(BASE + at, word).unwrap();
            }
            writing.end(offset, Some(len));
        }
    });
}

#[test]
fn concurrent_forks_pass() {
    let (fixture, _) = Fixture::with(4, Source::Anonymous);
    storm(&fixture, 4, 20_000, || {
        for number in 1..60 {
            let fork_state = fixture.map().begin_fork();
            // As copy on write does: a page is copied between two stores to its sectors.
            let memory = TestMemory::default();
            for (&page, old) in fixture.memory.pages.read().unwrap().iter() {
                let copy = frame();
                set_words(&copy, &words(old));
                memory.map(page, Some(&copy));
            }
            fixture.checker.fork(&fixture.process, number, &fork_state, &BACKOFF);
            let process = fixture.checker.process(number, &BACKOFF);
            let mut tally = Tally::default();
            for mode in [Load, Store, Load] {
                for page in 1..5 {
                    let mut touch = CheckedAccess { memory: &memory, backoff: &BACKOFF, tally: &mut tally };
                    assert_eq!(touch.access(&process, page * PAGE, mode), Ok(Ok(())));
                }
            }
            fixture.checker.leave(&process, &BACKOFF);
        }
    });
}
