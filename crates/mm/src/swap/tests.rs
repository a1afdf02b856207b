use super::clusters::CLUSTER_SLOTS;
use super::*;
use crate::knobs::Knobs;
use crate::testing::TestMachine;

fn base(cpus: usize) -> Platform<TestMachine> {
    Platform::new(TestMachine::simple(cpus, 2048), Knobs::default())
}

fn area(device: u8, pages: u32, priority: i16) -> SwapArea {
    SwapArea { device: DeviceId(device), pages, priority, zram: None }
}

fn devices(swap: &Swap, platform: &Platform<TestMachine>, count: usize) -> Vec<u8> {
    (0..count).map(|_| swap.place(swap.alloc(platform, GroupId(0)).unwrap()).0.0).collect()
}

#[test]
fn areas_of_higher_priority_are_filled_first() {
    let platform = base(1);
    let swap = Swap::new(&[area(0, 5, -2), area(1, 3, 7), area(2, 4, 1)], 1);
    assert_eq!(devices(&swap, &platform, 12), [1, 1, 1, 2, 2, 2, 2, 0, 0, 0, 0, 0]);
    assert_eq!((swap.alloc(&platform, GroupId(0)), swap.free_slots(), swap.total()), (None, 0, 12));
    swap.validate().unwrap();
}

#[test]
fn areas_of_equal_priority_take_turns() {
    let platform = base(1);
    let swap = Swap::new(&[area(0, 1000, 0), area(1, 1000, 0)], 1);
    let order = devices(&swap, &platform, 4 * TURN as usize);
    let turns: Vec<u8> = order.chunks(TURN as usize).map(|turn| turn[0]).collect();
    assert_eq!(turns, [0, 1, 0, 1]);
    assert_eq!(platform.machine.work(Work::SwapSlot), 4 * u64::from(TURN), "batches are complete");
    assert!(order.chunks(TURN as usize).all(|turn| turn.iter().all(|device| *device == turn[0])));
}

#[test]
fn areas_of_equal_priority_are_filled_to_their_ends() {
    let platform = base(1);
    let swap = Swap::new(&[area(0, 3, 0), area(1, 5, 0)], 1);
    assert_eq!(devices(&swap, &platform, 8), [0, 0, 0, 1, 1, 1, 1, 1]);
    assert_eq!(swap.alloc(&platform, GroupId(0)), None);
}

#[test]
fn slots_of_every_area_are_counted_for_themselves() {
    let platform = base(1);
    let swap = Swap::new(&[area(3, 10, 0), area(4, 6, 5)], 1);
    let slots: Vec<SwapSlot> = (0..16).map(|_| swap.alloc(&platform, GroupId(0)).unwrap()).collect();
    assert_eq!(slots, (0..16).map(SwapSlot).collect::<Vec<_>>());
    assert_eq!([0, 5, 6, 15].map(|slot| swap.in_area(SwapSlot(slot))), [(0, 0), (0, 5), (1, 0), (1, 9)]);
    assert!(slots.iter().all(|&slot| {
        let (area, number) = swap.in_area(slot);
        swap.slot_in(area, number) == slot
    }));
    swap.dup(SwapSlot(7));
    assert_eq!([1, 6, 7, 8].map(|slot| swap.entries(SwapSlot(slot))), [0, 0, 1, 0]);
}

#[test]
fn slots_map_to_blocks_of_their_area() {
    let platform = base(1);
    let swap = Swap::new(&[area(3, 10, 0), area(4, 6, 5)], 1);
    assert_eq!(swap.place(SwapSlot(0)), (DeviceId(4), 0));
    assert_eq!(swap.place(SwapSlot(6)), (DeviceId(3), 0));
    assert_eq!(swap.window(SwapSlot(5), 2), 4..6);
    assert_eq!(swap.window(SwapSlot(9), 2), 6..10);
    assert_eq!(swap.window(SwapSlot(11), 2), 10..14);
    swap.validate().unwrap();
    drop(platform);
}

