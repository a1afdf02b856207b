//! From the first instruction in 64-bit mode to the first task.

use crate::arch::firmware::{LowMemory, StartInfo};
use crate::arch::{apic, clock, cpu, instructions, io_apic, paging, smp, trap};
use crate::machine::{self, X86};
use crate::programs::{self, Run};
use crate::{arena, bench, conformance, devices, disk, heap, log, report, sched, selftest};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use kernel::Disk;
use machine_x86::acpi::Platform;
use machine_x86::cmdline::{CommandLine, Job};
use machine_x86::memory_map::{self, NodeMemory, Span};
use mm::api::{SwapArea, ZramConfig};
use mm::knobs::Knobs;
use mm::machine::Compressor;
use mm::units::{DeviceId, MAX_ORDER, NodeId, PAGE_SIZE};
use mm::{Config, Machine, Mm};

/// Bytes of memory for devices' queues.
const DMA_BYTES: u64 = 2 << 20;
/// The kernel's heap: a fixed size, ...
const HEAP_BYTES: u64 = 24 << 20;
/// ... a record for each frame, ...
const RECORD_BYTES: u64 = 64;
/// ... and this share of memory for page trees, mapped ranges and the like.
const HEAP_SHARE: u64 = 32;
/// The arena: stacks, a fixed size, and this share of memory.
const ARENA_BYTES: u64 = 16 << 20;
const ARENA_SHARE: u64 = 16;
/// The kernel's own memory is below this: the first tables map no more.
const CARVE_LIMIT: u64 = 0xfe00_0000;
/// Bytes of the largest block: the kernel's own memory ends at such a boundary, so that no block is split.
const BLOCK: u64 = PAGE_SIZE << MAX_ORDER.0;

/// Distance of a node from itself, and from others if unknown (ACPI).
const LOCAL: u32 = 10;
const REMOTE: u32 = 20;

/// Boot the machine, on the first CPU.
pub fn start(info: u64) -> ! {
    cpu::init_first();
    // SAFETY: the line before has loaded the segments.
    unsafe { trap::init() };
    heap::init_first();
    let Some(start_info) = StartInfo::read(info) else {
        report::bad(format_args!("the emulator has passed no PVH start info"));
    };
    let memory = memory_map::usable(start_info.memory);
    let free = carve_out(&memory, start_info.file);
    let platform = Platform::read(&LowMemory, start_info.rsdp);
    let line = CommandLine::parse(&start_info.command_line)
        .unwrap_or_else(|error| report::bad(format_args!("{error}")));
    start_devices(&platform);
    let nodes = Nodes::new(&platform, &memory);
    let cpus = nodes.cpus(&platform);
    cpu::init_all(&cpus);
    log_platform(&platform, cpus.len(), &nodes.memory_distances);
    create_mm(&line, &nodes, &free);
    machine::init_cpu();
    sched::adopt_cpu();
    start_cpus();
    apic::start_timer();
    let found = machine::mm().machine();
    report::machine(found.cpus(), found.nodes(), found.bytes());
    sched::spawn("main", None, move || run(line, start_info.file));
    sched::idle()
}

/// Continue booting, on a CPU that was started.
pub fn start_other(number: usize) -> ! {
    paging::load();
    cpu::init_other(number);
    // SAFETY: the line before has loaded the segments.
    unsafe { trap::init() };
    apic::enable();
    machine::init_cpu();
    sched::adopt_cpu();
    apic::start_timer();
    smp::count_running();
    sched::idle()
}

