//! The parts of MGLRU: a sweep over programs and profiles. Programs run under all of MGLRU, without each of its parts,
//! and with each part added to its core.

use super::plan::{Sweep, What};
use super::store::{Done, Finished, Key};
use super::worth::Worth;
use crate::document::Document;
use crate::grid::Grid;
use crate::statistics::CONFIDENCE;
use serde::Serialize;
use std::collections::BTreeMap;

/// All of MGLRU, as Linux 6.12 has it.
const ALL: &str = "mglru";
/// Generations alone: use is seen in the entries of what eviction meets.
const CORE: &str = "mglru+lru_gen.enabled=1+lru_gen.bloom=0+lru_gen.look_around=0+lru_gen.tiers=0+lru_gen.pid=0\
                    +lru_gen.memcg_lru=0";
/// Added to the core: walks of all page tables. Filters and non-leaf entries save work of walks.
const WALKS: &str = "+lru_gen.enabled=3";

/// A part of MGLRU.
struct Part {
    name: &'static str,
    /// Setting that takes it out of all.
    without: &'static str,
    /// What it needs besides the core.
    needs: &'static str,
    /// Setting that adds it to these.
    with: &'static str,
}

impl Part {
    const fn new(name: &'static str, without: &'static str, with: &'static str) -> Part {
        Part { name, without, needs: "", with }
    }

    const fn of_walks(name: &'static str, without: &'static str, with: &'static str) -> Part {
        Part { name, without, needs: WALKS, with }
    }

    /// Two profiles that differ only by this part, the other parts being there.
    fn left_out(&self) -> [String; 2] {
        [format!("{ALL}{}", self.without), ALL.to_owned()]
    }

    /// The same, the other parts not being there, but for what this one refines.
    fn alone(&self) -> [String; 2] {
        let without = format!("{CORE}{}", self.needs);
        [without.clone(), without + self.with]
    }
}

/// All parts but `min_ttl`, which makes nothing faster: it ends a program rather than take what was used lately.
const PARTS: [Part; 7] = [
    Part::new("walks", "+lru_gen.enabled=1", WALKS),
    Part::of_walks("bloom", "+lru_gen.bloom=0", "+lru_gen.bloom=1"),
    Part::of_walks("non-leaf", "+lru_gen.enabled=3", "+lru_gen.enabled=7"),
    Part::new("look-around", "+lru_gen.look_around=0", "+lru_gen.look_around=1"),
    Part::new("tiers", "+lru_gen.tiers=0", "+lru_gen.tiers=1"),
    Part::new("pid", "+lru_gen.pid=0", "+lru_gen.pid=1"),
    Part::new("memcg-lru", "+lru_gen.memcg_lru=0", "+lru_gen.memcg_lru=1"),
];

