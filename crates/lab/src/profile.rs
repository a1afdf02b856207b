//! Profiles: named sets of knobs. A profile is written `NAME` or `NAME+knob=value+knob=value`.

use crate::engine::custom_policy;
use crate::error::{Error, Result};
use crate::size::parse_bytes;
use crate::suggest;
use mm::knobs::{
    FaultForm, FlushPolicy, Knob, LruGenForm, ReadAheadForm, TierMigration, TierPolicy, ZswapForm,
};
use mm::policy::{PolicyKind, RIVALS};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

/// A set of knobs with a name.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    /// One line of help.
    pub help: &'static str,
    /// The knobs that differ from their defaults.
    pub knobs: &'static [(Knob, u64)],
}

/// The presets before those of the policies that propose.
const FIRST: &[Preset] = &[
    Preset {
        name: "classic",
        help: "active and inactive lists, one flush per batch of pages that reclaim unmaps; all knobs at their defaults",
        knobs: &[],
    },
    Preset {
        name: "eager",
        help: "classic, with one flush per page that reclaim unmaps",
        knobs: &[(Knob::TlbUnmap, FlushPolicy::Eager.value())],
    },
    Preset {
        name: "list",
        help: "classic, with up to 32 pages flushed one by one per round (the batched unmap series of 2015)",
        knobs: &[(Knob::TlbUnmap, FlushPolicy::List.value())],
    },
    Preset {
        name: "lazy",
        help: "classic, with flushes deferred until a page is used again (LUF)",
        knobs: &[(Knob::TlbUnmap, FlushPolicy::Lazy.value())],
    },
    Preset {
        name: "abis",
        help: "classic, with a flush per page, only on CPUs that may cache it according to the young bit (ABIS, 2017)",
        knobs: &[(Knob::TlbUnmap, FlushPolicy::Abis.value())],
    },
    Preset {
        name: "latr",
        help: "classic, with flushes deferred to each CPU's next tick (LATR, 2018)",
        knobs: &[(Knob::TlbUnmap, FlushPolicy::Latr.value())],
    },
    Preset {
        name: "classic-6.1",
        help: "classic as in Linux 6.1: faults that begin again count twice, a load swaps in read-only, and reclaim has the statistics of this moment",
        knobs: &[(Knob::FaultForm, FaultForm::V61.value()), (Knob::MemcgFlushMs, 0)],
    },
    Preset {
        name: "classic-7.2",
        help: "classic as in Linux 7.2: reading around faults stops sooner where they are far apart, faults map large folios of files whole, and zswap keeps pages that do not get smaller",
        knobs: &[
            (Knob::ReadAheadForm, ReadAheadForm::V72.value()),
            (Knob::FaultForm, FaultForm::V72.value()),
            (Knob::ZswapForm, ZswapForm::V618.value()),
        ],
    },
    Preset {
        name: "classic-7.3",
        help: "classic-7.2 as in Linux 7.3: a store that swaps in a page that others may share maps it read-only first",
        knobs: &[
            (Knob::ReadAheadForm, ReadAheadForm::V72.value()),
            (Knob::FaultForm, FaultForm::V73.value()),
            (Knob::ZswapForm, ZswapForm::V618.value()),
        ],
    },
    Preset {
        name: "mglru",
        help: "generations (multi-generational LRU, as Linux 6.12 has it), one flush per batch of pages that reclaim unmaps",
        knobs: &[(Knob::ReclaimPolicy, PolicyKind::MgLru.value())],
    },
    Preset {
        name: "mglru-6.1",
        help: "mglru as in Linux 6.1: faults and statistics are as in classic-6.1, and only refaults of the oldest generation are counted",
        knobs: &[
            (Knob::ReclaimPolicy, PolicyKind::MgLru.value()),
            (Knob::LruGenForm, LruGenForm::V61.value()),
            (Knob::FaultForm, FaultForm::V61.value()),
            (Knob::MemcgFlushMs, 0),
        ],
    },
    Preset {
        name: "mglru-6.14",
        help: "generations as reworked in Linux 6.14: a second use counts, and refaults are recognised for longer (docs/mglru.md)",
        knobs: &[
            (Knob::ReclaimPolicy, PolicyKind::MgLru.value()),
            (Knob::LruGenForm, LruGenForm::V614.value()),
        ],
    },
    Preset {
        name: "mglru-7.2",
        help: "the same with the loop and marks of Linux 7.2: the scan target is computed once a pass, dirty pages count as for classic, uses that eviction finds count one by one, and files and zswap are as in classic-7.2",
        knobs: &[
            (Knob::ReclaimPolicy, PolicyKind::MgLru.value()),
            (Knob::LruGenForm, LruGenForm::V72.value()),
            (Knob::ReadAheadForm, ReadAheadForm::V72.value()),
            (Knob::FaultForm, FaultForm::V72.value()),
            (Knob::ZswapForm, ZswapForm::V618.value()),
        ],
    },
    Preset {
        name: "mglru-7.3",
        help: "the same with classic-7.3's faults, and program text is of the working set from its first use on",
        knobs: &[
            (Knob::ReclaimPolicy, PolicyKind::MgLru.value()),
            (Knob::LruGenForm, LruGenForm::V73.value()),
            (Knob::ReadAheadForm, ReadAheadForm::V72.value()),
            (Knob::FaultForm, FaultForm::V73.value()),
            (Knob::ZswapForm, ZswapForm::V618.value()),
        ],
    },
];

