//! The simulated machine that a Linux guest was: its CPUs, memory and swap space, and as slow.
//!
//! An emulated CPU needs many times as long for a kernel's work as a real one, but a second of the guest is a second.
//! Where the kernel waits or counts time (write-back, naps of reclaim, the age of statistics), a machine with a real
//! CPU's speed would get further in between. So the twin gets the costs with which [`Probe`] takes as long on it as in
//! the guest, user mode that takes as long as the program spent there, and a disk as slow as the guest's.
//!
//! A fault that maps the page of zeroes is the kernel's instructions alone. It sets the clock, unless the guest's time
//! counts instructions: then one takes a nanosecond, as costs count them, and that fault sets what each fault costs.

use super::areas::{Packing, QUEUE_DEPTH};
use crate::boot::{Second, Shape};
use crate::engine::Machine;
use crate::error::{Error, Result};
use machine_sim::run;
use mm::knobs::Knob;
use mm::units::PAGE_SIZE;
use program::probe::{Probe, Times};
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use std::ops::RangeInclusive;

/// Clock of the machine that the twin is made from, in GHz.
const GHZ: f64 = 3.0;
/// Memory of the machine that the probe runs on.
const PROBES_MEMORY: u64 = 256 << 20;
/// Clocks that are believed.
const SLOWEST: f64 = 0.1;
/// The fastest read of a disk that is believed, in microseconds.
const FASTEST_READ: f64 = 10.0;
/// How many nanoseconds a host takes at most for one of the guest's instructions.
const SLOWEST_HOST: f64 = 1000.0;
/// The most that the twin's user mode takes for an access, in nanoseconds: more is no memory access any more.
const MOST_OF_ACCESS: f64 = 100_000.0;

/// What was measured in the guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Speed {
    /// Whether the kernel clears each page that it hands out.
    pub clears_pages: bool,
    /// Nanoseconds of a fault that clears a page.
    pub fault_nanos: f64,
    /// Nanoseconds of a fault that maps the page of zeroes.
    pub zero_fault_nanos: f64,
    /// Nanoseconds of a fault that copies a page.
    pub copy_fault_nanos: f64,
    /// Nanoseconds of a read of a page that is in memory.
    pub read_nanos: f64,
    /// Nanoseconds of an instruction that the program computes.
    pub instruction_nanos: f64,
    /// Nanoseconds of compressing a page; 0: not measured.
    pub pack_nanos: f64,
    /// Nanoseconds of decompressing one.
    pub unpack_nanos: f64,
    /// Nanoseconds that the program spent in user mode for each access, without what it computed.
    pub access_nanos: f64,
    /// Microseconds of a read from a disk.
    pub read_micros: f64,
    /// Nanoseconds of a read of a page from a disk while all CPUs are idle; 0: not measured.
    pub disk_idle_nanos: f64,
    /// The same of 128 KiB.
    pub disk_idle_large_nanos: f64,
    /// Nanoseconds of a read of a page while CPUs work.
    pub disk_working_nanos: f64,
}

/// How long the twin's disk takes.
struct Disk {
    micros: f64,
    /// MB per second of large requests.
    mbs: f64,
    /// How much faster its time passes while a CPU works.
    pace: f64,
    /// How much longer its late requests take, in microseconds.
    late: f64,
}

/// Nanoseconds of the work `io_submit` where time counts instructions.
const SUBMITTING: f64 = 1608.0;
/// Requests that the host delays, in percent: as many reads of a traced guest were not over when their task left its
/// CPU (23 of 592 in a program, 94 of 2,699 one by one). How the delays of other programs are spread is not known.
const LATE: f64 = 3.5;
/// MB per second if it was not measured.
const MBS: f64 = 1000.0;
/// Bytes of the large read less those of the small one.
const MORE: f64 = (31 * PAGE_SIZE) as f64;

impl Speed {
    /// What boots before 2026-11-27 lack, or measured of a disk that the host had not cached yet: the means of four
    /// later boots, on the same computer.
    pub fn with_usual_disk(self) -> Speed {
        Speed {
            disk_idle_nanos: 4_900.0,
            disk_idle_large_nanos: 6_300.0,
            disk_working_nanos: 4_000.0,
            ..self
        }
    }
}

