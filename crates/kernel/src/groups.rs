//! The control groups that a run begins with, and the counts of all groups at its end.
//!
//! A group is named by its path below the root, as its directory is: `web`, `web/cache`. Groups on the path without a
//! description are created without limits. A description names the group's processes by their numbers in the order in
//! which they start; the program's first process is 0. A process that no description names starts in its parent's
//! group.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt::{self, Display, Formatter};
use core::ops::RangeInclusive;
use core::str::FromStr;
use mm::Mm;
use mm::api::{GroupLimits, ZswapLimits};
use mm::lru::LruList;
use mm::machine::Machine;
use mm::stat::GroupStat;
use mm::units::{GroupId, PAGE_SIZE};

/// Most groups that a run may begin with.
const MOST: usize = 1000;
/// Most levels of groups, and most bytes of a path.
const DEEPEST: usize = 16;
const LONGEST: usize = 255;

/// Processes, by their numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Processes(Vec<RangeInclusive<u32>>);

impl Processes {
    const FIRST: RangeInclusive<u32> = 0..=0;

    fn contains(&self, process: u32) -> bool {
        self.0.iter().any(|range| range.contains(&process))
    }

    /// A process that both contain.
    fn common(&self, other: &Processes) -> Option<u32> {
        let pairs = self.0.iter().flat_map(|one| other.0.iter().map(move |two| (one, two)));
        pairs
            .map(|(one, two)| (*one.start().max(two.start()), *one.end().min(two.end())))
            .find_map(|(start, end)| (start <= end).then_some(start))
    }
}

impl FromStr for Processes {
    type Err = String;

    /// Read `0`, `1-3`, `4-`, or several of these with `+` between them.
    fn from_str(text: &str) -> Result<Processes, String> {
        let range = |part: &str| {
            let (start, end) = part.split_once('-').unwrap_or((part, part));
            let start: u32 = start.parse().ok()?;
            let end: u32 = if end.is_empty() { u32::MAX } else { end.parse().ok()? };
            (start <= end).then_some(start..=end)
        };
        let ranges: Option<Vec<_>> = text.split('+').map(range).collect();
        let why = || format!("'{text}' names no processes; write numbers like 0, 1-3, 4- or 0+2-3");
        ranges.map(Processes).ok_or_else(why)
    }
}

impl Display for Processes {
    /// In the form that [`FromStr`] reads.
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        for (i, range) in self.0.iter().enumerate() {
            let plus = if i > 0 { "+" } else { "" };
            match (*range.start(), *range.end()) {
                (start, u32::MAX) => write!(out, "{plus}{start}-")?,
                (start, end) => write!(out, "{plus}{start}-{end}")?,
            }
        }
        Ok(())
    }
}

/// Description of a group. A field that is `None` keeps the machine's value, or else is no limit.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GroupSpec {
    /// Its path.
    pub name: String,
    /// memory.max, in bytes; `u64::MAX` is `max`, as in all of these.
    pub max: Option<u64>,
    /// memory.high
    pub high: Option<u64>,
    /// memory.low
    pub low: Option<u64>,
    /// memory.min
    pub min: Option<u64>,
    /// memory.swap.max
    pub swap_max: Option<u64>,
    /// memory.zswap.max
    pub zswap_max: Option<u64>,
    /// memory.zswap.writeback: 0 or 1.
    pub zswap_writeback: Option<u64>,
    /// Processes that start in it.
    pub processes: Option<Processes>,
}

impl Display for GroupSpec {
    /// One word, in the form that [`FromStr`] reads.
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let mut of = self.clone();
        let limits = GroupSpec::FILES.into_iter().enumerate().map(|(which, name)| (name, *of.limit(which)));
        let limits = limits.filter_map(|(name, limit)| Some(format!("{name}={}", limit?)));
        let processes = self.processes.iter().map(|these| format!("{PROCESSES}={these}"));
        let settings: Vec<_> = limits.chain(processes).collect();
        let colon = if settings.is_empty() { "" } else { ":" };
        write!(out, "{}{colon}{}", self.name, settings.join(","))
    }
}

impl FromStr for GroupSpec {
    type Err = String;

