//! The control groups of a machine's file.

use super::Bytes;
use kernel::GroupSpec;
use serde::{Deserialize, Deserializer};

/// A limit as in a group's file: a size, or `max`.
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
struct FileGroup {
    name: String,
    #[serde(default)]
    memory: FileMemory,
    processes: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileMemory {
    max: Option<Limit>,
    high: Option<Limit>,
    low: Option<Limit>,
    min: Option<Limit>,
    #[serde(default)]
    swap: FileSwap,
    #[serde(default)]
    zswap: FileZswap,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileSwap {
    max: Option<Limit>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileZswap {
    max: Option<Limit>,
    writeback: Option<u64>,
}

/// A group, from its form in the file.
struct Group(GroupSpec);

impl<'de> Deserialize<'de> for Group {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Group, D::Error> {
        let FileGroup { name, memory, processes } = FileGroup::deserialize(deserializer)?;
        let processes = processes.map(|text| text.parse()).transpose().map_err(serde::de::Error::custom)?;
        let FileMemory { max, high, low, min, swap, zswap } = memory;
        let [max, high, low, min, swap_max, zswap_max] =
            [max, high, low, min, swap.max, zswap.max].map(|limit| limit.map(|limit| limit.0));
        let zswap_writeback = zswap.writeback;
        let limits = GroupSpec { max, high, low, min, swap_max, zswap_max, ..GroupSpec::default() };
        Ok(Group(GroupSpec { name, zswap_writeback, processes, ..limits }))
    }
}

/// Read all groups.
pub(super) fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<GroupSpec>, D::Error> {
    Ok(Vec::deserialize(deserializer)?.into_iter().map(|Group(group)| group).collect())
}
