use super::*;
use crate::alloc::Watermark;
use crate::api::*;
use crate::machine::Scope;
use crate::memory::Gfp;
use crate::mm::tests::{end_transfers, reclaim_node, with_swap};
use crate::primitive::{AtomicU64, Ordering::Relaxed};
use crate::stat::Stat;
use crate::table::Bits;
use crate::testing::{TestMachine, request};
use std_alloc::boxed::Box;
use std_alloc::vec::Vec;

const AT: Vpn = Vpn(0x5000);

/// A memory manager with a swap area, and a group; a transfer ends as soon as a task waits.
fn bench(limits: GroupLimits) -> (&'static Mm<TestMachine>, GroupId) {
    let mm: &Mm<TestMachine> = Box::leak(Box::new(with_swap(TestMachine::simple(1, 4096), 256)));
    *mm.machine().idle.lock() = Some(Box::new(|_| end_transfers(mm)));
    // What the tests count is what is used.
    mm.mmu().knobs.set(Knob::MemcgChargeBatch, 1).unwrap();
    let group = mm.create_group(ROOT, limits).unwrap();
    (mm, group)
}

/// Write the pages of a space to swap, and free them.
fn page_out(mm: &Mm<TestMachine>, space: SpaceId) {
    mm.madvise(space, AT, 100, Advice::PageOut).unwrap();
    end_transfers(mm);
    // Written pages are at the end of their list.
    reclaim::group(&mm.core, &mm.reclaim, mm, mm.group_of(space), 100);
    end_transfers(mm);
}

/// A space of the group that has stored to this many pages.
fn with_pages(mm: &Mm<TestMachine>, group: GroupId, pages: u64) -> SpaceId {
    let space = mm.create_space(group).unwrap();
    mm.switch(Some(space));
    mm.mmap(space, &request(AT, pages, Backing::Anonymous)).unwrap();
    for page in (AT.0..AT.0 + pages).map(Vpn) {
        assert!(mm.fault(space, page, AccessKind::Store).is_ok());
    }
    space
}

/// Map a file of a disk privately at 0x9000, of which no fault may read for ever.
fn map_file(mm: &'static Mm<TestMachine>, space: SpaceId, pages: u64) {
    let reads = AtomicU64::new(0);
    *mm.machine().submitted.lock() = Some(Box::new(move |_| {
        assert!(reads.fetch_add(1, Relaxed) < 100, "the fault must not read for ever");
        end_transfers(mm);
    }));
    let file = mm.create_file(FileKind::Disk { device: DeviceId(0), block: 1000 }, pages * PAGE_SIZE);
    let backing = Backing::File { file, offset: PageIndex(0), shared: false, writable: true };
    mm.mmap(space, &request(Vpn(0x9000), pages, backing)).unwrap();
}

#[test]
fn charges_stay_on_space_move_and_rise_on_group_removal() {
    let (mm, old) = bench(GroupLimits::default());
    let new = mm.create_group(ROOT, GroupLimits::default()).unwrap();
    let space = with_pages(mm, old, 10);
    assert_eq!(mm.remove_group(old), Err(Error::Busy), "a group with a space in it must stay");
    mm.move_space(space, new).unwrap();
    assert_eq!((mm.group_usage(old).0, mm.group_usage(new).0, mm.group_of(space)), (10, 0, new));
    let populated = MapRequest { populate: true, ..request(Vpn(0x9000), 4, Backing::Anonymous) };
    mm.mmap(space, &populated).unwrap();
    assert_eq!((mm.group_usage(old).0, mm.group_usage(new).0), (10, 4));
    mm.remove_group(old).unwrap();
    assert_eq!(
        (mm.move_space(space, old), mm.remove_group(old)),
        (Err(Error::NotFound), Err(Error::NotFound))
    );
    assert_eq!(mm.group_usage(ROOT).0, 4, "the root's own pages must not be counted");
    let child = mm.fork(space).unwrap();
    assert_eq!((mm.group_of(child), mm.remove_group(new)), (new, Err(Error::Busy)));
    mm.switch(None);
    mm.exit_space(space);
    mm.exit_space(child);
    mm.remove_group(new).unwrap();
    assert_eq!((mm.group_usage(ROOT), mm.validate()), ((0, 0), Ok(())));
}

