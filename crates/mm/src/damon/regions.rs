//! Regions: runs of pages that are taken to be used alike.
//!
//! In each sample interval one drawn page of each region is watched; how often it was used stands for the region.
//! At the end of an aggregation interval neighbours that were used alike become one, and every region is cut at a drawn
//! place, so that cuts that separate what is used differently stay.
//!
//! Source of the rules: `damon_merge_regions_of`, `damon_split_regions_of` in mm/damon/core.c of Linux 6.12.

use std_alloc::vec::Vec;

/// Draws numbers (xorshift64*): the same in every run.
struct Draw(u64);

impl Draw {
    /// A number below `bound`.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let drawn = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d);
        ((u128::from(drawn) * u128::from(bound)) >> 64) as u64
    }
}

/// A region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Region {
    /// Its first page.
    pub(super) start: u64,
    /// The page behind its last.
    pub(super) end: u64,
    /// The page that is watched.
    pub(super) watched: u64,
    /// Sample intervals of this aggregation interval in which the watched page was used.
    pub(super) uses: u64,
    /// The same of the one before.
    uses_before: u64,
    /// Aggregation intervals for which it has been used about as much as now.
    pub(super) age: u64,
}

impl Region {
    pub(super) fn pages(&self) -> u64 {
        self.end - self.start
    }
}

/// How many regions there may be, and how alike uses must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RegionLimits {
    /// A region has at most this part of all pages.
    pub(super) least: u64,
    /// There are at most this many.
    pub(super) most: u64,
    /// Sample intervals of an aggregation interval.
    pub(super) samples: u64,
}

/// All regions, in the order of their pages.
pub(super) struct Regions {
    list: Vec<Region>,
    /// How many there were when they were last cut.
    before: usize,
    draw: Draw,
}

