//! Axes: knobs and limits of groups, each with the values that it may have.

use crate::engine::GroupSpec;
use crate::error::{Error, Result};
use crate::human;
use crate::linux::conditions::{generations, min_free, value, word};
use crate::profile::{Profile, parse_setting};
use crate::size::parse_limit;
use crate::suggest;
use mm::knobs::Knob;
use mm::units::PAGE_SIZE;

/// The knobs that are searched if none is named, with their values. Linux has all of them, and a program can run
/// faster under them whatever it does; `vm.min_free_kbytes` comes with them, but its values depend on memory.
const USUAL: [&str; 8] = [
    "vm.swappiness=0..200",
    "vm.watermark_scale_factor=10..1000",
    "vm.watermark_boost_factor=0,15000",
    "vm.page-cluster=0..5",
    "queue.read_ahead_kb=16..2048",
    "lru_gen.enabled=0,7",
    "hugepages-64kB.enabled=never,always",
    "hugepages-2048kB.enabled=never,always",
];

/// Of a range whose ends are at least this many times apart, each value is twice the one before.
const WIDE: u64 = 32;
/// The most steps of other ranges.
const STEPS: u64 = 20;
/// The most values of an axis.
const MOST_VALUES: usize = 1000;

/// What an axis changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A knob.
    Knob(Knob),
    /// A limit of a group, by indexes; that of the limit is among [`GroupSpec::FILES`].
    Limit {
        /// Of the groups that runs begin with.
        group: usize,
        /// Of a group's limits.
        which: usize,
    },
}

/// A knob or a limit that is searched.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// As `--knob` names it.
    pub name: String,
    /// What it changes.
    pub target: Target,
    /// At least two values; those of a limit are bytes.
    pub values: Vec<u64>,
    /// Whether neighbours are more alike than others.
    pub ordered: bool,
    /// The index of the base's value.
    pub base: usize,
}

/// What the values of axes are relative to.
pub struct Around<'a> {
    /// The base.
    pub profile: &'a Profile,
    /// The groups that runs begin with.
    pub groups: &'a [GroupSpec],
    /// Bytes of memory.
    pub memory: u64,
    /// The most bytes that the program has at once.
    pub peak_live: u64,
}

impl Around<'_> {
    /// The usual axes.
    ///
    /// # Errors
    /// None of theirs: their texts are good.
    pub fn usual(&self) -> Result<Vec<Axis>> {
        let free = min_free(&self.profile.knobs, self.memory / PAGE_SIZE);
        let most = Knob::MinFreeKbytes.info().max;
        let reserve: Vec<String> = [1, 2, 4, 8].map(|times| (free * times).min(most).to_string()).into();
        let reserve = format!("vm.min_free_kbytes={}", reserve.join(","));
        // A policy that Linux does not have cannot be left for generations by this knob alone.
        let known = generations(&self.profile.knobs).is_ok();
        let usual = USUAL.into_iter().filter(|text| known || !text.starts_with("lru_gen."));
        usual.chain([&reserve[..]]).map(|text| self.axis(text)).collect()
    }

    /// The axes of these texts.
    ///
    /// # Errors
    /// One of them is not `NAME=VALUES`, or two of them change the same.
    pub fn axes(&self, texts: &[String]) -> Result<Vec<Axis>> {
        let mut axes: Vec<Axis> = Vec::new();
        for text in texts {
            let axis = self.axis(text)?;
            if let Some(before) = axes.iter().find(|before| same(before.target, axis.target)) {
                let why = if before.name == axis.name { "is named twice" } else { "decides the same" };
                return Err(Error::Input(format!("--knob {}: {why} ('{}')", axis.name, before.name)));
            }
            axes.push(axis);
        }
        Ok(axes)
    }

    /// One axis: `NAME=LOW..HIGH` or `NAME=VALUE,VALUE,...`; a limit is named `GROUP:FILE`.
    fn axis(&self, text: &str) -> Result<Axis> {
        let at = |why: String| Error::Input(format!("--knob {text}: {why}"));
        let (name, values) = text.split_once('=').ok_or_else(|| {
            at("its values are missing; write vm.swappiness=0..200 or thp.defrag=never,defer".to_owned())
        })?;
        let target = self.target(name).map_err(at)?;
        let parse = |value: &str| self.parse(target, name, value).map_err(at);
        let (mut values, range) = match values.split_once("..") {
            Some((low, high)) => (ladder(parse(low)?, parse(high)?), true),
            None => (values.split(',').map(parse).collect::<Result<Vec<_>>>()?, false),
        };
        if range && values.is_empty() {
            return Err(at("the range is empty; the smaller end comes first".to_owned()));
        }
        let ordered = match target {
            Target::Knob(knob) => knob.info().words.is_empty() && knob != Knob::LruGenEnabled,
            Target::Limit { .. } => true,
        };
        let base = self.base(target).map_err(|error| at(error.to_string()))?;
        values.push(base);
        values.sort_unstable();
        values.dedup();
        match values.len() {
            1 => Err(at("the base has its only value, so there is nothing to search".to_owned())),
            many if many > MOST_VALUES => Err(at(format!("more than {MOST_VALUES} values"))),
            _ => {
                let base = values.iter().position(|&value| value == base).expect("it is among them");
                Ok(Axis { name: name.to_owned(), target, values, ordered, base })
            }
        }
    }

    fn target(&self, name: &str) -> Result<Target, String> {
        let Some((group, file)) = name.split_once(':') else {
            let names = Knob::ALL.iter().map(|knob| knob.info().name);
            return match Knob::from_name(name) {
                Some(Knob::CompactMemory) => Err("to compact is an act, not a setting".to_owned()),
                Some(knob) => Ok(Target::Knob(knob)),
                None => Err(suggest::unknown("knob", name, names, "knobs")),
            };
        };
        let known = self.groups.iter().position(|known| known.name == group);
        let known = known.ok_or_else(|| format!("there is no group '{group}'; --group {group} makes one"))?;
        let which = GroupSpec::FILES.iter().position(|&known| known == file);
        let which = which.ok_or_else(|| {
            let files = GroupSpec::FILES.join(", ");
            format!("a group has no limit '{file}' (there are {files})")
        })?;
        Ok(Target::Limit { group: known, which })
    }

    fn parse(&self, target: Target, name: &str, value: &str) -> Result<u64, String> {
        match target {
            Target::Knob(_) => parse_setting(&format!("{name}={value}"))
                .map(|(_, value)| value)
                .map_err(|why| why.to_string()),
            Target::Limit { .. } => parse_limit(value).map(|limit| limit.resolve(self.peak_live)),
        }
    }

    /// What the base has.
    fn base(&self, target: Target) -> Result<u64> {
        let knobs = &self.profile.knobs;
        match target {
            Target::Knob(Knob::LruGenEnabled) => generations(knobs),
            Target::Knob(Knob::ReclaimPolicy) => {
                Ok(generations(knobs).map_or_else(|_| value(knobs, Knob::ReclaimPolicy), |parts| parts & 1))
            }
            Target::Knob(Knob::MinFreeKbytes) => Ok(min_free(knobs, self.memory / PAGE_SIZE)),
            Target::Knob(knob) => Ok(value(knobs, knob)),
            Target::Limit { group, which } => {
                let set = *self.groups[group].clone().limit(which);
                Ok(set.unwrap_or_else(|| unlimited(which)))
            }
        }
    }
}

