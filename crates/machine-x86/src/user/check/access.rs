//! Checked loads, stores and fetches.

use super::backoff::{self, Backoff};
use super::file::Moment;
use super::page::{Before, Locked, Page, View};
use super::space::{Lookup, Region, RegionKind};
use super::stamp::{Mark, Origin, SECTOR, SECTORS};
use super::{File, Memory, Process, Tally, Violation};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;
use program::{AccessKind, Prot, Signal};

const PAGE: u64 = 4096;

/// Accesses by one task.
pub struct CheckedAccess<'a, M> {
    /// The memory.
    pub memory: &'a M,
    /// How to wait.
    pub backoff: &'a dyn Backoff,
    /// The task's counts.
    pub tally: &'a mut Tally,
}

/// The words that a load found in the sectors.
type Words = [u64; SECTORS as usize];

/// The page of the file that backs a mapping, as it was when an access began.
struct Backing<'a> {
    file: &'a File,
    index: u64,
    page: Option<(&'a Page, Before)>,
    moment: Moment,
}

impl<'a> Backing<'a> {
    fn new(file: &'a File, index: u64) -> Backing<'a> {
        let moment = file.moment();
        let page = file.page(index).map(|page| (page, page.before()));
        Backing { file, index, page, moment }
    }

    fn truncated(&self) -> bool {
        self.file.truncated_since(self.moment, self.index)
    }

    fn view(&self) -> Option<View> {
        self.page.as_ref().and_then(|(page, before)| page.since(before))
    }
}

/// The possible contents of a page: its own, and that of the page that backs it.
#[derive(Clone, Copy)]
struct Expected {
    own: View,
    backing: View,
}

impl Expected {
    fn allows(&self, found: Mark) -> bool {
        self.own.any || self.own.owns(found) || (self.own.backing && self.shows_backing(found))
    }

    fn shows_backing(&self, found: Mark) -> bool {
        self.backing.any || self.backing.owns(found)
    }
}

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.own {
            Some((base, next)) if base == next => write!(f, "{base}"),
            Some((base, next)) => write!(f, "{base} up to {next}"),
            None => f.write_str("nothing of its own"),
        }
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.own.own, self.own.backing) {
            (Some(_), true) => write!(f, "{}, or {}", self.own, self.backing),
            (None, true) => write!(f, "{}", self.backing),
            _ => write!(f, "{}", self.own),
        }
    }
}

impl fmt::Display for RegionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RegionKind::Private { file: None, .. } => f.write_str("private memory"),
            RegionKind::Private { file: Some((file, _)), .. } => {
                write!(f, "a private mapping of file {}", file.number)
            }
            RegionKind::Shared(file, _) => write!(f, "a shared mapping of file {}", file.number),
        }
    }
}

/// Whether hardware allows the access if the mapping has these rights. Everything that is mapped can be
/// loaded, and a program's fetches are done as loads.
fn permits(prot: Prot, mode: AccessKind) -> bool {
    match mode {
        AccessKind::Load | AccessKind::Fetch => prot != Prot::NONE,
        AccessKind::Store => prot.contains(mode.needs()),
    }
}