#[test]
fn groups_pages_in_stock_count_until_its_limit_or_its_end_wants_them() {
    let mm = with_swap(TestMachine::simple(2, 4096), 256);
    let group = mm.create_group(ROOT, GroupLimits::default()).unwrap();
    let space = with_pages(&mm, group, 1);
    assert_eq!(mm.group_usage(group).0, 64);
    mm.machine().run_on(1);
    mm.switch(Some(space));
    mm.mmap(space, &request(Vpn(AT.0 + 100), 100, Backing::Anonymous)).unwrap();
    let store = |page| mm.fault(space, Vpn(AT.0 + 100 + page), AccessKind::Store).is_ok();
    assert!((0..64).all(store));
    assert_eq!(mm.group_usage(group).0, 128, "each CPU has charged a batch");
    mm.set_group_limits(group, GroupLimits { max: 128, ..GroupLimits::default() }).unwrap();
    assert_eq!(mm.group_usage(group).0, 128, "they are below the limit");
    // Nothing can be reclaimed: what the first CPU has in stock must do.
    mm.mmu().knobs.set(Knob::Swappiness, 0).unwrap();
    assert!(store(64));
    assert_eq!((mm.group_usage(group).0, mm.mmu().stats.read(Stat::OomKill)), (66, 0));
    mm.set_group_limits(group, GroupLimits { max: 66, ..GroupLimits::default() }).unwrap();
    mm.validate().unwrap();
    mm.switch(None);
    mm.machine().run_on(0);
    mm.switch(None);
    mm.exit_space(space);
    mm.remove_group(group).unwrap();
    assert_eq!((mm.group_usage(ROOT).0, mm.validate()), (0, Ok(())));
}

#[test]
fn group_respects_its_swap_limit() {
    let (mm, group) = bench(GroupLimits { swap_max: 40, ..GroupLimits::default() });
    let space = with_pages(mm, group, 100);
    page_out(mm, space);
    assert_eq!(mm.group_usage(group), (60, 40));
    assert_eq!(mm.validate(), Ok(()));
    let limits = GroupLimits { swap_max: 50, ..GroupLimits::default() };
    mm.set_group_limits(group, limits).unwrap();
    assert_eq!(mm.group_limits(group), Ok(limits));
    page_out(mm, space);
    assert_eq!(mm.group_usage(group), (50, 50));
    // Slots stay charged to the group while they are in use, even after it was removed.
    mm.move_space(space, ROOT).unwrap();
    mm.remove_group(group).unwrap();
    assert_eq!((mm.group_usage(group), mm.validate()), ((0, 50), Ok(())));
    mm.switch(None);
    mm.exit_space(space);
    assert_eq!((mm.group_usage(group), mm.validate()), ((0, 0), Ok(())));
}

#[test]
fn lowering_a_limit_reclaims_then_kills() {
    let (mm, group) = bench(GroupLimits::default());
    let space = with_pages(mm, group, 100);
    // The first reclaim writes, the second frees what was written.
    for _ in 0..2 {
        mm.set_group_limits(group, GroupLimits { high: 80, ..GroupLimits::default() }).unwrap();
        end_transfers(mm);
    }
    assert!(mm.group_usage(group).0 <= 80);
    mm.set_group_limits(group, GroupLimits { max: 20, ..GroupLimits::default() }).unwrap();
    assert!(mm.group_usage(group).0 <= 20 && !mm.killed(space));
    mm.set_group_limits(group, GroupLimits { max: 0, swap_max: 0, ..GroupLimits::default() }).unwrap();
    assert!(mm.group_usage(group).0 == 0 || mm.killed(space));
    assert_eq!(mm.mmu().stats.read(Stat::OomKill), i64::from(mm.killed(space)));
    assert_eq!(mm.set_group_limits(ROOT, GroupLimits::default()), Err(Error::Invalid));
    assert_eq!(mm.validate(), Ok(()));
}

