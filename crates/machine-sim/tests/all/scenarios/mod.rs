//! Scenarios in which a deferred TLB flush could be visible, each under every policy of `tlb.unmap` and the oracle.
//!
//! All have the same core: reclaim takes a page that is mapped read-only, while other CPUs hold its translation and use it
//! without a fault. Then follows a change that must not be visible through such a translation. Numbers are those of the
//! project's list of hazards; letters are variations.
//!
//! Where flushes are deferred, most scenarios assert that old translations were really used before the deed. Some are also
//! run with one dropped flush, and must then fail.
//!
//! Numbers without a test here, with the reason:
//!
//! | number | subject | reason |
//! |---|---|---|
//! | 5 (in part) | migration instead of reclaim | nothing migrates pages yet; the rights are tested after reclaim |
//! | 6 (in part) | write protection by userfaultfd | there is none; mprotect, fork and write-back are tested |
//! | 7 | poison, wiping on free | memory is wiped when it is allocated, never when it is freed |
//! | 9, 11 | tags through per-CPU lists, merges and splits; wrap of generations | unit tests of `mm::alloc` and `mm::tlb` |
//! | 10, 30 | allocation of a split remainder, memory order | the simulator switches tasks only at calls; for model checkers |
//! | 12, 13 | frees from interrupts, allocation with interrupts off | nothing allocates or frees in an interrupt |
//! | 17b | a lock dropped and taken again in one bracket | unit tests of `mm::alloc` |
//! | 20 | reuse of keys of debts | 19 and 26 reuse epochs and space numbers |
//! | 21 (in part) | hole punching, NFS | there is no such call, and no file whose content changes elsewhere |
//! | 22 (in part) | direct I/O, splice | there are no such calls; write(2) under a mapping is tested |
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
