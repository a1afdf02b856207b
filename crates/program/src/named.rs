//! All programs by name, as on command lines: `NAME`, `NAME:BYTES` or `NAME:BYTES:THREADS`. An application's
//! name may end with a distribution of keys and a share of writes: `memcached:1G:8:gaussian:30%`,
//! `memcached:1G:zipf`.

use crate::apps::{self, App, AppOptions, Unsupported};
use crate::builtin::{
    self, Builtin, Churn, KernelBuild, LruFileMmapRead, PageoutLoop, Usemem, VmScalability, WillItScale,
};
use crate::chaos::{self, Chaos};
use crate::keys::Distribution;
use crate::{Os, Program, Role, Signal};
use alloc::format;
use alloc::string::String;
use core::fmt;

/// Bytes that a program touches by default.
const DEFAULT_BYTES: u64 = 64 << 20;
/// The most bytes that it may touch: half of a 47-bit address space.
const MAX_BYTES: u64 = 1 << 46;
/// The most threads.
const MAX_THREADS: u32 = 1024;
/// Name of the random program.
const CHAOS: &str = "chaos";

/// A program with a name.
#[derive(Debug)]
pub enum Named {
    /// A synthetic program with one access pattern.
    Builtin(Builtin),
    /// Mapped files that are read once and are larger than memory.
    LruFileMmapRead(LruFileMmapRead),
    /// Another case of vm-scalability.
    VmScalability(VmScalability),
    /// vm-scalability's `usemem` itself.
    Usemem(Usemem),
    /// Processes that compile while another allocates bursts of large pages.
    KernelBuild(KernelBuild),
    /// Memory that is freed and allocated again at random.
    Churn(Churn),
    /// A case of will-it-scale.
    WillItScale(WillItScale),
    /// Private file mappings that are paged out again and again, for a second.
    PageoutLoop(PageoutLoop),
    /// A model of a real program's memory accesses.
    App(App),
    /// Random operations.
    Chaos(Chaos),
}

/// The parts of a program's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NameParts<'a> {
    /// The bare name.
    pub name: &'a str,
    /// Bytes to touch.
    pub bytes: u64,
    /// Tasks, if given; for the random program, which chooses their number itself, the operations of each
    /// task; for `churn` the rounds.
    pub threads: Option<u32>,
    /// How an application chooses keys, if given.
    pub distribution: Option<Distribution>,
    /// Writes among a hundred operations of an application, if given.
    pub writes: Option<u32>,
    /// Options of `usemem`, unparsed.
    pub options: Option<&'a str>,
}

/// Why a name is invalid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NameError {
    /// No program has this name.
    Unknown(String),
    /// Any other reason, in words.
    Other(String),
}

impl<'a> NameParts<'a> {
    /// Parse a name; `bytes` parses a number of bytes or returns an error message.
    pub fn parse(
        text: &'a str,
        bytes: impl Fn(&str) -> Result<u64, String>,
    ) -> Result<NameParts<'a>, NameError> {
        let mut fields = text.split(':').peekable();
        let name = fields.next().unwrap_or_default();
        let mut parts = NameParts {
            name,
            bytes: DEFAULT_BYTES,
            threads: None,
            distribution: None,
            writes: None,
            options: None,
        };
        let max = if name == CHAOS { chaos::MAX_OPERATIONS } else { MAX_THREADS };
        if name == Usemem::NAME {
            // The size is optional: options begin with a letter.
            let size = fields.next_if(|word| !word.starts_with(|first: char| first.is_ascii_alphabetic()));
            parts.bytes = size.map_or(Ok(DEFAULT_BYTES), |size| bytes(size).map_err(NameError::Other))?;
            parts.options = fields.next();
        } else {
            if let Some(size) = fields.next_if(|word| !is_option(word)) {
                parts.bytes = bytes(size).map_err(NameError::Other)?;
            }
            if let Some(word) = fields.next_if(|word| !is_option(word)) {
                parts.threads = Some(threads(text, word, max)?);
            }
            parts.distribution = fields
                .next_if(|word| Distribution::from_name(word).is_some())
                .and_then(Distribution::from_name);
            parts.writes =
                fields.next_if(|word| word.ends_with('%')).map(|word| writes(text, word)).transpose()?;
        }
        match fields.next() {
            None => Ok(parts),
            Some(_) => Err(NameError::Other(format!(
                "{text}: a program is NAME, NAME:SIZE or NAME:SIZE:THREADS, and some take :DISTRIBUTION and :N%"
            ))),
        }
    }
}

impl fmt::Display for NameParts<'_> {
    /// In the form that `parse` reads, with bytes as a number.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}:{}", self.name, self.bytes)?;
        self.threads.map_or(Ok(()), |threads| write!(to, ":{threads}"))?;
        self.distribution.map_or(Ok(()), |distribution| write!(to, ":{}", distribution.name()))?;
        self.writes.map_or(Ok(()), |writes| write!(to, ":{writes}%"))?;
        self.options.map_or(Ok(()), |options| write!(to, ":{options}"))
    }
}

/// Whether it is a word that follows size and threads.
fn is_option(word: &str) -> bool {
    word.ends_with('%') || Distribution::from_name(word).is_some()
}

