//! From what a sweep runs to cells that are ready to run.

use super::plan::{Sweep, What};
use crate::cell::Cell;
use crate::engine::{Machine, Options, Program};
use crate::error::{Error, Result};
use crate::profile::{Profile, parse_setting};
use crate::size::Memory;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Machines and programs by name: cells that name the same share one.
#[derive(Default)]
pub struct Catalog {
    machines: BTreeMap<String, Arc<Machine>>,
    programs: BTreeMap<String, Arc<Program>>,
}

impl Catalog {
    /// The machine of this name.
    pub fn machine(&mut self, name: &str) -> Result<Arc<Machine>> {
        shared(&mut self.machines, name, Machine::find)
    }

    /// The program of this name.
    pub fn program(&mut self, name: &str) -> Result<Arc<Program>> {
        shared(&mut self.programs, name, Program::find)
    }

    /// The cells of a sweep, in the order of [`Sweep::whats`]; an error comes with the index of what is wrong.
    pub fn cells(&mut self, sweep: &Sweep) -> Result<Vec<Cell>, (usize, Error)> {
        sweep
            .whats
            .iter()
            .enumerate()
            .map(|(at, what)| self.cell(what).map_err(|error| (at, error)))
            .collect()
    }

    fn cell(&mut self, what: &What) -> Result<Cell> {
        let machine = self.machine(&what.machine)?;
        let program = self.program(&what.program)?;
        let memory = what.memory.as_ref().map(|text| {
            let memory: Memory = text.parse().map_err(|why| Error::Input(format!("memory: {why}")))?;
            Ok(memory.resolve(program.peak_live()))
        });
        let settings = what.set.iter().map(|text| parse_setting(text)).collect::<Result<Vec<_>>>()?;
        let fragment = what.fragment.as_deref().map(|state| state.parse().map_err(Error::Input));
        Ok(Cell {
            program_name: what.program.clone(),
            program,
            machine_name: what.machine.clone(),
            machine,
            memory: memory.transpose()?,
            fragment: fragment.transpose()?,
            groups: Vec::new(),
            profile: Profile::parse(&what.profile, &settings)?,
            options: Options { verify: what.verify, ..Options::default() },
        })
    }
}

fn shared<T>(
    known: &mut BTreeMap<String, Arc<T>>,
    name: &str,
    find: impl Fn(&str) -> Result<T>,
) -> Result<Arc<T>> {
    if let Some(found) = known.get(name) {
        return Ok(found.clone());
    }
    let found = Arc::new(find(name)?);
    known.insert(name.to_owned(), found.clone());
    Ok(found)
}
