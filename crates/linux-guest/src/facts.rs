//! What the guest has that the simulated machine has, too: zones, disks, limits, settings as the kernel gives them
//! back. The host lists what is not equal.

use crate::report::print;
use crate::sys;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Display;

/// Say it, with the settings in these files.
pub fn tell(settings: &[&str]) {
    zones();
    page_blocks();
    let vmstat = sys::read_text("/proc/vmstat").unwrap_or_default();
    for line in vmstat.lines().filter(|line| line.starts_with("nr_dirty_") && line.contains("_threshold ")) {
        if let Some((name, value)) = line.split_once(' ') {
            say(name, value);
        }
    }
    for disk in ["vda", "vdb"] {
        for name in ["rotational", "scheduler", "nr_requests", "wbt_lat_usec"] {
            if let Ok(value) = sys::read_text(&format!("/sys/block/{disk}/queue/{name}")) {
                say(&format!("{disk} {name}"), value.trim());
            }
        }
    }
    for file in settings {
        if let Ok(value) = sys::read_text(file) {
            say(file, value.trim());
        }
    }
}

/// Whether the kernel clears each page that it hands out (`init_on_alloc`). It says so when it boots.
pub fn clears_pages() -> Option<bool> {
    let messages = sys::kernel_messages();
    let (_, rest) = messages.split_once("heap alloc:")?;
    Some(rest.starts_with("on"))
}

fn say(name: &str, value: impl Display) {
    print(format_args!("@condition {name} = {value}"));
}

/// The zones that have pages: one for each node.
fn zones() {
    const OF_ZONE: [&str; 5] = ["min", "low", "high", "promo", "managed"];
    let text = sys::read_text("/proc/zoneinfo").unwrap_or_default();
    let mut node = "0";
    let mut found: Vec<(String, u64)> = Vec::new();
    let mut in_lists = false;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["Node", number, ..] => {
                tell_zone(node, &found);
                (node, found, in_lists) = (number.trim_end_matches(','), Vec::new(), false);
            }
            ["pagesets"] => in_lists = true,
            [name, value] => {
                // Of the first CPU; the others' are the same.
                let (of_list, name) = (in_lists, name.trim_end_matches(':'));
                let known = if of_list {
                    ["batch", "high_min", "high_max"].contains(&name)
                } else {
                    OF_ZONE.contains(&name)
                };
                let name = if of_list { format!("list {name}") } else { name.into() };
                if let (true, Ok(value)) =
                    (known && !found.iter().any(|(known, _)| *known == name), value.parse())
                {
                    found.push((name, value));
                }
            }
            _ => {}
        }
    }
    tell_zone(node, &found);
}

fn tell_zone(node: &str, found: &[(String, u64)]) {
    if found.iter().any(|(name, pages)| name == "managed" && *pages > 0) {
        found.iter().for_each(|(name, pages)| say(&format!("node {node} {name}"), pages));
    }
}

/// The page blocks of each mobility type, and how many blocks are free in them, by order. The separate zone below
/// 16 MiB has none: its memory is hidden.
fn page_blocks() {
    const GROUPS: [&str; 3] = ["Unmovable", "Movable", "Reclaimable"];
    let text = sys::read_text("/proc/pagetypeinfo").unwrap_or_default();
    let mut free: Vec<(&str, &str, String)> = Vec::new();
    // The order of the groups in the second table.
    let mut groups: Vec<&str> = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["Node", _, "zone", "DMA,", ..] | ["Node", _, "zone", "DMA", ..] => {}
            ["Node", node, "zone", _, "type", group, ..] => {
                free.push((node.trim_end_matches(','), group, words[6..].join(" ")));
            }
            ["Number", "of", "blocks", "type", ..] => groups = words[4..].to_vec(),
            ["Node", node, "zone", _, ..] => {
                let node = node.trim_end_matches(',');
                for (group, blocks) in
                    groups.iter().zip(&words[4..]).filter(|(group, _)| GROUPS.contains(group))
                {
                    let of = free.iter().find(|(at, of, _)| at == &node && of == group);
                    let free = of.map_or("", |(_, _, free)| free);
                    say(&format!("node {node} {group}"), format_args!("{blocks} blocks, free {free}"));
                }
            }
            _ => {}
        }
    }
}
