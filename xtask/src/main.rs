//! `cargo xtask`: the one tool that tests and measures the project. It needs only cargo.
//!
//! A task is one or two lists of steps. Every step prints its command, so that it can be run alone. A failed step does
//! not stop those after it, so that one run shows all failures.
#![forbid(unsafe_code)]

mod boot;
mod built;
mod debian;
mod fuzz;
mod instructions;
mod kernel;
/// The memory manager's words for the values of its knobs, read without building it.
#[path = "../../crates/mm/src/knobs/choice.rs"]
#[allow(dead_code, reason = "only the words are read")]
mod knobs;
mod linux;
mod publish;
mod python;
mod soak;
mod step;
#[allow(dead_code, reason = "the rules of the house read the rest")]
mod summary;
mod tool;
mod truth;

use std::process::ExitCode;
use step::{Step, run_all};

const HELP: &str = "\
Usage: cargo xtask TASK

Tasks:
  test [--install]
                 every check and test: format, lints, documents, unit, property and end-to-end tests; where it may, it
                 installs the Debian packages that they need, after a question if it is started at a terminal
                 (--install: without)
  quick          format, lints and tests only, in one feature set
  properties [N] the property tests with N new random cases each (20000)
  bench [ARGS]   the benchmarks; ARGS go to them
  soak [--minutes N] [--cases N] [--checks N] [--seed N] [--threads N] [--only chaos|recorded|built-in]
                 random programs on random machines, traces and built-in programs short of memory, with all flush
                 policies and forms of folios, under the oracle for N minutes (10), cases or checked accesses, one case
                 per core at a time; prints what the random program met, and fails if 1000 cases of it missed something
  soak --cover   a few fixed cases of the random program: fails if they miss something that they should meet
  soak --list    print these cases, and run nothing
  instructions [--accept REASON]
                 count the instructions of fixed runs of the simulator (valgrind) and of the booted machine's operations
                 (QEMU), and fail if one is more than 2 % above docs/instructions.toml; --accept: write what they take
                 now and the reason into that file
  truth          judge the simulator again beside the boots of Linux that are kept in truth/, and fail if fewer counts are
                 near Linux's than docs/truth.md says
  fuzz [--runs N] [TARGET]
                 look for inputs that break a reader: container, imports, machine, options, replay or sweep (all, with
                 1000000 inputs each), guided by the code that they reach; needs a C++ compiler (crates/fuzz)
  kernel [--faulty]
                 build the image that boots on x86-64 and print its path; --faulty: for tests, it can drop one flush
                 on request
  boot-test [FILTER]
                 boot it under QEMU: its tests of itself, and all built-in programs with all flush policies on one and
                 four CPUs, with too little memory; only cases that contain FILTER
  linux [KERNEL...]
                 build the first process of a Linux guest, for 'pagefold linux', and unpack Debian's kernels with these
                 names (6.1, 6.12, 7.2, 7.3) below target/, without installing them; without names, find one: the
                 newest in /boot that is readable, one that was unpacked, or 6.12
  linux-test     run a few programs on Linux beside the simulated machine; without a kernel it says so and succeeds
  mutants [ARGS] change the memory manager in every place in turn, and see which tests notice (hours; --help says more)
  python         build the Python package, install it below target/ with what its tests need, and test it; without Python
                 or the index of its packages it says so and succeeds
  package        make the packages that a registry gets, and build each from them
  oldest         check the workspace with the oldest Rust that it promises, if rustup has it
  semver         what has changed in the crates' interfaces since the last tag that their version does not say
  ci             what .ci/run does: test
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["test" | "ci"] => test(false),
        ["test" | "ci", "--install"] => test(true),
        ["test" | "ci", ..] => usage("test takes --install, or nothing"),
        ["quick"] => run_all(&[quick()]),
        ["properties"] => run_all(&[properties("20000")]),
        ["properties", cases] if cases.parse::<u32>().is_ok() => run_all(&[properties(cases)]),
        ["properties", ..] => usage("properties takes a number of cases, or nothing"),
        ["bench", rest @ ..] => run_all(&[benches(rest)]),
        ["soak", "--cover"] => soak::cover(),
        ["soak", "--list"] => soak::list(),
        ["soak", rest @ ..] => match soak::Options::parse(rest) {
            Some(options) => soak::soak(&options),
            None => usage(
                "soak takes --cover, --list, or --minutes, --cases, --checks, --seed and --threads with a number, and --only with a kind",
            ),
        },
        ["instructions"] => instructions::check(),
        ["instructions", "--accept", reason] => instructions::accept(reason),
        ["instructions", ..] => usage("instructions takes --accept with a reason, or nothing"),
        ["truth"] => truth::check(),
        ["fuzz", rest @ ..] => match fuzz::Options::parse(rest) {
            Some(options) => fuzz::fuzz(&options),
            None => usage("fuzz takes --runs N and the name of a target"),
        },
        ["mutants", rest @ ..] => mutants(rest),
        ["kernel"] => kernel::build(kernel::Kind::Ordinary),
        ["kernel", "--faulty"] => kernel::build(kernel::Kind::Faulty),
        ["kernel", ..] => usage("kernel takes --faulty or nothing"),
        ["linux", kernels @ ..] => linux::prepare(kernels),
        ["linux-test"] => linux::test(),
        ["boot-test"] => boot::test(""),
        ["boot-test", filter] => boot::test(filter),
        ["python"] => python::test(),
        ["package"] => run_all(&[vec![publish::packages(true)]]),
        ["oldest"] => publish::oldest(),
        ["semver"] => publish::semver(),
        ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        [] => usage("no task given"),
        other => usage(&format!("unknown task '{}'", other.join(" "))),
    }
}

