//! What to boot: the guest's configuration, its disks, and QEMU's arguments.

use super::archive::Archive;
use super::areas::{Areas, disk};
use super::conditions::Setting;
use super::find::Kernel;
use super::original::Original;
use super::reserve::Reserve;
use crate::boot::arguments::Arguments;
use crate::boot::guest::join;
use crate::boot::{Recorded, Shape};
use crate::error::{Error, Result};
use crate::scratch;
use mm::stat::Stat;
use mm::units::PAGE_SIZE;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
/// Bytes of a page of the arena, where the guest's first process keeps all that is its own.
const HUGE: u64 = 2 * MIB;

/// The longest that a CPU runs while others wait for their turn: what a simulated CPU may be ahead of the others.
const TURN_MICROS: u64 = 20;

/// What the guest runs.
pub enum What<'a> {
    /// A built-in program, by its name with all that is said of it; and the bytes that it touches.
    Named(String, u64),
    /// A recorded one.
    Trace(&'a Recorded),
    /// One that was recorded, itself; and the bytes that its recording touches.
    Original(&'a Original, u64),
}

impl What<'_> {
    /// Bytes that it touches.
    fn footprint(&self) -> u64 {
        match self {
            What::Named(_, footprint) | What::Original(_, footprint) => *footprint,
            What::Trace(trace) => trace.footprint,
        }
    }
}

/// What a guest that runs no program of its own image has as one.
pub const NO_PROGRAM: &str = "uniform:1048576";

/// What a guest is booted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To run its program.
    Run,
    /// To say how many pages are free.
    Measure,
    /// To count instructions of known work.
    Bench,
}

/// One boot.
pub struct LinuxGuest<'a> {
    /// What it runs.
    pub what: What<'a>,
    /// Its kernel.
    pub kernel: &'a Kernel,
    /// The file of its first process.
    pub init: &'a Path,
    /// CPUs, nodes, memory that the program is left with, and swap space.
    pub shape: Shape,
    /// The seed.
    pub seed: u64,
    /// Which of several boots with this seed.
    pub boot: u32,
    /// Daemons that the simulated machine starts before the program's first task: tasks' random choices follow from
    /// their numbers.
    pub daemons: u32,
    /// What is written into the kernel's files.
    pub settings: &'a [Setting],
    /// Swap areas.
    pub areas: &'a Areas,
    /// Memory for the kernel.
    pub reserve: Reserve,
    /// What it is booted for.
    pub purpose: Purpose,
    /// Run the CPUs in turn, with time that counts instructions while any of them works.
    pub icount: bool,
    /// More words for the kernel.
    pub append: &'a str,
}

/// Files that a boot needs, which go away with it.
pub struct Files {
    files: PathBuf,
    swap: Option<PathBuf>,
    trace: Option<PathBuf>,
    initial: PathBuf,
    /// Removes them.
    _folder: TempDir,
}

