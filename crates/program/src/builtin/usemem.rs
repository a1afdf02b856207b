//! vm-scalability's `usemem`, with its options: its cases consist of this.
//!
//! As in the original, each task touches a region of a given size, which it maps itself after all tasks have
//! met, or (`prealloc`) which the first process maps once for its children to inherit. There is always at
//! least one child, and threads live in the children. Each task reports 8 bytes for each word that it
//! touched, and an eighth of its mapping, divided by its time; the sum is `throughput`.
//!
//! Unlike the original, random accesses are eight to a page and not 512, a `step` below a page touches fewer
//! words of each page in a row, and runs end by themselves and not by the clock.

use super::{MIN_BYTES, PAGE, must};
use crate::rng::Rng;
use crate::{Access, AccessKind, FileSpec, Map, MapSource, Os, Program, Prot, Role, Signal};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Bytes of a word.
const WORD: u64 = 8;
/// Instructions of its loop for each word, without the access itself (see `scalability`).
const LOOP: u64 = 14;
/// Random accesses for each page.
const RANDOM: u64 = 8;
/// Address of a region that is mapped before the tasks start.
const PREALLOC: u64 = 0x20_0000_0000;
/// The barrier where all tasks wait for each other.
const START: u32 = 1;
/// The most processes, and the most threads of each.
const MAX_TASKS: u64 = 1024;

/// What the regions consist of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Source {
    /// Memory, private to each process.
    #[default]
    Anonymous,
    /// One sparse file on the disk, mapped shared.
    File,
    /// One file in tmpfs, mapped shared.
    Shm,
}

/// Its options, by their long names; 0 or `false` means not given.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Options {
    nproc: u64,
    thread: u64,
    source: Source,
    prealloc: bool,
    prefault: bool,
    readonly: bool,
    random: bool,
    mlock: bool,
    msync: bool,
    repeat: u64,
    step: u64,
    unit: u64,
}

/// `usemem`, with its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Usemem {
    bytes: u64,
    options: Options,
}

impl Usemem {
    /// The program's name.
    pub const NAME: &'static str = "usemem";
    /// A line of help.
    pub const HELP: &'static str = "vm-scalability's usemem: usemem:SIZE:OPTIONS, like nproc=4,thread=2,file,readonly,random \
                                    (docs/programs.md)";

    /// With `bytes` for each task, and options as text: names with or without a number, separated by commas.
    pub fn new(bytes: u64, options: &str) -> Result<Usemem, String> {
        let mut parsed = Options::default();
        for word in options.split(',').filter(|word| !word.is_empty()) {
            parsed.parse(word)?;
        }
        let bytes = bytes.max(MIN_BYTES).next_multiple_of(PAGE);
        if parsed.prealloc && parsed.unit > 0 {
            return Err("prealloc and unit exclude each other: prealloc maps one piece".into());
        }
        if !parsed.unit.is_multiple_of(PAGE) || parsed.unit > bytes {
            return Err(format!("unit={}: a unit must be whole pages, at most the size", parsed.unit));
        }
        if parsed.step > 0 && (!parsed.step.is_multiple_of(WORD) || parsed.step > bytes) {
            return Err(format!(
                "step={}: a step must be whole words of 8 bytes, at most the size",
                parsed.step
            ));
        }
        Ok(Usemem { bytes, options: parsed })
    }

    fn processes(&self) -> u64 {
        self.options.nproc.max(1)
    }

    /// Tasks that work in each process: the process itself, or its threads.
    fn tasks_each(&self) -> u64 {
        self.options.thread.max(1)
    }

    fn tasks(&self) -> u32 {
        (self.processes() * self.tasks_each()) as u32
    }

    fn prot(&self) -> Prot {
        if self.options.readonly { Prot::READ } else { Prot::RW }
    }

    /// Map `len` bytes of the region, beginning at `offset`, at `addr` or anywhere.
    fn map<O: Os>(&self, os: &mut O, addr: Option<u64>, offset: u64, len: u64) -> Result<u64, Signal> {
        let source = match self.options.source {
            Source::Anonymous => MapSource::Anonymous,
            kind => {
                let in_memory = kind == Source::Shm;
                let size = if in_memory { self.bytes } else { 0 };
                let writable = !self.options.readonly;
                let fd = must(os.open(FileSpec { name: Usemem::NAME, size, in_memory, writable }))?;
                MapSource::File { fd, offset, shared: true }
            }
        };
        let Options { prefault, mlock, .. } = self.options;
        let map = Map { addr, len, prot: self.prot(), source, populate: prefault, locked: false };
        let at = must(os.mmap(map))?;
        if mlock {
            must(os.mlock(at, len))?;
        }
        Ok(at)
    }

    /// Create what must exist before the tasks start.
    fn prepare<O: Os>(&self, os: &mut O) -> Result<(), Signal> {
        if self.options.source == Source::File {
            let name = Usemem::NAME;
            let fd = must(os.open(FileSpec { name, size: 0, in_memory: false, writable: true }))?;
            must(os.ftruncate(fd, self.bytes))?;
            must(os.close(fd))?;
        }
        if self.options.prealloc {
            self.map(os, Some(PREALLOC), 0, self.bytes)?;
        }
        Ok(())
    }

    /// Run one task.
    fn work<O: Os>(&self, os: &mut O) -> Result<(), Signal> {
        os.barrier(START, self.tasks());
        let start = os.now();
        let mut rng = Rng::new(os.seed());
        let mut words = 0;
        if self.options.prealloc {
            words += self.touch_region(os, PREALLOC, self.bytes, &mut rng)?;
        } else {
            let unit = if self.options.unit > 0 { self.options.unit } else { self.bytes };
            let mut offset = 0;
            while offset < self.bytes {
                let len = unit.min(self.bytes - offset);
                let at = self.map(os, None, offset, len)?;
                words += self.touch_region(os, at, len, &mut rng)?;
                offset += len;
            }
        }
        os.progress(self.bytes / PAGE * self.options.repeat.max(1));
        os.rate(words * WORD + self.bytes / 8, (os.now() - start).max(1));
        Ok(())
    }

