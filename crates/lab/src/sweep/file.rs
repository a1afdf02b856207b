//! The sweep file.
//!
//! ```toml
//! title = "Where lazy flushing wins"
//! runs = 3                           # seeds for each point, starting with `seed`
//! seed = 1
//!
//! [run]                              # {NAME} is the value of an axis
//! program = "fio-mmap:64M:{threads}:{writes}%"
//! machine = "luf-cxl+cpus={cpus}"
//! memory = "50%"
//! profile = "{profile}"
//! set = ["vm.watermark_scale_factor={free}"]
//!
//! [axes]                             # one value or several: all combinations run
//! profile = ["classic", "lazy"]
//! cpus = 64
//! threads = 16
//! writes = 0
//! free = 10
//!
//! [[cut]]                            # instead: each cut has these values, otherwise those above
//! cpus = [8, 64, 512]
//! threads = "{cpus}"                 # as many as CPUs
//!
//! [[cut]]
//! writes = [0, 10, 50]
//!
//! [show]
//! compare = "profile"                # a column for each value of this axis, next to the first
//! metrics = ["run_time", "ipis_received"]
//! ```

use super::plan::{Cut, Sweep, What};
use crate::error::{Error, Result};
use crate::suggest;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::Path;

/// The most points of a sweep, the most values of all of them, and the most bytes of all texts with the values filled
/// in: more are a mistake, and would take any time and memory before the first run.
const MOST_POINTS: usize = 100_000;
const MOST_VALUES: usize = 1_000_000;
const MOST_TEXT: usize = 32 << 20;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    title: String,
    #[serde(default = "one")]
    runs: u32,
    #[serde(default = "one")]
    seed: u64,
    /// How a run is made, with names of axes in braces.
    run: What,
    #[serde(default)]
    axes: toml::Table,
    #[serde(default)]
    cut: Vec<toml::Table>,
    #[serde(default)]
    show: Show,
}

