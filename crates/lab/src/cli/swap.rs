//! `swap`: runs a program with each kind of swap.

use super::options::{Many, On, check_seeds, progress_bar, threads};
use super::output;
use crate::cell::Cell;
use crate::engine::{Machine, Program, RunConfig, SwapSpec};
use crate::error::{Error, Result};
use crate::interrupt;
use crate::jobs::{Ended, Job, jobs, run as run_jobs};
use crate::profile::Profile;
use crate::record::RunRecord;
use crate::size::Memory;
use crate::swapping::{Row, Swapping, advice, best};
use clap::Args;
use mm::knobs::{Compressor, Knob};
use std::sync::Arc;
use std::time::Instant;

/// Arguments of `swap`.
#[derive(Debug, Args)]
pub struct SwapArgs {
    /// A trace (FILE.pft), or a built-in program ('pagefold list programs')
    #[arg(value_name = "PROGRAM")]
    program: String,
    /// Memory of the machine: bytes like 256M, or a share of the most that the program has at once, like 50%
    #[arg(long, value_name = "BYTES|PERCENT")]
    memory: Memory,
    /// Values of vm.swappiness
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [60, 180], value_parser = clap::value_parser!(u64).range(0..=200))]
    swappiness: Vec<u64>,
    /// How zram and zswap compress
    #[arg(long, value_name = "NAME", default_value = "lzo-rle", value_parser = ["lzo-rle", "lz4", "zstd"])]
    algorithm: String,
    /// Runs for each kind of swap and swappiness
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,
    /// The profile
    #[arg(long, value_name = "PROFILE", default_value = "classic")]
    profile: String,
    /// The machine and its knobs.
    #[command(flatten)]
    on: On,
    #[command(flatten)]
    many: Many,
}

/// A kind of swap.
struct Kind {
    name: String,
    areas: Vec<SwapSpec>,
    zswap: bool,
    /// Lines for Linux.
    apply: Vec<String>,
}

/// All kinds of swap on a machine whose own area is `disk`.
fn kinds(disk: Option<&SwapSpec>, algorithm: &str) -> Vec<Kind> {
    let area = |text: String| text.parse::<SwapSpec>().expect("the command writes areas that can be read");
    let zram = |share: u32, settings: &str| area(format!("zram:{share}%,algorithm={algorithm}{settings}"));
    let generator = |share: u32| {
        let size = format!("zram-size = ram * {}", f64::from(share) / 100.0);
        [
            "/etc/systemd/zram-generator.conf:",
            "[zram0]",
            &size,
            &format!("compression-algorithm = {algorithm}"),
        ]
        .map(str::to_owned)
        .to_vec()
    };
    let none = ["swapoff -a".to_owned()];
    let mut kinds = vec![Kind {
        name: "none".into(),
        areas: vec![area("zram:0".into())],
        zswap: false,
        apply: none.into(),
    }];
    for share in [25, 50, 100] {
        let (name, areas) = (format!("zram {share}%"), vec![zram(share, "")]);
        kinds.push(Kind { name, areas, zswap: false, apply: generator(share) });
    }
    let Some(disk) = disk else { return kinds };
    let apply = ["enabled=Y", &format!("compressor={algorithm}")].map(|set| {
        let (name, value) = set.split_once('=').expect("a setting has a value");
        format!("echo {value} > /sys/module/zswap/parameters/{name}")
    });
    let on_disk =
        |name: &str, zswap, apply| Kind { name: name.into(), areas: vec![disk.clone()], zswap, apply };
    kinds.insert(1, on_disk("disk", false, Vec::new()));
    kinds.push(on_disk("zswap, disk", true, apply.into()));
    let (areas, apply) = (vec![zram(50, ",priority=100"), disk.clone()], generator(50));
    kinds.push(Kind { name: "zram 50%, disk".into(), areas, zswap: false, apply });
    kinds
}

