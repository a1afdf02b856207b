//! How old generations are.

use super::*;

const SECOND: u64 = 1_000_000_000;

#[test]
fn generations_tell_when_they_began() {
    let mm = bench();
    for (seq, wait) in (3..).zip([10, 1, 2, 3]) {
        mm.machine().advance(wait * SECOND);
        mm.lru_gen_command(&std_alloc::format!("+ 0 0 {seq}")).unwrap();
    }
    mm.machine().advance(4 * SECOND);
    let text = mm.lru_gen(false);
    let ages: Vec<_> = text.lines().skip(2).map(|line| line.split_whitespace().nth(1).unwrap()).collect();
    assert_eq!(ages, ["10000", "9000", "7000", "4000"], "{text}");
}
