//! Lines that make Linux do so, and lines that take it back.

use super::axis::{Axis, Target};
use super::space::{Setting, Space};
use crate::engine::GroupSpec;
use crate::linux::conditions::place;
use mm::knobs::Knob;
use serde::Serialize;

/// Files that lines at boot belong into.
pub const SYSCTL: &str = "/etc/sysctl.d/90-pagefold.conf";
pub const TMPFILES: &str = "/etc/tmpfiles.d/90-pagefold.conf";

/// Lines for a shell of the superuser, and for files.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Lines {
    /// What sets it now; groups keep it over boots.
    pub apply: Vec<String>,
    /// Lines of the file [`SYSCTL`], which set it at each boot.
    pub sysctl_d: Vec<String>,
    /// Lines of the file [`TMPFILES`], which set the rest at each boot.
    pub tmpfiles_d: Vec<String>,
    /// What sets it back to what the base has, now and at each boot.
    pub undo: Vec<String>,
    /// Changes that Linux cannot make.
    pub not_linux: Vec<String>,
}

impl Lines {
    /// The lines for what a setting changes.
    pub fn of(space: &Space, setting: &Setting) -> Lines {
        let mut lines = Lines::default();
        for at in space.changed(setting) {
            let axis = &space.axes[at];
            match axis.target {
                Target::Knob(knob) => lines.knob(knob, axis, setting.0[at]),
                Target::Limit { group, which } => {
                    lines.limit(&space.groups[group].name, which, (axis, setting.0[at]))
                }
            }
        }
        let files = [(&lines.sysctl_d, SYSCTL), (&lines.tmpfiles_d, TMPFILES)];
        let files: Vec<&str> =
            files.iter().filter(|(lines, _)| !lines.is_empty()).map(|(_, file)| *file).collect();
        lines.undo.extend((!files.is_empty()).then(|| format!("rm -f {}", files.join(" "))));
        lines
    }

    fn knob(&mut self, knob: Knob, axis: &Axis, value: usize) {
        let of = |at: usize| place(knob, axis.values[at], "*");
        let Some((file, value)) = of(value) else {
            return self.not_linux.push(format!("{}={}", axis.name, axis.written(value)));
        };
        match sysctl(&file) {
            Some(name) => self.sysctl_d.push(format!("{name} = {value}")),
            None => self.tmpfiles_d.push(format!("w {file} - - - - {value}")),
        }
        self.apply.push(set(&file, &value));
        // A base that Linux does not have cannot be set again.
        self.undo.extend(of(axis.base).map(|(file, value)| set(&file, &value)));
    }

    fn limit(&mut self, group: &str, which: usize, (axis, value): (&Axis, usize)) {
        self.apply.push(set_limit(group, which, axis.values[value]));
        self.undo.push(set_limit(group, which, axis.values[axis.base]));
    }
}

/// The line that makes systemd set the limit of a group whose file is at position `which` of [`GroupSpec::FILES`].
pub fn set_limit(group: &str, which: usize, value: u64) -> String {
    let value = match (GroupSpec::FILES[which], value) {
        ("memory.zswap.writeback", on) => if on == 0 { "no" } else { "yes" }.to_owned(),
        (_, u64::MAX) => "infinity".to_owned(),
        (_, bytes) => bytes.to_string(),
    };
    // A unit's name is the last part of its group's path.
    let unit = group.rsplit('/').next().unwrap_or(group);
    let unit = if unit.contains('.') { unit.to_owned() } else { format!("{unit}.service") };
    format!("systemctl set-property {unit} {}={value}", property(GroupSpec::FILES[which]))
}

/// The name that sysctl has for a file.
fn sysctl(file: &str) -> Option<String> {
    file.strip_prefix("/proc/sys/").map(|name| name.replace('/', "."))
}

/// A line that sets a file, or all files that a pattern names.
fn set(file: &str, value: &str) -> String {
    match sysctl(file) {
        Some(name) => format!("sysctl -w {name}={value}"),
        None if file.contains('*') => format!("echo {value} | tee {file}"),
        None => format!("echo {value} > {file}"),
    }
}

/// What systemd calls a limit of a group.
fn property(file: &str) -> &'static str {
    match file {
        "memory.max" => "MemoryMax",
        "memory.high" => "MemoryHigh",
        "memory.low" => "MemoryLow",
        "memory.min" => "MemoryMin",
        "memory.swap.max" => "MemorySwapMax",
        "memory.zswap.max" => "MemoryZSwapMax",
        "memory.zswap.writeback" => "MemoryZSwapWriteback",
        other => unreachable!("{other} is no limit of a group"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::axis::tests::around;
    use super::*;
    use crate::sweep::What;

    fn lines(base: &str, axes: &[&str], setting: &[usize]) -> Lines {
        let texts: Vec<String> = axes.iter().map(|text| (*text).to_owned()).collect();
        around(base, |around| {
            let of = What { profile: base.to_owned(), ..What::default() };
            let space = Space { axes: around.axes(&texts).unwrap(), of, groups: around.groups.to_vec() };
            Lines::of(&space, &Setting(setting.to_vec()))
        })
    }

    #[test]
    fn each_place_of_linux_has_its_line_and_the_one_that_takes_it_back() {
        let axes = [
            "vm.swappiness=100",
            "queue.read_ahead_kb=16",
            "hugepages-64kB.enabled=always",
            "web:memory.high=50%",
        ];
        let lines = lines("classic", &axes, &[1, 0, 1, 1]);
        assert_eq!(
            lines.apply,
            [
                "sysctl -w vm.swappiness=100",
                "echo 16 | tee /sys/block/*/queue/read_ahead_kb",
                "echo always > /sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled",
                "systemctl set-property web.service MemoryHigh=41943040",
            ]
        );
        assert_eq!(lines.sysctl_d, ["vm.swappiness = 100"]);
        assert_eq!(
            lines.tmpfiles_d,
            [
                "w /sys/block/*/queue/read_ahead_kb - - - - 16",
                "w /sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled - - - - always",
            ]
        );
        assert_eq!(
            lines.undo,
            [
                "sysctl -w vm.swappiness=60",
                "echo 128 | tee /sys/block/*/queue/read_ahead_kb",
                "echo never > /sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled",
                "systemctl set-property web.service MemoryHigh=20000000",
                "rm -f /etc/sysctl.d/90-pagefold.conf /etc/tmpfiles.d/90-pagefold.conf",
            ]
        );
        assert!(lines.not_linux.is_empty());
    }

    #[test]
    fn knobs_of_ours_are_named_as_such() {
        let lines =
            lines("mglru", &["tlb.unmap=lazy", "lru_gen.enabled=0,7", "web:memory.max=50%"], &[1, 0, 0]);
        assert_eq!(lines.not_linux, ["tlb.unmap=lazy"]);
        assert_eq!(lines.apply[0], "echo 0 > /sys/kernel/mm/lru_gen/enabled");
        assert_eq!(lines.undo[0], "echo 7 > /sys/kernel/mm/lru_gen/enabled");
        assert_eq!(lines.undo[1], "systemctl set-property web.service MemoryMax=infinity");
    }

    #[test]
    fn the_base_changes_nothing() {
        assert_eq!(lines("classic", &["vm.swappiness=100"], &[0]), Lines::default());
    }

    #[test]
    fn every_limit_of_a_group_has_a_property() {
        assert!(GroupSpec::FILES.into_iter().all(|file| property(file).starts_with("Memory")));
    }
}
