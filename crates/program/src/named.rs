//! All programs by name, as command lines have them: `NAME`, `NAME:BYTES` or `NAME:BYTES:THREADS`. An application's may
//! end with a distribution of keys and a share of writes: `memcached:1G:8:gaussian:30%`, `memcached:1G:zipf`.

use crate::apps::{self, App, Ask, Refused};
use crate::builtin::{
    self, Builtin, Churn, KernelBuild, LruFileMmapRead, PageoutLoop, Usemem, VmScalability,
};
use crate::chaos::{self, Chaos};
use crate::keys::Law;
use crate::{Os, Program, Role, Signal};
use alloc::format;
use alloc::string::String;
use core::fmt;

/// Bytes that a program touches if nothing is said.
const DEFAULT_BYTES: u64 = 64 << 20;
/// The most that it may be told to touch: half of a 47-bit address space.
const MAX_BYTES: u64 = 1 << 46;
/// Most threads.
const MAX_THREADS: u32 = 1024;
/// Name of the random program.
const CHAOS: &str = "chaos";

/// A program that has a name.
#[derive(Debug)]
pub enum Named {
    /// A synthetic one.
    Builtin(Builtin),
    /// Mapped files read once, more than memory holds.
    LruFileMmapRead(LruFileMmapRead),
    /// Another case of vm-scalability.
    VmScalability(VmScalability),
    /// vm-scalability's `usemem` itself.
    Usemem(Usemem),
    /// Processes that compile beside bursts of large pages.
    KernelBuild(KernelBuild),
    /// Memory given back and asked for at random.
    Churn(Churn),
    /// Private mappings of files given up again and again, for a second.
    PageoutLoop(PageoutLoop),
    /// What memory sees of a real program.
    App(App),
    /// Everything at random.
    Chaos(Chaos),
}

/// The parts of a program's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Words<'a> {
    /// The name proper.
    pub name: &'a str,
    /// Bytes to touch.
    pub bytes: u64,
    /// Tasks, if it was said; of the random program, which chooses their number itself, the operations of each; of
    /// `churn` the rounds.
    pub threads: Option<u32>,
    /// How an application chooses keys, if it was said.
    pub law: Option<Law>,
    /// Writes among a hundred of an application's operations, if it was said.
    pub writes: Option<u32>,
    /// Options of `usemem`, as they were written.
    pub options: Option<&'a str>,
}

/// What is wrong with a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wrong {
    /// No program is called so.
    Unknown(String),
    /// Something else, in words.
    Other(String),
}

impl<'a> Words<'a> {
    /// Take a name apart; `bytes` reads a number of bytes and says what is wrong with it.
    pub fn parse(text: &'a str, bytes: impl Fn(&str) -> Result<u64, String>) -> Result<Words<'a>, Wrong> {
        let mut parts = text.split(':').peekable();
        let name = parts.next().unwrap_or_default();
        let mut words =
            Words { name, bytes: DEFAULT_BYTES, threads: None, law: None, writes: None, options: None };
        let most = if name == CHAOS { chaos::MOST_OPERATIONS } else { MAX_THREADS };
        if name == Usemem::NAME {
            // Its size may be left out: options begin with a letter.
            let size = parts.next_if(|word| !word.starts_with(|first: char| first.is_ascii_alphabetic()));
            words.bytes = size.map_or(Ok(DEFAULT_BYTES), |size| bytes(size).map_err(Wrong::Other))?;
            words.options = parts.next();
        } else {
            if let Some(size) = parts.next_if(|word| !is_option(word)) {
                words.bytes = bytes(size).map_err(Wrong::Other)?;
            }
            if let Some(word) = parts.next_if(|word| !is_option(word)) {
                words.threads = Some(threads(text, word, most)?);
            }
            words.law = parts.next_if(|word| Law::from_name(word).is_some()).and_then(Law::from_name);
            words.writes =
                parts.next_if(|word| word.ends_with('%')).map(|word| writes(text, word)).transpose()?;
        }
        match parts.next() {
            None => Ok(words),
            Some(_) => Err(Wrong::Other(format!(
                "{text}: a program is NAME, NAME:SIZE or NAME:SIZE:THREADS, and for some :DISTRIBUTION and :N% more"
            ))),
        }
    }
}

impl fmt::Display for Words<'_> {
    /// As it is read, with bytes as a number.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}:{}", self.name, self.bytes)?;
        self.threads.map_or(Ok(()), |threads| write!(to, ":{threads}"))?;
        self.law.map_or(Ok(()), |law| write!(to, ":{}", law.name()))?;
        self.writes.map_or(Ok(()), |writes| write!(to, ":{writes}%"))?;
        self.options.map_or(Ok(()), |options| write!(to, ":{options}"))
    }
}

