//! The result: tables, sentences and lines.

use super::super::worth::Worth;
use super::apply::{Lines, SYSCTL, TMPFILES};
use super::judge::{Judged, Judgement, LEAST, Outcome};
use super::space::{Setting, Space};
use crate::document::Document;
use crate::grid::Grid;
use crate::human;
use crate::statistics::CONFIDENCE;
use serde::Serialize;
use std::fmt::Write;

/// A setting that the search has tried.
#[derive(Clone, Debug, Serialize)]
pub struct Tried {
    /// As `pagefold compare` takes it.
    pub profile: String,
    /// Its groups, as `--group` takes them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub group: Vec<String>,
    /// Beside the base, on the seeds of the search; `null` if a run did not come to its end.
    pub worth: Option<Worth>,
    /// Why one did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// Its values.
    #[serde(skip)]
    pub setting: Setting,
}

/// A knob or a limit that was searched.
#[derive(Clone, Debug, Serialize)]
pub struct KnobRow {
    /// As `--knob` names it.
    pub knob: String,
    /// The values that it could have.
    pub values: Vec<String>,
    /// The base's.
    pub base: String,
    /// That of the best setting of the search; `null` if there is none.
    pub best: Option<String>,
    /// What the change adds to the other changes of the best setting, on the unseen seeds; `null` if it was not
    /// measured.
    pub adds: Option<Worth>,
    /// That of the setting that is recommended; `null` if none is.
    pub recommended: Option<String>,
}

/// A setting that was judged.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// As `pagefold compare` takes it.
    pub profile: String,
    /// Its groups, as `--group` takes them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub group: Vec<String>,
    /// Beside the base, on the seeds of the search; `null` if the search has not tried it.
    pub search: Option<Worth>,
    /// The same on the unseen seeds; `null` if not all of these runs are done, or if one did not come to its end.
    pub unseen: Option<Worth>,
    #[serde(skip)]
    name: String,
    #[serde(skip)]
    why: Option<String>,
}

/// The seeds of a half: the first and the last.
pub type Seeds = [u64; 2];

/// What was asked, and how the search went.
pub struct Found<'a> {
    /// What is searched.
    pub space: &'a Space,
    /// The settings that were tried, in their order.
    pub tried: Vec<Tried>,
    /// What the unseen seeds say of the best of them, if one is better than the base.
    pub judgement: Option<Judgement>,
    /// Whether it was interrupted.
    pub interrupted: bool,
}

/// The result; its keys are a promise (docs/json.md).
#[derive(Clone, Debug, Serialize)]
pub struct Tuning {
    /// As on the command line.
    pub program: String,
    /// A preset or a file.
    pub machine: String,
    /// Bytes of memory; `null`: all that the machine has.
    pub memory: Option<u64>,
    /// The profile that it begins with.
    pub base: String,
    /// Settings for all profiles.
    pub set: Vec<String>,
    /// The groups that runs begin with.
    pub group: Vec<String>,
    /// Swap areas instead of the machine's own.
    pub swap: Vec<String>,
    /// The metric that is made better.
    pub metric: String,
    /// The seeds that the search had.
    pub search_seeds: Seeds,
    /// Those that it did not see.
    pub unseen_seeds: Seeds,
    /// The most runs of the search.
    pub budget: u32,
    /// Probability of intervals.
    pub confidence: f64,
    /// What is put back if its interval holds 0: what adds less than this, in per cent.
    pub least_pct: f64,
    /// Whether it was interrupted: then not all is there.
    pub interrupted: bool,
    /// Settings that the search has tried, in their order.
    pub tried: Vec<Tried>,
    /// The knobs.
    pub knobs: Vec<KnobRow>,
    /// The best setting of the search; `null` if none was better than the base.
    pub best: Option<Verdict>,
    /// The setting that is recommended; `null` if none is.
    pub recommended: Option<Verdict>,
    /// Of what the search has seen of the best setting, the share that the unseen seeds show, in per cent.
    pub left_pct: Option<f64>,
    /// What the numbers say.
    pub advice: String,
    /// Lines for Linux.
    #[serde(flatten)]
    pub lines: Lines,
    /// Seconds on this computer.
    pub host_seconds: f64,
    #[serde(skip)]
    judged: bool,
}

