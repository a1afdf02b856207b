//! The page of an experiment: of run, compare and their directories.

use super::parts::{facts, notes, picture, table, verbatim};
use super::{Section, flame, heat, page, sentence, series};
use crate::engine::Machine;
use crate::grid::Grid;
use crate::history::Watched;
use crate::summary::{Setup, Summary};
use crate::{breakdown, groups, locks, svg};
use crate::{table as text, tree::Tree};
use maud::{Markup, html};
use mm::knobs::Knob;
use std::collections::BTreeSet;

/// The page of a result. `watched`: the first run of each profile, if they were watched. `command` made it.
pub fn experiment(summary: &Summary, watched: &[Watched], command: &str) -> String {
    let setup = &summary.setup;
    let title = format!("{} on {}", setup.program, setup.machine);
    let mut sections = vec![Section { id: "result", title: "Result", body: result(summary) }];
    let mut add = |id, title, body| sections.push(Section { id, title, body });
    add("time", "Over time", over_time(setup, watched));
    if let Some(first) = watched.first() {
        add("accesses", "Accesses", accesses(setup, first));
    }
    if let Some(body) = cpu_time(summary, watched) {
        add("cpu", "CPU time", body);
    }
    if let Some(body) = details(summary) {
        add("details", "Details", body);
    }
    add("setup", "Machine and knobs", machine(setup));
    page(&title, &sentence::sentences(summary), &sections, (command, Some(&setup.origin)))
}

fn result(summary: &Summary) -> Markup {
    let setup = &summary.setup;
    let caption = match setup.compares() {
        true => "Means; changes against the first profile, positive = better".to_owned(),
        false if setup.runs == 1 => "One run".to_owned(),
        false => format!("Means of {} runs", setup.runs),
    };
    html! {
        (facts(&text::facts(setup)))
        div.beside {
            (table(&caption, &text::body(summary), 0, |_| false))
            @if setup.compares() { (picture(&svg::render(summary))) }
        }
        (notes(&text::footer(summary)))
    }
}

fn over_time(setup: &Setup, watched: &[Watched]) -> Markup {
    if watched.is_empty() {
        return html! {
            p {
                "A directory keeps what runs counted, not what they were like in time. A run draws time series and \
                 accesses by address:"
            }
            pre.command tabindex="0" { (setup.command_line()) " --html FILE" }
        };
    }
    html! {
        p {
            "The run with seed " (setup.seed) @if watched.len() > 1 { " of each profile" }
            ", which was repeated for these pictures; watching changes nothing that it counts."
        }
        (series::series(watched))
        @if watched.len() > series::KINDS {
            p { "There are more profiles than kinds of lines: every " (series::KINDS) "th looks the same." }
        }
    }
}

fn accesses(setup: &Setup, first: &Watched) -> Markup {
    let end = first.history.samples.last().map_or(0, |sample| sample.nanos);
    html! {
        @if setup.profiles.len() > 1 { p { "Under " (first.profile) "." } }
        (heat::heat(&first.history.uses, end))
    }
}

/// The trees that there are: those of watched runs, or that of the runs themselves.
fn cpu_time(summary: &Summary, watched: &[Watched]) -> Option<Markup> {
    let of_watched = watched.iter().filter_map(|one| Some((&one.profile, one.tree.as_ref()?, 1)));
    let kept = || summary.profile_tree.as_ref().zip(summary.setup.profiles.first());
    let mut trees: Vec<(&String, &Tree, u32)> = of_watched.collect();
    if trees.is_empty() {
        trees.extend(kept().map(|(tree, profile)| (profile, tree, summary.setup.runs)));
    }
    (!trees.is_empty()).then(|| {
        html! {
            @for (profile, tree, runs) in &trees {
                @if trees.len() > 1 { h3 { (profile) } }
                (flame::flame(tree, *runs))
            }
        }
    })
}

/// The further tables that a result has.
fn details(summary: &Summary) -> Option<Markup> {
    let (setup, runs) = (&summary.setup, summary.setup.runs);
    let mut parts: Vec<Markup> = Vec::new();
    for profile in &setup.profiles {
        let of = |what: &str| format!("{what}: {profile}");
        let time = |row: &&crate::summary::SummaryRow| row.metric == "run_time" && row.profile == *profile;
        let run_time = summary.rows.iter().find(time).map_or(0.0, |row| row.value);
        let costs = summary.costs.get(profile).and_then(|costs| breakdown::costs_grid(costs, runs));
        parts.extend(costs.map(|grid| table(&of("Work of the kernel"), &grid, 0, |_| false)));
        let devices = summary.devices.get(profile);
        let devices = devices.and_then(|devices| breakdown::devices_grid(devices, runs, run_time));
        parts.extend(devices.map(|grid| table(&of("Devices"), &grid, 0, |_| false)));
    }
    if let Some(all) = summary.locks.as_ref().filter(|all| !all.is_empty()) {
        parts.push(table("Locks", &locks::to_grid(all, runs), 0, |column| column == 6));
    }
    let lines = summary.lines.as_ref().and_then(|lines| locks::lines_to_grid(lines, runs));
    parts.extend(lines.map(|grid| table("Cache lines from other CPUs", &grid, 0, |_| false)));
    if summary.groups.values().any(|groups| !groups.is_empty()) {
        let (grid, hidden) = groups::to_grid(&setup.profiles, &summary.groups);
        let several = setup.profiles.len() > 1;
        parts.push(table("Control groups", &grid, 0, |column| several && column == 1));
        parts.extend((hidden > 0).then(|| html! { p { "and " (hidden) " more (--json has all)" } }));
    }
    parts.extend(summary.lru_gen.iter().map(|seen| verbatim(&text::generations(seen))));
    parts.extend(summary.fragmented.iter().map(|made| verbatim(&text::fragmented(made))));
    (!parts.is_empty()).then(|| html! { div.beside { @for part in parts { (part) } } })
}

/// What was run on, and what profiles set.
fn machine(setup: &Setup) -> Markup {
    let machine = Machine::find(&setup.machine).ok();
    let known: BTreeSet<&str> = setup.knobs.values().flatten().map(|(name, _)| &name[..]).collect();
    html! {
        @match machine {
            Some(machine) => (facts(&machine.facts())),
            None => p { "The description of the machine '" (setup.machine) "' is not here." },
        }
        @if known.is_empty() {
            p { "All knobs are at their defaults." }
        } @else {
            (table("Knobs that profiles set; all others are at their defaults", &knobs(setup, &known), 0, |_| false))
        }
    }
}

fn knobs(setup: &Setup, known: &BTreeSet<&str>) -> Grid {
    let profiles = setup.profiles.iter().map(String::as_str);
    let mut grid = Grid::new(["knob", "default"].into_iter().chain(profiles));
    for &name in known {
        let info = Knob::from_name(name).map(Knob::info);
        let show = |value: u64| {
            let word = info.and_then(|info| info.words.get(value.checked_sub(info.min)? as usize));
            word.map_or_else(|| value.to_string(), |word| (*word).to_owned())
        };
        let default = info.map_or(String::new(), |info| show(info.default));
        let set = |profile: &String| setup.knobs.get(profile)?.get(name).copied();
        let values = setup.profiles.iter().map(|profile| set(profile).map_or(default.clone(), show));
        grid.row([name.to_owned(), default.clone()].into_iter().chain(values));
    }
    grid
}
