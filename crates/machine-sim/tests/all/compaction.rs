//! Compaction of memory that other CPUs use, on whole machines, under the oracle.

use super::acts::{LARGE, MIB, PAGE, POLICIES, outcome, store_all, unharmed};
use machine_sim::{MachineSpec, Outcome, RunConfig};
use mm::knobs::Knob;
use mm::stat::Stat;
use program::rng::Rng;
use program::{Advice, Map, Os, Program, Role, Signal};

const MEMORY: u64 = 64 * MIB;
/// Memory that is used and freed in pieces, and then wanted in large folios.
const AREA: u64 = 512 * LARGE;
const PAGES: u64 = 44 * MIB / PAGE;
const WANTED: u64 = 1024 * LARGE;
const FOLIOS: u64 = 10;
const USERS: Role = 2;

/// One task fragments memory and stores to a range for which 2 MiB folios are wanted, while others use the pieces.
struct Pieces {
    /// The folio size of the pieces, as in the name of its knob.
    size: Option<&'static str>,
    /// Whether kcompactd and the user compact, instead of stores.
    background: bool,
}

/// Whether a page is kept: one in four; of folios, the first page of each fourth.
fn kept(page: u64) -> bool {
    (page >> 4).wrapping_mul(0x9e37_79b9) >> 7 & 3 == 0
}

impl Pieces {
    fn use_pieces<O: Os>(os: &mut O) -> Result<(), Signal> {
        let mut rng = Rng::new(os.seed());
        for _ in 0..4000 {
            let page = rng.below(PAGES);
            if kept(page) {
                let addr = AREA + page * PAGE;
                if rng.percent(50) { os.store(addr)? } else { os.load(addr)? }
            }
            os.compute(500);
        }
        Ok(())
    }
}

impl Program for Pieces {
    unnamed!();
    fn run<O: Os>(&self, os: &mut O, role: Role) -> Result<(), Signal> {
        if role > 0 {
            return Pieces::use_pieces(os);
        }
        if let Some(size) = self.size {
            os.set_knob(&format!("hugepages-{size}.enabled"), 2).unwrap();
        }
        os.mmap(Map { addr: Some(AREA), ..Map::anonymous(PAGES * PAGE) }).unwrap();
        store_all(os, AREA, PAGES * PAGE)?;
        for page in (0..PAGES).filter(|&page| !kept(page)) {
            os.madvise(AREA + page * PAGE, PAGE, Advice::DontNeed).unwrap();
        }
        let users: Vec<_> = (1..=USERS).map(|role| os.spawn(role).unwrap()).collect();
        os.set_knob("hugepages-2048kB.enabled", 2).unwrap();
        if self.background {
            os.set_knob("thp.defrag", 4).unwrap();
            os.sleep(600_000_000);
            os.set_knob("vm.compact_memory", 1).unwrap();
        }
        os.mmap(Map { addr: Some(WANTED), ..Map::anonymous(FOLIOS * LARGE) }).unwrap();
        (0..FOLIOS).try_for_each(|i| os.store(WANTED + i * LARGE))?;
        users.into_iter().for_each(|user| os.join(user));
        os.set_knob("vm.compact_memory", 1).unwrap();
        (0..PAGES).filter(|&page| kept(page)).try_for_each(|page| os.load(AREA + page * PAGE))
    }
}

fn play(knobs: &[(Knob, u64)], program: &Pieces) -> Outcome {
    let machine = MachineSpec::preset("laptop").unwrap();
    let mut config = RunConfig { memory: Some(MEMORY), verify: true, ..RunConfig::new(machine) };
    config.knobs = vec![(Knob::ThpDefrag, 0), (Knob::TlbAgeLimitMs, 5)];
    config.knobs.extend_from_slice(knobs);
    unharmed(&config, program)
}

#[test]
fn stores_get_their_blocks_under_every_policy() {
    for policy in 0..POLICIES {
        for replacement in 0..2 {
            let knobs = [(Knob::TlbUnmap, policy), (Knob::ReclaimPolicy, replacement)];
            let outcome = play(&knobs, &Pieces { size: None, background: false });
            let all = [Stat::CompactStall, Stat::CompactSuccess, Stat::PgmigrateSuccess, Stat::ThpFaultAlloc];
            let counted = all.map(|stat| outcome.stat(stat));
            assert!(counted.iter().all(|&count| count > 0), "{knobs:?}: {counted:?}");
        }
    }
}

#[test]
fn every_value_of_the_knob_runs() {
    for folios in 0..6 {
        let knobs = [(Knob::CompactionFolios, folios), (Knob::TlbUnmap, folios % POLICIES)];
        let outcome = play(&knobs, &Pieces { size: Some("64kB"), background: false });
        let moved = outcome.stat(Stat::PgmigrateSuccess);
        // 2, whole: compaction ends at the first folio for which there is no free block of its size or of its pages'.
        assert_eq!(moved > 0, folios > 0 && folios != 2, "{folios}: {moved} pages moved");
    }
}

/// No task frees memory during compaction, so it moves no fewer pages for a block than the minimum.
#[test]
fn no_block_takes_fewer_moves_than_the_minimum() {
    let machine = MachineSpec::preset("laptop").unwrap();
    let config = |moves| RunConfig {
        memory: Some(MEMORY),
        knobs: vec![(Knob::ThpDefrag, 0)],
        moves,
        ..RunConfig::new(machine.clone())
    };
    let program = Pieces { size: None, background: false };
    let [seen, unseen] = [true, false].map(|moves| outcome(&config(moves), &program));
    let metric = |name: &str| seen.metric(&format!("compaction_{name}")).unwrap();
    assert!(metric("made") > 0.0 && metric("moved_least") > 0.0);
    assert!(metric("moved") >= metric("moved_least"), "{} {}", metric("moved"), metric("moved_least"));
    assert!(metric("pieces_after") < metric("pieces_before"));
    assert_eq!((seen.nanos, &seen.stats), (unseen.nanos, &unseen.stats), "measuring must not change the run");
}

#[test]
fn kcompactd_and_the_user_make_blocks() {
    // The smallest size, so that kcompactd runs from the start.
    let knobs = [(Knob::CompactionProactiveness, 60), (Knob::HugepagesEnabled16, 1)];
    let outcome = play(&knobs, &Pieces { size: None, background: true });
    assert_eq!(outcome.stat(Stat::CompactStall), 0);
    assert!(outcome.stat(Stat::CompactDaemonMigrateScanned) > 0 && outcome.stat(Stat::ThpFaultAlloc) > 0);
}
