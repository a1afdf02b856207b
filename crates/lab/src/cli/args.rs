//! The command line, as clap declares it. Help texts live here; meanings are given in the neighbouring modules.

use super::curve::CurveArgs;
use super::doctor::DoctorArgs;
use super::groups::{GroupArg, parse_group};
use super::many::Many;
use super::nodes::NodesArgs;
use super::shell::{CompletionsArgs, ManArgs};
use super::sweep::SweepArgs;
use super::visit::parse_visit;
use crate::engine::{self, Fragmentation, Visit};
use crate::reproduce::parse_scale;
use crate::size::{Memory, parse_bytes};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// See what a memory manager does to your program, on a machine you describe.
#[derive(Debug, Parser)]
#[command(name = "pagefold", version, propagate_version = true, after_help = EXAMPLES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXAMPLES: &str = "\
Examples:
  pagefold compare traces/sqlite.pft --memory 50% --base classic --with classic+vm.swappiness=10
  pagefold run zipf:256M --memory 128M --verify
  pagefold record -o mine.pft -- ./my-program --with its arguments
  pagefold boot zipf:64M --memory 50% --cpus 4
  pagefold list knobs

Exit codes: 0 done; 1 a run failed, and its replay command is printed; 2 bad input; 130 interrupted.";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a program under one profile
    #[command(after_help = "\
Examples:
  pagefold run traces/sqlite.pft --memory 50%
  pagefold run zipf:256M --memory 128M --set vm.swappiness=10 --runs 5 --json
  pagefold run stream:256M --memory 128M --profile-tree --folded stream.folded")]
    Run(RunArgs),
    /// Run a program under several profiles and show what changes against the first
    #[command(after_help = "\
Positive changes are better. All profiles see the same seeds, and the interval is that of the paired difference.

Examples:
  pagefold compare traces/sqlite.pft --memory 50% --base classic --with classic+vm.swappiness=10
  pagefold compare zipf:256M --memory 75% --with classic+vm.swappiness=0 --with classic+vm.swappiness=100 --out result

The simulated machine beside the booted one: pagefold boot zipf:64M --memory 50% --side-by-side")]
    Compare(CompareArgs),
    /// Do a published comparison again, and show the ratios beside the published ones
    #[command(after_help = "\
Memory and files shrink together by the scale. Each reproduction has its own default, of a few minutes on two cores.

Examples:
  pagefold list reproductions
  pagefold reproduce pfn-flush
  pagefold reproduce rmap
  pagefold reproduce pfn-flush --scale 1 --runs 1 --json")]
    Reproduce(ReproduceArgs),
    /// Tell what each part of MGLRU is worth: each left out in turn, each alone
    #[command(after_help = "\
Programs run under classic, under all of MGLRU, without each of seven parts, and with each alone (docs/reproductions/mglru-parts.md).

Examples:
  pagefold parts
  pagefold parts --metric refaults --runs 5
  pagefold parts --program many-groups:32M:100 --program many-groups:32M:1
  pagefold parts --machine no-young-bits.toml --json")]
    Parts(PartsArgs),
    /// Hold policies of deferred flushes against the fewest flushes that can be safe
    #[command(after_help = "\
Rounds are flush requests to other CPUs, receptions the CPUs that flush for one. L1 and L2 are the fewest that can be safe for
what happened in the run itself (docs/bound.md). A policy that flushes less than L1 fails.

Examples:
  pagefold bound traces/sqlite.pft --memory 50%
  pagefold bound zipf:256M --memory 75% --machine icelake-96 --profile classic --profile lazy --json")]
    Bound(BoundArgs),
    /// Hold replacement policies against the fewest refaults that there can be, for many programs and sizes of memory
    #[command(after_help = "\
The fewest are Belady's, for the accesses of the run itself, and those of who knows the future but sees by young bits alone that
uses have ended (docs/optimum.md).

