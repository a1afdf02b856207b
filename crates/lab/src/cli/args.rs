//! The commands, as clap declares them. Each command declares its own arguments.

use super::boot::BootArgs;
use super::bound::BoundArgs;
use super::calibrate::CalibrateArgs;
use super::curve::CurveArgs;
use super::doctor::DoctorArgs;
use super::experiment::{CompareArgs, RunArgs};
use super::explain::ExplainArgs;
use super::importing::ImportArgs;
use super::linux::LinuxArgs;
use super::list::ListArgs;
use super::need::NeedArgs;
use super::optimum::OptimumArgs;
use super::parts::PartsArgs;
use super::report::ReportArgs;
use super::reproduce::ReproduceArgs;
use super::scale::ScaleArgs;
use super::shell::{CompletionsArgs, ManArgs};
use super::swap::SwapArgs;
use super::sweep::SweepArgs;
use super::tracing::{InfoArgs, RecordArgs};
use super::truth::TruthArgs;
use super::tune::TuneArgs;
use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// See what a memory manager does to your program, on a machine that you describe.
#[derive(Debug, Parser)]
#[command(name = "pagefold", version, propagate_version = true, after_help = EXAMPLES)]
pub struct Cli {
    /// Build this command with the replacement policy of the crate in DIR, as the profile 'custom' (docs/policies.md)
    #[arg(long, value_name = "DIR")]
    pub policy_crate: Option<PathBuf>,
    /// The command.
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

Exit codes: 0 success; 1 a run failed (its replay command is printed) or a write failed; 2 bad input; 130 interrupted.";

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a program under one profile
    #[command(after_help = "\
Examples:
  pagefold run traces/sqlite.pft --memory 50%
  pagefold run zipf:256M --memory 128M --set vm.swappiness=10 --runs 5 --json
  pagefold run stream:256M --memory 128M --profile-tree --folded stream.folded
  pagefold run traces/sqlite.pft --memory 30% --html sqlite.html
  pagefold run traces/sqlite.pft --memory 30% --perfetto sqlite.perfetto")]
    Run(RunArgs),
    /// Run a program under several profiles and show the changes against the first
    #[command(after_help = "\
Positive changes are better. All profiles see the same seeds, and the interval is that of the paired difference.

Examples:
  pagefold compare traces/sqlite.pft --memory 50% --base classic --with classic+vm.swappiness=10
  pagefold compare zipf:256M --memory 75% --with classic+vm.swappiness=0 --with classic+vm.swappiness=100 --out result

Simulated and booted machine side by side: pagefold boot zipf:64M --memory 50% --side-by-side")]
    Compare(CompareArgs),
    /// Explain why a setting makes a program faster or slower: by what its tasks' time was, cause by cause
    #[command(after_help = "\
The time of the program's tasks is divided into what they did and what they waited for: faults on which file, which device, which
lock, reclaim, flushes, other tasks (docs/explain.md). Each sentence names its row of the table.

Examples:
  pagefold explain traces/sqlite.pft --memory 50% --with classic+vm.swappiness=10
  pagefold explain zipf:256M --memory 75% --base mglru --with lazy --runs 5
  pagefold explain traces/redis.pft --memory 60% --with-machine laptop+slow=2 --json")]
    Explain(ExplainArgs),
    /// Repeat a published comparison, and show the ratios next to the published ones
    #[command(after_help = "\
The scale shrinks memory and files together. Each reproduction has a default; those of
pfn-flush and rmap take less than a minute on two cores, others a few minutes.

Examples:
  pagefold list reproductions
  pagefold reproduce pfn-flush
  pagefold reproduce rmap
  pagefold reproduce all --out all
  pagefold reproduce pfn-flush --scale 1 --runs 1 --json")]
    Reproduce(ReproduceArgs),
    /// Measure what each part of MGLRU is worth: each left out, and each alone
    #[command(after_help = "\
Programs run under classic, under all of MGLRU, without each of seven parts, and with each alone (docs/reproductions/mglru-parts.md).

Examples:
  pagefold parts
  pagefold parts --metric refaults --runs 5
  pagefold parts --program many-groups:32M:100 --program many-groups:32M:1
  pagefold parts --machine no-young-bits.toml --json")]
    Parts(PartsArgs),
    /// Compare policies for deferred flushes with the fewest flushes that can be safe
    #[command(after_help = "\
Rounds are flush requests to other CPUs, receptions the CPUs that flush for them. L1 and L2 are the fewest that can be safe for
the run itself (docs/bound.md). A policy that flushes less than L1 fails.

Examples:
  pagefold bound traces/sqlite.pft --memory 50%
  pagefold bound zipf:256M --memory 75% --machine icelake-96 --profile classic --profile lazy --json")]
    Bound(BoundArgs),
    /// Compare replacement policies with the fewest refaults that are possible, for many programs and sizes of memory
    #[command(after_help = "\
There are two optima for the accesses of the run itself: Belady's, and that of a policy that knows the future but learns only from
young bits that uses have ended (docs/optimum.md).

Examples:
  pagefold optimum traces/sqlite.pft
  pagefold optimum traces/*.pft --built-in 32M
  pagefold optimum fio:64M redis:64M --memory 50% --profile classic --profile mglru --json")]
    Optimum(OptimumArgs),
    /// Show run time, faults and refaults of a program with more and less memory, with a picture
    #[command(after_help = "\
Examples:
  pagefold curve traces/sqlite.pft --svg sqlite.svg
  pagefold curve redis:64M --memory 50% --memory 75% --memory 100% --profile classic --profile lazy --json")]
    Curve(CurveArgs),
    /// Find how much memory a program needs: the smallest memory.high of its control group at which it is at most 1, 5
    /// and 10 % slower, and what a controller of the group's pressure (senpai) arrives at
    #[command(after_help = "\
A size is enough if the 95 % interval of the slow-down is, and if all larger sizes that were measured are, too (docs/pressure.md).

Examples:
  pagefold need traces/sqlite.pft
  pagefold need mine.pft --group system.slice/web --slower 2,20 --runs 10 --out need --json")]
    Need(NeedArgs),
    /// Compare kinds of swap: none, a disk, zram of several sizes, zswap, and zram before a disk
    #[command(after_help = "\
Pages of zeroes are written nowhere, in any row (docs/compressed-swap.md).

Examples:
  pagefold swap traces/redis.pft --memory 60%
  pagefold swap zipf:256M --memory 80% --swappiness 0,60,100,180 --algorithm zstd --json")]
    Swap(SwapArgs),
    /// Search the values of knobs that suit a program, judge them with seeds that the search did not see, and print the
    /// lines that apply them on Linux
    #[command(after_help = "\
The search (an optimiser of the crate tpe) has half of the seeds. On the other half, the best setting is compared with the base, each
of its changes is left out, and what adds nothing is put back (docs/tune.md).

Examples:
  pagefold tune traces/sqlite.pft --memory 50%
  pagefold tune mine.pft --memory 1G --knob vm.swappiness=0..200 --knob lru_gen.enabled=0,7 --budget 200 --out tuned
  pagefold tune redis:64M --group web:memory.max=75% --knob web:memory.high=25%..75% --metric operation_time_p99")]
    Tune(TuneArgs),
    /// Show the rate of a program with more and more CPUs, and at which locks they wait for each other
    #[command(after_help = "\
Each task has memory of its own and a CPU; the programs are cases of will-it-scale, and others that take a number of tasks.

Examples:
  pagefold scale page_fault1_threads --machine icelake-96 --svg faults.svg
  pagefold scale mmap1_threads --machine icelake-96 --cpus 1,8,64 --set time.contention=0 --json")]
    Scale(ScaleArgs),
    /// Run a program under all combinations that a file describes; an interrupted sweep continues
    #[command(after_help = "\
The directory keeps a line for each run (runs.jsonl), so no finished run is lost, and the same command continues. At the end, or after
Ctrl-C, it has result.txt, .json, .csv (everything that was measured, a line for each run) and .svg (docs/sweeps.md).

Examples:
  pagefold sweep examples/sweeps/luf.toml --out lazy
  pagefold sweep mine.toml --out mine --jobs 8 --json")]
    Sweep(SweepArgs),
    /// Run a program on the booted machine: the same memory manager as a kernel under QEMU
    #[command(after_help = "\
The kernel is built on first use ('cargo xtask kernel' builds it again), and runs under qemu-system-x86_64 (Debian: apt-get install
qemu-system-x86). Instead of a program, 'selftest', 'conformance' and 'scenario:NAME' let the kernel test itself (docs/boot.md).

Examples:
  pagefold boot zipf:64M --memory 50% --profile lazy --cpus 4
  pagefold boot zipf:64M --memory 50% --side-by-side
  pagefold boot --bench")]
    Boot(BootArgs),
    /// Run a program on Linux under QEMU, and compare our counts with Linux's
    #[command(after_help = "\
The kernel is --kernel, else the newest readable one in /boot, else one that 'cargo xtask linux' has unpacked without installing it;
the same task builds the guest's first process. Needs qemu-system-x86_64 and mke2fs (Debian: apt-get install qemu-system-x86
e2fsprogs). See docs/truth.md.

Examples:
  pagefold linux zipf:64M --memory 50%
  pagefold linux traces/sqlite.pft --memory 50% --profile mglru-7.2 --kernel 7.3 --json
  pagefold linux zipf-file:64M --memory 50% --set queue.read_ahead_kb=0 --append cgroup_disable=memory")]
    Linux(LinuxArgs),
    /// Compare many programs and settings with Linux, and write the document on how accurate our counts are
    /// (docs/truth.md)
    #[command(after_help = "\
It takes hours; after an interrupt the same command continues. Run it in the root of the checkout, where the traces are found.

Examples:
  pagefold truth target/truth --kernel 6.1,6.12,7.2,7.3 --document docs/truth.md --csv truth.csv
  pagefold truth target/truth --kernel 6.12 --held-out --document docs/truth.md")]
    Truth(TruthArgs),
    /// Show the result in a run directory again
    #[command(
        after_help = "Examples:\n  pagefold report result --all --svg result.svg\n  pagefold report luf --html luf.html"
    )]
    Report(ReportArgs),
    /// Record a real program as a trace (needs QEMU's user-mode emulator)
    #[command(after_help = "\
The program runs under qemu-x86_64 (Debian: apt-get install qemu-user) and should be a small, complete piece of work.

Example:
  pagefold record -o sort.pft -- sort --parallel=2 words.txt")]
    Record(RecordArgs),
    /// Turn another tool's recording into a trace
    #[command(after_help = "\
Files can be compressed with gzip, zstd or, if damo wrote them, zlib; 'xz -dc FILE | pagefold import ... -' imports others.
How samples become a program: in each aggregation interval of DAMON's, each page of a region with N accesses is loaded \
N times in a row, and the seed draws where in the region the program begins; of perf, each sample is one access at its \
time. See docs/imports.md.

Examples:
  valgrind --tool=lackey --trace-mem=yes --log-file=ls.lackey ls
  pagefold import --format lackey ls.lackey -o ls.pft
  pagefold import --format damon damon.data -o server.pft
  xz -dc mcf.champsimtrace.xz | pagefold import --format champsim - -o mcf.pft")]
    Import(ImportArgs),
    /// Show what is in a trace: processes, threads, maps, footprint, working-set curve
    #[command(after_help = "Example:\n  pagefold info traces/sqlite.pft")]
    Info(InfoArgs),
    /// Measure the Linux machine that this runs on, and describe it for --machine
    #[command(after_help = "\
Every number is the median of many short rounds, with its interval and its method in the file (docs/calibrate.md). It needs no root;
the fewer other programs run meanwhile, the better.

Examples:
  pagefold calibrate --out mine.toml
  pagefold run zipf:512M --memory 50% --machine mine.toml
  pagefold calibrate --base icelake-96 --seconds 120 --disk /var/tmp --out server.toml --json")]
    Calibrate(CalibrateArgs),
    /// List the names that commands accept
    #[command(
        after_help = "Examples:\n  pagefold list knobs\n  pagefold list costs --machine my-server.toml"
    )]
    List(ListArgs),
    /// Show whether QEMU, a Linux kernel and other tools are installed, which commands need them, and how to get them
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn command_declaration_is_consistent() {
        Cli::command().debug_assert();
    }
}
