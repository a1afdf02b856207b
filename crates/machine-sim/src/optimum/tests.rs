//! The optimum compared with brute force, and with policies that evict at random.

use super::*;
use mm::units::DeviceId;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// A device with a block for each page.
const DEVICE: DeviceId = DeviceId(1);

fn tell(optimum: &mut Optimum, event: Event, pfn: u32) {
    let args = match event {
        Event::MmPageAlloc | Event::MmPageFree => [u64::from(pfn), 0, 0, 0],
        _ => [u64::from(pfn), 1, 0, 0],
    };
    optimum.event(event, args);
}

fn transfer(optimum: &mut Optimum, pfn: u32, block: u64, write: bool) {
    optimum.transfer(&Io { device: DEVICE, write, block, frame: Pfn(pfn), pages: 1, continues: false });
}

/// A small memory.
struct Memory {
    optimum: Optimum,
    /// The page of each frame.
    frames: Vec<Option<usize>>,
    /// The pages that a device holds.
    saved: BTreeSet<usize>,
}

impl Memory {
    fn new(frames: usize) -> Memory {
        let optimum = Optimum::new(frames, frames as u64);
        Memory { optimum, frames: vec![None; frames], saved: BTreeSet::new() }
    }

    /// Use a page. If it is absent, it takes a free frame, or that of `victim`. Returns the page that was evicted.
    fn access(&mut self, page: usize, how: How, victim: usize) -> Option<usize> {
        let held = self.frames.iter().position(|held| *held == Some(page));
        let mut evicted = None;
        let frame = held.unwrap_or_else(|| {
            let frame = self.frames.iter().position(Option::is_none).unwrap_or(victim % self.frames.len());
            if let Some(old) = self.frames[frame].replace(page) {
                transfer(&mut self.optimum, frame as u32, old as u64, true);
                tell(&mut self.optimum, Event::MmPageFree, frame as u32);
                self.saved.insert(old);
                evicted = Some(old);
            }
            tell(&mut self.optimum, Event::MmPageAlloc, frame as u32);
            if self.saved.contains(&page) {
                transfer(&mut self.optimum, frame as u32, page as u64, false);
            }
            frame
        });
        self.optimum.used(Pfn(frame as u32), how);
        evicted
    }

