//! Our knobs as Linux's settings: names differ in place only.

use crate::error::{Error, Result};
use mm::knobs::Knob;
use mm::units::PAGE_SIZE;

/// One setting: a file of the guest, what is written to it, and whether kernels may lack it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setting {
    /// The file.
    pub file: String,
    /// What is written.
    pub value: String,
    /// Whether it may be missing.
    pub may_lack: bool,
}

/// Switches, and how the names of their other settings begin. Linux reads these when the switch is set, so they are
/// written first.
const SWITCHED: [(Knob, &str); 2] =
    [(Knob::ZswapEnabled, "zswap."), (Knob::DamonReclaimEnabled, "damon_reclaim.")];
const DAMON: &str = "/sys/module/damon_reclaim/parameters";
const LRU_GEN: &str = "/sys/kernel/mm/lru_gen";
const THP: &str = "/sys/kernel/mm/transparent_hugepage";
const ZSWAP: &str = "/sys/module/zswap/parameters";

/// Value of a knob in a profile.
pub fn value(knobs: &[(Knob, u64)], knob: Knob) -> u64 {
    let set = knobs.iter().rev().find(|(set, _)| *set == knob);
    set.map_or(knob.info().default, |(_, value)| *value)
}

/// What to write into the guest so that Linux decides by the same numbers, for a program that has `pages` pages.
///
/// # Errors
/// The profile asks for something that Linux has not.
pub fn settings(knobs: &[(Knob, u64)], pages: u64) -> Result<Vec<Setting>> {
    let mut settings = vec![Setting {
        file: format!("{LRU_GEN}/enabled"),
        value: generations(knobs)?.to_string(),
        may_lack: false,
    }];
    let is_on = |switch| value(knobs, switch) != 0;
    for knob in Knob::ALL.iter().copied() {
        let value = value(knobs, knob);
        match knob {
            // The first is there, and the last are to come.
            Knob::ReclaimPolicy | Knob::LruGenEnabled | Knob::MinFreeKbytes => {}
            Knob::ZswapEnabled | Knob::DamonReclaimEnabled => {}
            Knob::FileMaxOrder | Knob::ThpFilePmd | Knob::ShmemMaxOrder if value != 0 => {
                return Err(Error::Input(format!(
                    "{}={value}: Linux has no such setting (ext4 has large folios since 6.16, and then so has the simulated machine)",
                    knob.info().name
                )));
            }
            Knob::InitOnAlloc if value != 0 => {
                return Err(Error::Input(
                    "init_on_alloc=1: for Linux it is a word at boot, --append init_on_alloc=1, and the simulated machine follows"
                        .into(),
                ));
            }
            Knob::TierPolicy | Knob::TierMigration | Knob::TierBalance if value != 0 => {
                return Err(Error::Input(format!(
                    "{}={}: Linux promotes by hint faults only",
                    knob.info().name,
                    word(knob, value)
                )));
            }
            // Linux begins with this value, too.
            Knob::ThpDefrag if value_is_default(knobs, knob) => {}
            _ if SWITCHED.iter().any(|&(switch, of)| knob.info().name.starts_with(of) && !is_on(switch)) => {}
            _ => {
                if let Some((file, value)) = place(knob, value, "vda") {
                    settings.push(Setting { file, value, may_lack: value_is_default(knobs, knob) });
                }
            }
        }
    }
    let switches = SWITCHED.iter().filter(|(switch, _)| is_on(*switch));
    settings.extend(switches.filter_map(|&(switch, _)| {
        let (file, value) = place(switch, 1, "vda")?;
        Some(Setting { file, value, may_lack: false })
    }));
    // A change of huge pages makes Linux compute this again from all of the guest's memory.
    let file = "/proc/sys/vm/min_free_kbytes".into();
    settings.push(Setting { file, value: min_free(knobs, pages).to_string(), may_lack: false });
    Ok(settings)
}

/// The reserve in KiB of both sides, for a program that gets `pages`.
pub fn min_free(knobs: &[(Knob, u64)], pages: u64) -> u64 {
    match value(knobs, Knob::MinFreeKbytes) {
        0 => default_min_free(pages),
        set => set,
    }
}

