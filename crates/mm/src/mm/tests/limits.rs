//! Limits of groups: a program reads what it has set, and goes on at a limit.

use super::*;
use std_alloc::boxed::Box;

fn bench() -> Mm<TestMachine> {
    with_swap(TestMachine::simple(1, 1024), 16)
}

#[test]
fn group_keeps_each_of_its_limits() {
    let mm = bench();
    let created = GroupLimits { max: 900, high: 800, low: 70, min: 60, swap_max: 5 };
    let group = mm.create_group(ROOT, created).unwrap();
    assert_eq!(mm.group_limits(group), Ok(created));
    let changed = GroupLimits { max: 400, high: 300, low: 20, min: 10, swap_max: 7 };
    mm.set_group_limits(group, changed).unwrap();
    assert_eq!(mm.group_limits(group), Ok(changed));
}

#[test]
fn group_keeps_each_of_its_zswap_limits() {
    let mm = bench();
    let group = mm.create_group(ROOT, GroupLimits::default()).unwrap();
    for limits in [ZswapLimits { max: 7, writeback: false }, ZswapLimits { max: 9, writeback: true }] {
        mm.set_group_zswap_limits(group, limits).unwrap();
        assert_eq!(mm.group_zswap_limits(group), Ok(limits));
    }
}

/// Read-ahead makes folios of two pages, for the second of which the group has no room.
#[test]
fn a_reader_at_its_groups_limit_gets_single_pages() {
    const FILE: u64 = 16;
    let mm: &'static Mm<TestMachine> = Box::leak(Box::new(bench()));
    let blocks: &'static Blocks = Box::leak(Box::default());
    *mm.machine().idle.lock() = Some(Box::new(|_| carry_transfers(mm, blocks, Some(7))));
    mm.set_knob(Knob::FileMaxOrder, 1).unwrap();
    let group = mm.create_group(ROOT, GroupLimits { max: 3, ..GroupLimits::default() }).unwrap();
    let file = mm.create_file(FileKind::Disk { device: DeviceId(0), block: 1000 }, FILE * PAGE_SIZE);
    let mut content = Vec::new();
    let mut sink = |pfn, _, _| content.push(mm.machine().stamp(pfn));
    assert_eq!(mm.read(file, 0, FILE * PAGE_SIZE, group, &mut sink), Ok(FILE * PAGE_SIZE));
    assert_eq!(content, [7; FILE as usize]);
    mm.validate().unwrap();
}
