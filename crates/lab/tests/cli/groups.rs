//! Control groups, from the command line to the result.

use super::*;

const TWO: &str = "fork-write:8M --machine small --memory 64M --quiet --verify --group web:memory.max=100% \
                   --group web/child:memory.max=2M,memory.low=25%,processes=1 --group rest:processes=0";

fn of<'a>(json: &'a Value, profile: &str, name: &str) -> &'a Value {
    let groups = json["groups"][profile].as_array().unwrap();
    groups.iter().find(|group| group["group"] == name).unwrap_or_else(|| panic!("{name}: {json}"))
}

#[test]
fn groups_limit_their_processes() {
    let json = good_json(&format!("compare {TWO} --with mglru --runs 2 --json"));
    assert_eq!(json["group"].as_array().unwrap().len(), 3);
    for profile in ["classic", "mglru"] {
        let (web, child, rest) =
            (of(&json, profile, "web"), of(&json, profile, "web/child"), of(&json, profile, "rest"));
        assert_eq!(web["limits"]["memory.max"], json["peak_live"]);
        assert_eq!(
            (&child["limits"]["memory.max"], &child["limits"]["memory.swap.max"]),
            (&(2 << 20).into(), &Value::Null)
        );
        assert_eq!(child["limits"]["memory.low"], json["peak_live"].as_u64().unwrap() / 4);
        let peak = |group: &Value| group["usage"]["memory.peak"].as_f64().unwrap();
        assert!(
            peak(child) <= (2 << 20) as f64 && peak(web) == peak(child) && peak(rest) >= (4 << 20) as f64
        );
        let faults = |group: &Value| group["stat"]["pgfault"].as_f64().unwrap();
        assert!(faults(child) > 0.0 && faults(web) == faults(child) && faults(rest) > 0.0);
        assert_eq!(rest["events"]["max"], 0.0);
    }
    let text = good(&format!("run {TWO}"));
    assert!(text.contains("group    web/child:memory.max=2M,memory.low=25%,processes=1\n"), "{text}");
    let line = text.lines().find(|line| line.starts_with("web/child ")).unwrap_or_else(|| panic!("{text}"));
    assert_eq!(line.split_whitespace().nth(1), Some("2.00"), "{text}");
}

#[test]
fn run_directory_keeps_groups() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("result");
    let text = good(&format!("run {TWO} --out {}", dir.display()));
    assert_eq!(good(&format!("report {}", dir.display())), text);
}

/// Groups that programs create are reported. Without groups there is no such section.
#[test]
fn groups_of_programs_are_reported() {
    let groups =
        |program: &str| good_json(&format!("run {program} --memory 60% --json --quiet"))["groups"].clone();
    assert_eq!(groups("many-groups:2M:3")["classic"].as_array().unwrap().len(), 3);
    assert_eq!(groups("zipf:8M"), Value::Null);
}

#[test]
fn machine_may_have_groups() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("mine.toml");
    let small = Path::new(env!("CARGO_MANIFEST_DIR")).join("../machine-sim/machines/small.toml");
    let text = fs::read_to_string(small).unwrap();
    fs::write(&file, format!("{text}\n[[group]]\nname = 'all'\nmemory.max = '4M'\n")).unwrap();
    let run = format!("run zipf:8M --machine {} --json --quiet", file.display());
    let max = |line: &str| of(&good_json(line), "classic", "all")["limits"]["memory.max"].clone();
    assert_eq!(max(&run), 4 << 20);
    assert_eq!(max(&format!("{run} --group all:memory.max=6M")), 6 << 20);
}

/// A trace that creates a group, enters it and leaves it.
#[test]
fn traces_may_create_groups() {
    use abi::{AccessKind, Call, Group, GroupLimits, Map};
    use trace::event::{Event, Run};
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("grouped.pft");
    let mut writer = trace::Writer::create(&path, "test", &[], 1).unwrap();
    let thread = writer.add_process(None);
    let limits = GroupLimits { max: 2 << 20, ..GroupLimits::default() };
    let (group, pages) = (Group(1), 1024);
    let (addr, len) = (1 << 30, pages << 12);
    let create = Call::GroupCreate(Group::ROOT, limits);
    let before = [
        Event::Call { epoch: 0, call: create, value: group.0.into() },
        Event::call(Call::GroupEnter(group)),
        Event::mapped(1, addr, Map::anonymous(len)),
    ];
    let stores = (0..pages).map(|page| Run { page: (1 << 18) + page, count: 1, mode: AccessKind::Store });
    let after = [
        Event::change(2, Call::Munmap(addr, len)),
        Event::call(Call::GroupEnter(Group::ROOT)),
        Event::call(Call::GroupRemove(group)),
    ];
    for event in before.into_iter().chain(stores.map(Event::Run)).chain(after) {
        writer.push(thread, &event).unwrap();
    }
    writer.finish().unwrap();
    let json = good_json(&format!("run {} --machine small --verify --json --quiet", path.display()));
    let group = of(&json, "classic", "1");
    assert_eq!((&group["limits"], &group["usage"]["memory.peak"]), (&Value::Null, &(2097152.0).into()));
    assert!(group["stat"]["pgsteal_direct"].as_f64().unwrap() >= 512.0);
    assert_eq!(
        (&group["usage"]["memory.current"], &json["warnings"]),
        (&(0.0).into(), &serde_json::json!([]))
    );
}
