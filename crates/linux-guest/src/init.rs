//! The first process: sets the conditions up, starts the program, reads what the kernel counted, ends the machine.

use crate::choice::Choice;
use crate::os::GROUPS;
use crate::report::{self, Verdict, say};
use crate::sys::{self, nr};
use crate::task::World;
use crate::{counters, heap, memory, os, swap, touch};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::SeqCst;

/// How often the first process looks what the kernel uses for itself.
const LOOK_EVERY: u64 = 50_000_000;

/// What the host wants, one wish a line in `/config`:
///
/// ```text
/// program NAME       trace        seed N       cpus N      pages N:N   that the program is left with, node by node
/// first N            number of the program's first task, from which its random choices follow
/// insert FILE        a module     swap         there is a second disk, for swapping
/// write FILE TEXT    a setting, made before memory is taken away    try FILE TEXT   the same; without the file it is
/// left out counter NAME       to be read
/// ```
struct Wishes {
    program: String,
    trace: bool,
    seed: u64,
    first: u32,
    cpus: u32,
    pages: Vec<u64>,
    modules: Vec<String>,
    swap: bool,
    writes: Vec<(String, String, bool)>,
    counters: Vec<String>,
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| report::bad(format_args!("'{text}' is no number")))
}

impl Wishes {
    fn read() -> Wishes {
        let text = must("the configuration", sys::read_text("/config"));
        let mut wishes = Wishes {
            program: String::new(),
            trace: false,
            seed: 0,
            first: 0,
            cpus: 1,
            pages: Vec::new(),
            modules: Vec::new(),
            swap: false,
            writes: Vec::new(),
            counters: Vec::new(),
        };
        for line in text.lines() {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            match word {
                "program" => wishes.program = rest.into(),
                "trace" => wishes.trace = true,
                "seed" => wishes.seed = number(rest),
                "first" => wishes.first = number(rest) as u32,
                "cpus" => wishes.cpus = number(rest) as u32,
                "pages" => wishes.pages = rest.split(':').map(number).collect(),
                "insert" => wishes.modules.push(rest.into()),
                "swap" => wishes.swap = true,
                "counter" => wishes.counters.push(rest.into()),
                "write" | "try" => {
                    let (file, value) = rest.split_once(' ').unwrap_or((rest, ""));
                    wishes.writes.push((file.into(), value.into(), word == "try"));
                }
                _ => report::bad(format_args!("the configuration says '{line}'")),
            }
        }
        wishes
    }
}

/// The value, or the end.
fn must<T>(what: &str, result: Result<T, sys::Code>) -> T {
    result.unwrap_or_else(|why| report::failed(format_args!("{what}: error {}", why.0)))
}

