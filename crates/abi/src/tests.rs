//! Numbers and codes.

use super::*;

/// Every value is found by its number and by its code, and both are unique.
macro_rules! check {
    ($name:ident) => {
        for (code, value) in $name::ALL.into_iter().enumerate() {
            assert_eq!($name::from_number(value.number()), Some(value));
            assert_eq!((value.code(), $name::from_code(code as u64)), (code as u64, Some(value)));
        }
        assert_eq!($name::from_code($name::ALL.len() as u64), None);
        assert_eq!(($name::from_number(u64::MAX), $name::from_code(u64::MAX)), (None, None));
    };
}

#[test]
fn values_have_a_number_and_a_code() {
    check!(Advice);
    check!(FileAdvice);
    check!(PolicyMode);
    check!(Errno);
}

/// Recorded traces hold codes, so rows are only added at the end.
#[test]
fn codes_do_not_change() {
    use Advice::*;
    let before =
        [Normal, Random, Sequential, WillNeed, DontNeed, Free, Cold, PageOut, HugePage, NoHugePage, Collapse];
    assert_eq!(Advice::ALL[..before.len()], before);
    assert!(FileAdvice::ALL.into_iter().all(|advice| advice.code() == advice.number()));
    assert!(AccessKind::ALL.into_iter().enumerate().all(|(code, kind)| code == kind as usize));
}

#[test]
fn rights_are_sets() {
    assert_eq!((Prot::READ | Prot::WRITE, Prot::READ | Prot::EXEC), (Prot::RW, Prot::RX));
    assert!(Prot::RW.contains(Prot::WRITE) && !Prot::RX.contains(Prot::RW) && Prot::RX.contains(Prot::NONE));
    assert!(Prot::NONE.is_empty() && !Prot::EXEC.is_empty());
    assert_eq!((Prot::from_bits(0xff), Prot::from_bits(5).bits()), (Prot::ALL, 5));
    assert!(AccessKind::ALL.into_iter().all(|kind| Prot::ALL.contains(kind.needs())));
}
