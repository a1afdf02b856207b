//! Cells: a program on a machine under a profile, with everything that a run needs but its seed.

use crate::engine::{Fragmentation, GroupSpec, Machine, Options, Program, Run};
use crate::error::Result;
use crate::profile::Profile;
use crate::record::RunRecord;
use crate::replay::shell_line;
use std::sync::Arc;

/// A cell of a grid.
#[derive(Clone)]
pub struct Cell {
    /// The program's name, as `pagefold run` takes it.
    pub program_name: String,
    /// The program.
    pub program: Arc<Program>,
    /// The machine's name, as `pagefold run` takes it.
    pub machine_name: String,
    /// The machine.
    pub machine: Arc<Machine>,
    /// Bytes of memory; `None`: all that the machine has.
    pub memory: Option<u64>,
    /// The state of memory at the start; `None`: the machine's own.
    pub fragment: Option<Fragmentation>,
    /// Control groups besides the machine's own.
    pub groups: Vec<GroupSpec>,
    /// The profile.
    pub profile: Profile,
    /// What else its runs do.
    pub options: Options,
}

impl Cell {
    /// The run with this seed; if it fails, the error names the command that replays it.
    pub fn run(&self, seed: u64) -> Result<RunRecord> {
        self.with_seed(seed).replayable(&self.profile.name, self.replay(seed))
    }

    /// Refuses memory that the machine cannot have.
    pub fn check_memory(&self) -> Result<()> {
        self.memory.map_or(Ok(()), |bytes| self.machine.check_memory(bytes))
    }

    /// The run with this seed, not started.
    pub fn with_seed(&self, seed: u64) -> Run<'_> {
        Run {
            machine: &self.machine,
            program: &self.program,
            memory: self.memory,
            fragment: self.fragment.as_ref(),
            groups: &self.groups,
            knobs: &self.profile.knobs,
            seed,
            options: self.options.clone(),
        }
    }

    /// The command line that replays the run with this seed, under the oracle.
    fn replay(&self, seed: u64) -> String {
        let mut words = ["pagefold", "run", &self.program_name, "--machine", &self.machine_name]
            .map(str::to_owned)
            .to_vec();
        let mut add = |flag: &str, value: Option<String>| {
            words.extend([Some(flag.to_owned()), value].into_iter().flatten())
        };
        if let Some(bytes) = self.memory {
            add("--memory", Some(bytes.to_string()));
        }
        add("--profile", Some(self.profile.name.clone()));
        // Settings of the profile itself are in its name; repeating them changes nothing.
        for (knob, value) in self.profile.settings() {
            add("--set", Some(format!("{knob}={value}")));
        }
        add("--seed", Some(seed.to_string()));
        add("--verify", None);
        if let Some(state) = &self.fragment {
            add("--fragment", Some(state.to_string()));
        }
        for group in &self.groups {
            add("--group", Some(group.to_string()));
        }
        let Options { bound, optimum, moves, placement, .. } = self.options;
        let flags =
            [(bound, "--bound"), (optimum, "--optimum"), (moves, "--moves"), (placement, "--placement")];
        flags.into_iter().filter(|(wanted, _)| *wanted).for_each(|(_, flag)| add(flag, None));
        if let Some(every) = self.options.preempt {
            add("--preempt", Some(every.to_string()));
        }
        shell_line(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::parse_setting;

    #[test]
    fn replay_line_names_the_whole_configuration() {
        let common = [parse_setting("vm.page-cluster=0").unwrap()];
        let mut cell = Cell {
            program_name: "zipf:1M".into(),
            program: Arc::new(Program::find("zipf:1M").unwrap()),
            machine_name: "small".into(),
            machine: Arc::new(Machine::find("small").unwrap()),
            memory: Some(128 << 20),
            fragment: None,
            groups: Vec::new(),
            profile: Profile::parse("classic+vm.swappiness=10", &common).unwrap(),
            options: Options::default(),
        };
        let line = "pagefold run zipf:1M --machine small --memory 134217728 --profile classic+vm.swappiness=10 \
                    --set vm.page-cluster=0 --set vm.swappiness=10 --seed 7 --verify";
        assert_eq!(cell.replay(7), line);
        cell.options =
            Options { bound: true, optimum: true, moves: true, placement: true, ..Options::default() };
        assert_eq!(cell.replay(7), format!("{line} --bound --optimum --moves --placement"));
        cell.options = Options { preempt: Some(8), ..Options::default() };
        cell.fragment = Some("frag-50".parse().unwrap());
        cell.groups = vec![GroupSpec { name: "web".into(), ..GroupSpec::default() }];
        assert_eq!(cell.replay(7), format!("{line} --fragment frag-50 --group web --preempt 8"));
        cell.memory = None;
        assert!(!cell.replay(7).contains("--memory"));
    }
}
