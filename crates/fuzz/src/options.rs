//! The arguments of a command, a line each: what clap checks, and what `run` and `compare` check before they run.

use crate::{accepted, within};
use lab::cli;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

/// Words to insert.
pub const WORDS: &[&str] = &[
    "50%",
    "0%",
    "1e9%",
    "nan%",
    "max",
    "64M",
    "99999999T",
    "memory.max=32M",
    "memory.low=25%",
    "processes=1-3",
    "processes=4-",
    "zram:50%",
    "algorithm=zstd",
    "mem_limit=1G",
    "priority=32767",
    "nvme0:reads=0.1%",
    "after=2s",
    "vm.swappiness=10",
    "thp.defrag=defer+madvise",
    "compaction.folios=whole+free-split",
    "redis:1G:gaussian:10%",
    "usemem:1M:nproc=2,random",
    "churn:64M:1024",
    "chaos:1M:1",
    "random:7",
    "icelake-96",
    "+cpus=8",
    "+nodes=2",
    "frag-50",
    "arrival=20ms,layout",
    "free=60%,unusable=90%,unmovable=20%,reclaimable=5%",
    "100ms:+ 0 0 3",
    "end",
    "--preempt",
    "--lru-gen",
    "--bound",
    "--optimum",
    "--time",
    "--vary",
    "compare",
    "run",
];

/// Valid inputs to start from.
pub fn seeds() -> Vec<Vec<u8>> {
    let lines = [
        "run zipf:64M:4 --memory 50% --machine small --profile lazy+vm.swappiness=10 --set tlb.unmap=lazy --runs 3",
        "run redis:1G:gaussian:10% --group web:memory.max=32M,memory.low=25%,processes=1-3 --group rest --verify",
        "run chaos:6M:1000 --machine random:714185 --swap zram:50%,algorithm=zstd,mem_limit=1G,priority=100 --preempt 4",
        "compare stream:16M --with lazy --with classic+vm.swappiness=0 --fragment frag-50 --time 90s --seed 7 --vary arrival=20ms,layout",
        "run zipf --machine laptop --fail nvme0:reads=0.1%,writes=1%,after=2s --lru-gen end",
        "run usemem:64M:nproc=2,random --machine luf-cxl+cpus=8 --placement --moves --jobs 1 --lru-gen 100ms",
        "curve zipf:64M --memory 50% --memory 75% --profile classic",
        "boot zipf:64M --memory 50% --cpus 4 --tiers 1:4 --swap zram:64M",
    ];
    lines.map(|line| line.replace(' ', "\n").into_bytes()).to_vec()
}

/// What the arguments may use: clap's table of all commands, some thousands of words for a message, and a machine.
const fn memory(len: usize) -> usize {
    (16 << 20) + 1024 * len
}

/// Check them.
pub fn feed(input: &[u8]) -> bool {
    let lines = input.split(|&byte| byte == b'\n').map(|line| OsStr::from_bytes(line).to_owned());
    let words: Vec<_> = [OsStr::new("pagefold").to_owned()].into_iter().chain(lines).collect();
    // It may read what is typed; another target has its files.
    if words.iter().any(|word| word == "sweep") {
        return false;
    }
    within(memory(input.len()), || accepted(cli::check(words)))
}