/// All that the first process does.
pub fn main() -> ! {
    early();
    let wishes = Wishes::read();
    let image = wishes.trace.then(|| must("the trace", sys::read_file("/trace")).leak() as &'static [u8]);
    let program = Choice::find(&wishes.program, image)
        .unwrap_or_else(|why| report::bad(format_args!("{}: {why}", wishes.program)));
    devices(&wishes);
    touch::install();
    for (file, value, may_lack) in &wishes.writes {
        match sys::write_file(file, value) {
            Err(sys::ENOENT) if *may_lack => say(format_args!("@note this kernel has no {file}")),
            Err(why) => report::bad(format_args!("{file} does not take '{value}': error {}", why.0)),
            Ok(()) => {}
        }
    }
    for file in ["/config", "/trace"] {
        let _ = sys::on_path(nr::UNLINK, file);
    }
    const CURRENT: u64 = 1;
    // SAFETY: nothing is changed.
    must("mlockall", unsafe { sys::call(nr::MLOCKALL, [CURRENT]) });
    let fault_nanos = memory::fault_nanos();
    let taken = memory::leave(&wishes.pages).unwrap_or_else(|(node, free)| {
        report::bad(format_args!("node {node}: {free} pages are free, fewer than {}", wishes.pages[node]))
    });
    let bytes = wishes.pages.iter().sum::<u64>() * 4096;
    say(format_args!("@machine cpus={} nodes={} memory={bytes}", wishes.cpus, wishes.pages.len()));
    run(
        &wishes,
        World::new(program, [wishes.seed, wishes.first.into()], wishes.cpus, bytes),
        taken,
        fault_nanos,
    )
}

/// Console, file systems of the kernel's own, and the heap.
fn early() {
    let mut found = Ok(());
    // Nothing can be allocated yet, so nothing that `mount` allocates.
    found = found.and(heap::early_mount(c"/proc", c"proc"));
    found = found.and(heap::early_mount(c"/dev", c"devtmpfs"));
    heap::early_console();
    say(format_args!("@pagefold 1"));
    must("proc and dev", found);
    must("the arena of 2 MiB pages", heap::init(heap::early_pages().saturating_sub(1)));
    must("the program's own page of 2 MiB", heap::move_image());
    for (device, at, kind, options) in [
        ("sys", "/sys", "sysfs", ""),
        ("debug", "/sys/kernel/debug", "debugfs", ""),
        ("groups", GROUPS, "cgroup2", ""),
        ("shm", "/shm", "tmpfs", "size=1024G,nr_inodes=0"),
    ] {
        if let Err(why) = sys::mount(device, at, kind, options) {
            // Without memory groups there is nothing to mount, which hurts only a program that wants some.
            say(format_args!("{at} cannot be mounted: error {}", why.0));
        }
    }
}

/// Modules, file system and swap.
fn devices(wishes: &Wishes) {
    for module in &wishes.modules {
        must(module, sys::insert_module(module));
        let _ = sys::on_path(nr::UNLINK, module);
    }
    must("the disk with files, /dev/vda", sys::mount("/dev/vda", "/files", "ext4", "noinit_itable"));
    if wishes.swap {
        must("the disk for swapping, /dev/vdb", swap::on("/dev/vdb"));
    }
}

/// Run the program, and tell what it did.
fn run(wishes: &Wishes, world: World, mut taken: memory::Taken, fault_nanos: u64) -> ! {
    let world: &'static World = Box::leak(Box::new(world));
    let before = counters::read(&wishes.counters);
    taken.begin();
    let start = sys::now();
    must("the program's first process", world.start(0, true, os::run));
    // What the kernel needs beside the program, on average over the run.
    let (mut looks, mut sum) = (0u64, 0i64);
    loop {
        match sys::wait_for(-1, false) {
            Ok(Some(ended)) => world.ended(ended),
            Ok(None) => {
                sys::sleep(LOOK_EVERY);
                looks += 1;
                sum += taken.balance();
            }
            Err(sys::ECHILD) => break,
            Err(why) => report::failed(format_args!("waiting for the program: error {}", why.0)),
        }
    }
    let nanos = sys::now() - start;
    let after = counters::read(&wishes.counters);
    for ((name, before), (_, after)) in before.iter().zip(&after) {
        let mut value = *after as i64 - *before as i64;
        value -= match name.as_str() {
            "pgpgout" => world.made_kib.load(SeqCst) as i64,
            "pgfault" => world.own_faults.load(SeqCst) as i64,
            _ => 0,
        };
        say(format_args!("@counter {name} {value}"));
    }
    counters::devices();
    say(format_args!("@metric kernel_pages {}", (sum / looks.max(1) as i64).max(0)));
    say(format_args!("@metric fault_nanos {fault_nanos}"));
    say(format_args!("@metric hidden_pages {}", taken.hidden()));
    say(format_args!("@metric managed_pages {}", taken.managed()));
    let [accesses, progress] = [&world.accesses, &world.progress].map(|sum| sum.load(SeqCst));
    let tasks = world.tasks.load(SeqCst);
    say(format_args!("@done nanos={nanos} accesses={accesses} progress={progress} tasks={tasks}"));
    let died = world.signals.load(SeqCst) > 0 && !world.program.may_die();
    report::end(if died { Verdict::Failed } else { Verdict::Ok })
}
