//! Each probe does a round on the machine of the test, or says why it cannot. What a round takes is no matter here.
#![cfg(target_os = "linux")]

use pagefold_probe::{
    Clock, Compression, Disk, Kernel, Line, Memory, Shootdown, Switching, Translation, cpus,
};
use std::io;

/// A round of what can be set up here; a machine that cannot be measured so says it in words.
fn once<P, T>(probe: io::Result<P>, round: impl FnOnce(&mut P) -> io::Result<T>) -> Option<T> {
    match probe {
        Ok(mut probe) => Some(round(&mut probe).expect("a probe that was set up does rounds")),
        Err(why) => {
            assert!(!why.to_string().is_empty());
            None
        }
    }
}

#[test]
fn probes_of_one_cpu_do_a_round() {
    let own = cpus::allowed().unwrap()[0];
    let _pinned = cpus::Pinned::to(own).unwrap();
    let ghz = once(Clock::new(), |clock| Ok(clock.round()));
    assert!(ghz.is_none_or(f64::is_finite), "{ghz:?}");
    let kernel = once(Kernel::new(), Kernel::round).expect("the kernel can be measured everywhere");
    let times =
        [kernel.call, kernel.zero_fault, kernel.fault, kernel.file_fault, kernel.protect, kernel.unmap];
    assert!(times.iter().all(|time| time.is_finite()), "{times:?}");
    if let Some(times) = once(Memory::new(), |memory| Ok(memory.round())) {
        let times = [times.latency, times.stream, times.copy, times.clear];
        assert!(times.iter().all(|time| time.is_finite()), "{times:?}");
    }
    let cost = once(Switching::new(own), Switching::round).expect("there are pipes and threads");
    assert!(cost.is_finite(), "{cost}");
    let times = once(Compression::new(), Compression::round).expect("pages can be compressed everywhere");
    assert!(
        [times.lz4, times.unlz4, times.zstd, times.unzstd].iter().all(|time| time.is_finite()),
        "{times:?}"
    );
}

#[test]
fn curve_of_translations_is_read() {
    once(Translation::new(3.0, 1 << 20), |probe| {
        let times = probe.round();
        // A level that a round does not show is NaN; one that it shows has pages.
        assert!(times.first.is_nan() || times.first >= 16.0, "{times:?}");
        assert!(times.second.is_nan() || times.second > times.first, "{times:?}");
        Ok(())
    });
}

#[test]
fn probes_of_two_cpus_do_a_round_or_refuse() {
    let cpus = cpus::allowed().unwrap();
    let (own, others) = cpus.split_first().unwrap();
    let _pinned = cpus::Pinned::to(*own).unwrap();
    let Some(&other) = others.first() else {
        let refused = Shootdown::new(others).err().expect("it needs another CPU");
        assert_eq!(refused.to_string(), "one CPU");
        return;
    };
    let [first, _] = once(Shootdown::new(&[other]), Shootdown::round).expect("there are two CPUs");
    let line = once(Line::new(other), Line::round).expect("there are two CPUs");
    assert!(first.is_finite() && line.is_finite(), "{first} {line}");
}

#[test]
fn scratch_file_of_a_disk_has_no_name() {
    let folder = tempfile::tempdir().unwrap();
    let probe = Disk::new(folder.path());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    if let Some(times) = once(probe, Disk::round) {
        assert!(times.read.is_finite() && times.write_rate.is_finite(), "{times:?}");
    }
    assert!(Disk::new(&folder.path().join("none")).is_err());
}