#[test]
fn slot_lives_while_an_entry_or_the_cache_refers_to_it() {
    let platform = base(1);
    let swap = Swap::new(&[area(0, CLUSTER_SLOTS, 0)], 1);
    let slot = swap.alloc(&platform, GroupId(0)).unwrap();
    platform.frames[Pfn(9)].set(FrameFlags::LOCKED);
    platform.frames[Pfn(9)].get(1);
    assert_eq!(swap.cache_insert(&platform, slot, Pfn(9)), None);
    swap.dup(slot);
    assert_eq!((swap.cache_folio(slot), swap.entries(slot)), (Some(Pfn(9)), 1));
    assert_eq!((platform.frames[Pfn(9)].refs(), platform.frames[Pfn(9)].swap_slot()), (2, slot));
    swap.cache_remove(&platform, slot, Some(Shadow(77)), drop);
    assert_eq!((swap.cache_folio(slot), swap.free_slots()), (None, CLUSTER_SLOTS as u64 - 1));
    assert_eq!(swap.cache_try_insert(&platform, slot, Pfn(9)), Some(Some(Shadow(77))));
    assert_eq!(swap.cache_try_insert(&platform, slot, Pfn(9)), None);
    assert_eq!(swap.free_entry(&platform, slot, drop), 0);
    assert_eq!(swap.free_slots(), CLUSTER_SLOTS as u64 - 1);
    swap.cache_remove(&platform, slot, Some(Shadow(78)), drop);
    assert_eq!((swap.free_slots(), platform.stats.read(Stat::NrSwapcached)), (CLUSTER_SLOTS as u64, 0));
    swap.validate().unwrap();
}

#[test]
fn a_slot_is_held_without_a_folio_for_its_only_entry() {
    let platform = base(1);
    let swap = Swap::new(&[area(0, CLUSTER_SLOTS, 0)], 1);
    let gone = core::cell::Cell::new(0);
    let remove = |slot, shadow| swap.cache_remove(&platform, slot, shadow, |_| gone.set(gone.get() + 1));
    let slot = swap.alloc(&platform, GroupId(0)).unwrap();
    swap.dup(slot);
    assert_eq!(swap.slot_use(slot), SlotUse::Held, "what is swapped out is not read back");
    remove(slot, Some(Shadow(77)));
    assert_eq!((swap.slot_use(slot), swap.cache_prepare(slot, 1)), (SlotUse::Single, Some(Some(Shadow(77)))));
    assert_eq!((swap.slot_use(slot), swap.cache_prepare(slot, 1)), (SlotUse::Held, None));
    assert!(swap.is_cached(slot), "no other task reads it");
    // The fault has to be repeated: the shadow is back.
    remove(slot, Some(Shadow(77)));
    swap.dup(slot);
    assert_eq!((swap.slot_use(slot), swap.cache_prepare(slot, 1)), (SlotUse::Shared, None));
    assert_eq!(swap.free_entry(&platform, slot, drop), 1);
    assert_eq!(swap.cache_prepare(slot, 1), Some(Some(Shadow(77))));
    swap.free_entries(&platform, slot, 1);
    assert_eq!((gone.get(), swap.is_used(slot)), (0, true));
    remove(slot, None);
    assert_eq!((gone.get(), swap.free_slots()), (1, CLUSTER_SLOTS as u64));
    swap.validate().unwrap();
}

#[test]
fn a_slot_of_zeroes_has_other_content_when_it_is_written() {
    let swap = Swap::new(&[area(0, CLUSTER_SLOTS, 0)], 1);
    swap.set_zeroes(SwapSlot(3), 2, true);
    swap.set_zeroes(SwapSlot(4), 1, false);
    assert_eq!([2, 3, 4, 5].map(|slot| swap.has_zeroes(SwapSlot(slot))), [false, true, false, false]);
}
