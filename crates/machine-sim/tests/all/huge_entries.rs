//! 2 MiB entries on whole machines, under the oracle and every flush policy: files and shmem mapped by them, and every
//! operation that removes a part of one.

use super::acts::{
    LARGE, MIB, PAGE, POLICIES, caught, compute_for, forbid_stores, load_all, move_away_and_back, outcome,
    push, without_flush,
};
use machine_sim::{MachineSpec, Outcome, RunConfig};
use mm::knobs::Knob;
use mm::stat::Stat;
use program::chaos::Chaos;
use program::rng::Rng;
use program::{Advice, FileSpec, Map, MapSource, Os, Program, Prot, Role, Signal};

fn config(machine: &str, memory: u64, policy: u64) -> RunConfig {
    let machine = MachineSpec::preset(machine).unwrap();
    let knobs = vec![
        (Knob::FileMaxOrder, 9),
        (Knob::ShmemMaxOrder, 9),
        (Knob::ThpFilePmd, 1),
        (Knob::HugepagesEnabled2048, 2),
        (Knob::ReadAheadKb, 2048),
        (Knob::TlbUnmap, policy),
        (Knob::TlbAgeLimitMs, 5),
    ];
    RunConfig { memory: Some(memory), verify: true, bound: true, knobs, ..RunConfig::new(machine) }
}

fn shown(fd: u32, at: u64, len: u64, shared: bool, prot: Prot) -> Map {
    let source = MapSource::File { fd, offset: 0, shared };
    Map { addr: Some(at), source, ..Map::file_shared(fd, len, prot) }
}

/// Reads a file of 8 MiB that is cached in 2 MiB folios.
struct Reads {
    /// Map it where the kernel chooses, instead of a page below a multiple of 2 MiB.
    anywhere: bool,
    shared: bool,
    shmem: bool,
}

const FILE: u64 = 8 * MIB;

impl Program for Reads {
    unnamed!();
    fn run<O: Os>(&self, os: &mut O, _: Role) -> Result<(), Signal> {
        let spec = FileSpec { name: "data", size: FILE, in_memory: self.shmem, writable: true };
        let fd = os.open(spec).unwrap();
        os.pwrite(fd, 0, FILE).unwrap();
        let map = shown(fd, 0x4000_0000 - PAGE, FILE, self.shared, Prot::READ);
        let at = os.mmap(if self.anywhere { Map { addr: None, ..map } } else { map }).unwrap();
        load_all(os, at, FILE)?;
        // The last MiB is unmapped, which splits the last large entry.
        os.munmap(at + FILE - MIB, MIB).unwrap();
        load_all(os, at, FILE - MIB)
    }
}

#[test]
fn large_entries_map_cached_files_where_they_fit() {
    for shmem in [false, true] {
        for shared in [false, true] {
            let outcome = outcome(&config("small", 64 * MIB, 1), &Reads { anywhere: true, shared, shmem });
            let counted =
                [Stat::ThpFileMapped, Stat::ThpSplitPmd, Stat::NrFilePmdmapped, Stat::NrShmemPmdmapped];
            assert_eq!(counted.map(|stat| outcome.stat(stat)), [4, 1, 0, 0], "{shmem} {shared}");
        }
    }
    let elsewhere = Reads { anywhere: false, shared: true, shmem: false };
    assert_eq!(outcome(&config("small", 64 * MIB, 1), &elsewhere).stat(Stat::ThpFileMapped), 0);
}

#[test]
fn large_entries_save_faults_and_walks() {
    let reads = Reads { anywhere: true, shared: true, shmem: false };
    let large = config("small", 64 * MIB, 1);
    let mut small = large.clone();
    small.knobs.push((Knob::ThpFilePmd, 0));
    let [small, large] = [small, large].map(|config| outcome(&config, &reads));
    let walks = |outcome: &Outcome| outcome.metric("walk_steps").unwrap();
    assert!(4.0 * walks(&large) < walks(&small), "{} walks instead of {}", walks(&large), walks(&small));
    assert!(2 * large.stat(Stat::Pgfault) < small.stat(Stat::Pgfault));
    assert_eq!((large.progress, large.stat(Stat::NrPageTablePages)), (small.progress, 0));
}

/// Tasks that apply every operation to parts of what large entries map.
struct Parts {
    shmem: bool,
}

const SHARED: u64 = 0x4000_0000;
const PRIVATE: u64 = 0x5000_0000;
const ELSEWHERE: u64 = 0x6000_0000;
const PRESSURE: u64 = 0x7000_0000;
const CHANGER: Role = 1;
const USER: Role = 2;
const PUSHER: Role = 3;
const CHILD: Role = 4;
const ROUNDS: u32 = 120;

