//! The shadow of one page: which contents it may show now.
//!
//! Stores are serialised by a lock in the entry; loads take no lock. A store raises `next` to its own mark, puts the
//! stamp into all sectors, then raises `base`. A load reads `base`, then the page, then `next`; whatever it found must
//! be what `base` says or something newer up to `next`. Every value between them was written by this page's owner, so
//! the two bounds and one origin say it all.
//!
//! Other changes (the page is forgotten, or shows what stands behind it, or several contents are possible) are
//! *transitions*: they count up an epoch before and after. A load that finds another epoch than it began with is not
//! judged. Transitions on a page that is in use are rare: the first store to a copy, and calls that take content away.

use super::patience::Patience;
use super::stamp::{Mark, Origin};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

/// Facts about an entry.
mod bit {
    /// Somebody stores to the page, or changes the entry.
    pub const LOCK: u32 = 1;
    /// The page may show its own content, from `base` to `next`.
    pub const OWN: u32 = 2;
    /// It may show what stands behind it.
    pub const BEHIND: u32 = 4;
    /// Nobody knows what it shows.
    pub const ANY: u32 = 8;
    /// A store ran beside a call that takes content of the page away.
    pub const RACED: u32 = 16;
    /// The number of transitions stands above the flags.
    pub const EPOCH: u32 = 32;
    /// What a load looks at.
    pub const SEEN: u32 = !(LOCK | RACED);
}

/// The shadow of one page.
#[derive(Debug)]
pub struct Page {
    meta: AtomicU32,
    /// The newest version ever given out.
    version: AtomicU32,
    base: AtomicU64,
    next: AtomicU64,
}

/// What a load notes before it touches the page.
#[derive(Clone, Copy, Debug)]
pub struct Before {
    meta: u32,
    version: u32,
    base: Mark,
}

/// What the page may have shown between two moments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct View {
    /// Its own contents, from the first to the last.
    pub own: Option<(Mark, Mark)>,
    /// May it have shown what stands behind it?
    pub behind: bool,
    /// May it have shown anything at all?
    pub any: bool,
}

impl View {
    /// Nothing but zeroes.
    pub const ZEROES: View = View { own: Some((Mark::ZERO, Mark::ZERO)), behind: false, any: false };

    /// Is `found` one of its own contents?
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

    /// A page that shows what stands behind it.
    pub fn behind() -> Page {
        Page::new(bit::BEHIND)
    }

    fn new(meta: u32) -> Page {
        let zero = || AtomicU64::new(Mark::ZERO.to_bits());
        Page { meta: AtomicU32::new(meta), version: AtomicU32::new(0), base: zero(), next: zero() }
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

    /// To be noted before a load.
    pub fn before(&self) -> Before {
        let meta = self.seen();
        Before { meta, base: self.base(), version: self.version.load(Acquire) }
    }

    /// What the page may have shown since `before`; `None`: it went through a transition.
    pub fn since(&self, before: &Before) -> Option<View> {
        let next = self.next();
        (self.seen() == before.meta).then_some(View {
            own: (before.meta & bit::OWN != 0).then_some((before.base, next)),
            behind: before.meta & bit::BEHIND != 0,
            any: before.meta & bit::ANY != 0,
        })
    }

    /// Take the page's lock.
    pub fn lock<'a>(&'a self, patience: &dyn Patience) -> Locked<'a> {
        patience.until(&mut || self.try_lock().is_some());
        Locked { page: self }
    }

    /// Take the lock bit; the caller wraps it.
    fn try_lock(&self) -> Option<()> {
        let before = self.meta.fetch_or(bit::LOCK, AcqRel);
        (before & bit::LOCK == 0).then_some(())
    }

    /// All sectors were found to hold `found`, nothing has happened since `before`, and so this is what the page holds.
    /// Left undone if anything happens at the same time.
    pub fn learn(&self, before: &Before, found: Mark, behind_too: bool) {
        if self.try_lock().is_none() {
            return;
        }
        let locked = Locked { page: self };
        if self.seen() == before.meta && self.version.load(Relaxed) == before.version {
            let version = self.version.load(Relaxed).max(found.version());
            let mark = if found.is_zero() { Mark::zero(version) } else { found };
            locked.transition(
                bit::OWN | if behind_too { bit::BEHIND } else { 0 },
                Some((mark, mark)),
                version,
            );
        }
    }

    /// What stands behind the page was found in it, so its own content is gone for good (zeroes, if nothing stands
    /// behind). Left undone if anything happened since `before`.
    pub fn learn_gone(&self, before: &Before, file_behind: bool) {
        if self.try_lock().is_none() {
            return;
        }
        let locked = Locked { page: self };
        if self.seen() == before.meta && self.version.load(Relaxed) == before.version {
            locked.forget(file_behind);
        }
    }
}

/// A page whose lock is held. Dropping it releases the lock.
pub struct Locked<'a> {
    page: &'a Page,
}

/// A store under way.
#[must_use]
pub struct Store<'a> {
    locked: Locked<'a>,
    old: (u32, Mark, Mark),
    mark: Mark,
    /// Another store ran beside the same call before. The later of the two may have gone, by an old translation, to the
    /// page that the call takes away, and the earlier to the one that comes then: which of them stays is open.
    follows: bool,
}

