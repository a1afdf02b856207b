//! What validate says of damage that no assertion has met: each test does it by hand.

use super::*;
use std_alloc::string::String;

const AT: Vpn = Vpn(BASE);

/// A memory manager with swap, and a space of one page that was stored to.
fn one_page() -> (Mm<TestMachine>, SpaceId, Pfn) {
    let mm = with_swap(TestMachine::simple(1, 4096), 64);
    let space = mm.create_space(ROOT).unwrap();
    mm.mmap(space, &request(AT, 1, Backing::Anonymous)).unwrap();
    let (pfn, _) = reach(&mm, space, AT, true, 4).unwrap();
    mm.validate().unwrap();
    (mm, space, pfn)
}

fn fault_of(mm: &Mm<TestMachine>) -> String {
    mm.validate().expect_err("validate must see the damage")
}

#[test]
fn validate_sees_an_entry_that_names_a_free_slot() {
    let (mm, space, pfn) = one_page();
    let mut batch = UnmapBatch::new(mm.mmu().host());
    unmap_folio(&mm, pfn, true, &mut batch);
    batch.settle(mm.mmu().host(), &mm.core.tlb);
    mm.validate().expect_err("a reference of the test is left");
    mm.core.put(pfn);
    mm.validate().unwrap();
    let slot = {
        let tables = mm.core.tables.lock(mm.mmu(), space);
        tables.find(AT).and_then(|run| run.entry.as_swap()).expect("the page must be in swap").0
    };
    mm.core.swap.dup(slot);
    let fault = fault_of(&mm);
    assert!(fault.contains("counts 2 entries, 1 name it"), "{fault}");
    mm.core.swap.free_entry(mm.mmu(), slot, |_| ());
    mm.validate().unwrap();
    mm.core.swap.free_entry(mm.mmu(), slot, |_| ());
    let fault = fault_of(&mm);
    assert!(fault.contains("counts 0 entries, 1 name it"), "{fault}");
}

#[test]
fn validate_sees_an_entry_that_waits_for_a_page_nobody_moves() {
    let (mm, _, pfn) = one_page();
    let core = &mm.core;
    let mut batch = UnmapBatch::new(mm.mmu().host());
    core.frames[pfn].get(1);
    core.lock_folio(pfn);
    core::mem::forget(core.rmap.begin_move(core, pfn, &mut batch));
    batch.settle(mm.mmu().host(), &core.tlb);
    mm.validate().unwrap();
    core.unlock_folio(pfn);
    let fault = fault_of(&mm);
    assert!(fault.contains("waits for") && fault.contains("which nobody moves"), "{fault}");
}

#[test]
fn validate_sees_a_reference_of_nobody() {
    let (mm, _, pfn) = one_page();
    mm.core.lru.add_up();
    mm.core.frames[pfn].get(1);
    let fault = fault_of(&mm);
    assert!(fault.contains("has 2 references, 1 with an owner"), "{fault}");
}
