//! What an experiment says, in a sentence for each profile.

use crate::human;
use crate::summary::{Summary, SummaryRow};

/// The sentences: of what is compared the change, else what happened.
pub(super) fn sentences(summary: &Summary) -> Vec<String> {
    let setup = &summary.setup;
    let row = |metric: &str, profile: &str| {
        summary.rows.iter().find(|row| row.metric == metric && row.profile == profile)
    };
    match &setup.base {
        Some(base) if setup.compares() => {
            let base_time = row("run_time", base).map_or(0.0, |row| row.value);
            let others = setup.profiles.iter().filter(|&profile| profile != base);
            others.filter_map(|profile| Some(change(row("run_time", profile)?, base, base_time))).collect()
        }
        _ => setup.profiles.iter().map(|profile| what_happened(summary, profile, &row)).collect(),
    }
}

/// How the time of a profile differs from the base's.
fn change(row: &SummaryRow, base: &str, base_time: f64) -> String {
    let (profile, [time, before]) =
        (&row.profile, [row.value, base_time].map(|time| human::number(time, "s")));
    let change = row.change_pct.unwrap_or(0.0);
    let interval = row.change_ci_pct.map(human::percents);
    match interval {
        None => format!("{profile} takes {time}, {base} {before}: a change of {}.", human::percent(change)),
        Some(interval) if row.significant => {
            let which = if change > 0.0 { "faster" } else { "slower" };
            let percent = format!("{:.2} %", change.abs());
            format!(
                "{profile} is {percent} {which} than {base}: {time}, not {before} (95 % interval {interval})."
            )
        }
        Some(interval) => format!(
            "{profile} takes {time}, {base} {before}: no difference that these runs show (95 % interval {interval} %)."
        ),
    }
}

/// What a profile did, as means over the runs.
fn what_happened<'a>(
    summary: &Summary,
    profile: &'a str,
    row: &impl Fn(&str, &'a str) -> Option<&'a SummaryRow>,
) -> String {
    let setup = &summary.setup;
    let sum = |metrics: &[&str]| {
        let values = metrics.iter().filter_map(|metric| row(metric, profile));
        human::number(values.map(|row| row.value).sum(), "")
    };
    let time = row("run_time", profile).map_or(0.0, |row| row.value);
    let memory = match setup.memory {
        Some(bytes) => format!("{} of memory", human::bytes(bytes as f64)),
        None => "all of its memory".to_owned(),
    };
    let reclaimed = sum(&["pgsteal_kswapd", "pgsteal_direct"]);
    let reclaimed = match &reclaimed[..] {
        "0" => "nothing was reclaimed".to_owned(),
        pages => format!(
            "{pages} pages were reclaimed, and {} came back",
            sum(&["workingset_refault_anon", "workingset_refault_file"])
        ),
    };
    let means = if setup.runs > 1 { format!(" (means of {} runs)", setup.runs) } else { String::new() };
    format!(
        "{} took {} under {profile} on {} with {memory}: {} minor and {} major faults, {reclaimed}{means}.",
        setup.program,
        human::number(time, "s"),
        setup.machine,
        sum(&["pgfault_minor"]),
        sum(&["pgmajfault"]),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::tests::{setup, three_seeds};

    #[test]
    fn a_comparison_says_which_side_is_faster() {
        let summary = Summary::of(setup(&["a", "b"]), &three_seeds(), 0.0, false);
        let [sentence] = &sentences(&summary)[..] else { panic!("there are two profiles") };
        assert!(sentence.starts_with("b is 10.00 % faster than a: 902 ms, not 1.00 s (95 % "), "{sentence}");
        let mut same = summary.clone();
        same.rows.iter_mut().for_each(|row| row.significant = false);
        assert!(sentences(&same)[0].contains("no difference that these runs show"), "{:?}", sentences(&same));
    }

    #[test]
    fn a_run_says_what_happened() {
        let runs: Vec<_> = three_seeds().into_iter().filter(|run| run.profile == "b").collect();
        let summary = Summary::of(setup(&["b"]), &runs, 0.0, false);
        assert_eq!(
            sentences(&summary),
            [
                "zipf:256M took 902 ms under b on small with 128 MiB of memory: 100 minor and 0 major faults, nothing was \
              reclaimed (means of 3 runs)."
            ]
        );
    }
}
