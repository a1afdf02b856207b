//! Page allocation: Pagefold's allocator and the crate `buddy_system_allocator`, on 1 Mi frames (4 GiB).
//!
//! `pair` allocates and frees one block; `bulk` allocates 1000 pages and frees them, newest first; `random`
//! replaces a random one of 100 000 allocated pages. Each sample has many iterations, so that the clock's own
//! cost does not matter. Times are for one pair, or one replacement; for `bulk`, see the items per second.
#![forbid(unsafe_code)]

use bench::IdleMachine;
use buddy_system_allocator::{FrameAllocator, LockedFrameAllocator};
use divan::{Bencher, black_box, counter::ItemsCount};
use mm::alloc::{AllocRequest, Allocator, Reserve, Watermark};
use mm::frame::Mobility;
use mm::knobs::Knobs;
use mm::machine::ZoneKind;
use mm::mmu::Mmu;
use mm::units::*;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

fn main() {
    divan::main();
}

const FRAMES: u32 = 1 << 20;
const BULK: usize = 1000;
const ALLOCATED: usize = 100_000;

/// The compared interface: allocate and free 2^order frames.
trait Frames {
    fn new() -> Self;
    fn take(&mut self, order: u8) -> u32;
    fn free(&mut self, frame: u32, order: u8);
}

struct Pagefold {
    mmu: Mmu<IdleMachine>,
    allocator: Allocator,
}

impl Frames for Pagefold {
    fn new() -> Self {
        let mmu = Mmu::new(IdleMachine::new(FRAMES), Knobs::default());
        let allocator = Allocator::new(&mmu).expect("a machine with one zone must be accepted");
        Pagefold { mmu, allocator }
    }

    #[inline]
    fn take(&mut self, order: u8) -> u32 {
        let request = AllocRequest {
            order: Order(order),
            mobility: Mobility::Movable,
            node: NodeId(0),
            highest: ZoneKind::Movable,
            reserve: Reserve::None,
            this_node_only: false,
            atomic: false,
            mixes: true,
            among: Nodes::ALL,
        };
        self.allocator
            .take(&self.mmu, black_box(&request), Watermark::Low)
            .expect("memory must be free")
            .into_pfn()
            .0
    }

    #[inline]
    fn free(&mut self, frame: u32, _order: u8) {
        assert!(self.mmu.frames[Pfn(frame)].put(1));
        self.allocator.free(&self.mmu, &[Pfn(frame)]);
    }
}

impl Frames for FrameAllocator {
    fn new() -> Self {
        let mut allocator = FrameAllocator::new();
        allocator.add_frame(0, FRAMES as usize);
        allocator
    }

    #[inline]
    fn take(&mut self, order: u8) -> u32 {
        self.alloc(black_box(1 << order)).expect("memory must be free") as u32
    }

    #[inline]
    fn free(&mut self, frame: u32, order: u8) {
        self.dealloc(frame as usize, 1 << order);
    }
}

impl Frames for LockedFrameAllocator {
    fn new() -> Self {
        let allocator = LockedFrameAllocator::new();
        allocator.lock().add_frame(0, FRAMES as usize);
        allocator
    }

    #[inline]
    fn take(&mut self, order: u8) -> u32 {
        self.lock().alloc(black_box(1 << order)).expect("memory must be free") as u32
    }

    #[inline]
    fn free(&mut self, frame: u32, order: u8) {
        self.lock().dealloc(frame as usize, 1 << order);
    }
}

#[divan::bench(types = [Pagefold, FrameAllocator, LockedFrameAllocator], args = [0, 3, 9, 10], sample_size = 4096)]
fn pair<A: Frames>(bencher: Bencher, order: u8) {
    let mut allocator = A::new();
    bencher.bench_local(|| {
        let frame = black_box(allocator.take(order));
        allocator.free(frame, order);
    });
}

#[divan::bench(types = [Pagefold, FrameAllocator, LockedFrameAllocator], sample_size = 8)]
fn bulk<A: Frames>(bencher: Bencher) {
    let mut allocator = A::new();
    let mut allocated = Vec::with_capacity(BULK);
    bencher.counter(ItemsCount::new(BULK)).bench_local(|| {
        for _ in 0..BULK {
            allocated.push(allocator.take(0));
        }
        while let Some(frame) = allocated.pop() {
            allocator.free(frame, 0);
        }
    });
}

#[divan::bench(types = [Pagefold, FrameAllocator, LockedFrameAllocator], sample_size = 10_000)]
fn random<A: Frames>(bencher: Bencher) {
    let mut allocator = A::new();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut allocated: Vec<u32> = (0..ALLOCATED).map(|_| allocator.take(0)).collect();
    bencher.bench_local(|| {
        let slot = &mut allocated[random.random_range(0..ALLOCATED)];
        allocator.free(*slot, 0);
        *slot = allocator.take(0);
    });
}