fn one<N: From<u8>>() -> N {
    1.into()
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Show {
    compare: Option<String>,
    metrics: Vec<String>,
}

impl Default for Show {
    fn default() -> Show {
        Show { compare: None, metrics: ["run_time", "pgmajfault"].map(str::to_owned).to_vec() }
    }
}

impl Sweep {
    /// Read a file; `-` is standard input. Also return its text.
    pub fn read(path: &Path) -> Result<(Sweep, String)> {
        let text = match path == Path::new("-") {
            true => std::io::read_to_string(std::io::stdin()),
            false => std::fs::read_to_string(path),
        };
        let text = text.map_err(|error| Error::file("read", path, error))?;
        let sweep = Sweep::parse(&text).map_err(|why| Error::file("understand", path, why))?;
        Ok((sweep, text))
    }

    /// Parse the text of a file; an error is one line.
    pub fn parse(text: &str) -> Result<Sweep, String> {
        let file: File = toml::from_str(text).map_err(|error| one_line(text, &error))?;
        let axes: Vec<String> = file.axes.keys().cloned().collect();
        let common = file.axes.iter().map(|(name, value)| values(name, value));
        let common = common.collect::<Result<Vec<_>, _>>()?;
        let cuts = match &file.cut[..] {
            [] => vec![Cut { values: common }],
            cuts => cuts.iter().map(|cut| cut_of(cut, &axes, &common)).collect::<Result<_, _>>()?,
        };
        let compare = file.show.compare.as_deref().map(|name| place(&axes, name)).transpose()?;
        if file.show.metrics.is_empty() {
            return Err("[show]: 'metrics' names none".to_owned());
        }
        if file.runs == 0 || file.seed.checked_add(u64::from(file.runs)).is_none() {
            return Err(format!("there are no {} seeds starting with {}", file.runs, file.seed));
        }
        let points = cuts.iter().try_fold(0, |all: usize, cut| all.checked_add(cut.points()?));
        let points = points.filter(|&all| all <= MOST_POINTS);
        let points = points.ok_or_else(|| format!("it has more than {MOST_POINTS} points"))?;
        if points.saturating_mul(axes.len()) > MOST_VALUES {
            return Err(format!("its points have more than {MOST_VALUES} values"));
        }
        let mut sweep = Sweep {
            title: file.title,
            runs: file.runs,
            seed: file.seed,
            axes: axes.clone(),
            cuts,
            compare,
            metrics: file.show.metrics,
            ..Sweep::default()
        };
        let mut filled = Filled { used: vec![false; axes.len()], text: 0 };
        sweep.expand(|_, values| {
            let values = coupled(&axes, &values, &mut filled)?;
            let what = Fill { axes: &axes, values: &values }.what(&file.run, &mut filled)?;
            Ok::<_, String>((values, what))
        })?;
        match axes.iter().zip(filled.used).find(|(_, used)| !used) {
            None => Ok(sweep),
            Some((name, _)) => {
                Err(format!("axis '{name}' is not used: write {{{name}}} in [run] for its values"))
            }
        }
    }
}

impl Cut {
    /// The number of its points, if it can be counted.
    fn points(&self) -> Option<usize> {
        self.values.iter().try_fold(1, |all: usize, axis| all.checked_mul(axis.len()))
    }
}

/// The values of an axis.
fn values(axis: &str, value: &toml::Value) -> Result<Vec<String>, String> {
    let text = |value: &toml::Value| match value {
        toml::Value::String(text) => Ok(text.clone()),
        toml::Value::Integer(number) => Ok(number.to_string()),
        toml::Value::Float(number) => Ok(number.to_string()),
        toml::Value::Boolean(flag) => Ok(flag.to_string()),
        _ => Err(format!("axis '{axis}': values are texts, numbers, true or false")),
    };
    let values = match value {
        toml::Value::Array(several) => several.iter().map(text).collect::<Result<Vec<_>, _>>()?,
        one => vec![text(one)?],
    };
    let mut seen = BTreeSet::new();
    let twice = values.iter().find(|&value| !seen.insert(value));
    if values.len() > 1 && values.iter().any(|value| value.contains('{')) {
        return Err(format!("axis '{axis}': an axis that follows another has only one value"));
    }
    match (values.is_empty(), twice) {
        (true, _) => Err(format!("axis '{axis}' has no values")),
        (_, Some(value)) => Err(format!("axis '{axis}' has the value '{value}' twice")),
        _ => Ok(values),
    }
}

fn place(axes: &[String], name: &str) -> Result<usize, String> {
    axes.iter().position(|axis| axis == name).ok_or_else(|| {
        let hint = suggest::nearest(name, axes.iter().map(String::as_str));
        let hint = hint.map(|near| format!("; did you mean '{near}'?")).unwrap_or_default();
        format!("there is no axis '{name}' in [axes]{hint}")
    })
}

fn cut_of(cut: &toml::Table, axes: &[String], common: &[Vec<String>]) -> Result<Cut, String> {
    let mut all = common.to_vec();
    for (name, value) in cut {
        all[place(axes, name)?] = values(name, value)?;
    }
    Ok(Cut { values: all })
}

/// The values of a point, with those of other axes filled in.
fn coupled(axes: &[String], values: &[String], so_far: &mut Filled) -> Result<Vec<String>, String> {
    let fill = Fill { axes, values };
    let filled = values.iter().map(|value| fill.text(value, so_far)).collect::<Result<Vec<_>, _>>()?;
    match filled.iter().find(|value| value.contains('{')) {
        Some(value) => Err(format!("'{value}': an axis may only follow one that has values of its own")),
        None => Ok(filled),
    }
}

/// What was filled in so far.
struct Filled {
    /// The axes whose values were.
    used: Vec<bool>,
    /// Bytes of text.
    text: usize,
}

impl Filled {
    fn add(&mut self, bytes: usize) -> Result<(), String> {
        // An empty text is work, too.
        self.text = self.text.saturating_add(bytes + 1);
        let fits = self.text <= MOST_TEXT;
        fits.then_some(()).ok_or_else(|| format!("its points have more than {MOST_TEXT} bytes of text"))
    }
}

/// The values of a point, which replace their names.
struct Fill<'a> {
    axes: &'a [String],
    values: &'a [String],
}

