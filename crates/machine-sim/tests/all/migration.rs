//! Migration of pages that other CPUs use, on whole machines, under the oracle.

use super::acts::{
    LARGE, MIB, PAGE, POLICIES, compute_for, load_all, outcome, play, store_all, without_flush,
};
use machine_sim::{MachineSpec, Outcome, ProfileNode, RunConfig};
use mm::knobs::Knob;
use mm::stat::Stat;
use program::chaos::Chaos;
use program::{FileSpec, Map, MapSource, Os, Program, Prot, Role, Signal};

/// The address of the page that is moved: in the middle of what a large entry may map.
const AREA: u64 = 512 * LARGE;
const PART: u64 = AREA + 77 * PAGE;
const ELSEWHERE: u64 = AREA + 64 * LARGE;
/// Simulated nanoseconds after which the other task has used the page and computes.
const WHILE: u64 = 2_000_000;

fn config(policy: u64, large: bool) -> RunConfig {
    let machine = MachineSpec::preset("laptop").unwrap();
    let size = if large { 2 } else { 0 };
    let knobs = vec![(Knob::HugepagesEnabled2048, size), (Knob::TlbUnmap, policy)];
    RunConfig { memory: Some(128 * MIB), verify: true, knobs, ..RunConfig::new(machine) }
}

/// What is moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    /// A page of anonymous memory.
    Page,
    /// A folio of 2 MiB, mapped by one entry.
    Large,
    /// A page of a file that is stored to.
    Shared,
    /// A page that is read-only until it has been moved.
    ReadOnly,
}

const ALL: [What; 4] = [What::Page, What::Large, What::Shared, What::ReadOnly];

/// One task uses a page, computes, and uses it again; another moves it in between.
struct Quiet(What);

impl Quiet {
    fn map<O: Os>(&self, os: &mut O) -> Result<(), Signal> {
        let fd = os.open(FileSpec { name: "quiet", size: LARGE, in_memory: false, writable: true }).unwrap();
        let source = match self.0 {
            What::Shared => MapSource::File { fd, offset: 0, shared: true },
            _ => MapSource::Anonymous,
        };
        os.mmap(Map { addr: Some(AREA), source, ..Map::anonymous(LARGE) }).unwrap();
        os.store(PART)?;
        if self.0 == What::ReadOnly {
            os.mprotect(PART, PAGE, Prot::READ).unwrap();
        }
        Ok(())
    }

    /// The access of the other task.
    fn touch<O: Os>(&self, os: &mut O) -> Result<(), Signal> {
        if self.0 == What::ReadOnly { os.load(PART) } else { os.store(PART) }
    }
}

impl Program for Quiet {
    unnamed!();
    fn run<O: Os>(&self, os: &mut O, role: Role) -> Result<(), Signal> {
        if role == 1 {
            self.touch(os)?;
            compute_for(os, 3 * WHILE);
            return self.touch(os);
        }
        self.map(os)?;
        let other = os.spawn(1).unwrap();
        compute_for(os, WHILE);
        assert_eq!(os.move_pages(PART, PAGE, None), Ok(0));
        if self.0 == What::ReadOnly {
            os.mprotect(PART, PAGE, Prot::RW).unwrap();
            os.store(PART)?;
        }
        // Every call ends with a check of all translations.
        os.munmap(ELSEWHERE, PAGE).unwrap();
        os.join(other);
        os.load(PART)
    }
}

/// The run of a program, with flush `nth` for another CPU dropped.
fn verdict(what: What, policy: u64, nth: u64) -> Result<Outcome, String> {
    let config = RunConfig { validate_every_op: true, ..config(policy, what == What::Large) };
    without_flush(nth, config, &Quiet(what))
}

#[test]
fn a_missed_flush_of_a_migration_is_caught() {
    for what in ALL {
        for policy in [0, 1, 3] {
            let whole = verdict(what, policy, 1 << 40).unwrap();
            let pages = if what == What::Large { 512 } else { 1 };
            assert_eq!(whole.stat(Stat::PgmigrateSuccess), pages, "{what:?}");
            assert_eq!(whole.stat(Stat::ThpMigrationSuccess), u64::from(what == What::Large) as i64);
            let caught: Vec<String> = (1..4).filter_map(|nth| verdict(what, policy, nth).err()).collect();
            assert!(!caught.is_empty(), "{what:?} under policy {policy}");
        }
    }
}

const BUSY: u64 = 24;
/// Until then (simulated nanoseconds), with CPUs that stop for milliseconds.
const UNTIL: u64 = 1000 * WHILE;

/// Tasks store to pages that another moves all the time.
fn store_while_moved(os: &mut dyn Os, role: Role) -> Result<(), Signal> {
    if role > 0 {
        let mut page = u64::from(role);
        while os.now() < UNTIL {
            os.store(AREA + page % BUSY * PAGE)?;
            os.compute(1_000_000);
            page += 7;
        }
        return Ok(());
    }
    os.mmap(Map { addr: Some(AREA), ..Map::anonymous(BUSY * PAGE) }).unwrap();
    store_all(os, AREA, BUSY * PAGE)?;
    let others: Vec<_> = (1..4).map(|role| os.spawn(role).unwrap()).collect();
    while os.now() < UNTIL {
        os.move_pages(AREA, BUSY * PAGE, None).unwrap();
    }
    others.into_iter().for_each(|other| os.join(other));
    load_all(os, AREA, BUSY * PAGE)
}

/// How often a scope of this name was entered, in the whole tree.
pub fn entered(node: &ProfileNode, name: &str) -> u64 {
    let here = if node.name == name { node.entered } else { 0 };
    here + node.children.iter().map(|child| entered(child, name)).sum::<u64>()
}

#[test]
fn a_fault_waits_for_a_page_that_is_moved() {
    let mut waits = 0;
    for policy in 0..POLICIES {
        let config = RunConfig { preempt: Some(3), profile: true, seed: policy, ..config(policy, false) };
        let outcome = outcome(&config, &play(store_while_moved));
        assert!(outcome.stat(Stat::PgmigrateSuccess) > BUSY as i64);
        waits += entered(outcome.profile.as_ref().unwrap(), "migration_entry_wait");
    }
    assert!(waits > 0, "a fault must have found a page during its move");
}

/// The random program on a machine of two nodes, with CPUs stopped in the middle of moves.
#[test]
fn migration_between_nodes_keeps_content() {
    let mut moved = 0;
    for seed in 0..6 {
        let machine = MachineSpec::preset("luf-cxl").unwrap();
        let knobs = vec![
            (Knob::TlbUnmap, seed % POLICIES),
            (Knob::ReclaimPolicy, seed / 2 % 2),
            (Knob::ShmemMaxOrder, 4),
            (Knob::HugepagesEnabled64, 2),
        ];
        let config = RunConfig {
            seed,
            memory: Some(256 * MIB),
            verify: true,
            preempt: Some(1 + seed as u32 % 3),
            knobs,
            ..RunConfig::new(machine)
        };
        moved += outcome(&config, &Chaos::new(120, 64)).stat(Stat::PgmigrateSuccess);
    }
    assert!(moved > 200, "{moved} pages moved");
}
