//! Documents: what every result has in common when it is written as text, as JSON and as a picture.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// Version of the JSON documents and of the file of runs. Keys are only ever added (docs/json.md), so it rises only
/// when a key changes its meaning.
pub const SCHEMA: u32 = 1;

/// The build that wrote a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// See [`SCHEMA`].
    pub schema: u32,
    /// Version of Pagefold.
    pub version: String,
    /// Commit that it was built from, or "unknown".
    pub commit: String,
}

impl Origin {
    /// This build.
    pub fn here(schema: u32) -> Origin {
        let [version, commit] = [env!("CARGO_PKG_VERSION"), env!("PAGEFOLD_COMMIT")].map(str::to_owned);
        Origin { schema, version, commit }
    }
}

/// A finished result. Its serialized fields are keys of the JSON object, after those of [`Origin`] and `command`.
pub trait Document: Serialize {
    /// The command that makes it.
    const COMMAND: &'static str;
    /// Version of its JSON object.
    const SCHEMA: u32 = SCHEMA;

    /// The result for people, in lines of at most `width` characters where that can be.
    fn text(&self, width: usize) -> String;

    /// The result as an SVG picture, if it has something to draw.
    fn svg(&self) -> Option<String> {
        None
    }

    /// The result for scripts: one JSON object.
    fn json(&self) -> Result<String> {
        #[derive(Serialize)]
        struct Object<'a, T: ?Sized> {
            #[serde(flatten)]
            origin: Origin,
            command: &'static str,
            #[serde(flatten)]
            result: &'a T,
        }
        to_json(&Object { origin: Origin::here(Self::SCHEMA), command: Self::COMMAND, result: self })
    }
}

/// One JSON value and a line end.
pub fn to_json(value: &impl Serialize) -> Result<String> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Error::Failed(format!("cannot write the result as JSON: {error}")))?;
    Ok(text + "\n")
}
