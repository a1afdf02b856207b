//! Memory that is wanted while something else is going on.

use program::{Map, Os, Signal};

const PAGE: u64 = 4096;

/// Take half of memory from `at` on, in several passes over it with pauses between them.
pub fn push<O: Os + ?Sized>(os: &mut O, at: u64) -> Result<(), Signal> {
    let len = os.memory() / 2;
    os.mmap(Map { addr: Some(at), ..Map::anonymous(len) }).unwrap();
    for round in 0..3 {
        for page in 0..len / PAGE {
            os.store(at + page * PAGE)?;
        }
        os.sleep(1_000_000 * (round + 1));
    }
    Ok(())
}
