//! The daemon that collapses what spaces map of files, a part of their ranges at a time.
//!
//! A look costs the pages that it is at, whether or not it comes to anything; after `khugepaged.pages_to_scan` of them the daemon
//! sleeps. It begins where it stopped, with the spaces in order of their numbers.

use super::collapse::{CollapseLimits, LARGE, collapse_at, suits};
use super::{Spaces, Vma};
use crate::knobs::Knob;
use crate::machine::{Machine, WaitKey};
use crate::memory::Gfp;
use crate::store::Store;
use crate::units::*;

const MILLISECOND: Nanos = 1_000_000;

/// Where the next look is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Cursor {
    space: u32,
    page: u64,
}

impl Spaces {
    /// Collapse until the machine stops.
    pub fn khugepaged<M: Machine>(&self, st: &Store<M>) {
        let mut cursor = Cursor::default();
        while !st.machine.stopping() {
            let ticket = st.machine.ticket(WaitKey::Timer);
            self.scan(st, &mut cursor);
            let sleep = st.knobs.get(Knob::KhugepagedScanSleepMillisecs) * MILLISECOND;
            st.machine.wait(ticket, Some(st.machine.now() + sleep));
        }
    }

    /// Look at some pages, but at none a second time.
    fn scan<M: Machine>(&self, st: &Store<M>, cursor: &mut Cursor) {
        let mut left = st.knobs.get(Knob::KhugepagedPagesToScan);
        let mut spaces = st.tlb.bound();
        while left > 0 && spaces > 0 && !st.machine.stopping() {
            if cursor.space >= st.tlb.bound() {
                *cursor = Cursor::default();
            }
            if self.scan_space(st, SpaceId(cursor.space), &mut cursor.page, &mut left) {
                *cursor = Cursor { space: cursor.space + 1, page: 0 };
                spaces -= 1;
            }
        }
    }

    /// Go on in a space. Returns whether it has been passed.
    fn scan_space<M: Machine>(&self, st: &Store<M>, id: SpaceId, page: &mut u64, left: &mut u64) -> bool {
        let Some(space) = self.list.get(id.0) else { return true };
        let held = {
            // While it is held, the space does not end; the semaphore, which its end waits for, keeps it from then on.
            let _life = space.life.lock();
            let runs = space.is_alive() && !space.is_killed();
            if runs { space.mapping.try_write(&st.machine, WaitKey::Space(id)) } else { None }
        };
        // Its own tasks are faster.
        let Some(_held) = held else { return true };
        let gfp = Gfp::user(space.group());
        while *left > 0 {
            let next = space.vmas.lock().from(Vpn(*page)).find_map(|vma| first_place(vma, *page));
            let Some(at) = next else { return true };
            *page = at.0 + LARGE;
            *left = left.saturating_sub(LARGE);
            let view = space.vmas.lock().find(at);
            if let Some((view, file, index)) = view.and_then(|view| suits(&view, at)) {
                // Where memory is short, it is not the time.
                let _ = collapse_at(
                    st,
                    (id, space),
                    &view,
                    at,
                    (file, index),
                    CollapseLimits::of_daemon(st),
                    gfp,
                );
            }
        }
        false
    }
}

/// The first 2 MiB of a range, from `page` on, that one entry could map.
fn first_place(vma: &Vma, page: u64) -> Option<Vpn> {
    let at = Vpn(page.max(vma.view.start.0).next_multiple_of(LARGE));
    suits(&vma.view, at).map(|_| at)
}
