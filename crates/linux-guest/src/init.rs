//! The first process: sets up the conditions, runs the program, reads the kernel's counters, ends the
//! machine.

use crate::choice::Choice;
use crate::disks::DiskTimes;
use crate::os::GROUPS;
use crate::packed::Contents;
use crate::report::{self, Verdict, print};
use crate::sys::{self, nr};
use crate::task::RunState;
use crate::{bench, counters, disks, facts, heap, memory, original, os, packed, swap, touch};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::SeqCst;
use program::probe::Times;
use program::rng::Rng;

/// Time between two looks at what the kernel uses for itself, in nanoseconds.
const SAMPLE_INTERVAL: u64 = 50_000_000;

/// Time after which the kernel adds up the statistics of control groups, in nanoseconds.
const STATISTICS_PERIOD: u64 = 2_000_000_000;

/// What the host asks for, one item a line in `/config`:
///
/// ```text
/// program NAME       seed N       boot N       cpus N       pages N:N   that the program gets, by node
/// trace DEVICE BYTES the recorded program is on this disk
/// measure            say how many pages are free, and end
/// bench              count instructions of known work instead of running the program
/// original           start what `/original` describes instead; its files are on the first disk
/// first N            number of the program's first task, which its random choices depend on
/// counter NAME       to be read
/// contents ALGORITHM pages hold what this compressor makes as much of as on the simulated machine
/// ```
///
/// and what to do, in this order, before memory is hidden ([`Preparation`]):
///
/// ```text
/// insert FILE        a module
/// files              mount the first disk, for files             swap            swap to the second disk
/// zram N ALGORITHM BYTES LIMIT      swap to a zram device        priority N      of the next area to swap to
/// write FILE TEXT    a setting                                   try FILE TEXT   as write, if the file exists
/// ```
struct Config {
    program: String,
    trace: Option<(String, u64)>,
    measure: bool,
    bench: bool,
    original: bool,
    seed: u64,
    boot: u64,
    first: u32,
    cpus: u32,
    pages: Vec<u64>,
    preparations: Vec<Preparation>,
    counters: Vec<String>,
    contents: Option<String>,
}

enum Preparation {
    Insert(String),
    Files,
    Swap { priority: Option<u32> },
    Zram { number: u32, algorithm: String, bytes: u64, limit: u64, priority: Option<u32> },
    Write { file: String, value: String, optional: bool },
}

impl Preparation {
    /// The file of a setting.
    fn setting(&self) -> Option<&str> {
        match self {
            Preparation::Write { file, .. } => Some(file),
            _ => None,
        }
    }
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| report::bad(format_args!("'{text}' is not a number")))
}

impl Config {
    fn read() -> Config {
        let text = must("the configuration", sys::read_text("/config"));
        let mut config = Config {
            program: String::new(),
            trace: None,
            measure: false,
            bench: false,
            original: false,
            seed: 0,
            boot: 0,
            first: 0,
            cpus: 1,
            pages: Vec::new(),
            preparations: Vec::new(),
            counters: Vec::new(),
            contents: None,
        };
        let mut priority = None;
        for line in text.lines() {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            match word {
                "program" => config.program = rest.into(),
                "trace" => {
                    let (device, bytes) = rest.split_once(' ').unwrap_or((rest, ""));
                    config.trace = Some((device.into(), number(bytes)));
                }
                "measure" => config.measure = true,
                "bench" => config.bench = true,
                "original" => config.original = true,
                "seed" => config.seed = number(rest),
                "boot" => config.boot = number(rest),
                "first" => config.first = number(rest) as u32,
                "cpus" => config.cpus = number(rest) as u32,
                "pages" => config.pages = rest.split(':').map(number).collect(),
                "counter" => config.counters.push(rest.into()),
                "insert" => config.preparations.push(Preparation::Insert(rest.into())),
                "files" => config.preparations.push(Preparation::Files),
                "swap" => config.preparations.push(Preparation::Swap { priority: priority.take() }),
                "priority" => priority = Some(number(rest) as u32),
                "contents" => config.contents = Some(rest.into()),
                "zram" => {
                    let words: Vec<&str> = rest.split(' ').collect();
                    let &[device, algorithm, bytes, limit] = &words[..] else {
                        report::bad(format_args!("'{line}' does not describe a zram device"));
                    };
                    config.preparations.push(Preparation::Zram {
                        number: number(device) as u32,
                        algorithm: algorithm.into(),
                        bytes: number(bytes),
                        limit: number(limit),
                        priority: priority.take(),
                    });
                }
                "write" | "try" => {
                    let (file, value) = rest.split_once(' ').unwrap_or((rest, ""));
                    let (file, value, optional) = (file.into(), value.into(), word == "try");
                    config.preparations.push(Preparation::Write { file, value, optional });
                }
                _ => report::bad(format_args!("unknown line in the configuration: '{line}'")),
            }
        }
        config
    }
}