    fn look(&mut self, page: usize) {
        if let Some(frame) = self.frames.iter().position(|held| *held == Some(page)) {
            tell(&mut self.optimum, Event::PteClearYoung, frame as u32);
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Use { page: usize, how: How, victim: usize },
    Look { page: usize },
}

const PAGES: usize = 5;

fn history() -> impl Strategy<Value = Vec<Step>> {
    let how = prop_oneof![3 => Just(How::Mapped), 1 => Just(How::Syscall)];
    let step = prop_oneof![
        4 => (0..PAGES, how, 0..4usize).prop_map(|(page, how, victim)| Step::Use { page, how, victim }),
        2 => (0..PAGES).prop_map(|page| Step::Look { page }),
    ];
    prop::collection::vec(step, 1..24)
}

/// A moment: the page that is used, and the set of pages that must be in memory.
type Needs = (usize, u32);

/// Play a history in `frames` frames. Also returns its needs at each moment, found by a simpler method.
fn play(history: &[Step], frames: usize) -> (OptimumReport, Vec<Needs>) {
    let mut memory = Memory::new(frames);
    let mut needs: Vec<Needs> = Vec::new();
    // The moment since which each page must stay.
    let mut held: [Option<usize>; PAGES] = [None; PAGES];
    let hold = |needs: &mut Vec<Needs>, since: &mut Option<usize>, page: usize| {
        if let Some(since) = since.take() {
            needs[since..].iter_mut().for_each(|(_, kept)| *kept |= 1 << page);
        }
    };
    for &step in history {
        match step {
            Step::Use { page, how, victim } => {
                if let Some(out) = memory.access(page, how, victim) {
                    hold(&mut needs, &mut held[out], out);
                }
                needs.push((page, 1 << page));
                if how == How::Mapped {
                    held[page].get_or_insert(needs.len() - 1);
                }
            }
            Step::Look { page } => {
                memory.look(page);
                hold(&mut needs, &mut held[page], page);
            }
        }
    }
    (0..PAGES).for_each(|page| hold(&mut needs, &mut held[page], page));
    (memory.optimum.report(), needs)
}

/// The fewest refaults by brute force over the sets of pages in memory at each moment.
fn fewest(needs: &[Needs], frames: usize) -> u64 {
    let mut known = 0;
    // The fewest refaults until now, by set of pages in memory.
    let mut best = vec![u64::MAX; 1 << PAGES];
    best[0] = 0;
    for &(page, kept) in needs {
        let again = u64::from(known & 1 << page != 0);
        known |= 1 << page;
        let mut next = vec![u64::MAX; 1 << PAGES];
        for (set, &so_far) in best.iter().enumerate().filter(|(_, count)| **count < u64::MAX) {
            let (set, cost) = (set as u32, if set as u32 & 1 << page == 0 { again } else { 0 });
            for to in (0..1u32 << PAGES).filter(|to| to.count_ones() as usize <= frames) {
                // Required pages are there, and only pages that were there or are used now.
                if to & kept == kept && to & !(set | 1 << page) == 0 {
                    let there = &mut next[to as usize];
                    *there = (*there).min(so_far + cost);
                }
            }
        }
        best = next;
    }
    best.into_iter().min().expect("there are sets")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn both_optima_agree_with_brute_force(history in history(), frames in 1..5usize) {
        let (report, needs) = play(&history, frames);
        let uses: Vec<Needs> = needs.iter().map(|&(page, _)| (page, 1 << page)).collect();
        prop_assert_eq!(report.optimum, fewest(&uses, frames), "{:?}", report);
        prop_assert_eq!(report.young, fewest(&needs, frames), "{:?}", report);
    }

    #[test]
    fn no_policy_is_below_the_optima(history in history(), frames in 1..5usize) {
        let (report, needs) = play(&history, frames);
        prop_assert_eq!(report.check(), Ok(()));
        prop_assert!(report.uses as usize <= needs.len() && report.frames == frames as u64);
        let all: BTreeSet<usize> = needs.iter().map(|&(page, _)| page).collect();
        prop_assert_eq!(report.pages as usize, all.len());
    }

    #[test]
    fn beladys_policy_reaches_the_optimum(pages in prop::collection::vec(0..8usize, 1..200), frames in 1..7usize) {
        let mut memory = Memory::new(frames);
        for (now, &page) in pages.iter().enumerate() {
            let next = |held: &Option<usize>| {
                pages[now..].iter().position(|&used| Some(used) == *held).unwrap_or(usize::MAX)
            };
            let victim = (0..frames).max_by_key(|&frame| next(&memory.frames[frame])).unwrap();
            memory.access(page, How::Syscall, victim);
        }
        let report = memory.optimum.report();
        prop_assert_eq!((report.refaults, report.young), (report.optimum, report.optimum));
    }
}

#[test]
fn a_loop_of_n_plus_1_pages_costs_one_refault_in_n_uses() {
    let mut memory = Memory::new(4);
    for i in 0..5 * 100 {
        // FIFO, the worst choice.
        memory.access(i % 5, How::Syscall, i % 4);
    }
    let report = memory.optimum.report();
    assert_eq!((report.uses, report.pages, report.refaults), (500, 5, 495));
    assert_eq!(report.optimum, 495 / 4);
    assert_eq!(report.check(), Ok(()));
}

#[test]
fn a_page_used_through_page_tables_stays_until_it_is_checked() {
    let (mut seen, mut unseen) = (Memory::new(2), Memory::new(2));
    for memory in [&mut seen, &mut unseen] {
        memory.access(0, How::Mapped, 0);
        memory.access(1, How::Mapped, 0);
    }
    seen.look(0);
    seen.look(1);
    for memory in [&mut seen, &mut unseen] {
        // Page 0 is evicted; a policy that had checked could have evicted 1.
        for (page, victim) in [(2, 0), (0, 0), (2, 0), (0, 0)] {
            memory.access(page, How::Syscall, victim);
        }
    }
    let [seen, unseen] = [seen, unseen].map(|memory| memory.optimum.report());
    assert_eq!((seen.refaults, seen.optimum, seen.young), (3, 0, 0));
    assert_eq!((unseen.refaults, unseen.optimum, unseen.young), (3, 0, 3));
}

#[test]
fn migration_keeps_a_page_and_copy_on_write_makes_another() {
    let mut optimum = Optimum::new(4, 4);
    tell(&mut optimum, Event::MmPageAlloc, 0);
    transfer(&mut optimum, 0, 7, false);
    optimum.used(Pfn(0), How::Mapped);
    // Copied on write: both pages exist.
    tell(&mut optimum, Event::MmPageAlloc, 1);
    optimum.copied(Pfn(1), Pfn(0), 1);
    optimum.used(Pfn(1), How::Mapped);
    assert_eq!(optimum.report().pages, 2);
    // Migrated: the old frame is free.
    tell(&mut optimum, Event::MmPageAlloc, 2);
    optimum.copied(Pfn(2), Pfn(0), 1);
    tell(&mut optimum, Event::MmPageFree, 0);
    optimum.used(Pfn(2), How::Mapped);
    assert_eq!((optimum.report().pages, optimum.report().refaults), (2, 0));
    // Evicted and read again.
    tell(&mut optimum, Event::MmPageFree, 2);
    tell(&mut optimum, Event::MmPageAlloc, 3);
    transfer(&mut optimum, 3, 7, false);
    optimum.used(Pfn(3), How::Mapped);
    let report = optimum.report();
    assert_eq!((report.pages, report.refaults, report.optimum, report.uses), (2, 1, 0, 4));
}

#[test]
fn a_forgotten_page_comes_back_as_another() {
    let mut optimum = Optimum::new(2, 2);
    for (block, forgotten) in [(3, false), (3, true), (3, false)] {
        if forgotten {
            optimum.forget(DEVICE.0, 2, 2);
            optimum.forget(DEVICE.0, 0, 1 << 40);
        }
        tell(&mut optimum, Event::MmPageAlloc, 0);
        transfer(&mut optimum, 0, block, false);
        optimum.used(Pfn(0), How::Mapped);
        tell(&mut optimum, Event::MmPageFree, 0);
        // A stale translation to a free frame uses no page.
        optimum.used(Pfn(0), How::Mapped);
    }
    let report = optimum.report();
    assert_eq!((report.uses, report.pages, report.refaults), (3, 2, 1));
}
