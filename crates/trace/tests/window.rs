//! The recorder's window, compiled here because the plugin itself can only be loaded by QEMU.

#[allow(dead_code, reason = "the plugin uses the rest")]
#[path = "../plugin/window.rs"]
mod window;

use abi::AccessKind;
use pagefold_trace::event::{self, Run};
use proptest::prelude::*;
use window::Window;

/// Touch and drain; returns the runs.
fn play(size: usize, touches: &[(u64, usize)]) -> Vec<Run> {
    let mut window = Window::new(size);
    let mut runs: Vec<Run> =
        touches.iter().filter_map(|&(page, mode)| window.touch(page, AccessKind::ALL[mode], 1)).collect();
    window.drain(|run| runs.push(run));
    runs
}

#[test]
fn pages_in_turn_become_one_run_each() {
    let touches: Vec<_> = (0..100).map(|at| (at % 3, 0)).collect();
    let counts: Vec<_> = play(window::USUAL, &touches).iter().map(|run| (run.page, run.count)).collect();
    // The longest unused leaves first.
    assert_eq!(counts, [(1, 33), (2, 33), (0, 34)]);
}

#[test]
fn the_longest_unused_makes_room() {
    let runs = play(2, &[(1, 0), (2, 0), (1, 0), (3, 0), (1, 1)]);
    let pages: Vec<_> = runs.iter().map(|run| (run.page, run.mode, run.count)).collect();
    assert_eq!(
        pages,
        [
            (2, AccessKind::Load, 1),
            (1, AccessKind::Load, 2),
            (3, AccessKind::Load, 1),
            (1, AccessKind::Store, 1)
        ]
    );
}

proptest! {
    #[test]
    fn nothing_is_lost_or_made_up(
        size in 1usize..=64,
        touches in prop::collection::vec((prop_oneof![0u64..100, Just(256), Just(1 << 40)], 0usize..3), 0..300),
    ) {
        let runs = play(size, &touches);
        for mode in 0..3 {
            for page in touches.iter().map(|touch| touch.0) {
                let there = touches.iter().filter(|&&touch| touch == (page, mode)).count();
                let told = runs.iter().filter(|run| run.page == page && run.mode as usize == mode);
                prop_assert_eq!(told.map(|run| run.count as usize).sum::<usize>(), there);
            }
        }
        // Never more runs than there would be without a window.
        let changes = touches.windows(2).filter(|pair| pair[0] != pair[1]).count();
        prop_assert!(runs.len() <= changes + 1);
    }
}

fn leaves(window: &mut Window, page: u64, mode: AccessKind) -> Option<(u64, AccessKind)> {
    window.touch(page, mode, 1).map(|run| (run.page, run.mode))
}

/// The store that made the page is told before the loads, though these were used longer ago.
#[test]
fn modes_of_a_page_leave_in_the_order_of_first_use() {
    use AccessKind::{Load, Store};
    let mut window = Window::new(4);
    let filling = [(1, Store), (1, Load), (2, Load), (1, Store), (3, Load)];
    assert!(filling.iter().all(|&(page, mode)| leaves(&mut window, page, mode).is_none()));
    assert_eq!(leaves(&mut window, 4, Load), Some((1, Store)));
    assert_eq!(leaves(&mut window, 5, Load), Some((1, Load)));
    assert_eq!(leaves(&mut window, 6, Load), Some((2, Load)), "then by how long it was not used");
}

#[test]
fn a_window_is_emptied_with_each_page_in_the_order_of_first_use() {
    use AccessKind::{Load, Store};
    let mut window = Window::new(8);
    for (page, mode) in [(1, Store), (1, Load), (2, Load), (1, Store)] {
        assert!(leaves(&mut window, page, mode).is_none());
    }
    let mut told = Vec::new();
    window.drain(|run| told.push((run.page, run.mode, run.count)));
    assert_eq!(told, [(1, Store, 2), (1, Load, 1), (2, Load, 1)]);
    window.drain(|run| panic!("{run:?} is told twice"));
}

/// An instruction that loads a word to store it again faults once.
#[test]
fn a_store_whose_own_load_made_the_page_is_told_first() {
    use AccessKind::{Load, Store};
    let mut window = Window::new(8);
    for (page, mode) in [(1, Load), (1, Store), (2, Load), (2, Store)] {
        assert!(leaves(&mut window, page, mode).is_none());
    }
    window.store_was_first(1);
    window.store_was_first(1);
    window.store_was_first(7);
    let mut told = Vec::new();
    window.drain(|run| told.push((run.page, run.mode)));
    assert_eq!(told, [(1, Store), (1, Load), (2, Load), (2, Store)]);
}