/// Those after them.
const LAST: &[Preset] = &[
    Preset {
        name: "numa-balancing",
        help: "classic, and pages move to the node that uses them (kernel.numa_balancing=1): to fast memory while it has room",
        knobs: &[(Knob::NumaBalancing, 1)],
    },
    Preset {
        name: "tpp",
        help: "tiers as in Linux 6.12: reclaim demotes cold pages; a hint fault soon after the mark promotes a page (TPP, 2023)",
        knobs: &[(Knob::DemotionEnabled, 1), (Knob::NumaBalancing, 2)],
    },
    Preset {
        name: "tier-generations",
        help: "mglru; reclaim demotes cold pages; two page table walks in a row that find a page young promote it (klruscand, 2025)",
        knobs: &[
            (Knob::ReclaimPolicy, PolicyKind::MgLru.value()),
            (Knob::DemotionEnabled, 1),
            (Knob::TierPolicy, TierPolicy::Generations.value()),
        ],
    },
    Preset {
        name: "memtis",
        help: "classic; reclaim demotes cold pages; the most sampled pages are promoted, as many as fast memory holds (MEMTIS, 2023)",
        knobs: &[(Knob::DemotionEnabled, 1), (Knob::TierPolicy, TierPolicy::Sampled.value())],
    },
    Preset {
        name: "nomad",
        help: "tpp, and a daemon copies pages while they are in use, giving up those written during the copy (Nomad, 2024; no shadows)",
        knobs: &[
            (Knob::DemotionEnabled, 1),
            (Knob::NumaBalancing, 2),
            (Knob::TierMigration, TierMigration::Transactional.value()),
        ],
    },
    Preset {
        name: "colloid",
        help: "memtis, and hot pages move to the tier that answers faster under its load (Colloid, 2024)",
        knobs: &[
            (Knob::DemotionEnabled, 1),
            (Knob::TierPolicy, TierPolicy::Sampled.value()),
            (Knob::TierBalance, 1),
        ],
    },
];

/// What chooses each of the policies that propose, and the one from outside.
static CHOOSE: [[(Knob, u64); 1]; RIVALS.len() + 1] = {
    let mut choose = [[(Knob::ReclaimPolicy, 0)]; RIVALS.len() + 1];
    let mut i = 0;
    while i < choose.len() {
        choose[i][0].1 = PolicyKind::Proposed(i as u8).value();
        i += 1;
    }
    choose
};

/// The name of the policy from outside.
const CUSTOM: &str = "custom";

/// All presets.
pub static PRESETS: LazyLock<Vec<Preset>> = LazyLock::new(|| {
    let proposed = RIVALS.iter().zip(&CHOOSE);
    let proposed = proposed.map(|(rival, knobs)| Preset { name: rival.name, help: rival.help, knobs });
    let custom = Preset {
        name: CUSTOM,
        help: "the replacement policy of --policy-crate",
        knobs: &CHOOSE[RIVALS.len()],
    };
    let custom = custom_policy().map(|_| custom);
    FIRST.iter().copied().chain(proposed).chain(custom).chain(LAST.iter().copied()).collect()
});

/// A parsed profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// As written; the name of a column.
    pub name: String,
    /// Its settings; later ones win.
    pub knobs: Vec<(Knob, u64)>,
}

impl Profile {
    /// Parse `text`; the settings in `common` come before its own.
    pub fn parse(text: &str, common: &[(Knob, u64)]) -> Result<Profile> {
        let mut parts = text.split('+');
        let name = parts.next().unwrap_or_default();
        let preset = PRESETS.iter().find(|preset| preset.name == name).ok_or_else(|| {
            if name == CUSTOM {
                return no_custom_policy("the profile 'custom'");
            }
            Error::Input(suggest::unknown("profile", name, PRESETS.iter().map(|p| p.name), "profiles"))
        })?;
        let mut knobs = common.to_vec();
        knobs.extend_from_slice(preset.knobs);
        let mut settings: Vec<String> = Vec::new();
        for part in parts {
            match settings.last_mut() {
                Some(setting) if goes_on(setting, part) => *setting = format!("{setting}+{part}"),
                _ => settings.push(part.to_owned()),
            }
        }
        for setting in &settings {
            knobs.push(parse_setting(setting)?);
        }
        Ok(Profile { name: text.to_owned(), knobs })
    }

    /// The profiles of `names`, all with the settings in `common`; no name may be there twice.
    pub fn parse_all(names: &[String], common: &[String]) -> Result<Vec<Profile>> {
        let common = common.iter().map(|text| parse_setting(text)).collect::<Result<Vec<_>>>()?;
        let mut seen = BTreeSet::new();
        for name in names {
            if !seen.insert(name) {
                return Err(Error::Input(format!("the profile '{name}' is named twice")));
            }
        }
        names.iter().map(|name| Profile::parse(name, &common)).collect()
    }