    /// Read `NAME:SETTING=VALUE,...`. Limits are in bytes.
    fn from_str(text: &str) -> Result<GroupSpec, String> {
        let (name, settings) = text.split_once(':').unwrap_or((text, ""));
        let mut group = GroupSpec { name: name.into(), ..GroupSpec::default() };
        for setting in settings.split(',').filter(|setting| !setting.is_empty()) {
            let (key, value) =
                setting.split_once('=').ok_or_else(|| format!("'{setting}' is not of the form key=value"))?;
            let which = GroupSpec::FILES.iter().position(|&known| known == key);
            match (which, key) {
                (Some(which), _) => {
                    *group.limit(which) =
                        Some(value.parse().map_err(|_| format!("'{value}' is not a number"))?);
                }
                (None, PROCESSES) => group.processes = Some(value.parse()?),
                (None, _) => return Err(format!("a group has no setting '{key}'")),
            }
        }
        Ok(group)
    }
}

/// The setting of a group that is not a limit. Limits have the names of their files.
pub const PROCESSES: &str = "processes";

impl GroupSpec {
    /// The files of its limits: those that programs can set, and those of zswap.
    pub const FILES: [&str; 7] = {
        let [max, high, low, min, swap_max] = abi::GroupLimits::FILES;
        [max, high, low, min, swap_max, "memory.zswap.max", "memory.zswap.writeback"]
    };

    /// The limit whose file is at position `which` of [`FILES`](Self::FILES).
    pub fn limit(&mut self, which: usize) -> &mut Option<u64> {
        let GroupSpec { max, high, low, min, swap_max, zswap_max, zswap_writeback, .. } = self;
        let limits = [max, high, low, min, swap_max, zswap_max, zswap_writeback];
        limits.into_iter().nth(which).expect("every limit has a file")
    }

    fn zswap_limits(&self) -> ZswapLimits {
        let pages = |bytes: u64| if bytes == u64::MAX { u64::MAX } else { bytes / PAGE_SIZE };
        let unsaid = ZswapLimits::default();
        ZswapLimits {
            max: self.zswap_max.map_or(unsaid.max, pages),
            writeback: self.zswap_writeback.map_or(unsaid.writeback, |writeback| writeback != 0),
        }
    }

    fn limits(&self) -> GroupLimits {
        let unsaid = abi::GroupLimits::default();
        let limits = abi::GroupLimits {
            max: self.max.unwrap_or(unsaid.max),
            high: self.high.unwrap_or(unsaid.high),
            low: self.low.unwrap_or(unsaid.low),
            min: self.min.unwrap_or(unsaid.min),
            swap_max: self.swap_max.unwrap_or(unsaid.swap_max),
        };
        limits.into()
    }

    fn check(&self) -> Result<(), String> {
        let name = &self.name;
        let good = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
        let parts = name.split('/');
        if !parts.clone().all(|part| !part.is_empty() && part.chars().all(good) && !part.starts_with('.')) {
            return Err(format!("'{name}' is no path of a group; write names like web or web/cache"));
        }
        if self.zswap_writeback.is_some_and(|writeback| writeback > 1) {
            return Err(format!("memory.zswap.writeback of '{name}' is neither 0 nor 1"));
        }
        match name.len() > LONGEST || parts.count() > DEEPEST {
            true => Err(format!("'{name}' is too long: {LONGEST} bytes and {DEEPEST} names are the most")),
            false => Ok(()),
        }
    }

    /// These settings, overridden by those of `own`.
    fn overridden(&self, own: &GroupSpec) -> GroupSpec {
        GroupSpec {
            name: self.name.clone(),
            max: own.max.or(self.max),
            high: own.high.or(self.high),
            low: own.low.or(self.low),
            min: own.min.or(self.min),
            swap_max: own.swap_max.or(self.swap_max),
            zswap_max: own.zswap_max.or(self.zswap_max),
            zswap_writeback: own.zswap_writeback.or(self.zswap_writeback),
            processes: own.processes.clone().or_else(|| self.processes.clone()),
        }
    }

    fn is_below(&self, other: &GroupSpec) -> bool {
        self.name.strip_prefix(&other.name).is_some_and(|rest| rest.starts_with('/'))
    }

