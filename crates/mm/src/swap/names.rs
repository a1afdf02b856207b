//! The slots that entries and files name, against what slots count.

use super::Swap;
use crate::units::SwapSlot;
use std_alloc::format;
use std_alloc::string::String;
use std_alloc::vec::Vec;

/// Runs of slots that page-table entries and shmem trees name: the first, and how many follow each other.
#[derive(Default)]
pub(crate) struct NamedSlots(Vec<(u32, u32)>);

impl NamedSlots {
    /// Entries name `count` consecutive slots.
    pub(crate) fn add(&mut self, first: SwapSlot, count: u32) {
        self.0.push((first.0, count));
    }

    /// These and those.
    pub(crate) fn and(mut self, mut those: NamedSlots) -> NamedSlots {
        self.0.append(&mut those.0);
        self
    }

    /// Each name by itself, in order of slots.
    fn sorted(self) -> Vec<u32> {
        let mut all: Vec<u32> = self.0.into_iter().flat_map(|(first, count)| first..first + count).collect();
        all.sort_unstable();
        all
    }
}

impl Swap {
    /// Check that each slot counts as many entries as name it, and all together `counted`: one that is named and free
    /// would get another page's content, and one that counts too many is never free. Returns the first error.
    pub(crate) fn validate_names(&self, named: NamedSlots, counted: u64) -> Result<(), String> {
        let named = named.sorted();
        for run in named.chunk_by(|a, b| a == b) {
            let (slot, found) = (SwapSlot(run[0]), run.len() as u32);
            let entries = self.entries(slot);
            if entries != found {
                let state = if self.is_used(slot) { "in use" } else { "free" };
                return Err(format!("{slot} is {state} and counts {entries} entries, {found} name it"));
            }
        }
        if counted != named.len() as u64 {
            return Err(format!("swap slots count {counted} entries, {} name one", named.len()));
        }
        Ok(())
    }
}
