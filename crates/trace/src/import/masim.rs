//! **masim** makes accesses to regions of memory as its configuration says; the configuration becomes the program.
//!
//! ```text
//! # regions: name, bytes, and perhaps a file that fills it (or none)
//! a, 10000000
//! b, 4096, /dev/zero
//!
//! first phase
//! 1000
//! a, 1, 64, 80, wo
//! b, 0, 4096, 20
//! ```
//!
//! A phase has a name, its milliseconds, and a line for each pattern: region, 1 for random or 0 for sequential, bytes
//! from one access to the next (for sequential ones), probability among the phase's patterns, and `ro`, `wo` (if
//! nothing is said) or `rw`. Paragraphs end with an empty line; lines that begin with `#` are comments.
//!
//! masim makes as many accesses as the machine can. Here, in each millisecond one pattern is chosen, and makes the same
//! number of accesses ([`Settings::rate`]); then the program sleeps for as long. A region with a file is written
//! once in the beginning. Sequential accesses begin at the second place, as masim's do, and go on where the pattern was
//! when it was last chosen.
//!
//! Source: masim's README and `masim.c`.

use abi::AccessKind;
use program::rng::Rng;

use super::error::ImportError;
use super::input::{Input, Lines};
use super::settings::Settings;
use super::step::{Sink, Step};
use crate::event::PAGE_SIZE;

/// Where the first region begins.
const BASE: u64 = 64 << 30;
/// The most bytes of a region, which is more than can be imported.
const MOST: u64 = 1 << 40;

/// A range of memory.
struct Region {
    name: String,
    start: u64,
    bytes: u64,
    filled: bool,
}

/// Accesses to a region.
struct Pattern {
    region: usize,
    random: bool,
    stride: u64,
    probability: u64,
    modes: &'static [AccessKind],
    offset: u64,
}

/// A time in which patterns are chosen from.
struct Phase {
    milliseconds: u64,
    patterns: Vec<Pattern>,
}

/// Read a configuration and do what it says.
pub(super) fn read(input: Input, settings: &Settings, sink: &mut Sink<'_>) -> Result<(), ImportError> {
    let mut lines = input.lines();
    let regions = regions(&mut lines)?;
    let mut phases = Vec::new();
    while let Some(phase) = phase(&mut lines, &regions)? {
        phases.push(phase);
    }
    for region in regions.iter().filter(|region| region.filled) {
        sink(Step::Access {
            task: 0,
            addr: region.start,
            bytes: region.bytes,
            mode: AccessKind::Store,
            times: 1,
        })?;
    }
    let (mut rng, mut millisecond) = (Rng::new(settings.seed), 0u64);
    for phase in &mut phases {
        for _ in 0..phase.milliseconds {
            sink(Step::At { task: 0, nanos: millisecond.saturating_mul(1_000_000) })?;
            millisecond += 1;
            if let Some(pattern) = choose(&mut rng, &mut phase.patterns) {
                pattern.go(&regions[pattern.region], settings.rate, &mut rng, sink)?;
            }
        }
    }
    sink(Step::At { task: 0, nanos: millisecond.saturating_mul(1_000_000) })
}

/// One pattern, by probability; none if none has any.
fn choose<'a>(rng: &mut Rng, patterns: &'a mut [Pattern]) -> Option<&'a mut Pattern> {
    let sum: u64 = patterns.iter().map(|pattern| pattern.probability).sum();
    let mut left = if sum > 0 { rng.below(sum) } else { return None };
    patterns.iter_mut().find(|pattern| match left.checked_sub(pattern.probability) {
        Some(rest) => {
            left = rest;
            false
        }
        None => true,
    })
}