impl LinuxGuest<'_> {
    /// Bytes of the arena: the program's stacks and tables, the trace, and a page for the guest's own program.
    pub fn arena(&self) -> u64 {
        let more = match &self.what {
            // The image is read at once; its header is decoded beside it.
            What::Trace(trace) => trace.image().len() as u64 / 8 * 9 + trace.threads * (128 << 10),
            What::Named(..) | What::Original(..) => 0,
        };
        let bytes = self.what.footprint() / 32 + more;
        (bytes + 6 * MIB).next_multiple_of(HUGE) + HUGE
    }

    /// Bytes of each node of the emulated machine. The kernel takes what it needs from the first.
    pub fn memory_by_node(&self) -> Vec<u64> {
        let given = self.shape.memory_by_node();
        let own = self.reserve.taken + self.arena();
        // A node starts where a block does.
        let first = (given[0] + own).next_multiple_of(4 * MIB);
        // Linux shares its reserves out by all pages of the nodes, locked away or not, so they must have the program's
        // shares; records of pages come on top.
        let managed = |node: &u64| (first - self.reserve.never_managed) * node / given[0];
        let others = given.iter().skip(1).map(|node| (managed(node) * 65 / 64).next_multiple_of(MIB));
        [first].into_iter().chain(others).collect()
    }

    /// Bytes of the disk with files: more than any program writes. It is sparse.
    fn files_size(&self) -> u64 {
        let room = if matches!(self.what, What::Named(..)) { 1 << 30 } else { 4 << 30 };
        self.what.footprint().saturating_mul(4).saturating_add(room)
    }

    /// The configuration of the first process.
    pub fn configuration(&self) -> String {
        let mut lines = vec![
            format!("seed {}", self.seed),
            format!("boot {}", self.boot),
            format!("cpus {}", self.shape.cpus),
        ];
        let pages: Vec<u64> = self.shape.memory_by_node().iter().map(|bytes| bytes / PAGE_SIZE).collect();
        lines.push(format!("first {}\npages {}", self.daemons, join(&pages, ":")));
        lines.push(match &self.what {
            What::Named(name, _) => format!("program {name}"),
            What::Trace(trace) => {
                let disk = if self.shape.swap > 0 { "vdc" } else { "vdb" };
                format!("program trace\ntrace /dev/{disk} {}", trace.image().len())
            }
            What::Original(..) => format!("program {NO_PROGRAM}\noriginal"),
        });
        lines.extend(match self.purpose {
            Purpose::Run => None,
            Purpose::Measure => Some("measure".to_owned()),
            Purpose::Bench => Some("bench".to_owned()),
        });
        lines.extend(module_names(self.kernel).map(|name| format!("insert /{name}")));
        lines.extend(disk("vda", "files"));
        lines.extend(self.areas.lines(self.shape.swap > 0));
        // Ours refuses no mapping for its size.
        lines.push("write /proc/sys/vm/overcommit_memory 1".to_owned());
        lines.extend(self.settings.iter().map(|Setting { file, value, may_lack }| {
            format!("{} {file} {value}", if *may_lack { "try" } else { "write" })
        }));
        let events = Stat::ALL.iter().filter(|stat| !stat.is_level());
        lines.extend(events.map(|stat| format!("counter {}", stat.name())));
        lines.join("\n") + "\n"
    }

    /// Make disks and the initial file system.
    pub fn files(&self, mke2fs: &Path) -> Result<Files> {
        let folder = scratch::folder()?;
        let disk = |name: &str, bytes: u64| -> Result<PathBuf> {
            let path = folder.path().join(name);
            let made = std::fs::File::create(&path).and_then(|file| file.set_len(bytes));
            made.map(|()| path.clone()).map_err(|error| Error::output("make the disk", &path, &error))
        };
        let files = disk("files", self.files_size())?;
        let root = match &self.what {
            What::Original(original, _) => Some(original.root()),
            What::Named(..) | What::Trace(_) => None,
        };
        format(mke2fs, &files, root)?;
        let swap = self.shape.swap * PAGE_SIZE;
        let swap = if swap > 0 { Some(disk("swap", swap)?) } else { None };
        let trace = match &self.what {
            What::Named(..) | What::Original(..) => None,
            What::Trace(trace) => {
                let path = disk("trace", (trace.image().len() as u64).next_multiple_of(PAGE_SIZE))?;
                let open = std::fs::OpenOptions::new().write(true).open(&path);
                let written = open.and_then(|mut file| file.write_all(trace.image()));
                written.map_err(|error| Error::write(&path, &error))?;
                Some(path)
            }
        };
        let initial = folder.path().join("initial");
        std::fs::write(&initial, self.archive()?).map_err(|error| Error::write(&initial, &error))?;
        Ok(Files { files, swap, trace, initial, _folder: folder })
    }

    fn archive(&self) -> Result<Vec<u8>> {
        let read = |path: &Path| std::fs::read(path).map_err(|error| Error::file("read", path, error));
        let mut archive = Archive::default();
        for folder in ["dev", "proc", "sys"] {
            archive.directory(folder);
        }
        archive.file("init", &read(self.init)?);
        archive.file("config", self.configuration().as_bytes());
        if let What::Original(original, _) = &self.what {
            archive.file("original", &original.description());
        }
        for (name, path) in module_names(self.kernel).zip(&self.kernel.modules) {
            archive.file(&name, &read(path)?);
        }
        Ok(archive.finish())
    }

    /// QEMU's arguments.
    pub fn arguments(&self, files: &Files) -> Vec<OsString> {
        let mut args = Arguments::default();
        let memory = self.memory_by_node();
        args.add(["-machine", self.shape.machine_type(), "-cpu", "max"]);
        match self.icount {
            // Asleep: a disk's time is the host's.
            true => args.add(["-accel", "tcg,thread=single", "-icount", "shift=0,sleep=on"]),
            false => args.add(["-accel", "tcg,thread=multi"]),
        };
        args.add(["-m", &format!("{}M", memory.iter().sum::<u64>() / MIB)]);
        args.add(["-smp", &self.shape.cpus.to_string()]);
        if self.icount && self.shape.cpus > 1 {
            // The CPUs run in turn, each until the next timer. A network's filter has one; nothing is connected to it.
            let filter = format!("filter-buffer,id=turns,netdev=none,interval={TURN_MICROS}");
            args.add(["-netdev", "hubport,id=none,hubid=0", "-object", &filter]);
        }
        self.shape.describe_nodes(&mut args, &memory);
        args.add(["-nographic", "-no-reboot", "-nodefaults", "-serial", "stdio", "-monitor", "none"]);
        args.add(["-device", "isa-debug-exit,iobase=0xf4,iosize=4"]);
        let sparse = ",cache=unsafe,discard=unmap,detect-zeroes=unmap";
        args.disks([Some(&files.files), files.swap.as_deref(), files.trace.as_deref()], sparse);
        args.0.extend(["-kernel".into(), self.kernel.image.clone().into()]);
        args.0.extend(["-initrd".into(), files.initial.clone().into()]);
        args.add(["-append", &self.command_line()]);
        args.0
    }

    /// The kernel's command line. The gap hides the memory that would be a separate zone; a timer check and self-tests
    /// take longer on an emulator than their limits. The kernel is always at the start of the first node: at random it
    /// is in either, and takes a large part of it.
    fn command_line(&self) -> String {
        let words = "console=ttyS0 quiet loglevel=3 panic=-1 rdinit=/init rootfstype=ramfs memmap=15M$1M nokaslr no_timer_check \
                     cryptomgr.notests mitigations=off transparent_hugepage=never";
        // All on the first node.
        let node = if self.shape.count() > 1 { "0:" } else { "" };
        format!("{words} hugepages={node}{} {}", self.arena() / HUGE, self.append).trim_end().to_owned()
    }
}