/// Under what it was found; see the fields of [`Tuning`] with these names.
pub struct Conditions {
    /// The metric.
    pub metric: String,
    /// Bytes.
    pub memory: Option<u64>,
    /// Seeds of the search.
    pub search_seeds: Seeds,
    /// The others.
    pub unseen_seeds: Seeds,
    /// Runs.
    pub budget: u32,
    /// Seconds.
    pub host_seconds: f64,
}

impl Tuning {
    /// The result of what was found.
    pub fn of(found: Found, conditions: Conditions) -> Tuning {
        let Found { space, tried, judgement, interrupted } = found;
        let recommended = judgement.as_ref().and_then(Judgement::recommended);
        let verdict = |judged: &Judged| Verdict::of(space, judged, &tried);
        let best = judgement.as_ref().map(|judgement| verdict(&judgement.best));
        let mut tuning = Tuning {
            program: space.of.program.clone(),
            machine: space.of.machine.clone(),
            memory: conditions.memory,
            base: space.of.profile.clone(),
            set: space.of.set.clone(),
            group: space.what(&space.base()).group,
            swap: space.of.swap.clone(),
            metric: conditions.metric,
            search_seeds: conditions.search_seeds,
            unseen_seeds: conditions.unseen_seeds,
            budget: conditions.budget,
            confidence: CONFIDENCE,
            least_pct: LEAST,
            interrupted,
            knobs: knobs(space, judgement.as_ref()),
            left_pct: best.as_ref().and_then(Verdict::left),
            recommended: recommended.map(verdict),
            lines: recommended.map(|judged| Lines::of(space, &judged.setting)).unwrap_or_default(),
            advice: String::new(),
            judged: judgement.as_ref().is_none_or(|judgement| judgement.wanted.is_empty()) && !interrupted,
            host_seconds: conditions.host_seconds,
            best,
            tried,
        };
        tuning.advice = tuning.advice(space, judgement.as_ref());
        tuning
    }

    fn advice(&self, space: &Space, judgement: Option<&Judgement>) -> String {
        let (base, metric, tried) = (&self.base, &self.metric, self.tried.len() as u64);
        let settings = human::plural(tried, "setting", "settings");
        let Some((best, judgement)) = self.best.as_ref().zip(judgement) else {
            let so_far = if self.interrupted { " so far" } else { "" };
            return format!(
                "Nothing wins: of {settings} that the search tried{so_far}, none has a better {metric} than {base}."
            );
        };
        let seen = best.search.and_then(|worth| worth.pct).unwrap_or_default();
        let name = &best.name;
        if !self.judged {
            let unseen = best.unseen.map_or("nothing is known of it".to_owned(), |worth| {
                format!("the change is {}, and not all is known of what adds to it", beside(worth))
            });
            return format!(
                "Interrupted: of {settings} so far, the best, {name}, has a better {metric} than {base} by {seen:.1} % \
                 on the seeds of the search; on those that the search did not see {unseen}. Nothing is recommended."
            );
        }
        let Some(recommended) = &self.recommended else {
            let why = match (&best.why, best.unseen) {
                (Some(why), _) => format!("does not come to its end: {why}"),
                (None, Some(worth)) => format!("is no better beyond luck: {}", beside(worth)),
                (None, None) => "was not measured".to_owned(),
            };
            return format!(
                "Nothing wins: the best of {settings}, {name}, has a better {metric} than {base} by {seen:.1} % on the \
                 seeds of the search, but on those that the search did not see it {why}. Nothing is recommended."
            );
        };
        let mut text = format!(
            "{} has a better {metric} than {base}: {} on the seeds that the search did not see.",
            recommended.name,
            recommended.unseen.map(beside).unwrap_or_default()
        );
        if let Some(left) = self.left_pct {
            let _ = write!(
                text,
                " Of the {seen:.1} % that the search saw of its best setting, {left:.0} % are left there."
            );
        }
        text + &self.put_back(space, judgement) + &self.not_linux()
    }

