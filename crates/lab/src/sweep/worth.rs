//! What a change of settings is worth, from paired runs.

use crate::record::Better;
use crate::statistics::{Change, Interval, interval, mean};
use serde::Serialize;

/// What a change is worth, in per cent of the side without it; positive = better.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Worth {
    /// The change; `null` if the side without it has 0, or if neither direction is better.
    pub pct: Option<f64>,
    /// Its interval; `null` with one run.
    pub ci_pct: Option<Interval>,
    /// Whether it differs from 0.
    pub significant: bool,
}

impl Worth {
    /// From pairs of values without and with the change.
    pub fn of((without, with): (Vec<f64>, Vec<f64>), better: Option<Better>) -> Worth {
        let change = Change::of(&without, &with);
        let (pct, ci_pct) = better.map(|better| better.of(&change)).unwrap_or_default();
        Worth { pct, ci_pct, significant: change.is_significant() }
    }

    /// The mean over programs, and its interval.
    pub fn over(programs: &[Worth]) -> Worth {
        let values: Vec<f64> = programs.iter().filter_map(|worth| worth.pct).collect();
        let ci_pct = interval(&values);
        let significant = ci_pct.is_some_and(|[low, high]| low > 0.0 || high < 0.0);
        Worth { pct: (!values.is_empty()).then(|| mean(&values)), ci_pct, significant }
    }

    /// Whether the change is better, beyond luck.
    pub fn wins(&self) -> bool {
        self.significant && self.pct.is_some_and(|pct| pct > 0.0)
    }

    /// Whether it is worse, beyond luck.
    pub fn loses(&self) -> bool {
        self.significant && self.pct.is_some_and(|pct| pct < 0.0)
    }

    /// For a cell of a table; `*` marks a change that differs from 0.
    pub fn text(&self) -> String {
        let Some(pct) = self.pct else { return "n/a".into() };
        let half = self.ci_pct.map(|[low, high]| format!(" ±{:.1}", (high - low) / 2.0)).unwrap_or_default();
        format!("{pct:+.1}{half}{}", if self.significant { "*" } else { " " })
    }
}
