//! Loads, stores and reads of files, judged.

use super::file::Moment;
use super::page::{Before, Locked, Page, View};
use super::patience::{self, Patience};
use super::space::{Found, Region, What};
use super::stamp::{Mark, Origin, SECTOR, SECTORS};
use super::{File, Memory, Process, Tally, Violation};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;
use program::{AccessKind, Prot, Signal};

const PAGE: u64 = 4096;

/// One access by one task.
pub struct Touch<'a, M> {
    /// Memory.
    pub memory: &'a M,
    /// How to wait.
    pub patience: &'a dyn Patience,
    /// What the task has seen so far.
    pub tally: &'a mut Tally,
}

/// What a load found in the sectors.
type Words = [u64; SECTORS as usize];

/// A file's page, as it was when an access began.
struct Behind<'a> {
    file: &'a File,
    index: u64,
    page: Option<(&'a Page, Before)>,
    moment: Moment,
}

impl<'a> Behind<'a> {
    fn new(file: &'a File, index: u64) -> Behind<'a> {
        let moment = file.moment();
        let page = file.page(index).map(|page| (page, page.before()));
        Behind { file, index, page, moment }
    }

    fn cut(&self) -> bool {
        self.file.cut_since(self.moment, self.index)
    }

    fn view(&self) -> Option<View> {
        self.page.as_ref().and_then(|(page, before)| page.since(before))
    }
}

/// What a page may have shown: its own content, and what stands behind it.
#[derive(Clone, Copy)]
struct Expected {
    own: View,
    behind: View,
}

impl Expected {
    fn allows(&self, found: Mark) -> bool {
        self.own.any || self.own.owns(found) || (self.own.behind && self.shows_behind(found))
    }

