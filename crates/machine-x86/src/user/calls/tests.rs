use super::*;
use proptest::prelude::*;

const ARENA: Range<u64> = 0xffff_a000_0000_0000..0xffff_a000_0100_0000;

fn prot() -> impl Strategy<Value = Prot> {
    (0u64..8).prop_map(Prot::from_bits)
}

fn inside() -> impl Strategy<Value = Buffer> {
    (0u64..1 << 24)
        .prop_flat_map(|at| (Just(at), 0..=(1 << 24) - at))
        .prop_map(|(at, len)| Buffer { addr: ARENA.start + at, len })
}

fn source() -> impl Strategy<Value = MapSource> {
    prop_oneof![
        Just(MapSource::Anonymous),
        Just(MapSource::AnonymousShared),
        (any::<u32>(), any::<u64>(), any::<bool>()).prop_map(|(fd, offset, shared)| MapSource::File {
            fd,
            offset,
            shared
        }),
    ]
}

fn map() -> impl Strategy<Value = Map> {
    (any::<Option<u64>>(), any::<u64>(), prot(), source(), any::<bool>(), any::<bool>()).prop_map(
        |(addr, len, prot, source, populate, locked)| Map { addr, len, prot, source, populate, locked },
    )
}

fn remap() -> impl Strategy<Value = Remap> {
    (any::<[u64; 3]>(), any::<bool>(), any::<Option<u64>>()).prop_map(
        |([addr, old_len, new_len], may_move, fixed)| Remap { addr, old_len, new_len, may_move, fixed },
    )
}

fn signal() -> impl Strategy<Value = Option<Signal>> {
    (0u64..4, any::<u64>()).prop_map(|(number, addr)| signal_of(number, addr))
}

fn memory_call() -> impl Strategy<Value = Call> {
    let range = || (any::<u64>(), any::<u64>());
    prop_oneof![
        map().prop_map(Call::Mmap),
        range().prop_map(|(addr, len)| Call::Munmap { addr, len }),
        (range(), prot()).prop_map(|((addr, len), prot)| Call::Mprotect { addr, len, prot }),
        remap().prop_map(Call::Mremap),
        (range(), prop::sample::select(&Advice::ALL[..])).prop_map(|((addr, len), advice)| Call::Madvise {
            addr,
            len,
            advice
        }),
        any::<bool>().prop_map(Call::NeverDefer),
        (range(), any::<bool>()).prop_map(|((addr, len), lock)| Call::Mlock { addr, len, lock }),
        range().prop_map(|(addr, len)| Call::Msync { addr, len }),
        node_call(),
    ]
}

fn mem_policy() -> impl Strategy<Value = MemPolicy> {
    (prop::sample::select(&PolicyMode::ALL), any::<u64>()).prop_map(|(mode, nodes)| MemPolicy { mode, nodes })
}

/// What has to do with nodes.
fn node_call() -> impl Strategy<Value = Call> {
    let range = || (any::<u64>(), any::<u64>());
    prop_oneof![
        (range(), any::<Option<u32>>()).prop_map(|((addr, len), node)| Call::MovePages { addr, len, node }),
        range().prop_map(|(from, to)| Call::MigratePages { from, to }),
        (range(), mem_policy(), any::<bool>()).prop_map(|((addr, len), policy, moving)| Call::Mbind {
            addr,
            len,
            policy,
            moving
        }),
        mem_policy().prop_map(Call::SetMempolicy),
    ]
}

fn file_call() -> impl Strategy<Value = Call> {
    prop_oneof![
        (inside(), any::<u64>(), any::<bool>(), any::<bool>())
            .prop_map(|(name, size, in_memory, writable)| Call::Open { name, size, in_memory, writable }),
        any::<u32>().prop_map(|fd| Call::Close { fd }),
        (any::<u32>(), any::<u64>(), inside()).prop_map(|(fd, offset, buffer)| Call::Pread {
            fd,
            offset,
            buffer
        }),
        (any::<u32>(), any::<u64>(), inside()).prop_map(|(fd, offset, buffer)| Call::Pwrite {
            fd,
            offset,
            buffer
        }),
        any::<u32>().prop_map(|fd| Call::Fsync { fd }),
        (any::<u32>(), any::<u64>()).prop_map(|(fd, size)| Call::Ftruncate { fd, size }),
        (any::<u32>(), any::<u64>(), any::<u64>(), prop::sample::select(&FileAdvice::ALL[..]))
            .prop_map(|(fd, offset, len, advice)| Call::Fadvise { fd, offset, len, advice }),
    ]
}