#[test]
fn group_above_high_reclaims_only_for_its_own_charges() {
    let (mm, group) = bench(GroupLimits::default());
    let space = with_pages(mm, group, 100);
    // As after a reclaim that found nothing.
    mm.core.lru.groups.set_limits(group, GroupLimits { high: 80, ..GroupLimits::default() }).unwrap();
    let begun = || mm.mmu().stats.read(Stat::PgscanAnon);
    assert!(mm.fault(space, AT, AccessKind::Load).is_ok());
    assert_eq!(begun(), 0, "a fault that charges nothing must not reclaim");
    mm.mmap(space, &request(Vpn(AT.0 + 100), 1, Backing::Anonymous)).unwrap();
    assert!(mm.fault(space, Vpn(AT.0 + 100), AccessKind::Store).is_ok());
    assert_eq!(begun(), 0, "the fault must not reclaim what it has just mapped");
    assert!(mm.fault(space, AT, AccessKind::Load).is_ok());
    let first = begun();
    assert!(first > 0);
    assert!(mm.fault(space, AT, AccessKind::Load).is_ok());
    assert_eq!(begun(), first, "each charge must reclaim once");
}

#[test]
fn populate_above_high_reclaims_in_batches() {
    let (mm, group) = bench(GroupLimits { high: 10, ..GroupLimits::default() });
    let space = with_pages(mm, group, 1);
    let map = MapRequest { locked: true, ..request(Vpn(AT.0 + 1000), 200, Backing::Anonymous) };
    mm.mmap(space, &map).unwrap();
    // Nothing of it can be reclaimed, and each attempt scans all of it.
    let attempts = mm.core.lru.groups.counted(group, GroupStat::High);
    assert!((2..=4).contains(&attempts), "{attempts} attempts for 200 pages");
    assert_eq!(
        mm.core.lru.groups.taken_over_high(group, 0),
        None,
        "the call must reclaim for all that it charged"
    );
}

/// Between two faults for one store, reclaim could take the page that the first one brought back.
#[test]
fn store_to_a_shared_swapped_page_takes_one_fault() {
    let (mm, group) = bench(GroupLimits::default());
    let space = with_pages(mm, group, 10);
    let child = mm.fork(space).unwrap();
    for _ in 0..3 {
        reclaim::group(&mm.core, &mm.reclaim, mm, group, 100);
        end_transfers(mm);
    }
    let entry = |space| mm.core.tables.lock(mm.mmu(), space).find(AT).map(|run| run.entry);
    assert!([space, child].into_iter().all(|space| entry(space).unwrap().as_swap().is_some()));
    assert_eq!(mm.fault(space, AT, AccessKind::Store), Ok(FaultDone::Major));
    assert!(entry(space).unwrap().has(Bits::WRITE));
    assert!(entry(child).unwrap().as_swap().is_some(), "the load must not map it in the child");
    assert!(mm.fault(child, AT, AccessKind::Load).is_ok());
    assert_ne!(entry(child).unwrap().pfn(), entry(space).unwrap().pfn(), "the child must not see the store");
    assert_eq!(mm.validate(), Ok(()));
}

/// Otherwise the read-ahead pages fill the room that was made for the fault, are reclaimed for the next try, and so on
/// for ever.
#[test]
fn fault_at_the_group_limit_reads_ahead_once() {
    let (mm, group) = bench(GroupLimits { max: 40, swap_max: 0, ..GroupLimits::default() });
    let space = with_pages(mm, group, 32);
    map_file(mm, space, 256);
    assert!(mm.fault(space, Vpn(0x9000 + 100), AccessKind::Load).is_ok());
    assert!(!mm.killed(space));
}

/// Otherwise the file's page, the only reclaimable one, goes to make room for the copy, and is read again to be
/// copied: for ever.
#[test]
fn private_store_in_a_group_of_one_page_fails_instead_of_looping() {
    let (mm, group) = bench(GroupLimits { max: 33, swap_max: 0, ..GroupLimits::default() });
    let space = with_pages(mm, group, 32);
    map_file(mm, space, 1);
    assert!(mm.fault(space, Vpn(0x9000), AccessKind::Load).is_ok(), "there must be room for one page");
    mm.madvise(space, Vpn(0x9000), 1, Advice::DontNeed).unwrap();
    assert_eq!(mm.fault(space, Vpn(0x9000), AccessKind::Store), Err(FaultError::Killed));
    assert!(mm.killed(space) && mm.oom_reports().len() == 1);
}

