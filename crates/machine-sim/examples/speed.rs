//! How fast the simulator is: accesses a second on one core of the host.
//!
//! `cargo run --release -p machine-sim --example speed`

use machine_sim::{MachineSpec, RunConfig, run};
use program::{Access, Map, Mode, Os, Program, Role, Signal, builtin};

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
            os.access(Access { addr: at + (page << 12), count: 1, mode: Mode::Load })?;
        }
        Ok(())
    }
}

/// Seconds of CPU time that this process has had: the host may be busy with others.
fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|nanos| nanos.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}

fn time<P: Program>(label: &str, unit: &str, config: &RunConfig, program: &P, count: impl Fn(u64) -> u64) {
    let start = cpu_seconds();
    match run(config, program) {
        Ok(outcome) => {
            let seconds = cpu_seconds() - start;
            let millions = count(outcome.accesses) as f64 / seconds / 1e6;
            println!("{label:<44} {millions:>8.2} M {unit}/s   ({seconds:.2} s of CPU time)");
        }
        Err(error) => println!("{label}: {error}"),
    }
}

fn main() {
    let config = RunConfig::new(MachineSpec::preset("laptop").expect("a preset"));
    let hits = Touch { pages: 32, random: false, times: 500_000_000 };
    time("TLB hits, 32 pages", "accesses", &config, &hits, |n| n);
    let misses = Touch { pages: 65_536, random: true, times: 50_000_000 };
    time("random over 256 MiB, resident", "accesses", &config, &misses, |n| n);
    let wide = Touch { pages: 524_288, random: true, times: 20_000_000 };
    time("random over 2 GiB, resident", "accesses", &config, &wide, |n| n);
    let fresh = Touch { pages: 1_500_000, random: false, times: 1 };
    time("faults on fresh memory", "faults", &config, &fresh, |n| n);
    let short = RunConfig { memory: Some(256 << 20), ..config.clone() };
    let stream = builtin::from_name("stream", 2 << 30).expect("a program");
    time("mapped file of 2 GiB in 256 MiB, two passes", "pages", &short, &stream, |n| n / 512);
    let anonymous = builtin::from_name("sequential", 1 << 30).expect("a program");
    time("anonymous 1 GiB in 256 MiB, two passes", "pages", &short, &anonymous, |n| n / 512);
}
