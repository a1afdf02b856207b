//! CPUs, nodes, memory, clocks: what the machine says about itself.

use crate::harness::Harness;
use crate::kit::{Kit, ensure};
use crate::report::Verdict;
use mm::machine::{MAX_CPUS, Machine, ZoneKind};
use mm::units::*;
use std_alloc::vec::Vec;

/// Frames below 4 GiB.
const DMA32_END: u32 = 1 << (32 - PAGE_SHIFT);

pub(crate) fn cpus<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    let cpus = kit.machine().cpus();
    ensure!((1..=MAX_CPUS).contains(&cpus), "cpus() is {cpus}, not from 1 to {MAX_CPUS}");
    kit.on_each(&kit.cpus(), |cpu| {
        for _ in 0..kit.times(8) {
            let here = kit.machine().cpu();
            ensure!(here == cpu, "a task on {cpu} sees cpu() as {here}");
            kit.harness.pause();
        }
        Ok(())
    })
}

/// All nodes that CPUs or memory belong to.
fn nodes<H: Harness>(kit: &Kit<'_, H>) -> Vec<NodeId> {
    let of_cpus = kit.cpus().into_iter().map(|cpu| kit.machine().node_of(cpu));
    let mut nodes: Vec<NodeId> =
        of_cpus.chain(kit.machine().memory().iter().map(|range| range.node)).collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

pub(crate) fn node_numbers<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    let nodes = nodes(kit);
    for (number, &node) in nodes.iter().enumerate() {
        ensure!(node.index() == number, "node numbers do not go from 0 up without gaps: {nodes:?}");
    }
    ensure!(kit.machine().memory().iter().any(|range| range.frames > 0), "there is no memory");
    Ok(())
}

pub(crate) fn distances<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    let distance = |from, to| kit.machine().distance(from, to);
    for from in nodes(kit) {
        for to in nodes(kit) {
            let (there, back) = (distance(from, to), distance(to, from));
            ensure!(there == back, "the distance from {from} to {to} is {there}, from {to} to {from} {back}");
            let right = if from == to { there == 10 } else { there > 10 };
            ensure!(
                right,
                "the distance from {from} to {to} is {there}; 10 means local, and nothing else may"
            );
        }
    }
    Ok(())
}

pub(crate) fn memory<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    let mut end = 0;
    for range in kit.machine().memory() {
        let start = range.start.0;
        ensure!(range.frames > 0, "{range:?} is empty");
        ensure!(start >= end, "{range:?} begins before the previous one ends, at F{end:x}");
        ensure!(start % MAX_ORDER.frames() == 0, "{range:?} does not begin at a block of {MAX_ORDER}");
        let Some(next) = start.checked_add(range.frames).filter(|&next| next < Pfn::NONE.0) else {
            ensure!(false, "{range:?} ends beyond the last frame number");
            return Ok(());
        };
        ensure!(range.kind != ZoneKind::Dma32 || next <= DMA32_END, "{range:?} ends above 4 GiB");
        end = next;
    }
    Ok(())
}

pub(crate) fn clock<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    kit.on_each(&kit.cpus(), |cpu| {
        let first = kit.machine().now();
        let mut last = first;
        for _ in 0..kit.times(64) {
            let now = kit.machine().now();
            ensure!(now >= last, "the clock of {cpu} went from {last} back to {now}");
            last = now;
            kit.harness.pause();
        }
        // Not `until`: that relies on the clock.
        for _ in 0..1_000_000 {
            if kit.machine().now() > first {
                return Ok(());
            }
            kit.harness.pause();
        }
        ensure!(false, "the clock of {cpu} stays at {first}");
        Ok(())
    })
}

pub(crate) fn running<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    kit.on_each(&kit.cpus(), |cpu| {
        ensure!(!kit.machine().stopping(), "{cpu} sees stopping() while the machine runs");
        Ok(())
    })
}