/// Take the kernel's own memory out of `memory`, including the file that came with the image, map everything,
/// and return the rest.
fn carve_out(memory: &[Span], file: Option<Span>) -> Vec<Span> {
    let total: u64 = memory.iter().map(Span::len).sum();
    let top = memory.last().map_or(0, |span| span.end);
    let heap = (HEAP_BYTES + top / PAGE_SIZE * RECORD_BYTES + total / HEAP_SHARE).next_multiple_of(2 << 20);
    let arena = (ARENA_BYTES + arena::STACKS_BYTES + total / ARENA_SHARE).next_multiple_of(2 << 20);
    let image = Span::new(memory_map::LOW_END, paging::image_end_physical());
    let mut free = memory_map::without(memory, image);
    if let Some(file) = file {
        free = memory_map::without(&free, memory_map::pages_of(file));
    }
    let Some(piece) = memory_map::lowest(&free, heap + arena + DMA_BYTES, 2 << 20, CARVE_LIMIT) else {
        report::bad(format_args!(
            "the kernel needs {} MiB for itself, which are not available; use more memory (-m)",
            (heap + arena + DMA_BYTES) >> 20
        ));
    };
    let [heap_end, arena_end] = [piece.start + heap, piece.start + heap + arena];
    // SAFETY: ordinary memory that was just taken out and has no other user; the first tables map it, and so
    // will the next.
    unsafe { heap::add(paging::direct(piece.start), heap as usize) };
    paging::init(memory);
    arena::init(Span::new(heap_end, arena_end));
    if let Some(file) = file {
        arena::map_file(file);
    }
    heap::init_user((arena::heap_bytes() - arena::LAUNCH_INFO_BYTES) as usize);
    devices::init_dma(Span::new(arena_end, piece.end));
    memory_map::without(&free, Span::new(0, piece.end.next_multiple_of(BLOCK)))
}

fn start_devices(platform: &Platform) {
    apic::enable();
    clock::calibrate();
    io_apic::init(&platform.io_apics);
    if let Some(&window) = platform.pci.first() {
        devices::set_pci(window);
    }
    disk::init();
}

/// The NUMA nodes: proximity domains by number.
struct Nodes {
    domains: Vec<u32>,
    memory: Vec<NodeMemory>,
    distances: Vec<u32>,
    memory_distances: Vec<u32>,
}

impl Nodes {
    fn new(platform: &Platform, memory: &[Span]) -> Nodes {
        let mut domains = platform.domains();
        domains.truncate(64);
        if domains.is_empty() {
            domains.push(0);
        }
        let node = |domain| domains.iter().position(|&known| known == domain).unwrap_or(0);
        let owned = |&(span, domain): &(Span, u32)| {
            let node = NodeId(node(domain) as u8);
            memory
                .iter()
                .map(move |part| part.intersection(span))
                .filter(|part| !part.is_empty())
                .map(move |span| NodeMemory { span, node })
        };
        let mut memory_of_nodes: Vec<NodeMemory> = platform.memory_domains.iter().flat_map(owned).collect();
        if memory_of_nodes.is_empty() {
            memory_of_nodes.extend(memory.iter().map(|&span| NodeMemory { span, node: NodeId(0) }));
        }
        let pairs = domains.iter().flat_map(|&from| domains.iter().map(move |&to| (from, to)));
        let distance = |(from, to)| match platform.distance(from, to) {
            Some(distance) => distance as u32,
            None if from == to => LOCAL,
            None => REMOTE,
        };
        let distances = pairs.map(distance).collect();
        let memory_distances = domains.iter().map(|&domain| platform.memory_distance(domain)).collect();
        Nodes { memory: memory_of_nodes, distances, memory_distances, domains }
    }

    /// All usable CPUs, this one first: local APIC id and node.
    fn cpus(&self, platform: &Platform) -> Vec<(u32, NodeId)> {
        let this = apic::id();
        let node = |cpu: u32| {
            let domain = platform.cpu_domains.iter().find(|(id, _)| *id == cpu).map(|&(_, domain)| domain);
            let node = domain.and_then(|domain| self.domains.iter().position(|&known| known == domain));
            NodeId(node.unwrap_or(0) as u8)
        };
        let others = platform.cpus.iter().copied().filter(|&cpu| cpu != this && cpu < cpu::MAX_CPUS as u32);
        core::iter::once(this).chain(others).take(cpu::MAX_CPUS).map(|cpu| (cpu, node(cpu))).collect()
    }
}