/// The programs that run if none are named; SIZE is replaced.
const PROGRAMS: [&str; 15] = [
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

/// The programs that run if none are named, each with this footprint.
pub fn programs(size: &str) -> Vec<String> {
    PROGRAMS.map(|name| name.replace("SIZE", size)).to_vec()
}

/// All profiles that are needed, each once: classic, all of MGLRU, then those of the parts.
fn profiles() -> Vec<String> {
    let mut names = vec!["classic".to_owned(), ALL.to_owned()];
    for name in PARTS.iter().flat_map(|part| part.left_out().into_iter().chain(part.alone())) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// The sweep of `programs` over all profiles.
pub fn sweep(programs: Vec<String>, of: &What, metric: &str, seeds: (u64, u32)) -> Sweep {
    let profiles = profiles();
    let axes = [("program", programs.clone()), ("profile", profiles.clone())];
    Sweep::product(axes, seeds, &[metric], |[program, profile]| What {
        program: programs[program].clone(),
        profile: profiles[profile].clone(),
        ..of.clone()
    })
}

/// One program's row of both tables.
#[derive(Debug, Serialize)]
pub struct ProgramRow {
    /// As `pagefold run` takes it.
    pub program: String,
    /// All of MGLRU against classic.
    pub mglru: Worth,
    /// By part: what it adds to all others.
    pub left_out: Vec<Worth>,
    /// By part: what it adds to the core.
    pub alone: Vec<Worth>,
}

/// Both tables; the keys are a promise (docs/json.md).
#[derive(Debug, Serialize)]
pub struct Parts {
    /// A preset or a file.
    pub machine: String,
    /// As on the command line.
    pub memory: String,
    /// The first seed.
    pub seed: u64,
    /// Seeds for each program.
    pub runs: u32,
    /// The metric that is compared.
    pub metric: String,
    /// Probability of intervals.
    pub confidence: f64,
    /// Names of the parts, in the order of the rows' lists.
    pub parts: Vec<&'static str>,
    /// Program by program.
    pub programs: Vec<ProgramRow>,
    /// Seconds on this computer.
    pub host_seconds: f64,
}

impl Parts {
    /// The result of a sweep whose runs are all done.
    pub fn of(sweep: &Sweep, done: &BTreeMap<Key, Done>, host_seconds: f64) -> Parts {
        let finished = Finished::of(sweep, done);
        let metric = &sweep.metrics[0];
        let profiles = profiles();
        let row = |(program, points): (&String, &[super::Point])| {
            let worth = |sides: [String; 2]| {
                let what = |name: String| {
                    points[profiles.iter().position(|known| *known == name).expect("it was run")].what
                };
                let sides = sides.map(what);
                let better = finished.metric(sides[0], metric).and_then(|metric| metric.better);
                Worth::of(finished.pairs(sides, metric), better)
            };
            ProgramRow {
                program: program.clone(),
                mglru: worth(["classic", ALL].map(str::to_owned)),
                left_out: PARTS.iter().map(|part| worth(part.left_out())).collect(),
                alone: PARTS.iter().map(|part| worth(part.alone())).collect(),
            }
        };
        Parts {
            machine: sweep.whats[0].machine.clone(),
            memory: sweep.whats[0].memory.clone().unwrap_or_default(),
            seed: sweep.seed,
            runs: sweep.runs,
            metric: metric.clone(),
            confidence: CONFIDENCE,
            parts: PARTS.iter().map(|part| part.name).collect(),
            programs: sweep.cuts[0].values[0]
                .iter()
                .zip(sweep.points.chunks(profiles.len()))
                .map(row)
                .collect(),
            host_seconds,
        }
    }

    /// A table: a column for all of MGLRU, if it is asked for, and one for each part.
    fn grid(&self, width: usize, mglru: bool, parts: impl Fn(&ProgramRow) -> &[Worth]) -> String {
        let first = if mglru { &["program", "mglru"][..] } else { &["program"] };
        let mut grid = Grid::new(first.iter().chain(&self.parts).copied());
        let of = |row: &ProgramRow| -> Vec<Worth> {
            mglru.then_some(row.mglru).into_iter().chain(parts(row).iter().copied()).collect()
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
        grid.render(|column| column == 0, width)
    }
}

impl Document for Parts {
    const COMMAND: &'static str = "parts";
    const SCHEMA: u32 = 2;

    fn text(&self, width: usize) -> String {
        let Parts { machine, memory, runs, seed, metric, .. } = self;
        format!(
            "machine {machine}, memory {memory}, {runs} runs (seeds from {seed}), {metric}\n\n\
             What each part adds to all others (better by, in per cent of the side without it; * = differs from 0):\n\n\
             {}\nWhat each part adds to the core alone:\n\n{}",
            self.grid(width, true, |row| &row.left_out),
            self.grid(width, false, |row| &row.alone)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Program;
    use crate::metrics::tests::run;
    use crate::profile::Profile;

    #[test]
    fn profiles_and_programs_exist() {
        assert_eq!(profiles().len(), 17, "{:?}", profiles());
        assert!(profiles().iter().all(|name| Profile::parse(name, &[]).is_ok()));
        assert!(programs("8M").iter().all(|name| Program::find(name).is_ok()));
    }

    /// Each pair differs in one knob, and a part that is left out is one that is added alone.
    #[test]
    fn sides_differ_by_their_part() {
        for part in &PARTS {
            let settings = |name: &str| Profile::parse(name, &[]).unwrap().settings();
            for [without, with] in [part.left_out(), part.alone()] {
                let (without, mut with) = (settings(&without), settings(&with));
                with.retain(|knob, value| without.get(knob) != Some(value));
                let mut changed: Vec<String> = with.into_keys().collect();
                // The knob of a part that is left out of all is set on the side without it; the other has its default.
                changed.extend(without.into_keys().filter(|knob| part.without.contains(knob.as_str())));
                changed.retain(|knob| knob != "reclaim.policy");
                changed.dedup();
                assert_eq!(changed.len(), 1, "{}: {changed:?}", part.name);
            }
        }
    }

    #[test]
    fn part_is_worth_what_the_side_without_it_takes_more() {
        let sweep = sweep(vec!["zipf:8M".to_owned()], &What::default(), "run_time", (1, 3));
        let mut done = BTreeMap::new();
        for (what, seed) in sweep.whats.iter().flat_map(|what| (1..=3).map(move |seed| (what, seed))) {
            let without = what.profile.contains("tiers=0") && !what.profile.contains("tiers=1");
            let record = run(&what.profile, seed, if without { 200 } else { 100 } + seed, &[]);
            done.insert(Key { what: what.clone(), seed }, Done::Record(Box::new(record)));
        }
        let row = Parts::of(&sweep, &done, 0.0).programs.remove(0);
        let tiers = PARTS.iter().position(|part| part.name == "tiers").unwrap();
        for (at, worth) in row.left_out.iter().chain(&row.alone).enumerate() {
            let expected = if at % PARTS.len() == tiers { 49.5 } else { 0.0 };
            assert!((worth.pct.unwrap() - expected).abs() < 0.1, "{at}: {worth:?}");
            assert_eq!(worth.significant, expected > 0.0, "{at}");
        }
    }
}
