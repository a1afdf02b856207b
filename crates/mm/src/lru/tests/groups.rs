//! Groups: how many there can be, what they protect, and what they leave to their parents.

use super::*;

/// No number is used again, and the root has one of them.
#[test]
fn groups_can_have_65535_numbers() {
    let groups = Groups::new(1);
    let insert = || groups.insert(ROOT, GroupLimits::default());
    assert!((1..=u16::MAX).all(|number| insert() == Ok(GroupId(number))));
    assert_eq!(insert(), Err(Error::NoSpace));
}

/// A group keeps one record of what it gets, from whatever group the reclaim begins.
#[test]
fn reclaim_in_a_group_leaves_its_protection_from_others() {
    let (base, lru) = setup();
    let min = GroupLimits { min: 100, ..GroupLimits::default() };
    let top = lru.create_group(ROOT, min, drop).unwrap();
    let inside = lru.create_group(top, min, drop).unwrap();
    lru.groups.try_charge(&base, inside, 100).unwrap();
    lru.groups.subtree(ROOT).for_each(|group| lru.groups.calculate_protection(ROOT, group));
    // A reclaim in the group begins while one of the whole machine is on its way down.
    lru.groups.calculate_protection(top, top);
    lru.groups.calculate_protection(ROOT, inside);
    assert_eq!(lru.groups.protection(ROOT, inside).min, 100);
}

#[test]
fn removed_group_leaves_its_costs_to_its_parent() {
    let (base, lru) = setup();
    let group = lru.create_group(ROOT, GroupLimits::default(), drop).unwrap();
    for (owner, cost) in [(ROOT, Cost { anon: 3, file: 5 }), (group, Cost { anon: 7, file: 11 })] {
        lru.vec(NodeId(0), owner).lock().cost = cost;
    }
    lru.remove_group(&base, group).unwrap();
    assert_eq!(lru.node_vec(NodeId(0)).cost(), Cost { anon: 10, file: 16 });
}