impl<'a> Locked<'a> {
    fn flags(&self) -> u32 {
        self.page.meta.load(Relaxed) & (bit::OWN | bit::BEHIND | bit::ANY)
    }

    /// Other facts hold from now on.
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

    /// A store by `origin` begins. `raced`: beside a call that takes content of the page away.
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

    /// Note that a store ran beside a call that takes content away.
    pub fn set_raced(&self) {
        self.page.meta.fetch_or(bit::RACED, Relaxed);
    }

    /// Did one? The note is taken away.
    pub fn take_raced(&self) -> bool {
        self.page.meta.fetch_and(!bit::RACED, Relaxed) & bit::RACED != 0
    }

    /// The page's own content is gone: it shows the file behind it, or zeroes.
    pub fn forget(&self, file_behind: bool) {
        let zero = Mark::zero(self.version());
        let flags = if file_behind { bit::BEHIND } else { bit::OWN };
        self.transition(flags, Some((zero, zero)), self.version());
    }

    /// The page's own content may be gone.
    pub fn perhaps_forget(&self) {
        let flags = self.flags();
        if flags & bit::OWN != 0 && flags & bit::BEHIND == 0 {
            self.transition(flags | bit::BEHIND, None, self.version());
        }
    }

    /// Anything may be in the page now, until it is stored to or read.
    pub fn confuse(&self) {
        self.transition(bit::ANY, None, self.version());
    }

    /// The same, and it stays so as long as the page is locked.
    pub fn confused(self) -> Locked<'a> {
        self.confuse();
        self
    }

    /// If the page shows what stands behind it, it may have become a copy of that, of what it showed meanwhile. If it
    /// may have become one before, it may be that copy, or this one.
    pub fn perhaps_copied(&self, behind: Option<View>) {
        match (self.flags(), behind) {
            (bit::BEHIND, Some(View { own: Some((base, next)), any: false, .. })) => {
                let version = self.version().max(next.version());
                self.transition(bit::OWN | bit::BEHIND, Some((base, next)), version);
            }
            (flags, _) if flags & bit::BEHIND != 0 => self.confuse(),
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
    /// What is to be put into the sectors.
    pub fn mark(&self) -> Mark {
        self.mark
    }

    /// It ran beside a call that takes content of the page away.
    pub fn raced(&self) {
        self.locked.set_raced();
    }

    /// All sectors hold it.
    pub fn done(self) {
        let page = self.locked.page;
        match self.locked.flags() {
            bit::OWN if self.follows => {}
            bit::OWN => page.base.store(self.mark.to_bits(), SeqCst),
            _ if self.follows => {}
            _ => self.locked.transition(bit::OWN, Some((self.mark, self.mark)), self.mark.version()),
        }
    }

    /// None of them holds it: the page is as it was.
    pub fn undone(self) -> Locked<'a> {
        let (flags, base, next) = self.old;
        match self.locked.flags() {
            bit::OWN => self.locked.page.next.store(next.to_bits(), SeqCst),
            _ => self.locked.transition(flags, Some((base, next)), self.mark.version()),
        }
        self.locked
    }

    /// Some of them hold it: what a load finds may be either until the next store.
    pub fn partly(self) {}
}

/// A page as it was when a fork began.
pub struct Forked {
    meta: u32,
    base: Mark,
}

impl Page {
    /// A fork begins. No store is under way.
    pub fn fork(&self) -> Forked {
        Forked { meta: self.seen(), base: self.base() }
    }

    /// The child's page, when the fork has ended and no store is under way: it may have been copied at any moment
    /// since.
    pub fn forked(&self, begun: &Forked) -> Page {
        let meta = self.seen();
        let same = meta == begun.meta;
        let flags = if same { meta & (bit::OWN | bit::BEHIND | bit::ANY) } else { bit::ANY };
        Page {
            meta: AtomicU32::new(flags),
            version: AtomicU32::new(self.version.load(Acquire)),
            base: AtomicU64::new(begun.base.to_bits()),
            next: AtomicU64::new(self.next().to_bits()),
        }
    }

    /// The same page at another place, when no store is under way.
    pub fn moved(&self) -> Page {
        Page {
            meta: AtomicU32::new(self.meta.load(Acquire) & (bit::OWN | bit::BEHIND | bit::ANY)),
            version: AtomicU32::new(self.version.load(Acquire)),
            base: AtomicU64::new(self.base().to_bits()),
            next: AtomicU64::new(self.next().to_bits()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CPU B stores to the page that has come already, then CPU A, by its old translation, to the one that is being
    /// taken away.
    #[test]
    fn either_of_two_stores_beside_a_call_may_stay() {
        let (page, patience) = (Page::zeroes(), || ());
        let origin = Origin::process(1, 2);
        let store = |raced| {
            let store = page.lock(&patience).store(origin, raced);
            let mark = store.mark();
            store.done();
            mark
        };
        let shows = |mark| page.since(&page.before()).expect("nothing happens meanwhile").owns(mark);
        let early = store(false);
        let (first, second) = (store(true), store(true));
        let locked = page.lock(&patience);
        assert!(locked.take_raced());
        locked.perhaps_forget();
        drop(locked);
        assert_eq!([early, first, second].map(shows), [false, true, true]);
        let last = store(false);
        assert_eq!([first, second, last].map(shows), [false, false, true]);
    }
}
