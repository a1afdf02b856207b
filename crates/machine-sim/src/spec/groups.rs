//! Control groups in a machine's file.

use super::Bytes;
use kernel::GroupSpec;
use serde::{Deserialize, Deserializer};

/// A limit as a group's file has it: a size, or `max`.
struct Limit(u64);

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Limit, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Max(Max),
            Size(Bytes),
        }
        #[derive(Deserialize)]
        enum Max {
            #[serde(rename = "max")]
            Max,
        }
        let error = |_| serde::de::Error::custom("is neither a size like \"8G\" or 4096 nor \"max\"");
        Ok(match Either::deserialize(deserializer).map_err(error)? {
            Either::Max(Max::Max) => Limit(u64::MAX),
            Either::Size(bytes) => Limit(bytes.0),
        })
    }
}

/// A group in a machine's file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InFile {
    name: String,
    #[serde(default)]
    memory: MemoryInFile,
    processes: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct MemoryInFile {
    max: Option<Limit>,
    high: Option<Limit>,
    low: Option<Limit>,
    min: Option<Limit>,
    #[serde(default)]
    swap: SwapInFile,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct SwapInFile {
    max: Option<Limit>,
}

/// The same, as it is described.
struct Described(GroupSpec);

impl<'de> Deserialize<'de> for Described {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Described, D::Error> {
        let InFile { name, memory, processes } = InFile::deserialize(deserializer)?;
        let processes = processes.map(|text| text.parse()).transpose().map_err(serde::de::Error::custom)?;
        let MemoryInFile { max, high, low, min, swap } = memory;
        let [max, high, low, min, swap_max] =
            [max, high, low, min, swap.max].map(|limit| limit.map(|limit| limit.0));
        Ok(Described(GroupSpec { name, max, high, low, min, swap_max, processes }))
    }
}

/// All of them.
pub(super) fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<GroupSpec>, D::Error> {
    Ok(Vec::deserialize(deserializer)?.into_iter().map(|Described(group)| group).collect())
}