    /// Touch a region `repeat` times. Returns the number of words touched.
    fn touch_region<O: Os>(&self, os: &mut O, at: u64, len: u64, rng: &mut Rng) -> Result<u64, Signal> {
        let mut words = 0;
        for _ in 0..self.options.repeat.max(1) {
            words += if self.options.random {
                self.touch_at_random(os, at, len, rng)?
            } else {
                self.touch_in_order(os, at, len)?
            };
            if self.options.msync {
                must(os.msync(at, len))?;
            }
        }
        Ok(words)
    }

    fn mode(&self) -> AccessKind {
        if self.options.readonly { AccessKind::Load } else { AccessKind::Store }
    }

    fn touch_at_random<O: Os>(&self, os: &mut O, at: u64, len: u64, rng: &mut Rng) -> Result<u64, Signal> {
        let accesses = len / PAGE * RANDOM;
        for _ in 0..accesses {
            let word = rng.below(len / WORD);
            os.access(Access { addr: at + word * WORD, count: 1, mode: self.mode() })?;
            os.compute(LOOP);
        }
        Ok(accesses)
    }

    fn touch_in_order<O: Os>(&self, os: &mut O, at: u64, len: u64) -> Result<u64, Signal> {
        let step = self.options.step.max(WORD);
        let (next, count) = (step.max(PAGE), PAGE.div_ceil(step));
        let mut words = 0;
        let mut offset = 0;
        while offset < len {
            os.access(Access { addr: at + offset, count: count as u32, mode: self.mode() })?;
            os.compute(LOOP * count);
            words += count;
            offset += next;
        }
        Ok(words)
    }
}

impl Options {
    fn parse(&mut self, word: &str) -> Result<(), String> {
        let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
        let number = |max: u64| {
            let value = value.ok_or_else(|| format!("{name} takes a number, like {name}=4"))?;
            let parsed = value.parse().ok().filter(|number| (1..=max).contains(number));
            parsed.ok_or_else(|| format!("{name}={value}: '{value}' is not a number from 1 to {max}"))
        };
        match name {
            "nproc" => self.nproc = number(MAX_TASKS)?,
            "thread" => self.thread = number(MAX_TASKS)?,
            "repeat" => self.repeat = number(1 << 20)?,
            "step" => self.step = number(1 << 40)?,
            "unit" => self.unit = number(1 << 40)?,
            _ if value.is_some() => return Err(format!("{word}: {}", unknown(name))),
            "file" => self.source = Source::File,
            "shm" => self.source = Source::Shm,
            "prealloc" => self.prealloc = true,
            "prefault" => self.prefault = true,
            "readonly" => self.readonly = true,
            "random" => self.random = true,
            "mlock" => self.mlock = true,
            "msync" => self.msync = true,
            _ => return Err(unknown(name)),
        }
        Ok(())
    }
}

fn unknown(name: &str) -> String {
    format!(
        "'{name}' is not an option of usemem, which takes nproc=N, thread=N, repeat=N, step=BYTES, unit=BYTES, file, shm, prealloc, \
         prefault, readonly, random, mlock, msync"
    )
}

impl Program for Usemem {
    fn name(&self) -> &str {
        Usemem::NAME
    }

    /// The private bytes of all tasks, plus the shared ones once.
    fn footprint(&self) -> u64 {
        let Options { source, prealloc, prefault, readonly, .. } = self.options;
        let copies = match source {
            Source::File | Source::Shm => 1,
            Source::Anonymous if !prealloc => self.processes() * self.tasks_each(),
            // The parent has filled it, and each child copies what it writes.
            Source::Anonymous if readonly => 1,
            Source::Anonymous => self.processes() + u64::from(prefault),
        };
        self.bytes * copies
    }

    fn run<O: Os>(&self, os: &mut O, role: Role) -> Result<(), Signal> {
        let processes = self.processes() as Role;
        match role {
            0 => {
                self.prepare(os)?;
                let children: Vec<_> =
                    (1..=processes).map(|role| must(os.fork(role))).collect::<Result<_, _>>()?;
                children.into_iter().for_each(|child| os.join(child));
            }
            child if child <= processes && self.options.thread > 0 => {
                let first = processes + (child - 1) * self.options.thread as Role + 1;
                let threads = first..first + self.options.thread as Role;
                let threads: Vec<_> = threads.map(|role| must(os.spawn(role))).collect::<Result<_, _>>()?;
                threads.into_iter().for_each(|thread| os.join(thread));
            }
            _ => self.work(os)?,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn options_are_parsed_or_rejected() {
        let footprint = |options: &str| Usemem::new(8 * MIB, options).unwrap().footprint() / MIB;
        assert_eq!(
            ["", "nproc=3,thread=2", "nproc=3,file", "prealloc,thread=4", "prealloc,prefault,nproc=3"]
                .map(footprint),
            [8, 48, 8, 8, 32]
        );
        for (options, expected) in [
            ("nproc", "takes a number"),
            ("nproc=0", "not a number from 1"),
            ("readonly=1", "not an option"),
            ("readonley", "'readonley' is not an option"),
            ("unit=5", "whole pages"),
            ("step=12", "whole words"),
            ("prealloc,unit=4096", "exclude each other"),
        ] {
            let error = Usemem::new(8 * MIB, options).unwrap_err();
            assert!(error.contains(expected), "{options}: {error}");
        }
    }
}