    /// What of the best setting is not recommended, and why.
    fn put_back(&self, space: &Space, judgement: &Judgement) -> String {
        if judgement.none_adds() {
            return " No knob alone adds anything to the others: they can replace each other, and stay."
                .to_owned();
        }
        let Some(rest) = &judgement.rest else { return String::new() };
        let all = space.changed(&judgement.best.setting);
        let gone: Vec<&str> = all
            .iter()
            .filter(|&&axis| rest.setting.0[axis] == space.axes[axis].base)
            .map(|&axis| &space.axes[axis].name[..])
            .collect();
        let (gone, one) = (gone.join(", "), gone.len() == 1);
        match (judgement.rest_will_do, one) {
            (true, true) => format!(" {gone} adds nothing to that and is put back."),
            (true, false) => format!(" {gone} add nothing to that and are put back."),
            (false, _) => format!(
                " Without any one of {gone} it is as good, but not without all of them: they can replace each other, \
                 and stay."
            ),
        }
    }

    fn not_linux(&self) -> String {
        match &self.lines.not_linux[..] {
            [] => String::new(),
            these => format!(" Linux cannot do this: it has no {}.", these.join(", no ")),
        }
    }

    fn heading(&self) -> String {
        let Tuning { program, machine, base, .. } = self;
        let memory =
            self.memory.map_or("all of the machine's".to_owned(), |bytes| human::bytes(bytes as f64));
        let mut facts = vec![("program", program.clone()), ("machine", machine.clone()), ("memory", memory)];
        facts.extend(self.swap.iter().map(|area| ("swap", area.clone())));
        facts.extend(self.group.iter().map(|group| ("group", group.clone())));
        facts.extend(self.set.iter().map(|setting| ("set", setting.clone())));
        facts.push(("base", base.clone()));
        let [first, last] = self.search_seeds;
        let settings = human::plural(self.tried.len() as u64, "setting", "settings");
        facts.push((
            "search",
            format!("{settings} of {} knobs, with seeds {first}..{last}", self.knobs.len()),
        ));
        let [first, last] = self.unseen_seeds;
        facts.push(("verdict", format!("seeds {first}..{last}, which the search did not see")));
        facts.iter().map(|(name, value)| format!("{name:<9}{value}\n")).collect()
    }

    fn verdicts(&self, width: usize) -> String {
        let mut grid = Grid::new([&self.metric[..], "search", "unseen", "95% interval"]);
        let recommended = self.recommended.iter().map(|verdict| ("recommended", verdict));
        for (name, verdict) in
            self.best.iter().map(|verdict| ("best of the search", verdict)).chain(recommended)
        {
            let search = verdict.search.map_or("-".to_owned(), |worth| change(&worth));
            let unseen = verdict.unseen.map_or("-".to_owned(), |worth| change(&worth));
            grid.row([name.to_owned(), search, unseen, interval(verdict.unseen)]);
        }
        grid.render(|column| column == 0, width)
    }

    fn knob_table(&self, width: usize) -> String {
        let headings = ["knob", "base", "best of the search", "adds", "95% interval", "recommended"];
        let mut grid = Grid::new(headings);
        for row in &self.knobs {
            let best = row.best.as_ref().filter(|best| **best != row.base).cloned();
            let recommended = match (&row.recommended, &best) {
                (Some(value), Some(_)) if *value == row.base => "put back".to_owned(),
                (Some(value), Some(_)) => value.clone(),
                _ => "-".to_owned(),
            };
            let adds = row.adds.map_or("-".to_owned(), |worth| change(&worth));
            let best = best.unwrap_or_else(|| "-".to_owned());
            grid.row([row.knob.clone(), row.base.clone(), best, adds, interval(row.adds), recommended]);
        }
        grid.render(|column| column == 0, width)
    }
}

