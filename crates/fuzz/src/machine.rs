//! A machine's TOML, and the start of a run on the machine.

use crate::{one_line, within};
use machine_sim::{MachineSpec, RunConfig, RunError};
use program::{Map, Os, Program, Role, Signal};

/// Words to insert.
pub const WORDS: &[&str] = &[
    "nan",
    "inf",
    "-inf",
    "-1",
    "1e-300",
    "1e300",
    "-0.0",
    "0.1",
    "1e9",
    "true",
    "false",
    "\"8G\"",
    "\"16T\"",
    "\"99999999T\"",
    "18446744073709551615",
    "dma32",
    "normal",
    "movable",
    "nvme0",
    "entries",
    "ways",
    "cpus",
    "size",
    "[[node]]",
    "[[device]]",
];

/// Valid inputs to start from.
pub fn seeds() -> Vec<Vec<u8>> {
    let presets = [
        include_str!("../../machine-sim/machines/small.toml"),
        include_str!("../../machine-sim/machines/luf-cxl.toml"),
        include_str!("../../machine-sim/machines/numa-4s-2015.toml"),
    ];
    presets.map(|text| text.as_bytes().to_vec()).to_vec()
}

/// What reading `len` bytes may use: toml's tree, and the table of costs.
const fn memory(len: usize) -> usize {
    (1 << 20) + 512 * len
}

/// The largest machine that is run, in bytes and CPUs: this tests descriptions of small machines.
const MAX_MEMORY: u64 = 64 << 20;
const MAX_CPUS: usize = 16;

/// Read it. If it is valid, run a small program on the machine with little memory.
pub fn feed(input: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(input) else { return false };
    let spec = match within(memory(input.len()), || MachineSpec::from_toml("mine.toml", text)) {
        Ok(spec) => spec,
        Err(error) => {
            one_line(&error);
            return false;
        }
    };
    let cpus = spec.cpus();
    match spec.with_memory(MAX_MEMORY) {
        Err(error) => one_line(&error),
        Ok(_) if cpus > MAX_CPUS => {}
        Ok(spec) => match machine_sim::run(&RunConfig::new(spec), &Touch) {
            Ok(_) => {}
            Err(RunError::Input(why)) => one_line(&why),
            Err(failed) => panic!("{failed}"),
        },
    }
    true
}

/// A program that touches memory and a file, and sleeps.
struct Touch;

/// Bytes of its memory.
const BYTES: u64 = 64 << 12;

impl Program for Touch {
    fn name(&self) -> &str {
        "touch"
    }

    fn footprint(&self) -> u64 {
        BYTES
    }

    fn run<O: Os>(&self, os: &mut O, _: Role) -> Result<(), Signal> {
        let file = program::FileSpec { name: "a", size: BYTES, in_memory: false, writable: true };
        // The machine may have no room for it.
        if let Ok(fd) = os.open(file) {
            let _ = (os.pread(fd, 0, BYTES), os.pwrite(fd, 0, BYTES), os.fsync(fd));
        }
        let Ok(at) = os.mmap(Map::anonymous(BYTES)) else { return Ok(()) };
        for page in (at..at + BYTES).step_by(4096) {
            os.store(page)?;
        }
        let _ = os.madvise(at, BYTES, program::Advice::PageOut);
        os.compute(u64::from(u32::MAX));
        os.sleep(1_000_000);
        for page in (at..at + BYTES).step_by(4096) {
            os.load(page)?;
        }
        Ok(())
    }
}