impl Disk {
    /// The guest's. Where time counts instructions, it is the host's time that the disk takes, of which more passes
    /// while a CPU works, and late requests take what the mean of the program's reads has more; else each takes that
    /// mean.
    fn of(speed: Speed, counted: bool, clamps: &mut Clamps) -> Disk {
        let Speed { read_micros, disk_idle_nanos, disk_idle_large_nanos, disk_working_nanos, .. } = speed;
        if !counted || disk_idle_nanos == 0.0 {
            let measured = if read_micros == 0.0 { FASTEST_READ } else { read_micros };
            let micros = clamps.within("microseconds of a disk's read", measured, FASTEST_READ..=1e6);
            return Disk { micros, mbs: MBS, pace: 1.0, late: 0.0 };
        }
        // The kernel's statistics count from where it builds a request, which takes the twin's CPU time (`io_submit`).
        let [of_device, beside_work] = [disk_idle_nanos, disk_working_nanos].map(|nanos| nanos - SUBMITTING);
        Disk {
            micros: clamps.within("microseconds of a disk's read", of_device / 1000.0, 0.1..=1e6),
            // Bytes in a nanosecond are GB in a second.
            mbs: (1000.0 * MORE / (disk_idle_large_nanos - disk_idle_nanos)).clamp(MBS / 10.0, MBS * 100.0),
            pace: (of_device / beside_work.max(1.0)).clamp(1.0, SLOWEST_HOST),
            late: (read_micros - disk_idle_nanos / 1000.0).max(0.0) * 100.0 / LATE,
        }
    }
}

/// Nanoseconds that are the costs of a twin; 0: the default.
#[derive(Clone, Copy, Debug, Default)]
struct Costs {
    fault_entry: f64,
    zero_page: f64,
    copy_page: f64,
    copy_user: f64,
    instruction: f64,
    access: f64,
    pack: f64,
    unpack: f64,
}

impl Costs {
    /// As a description has them; what compresses is `packing`.
    fn text(&self, packing: Option<&Packing>) -> String {
        let &Costs { fault_entry, zero_page, copy_page, copy_user, instruction, access, pack, unpack } = self;
        let of_packing = |what: &str| {
            packing.map_or(String::new(), |packing| format!("work.{what}_{}", packing.compressor))
        };
        let [compress, decompress] = ["compress", "decompress"].map(of_packing);
        let rows = [
            ("work.fault_entry", fault_entry, "loads of new pages"),
            ("work.zero_page", zero_page, "stores to new pages"),
            ("work.copy_page", copy_page, "stores to private pages of a file"),
            ("work.copy_user", copy_user, "reads of pages in memory"),
            ("hardware.instruction", instruction, "a loop"),
            ("hardware.access", access, "the program's time in user mode"),
            (compress.as_str(), pack, "pages that are swapped out"),
            (decompress.as_str(), unpack, "pages that come back"),
        ];
        rows.iter().filter(|row| row.1 > 0.0 && !row.0.is_empty()).fold(
            String::new(),
            |mut text, (name, nanos, source)| {
                let _ = write!(text, "[costs.{name}]\nns = {nanos:.3}\nsource = \"the guest: {source}\"\n");
                text
            },
        )
    }
}

/// How fast the kernel is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Clock {
    /// In GHz, with the usual number of instructions a cycle.
    Ghz(f64),
    /// Each instruction takes a nanosecond.
    Counted,
}

impl Clock {
    fn ghz(self) -> f64 {
        match self {
            Clock::Ghz(ghz) => ghz,
            Clock::Counted => GHZ,
        }
    }

    /// Its row of the costs, if it needs one.
    fn text(self) -> String {
        match self {
            Clock::Ghz(_) => String::new(),
            Clock::Counted => {
                let source = "the guest's nanosecond is an instruction";
                format!("[costs.kernel_ipc]\nvalue = {:?}\nsource = \"{source}\"\n", GHZ.recip())
            }
        }
    }
}

/// How slow a machine is.
#[derive(Clone, Copy)]
struct Slow<'a> {
    clock: Clock,
    /// Its kernel clears each page that it hands out.
    clears_pages: bool,
    costs: Costs,
    /// What compresses, if something does.
    packing: Option<&'a Packing>,
}

