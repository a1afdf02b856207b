//! The replay of a trace on a small machine, under the oracle.

use crate::{with_file, within};
use abi::Call;
use machine_sim::{MachineSpec, RunConfig, RunError};
use trace::event::{Event, ThreadId};
use trace::{Reader, Replay};

/// The most bytes that calls of the trace may move or map into memory: this looks for errors, not for long
/// runs.
const WORK: u64 = 64 << 20;
/// What a run may use: the machine, and what is known of the pages of [`WORK`]. Neither grows with what a trace says of
/// its files.
const MEMORY: usize = 64 << 20;

/// Replay it.
pub fn feed(input: &[u8]) -> bool {
    with_file("in.pft", input, |path| {
        let Ok(replay) = Replay::open(path) else { return false };
        if work(replay.source()) > WORK {
            return false;
        }
        let mut config = RunConfig::new(MachineSpec::preset("small").expect("the preset must exist"));
        config.memory = Some(16 << 20);
        config.verify = true;
        match within(MEMORY, || machine_sim::run(&config, &replay)) {
            Ok(_) | Err(RunError::Input(_)) => true,
            Err(failed) => panic!("{failed}"),
        }
    })
}

fn work(reader: &Reader) -> u64 {
    let threads = (0..reader.header().threads.len() as u32).map(ThreadId);
    let events = threads
        .flat_map(|thread| reader.stream(thread))
        .map(|event| event.expect("a checked event must be readable"));
    let work = |event| match event {
        Event::Call { call: Call::Pread(_, buffer, _) | Call::Pwrite(_, buffer, _), .. } => buffer.len,
        Event::Call { call: Call::Mmap(map), .. } => map.len,
        Event::Call { call: Call::Mremap(remap), .. } => remap.new_len,
        // Unmapping and changing rights take no longer for more pages that are not there.
        Event::Call { call: Call::Munmap(..) | Call::Mprotect(..), .. } => 0,
        Event::Call { call, .. } => call.range().map_or(0, |(_, len)| len),
        _ => 0,
    };
    events.map(work).fold(0, u64::saturating_add)
}