impl Pattern {
    fn go(
        &mut self,
        region: &Region,
        times: u64,
        rng: &mut Rng,
        sink: &mut Sink<'_>,
    ) -> Result<(), ImportError> {
        for _ in 0..times {
            self.offset = match self.random {
                true => rng.below(region.bytes),
                false => self.offset.checked_add(self.stride).filter(|&at| at < region.bytes).unwrap_or(0),
            };
            for &mode in self.modes {
                sink(Step::Access { task: 0, addr: region.start + self.offset, bytes: 1, mode, times: 1 })?;
            }
        }
        Ok(())
    }
}

/// Go to the next line that is no comment. False at the end of the file or of the paragraph.
fn next(lines: &mut Lines) -> Result<bool, ImportError> {
    while lines.advance()? {
        if !lines.text().starts_with(b"#") {
            return Ok(!lines.text().is_empty());
        }
    }
    Ok(false)
}

/// Go to the first line of a paragraph; false if there is none.
fn paragraph(lines: &mut Lines) -> Result<bool, ImportError> {
    while lines.advance()? {
        if !lines.text().is_empty() && !lines.text().starts_with(b"#") {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The fields of a line.
fn fields(lines: &Lines) -> Vec<String> {
    String::from_utf8_lossy(lines.text()).split(',').map(|field| field.trim().to_owned()).collect()
}

fn regions(lines: &mut Lines) -> Result<Vec<Region>, ImportError> {
    let (mut regions, mut start): (Vec<Region>, u64) = (Vec::new(), BASE);
    let mut more = paragraph(lines)?;
    while more {
        let fields = fields(lines);
        let (bytes, filled) = match fields.as_slice() {
            [_, bytes] => (bytes.parse().ok(), false),
            [_, bytes, file] => (bytes.parse().ok(), file != "none"),
            _ => (None, false),
        };
        let bytes = bytes
            .filter(|bytes| (1..=MOST).contains(bytes) && start < BASE + MOST)
            .ok_or_else(|| lines.unlike("a region like `name, 10000000` of at most 2^40 bytes"))?;
        regions.push(Region { name: fields[0].clone(), start, bytes, filled });
        start += bytes.next_multiple_of(PAGE_SIZE);
        more = next(lines)?;
    }
    Ok(regions)
}

/// The next phase.
fn phase(lines: &mut Lines, regions: &[Region]) -> Result<Option<Phase>, ImportError> {
    if !paragraph(lines)? {
        return Ok(None);
    }
    let number = |lines: &Lines| std::str::from_utf8(lines.text()).ok()?.trim().parse::<u32>().ok();
    if !next(lines)? {
        return Err(lines.refuse("a phase ends after its name; its milliseconds are missing"));
    }
    let milliseconds = number(lines).ok_or_else(|| lines.unlike("the milliseconds of a phase"))?;
    let mut patterns = Vec::new();
    while next(lines)? {
        let pattern = pattern(&fields(lines), regions).ok_or_else(|| {
            lines
                .unlike("a pattern like `region, 0, 4096, 50, wo` of a region that the first paragraph names")
        })?;
        patterns.push(pattern);
    }
    match patterns.is_empty() {
        true => Err(lines.refuse("a phase ends before its first pattern")),
        false => Ok(Some(Phase { milliseconds: milliseconds.into(), patterns })),
    }
}

fn pattern(fields: &[String], regions: &[Region]) -> Option<Pattern> {
    let (name, random, stride, probability, mode) = match fields {
        [name, random, stride, probability] => (name, random, stride, probability, "wo"),
        [name, random, stride, probability, mode] => (name, random, stride, probability, mode.as_str()),
        _ => return None,
    };
    Some(Pattern {
        region: regions.iter().position(|region| region.name == *name)?,
        random: random.parse::<u32>().ok()? != 0,
        stride: stride.parse().ok()?,
        probability: probability.parse::<u32>().ok()?.into(),
        modes: match mode {
            "ro" => &[AccessKind::Load],
            "wo" => &[AccessKind::Store],
            "rw" => &[AccessKind::Load, AccessKind::Store],
            _ => return None,
        },
        offset: 0,
    })
}
