//! What each part of MGLRU is worth: programs under MGLRU with a part left out of all, and with a part added to its
//! core.

use crate::error::{Error, Result};
use crate::grid::Grid;
use crate::record::RunRecord;
use crate::statistics::{CONFIDENCE, Change, Interval, interval, mean};
use serde::Serialize;
use std::fmt::Write;

/// Version of the JSON document.
const SCHEMA: u32 = 1;

/// All of MGLRU, as Linux 6.12 has it.
const ALL: &str = "mglru";
/// Generations alone: use is seen in the entries of what eviction meets.
const CORE: &str = "mglru+lru_gen.enabled=1+lru_gen.bloom=0+lru_gen.look_around=0+lru_gen.tiers=0+lru_gen.pid=0\
                    +lru_gen.memcg_lru=0";

/// A part: two profiles that differ by it and have all others, and two that have none of the others but what it
/// refines.
pub struct Part {
    /// For people.
    pub name: &'static str,
    left_out: [&'static str; 2],
    alone: [&'static str; 2],
}

/// Settings after those of the core.
macro_rules! core_with {
    ($settings:literal) => {
        concat!(
            "mglru+lru_gen.enabled=1+lru_gen.bloom=0+lru_gen.look_around=0+lru_gen.tiers=0+lru_gen.pid=0",
            "+lru_gen.memcg_lru=0",
            $settings
        )
    };
}

/// The core, and walks of all tables: what filters and entries that lead to tables save work of.
const WALKS: &str = core_with!("+lru_gen.enabled=3");

/// All but `min_ttl`, which makes nothing faster: it ends a program rather than take what was used lately.
pub const PARTS: [Part; 7] = [
    Part {
        name: "walks",
        left_out: ["mglru+lru_gen.enabled=1", ALL],
        alone: [CORE, core_with!("+lru_gen.enabled=3")],
    },
    Part {
        name: "bloom",
        left_out: ["mglru+lru_gen.bloom=0", ALL],
        alone: [WALKS, core_with!("+lru_gen.enabled=3+lru_gen.bloom=1")],
    },
    Part {
        name: "non-leaf",
        left_out: ["mglru+lru_gen.enabled=3", ALL],
        alone: [WALKS, core_with!("+lru_gen.enabled=7")],
    },
    Part {
        name: "look-around",
        left_out: ["mglru+lru_gen.look_around=0", ALL],
        alone: [CORE, core_with!("+lru_gen.look_around=1")],
    },
    Part {
        name: "tiers",
        left_out: ["mglru+lru_gen.tiers=0", ALL],
        alone: [CORE, core_with!("+lru_gen.tiers=1")],
    },
    Part { name: "pid", left_out: ["mglru+lru_gen.pid=0", ALL], alone: [CORE, core_with!("+lru_gen.pid=1")] },
    Part {
        name: "memcg-lru",
        left_out: ["mglru+lru_gen.memcg_lru=0", ALL],
        alone: [CORE, core_with!("+lru_gen.memcg_lru=1")],
    },
];

/// Programs; SIZE is replaced.
pub const PROGRAMS: [&str; 15] = [
    "memcached:SIZE",
    "memcached:SIZE:gaussian",
    "redis:SIZE",
    "fio:SIZE",
    "fio:SIZE:zipf",
    "mongodb:SIZE",
    "cassandra:SIZE",
    "lsm:SIZE",
    "get-scan:SIZE",
    "postgresql:SIZE",
    "mariadb:SIZE",
    "terasort:SIZE",
    "spark-sort:SIZE",
    "zipf-file:SIZE:4",
    "two-groups:SIZE",
];

/// All profiles that are needed, each once: first classic and all of MGLRU.
pub fn profiles() -> Vec<&'static str> {
    let mut names = vec!["classic", ALL];
    for name in PARTS.iter().flat_map(|part| part.left_out.into_iter().chain(part.alone)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// What a step is worth, in per cent of the side without it; positive: the metric becomes smaller.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Worth {
    /// The change; `null` if the side without it has 0.
    pub pct: Option<f64>,
    /// Its interval; `null` with one run.
    pub ci_pct: Option<Interval>,
    /// Can it be told from nothing?
    pub significant: bool,
}

impl Worth {
    fn of(without: &[f64], with: &[f64]) -> Worth {
        let change = Change::of(without, with);
        let pct = |ratio: f64| (1.0 - ratio) * 100.0;
        Worth {
            pct: change.ratio.map(pct),
            ci_pct: change.ratio_interval.map(|[low, high]| [pct(high), pct(low)]),
            significant: change.is_significant(),
        }
    }

    /// The mean over programs, and its interval.
    fn over(programs: &[Worth]) -> Worth {
        let values: Vec<f64> = programs.iter().filter_map(|worth| worth.pct).collect();
        let ci_pct = interval(&values);
        let significant = ci_pct.is_some_and(|[low, high]| low > 0.0 || high < 0.0);
        Worth { pct: (!values.is_empty()).then(|| mean(&values)), ci_pct, significant }
    }

    fn text(&self) -> String {
        let Some(pct) = self.pct else { return "n/a".into() };
        let half = self.ci_pct.map(|[low, high]| format!(" ±{:.1}", (high - low) / 2.0)).unwrap_or_default();
        format!("{pct:+.1}{half}{}", if self.significant { "*" } else { " " })
    }
}

/// One program's row of both tables.
#[derive(Debug, Serialize)]
pub struct ProgramRow {
    /// As `pagefold run` takes it.
    pub program: String,
    /// All of MGLRU against classic.
    pub mglru: Worth,
    /// By part: what all others gain by it.
    pub left_out: Vec<Worth>,
    /// By part: what the core gains by it.
    pub alone: Vec<Worth>,
}

impl ProgramRow {
    /// From the runs of a program under [`profiles`].
    pub fn of(program: &str, metric: &str, runs: &[RunRecord]) -> Result<ProgramRow> {
        let unknown = || {
            Error::Input(format!(
                "--metric: no metric or counter '{metric}' ('pagefold list counters', 'list metrics')"
            ))
        };
        let values = |profile: &str| {
            let of_profile = runs.iter().filter(|run| run.profile == profile);
            of_profile.map(|run| run.value(metric).ok_or_else(unknown)).collect::<Result<Vec<f64>>>()
        };
        let step = |sides: [&str; 2]| Ok(Worth::of(&values(sides[0])?, &values(sides[1])?));
        Ok(ProgramRow {
            program: program.to_owned(),
            mglru: step(["classic", ALL])?,
            left_out: PARTS.iter().map(|part| step(part.left_out)).collect::<Result<_>>()?,
            alone: PARTS.iter().map(|part| step(part.alone)).collect::<Result<_>>()?,
        })
    }
}

/// Both tables.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// Version of this document.
    pub schema: u32,
    /// Of Pagefold.
    pub version: String,
    /// Of Pagefold's source.
    pub commit: String,
    /// Always `parts`.
    pub command: String,
    /// Preset or file.
    pub machine: String,
    /// As it was given.
    pub memory: String,
    /// The first seed.
    pub seed: u64,
    /// Seeds for each program.
    pub runs: u32,
    /// What is compared.
    pub metric: String,
    /// Probability of intervals.
    pub confidence: f64,
    /// Names of the parts, in the order of the rows' lists.
    pub parts: Vec<&'static str>,
    /// Program by program.
    pub programs: Vec<ProgramRow>,
    /// How long it took on this computer.
    pub host_seconds: f64,
}

impl Outcome {
    /// Without programs.
    pub fn new(machine: &str, memory: String, seed: u64, runs: u32, metric: &str) -> Outcome {
        Outcome {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: env!("PAGEFOLD_COMMIT").to_owned(),
            command: "parts".to_owned(),
            machine: machine.to_owned(),
            memory,
            seed,
            runs,
            metric: metric.to_owned(),
            confidence: CONFIDENCE,
            parts: PARTS.iter().map(|part| part.name).collect(),
            programs: Vec::new(),
            host_seconds: 0.0,
        }
    }