fn task_call() -> impl Strategy<Value = Call> {
    prop_oneof![
        any::<Role>().prop_map(Call::Spawn),
        any::<Role>().prop_map(Call::Fork),
        any::<u32>().prop_map(Call::Join),
        any::<u64>().prop_map(Call::Sleep),
        (any::<u32>(), any::<u32>()).prop_map(|(id, tasks)| Call::Barrier { id, tasks }),
        Just(Call::Now),
        Just(Call::Yield),
        (inside(), prop::sample::select(&[Tell::Violation, Tell::Panic, Tell::Note][..]))
            .prop_map(|(text, what)| Call::Tell(what, text)),
        (signal(), any::<[u64; 4]>()).prop_map(|(signal, [accesses, progress, checked, violations])| {
            Call::Exit(Exit { signal, accesses, progress, checked, violations })
        }),
    ]
}

fn limits() -> impl Strategy<Value = GroupLimits> {
    any::<[u64; 5]>().prop_map(|[max, high, low, min, swap_max]| GroupLimits {
        max,
        high,
        low,
        min,
        swap_max,
    })
}

fn group_call() -> impl Strategy<Value = Call> {
    let group = || any::<u32>().prop_map(Group);
    prop_oneof![
        (group(), limits()).prop_map(|(parent, limits)| Call::GroupCreate { parent, limits }),
        (group(), limits()).prop_map(|(group, limits)| Call::GroupLimit { group, limits }),
        group().prop_map(Call::GroupEnter),
        group().prop_map(Call::GroupRemove),
        (inside(), any::<u64>()).prop_map(|(name, value)| Call::SetKnob { name, value }),
        (group(), inside(), any::<u64>()).prop_map(|(group, name, value)| Call::GroupKnob {
            group,
            name,
            value
        }),
    ]
}

proptest! {
    #[test]
    fn what_was_encoded_is_decoded(call in prop_oneof![memory_call(), file_call(), task_call(), group_call()]) {
        let (number, args) = encode(&call);
        prop_assert_eq!(decode(number, args, &ARENA), Ok(call));
    }

    #[test]
    fn any_registers_decode_to_something(number in prop_oneof![0u64..35, any::<u64>()], args: [u64; 6]) {
        let inside = |buffer: Buffer| {
            buffer.len == 0 || (ARENA.start <= buffer.addr && buffer.addr + buffer.len <= ARENA.end)
        };
        match decode(number, args, &ARENA) {
            Ok(Call::Open { name: buffer, .. } | Call::SetKnob { name: buffer, .. } | Call::GroupKnob { name: buffer, .. } | Call::Tell(_, buffer)
                | Call::Pread { buffer, .. } | Call::Pwrite { buffer, .. }) => prop_assert!(inside(buffer)),
            Ok(call) => prop_assert_eq!(decode(encode(&call).0, encode(&call).1, &ARENA), Ok(call)),
            Err(_) => {}
        }
    }

    #[test]
    fn answers_return(answer in prop_oneof![any::<u64>().prop_map(Ok), prop::sample::select(&Errno::ALL[..]).prop_map(Err)]) {
        prop_assert_eq!(decode_answer(encode_answer(answer)), answer);
    }
}

#[test]
fn a_buffer_that_leaves_the_arena_is_refused() {
    for (addr, len) in [(ARENA.start - 1, 2), (ARENA.end - 1, 2), (u64::MAX, 2), (0, 1)] {
        assert_eq!(decode(10, [0, 0, addr, len, 0, 0], &ARENA), Err(Errno::Fault));
    }
    assert!(decode(10, [0, 0, ARENA.start, ARENA.end - ARENA.start, 0, 0], &ARENA).is_ok());
}

#[test]
fn signals_keep_their_numbers() {
    for signal in [Signal::Segv { addr: 5 }, Signal::Bus { addr: 5 }, Signal::Kill] {
        assert_eq!(signal_of(signal_number(signal), 5), Some(signal));
    }
    assert_eq!(signal_of(0, 5), None);
}