impl Axis {
    /// A value, as `--set` and `--group` take it.
    pub fn written(&self, at: usize) -> String {
        match self.target {
            Target::Knob(knob) => word(knob, self.values[at]),
            Target::Limit { .. } => self.values[at].to_string(),
        }
    }

    /// A value, for people.
    pub fn shown(&self, at: usize) -> String {
        match (self.target, self.values[at]) {
            (Target::Knob(_), _) | (Target::Limit { .. }, 0..=1) => self.written(at),
            (_, u64::MAX) => "max".to_owned(),
            (_, bytes) => human::bytes(bytes as f64),
        }
    }
}

/// What a limit is where nobody sets it.
fn unlimited(which: usize) -> u64 {
    match GroupSpec::FILES[which] {
        "memory.low" | "memory.min" => 0,
        "memory.zswap.writeback" => 1,
        _ => u64::MAX,
    }
}

/// Whether two axes would overwrite each other: `reclaim.policy` follows `lru_gen.enabled`.
fn same(one: Target, other: Target) -> bool {
    const POLICY: [Target; 2] = [Target::Knob(Knob::ReclaimPolicy), Target::Knob(Knob::LruGenEnabled)];
    one == other || (POLICY.contains(&one) && POLICY.contains(&other))
}

/// The values of a range; none if it is empty.
fn ladder(low: u64, high: u64) -> Vec<u64> {
    if low >= high {
        return Vec::new();
    }
    if low > 0 && high / low >= WIDE {
        let doubled = std::iter::successors(Some(low), |value| value.checked_mul(2));
        return doubled.take_while(|&value| value < high).chain([high]).collect();
    }
    let step = (high - low).div_ceil(STEPS);
    std::iter::successors(Some(low), |value| value.checked_add(step))
        .take_while(|&value| value < high)
        .chain([high])
        .collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// What a base with 40 MiB, and a group, is around.
    pub(in super::super) fn around<T>(base: &str, then: impl FnOnce(&Around) -> T) -> T {
        let profile = Profile::parse(base, &[]).unwrap();
        let groups = ["web:memory.high=20000000".parse().unwrap()];
        then(&Around { profile: &profile, groups: &groups, memory: 40 << 20, peak_live: 80 << 20 })
    }

    fn axis(base: &str, text: &str) -> Result<Axis> {
        around(base, |around| around.axis(text))
    }

    #[test]
    fn ranges_are_ladders_of_equal_steps_or_of_doublings() {
        assert_eq!(ladder(0, 5), [0, 1, 2, 3, 4, 5]);
        assert_eq!(ladder(0, 200).len(), 21);
        assert_eq!(ladder(10, 1000), [10, 20, 40, 80, 160, 320, 640, 1000]);
        assert_eq!(
            ladder(16, 128),
            [16, 22, 28, 34, 40, 46, 52, 58, 64, 70, 76, 82, 88, 94, 100, 106, 112, 118, 124, 128]
        );
        assert_eq!((ladder(5, 5), ladder(6, 5)), (vec![], vec![]));
        assert!(ladder(0, u64::MAX).len() <= 22 && ladder(1, u64::MAX).len() == 65);
    }

    #[test]
    fn the_value_of_the_base_is_always_among_them() {
        let swappiness = axis("classic", "vm.swappiness=100,180,10").unwrap();
        assert_eq!((&swappiness.values[..], swappiness.base), (&[10, 60, 100, 180][..], 1));
        assert!(swappiness.ordered);
        let defrag = axis("classic+thp.defrag=defer", "thp.defrag=never,always").unwrap();
        assert_eq!((defrag.values.len(), defrag.ordered), (3, false));
        assert_eq!(
            (defrag.written(defrag.base), defrag.written(2)),
            ("defer".to_owned(), "never".to_owned())
        );
        for (base, value) in [("classic", 0), ("mglru", 7), ("mglru+lru_gen.enabled=0", 0)] {
            let on = axis(base, "lru_gen.enabled=0,7").unwrap();
            assert_eq!((on.values[on.base], &on.values[..]), (value, &[0, 7][..]), "{base}");
        }
        let policy = axis("mglru", "reclaim.policy=classic,s3-fifo").unwrap();
        assert_eq!(policy.written(policy.base), "mglru");
    }

    #[test]
    fn limits_of_groups_are_searched_in_bytes() {
        let high = axis("classic", "web:memory.high=25%..100%").unwrap();
        assert_eq!(high.target, Target::Limit { group: 0, which: 1 });
        assert_eq!((high.values[0], high.values[high.base]), (20_000_000, 20_000_000));
        assert_eq!(high.values.last(), Some(&(80 << 20)));
        let max = axis("classic", "web:memory.max=50%").unwrap();
        assert_eq!((max.shown(0), max.shown(max.base)), ("40.0 MiB".to_owned(), "max".to_owned()));
        let low = axis("classic", "web:memory.low=8M").unwrap();
        assert_eq!((low.shown(low.base), low.written(1)), ("0".to_owned(), (8u64 << 20).to_string()));
    }

    #[test]
    fn the_usual_knobs_are_those_of_linux() {
        let usual = |base| around(base, |around| around.usual().unwrap());
        let axes = usual("classic");
        assert_eq!(axes.len(), 9);
        for axis in &axes {
            let Target::Knob(knob) = axis.target else { panic!("{}", axis.name) };
            assert!(crate::linux::conditions::place(knob, axis.values[0], "sda").is_some(), "{}", axis.name);
        }
        let reserve = axes.last().unwrap();
        assert_eq!((reserve.base, reserve.values[3]), (0, 8 * reserve.values[0]));
        assert!(usual("s3-fifo").iter().all(|axis| axis.name != "lru_gen.enabled"));
    }

    #[test]
    fn wrong_axes_are_refused_in_one_line() {
        for (text, expected) in [
            ("vm.swappiness", "its values are missing"),
            ("vm.swapiness=0..9", "did you mean 'vm.swappiness'?"),
            ("vm.swappiness=200..0", "the range is empty"),
            ("vm.swappiness=0..300", "between 0 and 200"),
            ("vm.swappiness=", "whole number"),
            ("vm.swappiness=60", "nothing to search"),
            ("vm.compact_memory=0,1", "an act, not a setting"),
            ("thp.defrag=never,nevre", "must be one of"),
            ("db:memory.high=50%", "--group db makes one"),
            ("web:memory.hi=50%", "there are memory.max, memory.high"),
            ("web:memory.high=0%", "not a share"),
        ] {
            let message = axis("classic", text).unwrap_err().to_string();
            assert!(
                message.contains(expected) && message.starts_with(&format!("--knob {text}: ")),
                "{message}"
            );
            assert!(!message.contains('\n'));
        }
        let both = |texts: [&str; 2]| around("classic", |around| around.axes(&texts.map(str::to_owned)));
        let twice = both(["vm.swappiness=0..9", "vm.swappiness=1,2"]).unwrap_err().to_string();
        assert!(twice.contains("named twice"), "{twice}");
        let policy = both(["lru_gen.enabled=0,7", "reclaim.policy=classic,mglru"]).unwrap_err().to_string();
        assert!(policy.contains("decides the same"), "{policy}");
    }
}
