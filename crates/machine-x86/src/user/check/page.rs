//! The shadow of one page: the contents that it may show now.
//!
//! A lock in the entry serializes stores; loads take no lock. A store sets `next` to its own mark, writes the
//! stamp to all sectors, then sets `base`. A load reads `base`, then the page, then `next`; what it finds
//! must be `base` or something newer up to `next`. All values between them were written by the page's owner,
//! so the two bounds and one origin are enough.
//!
//! Other changes (the content is dropped, the page shows its backing page, or several contents are possible)
//! are *transitions*: they increment an epoch before and after. A load that finds a different epoch at its
//! end is not checked. Transitions of a page in use are rare: the first store to a copy, and calls that
//! remove content.

use super::backoff::Backoff;
use super::stamp::{Mark, Origin};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

/// Flags of an entry.
mod bit {
    /// A task stores to the page or changes the entry.
    pub const LOCK: u32 = 1;
    /// The page may show its own content, from `base` to `next`.
    pub const OWN: u32 = 2;
    /// It may show its backing page.
    pub const BACKING: u32 = 4;
    /// Its content is unknown.
    pub const ANY: u32 = 8;
    /// A store ran during a call that removes content of the page.
    pub const RACED: u32 = 16;
    /// The number of transitions is above the flags.
    pub const EPOCH: u32 = 32;
    /// The bits that a load compares.
    pub const SEEN: u32 = !(LOCK | RACED);
}

/// The shadow of one page.
#[derive(Debug)]
pub struct Page {
    meta: AtomicU32,
    /// The newest version used so far.
    version: AtomicU32,
    base: AtomicU64,
    next: AtomicU64,
}

/// What a load reads before it accesses the page.
#[derive(Clone, Copy, Debug)]
pub struct Before {
    meta: u32,
    version: u32,
    base: Mark,
}

/// The contents that the page may have shown between two moments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct View {
    /// Its own contents, from the first to the last.
    pub own: Option<(Mark, Mark)>,
    /// Whether it may have shown its backing page.
    pub backing: bool,
    /// Whether it may have shown anything.
    pub any: bool,
}

impl View {
    /// Only zeroes.
    pub const ZEROES: View = View { own: Some((Mark::ZERO, Mark::ZERO)), backing: false, any: false };

    /// Whether `found` is one of its own contents.
    pub fn owns(&self, found: Mark) -> bool {
        let Some((base, next)) = self.own else { return false };
        let same = if base.is_zero() { found == Mark::ZERO } else { found == base };
        let newer = || {
            found.is_stamp()
                && found.origin() == next.origin()
                && (base.version() + 1..=next.version()).contains(&found.version())
        };
        same || newer()
    }
}

impl Page {
    /// A page of zeroes.
    pub fn zeroes() -> Page {
        Page::new(bit::OWN)
    }

    /// A page that shows its backing page.
    pub fn backed() -> Page {
        Page::new(bit::BACKING)
    }

    fn new(meta: u32) -> Page {
        Page::with(meta, 0, Mark::ZERO, Mark::ZERO)
    }

    fn with(meta: u32, version: u32, base: Mark, next: Mark) -> Page {
        Page {
            meta: AtomicU32::new(meta),
            version: AtomicU32::new(version),
            base: AtomicU64::new(base.to_bits()),
            next: AtomicU64::new(next.to_bits()),
        }
    }

    fn base(&self) -> Mark {
        Mark::from_bits(self.base.load(Acquire))
    }

    fn next(&self) -> Mark {
        Mark::from_bits(self.next.load(Acquire))
    }

    fn seen(&self) -> u32 {
        self.meta.load(Acquire) & bit::SEEN
    }

    /// The state before a load.
    pub fn before(&self) -> Before {
        let meta = self.seen();
        Before { meta, base: self.base(), version: self.version.load(Acquire) }
    }

    /// What the page may have shown since `before`; `None` if there was a transition.
    pub fn since(&self, before: &Before) -> Option<View> {
        let next = self.next();
        (self.seen() == before.meta).then_some(View {
            own: (before.meta & bit::OWN != 0).then_some((before.base, next)),
            backing: before.meta & bit::BACKING != 0,
            any: before.meta & bit::ANY != 0,
        })
    }

