//! The space that is searched: all combinations of the axes' values.

use super::super::plan::{Sweep, What};
use super::axis::{Axis, Target};
use crate::engine::GroupSpec;

/// A value for each axis, by its index.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Setting(pub Vec<usize>);

/// The axes, and what does not change.
pub struct Space {
    /// The axes.
    pub axes: Vec<Axis>,
    /// What the base runs.
    pub of: What,
    /// Its groups.
    pub groups: Vec<GroupSpec>,
}

impl Space {
    /// The base's values.
    pub fn base(&self) -> Setting {
        Setting(self.axes.iter().map(|axis| axis.base).collect())
    }

    /// The axes on which a setting differs from the base.
    pub fn changed(&self, setting: &Setting) -> Vec<usize> {
        (0..self.axes.len()).filter(|&axis| setting.0[axis] != self.axes[axis].base).collect()
    }

    /// A setting with the base's values on these axes.
    pub fn without(&self, setting: &Setting, axes: &[usize]) -> Setting {
        let mut values = setting.0.clone();
        axes.iter().for_each(|&axis| values[axis] = self.axes[axis].base);
        Setting(values)
    }

    /// What is run for a setting: the base, and what differs from it.
    pub fn what(&self, setting: &Setting) -> What {
        let mut groups = self.groups.clone();
        let mut profile = self.of.profile.clone();
        for at in self.changed(setting) {
            let (axis, value) = (&self.axes[at], setting.0[at]);
            match axis.target {
                Target::Knob(_) => profile += &format!("+{}={}", axis.name, axis.written(value)),
                Target::Limit { group, which } => *groups[group].limit(which) = Some(axis.values[value]),
            }
        }
        let group = groups.iter().map(GroupSpec::to_string).collect();
        What { profile, group, ..self.of.clone() }
    }

    /// The runs of settings with some seeds; the first setting is the base.
    pub fn sweep(&self, settings: &[Setting], seeds: (u64, u32), metric: &str) -> Sweep {
        let all: Vec<Setting> = [self.base()].into_iter().chain(settings.iter().cloned()).collect();
        let names = all.iter().map(|setting| self.name(setting)).collect();
        Sweep::product([("setting", names)], seeds, &[metric], |[at]| self.what(&all[at]))
    }

    /// What a setting changes, in a line; of the base that it changes nothing.
    pub fn name(&self, setting: &Setting) -> String {
        let change = |at: usize| format!("{}={}", self.axes[at].name, self.axes[at].shown(setting.0[at]));
        let changes: Vec<String> = self.changed(setting).into_iter().map(change).collect();
        if changes.is_empty() { self.of.profile.clone() } else { changes.join(" ") }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::sweep::tune::axis::tests::around;

    /// Two knobs of Linux, one of ours, and a limit.
    pub(in super::super) fn space() -> Space {
        let texts =
            ["vm.swappiness=0,100", "vm.page-cluster=0..3", "tlb.unmap=batch,lazy", "web:memory.high=50%"];
        around("classic", |around| Space {
            axes: around.axes(&texts.map(str::to_owned)).unwrap(),
            of: What { program: "zipf:8M".into(), profile: "classic".into(), ..What::default() },
            groups: around.groups.to_vec(),
        })
    }

    #[test]
    fn setting_runs_the_base_and_what_differs_from_it() {
        let space = space();
        let base = space.base();
        assert_eq!(
            (&space.what(&base).profile[..], &space.what(&base).group[..]),
            ("classic", &["web:memory.high=20000000".to_owned()][..])
        );
        assert_eq!(space.name(&base), "classic");
        let other = Setting(vec![2, 0, 1, 1]);
        let what = space.what(&other);
        assert_eq!(what.profile, "classic+vm.swappiness=100+vm.page-cluster=0+tlb.unmap=lazy");
        assert_eq!(what.group, [format!("web:memory.high={}", 40 << 20)]);
        assert_eq!(space.name(&space.without(&other, &[0, 2])), "vm.page-cluster=0 web:memory.high=40.0 MiB");
        assert_eq!(space.sweep(&[other, base], (1, 2), "run_time").whats.len(), 2, "the base is run once");
    }
}