impl Verdict {
    fn of(space: &Space, judged: &Judged, tried: &[Tried]) -> Verdict {
        let what = space.what(&judged.setting);
        Verdict {
            profile: what.profile,
            group: what.group,
            search: tried.iter().find(|tried| tried.setting == judged.setting).and_then(|tried| tried.worth),
            unseen: judged.worth.worth(),
            name: space.name(&judged.setting),
            why: match &judged.worth {
                Outcome::Missing(why) => Some(why.clone()),
                Outcome::Open | Outcome::Worth(_) => None,
            },
        }
    }

    /// The share of what the search has seen that is left, in per cent.
    fn left(&self) -> Option<f64> {
        let (seen, unseen) = (self.search?.pct?, self.unseen?.pct?);
        (seen > 0.0).then(|| 100.0 * unseen / seen)
    }
}

fn knobs(space: &Space, judgement: Option<&Judgement>) -> Vec<KnobRow> {
    let recommended = judgement.and_then(Judgement::recommended);
    let row = |(at, axis): (usize, &super::axis::Axis)| {
        let part = judgement.and_then(|judgement| judgement.parts.iter().find(|part| part.axis == at));
        KnobRow {
            knob: axis.name.clone(),
            values: (0..axis.values.len()).map(|at| axis.shown(at)).collect(),
            base: axis.shown(axis.base),
            best: judgement.map(|judgement| axis.shown(judgement.best.setting.0[at])),
            adds: part.and_then(|part| part.adds.worth()),
            recommended: recommended.map(|judged| axis.shown(judged.setting.0[at])),
        }
    };
    space.axes.iter().enumerate().map(row).collect()
}

/// A change and its interval, in a sentence.
fn beside(worth: Worth) -> String {
    let change = worth.pct.map_or("n/a".to_owned(), |pct| format!("{pct:+.1} %"));
    let interval = worth.ci_pct.map(|[low, high]| format!(" (95 % interval: {low:+.1} to {high:+.1} %)"));
    change + &interval.unwrap_or_default()
}

fn change(worth: &Worth) -> String {
    human::change(worth.pct, None, worth.significant)
}

fn interval(worth: Option<Worth>) -> String {
    worth.and_then(|worth| worth.ci_pct).map_or("-".to_owned(), human::percents)
}

impl Document for Tuning {
    const COMMAND: &'static str = "tune";

