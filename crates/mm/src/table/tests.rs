//! Page tables against a map.

use super::*;
use crate::knobs::Knobs;
use crate::testing::TestMachine;
use crate::tlb::Purpose;
use proptest::prelude::*;
use std_alloc::collections::BTreeMap;
use std_alloc::vec::Vec;

const SPACE: SpaceId = SpaceId(0);

struct Bench {
    base: Ground<TestMachine>,
    alloc: Allocator,
    tables: Tables,
}

impl Bench {
    fn new() -> Bench {
        let base = Ground::new(TestMachine::simple(1, 4096), Knobs::default());
        let alloc = Allocator::new(&base).unwrap();
        assert_eq!(base.tlb.create(), SPACE);
        let tables = Tables::default();
        tables.create(&base, &alloc, SPACE, Mark::Min, Reserve::None).unwrap();
        Bench { base, alloc, tables }
    }

    fn lock(&self) -> Locked<'_, TestMachine> {
        self.tables.lock(&self.base, SPACE)
    }

    fn set(&self, page: Vpn, entry: Entry) -> Entry {
        let mut tables = self.lock();
        let slot = tables.reserve(&self.alloc, page, Mark::Min, Reserve::None).unwrap();
        tables.replace(slot, entry)
    }

    fn finish(&self, gather: Gather) {
        self.tables.free_tables(&self.base, &self.alloc, &gather.tables);
    }
}

fn entry(n: u32) -> Entry {
    Entry::new(Pfn(n % 4096), Bits::PRESENT | Bits::USER)
}

#[test]
fn an_entry_is_found_where_it_was_put() {
    let bench = Bench::new();
    let page = Vpn(0x7_1234_5678);
    assert!(bench.lock().find(page).is_none());
    assert_eq!(bench.set(page, entry(7)), Entry::NONE);
    let leaf = bench.lock().find(page).unwrap();
    assert_eq!((leaf.entry, leaf.page, leaf.order), (entry(7), page, Order::ZERO));
    assert_eq!(bench.lock().counts().tables(), 4);
}

#[test]
fn a_large_entry_is_found_from_each_of_its_pages() {
    let bench = Bench::new();
    let page = Vpn(512 * 9);
    let entry = (Pfn(512), Rights::USER, Writes::No);
    bench.lock().settle().map_large(&bench.alloc, page, entry, Mark::Min, Reserve::None).unwrap();
    let leaf = bench.lock().find(Vpn(page.0 + 77)).unwrap();
    assert_eq!((leaf.page, leaf.order, leaf.entry.pfn()), (page, Order(9), Pfn(512)));
    let mut seen = Vec::new();
    bench.lock().for_each(Vpn(0), USER_END, &mut |_, leaf| seen.push((leaf.page, leaf.order)));
    assert_eq!(seen, [(page, Order(9))]);
    assert_eq!(bench.lock().validate(), Ok(1));
}

#[test]
#[should_panic(expected = "is mapped as if it were not new")]
fn only_a_page_of_a_cache_is_mapped_without_settling() {
    let bench = Bench::new();
    let mut tables = bench.lock();
    let slot = tables.reserve(&bench.alloc, Vpn(7), Mark::Min, Reserve::None).unwrap();
    tables.install_unchanged(slot, Pfn(77), Rights::USER);
}

/// The compiler allows to assign through the reference.
#[test]
#[should_panic(expected = "is not the one that was settled")]
fn a_lock_in_the_place_of_a_settled_one_is_refused() {
    let bench = Bench::new();
    let other = bench.base.tlb.create();
    bench.tables.create(&bench.base, &bench.alloc, other, Mark::Min, Reserve::None).unwrap();
    let mut settled = bench.tables.lock(&bench.base, other).settle();
    *settled = bench.lock();
    let slot = settled.reserve(&bench.alloc, Vpn(7), Mark::Min, Reserve::None).unwrap();
    settled.install(slot, Vpn(7), Pfn(77), Rights::USER, Writes::Private);
}

#[test]
fn hardware_bits_set_before_an_exchange_are_not_lost() {
    let bench = Bench::new();
    bench.set(Vpn(3), entry(9));
    let mut tables = bench.lock();
    let slot = tables.find(Vpn(3)).unwrap().slot;
    tables.set_bits(slot, Bits::YOUNG | Bits::DIRTY);
    assert!(tables.replace(slot, Entry::NONE).has(Bits::YOUNG | Bits::DIRTY));
}

#[derive(Clone, Debug)]
enum Op {
    Set(u64, u32),
    Clear(u64),
    TakeEmpty(u64, u64),
    Visit(u64, u64),
}

/// Pages close to each other and far apart, so that all levels branch.
fn page() -> impl Strategy<Value = u64> {
    (0u64..3, 0u64..3, 0u64..3, 0u64..5).prop_map(|(a, b, c, d)| a << 27 | b << 18 | c << 9 | (d * 127))
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (page(), 1u32..4096).prop_map(|(page, n)| Op::Set(page, n)),
        2 => page().prop_map(Op::Clear),
        1 => (page(), page()).prop_map(|(a, b)| Op::TakeEmpty(a.min(b), a.max(b) + 1)),
        1 => (page(), page()).prop_map(|(a, b)| Op::Visit(a.min(b), a.max(b) + 1)),
    ]
}

proptest! {
    /// Any sequence of sets and clears shows the same entries as a map does, in order, and empty tables come back.
    #[test]
    fn tables_are_a_map(ops in prop::collection::vec(op(), 1..120)) {
        let bench = Bench::new();
        let free = bench.base.stats.read(Stat::NrFreePages);
        let mut model = BTreeMap::new();
        for op in ops {
            match op {
                Op::Set(page, n) => {
                    let old = bench.set(Vpn(page), entry(n));
                    prop_assert_eq!(old, model.insert(page, entry(n)).unwrap_or(Entry::NONE));
                }
                Op::Clear(page) => {
                    let mut tables = bench.lock();
                    let old = tables.find(Vpn(page)).map_or(Entry::NONE, |leaf| tables.replace(leaf.slot, Entry::NONE));
                    prop_assert_eq!(old, model.remove(&page).unwrap_or(Entry::NONE));
                }
                Op::TakeEmpty(start, end) => {
                    let mut gather = Gather::new(SPACE, Purpose::Age);
                    bench.lock().take_empty_tables(Vpn(start), Vpn(end), &mut gather);
                    bench.finish(gather);
                }
                Op::Visit(start, end) => {
                    let mut seen = Vec::new();
                    bench.lock().for_each(Vpn(start), Vpn(end), &mut |_, leaf| seen.push((leaf.page.0, leaf.entry)));
                    prop_assert_eq!(seen, model.range(start..end).map(|(&p, &e)| (p, e)).collect::<Vec<_>>());
                }
            }
            prop_assert_eq!(bench.lock().validate(), Ok(model.len() as u64));
        }
        let mut tables = bench.lock();
        tables.for_each(Vpn(0), USER_END, &mut |tables, leaf| {
            tables.replace(leaf.slot, Entry::NONE);
        });
        drop(tables);
        let mut gather = Gather::new(SPACE, Purpose::Exit);
        bench.tables.destroy(&bench.base, SPACE, &mut gather);
        bench.finish(gather);
        bench.alloc.drain_all(&bench.base);
        // The root was taken before `free` was read; what CPUs' lists held then is back too.
        prop_assert!(bench.base.stats.read(Stat::NrFreePages) > free);
        prop_assert_eq!(bench.base.stats.read(Stat::NrPageTablePages), 0);
        bench.alloc.validate(&bench.base).unwrap();
    }
}