/// Unwrap a result, or end the machine.
fn must<T>(what: &str, result: Result<T, sys::Code>) -> T {
    result.unwrap_or_else(|why| report::failed(format_args!("{what}: error {}", why.0)))
}

/// The first process.
pub fn main() -> ! {
    set_up_early();
    let config = Config::read();
    config.preparations.iter().for_each(prepare);
    if !config.bench {
        counters::trace_flushes();
    }
    let read = |(device, bytes): &(String, u64)| must("the trace", sys::read_disk(device, *bytes as usize));
    let program = Choice::find(&config.program, config.trace.as_ref().map(read))
        .unwrap_or_else(|why| report::bad(format_args!("{}: {why}", config.program)));
    touch::install();
    let _ = sys::on_path(nr::UNLINK, "/config");
    const CURRENT: u64 = 1;
    // SAFETY: nothing is changed.
    must("mlockall", unsafe { sys::call(nr::MLOCKALL, [CURRENT]) });
    let bytes = config.pages.iter().sum::<u64>() * 4096;
    print(format_args!("@machine cpus={} nodes={} memory={bytes}", config.cpus, config.pages.len()));
    if config.measure {
        memory::tell_free(config.pages.len());
        report::end(Verdict::Ok);
    }
    let seed = [config.seed, config.first.into()];
    let contents = config.contents.as_ref().map(|compressor| {
        let found = Contents::of(compressor, config.seed);
        found.unwrap_or_else(|| report::bad(format_args!("'{compressor}' is no compressor that is known")))
    });
    let state: &'static RunState =
        Box::leak(Box::new(RunState::new(program, seed, config.cpus, bytes, contents)));
    let speed = match config.bench {
        true => Default::default(),
        false => (os::probe(state), disks::probe(config.cpus)),
    };
    must("the files of the program", state.make_files());
    let hidden_memory = memory::leave(&config.pages).unwrap_or_else(|(node, free)| {
        report::bad(format_args!("node {node}: {free} pages are free, fewer than {}", config.pages[node]))
    });
    if config.bench {
        bench::run(state);
    }
    if config.original {
        original::prepare();
    }
    facts::tell(&config.preparations.iter().filter_map(Preparation::setting).collect::<Vec<&str>>());
    run(&config, state, hidden_memory, speed)
}

/// Set up the console, the kernel's own file systems, and the heap.
fn set_up_early() {
    let mut result = Ok(());
    // Without a heap, `mount` cannot be used.
    result = result.and(heap::early_mount(c"/proc", c"proc"));
    result = result.and(heap::early_mount(c"/dev", c"devtmpfs"));
    heap::early_console();
    print(format_args!("@pagefold 1"));
    must("proc and dev", result);
    must("the arena of 2 MiB pages", heap::init(heap::early_pages().saturating_sub(1)));
    must("the program's own page of 2 MiB", heap::move_image());
    for (device, at, kind, options) in [
        ("sys", "/sys", "sysfs", ""),
        ("debug", "/sys/kernel/debug", "debugfs", ""),
        ("groups", GROUPS, "cgroup2", ""),
        ("tracing", counters::TRACING, "tracefs", ""),
        ("shm", "/shm", "tmpfs", "size=1024G,nr_inodes=0"),
    ] {
        if let Err(why) = sys::mount(device, at, kind, options) {
            // Without memory groups this mount fails, which matters only to a program that uses groups.
            print(format_args!("{at} cannot be mounted: error {}", why.0));
        }
    }
}