    /// Combine a machine's groups with those of a run. An error says what is wrong with them.
    pub fn of_run(machine: &[GroupSpec], own: &[GroupSpec]) -> Result<Vec<GroupSpec>, String> {
        let mut groups = machine.to_vec();
        for (i, group) in own.iter().enumerate() {
            if own[..i].iter().any(|before| before.name == group.name) {
                return Err(format!("the group '{}' is named twice", group.name));
            }
            match groups.iter_mut().find(|known| known.name == group.name) {
                Some(known) => *known = known.overridden(group),
                None => groups.push(group.clone()),
            }
        }
        groups.iter().try_for_each(GroupSpec::check)?;
        if groups.len() > MOST {
            return Err(format!("there are {} groups, the most is {MOST}", groups.len()));
        }
        place_the_rest(&mut groups)?;
        for (i, group) in groups.iter().enumerate() {
            for before in &groups[..i] {
                let both = group.processes.as_ref().zip(before.processes.as_ref());
                if let Some(process) = both.and_then(|(one, two)| one.common(two)) {
                    return Err(format!(
                        "process {process} cannot begin in two groups, '{}' and '{}'",
                        before.name, group.name
                    ));
                }
            }
        }
        Ok(groups)
    }
}

/// If only one group has no processes, the whole program starts in it.
fn place_the_rest(groups: &mut [GroupSpec]) -> Result<(), String> {
    let has_below = |group: &GroupSpec| groups.iter().any(|other| other.is_below(group));
    let empty = |group: &GroupSpec| group.processes.is_none() && !has_below(group);
    let first_is_placed = groups.iter().flat_map(|group| &group.processes).any(|these| these.contains(0));
    let unsaid: Vec<usize> = (0..groups.len()).filter(|&i| empty(&groups[i])).collect();
    match unsaid[..] {
        [] => {}
        [only] if !first_is_placed => groups[only].processes = Some(Processes(vec![Processes::FIRST])),
        [.., last] => {
            let name = &groups[last].name;
            return Err(format!("which processes begin in '{name}' is not said; write like processes=1-3"));
        }
    }
    Ok(())
}

/// The groups that a run has begun with.
#[derive(Default)]
pub struct Groups {
    /// Names by number.
    names: BTreeMap<GroupId, String>,
    members: Vec<(Processes, GroupId)>,
}

impl Groups {
    /// Create the groups.
    pub fn make<M: Machine>(mm: &Mm<M>, specs: &[GroupSpec]) -> Result<Groups, String> {
        let mut groups = Groups::default();
        let mut by_path: BTreeMap<&str, GroupId> = BTreeMap::new();
        for spec in specs {
            let ends = spec.name.match_indices('/').map(|(at, _)| at).chain([spec.name.len()]);
            let mut parent = GroupId(0);
            for path in ends.map(|end| &spec.name[..end]) {
                if !by_path.contains_key(path) {
                    let described = specs.iter().find(|spec| spec.name == path);
                    let limits = described.map(GroupSpec::limits).unwrap_or_default();
                    let made = mm.create_group(parent, limits);
                    let group =
                        made.map_err(|error| format!("group: '{path}' cannot be made ({error:?})"))?;
                    if let Some(limits) = described.map(GroupSpec::zswap_limits) {
                        let set = mm.set_group_zswap_limits(group, limits);
                        set.expect("a group that was just made can have limits");
                    }
                    let before = groups.names.insert(group, path.to_owned());
                    assert_eq!(before, None, "the number of group '{path}' must be unused");
                    by_path.insert(path, group);
                }
                parent = by_path[path];
            }
            for processes in spec.processes.iter().cloned() {
                let other = groups.members.iter().find_map(|(others, _)| others.common(&processes));
                assert_eq!(other, None, "a process starts in one group, so not in '{}', too", spec.name);
                groups.members.push((processes, parent));
            }
        }
        Ok(groups)
    }

    /// The group in which a process starts; `None`: in its parent's group.
    pub(crate) fn of_process(&self, process: u32) -> Option<GroupId> {
        self.members.iter().find(|(these, _)| these.contains(process)).map(|&(_, group)| group)
    }

    /// The group of a path that the run has begun with.
    pub(crate) fn named(&self, path: &str) -> Option<GroupId> {
        self.names.iter().find(|(_, name)| *name == path).map(|(&group, _)| group)
    }

