//! What to boot: the kernel's command line and QEMU's arguments.

use super::recorded::Recorded;
use crate::error::{Error, Result};
use mm::knobs::Knob;
use mm::units::{MAX_ORDER, PAGE_SIZE};
use std::ffi::OsString;
use std::path::Path;

const MIB: u64 = 1 << 20;
/// Memory comes in blocks of the largest order, on every machine.
const BLOCK: u64 = PAGE_SIZE << MAX_ORDER.0;
/// Blocks without which the memory manager does not start on a node.
const LEAST_BLOCKS: u64 = 2;

/// CPUs, nodes, memory and swap space: what the simulated machine must share with the booted one for their counts to
/// agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// CPUs, the first half (rounded up) of them on the first of two nodes.
    pub cpus: u32,
    /// NUMA nodes, 1 or 2, each with the same memory.
    pub nodes: u32,
    /// Bytes for the memory manager.
    pub memory: u64,
    /// Pages of swap space.
    pub swap: u64,
}

impl Shape {
    /// A machine with about `memory` bytes: rounded so that every node has whole blocks, as the simulator does it, too.
    pub fn new(cpus: u32, nodes: u32, memory: u64, swap: u64) -> Result<Shape> {
        let blocks = (memory / u64::from(nodes) + BLOCK / 2) / BLOCK;
        if blocks < LEAST_BLOCKS {
            return Err(Error::Input(format!(
                "--memory: {memory} bytes are too small to run: this machine needs at least {}M",
                LEAST_BLOCKS * BLOCK * u64::from(nodes) / MIB
            )));
        }
        Ok(Shape { cpus, nodes, memory: blocks * BLOCK * u64::from(nodes), swap })
    }

    /// CPUs of a node.
    pub fn cpus_of(&self, node: u32) -> u32 {
        let first = self.cpus.div_ceil(self.nodes);
        if node == 0 { first } else { self.cpus - first }
    }

    /// The simulated machine of this shape, as `--machine` takes it.
    pub fn machine_name(&self) -> String {
        format!("booted:{}:{}:{}M", self.cpus, self.nodes, self.swap * PAGE_SIZE / MIB)
    }
}

/// What the guest is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// Run a built-in program.
    Program {
        /// Its name, with all that is said of it.
        name: String,
        /// Bytes that it is told to touch.
        bytes: u64,
        /// Threads that there must be room for.
        threads: u32,
    },
    /// Replay a trace.
    Trace(Recorded),
    /// Test itself, by this name.
    Check(String),
    /// Count instructions.
    Bench,
}

impl Task {
    /// The check of that name, if it is one.
    pub fn check(name: &str) -> Option<Task> {
        let known = matches!(name, "selftest" | "conformance") || name.starts_with("scenario:");
        known.then(|| Task::Check(name.to_owned()))
    }

    fn word(&self) -> String {
        match self {
            Task::Program { name, .. } => name.clone(),
            Task::Trace(_) => "trace".to_owned(),
            Task::Check(name) => name.clone(),
            Task::Bench => "bench".to_owned(),
        }
    }
}

/// One boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guest {
    /// What it does.
    pub task: Task,
    /// On what machine.
    pub shape: Shape,
    /// The seed.
    pub seed: u64,
    /// Check every load?
    pub check: bool,
    /// Knobs that differ from their defaults; later ones win.
    pub knobs: Vec<(Knob, u64)>,
    /// Leave out the N-th flush that other CPUs are asked for (a kernel built with its fault only).
    pub drop: Option<u64>,
    /// Run the CPUs in turn and let time be the count of instructions, so that every run is the same.
    pub icount: bool,
}

impl Guest {
    /// What the kernel is told.
    pub fn command_line(&self) -> String {
        let mut words = vec![
            format!("program={}", self.task.word()),
            format!("seed={}", self.seed),
            format!("memory={}", self.shape.memory),
            format!("swap={}", self.shape.swap),
            format!("check={}", u8::from(self.check)),
        ];
        words.extend(self.knobs.iter().map(|(knob, value)| format!("knob.{}={value}", knob.info().name)));
        words.extend(self.drop.map(|number| format!("drop={number}")));
        words.join(" ")
    }

