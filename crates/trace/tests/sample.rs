//! The recorder's choice of pages, compiled here because the plugin itself can only be loaded by QEMU.

#[allow(dead_code, reason = "the plugin uses the rest")]
#[path = "../src/ranges.rs"]
mod ranges;
#[allow(dead_code, reason = "the plugin uses the rest")]
#[path = "../plugin/sample.rs"]
mod sample;

use std::sync::Arc;

use abi::{Call, Map, MapSource, Remap};
use pagefold_trace::event::{self, Event, PAGE_SIZE};
use sample::{Places, Rule, Sample, follow};

const RULE: Rule = Rule { one_in: 4, salt: 7 };
/// Pages of a block.
const BLOCK: u64 = 512;

fn map(places: &mut Arc<Places>, page: u64, pages: u64, file: u32, first: u64) {
    let source = MapSource::File { fd: file, offset: first * PAGE_SIZE, shared: true };
    let map = Map { source, ..Map::anonymous(pages * PAGE_SIZE) };
    follow(places, &Event::mapped(1, page * PAGE_SIZE, map), |file| u64::from(file) + 100);
}

/// Which of the pages are kept, under these mappings.
fn kept(places: &Arc<Places>, rule: Rule, pages: impl Iterator<Item = u64>) -> Vec<bool> {
    let mut sample = Sample::new(rule, Arc::clone(places));
    pages.map(|page| sample.keeps(page)).collect()
}

#[test]
fn one_in_n_blocks_is_kept_whole() {
    let pages = kept(&Arc::default(), RULE, 0..4000 * BLOCK);
    let blocks: Vec<_> = pages.chunks(BLOCK as usize).collect();
    assert!(blocks.iter().all(|block| block.iter().all(|kept| *kept == block[0])));
    let share = blocks.iter().filter(|block| block[0]).count();
    assert!((900..1100).contains(&share), "{share} of 4000");
    // Another program's memory is another choice; without sampling all is kept.
    assert_ne!(pages, kept(&Arc::default(), Rule { salt: 8, ..RULE }, 0..4000 * BLOCK));
    assert!(kept(&Arc::default(), Rule { one_in: 1, salt: 7 }, 0..4000).iter().all(|&kept| kept));
}

#[test]
fn a_page_of_a_file_is_kept_wherever_it_is_mapped_and_read() {
    let mut places = Arc::default();
    map(&mut places, 1000, 9000, 1, 0);
    map(&mut places, 70_001, 5000, 1, 3000);
    let whole = kept(&places, RULE, 1000..10_000);
    assert!(whole.contains(&true) && whole.contains(&false));
    assert_eq!(whole[3000..8000], kept(&places, RULE, 70_001..75_001));
    // Whatever the program is.
    assert_eq!(whole, kept(&places, Rule { salt: 8, ..RULE }, 1000..10_000));
    let (from, len) = (17 * PAGE_SIZE + 5, 8000 * PAGE_SIZE);
    let parts = RULE.of_file(101, from, len);
    let read = |page: u64| {
        parts.iter().any(|&(at, len)| (at / PAGE_SIZE..(at + len).div_ceil(PAGE_SIZE)).contains(&page))
    };
    assert_eq!(whole[17..8018], (17..8018).map(read).collect::<Vec<_>>());
    assert!(parts.windows(2).all(|pair| pair[0].0 + pair[0].1 < pair[1].0));
    assert_eq!(Rule { one_in: 1, salt: 0 }.of_file(101, 3, 5), [(3, 5)]);
}

#[test]
fn memory_that_takes_a_files_place_or_moves_is_itself() {
    let mut places = Arc::default();
    let before = kept(&places, RULE, 0..6000);
    map(&mut places, 1000, 2000, 1, 0);
    assert_ne!(before, kept(&places, RULE, 0..6000));
    let unmap = Event::change(2, Call::Munmap(1000 * PAGE_SIZE, 2000 * PAGE_SIZE));
    follow(&mut places, &unmap, u64::from);
    assert_eq!(before, kept(&places, RULE, 0..6000));
    let (addr, old_len, new_len) = (1000 * PAGE_SIZE, 2000 * PAGE_SIZE, 3000 * PAGE_SIZE);
    let remap = Remap { addr, old_len, new_len, may_move: true, fixed: None };
    follow(
        &mut places,
        &Event::Call { epoch: 3, call: Call::Mremap(remap), value: 50_003 * PAGE_SIZE },
        u64::from,
    );
    assert_eq!(before[1000..4000], kept(&places, RULE, 50_003..53_003));
    // A thread that has not heard of it looks as before.
    let (mut thread, first) = (Sample::new(RULE, Arc::default()), Arc::clone(&places));
    let old: Vec<bool> = (50_003..53_003).map(|page| thread.keeps(page)).collect();
    thread.follow(&first);
    let new: Vec<bool> = (50_003..53_003).map(|page| thread.keeps(page)).collect();
    assert!(old != new && new == before[1000..4000]);
}
