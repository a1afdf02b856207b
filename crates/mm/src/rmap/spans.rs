//! Ranges of spaces that may map an owner's folios.

use crate::units::*;
use std_alloc::vec::Vec;

bitflags::bitflags! {
    /// The properties of a range that reclaim uses.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct SpanFlags: u8 {
        /// Program text: gets a second chance.
        const EXEC = 1;
        /// Locked in memory: must not be unmapped.
        const LOCKED = 2;
        /// Accesses do not predict further accesses (sequential or random use was announced).
        const NO_RECENCY = 4;
        /// Stores change the file.
        const SHARED = 8;
    }
}

/// Pages `start..start + pages` of a space show the owner's pages from `index` on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// The range; it has one span for each owner.
    pub vma: VmaId,
    /// Its space.
    pub space: SpaceId,
    /// The group of the space.
    pub group: GroupId,
    /// First page.
    pub start: Vpn,
    /// Number of pages.
    pub pages: u64,
    /// Index of the first page.
    pub index: PageIndex,
    /// Its properties.
    pub flags: SpanFlags,
}

impl Span {
    /// The page that shows an index, if the span holds it.
    #[inline]
    pub(crate) fn page_of(&self, index: PageIndex) -> Option<Vpn> {
        let at = index.0.checked_sub(self.index.0)?;
        (at < self.pages).then(|| Vpn(self.start.0 + at))
    }

    /// Whether the span shows any index of `[first, first + count)`.
    #[inline]
    pub fn holds(&self, first: PageIndex, count: u64) -> bool {
        first.0 < self.index.0 + self.pages && self.index.0 < first.0 + count
    }
}

/// The spans of one owner, in the order of registration. Walks rely on this order (see the documentation of [`super`]).
#[derive(Default)]
pub(super) struct Spans {
    list: Vec<Span>,
}

impl Spans {
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn contains(&self, span: &Span) -> bool {
        self.list.contains(span)
    }

    pub(super) fn insert(&mut self, span: Span) {
        debug_assert!(self.list.iter().all(|other| other.vma != span.vma));
        self.list.push(span);
    }

    pub(super) fn remove(&mut self, vma: VmaId) {
        // The newest spans are removed most often.
        let at = self.list.iter().rposition(|span| span.vma == vma).expect("a registered span");
        self.list.remove(at);
    }

    pub(super) fn replace(&mut self, span: Span) {
        let at = self.list.iter().rposition(|old| old.vma == span.vma).expect("a registered span");
        self.list[at] = span;
    }

    /// The spans that show any index of `[first, first + count)`.
    #[inline]
    pub(super) fn holding(&self, first: PageIndex, count: u64) -> impl Iterator<Item = &Span> {
        self.list.iter().filter(move |span| span.holds(first, count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_shows_its_indices_and_no_others() {
        let span = Span {
            vma: VmaId(1),
            space: SpaceId(0),
            group: GroupId(0),
            start: Vpn(100),
            pages: 4,
            index: PageIndex(10),
            flags: SpanFlags::empty(),
        };
        assert_eq!(span.page_of(PageIndex(9)), None);
        assert_eq!(span.page_of(PageIndex(13)), Some(Vpn(103)));
        assert_eq!(span.page_of(PageIndex(14)), None);
        assert!(
            span.holds(PageIndex(0), 11) && !span.holds(PageIndex(0), 10) && !span.holds(PageIndex(14), 5)
        );
    }
}
