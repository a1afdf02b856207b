//! Limits of groups: a program reads what it has set.

use super::*;

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
