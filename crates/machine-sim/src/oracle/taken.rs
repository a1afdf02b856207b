//! Ranges that are taken out of a space while a call changes them.

use super::{Backing, Private, Region, Space, Taken};

impl Taken {
    /// Private copies of the file's pages from `first` on may have been dropped.
    pub(super) fn lose_copies(&mut self, id: u64, first: u64) {
        for &(start, region) in &self.regions {
            let Backing::File { file, offset, private: true } = region.backing else { continue };
            let cut = start + first.saturating_sub(offset)..region.end;
            for (page, private) in &mut self.pages {
                if let Private::Is(stamp) = *private
                    && file == id
                    && cut.contains(page)
                {
                    *private = Private::OrBacking(stamp);
                }
            }
        }
    }
}

impl Space {
    /// Take a range out and split regions at its ends.
    pub(super) fn take(&mut self, start: u64, end: u64) -> Taken {
        for at in [start, end] {
            let cut = self.regions.range_mut(..at).next_back().filter(|(_, region)| region.end > at);
            if let Some((&first, region)) = cut {
                let tail = region.tail(at - first);
                region.end = at;
                self.regions.insert(at, tail);
            }
        }
        let mut rest = self.regions.split_off(&start);
        self.regions.append(&mut rest.split_off(&end));
        let mut pages = self.pages.split_off(&start);
        self.pages.append(&mut pages.split_off(&end));
        Taken { regions: rest.into_iter().collect(), pages: pages.into_iter().collect() }
    }

    /// Put what was taken from `from` back at `to`.
    pub(super) fn put(&mut self, taken: Taken, from: u64, to: u64) {
        for (start, region) in taken.regions {
            self.regions.insert(start - from + to, Region { end: region.end - from + to, ..region });
        }
        self.pages.extend(taken.pages.into_iter().map(|(page, private)| (page - from + to, private)));
    }

    /// Drop private copies of the file's pages from `first` on.
    pub(super) fn drop_private(&mut self, id: u64, first: u64) {
        for (&start, region) in &self.regions {
            if let Backing::File { file, offset, private: true } = region.backing
                && file == id
            {
                let from = start + first.saturating_sub(offset);
                let gone: Vec<u64> = match from < region.end {
                    true => self.pages.range(from..region.end).map(|(&page, _)| page).collect(),
                    false => continue,
                };
                for page in gone {
                    self.pages.remove(&page);
                }
            }
        }
    }
}
