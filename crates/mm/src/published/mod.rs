//! The faults of the published versions of lazy unmap flush, on request.
//!
//! LUF has been published in twelve versions, and reading them found sixteen places where a flush can be forgotten, or
//! where it cannot be paid. The tests of this room break this memory manager in the same sixteen ways, one at a time,
//! and show two things: that a check catches the fault, and that without it the same steps pass.
//!
//! A place that can be broken asks [`is`], in one line. Without the feature `published-faults`, which nothing but the
//! tests turns on, the answer is a constant and the line is gone. Some faults need another CPU to run at a certain
//! moment: those moments are [`Point`]s, which cost nothing either.
//!
//! | fault | what it was | here it would be in | what catches it | why it cannot happen |
//! |---|---|---|---|---|
//! | F1 | v10, v11: a page's tag is overwritten by its order on the way through the buddy | `alloc::buddy`, `put` | a frame is handed out that a CPU reads | order and generation are packed in one place and a round trip of every order is tested |
//! | F2 | v10: the rest of a split block loses its tag, and is taken before the taker has paid | `alloc::buddy`, `take_block` | the same | both halves inherit the generation; only `Clean` blocks reach a CPU's list |
//! | F3 | v10: 16-bit tags wrap, so that an old one beats the one that is pending | `tlb::Generation`, `alloc::buddy`, `put` | the same | generations are 64 bits wide; a tag of 32 is read as the *newest* generation that it can mean |
//! | F4 | v10: the debt lies with the task; an interrupt that frees a page takes it away | `alloc::owing` | the same | the debt lies in the block that was taken, an `Owing`, which only paying turns into a `Clean` |
//! | F5 | v10: pays where interrupts are off | `alloc`, `Request::debts` | the machine refuses the shootdown | who says `atomic` gets blocks that owe nothing, of which a reserve is kept, or none |
//! | F6 | v12: CPUs that owe for later unmaps are dropped because they are done with an earlier one | `tlb::Debt::join` | a frame is freed that a CPU reads | each part of a sum is compared with its own generation; payments read a private copy |
//! | F7 | v12: a CPU counts as done because it was sent a flush of a space that it did not run | `tlb`, `catch_up` | a frame is handed out that a CPU reads | a CPU is done only where it has compared the generation of the space that it runs |
//! | F8 | v12: a space is used after the last CPU that borrowed it let go | `tlb`, `switch` | a new space reads a dead one's page | there is no pointer to a space, only an id; translations are kept by an id that is never used twice |
//! | F9 | all: an entry forbids stores, but the flush of that is itself still to come | `tlb::Batch::note` | a CPU can store to a page that was freed | while rights are being taken from a space, none of its flushes is deferred |
//! | F10 | v11, v12: pays after the new entry, or the new content, can be seen | `table::Locked::settle` | at the change, a CPU reads the old page | only a `Settled` lock can install; paying is what makes one |
//! | F11 | v12: the debt's generation is drawn before the space's is raised | `tlb::Batch::note` | a frame is handed out that a CPU reads | raised, then drawn; both in one place |
//! | F12 | v12: who finds the debt claimed waits for the claimer, whom he may keep from running | `tlb`, `settle_zone` | the wait does not end | nobody waits: each payer pays all that it has read |
//! | F13 | 6.14: a CPU reads a space's generation before it joins the space's CPUs | `tlb`, `switch` | a frame is handed out that a CPU reads | joins, is seen to arrive, and then reads |
//! | F14 | v11: an entry is used after its table was unlocked | `table::Slot` | does not compile (`tests/compile_fail`), or the slot is refused | a slot is used through a lock, and only in the hold in which it was found |
//! | F15 | v12: the count of pending pages is set to 0 when they are claimed, while they are on lists | `alloc::buddy`, `take_block` | `Allocator::validate`, and the arithmetic | pages are counted where they are put on lists and taken off |
//! | F16 | v12: who has claimed once takes more without paying, also what was freed later | `alloc::owing` | a frame is handed out that a CPU reads | each block is compared with what has been paid |

#[cfg(all(test, feature = "published-faults"))]
mod tests;

/// A fault of a published version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(not(all(test, feature = "published-faults")), allow(dead_code, reason = "F14 does not compile"))]
pub(crate) enum Published {
    F1,
    F2,
    F3,
    F4,
    F5,
    F6,
    F7,
    F8,
    F9,
    F10,
    F11,
    F12,
    F13,
    F15,
    F16,
}

/// A step just before which a test may let another CPU run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(
    not(all(test, feature = "published-faults")),
    allow(dead_code, reason = "the machine for tests has some of them")
)]
pub(crate) enum Point {
    /// A space's generation is raised, when an entry has been cleared.
    Raise,
    /// A CPU that goes over to a space joins its CPUs.
    Join,
    /// A block that has been taken is paid for.
    Settle,
    /// A shootdown is sent.
    Shootdown,
}

#[cfg(not(all(test, feature = "published-faults")))]
mod switch {
    use super::{Point, Published};

    /// Is the memory manager to make this fault?
    #[inline(always)]
    pub(crate) const fn is(_: Published) -> bool {
        false
    }

    /// Another CPU may run here.
    #[inline(always)]
    pub(crate) const fn here(_: Point) {}

    // What the faults need, which then nobody calls.

    pub(crate) const fn task_debt(new: u64) -> u64 {
        new
    }

    pub(crate) const fn claimed_before() -> bool {
        false
    }

    pub(crate) const fn claim() {}

    pub(crate) const fn later_of_16_bits(a: u64, _: u64) -> u64 {
        a
    }
}

#[cfg(all(test, feature = "published-faults"))]
mod switch;

pub(crate) use switch::*;

/// What a fault does too early, before another CPU runs; `None` where it is not to be made.
#[inline(always)]
pub(crate) fn early<T>(fault: Published, point: Point, act: impl FnOnce() -> T) -> Option<T> {
    let done = is(fault).then(act);
    here(point);
    done
}