/// Is it a word that follows size and threads?
fn is_option(word: &str) -> bool {
    word.ends_with('%') || Law::from_name(word).is_some()
}

fn writes(text: &str, word: &str) -> Result<u32, Wrong> {
    let share = word.strip_suffix('%').and_then(|word| word.parse().ok()).filter(|share| *share <= 100);
    share.ok_or_else(|| Wrong::Other(format!("{text}: '{word}' is no share of writes from 0% to 100%")))
}

fn threads(text: &str, word: &str, most: u32) -> Result<u32, Wrong> {
    let threads = word.parse().ok().filter(|threads| (1..=most).contains(threads));
    threads.ok_or_else(|| Wrong::Other(format!("{text}: '{word}' is no number of threads from 1 to {most}")))
}

impl Named {
    /// All names, with a line of help each.
    pub fn list() -> impl Iterator<Item = (&'static str, &'static str)> {
        let others = [
            (LruFileMmapRead::NAME, LruFileMmapRead::HELP),
            (PageoutLoop::NAME, PageoutLoop::HELP),
            (Usemem::NAME, Usemem::HELP),
            (KernelBuild::NAME, KernelBuild::HELP),
            (CHAOS, chaos::HELP),
        ];
        builtin::LIST
            .iter()
            .chain(apps::LIST)
            .copied()
            .chain(VmScalability::list())
            .chain(others)
            .chain(Churn::LIST.iter().copied())
    }

    /// May it be killed for want of memory without the run having failed?
    pub fn may_die(&self) -> bool {
        match self {
            Named::Chaos(_) => true,
            Named::App(app) => app.may_die(),
            _ => false,
        }
    }

    /// The program of that name.
    pub fn new(words: Words<'_>) -> Result<Named, Wrong> {
        let Words { name, bytes, threads, law, writes, options } = words;
        if !Named::list().any(|(known, _)| known == name) {
            return Err(Wrong::Unknown(name.into()));
        }
        if bytes > MAX_BYTES {
            return Err(Wrong::Other(format!(
                "{name}: no address space holds {bytes} bytes; give it less, like {name}:64M"
            )));
        }
        if let Some(app) = apps::from_name(name, Ask { bytes, threads, law, writes }) {
            return app.map(Named::App).map_err(|refused| refusal(name, refused));
        }
        if law.is_some() || writes.is_some() {
            return Err(refusal(name, if law.is_some() { Refused::Law } else { Refused::Writes }));
        }
        if let Some(program) = builtin::from_name(name, bytes) {
            return Ok(Named::Builtin(program.with_threads(threads.unwrap_or(1))));
        }
        if let Some(case) = VmScalability::from_name(name, bytes) {
            return Ok(Named::VmScalability(case.with_tasks(threads)));
        }
        if name == Usemem::NAME {
            let usemem = Usemem::new(bytes, options.unwrap_or_default());
            return usemem.map(Named::Usemem).map_err(|why| Wrong::Other(format!("{name}: {why}")));
        }
        if name == KernelBuild::NAME {
            return Ok(Named::KernelBuild(KernelBuild::new(bytes, threads)));
        }
        if let Some(churn) = Churn::from_name(name, bytes, threads) {
            return Ok(Named::Churn(churn));
        }
        if name == CHAOS {
            return Ok(Named::Chaos(Chaos::from_footprint(bytes, threads)));
        }
        if threads.is_some() {
            return Err(Wrong::Other(format!("{name} chooses its number of tasks itself")));
        }
        Ok(match name {
            LruFileMmapRead::NAME => Named::LruFileMmapRead(LruFileMmapRead::new(bytes)),
            _ => Named::PageoutLoop(PageoutLoop::new(bytes)),
        })
    }
}

fn refusal(name: &str, refused: Refused) -> Wrong {
    Wrong::Other(match refused {
        Refused::Law => format!("{name} takes no distribution of keys"),
        Refused::Writes => format!("{name} takes no share of writes"),
    })
}