Examples:
  pagefold optimum traces/sqlite.pft
  pagefold optimum traces/*.pft --built-in 32M
  pagefold optimum fio:64M redis:64M --memory 50% --profile classic --profile mglru --json")]
    Optimum(OptimumArgs),
    /// Show how a program fares with more and less memory: run time, faults and refaults, with a picture
    #[command(after_help = "\
Examples:
  pagefold curve traces/sqlite.pft --svg sqlite.svg
  pagefold curve redis:64M --memory 50% --memory 75% --memory 100% --profile classic --profile lazy --json")]
    Curve(CurveArgs),
    /// Run a program under all combinations of what a file varies; what was interrupted goes on
    #[command(after_help = "\
The directory keeps a line for each run (runs.jsonl), so that whatever ends the command costs no finished run: the same command goes
on. In the end, or after Ctrl-C, there are result.txt, .json, .csv (all that was measured, a line for each run) and .svg (docs/sweeps.md).

Examples:
  pagefold sweep examples/sweeps/luf.toml --out lazy
  pagefold sweep mine.toml --out mine --jobs 8 --json")]
    Sweep(SweepArgs),
    /// Run a program on the booted machine: the same memory manager as a kernel under QEMU
    #[command(after_help = "\
The kernel is built on first use ('cargo xtask kernel' builds it anew), and runs under qemu-system-x86_64 (Debian: apt-get install qemu-system-x86). Instead of
a program, 'selftest', 'conformance' and 'scenario:NAME' let the kernel test itself (docs/boot.md).

Examples:
  pagefold boot zipf:64M --memory 50% --profile lazy --cpus 4
  pagefold boot zipf:64M --memory 50% --side-by-side
  pagefold boot --bench")]
    Boot(BootArgs),
    /// Run a program on Linux under QEMU, and set our counts beside Linux's
    #[command(after_help = "\
The kernel is --kernel, else the newest of /boot that can be read, else the one that 'cargo xtask linux' unpacks without installing it;
the same task builds the guest's first process. Needs qemu-system-x86_64 and mke2fs (Debian: apt-get install qemu-system-x86
e2fsprogs). See docs/truth.md.

Examples:
  pagefold linux zipf:64M --memory 50%
  pagefold linux traces/sqlite.pft --memory 50% --profile mglru --runs 3 --json
  pagefold linux zipf-file:64M --memory 50% --set queue.read_ahead_kb=0 --append cgroup_disable=memory")]
    Linux(LinuxArgs),
    /// Compare many programs and settings with Linux, and write the document that says how true our counts are
    /// (docs/truth.md)
    #[command(after_help = "\
It takes hours. A run that was interrupted goes on where it stopped. From the checkout's root, for the recorded programs' sake.

Example:
  pagefold truth target/truth --document docs/truth.md")]
    Truth(TruthArgs),
    /// Show the result in a run directory again
    #[command(after_help = "Example:\n  pagefold report result --all --svg result.svg")]
    Report(ReportArgs),
    /// Record a real program as a trace (needs QEMU's user-mode emulator)
    #[command(after_help = "\
The program runs under qemu-x86_64 (Debian: apt-get install qemu-user) and should be a small, complete piece of work.

Example:
  pagefold record -o sort.pft -- sort --parallel=2 words.txt")]
    Record(RecordArgs),
    /// Turn another tool's recording into a trace
    #[command(after_help = "\
Example:
  valgrind --tool=lackey --trace-mem=yes --log-file=ls.lackey ls
  pagefold import --format lackey ls.lackey -o ls.pft")]
    Import(ImportArgs),
    /// Tell what is in a trace: processes, threads, maps, footprint, working-set curve
    #[command(after_help = "Example:\n  pagefold info traces/sqlite.pft")]
    Info(InfoArgs),
    /// List what there is to choose from
    #[command(
        after_help = "Examples:\n  pagefold list knobs\n  pagefold list costs --machine my-server.toml"
    )]
    List(ListArgs),
    /// Tell what of QEMU, a Linux kernel and other tools is here, which commands need it, and how to get it
    #[command(after_help = "Example:\n  pagefold doctor")]
    Doctor(DoctorArgs),
    /// Print completions for a shell
    #[command(
        after_help = "Example:\n  pagefold completions bash > ~/.local/share/bash-completion/completions/pagefold"
    )]
    Completions(CompletionsArgs),
    /// Write man pages, one for each command
    #[command(after_help = "Example:\n  pagefold man ~/.local/share/man/man1")]
    Man(ManArgs),
}

/// What `run` takes.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The profile: NAME or NAME+KNOB=VALUE+... ('pagefold list profiles', 'list knobs')
    #[arg(long, default_value = "classic", value_name = "PROFILE")]
    pub profile: String,
    /// Also show where CPU time went, function by function; --json carries the tree too
    #[arg(long)]
    pub profile_tree: bool,
    /// Also show the generations of MGLRU, as Linux's file lru_gen does, at a TIME of the run (like 100ms) or at the
    /// `end`, after COMMANDS like '+ 0 0 3' (docs/mglru.md); may be given several times
    #[arg(long, value_name = "TIME[:COMMANDS]", value_parser = parse_visit)]
    pub lru_gen: Vec<Visit>,
    /// Show them as lru_gen_full does
    #[arg(long, requires = "lru_gen")]
    pub lru_gen_full: bool,
    /// Also write where CPU time went as folded stacks, for flame graphs; what FILE held is replaced
    #[arg(long, value_name = "FILE")]
    pub folded: Option<PathBuf>,
    /// Runs with seeds SEED, SEED+1, ...
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub runs: u32,
    /// What both have in common.
    #[command(flatten)]
    pub common: ExperimentArgs,
}

impl RunArgs {
    /// Looks at generations.
    pub fn visits(&self) -> Vec<Visit> {
        self.lru_gen.iter().map(|visit| Visit { full: self.lru_gen_full, ..visit.clone() }).collect()
    }
}

/// What `compare` takes.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// The profile to compare with: NAME or NAME+KNOB=VALUE+... ('pagefold list profiles', 'list knobs')
    #[arg(long, default_value = "classic", value_name = "PROFILE")]
    pub base: String,
    /// A profile to compare; may be given several times
    #[arg(long = "with", required = true, value_name = "PROFILE")]
    pub others: Vec<String>,
    /// Runs of each profile, with seeds SEED, SEED+1, ...
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub runs: u32,
    /// Also draw the changes as an SVG picture; what FILE held is replaced
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// What both have in common.
    #[command(flatten)]
    pub common: ExperimentArgs,
}

/// What `reproduce` takes.
#[derive(Debug, Args)]
pub struct ReproduceArgs {
    /// Which ('pagefold list reproductions')
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Share of the published measurement's memory and files, or of its time, up to 1, like 1/16 [default: the
    /// reproduction's own]
    #[arg(long, value_name = "SHARE", value_parser = parse_scale)]
    pub scale: Option<f64>,
    /// Runs of each profile on each machine, with seeds SEED, SEED+1, ...; if not given, mostly 5
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub runs: Option<u32>,
    /// Keep runs in this directory as they end, and the result; who is interrupted goes on with the same command
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// With which seeds, and how to show it.
    #[command(flatten)]
    pub many: Many,
}

/// What `parts` takes.
#[derive(Debug, Args)]
pub struct PartsArgs {
    /// A program; may be given several times [default: 15 applications of --size]
    #[arg(long = "program", value_name = "PROGRAM")]
    pub programs: Vec<String>,
    /// What each of the default programs touches
    #[arg(long, value_name = "BYTES", default_value = "24M")]
    pub size: String,
    /// Memory of the machine: bytes (K, M, G) or a share of what the program has at once at most
    #[arg(long, value_name = "BYTES|SHARE%", default_value = "50%", value_parser = memory_text)]
    pub memory: String,
    /// The machine: a preset ('pagefold list machines') or a description (docs/machines.md)
    #[arg(long, value_name = "PRESET|FILE.toml", default_value = "laptop")]
    pub machine: String,
    /// What is compared: run_time, refaults, or a metric or counter ('pagefold list metrics', 'list counters')
    #[arg(long, value_name = "NAME", default_value = "run_time")]
    pub metric: String,
    /// Runs of each profile, with seeds SEED, SEED+1, ...
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub runs: u32,
    /// With which seeds, and how to show it.
    #[command(flatten)]
    pub many: Many,
}

/// Memory as it is written, if it can be understood.
fn memory_text(text: &str) -> Result<String, String> {
    text.parse::<Memory>().map(|_| text.to_owned())
}

/// What `bound` takes.
#[derive(Debug, Args)]
pub struct BoundArgs {
    /// A profile; may be given several times [default: one for each policy of the knob tlb.unmap]
    #[arg(long = "profile", value_name = "PROFILE")]
    pub profiles: Vec<String>,
    /// What to run, and how.
    #[command(flatten)]
    pub what: WhatArgs,
    /// Print one JSON object (docs/json.md) instead of the table
    #[arg(long)]
    pub json: bool,
}

/// What `optimum` takes.
#[derive(Debug, Args)]
pub struct OptimumArgs {
    /// A trace or a built-in program, as 'pagefold run' takes it; any number
    #[arg(value_name = "PROGRAM")]
    pub programs: Vec<String>,
    /// Also all built-in programs that say something of replacement policies, with footprints of this size
    #[arg(long, value_name = "SIZE")]
    pub built_in: Option<String>,
    /// Memory: bytes (K, M, G) or a share of what the program has at once at most; may be given several times [default:
    /// 25%, 50%, 75%, 90%]
    #[arg(long, value_name = "BYTES|SHARE%", allow_hyphen_values = true)]
    pub memory: Vec<Memory>,
    /// A profile; may be given several times [default: one for each replacement policy]
    #[arg(long = "profile", value_name = "PROFILE")]
    pub profiles: Vec<String>,
    /// The machine: a preset ('pagefold list machines') or a description (docs/machines.md)
    #[arg(long, value_name = "PRESET|FILE.toml", default_value = engine::DEFAULT_MACHINE)]
    pub machine: String,
    /// Set a knob for all profiles; may be given several times
    #[arg(long = "set", value_name = "KNOB=VALUE")]
    pub settings: Vec<String>,
    /// With which seeds, and how to show it.
    #[command(flatten)]
    pub many: Many,
}

/// What every experiment takes whose result can be kept.
#[derive(Debug, Args)]
pub struct ExperimentArgs {
    /// What to run, and how.
    #[command(flatten)]
    pub what: WhatArgs,
    /// Also count the flushes that any safe policy needs (slower; docs/bound.md); one with less fails. Not with
    /// --preempt
    #[arg(long)]
    pub bound: bool,
    /// Also count the fewest refaults that there can be (slower; docs/optimum.md). Not with --preempt
    #[arg(long)]
    pub optimum: bool,
    /// Also count the fewest pages that compactions must move for the blocks that they make, and how much of free
    /// memory is in pieces before and after (slower; docs/compaction.md)
    #[arg(long)]
    pub moves: bool,
    /// Also count what reads of slow memory and moves between tiers cost, and the least that they can (slower;
    /// docs/tiers.md)
    #[arg(long)]
    pub placement: bool,
    /// Begin with free memory in pieces, in a state that is proven (docs/fragmentation.md): frag-50, frag-100, or like
    /// free=60%,unusable=90%,unmovable=20%,reclaimable=5%. Only on the simulated machine; not with --optimum
    #[arg(long, value_name = "STATE", value_parser = str::parse::<Fragmentation>)]
    pub fragment: Option<Fragmentation>,
    /// A control group with limits, like web:memory.max=32M,memory.low=25% (shares are of what the program has at once
    /// at most), and with processes=0, 1-3 or 4- the processes that begin in it, by the order of their start; alone, it
    /// holds the program (docs/groups.md). May be given several times
    #[arg(long = "group", value_name = "NAME[:SETTING=VALUE,...]", value_parser = parse_group)]
    pub groups: Vec<GroupArg>,
    /// Also keep configuration, raw data and result in DIR: a new or empty directory, or that of the same command,
    /// which then goes on
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// How to print the result.
    #[command(flatten)]
    pub style: Style,
}

/// What to run, and how.
#[derive(Debug, Args)]
pub struct WhatArgs {
    /// A trace (FILE.pft), or a built-in program ('pagefold list programs'): NAME, NAME:SIZE or
    /// NAME:SIZE:THREADS, like zipf:256M or stream:1G:8; for applications (docs/programs.md) also with keys and writes,
    /// like redis:1G:gaussian:10%
    #[arg(value_name = "PROGRAM")]
    pub program: String,
    /// Memory of the machine: bytes (K, M, G) or a share of what the program has at once at most, like
    /// 50% [default: all it has]
    #[arg(long, value_name = "BYTES|SHARE%", allow_hyphen_values = true)]
    pub memory: Option<Memory>,
    /// The machine: a preset ('pagefold list machines') or a description (docs/machines.md)
    #[arg(long, value_name = "PRESET|FILE.toml", default_value = engine::DEFAULT_MACHINE)]
    pub machine: String,
    /// Set a knob for all profiles; may be given several times
    #[arg(long = "set", value_name = "KNOB=VALUE")]
    pub settings: Vec<String>,
    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true)]
    pub seed: u64,
    /// Runs at once; never changes results [default: the computer's cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub jobs: Option<u32>,
    /// Check that each page that is accessed is as the last store to it left it: once for each run of accesses to one
    /// page in a row, by a stamp for the whole page (slower; what `checked` and `violations` count)
    #[arg(long)]
    pub verify: bool,
    /// Look for races: stop CPUs in the middle of the memory manager's work, at one in N of its steps, so that others
    /// overtake them. Times then say nothing; not with --bound
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub preempt: Option<u32>,
    /// No progress on standard error
    #[arg(long, short)]
    pub quiet: bool,
    /// Report 0 host seconds, so that equal runs print equal bytes
    #[arg(long, hide = true)]
    pub no_host_time: bool,
}

/// How to print a result.
#[derive(Clone, Copy, Debug, Args)]
pub struct Style {
    /// Print one JSON object (docs/json.md) instead of the table
    #[arg(long)]
    pub json: bool,
    /// Add a row for every other counter that moved
    #[arg(long)]
    pub all: bool,
}

/// What `boot` takes.
#[derive(Debug, Args)]
pub struct BootArgs {
    /// A trace (FILE.pft); a built-in program ('pagefold list programs'): NAME, NAME:SIZE or NAME:SIZE:THREADS; or
    /// selftest, conformance, scenario:NAME
    #[arg(value_name = "PROGRAM", required_unless_present = "bench")]
    pub program: Option<String>,
    /// The profile: NAME or NAME+KNOB=VALUE+... ('pagefold list profiles', 'list knobs')
    #[arg(long, default_value = "classic", value_name = "PROFILE")]
    pub profile: String,
    /// Set a knob; may be given several times
    #[arg(long = "set", value_name = "KNOB=VALUE")]
    pub settings: Vec<String>,
    /// CPUs
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub cpus: u32,
    /// NUMA nodes.
    #[command(flatten)]
    pub nodes: NodesArgs,
    /// Memory for the memory manager: bytes (K, M, G) or a share of what the program has at once at
    /// most, like 50% [default: 256M]
    #[arg(long, value_name = "BYTES|SHARE%", allow_hyphen_values = true)]
    pub memory: Option<Memory>,
    /// A control group with limits, as 'pagefold run' takes it (docs/groups.md); may be given several times
    #[arg(long = "group", value_name = "NAME[:SETTING=VALUE,...]", value_parser = parse_group)]
    pub groups: Vec<GroupArg>,
    /// Swap space; 0: none [default: twice what the program touches, at least 64M]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub swap: Option<u64>,
    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Boots, one after the other, with seeds SEED, SEED+1, ...
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub runs: u32,
    /// Check every load against the last store (what happens unless --no-check is given)
    #[arg(long, overrides_with = "no_check")]
    pub verify: bool,
    /// Do not check loads: plain loads and stores
    #[arg(long, overrides_with = "verify")]
    pub no_check: bool,
    /// Run the CPUs in turn, with time that counts instructions: the same command does the same again
    #[arg(long)]
    pub icount: bool,
    /// Also run the simulated machine of the same shape, and set their counts side by side (docs/boot.md)
    #[arg(long)]
    pub side_by_side: bool,
    /// Count the instructions of the memory manager's operations, beside Linux's
    #[arg(long, conflicts_with_all = ["program", "side_by_side", "runs", "cpus", "nodes", "tiers", "memory", "swap"])]
    pub bench: bool,
    /// The kernel's image [default: $PAGEFOLD_KERNEL, or the checkout's, built on first use]
    #[arg(long, value_name = "FILE")]
    pub kernel: Option<PathBuf>,
    /// The emulator [default: $PAGEFOLD_QEMU, or qemu-system-x86_64]
    #[arg(long, value_name = "FILE")]
    pub qemu: Option<PathBuf>,
    /// Kill a guest that has not ended after so many seconds; it has failed
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub timeout: u64,
    /// Leave out the N-th flush that other CPUs are asked for (only a kernel that is built with this fault can)
    #[arg(long, value_name = "N", hide = true)]
    pub drop: Option<u64>,
    /// How to print the result.
    #[command(flatten)]
    pub style: Style,
    /// Neither progress nor the guest's log on standard error
    #[arg(long, short)]
    pub quiet: bool,
    /// Report 0 host seconds
    #[arg(long, hide = true)]
    pub no_host_time: bool,
}

/// What every boot of Linux takes.
#[derive(Debug, Args)]
pub struct LinuxGuestArgs {
    /// The kernel's image [default: $PAGEFOLD_LINUX, the newest of /boot, or what 'cargo xtask linux' unpacked]
    #[arg(long, value_name = "FILE")]
    pub kernel: Option<PathBuf>,
    /// The kernel's modules [default: lib/modules/VERSION beside the image's folder]
    #[arg(long, value_name = "DIR")]
    pub modules: Option<PathBuf>,
    /// The emulator [default: $PAGEFOLD_QEMU, or qemu-system-x86_64]
    #[arg(long, value_name = "FILE")]
    pub qemu: Option<PathBuf>,
    /// Kill a guest that has not ended after so many seconds; it has failed
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub timeout: u64,
}

/// What `truth` takes.
#[derive(Debug, Args)]
pub struct TruthArgs {
    /// Where results are kept, one file each; what is there already is not made again
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Boots of each program under each policy
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// Only programs whose names contain WORD
    #[arg(long, value_name = "WORD", default_value = "", hide_default_value = true)]
    pub only: String,
    /// Also write the document of all results that are there; what FILE held is replaced
    #[arg(long, value_name = "FILE")]
    pub document: Option<PathBuf>,
    /// What to boot, and how.
    #[command(flatten)]
    pub guest: LinuxGuestArgs,
    /// No progress on standard error
    #[arg(long, short)]
    pub quiet: bool,
}

/// What `linux` takes.
#[derive(Debug, Args)]
pub struct LinuxArgs {
    /// A trace (FILE.pft), or a built-in program ('pagefold list programs'): NAME, NAME:SIZE or NAME:SIZE:THREADS
    #[arg(value_name = "PROGRAM")]
    pub program: String,
    /// The profile, classic or mglru: NAME or NAME+KNOB=VALUE+... ('pagefold list knobs')
    #[arg(long, default_value = "classic", value_name = "PROFILE")]
    pub profile: String,
    /// Set a knob on both sides; may be given several times
    #[arg(long = "set", value_name = "KNOB=VALUE")]
    pub settings: Vec<String>,
    /// CPUs
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub cpus: u32,
    /// NUMA nodes.
    #[command(flatten)]
    pub nodes: NodesArgs,
    /// Memory for the program: bytes (K, M, G) or a share of what it has at once at most, like 50%
    /// [default: 256M]
    #[arg(long, value_name = "BYTES|SHARE%", allow_hyphen_values = true)]
    pub memory: Option<Memory>,
    /// Swap space; 0: none [default: twice what the program touches, at least 64M]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub swap: Option<u64>,
    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Boots, one after the other, with seeds SEED, SEED+1, ...
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// Also run the booted machine (its kernel is built on first use): three machines, one program, one table
    #[arg(long)]
    pub side_by_side: bool,
    /// Run the CPUs in turn, with a nanosecond of time for each instruction, so that what else the computer does counts
    /// for less
    #[arg(long)]
    pub icount: bool,
    /// More words for the kernel's command line
    #[arg(long, value_name = "WORDS", default_value = "", hide_default_value = true)]
    pub append: String,
    /// Also write the description of the simulated machine to FILE; what it held is replaced
    #[arg(long, value_name = "FILE")]
    pub twin: Option<PathBuf>,
    /// What to boot, and how.
    #[command(flatten)]
    pub guest: LinuxGuestArgs,
    /// How to print the result.
    #[command(flatten)]
    pub style: Style,
    /// No progress on standard error
    #[arg(long, short)]
    pub quiet: bool,
    /// Report 0 host seconds
    #[arg(long, hide = true)]
    pub no_host_time: bool,
}

/// What `report` takes.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// A directory made by --out
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// Also draw the changes as an SVG picture; what FILE held is replaced
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// How to print the result.
    #[command(flatten)]
    pub style: Style,
}

/// What `record` takes.
#[derive(Debug, Args)]
pub struct RecordArgs {
    /// The trace to write; what is there is replaced only when the recording has succeeded
    #[arg(long, short, value_name = "FILE")]
    pub output: PathBuf,
    /// Keep the trace even if the program fails
    #[arg(long)]
    pub keep: bool,
    /// Pages that the recorder gathers into runs at once; larger makes smaller traces with a coarser order
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub window: Option<u32>,
    /// End the recording, and the program, after so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub duration: Option<u64>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// Recordings that can be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// valgrind --tool=lackey --trace-mem=yes
    Lackey,
}

/// What `import` takes.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// What wrote the recording
    #[arg(long, value_enum)]
    pub format: Format,
    /// The recording
    #[arg(value_name = "FILE")]
    pub input: PathBuf,
    /// The trace to write; what is there is replaced only when the import has succeeded
    #[arg(long, short, value_name = "FILE")]
    pub output: PathBuf,
}

/// What `info` takes.
#[derive(Debug, Args)]
pub struct InfoArgs {
    /// A trace
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// What can be listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Topic {
    /// Machines that --machine knows by name
    Machines,
    /// Profiles
    Profiles,
    /// Built-in programs
    Programs,
    /// Knobs with default, range and unit
    Knobs,
    /// Counters that --all shows
    Counters,
    /// Rows of every result
    Metrics,
    /// Trace events
    Events,
    /// Published comparisons that can be done again
    Reproductions,
    /// What each kind of work costs on a machine, with the source of the number
    Costs,
}

/// What `list` takes.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// What to list [default: what can be listed]
    #[arg(value_enum)]
    pub topic: Option<Topic>,
    /// The machine whose costs to list
    #[arg(long, value_name = "PRESET|FILE.toml", default_value = engine::DEFAULT_MACHINE)]
    pub machine: String,
    /// Print a JSON array of objects
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_declaration_is_consistent() {
        Cli::command().debug_assert();
    }
}
