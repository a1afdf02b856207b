//! On which node pages are: memory policies, and the calls that move pages to where they say.

use super::*;
use crate::machine::Scope;
use crate::mempolicy::MemPolicy;
use crate::mm::migrate::Moved;
use crate::stat::Stat;
use crate::testing::range;
use abi::PolicyMode;
use std_alloc::boxed::Box;

const AT: Vpn = Vpn(BASE);
const PAGES: u64 = 8;
/// Frames of a node.
const FRAMES: u32 = 4096;
/// All CPUs are on the first of three nodes.
const NODES: u8 = 3;

/// A process with memory that it has not used yet.
fn bench() -> (Mm<TestMachine>, SpaceId) {
    let memory: Vec<_> =
        (0..NODES).map(|node| range(node, ZoneKind::Normal, u32::from(node) * FRAMES, FRAMES)).collect();
    let mm = with_swap(TestMachine::new(&[0; 2], &memory), 64);
    let space = mm.create_space(ROOT).unwrap();
    mm.mmap(space, &request(AT, PAGES, Backing::Anonymous)).unwrap();
    (mm, space)
}

fn policy(mode: PolicyMode, nodes: &[u8]) -> MemPolicy {
    MemPolicy::new(mode, Nodes(nodes.iter().map(|node| 1 << node).sum())).unwrap()
}

/// The node of each page, which is used if it was not yet.
fn nodes(mm: &Mm<TestMachine>, space: SpaceId) -> Vec<u8> {
    let node = |page| {
        let (pfn, _) = reach(mm, space, Vpn(AT.0 + page), true, 4).unwrap();
        mm.core.frames[pfn].node().0
    };
    (0..PAGES).map(node).collect()
}

/// Policies, and the nodes that they choose for the pages.
fn policies() -> [(MemPolicy, [u8; PAGES as usize]); 5] {
    // Interleaving is by the number of the page.
    let turn = |among: &[u8]| core::array::from_fn(|page| among[(AT.0 as usize + page) % among.len()]);
    [
        (MemPolicy::default(), [0; 8]),
        (policy(PolicyMode::Bind, &[2]), [2; 8]),
        (policy(PolicyMode::Preferred, &[1]), [1; 8]),
        (policy(PolicyMode::Interleave, &[0, 2]), turn(&[0, 2])),
        (policy(PolicyMode::Interleave, &[0, 1, 2]), turn(&[0, 1, 2])),
    ]
}

#[test]
fn pages_come_from_the_nodes_of_their_policy() {
    for (policy, expected) in policies() {
        let (mm, space) = bench();
        mm.set_mempolicy(space, policy).unwrap();
        assert_eq!(nodes(&mm, space), expected, "{policy:?} of the process");
        let counted = if policy.mode() == PolicyMode::Interleave { PAGES as i64 } else { 0 };
        assert_eq!(mm.mmu().stats.read(Stat::NumaInterleave), counted, "{policy:?}");
        let (mm, space) = bench();
        assert_eq!(mm.mbind(space, AT, PAGES, policy, false), Ok(0));
        assert_eq!(nodes(&mm, space), expected, "{policy:?} of the range");
    }
}

/// mbind of a part, over the policy of the process; a child has both.
#[test]
fn the_policy_of_a_range_goes_before_that_of_the_process() {
    let (mm, space) = bench();
    mm.set_mempolicy(space, policy(PolicyMode::Bind, &[1])).unwrap();
    mm.mbind(space, Vpn(AT.0 + 2), 3, policy(PolicyMode::Bind, &[2]), false).unwrap();
    let child = mm.fork(space).unwrap();
    for space in [space, child] {
        assert_eq!(nodes(&mm, space), [1, 1, 2, 2, 2, 1, 1, 1]);
    }
    mm.validate().unwrap();
}

