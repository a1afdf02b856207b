//! From what a sweep runs to cells that are ready to run.

use super::plan::{Sweep, What};
use crate::cell::Cell;
use crate::engine::{GroupSpec, Machine, Program, RunConfig, Senpai, SwapSpec, Vary};
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
    /// By their names, where copies of traces and machines' descriptions are.
    copies: BTreeMap<String, String>,
}

impl Catalog {
    /// One that reads copies of files: by the names of the files, where they are.
    pub fn of_copies(copies: BTreeMap<String, String>) -> Catalog {
        Catalog { copies, ..Catalog::default() }
    }

    /// The machine of this name.
    pub fn machine(&mut self, name: &str) -> Result<Arc<Machine>> {
        let copies = &self.copies;
        shared(&mut self.machines, name, |name| Machine::find(&located(copies, name)))
    }

    /// The program of this name.
    pub fn program(&mut self, name: &str) -> Result<Arc<Program>> {
        let copies = &self.copies;
        shared(&mut self.programs, name, |name| Program::find(&located(copies, name)))
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

    /// The cell of one run.
    pub fn cell(&mut self, what: &What) -> Result<Cell> {
        let machine = self.machine(&what.machine)?;
        let program = self.program(&what.program)?;
        let memory: Option<Memory> =
            what.memory.as_deref().map(str::parse).transpose().map_err(bad_memory)?;
        let memory = memory.map(|memory| memory.resolve(program.peak_live()));
        let settings = what.set.iter().map(|text| parse_setting(text)).collect::<Result<Vec<_>>>()?;
        let swap = what.swap.iter().map(|text| text.parse()).collect::<Result<Vec<SwapSpec>, _>>();
        let swap = swap.map_err(|why| Error::Input(format!("swap: {why}")))?;
        let groups = what.group.iter().map(|text| text.parse()).collect::<Result<Vec<GroupSpec>, _>>();
        let groups = groups.map_err(|why| Error::Input(format!("group: {why}")))?;
        machine.check_groups(&groups)?;
        let senpai = what.senpai.as_deref().map(str::parse::<Senpai>).transpose();
        let senpai = senpai.map_err(|why| Error::Input(format!("senpai: {why}")))?;
        let fragment = what.fragment.as_deref().map(str::parse).transpose().map_err(Error::Input)?;
        let vary = what.vary.as_deref().map(str::parse::<Vary>).transpose();
        let vary = vary.map_err(|why| Error::Input(format!("vary: {why}")))?.unwrap_or_default();
        let profile = Profile::parse(&what.profile, &settings)?;
        let mut cell = Cell::new((&what.program, program), (&what.machine, machine), profile);
        cell.config = RunConfig {
            memory,
            fragment,
            vary,
            contents: !swap.is_empty(),
            swap,
            groups,
            senpai,
            verify: what.verify,
            ..cell.config
        };
        cell.machine.check_swap(&cell.config)?;
        Ok(cell)
    }
}

/// A name with the copy of the file that it is or begins with.
fn located(copies: &BTreeMap<String, String>, name: &str) -> String {
    let files = [Some(name), name.split_once('+').map(|(file, _)| file)];
    let copy = |file: &str| Some(copies.get(file)?.clone() + &name[file.len()..]);
    files.into_iter().flatten().find_map(copy).unwrap_or_else(|| name.to_owned())
}

fn bad_memory(why: String) -> Error {
    Error::Input(format!("memory: {why}"))
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
