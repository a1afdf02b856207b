//! What to boot: the kernel's command line and QEMU's arguments.

use super::arguments::Arguments;
use super::recorded::Recorded;
use super::shape::{BLOCK, Shape};
use crate::engine::GroupSpec;
use mm::knobs::Knob;
use mm::units::PAGE_SIZE;
use std::ffi::OsString;
use std::path::Path;

const MIB: u64 = 1 << 20;

/// The task of the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// Run a built-in program.
    Program {
        /// Its name, with all parameters.
        name: String,
        /// Bytes that it touches.
        bytes: u64,
        /// Threads for which there must be room.
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
    /// Whether to check every load.
    pub check: bool,
    /// Knobs that differ from their defaults; later ones win.
    pub knobs: Vec<(Knob, u64)>,
    /// Control groups that a program begins with.
    pub groups: Vec<GroupSpec>,
    /// Pages of a zram device, which is swap space, too, and comes first.
    pub zram: u64,
    /// Leave out the N-th flush that other CPUs are asked for (a kernel built with its fault only).
    pub drop: Option<u64>,
    /// Run the CPUs in turn and let time be the count of instructions, so that every run is the same.
    pub icount: bool,
}

impl Guest {
    /// The kernel's command line.
    pub fn command_line(&self) -> String {
        let mut words = vec![
            format!("program={}", self.task.word()),
            format!("seed={}", self.seed),
            format!("memory={}", join(self.shape.memory_by_node(), ":")),
            format!("swap={}", self.shape.swap),
            format!("check={}", u8::from(self.check)),
        ];
        words.extend((self.zram > 0).then(|| format!("zram={}", self.zram)));
        words.extend(self.knobs.iter().map(|(knob, value)| format!("knob.{}={value}", knob.info().name)));
        words.extend(self.groups.iter().map(|group| format!("group={group}")));
        words.extend(self.drop.map(|number| format!("drop={number}")));
        words.join(" ")
    }