/// `pagefold swap`.
pub(super) fn swap(args: &SwapArgs) -> Result<()> {
    check_seeds(args.many.seed, args.runs)?;
    let profiles = Profile::parse_all(std::slice::from_ref(&args.profile), &args.on.settings)?;
    let machine = Arc::new(Machine::find(&args.on.machine)?);
    let program = Arc::new(Program::find(&args.program)?);
    let memory = args.memory.resolve(program.peak_live());
    machine.check_memory(memory)?;
    let compressor = Compressor::WORDS.iter().position(|&word| word == args.algorithm);
    let compressor = compressor.expect("the option takes these words only") as u64;
    let kinds = kinds(machine.own_swap().as_ref(), &args.algorithm);
    let cells: Vec<Cell> = kinds
        .iter()
        .flat_map(|kind| args.swappiness.iter().map(move |&swappiness| (kind, swappiness)))
        .map(|(kind, swappiness)| {
            let program = (&args.program[..], program.clone());
            let mut cell = Cell::new(program, (&args.on.machine, machine.clone()), profiles[0].clone());
            let more = [
                (Knob::Swappiness, swappiness),
                (Knob::ZswapEnabled, u64::from(kind.zswap)),
                (Knob::ZswapCompressor, compressor),
            ];
            let (swap, knobs) = (kind.areas.clone(), [&cell.config.knobs[..], &more].concat());
            cell.config = RunConfig { memory: Some(memory), swap, contents: true, knobs, ..cell.config };
            cell
        })
        .collect();
    cells.iter().try_for_each(|cell| machine.check_swap(&cell.config))?;
    interrupt::install()?;
    let start = Instant::now();
    let runs = measure(cells, args)?;
    let mut rows = Vec::new();
    for (at, kind) in kinds.iter().enumerate() {
        for (of, &swappiness) in args.swappiness.iter().enumerate() {
            let cell = at * args.swappiness.len() + of;
            let mine: Vec<_> = runs.iter().filter(|run| run.0 == cell).map(|run| run.1.clone()).collect();
            rows.push(Row::new(&kind.name, swappiness, &mine));
        }
    }
    let best = best(&rows);
    let apply = best.map(|at| {
        let swappiness = format!("sysctl vm.swappiness={}", rows[at].swappiness);
        [&[swappiness], &kinds[at / args.swappiness.len()].apply[..]].concat()
    });
    let swapping = Swapping {
        program: args.program.clone(),
        machine: args.on.machine.clone(),
        memory,
        seed: args.many.seed,
        runs: args.runs,
        advice: advice(&rows),
        best,
        apply: apply.unwrap_or_default(),
        rows,
        host_seconds: args.many.host_seconds(start),
    };
    output::show(&swapping, args.many.running.json)
}

/// Do all runs, in the order of cells and seeds. `None`: the program ran out of memory.
fn measure(cells: Vec<Cell>, args: &SwapArgs) -> Result<Vec<(usize, Option<RunRecord>)>> {
    let all = jobs(cells.len(), args.many.seed, args.runs);
    let bar = progress_bar(all.len(), args.many.running.quiet);
    let run = move |job: Job| match cells[job.cell].run(job.seed) {
        Ok(record) => Ok((job.cell, Some(record))),
        // The input was good: what a run refuses later is too little memory.
        Err(Error::Input(_)) => Ok((job.cell, None)),
        Err(error) => Err(error),
    };
    let threads = threads(args.many.running.jobs);
    let (records, ended) = run_jobs(all, threads, run, interrupt::requested, |done| {
        bar.set_position(done.len() as u64);
        Ok(())
    })?;
    bar.finish_and_clear();
    match ended {
        Ended::Interrupted => Err(Error::Interrupted("interrupted".to_owned())),
        _ => Ok(records),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_a_disk_for_swap_has_the_kinds_in_memory_only() {
        let names = |disk: Option<&SwapSpec>| -> Vec<String> {
            kinds(disk, "zstd").into_iter().map(|kind| kind.name).collect()
        };
        assert_eq!(names(None), ["none", "zram 25%", "zram 50%", "zram 100%"]);
        let disk = "nvme0:8G".parse().unwrap();
        let all = ["none", "disk", "zram 25%", "zram 50%", "zram 100%", "zswap, disk", "zram 50%, disk"];
        assert_eq!(names(Some(&disk)), all);
    }
}