/// The description of a machine of this shape, with pages of the kernel, a clock, latency of its disk and costs.
fn description(shape: &Shape, kernels: u64, disk: &Disk, slow: &Slow<'_>) -> String {
    let &Slow { clock, costs, packing, .. } = slow;
    let &Disk { micros, mbs, late, .. } = disk;
    let micros = (10.0 * micros).round() / 10.0;
    let swapping = match shape.swap * PAGE_SIZE {
        0 => String::new(),
        bytes => format!("swap = \"disk\"\nswap_size = {bytes}\n"),
    };
    let (nodes, ghz, costs) = (nodes(shape, kernels), clock.ghz(), clock.text() + &costs.text(packing));
    format!(
        "description = \"the twin of a Linux guest\"\n\
         [cpu]\nghz = {ghz:.3}\nasids = 0\nhw_young = true\nhw_nonleaf_young = true\nsource = \"the guest's faults that map the page of zeroes\"\n\
         [tlb]\n\
         l1d_4k = {{ entries = 64, ways = 4 }}\nl1d_2m = {{ entries = 32, ways = 4 }}\nl1i_4k = {{ entries = 128, ways = 8 }}\n\
         l1i_2m = {{ entries = 8, ways = 8 }}\nl2 = {{ entries = 1536, ways = 12 }}\npde = {{ entries = 32, ways = 4 }}\n\
         pdpte = {{ entries = 4, ways = 4 }}\npml4e = {{ entries = 2, ways = 2 }}\nlines = 1024\n\
         source = \"as the preset small\"\n\
         {nodes}\
         [[device]]\nname = \"disk\"\nsize = \"500G\"\nread_us = {micros}\nwrite_us = {micros}\nread_mbs = {mbs:.0}\n\
         write_mbs = {mbs:.0}\nqueue_depth = {QUEUE_DEPTH}\njitter_pct = 10\n\
         late = {{ share_pct = {LATE:?}, us = {late:.0} }}\nsource = \"the guest's disks\"\n\
         [storage]\nfiles = \"disk\"\n{swapping}{costs}"
    )
}

/// The nodes, with memory as firmware tells the guest of it, and shares of the kernel's pages.
fn nodes(shape: &Shape, kernels: u64) -> String {
    let (told, preset) = shape.told();
    let node = |(number, bytes): (usize, &u64)| {
        let (latency, bandwidth) = if shape.cpus_of(number as u32) > 0 { told.near } else { told.far };
        format!(
            "[[node]]\ncpus = {}\nmemory = [{{ size = {bytes}, zone = \"dma32\" }}]\nkernels = {}\nlatency_ns = {latency}\n\
             bandwidth_gbs = {bandwidth}\nsource = \"as the preset {preset}\"\n",
            shape.cpus_of(number as u32),
            kernels_of(shape, kernels, *bytes) * PAGE_SIZE
        )
    };
    let mut text: String = shape.memory_by_node().iter().enumerate().map(node).collect();
    if shape.count() > 1 {
        let far = told.distance;
        text.push_str(&format!(
            "[distance]\nrows = [[10, {far}], [{far}, 10]]\nhop_ns = {}\nsource = \"as the preset {preset}\"\n",
            told.hop
        ));
    }
    text
}

/// A node's share of the kernel's pages, if the program gets `bytes` of it.
pub fn kernels_of(shape: &Shape, kernels: u64, bytes: u64) -> u64 {
    kernels * bytes / shape.memory()
}

/// A guest's twin.
#[derive(Debug)]
pub struct Twin {
    /// The machine.
    pub machine: Machine,
    /// Its description.
    pub text: String,
    /// How much faster its disks' time passes while a CPU works.
    pub devices_pace: f64,
    /// Which measured speeds it does not have.
    pub warnings: Vec<String>,
}

/// Measured speeds that no twin has, and what it has instead.
#[derive(Default)]
struct Clamps(Vec<String>);

