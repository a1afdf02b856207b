//! damo's JSON: a list of records, each with its target, its intervals and its snapshots.
//!
//! ```text
//! [{"intervals": {"sample_us": "5000", "aggr_us": "100000", ...}, "target_id": 0,
//!   "snapshots": [{"start_time": "53980", "end_time": "100053980",
//!                  "regions": [{"start": "4,096", "end": "8,192",
//!                               "nr_accesses": {"samples": 3, "percent": null}, ...}]}]}]
//! ```
//!
//! Times are nanoseconds. Numbers can be text with commas. All else that damo writes is passed over. One snapshot is in
//! memory at a time.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::snapshot::{MOST_TICKS, Player, Region, Snapshot, TICKS};
use crate::import::error::ImportError;
use crate::import::input::Input;

/// Read the list.
pub fn read(mut input: Input, player: &mut Player<'_, '_>) -> Result<(), ImportError> {
    let mut failed = None;
    let read = {
        let mut json = serde_json::Deserializer::from_reader(&mut input);
        let records = Records { player, failed: &mut failed };
        records.deserialize(&mut json).and_then(|()| json.end())
    };
    match (failed, read) {
        (Some(error), _) => Err(error),
        (None, Ok(())) => Ok(()),
        (None, Err(error)) if error.is_io() => Err(input.unreadable(error.into())),
        (None, Err(error)) => {
            let text = error.to_string();
            let what = text.split(" at line ").next().unwrap_or(&text);
            Err(input.refuse_line(error.line() as u64, format!("not a record of damo's: {what}")))
        }
    }
}

/// The list of records. Each part of it is dealt with as soon as it is read.
struct Records<'p, 'a, 'b> {
    player: &'p mut Player<'a, 'b>,
    /// Why the player ended.
    failed: &'p mut Option<ImportError>,
}

impl<'de> DeserializeSeed<'de> for Records<'_, '_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Records<'_, '_, '_> {
    type Value = ();

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a list of records")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Records { player, failed } = self;
        while list.next_element_seed(Record { player, failed })?.is_some() {}
        Ok(())
    }
}

/// The record of a target.
struct Record<'p, 'a, 'b> {
    player: &'p mut Player<'a, 'b>,
    failed: &'p mut Option<ImportError>,
}

impl<'de> DeserializeSeed<'de> for Record<'_, '_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Record<'_, '_, '_> {
    type Value = ();

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a record with a target_id and snapshots")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Record { player, failed } = self;
        let (mut target, mut ticks) = (None, TICKS);
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "target_id" => {
                    target = Some(map.next_value::<Option<Number>>()?.map_or(0, |number| number.0))
                }
                "intervals" => ticks = map.next_value::<Option<Intervals>>()?.map_or(TICKS, |of| of.ticks()),
                "snapshots" => {
                    let target =
                        target.ok_or_else(|| A::Error::custom("snapshots come before their target_id"))?;
                    map.next_value_seed(Snapshots { player, failed, target, ticks })?;
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// The snapshots of a target.
struct Snapshots<'p, 'a, 'b> {
    player: &'p mut Player<'a, 'b>,
    failed: &'p mut Option<ImportError>,
    target: u64,
    ticks: u64,
}

impl<'de> DeserializeSeed<'de> for Snapshots<'_, '_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Snapshots<'_, '_, '_> {
    type Value = ();

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a list of snapshots")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let mut play = |snapshot: &Snapshot| match self.player.wants(self.target)? {
            true => self.player.play(snapshot),
            false => Ok(()),
        };
        while let Some(told) = list.next_element::<ToldSnapshot>()? {
            let snapshot = told.snapshot(self.ticks);
            if snapshot.ticks > MOST_TICKS {
                return Err(A::Error::custom(
                    "an aggregation interval has more than 10000 sampling intervals",
                ));
            }
            if let Err(error) = play(&snapshot) {
                *self.failed = Some(error);
                return Err(A::Error::custom("the import ended"));
            }
        }
        Ok(())
    }
}

/// A number, or text of one. What is below 0 counts as 0.
#[derive(Clone, Copy)]
struct Number(u64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Number, D::Error> {
        from.deserialize_any(NumberVisitor)
    }
}

struct NumberVisitor;

impl Visitor<'_> for NumberVisitor {
    type Value = Number;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a number")
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Number, E> {
        Ok(Number(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Number, E> {
        Ok(Number(value.try_into().unwrap_or(0)))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Number, E> {
        Ok(Number(value as u64))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Number, E> {
        let digits: String = value.chars().filter(|&letter| letter != ',').collect();
        let whole = digits.parse().ok();
        let number = whole.or_else(|| digits.parse::<f64>().ok().map(|value| value as u64));
        number.map(Number).ok_or_else(|| E::custom(format!("expected a number, found {value:?}")))
    }
}

/// Intervals in microseconds.
#[derive(Deserialize)]
struct Intervals {
    sample_us: Number,
    aggr_us: Number,
}

impl Intervals {
    fn ticks(&self) -> u64 {
        (self.aggr_us.0 / self.sample_us.0.max(1)).max(1)
    }
}

/// A snapshot as it is told.
#[derive(Deserialize)]
struct ToldSnapshot {
    start_time: Number,
    end_time: Number,
    regions: Vec<ToldRegion>,
    #[serde(default)]
    sample_interval_us: Option<Number>,
}

/// A region as it is told.
#[derive(Deserialize)]
struct ToldRegion {
    start: Number,
    end: Number,
    #[serde(default)]
    nr_accesses: Option<ToldAccesses>,
}

/// How often, in one of two ways.
#[derive(Deserialize)]
struct ToldAccesses {
    #[serde(default)]
    samples: Option<Number>,
    #[serde(default)]
    percent: Option<Number>,
}

impl ToldSnapshot {
    /// `ticks` are those of the record, if the snapshot does not tell.
    fn snapshot(self, ticks: u64) -> Snapshot {
        let (start, end) = (self.start_time.0, self.end_time.0);
        let sampled = self.sample_interval_us.filter(|sample| sample.0 > 0);
        let ticks = sampled.map_or(ticks, |sample| end.saturating_sub(start) / 1000 / sample.0).max(1);
        let accesses = |told: &ToldAccesses| match (told.samples, told.percent) {
            (Some(samples), _) => samples.0,
            (None, Some(percent)) => percent.0.saturating_mul(ticks) / 100,
            (None, None) => 0,
        };
        let accesses = |told: &ToldAccesses| u32::try_from(accesses(told)).unwrap_or(u32::MAX);
        let region = |told: ToldRegion| Region {
            start: told.start.0,
            end: told.end.0,
            accesses: told.nr_accesses.as_ref().map_or(0, accesses),
        };
        Snapshot { start, end, ticks, regions: self.regions.into_iter().map(region).collect() }
    }
}