    /// What QEMU is told, which takes the kernel, the disks and a trace's image from these files.
    pub fn arguments(&self, kernel: &Path, disks: Disks<'_>) -> Vec<OsString> {
        let memory = self.machine_memory() / MIB;
        let mut args = Arguments::default();
        // HMAT describes nodes; QEMU refuses it without any.
        args.add(["-machine", if self.shape.nodes > 1 { "q35,hmat=on" } else { "q35" }]);
        args.add(["-cpu", "max"]);
        args.add(["-m", &format!("{memory}M")]).add(["-smp", &self.shape.cpus.to_string()]);
        args.add(["-nographic", "-no-reboot", "-nodefaults"]).add(["-serial", "stdio", "-monitor", "none"]);
        args.add(["-device", "isa-debug-exit,iobase=0xf4,iosize=4"]);
        args.add(match self.icount {
            true => ["-accel", "tcg,thread=single"],
            false => ["-accel", "tcg,thread=multi"],
        });
        if self.icount {
            args.add(["-icount", "shift=0,sleep=off"]);
        }
        if self.shape.nodes > 1 {
            self.nodes(&mut args, memory / u64::from(self.shape.nodes));
        }
        args.disks([Some(disks.files), disks.swap], "");
        args.0.extend(["-kernel".into(), kernel.into()]);
        args.0.extend(disks.trace.into_iter().flat_map(|trace| ["-initrd".into(), trace.into()]));
        args.add(["-append", &self.command_line()]);
        args.0
    }

    /// Bytes of the disk that holds files: more than any program writes. It is sparse, so size costs nothing.
    pub fn files_size(&self) -> u64 {
        let program = match &self.task {
            Task::Program { bytes, .. } => bytes.saturating_mul(4),
            // Each file gets a share of what is left to grow in.
            Task::Trace(trace) => trace.footprint.saturating_mul(4).saturating_add(trace.files << 30),
            Task::Check(_) | Task::Bench => 0,
        };
        program.saturating_add(1 << 30)
    }

    /// Bytes of the disk that holds swap space; 0: there is none.
    pub fn swap_size(&self) -> u64 {
        self.shape.swap * PAGE_SIZE
    }

    /// Memory by node, distances, and what a read takes.
    fn nodes(&self, args: &mut Arguments, megabytes: u64) {
        let mut cpu = 0;
        for node in 0..self.shape.nodes {
            args.add(["-object", &format!("memory-backend-ram,size={megabytes}M,id=m{node}")]);
            let cpus = self.shape.cpus_of(node);
            let owner = match cpus {
                // Memory alone is reached from the first node.
                0 => "initiator=0".to_owned(),
                1 => format!("cpus={cpu}"),
                _ => format!("cpus={cpu}-{}", cpu + cpus - 1),
            };
            args.add(["-numa", &format!("node,nodeid={node},memdev=m{node},{owner}")]);
            cpu += cpus;
        }
        let nodes = self.shape.nodes;
        let pairs = (0..nodes).flat_map(|from| (0..nodes).map(move |to| (from, to)));
        for (from, to) in pairs {
            let (distance, latency, bandwidth) = if from == to { (10, 80, "12G") } else { (21, 140, "8G") };
            if from != to {
                args.add(["-numa", &format!("dist,src={from},dst={to},val={distance}")]);
            }
            if self.shape.cpus_of(from) > 0 {
                let lb = format!("hmat-lb,initiator={from},target={to},hierarchy=memory,data-type=access");
                args.add(["-numa", &format!("{lb}-latency,latency={latency}")]);
                args.add(["-numa", &format!("{lb}-bandwidth,bandwidth={bandwidth}")]);
            }
        }
    }

    /// Bytes of the emulated machine: what the memory manager gets, and what the kernel keeps for itself.
    ///
    /// The kernel keeps its image and heap (with a record of 64 bytes for every frame, page-table bookkeeping and the
    /// map of swap slots), and the arena of user mode: stacks, and the checker's entry for every page of the program. A
    /// trace comes on top of that.
    pub fn machine_memory(&self) -> u64 {
        let Shape { nodes, memory, swap, .. } = self.shape;
        let program = match &self.task {
            Task::Program { bytes, threads, .. } => bytes / 32 + u64::from(*threads) * (256 << 10),
            Task::Trace(trace) => {
                let image = (trace.image().len() as u64).next_multiple_of(BLOCK) + BLOCK;
                trace.footprint / 32 + trace.mapped / 64 + trace.threads * (256 << 10) + image / 7 * 8
            }
            Task::Check(_) | Task::Bench => 0,
        };
        // What the kernel takes for its heap and for user mode grows with all memory, so of each seven bytes handed on
        // it needs less than one; and all of it is on the first node, which makes the others as large.
        let own = 112 * MIB + memory / 7 + swap * 16 + program;
        // Nodes are of one size and start at multiples of it, so each needs whole blocks.
        (memory + own * u64::from(nodes)).next_multiple_of(BLOCK * u64::from(nodes))
    }
}

