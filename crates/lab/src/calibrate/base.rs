//! The machine whose numbers stay where nothing is measured.

use super::quantity::{OnBase, Quantity};
use crate::engine::Machine;
use crate::error::{Error, Result};
use toml::{Table, Value};

/// Costs that a flush on one other CPU has besides the interrupt's delivery.
pub const AROUND_DELIVERY: [&str; 4] = ["ipi_send", "ipi_target", "ipi_receive", "ipi_ack"];

/// The base machine.
pub struct Base {
    name: String,
    machine: Machine,
    table: Table,
}

impl Base {
    /// A preset or a file.
    ///
    /// # Errors
    /// There is no such machine.
    pub fn find(name: &str) -> Result<Base> {
        let (machine, text) = Machine::described(name)?;
        let table = text.parse().map_err(|error| Error::Input(format!("{name}: {error}")))?;
        Ok(Base { name: name.to_owned(), machine, table })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its description.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Its nodes.
    pub fn nodes(&self) -> usize {
        self.table.get("node").and_then(Value::as_array).map_or(0, Vec::len)
    }

    /// The number of the device that holds files.
    pub fn file_device(&self) -> usize {
        let files = self.table.get("storage").and_then(|storage| storage.get("files"));
        let devices = self.table.get("device").and_then(Value::as_array).into_iter().flatten();
        devices.map(|device| device.get("name")).position(|name| name == files).unwrap_or(0)
    }

    /// What a quantity is on it.
    pub fn value(&self, quantity: &Quantity) -> Option<f64> {
        match &quantity.on_base {
            OnBase::Key => self.at(&quantity.key),
            OnBase::Instructions(count) => Some(count / (self.machine.kernel_ipc() * self.at("cpu.ghz")?)),
            OnBase::Costs(names) => Some(sum(&self.machine, names)),
        }
    }

    /// The number at a key.
    fn at(&self, key: &str) -> Option<f64> {
        match key.split('.').collect::<Vec<_>>()[..] {
            ["costs", "kernel_ipc"] => Some(self.machine.kernel_ipc()),
            ["costs", _, name] => Some(sum(&self.machine, &[name])),
            ["node", _, "memory"] => Some(self.machine.memory() as f64),
            _ => number(find(&self.table, key)?),
        }
    }
}

/// The sum of some costs of a machine, in nanoseconds.
pub fn sum(machine: &Machine, names: &[&str]) -> f64 {
    let costs = machine.costs();
    costs.iter().filter(|cost| names.contains(&&*cost.name)).map(|cost| cost.nanos).sum()
}

fn number(value: &Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|number| number as f64))
}

/// The value at a key with dots; numbers are those of entries of arrays.
pub fn find<'a>(table: &'a Table, key: &str) -> Option<&'a Value> {
    let (first, rest) = key.split_once('.').unwrap_or((key, ""));
    let into = |value: &'a Value, step: &str| match value {
        Value::Array(entries) => entries.get(step.parse::<usize>().ok()?),
        other => other.get(step),
    };
    rest.split('.').filter(|step| !step.is_empty()).try_fold(table.get(first)?, into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_the_base_are_found_by_key() {
        let base = Base::find("laptop").unwrap();
        let quantity = |key: &str| Quantity::new("", "", key, "");
        for (key, expected) in [
            ("cpu.ghz", 3.0),
            ("tlb.l2.entries", 1536.0),
            ("node.0.latency_ns", 80.0),
            ("device.0.read_us", 67.0),
            ("costs.work.zero_page", 300.0),
            ("costs.kernel_ipc", 0.56),
            ("node.0.memory", 8.0 * (1u64 << 30) as f64),
        ] {
            assert_eq!(base.value(&quantity(key)), Some(expected), "{key}");
        }
        assert_eq!(base.value(&quantity("cpu.surprise")), None);
        assert_eq!(base.value(&quantity("node.1.latency_ns")), None);
        let call = base.value(&quantity("costs.work.syscall").part(OnBase::Instructions(300.0))).unwrap();
        assert!((call - 178.57).abs() < 0.01, "{call}");
        assert_eq!((base.nodes(), base.file_device()), (1, 0));
    }

    #[test]
    fn machine_without_a_description_is_no_base() {
        for name in ["booted:4:1:128M", "laptop+cpus=8"] {
            let error = Base::find(name).err().expect("it has no text").to_string();
            assert!(error.contains("name a preset or a file"), "{error}");
        }
    }
}
