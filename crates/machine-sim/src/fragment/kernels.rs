//! The memory that the kernel has from boot on.
//!
//! A kernel's image, records, slabs and stacks are managed by its allocator and never get free. A program does not see
//! them, but the sizes of CPUs' lists, the watermarks' gaps and the page blocks' mobility groups are those of all that
//! is managed. The frames are the first of each node, as unmovable memory keeps together.
//!
//! A machine may tell in how many page blocks they are, and what is free there: a kernel that has booted leaves little
//! pieces, which user memory takes one by one when movable memory has run out. In a block that is free as a whole it
//! would find larger ones, try to claim the block for each, and boost the watermarks whenever it cannot.

use super::plan::{LARGEST, plan};
use super::target::ORDERS;
use super::uncounted;
use crate::machine::SimMachine;
use crate::spec::{KernelsBlocks, NodeSpec};
use mm::Mm;
use mm::alloc::Zone;
use mm::frame::Mobility;
use mm::units::{NodeId, PAGEBLOCK_ORDER};
use program::rng::Rng;

/// Take it. It takes no time and is not counted. The error says in one line why that is impossible.
pub(crate) fn take(mm: &Mm<SimMachine>, seed: u64) -> Result<(), String> {
    let mut rng = Rng::new(seed ^ 0x6b65_726e);
    uncounted(mm, || {
        mm.machine().spec().nodes().iter().enumerate().try_for_each(|(id, node)| {
            let mut zones = mm.core().alloc.zones().iter();
            match zones.find(|zone| zone.node() == NodeId(id as u8) && zone.managed() > 0) {
                Some(zone) => take_of_node(mm, zone, node, &mut rng),
                None => Ok(()),
            }
        })
    })
}

fn take_of_node(mm: &Mm<SimMachine>, zone: &Zone, node: &NodeSpec, rng: &mut Rng) -> Result<(), String> {
    let (mut at, mut left) = (zone.start(), node.kernels_pages());
    for (mobility, told) in node.kernels_blocks() {
        let frames = u64::from(told.blocks) * u64::from(PAGEBLOCK_ORDER.frames());
        if frames > u64::from(zone.end().0 - at.0) {
            return Err("node.kernels: its page blocks are more than the zone has".into());
        }
        let end = at.add(frames as u32);
        for frame in frames_of(told, rng)? {
            left -= u64::from(mm.keep_frame(zone.id(), at.add(frame as u32), mobility));
        }
        at = end;
    }
    // Of what was told to be in other page blocks, nothing is known.
    let mobility = if at == zone.start() { Mobility::Unmovable } else { Mobility::Movable };
    while left > 0 && at < zone.end() {
        left -= u64::from(mm.keep_frame(zone.id(), at, mobility));
        at = at.add(1);
    }
    Ok(())
}

/// The frames to take so that these blocks have the free pieces.
fn frames_of(told: &KernelsBlocks, rng: &mut Rng) -> Result<Vec<usize>, String> {
    let frames = (told.blocks * PAGEBLOCK_ORDER.frames()) as usize;
    let mut beyond = vec![false; frames];
    beyond.resize(frames.next_multiple_of(LARGEST), true);
    let wanted: [u64; ORDERS] = std::array::from_fn(|order| told.free.get(order).copied().unwrap_or(0));
    plan(&beyond, &wanted, rng).map_err(|lack| {
        format!(
            "node.kernels: {} free blocks of order {} are wanted in {} page blocks, and beside the larger ones at most {} can be",
            lack.wanted, lack.order, told.blocks, lack.most
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RunConfig;
    use crate::run::prepare;
    use crate::spec::MachineSpec;
    use mm::stat::Stat;
    use mm::units::Order;

    const PLAIN: &str = include_str!("../../machines/small.toml");

    fn after_boot(text: &str) -> (u64, Mm<SimMachine>) {
        let spec = MachineSpec::from_toml("kernels", text).unwrap();
        let (machine, config) =
            prepare(&RunConfig { memory: Some(32 << 20), ..RunConfig::new(spec) }).unwrap();
        let memory = machine.spec().memory();
        let mm = Mm::new(machine, config).unwrap();
        take(&mm, 1).unwrap();
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

    /// Free memory in page blocks of the kernel's is in the pieces that the machine tells.
    #[test]
    fn kernels_page_blocks_have_the_free_pieces_that_are_told() {
        let told = "kernels = \"40M\"\nunmovable = { blocks = 12, free = [2, 1, 0, 1, 5, 3, 1] }\n\
                    reclaimable = { blocks = 1, free = [0, 0, 0, 0, 0, 0, 0, 0, 1] }\nlatency_ns";
        let (memory, mm) = after_boot(&PLAIN.replace("latency_ns", told));
        assert_eq!((memory, mm.free_pages()), (32 << 20, after_boot(PLAIN).1.free_pages()));
        let zone = &mm.core().alloc.zones()[0];
        let pieces =
            |mobility| (0..9).map(|order| zone.free_blocks(Order(order), mobility)).collect::<Vec<_>>();
        assert_eq!(pieces(Mobility::Unmovable), [2, 1, 0, 1, 5, 3, 1, 0, 0]);
        assert_eq!(pieces(Mobility::Reclaimable), [0, 0, 0, 0, 0, 0, 0, 0, 1]);
        mm.validate().unwrap();
    }

    /// Blocks that cannot have such pieces are an error.
    #[test]
    fn pieces_that_cannot_be_are_refused() {
        let text = PLAIN
            .replace("latency_ns", "kernels = \"40M\"\nunmovable = { blocks = 1, free = [512] }\nlatency_ns");
        let spec = MachineSpec::from_toml("kernels", &text).unwrap();
        let (machine, config) = prepare(&RunConfig::new(spec)).unwrap();
        let why = take(&Mm::new(machine, config).unwrap(), 1).unwrap_err();
        assert!(why.starts_with("node.kernels: 512 free blocks of order 0 are wanted"), "{why}");
    }
}
