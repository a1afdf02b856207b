//! A sweep's TOML, up to the cells that it would run.

use crate::{accepted, with_file, within};
use lab::cli;
use std::ffi::OsString;

/// Words to insert.
pub const WORDS: &[&str] = &[
    "{size}",
    "{profile}",
    "{a}{a}{a}{a}{a}{a}{a}{a}",
    "{",
    "}",
    "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]",
    "[\"1M\", \"2M\", \"4M\"]",
    "[]",
    "[[cut]]",
    "[axes]",
    "[show]",
    "[run]",
    "true",
    "nan",
    "1e300",
    "18446744073709551615",
    "\"50%\"",
    "\"zram:50%\"",
    "\"frag-50\"",
    "runs",
    "seed",
];

/// Valid inputs to start from.
pub fn seeds() -> Vec<Vec<u8>> {
    let whole = "title = \"Both\"\nruns = 3\nseed = 1\n[run]\nprogram = \"zipf:{size}:{threads}\"\nmachine = \"small\"\n\
        memory = \"{memory}\"\nprofile = \"{profile}\"\nset = [\"vm.swappiness={swappiness}\"]\nswap = [\"zram:{memory}\"]\n\
        verify = true\n[axes]\nprofile = [\"classic\", \"lazy\"]\nsize = [\"1M\", \"2M\"]\nthreads = 2\nmemory = \"50%\"\n\
        swappiness = \"{threads}\"\n[[cut]]\nsize = [1, 2, 3]\n[[cut]]\nthreads = [1, 2]\n\
        [show]\ncompare = \"profile\"\nmetrics = [\"run_time\"]\n";
    // Ten values on each of three axes: with two more, it is as many as there may be.
    let many: String =
        ["a", "b", "c"].map(|axis| format!("{axis} = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]\n")).concat();
    let many =
        format!("[run]\nprogram = \"zipf:1{{a}}{{b}}M\"\nset = [\"vm.swappiness={{c}}\"]\n[axes]\n{many}");
    let example = include_str!("../../../examples/sweeps/luf.toml").to_owned();
    [whole.to_owned(), many, example].map(String::into_bytes).to_vec()
}

/// What `len` bytes may use: toml's tree, and the cells of as many points as a sweep may have.
const fn memory(len: usize) -> usize {
    (512 << 20) + 1024 * len
}

/// Check it.
pub fn feed(input: &[u8]) -> bool {
    with_file("in.toml", input, |path| {
        let words = ["pagefold", "sweep", "--out", "out"].map(OsString::from);
        let words = words.into_iter().chain([path.as_os_str().to_owned()]);
        within(memory(input.len()), || accepted(cli::check(words)))
    })
}