fn usage(problem: &str) -> ExitCode {
    eprint!("xtask: {problem}\n{HELP}");
    ExitCode::from(2)
}

/// Every check and test.
fn test(install: bool) -> ExitCode {
    tool::provide(&tool::Tool::ALL, install);
    run_all(&all())
}

/// Find changes that no test notices. The program is separate, as it needs crates that nothing else here does.
fn mutants(rest: &[&str]) -> ExitCode {
    let run = ["run", "--release", "--quiet", "--package", "mutants", "--"];
    run_all(&[vec![Step::cargo("mutants", run.iter().chain(rest).copied())]])
}

/// The property tests, with random cases.
fn properties(cases: &str) -> Vec<Step> {
    let many = |name, args: &[&'static str]| {
        let command = ["test"].iter().chain(args).copied();
        Step::cargo(name, command).env("PROPTEST_CASES", cases)
    };
    vec![
        many("properties of the memory manager", &["-p", "pagefold-mm", "--lib", "--features", ONE_THREADED]),
        many("of traces", &["-p", "pagefold-trace"]),
        many("of the simulated machine", &["-p", "pagefold-sim", "--lib"]),
        many("of the lab", &["-p", "pagefold", "--lib"]),
    ]
}

/// Tests of packages, all of them even after one has failed. The property tests run the same cases each time: what
/// failed once fails again, and only a change to the code changes the result. New cases are for [`properties`].
fn tests<const N: usize>(name: &'static str, args: [&'static str; N]) -> Step {
    Step::cargo(name, ["test", "--no-fail-fast"].into_iter().chain(args)).env("PROPTEST_RNG_SEED", "1")
}

