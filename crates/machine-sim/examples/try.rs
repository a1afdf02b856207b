//! (scratch)
use machine_sim::{MachineSpec, RunConfig, run};
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let mut c = RunConfig::new(MachineSpec::preset(&args[2]).unwrap());
    c.verify = args.get(4).is_some_and(|v| v.contains('v'));
    c.validate_every_op = args.get(4).is_some_and(|v| v.contains('o'));
    c.seed = args.get(5).map_or(1, |s| s.parse().unwrap());
    let mem: u64 = args[3].parse().unwrap();
    if mem > 0 {
        c.memory = Some(mem << 20);
    }
    let (name, mb) = args[1].split_once(':').unwrap();
    let mb: u64 = mb.parse().unwrap();
    let t = std::time::Instant::now();
    let out = if name == "chaos" {
        run(&c, &program::chaos::Chaos { operations: mb as u32, pages: 512, threads: 2, forks: 2 })
    } else {
        run(&c, &program::builtin::from_name(name, mb << 20).unwrap())
    };
    match out {
        Ok(o) => {
            println!(
                "sim {} ms accesses {} progress {} oracle {:?} host {:?}",
                o.nanos / 1_000_000,
                o.accesses,
                o.progress,
                o.oracle,
                t.elapsed()
            );
            for (s, v) in &o.stats {
                if *v != 0 {
                    print!("{}={} ", s.name(), v);
                }
            }
            println!();
            for m in &o.metrics {
                print!("{}={} ", m.name, m.value);
            }
            println!("\n{:?} {:?}", o.oom, o.signals);
            for w in &o.work {
                println!("{w:?}");
            }
        }
        Err(e) => {
            println!("ERR {e}");
            std::process::exit(e.exit_code())
        }
    }
}
