//! The kernel's command line: words `key=value`, separated by spaces.
//!
//! Every word is checked, and an unknown or malformed one is an error that names it: a run that silently
//! ignored a misspelt knob would be reported under wrong settings.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use kernel::GroupSpec;
use mm::knobs::Knob;
use mm::machine::Compressor;

/// What the machine runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Job {
    /// A built-in program with this many bytes, and with this many threads unless it chooses their number.
    Program {
        /// Its name.
        name: String,
        /// Bytes that it works on.
        bytes: u64,
        /// Threads.
        threads: Option<u32>,
    },
    /// The kernel's selftest.
    SelfTest,
    /// A deliberate failure of the kernel, which must end the run with a report.
    Crash(Crash),
    /// The checks of the crate `conformance`.
    Conformance,
    /// The instruction counts of known work.
    Bench,
    /// A scenario.
    Scenario(String),
    /// The trace that comes with the image.
    Trace,
}

/// How the kernel fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Crash {
    /// It loads from an unmapped address.
    Load,
    /// It overflows its stack.
    Stack,
    /// It runs out of heap.
    Memory,
    /// A program executes a privileged instruction.
    Program,
}

/// The parsed command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommandLine {
    /// What to run.
    pub job: Job,
    /// Seed of random choices.
    pub seed: u64,
    /// Bytes of each node for the memory manager; empty: all memory.
    pub memory: Vec<u64>,
    /// Whether a program's loads are checked.
    pub check: bool,
    /// Knobs that differ from their defaults; each value is in its knob's range.
    pub knobs: Vec<(Knob, u64)>,
    /// Control groups at the start of a program.
    pub groups: Vec<GroupSpec>,
    /// Pages of swap space on the second disk, or 0.
    pub swap: u32,
    /// Pages of a zram device, which is swap space, too, and comes first; or 0.
    pub zram: u32,
    /// The number, from 1 up, of the remote flush that is omitted. Only in builds for tests.
    pub drop: Option<u64>,
}

impl CommandLine {
    /// Parse a command line. The error is a sentence for people that names the word.
    pub fn parse(text: &str) -> Result<CommandLine, String> {
        let mut line = CommandLine {
            job: Job::SelfTest,
            seed: 1,
            memory: Vec::new(),
            check: true,
            knobs: Vec::new(),
            groups: Vec::new(),
            swap: 0,
            zram: 0,
            drop: None,
        };
        let mut job = None;
        for word in text.split_whitespace() {
            let Some((key, value)) = word.split_once('=') else {
                return Err(format!("'{word}' is not of the form key=value"));
            };
            match key {
                "program" => job = Some(parse_job(value)?),
                "seed" => line.seed = number(word, value)?,
                "memory" => {
                    line.memory =
                        value.split(':').map(|node| number(word, node)).collect::<Result<_, _>>()?;
                }
                "check" => line.check = parse_switch(word, value)?,
                "group" => line.groups.push(value.parse().map_err(|why| format!("'{word}': {why}"))?),
                "swap" => line.swap = number(word, value)?,
                "zram" => line.zram = number(word, value)?,
                "drop" if cfg!(feature = "faulty") => line.drop = Some(number(word, value)?),
                "drop" => {
                    return Err(format!("'{word}': this kernel was built without the feature 'faulty'"));
                }
                _ => match key.strip_prefix("knob.") {
                    Some(name) => line.knobs.push(parse_knob(word, name, value)?),
                    None => return Err(format!("'{word}': there is no key '{key}'")),
                },
            }
        }
        if line.zswap_compressor().is_some_and(|compressor| compressor != Compressor::Lz4) {
            return Err("this machine compresses with lz4 alone: set knob.zswap.compressor=lz4".to_string());
        }
        line.job = job.ok_or_else(|| "no program=... on the command line".to_string())?;
        Ok(line)
    }

    /// How zswap compresses, if it is enabled.
    fn zswap_compressor(&self) -> Option<Compressor> {
        let set = |knob| self.knobs.iter().rev().find(|set| set.0 == knob).map_or(0, |set| set.1);
        (set(Knob::ZswapEnabled) != 0).then(|| Compressor::ALL[set(Knob::ZswapCompressor) as usize])
    }

    /// Whether any swap space is compressed.
    pub fn compresses(&self) -> bool {
        self.zram > 0 || self.zswap_compressor().is_some()
    }
}

fn number<T: core::str::FromStr>(word: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("'{word}': '{value}' is not a number that fits"))
}