impl Parts {
    fn open<O: Os>(&self, os: &mut O) -> u32 {
        os.open(FileSpec { name: "parts", size: FILE, in_memory: self.shmem, writable: true }).unwrap()
    }

    fn map<O: Os>(os: &mut O, fd: u32) {
        os.mmap(shown(fd, SHARED, FILE, true, Prot::RW)).unwrap();
        os.mmap(shown(fd, PRIVATE, FILE, false, Prot::RW)).unwrap();
    }

    /// A part of a mapping, which often ends inside a large entry.
    fn part(rng: &mut Rng) -> (u64, u64) {
        let whole = rng.percent(50);
        let first = if whole { rng.below(FILE / LARGE) * 512 } else { rng.below(FILE / PAGE) };
        let pages = if whole { LARGE / PAGE } else { 1 + rng.below(100) };
        (first * PAGE, pages.min(FILE / PAGE - first) * PAGE)
    }

    fn change<O: Os>(os: &mut O, fd: u32) {
        let mut rng = Rng::new(os.seed() ^ 0x9a47);
        for round in 0..ROUNDS {
            let base = if rng.percent(50) { SHARED } else { PRIVATE };
            let (from, len) = Parts::part(&mut rng);
            let at = base + from;
            match rng.below(9) {
                0 => forbid_stores(os, at, len),
                1 => {
                    os.munmap(at, len).unwrap();
                    let shared = base == SHARED;
                    let source = MapSource::File { fd, offset: from, shared };
                    os.mmap(Map { addr: Some(at), source, ..Map::file_shared(fd, len, Prot::RW) }).unwrap();
                }
                2 => move_away_and_back(os, at, len, ELSEWHERE),
                3 if os.mlock(at, len).is_ok() => os.munlock(at, len).unwrap(),
                4 => os.madvise(at, len, Advice::DontNeed).unwrap(),
                5 => os.madvise(at, len, Advice::Cold).unwrap(),
                6 => {
                    os.ftruncate(fd, rng.below(FILE / PAGE) * PAGE).unwrap();
                    os.compute(20_000);
                    os.ftruncate(fd, FILE).unwrap();
                    os.pwrite(fd, 0, FILE).unwrap();
                }
                7 => os.msync(at, len).unwrap(),
                _ => {
                    os.madvise(base, FILE, Advice::PageOut).unwrap();
                    os.pwrite(fd, 0, FILE).unwrap();
                }
            }
            if round % 8 == 0 {
                os.fsync(fd).unwrap();
            }
            os.compute(100_000);
        }
    }

    fn visit<O: Os>(os: &mut O, role: Role) {
        let mut rng = Rng::new(os.seed() ^ role as u64);
        for _ in 0..4 * ROUNDS {
            let base = [SHARED, PRIVATE][rng.below(2) as usize];
            let (from, len) = Parts::part(&mut rng);
            let store = rng.percent(25);
            for page in 0..(len / PAGE).min(64) {
                let at = base + from + page * PAGE;
                // Accesses to what is truncated, moved away or read-only at the moment end with a signal.
                let _ = if store && page % 4 == 0 { os.store(at) } else { os.load(at) };
            }
        }
    }
}

impl Program for Parts {
    unnamed!();
    fn run<O: Os>(&self, os: &mut O, role: Role) -> Result<(), Signal> {
        let fd = self.open(os);
        match role {
            CHANGER => Parts::change(os, fd),
            PUSHER => return push(os, PRESSURE),
            USER | CHILD => Parts::visit(os, role),
            _ => {
                os.pwrite(fd, 0, FILE).unwrap();
                Parts::map(os, fd);
                let mut tasks: Vec<_> = [CHANGER, USER, PUSHER].map(|role| os.spawn(role).unwrap()).into();
                os.compute(1_000_000);
                tasks.push(os.fork(CHILD).unwrap());
                Parts::visit(os, role);
                tasks.into_iter().for_each(|task| os.join(task));
            }
        }
        Ok(())
    }
}

// With enough memory for some dirty 2 MiB folios: a store through a mapping that exceeds the dirty limit waits until
// the folio is written, and then must make it dirty again.
#[test]
fn operations_on_parts_of_large_entries_keep_content() {
    let (mut mapped, mut split) = (0, 0);
    for policy in 0..POLICIES {
        for (seed, shmem) in [(1, false), (2, true), (3, false), (4, true)] {
            let config = RunConfig { seed, ..config("laptop", 128 * MIB, policy) };
            let outcome = outcome(&config, &Parts { shmem });
            mapped += outcome.stat(Stat::ThpFileMapped);
            split += outcome.stat(Stat::ThpSplitPmd);
        }
    }
    assert!(mapped > 200 && split > 100, "{mapped} mapped, {split} split");
}