impl Program for Named {
    fn name(&self) -> &str {
        match self {
            Named::Builtin(program) => program.name(),
            Named::LruFileMmapRead(program) => program.name(),
            Named::VmScalability(program) => program.name(),
            Named::Usemem(program) => program.name(),
            Named::KernelBuild(program) => program.name(),
            Named::Churn(program) => program.name(),
            Named::PageoutLoop(program) => program.name(),
            Named::App(program) => program.name(),
            Named::Chaos(program) => program.name(),
        }
    }

    fn footprint(&self) -> u64 {
        match self {
            Named::Builtin(program) => program.footprint(),
            Named::LruFileMmapRead(program) => program.footprint(),
            Named::VmScalability(program) => program.footprint(),
            Named::Usemem(program) => program.footprint(),
            Named::KernelBuild(program) => program.footprint(),
            Named::Churn(program) => program.footprint(),
            Named::PageoutLoop(program) => program.footprint(),
            Named::App(program) => program.footprint(),
            Named::Chaos(program) => program.footprint(),
        }
    }

    fn run<O: Os>(&self, os: &mut O, role: Role) -> Result<(), Signal> {
        match self {
            Named::Builtin(program) => program.run(os, role),
            Named::LruFileMmapRead(program) => program.run(os, role),
            Named::VmScalability(program) => program.run(os, role),
            Named::Usemem(program) => program.run(os, role),
            Named::KernelBuild(program) => program.run(os, role),
            Named::Churn(program) => program.run(os, role),
            Named::PageoutLoop(program) => program.run(os, role),
            Named::App(program) => program.run(os, role),
            Named::Chaos(program) => program.run(os, role),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(text: &str) -> Result<Named, Wrong> {
        let number = |word: &str| word.parse().map_err(|_| format!("'{word}' is no number of bytes"));
        Named::new(Words::parse(text, number)?)
    }

    #[test]
    fn every_program_is_found_by_its_name_and_described() {
        for (name, help) in Named::list() {
            assert!(find(name).is_ok_and(|found| found.name() == name), "{name}");
            assert!(find(&format!("{name}:2000000")).is_ok_and(|found| found.footprint() > 0), "{name}");
            assert!(!help.is_empty(), "{name}");
        }
    }

    #[test]
    fn what_a_name_says_is_read_and_written_alike() {
        let number = |word: &str| word.parse().map_err(|_| String::new());
        let read = |text| Words::parse(text, number);
        for (text, whole) in [
            ("zipf", "zipf:67108864"),
            ("zipf:5:3", "zipf:5:3"),
            ("redis:gaussian", "redis:67108864:gaussian"),
            ("redis:5:zipf:0%", "redis:5:zipf:0%"),
            ("redis:5:7:zipf:100%", "redis:5:7:zipf:100%"),
            ("redis:30%", "redis:67108864:30%"),
            ("usemem:5:nproc=2,random", "usemem:5:nproc=2,random"),
            ("usemem:readonly", "usemem:67108864:readonly"),
        ] {
            let words = read(text).expect(text);
            assert_eq!(format!("{words}"), whole);
            assert_eq!(read(whole), Ok(words));
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        assert_eq!(find("zippf:1000").err(), Some(Wrong::Unknown("zippf".into())));
        for (text, reason) in [
            ("zipf:1M", "no number of bytes"),
            ("zipf:1000000:0", "no number of threads"),
            ("zipf:1:1:1", "NAME:SIZE:THREADS"),
            ("memcached:1:1:zipf:zipf", "NAME:SIZE:THREADS"),
            ("memcached:1:5%:zipf", "NAME:SIZE:THREADS"),
            ("memcached:101%", "no share of writes"),
            ("zipf:1000000:gaussian", "takes no distribution"),
            ("usemem:1000000:4", "'4' is no option"),
            ("usemem:1000000:nproc=2:4", "NAME:SIZE:THREADS"),
            ("chaos:5%", "takes no share of writes"),
            ("pageout-loop:1000000:2", "chooses its number"),
            ("chaos:100000000000000", "no address space holds"),
        ] {
            assert!(matches!(find(text), Err(Wrong::Other(why)) if why.contains(reason)), "{text}");
        }
    }
}
