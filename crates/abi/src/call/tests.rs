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

/// What a register may hold: of a small number most calls make something.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0u64..4, 1 => 0u64..0x400, 1 => Just(ARENA.start), 1 => Just(ARENA.end - 2), 1 => any::<u64>()]
}

proptest! {
    #[test]
    fn whatever_registers_hold_means_one_thing(number in prop_oneof![0u64..40, any::<u64>()], args in prop::array::uniform6(word())) {
        if let Ok(call) = decode(number, args) {
            let inside = |Buffer { addr, len }| len == 0 || (ARENA.start <= addr && addr + len <= ARENA.end);
            match call {
                Call::Open(Text::At(buffer), ..) | Call::SetKnob(Text::At(buffer), _)
                | Call::GroupKnob(_, Text::At(buffer), _) | Call::Tell(_, Text::At(buffer))
                | Call::Pread(_, _, buffer) | Call::Pwrite(_, _, buffer) => prop_assert!(inside(buffer)),
                _ => {}
            }
            let (again, args) = encode(call);
            prop_assert_eq!((again, decode(again, args)), (number, Ok(call)));
        }
    }

    #[test]
    fn answers_return(answer in prop_oneof![any::<u64>().prop_map(Ok), prop::sample::select(&Errno::ALL[..]).prop_map(Err)]) {
        prop_assert_eq!(decode_answer(encode_answer(answer)), answer);
    }
}

/// Each argument arrives where it was put.
#[test]
fn what_was_encoded_is_decoded() {
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
        Call::Mlock(1, 2, true),
        Call::Msync(1, 2),
        Call::Open(text, 1, true, false),
        Call::Close(1),
        Call::Pread(1, 2, buffer),
        Call::Pwrite(1, 2, buffer),
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
    assert!(Call::NUMBERS.iter().all(seen), "every call is among them");
}

#[test]
fn a_text_travels_as_its_place() {
    let (number, args) = encode(Call::SetKnob(Text::Said("vm.swappiness"), 9));
    let place = Buffer { addr: ARENA.start, len: 13 };
    assert_eq!(decode(number, args), Ok(Call::SetKnob(Text::At(place), 9)));
}

#[test]
fn a_buffer_that_leaves_the_arena_is_refused() {
    for (addr, len) in [(ARENA.start - 1, 2), (ARENA.end - 1, 2), (u64::MAX, 2), (0, 1)] {
        assert_eq!(decode(10, [0, 0, addr, len, 0, 0]), Err(Errno::Fault));
    }
    assert!(decode(10, [0, 0, ARENA.start, ARENA.end - ARENA.start, 0, 0]).is_ok());
}

#[test]
fn what_has_no_meaning_is_refused() {
    let wrong = |number, args| assert_eq!(decode(number, args), Err(Errno::Inval), "{number}");
    wrong(2, [0, 4096, 8, 0, 0, 0]);
    wrong(4, [0, 4096, 5, 0, 0, 0]);
    wrong(5, [2, 0, 0, 0, 0, 0]);
    wrong(9, [1 << 32, 0, 0, 0, 0, 0]);
    wrong(28, [1 << 32, 0, 0, 0, 0, 0]);
    assert_eq!(decode(u64::MAX, [0; 6]), Err(Errno::NoSys));
}

#[test]
fn signals_keep_their_numbers() {
    for signal in [Signal::Segv { addr: 5 }, Signal::Bus { addr: 5 }, Signal::Kill] {
        assert_eq!(Signal::of(signal.number(), 5), Some(signal));
    }
    assert_eq!(Signal::of(0, 5), None);
}
