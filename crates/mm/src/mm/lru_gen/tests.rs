mod ages;

use super::*;
use crate::api::*;
use crate::knobs::Knob;
use crate::lru::{PolicyKind, ROOT};
use crate::mm::tests::{end_transfers, with_swap};
use crate::stat::Stat;
use crate::testing::{TestMachine, request};
use std_alloc::boxed::Box;
use std_alloc::vec::Vec;

const AT: Vpn = Vpn(0x5000);

/// A memory manager with generations and swap; a transfer ends as soon as a task waits.
fn bench() -> &'static Mm<TestMachine> {
    let mm: &Mm<TestMachine> = Box::leak(Box::new(with_swap(TestMachine::simple(1, 4096), 1024)));
    mm.set_knob(Knob::ReclaimPolicy, 1).unwrap();
    *mm.machine().idle.lock() = Some(Box::new(|_| end_transfers(mm)));
    mm
}

fn with_pages(mm: &Mm<TestMachine>, group: GroupId, pages: u64) -> SpaceId {
    with_range(mm, group, AT, pages)
}

fn with_range(mm: &Mm<TestMachine>, group: GroupId, at: Vpn, pages: u64) -> SpaceId {
    let space = mm.create_space(group).unwrap();
    mm.switch(Some(space));
    mm.mmap(space, &request(at, pages, Backing::Anonymous)).unwrap();
    use_pages(mm, space, at.0 - AT.0..at.0 - AT.0 + pages);
    space
}

/// Use the pages, as an access through an entry that is not young does.
fn use_pages(mm: &Mm<TestMachine>, space: SpaceId, pages: core::ops::Range<u64>) {
    for page in pages {
        assert!(mm.fault(space, Vpn(AT.0 + page), AccessKind::Store).is_ok());
    }
}

/// Generations of the root group: number and anonymous pages.
fn anon(mm: &Mm<TestMachine>) -> Vec<(u64, u64)> {
    let text = mm.lru_gen(false);
    let lines = text.lines().skip(2).take_while(|line| !line.contains("memcg") && !line.contains("node"));
    let numbers =
        |line: &str| line.split_whitespace().map(|word| word.parse().unwrap()).collect::<Vec<u64>>();
    lines.map(numbers).map(|numbers| (numbers[0], numbers[2])).collect()
}

#[test]
fn generations_separate_used_and_unused_pages() {
    let mm = bench();
    let space = with_pages(mm, ROOT, 64);
    assert_eq!(mm.generation_pages(), [[64, 0], [0, 0], [0, 0], [0, 0]]);
    assert_eq!(anon(mm), [(0, 0), (1, 0), (2, 0), (3, 64)], "new pages must be young");
    mm.lru_gen_command("+ 0 0 3").unwrap();
    assert_eq!(anon(mm).last(), Some(&(4, 0)));
    use_pages(mm, space, 10..30);
    mm.machine().advance(2_000_000);
    mm.lru_gen_command("+ 0 0 4").unwrap();
    assert_eq!(anon(mm), [(2, 0), (3, 44), (4, 20), (5, 0)], "44 pages were not used since");
    assert_eq!(mm.generation_pages(), [[0, 0], [20, 0], [44, 0], [0, 0]]);
    assert!(mm.lru_gen(false).contains("memcg     0 /\n node     0\n"));
    mm.core.lru.validate(mm.mmu()).unwrap();
    let full = mm.lru_gen(true);
    assert_eq!(full.lines().count(), 2 + 4 * (1 + 4 + 1), "{full}");
}

#[test]
fn eviction_command_takes_the_oldest_generation() {
    let mm = bench();
    let space = with_pages(mm, ROOT, 64);
    mm.lru_gen_command("+ 0 0 3; + 0 0 4").unwrap();
    use_pages(mm, space, 0..16);
    mm.lru_gen_command("+ 0 0 5\n- 0 0 4 60 1000").unwrap();
    end_transfers(mm);
    // The first command writes each page, the second takes it.
    mm.lru_gen_command("- 0 0 4").unwrap();
    assert_eq!(mm.rss(space), 16, "used pages must stay");
    assert!(mm.mmu().stats.read(Stat::PswpOut) >= 48);
    mm.core.lru.validate(mm.mmu()).unwrap();
}

