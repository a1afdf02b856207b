//! Scenarios in which a deferred TLB flush could show, each under every policy of `tlb.unmap` and judged by the oracle.
//!
//! Their heart is always the same: reclaim takes a page that is mapped for reading only, while other CPUs hold its
//! translation and keep using it without a fault. Then comes what must not be seen through such a translation. Numbers
//! are those of the project's list of hazards; letters are variations of one.
//!
//! Where flushes are deferred, most of them assert that old translations were really used before the deed. Some have a
//! fault injected as well, which drops one flush, and must then fail.
//!
//! Numbers without a test here, and why:
//!
//! | number | subject | reason |
//! |---|---|---|
//! | 5 (in part) | migration instead of reclaim | nothing migrates pages yet; the rights are tested after reclaim |
//! | 6 (in part) | write protection by userfaultfd | there is none; mprotect, fork and write-back are tested |
//! | 7 | poison, wiping on free | memory is wiped when it is given out, never when it is freed |
//! | 9, 11 | tags through per-CPU lists, merges and splits; wrap of generations | unit tests of `mm::alloc` and `mm::tlb` |
//! | 10, 30 | take of a split remainder, memory order | the simulator switches tasks only at calls; for model checkers |
//! | 12, 13 | frees from interrupts, allocation with interrupts off | nothing allocates or frees in an interrupt |
//! | 17b | a lock dropped and taken again in one bracket | unit tests of `mm::alloc` |
//! | 20 | keys of debts used again | epochs and space numbers are used again in 19 and 26 |
//! | 21 (in part) | hole punching, NFS | there is no such call, and no file whose content changes elsewhere |
//! | 22 (in part) | direct I/O, splice | there are no such calls; write(2) past the cache's back is tested |
//! | 23 | uprobes, KSM, userfaultfd | there are none |
//! | 24 | poisoned, isolated or reported pages, compaction, hot removal, hibernation | there are none |
//! | 25 (in part) | swapoff | there is no such call |
//! | 27 | CPUs that come and go | all CPUs are there from the start |
//! | 28 | KVM, IOMMUs | there are no other users of page tables |

mod file_content;
mod meaning;
mod memory;
mod scene;
mod tasks;