/// mbind moves what is elsewhere, if asked to.
#[test]
fn mbind_moves_pages_that_are_elsewhere() {
    for (policy, expected) in policies() {
        for moving in [false, true] {
            let (mm, space) = bench();
            let before = nodes(&mm, space);
            assert_eq!(mm.mbind(space, AT, PAGES, policy, moving), Ok(0));
            // The default policy moves nothing.
            let moves = moving && !policy.is_default();
            assert_eq!(nodes(&mm, space), if moves { expected.to_vec() } else { before }, "{policy:?}");
            mm.validate().unwrap();
        }
    }
    // Pages on a node of the policy stay, and those outside of the interval.
    let (mm, space) = bench();
    mm.mbind(space, AT, 4, policy(PolicyMode::Bind, &[2]), true).unwrap();
    assert_eq!(nodes(&mm, space), [2, 2, 2, 2, 0, 0, 0, 0]);
    mm.mbind(space, Vpn(AT.0 + 2), 4, policy(PolicyMode::Bind, &[1, 2]), true).unwrap();
    let now = nodes(&mm, space);
    assert!(now[4] != 0 && now[5] != 0);
    assert_eq!([&now[..4], &now[6..]].concat(), [2, 2, 2, 2, 0, 0]);
}

/// A page to which another task has a reference cannot be moved, and is counted.
#[test]
fn calls_count_pages_that_cannot_be_moved() {
    let (mm, space) = bench();
    nodes(&mm, space);
    let (held, _) = reach(&mm, space, Vpn(AT.0 + 3), false, 4).unwrap();
    mm.core.frames[held].get(1);
    assert_eq!(mm.mbind(space, AT, PAGES, policy(PolicyMode::Bind, &[2]), true), Ok(1));
    assert_eq!(nodes(&mm, space), [2, 2, 2, 0, 2, 2, 2, 2]);
    assert_eq!(mm.mbind(space, AT, PAGES, policy(PolicyMode::Interleave, &[1]), true), Ok(1));
    assert_eq!(nodes(&mm, space), [1, 1, 1, 0, 1, 1, 1, 1]);
    assert_eq!(mm.migrate_pages(space, 0b11, 0b100), Ok(1));
    assert_eq!(nodes(&mm, space), [2, 2, 2, 0, 2, 2, 2, 2]);
    mm.core.put(held);
    assert_eq!(mm.migrate_pages(space, 0b1, 0b10), Ok(0));
    assert_eq!(nodes(&mm, space), [2, 2, 2, 1, 2, 2, 2, 2]);
    mm.validate().unwrap();
}

/// From the first node to the first, from the second to the second, and again from the start; no page moves twice.
#[test]
fn migrate_pages_moves_from_node_to_node() {
    let cases: [(u64, u64, [u8; 3]); 8] = [
        (0b011, 0b100, [2, 2, 2]),
        (0b100, 0b001, [0, 1, 0]),
        (0b011, 0b110, [1, 2, 2]),
        (0b110, 0b011, [0, 0, 1]),
        (0b111, 0b111, [0, 1, 2]),
        // The numbers differ: what is on one of the wanted nodes stays.
        (0b111, 0b110, [1, 1, 2]),
        (0b111, 0b001, [0, 0, 0]),
        (0b000, 0b001, [0, 1, 2]),
    ];
    for (from, to, expected) in cases {
        let (mm, space) = bench();
        mm.set_mempolicy(space, policy(PolicyMode::Interleave, &[0, 1, 2])).unwrap();
        let before = nodes(&mm, space);
        assert_eq!(mm.migrate_pages(space, from, to), Ok(0));
        let expected: Vec<u8> = before.iter().map(|&node| expected[usize::from(node)]).collect();
        assert_eq!(nodes(&mm, space), expected, "from {from:b} to {to:b}");
        mm.validate().unwrap();
    }
}

