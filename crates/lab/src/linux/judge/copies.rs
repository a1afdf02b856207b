//! Counts that repeat others: they are one observation, and judged once.
//!
//! A row repeats an earlier one if both have the same number of pages in every run, of Linux and ours, up to 1 %: then
//! their errors are the same, too. And it repeats two earlier ones of its family (`pgscan_anon` and `pgscan_file`,
//! `numa_local` and `numa_other`) if it is their sum, up to one page in a thousand, because more pairs could fit by
//! chance. KiB count as pages of four. Eight pages may be the kernel's own, but never more than 2 %.
//!
//! A difference is no copy: a part may be far off while its total and the other part are near. So parts come before
//! their total.
//!
//! The rule looks at one side at a time, and at every run by itself. That both sides have the same *ratio* of two rows
//! would not do: if all our counts were right, they all would have it.

use super::counts::KIB;

/// KiB of a page.
const PAGE_KIB: f64 = 4.0;
/// What the kernel's own work may add, in pages.
pub const OWN_WORK: f64 = 8.0;

/// A row's values in pages.
pub struct Paged {
    metric: String,
    unit: String,
    /// One for each run, Linux's first.
    pages: Vec<f64>,
}

impl Paged {
    /// Of a row with these values.
    pub fn new(metric: &str, unit: &str, values: impl Iterator<Item = f64>) -> Paged {
        let divisor = if unit == KIB { PAGE_KIB } else { 1.0 };
        let pages = values.map(|value| value / divisor).collect();
        Paged { metric: metric.to_owned(), unit: unit.to_owned(), pages }
    }

    fn family(&self) -> &str {
        self.metric.split('_').next().unwrap_or(&self.metric)
    }

    /// Whether each run has as many pages as `made` says, up to this share of them.
    fn is(&self, share: f64, made: impl Fn(usize) -> f64) -> bool {
        let near = |(run, &pages): (usize, &f64)| {
            (pages - made(run)).abs() <= (pages * share).max(OWN_WORK.min(pages / 50.0))
        };
        self.pages.iter().enumerate().all(near)
    }

    /// What `self` repeats of the earlier rows.
    pub fn repeats(&self, earlier: &[Paged]) -> Option<String> {
        if let Some(same) = earlier.iter().find(|row| self.is(0.01, |run| row.pages[run])) {
            let factor = match (self.unit == KIB, same.unit == KIB) {
                (true, false) => "4 x ",
                (false, true) => "1/4 x ",
                _ => "",
            };
            return Some(format!("{factor}{}", same.metric));
        }
        let family: Vec<&Paged> = earlier.iter().filter(|row| row.family() == self.family()).collect();
        family.iter().find_map(|one| {
            let others = family.iter().filter(|other| other.metric != one.metric);
            others.into_iter().find_map(|other| {
                let sum = self.is(0.001, |run| one.pages[run] + other.pages[run]);
                sum.then(|| format!("{} + {}", one.metric, other.metric))
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(metric: &str, values: [f64; 2]) -> Paged {
        let unit = if metric.starts_with("pgpg") { KIB } else { "" };
        Paged::new(metric, unit, values.into_iter())
    }

    #[test]
    fn a_row_repeats_what_has_its_pages_on_both_sides() {
        let earlier = [row("pgmajfault", [900.0, 870.0]), row("pswpin", [5000.0, 4800.0])];
        let repeats = |metric, values| row(metric, values).repeats(&earlier);
        assert_eq!(repeats("workingset_refault_anon", [5000.0, 4800.0]).as_deref(), Some("pswpin"));
        assert_eq!(repeats("pgpgin", [20_024.0, 19_200.0]).as_deref(), Some("4 x pswpin"));
        assert_eq!(repeats("pgsteal", [5020.0, 4790.0]).as_deref(), Some("pswpin"), "but for a few");
        assert_eq!(repeats("pswpout", [5000.0, 4900.0]), None, "on one side alone");
        assert_eq!(repeats("pswpout", [10_000.0, 9_600.0]), None, "both sides have the same ratio");
    }

    #[test]
    fn a_row_repeats_the_sum_of_its_family_but_no_difference() {
        let earlier = [row("pgscan_anon", [4000.0, 4500.0]), row("pgscan_file", [3000.0, 3500.0])];
        let repeats = |metric, values| row(metric, values).repeats(&earlier);
        assert_eq!(repeats("pgscan", [7000.0, 8000.0]).as_deref(), Some("pgscan_anon + pgscan_file"));
        assert_eq!(repeats("pgscan", [7000.0, 7900.0]), None);
        assert_eq!(repeats("pgscan_rest", [1000.0, 1000.0]), None, "a difference may be far off");
        assert_eq!(repeats("pgsteal", [7000.0, 8000.0]), None, "of another family");
    }

    #[test]
    fn what_is_small_must_be_the_same() {
        let earlier = [row("pgreuse", [100.0, 103.0])];
        assert_eq!(row("pgactivate", [104.0, 103.0]).repeats(&earlier), None);
        assert_eq!(row("pgactivate", [101.0, 103.0]).repeats(&earlier).as_deref(), Some("pgreuse"));
    }
}
