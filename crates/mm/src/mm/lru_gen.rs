//! Generations as text: the content of Linux's debugfs files `lru_gen` and `lru_gen_full`, and their commands.

use super::Mm;
use crate::lru::mglru::{MAX_GENERATIONS, form::TIERS};
use crate::machine::Machine;
use crate::reclaim::{self, CommandError};
use crate::units::*;
use core::fmt::Write;
use std_alloc::string::String;

impl<M: Machine> Mm<M> {
    /// Run commands that age a group's pages or evict its oldest ones; see [`reclaim::command`].
    pub fn lru_gen_command(&self, text: &str) -> Result<(), CommandError> {
        reclaim::command(&self.core, &self.reclaim, self, text)
    }

    /// All generations of all groups and nodes: number, age in ms, anonymous pages, file pages. `full`: also the
    /// counts of tiers and walks.
    pub fn lru_gen(&self, full: bool) -> String {
        let (lru, mut text) = (&self.core.lru, String::new());
        for group in lru.groups.subtree(crate::lru::ROOT) {
            writeln!(text, "memcg {:5} {}", group.0, self.group_path(group))
                .expect("a write to a string cannot fail");
            for node in (0..lru.nodes()).map(|node| NodeId(node as u8)) {
                writeln!(text, " node {:5}", node.0).expect("a write to a string cannot fail");
                self.show_vec(&mut text, node, group, full).expect("a write to a string cannot fail");
            }
        }
        text
    }

    /// Pages of generations by age, over all groups and nodes, the youngest first: anonymous pages, and those of files.
    pub fn generation_pages(&self) -> [[u64; 2]; MAX_GENERATIONS as usize] {
        let (lru, mut pages) = (&self.core.lru, [[0; 2]; MAX_GENERATIONS as usize]);
        for group in lru.groups.subtree(crate::lru::ROOT) {
            for node in (0..lru.nodes()).map(|node| NodeId(node as u8)) {
                let generations = &lru.vec(node, group).generations;
                for (seq, [anon, file]) in (0..=generations.max_seq()).rev().zip(&mut pages) {
                    let sizes = generations.sizes(seq);
                    (*anon, *file) = (*anon + sizes.anon, *file + sizes.file);
                }
            }
        }
        pages
    }

    /// Path of a group: the ids of the groups from below the root down to it.
    fn group_path(&self, group: GroupId) -> String {
        let mut path = String::new();
        for above in self.core.lru.groups.upwards(group).filter(|&above| above != crate::lru::ROOT) {
            path.insert_str(0, &std_alloc::format!("/{}", above.0));
        }
        if path.is_empty() { String::from("/") } else { path }
    }

    fn show_vec(&self, text: &mut String, node: NodeId, group: GroupId, full: bool) -> core::fmt::Result {
        let generations = &self.core.lru.vec(node, group).generations;
        let max = generations.max_seq();
        let first =
            if full { (max + 1).saturating_sub(MAX_GENERATIONS) } else { generations.oldest_seq(true) };
        for seq in first..=max {
            let age = self.machine().now().saturating_sub(generations.born(seq)) / MILLISECOND;
            write!(text, " {seq:10} {age:10}")?;
            for file in [false, true] {
                let gone = seq < generations.min_seq(file);
                let (pages, mark) = if gone { (0, 'x') } else { (generations.pages(seq, file), ' ') };
                write!(text, " {pages:10}{}", if full { mark } else { ' ' })?;
            }
            writeln!(text)?;
            if full {
                self.show_tiers(text, node, group, seq)?;
            }
        }
        Ok(())
    }

    fn show_tiers(&self, text: &mut String, node: NodeId, group: GroupId, seq: u64) -> core::fmt::Result {
        let generations = &self.core.lru.vec(node, group).generations;
        let youngest = seq == generations.max_seq();
        for tier in 0..TIERS {
            write!(text, "            {tier:10}")?;
            for file in [false, true] {
                let counted = if youngest {
                    let [refaulted, total] = generations.tiers.averages(file, tier);
                    [(refaulted, 'R'), (total, 'T'), (0, 'x')]
                } else {
                    let [refaulted, evicted, protected] = generations.tiers.counted(file, seq, tier);
                    [(refaulted, 'r'), (evicted, 'e'), (protected, 'p')]
                };
                for (count, mark) in counted {
                    write!(text, " {count:10}{mark}")?;
                }
            }
            writeln!(text)?;
        }
        write!(text, "                      ")?;
        let seen = self.reclaim.walked(node, group, seq);
        for (count, mark) in seen.into_iter().zip(if youngest { "xxxx" } else { "tyfa" }.chars()) {
            write!(text, " {:10}{mark}", if youngest { 0 } else { count })?;
        }
        writeln!(text)
    }
}

#[cfg(test)]
mod tests;