    /// As text.
    pub fn render(&self) -> String {
        let Outcome { machine, memory, runs, seed, metric, .. } = self;
        let mut text =
            format!("machine {machine}, memory {memory}, {runs} runs (seeds from {seed}), {metric}\n");
        let gained = "smaller by, in per cent of the side without it; * = told from nothing";
        let _ = writeln!(text, "\nWhat each part adds to all others ({gained}):\n");
        text.push_str(&self.grid(true));
        let _ = writeln!(text, "\nWhat each part adds to the core alone:\n");
        text.push_str(&self.grid(false));
        text
    }

    fn grid(&self, left_out: bool) -> String {
        let first = if left_out { &["program", "mglru"][..] } else { &["program"] };
        let mut grid = Grid::new(first.iter().chain(&self.parts).copied());
        let of = |row: &ProgramRow| -> Vec<Worth> {
            let parts = if left_out { &row.left_out } else { &row.alone };
            left_out.then_some(row.mglru).into_iter().chain(parts.iter().copied()).collect()
        };
        let rows: Vec<Vec<Worth>> = self.programs.iter().map(of).collect();
        for (row, cells) in self.programs.iter().zip(&rows) {
            grid.row([row.program.clone()].into_iter().chain(cells.iter().map(Worth::text)));
        }
        if rows.len() > 1 {
            let column = |at: usize| rows.iter().map(|row| row[at]).collect::<Vec<Worth>>();
            let all = (0..rows[0].len()).map(|at| Worth::over(&column(at)).text());
            grid.row(["mean of programs".to_owned()].into_iter().chain(all));
        }
        grid.render(|column| column == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Program;
    use crate::metrics::tests::run;
    use crate::profile::Profile;

    #[test]
    fn profiles_and_programs_are_known() {
        assert!(CORE == core_with!("") && profiles().len() == 17, "{:?}", profiles());
        assert!(profiles().iter().all(|name| Profile::parse(name, &[]).is_ok()));
        assert!(PROGRAMS.iter().all(|name| Program::find(&name.replace("SIZE", "8M")).is_ok()));
    }

    /// Each pair differs in one knob, and a part that is left out is one that is added alone.
    #[test]
    fn sides_differ_by_their_part() {
        for part in &PARTS {
            let settings = |name: &str| Profile::parse(name, &[]).unwrap().settings();
            for [without, with] in [part.left_out, part.alone] {
                let (without, mut with) = (settings(without), settings(with));
                with.retain(|knob, value| without.get(knob) != Some(value));
                let mut changed: Vec<String> = with.into_keys().collect();
                // What is left out of all is set on the side without it, and at its default on the other.
                changed.extend(without.into_keys().filter(|knob| part.left_out[0].contains(knob.as_str())));
                changed.retain(|knob| knob != "reclaim.policy");
                changed.dedup();
                assert_eq!(changed.len(), 1, "{}: {changed:?}", part.name);
            }
        }
    }

    #[test]
    fn a_part_is_worth_what_the_side_without_it_takes_more() {
        let runs: Vec<RunRecord> = profiles()
            .into_iter()
            .flat_map(|profile| (1..=3).map(move |seed| (profile, seed)))
            .map(|(profile, seed)| {
                let nanos =
                    if profile.contains("tiers=0") && !profile.contains("tiers=1") { 200 } else { 100 };
                run(profile, seed, nanos + seed, &[])
            })
            .collect();
        let row = ProgramRow::of("zipf:8M", "run_time", &runs).unwrap();
        let tiers = PARTS.iter().position(|part| part.name == "tiers").unwrap();
        for (at, worth) in row.left_out.iter().chain(&row.alone).enumerate() {
            let expected = if at % PARTS.len() == tiers { 49.5 } else { 0.0 };
            assert!((worth.pct.unwrap() - expected).abs() < 0.1, "{at}: {worth:?}");
            assert_eq!(worth.significant, expected > 0.0, "{at}");
        }
        assert!(
            ProgramRow::of("zipf:8M", "no_such_thing", &runs)
                .unwrap_err()
                .to_string()
                .contains("no_such_thing")
        );
    }
}