    /// QEMU's arguments. It takes the kernel, the disks and a trace's image from these files.
    pub fn arguments(&self, kernel: &Path, disks: Disks<'_>) -> Vec<OsString> {
        let memory = self.memory_by_node();
        let mut args = Arguments::default();
        args.add(["-machine", self.shape.machine_type()]);
        args.add(["-cpu", "max"]);
        args.add(["-m", &format!("{}M", memory.iter().sum::<u64>() / MIB)])
            .add(["-smp", &self.shape.cpus.to_string()]);
        args.add(["-nographic", "-no-reboot", "-nodefaults"]).add(["-serial", "stdio", "-monitor", "none"]);
        args.add(["-device", "isa-debug-exit,iobase=0xf4,iosize=4"]);
        args.add(match self.icount {
            true => ["-accel", "tcg,thread=single"],
            false => ["-accel", "tcg,thread=multi"],
        });
        if self.icount {
            args.add(["-icount", "shift=0,sleep=off"]);
        }
        self.shape.describe_nodes(&mut args, &memory);
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

    /// Bytes of the emulated machine.
    pub fn machine_memory(&self) -> u64 {
        self.memory_by_node().iter().sum()
    }

    /// Bytes of each node of the emulated machine: what the memory manager gets, and what the kernel keeps for itself.
    ///
    /// The kernel keeps its image and heap (with a record of 64 bytes for every frame, page-table bookkeeping and the
    /// map of swap slots), and the arena of user mode: stacks, and the checker's entry for every page of the program. A
    /// trace comes on top of that. All of it is on the first node.
    fn memory_by_node(&self) -> Vec<u64> {
        let (memory, swap) = (self.shape.memory(), self.shape.swap + self.zram);
        let program = match &self.task {
            Task::Program { bytes, threads, .. } => bytes / 32 + u64::from(*threads) * (256 << 10),
            Task::Trace(trace) => {
                let image = (trace.image().len() as u64).next_multiple_of(BLOCK) + BLOCK;
                trace.footprint / 32 + trace.mapped / 64 + trace.threads * (256 << 10) + image / 7 * 8
            }
            Task::Check(_) | Task::Bench => 0,
        };
        // What the kernel takes for its heap and for user mode grows with all memory, so of each seven bytes handed on
        // it needs less than one.
        let own = 112 * MIB + memory / 7 + swap * 16 + program;
        // A node starts where the one before ends, so each needs whole blocks; firmware's tables are at the last one's
        // end.
        let more = [own, BLOCK];
        let nodes = self.shape.memory_by_node().iter().zip(more);
        nodes.map(|(memory, more)| (memory + more).next_multiple_of(BLOCK)).collect()
    }
}

/// Numbers in one word.
pub(crate) fn join(numbers: &[u64], between: &str) -> String {
    numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(between)
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

#[cfg(test)]
pub(super) mod tests {
    use super::super::shape::{Ratio, Second};
    use super::*;

    pub(in super::super) fn guest(cpus: u32, second: Second) -> Guest {
        let task = Task::Program { name: "zipf:67108864:4".into(), bytes: 64 << 20, threads: 4 };
        let shape = Shape::new(cpus, second, 32 << 20, 1024).unwrap();
        Guest {
            task,
            shape,
            seed: 7,
            check: true,
            knobs: vec![],
            groups: vec![],
            zram: 0,
            drop: None,
            icount: false,
        }
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
        let mut guest = guest(2, Second::Missing);
        assert_eq!(guest.command_line(), "program=zipf:67108864:4 seed=7 memory=33554432 swap=1024 check=1");
        guest.knobs = vec![(Knob::TlbUnmap, mm::knobs::FlushPolicy::Lazy.value())];
        (guest.check, guest.drop) = (false, Some(2));
        guest.groups = vec!["web:memory.max=4096,processes=0".parse().unwrap()];
        let words = " check=0 knob.tlb.unmap=3 group=web:memory.max=4096,processes=0-0 drop=2";
        assert!(guest.command_line().ends_with(words));
        guest.task = Task::check("scenario:takeoff").unwrap();
        assert!(guest.command_line().starts_with("program=scenario:takeoff seed=7"));
        assert_eq!(Task::check("zipf"), None);
    }

    #[test]
    fn qemu_is_told_of_cpus_nodes_and_disks() {
        let one = arguments(&guest(4, Second::Missing));
        for expected in
            ["-machine q35 ", "-smp 4 ", "thread=multi", "file=s,,1", "-kernel k -append program="]
        {
            assert!(one.contains(expected), "{expected}: {one}");
        }
        assert!(!one.contains("-numa") && !one.contains("icount"));
        let two = arguments(&Guest { icount: true, ..guest(3, Second::Alike) });
        for expected in
            ["hmat=on", "cpus=0-1", "cpus=2 ", "dist,src=1,dst=0,val=21", "-icount shift=0,sleep=off"]
        {
            assert!(two.contains(expected), "{expected}: {two}");
        }
        assert!(arguments(&guest(1, Second::Alike)).contains("nodeid=1,memdev=m1,initiator=0"));
        let slow = guest(4, Second::Slow(Ratio(1, 3)));
        assert!(slow.command_line().contains(" memory=8388608:25165824 "));
        let tiers = arguments(&slow);
        for expected in
            ["cpus=0-3", "size=28M,id=m1", "nodeid=1,memdev=m1,initiator=0", "dst=1,val=14", "latency=255"]
        {
            assert!(tiers.contains(expected), "{expected}: {tiers}");
        }
    }

    #[test]
    fn the_kernel_has_room_for_itself() {
        for second in [Second::Missing, Second::Alike, Second::Slow(Ratio(1, 3))] {
            let guest = guest(2, second);
            let memory = guest.memory_by_node();
            let given = guest.shape.memory_by_node();
            assert!(memory[0] >= given[0] + (112 << 20));
            assert!(memory.iter().zip(given).all(|(has, given)| has > given && has.is_multiple_of(BLOCK)));
        }
    }
}
