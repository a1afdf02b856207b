//! **DAMON** says how often it found regions of memory accessed. damo records it as JSON, compressed by zlib or not
//! ([`json`]), or as the text of perf script ([`text`]).
//!
//! In each sampling interval DAMON looks at one page of each region; `nr_accesses` is how many of these looks, of all
//! in an aggregation interval, found the page accessed. It takes all pages of a region for equally hot. So does the
//! program that is made of it: **in each aggregation interval it goes once through a region with n accesses, and loads
//! each page n times in a row**. It begins at a place that is drawn, and goes at an even pace: an interval has as many
//! ticks as sampling intervals, and the program sleeps between them.
//!
//! An interval has as many ticks as the record says (the aggregation interval divided by the sampling interval), else
//! 20, as many as damo's defaults make.
//!
//! Source: damo's `src/_damo_records.py`, `src/_damon.py` and `src/_damo_fmt_str.py`.

mod json;
mod snapshot;
mod text;

use super::error::ImportError;
use super::input::Input;
use super::settings::Settings;
use super::step::Sink;
use snapshot::Player;

/// Read a record of damo's.
pub(in crate::import) fn read(
    mut input: Input,
    settings: &Settings,
    sink: &mut Sink<'_>,
) -> Result<(), ImportError> {
    let is_json = input.first_byte()? == Some(b'[');
    let path = input.path().to_owned();
    let mut player = Player::new(path, settings, sink);
    match is_json {
        true => json::read(input, &mut player),
        false => text::read(input, &mut player),
    }
}