impl Fill<'_> {
    fn what(&self, template: &What, so_far: &mut Filled) -> Result<What, String> {
        let mut fill = |text: &str| self.text(text, so_far);
        Ok(What {
            program: fill(&template.program)?,
            machine: fill(&template.machine)?,
            memory: template.memory.as_deref().map(&mut fill).transpose()?,
            profile: fill(&template.profile)?,
            set: template.set.iter().map(|text| fill(text)).collect::<Result<_, _>>()?,
            swap: template
                .swap
                .iter()
                .map(|text| fill(text))
                .collect::<Result<Vec<_>, _>>()?
                .iter()
                .flat_map(|areas| areas.split_whitespace().map(str::to_owned))
                .collect(),
            group: template.group.iter().map(|text| fill(text)).collect::<Result<_, _>>()?,
            senpai: template.senpai.as_deref().map(&mut fill).transpose()?,
            fragment: template.fragment.as_deref().map(&mut fill).transpose()?,
            vary: template.vary.as_deref().map(&mut fill).transpose()?,
            verify: template.verify,
        })
    }

    fn text(&self, text: &str, so_far: &mut Filled) -> Result<String, String> {
        let mut filled = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) =
                after.split_once('}').ok_or_else(|| format!("'{text}': a brace is not closed"))?;
            let axis = place(self.axes, name)?;
            so_far.used[axis] = true;
            so_far.add(before.len() + self.values[axis].len())?;
            filled += before;
            filled += &self.values[axis];
            rest = after;
        }
        so_far.add(rest.len())?;
        Ok(filled + rest)
    }
}