fn writes(text: &str, word: &str) -> Result<u32, NameError> {
    let share = word.strip_suffix('%').and_then(|word| word.parse().ok()).filter(|share| *share <= 100);
    share
        .ok_or_else(|| NameError::Other(format!("{text}: '{word}' is not a share of writes from 0% to 100%")))
}

fn threads(text: &str, word: &str, max: u32) -> Result<u32, NameError> {
    let threads = word.parse().ok().filter(|threads| (1..=max).contains(threads));
    threads.ok_or_else(|| {
        NameError::Other(format!("{text}: '{word}' is not a number of threads from 1 to {max}"))
    })
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
            .chain(WillItScale::list())
            .chain(others)
            .chain(Churn::LIST.iter().copied())
    }

    /// Whether the out-of-memory killer may kill it without the run having failed.
    pub fn may_be_oom_killed(&self) -> bool {
        match self {
            Named::Chaos(_) => true,
            Named::App(app) => app.may_be_oom_killed(),
            _ => false,
        }
    }

    /// The program with that name.
    pub fn new(parts: NameParts<'_>) -> Result<Named, NameError> {
        let NameParts { name, bytes, threads, distribution, writes, options } = parts;
        if !Named::list().any(|(known, _)| known == name) {
            return Err(NameError::Unknown(name.into()));
        }
        if bytes > MAX_BYTES {
            return Err(NameError::Other(format!(
                "{name}: {bytes} bytes do not fit in an address space; use fewer, like {name}:64M"
            )));
        }
        if let Some(app) = apps::from_name(name, AppOptions { bytes, threads, distribution, writes }) {
            return app.map(Named::App).map_err(|option| unsupported(name, option));
        }
        if distribution.is_some() || writes.is_some() {
            return Err(unsupported(
                name,
                if distribution.is_some() { Unsupported::Distribution } else { Unsupported::Writes },
            ));
        }
        if let Some(program) = builtin::from_name(name, bytes) {
            return Ok(Named::Builtin(program.with_threads(threads.unwrap_or(1))));
        }
        if let Some(case) = VmScalability::from_name(name, bytes) {
            return Ok(Named::VmScalability(case.with_tasks(threads)));
        }
        if let Some(case) = WillItScale::from_name(name, bytes) {
            return Ok(Named::WillItScale(case.with_tasks(threads)));
        }
        if name == Usemem::NAME {
            let usemem = Usemem::new(bytes, options.unwrap_or_default());
            return usemem.map(Named::Usemem).map_err(|why| NameError::Other(format!("{name}: {why}")));
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
            return Err(NameError::Other(format!("{name} chooses its number of tasks itself")));
        }
        Ok(match name {
            LruFileMmapRead::NAME => Named::LruFileMmapRead(LruFileMmapRead::new(bytes)),
            _ => Named::PageoutLoop(PageoutLoop::new(bytes)),
        })
    }
}

fn unsupported(name: &str, option: Unsupported) -> NameError {
    NameError::Other(match option {
        Unsupported::Distribution => format!("{name} takes no distribution of keys"),
        Unsupported::Writes => format!("{name} takes no share of writes"),
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
            Named::WillItScale(program) => program.name(),
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
            Named::WillItScale(program) => program.footprint(),
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
            Named::WillItScale(program) => program.run(os, role),
            Named::App(program) => program.run(os, role),
            Named::Chaos(program) => program.run(os, role),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(text: &str) -> Result<Named, NameError> {
        let number = |word: &str| word.parse().map_err(|_| format!("'{word}' is not a number of bytes"));
        Named::new(NameParts::parse(text, number)?)
    }

    #[test]
    fn every_listed_program_is_found_and_has_a_footprint() {
        for (name, help) in Named::list() {
            assert!(find(name).is_ok_and(|found| found.name() == name), "{name}");
            assert!(find(&format!("{name}:2000000")).is_ok_and(|found| found.footprint() > 0), "{name}");
            assert!(!help.is_empty(), "{name}");
        }
    }

    #[test]
    fn names_are_parsed_and_printed_alike() {
        let number = |word: &str| word.parse().map_err(|_| String::new());
        let read = |text| NameParts::parse(text, number);
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
            let parts = read(text).expect(text);
            assert_eq!(format!("{parts}"), whole);
            assert_eq!(read(whole), Ok(parts));
        }
    }

    #[test]
    fn invalid_names_are_rejected_with_a_reason() {
        assert_eq!(find("zippf:1000").err(), Some(NameError::Unknown("zippf".into())));
        for (text, reason) in [
            ("zipf:1M", "not a number of bytes"),
            ("zipf:1000000:0", "not a number of threads"),
            ("zipf:1:1:1", "NAME:SIZE:THREADS"),
            ("memcached:1:1:zipf:zipf", "NAME:SIZE:THREADS"),
            ("memcached:1:5%:zipf", "NAME:SIZE:THREADS"),
            ("memcached:101%", "not a share of writes"),
            ("zipf:1000000:gaussian", "takes no distribution"),
            ("usemem:1000000:4", "'4' is not an option"),
            ("usemem:1000000:nproc=2:4", "NAME:SIZE:THREADS"),
            ("chaos:5%", "takes no share of writes"),
            ("pageout-loop:1000000:2", "chooses its number"),
            ("chaos:100000000000000", "do not fit in an address space"),
        ] {
            assert!(matches!(find(text), Err(NameError::Other(why)) if why.contains(reason)), "{text}");
        }
    }
}
