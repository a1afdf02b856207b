//! A program of your own on the simulated machine: `cargo run --release -p pagefold --example program`
//!
//! It fills a queue of pages, and then reads it from the front while it appends at the end, as a log does.

use machine_sim::{MachineSpec, RunConfig, run};
use program::{Map, Os, Program, Role, Signal};

struct Log {
    pages: u64,
}

impl Program for Log {
    fn name(&self) -> &str {
        "log"
    }

    fn footprint(&self) -> u64 {
        self.pages * 4096
    }

    fn run<O: Os>(&self, os: &mut O, _: Role) -> Result<(), Signal> {
        let base = os.mmap(Map::anonymous(self.footprint())).map_err(|_| Signal::Kill)?;
        let page = |number: u64| base + number * 4096;
        for end in 0..self.pages {
            os.store(page(end))?;
            if end >= self.pages / 2 {
                os.load(page(end - self.pages / 2))?;
            }
            os.progress(1);
        }
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let log = Log { pages: 8192 };
    let mut config = RunConfig::new(MachineSpec::preset("small")?);
    config.memory = Some(log.footprint() * 6 / 10);
    config.verify = true;
    let outcome = run(&config, &log)?;
    println!("{:.1} ms, {} pages of progress", outcome.nanos as f64 / 1e6, outcome.progress);
    for (stat, value) in &outcome.stats {
        if ["pgfault", "pgmajfault", "pgscan_kswapd", "pswpin", "pswpout"].contains(&stat.name()) {
            println!("{:<14} {value}", stat.name());
        }
    }
    println!("{} loads checked, {} wrong", outcome.oracle.checked, outcome.oracle.violations);
    Ok(())
}