    /// The path of a group. A group that the program has created has no name, so its number, which is unique, stands
    /// for it.
    fn path<M: Machine>(&self, mm: &Mm<M>, group: GroupId) -> String {
        if let Some(name) = self.names.get(&group) {
            return name.clone();
        }
        match mm.group_account(group).and_then(|account| account.parent) {
            Some(parent) if parent != GroupId(0) => {
                assert_ne!(parent, group, "a group cannot be its own parent");
                format!("{}/{}", self.path(mm, parent), group.0)
            }
            _ => group.0.to_string(),
        }
    }

    /// The counts of all groups but the root.
    pub fn outcomes<M: Machine>(&self, mm: &Mm<M>) -> Vec<GroupOutcome> {
        let numbers = (1..=u16::MAX).map(GroupId);
        numbers.map_while(|group| GroupOutcome::of(mm, group, self.path(mm, group))).collect()
    }
}

/// The content of a group's files at the end of the run. All sizes are in bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupOutcome {
    /// Its path. Groups that the program has created are called by their numbers.
    pub name: String,
    /// The limits by the names of [`GroupSpec::FILES`], `u64::MAX` for `max`; `None`: the program has removed the
    /// group.
    pub limits: Option<[(&'static str, u64); 7]>,
    /// memory.current, memory.peak, memory.swap.current, memory.swap.peak and memory.zswap.current by name.
    pub usage: [(&'static str, u64); 5],
    /// memory.stat: bytes on lists, and counts.
    pub stat: Vec<(&'static str, u64)>,
    /// memory.events.
    pub events: Vec<(&'static str, u64)>,
}

impl GroupOutcome {
    fn of<M: Machine>(mm: &Mm<M>, group: GroupId, name: String) -> Option<GroupOutcome> {
        let account = mm.group_account(group)?;
        let bytes = |pages: u64| pages.saturating_mul(PAGE_SIZE);
        let limits = mm.group_limits(group).ok().map(|limits| {
            let GroupLimits { max, high, low, min, swap_max } = limits;
            let zswap = mm.group_zswap_limits(group).unwrap_or_default();
            let [max, high, low, min, swap_max, zswap_max] =
                [max, high, low, min, swap_max, zswap.max].map(bytes);
            let limits = [max, high, low, min, swap_max, zswap_max, zswap.writeback.into()];
            core::array::from_fn(|i| (GroupSpec::FILES[i], limits[i]))
        });
        let counted = |events: bool| {
            let these = GroupStat::ALL.iter().filter(move |stat| stat.is_event() == events);
            these.map(|&stat| (stat.name(), account.counted(stat)))
        };
        let on_lists = LruList::ALL.into_iter().zip(account.lists);
        let on_lists =
            on_lists.map(|(list, pages)| (list.stat().name().trim_start_matches("nr_"), bytes(pages)));
        let sum = |one, two| account.counted(one) + account.counted(two);
        let sums = [
            ("pgscan", sum(GroupStat::PgscanKswapd, GroupStat::PgscanDirect)),
            ("pgsteal", sum(GroupStat::PgstealKswapd, GroupStat::PgstealDirect)),
        ];
        let zswap = [("zswap", account.zswap[0]), ("zswapped", bytes(account.zswap[1]))];
        Some(GroupOutcome {
            name,
            limits,
            usage: [
                ("memory.current", bytes(account.usage[0])),
                ("memory.peak", bytes(account.usage[1])),
                ("memory.swap.current", bytes(account.swap[0])),
                ("memory.swap.peak", bytes(account.swap[1])),
                ("memory.zswap.current", account.zswap[0]),
            ],
            stat: on_lists.chain(zswap).chain(sums).chain(counted(false)).collect(),
            events: counted(true).collect(),
        })
    }

    /// A value by the name of its file, or of its line in memory.stat or memory.events.
    pub fn value(&self, name: &str) -> Option<u64> {
        let limits = self.limits.iter().flatten();
        let all = limits.chain(&self.usage).chain(&self.stat).chain(&self.events);
        all.copied().find(|(known, _)| *known == name).map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(name: &str, processes: Option<&str>) -> GroupSpec {
        let processes = processes.map(|text| text.parse().unwrap());
        GroupSpec { name: name.into(), processes, ..GroupSpec::default() }
    }

    #[test]
    fn processes_are_parsed_as_ranges_of_numbers() {
        let these: Processes = "0+2-3+7-".parse().unwrap();
        assert!([0, 2, 3, 7, u32::MAX].into_iter().all(|process| these.contains(process)));
        assert!([1, 4, 6].into_iter().all(|process| !these.contains(process)));
        for wrong in ["", "a", "3-1", "0,1", "-2", "0+", "99999999999"] {
            assert!(wrong.parse::<Processes>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_group_is_written_as_one_word() {
        assert_eq!("a:".parse::<GroupSpec>(), "a".parse());
        for text in ["a", "web/child:memory.max=4096,memory.swap.max=0,processes=1-3+7-", "b:memory.low=5"] {
            let group: GroupSpec = text.parse().unwrap();
            assert_eq!((group.to_string().as_str(), text.parse()), (text, Ok(group)));
        }
        for (wrong, why) in [
            ("a:max=1", "no setting 'max'"),
            ("a:memory.max=1M", "'1M' is not a number"),
            ("a:x", "key=value"),
        ] {
            assert!(wrong.parse::<GroupSpec>().unwrap_err().contains(why), "{wrong}");
        }
    }

    #[test]
    fn a_lone_group_gets_the_program_and_others_must_name_processes() {
        let of_run = |groups: &[GroupSpec]| GroupSpec::of_run(&[], groups);
        let placed = |groups: &[GroupSpec]| of_run(groups).unwrap().into_iter().map(|group| group.processes);
        let first = || Some("0".parse::<Processes>().unwrap());
        assert!(placed(&[group("a", None)]).eq([first()]));
        assert!(placed(&[group("a", None), group("a/b", None)]).eq([None, first()]));
        let named = Some("1-3".parse::<Processes>().unwrap());
        assert!(placed(&[group("a", None), group("b", Some("1-3"))]).eq([first(), named]));
        for (groups, expected) in [
            (&[group("a", None), group("b", None)][..], "which processes begin in 'b'"),
            (&[group("a", Some("0")), group("b", None)], "which processes begin in 'b'"),
            (&[group("a", Some("0-2")), group("b", Some("2-"))], "process 2 cannot begin in two groups"),
            (&[group("a", None), group("a", None)], "named twice"),
            (&[group("", None)], "no path"),
            (&[group("/a", None)], "no path"),
            (&[group("a/../b", None)], "no path"),
            (&[group("a b", None)], "no path"),
            (&[group(&"a/".repeat(20).replace("//", "/a/"), None)], "no path"),
            (&[group(&format!("a{}", "/a".repeat(20)), None)], "too long"),
        ] {
            let error = of_run(groups).unwrap_err();
            assert!(error.contains(expected) && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn groups_names_and_their_depth_have_bounds() {
        let of_run = |groups: &[GroupSpec]| GroupSpec::of_run(&[], groups);
        let deep = |parts: usize| vec!["a"; parts].join("/");
        for (name, fits) in [
            ("a".repeat(LONGEST), true),
            ("a".repeat(LONGEST + 1), false),
            (deep(DEEPEST), true),
            (deep(DEEPEST + 1), false),
        ] {
            assert_eq!(of_run(&[group(&name, None)]).is_ok(), fits, "{name}");
        }
        let numbered = |i: usize| group(&format!("g{i}"), Some(&i.to_string()));
        let groups: Vec<GroupSpec> = (0..=MOST).map(numbered).collect();
        assert_eq!(of_run(&groups[..MOST]).map(|groups| groups.len()), Ok(MOST));
        assert!(of_run(&groups).unwrap_err().contains("1001 groups"));
    }

    #[test]
    fn write_back_from_zswap_is_on_or_off() {
        let of_run = |zswap_writeback: u64| {
            let spec = GroupSpec { zswap_writeback: Some(zswap_writeback), ..group("a", None) };
            GroupSpec::of_run(&[], &[spec])
        };
        assert!(of_run(0).is_ok() && of_run(1).is_ok());
        assert!([2, 3].map(of_run).into_iter().all(|wrong| wrong.unwrap_err().contains("neither 0 nor 1")));
    }

    #[test]
    fn a_run_overrides_the_groups_of_its_machine() {
        let machine = [GroupSpec { max: Some(8), low: Some(1), ..group("a", None) }];
        let own = [GroupSpec { max: Some(u64::MAX), ..group("a", None) }, group("b", Some("1"))];
        let groups = GroupSpec::of_run(&machine, &own).unwrap();
        assert_eq!((groups.len(), groups[0].max, groups[0].low), (2, Some(u64::MAX), Some(1)));
    }
}
