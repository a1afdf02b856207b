//! Which process the OOM killer chooses.

use super::*;
use crate::reclaim;
use crate::table::Resident;
use std_alloc::boxed::Box;

const AT: Vpn = LARGE_AT;

/// What a process uses: pages in swap, and behind them pages in memory, which are so far apart.
struct Uses {
    swapped: u64,
    pages: u64,
    apart: u64,
}

/// Make such processes in a group that is then too large, and return the one that is killed. Another one has loaded
/// zeroes only: it has tables, and no pages.
fn killed(all: &[Uses]) -> usize {
    let mm = with_swap(TestMachine::simple(1, 8192), 256);
    let mm: &'static Mm<TestMachine> = Box::leak(Box::new(mm));
    *mm.machine().idle.lock() = Some(Box::new(|_| end_transfers(mm)));
    mm.mmu().knobs.set(Knob::MemcgChargeBatch, 1).unwrap();
    let group = mm.create_group(ROOT, GroupLimits::default()).unwrap();
    let make = |uses: &Uses| {
        let space = mm.create_space(group).unwrap();
        let pages = uses.swapped + uses.pages * uses.apart;
        mm.mmap(space, &request(AT, pages, Backing::Anonymous)).unwrap();
        let store = |page| mm.fault(space, Vpn(AT.0 + page), AccessKind::Store).map(drop).unwrap();
        (0..uses.swapped).for_each(store);
        mm.madvise(space, AT, uses.swapped, Advice::PageOut).unwrap();
        end_transfers(mm);
        (0..uses.pages).for_each(|page| store(uses.swapped + page * uses.apart));
        let counts = mm.core.tables.tree(space).counts();
        assert_eq!((counts.rss(), counts.get(Resident::Swap)), (uses.pages, uses.swapped as i64));
        space
    };
    let spaces: Vec<SpaceId> = all.iter().map(make).collect();
    let reads = mm.create_space(group).unwrap();
    mm.mmap(reads, &request(AT, 1, Backing::Anonymous)).unwrap();
    mm.fault(reads, AT, AccessKind::Load).unwrap();
    // Nothing more can go to swap. What is there already need not stay in memory.
    let limits = GroupLimits { swap_max: 0, ..GroupLimits::default() };
    mm.set_group_limits(group, limits).unwrap();
    reclaim::group(&mm.core, &mm.reclaim, mm, group, 256);
    let pages = all.iter().map(|uses| uses.pages).sum();
    assert_eq!(mm.group_usage(group).0, pages, "only mapped pages must be left");
    mm.set_group_limits(group, GroupLimits { max: pages - 1, ..limits }).unwrap();
    let victims: Vec<SpaceId> = mm.oom_reports().iter().map(|report| report.victim).collect();
    assert_eq!(victims.len(), 1);
    spaces.iter().position(|&space| space == victims[0]).expect("the process without pages must live")
}

/// Pages, swap and tables count alike.
#[test]
fn process_whose_end_frees_most_is_killed() {
    let uses = |swapped, pages, apart| Uses { swapped, pages, apart };
    let cases = [
        // Many pages, or many tables.
        [uses(0, 100, 1), uses(0, 10, LARGE)],
        // Many pages, or fewer of which most are in swap.
        [uses(0, 100, 1), uses(40, 10, 1)],
        // More pages than the other one, half of them in swap.
        [uses(60, 60, 1), uses(0, 100, 1)],
    ];
    for (case, [first, other]) in cases.into_iter().enumerate() {
        assert_eq!(killed(&[first, other]), 0, "case {case}");
    }
}
