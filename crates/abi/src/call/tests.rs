use super::*;
use crate::{MapSource, PolicyMode};
use proptest::prelude::*;

const ARENA: Range<u64> = 0xffff_a000_0000_0000..0xffff_a000_0100_0000;

fn decode(number: u64, args: [u64; 6]) -> Result<Call<'static>, Errno> {
    Call::decode(number, args, &ARENA)
}

fn encode(call: Call<'_>) -> (u64, [u64; 6]) {
    call.encode(|text| Buffer { addr: ARENA.start, len: text.len() as u64 })
}

/// What a register may hold: most calls accept small numbers.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0u64..4, 1 => 0u64..0x400, 1 => Just(ARENA.start), 1 => Just(ARENA.end - 2), 1 => any::<u64>()]
}

proptest! {
    #[test]
    fn decoding_any_registers_gives_a_call_that_encodes_back(number in prop_oneof![prop::sample::select(Call::NUMBERS), any::<u64>()], args in prop::array::uniform6(word())) {
        if let Ok(call) = decode(number, args) {
            let inside = |Buffer { addr, len }| len == 0 || (ARENA.start <= addr && addr + len <= ARENA.end);
            match call {
                Call::Open(Text::At(buffer), ..) | Call::SetKnob(Text::At(buffer), _)
                | Call::GroupKnob(_, Text::At(buffer), _) | Call::Tell(_, Text::At(buffer))
                | Call::Pread(_, buffer, _) | Call::Pwrite(_, buffer, _) => prop_assert!(inside(buffer)),
                _ => {}
            }
            let (again, args) = encode(call);
            prop_assert_eq!((again, decode(again, args)), (number, Ok(call)));
        }
    }

    #[test]
    fn results_survive_encoding(answer in prop_oneof![any::<u64>().prop_map(Ok), prop::sample::select(&Errno::ALL[..]).prop_map(Err)]) {
        prop_assert_eq!(decode_answer(encode_answer(answer)), answer);
    }
}

/// Each argument is decoded from where it was encoded.
#[test]
fn every_call_survives_encoding() {
    let file = MapSource::File { fd: u32::MAX, offset: 8192, shared: true };
    let map = Map { addr: Some(4096), prot: Prot::RX, source: file, populate: true, ..Map::anonymous(5) };
    let remap = Remap { addr: 1, old_len: 2, new_len: 3, may_move: true, fixed: Some(4) };
    let buffer = Buffer { addr: ARENA.start + 6, len: 7 };
    let text = Text::At(buffer);
    let limits = GroupLimits { max: 1, high: 2, low: 3, min: 4, swap_max: 5 };
    let policy = MemPolicy { mode: PolicyMode::Bind, nodes: 6 };
    let exit = |signal| Exit { signal, accesses: 1, progress: 2, checked: 3, violations: 4 };
    let calls = [
        Call::Mmap(map),
        Call::Mmap(Map { source: MapSource::AnonymousShared, locked: true, ..Map::anonymous(1) }),
        Call::Munmap(1, 2),
        Call::Mprotect(1, 2, Prot::RW),
        Call::Mremap(remap),
        Call::Mremap(Remap { may_move: false, fixed: None, ..remap }),
        Call::Madvise(1, 2, Advice::Collapse),
        Call::NeverDefer(true),
        Call::Mlock(1, 2),
        Call::Munlock(1, 2),
        Call::Msync(1, 2),
        Call::Open(text, 1, true, false),
        Call::Close(1),
        Call::Pread(1, buffer, 2),
        Call::Pwrite(1, buffer, 2),
        Call::Fsync(1),
        Call::Ftruncate(1, 2),
        Call::Fadvise(1, 2, 3, FileAdvice::NoReuse),
        Call::Spawn(1),
        Call::Fork(1),
        Call::Join(1),
        Call::Sleep(1),
        Call::Barrier(1, 2),
        Call::Now(),
        Call::Yield(),
        Call::Tell(Tell::Note, text),
        Call::Exit(exit(None)),
        Call::Exit(exit(Some(Signal::Bus { addr: 9 }))),
        Call::Exit(exit(Some(Signal::Kill))),
        Call::GroupCreate(Group(1), limits),
        Call::GroupLimit(Group(1), limits),
        Call::GroupEnter(Group(1)),
        Call::GroupRemove(Group(1)),
        Call::SetKnob(text, 1),
        Call::MovePages(1, 2, Some(3)),
        Call::MovePages(1, 2, None),
        Call::MigratePages(1, 2),
        Call::Mbind(1, 2, policy, true),
        Call::SetMempolicy(policy),
        Call::GroupKnob(Group(1), text, 2),
    ];
    for call in calls {
        let (number, args) = encode(call);
        assert_eq!(decode(number, args), Ok(call));
    }
    let seen = |number: &u64| calls.iter().any(|&call| encode(call).0 == *number);
    assert!(Call::NUMBERS.iter().all(seen), "an example of every call");
}