/// The file in which Linux keeps a knob, and what is written there for a value; `disk` is a name in /sys/block. `None`:
/// Linux does not have the knob, or not as one value that can be changed while it runs.
pub fn place(knob: Knob, value: u64, disk: &str) -> Option<(String, String)> {
    let file = match knob {
        Knob::LruGenEnabled => format!("{LRU_GEN}/enabled"),
        Knob::ReclaimPolicy => {
            let parts = generations(&[(knob, value)]).ok()?;
            return Some((format!("{LRU_GEN}/enabled"), parts.to_string()));
        }
        Knob::LruGenMinTtlMs => format!("{LRU_GEN}/min_ttl_ms"),
        Knob::ReadAheadKb => format!("/sys/block/{disk}/queue/read_ahead_kb"),
        Knob::FaultAroundBytes => "/sys/kernel/debug/fault_around_bytes".to_owned(),
        Knob::TlbSinglePageFlushCeiling => "/sys/kernel/debug/x86/tlb_single_page_flush_ceiling".to_owned(),
        Knob::ThpDefrag => format!("{THP}/defrag"),
        // The ratio is a list of one for each zone; and to compact is something that is done, not a state.
        Knob::LowmemReserveRatio | Knob::CompactMemory => return None,
        _ => by_name(knob.info().name)?,
    };
    Some((file, word(knob, value)))
}

/// The files of settings whose names say where they are; those of Pagefold's own flush policies have no counterpart.
fn by_name(name: &str) -> Option<String> {
    const FOLDERS: [(&str, &str); 8] = [
        ("vm.", "/proc/sys/vm"),
        ("kernel.", "/proc/sys/kernel"),
        ("swap.", "/sys/kernel/mm/swap"),
        ("numa_balancing.", "/sys/kernel/debug/sched/numa_balancing"),
        ("numa.", "/sys/kernel/mm/numa"),
        ("khugepaged.", "/sys/kernel/mm/transparent_hugepage/khugepaged"),
        ("zswap.", ZSWAP),
        ("damon_reclaim.", DAMON),
    ];
    let in_folder = |(prefix, folder): (&str, &str)| Some(format!("{folder}/{}", name.strip_prefix(prefix)?));
    let size = || name.strip_suffix(".enabled").filter(|name| name.starts_with("hugepages-"));
    FOLDERS.into_iter().find_map(in_folder).or_else(|| Some(format!("{THP}/{}/enabled", size()?)))
}

/// A value as it is written: a choice has words.
pub fn word(knob: Knob, value: u64) -> String {
    let info = knob.info();
    let word = value.checked_sub(info.min).and_then(|at| info.words.get(at as usize));
    word.map_or_else(|| value.to_string(), |word| (*word).to_owned())
}

/// A kernel may lack a file whose knob is not set.
fn value_is_default(knobs: &[(Knob, u64)], knob: Knob) -> bool {
    !knobs.iter().any(|(set, _)| *set == knob)
}

/// `lru_gen/enabled` for a profile.
///
/// # Errors
/// The profile has a replacement policy that Linux has not.
pub fn generations(knobs: &[(Knob, u64)]) -> Result<u64> {
    const PARTS: u64 = 6;
    // Whichever of the two was set last decides, as in the memory manager.
    let mut on = false;
    let mut parts = value(&[], Knob::LruGenEnabled) & PARTS;
    for (knob, value) in knobs {
        match knob {
            Knob::LruGenEnabled => (on, parts) = (value & 1 == 1, value & PARTS),
            Knob::ReclaimPolicy if *value > 1 => {
                let name = knob.info().words.get(*value as usize).copied().unwrap_or_default();
                return Err(Error::Input(format!(
                    "reclaim.policy={name}: Linux has the policies classic and mglru only"
                )));
            }
            Knob::ReclaimPolicy => on = *value == 1,
            _ => {}
        }
    }
    Ok(if on { 1 | parts } else { 0 })
}

