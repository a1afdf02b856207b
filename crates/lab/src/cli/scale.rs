//! `scale`: runs a program with more and more tasks, each on a CPU of its own.

use super::options::{Many, On, check_seeds, progress_bar, threads};
use super::output;
use crate::document::Document;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::jobs::{Ended, Job, jobs, run as run_jobs};
use crate::profile::Profile;
use crate::record::RunRecord;
use crate::scale::{Scale, rows};
use crate::size::parse_bytes;
use crate::sweep::{Catalog, Sweep, What};
use clap::Args;
use program::builtin::WillItScale;
use std::path::PathBuf;
use std::time::Instant;

/// Arguments of `scale`.
#[derive(Debug, Args)]
pub struct ScaleArgs {
    /// A built-in program that takes a number of tasks ('pagefold list programs'), like page_fault1_threads
    #[arg(value_name = "PROGRAM")]
    program: String,
    /// Bytes of each task
    #[arg(long, value_name = "BYTES", default_value = "4M", value_parser = parse_bytes)]
    size: u64,
    /// Numbers of tasks [default: 1, 2, 4, ... up to the CPUs of the machine]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=512))]
    cpus: Vec<u32>,
    /// The profile
    #[arg(long, value_name = "PROFILE", default_value = "classic")]
    profile: String,
    /// Runs for each number
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,
    /// The machine and its knobs.
    #[command(flatten)]
    on: On,
    /// Also draw it as an SVG picture; an existing FILE is replaced
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    many: Many,
}

/// `pagefold scale`.
pub(super) fn scale(args: &ScaleArgs) -> Result<()> {
    check_seeds(args.many.seed, args.runs)?;
    if args.program.contains(':') {
        return Err(Error::input("PROGRAM: only its name; --size and --cpus tell the rest"));
    }
    Profile::parse_all(std::slice::from_ref(&args.profile), &args.on.settings)?;
    let mut catalog = Catalog::default();
    let most = catalog.machine(&args.on.machine)?.cpus();
    let cpus = numbers(&args.cpus, most)?;
    let names =
        cpus.iter().map(|&tasks| named(&args.program, args.size, tasks)).collect::<Result<Vec<_>>>()?;
    let seeds = (args.many.seed, args.runs);
    let sweep = Sweep::product([("program", names.clone())], seeds, &["run_time"], |[at]| What {
        program: names[at].clone(),
        machine: args.on.machine.clone(),
        set: args.on.settings.clone(),
        profile: args.profile.clone(),
        ..What::default()
    });
    let cells = catalog.cells(&sweep).map_err(|(_, error)| error)?;
    if let Some(path) = &args.svg {
        output::check_beside(path, args.many.running.json)?;
    }
    interrupt::install()?;
    let start = Instant::now();
    let all = jobs(cells.len(), args.many.seed, args.runs);
    let bar = progress_bar(all.len(), args.many.running.quiet);
    let run = move |job: Job| cells[job.cell].run(job.seed).map(|record| (job.cell, record));
    let (records, ended) =
        run_jobs(all, threads(args.many.running.jobs), run, interrupt::requested, |done| {
            bar.set_position(done.len() as u64);
            Ok(())
        })?;
    bar.finish_and_clear();
    if ended == Ended::Interrupted {
        return Err(Error::Interrupted("interrupted".to_owned()));
    }
    if records.iter().any(|(_, record)| record.work.progress == 0) {
        let program = &args.program;
        return Err(Error::Input(format!("{program}: a run counts no units of work, so it has no rate")));
    }
    let timed = WillItScale::list().any(|(timed, _)| timed == args.program);
    let of = |wanted: u32| -> Vec<&RunRecord> {
        let cell = cpus.iter().position(|&cpus| cpus == wanted);
        records.iter().filter(|(at, _)| Some(*at) == cell).map(|(_, record)| record).collect()
    };
    let scale = Scale {
        program: args.program.clone(),
        machine: args.on.machine.clone(),
        profile: args.profile.clone(),
        seed: args.many.seed,
        runs: args.runs,
        rows: rows(&cpus, timed.then_some(WillItScale::TIME), of),
        host_seconds: args.many.host_seconds(start),
    };
    if !args.svg.as_deref().is_some_and(output::is_stdout) {
        output::show(&scale, args.many.running.json)?;
    }
    if let Some((path, picture)) = args.svg.as_ref().zip(scale.svg()) {
        output::save(path, &picture)?;
    }
    Ok(())
}

/// The program with `tasks` tasks of `size` bytes each.
fn named(program: &str, size: u64, tasks: u32) -> Result<String> {
    let bytes = size.checked_mul(u64::from(tasks));
    let bytes = bytes.ok_or_else(|| Error::Input(format!("--size {size}: too much for {tasks} tasks")))?;
    Ok(format!("{program}:{bytes}:{tasks}"))
}

/// Numbers of tasks, ascending; a machine has `most` CPUs.
fn numbers(given: &[u32], most: u32) -> Result<Vec<u32>> {
    if let Some(&cpus) = given.iter().find(|&&cpus| cpus > most) {
        return Err(Error::Input(format!("--cpus {cpus}: the machine has {most}; PRESET+cpus=N has more")));
    }
    let mut cpus = match given {
        [] => (0..).map(|power| 1 << power).take_while(|&cpus| cpus < most).chain([most]).collect(),
        given => given.to_vec(),
    };
    cpus.sort_unstable();
    cpus.dedup();
    Ok(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_tasks_cannot_have_together_are_refused() {
        assert_eq!(named("mmap1_threads", 4096, 3).unwrap(), "mmap1_threads:12288:3");
        assert!(named("mmap1_threads", u64::MAX / 2, 3).is_err());
    }

    #[test]
    fn numbers_of_tasks_double_up_to_the_machines_cpus() {
        assert_eq!(numbers(&[], 6).unwrap(), [1, 2, 4, 6]);
        assert_eq!(numbers(&[], 8).unwrap(), [1, 2, 4, 8]);
        assert_eq!(numbers(&[], 1).unwrap(), [1]);
        assert_eq!(numbers(&[4, 2, 4], 8).unwrap(), [2, 4]);
        assert!(numbers(&[9], 8).is_err());
    }
}