impl Clamps {
    /// `measured`, but within `range`.
    fn within(&mut self, what: &str, measured: f64, range: RangeInclusive<f64>) -> f64 {
        let taken = measured.clamp(*range.start(), *range.end());
        if taken != measured {
            self.0.push(format!(
                "the twin is not as slow as the guest: {what}: {measured:.1} measured, {taken:.1} taken"
            ));
        }
        taken
    }
}

/// The twin of a guest whose kernel has `kernels` pages of its zones. `counted`: its time counts instructions.
pub fn twin(
    name: &str,
    (shape, kernels): (&Shape, u64),
    (speed, packing): (Speed, Option<&Packing>),
    counted: bool,
) -> Result<Twin> {
    let mut clamps = Clamps::default();
    let clock = match counted {
        true => Clock::Counted,
        false => Clock::Ghz(as_slow_clock(speed, &mut clamps)?),
    };
    let costs = as_slow((speed, packing), clock, &mut clamps)?;
    let disk = Disk::of(speed, counted, &mut clamps);
    let slow = Slow { clock, clears_pages: speed.clears_pages, costs, packing };
    let text = description(shape, kernels, &disk, &slow);
    let machine = Machine::from_toml(name, &text)?;
    Ok(Twin { machine, text, devices_pace: disk.pace, warnings: clamps.0 })
}

/// Nanoseconds of compressing or decompressing that are certainly more than what a page of zeroes takes instead.
const PACKING: f64 = 50_000.0;

/// The costs with which the probe takes as long as in the guest. What other faults take beyond one that maps the page
/// of zeroes is a page's zeroing or copying.
fn as_slow((speed, packing): (Speed, Option<&Packing>), clock: Clock, clamps: &mut Clamps) -> Result<Costs> {
    let probe = |costs| probe(Slow { clock, clears_pages: speed.clears_pages, costs, packing });
    // With the least that a cost may be, the probe shows what a fault takes besides.
    let least = 1.0;
    let mut rest = |what: &str, measured: f64, besides: f64| match measured > 0.0 {
        true => clamps.within(what, measured - besides, least..=f64::MAX),
        false => 0.0,
    };
    let costs = Costs {
        zero_page: least,
        copy_page: least,
        copy_user: least,
        pack: PACKING,
        unpack: PACKING,
        ..Costs::default()
    };
    let fault_entry = match clock {
        Clock::Ghz(_) => 0.0,
        Clock::Counted => {
            let besides = probe(Costs { fault_entry: least, ..costs })?;
            rest("nanoseconds of a fault", speed.zero_fault_nanos, nanos(besides.zero_fault))
        }
    };
    let besides = probe(Costs { fault_entry, ..costs })?;
    let zero_page = rest("nanoseconds of clearing a page", speed.fault_nanos, nanos(besides.fault));
    // A kernel may clear a page also where it copies or decompresses to it.
    let besides = probe(Costs { fault_entry, zero_page, ..costs })?;
    Ok(Costs {
        fault_entry,
        zero_page,
        copy_page: rest("nanoseconds of copying a page", speed.copy_fault_nanos, nanos(besides.copy_fault)),
        copy_user: rest("nanoseconds of reading a page", speed.read_nanos, nanos(besides.read)),
        instruction: speed.instruction_nanos,
        pack: rest("nanoseconds of compressing a page", speed.pack_nanos, nanos(besides.pack) - PACKING),
        unpack: rest(
            "nanoseconds of decompressing a page",
            speed.unpack_nanos,
            nanos(besides.unpack) - PACKING,
        ),
        access: clamps.within("nanoseconds of an access", speed.access_nanos, 0.0..=MOST_OF_ACCESS),
    })
}

/// The clock in GHz with which a fault that maps the page of zeroes takes as long as in the guest. A part of it does
/// not depend on the clock; two measurements tell how much.
fn as_slow_clock(speed: Speed, clamps: &mut Clamps) -> Result<f64> {
    let of = |ghz| Slow {
        clock: Clock::Ghz(ghz),
        clears_pages: speed.clears_pages,
        costs: Costs::default(),
        packing: None,
    };
    let fault = |ghz| probe(of(ghz)).map(|times| nanos(times.zero_fault));
    let mut believed = |ghz: f64| clamps.within("GHz of its clock", ghz, SLOWEST..=GHZ);
    let fast = fault(GHZ)?;
    if speed.zero_fault_nanos == 0.0 {
        return Ok(GHZ);
    }
    let near = GHZ * fast / speed.zero_fault_nanos.max(1.0);
    if near >= GHZ {
        return Ok(believed(near));
    }
    let near = near.max(SLOWEST);
    let cycles = (fault(near)? - fast) / (near.recip() - GHZ.recip());
    let fixed = fast - cycles / GHZ;
    Ok(believed(cycles / (speed.zero_fault_nanos - fixed)))
}