/// What would be read with the wanted page does not fit, and nothing can be reclaimed.
#[test]
fn swap_in_without_room_for_its_window_reads_the_wanted_page() {
    let (mm, group) = bench(GroupLimits::default());
    let space = with_pages(mm, group, 100);
    page_out(mm, space);
    let user = Gfp { mark: Watermark::Min, ..Gfp::user(ROOT) };
    let mut held: Vec<Pfn> = core::iter::from_fn(|| mm.core.new_folio(Order::ZERO, user).ok()).collect();
    held.drain(..2).for_each(|pfn| mm.core.put(pfn));
    assert!(mm.fault(space, Vpn(AT.0 + 50), AccessKind::Load).is_ok());
    let read = [Stat::PswpIn, Stat::SwapRa].map(|stat| mm.mmu().stats.read(stat));
    assert_eq!((read, mm.oom_reports()), ([1, 0], Vec::new()));
}

/// A group at its limit makes room for what swap read-ahead wants with the page, too.
#[test]
fn swap_in_at_the_group_limit_reads_its_window() {
    let (mm, group) = bench(GroupLimits { max: 200, ..GroupLimits::default() });
    let space = with_pages(mm, group, 100);
    page_out(mm, space);
    let other = with_pages(mm, group, 198);
    assert!(mm.fault(space, Vpn(AT.0 + 50), AccessKind::Load).is_ok());
    assert_eq!(mm.mmu().stats.read(Stat::SwapRa), 7);
    assert!(!mm.killed(other));
}

/// Reclaim from the node, by direct reclaimers one after the other.
fn reclaim_times(mm: &Mm<TestMachine>, times: usize) {
    for _ in 0..times {
        reclaim_node(mm);
        end_transfers(mm);
    }
}

#[test]
fn group_knobs_override_the_root() {
    let (mm, group) = bench(GroupLimits::default());
    let set = |group, knob, value| mm.set_group_knob(group, knob, value);
    assert_eq!(set(ROOT, Knob::Swappiness, 1), Err(Error::Invalid), "the root's knobs are global");
    assert_eq!(set(group, Knob::Swappiness, 201), Err(Error::Invalid));
    assert_eq!(set(group, Knob::PageCluster, 1), Err(Error::Invalid), "this knob is not a group's");
    assert_eq!(set(GroupId(9), Knob::ReclaimPolicy, 1), Err(Error::NotFound));
    let policies = |mm: &Mm<TestMachine>, groups: &[GroupId]| -> Vec<u64> {
        groups.iter().map(|&group| mm.core.lru.vec(NodeId(0), group).policy().value()).collect()
    };
    let space = with_pages(mm, group, 50);
    set(group, Knob::ReclaimPolicy, 1).unwrap();
    let child = mm.create_group(group, GroupLimits::default()).unwrap();
    let other = mm.create_group(ROOT, GroupLimits::default()).unwrap();
    assert_eq!(policies(mm, &[ROOT, group, child, other]), [0, 1, 1, 0]);
    assert_eq!(mm.validate(), Ok(()));
    // From one proposing policy to another, and to the classic lists: a change of the root does not change the group,
    // and the reverse.
    for (of_all, own) in [(2, 3), (4, 5), (1, 0), (0, 2)] {
        mm.set_knob(Knob::ReclaimPolicy, of_all).unwrap();
        set(group, Knob::ReclaimPolicy, own).unwrap();
        assert_eq!(policies(mm, &[ROOT, group, child, other]), [of_all, own, 1, of_all]);
        assert_eq!(mm.validate(), Ok(()));
    }
    // A removed group's folios move to where its parent's policy wants them.
    mm.move_space(space, ROOT).unwrap();
    mm.remove_group(child).unwrap();
    mm.remove_group(group).unwrap();
    mm.remove_group(other).unwrap();
    assert_eq!(mm.validate(), Ok(()));
    mm.switch(None);
    mm.exit_space(space);
    assert_eq!(mm.validate(), Ok(()));
}

