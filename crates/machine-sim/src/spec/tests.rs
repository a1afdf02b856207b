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
    let error = MachineSpec::preset("laptop").unwrap().with_memory((1 << 20) - 1).unwrap_err();
    assert_eq!(
        error.to_string(),
        "memory: 1048575 bytes are too small to run: this machine needs at least 1M"
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
fn every_number_has_a_range() {
    let small = PRESETS.iter().find(|preset| preset.0 == "small").unwrap().1;
    let (memory, huge) = ("size = \"256M\", zone = \"dma32\"", "18446744073709551615");
    let other = format!("size = {huge}, zone = \"normal\"");
    let two_huge = format!("{other} }}, {{ {other}");
    let kernels = format!("kernels = {huge}\nlatency_ns");
    let nine = [memory; 9].join(" }, { ");
    for (from, to, expected) in [
        (memory, other.as_str(), "node.memory: 18446744073709551615 bytes in all are more than 8T"),
        (memory, two_huge.as_str(), "node.memory: 36893488147419103230 bytes in all are more than 8T"),
        ("latency_ns", kernels.as_str(), "are more than 8T"),
        (memory, "size = \"256M\", zone = \"movable\" }]\nkernels = \"1M\" #", "node.kernels: needs memory"),
        ("[{ size = \"256M\", zone = \"dma32\" }]", "[]\nkernels = \"1M\"", "node.kernels: needs memory"),
        ("latency_ns", "unmovable = { blocks = 1, free = [] }\nlatency_ns", "node.kernels: is less"),
        (
            "latency_ns",
            "unmovable = { blocks = 1, free = [1, 256] }\nlatency_ns",
            "node.unmovable: free: is more",
        ),
        (
            "latency_ns",
            "reclaimable = { blocks = 9, free = [0, 0, 0, 0, 0, 0, 0, 0, 0, 1] }\nlatency_ns",
            "node.reclaimable: free: has 10 orders",
        ),
        (memory, nine.as_str(), "node.memory: has 9 ranges, the most is 8"),
        (memory, "size = 0, zone = \"normal\"", "node.memory: a node has less than 1M"),
        ("[{ size = \"256M\", zone = \"dma32\" }]", "[]", "node.memory: a node has less than 1M"),
        ("cpus = 1", "cpus = 4294967295", "node.cpus: the machine has 4294967295 CPUs"),
        ("cpus = 1", "cpus = 0", "node.cpus: the machine has 0 CPUs"),
        ("ghz = 3.0", "ghz = nan", "cpu.ghz: is NaN, not between"),
        ("ghz = 3.0", "ghz = 1e-300", "cpu.ghz: is 1e-300, not between 0.1 and 10.0"),
        ("asids = 6", "asids = 33", "cpu.asids: is 33"),
        ("entries = 1536, ways = 12", "entries = 0, ways = 12", "tlb.l2: 0 entries in 12 ways"),
        (
            "entries = 1536, ways = 12",
            "entries = 32768, ways = 16",
            "tlb.l2: 32768 entries, the most is 16384",
        ),
        (
            "entries = 1536, ways = 12",
            "entries = 4294967295, ways = 4294967295",
            "tlb.l2: 4294967295 entries",
        ),
        ("lines = 1024", "lines = 4294967295", "tlb.lines: is 4294967295"),
        ("latency_ns = 80", "latency_ns = inf", "node.latency_ns: is inf"),
        ("bandwidth_gbs = 12", "bandwidth_gbs = 0", "node.bandwidth_gbs: is 0.0,"),
        ("size = \"500G\"", "size = 18446744073709551615", "size: is more than 128T"),
        ("size = \"500G\"", "size = 0", "storage.swap_size: is 536870912 bytes, and \"nvme0\" has 0"),
        ("read_us = 67", "read_us = 1e9", "device \"nvme0\": read_us: is 1000000000.0"),
        ("write_us = 20", "write_us = -1", "write_us: is -1"),
        ("read_mbs = 3500", "read_mbs = 1e-300", "read_mbs: is 1e-300"),
        ("write_mbs = 2500", "write_mbs = nan", "write_mbs: is NaN"),
        ("queue_depth = 128", "queue_depth = 0", "queue_depth: is 0"),
        ("jitter_pct = 10", "jitter_pct = 100", "jitter_pct: is 100"),
        ("jitter_pct = 10", "late = { share_pct = 101, us = 1 }", "late.share_pct: is 101"),
        ("jitter_pct = 10", "late = { share_pct = 1, us = -1 }", "late.us: is -1"),
        ("swap_size = \"512M\"", "swap_size = \"16T\"", "storage.swap_size: is"),
        ("swap_size = \"512M\"", "swap_size = 18446744073709551615", "storage.swap_size: is more than"),
        (
            "[storage]",
            "[distance]\nrows = [[10]]\nhop_ns = inf\nsource = 'x'\n[storage]",
            "distance.hop_ns: is inf",
        ),
        (
            "[storage]",
            "[distance]\nrows = [[0]]\nhop_ns = 1\nsource = 'x'\n[storage]",
            "distance.rows: 0 is not",
        ),
        (
            "[cpu]",
            "[costs.work.zero_page]\nns = 1e7\nsource = 'x'\n[cpu]",
            "costs.work.zero_page: is 10000000.0 ns",
        ),
        ("[cpu]", "[costs]\nkernel_ipc = { value = nan, source = 'x' }\n[cpu]", "kernel_ipc: is NaN"),
    ] {
        assert!(small.contains(from), "{from}");
        let error =
            MachineSpec::from_toml("mine.toml", &small.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.starts_with("mine.toml: ") && error.contains(expected), "{to}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn memory_of_any_size_is_laid_out_or_refused() {
    for name in MachineSpec::presets() {
        let machine = MachineSpec::preset(name).unwrap();
        let sizes =
            (0..64).flat_map(|shift| [1u64 << shift, (1 << shift) - 1]).chain([u64::MAX, MOST, MOST + 1]);
        for bytes in sizes {
            if let Ok(sized) = machine.clone().with_memory(bytes) {
                assert!(
                    bytes <= MOST && sized.memory() == bytes.next_multiple_of(PAGE_SIZE),
                    "{name}, {bytes}"
                );
            }
        }
    }
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
    let tiers = MachineSpec::from_booted_name("booted:3:2:64M:2:5").unwrap().with_memory(28 << 20).unwrap();
    assert_eq!(tiers.nodes().iter().map(|node| node.cpus).collect::<Vec<_>>(), [3, 0]);
    assert_eq!(tiers.ranges().iter().map(|range| range.frames).collect::<Vec<_>>(), [2048, 5120]);
    let distances = [0, 1].map(|node| tiers.memory_distance(node));
    assert_eq!(distances, [0, 1].map(|node| MachineSpec::preset("tiers").unwrap().memory_distance(node)));
    for bad in [
        "booted",
        "booted:0:1:0",
        "booted:1:3:0",
        "booted:1:1",
        "booted:1:1:x",
        "booted:1:2:0:0",
        "booted:1:1:0:1:2",
        "random:1",
    ] {
        assert!(MachineSpec::from_booted_name(bad).is_none(), "{bad}");
    }
}