fn log_platform(platform: &Platform, cpus: usize, memory_distances: &[u32]) {
    log!("cpus {cpus}, domains {:?}, distances {:?}", platform.domains(), platform.distances);
    log!("abstract distances {memory_distances:?}");
    for &(span, domain) in &platform.memory_domains {
        log!("memory {:#x} to {:#x} of domain {domain}", span.start, span.end);
    }
    for latency in &platform.latencies {
        log!("latency from domain {} to {}: {} ps", latency.initiator, latency.target, latency.value);
    }
}

fn create_mm(line: &CommandLine, nodes: &Nodes, free: &[Span]) {
    let fail = |error: String| -> ! { report::bad(format_args!("{error}")) };
    let ranges = memory_map::ranges(free, &nodes.memory, &line.memory).unwrap_or_else(|error| fail(error));
    for range in &ranges {
        log!("{:?} of {}: {} frames from {}", range.kind, range.node, range.frames, range.start);
    }
    let knobs = Knobs::default();
    for &(knob, value) in &line.knobs {
        knobs.set(knob, value).expect("the command line must be checked");
    }
    let lz4 = ZramConfig::new(Compressor::Lz4);
    let zram = SwapArea { device: DeviceId(u8::MAX), pages: line.zram, priority: 1, zram: Some(lz4) };
    let disk = SwapArea { device: DeviceId(1), pages: line.swap, priority: 0, zram: None };
    let swap = [zram, disk].into_iter().filter(|area| area.pages > 0).collect();
    let distances = (nodes.distances.clone(), nodes.memory_distances.clone());
    let found = X86::new(ranges, distances.0, distances.1, line.compresses());
    let mm = Mm::new(found, Config { knobs, swap, ..Config::default() }).unwrap_or_else(|error| fail(error));
    let device = DeviceId(0);
    machine::set_mm(mm, disk::pages(device).map(|pages| Disk { device, pages, taken: 0, thin: false }));
    crate::shootdown::OMITTED.store(line.drop.unwrap_or(0), core::sync::atomic::Ordering::Relaxed);
}

/// Bytes of a CPU's first stack, on which it is later idle.
const IDLE_STACK: usize = 32 << 10;

fn start_cpus() {
    let stack = |_| {
        let stack = Box::leak(Box::<[u128]>::new_uninit_slice(IDLE_STACK / 16));
        stack.as_mut_ptr_range().end as u64
    };
    if let Err(cpu) = smp::start(stack) {
        report::failed(format_args!("cpu {cpu} does not start"));
    }
    log!("cpus running: {}", smp::running());
}

/// The first task: start the background tasks, then do what the command line asks for.
fn run(line: CommandLine, file: Option<Span>) {
    debug_assert!(instructions::interrupts_enabled());
    sched::spawn("disks", None, || disk::complete_transfers());
    for daemon in machine::mm().daemons() {
        sched::spawn(alloc::format!("{daemon:?}"), None, move || machine::mm().daemon(daemon));
    }
    let trace = file.map(arena::file);
    let program = |program| {
        let CommandLine { seed, check, ref groups, .. } = line;
        let (groups, entry) = (groups.clone(), programs::PROGRAM);
        programs::run(Run { program, trace, seed, check, groups, entry })
    };
    match line.job.clone() {
        Job::SelfTest => selftest::run(line.swap + line.zram, line.compresses()),
        Job::Crash(how) => selftest::crash(how),
        Job::Conformance => conformance::run(),
        Job::Program { name, bytes, threads: None } => program(format!("{name}:{bytes}")),
        Job::Program { name, bytes, threads: Some(threads) } => program(format!("{name}:{bytes}:{threads}")),
        Job::Scenario(name) => program(format!("scenario:{name}")),
        Job::Trace => program(String::from("trace")),
        Job::Bench => bench::run(line.seed),
    }
}
