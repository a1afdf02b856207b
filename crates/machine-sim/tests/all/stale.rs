//! The check of stale translations: it finds a missed flush even if no program ever uses the translation.

use super::acts::{PAGE, caught, store_all, without_flush};
use machine_sim::{MachineSpec, RunConfig};
use program::{Advice, FileSpec, Map, MapSource, Os, Program, Prot, Role, Signal};

const PAGES: u64 = 4;
const AT: u64 = 0x5000_0000;
/// Until then (simulated nanoseconds) the other task computes.
const UNTIL: u64 = 2_000_000;
const CHILD: Role = 1000;

/// An operation that removes translations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum How {
    Unmap,
    Forbid,
    Protect,
    Forget,
    Replace,
    Move,
    Fork,
    Truncate,
}

const ALL: [How; 8] =
    [How::Unmap, How::Forbid, How::Protect, How::Forget, How::Replace, How::Move, How::Fork, How::Truncate];

/// One task stores to some pages once and then computes; another changes their mapping without an access.
struct Quiet(How);

impl Quiet {
    fn change<O: Os>(&self, os: &mut O, fd: u32) {
        let len = PAGES * PAGE;
        match self.0 {
            How::Unmap => os.munmap(AT, len).unwrap(),
            How::Forbid => os.mprotect(AT, len, Prot::NONE).unwrap(),
            How::Protect => os.mprotect(AT, len, Prot::READ).unwrap(),
            How::Forget => os.madvise(AT, len, Advice::DontNeed).unwrap(),
            How::Replace => {
                os.mmap(Map { addr: Some(AT), ..Map::anonymous(len) }).unwrap();
            }
            How::Move => {
                let (old_len, new_len, fixed) = (len, len, Some(AT + (1 << 30)));
                os.mremap(program::Remap { addr: AT, old_len, new_len, may_move: true, fixed }).unwrap();
            }
            How::Fork => {
                let child = os.fork(CHILD).unwrap();
                os.join(child);
            }
            How::Truncate => os.ftruncate(fd, 0).unwrap(),
        }
    }
}

impl Program for Quiet {
    unnamed!();
    fn run<O: Os>(&self, os: &mut O, role: Role) -> Result<(), Signal> {
        if role == CHILD {
            return Ok(());
        }
        if role == 1 {
            store_all(os, AT, PAGES * PAGE)?;
            while os.now() < UNTIL {
                os.compute(1000);
            }
            return Ok(());
        }
        let spec = FileSpec { name: "quiet", size: PAGES * PAGE, in_memory: false, writable: true };
        let fd = os.open(spec).unwrap();
        let file = MapSource::File { fd, offset: 0, shared: true };
        let source = if self.0 == How::Truncate { file } else { MapSource::Anonymous };
        os.mmap(Map { addr: Some(AT), source, ..Map::anonymous(PAGES * PAGE) }).unwrap();
        // A neighbour in the same table, so that the table stays and is not flushed again.
        os.mmap(Map { addr: Some(AT + 16 * PAGE), ..Map::anonymous(PAGE) }).unwrap();
        os.store(AT + 16 * PAGE)?;
        let other = os.spawn(1).unwrap();
        while os.now() < UNTIL / 2 {
            os.compute(1000);
        }
        self.change(os, fd);
        os.compute(1000);
        os.join(other);
        Ok(())
    }
}

/// What the run fails with, with flush `nth` for another CPU dropped.
fn failure(how: How, nth: u64, validate_every_op: bool) -> Option<String> {
    let machine = RunConfig::new(MachineSpec::preset("laptop").unwrap());
    let config = RunConfig { memory: Some(32 << 20), verify: true, validate_every_op, ..machine };
    without_flush(nth, config, &Quiet(how)).err()
}

#[test]
fn a_missed_flush_is_found_without_a_use_of_the_translation() {
    for how in ALL {
        for reason in caught(&how, 1..4, |nth| failure(how, nth, true)) {
            assert!(reason.contains("stale TLB entry"), "{how:?}: {reason}");
        }
        // Without the check only a move's flush is missed: the oracle checks translations when mremap clears entries.
        let found = (1..4).find_map(|nth| failure(how, nth, false));
        assert_eq!(found.is_some(), matches!(how, How::Move), "{how:?}: {found:?}");
    }
}
