//! Counters of control groups, with the names that memory.stat and memory.events have for them.
//!
//! A group counts what happens to it and to the groups below it. The root counts nothing: what happens there is in the
//! machine's own counters. They count what is rare beside an access, so all CPUs share the cells.

use base::named_table;

named_table! {
    /// A counter that each control group has.
    GroupStat {
        Pgfault "pgfault" "page faults";
        Pgmajfault "pgmajfault" "page faults whose page had to be read from a device";
        PgscanKswapd "pgscan_kswapd" "pages scanned by kswapd";
        PgscanDirect "pgscan_direct" "pages scanned directly, for the group's limits, too";
        PgstealKswapd "pgsteal_kswapd" "pages reclaimed by kswapd";
        PgstealDirect "pgsteal_direct" "pages reclaimed directly, for the group's limits, too";
        Pgrefill "pgrefill" "pages scanned on active lists";
        WorkingsetRefaultAnon "workingset_refault_anon" "anonymous pages that came back after eviction";
        WorkingsetRefaultFile "workingset_refault_file" "file pages that came back after eviction";
        Zswpin "zswpin" "pages that came back from zswap";
        Zswpout "zswpout" "pages that zswap took";
        Zswpwb "zswpwb" "pages that zswap wrote to their devices";
        Low "low" "times that reclaim took from the group although it was below its memory.low";
        High "high" "times that a process reclaimed because the group was above its memory.high";
        Max "max" "times that the group was about to go above its memory.max";
        Oom "oom" "times that nothing could be reclaimed for what the group wanted at its memory.max";
        OomKill "oom_kill" "processes of the group that were chosen by an out-of-memory decision";
    }
}

impl GroupStat {
    /// Is it in memory.events? The others are in memory.stat.
    pub fn is_event(self) -> bool {
        self as u16 >= GroupStat::Low as u16
    }
}
