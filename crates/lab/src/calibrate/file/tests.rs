use super::super::quantity::{Estimate, Quantity, Row};
use super::*;
use crate::engine::Machine;

/// A calibration with these medians by key, with intervals of 2 %; a whole number has none.
fn calibration(medians: &[(&str, f64)]) -> Calibration {
    let row = |&(key, median): &(&str, f64)| {
        let interval = (median.fract() != 0.0).then_some([0.99 * median, 1.01 * median]);
        let quantity = Quantity::new("a number", "ns", key, "a method");
        let mut row = Row::new(quantity, Ok(Estimate { median, interval, rounds: 9 }));
        row.written = true;
        row
    };
    Calibration {
        date: "2026-11-29".into(),
        kernel: "6.18".into(),
        cpu: "A CPU".into(),
        cpus: 2,
        is_virtual: false,
        base: "laptop".into(),
        seconds: 20.0,
        rows: medians.iter().map(row).collect(),
        memory: [3 << 30, 9 << 30, 0],
    }
}

fn rendered(medians: &[(&str, f64)], base: &str) -> (Table, Machine) {
    let text = render(&calibration(medians), &Base::find(base).unwrap()).unwrap();
    let machine = Machine::from_toml("mine", &text).unwrap_or_else(|error| panic!("{error}:\n{text}"));
    (text.parse().unwrap(), machine)
}

/// What a key holds, as TOML.
fn at(table: &Table, key: &str) -> String {
    find(table, key).unwrap_or_else(|| panic!("{key}")).to_string()
}

#[test]
fn measured_numbers_are_in_their_places() {
    let (table, machine) = rendered(
        &[
            ("cpu.ghz", 2.9437),
            ("tlb.l1d_4k.entries", 64.0),
            ("tlb.l2.entries", 1280.0),
            ("tlb.lines", 2048.0),
            ("node.0.cpus", 2.0),
            ("node.0.memory", 12.0),
            ("node.0.latency_ns", 210.25),
            ("device.0.read_us", 70.5),
            ("costs.kernel_ipc", 0.6012),
            ("costs.work.syscall", 155.12),
            ("costs.hardware.line_socket", 122.06),
        ],
        "laptop",
    );
    for (key, expected) in [
        ("cpu.ghz", "2.944"),
        ("tlb.l1d_4k.entries", "64"),
        ("tlb.l1d_4k.ways", "4"),
        ("tlb.l2.entries", "1280"),
        ("tlb.l2.ways", "10"),
        ("tlb.lines", "2048"),
        ("node.0.cpus", "2"),
        ("node.0.memory.1.size", "\"9216M\""),
        ("node.0.latency_ns", "210.3"),
        ("device.0.read_us", "70.5"),
        ("costs.kernel_ipc.value", "0.6012"),
        ("costs.work.syscall.ns", "155.1"),
        ("costs.hardware.line_socket.ns", "122.1"),
    ] {
        assert_eq!(at(&table, key), expected, "{key}");
    }
    assert_eq!((machine.cpus(), machine.memory()), (2, 12 << 30));
}

#[test]
fn what_is_not_measured_is_the_bases() {
    let base = Base::find("laptop").unwrap();
    let (table, machine) = rendered(&[("cpu.ghz", 2.9437), ("costs.work.zero_page", 400.5)], "laptop");
    for key in [
        "cpu.asids",
        "tlb.l2",
        "tlb.lines",
        "node.0.latency_ns",
        "node.0.cpus",
        "device.0.read_us",
        "storage",
    ] {
        assert_eq!(at(&table, key), at(base.table(), key), "{key}");
    }
    let known = Machine::find("laptop").unwrap().costs();
    for (cost, known) in machine.costs().iter().zip(&known).filter(|(cost, _)| cost.name != "zero_page") {
        // Cycles and instructions take less time at another clock.
        let clocks = known.source.contains("GHz");
        assert!(cost.nanos == known.nanos || clocks, "{}", cost.name);
    }
}

#[test]
fn each_number_has_a_source_with_its_method_and_date() {
    let keys = [
        ("cpu.ghz", 2.9437),
        ("costs.kernel_ipc", 0.6012),
        ("costs.work.copy_page", 700.5),
        ("tlb.lines", 9.0),
    ];
    let (table, _) = rendered(&keys, "laptop");
    for key in ["cpu.source", "costs.kernel_ipc.source", "costs.work.copy_page.source"] {
        let source = at(&table, key);
        let expected =
            "measured 2026-11-29 on A CPU, Linux 6.18: a method; median of 9 rounds, 95 % interval";
        assert!(source.contains(expected), "{key}: {source}");
    }
    let cpu = at(&table, "cpu.source");
    let others = "asids, hw_young, hw_nonleaf_young: not measured, from laptop: Skylake";
    assert!(cpu.starts_with("\"ghz: measured") && cpu.contains(others), "{cpu}");
    assert!(at(&table, "tlb.source").starts_with("\"lines: read 2026-11-29: a method; l1d_4k, "), "{table}");
    assert!(at(&table, "node.0.source").starts_with("\"not measured, from laptop: estimate"));
    assert!(at(&table, "device.0.source").starts_with("\"not measured, from laptop: data sheet"));
}

#[test]
fn file_that_was_measured_can_be_a_base() {
    let keys = [("cpu.ghz", 2.9437), ("tlb.l2.entries", 1408.0)];
    let text = render(&calibration(&keys), &Base::find("tiers").unwrap()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    std::fs::write(&path, &text).unwrap();
    let base = Base::find(path.to_str().unwrap()).unwrap();
    let again = render(&calibration(&keys[..1]), &base).unwrap();
    let table: Table = again.parse().unwrap();
    assert_eq!(at(&table, "tlb.l2.entries"), "1408");
    let node = at(&table, "node.0.source");
    assert_eq!(node.matches("not measured").count(), 1, "{node}");
}

#[test]
fn ways_are_such_that_sets_are_a_power_of_two() {
    for (entries, known, ways) in
        [(64, 4, 4), (96, 4, 3), (1536, 12, 12), (1280, 12, 10), (1408, 12, 11), (7, 4, 7)]
    {
        assert_eq!(geometry(entries, known), (entries, ways), "{entries}");
    }
}

#[test]
fn numbers_keep_four_digits() {
    for (value, expected) in [(2.94371, 2.944), (0.60123, 0.6012), (13174.3, 13174.0), (0.0, 0.0)] {
        assert_eq!(rounded(value), expected);
    }
}