/// Load a module, put a disk to use, or make a setting.
fn prepare(preparation: &Preparation) {
    match preparation {
        Preparation::Insert(module) => {
            must(module, sys::insert_module(module));
            let _ = sys::on_path(nr::UNLINK, module);
        }
        Preparation::Files => {
            must("the disk with files, /dev/vda", sys::mount("/dev/vda", "/files", "ext4", "noinit_itable"));
        }
        Preparation::Swap { priority } => {
            must("the disk for swapping, /dev/vdb", swap::on("/dev/vdb", *priority));
        }
        Preparation::Zram { number, algorithm, bytes, limit, priority } => {
            if let Err(why) = packed::swap_to_zram(*number, (algorithm, *bytes, *limit), *priority) {
                report::bad(format_args!("zram with {algorithm}: error {}", why.0));
            }
        }
        Preparation::Write { file, value, optional } => match sys::write_file(file, value) {
            Err(sys::ENOENT) if *optional => print(format_args!("@note this kernel has no {file}")),
            Err(why) => report::bad(format_args!("cannot write '{value}' to {file}: error {}", why.0)),
            Ok(()) => {}
        },
    }
}

/// Note that the program says that it has failed.
fn returned(status: u32) {
    if status > 0 {
        report::failed(format_args!("the program ended with status {status}"));
    }
}

/// Run the program, and report its results.
fn run(
    config: &Config,
    state: &'static RunState,
    mut hidden_memory: memory::HiddenMemory,
    (times, disks): (Times, DiskTimes),
) -> ! {
    // The kernel adds up the statistics of its control groups at a fixed rate from boot on, and programs begin at any
    // time.
    sys::sleep(Rng::new(config.seed ^ config.boot << 32).below(STATISTICS_PERIOD));
    packed::begin_most();
    let levels = packed::levels();
    let before = counters::read(&config.counters, config.cpus);
    let kswapd = counters::kswapd_nanos();
    let device = config.trace.as_ref().map(|(device, _)| device.as_str());
    let reads = counters::Reads::of_all_but(device);
    hidden_memory.begin();
    let start = sys::now();
    let body = if config.original { original::run } else { os::run };
    let first = must("the program's first process", state.start(0, true, body));
    // What the kernel uses besides the program, on average over the run.
    let (mut samples, mut sum) = (0u64, 0i64);
    loop {
        match sys::wait_for(-1, false) {
            // Daemons of such a program may stay.
            Ok(Some(ended)) if config.original && state.is_process(first, ended.pid) => {
                state.ended(ended);
                returned(ended.status);
                break;
            }
            Ok(Some(_)) if config.original => {}
            Ok(Some(ended)) => state.ended(ended),
            Ok(None) => {
                sys::sleep(SAMPLE_INTERVAL);
                samples += 1;
                sum += hidden_memory.balance();
            }
            Err(sys::ECHILD) => break,
            Err(why) => report::failed(format_args!("waiting for the program: error {}", why.0)),
        }
    }
    let nanos = sys::now() - start;
    let after = counters::read(&config.counters, config.cpus);
    for ((name, before), (_, after)) in before.iter().zip(&after) {
        let mut value = *after as i64 - *before as i64;
        value -= match name.as_str() {
            "pgpgout" => state.created_kib.load(SeqCst) as i64,
            "pgfault" => state.own_faults.load(SeqCst) as i64,
            _ => 0,
        };
        print(format_args!("@counter {name} {value}"));
    }
    counters::Reads::of_all_but(device).tell_since(&reads);
    disks.tell();
    state.levels.with(|held| packed::tell(&levels, held));
    print(format_args!("@metric kernel_pages {}", (sum / samples.max(1) as i64).max(0)));
    let [user, system] = sys::childrens_time();
    print(format_args!("@metric user_nanos {user}"));
    print(format_args!("@metric system_nanos {system}"));
    if let (Some(before), Some(after)) = (kswapd, counters::kswapd_nanos()) {
        print(format_args!("@metric kswapd_nanos {}", after - before));
    }
    print(format_args!("@metric computed {}", state.computed.load(SeqCst)));
    for (name, value) in times.named() {
        print(format_args!("@metric {name} {value}"));
    }
    if let Some(clears) = facts::clears_pages() {
        print(format_args!("@metric clears_pages {}", u8::from(clears)));
    }
    print(format_args!("@metric hidden_pages {}", hidden_memory.hidden()));
    print(format_args!("@metric managed_pages {}", hidden_memory.managed()));
    let [accesses, progress] = [&state.accesses, &state.progress].map(|sum| sum.load(SeqCst));
    let tasks = state.tasks.load(SeqCst);
    print(format_args!("@done nanos={nanos} accesses={accesses} progress={progress} tasks={tasks}"));
    let failed = state.signals.load(SeqCst) > 0 && !state.program.may_be_oom_killed();
    report::end(if failed { Verdict::Failed } else { Verdict::Ok })
}
