//! Cells: a program on a machine under a profile, with everything that a run needs but its seed.

use crate::engine::{Historian, Machine, Program, RunConfig, SharedTimeline};
use crate::error::Result;
use crate::history::Watched;
use crate::interrupt;
use crate::profile::Profile;
use crate::record::RunRecord;
use crate::replay::{self, shell_line};
use std::sync::{Arc, Mutex};

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
    /// The profile.
    pub profile: Profile,
    /// The name of its column, if that is another than the profile's.
    pub column: Option<String>,
    /// The configuration of its runs, whose seed is replaced.
    pub config: RunConfig,
}

impl Cell {
    /// A cell with every option at its default.
    pub fn new(program: (&str, Arc<Program>), machine: (&str, Arc<Machine>), profile: Profile) -> Cell {
        let mut config = machine.1.config();
        config.knobs.clone_from(&profile.knobs);
        let (program_name, machine_name) = (program.0.to_owned(), machine.0.to_owned());
        Cell {
            program_name,
            program: program.1,
            machine_name,
            machine: machine.1,
            profile,
            column: None,
            config,
        }
    }

    /// Refuse memory that the machine cannot have.
    pub fn check_memory(&self) -> Result<()> {
        self.config.memory.map_or(Ok(()), |bytes| self.machine.check_memory(bytes))
    }

    /// The run with this seed; if it fails, the error names the command that replays it.
    pub fn run(&self, seed: u64) -> Result<RunRecord> {
        self.replayable(seed, self.replay(seed))
    }

    /// The run with this seed; if it fails, the error names `command`, which replays it.
    pub fn replayable(&self, seed: u64, command: String) -> Result<RunRecord> {
        let config = RunConfig { seed, interrupt: Some(interrupt::flag()), ..self.config.clone() };
        self.program.replayable(&config, self.column.as_ref().unwrap_or(&self.profile.name), command)
    }

    /// The run with this seed, watched from beginning to end.
    pub fn watched(&self, seed: u64) -> Result<Watched> {
        let historian = Arc::new(Mutex::new(Historian::default()));
        let mut cell = self.clone();
        cell.config.timeline = Some(SharedTimeline(historian.clone()));
        cell.config.profile = true;
        let RunRecord { profile, profile_tree: tree, .. } = cell.run(seed)?;
        let history = historian.lock().expect("no thread panics while it watches").history();
        Ok(Watched { profile, history, tree })
    }

    /// The command line that replays the run with this seed, under the oracle.
    fn replay(&self, seed: u64) -> String {
        let RunConfig {
            memory,
            fragment,
            vary,
            groups,
            senpai,
            swap,
            bound,
            optimum,
            moves,
            placement,
            preempt,
            ..
        } = &self.config;
        let option = |flag: &str, value: String| [flag.to_owned(), value];
        let mut words = replay::first_words();
        words.extend(["run", &self.program_name, "--machine", &self.machine_name].map(str::to_owned));
        words.extend(memory.iter().flat_map(|bytes| option("--memory", bytes.to_string())));
        words.extend(option("--profile", self.profile.name.clone()));
        // Settings of the profile itself are in its name; repeating them changes nothing.
        let settings = self.profile.settings();
        words.extend(settings.iter().flat_map(|(knob, value)| option("--set", format!("{knob}={value}"))));
        words.extend(option("--seed", seed.to_string()));
        words.push("--verify".to_owned());
        words.extend(fragment.iter().flat_map(|state| option("--fragment", state.to_string())));
        words.extend(
            Some(vary)
                .filter(|vary| !vary.is_nothing())
                .iter()
                .flat_map(|vary| option("--vary", vary.to_string())),
        );
        words.extend(groups.iter().flat_map(|group| option("--group", group.to_string())));
        words.extend(senpai.iter().flat_map(|of| option("--senpai", of.to_string())));
        words.extend(swap.iter().flat_map(|area| option("--swap", area.to_string())));
        let flags =
            [(bound, "--bound"), (optimum, "--optimum"), (moves, "--moves"), (placement, "--placement")];
        words.extend(flags.into_iter().filter(|(wanted, _)| **wanted).map(|(_, flag)| flag.to_owned()));
        words.extend(preempt.iter().flat_map(|every| option("--preempt", every.to_string())));
        shell_line(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::GroupSpec;
    use crate::profile::parse_setting;

    #[test]
    fn replay_line_names_the_whole_configuration() {
        let common = [parse_setting("vm.page-cluster=0").unwrap()];
        let program = Arc::new(Program::find("zipf:1M").unwrap());
        let machine = Arc::new(Machine::find("small").unwrap());
        let profile = Profile::parse("classic+vm.swappiness=10", &common).unwrap();
        let mut cell = Cell::new(("zipf:1M", program), ("small", machine), profile);
        cell.config.memory = Some(128 << 20);
        let line = "pagefold run zipf:1M --machine small --memory 134217728 --profile classic+vm.swappiness=10 \
                    --set vm.page-cluster=0 --set vm.swappiness=10 --seed 7 --verify";
        assert_eq!(cell.replay(7), line);
        let (bound, optimum, moves, placement) = (true, true, true, true);
        let base = cell.config.clone();
        cell.config = RunConfig { bound, optimum, moves, placement, ..base.clone() };
        assert_eq!(cell.replay(7), format!("{line} --bound --optimum --moves --placement"));
        cell.config = RunConfig { preempt: Some(8), ..base };
        cell.config.fragment = Some("frag-50".parse().unwrap());
        cell.config.groups = vec![GroupSpec { name: "web".into(), ..GroupSpec::default() }];
        assert_eq!(cell.replay(7), format!("{line} --fragment frag-50 --group web --preempt 8"));
        cell.config.senpai = Some("web:interval=5ms".parse().unwrap());
        assert!(cell.replay(7).contains("--senpai web:interval=5000us,pressure=10000us,max_probe=1%"));
        cell.config.vary = "arrival=5ms,layout".parse().unwrap();
        assert!(cell.replay(7).contains(" --vary arrival=5ms,layout "));
        cell.config.memory = None;
        assert!(!cell.replay(7).contains("--memory"));
    }
}