#[test]
fn a_text_is_encoded_as_its_place() {
    let (number, args) = encode(Call::SetKnob(Text::Said("vm.swappiness"), 9));
    let place = Buffer { addr: ARENA.start, len: 13 };
    assert_eq!(decode(number, args), Ok(Call::SetKnob(Text::At(place), 9)));
}

#[test]
fn a_buffer_that_leaves_the_arena_is_refused() {
    for (addr, len) in [(ARENA.start - 1, 2), (ARENA.end - 1, 2), (u64::MAX, 2), (0, 1)] {
        assert_eq!(decode(17, [0, addr, len, 0, 0, 0]), Err(Errno::Fault));
    }
    assert!(decode(17, [0, ARENA.start, ARENA.end - ARENA.start, 0, 0, 0]).is_ok());
}

#[test]
fn invalid_arguments_are_refused() {
    let wrong = |number, args| assert_eq!(decode(number, args), Err(Errno::Inval), "{number}");
    wrong(10, [0, 4096, 8, 0, 0, 0]);
    wrong(28, [0, 4096, 5, 0, 0, 0]);
    wrong(3, [1 << 32, 0, 0, 0, 0, 0]);
    wrong(26, [0, 4096, 1, 0, 0, 0]);
    // A mapping is either shared or private.
    wrong(9, [0, 4096, 3, 0x20, 0, 0]);
    wrong(9, [0, 4096, 3, 0x23, 0, 0]);
    wrong(0x1000, [2, 0, 0, 0, 0, 0]);
    wrong(0x100d, [1 << 32, 0, 0, 0, 0, 0]);
    assert_eq!(decode(u64::MAX, [0; 6]), Err(Errno::NoSys));
}

#[test]
fn signals_survive_encoding() {
    for signal in [Signal::Segv { addr: 5 }, Signal::Bus { addr: 5 }, Signal::Kill] {
        assert_eq!(Signal::of(signal.number(), 5), Some(signal));
    }
    assert_eq!(Signal::of(0, 5), None);
}

/// The registers are those of Linux's manual pages.
#[test]
fn linux_calls_use_linux_registers() {
    let file = MapSource::File { fd: 5, offset: 8192, shared: false };
    let map = Map { addr: Some(0x7000), source: file, populate: true, locked: true, ..Map::anonymous(4096) };
    let buffer = Buffer { addr: ARENA.start, len: 7 };
    let remap = Remap { addr: 1, old_len: 2, new_len: 3, may_move: true, fixed: Some(4) };
    for (call, expected) in [
        (Call::Mmap(map), (9, [0x7000, 4096, 3, 0x8000 | 0x2000 | 0x10 | 2, 5, 8192])),
        (Call::Mmap(Map::anonymous(4096)), (9, [0, 4096, 3, 0x22, u64::MAX, 0])),
        (Call::Mremap(remap), (25, [1, 2, 3, 3, 4, 0])),
        (Call::Msync(1, 2), (26, [1, 2, 4, 0, 0, 0])),
        (Call::Pread(1, buffer, 2), (17, [1, buffer.addr, 7, 2, 0, 0])),
        (Call::Munlock(1, 2), (150, [1, 2, 0, 0, 0, 0])),
    ] {
        assert_eq!((call.on_linux(), Call::of_linux(expected.0, expected.1)), (Some(expected), Some(call)));
    }
    assert_eq!((Call::Now().on_linux(), Call::of_linux(0x1007, [0; 6])), (None, None));
    assert_eq!((of_common(233), of_common(9)), (Some(28), None));
}

#[test]
fn arguments_are_found_by_their_names() {
    let file = MapSource::File { fd: 5, offset: 0, shared: false };
    let mut map = Call::Mmap(Map { source: file, ..Map::anonymous(4096) });
    *map.fd_mut().unwrap() = 6;
    assert_eq!(map.fd_mut(), Some(&mut 6));
    assert_eq!((map.range(), Call::Mmap(Map::anonymous(1)).fd_mut()), (None, None));
    assert_eq!((Call::Fsync(7).fd_mut(), Call::Fork(7).fd_mut()), (Some(&mut 7), None));
    assert_eq!(Call::GroupCreate(Group(3), GroupLimits::default()).group_mut(), Some(&mut Group(3)));
    assert_eq!(Call::Mbind(1, 2, MemPolicy { mode: PolicyMode::Bind, nodes: 6 }, true).range(), Some((1, 2)));
    assert_eq!(Call::Fadvise(1, 2, 3, FileAdvice::Normal).range(), None);
}