/// The memory manager's default for `pages` pages.
fn default_min_free(pages: u64) -> u64 {
    mm::alloc::watermark::default_min_free_kbytes(pages * (PAGE_SIZE / 1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(knobs: &[(Knob, u64)], file: &str) -> Option<String> {
        let settings = settings(knobs, 16384).unwrap();
        settings.into_iter().find(|setting| setting.file.ends_with(file)).map(|setting| setting.value)
    }

    #[test]
    fn every_knob_of_linux_is_written_and_ours_are_not() {
        assert_eq!(written(&[], "vm/swappiness").as_deref(), Some("60"));
        assert_eq!(written(&[(Knob::Swappiness, 10)], "vm/swappiness").as_deref(), Some("10"));
        assert_eq!(written(&[], "min_free_kbytes").as_deref(), Some("1024"), "by the program's memory");
        assert_eq!(written(&[], "hugepages-64kB/enabled").as_deref(), Some("never"));
        assert_eq!(written(&[], "fault_around_bytes").as_deref(), Some("65536"));
        assert_eq!(written(&[(Knob::NumaBalancing, 2)], "kernel/numa_balancing").as_deref(), Some("2"));
        assert_eq!(written(&[], "sched/numa_balancing/hot_threshold_ms").as_deref(), Some("1000"));
        assert_eq!(written(&[(Knob::DemotionEnabled, 1)], "numa/demotion_enabled").as_deref(), Some("1"));
        assert_eq!(written(&[], "unmap"), None);
        assert_eq!(written(&[], "transparent_hugepage/defrag"), None);
        assert_eq!(written(&[(Knob::ThpDefrag, 1)], "transparent_hugepage/defrag").as_deref(), Some("defer"));
        let error = settings(&[(Knob::TierPolicy, 2)], 16384).unwrap_err();
        assert!(error.to_string().contains("tier.policy=sampled") && error.exit_code() == 2, "{error}");
    }

    #[test]
    fn what_is_switched_on_is_set_up_before() {
        assert_eq!(written(&[(Knob::DamonReclaimMinAge, 1)], "damon_reclaim/parameters/min_age"), None);
        let all = settings(&[(Knob::DamonReclaimEnabled, 1)], 16384).unwrap();
        let damon: Vec<&str> = all.iter().filter_map(|setting| setting.file.strip_prefix(DAMON)).collect();
        assert_eq!((damon[0], damon.last()), ("/min_age", Some(&"/enabled")));
        assert_eq!(written(&[(Knob::ZswapMaxPoolPercent, 30)], "zswap/parameters/max_pool_percent"), None);
        let knobs = [(Knob::ZswapEnabled, 1), (Knob::ZswapCompressor, 2)];
        let all = settings(&knobs, 16384).unwrap();
        let zswap: Vec<(&str, &str)> = all
            .iter()
            .filter_map(|setting| Some((setting.file.strip_prefix(ZSWAP)?, setting.value.as_str())))
            .collect();
        assert_eq!((zswap[0], zswap.last()), (("/compressor", "zstd"), Some(&("/enabled", "1"))));
        assert!(zswap.contains(&("/max_pool_percent", "20")), "{zswap:?}");
    }

    #[test]
    fn knobs_of_linux_have_a_place_and_others_have_none() {
        let of = |name: &str, value| place(Knob::from_name(name).unwrap(), value, "sda");
        let at = |file: &str, value: &str| Some((file.to_owned(), value.to_owned()));
        assert_eq!(of("vm.page-cluster", 0), at("/proc/sys/vm/page-cluster", "0"));
        assert_eq!(of("queue.read_ahead_kb", 64), at("/sys/block/sda/queue/read_ahead_kb", "64"));
        assert_eq!(of("reclaim.policy", 1), at("/sys/kernel/mm/lru_gen/enabled", "7"));
        assert_eq!(of("reclaim.policy", 0), at("/sys/kernel/mm/lru_gen/enabled", "0"));
        assert_eq!(of("zswap.compressor", 2), at("/sys/module/zswap/parameters/compressor", "zstd"));
        for (ours, value) in
            [("tlb.unmap", 3), ("reclaim.policy", 5), ("lru.batch", 15), ("vm.compact_memory", 1)]
        {
            assert_eq!(of(ours, value), None, "{ours}");
        }
    }

    #[test]
    fn generations_follow_the_profile() {
        assert_eq!(generations(&[]).unwrap(), 0);
        assert_eq!(generations(&[(Knob::ReclaimPolicy, 1)]).unwrap(), 7);
        assert_eq!(generations(&[(Knob::LruGenEnabled, 3)]).unwrap(), 3);
        assert_eq!(generations(&[(Knob::ReclaimPolicy, 1), (Knob::ReclaimPolicy, 0)]).unwrap(), 0);
        let error = generations(&[(Knob::ReclaimPolicy, 5)]).unwrap_err();
        assert!(error.to_string().contains("s3-fifo") && error.exit_code() == 2, "{error}");
    }
}
