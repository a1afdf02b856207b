//! The TLB against a model that keeps one list a set and searches it.

use super::*;
use mm::units::Order;
use proptest::prelude::*;

fn spec() -> TlbSpec {
    let geometry = |entries, ways| Geometry { entries, ways };
    TlbSpec {
        l1d_4k: geometry(8, 2),
        l1d_2m: geometry(4, 4),
        l1i_4k: geometry(8, 4),
        l1i_2m: geometry(2, 2),
        l2: geometry(24, 3),
        pde: geometry(4, 4),
        pdpte: geometry(2, 2),
        pml4e: geometry(2, 2),
        lines: 16,
        source: String::new(),
    }
}

/// Entries as (asid, large, number, data), most recently used first, one list a set.
struct Naive {
    sets: Vec<Vec<(usize, bool, u64, u64)>>,
    ways: usize,
}

impl Naive {
    fn new(geometry: Geometry) -> Naive {
        let sets = (geometry.entries / geometry.ways) as usize;
        Naive { sets: vec![Vec::new(); sets], ways: geometry.ways as usize }
    }

    fn set(&mut self, number: u64) -> &mut Vec<(usize, bool, u64, u64)> {
        let sets = self.sets.len();
        &mut self.sets[number as usize % sets]
    }

    fn get(&mut self, asid: usize, large: bool, number: u64) -> Option<u64> {
        let set = self.set(number);
        let at = set.iter().position(|e| (e.0, e.1, e.2) == (asid, large, number))?;
        let entry = set.remove(at);
        set.insert(0, entry);
        Some(entry.3)
    }

    fn put(&mut self, asid: usize, large: bool, number: u64, data: u64) {
        let ways = self.ways;
        let set = self.set(number);
        set.retain(|e| (e.0, e.1, e.2) != (asid, large, number));
        set.insert(0, (asid, large, number, data));
        set.truncate(ways);
    }

    fn retain(&mut self, mut keep: impl FnMut(usize, bool, u64) -> bool) {
        self.sets.iter_mut().for_each(|set| set.retain(|e| keep(e.0, e.1, e.2)));
    }
}

#[derive(Clone, Debug)]
enum Op {
    Access { vpn: u64, fetch: bool },
    Load { asid: usize, keep: bool },
    FlushCurrent,
    FlushAll,
    FlushPages { vpn: u64, count: u32 },
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        20 => (0u64..64, any::<bool>()).prop_map(|(vpn, fetch)| Op::Access { vpn: vpn * 37, fetch }),
        3 => (0usize..4, any::<bool>()).prop_map(|(asid, keep)| Op::Load { asid, keep }),
        1 => Just(Op::FlushCurrent),
        1 => Just(Op::FlushAll),
        2 => (0u64..2400, 1u32..80).prop_map(|(vpn, count)| Op::FlushPages { vpn, count }),
    ]
}

/// Pages above this one are mapped by large entries.
const LARGE_FROM: u64 = 1024;

proptest! {
    #[test]
    fn hits_and_misses_are_those_of_the_naive_model(ops in prop::collection::vec(op(), 1..400), near_end: bool) {
        let (spec, tlb) = (spec(), Tlb::new(&spec()));
        if near_end {
            // Two epochs before they run out, so that the restart is exercised.
            for prefix in &tlb.epochs.prefix {
                prefix.set(prefix.get() & !(u64::MAX << EPOCH_SHIFT) | (LAST_EPOCH - 2) << EPOCH_SHIFT);
            }
            tlb.load(0, true);
        }
        let mut first = [
            [Naive::new(spec.l1d_4k), Naive::new(spec.l1d_2m)],
            [Naive::new(spec.l1i_4k), Naive::new(spec.l1i_2m)],
        ];
        let mut second = Naive::new(spec.l2);
        let (mut asid, mut stamp, mut restarted) = (0, 0u32, false);
        for op in ops {
            let before: Vec<u64> = tlb.epochs.prefix.iter().map(Cell::get).collect();
            match op {
                Op::Access { vpn, fetch } => {
                    let large = vpn >= LARGE_FROM;
                    let (number, offset) = if large { (vpn >> 9, vpn & 511) } else { (vpn, 0) };
                    let l1 = &mut first[fetch as usize][large as usize];
                    let page = Vpn(vpn);
                    let found = if fetch { tlb.instruction(page) } else { tlb.data(page) };
                    let expected = l1.get(asid, large, number);
                    prop_assert_eq!(found.map(|c| c.pfn().0 as u64), expected.map(|d| d + offset));
                    if found.is_some() {
                        continue;
                    }
                    let found = tlb.second(page, fetch);
                    let expected = second.get(asid, large, number);
                    prop_assert_eq!(found.map(|c| c.pfn().0 as u64), expected.map(|d| d + offset));
                    match expected {
                        Some(data) => l1.put(asid, large, number, data),
                        None => {
                            stamp += 512;
                            tlb.fill(page, Cached::new(Pfn(stamp), true, false, true, 0), large, fetch);
                            l1.put(asid, large, number, stamp as u64);
                            second.put(asid, large, number, stamp as u64);
                        }
                    }
                }
                Op::Load { asid: next, keep } => {
                    asid = next;
                    tlb.load(asid, keep);
                    if !keep {
                        drop_all(&mut first, &mut second, |a| a == asid);
                    }
                }
                Op::FlushCurrent => {
                    tlb.flush(Flush::Current);
                    drop_all(&mut first, &mut second, |a| a == asid);
                }
                Op::FlushAll => {
                    tlb.flush(Flush::All);
                    drop_all(&mut first, &mut second, |_| true);
                }
                Op::FlushPages { vpn, count } => {
                    tlb.flush(Flush::Pages { start: Vpn(vpn), count, stride: Order(0) });
                    let hit = |a: usize, large: bool, n: u64| {
                        a == asid && (vpn..vpn + count as u64).any(|v| if large { v >> 9 == n } else { v == n })
                    };
                    let arrays = first.iter_mut().flatten().chain([&mut second]);
                    arrays.for_each(|array| array.retain(|a, large, n| !hit(a, large, n)));
                }
            }
            // When epochs run out everything is dropped, which a flush may always do.
            if tlb.epochs.prefix.iter().zip(&before).any(|(now, before)| now.get() < *before) {
                prop_assert!(near_end && !restarted);
                restarted = true;
                drop_all(&mut first, &mut second, |_| true);
            }
        }
    }
}

fn drop_all(first: &mut [[Naive; 2]; 2], second: &mut Naive, gone: impl Fn(usize) -> bool) {
    for array in first.iter_mut().flatten().chain([second]) {
        array.retain(|asid, _, _| !gone(asid));
    }
}

#[test]
fn a_flush_of_one_page_empties_the_walk_caches_of_its_asid_only() {
    let tlb = Tlb::new(&spec());
    tlb.walk_put(1, Vpn(5), Pfn(50));
    tlb.load(1, true);
    tlb.walk_put(1, Vpn(5), Pfn(51));
    tlb.flush(Flush::Pages { start: Vpn(900), count: 1, stride: Order(0) });
    assert_eq!(tlb.walk_get(1, Vpn(5)), None);
    tlb.load(0, true);
    assert_eq!(tlb.walk_get(1, Vpn(5)), Some(Pfn(50)));
}

#[test]
fn age_counts_from_the_fill() {
    let cached = Cached::new(Pfn(1), true, true, false, 5 << 20);
    assert_eq!(cached.age(9 << 20), 4 << 20);
    assert!(cached.storable() && !cached.executable());
}