#[test]
fn commands_return_linux_errors() {
    let mm = bench();
    let group = mm.create_group(ROOT, GroupLimits::default()).unwrap();
    mm.remove_group(group).unwrap();
    for wrong in ["+ 0 0 4", "- 0 0 2", "+ 1 0 3", "+ 0 1 3", "+ 0 9 3", "+ 0 0 3 201", "hello", "+ 0 0"] {
        assert_eq!(mm.lru_gen_command(wrong), Err(CommandError::Invalid), "{wrong}");
    }
    assert_eq!(
        mm.lru_gen_command("+ 0 0 3 60 0"),
        Err(CommandError::Range),
        "there are four generations already"
    );
    assert_eq!(mm.lru_gen_command("+ 0 0 1,,\n"), Ok(()), "this generation exists already");
    assert_eq!(anon(mm).last(), Some(&(3, 0)));
}

#[test]
fn policy_knobs_stay_consistent() {
    let mm = bench();
    let space = with_pages(mm, ROOT, 20);
    let read = |knob| mm.mmu().knobs.get(knob);
    assert_eq!((read(Knob::ReclaimPolicy), read(Knob::LruGenEnabled)), (1, 7));
    mm.set_knob(Knob::LruGenEnabled, 6).unwrap();
    assert_eq!((read(Knob::ReclaimPolicy), mm.core.lru.policy()), (0, PolicyKind::Classic));
    assert_eq!(mm.mmu().stats.read(Stat::NrActiveAnon), 20, "the youngest generation must become active");
    mm.core.lru.validate(mm.mmu()).unwrap();
    mm.set_knob(Knob::ReclaimPolicy, 1).unwrap();
    assert_eq!((read(Knob::LruGenEnabled), anon(mm).last()), (7, Some(&(3, 20))));
    mm.core.lru.validate(mm.mmu()).unwrap();
    mm.exit_space(space);
    mm.core.lru.validate(mm.mmu()).unwrap();
}

/// Hardware that leaves young bits to software: walks would clear few of them, so pages stay where they are.
#[test]
fn aging_without_hardware_young_bits_walks_no_tables() {
    let mm = bench();
    let space = with_pages(mm, ROOT, 64);
    mm.set_knob(Knob::LruGenEnabled, 1).unwrap();
    mm.lru_gen_command("+ 0 0 3").unwrap();
    use_pages(mm, space, 0..16);
    mm.lru_gen_command("+ 0 0 4").unwrap();
    assert_eq!(anon(mm), [(2, 0), (3, 64), (4, 0), (5, 0)]);
}

/// Two groups with a space each: aging of one leaves the other's pages alone.
#[test]
fn aging_one_group_leaves_others_alone() {
    let mm = bench();
    let groups = [0, 1].map(|_| mm.create_group(ROOT, GroupLimits::default()).unwrap());
    let spaces = groups.map(|group| with_pages(mm, group, 32));
    mm.lru_gen_command("+ 1 0 3").unwrap();
    let vec = |group| &mm.core.lru.vec(NodeId(0), group).generations;
    assert_eq!((vec(groups[0]).max_seq(), vec(groups[1]).max_seq()), (4, 3));
    assert_eq!((vec(groups[0]).pages(3, false), vec(groups[1]).pages(3, false)), (32, 32));
    spaces.iter().for_each(|&space| mm.exit_space(space));
    groups.iter().for_each(|&group| mm.remove_group(group).unwrap());
    mm.core.lru.validate(mm.mmu()).unwrap();
}

