//! Frames taken by their number.

use super::*;

#[test]
fn a_frame_is_taken_and_the_rest_stays_free() {
    let (base, allocator) = world(TestMachine::simple(1, 4096));
    let before = allocator.zones()[0].free_pages();
    let mut taken = Vec::new();
    for (pfn, mobility) in
        [(700, Mobility::Unmovable), (701, Mobility::Unmovable), (3071, Mobility::Reclaimable)]
    {
        let fresh = allocator.take_exactly(&base, ZoneId(0), Pfn(pfn), mobility).unwrap();
        assert_eq!((fresh.pfn(), fresh.order()), (Pfn(pfn), Order::ZERO));
        let frame = &base.frames[fresh.into_pfn()];
        assert_eq!(
            (frame.refs(), frame.mobility(), frame.node(), frame.zone()),
            (1, mobility, NodeId(0), ZoneId(0))
        );
        taken.push(Pfn(pfn));
        allocator.validate(&base).unwrap();
    }
    let zone = &allocator.zones()[0];
    assert_eq!(zone.free_pages(), before - 3);
    assert_eq!(zone.blocks_by_mobility(), [1, 6, 1]);
    // Page 700 and its neighbour: a pair is missing from the four of 700..704, and so on upwards.
    assert_eq!(zone.blocks().0, [1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2]);
    assert!(
        allocator.take_exactly(&base, ZoneId(0), Pfn(700), Mobility::Movable).is_none(),
        "the frame is in use"
    );
    taken.into_iter().for_each(|pfn| free(&base, &allocator, pfn));
    assert_whole(&base, &allocator);
}

#[test]
fn a_page_on_a_cpus_list_is_in_no_block() {
    let (base, allocator) = world(TestMachine::simple(1, 4096));
    let pfn = take(&base, &allocator, &request(0)).unwrap();
    free(&base, &allocator, pfn);
    assert!(allocator.take_exactly(&base, ZoneId(0), pfn, Mobility::Movable).is_none());
    allocator.drain_all(&base);
    let fresh = allocator.take_exactly(&base, ZoneId(0), pfn, Mobility::Movable).unwrap();
    free(&base, &allocator, fresh.into_pfn());
    assert_whole(&base, &allocator);
}
