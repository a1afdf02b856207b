//! DAMON's tracepoint as perf script prints it, a line for each region:
//!
//! ```text
//! kdamond.0  4452 [000] 82877.315633: damon:damon_aggregated: target_id=0 nr_regions=17 \
//!     140731667070976-140731668037632: 0 3
//! ```
//!
//! The last numbers are the accesses and the age; early kernels have no age. The time is the snapshot's end: it began
//! when the target's one before ended, and the first is as long as the second. If there was but one, damo adds a region
//! of 0 bytes with -1 accesses, which has only its time. Other events of DAMON are passed over.

use super::snapshot::{Player, Region, Snapshot, TICKS};
use crate::import::error::ImportError;
use crate::import::input::{Input, Lines};

/// How long a single snapshot is taken to be: damo's default.
const ALONE: u64 = 100_000_000;

/// What a line looks like.
const EXPECTED: &str =
    "a line of damon_aggregated like `1.5: damon:damon_aggregated: target_id=0 nr_regions=2 4096-8192: 0 3`";

/// Regions of one time.
#[derive(Default)]
struct Ended {
    nanos: u64,
    /// How many regions there will be.
    expected: u64,
    regions: Vec<Region>,
    /// How many lines there were.
    lines: u64,
}

/// What a line says.
struct Said {
    nanos: u64,
    target: u64,
    expected: u64,
    region: Option<Region>,
}

/// Read the lines.
pub fn read(input: Input, player: &mut Player<'_, '_>) -> Result<(), ImportError> {
    let mut lines = input.lines();
    let mut snapshots = Snapshots::default();
    while lines.advance()? {
        let text = lines.text();
        if text.is_empty() || text.starts_with(b"#") {
            continue;
        }
        let words: Vec<&str> = lines.words().collect();
        let Some(event) = words.iter().position(|word| is_damons(word)) else {
            return Err(lines.unlike(EXPECTED));
        };
        if !words[event].ends_with("damon_aggregated:") {
            continue;
        }
        let said = parse(&words, event).ok_or_else(|| lines.unlike(EXPECTED))?;
        if player.wants(said.target)? {
            snapshots.add(said, &lines, player)?;
        }
    }
    snapshots.finish(&lines, player)
}

fn is_damons(word: &str) -> bool {
    let name = word.strip_prefix("damon:").unwrap_or(word);
    word.ends_with(':') && (name.starts_with("damon_") || name.starts_with("damos_"))
}

fn parse(words: &[&str], event: usize) -> Option<Said> {
    let nanos = seconds(words.get(event.checked_sub(1)?)?.strip_suffix(':')?)?;
    let [target, regions, range, accesses, age @ ..] = &words[event + 1..] else { return None };
    if age.len() > 1 {
        return None;
    }
    let (start, end) = range.strip_suffix(':')?.split_once('-')?;
    let (start, end) = (start.parse().ok()?, end.parse().ok()?);
    let accesses: i64 = accesses.parse().ok()?;
    if end < start || accesses > u32::MAX.into() {
        return None;
    }
    Some(Said {
        nanos,
        target: target.strip_prefix("target_id=")?.parse().ok()?,
        expected: regions.strip_prefix("nr_regions=")?.parse().ok()?,
        region: u32::try_from(accesses).ok().map(|accesses| Region { start, end, accesses }),
    })
}

/// Seconds with a fraction, in nanoseconds.
fn seconds(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.')?;
    let scale = 10u64.pow(9u32.checked_sub(u32::try_from(fraction.len()).ok()?)?);
    let fraction = fraction.parse::<u64>().ok()?.checked_mul(scale)?;
    whole.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(fraction)
}

/// Puts snapshots together.
#[derive(Default)]
struct Snapshots {
    /// The one that lines are added to.
    open: Option<Ended>,
    /// The first, until it is known how long it is.
    first: Option<Ended>,
    /// When the last one ended.
    last: Option<u64>,
}

impl Snapshots {
    fn add(&mut self, said: Said, lines: &Lines, player: &mut Player<'_, '_>) -> Result<(), ImportError> {
        let open = self.open.get_or_insert_with(|| Ended { expected: said.expected, ..Ended::default() });
        if said.expected != open.expected {
            return Err(lines.refuse(format!(
                "a snapshot has {} regions and then nr_regions={}; the record is damaged",
                open.expected, said.expected
            )));
        }
        if said.nanos < open.nanos.max(self.last.unwrap_or(0)) {
            return Err(lines.refuse("its time is before that of the line before"));
        }
        open.nanos = said.nanos;
        open.lines += 1;
        open.regions.extend(said.region);
        if open.lines < open.expected {
            return Ok(());
        }
        let whole = self.open.take().unwrap_or_default();
        self.close(whole, player)
    }

    fn close(&mut self, whole: Ended, player: &mut Player<'_, '_>) -> Result<(), ImportError> {
        let before = self.last.replace(whole.nanos);
        match (before, self.first.take()) {
            (None, _) => {
                self.first = Some(whole);
                Ok(())
            }
            (Some(before), first) => {
                if let Some(first) = first {
                    play(first, whole.nanos - before, player)?;
                }
                play(whole, self.last.unwrap_or(before) - before, player)
            }
        }
    }

    fn finish(self, lines: &Lines, player: &mut Player<'_, '_>) -> Result<(), ImportError> {
        if let Some(open) = self.open {
            let what = format!("it ends after {} of the {} regions of a snapshot", open.lines, open.expected);
            return Err(lines.refuse(what));
        }
        self.first.map_or(Ok(()), |first| play(first, ALONE, player))
    }
}

fn play(ended: Ended, length: u64, player: &mut Player<'_, '_>) -> Result<(), ImportError> {
    let start = ended.nanos.saturating_sub(length);
    player.play(&Snapshot { start, end: ended.nanos, ticks: TICKS, regions: ended.regions })
}
