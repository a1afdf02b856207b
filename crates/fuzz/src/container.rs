//! The trace container, as `pagefold info` and `run` read it.

use crate::bytes::{self, number, pick};
use crate::events::{MARKS, event};
use crate::parts::{Parts, fix_checksums, heads};
use crate::{one_line, with_file, within};
use abi::Call;
use program::rng::Rng;
use std::collections::BTreeSet;
use trace::codec::Encoder;
use trace::event::{Event, ThreadId};
use trace::header::Place;
use trace::{Header, Info, Reader, Replay, Writer};

/// Valid inputs to start from.
pub fn seeds() -> Vec<Vec<u8>> {
    (1..4).map(|seed| with_file("seed.pft", &[], |path| seed_trace(path, &mut Rng::new(seed)))).collect()
}

fn seed_trace(path: &std::path::Path, rng: &mut Rng) -> Vec<u8> {
    let mut writer =
        Writer::create(path, "seed", &["a".into(), "b".into()], 1).expect("the trace must be created");
    writer.add_file("/tmp/data", 64 << 12, Place::Regular);
    writer.add_file("/dev/shm/shared", 16 << 12, Place::Memory);
    let root = writer.add_process(None);
    let beside = writer.add_thread(root);
    let child = writer.add_process(Some(root));
    let mut changes = BTreeSet::new();
    for thread in [root, beside, child] {
        let mut push = |event: &Event| {
            // The writer refuses events that no call can cause.
            let _ = writer.push(thread, event);
        };
        // Other threads may wait for the marks that random events wait for.
        (0..MARKS).for_each(|_| push(&Event::Mark));
        // Each thread is started once, below, and each change of an address space happens once.
        let drawn = std::iter::repeat_with(|| event(rng));
        let starts = |event: &Event| event.starts().is_some();
        let mut repeated =
            |event: &Event| event.epoch().is_some_and(|epoch| !changes.insert((thread == child, epoch)));
        drawn.filter(|event| !starts(event) && !repeated(event)).take(20).for_each(|event| push(&event));
        if thread == root {
            push(&Event::call(Call::Spawn(beside.0)));
            push(&Event::call(Call::Fork(child.0)));
        }
    }
    writer.finish().expect("the trace must be finished");
    std::fs::read(path).expect("the trace must be readable")
}

/// Change a part, and repack the container so that readers accept the rest.
pub fn mutate(rng: &mut Rng, input: &[u8]) -> Vec<u8> {
    let Some(mut parts) = Parts::of(input) else {
        let mut bytes = bytes::mutate(rng, input);
        if rng.percent(50) {
            fix_checksums(&mut bytes);
        }
        return bytes;
    };
    match rng.below(8) {
        0 => {
            let mut bytes = bytes::mutate(rng, input);
            if rng.percent(90) {
                fix_checksums(&mut bytes);
            }
            return bytes;
        }
        1 => parts.header = bytes::mutate(rng, &parts.header),
        2 | 3 => change_header(rng, &mut parts),
        4 => change_frames(rng, &mut parts),
        5 if !parts.frames.is_empty() => {
            let frame = rng.below(parts.frames.len() as u64) as usize;
            parts.frames[frame].raw = bytes::mutate(rng, &parts.frames[frame].raw);
        }
        _ => {
            let mut encoder = Encoder::default();
            let events = 1 + rng.below(12) as u32;
            (0..events).for_each(|_| encoder.push(&event(rng)));
            let mut raw = Vec::new();
            encoder.finish(&mut raw);
            let thread = rng.below(4) as u32;
            parts.frames.push(crate::parts::Frame { thread, events, raw });
        }
    }
    if rng.percent(80) {
        parts.fix_counts();
    }
    parts.pack()
}

/// Change a number in the header.
fn change_header(rng: &mut Rng, parts: &mut Parts) {
    let Ok(mut header) = Header::decode(&parts.header) else { return };
    let to = number(rng);
    let thread = rng.below(header.threads.len() as u64) as usize;
    match rng.below(8) {
        0 => {
            header.data_pages = to;
            header.footprint = header.file_pages.wrapping_add(to).wrapping_mul(4096);
        }
        1 => header.peak = to,
        2 => header.processes.iter_mut().for_each(|process| process.epochs = to),
        3 => header.files.iter_mut().for_each(|file| file.size = to),
        4 => header.threads[thread].process = to as u32,
        5 => {
            let counts = &mut header.threads[thread].counts;
            let fields =
                [&mut counts.loads, &mut counts.instructions, &mut counts.idle_nanos, &mut counts.events];
            let which = rng.below(4) as usize;
            fields.into_iter().enumerate().filter(|(at, _)| *at == which).for_each(|(_, field)| *field = to);
        }
        6 => header.threads[thread].frames.push(to),
        _ => header.threads[thread].started_by = Some(ThreadId(to as u32)),
    }
    header.threads.iter_mut().for_each(|thread| thread.frames.sort_unstable());
    parts.header = header.encode();
}

/// Change the list of frames.
fn change_frames(rng: &mut Rng, parts: &mut Parts) {
    if parts.frames.is_empty() {
        return;
    }
    let (one, other) = (rng.below(parts.frames.len() as u64), rng.below(parts.frames.len() as u64));
    let (one, other) = (one as usize, other as usize);
    match rng.below(5) {
        0 => drop(parts.frames.remove(one)),
        1 => parts.frames.insert(one, parts.frames[other].clone()),
        2 => parts.frames.swap(one, other),
        3 => parts.frames[one].thread = pick(rng, &[0, 1, 2, 3, u32::MAX - 1]),
        _ => parts.frames[one].events = number(rng) as u32,
    }
}

/// What reading a file may use: see "What a file may cost its reader" in the container's description. Buffers
/// and the header are in proportion to the file, and data about pages is in proportion to the unpacked size
/// that the frames declare.
pub fn memory(input: &[u8]) -> usize {
    let unpacked: usize = heads(input).map(|(_, head)| (head[2] as usize).min(2 << 20)).sum();
    (1 << 20) + 64 * input.len() + 128 * unpacked
}

/// Read it, and check it as before a run.
pub fn feed(input: &[u8]) -> bool {
    with_file("in.pft", input, |path| {
        let info = within(memory(input), || Reader::open(path).and_then(|reader| Info::read(&reader)));
        let replay = within(memory(input), || Replay::open(path));
        assert_eq!(info.is_ok(), replay.is_ok(), "info and run must agree");
        if let Err(error) = &info {
            one_line(error);
        }
        info.is_ok()
    })
}
