//! The program of a run, chosen by its name: `NAME:BYTES:THREADS`.

use super::scenarios::{self, Scenario};
use alloc::format;
use alloc::string::String;
use program::builtin::{self, Builtin, LruFileMmapRead, PageoutLoop};
use program::chaos::Chaos;
use program::{Os, Program, Role, Signal};

/// Bytes that a program touches if nothing is said.
const DEFAULT_BYTES: u64 = 64 << 20;
/// Most bytes that a program may be told to touch.
const MOST_BYTES: u64 = 1 << 46;
/// Most threads.
const MOST_THREADS: u32 = 1024;

/// A program that the machine can run.
#[derive(Debug)]
pub enum Choice {
    /// A synthetic one.
    Builtin(Builtin),
    /// Mapped files read once.
    LruFileMmapRead(LruFileMmapRead),
    /// Private mappings of files given up again and again.
    PageoutLoop(PageoutLoop),
    /// Everything at random.
    Chaos(Chaos),
    /// A race, made on purpose.
    Scenario(Scenario),
}

impl Choice {
    /// The program of a name as the command line has it: `NAME`, `NAME:BYTES`, `NAME:BYTES:THREADS` or `scenario:NAME`.
    /// Fails with a reason for people.
    pub fn find(text: &str) -> Result<Choice, String> {
        if let Some(name) = text.strip_prefix("scenario:") {
            return scenarios::find(name).map(Choice::Scenario);
        }
        let mut parts = text.split(':');
        let name = parts.next().unwrap_or_default();
        let bytes =
            parts.next().map_or(Ok(DEFAULT_BYTES), |bytes| {
                bytes.parse().ok().filter(|&bytes| bytes <= MOST_BYTES).ok_or_else(|| {
                    format!("program: {text}: '{bytes}' is no number of bytes up to {MOST_BYTES}")
                })
            })?;
        let threads = parts.next().map(|threads| {
            threads.parse().ok().filter(|threads| (1..=MOST_THREADS).contains(threads)).ok_or_else(|| {
                format!("program: {text}: '{threads}' is no number of threads from 1 to {MOST_THREADS}")
            })
        });
        let threads = threads.transpose()?;
        if parts.next().is_some() {
            return Err(format!("program: {text}: expected NAME:BYTES:THREADS"));
        }
        let choice = match (name, threads) {
            ("chaos", None) => Choice::Chaos(Chaos::from_footprint(bytes)),
            (LruFileMmapRead::NAME, None) => Choice::LruFileMmapRead(LruFileMmapRead::new(bytes)),
            (PageoutLoop::NAME, None) => Choice::PageoutLoop(PageoutLoop::new(bytes)),
            ("chaos" | LruFileMmapRead::NAME | PageoutLoop::NAME, Some(_)) => {
                return Err(format!("program: {text}: {name} chooses its number of tasks itself"));
            }
            _ => {
                let program = builtin::from_name(name, bytes).ok_or_else(|| {
                    format!(
                        "program: {text}: no program is called '{name}'; `pagefold list programs` names them"
                    )
                })?;
                Choice::Builtin(program.with_threads(threads.unwrap_or(1)))
            }
        };
        Ok(choice)
    }
}

impl Program for Choice {
    fn name(&self) -> &str {
        match self {
            Choice::Builtin(program) => program.name(),
            Choice::LruFileMmapRead(program) => program.name(),
            Choice::PageoutLoop(program) => program.name(),
            Choice::Chaos(program) => program.name(),
            Choice::Scenario(program) => program.name(),
        }
    }

    fn footprint(&self) -> u64 {
        match self {
            Choice::Builtin(program) => program.footprint(),
            Choice::LruFileMmapRead(program) => program.footprint(),
            Choice::PageoutLoop(program) => program.footprint(),
            Choice::Chaos(program) => program.footprint(),
            Choice::Scenario(program) => program.footprint(),
        }
    }

    fn run<O: Os>(&self, os: &mut O, role: Role) -> Result<(), Signal> {
        match self {
            Choice::Builtin(program) => program.run(os, role),
            Choice::LruFileMmapRead(program) => program.run(os, role),
            Choice::PageoutLoop(program) => program.run(os, role),
            Choice::Chaos(program) => program.run(os, role),
            Choice::Scenario(program) => program.run(os, role),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_by_name() {
        let names = builtin::LIST.iter().map(|&(name, _)| name).chain([
            "chaos",
            LruFileMmapRead::NAME,
            PageoutLoop::NAME,
        ]);
        for name in names {
            assert_eq!(Choice::find(name).map(|found| found.name() == name), Ok(true));
            assert!(Choice::find(&format!("{name}:2000000")).is_ok_and(|found| found.footprint() > 0));
        }
        for &(name, _) in scenarios::LIST {
            assert_eq!(Choice::find(&format!("scenario:{name}")).map(|found| found.name() == name), Ok(true));
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, reason) in [
            ("zippf", "no program is called"),
            ("zipf:1M", "no number of bytes"),
            ("zipf:1000000:0", "no number of threads"),
            ("zipf:1:1:1", "NAME:BYTES:THREADS"),
            ("chaos:1000000:2", "chooses its number"),
            ("scenario:none", "no scenario"),
        ] {
            let message = Choice::find(text).err().unwrap_or_default();
            assert!(message.contains(reason), "{text}: {message}");
        }
    }
}