impl Regions {
    /// One region with this many pages.
    pub(super) fn new(pages: u64) -> Regions {
        let whole = Region { start: 0, end: pages, watched: 0, uses: 0, uses_before: 0, age: 0 };
        Regions { list: [whole].into(), before: 0, draw: Draw(0x9e37_79b9_7f4a_7c15) }
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn get(&mut self, at: usize) -> Option<&mut Region> {
        self.list.get_mut(at)
    }

    pub(super) fn all(&self) -> &[Region] {
        &self.list
    }

    /// Draw a page of each region, and begin to watch it.
    pub(super) fn draw(&mut self, mut watch: impl FnMut(u64)) {
        for region in &mut self.list {
            region.watched = region.start + self.draw.below(region.pages());
            watch(region.watched);
        }
    }

    /// Count the uses of the pages that are watched.
    pub(super) fn count(&mut self, mut used: impl FnMut(u64) -> bool) {
        for region in &mut self.list {
            region.uses += u64::from(used(region.watched));
        }
    }

    /// An aggregation interval has ended: age regions, and join neighbours whose uses differ little.
    pub(super) fn merge(&mut self, limits: RegionLimits) {
        let mut alike = self.list.iter().map(|region| region.uses).max().unwrap_or(0) / 10;
        for region in &mut self.list {
            let changed = region.uses.abs_diff(region.uses_before) > alike;
            region.age = if changed { 0 } else { region.age + 1 };
        }
        loop {
            self.join(alike, limits);
            if self.list.len() as u64 <= limits.most || alike >= limits.samples {
                return;
            }
            alike = if alike < limits.samples / 2 { (alike * 2).max(1) } else { limits.samples };
        }
    }

    fn join(&mut self, alike: u64, limits: RegionLimits) {
        let pages: u64 = self.list.iter().map(Region::pages).sum();
        let largest = (pages / limits.least.max(1)).max(1);
        self.list.dedup_by(|next, region| {
            let (a, b) = (region.pages(), next.pages());
            let joins = region.uses.abs_diff(next.uses) <= alike && a + b <= largest;
            if joins {
                let mean = |one: u64, two: u64| (one * a + two * b) / (a + b);
                region.uses = mean(region.uses, next.uses);
                region.age = mean(region.age, next.age);
                region.end = next.end;
            }
            joins
        });
    }

    /// A new aggregation interval begins: count from 0, and cut regions at drawn places while there are few.
    pub(super) fn split(&mut self, limits: RegionLimits) {
        for region in &mut self.list {
            (region.uses_before, region.uses) = (region.uses, 0);
        }
        let (now, most) = (self.list.len(), limits.most as usize);
        if now > most / 2 {
            return;
        }
        let cuts = if self.before == now && now < most / 3 { 2 } else { 1 };
        self.before = now;
        for mut region in core::mem::take(&mut self.list) {
            let from = self.list.len();
            for _ in 0..cuts {
                let pages = region.pages();
                let left = (1 + self.draw.below(9)) * pages / 10;
                if pages > 2 && left > 0 && left < pages {
                    self.list.push(Region { start: region.start + left, ..region });
                    region.end = region.start + left;
                }
            }
            self.list.push(region);
            self.list[from..].reverse();
        }
    }

    /// Cut the region at a place in the list behind its first `pages` pages.
    pub(super) fn cut(&mut self, at: usize, pages: u64) {
        let region = &mut self.list[at];
        let rest = Region { start: region.start + pages, ..*region };
        region.end = rest.start;
        self.list.insert(at + 1, rest);
    }

    /// Whether they hold each of this many pages once.
    #[cfg(test)]
    fn cover(&self, pages: u64) -> bool {
        let ends = self.list.iter().map(|region| region.end);
        let starts = self.list.iter().map(|region| region.start).chain([pages]);
        starts.eq([0].into_iter().chain(ends)) && self.list.iter().all(|region| region.pages() > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: RegionLimits = RegionLimits { least: 10, most: 100, samples: 20 };

    /// Watch memory of which the pages `used` are used all the time, for some aggregation intervals.
    fn watched(pages: u64, used: impl Fn(u64) -> bool, rounds: u32) -> Regions {
        let mut regions = Regions::new(pages);
        for _ in 0..rounds {
            for _ in 0..LIMITS.samples {
                regions.draw(|page| assert!(page < pages));
                regions.count(&used);
            }
            regions.merge(LIMITS);
            assert!(regions.cover(pages) && regions.len() <= 100);
            regions.split(LIMITS);
            assert!(regions.cover(pages) && regions.len() <= 100, "{}", regions.len());
        }
        regions
    }

    #[test]
    fn regions_come_to_tell_used_from_unused_memory() {
        let regions = watched(10_000, |page| (2_000..3_000).contains(&page), 60);
        let cold = |region: &&Region| region.uses_before == 0 && region.age > 20;
        let cold: Vec<&Region> = regions.all().iter().filter(cold).collect();
        assert!(cold.iter().all(|region| region.end <= 2_050 || region.start >= 2_950), "{cold:?}");
        let pages: u64 = cold.iter().map(|region| region.pages()).sum();
        assert!(pages > 6_000, "{pages}");
    }

    #[test]
    fn a_region_has_at_most_its_part_of_all_pages() {
        let regions = watched(10_000, |_| false, 30);
        assert!(regions.all().iter().all(|region| region.pages() <= 1_000));
    }

    #[test]
    fn joined_regions_have_the_mean_of_their_uses_and_ages() {
        let mut regions = Regions::new(100);
        regions.cut(0, 25);
        for (at, (uses, age)) in [(4, 8), (8, 4)].into_iter().enumerate() {
            let region = regions.get(at).unwrap();
            (region.uses, region.age) = (uses, age);
        }
        regions.join(4, RegionLimits { least: 1, ..LIMITS });
        let [joined] = regions.all() else { panic!("{:?}", regions.all()) };
        assert_eq!((joined.start, joined.end, joined.uses, joined.age), (0, 100, 7, 5));
    }

    #[test]
    fn single_pages_are_not_cut() {
        let mut regions = Regions::new(2);
        (0..5).for_each(|_| regions.split(LIMITS));
        assert_eq!(regions.len(), 1);
    }
}
