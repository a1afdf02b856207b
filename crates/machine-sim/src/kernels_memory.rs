//! The memory that the kernel has from boot on.
//!
//! A kernel's image, records, slabs and stacks are managed by its allocator and never get free. A program does not see
//! them, but the sizes of CPUs' lists, the watermarks' gaps and the page blocks' mobility groups are those of all that
//! is managed. The frames are the first of each node, as unmovable memory keeps together.

use crate::machine::SimMachine;
use mm::Mm;
use mm::frame::Mobility;
use mm::stat::Stat;
use mm::units::NodeId;

/// Take it. It takes no time and is not counted.
pub(crate) fn take(mm: &Mm<SimMachine>) {
    uncounted(mm, || {
        for (id, node) in mm.machine().spec().nodes().iter().enumerate() {
            take_of_node(mm, NodeId(id as u8), node.kernels_pages());
        }
    });
}

fn take_of_node(mm: &Mm<SimMachine>, node: NodeId, pages: u64) {
    let zones = mm.core().alloc.zones();
    let Some(zone) = zones.iter().find(|zone| zone.node() == node && zone.managed() > 0) else { return };
    let mut left = pages;
    let mut at = zone.start();
    while left > 0 && at < zone.end() {
        left -= u64::from(mm.keep_frame(zone.id(), at, Mobility::Unmovable));
        at = at.add(1);
    }
}

/// Do `work` without any event being counted.
pub(crate) fn uncounted<T>(mm: &Mm<SimMachine>, work: impl FnOnce() -> T) -> T {
    let stats = &mm.mmu().stats;
    let counted: Vec<(Stat, i64)> =
        Stat::ALL.iter().filter(|stat| !stat.is_level()).map(|&stat| (stat, stats.read(stat))).collect();
    let result = work();
    counted.iter().for_each(|&(stat, count)| mm.mmu().count(stat, count - stats.read(stat)));
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RunConfig;
    use crate::run::prepare;
    use crate::spec::MachineSpec;

    const PLAIN: &str = include_str!("../machines/small.toml");

    fn after_boot(text: &str) -> (u64, Mm<SimMachine>) {
        let spec = MachineSpec::from_toml("kernels", text).unwrap();
        let (machine, config) =
            prepare(&RunConfig { memory: Some(32 << 20), ..RunConfig::new(spec) }).unwrap();
        let memory = machine.spec().memory();
        let mm = Mm::new(machine, config).unwrap();
        take(&mm);
        (memory, mm)
    }

    /// A program has as much memory as without the kernel's, and the allocator manages both.
    #[test]
    fn kernels_memory_is_managed_and_never_free() {
        let with_kernels = PLAIN.replace("latency_ns", "kernels = \"40M\"\nlatency_ns");
        let [(memory, plain), (memory_of_all, all)] = [PLAIN, &with_kernels].map(after_boot);
        assert_eq!((memory, memory_of_all), (32 << 20, 32 << 20));
        let managed =
            |mm: &Mm<SimMachine>| mm.core().alloc.zones().iter().map(|zone| zone.managed()).sum::<u64>();
        assert_eq!(managed(&all) - managed(&plain), 10 << 10);
        assert_eq!(all.free_pages(), plain.free_pages());
        assert_eq!(all.mmu().stats.read(Stat::Pgfree), plain.mmu().stats.read(Stat::Pgfree));
        all.validate().unwrap();
    }
}
