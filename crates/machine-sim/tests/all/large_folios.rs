//! Large folios on whole machines, under the oracle and every flush policy: files that are read, written, mapped and
//! truncated, and anonymous memory, with too little memory.

use super::acts::{MIB, PAGE, POLICIES, load_all, outcome, play, push, store_all, unharmed};
use machine_sim::{MachineSpec, Outcome, RunConfig};
use mm::knobs::Knob;
use mm::stat::Stat;
use program::chaos::Chaos;
use program::rng::Rng;
use program::{
    Advice, FileAdvice, FileSpec, Map, MapSource, Os, Program, Prot, Remap, Role, Signal, builtin,
};

fn config(machine: &str, memory: u64, order: u64, policy: u64) -> RunConfig {
    let machine = MachineSpec::preset(machine).unwrap();
    let mut knobs = vec![
        (Knob::FileMaxOrder, order),
        (Knob::ShmemMaxOrder, order),
        (Knob::TlbUnmap, policy),
        (Knob::TlbAgeLimitMs, 5),
    ];
    if order > 0 {
        // The largest folios fit into such windows. With single pages, each miss would read 512 of them.
        knobs.push((Knob::ReadAheadKb, 2048));
    }
    RunConfig { memory: Some(memory), verify: true, bound: true, knobs, ..RunConfig::new(machine) }
}

#[test]
fn built_in_programs_run_with_file_folios_of_all_sizes() {
    for (i, (name, _)) in (0..).zip(builtin::LIST) {
        for (order, policy) in [(2 + i % 8, i % POLICIES), (9, (i + 3) % POLICIES)] {
            let program = builtin::from_name(name, 48 * MIB).unwrap().with_passes(4).with_threads(3);
            unharmed(&config("laptop", 32 * MIB, order, policy), &program);
        }
    }
}

/// The knobs for sizes of anonymous folios.
fn anon_sizes(orders: &[u64]) -> Vec<(Knob, u64)> {
    let of = |order: &u64| Knob::from_name(&format!("hugepages-{}kB.enabled", 4 << order)).unwrap();
    orders.iter().map(|order| (of(order), 2)).collect()
}

fn anon_config(memory: u64, orders: &[u64], policy: u64) -> RunConfig {
    let mut config = config("laptop", memory, 0, policy);
    config.knobs.extend(anon_sizes(orders));
    config
}

const SIZES: [&[u64]; 4] = [&[2, 3, 4, 5, 6, 7, 8, 9], &[4], &[2, 9], &[5, 6]];

#[test]
fn built_in_programs_run_with_anonymous_folios_of_all_sizes() {
    for (i, (name, _)) in (0..).zip(builtin::LIST) {
        let program = builtin::from_name(name, 48 * MIB).unwrap().with_passes(4).with_threads(3);
        unharmed(&anon_config(32 * MIB, SIZES[i as usize % SIZES.len()], i % POLICIES), &program);
    }
}

#[test]
fn madvise_gives_the_sizes_that_need_madvise() {
    for (name, asks) in [("zipf", false), ("zipf-hugepage", true)] {
        let program = builtin::from_name(name, 8 * MIB).unwrap();
        let mut config = config("laptop", 64 * MIB, 0, 1);
        config.knobs.push((Knob::HugepagesEnabled2048, 1));
        assert_eq!(outcome(&config, &program).stat(Stat::ThpFaultAlloc), if asks { 4 } else { 0 }, "{name}");
    }
}

#[test]
fn large_anonymous_folios_are_swapped_out_whole() {
    let counters = ["/anon_fault_alloc", "/anon_fault_fallback", "/swpout"];
    let mut seen = [0.0; 3];
    for policy in 0..POLICIES {
        for (i, name) in ["zipf", "fork-write", "map-storm"].into_iter().enumerate() {
            let program = builtin::from_name(name, 48 * MIB).unwrap().with_passes(3).with_threads(3);
            let orders = SIZES[(i + policy as usize) % SIZES.len()];
            let outcome = unharmed(&anon_config(24 * MIB, orders, policy), &program);
            seen.iter_mut().zip(counters).for_each(|(sum, counter)| *sum += sizes(&outcome, counter));
        }
    }
    assert!(seen.iter().all(|&sum| sum > 0.0), "{counters:?} are {seen:?}");
}

const AREA: u64 = 12 * MIB;

