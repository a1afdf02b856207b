//! Causes: what a piece of a task's time was, in the words of a table and of a sentence.
//!
//! A piece is a kind of work in a place: `rmap_remove` in `try_to_unmap_one` in ... in `exc_page_fault` on the mapping
//! `[data.db]`. Each piece belongs to one cause, by the first rule that fits: what a task waits for comes before what
//! it does, and the purpose of work (a flush, reclaim) before the call that it was part of.

use std::fmt;

/// What a piece of time was about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cause {
    /// The kind: one of [`KINDS`].
    pub kind: &'static str,
    /// Which: a device, a lock, a mapping, a call; may be empty.
    pub what: String,
}

impl fmt::Display for Cause {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what[..] {
            "" => out.write_str(self.kind),
            what => write!(out, "{}: {what}", self.kind),
        }
    }
}

/// Time in which a task waits for others of the program: no cause, but its effect on another task.
pub const TOGETHER: &str = "together";
/// Time that the program asked to sleep.
pub const OWN_SLEEP: &str = "sleep";

/// All kinds, each with the words that begin a sentence about it.
pub const KINDS: [(&str, &str); 20] = [
    ("user", "The program itself"),
    ("device", "Waiting for a device"),
    ("fault", "Serving page faults"),
    ("call", "Serving calls"),
    ("reclaim", "Reclaim by the program's tasks"),
    ("throttle", "Being throttled"),
    ("compaction", "Compaction by the program's tasks"),
    ("migration", "Migration by the program's tasks"),
    ("flush", "Flushing TLBs"),
    ("page", "Clearing and copying pages"),
    ("compression", "Compressing pages"),
    ("spin", "Spinning for a lock"),
    ("lock", "Sleeping for a lock"),
    ("line", "Fetching cache lines of other CPUs"),
    ("interrupt", "Interrupts"),
    ("cpu", "Waiting for a CPU"),
    ("request", "Handing requests to devices"),
    ("switch", "Switching between tasks"),
    (OWN_SLEEP, "Sleeping as the program asks"),
    (TOGETHER, "Waiting for each other"),
];

impl Cause {
    /// How a sentence about it begins.
    pub fn subject(kind: &str) -> &'static str {
        KINDS.iter().find(|(name, _)| *name == kind).map_or("Something", |(_, subject)| subject)
    }

    /// Whether units of a kind of work count how often the cause was there. Others do not come one by one.
    pub fn counts(&self, work: &str) -> bool {
        match self.kind {
            // These are counted by their functions.
            "fault" | "call" | "reclaim" | "compaction" | "migration" => work == "syscall",
            "flush" => matches!(work, "ipi_send" | "ipi_wait" | "broadcast_flush"),
            "switch" => work == "context_switch",
            _ => true,
        }
    }
}

/// Functions that reclaim memory, and why.
const RECLAIM: [(&str, &str); 4] = [
    ("try_to_free_pages", "for an allocation"),
    ("try_to_free_mem_cgroup_pages", "for the limit of a group"),
    ("reclaim_pages", "by advice"),
    ("reclaim_throttle", "throttled"),
];
const COMPACT: [&str; 2] = ["try_to_compact_pages", "compact_zone"];
const MIGRATE: [&str; 4] = ["migrate_pages", "do_numa_page", "task_numa_work", "migration_entry_wait"];
const FLUSH: [&str; 4] = ["flush_tlb_mm_range", "flush_tlb_func", "try_to_unmap_flush", "settle_debts"];
const FLUSH_WORK: [&str; 7] =
    ["ipi_send", "ipi_target", "ipi_wait", "ipi_receive", "invlpg", "full_flush", "broadcast_flush"];
const WRITE_BACK: [&str; 4] = ["balance_dirty_pages", "do_writepages", "do_fsync", "do_msync"];
const FAULT: &str = "exc_page_fault";

