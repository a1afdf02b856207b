//! What the random program has met, over all cases.

use std::collections::BTreeMap;

/// This many cases of the random program meet everything.
const ENOUGH: u64 = 1000;

/// What is never met, and why that is no fault.
const EXCEPT: &[(&str, &str)] = &[
    (
        "vmstat:pgskip_",
        "a zone's pages are skipped only for a request of a lower zone, which programs make none of",
    ),
    (
        "vmstat:policy_wrong",
        "only policies that propose are checked, and those of the soak say nothing wrong",
    ),
    ("vmstat:policy_fallback", "only policies that propose can need it"),
    (
        "vmstat:tier_balanced",
        "no machine of the soak tells of loads; the simulator's tests have one that does",
    ),
];

/// What the few fixed cases need not meet, and why.
const RARE: &[(&str, &str)] = &[
    ("vmstat:allocstall_dma32", "few machines have nothing but that zone, and little of it"),
    (
        "vmstat:thp_migration_fail",
        "a user of a 2 MiB folio seldom holds it for as long as a migration tries to get it",
    ),
    ("vmstat:tier_move_aborted", "it takes a store between a page's copy and the look at what was written"),
    ("vmstat:tier_samples_lost", "it takes more samples than a buffer holds between two looks"),
    ("vmstat:workingset_nodereclaim", "it takes more evicted pages than the cases have time for"),
];

/// A set of cases.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Set {
    /// Any cases, by their seeds.
    #[default]
    Random,
    /// The same few each time.
    Fixed,
}

/// Sums by name.
#[derive(Default)]
pub struct Coverage {
    set: Set,
    cases: u64,
    sums: BTreeMap<String, u64>,
}

impl Coverage {
    /// A coverage in which nothing was met yet.
    pub fn of(set: Set) -> Coverage {
        Coverage { set, ..Coverage::default() }
    }

    /// Add the counts in the JSON of a run, if it was one of the random program.
    pub fn add(&mut self, json: &str) {
        let Some((_, rest)) = json.split_once("\"covered\":") else { return };
        let Some((inside, _)) = rest.trim_start().trim_start_matches('{').split_once('}') else { return };
        self.cases += 1;
        for line in inside.split(',') {
            let Some((name, times)) = line.rsplit_once(':') else { continue };
            let name = name.trim().trim_matches('"').to_owned();
            *self.sums.entry(name).or_insert(0) += times.trim().parse::<u64>().unwrap_or(0);
        }
    }

    /// What was never met, except for what need not be.
    fn missing(&self) -> Vec<&str> {
        let rare = if self.set == Set::Fixed { RARE } else { &[] };
        let excepted = |name: &str| EXCEPT.iter().chain(rare).any(|(except, _)| name.starts_with(except));
        let never = self.sums.iter().filter(|(name, times)| **times == 0 && !excepted(name));
        never.map(|(name, _)| name.as_str()).collect()
    }

    /// Print all sums. Returns `false` if something was never met that this set, or this many cases, must meet.
    pub fn report(&self) -> bool {
        if self.cases == 0 {
            return true;
        }
        println!("met by {} cases of the random program:", self.cases);
        for (name, times) in self.sums.iter().filter(|(_, times)| **times > 0) {
            println!("{times:>14} {name}");
        }
        let missing = self.missing();
        for name in &missing {
            println!("{:>14} {name}", "never");
        }
        let enough = self.set == Set::Fixed || self.cases >= ENOUGH;
        let fails = !missing.is_empty() && enough;
        if fails {
            println!("FAILED: {} of what can be met never was", missing.len());
        }
        !fails
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_summed_and_missing_names_reported() {
        let mut coverage = Coverage::default();
        coverage.add(r#"{ "oracle": {"checked": 3} }"#);
        assert_eq!(coverage.cases, 0);
        for times in [2, 3] {
            coverage.add(&format!(
                "{{ \"covered\": {{\n \"chaos:mmap/done\": {times},\n \"vmstat:pgfault\": 0,\n \"vmstat:policy_fallback\": 0\n }}, \
                 \"x\": 1 }}"
            ));
        }
        assert_eq!(coverage.sums["chaos:mmap/done"], 5);
        assert_eq!(coverage.missing(), ["vmstat:pgfault"]);
        assert!(coverage.report(), "two cases need not meet everything");
        coverage.cases = ENOUGH;
        assert!(!coverage.report());
        let few = |name: &str| {
            let mut few = Coverage::of(Set::Fixed);
            few.add(&format!("{{ \"covered\": {{ \"vmstat:{name}\": 0 }} }}"));
            few.report()
        };
        assert!(few("allocstall_dma32") && !few("pgfault"));
    }
}