/// A store that exceeds the dirty limit waits; in that time the folio is written and write-protected again.
#[test]
fn a_store_completes_though_one_folio_exceeds_the_dirty_limit() {
    for (memory, seed) in [(36, 2), (48, 1), (64, 3), (72, 1)] {
        outcome(&RunConfig { seed, ..config("small", memory * MIB, 1) }, &Parts { shmem: false });
    }
}

/// mlock copies pages of private files one by one while others store to the file; and a store during mremap of a shared
/// mapping goes to the file. (The oracle did not know this.)
#[test]
fn stores_during_mlock_and_mremap_are_kept() {
    for (machine, seed, policy, shmem) in
        [("small", 2, 1, false), ("laptop", 2, 1, false), ("laptop", 7, 0, false), ("laptop", 8, 4, true)]
    {
        outcome(&RunConfig { seed, ..config(machine, 12 * MIB, policy) }, &Parts { shmem });
    }
}

#[test]
fn structures_stay_valid_when_large_entries_are_split() {
    for (policy, shmem) in [(3, false), (5, true)] {
        let config = RunConfig { validate_every_op: true, ..config("small", 128 * MIB, policy) };
        outcome(&config, &Parts { shmem });
    }
}

#[test]
fn random_programs_run_with_large_entries() {
    for seed in 0..6 {
        let mut config = collapsing("laptop", 128 * MIB, [9, 3][seed as usize % 2], seed % POLICIES);
        (config.seed, config.validate_every_op) = (seed, seed % 4 == 0);
        outcome(&config, &Chaos::new(60, 2048));
    }
}

/// With folios of this order, and khugepaged always at work.
fn collapsing(machine: &str, memory: u64, order: u64, policy: u64) -> RunConfig {
    let mut config = config(machine, memory, policy);
    config.knobs.extend([
        (Knob::FileMaxOrder, order),
        (Knob::ShmemMaxOrder, order),
        (Knob::ThpKhugepaged, 1),
        (Knob::KhugepagedScanSleepMillisecs, 1),
    ]);
    config
}

/// Reads a mapped file repeatedly.
struct Rereads {
    shmem: bool,
}

impl Program for Rereads {
    unnamed!();
    fn run<O: Os>(&self, os: &mut O, _: Role) -> Result<(), Signal> {
        let spec = FileSpec { name: "data", size: FILE, in_memory: self.shmem, writable: true };
        let fd = os.open(spec).unwrap();
        os.pwrite(fd, 0, FILE).unwrap();
        os.fsync(fd).unwrap();
        os.mmap(shown(fd, SHARED, FILE, false, Prot::READ)).unwrap();
        for _ in 0..20 {
            load_all(os, SHARED, FILE)?;
            os.sleep(1_000_000);
        }
        Ok(())
    }
}

#[test]
fn khugepaged_collapses_mapped_files() {
    for (shmem, order) in [(false, 0), (true, 0), (false, 4), (true, 7)] {
        let outcome = outcome(&collapsing("laptop", 64 * MIB, order, 1), &Rereads { shmem });
        let counted = [Stat::ThpCollapseAlloc, Stat::ThpFileMapped].map(|stat| outcome.stat(stat));
        assert_eq!(counted, [4, 4], "{shmem} {order}");
    }
}

#[test]
fn khugepaged_keeps_content() {
    let mut collapsed = 0;
    for policy in 0..POLICIES {
        for (seed, shmem, order) in [(1, false, 0), (2, true, 0), (3, false, 5), (4, true, 5)] {
            let config = RunConfig { seed, ..collapsing("laptop", 128 * MIB, order, policy) };
            collapsed += outcome(&config, &Parts { shmem }).stat(Stat::ThpCollapseAlloc);
        }
    }
    assert!(collapsed > 100, "{collapsed} collapsed");
    for (policy, shmem) in [(3, true), (1, false)] {
        let config = RunConfig { validate_every_op: true, ..collapsing("small", 128 * MIB, 0, policy) };
        outcome(&config, &Parts { shmem });
    }
}

/// Operations that split or remove a large entry. (Not mremap and mlock: they flush the page a second time.)
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum How {
    Unmap,
    Protect,
    Forget,
    Copy,
    Truncate,
    All,
}

const ALL: [How; 6] = [How::Unmap, How::Protect, How::Forget, How::Copy, How::Truncate, How::All];
/// Simulated nanoseconds after which the other task has used the entry and computes.
const WHILE: u64 = 2_000_000;
/// The page that is changed.
const PART: u64 = SHARED + 77 * PAGE;

/// One task uses a large entry once and then computes; another splits it and changes a part of its mapping.
struct Quiet(How);