/// The message of the parser with the line.
fn one_line(text: &str, error: &toml::de::Error) -> String {
    let line = error.span().map(|span| 1 + text[..span.start.min(text.len())].matches('\n').count());
    let message = error.message().replace('\n', " ");
    line.map_or(message.clone(), |line| format!("line {line}: {message}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "[run]\nprogram = \"zipf:{size}:{threads}\"\nprofile = \"{profile}\"\n";

    #[test]
    fn axes_make_all_combinations() {
        let axes = "[axes]\nprofile = [\"classic\", \"lazy\"]\nsize = [\"1M\", \"2M\"]\nthreads = 4\n";
        let sweep = Sweep::parse(&format!("{RUN}{axes}")).unwrap();
        assert_eq!(sweep.axes, ["profile", "size", "threads"]);
        let runs: Vec<_> =
            sweep.whats.iter().map(|what| format!("{} {}", what.profile, what.program)).collect();
        assert_eq!(runs, ["classic zipf:1M:4", "classic zipf:2M:4", "lazy zipf:1M:4", "lazy zipf:2M:4"]);
        assert_eq!(sweep.name_of(2), "profile=lazy, size=1M, threads=4");
        assert_eq!((sweep.runs, sweep.seed, &sweep.whats[0].machine[..]), (1, 1, "laptop"));
    }

    #[test]
    fn equal_points_of_cuts_share_a_run() {
        let axes = "[axes]\nprofile = \"classic\"\nsize = \"1M\"\nthreads = 2\n";
        let cuts = "[[cut]]\nsize = [\"1M\", \"2M\"]\n[[cut]]\nthreads = [1, 2]\n";
        let sweep = Sweep::parse(&format!("{RUN}{axes}{cuts}")).unwrap();
        assert_eq!(
            sweep.points.iter().map(|point| (point.cut, point.what)).collect::<Vec<_>>(),
            [(0, 0), (0, 1), (1, 2), (1, 0)]
        );
        assert_eq!(sweep.whats.len(), 3);
    }

    /// Also if an axis follows the one that is compared.
    #[test]
    fn base_of_a_point_has_the_first_compared_value() {
        let bases = |axes: &str| {
            let sweep = Sweep::parse(&format!("{RUN}[show]\ncompare = \"profile\"\n[axes]\n{axes}")).unwrap();
            sweep.points.iter().map(|point| point.base).collect::<Vec<_>>()
        };
        let profile = "profile = [\"classic\", \"lazy\"]\n";
        assert_eq!(bases(&format!("size = [1, 2]\n{profile}threads = [1, 2]\n")), [0, 1, 0, 1, 4, 5, 4, 5]);
        assert_eq!(bases(&format!("{profile}size = \"{{profile}}\"\nthreads = [1, 2]\n")), [0, 1, 0, 1]);
    }

    #[test]
    fn axis_may_follow_another() {
        let axes = "[axes]\nprofile = \"classic\"\nsize = [1, 2]\nthreads = \"{size}\"\n";
        let sweep = Sweep::parse(&format!("{RUN}{axes}")).unwrap();
        assert_eq!(
            sweep.whats.iter().map(|what| &what.program[..]).collect::<Vec<_>>(),
            ["zipf:1:1", "zipf:2:2"]
        );
        let grouped = format!("{RUN}group = [\"web:memory.max={{size}}\"]\n{axes}");
        assert_eq!(Sweep::parse(&grouped).unwrap().whats[1].group, ["web:memory.max=2"]);
        let round = Sweep::parse(&format!("{RUN}{}", axes.replace("[1, 2]", "\"{threads}\"")));
        assert!(round.unwrap_err().contains("values of its own"));
    }

    #[test]
    fn wrong_files_are_refused_in_one_line() {
        for (text, expected) in [
            (
                "[axes]\nsize = 1\nthreads = 1\nprofil = 1\n",
                "there is no axis 'profile' in [axes]; did you mean 'profil'?",
            ),
            ("[axes]\nsize = []\n", "axis 'size' has no values"),
            ("[axes]\nsize = [1, 1]\n", "axis 'size' has the value '1' twice"),
            ("[axes]\nsize = [1, \"{threads}\"]\n", "has only one value"),
            ("[axes]\nsize = [[1]]\n", "axis 'size': values are texts"),
            (
                "[axes]\nsize = 1\nthreads = 1\nprofile = 1\nmore = 2\n",
                "axis 'more' is not used: write {more}",
            ),
            ("[axes]\nsize = 1\n[[cut]]\nsiz = 2\n", "did you mean 'size'?"),
            ("[axes]\nsize = 1\n[show]\ncompare = \"sizes\"\n", "did you mean 'size'?"),
            ("runs = 0\n", "line 4: unknown field `runs`"),
            ("[axis]\n", "line 4: unknown field `axis`"),
        ] {
            let error = Sweep::parse(&format!("{RUN}{text}")).unwrap_err();
            assert!(error.contains(expected) && !error.contains('\n'), "{text}: {error}");
        }
        // A few bytes that would take gigabytes.
        let [many, wide] = [(6, 10), (2000, 1)].map(|(axes, values)| {
            let values: Vec<_> = (0..values).collect();
            let axes = (0..axes).map(|axis| format!("axis{axis} = {values:?}\n"));
            let cuts = "[[cut]]\n".repeat(if values.len() == 1 { 1000 } else { 1 });
            Sweep::parse(&format!("[run]\nprogram = \"zipf\"\n[axes]\n{}{cuts}", axes.collect::<String>()))
        });
        assert_eq!(many.unwrap_err(), "it has more than 100000 points");
        assert_eq!(wide.unwrap_err(), "its points have more than 1000000 values");
        let long =
            format!("[run]\nprogram = \"{}\"\n[axes]\na = \"{}\"\n", "{a}".repeat(9000), "b".repeat(9000));
        assert_eq!(Sweep::parse(&long).unwrap_err(), "its points have more than 33554432 bytes of text");
        assert!(Sweep::parse("runs = 0\n[run]\nprogram = \"zipf\"").unwrap_err().contains("no 0 seeds"));
        assert!(Sweep::parse("[run]\nprogram = \"zipf:{x\"").unwrap_err().contains("not closed"));
    }
}