    fn text(&self, width: usize) -> String {
        let mut text = self.heading();
        if self.best.is_some() {
            let _ = write!(text, "\n{}\n{}", self.knob_table(width), self.verdicts(width));
        }
        let _ = write!(text, "\n{}", human::wrapped(&self.advice, 0, width));
        let Lines { apply, sysctl_d, tmpfiles_d, undo, .. } = &self.lines;
        let [sysctl, tmpfiles] = [SYSCTL, TMPFILES].map(|file| format!("At each boot, in {file}:"));
        for (title, lines) in [
            ("To apply it:", apply),
            (&sysctl, sysctl_d),
            (&tmpfiles, tmpfiles_d),
            ("To take it back:", undo),
        ] {
            if !lines.is_empty() {
                let lines: String = lines.iter().map(|line| format!("  {line}\n")).collect();
                let _ = write!(text, "\n{title}\n{lines}");
            }
        }
        if self.best.is_some() {
            text += "\nchange: + is better; * = the 95% interval of the difference over the seeds excludes no change\n";
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::super::judge::Half;
    use super::super::judge::tests::measure;
    use super::super::space::tests::space;
    use super::*;
    use std::collections::BTreeMap;

    /// The result for a best setting whose run time is this on seeds of the search, and that on the others.
    fn tuning(
        best: Setting,
        search: impl Fn(&Setting) -> u64,
        unseen: impl Fn(&Setting) -> u64,
        stop: bool,
    ) -> Tuning {
        let space = space();
        let [seen, other] = [(1, 5), (6, 5)].map(|seeds| Half { space: &space, metric: "run_time", seeds });
        let mut done = BTreeMap::new();
        measure(&mut done, seen, std::slice::from_ref(&best), search);
        let base = space.base();
        let what = space.what(&best);
        let worth = seen.worth(&base, &best, &done).worth();
        let tried = vec![Tried {
            profile: what.profile,
            group: what.group,
            worth,
            failed: None,
            setting: best.clone(),
        }];
        let judgement = worth.filter(Worth::wins).map(|_| {
            loop {
                let judgement = Judgement::of(other, best.clone(), &done);
                if judgement.wanted.is_empty() || stop {
                    break judgement;
                }
                measure(&mut done, other, &judgement.wanted, &unseen);
            }
        });
        let found = Found { space: &space, tried, judgement, interrupted: stop };
        let conditions = Conditions {
            metric: "run_time".into(),
            memory: Some(40 << 20),
            search_seeds: [1, 5],
            unseen_seeds: [6, 10],
            budget: 100,
            host_seconds: 0.0,
        };
        Tuning::of(found, conditions)
    }

    fn less(setting: &Setting, by: u64) -> u64 {
        let lazy = if setting.0[2] == 1 { 2000 } else { 0 };
        100_000 - lazy - if setting.0[0] == 2 { by } else { 0 }
    }

    #[test]
    fn winner_is_told_with_its_interval_its_parts_and_its_lines() {
        let best = Setting(vec![2, 0, 1, 0]);
        let tuning = tuning(best, |setting| less(setting, 20_000), |setting| less(setting, 10_000), false);
        let text = tuning.text(100);
        let expected = "vm.swappiness=100 tlb.unmap=lazy has a better run_time than classic: +11.9 %";
        assert!(text.contains(expected), "{text}");
        assert!(
            tuning
                .advice
                .contains("Of the 21.9 % that the search saw of its best setting, 54 % are left there."),
            "{text}"
        );
        assert!(tuning.advice.contains("vm.page-cluster adds nothing to that and is put back."), "{text}");
        assert!(tuning.advice.ends_with("Linux cannot do this: it has no tlb.unmap=lazy."), "{text}");
        assert!(text.contains("\n  sysctl -w vm.swappiness=100\n"), "{text}");
        assert!(
            text.contains("\n  sysctl -w vm.swappiness=60\n  rm -f /etc/sysctl.d/90-pagefold.conf\n"),
            "{text}"
        );
        let put_back = text.lines().find(|line| line.starts_with("vm.page-cluster")).unwrap();
        assert!(put_back.ends_with("put back"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }

    #[test]
    fn what_the_search_alone_has_seen_is_not_recommended() {
        let best = Setting(vec![2, 3, 0, 0]);
        let tuning = tuning(best, |setting| less(setting, 5000), |setting| less(setting, 0), false);
        assert!(
            tuning.advice.starts_with("Nothing wins: the best of 1 setting, vm.swappiness=100,"),
            "{}",
            tuning.advice
        );
        assert!(tuning.advice.contains("is no better beyond luck") && tuning.recommended.is_none());
        assert_eq!(tuning.lines, Lines::default());
    }

    #[test]
    fn search_without_a_better_setting_says_so() {
        let tuning = tuning(Setting(vec![2, 3, 0, 0]), |setting| 110_000 - less(setting, 5000), |_| 1, false);
        assert!(
            tuning
                .advice
                .contains("of 1 setting that the search tried, none has a better run_time than classic")
        );
        assert!(tuning.text(80).lines().count() < 12, "{}", tuning.text(80));
    }

    #[test]
    fn what_is_not_judged_yet_is_not_recommended() {
        let tuning = tuning(Setting(vec![2, 3, 0, 0]), |setting| less(setting, 5000), |_| 1, true);
        assert!(
            tuning.advice.starts_with("Interrupted: of 1 setting so far, the best,"),
            "{}",
            tuning.advice
        );
        assert!(tuning.recommended.is_none() && tuning.best.unwrap().unseen.is_none());
    }
}
