//! Pages are complete, well formed and self-contained, whatever names they have in them.

use super::{experiment, sweep};
use crate::history::{History, Sample, UsedRow, Uses, Watched};
use crate::summary::Summary;
use crate::summary::tests::{setup, three_seeds};
use crate::sweep::{Outcome, Sweep};
use crate::tree::{Share, Tree};
use std::collections::{BTreeMap, BTreeSet};

/// A name that would break out of text and of attributes.
const EVIL: &str = "<b>&\"'x.pft";

fn watched(profile: &str) -> Watched {
    let sample = |step: u64| Sample {
        nanos: step * 1000,
        free: 1 << (30 - step),
        lists: [step << 12; 4],
        major: step * step,
        kswapd: step * 100,
        pressure: step * 500,
        ..Sample::default()
    };
    let row = |page, count| UsedRow { process: 0, page, counts: vec![count, 0, count / 2] };
    let uses = Uses { column: 1000, pages: 4, rows: vec![row(16, 3), row(400, 900_000)] };
    let work = vec![Share { name: "user".into(), count: 1, picos: 600 }];
    let child = Tree { name: EVIL.into(), total_picos: 1000, work, ..Tree::default() };
    let tree = Tree { name: "cpu".into(), total_picos: 1000, children: vec![child], ..Tree::default() };
    let history = History { samples: (0..20).map(sample).collect(), uses };
    Watched { profile: profile.into(), history, tree: Some(tree) }
}

/// A comparison with pictures, a run of which nothing else is kept, and a sweep of which no run is done.
fn pages() -> [String; 3] {
    let mut named = setup(&["a", "b"]);
    (named.program, named.machine) = (EVIL.into(), EVIL.into());
    let command = format!("pagefold run {EVIL}");
    let summary = Summary::of(named, &three_seeds(), 0.0, true);
    let compared = experiment(&summary, &[watched("a"), watched("b")], &command);
    let runs: Vec<_> = three_seeds().into_iter().filter(|run| run.profile == "a").collect();
    let kept = experiment(&Summary::of(setup(&["a"]), &runs, 0.0, false), &[], "pagefold report dir");
    let plan = "title = \"<b>&\"\n[run]\nprogram = \"zipf:{size}\"\n[axes]\nsize = [\"1M\", \"2M\"]\n";
    let outcome = Outcome::of(&Sweep::parse(plan).unwrap(), &BTreeMap::new());
    [compared, kept, sweep(&outcome, plan, (&command, None))]
}

/// A tag: its name, its attributes, and whether it begins or ends an element.
struct Tag<'a> {
    name: &'a str,
    attributes: BTreeMap<&'a str, &'a str>,
    ends: bool,
    empty: bool,
}

/// The tags of a page. Fails where a text or a value holds what only tags have.
fn tags(page: &str) -> Vec<Tag<'_>> {
    let mut tags = Vec::new();
    let mut rest = page.strip_prefix("<!DOCTYPE html>").expect("it must begin with its kind");
    while let Some((_, after)) = rest.split_once('<') {
        let (mut tag, mut behind) = after.split_once('>').expect("a tag must end");
        let ends = tag.starts_with('/');
        tag = tag.trim_start_matches('/');
        let empty = tag.ends_with('/');
        let (name, mut left) =
            tag.trim_end_matches('/').split_once(' ').unwrap_or((tag.trim_end_matches('/'), ""));
        let mut attributes = BTreeMap::new();
        while let Some((key, value)) = left.trim_start().split_once("=\"") {
            let (value, more) = value.split_once('"').expect("a value must end");
            assert!(attributes.insert(key, value).is_none(), "{key} must be there once in <{tag}>");
            left = more;
        }
        assert_eq!(left.trim(), "", "<{tag}> must have values for its attributes");
        if name == "style" && !ends {
            behind = &behind[behind.find("</style>").expect("a style must end")..];
        }
        tags.push(Tag { name, attributes, ends, empty });
        rest = behind;
    }
    tags
}

#[test]
fn pages_are_well_formed_and_names_in_them_are_escaped() {
    for page in pages() {
        let mut open = Vec::new();
        for tag in tags(&page) {
            match tag {
                Tag { ends: true, name, .. } => assert_eq!(open.pop(), Some(name), "tags must be nested"),
                Tag { empty: true, .. } | Tag { name: "meta", .. } => {}
                Tag { name, .. } => open.push(name),
            }
        }
        assert_eq!(open, [""; 0]);
    }
    let [compared, _, swept] = pages();
    assert!(compared.contains("&lt;b&gt;&amp;&quot;'x.pft") && !compared.contains("<b>"));
    assert!(swept.contains("&lt;b&gt;&amp;") && !swept.contains("<b>"));
}

#[test]
fn pages_need_nothing_but_themselves() {
    for page in pages() {
        for outside in
            ["http:", "https:", "src=", "url(", "@import", "<script", "<link", "<iframe", "javascript:"]
        {
            assert!(!page.contains(outside), "{outside}");
        }
        let tags = tags(&page);
        let of = |key| tags.iter().filter_map(move |tag| tag.attributes.get(key).copied());
        assert!(of("href").count() > 3 && of("href").all(|link| link.starts_with('#')));
        let ids: Vec<&str> = of("id").collect();
        let known: BTreeSet<&str> = ids.iter().copied().collect();
        assert_eq!(known.len(), ids.len(), "an id is there once: {ids:?}");
        assert!(of("href").all(|link| known.contains(&link[1..])), "links must lead somewhere");
    }
}

#[test]
fn pages_can_be_read_without_seeing_them_and_without_a_pointer() {
    for page in pages() {
        let tags = tags(&page);
        let with = |name: &'static str| tags.iter().filter(move |tag| tag.name == name && !tag.ends);
        let has = |tag: &Tag<'_>, key: &str| tag.attributes.contains_key(key);
        assert!(page.contains("<html lang=\"en\">") && page.contains("class=\"skip\" href=\"#result\""));
        assert!(with("svg").all(|svg| {
            let named = has(svg, "aria-label") || has(svg, "aria-labelledby");
            has(svg, "aria-hidden") || (svg.attributes.get("role") == Some(&"img") && named)
        }));
        assert_eq!(with("table").count(), with("caption").count(), "a table must say what it has");
        assert!(with("th").all(|th| has(th, "scope")));
        let scrolls = |tag: &&Tag<'_>| tag.name == "pre" || tag.attributes.get("class") == Some(&"scroll");
        let mut scroll = tags.iter().filter(|tag| !tag.ends).filter(scrolls);
        assert!(scroll.all(|tag| has(tag, "tabindex")), "what scrolls must be reached by keys");
        assert!(page.contains("prefers-color-scheme:dark") && page.contains("@media print"));
    }
}

#[test]
fn a_page_has_what_it_is_given_and_says_what_else_a_run_would_draw() {
    let [compared, kept, swept] = pages();
    for part in
        ["Free memory", "Lists: a", "Pressure", "Accesses", "CPU time", "Machine and knobs", "Command"]
    {
        assert!(compared.contains(part), "{part}");
    }
    assert!(compared.contains("b is 10.00 % faster than a"), "the result is a sentence, too");
    assert!(compared.contains("The description of the machine"), "an unknown machine is named");
    let again =
        "pagefold run zipf:256M --machine small --memory 134217728 --profile a --seed 1 --runs 3 --html FILE";
    assert!(kept.contains(again) && !kept.contains("class=\"heat\""), "{kept}");
    assert!(swept.contains("2 points; 2 runs are not done."), "{swept}");
    assert!(pages().iter().all(|page| page.contains("at commit ")));
}