/// A place in the tree of a task's time: the names of the scopes from the root on, with `[NAME]` for a mapping or file.
pub struct Place<'a>(pub &'a [&'a str]);

impl<'a> Place<'a> {
    /// The cause that a kind of work at this place belongs to.
    pub fn cause(&self, work: &str) -> Cause {
        let of = |kind, what: &str| Cause { kind, what: what.to_owned() };
        if let Some(what) = work.strip_prefix("asleep:") {
            return self.asleep(what);
        }
        if let Some(lock) = work.strip_prefix("lock_wait:") {
            return of("spin", lock);
        }
        match work {
            "access" => return of("user", "loads and stores"),
            "instructions" => return of("user", "instructions without memory"),
            "memory" => return of("user", &format!("reads of memory{}", self.on())),
            "translation" => return of("user", &format!("TLB misses and page walks{}", self.on())),
            "spin" => return of(TOGETHER, ""),
            "interrupted" => return of("interrupt", "flush rounds and devices"),
            "cpu_wait" => return of("cpu", ""),
            "io_wait" => return of("request", ""),
            _ => {}
        }
        if FLUSH_WORK.contains(&work) || self.is_within(&FLUSH) {
            return of("flush", if work == "ipi_wait" { "answers of other CPUs" } else { "own work" });
        }
        if work.starts_with("line_") {
            return of("line", work.split_once(':').map_or("lock", |(_, line)| line));
        }
        if work.starts_with("compress_") || work.starts_with("decompress_") {
            return of("compression", work);
        }
        if let Some((_, why)) = RECLAIM.iter().find(|(scope, _)| self.is_within(&[scope])) {
            return of("reclaim", why);
        }
        if self.is_within(&COMPACT) {
            return of("compaction", "");
        }
        if self.is_within(&MIGRATE) {
            return of("migration", "");
        }
        if matches!(work, "zero_page" | "copy_page" | "copy_user") {
            return of("page", &format!("{work}{}", self.on()));
        }
        if self.is_within(&[FAULT]) {
            return of("fault", &self.what());
        }
        match self.0 {
            [] if work == "syscall" => of("call", "entry and exit"),
            [] => of("switch", ""),
            _ => of("call", &self.what()),
        }
    }

    /// Whether the function at the end of this place gives a cause its name, so that its entries are counted.
    pub fn names(&self, cause: &Cause) -> bool {
        let Some((last, before)) = self.0.split_last() else { return false };
        let begins =
            |scopes: &[&str]| scopes.contains(last) && !before.iter().any(|scope| scopes.contains(scope));
        match cause.kind {
            "fault" | "call" => self.naming() == Some(self.0.len()),
            "reclaim" => RECLAIM.iter().any(|(scope, _)| begins(&[scope])),
            "compaction" => begins(&COMPACT),
            "migration" => begins(&MIGRATE),
            _ => false,
        }
    }

    fn asleep(&self, what: &str) -> Cause {
        let of = |kind, what: String| Cause { kind, what };
        let part = |what: &str| match self.what() {
            place if place.is_empty() => what.to_owned(),
            place => format!("{what}, {place}"),
        };
        if what == "tasks" {
            return of(TOGETHER, String::new());
        }
        if self.0.is_empty() && what == "timer" {
            return of(OWN_SLEEP, String::new());
        }
        if let Some(device) = what.strip_prefix("read:") {
            return of("device", part(&format!("{device} reads")));
        }
        if let Some(device) = what.strip_prefix("write:") {
            return of("device", part(&format!("{device} writes")));
        }
        if matches!(what, "reclaim" | "generation" | "writeback") || self.is_within(&["reclaim_throttle"]) {
            return of("throttle", "by reclaim".to_owned());
        }
        if self.is_within(&WRITE_BACK) {
            return of("throttle", "by write-back".to_owned());
        }
        of("lock", part(if what == "timer" { "mmap_lock" } else { what }))
    }

    fn is_within(&self, scopes: &[&str]) -> bool {
        self.0.iter().any(|scope| scopes.contains(scope))
    }

    /// The length of the part of this place that says what it is: up to the function that serves the fault, or to the
    /// call.
    fn naming(&self) -> Option<usize> {
        let functions = self.0.iter().position(|name| !name.starts_with('['))?;
        let serves = self.0[functions] == FAULT
            && self.0.get(functions + 1).is_some_and(|name| name.starts_with("do_"));
        Some(functions + if serves { 2 } else { 1 })
    }

    /// What this place is, in words: `do_read_fault on [data.db]`.
    fn what(&self) -> String {
        let name = self.naming().map_or("", |length| self.0[length - 1]);
        format!("{name}{}", self.on())
    }

    /// The mapping or file.
    fn on(&self) -> String {
        let mapping = self.0.iter().find(|name| name.starts_with('['));
        let named = |name: &&str| format!(" on {}", name.trim_start_matches('[').trim_end_matches(']'));
        mapping.map(named).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_belongs_to_what_the_task_waits_for_else_to_its_purpose_else_to_its_call() {
        let fault = ["[data.db]", FAULT, "do_read_fault", "filemap_fault"];
        let reclaim = ["[anonymous memory]", FAULT, "try_to_free_pages", "shrink_node"];
        let unmap = ["do_munmap", "tlb_finish_mmu"];
        for (place, work, expected) in [
            (&fault[..], "asleep:read:nvme0", "device: nvme0 reads, do_read_fault on data.db"),
            (&fault, "cache_lookup", "fault: do_read_fault on data.db"),
            (&fault[..2], "fault_entry", "fault: exc_page_fault on data.db"),
            (&fault, "lock_wait:lru_lock", "spin: lru_lock"),
            (&fault, "zero_page", "page: zero_page on data.db"),
            (&reclaim, "entry_clear", "reclaim: for an allocation"),
            (&reclaim, "ipi_wait", "flush: answers of other CPUs"),
            (&unmap, "free_pcp", "call: do_munmap"),
            (&unmap, "asleep:timer", "lock: mmap_lock, do_munmap"),
            (&["balance_dirty_pages"], "asleep:timer", "throttle: by write-back"),
            (&[], "asleep:timer", OWN_SLEEP),
            (&[], "asleep:tasks", TOGETHER),
            (&[], "context_switch", "switch"),
            (&[], "cpu_wait", "cpu"),
            (&[], "translation", "user: TLB misses and page walks"),
            (&["[heap]"], "translation", "user: TLB misses and page walks on heap"),
        ] {
            let cause = Place(place).cause(work);
            assert_eq!(cause.to_string(), expected);
            assert_ne!(Cause::subject(cause.kind), "Something");
        }
        let cause = Place(&fault).cause("cache_lookup");
        assert!(Place(&fault[..3]).names(&cause) && !Place(&fault).names(&cause));
        let cause = Place(&reclaim).cause("entry_clear");
        assert!(Place(&reclaim[..3]).names(&cause) && !Place(&reclaim).names(&cause));
    }
}
