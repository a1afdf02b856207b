//! Presets parse, costs are complete, errors name the place.

use super::*;
use mm::machine::Work;

#[test]
fn every_preset_parses_and_has_a_source_for_every_number() {
    for name in MachineSpec::presets() {
        let spec = MachineSpec::preset(name).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(spec.costs().rows().count(), Work::COUNT + Hardware::ALL.len());
        assert!(spec.costs().rows().all(|row| !row.source.is_empty() && row.nanos > 0.0));
        assert!(!spec.tlb().source.is_empty() && !spec.cpu().source.is_empty());
        assert!(spec.nodes().iter().all(|node| !node.source.is_empty()));
        assert!(spec.devices().iter().all(|device| !device.source.is_empty()));
    }
}

#[test]
fn the_seeds_machines_have_their_size() {
    let size = |name: &str| {
        let spec = MachineSpec::preset(name).unwrap();
        (spec.cpus(), spec.memory() >> 30, spec.nodes().len())
    };
    assert_eq!(size("laptop"), (4, 8, 1));
    assert_eq!(size("luf-cxl"), (64, 140, 2));
    assert_eq!(size("icelake-96"), (96, 192, 2));
    assert_eq!(size("compact-8"), (8, 16, 1));
    assert_eq!(size("numa-4s-2015"), (48, 64, 4));
    assert_eq!(MachineSpec::preset("small").unwrap().memory(), 256 << 20);
}

#[test]
fn less_memory_is_shared_among_nodes_and_too_little_is_refused() {
    let luf = MachineSpec::preset("luf-cxl").unwrap().with_memory(1400 << 20).unwrap();
    let node =
        |n: u8| luf.ranges().iter().filter(|r| r.node.0 == n).map(|r| r.frames as u64).sum::<u64>() >> 8;
    assert_eq!((node(0), node(1)), (420, 980));
    let laptop = MachineSpec::preset("laptop").unwrap().with_memory(64 << 20).unwrap();
    assert_eq!((laptop.ranges().len(), laptop.ranges()[0].kind), (1, ZoneKind::Dma32));
    let error = MachineSpec::preset("laptop").unwrap().with_memory(1 << 20).unwrap_err();
    assert_eq!(
        error.to_string(),
        "memory: 1048576 bytes are too small to run: this machine needs at least 8M"
    );
}

#[test]
fn errors_say_where() {
    let text = |name: &str| PRESETS.iter().find(|preset| preset.0 == name).unwrap().1.to_string();
    let error = |text: &str| MachineSpec::from_toml("mine.toml", text).unwrap_err().to_string();
    let bad = error(&text("small").replace("ghz =", "gzh ="));
    assert!(bad.starts_with("mine.toml: TOML parse error at line") && bad.contains("gzh"), "{bad}");
    let bad = error(&text("small").replace("asids = 6", "asids = 99"));
    assert!(bad.contains("cpu.asids: is 99, the most is 32"), "{bad}");
    let bad = error(&(text("small") + "\n[costs.work.zero_pgae]\nns = 1\nsource = \"x\"\n"));
    assert!(bad.contains("costs.zero_pgae: names no work"), "{bad}");
    let bad = error(&(text("small") + "\n[costs.work.zero_page]\nns = 1\ninsns = 1\nsource = \"x\"\n"));
    assert!(bad.contains("costs.work.zero_page: needs exactly one"), "{bad}");
    let bad = MachineSpec::preset("labtop").unwrap_err().to_string();
    assert_eq!(bad, "machine: there is no preset \"labtop\"; did you mean \"laptop\"?");
}

#[test]
fn sizes_are_read_with_their_units() {
    assert_eq!(Bytes::parse("8G"), Some(Bytes(8 << 30)));
    assert_eq!(Bytes::parse("4096"), Some(Bytes(4096)));
    assert_eq!(Bytes::parse("3.5G"), None);
    assert_eq!(Bytes::parse("99999999999G"), None);
}

#[test]
fn the_twin_of_a_booted_machine_has_its_shape() {
    let twin = MachineSpec::from_booted_name("booted:3:2:64M").unwrap();
    assert_eq!(twin.nodes().iter().map(|node| node.cpus).collect::<Vec<_>>(), [2, 1]);
    assert_eq!((twin.cpus(), twin.cpu().asids, twin.distance(0, 1)), (3, 0, 21));
    assert_eq!(twin.swap().map(|(_, pages)| pages), Some(16384));
    let twin = twin.with_memory(24 << 20).unwrap();
    assert_eq!(twin.memory(), 24 << 20);
    assert_eq!(MachineSpec::from_booted_name("booted:1:2:0").unwrap().swap(), None);
    for bad in
        ["booted", "booted:0:1:0", "booted:1:3:0", "booted:1:1", "booted:1:1:x", "booted:1:1:0:0", "random:1"]
    {
        assert!(MachineSpec::from_booted_name(bad).is_none(), "{bad}");
    }
}