/// Files of the host that the guest has as disks, or in its memory.
#[derive(Clone, Copy, Debug)]
pub struct Disks<'a> {
    /// The disk with files.
    pub files: &'a Path,
    /// The disk with swap space.
    pub swap: Option<&'a Path>,
    /// The trace's image.
    pub trace: Option<&'a Path>,
}

/// QEMU's arguments.
#[derive(Default)]
pub(crate) struct Arguments(pub(crate) Vec<OsString>);

impl Arguments {
    /// Add some.
    pub(crate) fn add<'a>(&mut self, words: impl IntoIterator<Item = &'a str>) -> &mut Arguments {
        self.0.extend(words.into_iter().map(OsString::from));
        self
    }

    /// Attach files as disks, those that there are.
    pub(crate) fn disks(&mut self, images: [Option<&Path>; 2], options: &str) {
        for (number, image) in images.into_iter().flatten().enumerate() {
            // A comma ends a value of QEMU's; two of them are one.
            let image = image.display().to_string().replace(',', ",,");
            self.add(["-drive", &format!("if=none,id=d{number},format=raw{options},file={image}")]);
            self.add(["-device", &format!("virtio-blk-pci,drive=d{number}")]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest(cpus: u32, nodes: u32) -> Guest {
        let task = Task::Program { name: "zipf:67108864:4".into(), bytes: 64 << 20, threads: 4 };
        let shape = Shape::new(cpus, nodes, 32 << 20, 1024).unwrap();
        Guest { task, shape, seed: 7, check: true, knobs: vec![], drop: None, icount: false }
    }

    fn arguments(guest: &Guest) -> String {
        let disks = Disks {
            files: Path::new("f"),
            swap: Some(Path::new("s,1")),
            trace: matches!(guest.task, Task::Trace(_)).then(|| Path::new("t")),
        };
        let args = guest.arguments(Path::new("k"), disks);
        let words: Vec<&str> = args.iter().map(|arg| arg.to_str().unwrap()).collect();
        words.join(" ")
    }

    #[test]
    fn the_kernel_is_told_everything() {
        let mut guest = guest(2, 1);
        assert_eq!(guest.command_line(), "program=zipf:67108864:4 seed=7 memory=33554432 swap=1024 check=1");
        guest.knobs = vec![(Knob::TlbUnmap, 3)];
        (guest.check, guest.drop) = (false, Some(2));
        assert!(guest.command_line().ends_with(" check=0 knob.tlb.unmap=3 drop=2"));
        guest.task = Task::check("scenario:takeoff").unwrap();
        assert!(guest.command_line().starts_with("program=scenario:takeoff seed=7"));
        assert_eq!(Task::check("zipf"), None);
    }

    #[test]
    fn memory_is_what_the_simulator_makes_of_it() {
        for (nodes, bytes, expected) in [
            (1, 33 << 20, 32 << 20),
            (1, 34 << 20, 36 << 20),
            (2, 44 << 20, 48 << 20),
            (2, 16 << 20, 16 << 20),
        ] {
            assert_eq!(Shape::new(2, nodes, bytes, 0).unwrap().memory, expected, "{nodes} {bytes}");
        }
        let error = Shape::new(1, 2, 8 << 20, 0).unwrap_err();
        assert!(error.to_string().contains("at least 16M") && error.exit_code() == 2, "{error}");
    }

    #[test]
    fn qemu_is_told_of_cpus_nodes_and_disks() {
        let one = arguments(&guest(4, 1));
        for expected in
            ["-machine q35 ", "-smp 4 ", "thread=multi", "file=s,,1", "-kernel k -append program="]
        {
            assert!(one.contains(expected), "{expected}: {one}");
        }
        assert!(!one.contains("-numa") && !one.contains("icount"));
        let two = arguments(&Guest { icount: true, ..guest(3, 2) });
        for expected in
            ["hmat=on", "cpus=0-1", "cpus=2 ", "dist,src=1,dst=0,val=21", "-icount shift=0,sleep=off"]
        {
            assert!(two.contains(expected), "{expected}: {two}");
        }
        assert!(arguments(&guest(1, 2)).contains("nodeid=1,memdev=m1,initiator=0"));
    }

    #[test]
    fn the_kernel_has_room_for_itself() {
        for nodes in [1, 2] {
            let guest = guest(2, nodes);
            let memory = guest.machine_memory();
            assert!(memory / u64::from(nodes) >= guest.shape.memory / u64::from(nodes) + (112 << 20));
            assert!(memory.is_multiple_of(u64::from(nodes) << 20));
        }
    }
}