/// `lru_gen.bloom`: a table that was not dense at the last walk is walked only without the filters.
#[test]
fn aging_without_bloom_filters_walks_all_tables() {
    for (bloom, young) in [(1, 0), (0, 3)] {
        let mm = bench();
        mm.set_knob(Knob::LruGenEnabled, 3).unwrap();
        mm.set_knob(Knob::LruGenBloom, bloom).unwrap();
        let space = with_pages(mm, ROOT, 64);
        // All of a new space is walked. Then there is room for generations without force; nothing in the first was
        // used.
        mm.lru_gen_command("+ 0 0 3; - 0 0 1; + 0 0 4 60 0").unwrap();
        use_pages(mm, space, 0..3);
        mm.lru_gen_command("+ 0 0 5 60 0").unwrap();
        assert_eq!(anon(mm).iter().find(|seq| seq.0 == 5), Some(&(5, young)), "bloom={bloom}");
        mm.core.lru.validate(mm.mmu()).unwrap();
    }
}

/// `lru_gen.look_around`: used pages beside one that eviction visits are promoted before it visits them.
#[test]
fn eviction_without_look_around_visits_each_page() {
    for around in [1, 0] {
        let mm = bench();
        mm.set_knob(Knob::LruGenEnabled, 1).unwrap();
        mm.set_knob(Knob::LruGenLookAround, around).unwrap();
        // 64 pages are taken at a time, and the second table begins in the middle of them.
        with_range(mm, ROOT, Vpn(AT.0 + TABLE_ENTRIES as u64 - 32), 128);
        mm.lru_gen_command("+ 0 0 3; + 0 0 4; - 0 0 3 60").unwrap();
        let read = |stat| mm.mmu().stats.read(stat);
        let (met, sorted) = (read(Stat::PgscanAnon), read(Stat::Pgrefill));
        assert_eq!((met < 128, sorted > 0), (around == 1, around == 1), "{met} visited, {sorted} sorted");
        mm.core.lru.validate(mm.mmu()).unwrap();
    }
}

#[test]
fn highest_swappiness_is_a_valid_option() {
    let mm = bench();
    assert_eq!(mm.lru_gen_command("+ 0 0 3 200"), Ok(()));
    assert_eq!(anon(mm).last(), Some(&(4, 0)));
}

/// Only the window of the types that may be evicted limits a command without force. The first command makes room in
/// that of files.
#[test]
fn window_of_anonymous_memory_is_no_limit_without_swappiness() {
    let mm = bench();
    assert_eq!(mm.lru_gen_command("- 0 0 1 0"), Ok(()));
    assert_eq!(mm.lru_gen_command("+ 0 0 3 60 0"), Err(CommandError::Range));
    assert_eq!(mm.lru_gen_command("+ 0 0 3 0 0"), Ok(()));
    assert_eq!(anon(mm).last(), Some(&(4, 0)));
}

/// The slots of the counts are used again and again.
#[test]
fn full_text_shows_the_last_walks_after_many_generations() {
    let mm = bench();
    with_pages(mm, ROOT, 64);
    for seq in 3..23 {
        mm.lru_gen_command(&std_alloc::format!("+ 0 0 {seq}")).unwrap();
    }
    let full = mm.lru_gen(true);
    assert_eq!(full.lines().count(), 2 + 4 * (1 + 4 + 1), "{full}");
    // Each of the three walks that it shows visited 64 entries, none of them young, in one table.
    let walks = full.lines().filter(|line| line.ends_with('a'));
    let counts: Vec<Vec<&str>> = walks.map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(counts, [["64t", "0y", "1f", "0a"]; 3], "{full}");
}

/// Bit 0 of `lru_gen.enabled` means generations. Without it the other policies go on, and only generations end.
#[test]
fn lru_gen_enabled_starts_and_ends_only_generations() {
    let mm = bench();
    let read = || [Knob::ReclaimPolicy, Knob::LruGenEnabled].map(|knob| mm.mmu().knobs.get(knob));
    for policy in [0, 2, 3] {
        mm.set_knob(Knob::ReclaimPolicy, policy).unwrap();
        mm.set_knob(Knob::LruGenEnabled, 0).unwrap();
        assert_eq!(read(), [policy, 0]);
        mm.set_knob(Knob::LruGenEnabled, 7).unwrap();
        assert_eq!(read(), [1, 7]);
        assert_eq!(anon(mm).last(), Some(&(3, 0)), "there must be generations");
    }
}