#[test]
fn groups_with_different_policies_are_all_reclaimed() {
    const OWN: [u64; 3] = [0, 1, 2];
    for of_all in OWN {
        let (mm, _) = bench(GroupLimits::default());
        mm.set_knob(Knob::ReclaimPolicy, of_all).unwrap();
        let groups = OWN.map(|own| {
            let group = mm.create_group(ROOT, GroupLimits::default()).unwrap();
            mm.set_group_knob(group, Knob::ReclaimPolicy, own).unwrap();
            (group, with_pages(mm, group, 60))
        });
        reclaim_times(mm, 12);
        for (own, (group, _)) in OWN.into_iter().zip(groups) {
            let (left, swapped) = mm.group_usage(group);
            assert!(left < 60 && swapped > 0, "{own} below {of_all}: {left} pages are left");
        }
        assert_eq!(mm.validate(), Ok(()));
        // Reclaim for a group's own limit works, too, whatever its parent's policy is.
        for (group, space) in groups {
            mm.set_group_limits(group, GroupLimits { high: 10, ..GroupLimits::default() }).unwrap();
            end_transfers(mm);
            mm.move_space(space, ROOT).unwrap();
            mm.remove_group(group).unwrap();
        }
        // What was left is charged to the root, and is where the root's policy wants it.
        assert_eq!(mm.validate(), Ok(()));
        mm.switch(None);
        groups.into_iter().for_each(|(_, space)| mm.exit_space(space));
        assert_eq!(mm.validate(), Ok(()));
    }
}

#[test]
fn group_swappiness_controls_its_swapping() {
    for policy in [0, 1, 2] {
        let (mm, never) = bench(GroupLimits::default());
        mm.set_knob(Knob::ReclaimPolicy, policy).unwrap();
        let always = mm.create_group(ROOT, GroupLimits::default()).unwrap();
        mm.set_group_knob(never, Knob::Swappiness, 0).unwrap();
        mm.set_group_knob(always, Knob::Swappiness, 200).unwrap();
        let spaces = [never, always].map(|group| with_pages(mm, group, 60));
        for group in [never, always] {
            for _ in 0..4 {
                reclaim::group(&mm.core, &mm.reclaim, mm, group, 30);
                end_transfers(mm);
            }
        }
        let (left, swapped) = mm.group_usage(always);
        assert!(left < 60 && swapped > 0, "policy {policy}: {left} pages are left");
        assert_eq!(mm.group_usage(never), (60, 0), "policy {policy}");
        mm.switch(None);
        spaces.into_iter().for_each(|space| mm.exit_space(space));
        assert_eq!(mm.validate(), Ok(()));
    }
}

#[test]
fn group_counters_include_descendants() {
    let (mm, above) = bench(GroupLimits::default());
    let inside = mm.create_group(above, GroupLimits { max: 60, ..GroupLimits::default() }).unwrap();
    let beside = mm.create_group(ROOT, GroupLimits::default()).unwrap();
    let space = with_pages(mm, inside, 100);
    let account = |group| mm.group_account(group).unwrap();
    let own = account(inside);
    assert_eq!((own.parent, own.live), (Some(above), true));
    assert!(own.usage[0] <= 60 && own.usage[1] == 60, "{own:?}");
    assert!(own.swap[0] >= 40 && own.swap[1] >= own.swap[0], "{own:?}");
    assert_eq!(own.lists.iter().sum::<u64>(), own.usage[0], "{own:?}");
    assert!(own.counted(GroupStat::Pgfault) >= 100 && own.counted(GroupStat::Max) > 0, "{own:?}");
    let stolen = own.counted(GroupStat::PgstealDirect);
    assert!(stolen >= 40 && own.counted(GroupStat::PgscanDirect) >= stolen, "{own:?}");
    assert!(mm.fault(space, AT, AccessKind::Load).is_ok(), "the page that was swapped out first");
    assert_eq!(account(inside).counted(GroupStat::Pgmajfault), 1);
    assert!(account(inside).counted(GroupStat::WorkingsetRefaultAnon) >= 1);
    let all =
        GroupStat::ALL.iter().map(|&stat| (account(above).counted(stat), account(inside).counted(stat)));
    assert!(all.into_iter().all(|(above, inside)| above == inside), "nothing else may be below it");
    for none in [ROOT, beside] {
        assert!(GroupStat::ALL.iter().all(|&stat| account(none).counted(stat) == 0), "{none:?}");
    }
    // The counts outlive the group.
    mm.switch(None);
    mm.exit_space(space);
    mm.remove_group(inside).unwrap();
    let gone = account(inside);
    assert_eq!((gone.live, gone.usage, gone.counted(GroupStat::Pgmajfault)), (false, [0, 60], 1));
    assert_eq!(mm.group_account(GroupId(99)), None);
    assert_eq!(mm.validate(), Ok(()));
}

