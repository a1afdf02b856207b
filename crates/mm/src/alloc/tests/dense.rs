//! Taking from the fullest page block first.

use super::*;

fn densest(frames: u32) -> (TestBase, Allocator) {
    let knobs = Knobs::default();
    knobs.set(Knob::AllocPlacement, 1).unwrap();
    let mmu = Mmu::new(TestMachine::simple(1, frames), knobs);
    let allocator = Allocator::new(&mmu).unwrap();
    (mmu, allocator)
}

/// Whole page blocks after filling memory, freeing half of it, and repeatedly freeing and taking a tenth of the rest.
fn whole_after(rounds: u32, (base, allocator): (TestBase, Allocator)) -> u64 {
    let mut seed = 1u64;
    let mut draw = |n: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % n
    };
    let any = AllocRequest { reserve: Reserve::All, ..request(0) };
    let mut held: Vec<Pfn> = core::iter::from_fn(|| take(&base, &allocator, &any)).collect();
    let half = held.len() / 2;
    while held.len() > half {
        let at = draw(held.len());
        free(&base, &allocator, held.swap_remove(at));
    }
    for _ in 0..rounds {
        for _ in 0..half / 10 {
            let at = draw(held.len());
            free(&base, &allocator, held.swap_remove(at));
        }
        held.extend((0..half / 10).map(|_| take(&base, &allocator, &any).unwrap()));
    }
    allocator.drain_all(&base);
    allocator.validate(&base).unwrap();
    let whole = allocator.zones()[0].blocks().suitable(PAGEBLOCK_ORDER);
    held.into_iter().for_each(|pfn| free(&base, &allocator, pfn));
    assert_whole(&base, &allocator);
    whole
}

/// The result of a churn of single pages in 32 blocks, of which 16 could be whole.
#[test]
fn blocks_run_empty_while_others_fill() {
    assert!(whole_after(60, world(TestMachine::simple(1, 16384))) <= 1);
    let after = [0, 60, 200].map(|rounds| whole_after(rounds, densest(16384)));
    assert!(after[0] == 0 && after[1] >= 8 && after[2] >= 15, "{after:?}");
}

#[test]
fn each_order_is_taken_from_the_fullest_block_that_has_it() {
    let (base, allocator) = densest(4096);
    // Leave 3 pages, 40 and 400 free in three page blocks.
    let room = |block: u32, from: u32| (from..512).map(move |page| Pfn(block * 512 + page));
    let all: Vec<Pfn> = (0..3).flat_map(|block| room(block, 0)).collect();
    let taken: Vec<Pfn> = all
        .iter()
        .map(|&pfn| allocator.take_exactly(&base, ZoneId(0), pfn, Mobility::Movable).unwrap().into_pfn())
        .collect();
    let freed: Vec<Pfn> = room(0, 509).chain(room(1, 472)).chain(room(2, 112)).collect();
    freed.iter().for_each(|&pfn| free(&base, &allocator, pfn));
    allocator.drain_all(&base);
    for (order, block) in [(4, 1), (8, 2), (2, 1), (0, 0)] {
        let request = AllocRequest { reserve: Reserve::All, ..request(order) };
        let pfn = take(&base, &allocator, &request).unwrap();
        assert_eq!(pfn.0 / 512, block, "order {order}: {pfn}");
        free(&base, &allocator, pfn);
        allocator.drain_all(&base);
        allocator.validate(&base).unwrap();
    }
    taken.into_iter().filter(|pfn| !freed.contains(pfn)).for_each(|pfn| free(&base, &allocator, pfn));
    assert_whole(&base, &allocator);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn what_is_known_stays_true(steps in proptest::collection::vec((0..11u8, 0..3u8, any::<prop::sample::Index>()), 1..120)) {
        let (base, allocator) = densest(6000);
        let mut held: Vec<Pfn> = Vec::new();
        for (order, group, index) in steps {
            let mobility = Mobility::ALL[group as usize];
            let request = AllocRequest { mobility, reserve: Reserve::All, highest: ZoneKind::Normal, ..request(order) };
            match take(&base, &allocator, &request) {
                Some(pfn) if !index.index(4).is_multiple_of(4) => held.push(pfn),
                Some(pfn) => free(&base, &allocator, pfn),
                None if held.is_empty() => {}
                None => free(&base, &allocator, held.swap_remove(index.index(held.len()))),
            }
            allocator.validate(&base).unwrap();
        }
        held.into_iter().for_each(|pfn| free(&base, &allocator, pfn));
        assert_whole(&base, &allocator);
    }
}