    /// Take the page's lock.
    pub fn lock<'a>(&'a self, backoff: &dyn Backoff) -> Locked<'a> {
        backoff.until(&mut || self.try_lock().is_some());
        Locked { page: self }
    }

    /// Try to set the lock bit; the caller must wrap it.
    fn try_lock(&self) -> Option<()> {
        let before = self.meta.fetch_or(bit::LOCK, AcqRel);
        (before & bit::LOCK == 0).then_some(())
    }

    /// The page's lock, if it is free and nothing has changed since `before`.
    fn lock_unchanged(&self, before: &Before) -> Option<Locked<'_>> {
        self.try_lock()?;
        let locked = Locked { page: self };
        (self.seen() == before.meta && self.version.load(Relaxed) == before.version).then_some(locked)
    }

    /// All sectors hold `found`, and nothing has changed since `before`, so this is the page's content. Does
    /// nothing if the page is changing.
    pub fn learn(&self, before: &Before, found: Mark, or_backing: bool) {
        let Some(locked) = self.lock_unchanged(before) else { return };
        let version = locked.version().max(found.version());
        let mark = if found.is_zero() { Mark::zero(version) } else { found };
        let flags = bit::OWN | if or_backing { bit::BACKING } else { 0 };
        locked.transition(flags, Some((mark, mark)), version);
    }

    /// The load found the backing page, so the page's own content is gone for good (it is zero if there is no
    /// backing page). Does nothing if anything has changed since `before`.
    pub fn learn_discarded(&self, before: &Before, has_file: bool) {
        if let Some(locked) = self.lock_unchanged(before) {
            locked.forget(has_file);
        }
    }
}

/// A page whose lock is held. Dropping it releases the lock.
pub struct Locked<'a> {
    page: &'a Page,
}

/// A store in progress.
#[must_use]
pub struct Store<'a> {
    locked: Locked<'a>,
    old: (u32, Mark, Mark),
    mark: Mark,
    /// Another store ran during the same call before. The later of the two may have reached, through an old
    /// translation, the page that the call removes, and the earlier one the page that replaces it. So either
    /// of them may stay.
    follows: bool,
}

impl<'a> Locked<'a> {
    fn flags(&self) -> u32 {
        self.page.meta.load(Relaxed) & (bit::OWN | bit::BACKING | bit::ANY)
    }

    /// Change to other flags, with an epoch before and after.
    fn transition(&self, flags: u32, marks: Option<(Mark, Mark)>, version: u32) {
        let meta = self.page.meta.load(Relaxed);
        let epoch = |meta: u32| (meta & !(bit::EPOCH - 1)).wrapping_add(bit::EPOCH);
        let kept = meta & bit::RACED | bit::LOCK;
        let between = epoch(meta) | bit::ANY | kept;
        self.page.meta.store(between, SeqCst);
        if let Some((base, next)) = marks {
            self.page.base.store(base.to_bits(), SeqCst);
            self.page.next.store(next.to_bits(), SeqCst);
        }
        self.page.version.store(version, SeqCst);
        self.page.meta.store(epoch(between) | flags | kept, SeqCst);
    }

    fn version(&self) -> u32 {
        self.page.version.load(Relaxed)
    }