#[test]
fn impossible_places_are_refused() {
    let (mm, space) = bench();
    let before = nodes(&mm, space);
    let unknown = policy(PolicyMode::Bind, &[1, NODES]);
    assert_eq!(mm.set_mempolicy(space, unknown), Err(Error::Invalid));
    assert_eq!(mm.mbind(space, AT, PAGES, unknown, true), Err(Error::Invalid));
    let known = policy(PolicyMode::Bind, &[1]);
    assert_eq!(mm.mbind(space, AT, u64::MAX, known, true), Err(Error::Invalid));
    assert_eq!(mm.mbind(space, AT, PAGES + 1, known, true), Err(Error::NotMapped));
    assert_eq!(mm.migrate_pages(space, 1, 0), Err(Error::Invalid));
    assert_eq!(mm.migrate_pages(space, 1, 1 << NODES), Err(Error::Invalid));
    assert_eq!(mm.move_pages(space, AT, PAGES, Some(NodeId(NODES))), Err(Error::NotFound));
    assert_eq!(mm.move_pages(space, AT, u64::MAX, None), Err(Error::Invalid));
    assert_eq!(nodes(&mm, space), before);
}

/// The range goes on behind the interval with the same policy, by which nothing has moved yet.
#[test]
fn mbind_leaves_pages_behind_the_interval() {
    let (mm, space) = bench();
    nodes(&mm, space);
    let turns = policy(PolicyMode::Interleave, &[1, 2]);
    assert_eq!(mm.mbind(space, AT, PAGES, turns, false), Ok(0));
    assert_eq!(mm.mbind(space, AT, 4, turns, true), Ok(0));
    let now = nodes(&mm, space);
    assert!(now[..4].iter().all(|&node| node > 0) && now[4..] == [0; 4], "{now:?}");
}

/// A page that another task takes a reference to during the move stays, and the frame for it is free again.
#[test]
fn calls_free_the_frames_of_pages_that_stay() {
    let (mm, space) = bench();
    let mm: &'static Mm<TestMachine> = Box::leak(Box::new(mm));
    let (page, _) = reach(mm, space, AT, true, 4).unwrap();
    *mm.machine().entered.lock() = Some(Box::new(move |_, scope| {
        if scope == Scope::TryToMigrateOne && mm.core.frames[page].refs() == 2 {
            mm.core.frames[page].get(1);
        }
    }));
    type Call = fn(&Mm<TestMachine>, SpaceId) -> Result<u64, Error>;
    let calls: [(&str, Call); 3] = [
        ("move_pages", |mm, space| {
            mm.move_pages(space, AT, PAGES, Some(NodeId(1))).map(|moved| moved.failed)
        }),
        ("migrate_pages", |mm, space| mm.migrate_pages(space, 0b1, 0b10)),
        ("mbind", |mm, space| mm.mbind(space, AT, PAGES, policy(PolicyMode::Bind, &[1]), true)),
    ];
    let before = mm.free_pages();
    for (name, call) in calls {
        assert_eq!(call(mm, space), Ok(1), "{name}");
        mm.core.put(page);
        assert_eq!((mm.core.frames[page].node(), mm.free_pages()), (NodeId(0), before), "{name}");
        mm.validate().unwrap();
    }
}

/// Another task has taken a large folio off its list. All its pages are mapped, and all cannot be moved.
#[test]
fn calls_count_all_pages_of_a_large_folio() {
    let (mm, space) = bench();
    mm.set_knob(Knob::HugepagesEnabled64, 2).unwrap();
    mm.mmap(space, &request(LARGE_AT, 32, Backing::Anonymous)).unwrap();
    let (head, _) = reach(&mm, space, LARGE_AT, true, 4).unwrap();
    assert_eq!(mm.core.frames[head].pages(), 16);
    assert!(mm.core.lru.isolate(mm.mmu(), head));
    let refused = Moved { mapped: 16, moved: 0, failed: 16 };
    assert_eq!(mm.move_pages(space, LARGE_AT, 32, Some(NodeId(1))), Ok(refused));
    assert_eq!(mm.migrate_pages(space, 0b1, 0b10), Ok(16));
    assert_eq!(mm.mbind(space, LARGE_AT, 32, policy(PolicyMode::Bind, &[1]), true), Ok(16));
    mm.core.lru.putback(mm.mmu(), head);
    mm.core.put(head);
    let moved = Moved { mapped: 16, moved: 16, failed: 0 };
    assert_eq!(mm.move_pages(space, LARGE_AT, 32, Some(NodeId(1))), Ok(moved));
    mm.validate().unwrap();
}
