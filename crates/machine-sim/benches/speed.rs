//! How fast the simulator is on one core of the host: accesses, faults and reclaimed pages a second.
//!
//! `cargo bench -p pagefold-sim --bench speed [-- PART_OF_A_ROW'S_NAME...]`

use mm::knobs::Knob;
use pagefold_sim::{MachineSpec, Outcome, RunConfig, run};
use program::chaos::Chaos;
use program::{Access, AccessKind, Map, Os, Program, Role, Signal, builtin};

/// Accesses of count 1 to `pages` resident pages, in order or at random.
struct Touch {
    pages: u64,
    random: bool,
    times: u64,
}

impl Program for Touch {
    fn name(&self) -> &str {
        "touch"
    }

    fn footprint(&self) -> u64 {
        self.pages << 12
    }

    fn run<O: Os>(&self, os: &mut O, _: Role) -> Result<(), Signal> {
        let at = os.mmap(Map::anonymous(self.pages << 12)).map_err(|_| Signal::Kill)?;
        (0..self.pages).try_for_each(|page| os.store(at + (page << 12)))?;
        let mut state = 1u64;
        for i in 0..self.times {
            let page = if self.random {
                state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                ((state >> 32) * self.pages) >> 32
            } else {
                i / 64 % self.pages
            };
            os.access(Access { addr: at + (page << 12), count: 1, mode: AccessKind::Load })?;
        }
        Ok(())
    }
}

/// Seconds of CPU time that this process has had: the host may be busy with others.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|nanos| nanos.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}

/// What is measured, and how fast it is meant to be.
struct Row<'a> {
    label: &'a str,
    /// What is counted.
    unit: &'a str,
    /// Millions of it in a second.
    goal: Option<f64>,
}

/// Run the program and print its row, unless the command line asks for others.
fn time<P: Program>(row: Row<'_>, config: &RunConfig, program: &P, count: impl Fn(&Outcome) -> u64) {
    let Row { label, unit, goal } = row;
    let mut wanted = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).peekable();
    if wanted.peek().is_some() && !wanted.any(|part| label.contains(&part)) {
        return;
    }
    let start = cpu_seconds();
    match run(config, program) {
        Ok(outcome) => {
            let seconds = cpu_seconds() - start;
            let millions = count(&outcome) as f64 / seconds / 1e6;
            let goal = goal.map_or(String::new(), |goal| format!(", goal {goal:.1} M"));
            println!("{label:<44} {millions:>8.2} M {unit}/s{goal}   ({seconds:.2} s of CPU time)");
        }
        Err(error) => println!("{label}: {error}"),
    }
}

fn main() {
    let config = RunConfig::new(MachineSpec::preset("laptop").expect("a preset"));
    let row = |label, unit, goal| Row { label, unit, goal };
    let accesses = |outcome: &Outcome| outcome.accesses;
    let pages = |outcome: &Outcome| outcome.accesses / 512;
    let hits = Touch { pages: 32, random: false, times: 500_000_000 };
    time(row("TLB hits, 32 pages", "accesses", None), &config, &hits, accesses);
    let misses = Touch { pages: 65_536, random: true, times: 50_000_000 };
    time(row("random over 256 MiB, resident", "accesses", None), &config, &misses, accesses);
    let wide = Touch { pages: 524_288, random: true, times: 20_000_000 };
    time(row("random over 2 GiB, resident", "accesses", None), &config, &wide, accesses);
    let fresh = Touch { pages: 1_500_000, random: false, times: 1 };
    time(row("faults on fresh memory", "faults", Some(3.0)), &config, &fresh, accesses);
    let short = RunConfig { memory: Some(256 << 20), ..config.clone() };
    let stream = builtin::from_name("stream", 2 << 30).expect("a program");
    let label = "mapped file of 2 GiB in 256 MiB, two passes";
    time(row(label, "pages", Some(2.0)), &short, &stream, pages);
    // What it costs this computer that CPUs wait for each other (docs/machines.md).
    let tasks = builtin::from_name("stream", 1 << 30).expect("a program").with_threads(4);
    for (label, contention) in
        [("mapped file, 4 tasks that never wait", 0), ("mapped file, 4 tasks that wait", 1)]
    {
        let knobs = vec![(Knob::TimeContention, contention)];
        let config = RunConfig { memory: Some(512 << 20), knobs, ..config.clone() };
        time(row(label, "pages", None), &config, &tasks, pages);
    }
    let anonymous = builtin::from_name("sequential", 1 << 30).expect("a program");
    let label = "anonymous 1 GiB in 256 MiB, two passes";
    time(row(label, "pages", Some(2.0)), &short, &anonymous, pages);
    // What the oracle checks: loads, and what system calls read.
    let checked = RunConfig { memory: Some(38 << 20), verify: true, ..config.clone() };
    let chaos = Chaos::from_footprint(64 << 20, Some(20_000));
    time(row("random program, checked", "accesses", Some(1.0)), &checked, &chaos, |run| run.oracle.checked);
}