    /// Begin a store by `origin`. `raced`: during a call that removes content of the page.
    pub fn store(self, origin: Origin, raced: bool) -> Store<'a> {
        let page = self.page;
        let old = (self.flags(), page.base(), page.next());
        let follows = raced && page.meta.load(Relaxed) & bit::RACED != 0;
        if raced {
            self.set_raced();
        }
        let version = self.version() + 1;
        let mark = Mark::stamp(origin, version);
        let simple = old.0 == bit::OWN && (old.1 == old.2 || old.2.origin() == origin);
        match simple {
            true => {
                page.version.store(version, SeqCst);
                page.next.store(mark.to_bits(), SeqCst);
            }
            false => self.transition(bit::ANY, None, version),
        }
        Store { locked: self, old, mark, follows }
    }

    /// Record that a store ran during a call that removes content.
    pub fn set_raced(&self) {
        self.page.meta.fetch_or(bit::RACED, Relaxed);
    }

    /// Returns whether one did, and clears the record.
    pub fn take_raced(&self) -> bool {
        self.page.meta.fetch_and(!bit::RACED, Relaxed) & bit::RACED != 0
    }

    /// The page's own content is gone: it shows its backing page, or zeroes.
    pub fn forget(&self, has_file: bool) {
        let zero = Mark::zero(self.version());
        let flags = if has_file { bit::BACKING } else { bit::OWN };
        self.transition(flags, Some((zero, zero)), self.version());
    }

    /// The page's own content may be gone.
    pub fn maybe_forget(&self) {
        let flags = self.flags();
        if flags & bit::OWN != 0 && flags & bit::BACKING == 0 {
            self.transition(flags | bit::BACKING, None, self.version());
        }
    }

    /// The page's content is unknown until the next store or read.
    pub fn mark_unknown(&self) {
        self.transition(bit::ANY, None, self.version());
    }

    /// Mark the content unknown, and keep the page locked so that it stays so.
    pub fn into_unknown(self) -> Locked<'a> {
        self.mark_unknown();
        self
    }

    /// If the page shows its backing page, it may have become a copy of what that showed. If it may already
    /// have been a copy, it may be that one or this one.
    pub fn maybe_copied(&self, backing: Option<View>) {
        match (self.flags(), backing) {
            (bit::BACKING, Some(View { own: Some((base, next)), any: false, .. })) => {
                let version = self.version().max(next.version());
                self.transition(bit::OWN | bit::BACKING, Some((base, next)), version);
            }
            (flags, _) if flags & bit::BACKING != 0 => self.mark_unknown(),
            _ => {}
        }
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.page.meta.fetch_and(!bit::LOCK, Release);
    }
}

impl<'a> Store<'a> {
    /// The mark to write to the sectors.
    pub fn mark(&self) -> Mark {
        self.mark
    }

    /// The store ran during a call that removes content of the page.
    pub fn raced(&self) {
        self.locked.set_raced();
    }

    /// All sectors hold the mark.
    pub fn complete(self) {
        let page = self.locked.page;
        match self.locked.flags() {
            bit::OWN if self.follows => {}
            bit::OWN => page.base.store(self.mark.to_bits(), SeqCst),
            _ if self.follows => {}
            _ => self.locked.transition(bit::OWN, Some((self.mark, self.mark)), self.mark.version()),
        }
    }

    /// No sector holds the mark: the page is unchanged.
    pub fn revert(self) -> Locked<'a> {
        let (flags, base, next) = self.old;
        match self.locked.flags() {
            bit::OWN => self.locked.page.next.store(next.to_bits(), SeqCst),
            _ => self.locked.transition(flags, Some((base, next)), self.mark.version()),
        }
        self.locked
    }

    /// Some sectors hold the mark: a load may find either content until the next store.
    pub fn leave_partial(self) {}
}

/// The state of a page when a fork began.
pub struct Forked {
    meta: u32,
    base: Mark,
}

impl Page {
    /// Begin a fork. No store may be in progress.
    pub fn fork(&self) -> Forked {
        Forked { meta: self.seen(), base: self.base() }
    }

    /// The child's page after the fork, which may have copied it at any moment since. No store may be in
    /// progress.
    pub fn forked(&self, fork_state: &Forked) -> Page {
        let meta = self.seen();
        let same = meta == fork_state.meta;
        let flags = if same { meta & (bit::OWN | bit::BACKING | bit::ANY) } else { bit::ANY };
        Page::with(flags, self.version.load(Acquire), fork_state.base, self.next())
    }

    /// A copy of the shadow for another address. No store may be in progress.
    pub fn moved(&self) -> Page {
        let flags = self.meta.load(Acquire) & (bit::OWN | bit::BACKING | bit::ANY);
        Page::with(flags, self.version.load(Acquire), self.base(), self.next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CPU B stores to the new page, then CPU A, through its old translation, to the page that is being
    /// removed.
    #[test]
    fn either_of_two_stores_during_a_call_may_stay() {
        let (page, backoff) = (Page::zeroes(), || ());
        let origin = Origin::process(1, 2);
        let store = |raced| {
            let store = page.lock(&backoff).store(origin, raced);
            let mark = store.mark();
            store.complete();
            mark
        };
        let shows = |mark| page.since(&page.before()).expect("no transition must happen").owns(mark);
        let early = store(false);
        let (first, second) = (store(true), store(true));
        let locked = page.lock(&backoff);
        assert!(locked.take_raced());
        locked.maybe_forget();
        drop(locked);
        assert_eq!([early, first, second].map(shows), [false, true, true]);
        let last = store(false);
        assert_eq!([first, second, last].map(shows), [false, false, true]);
    }
}