fn nanos(picos: u64) -> f64 {
    picos as f64 / 1000.0
}

/// The probe uses no disk.
const ANY_DISK: Disk = Disk { micros: 100.0, mbs: MBS, pace: 1.0, late: 0.0 };

/// What the probe takes on a simulated machine that is so slow.
fn probe(slow: Slow<'_>) -> Result<Times> {
    let shape = Shape::new(1, Second::Missing, PROBES_MEMORY, 0)?;
    let machine = Machine::from_toml("the probe's", &description(&shape, 0, &ANY_DISK, &slow))?;
    let mut config = machine.config();
    let probe = match slow.packing {
        Some(Packing { swap, knobs, .. }) => {
            (config.swap, config.knobs) = (swap.clone(), knobs.clone());
            Probe::of_packing()
        }
        None => Probe::default(),
    };
    config.knobs.push((Knob::InitOnAlloc, slow.clears_pages.into()));
    run(&config, &probe).map_err(|error| Error::Failed(format!("the probe: {error}")))?;
    Ok(probe.times())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boot::Ratio;

    /// What was measured on a guest is measured on its twin.
    #[test]
    fn a_twin_takes_as_long_for_the_probe_as_the_guest() {
        let speed = Speed {
            fault_nanos: 9000.0,
            zero_fault_nanos: 4000.0,
            copy_fault_nanos: 12_000.0,
            read_nanos: 5100.0,
            instruction_nanos: 2.5,
            pack_nanos: 31_000.0,
            // What comes back is decompressed, and a page of zeroes is cleared instead.
            unpack_nanos: 5000.0,
            ..Speed::default()
        };
        let swap = vec!["zram:100%,algorithm=lz4".parse().unwrap()];
        let packing = Packing { compressor: "lz4".to_owned(), swap, knobs: Vec::new() };
        let clocks = [as_slow_clock(speed, &mut Clamps::default()).map(Clock::Ghz).unwrap(), Clock::Counted];
        for (clock, clears_pages) in clocks.into_iter().zip([false, true]) {
            let speed = Speed { clears_pages, ..speed };
            let costs = as_slow((speed, Some(&packing)), clock, &mut Clamps::default()).unwrap();
            let times = probe(Slow { clock, clears_pages, costs, packing: Some(&packing) }).unwrap();
            let measured = [9000.0, 4000.0, 12_000.0, 5100.0, 2.5, 31_000.0, 5000.0];
            for ((name, picos), expected) in times.named().iter().zip(measured) {
                let found = nanos(*picos);
                assert!((found - expected).abs() < 0.02 * expected, "{name}: {found} ns, not {expected}");
            }
        }
    }

    /// What a fault costs tells nothing of other work.
    #[test]
    fn an_instruction_of_a_kernel_that_counts_takes_a_nanosecond_however_long_a_fault_takes() {
        let shape = Shape::new(1, Second::Missing, 64 << 20, 0).unwrap();
        let slot = |machine: Machine| {
            let costs = machine.costs();
            costs.iter().find(|cost| cost.name == "swap_slot").unwrap().nanos
        };
        let usual = description(
            &shape,
            0,
            &ANY_DISK,
            &Slow { clock: Clock::Ghz(GHZ), clears_pages: false, costs: Costs::default(), packing: None },
        );
        let instructions = slot(Machine::from_toml("t", &usual).unwrap()) * 0.56 * GHZ;
        for zero_fault_nanos in [1500.0, 3000.0] {
            let speed = Speed { zero_fault_nanos, ..Speed::default() };
            let nanos = slot(twin("t", (&shape, 0), (speed, None), true).unwrap().machine);
            assert!((nanos - instructions).abs() < 0.01 * instructions, "{nanos} ns, {instructions}");
        }
    }

    #[test]
    fn a_speed_that_the_twin_does_not_have_is_said() {
        let shape = Shape::new(1, Second::Missing, 64 << 20, 0).unwrap();
        let of = |speed| twin("t", (&shape, 0), (speed, None), false).unwrap().warnings;
        let none = Speed::default();
        for (speed, words) in [
            (Speed { read_micros: 2.5, ..none }, "a disk's read: 2.5 measured, 10.0 taken"),
            (Speed { access_nanos: 250_000.0, ..none }, "an access: 250000.0 measured, 100000.0 taken"),
            (Speed { zero_fault_nanos: 1.0, ..none }, "its clock: "),
            (Speed { zero_fault_nanos: 1e9, ..none }, "its clock: 0.0 measured, 0.1 taken"),
            (Speed { fault_nanos: 1.0, ..none }, "clearing a page: -"),
        ] {
            let warnings = of(speed);
            assert!(matches!(&warnings[..], [one] if one.contains(words)), "{words}: {warnings:?}");
        }
    }

    #[test]
    fn a_disk_takes_the_hosts_time_where_time_counts_instructions() {
        let shape = Shape::new(2, Second::Missing, 64 << 20, 16384).unwrap();
        let speed = Speed {
            read_micros: 90.0,
            disk_idle_nanos: 21_608.0,
            disk_idle_large_nanos: 148_584.0,
            disk_working_nanos: 6_608.0,
            ..Speed::default()
        };
        // 68.4 us more than a direct read, in 3.5 % of the requests.
        for (counted, pace, micros, late) in [(true, 4.0, 20, 1954), (false, 1.0, 90, 0)] {
            let twin = twin("t", (&shape, 0), (speed, None), counted).unwrap();
            assert_eq!(twin.devices_pace, pace);
            let disk = format!("read_us = {micros}\nwrite_us = {micros}\nread_mbs = 1000\n");
            let late = format!("late = {{ share_pct = 3.5, us = {late} }}\n");
            assert!(twin.text.contains(&disk) && twin.text.contains(&late), "{disk}{late}: {}", twin.text);
        }
        let old = Speed { disk_idle_nanos: 0.0, ..speed };
        let twin = twin("t", (&shape, 0), (old, None), true).unwrap();
        assert!(twin.devices_pace == 1.0 && twin.text.contains("read_us = 90\n"), "not measured");
    }

    #[test]
    fn a_slow_guest_has_a_slow_twin() {
        let full = nanos(
            probe(Slow {
                clock: Clock::Ghz(GHZ),
                clears_pages: false,
                costs: Costs::default(),
                packing: None,
            })
            .unwrap()
            .zero_fault,
        );
        let speed = Speed {
            zero_fault_nanos: full * 10.0,
            access_nanos: 60.0,
            read_micros: 250.0,
            ..Speed::default()
        };
        let shape = |second, swap| Shape::new(2, second, 64 << 20, swap).unwrap();
        let Twin { text, warnings, .. } =
            twin("t", (&shape(Second::Missing, 16384), 0), (speed, None), false).unwrap();
        assert_eq!(warnings, Vec::<String>::new());
        for part in ["ghz = 0.28", "read_us = 250", "[costs.hardware.access]\nns = 60.000"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let fast = Speed::default();
        let Twin { text, warnings, .. } =
            twin("t", (&shape(Second::Missing, 0), 0), (fast, None), false).unwrap();
        assert_eq!(warnings, Vec::<String>::new(), "nothing was measured");
        assert!(text.contains("ghz = 3.000") && !text.contains("swap") && !text.contains("costs"), "{text}");
        let Twin { machine, text, .. } =
            twin("t", (&shape(Second::Slow(Ratio(1, 3)), 0), 3000), (fast, None), false).unwrap();
        assert!(
            text.contains("cpus = 0\nmemory = [{ size = 50331648, zone = \"dma32\" }]\nkernels = 9216000"),
            "{text}"
        );
        assert_eq!(machine.memory(), 64 << 20);
    }
}