impl Quiet {
    fn change<O: Os>(&self, os: &mut O, fd: u32) -> Result<(), Signal> {
        let private = MapSource::File { fd, offset: 77 * PAGE, shared: false };
        match self.0 {
            How::Unmap => os.munmap(PART, PAGE).unwrap(),
            How::Protect => os.mprotect(PART, PAGE, Prot::NONE).unwrap(),
            // The flush drops the entry's translation of the page: nothing is left for the second call.
            How::Forget => {
                os.madvise(PART, PAGE, Advice::DontNeed).unwrap();
                os.mmap(Map { addr: Some(PART), source: private, ..Map::anonymous(PAGE) }).unwrap();
                os.store(PART)?;
            }
            How::Copy => os.store(PART)?,
            How::Truncate => os.ftruncate(fd, 77 * PAGE).unwrap(),
            How::All => os.munmap(SHARED, LARGE).unwrap(),
        }
        Ok(())
    }
}

impl Program for Quiet {
    unnamed!();
    fn run<O: Os>(&self, os: &mut O, role: Role) -> Result<(), Signal> {
        if role == 1 {
            os.load(PART)?;
            compute_for(os, 3 * WHILE);
            return Ok(());
        }
        let fd = os.open(FileSpec { name: "quiet", size: FILE, in_memory: false, writable: true }).unwrap();
        os.pwrite(fd, 0, FILE).unwrap();
        os.fsync(fd).unwrap();
        let shared = self.0 != How::Copy;
        os.mmap(shown(fd, SHARED, FILE, shared, Prot::RW)).unwrap();
        // A neighbour in the same table, so that the table stays and is not flushed again.
        os.load(SHARED + LARGE)?;
        let other = os.spawn(1).unwrap();
        compute_for(os, WHILE);
        self.change(os, fd)?;
        // Every call ends with a check of all translations.
        os.munmap(ELSEWHERE, PAGE).unwrap();
        os.join(other);
        Ok(())
    }
}

/// What the run of a program with large entries fails with, with flush `nth` for another CPU dropped.
fn failure<P: Program>(program: &P, mapped: Stat, policy: u64, nth: u64) -> Option<String> {
    let config = RunConfig { validate_every_op: true, ..config("laptop", 128 * MIB, policy) };
    without_flush(nth, config, program).map(|outcome| assert!(outcome.stat(mapped) > 0)).err()
}

#[test]
fn a_missed_flush_of_a_large_entry_is_caught() {
    for how in ALL {
        for policy in [1, 3] {
            let failure = |nth| failure(&Quiet(how), Stat::ThpFileMapped, policy, nth);
            for reason in caught(&how, 1..4, failure) {
                assert!(reason.contains("stale TLB entry"), "{how:?}: {reason}");
            }
        }
    }
}

/// As [`Quiet`], with a large entry of anonymous memory, which becomes entries of pages, one of which is then changed.
struct QuietAnon(How);

const SLEEPER: Role = 2;

impl Program for QuietAnon {
    unnamed!();
    fn run<O: Os>(&self, os: &mut O, role: Role) -> Result<(), Signal> {
        match role {
            1 => {
                os.load(PART)?;
                compute_for(os, 3 * WHILE);
            }
            SLEEPER => os.sleep(4 * WHILE),
            _ => {
                os.mmap(Map { addr: Some(SHARED), ..Map::anonymous(2 * LARGE) }).unwrap();
                os.store(PART)?;
                os.store(SHARED + LARGE)?;
                let child = (self.0 == How::Copy).then(|| os.fork(SLEEPER).unwrap());
                let other = os.spawn(1).unwrap();
                compute_for(os, WHILE);
                match self.0 {
                    How::Unmap => os.munmap(PART, PAGE).unwrap(),
                    How::Protect => os.mprotect(PART, PAGE, Prot::NONE).unwrap(),
                    How::Forget => os.madvise(PART, PAGE, Advice::DontNeed).unwrap(),
                    How::Copy => os.store(PART)?,
                    how => unreachable!("{how:?} splits nothing"),
                }
                os.munmap(ELSEWHERE, PAGE).unwrap();
                os.join(other);
                child.into_iter().for_each(|child| os.join(child));
            }
        }
        Ok(())
    }
}

#[test]
fn a_missed_flush_of_a_split_anonymous_entry_is_caught() {
    for how in [How::Unmap, How::Protect, How::Forget, How::Copy] {
        for policy in [1, 3] {
            let failure = |nth| failure(&QuietAnon(how), Stat::ThpFaultAlloc, policy, nth);
            let caught = caught(&how, 1..4, failure);
            assert!(caught.iter().any(|reason| reason.contains("others follow")), "{how:?}: {caught:?}");
        }
    }
}
