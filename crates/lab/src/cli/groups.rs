//! The option for control groups.

use crate::engine::{GroupSpec, PROCESSES};
use crate::size::{Memory, parse_limit};
use crate::suggest;

/// A parsed group; shares are not resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupArg {
    /// As written.
    pub text: String,
    limits: Vec<(usize, Memory)>,
    spec: GroupSpec,
}

/// Parse `NAME` or `NAME:SETTING=VALUE,...`.
pub(super) fn parse_group(text: &str) -> Result<GroupArg, String> {
    let (name, settings) = text.split_once(':').unwrap_or((text, ""));
    let mut group = GroupArg {
        text: text.to_owned(),
        limits: Vec::new(),
        spec: GroupSpec { name: name.to_owned(), ..GroupSpec::default() },
    };
    for setting in settings.split(',').filter(|_| text.contains(':')) {
        let Some((key, value)) = setting.split_once('=') else {
            return Err(format!("'{setting}' sets nothing; write NAME:memory.max=32M,memory.low=8M"));
        };
        if key == PROCESSES {
            if group.spec.processes.replace(value.parse()?).is_some() {
                return Err(format!("{key} is set twice"));
            }
            continue;
        }
        let Some(which) = GroupSpec::FILES.iter().position(|&known| known == key) else {
            return Err(unknown(key));
        };
        if group.limits.iter().any(|&(before, _)| before == which) {
            return Err(format!("{key} is set twice"));
        }
        group.limits.push((which, parse_limit(value).map_err(|why| format!("{key}: {why}"))?));
    }
    Ok(group)
}

fn unknown(key: &str) -> String {
    let known = || GroupSpec::FILES.into_iter().chain([PROCESSES]);
    let hint = suggest::nearest(key, known()).map(|near| format!("; did you mean '{near}'?"));
    let all = known().collect::<Vec<_>>().join(", ");
    format!("a group has no setting '{key}'{} (there are {all})", hint.unwrap_or_default())
}

impl GroupArg {
    /// The group for a program that has at most `peak_live` bytes at once: shares are relative to that.
    pub(super) fn resolve(&self, peak_live: u64) -> GroupSpec {
        let mut spec = self.spec.clone();
        for &(which, limit) in &self.limits {
            *spec.limit(which) = Some(limit.resolve(peak_live));
        }
        spec
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_has_a_name_and_optional_limits_and_processes() {
        let group = |text: &str| parse_group(text).unwrap().resolve(1000);
        assert_eq!(group("a"), GroupSpec { name: "a".into(), ..GroupSpec::default() });
        let (max, low, swap_max) = (Some(32 << 20), Some(500), Some(u64::MAX));
        let processes = "1-3".parse().ok();
        assert_eq!(
            group("web/a:memory.max=32M,memory.low=50%,memory.swap.max=max,processes=1-3"),
            GroupSpec { name: "web/a".into(), max, low, swap_max, processes, ..GroupSpec::default() }
        );
        assert_eq!(group("a:memory.swap.max=0").swap_max, Some(0));
        for (wrong, expected) in [
            ("a:", "'' sets nothing"),
            ("a:memory.max", "'memory.max' sets nothing"),
            ("a:max=1M", "did you mean 'memory.max'?"),
            ("a:memory.mx=1M", "did you mean 'memory.max'?"),
            ("a:process=1", "did you mean 'processes'?"),
            ("a:memory.max=1M,memory.max=2M", "memory.max is set twice"),
            ("a:processes=0,processes=1", "processes is set twice"),
            ("a:memory.max=1Q", "memory.max: '1Q' is not a size"),
            ("a:memory.max=0%", "memory.max: '0%' is not a share"),
            ("a:processes=one", "'one' names no processes"),
        ] {
            let why = parse_group(wrong).unwrap_err();
            assert!(why.contains(expected) && !why.contains('\n'), "{wrong}: {why}");
        }
    }
}