#[test]
fn memory_events_are_counted() {
    let (mm, group) = bench(GroupLimits { high: 50, ..GroupLimits::default() });
    let space = with_pages(mm, group, 60);
    let counted = |group, stat| mm.group_account(group).unwrap().counted(stat);
    assert!(mm.fault(space, AT, AccessKind::Load).is_ok());
    assert!(counted(group, GroupStat::High) > 0);
    // Below memory.low, while no other group has any pages.
    let low = mm.create_group(ROOT, GroupLimits { low: 100, ..GroupLimits::default() }).unwrap();
    let kept = with_pages(mm, low, 50);
    mm.set_group_limits(group, GroupLimits { min: 100, ..GroupLimits::default() }).unwrap();
    reclaim_times(mm, 4);
    assert!(counted(low, GroupStat::Low) > 0 && counted(group, GroupStat::Low) == 0);
    assert!(mm.group_usage(low).0 < 50);
    // Nothing is reclaimable any more, so the process is killed.
    let held = mm.create_group(low, GroupLimits { swap_max: 0, ..GroupLimits::default() }).unwrap();
    let space = with_pages(mm, held, 30);
    mm.set_group_limits(held, GroupLimits { max: 0, swap_max: 0, ..GroupLimits::default() }).unwrap();
    assert!(mm.killed(space) && !mm.killed(kept));
    assert_eq!([GroupStat::Oom, GroupStat::OomKill].map(|stat| counted(held, stat)), [1, 1]);
    assert_eq!(mm.validate(), Ok(()));
}

/// Charges stay where they are when a process moves. Its pages are locked, so nothing is left to reclaim or to kill.
#[test]
fn lowering_a_limit_ends_if_the_group_has_no_process() {
    let (mm, group) = bench(GroupLimits::default());
    let space = with_pages(mm, group, 40);
    mm.mlock(space, AT, 40, true).unwrap();
    mm.move_space(space, ROOT).unwrap();
    let searches = AtomicU64::new(0);
    *mm.machine().entered.lock() = Some(Box::new(move |_, scope| {
        let again = scope == Scope::OutOfMemory && searches.fetch_add(1, Relaxed) > 0;
        assert!(!again, "the call must look for a process once");
    }));
    mm.set_group_limits(group, GroupLimits { max: 10, ..GroupLimits::default() }).unwrap();
    assert_eq!((mm.group_usage(group).0, mm.killed(space)), (40, false));
}

/// A task may remove a group that another task is about to make a process in.
#[test]
fn process_made_in_a_removed_group_belongs_to_the_group_above() {
    let (mm, above) = bench(GroupLimits::default());
    let gone = mm.create_group(above, GroupLimits::default()).unwrap();
    mm.remove_group(gone).unwrap();
    let space = with_pages(mm, gone, 4);
    assert_eq!((mm.group_of(space), mm.group_usage(above).0), (above, 4));
    assert_eq!(mm.remove_group(above), Err(Error::Busy));
    mm.switch(None);
    mm.exit_space(space);
    assert_eq!((mm.remove_group(above), mm.validate()), (Ok(()), Ok(())));
}

#[test]
fn memory_reclaim_frees_what_it_is_asked_for_or_what_there_is() {
    let (mm, group) = bench(GroupLimits::default());
    with_pages(mm, group, 100);
    assert_eq!(mm.reclaim_group(ROOT, 10), Err(Error::Invalid), "the root has no such file here");
    assert_eq!(mm.reclaim_group(group, 0), Ok(0));
    let some = mm.reclaim_group(group, 40).unwrap();
    assert!((40..100).contains(&some) && mm.group_usage(group).0 == 100 - some, "{some}");
    let rest = mm.reclaim_group(group, 1000).unwrap();
    assert_eq!((some + rest, mm.group_usage(group).0), (100, 0), "more is not there");
}