impl<M: Memory> CheckedAccess<'_, M> {
    /// Load, store or fetch in the page of `addr`, and check the result. The signal is that of the access;
    /// the violation is the checker's.
    pub fn access(
        &mut self,
        process: &Process,
        addr: u64,
        mode: AccessKind,
    ) -> Result<Result<(), Signal>, Violation> {
        let page = addr / PAGE;
        let map = backoff::read(&process.map, self.backoff);
        let found = map.find(page);
        let had = found.region.and_then(|(region, at)| region.file(at)).map(|(file, index)| {
            let moment = file.moment();
            (file, moment, file.has(index))
        });
        let outcome = match (mode, found.region) {
            (AccessKind::Load, Some((region, at))) => self.load(region, at, page * PAGE, found.is_changing()),
            (AccessKind::Store, Some((region, at))) => {
                let origin = match region.file(at) {
                    Some((file, index)) if region.own(at).is_none() => Origin::file(file.number, index),
                    _ => Origin::process(process.number, page),
                };
                Ok(self.store(region, at, page * PAGE, origin, &found))
            }
            (AccessKind::Fetch, Some(_)) => Ok(self.memory.fetch(addr)),
            (mode, None) => {
                found.stored(mode);
                let _incoming =
                    found.incoming().filter(|_| mode == AccessKind::Store).and_then(|(file, index)| {
                        file.page(index).map(|shadow| shadow.lock(self.backoff).into_unknown())
                    });
                Ok(self.access_unmapped(addr, mode, Origin::process(process.number, page)))
            }
        };
        let verdict = match &outcome {
            _ if found.is_changing() => return Ok(outcome.unwrap_or(Ok(()))),
            Ok(Ok(())) | Err(_) => self.allowed(found.region, mode),
            Ok(Err(signal)) => {
                let truncation = had.is_some_and(|(file, moment, _)| file.any_truncation_since(moment));
                let has = had.is_none_or(|(.., has)| has) && !truncation;
                self.refused(found.region, mode, *signal, has)
            }
        };
        let verdict = verdict.and(outcome.as_ref().map_err(Clone::clone).map(drop));
        match verdict {
            Ok(()) => Ok(outcome.unwrap_or(Ok(()))),
            // Its memory is being freed.
            Err(_) if self.memory.dying() => Ok(Err(Signal::Kill)),
            Err(text) => {
                self.tally.violations += 1;
                let kind = found.region.map_or(String::new(), |(region, _)| format!(", in {}", region.kind));
                Err(Violation(format!(
                    "process {}, {mode:?} of page {page:#x} ({addr:#x}): {text}{kind}",
                    process.number
                )))
            }
        }
    }

    /// Access an address without a known mapping.
    fn access_unmapped(&self, addr: u64, mode: AccessKind, origin: Origin) -> Result<(), Signal> {
        match mode {
            AccessKind::Load => self.memory.load(addr & !7).map(drop),
            AccessKind::Store => {
                let mark = Mark::stamp(origin, 1);
                (0..SECTORS)
                    .try_for_each(|s| self.memory.store(addr / PAGE * PAGE + s * SECTOR, mark.word(s)))
            }
            AccessKind::Fetch => self.memory.fetch(addr),
        }
    }

    /// Check whether an access should have succeeded.
    fn allowed(&mut self, region: Option<(&Region, u64)>, mode: AccessKind) -> Result<(), String> {
        self.tally.checked += 1;
        match region {
            None => Err("expected a fault, nothing is mapped there".into()),
            Some((Region { prot: Some(prot), .. }, _)) if !permits(*prot, mode) => {
                Err(format!("expected a fault, the mapping allows only {prot:?}"))
            }
            Some(_) => Ok(()),
        }
    }

    /// Check whether an access should have failed. `has`: the mapping had a page there during the whole
    /// access.
    fn refused(
        &mut self,
        region: Option<(&Region, u64)>,
        mode: AccessKind,
        signal: Signal,
        has: bool,
    ) -> Result<(), String> {
        let beyond = match signal {
            Signal::Segv { .. } => false,
            Signal::Bus { .. } => true,
            Signal::Kill => return Ok(()),
        };
        self.tally.checked += 1;
        let Some((region, _)) = region else {
            return if beyond { Err("SIGBUS where nothing is mapped".into()) } else { Ok(()) };
        };
        let Some(prot) = region.prot else { return Ok(()) };
        match beyond {
            true if has => Err("SIGBUS where the mapping has a page".into()),
            false if prot.contains(mode.needs()) => Err("SIGSEGV where the mapping allows the access".into()),
            _ => Ok(()),
        }
    }

    /// Load all sectors. Fails with a description of what is wrong with them.
    fn load(
        &mut self,
        region: &Region,
        at: u64,
        addr: u64,
        is_changing: bool,
    ) -> Result<Result<(), Signal>, String> {
        let own = region.own(at).map(|page| (page, page.before()));
        let backing = region.file(at).map(|(file, index)| Backing::new(file, index));
        let mut words = [0; SECTORS as usize];
        for (sector, word) in (0..).zip(&mut words) {
            match self.memory.load(addr + sector * SECTOR) {
                Ok(found) => *word = found,
                Err(signal) => return Ok(Err(signal)),
            }
        }
        if is_changing || backing.as_ref().is_some_and(Backing::truncated) {
            return Ok(Ok(()));
        }
        let shown = backing.as_ref().map_or(Some(View::ZEROES), Backing::view);
        match (own, shown) {
            (Some((page, before)), Some(shown)) => {
                let Some(view) = page.since(&before) else { return Ok(Ok(())) };
                let expected = Expected { own: view, backing: shown };
                check_words(&words, &expected)?;
                self.learn(page, &before, &words, &expected, backing.is_some());
            }
            (None, Some(shown)) => check_words(&words, &Expected { own: shown, backing: shown })?,
            (_, None) => {}
        }
        Ok(Ok(()))
    }

    /// A load may show which of several possible contents a private page has.
    fn learn(&self, page: &Page, before: &Before, words: &Words, expected: &Expected, has_file: bool) {
        let marks = || (0..).zip(words).map(|(sector, &word)| Mark::found(word, sector));
        if expected.own.any {
            let first = Mark::found(words[0], 0);
            if marks().all(|mark| mark == first) && (first.is_zero() || first.is_stamp()) {
                page.learn(before, first, expected.shows_backing(first));
            }
        } else if expected.own.own.is_some()
            && expected.own.backing
            // A store that raced may have left its stamp in some sectors, permanently.
            && marks().all(|mark| !expected.own.owns(mark))
        {
            page.learn_discarded(before, has_file);
        }
    }

    /// Lock the page that a store goes to; `of` is its place in a file, if others see the store. If a call is
    /// mapping a page of a file in its place, the store may reach that page instead. So lock that page, too,
    /// and mark its content unknown for all processes. No other store to it ends before this one.
    fn lock<'p>(
        &self,
        page: &'p Page,
        of: Option<(&Arc<File>, u64)>,
        found: &Lookup<'p>,
    ) -> (Locked<'p>, Option<Locked<'p>>) {
        let place = |(file, index): (&Arc<File>, u64)| (file.number, index);
        let of = of.map(place);
        let incoming = found.incoming().filter(|&incoming| Some(place(incoming)) != of);
        let (number, shadow) = match incoming {
            Some((file, index)) => (Some((file.number, index)), file.page(index)),
            None => (None, None),
        };
        let mark_unknown = || shadow.map(|shadow| shadow.lock(self.backoff).into_unknown());
        // Private pages are locked before pages of files, and those in order, so no deadlock is possible.
        if number < of {
            let incoming = mark_unknown();
            (page.lock(self.backoff), incoming)
        } else {
            (page.lock(self.backoff), mark_unknown())
        }
    }

    /// Store to all sectors.
    fn store(
        &mut self,
        region: &Region,
        at: u64,
        addr: u64,
        origin: Origin,
        found: &Lookup<'_>,
    ) -> Result<(), Signal> {
        let file = region.file(at);
        let (page, private) = match (region.own(at), file) {
            (Some(own), _) => (own, true),
            (None, Some((file, index))) => match file.page(index) {
                Some(page) => (page, false),
                // Beyond every size that the file has ever had.
                None => return self.access_unmapped(addr, AccessKind::Store, origin),
            },
            (None, None) => return self.access_unmapped(addr, AccessKind::Store, origin),
        };
        let backing = file.filter(|_| private).map(|(file, index)| Backing::new(file, index));
        found.stored(AccessKind::Store);
        let (locked, _incoming) = self.lock(page, if private { None } else { file }, found);
        let store = locked.store(origin, found.is_changing() && private);
        let mut stored = 0;
        let outcome = (0..SECTORS).try_for_each(|sector| {
            self.memory.store(addr + sector * SECTOR, store.mark().word(sector))?;
            stored += 1;
            Ok(())
        });
        if backing.as_ref().is_some_and(Backing::truncated) {
            store.raced();
        }
        match (outcome, stored) {
            // It may have gone to the new mapping.
            (Ok(()), _) if found.replaced() => store.leave_partial(),
            (Ok(()), _) => store.complete(),
            (Err(_), 0) => {
                let page = store.revert();
                // It may have become a copy before a call removed the right to store to it.
                if let Some(backing) = backing.filter(|_| found.is_changing()) {
                    page.maybe_copied(backing.view());
                }
            }
            (Err(_), _) => store.leave_partial(),
        }
        outcome
    }
}

fn check_words(words: &Words, expected: &Expected) -> Result<(), String> {
    for (sector, &word) in (0..).zip(words) {
        let found = Mark::found(word, sector);
        if !expected.allows(found) {
            return Err(format!("expected {expected}; found {found} in sector {sector}"));
        }
    }
    Ok(())
}