fn punch(os: &mut dyn Os, role: Role) -> Result<(), Signal> {
    let mut rng = Rng::new(os.seed() ^ 0x401e5 ^ role as u64);
    let mut at = AT;
    for round in 0..6 {
        store_all(os, at, AREA)?;
        for _ in 0..150 {
            let (first, pages) = (rng.below(AREA / PAGE), 1 + rng.below(40));
            let (addr, len) = (at + first * PAGE, pages.min(AREA / PAGE - first) * PAGE);
            match rng.below(6) {
                0 => os.madvise(addr, len, Advice::PageOut).unwrap(),
                1 => os.madvise(addr, len, Advice::Free).unwrap(),
                2 => os.load(addr)?,
                _ => os.madvise(addr, len, Advice::DontNeed).unwrap(),
            }
        }
        if round == 2 {
            // A range that is not aligned to the size of folios.
            let fixed = Some(PRIVATE + 3 * PAGE);
            at = os.mremap(Remap { addr: at, old_len: AREA, new_len: AREA, may_move: true, fixed }).unwrap();
        }
    }
    Ok(())
}

/// Processes whose memory gets holes, and is partly shared, moved and paged out, with little swap space.
fn punch_and_share(os: &mut dyn Os, role: Role) -> Result<(), Signal> {
    if role != 0 {
        return punch(os, role);
    }
    os.mmap(Map { addr: Some(AT), ..Map::anonymous(AREA) }).unwrap();
    store_all(os, AT, AREA / 2)?;
    let tasks = [1, 2].map(|role| os.fork(role).unwrap());
    let done = punch(os, role);
    tasks.into_iter().for_each(|task| os.join(task));
    done
}

#[test]
fn anonymous_folios_with_holes_are_split_and_keep_content() {
    let counters = ["/swpout", "/swpout_fallback", "/split_deferred", "/split"];
    let mut seen = [0.0; 4];
    for policy in 0..POLICIES {
        let config = RunConfig {
            machine: MachineSpec::from_booted_name("booted:3:1:12M").unwrap(),
            ..anon_config(28 * MIB, SIZES[policy as usize % SIZES.len()], policy)
        };
        let outcome = unharmed(&config, &play(punch_and_share));
        seen.iter_mut().zip(counters).for_each(|(sum, counter)| *sum += sizes(&outcome, counter));
    }
    assert!(seen.iter().all(|&sum| sum > 0.0), "{counters:?} are {seen:?}");
}

#[test]
fn structures_stay_valid_when_anonymous_folios_are_split() {
    let config = RunConfig {
        machine: MachineSpec::from_booted_name("booted:2:1:6M").unwrap(),
        validate_every_op: true,
        ..anon_config(16 * MIB, SIZES[0], 3)
    };
    outcome(&config, &Chaos::new(150, 700));
}

#[test]
fn a_stream_in_large_folios_does_the_same_work() {
    let program = builtin::from_name("read-stream", 48 * MIB).unwrap().with_passes(2);
    let small = outcome(&config("small", 32 * MIB, 0, 1), &program);
    let large = outcome(&config("small", 32 * MIB, 9, 1), &program);
    let read = |outcome: &Outcome| outcome.stat(Stat::PgpgIn);
    assert_eq!((small.progress, small.signals.len()), (large.progress, large.signals.len()));
    assert!(read(&large) < 2 * read(&small), "{} KiB read instead of {}", read(&large), read(&small));
    assert!(
        large.stat(Stat::PgstealFile) > 0 && large.stat(Stat::PgscanFile) >= large.stat(Stat::PgstealFile)
    );
}

/// Processes and threads that read and write a file in every way, while one of them truncates and extends it.
struct Cutting {
    /// In memory and swap only.
    shmem: bool,
}

const FILE: u64 = 3 * MIB;
const AT: u64 = 0x4000_0000;
const PRIVATE: u64 = 0x5000_0000;
const PRESSURE: u64 = 0x6000_0000;
const CUTTER: Role = 1;
const READER: Role = 2;
const PUSHER: Role = 3;
const CHILD: Role = 4;
const ROUNDS: u32 = 60;

impl Cutting {
    fn open(&self, os: &mut dyn Os) -> u32 {
        os.open(FileSpec { name: "cut", size: FILE, in_memory: self.shmem, writable: true }).unwrap()
    }

    fn map(os: &mut dyn Os, fd: u32) {
        os.mmap(Map { addr: Some(AT), ..Map::file_shared(fd, FILE, Prot::RW) }).unwrap();
        let source = MapSource::File { fd, offset: 0, shared: false };
        os.mmap(Map { addr: Some(PRIVATE), source, ..Map::file_shared(fd, FILE, Prot::RW) }).unwrap();
    }

    fn cut(os: &mut dyn Os, fd: u32) {
        let mut rng = Rng::new(os.seed() ^ 0xc07);
        for _ in 0..ROUNDS {
            os.ftruncate(fd, rng.below(FILE / PAGE) * PAGE).unwrap();
            os.compute(20_000);
            os.ftruncate(fd, FILE).unwrap();
            let (first, pages) = (rng.below(FILE / PAGE / 2), 1 + rng.below(300));
            os.pwrite(fd, first * PAGE, pages * PAGE).unwrap();
            if rng.percent(30) {
                os.fsync(fd).unwrap();
            }
            if rng.percent(20) {
                os.fadvise(fd, rng.below(FILE), MIB, FileAdvice::DontNeed).unwrap();
            }
            os.compute(200_000);
        }
    }

