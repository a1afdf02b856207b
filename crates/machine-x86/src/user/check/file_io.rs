//! Checked reads and writes of files by system calls.
//!
//! A read is checked page by page like a load. A write stores to every page that it touches; all of them are
//! locked from before the call until after it. If it covers only some of a page's stamps, the others keep
//! their old value.

use super::backoff::Backoff;
use super::file::Moment;
use super::page::{Before, Store};
use super::stamp::{Mark, Origin, SECTOR};
use super::{File, Tally, Violation};
use alloc::format;
use alloc::vec::Vec;

const PAGE: u64 = 4096;
/// Bytes of a stamp.
const STAMP: u64 = 8;

/// The offset and length that a write of `[offset, offset + len)` must use instead, so that it splits no
/// stamp. It touches no additional page.
pub fn whole_stamps(offset: u64, len: u64) -> (u64, u64) {
    let end = offset + len;
    let start = if offset % SECTOR < STAMP { offset - offset % SECTOR } else { offset };
    let beyond = end % SECTOR;
    let end = if (1..STAMP).contains(&beyond) { end - beyond + STAMP } else { end };
    (start, end - start)
}

/// Positions of the whole stamps in a range of bytes.
fn stamps(offset: u64, len: u64) -> impl Iterator<Item = u64> {
    let first = offset.next_multiple_of(SECTOR);
    let end = (offset + len).saturating_sub(STAMP - 1).max(first);
    (first..end).step_by(SECTOR as usize)
}

/// A read in progress.
#[must_use]
pub struct FileRead<'a> {
    file: &'a File,
    first: u64,
    before: Vec<Option<Before>>,
    moment: Moment,
}

impl<'a> FileRead<'a> {
    /// Begin a read of a range of bytes.
    pub fn begin(file: &'a File, offset: u64, len: u64) -> FileRead<'a> {
        let moment = file.moment();
        let first = offset / PAGE;
        let end = offset.saturating_add(len).min(file.size()).div_ceil(PAGE).max(first);
        let before = (first..end).map(|page| file.page(page).map(|shadow| shadow.before())).collect();
        FileRead { file, first, before, moment }
    }

    /// End a read that returned `got` bytes; `word` returns the word at a position in the file.
    pub fn end(
        self,
        offset: u64,
        got: u64,
        word: impl Fn(u64) -> u64,
        tally: &mut Tally,
    ) -> Result<(), Violation> {
        let mut checked_page = None;
        for at in stamps(offset, got) {
            let (page, sector) = (at / PAGE, at % PAGE / SECTOR);
            let before = self.before.get((page - self.first) as usize).copied().flatten();
            let view = before.zip(self.file.page(page)).and_then(|(before, shadow)| shadow.since(&before));
            let Some(view) = view.filter(|_| !self.file.truncated_since(self.moment, page)) else { continue };
            if checked_page.replace(page) != Some(page) {
                tally.checked += 1;
            }
            let found = Mark::found(word(at), sector);
            if !(view.any || view.owns(found)) {
                tally.violations += 1;
                return Err(Violation(format!(
                    "read() of page {page:#x} of file {}: expected {view}; found {found} in sector {sector}",
                    self.file.number
                )));
            }
        }
        Ok(())
    }
}

/// A write in progress.
#[must_use]
pub struct FileWrite<'a> {
    stores: Vec<(u64, Store<'a>)>,
}

impl<'a> FileWrite<'a> {
    /// Begin a write of a range of bytes; `put` gets each position in the file and the word to write there.
    /// The file must have shadows for the range.
    pub fn begin(
        file: &'a File,
        offset: u64,
        len: u64,
        backoff: &dyn Backoff,
        mut put: impl FnMut(u64, u64),
    ) -> FileWrite<'a> {
        let mut stores: Vec<(u64, Store<'a>)> = Vec::new();
        for at in stamps(offset, len) {
            let page = at / PAGE;
            if stores.last().is_none_or(|&(last, _)| last != page) {
                let shadow = file.page(page).expect("the file must have shadows for the range");
                stores.push((page, shadow.lock(backoff).store(Origin::file(file.number, page), false)));
            }
            let mark = stores.last().expect("a page must have a store").1.mark();
            put(at, mark.word(at % PAGE / SECTOR));
        }
        FileWrite { stores }
    }

    /// Nothing was written.
    pub fn cancel(self) {
        self.stores.into_iter().for_each(|(_, store)| drop(store.revert()));
    }

    /// End a write; `Some`: this many bytes were written.
    pub fn end(self, offset: u64, written: Option<u64>) {
        for (page, store) in self.stores {
            let (start, end) = (page * PAGE, (page + 1) * PAGE);
            let covered = |written: u64| {
                let last = end - SECTOR + STAMP;
                offset <= start && last <= offset + written
            };
            if written.is_some_and(covered) { store.complete() } else { store.leave_partial() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn writes_never_split_a_stamp(offset in 0u64..20_000, len in 1u64..20_000) {
            let (from, more) = whole_stamps(offset, len);
            let (end, old) = (from + more, offset + len);
            prop_assert!(from <= offset && end >= old);
            prop_assert_eq!((from / PAGE, end.div_ceil(PAGE)), (offset / PAGE, old.div_ceil(PAGE)));
            for stamp in (0..end + SECTOR).step_by(SECTOR as usize) {
                let outside = stamp + STAMP <= from || stamp >= end;
                let inside = from <= stamp && stamp + STAMP <= end;
                prop_assert!(outside || inside, "stamp at {} is split by {}..{}", stamp, from, end);
                prop_assert_eq!(inside, stamps(from, more).any(|at| at == stamp));
            }
        }
    }
}
