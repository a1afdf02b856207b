//! Published gains and simulated ones, as text.

use crate::grid::Grid;
use crate::human;
use crate::reproduce::{Outcome, Reproduction, SettingOutcome};

/// All gains of a reproduction and the counts that explain them; empty if it has none.
pub(super) fn render(outcome: &Outcome, width: usize) -> String {
    let settings: Vec<&SettingOutcome> =
        outcome.settings.iter().filter(|setting| !setting.gains.is_empty()).collect();
    if settings.is_empty() {
        return String::new();
    }
    let mut text = format!("\n{}", gains(&settings, width));
    let explain = Reproduction::find(&outcome.reproduction).ok().and_then(|one| one.explain);
    if outcome.profiles.len() > 2 && explain.is_none() {
        text += &format!("\n{}", gains_of_all(outcome, &settings, width));
    }
    text += &format!("\n{}", explain.unwrap_or(counts)(outcome, &settings, width));
    for setting in settings.iter().filter(|setting| setting.same_work == Some(false)) {
        text += &format!("WARNING: {}: the profiles did not do the same work\n", setting.title);
    }
    text
}

fn gains(settings: &[&SettingOutcome], width: usize) -> String {
    let headings = ["gain of", "", "in", "published", "ours", "95% interval", "direction", "intervals"];
    let mut grid = Grid::new(headings);
    let between = |[low, high]: [f64; 2]| match low == high {
        true => human::percent(low),
        false => format!("{} .. {}", human::percent(low), human::percent(high)),
    };
    let (mut same, mut opposite, mut overlap, mut all) = (0, 0, 0, 0);
    for (setting, gain) in settings.iter().flat_map(|one| one.gains.iter().map(move |gain| (one, gain))) {
        all += 1;
        same += u32::from(gain.agrees() == Some(true));
        opposite += u32::from(gain.agrees() == Some(false));
        overlap += u32::from(gain.overlaps() == Some(true));
        let direction = match gain.agrees() {
            Some(true) => "same",
            Some(false) => "opposite",
            None => "unclear",
        };
        let overlaps = match gain.overlaps() {
            Some(true) => "overlap",
            Some(false) => "apart",
            None => "n/a",
        };
        grid.row([
            setting.title.clone(),
            gain.profile.clone(),
            gain.measure.clone(),
            between(gain.published_pct),
            gain.pct.map_or("n/a".into(), human::percent),
            gain.ci_pct.map_or("n/a".into(), between),
            direction.to_owned(),
            overlaps.to_owned(),
        ]);
    }
    grid.render(|column| !(3..=5).contains(&column), width)
        + &format!(
            "{same} of {all} in the same direction, {opposite} in the opposite; {overlap} intervals overlap\n"
        )
}

/// The gains of all profiles.
fn gains_of_all(outcome: &Outcome, settings: &[&SettingOutcome], width: usize) -> String {
    let mut grid = Grid::new(
        ["gain of all", "in"].map(str::to_owned).into_iter().chain(outcome.profiles[1..].iter().cloned()),
    );
    for (setting, gain) in settings.iter().flat_map(|one| one.gains.iter().map(move |gain| (one, gain))) {
        let all = outcome.profiles[1..].iter();
        let cells = all.map(|name| gain.all_pct[name].map_or("n/a".to_owned(), human::percent));
        grid.row([setting.title.clone(), gain.measure.clone()].into_iter().chain(cells));
    }
    grid.render(|column| column < 2, width)
}

/// Counts of the first side and of the profile that gains.
fn counts(outcome: &Outcome, settings: &[&SettingOutcome], width: usize) -> String {
    let headings =
        ["first side and gainer", "memory", "of", "kswapd", "", "refaults", "", "scanned/stolen", ""];
    let mut grid = Grid::new(headings);
    for setting in settings {
        let of = |profile: &String, names: [&str; 2]| -> f64 {
            names.iter().map(|&name| setting.counts[name][profile]).sum()
        };
        let both = [&outcome.profiles[0], &setting.gains[0].profile];
        let mut cells = vec![setting.title.clone()];
        cells.extend([setting.memory, setting.footprint].map(|bytes| human::bytes(bytes as f64)));
        cells.extend(both.map(|profile| human::number(setting.counts["kswapd_seconds"][profile], "s")));
        let refaults = ["workingset_refault_anon", "workingset_refault_file"];
        cells.extend(both.map(|profile| human::number(of(profile, refaults), "")));
        cells.extend(both.map(|profile| {
            let stolen = of(profile, ["pgsteal_kswapd", "pgsteal_direct"]);
            let scanned = of(profile, ["pgscan_kswapd", "pgscan_direct"]);
            if stolen > 0.0 { format!("{:.2}", scanned / stolen) } else { "n/a".to_owned() }
        }));
        grid.row(cells);
    }
    grid.render(|column| column == 0, width)
}
