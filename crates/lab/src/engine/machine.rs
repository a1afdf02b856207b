//! Machines: presets and descriptions in files.

use crate::error::{Error, Result};
use crate::{human, suggest};
use machine_sim::spec::MachineSpec;
use machine_sim::{GroupSpec, RunConfig, SwapSpec};
use mm::units::PAGE_SIZE;
use std::path::Path;

/// The machine that is used if none is named.
pub const DEFAULT_MACHINE: &str = "laptop";

/// Machines with a name, each with one line of help.
pub fn machines() -> Vec<(String, String)> {
    let described = MachineSpec::presets().filter_map(|name| MachineSpec::preset(name).ok());
    described.map(|spec| (spec.name().to_owned(), spec.description().to_owned())).collect()
}

/// A machine to run on.
#[derive(Clone, Debug)]
pub struct Machine {
    pub(super) spec: MachineSpec,
}

impl Machine {
    /// The names of its devices, by number.
    pub fn devices(&self) -> Vec<String> {
        self.spec.devices().iter().map(|device| device.name.clone()).collect()
    }
}

/// The cost of one unit of a kind of work.
#[derive(Clone, Debug)]
pub struct Cost {
    /// The kind of work.
    pub name: String,
    /// Nanoseconds.
    pub nanos: f64,
    /// What one unit is.
    pub help: String,
    /// Where the number comes from.
    pub source: String,
}

impl Machine {
    /// Find a machine by name: a preset, `random:SEED`, `booted:CPUS:NODES:SWAP[:A:B]`, `PRESET:A:B` (memory divided
    /// A:B between two nodes), a file, or one of these with changes, like `laptop+cpus=8+slow=2`.
    pub fn find(name: &str) -> Result<Machine> {
        if let Some((machine, changes)) = name.split_once('+').filter(|_| !Path::new(name).is_file()) {
            let mut spec = Machine::find(machine)?.spec;
            for change in changes.split('+') {
                spec = spec
                    .with_change(change)
                    .map_err(|why| Error::Input(format!("machine '{name}': {why}")))?;
            }
            return Ok(Machine { spec });
        }
        if MachineSpec::presets().any(|preset| preset == name) {
            let spec = MachineSpec::preset(name).map_err(|error| Error::Failed(error.to_string()))?;
            return Ok(Machine { spec });
        }
        if let Some(spec) = MachineSpec::from_random_name(name)
            .or_else(|| MachineSpec::from_booted_name(name))
            .or_else(|| MachineSpec::from_ratio_name(name))
        {
            return Ok(Machine { spec });
        }
        let path = Path::new(name);
        let is_file = name.ends_with(".toml") || path.components().count() > 1 || path.is_file();
        if !is_file {
            return Err(Error::Input(suggest::unknown("machine", name, MachineSpec::presets(), "machines")));
        }
        let text = std::fs::read_to_string(path).map_err(|error| Error::file("read", path, error))?;
        Machine::from_toml(name, &text)
    }

    /// The file that a name is of, or begins with.
    pub fn file(name: &str) -> Option<&str> {
        let file = match name.split_once('+') {
            Some((machine, _)) if !Path::new(name).is_file() => machine,
            _ => name,
        };
        Path::new(file).is_file().then_some(file)
    }

    /// A machine by the name of a preset or a file, and the text of its description.
    pub fn described(name: &str) -> Result<(Machine, String)> {
        let machine = Machine::find(name)?;
        if let Some(text) = MachineSpec::preset_text(name) {
            return Ok((machine, text.to_owned()));
        }
        let path = Path::new(name);
        if !path.is_file() {
            return Err(Error::Input(format!(
                "machine '{name}' has no description; name a preset or a file"
            )));
        }
        let text = std::fs::read_to_string(path).map_err(|error| Error::file("read", path, error))?;
        Ok((machine, text))
    }

    /// Read the description of a machine.
    pub fn from_toml(name: &str, text: &str) -> Result<Machine> {
        let spec = MachineSpec::from_toml(name, text).map_err(|error| Error::Input(error.to_string()))?;
        Ok(Machine { spec })
    }

    /// The same machine without swap space.
    pub fn without_swap(self) -> Machine {
        Machine { spec: self.spec.without_swap() }
    }

    /// Its CPUs.
    pub fn cpus(&self) -> u32 {
        self.spec.cpus() as u32
    }