/// Names of the modules' files in the initial file system.
fn module_names(kernel: &Kernel) -> impl Iterator<Item = String> + '_ {
    kernel.modules.iter().filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
}

/// Make an ext4 file system without a journal: what programs write is all that is written. It begins with what `root`
/// has.
fn format(mke2fs: &Path, disk: &Path, root: Option<&Path>) -> Result<()> {
    let mut command = Command::new(mke2fs);
    command.args(["-q", "-F", "-t", "ext4", "-b", "4096", "-m", "0", "-O", "^has_journal,^resize_inode"]);
    if let Some(root) = root {
        command.arg("-d").arg(root);
    }
    command.args(["-E", "lazy_itable_init=1,nodiscard"]).arg(disk).stdin(Stdio::null());
    let output = command.output().map_err(|error| Error::file("run", mke2fs, error))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', " ");
    Err(Error::Failed(format!("{} failed: {said}", mke2fs.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boot::{Ratio, Second};
    use crate::engine::Program;

    fn kernel() -> Kernel {
        Kernel::with_drivers("k", "6.12", &["/m/virtio_blk.ko.xz"])
    }

    #[test]
    fn the_guest_is_told_everything() {
        let kernel = kernel();
        let setting = |file: &str, may_lack| Setting { file: file.into(), value: "60".into(), may_lack };
        let settings = [setting("/proc/sys/vm/swappiness", false), setting("/sys/new", true)];
        let guest = LinuxGuest {
            what: What::Named("zipf:67108864".into(), 64 << 20),
            kernel: &kernel,
            init: Path::new("i"),
            shape: Shape::new(2, Second::Missing, 32 << 20, 32768).unwrap(),
            seed: 7,
            boot: 0,
            daemons: 2,
            settings: &settings,
            areas: &Areas::default(),
            reserve: Reserve { taken: 70 * MIB, never_managed: 30 * MIB },
            purpose: Purpose::Run,
            icount: false,
            append: "cgroup_disable=memory",
        };
        let text = guest.configuration();
        for line in [
            "seed 7",
            "first 2",
            "cpus 2",
            "pages 8192",
            "program zipf:67108864",
            "insert /virtio_blk.ko.xz",
            "files",
            "write /proc/sys/vm/swappiness 60",
            "try /sys/new 60",
            "write /proc/sys/vm/overcommit_memory 1",
            "try /sys/block/vdb/queue/scheduler none",
            "try /sys/block/vdb/queue/wbt_lat_usec 0",
            "counter pgfault",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
        assert!(
            text.contains("\nwrite /sys/block/vdb/queue/rotational 0\nswap\n"),
            "swapping begins on a disk that is not rotational: {text}"
        );
        assert!(!text.contains("nr_free_pages"), "levels are no events");
        assert!(
            guest
                .command_line()
                .ends_with(&format!("hugepages={} cgroup_disable=memory", guest.arena() / HUGE))
        );
        assert!(guest.memory_by_node()[0] > guest.shape.memory() + guest.reserve.taken);
        assert!(guest.command_line().contains(" nokaslr "), "a node must not have the kernel by chance");
        let shape = Shape::new(2, Second::Slow(Ratio(1, 2)), 24 << 20, 0).unwrap();
        let tiers = LinuxGuest { shape, ..guest };
        assert!(
            tiers.configuration().contains("\npages 2048:4096\n") && tiers.command_line().contains("=0:")
        );
        let memory = tiers.memory_by_node();
        let share = memory[1] as f64 / (memory[0] - tiers.reserve.never_managed) as f64;
        assert!((2.0..2.1).contains(&share), "{memory:?}");
    }
    #[test]
    fn a_trace_is_on_a_disk_and_counts_once_in_memory() {
        let kernel = kernel();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../traces/sqlite.pft");
        let Program::Trace(replay) = Program::find(path).unwrap() else { panic!("it is a trace") };
        let recorded = Recorded::new(replay.source()).unwrap();
        let areas = Areas::default();
        let guest = |swap| LinuxGuest {
            what: What::Trace(&recorded),
            kernel: &kernel,
            init: Path::new("/dev/null"),
            shape: Shape::new(1, Second::Missing, 32 << 20, swap).unwrap(),
            seed: 1,
            boot: 0,
            daemons: 2,
            settings: &[],
            areas: &areas,
            reserve: Reserve { taken: 70 * MIB, never_managed: 30 * MIB },
            purpose: Purpose::Run,
            icount: false,
            append: "",
        };
        let original = Original::find(&["true".into()], &[]).unwrap();
        let itself = LinuxGuest { what: What::Original(&original, recorded.footprint), ..guest(0) };
        let text = itself.configuration();
        assert!(text.contains("\noriginal\n") && !text.contains("trace"), "{text}");
        assert!(itself.arena() < guest(0).arena() && itself.files_size() == guest(0).files_size());
        let image = recorded.image().len() as u64;
        for (swap, disk) in [(4096, "vdc"), (0, "vdb")] {
            let text = guest(swap).configuration();
            assert!(text.contains(&format!("\ntrace /dev/{disk} {image}\n")), "{text}");
        }
        let bare = Kernel::with_drivers("k", "6.12", &[]);
        let guest = LinuxGuest { kernel: &bare, ..guest(0) };
        assert!((guest.archive().unwrap().len() as u64) < image, "not in the initial file system");
        let rest = guest.arena() - recorded.footprint / 32 - recorded.threads * (128 << 10);
        assert!(rest < image * 3 / 2 + 10 * MIB, "{rest} for {image}");
    }
}