/// The checks that take a few minutes.
fn quick() -> Vec<Step> {
    vec![
        Step::cargo("format", ["fmt", "--all", "--check"]),
        Step::cargo("lints", ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
        Step::cargo("tests", ["test", "--workspace"]),
    ]
}

/// The feature of the one-threaded form.
const ONE_THREADED: &str = "one-thread";

/// All checks, in two lanes that build in different folders, so that neither waits for the other's build.
fn all() -> [Vec<Step>; 2] {
    [workspace(), images()]
}

/// The checks of the workspace but its release build. The memory manager is tested in both of its forms: with atomics
/// and locks, and for one thread.
fn workspace() -> Vec<Step> {
    vec![
        Step::cargo("format", ["fmt", "--all", "--check"]),
        Step::cargo("lints", ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
        Step::cargo(
            "lints of the one-threaded form",
            [
                "clippy",
                "-p",
                "pagefold-mm",
                "--all-targets",
                "--features",
                ONE_THREADED,
                "--",
                "-D",
                "warnings",
            ],
        ),
        lints_of_models("loom"),
        lints_of_models("shuttle"),
        publish::packages(false),
        Step::xtask("the oldest compiler", ["oldest"]),
        Step::cargo("documents", ["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"),
        tests("tests of the memory manager", ["-p", "pagefold-mm", "-p", "pagefold-flush"]),
        tests("tests of its one-threaded form", ["-p", "pagefold-mm", "--features", ONE_THREADED]),
        models("every order of the small models", "loom"),
        models("random orders of the models", "shuttle"),
        tests(
            "tests of everything else",
            ["--workspace", "--exclude", "pagefold-mm", "--exclude", "pagefold-flush"],
        ),
        Step::xtask("the Python package", ["python"]),
    ]
}

/// The checks of the other workspaces and of what is released.
fn images() -> Vec<Step> {
    let mut steps = vec![
        in_example("format of the example", &["fmt", "--check"]),
        in_example("lints of the example", &["clippy", "--all-targets", "--", "-D", "warnings"]),
        in_example(
            "the memory manager in another kernel, on CPUs that run at the same time",
            &["run", "--", "lazy"],
        ),
    ];
    steps.extend(kernel::checks());
    steps.push(Step::cargo("the release build", ["build", "--release"]));
    steps.push(Step::xtask("instructions", ["instructions"]));
    steps.push(Step::xtask("what the random program meets", ["soak", "--cover"]));
    steps.push(Step::xtask("counts beside Linux's", ["truth"]));
    steps.push(Step::xtask("the booted machine", ["boot-test"]));
    steps.extend(linux::checks());
    steps
}

/// A command in the workspace of the example of docs/embedding.md.
fn in_example(name: &'static str, args: &[&'static str]) -> Step {
    const MANIFEST: [&str; 2] = ["--manifest-path", "examples/embedding/Cargo.toml"];
    let (command, rest) = args.split_first().expect("a command");
    Step::cargo(name, [*command].into_iter().chain(MANIFEST).chain(rest.iter().copied()))
}

/// The flush ledger under a model checker.
fn models(name: &'static str, checker: &str) -> Step {
    Step::cargo(
        name,
        ["test", "-p", "pagefold-mm", "--lib", "--features", checker, "tlb::model", "--", "--show-output"],
    )
    .env("RUST_BACKTRACE", "0")
}

fn lints_of_models(checker: &str) -> Step {
    let args =
        ["clippy", "-p", "pagefold-mm", "--all-targets", "--features", checker, "--", "-D", "warnings"];
    Step::cargo("lints of the models", args)
}

/// The memory manager compared with its peers, then the simulator and the recorder.
fn benches(rest: &[&str]) -> Vec<Step> {
    let separator = if rest.is_empty() { None } else { Some("--") };
    let bench = |name, package: &[&'static str]| {
        let args = ["bench"].iter().chain(package).chain(&separator).chain(rest).copied();
        Step::cargo(name, args)
    };
    vec![
        bench("benchmarks", &["-p", "bench"]),
        bench("speed of the simulator", &["-p", "pagefold-sim", "--bench", "speed"]),
        bench("cost of recording", &["-p", "pagefold-trace", "--bench", "recorder"]),
        bench("commands that start others", &["-p", "pagefold", "--bench", "recordings"]),
    ]
}

#[cfg(test)]
mod tests {
    #[test]
    fn all_steps_of_the_test_have_a_typical_time() {
        for step in super::all().iter().flatten().chain(&super::quick()) {
            assert!(step.typical().is_some(), "a row of TYPICAL is missing: {}", step.name());
        }
    }
}