    /// Refuse a size of memory that the machine cannot have.
    pub fn check_memory(&self, bytes: u64) -> Result<()> {
        let fits = self.spec.clone().with_memory(bytes);
        fits.map(drop).map_err(|error| {
            let what = if bytes < self.memory() {
                "give it more, or choose a smaller machine"
            } else {
                "give it less"
            };
            Error::Input(format!("--{error}; {what} ('pagefold list machines')"))
        })
    }

    /// Its own first swap area, if that is on a device.
    pub fn own_swap(&self) -> Option<SwapSpec> {
        self.spec.device_swap()
    }

    /// Refuse swap areas that the machine cannot have.
    pub fn check_swap(&self, config: &RunConfig) -> Result<()> {
        let spec = config.memory.map_or(Ok(self.spec.clone()), |bytes| self.spec.clone().with_memory(bytes));
        if config.swap.is_empty() {
            return Ok(());
        }
        let fits = spec.and_then(|spec| spec.with_swap(&config.swap));
        fits.map(drop).map_err(|error| Error::Input(format!("--{error}")))
    }

    /// Refuse failures of devices that the machine does not have.
    pub fn check_failures(&self, config: &RunConfig) -> Result<()> {
        let fits = self.spec.clone().with_failures(&config.fail);
        fits.map(drop).map_err(|error| Error::Input(format!("--{error}")))
    }

    /// Refuse control groups that the machine cannot have besides its own.
    pub fn check_groups(&self, groups: &[GroupSpec]) -> Result<()> {
        let all = GroupSpec::of_run(self.spec.groups(), groups);
        all.map(drop).map_err(|why| Error::Input(format!("--group: {why}")))
    }

    /// Bytes of memory by default.
    pub fn memory(&self) -> u64 {
        self.spec.memory()
    }

    /// What it is made of, as names and values for people.
    pub fn facts(&self) -> Vec<(String, String)> {
        let spec = &self.spec;
        let mut facts = vec![
            ("machine".to_owned(), format!("{}: {}", spec.name(), spec.description())),
            ("CPUs".to_owned(), format!("{}, {} GHz", spec.cpus(), spec.cpu().ghz)),
            ("memory".to_owned(), human::bytes(spec.memory() as f64)),
        ];
        let nodes = spec.nodes().iter().enumerate().filter(|_| spec.nodes().len() > 1);
        facts.extend(nodes.map(|(number, node)| {
            let memory = human::bytes(node.memory() as f64);
            (format!("node {number}"), format!("{memory}, {} CPUs, {} ns a read", node.cpus, node.latency_ns))
        }));
        facts.extend(spec.devices().iter().map(|device| {
            let size = human::bytes(device.size.0 as f64);
            let times = format!("{} us a read of a page, {} us a write", device.read_us, device.write_us);
            (device.name.clone(), format!("{size}, {times}"))
        }));
        facts.extend(self.own_swap().map(|area| {
            let (text, size) = (area.to_string(), area.pages(spec.memory()) * PAGE_SIZE);
            let device = text.split(':').next().unwrap_or(&text);
            ("swap".to_owned(), format!("{} on {device}", human::bytes(size as f64)))
        }));
        facts
    }

    /// Instructions of the kernel that a CPU executes in a cycle.
    pub fn kernel_ipc(&self) -> f64 {
        self.spec.costs().kernel_ipc()
    }

    /// The costs of work on it.
    pub fn costs(&self) -> Vec<Cost> {
        let costs = self.spec.costs().rows();
        costs
            .map(|row| Cost {
                name: row.name.to_owned(),
                nanos: row.nanos,
                help: row.help.to_owned(),
                source: row.source.clone(),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_machine_exists_and_every_machine_has_help() {
        assert!(Machine::find(DEFAULT_MACHINE).unwrap().memory() > 0);
        assert!(machines().iter().all(|(name, help)| !name.is_empty() && !help.is_empty()));
        assert_eq!(machines().len(), MachineSpec::presets().count());
    }

    #[test]
    fn unknown_machines_and_sizes_are_refused_in_one_line() {
        for (name, expected) in [
            ("labtop", "did you mean 'laptop'?"),
            ("no/such.toml", "cannot read no/such.toml"),
            ("nosuch.toml", "cannot read nosuch.toml"),
            ("Cargo.toml", "Cargo.toml: TOML parse error"),
        ] {
            let message = Machine::find(name).unwrap_err().to_string();
            assert!(message.contains(expected) && !message.contains('\n'), "{name}: {message}");
        }
        let small = Machine::find(DEFAULT_MACHINE).unwrap().check_memory(4096).unwrap_err();
        assert!(small.to_string().starts_with("--memory: ") && small.exit_code() == 2, "{small}");
    }
}