    fn shows_behind(&self, found: Mark) -> bool {
        self.behind.any || self.behind.owns(found)
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
        match (self.own.own, self.own.behind) {
            (Some(_), true) => write!(f, "{}, or {}", self.own, self.behind),
            (None, true) => write!(f, "{}", self.behind),
            _ => write!(f, "{}", self.own),
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Private { file: None, .. } => f.write_str("private memory"),
            What::Private { file: Some((file, _)), .. } => {
                write!(f, "a private mapping of file {}", file.number)
            }
            What::Shared(file, _) => write!(f, "a shared mapping of file {}", file.number),
        }
    }
}

fn segv_or_bus(signal: Signal) -> Option<bool> {
    match signal {
        Signal::Segv { .. } => Some(false),
        Signal::Bus { .. } => Some(true),
        Signal::Kill => None,
    }
}

/// Does hardware let the access through if the mapping has these rights? Whatever is mapped at all can be loaded, and a
/// program's fetches are carried out as loads.
fn passes(prot: Prot, mode: AccessKind) -> bool {
    match mode {
        AccessKind::Load | AccessKind::Fetch => prot != Prot::NONE,
        AccessKind::Store => prot.contains(mode.needs()),
    }
}

impl<M: Memory> Touch<'_, M> {
    /// Load, store or fetch in the page of `addr`, and judge it. The signal is that of the access; a violation is the
    /// checker's.
    pub fn access(
        &mut self,
        process: &Process,
        addr: u64,
        mode: AccessKind,
    ) -> Result<Result<(), Signal>, Violation> {
        let page = addr / PAGE;
        let map = patience::read(&process.map, self.patience);
        let found = map.find(page);
        let had = found.region.and_then(|(region, at)| region.file(at)).map(|(file, index)| {
            let moment = file.moment();
            (file, moment, file.has(index))
        });
        let outcome = match (mode, found.region) {
            (AccessKind::Load, Some((region, at))) => self.load(region, at, page * PAGE, found.in_flux()),
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
                let _coming =
                    found.coming().filter(|_| mode == AccessKind::Store).and_then(|(file, index)| {
                        file.page(index).map(|shadow| shadow.lock(self.patience).confused())
                    });
                Ok(self.stray(addr, mode, Origin::process(process.number, page)))
            }
        };
        let verdict = match &outcome {
            _ if found.in_flux() => return Ok(outcome.unwrap_or(Ok(()))),
            Ok(Ok(())) | Err(_) => self.allowed(found.region, mode),
            Ok(Err(signal)) => {
                let cut = had.is_some_and(|(file, moment, _)| file.any_cut_since(moment));
                let has = had.is_none_or(|(.., has)| has) && !cut;
                self.refused(found.region, mode, *signal, has)
            }
        };
        let verdict = verdict.and(outcome.as_ref().map_err(Clone::clone).map(drop));
        match verdict {
            Ok(()) => Ok(outcome.unwrap_or(Ok(()))),
            // Its memory is being taken away.
            Err(_) if self.memory.dying() => Ok(Err(Signal::Kill)),
            Err(text) => {
                self.tally.violations += 1;
                let what = found.region.map_or(String::new(), |(region, _)| format!(", in {}", region.what));
                Err(Violation(format!(
                    "process {}, {mode:?} of page {page:#x} ({addr:#x}): {text}{what}",
                    process.number
                )))
            }
        }
    }

    /// Touch where nothing is mapped, as far as the checker knows.
    fn stray(&self, addr: u64, mode: AccessKind, origin: Origin) -> Result<(), Signal> {
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

    /// The access went through. Was that right?
    fn allowed(&mut self, region: Option<(&Region, u64)>, mode: AccessKind) -> Result<(), String> {
        self.tally.checked += 1;
        match region {
            None => Err("expected a fault, nothing is mapped there".into()),
            Some((Region { prot: Some(prot), .. }, _)) if !passes(*prot, mode) => {
                Err(format!("expected a fault, the mapping allows only {prot:?}"))
            }
            Some(_) => Ok(()),
        }
    }

    /// The access was refused. Was that right? `has`: the mapping had a page there all the time.
    fn refused(
        &mut self,
        region: Option<(&Region, u64)>,
        mode: AccessKind,
        signal: Signal,
        has: bool,
    ) -> Result<(), String> {
        let Some(beyond) = segv_or_bus(signal) else { return Ok(()) };
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

    /// Load all sectors. The text says what is wrong with them.
    fn load(
        &mut self,
        region: &Region,
        at: u64,
        addr: u64,
        in_flux: bool,
    ) -> Result<Result<(), Signal>, String> {
        let own = region.own(at).map(|page| (page, page.before()));
        let behind = region.file(at).map(|(file, index)| Behind::new(file, index));
        let mut words = [0; SECTORS as usize];
        for (sector, word) in (0..).zip(&mut words) {
            match self.memory.load(addr + sector * SECTOR) {
                Ok(found) => *word = found,
                Err(signal) => return Ok(Err(signal)),
            }
        }
        if in_flux || behind.as_ref().is_some_and(Behind::cut) {
            return Ok(Ok(()));
        }
        let shown = match &behind {
            Some(behind) => behind.view(),
            None => Some(View::ZEROES),
        };
        match (own, shown) {
            (Some((page, before)), Some(shown)) => {
                let Some(view) = page.since(&before) else { return Ok(Ok(())) };
                let expected = Expected { own: view, behind: shown };
                judge(&words, &expected)?;
                self.learn(page, &before, &words, &expected, behind.is_some());
            }
            (None, Some(shown)) => judge(&words, &Expected { own: shown, behind: shown })?,
            (_, None) => {}
        }
        Ok(Ok(()))
    }

    /// A load may tell which of several possible contents a private page has.
    fn learn(&self, page: &Page, before: &Before, words: &Words, expected: &Expected, file_behind: bool) {
        let marks = || (0..).zip(words).map(|(sector, &word)| Mark::found(word, sector));
        if expected.own.any {
            let first = Mark::found(words[0], 0);
            if marks().all(|mark| mark == first) && (first.is_zero() || first.is_stamp()) {
                page.learn(before, first, expected.shows_behind(first));
            }
        } else if expected.own.own.is_some()
            && expected.own.behind
            // A store that raced may have left its stamp in some sectors only, for good.
            && marks().all(|mark| !expected.own.owns(mark))
        {
            page.learn_gone(before, file_behind);
        }
    }

    /// Lock the page that a store goes to, `of` a file if others see it; and the page of the file that a call is
    /// mapping in its place, if any: the store may as well reach that one. Nobody knows what it holds from now on, in
    /// whichever process, and no other store to it ends before this one.
    fn lock<'p>(
        &self,
        page: &'p Page,
        of: Option<(&Arc<File>, u64)>,
        found: &Found<'p>,
    ) -> (Locked<'p>, Option<Locked<'p>>) {
        let place = |(file, index): (&Arc<File>, u64)| (file.number, index);
        let of = of.map(place);
        let coming = found.coming().filter(|&coming| Some(place(coming)) != of);
        let (number, shadow) = match coming {
            Some((file, index)) => (Some((file.number, index)), file.page(index)),
            None => (None, None),
        };
        let confuse = || shadow.map(|shadow| shadow.lock(self.patience).confused());
        // Private pages before those of files, and these in order: so nobody waits for each other.
        if number < of {
            let coming = confuse();
            (page.lock(self.patience), coming)
        } else {
            (page.lock(self.patience), confuse())
        }
    }

    /// Store to all sectors.
    fn store(
        &mut self,
        region: &Region,
        at: u64,
        addr: u64,
        origin: Origin,
        found: &Found<'_>,
    ) -> Result<(), Signal> {
        let file = region.file(at);
        let (page, private) = match (region.own(at), file) {
            (Some(own), _) => (own, true),
            (None, Some((file, index))) => match file.page(index) {
                Some(page) => (page, false),
                // Beyond all that the file ever was.
                None => return self.stray(addr, AccessKind::Store, origin),
            },
            (None, None) => return self.stray(addr, AccessKind::Store, origin),
        };
        let behind = file.filter(|_| private).map(|(file, index)| Behind::new(file, index));
        found.stored(AccessKind::Store);
        let (locked, _coming) = self.lock(page, if private { None } else { file }, found);
        let store = locked.store(origin, found.in_flux() && private);
        let mut stored = 0;
        let outcome = (0..SECTORS).try_for_each(|sector| {
            self.memory.store(addr + sector * SECTOR, store.mark().word(sector))?;
            stored += 1;
            Ok(())
        });
        if behind.as_ref().is_some_and(Behind::cut) {
            store.raced();
        }
        match (outcome, stored) {
            // It may have gone to what replaces the mapping.
            (Ok(()), _) if found.replaced() => store.partly(),
            (Ok(()), _) => store.done(),
            (Err(_), 0) => {
                let page = store.undone();
                // It may have become a copy before a call took away the right to store to it.
                if let Some(behind) = behind.filter(|_| found.in_flux()) {
                    page.perhaps_copied(behind.view());
                }
            }
            (Err(_), _) => store.partly(),
        }
        outcome
    }
}

fn judge(words: &Words, expected: &Expected) -> Result<(), String> {
    for (sector, &word) in (0..).zip(words) {
        let found = Mark::found(word, sector);
        if !expected.allows(found) {
            return Err(format!("expected {expected}; found {found} in sector {sector}"));
        }
    }
    Ok(())
}