fn parse_switch(word: &str, value: &str) -> Result<bool, String> {
    match value {
        "0" => Ok(false),
        "1" => Ok(true),
        _ => Err(format!("'{word}': must be 0 or 1")),
    }
}

fn parse_job(value: &str) -> Result<Job, String> {
    let parts: Vec<&str> = value.split(':').collect();
    match parts.as_slice() {
        ["selftest"] => Ok(Job::SelfTest),
        ["crash", "load"] => Ok(Job::Crash(Crash::Load)),
        ["crash", "stack"] => Ok(Job::Crash(Crash::Stack)),
        ["crash", "memory"] => Ok(Job::Crash(Crash::Memory)),
        ["crash", "program"] => Ok(Job::Crash(Crash::Program)),
        ["conformance"] => Ok(Job::Conformance),
        ["bench"] => Ok(Job::Bench),
        ["trace"] => Ok(Job::Trace),
        ["scenario", name] if !name.is_empty() => Ok(Job::Scenario((*name).into())),
        [name, bytes, threads @ ..] if !name.is_empty() && threads.len() < 2 => Ok(Job::Program {
            name: (*name).into(),
            bytes: number(value, bytes)?,
            threads: threads.first().map(|threads| number(value, threads)).transpose()?,
        }),
        _ => Err(format!(
            "program '{value}' must be NAME:BYTES[:THREADS], scenario:NAME, trace, selftest, crash:load, crash:stack, crash:memory, \
             crash:program, conformance or bench"
        )),
    }
}

/// A knob's value is a number, or a word if the knob is a choice.
fn parse_knob(word: &str, name: &str, value: &str) -> Result<(Knob, u64), String> {
    let knob = Knob::from_name(name).ok_or_else(|| format!("'{word}': there is no knob '{name}'"))?;
    let info = knob.info();
    let value = info.value_of(value).map_or_else(|| number(word, value), Ok)?;
    if !(info.min..=info.max).contains(&value) {
        return Err(format!("'{word}': {value} is not between {} and {}", info.min, info.max));
    }
    Ok((knob, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn every_key_is_parsed() {
        let line = CommandLine::parse(
            " program=scan:4096:2 seed=7 memory=67108864:8192  check=0 swap=512 zram=64 group=a:memory.max=4096 knob.tlb.unmap=lazy knob.vm.swappiness=100 ",
        );
        let expected = CommandLine {
            job: Job::Program { name: "scan".into(), bytes: 4096, threads: Some(2) },
            seed: 7,
            memory: vec![64 << 20, 8192],
            check: false,
            knobs: vec![(Knob::TlbUnmap, mm::knobs::FlushPolicy::Lazy.value()), (Knob::Swappiness, 100)],
            groups: vec!["a:memory.max=4096".parse().unwrap()],
            swap: 512,
            zram: 64,
            drop: None,
        };
        assert_eq!(line, Ok(expected));
        let job = |text: &str| CommandLine::parse(text).map(|line| line.job);
        assert_eq!(job("program=selftest"), Ok(Job::SelfTest));
        assert_eq!(job("program=crash:stack"), Ok(Job::Crash(Crash::Stack)));
        assert_eq!(job("program=scenario:fork"), Ok(Job::Scenario("fork".into())));
    }

    #[test]
    fn errors_name_the_wrong_word() {
        for (text, part) in [
            ("", "no program"),
            ("program=selftest fast", "'fast' is not of the form"),
            ("program=selftest speed=1", "no key 'speed'"),
            ("program=a:1:2:3", "must be NAME:BYTES[:THREADS]"),
            ("program=a:12x:1", "'12x' is not a number"),
            ("program=selftest memory=4096:", "'' is not a number"),
            ("program=selftest check=2", "must be 0 or 1"),
            ("program=selftest swap=99999999999", "not a number that fits"),
            ("program=selftest group=a:memory.mox=1", "no setting 'memory.mox'"),
            ("program=selftest knob.tlb.unmop=1", "no knob 'tlb.unmop'"),
            ("program=selftest knob.tlb.unmap=6", "not between 0 and 5"),
            ("program=selftest knob.tlb.unmap=later", "'later' is not a number"),
        ] {
            let error = CommandLine::parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn a_flush_is_omitted_only_in_builds_for_tests() {
        assert_eq!(CommandLine::parse("program=selftest drop=3").is_ok(), cfg!(feature = "faulty"));
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_text_does_not_panic(text in ".*") {
            let _ = CommandLine::parse(&text);
        }
    }
}