    fn read(os: &mut dyn Os, fd: u32, role: Role) {
        let mut rng = Rng::new(os.seed() ^ role as u64);
        for _ in 0..4 * ROUNDS {
            let (first, pages) = (rng.below(FILE / PAGE), 1 + rng.below(64));
            let base = if rng.percent(30) { PRIVATE } else { AT };
            match rng.below(5) {
                0 => drop(os.pread(fd, first * PAGE, pages * PAGE).unwrap()),
                1 => {
                    let len = pages.min(FILE / PAGE - first) * PAGE;
                    os.madvise(base + first * PAGE, len, Advice::PageOut).unwrap();
                }
                op => (first..(first + pages).min(FILE / PAGE)).for_each(|page| {
                    let at = base + page * PAGE;
                    // Accesses to truncated pages end with SIGBUS.
                    let _ = if op == 2 && page % 4 == 0 { os.store(at) } else { os.load(at) };
                }),
            }
        }
    }
}

impl Program for Cutting {
    unnamed!();
    fn run<O: Os>(&self, os: &mut O, role: Role) -> Result<(), Signal> {
        let fd = self.open(os);
        match role {
            CUTTER => Cutting::cut(os, fd),
            READER | CHILD => Cutting::read(os, fd, role),
            PUSHER => return push(os, PRESSURE),
            _ => {
                Cutting::map(os, fd);
                let mut tasks: Vec<_> = [CUTTER, READER, PUSHER].map(|role| os.spawn(role).unwrap()).into();
                os.compute(1_000_000);
                tasks.push(os.fork(CHILD).unwrap());
                Cutting::read(os, fd, role);
                tasks.into_iter().for_each(|task| os.join(task));
            }
        }
        Ok(())
    }
}

/// The run's counts of folios of all sizes.
fn sizes(outcome: &Outcome, counter: &str) -> f64 {
    let of = |metric: &&machine_sim::Metric| {
        metric.name.starts_with("hugepages-") && metric.name.ends_with(counter)
    };
    outcome.metrics.iter().filter(of).map(|metric| metric.value).sum()
}

#[test]
fn truncation_of_a_file_in_use_keeps_content() {
    for policy in 0..POLICIES {
        for (seed, order) in [(1, 9), (2, 4), (3, 7), (4, 0)] {
            let config = RunConfig { seed, ..config("laptop", 16 * MIB, order, policy) };
            let outcome = outcome(&config, &Cutting { shmem: false });
            assert_eq!(sizes(&outcome, "/split") > 0.0, order > 0, "{:?}", outcome.metrics);
        }
    }
}

#[test]
fn truncation_of_swapped_shmem_keeps_content() {
    let mut swapped = 0.0;
    for policy in 0..POLICIES {
        for (seed, order) in [(1, 9), (2, 4), (3, 0)] {
            let config = RunConfig { seed, ..config("laptop", 16 * MIB, order, policy) };
            let outcome = outcome(&config, &Cutting { shmem: true });
            assert_eq!(sizes(&outcome, "/shmem_alloc") > 0.0, order > 0);
            swapped += sizes(&outcome, "/swpout_fallback");
        }
    }
    assert!(swapped > 0.0, "large folios must be swapped out");
}

#[test]
fn structures_stay_valid_when_a_large_folio_is_truncated() {
    for shmem in [false, true] {
        let config = RunConfig { validate_every_op: true, ..config("small", 16 * MIB, 9, 3) };
        outcome(&config, &Cutting { shmem });
    }
}

/// Read a mapped file in order and page it out.
fn page_out(os: &mut dyn Os, _: Role) -> Result<(), Signal> {
    let len = 16 * MIB;
    let fd = os.open(FileSpec { name: "data", size: len, in_memory: false, writable: false }).unwrap();
    let at = os.mmap(Map::file_shared(fd, len, Prot::READ)).unwrap();
    load_all(os, at, len)?;
    // No other process maps it, so it is reclaimed, in one piece.
    os.madvise(at, len, Advice::PageOut).unwrap();
    Ok(())
}

#[test]
fn pageout_reclaims_whole_folios() {
    let outcome = outcome(&config("small", 64 * MIB, 9, 1), &play(page_out));
    assert!(outcome.metric("hugepages-2048kB/file_alloc").is_some_and(|folios| folios > 0.0));
    assert_eq!(
        (sizes(&outcome, "/split"), outcome.stat(Stat::NrFilePages)),
        (0.0, 0),
        "{:?}",
        outcome.metrics
    );
}
