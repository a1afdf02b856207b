//! Ranges of pages with a value each, as the mappings of a process. This file is also compiled into the plugin.

use std::collections::BTreeMap;

/// First page to (end page, value). Ranges do not overlap.
#[derive(Clone, Debug)]
pub struct Ranges<T>(BTreeMap<u64, (u64, T)>);

impl<T> Default for Ranges<T> {
    fn default() -> Self {
        Ranges(BTreeMap::new())
    }
}

impl<T: Copy> Ranges<T> {
    /// The range of `page`: its first page, its end, its value. A page that is in none is in the gap between two.
    pub fn of(&self, page: u64) -> (u64, u64, Option<T>) {
        let before = self.0.range(..=page).next_back();
        if let Some((&start, &(end, value))) = before
            && page < end
        {
            return (start, end, Some(value));
        }
        let start = before.map_or(0, |(_, &(end, _))| end);
        let end = self.0.range(page..).next().map_or(u64::MAX, |(&next, _)| next);
        (start, end, None)
    }

    /// Whether no range has a page of this one.
    pub fn is_free(&self, start: u64, end: u64) -> bool {
        let before = self.0.range(..end).next_back();
        start >= end || before.is_none_or(|(_, &(before, _))| before <= start)
    }

    /// Cut a hole.
    pub fn remove(&mut self, start: u64, end: u64) {
        let first = self.0.range(..start).next_back().map_or(start, |(&first, _)| first);
        let hit: Vec<_> = self.0.range(first..end).map(|(&at, &(to, value))| (at, to, value)).collect();
        for (at, to, value) in hit {
            if to <= start {
                continue;
            }
            self.0.remove(&at);
            if at < start {
                self.0.insert(at, (start, value));
            }
            if to > end {
                self.0.insert(end, (to, value));
            }
        }
    }

    /// Give a range a value, whatever was there before.
    pub fn insert(&mut self, start: u64, end: u64, value: T) {
        self.remove(start, end);
        debug_assert!(self.is_free(start, end), "ranges must not overlap");
        if start < end {
            self.0.insert(start, (end, value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_takes_the_place_of_what_was_there() {
        let mut ranges = Ranges::default();
        ranges.insert(10, 30, 'a');
        ranges.insert(15, 20, 'b');
        assert_eq!(ranges.of(14), (10, 15, Some('a')));
        assert_eq!(ranges.of(15), (15, 20, Some('b')));
        assert_eq!(ranges.of(20), (20, 30, Some('a')));
        ranges.remove(12, 25);
        assert_eq!(ranges.of(24), (12, 25, None));
        assert_eq!((ranges.of(5), ranges.of(90)), ((0, 10, None), (30, u64::MAX, None)));
        assert!(ranges.is_free(12, 25) && !ranges.is_free(11, 13) && !ranges.is_free(24, 26));
        ranges.insert(7, 7, 'c');
        assert!(ranges.is_free(0, 10));
    }
}