    /// The settings by name.
    pub fn settings(&self) -> BTreeMap<String, u64> {
        self.knobs.iter().map(|(knob, value)| (knob.info().name.to_owned(), *value)).collect()
    }
}

/// Whether the text after a '+' belongs to the value of a setting, as in `thp.defrag=defer+madvise`.
fn goes_on(setting: &str, part: &str) -> bool {
    let Some((name, value)) = setting.split_once('=') else { return false };
    let words = Knob::from_name(name).map_or(&[][..], |knob| knob.info().words);
    words.iter().any(|word| {
        word.strip_prefix(value)
            .and_then(|rest| rest.strip_prefix('+'))
            .is_some_and(|rest| rest == part || rest.starts_with(&format!("{part}+")))
    })
}

/// The error of a choice of a policy that is not there.
fn no_custom_policy(choice: &str) -> Error {
    Error::Input(format!(
        "{choice} needs a policy of your own: 'pagefold --policy-crate DIR ...' has one (docs/policies.md)"
    ))
}

/// Parse `KNOB=VALUE`.
pub fn parse_setting(text: &str) -> Result<(Knob, u64)> {
    let Some((name, value)) = text.split_once('=') else {
        return Err(Error::Input(format!("'{text}' sets nothing; write KNOB=VALUE, like vm.swappiness=10")));
    };
    let names = Knob::ALL.iter().map(|knob| knob.info().name);
    let knob =
        Knob::from_name(name).ok_or_else(|| Error::Input(suggest::unknown("knob", name, names, "knobs")))?;
    let info = knob.info();
    if let Some(value) = info.value_of(value) {
        let is_custom = (knob, value) == CHOOSE[RIVALS.len()][0];
        return match is_custom && custom_policy().is_none() {
            true => Err(no_custom_policy(text)),
            false => Ok((knob, value)),
        };
    }
    let number = parse_bytes(value).map_err(|_| {
        Error::Input(match info.words {
            [] => format!("{name}={value}: the value must be a whole number"),
            words => format!("{name}={value}: the value must be one of {}", words.join(", ")),
        })
    })?;
    if (info.min..=info.max).contains(&number) {
        Ok((knob, number))
    } else {
        Err(Error::Input(format!("{name}={value}: the value must be between {} and {}", info.min, info.max)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_setting_of_a_knob_wins() {
        let common = [parse_setting("vm.swappiness=100").unwrap()];
        let profile = Profile::parse("classic+vm.swappiness=10+fault_around_bytes=4K", &common).unwrap();
        assert_eq!(profile.name, "classic+vm.swappiness=10+fault_around_bytes=4K");
        assert_eq!(profile.settings()["vm.swappiness"], 10);
        assert_eq!(profile.settings()["fault_around_bytes"], 4096);
        assert_eq!(parse_setting("tlb.unmap=lazy").unwrap(), (Knob::TlbUnmap, FlushPolicy::Lazy.value()));
    }

    #[test]
    fn word_with_a_plus_is_one_value() {
        let set = |text: &str| Profile::parse(text, &[]).map(|profile| profile.knobs);
        let [defer, both, folios] = ["defer", "defer+madvise", "whole+free-split+sort"].map(|word| {
            if word.starts_with("defer") {
                format!("thp.defrag={word}")
            } else {
                format!("compaction.folios={word}")
            }
        });
        assert_eq!(set(&format!("classic+{both}")).unwrap().last(), Some(&(Knob::ThpDefrag, 2)));
        let all = set(&format!("classic+{folios}+{defer}+vm.swappiness=10")).unwrap();
        let expected = [(Knob::CompactionFolios, 4), (Knob::ThpDefrag, 1), (Knob::Swappiness, 10)];
        assert!(all.ends_with(&expected), "{all:?}");
        assert!(set("classic+thp.defrag=defer+always").is_err());
    }

    #[test]
    fn wrong_profiles_are_refused_in_one_line() {
        for (text, expected) in [
            ("clasic", "did you mean 'classic'?"),
            ("", "unknown profile ''"),
            ("classic+vm.swapiness=1", "did you mean 'vm.swappiness'?"),
            ("classic+vm.swappiness", "write KNOB=VALUE"),
            ("classic+", "write KNOB=VALUE"),
            ("classic+vm.swappiness=ten", "must be a whole number"),
            ("classic+vm.swappiness=-1", "must be a whole number"),
            ("classic+vm.swappiness=201", "between 0 and 200"),
            ("custom", "the profile 'custom' needs a policy of your own"),
            ("classic+reclaim.policy=custom", "pagefold --policy-crate DIR"),
        ] {
            let message = Profile::parse(text, &[]).unwrap_err().to_string();
            assert!(message.contains(expected), "{text}: {message}");
            assert!(!message.contains('\n'));
        }
    }
}
