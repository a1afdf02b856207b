//! The recorder's window, compiled here because the plugin itself can only be loaded by QEMU.

#[allow(dead_code, reason = "the plugin uses the rest")]
#[path = "../../recorder-plugin/src/window.rs"]
mod window;

use abi::AccessKind;
use proptest::prelude::*;
use trace::event::{self, Run};
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
