use super::*;
use abi::{AccessKind, Map, Remap};

const MIB: u64 = 1 << 20;
/// Where a program's heap and its mappings are.
const HEAP: u64 = 0x5555_5570_0000;
const MAPS: u64 = 0x7ffe_0000_0000;

/// Events by thread.
#[derive(Clone)]
struct Script(Header, Vec<Vec<Event>>);

impl Script {
    fn of(threads: &[&[Event]]) -> Script {
        let thread = crate::header::ThreadInfo {
            process: 0,
            started_by: None,
            counts: Default::default(),
            frames: Vec::new(),
        };
        let header = Header { threads: vec![thread; threads.len()], ..Header::default() };
        Script(header, threads.iter().map(|events| events.to_vec()).collect())
    }

    fn islands(&self) -> Islands {
        Islands::of(self).unwrap_or_else(|never| match never {})
    }
}

impl Source for Script {
    type Stream<'a> = std::vec::IntoIter<Event>;

    fn header(&self) -> &Header {
        &self.0
    }

    fn stream(&self, thread: ThreadId) -> Self::Stream<'_> {
        self.1[thread.0 as usize].clone().into_iter()
    }

    fn first_contents(&self, _: u32) -> impl Iterator<Item = (u64, Packed)> {
        [(HEAP >> PAGE_SHIFT, Packed::ZERO)].into_iter()
    }
}

impl Events for std::vec::IntoIter<Event> {
    type Error = std::convert::Infallible;

    fn next_event(&mut self) -> Result<Option<Event>, Self::Error> {
        Ok(self.next())
    }
}

fn mapped(addr: u64, len: u64) -> Event {
    Event::mapped(1, addr, Map::anonymous(len))
}

fn touched(addr: u64) -> Event {
    Event::Run(Run { page: addr >> PAGE_SHIFT, count: 1, mode: AccessKind::Store })
}

fn called(call: Call<'static>) -> Event {
    Event::change(1, call)
}

/// The addresses and lengths of islands in bytes, and whether they are aligned.
fn shown(islands: &Islands) -> Vec<(u64, u64, bool)> {
    islands
        .0
        .iter()
        .map(|island| (island.start << PAGE_SHIFT, (island.end - island.start) << PAGE_SHIFT, island.aligned))
        .collect()
}

#[test]
fn what_an_event_names_moves_as_a_whole() {
    let moved = Remap {
        addr: MAPS + 8 * MIB,
        old_len: 4096,
        new_len: 8192,
        may_move: true,
        fixed: Some(MAPS + 12 * MIB),
    };
    let script = Script::of(&[
        // Two mappings that touch, later unmapped at once with what is behind them.
        &[mapped(HEAP, 4096), mapped(HEAP + 4096, 4096), touched(HEAP), touched(1 << PAGE_SHIFT)],
        &[
            mapped(MAPS, 3 * MIB),
            mapped(MAPS + 5 * MIB, 4096),
            called(Call::Munmap(HEAP, MIB)),
            Event::Call { epoch: 1, call: Call::Mremap(moved), value: MAPS + 12 * MIB },
        ],
    ]);
    assert_eq!(
        shown(&script.islands()),
        [
            (1 << PAGE_SHIFT, 4096, false),
            (HEAP, MIB, false),
            (MAPS, 3 * MIB, true),
            (MAPS + 5 * MIB, 4096, false),
            (MAPS + 8 * MIB, 4096, false),
            (MAPS + 12 * MIB, 8192, false)
        ]
    );
}

#[test]
fn alignment_is_found_where_it_was_made() {
    let odd = MAPS + 4096;
    let aligned = |events: &[Event]| shown(&Script::of(&[events]).islands())[0].2;
    assert!(!aligned(&[mapped(odd, 8 * MIB)]) && !aligned(&[mapped(MAPS, MIB)]));
    assert!(aligned(&[mapped(odd, 8 * MIB), called(Call::Munmap(odd, 2 * MIB - 4096))]), "in front");
    let end = odd + 8 * MIB;
    assert!(aligned(&[mapped(odd, 8 * MIB), called(Call::Munmap(end - 4096, 4096))]), "behind");
    assert!(!aligned(&[mapped(odd, 8 * MIB), called(Call::Munmap(odd, MIB))]), "not at a block");
    assert!(aligned(&[mapped(odd, 8 * MIB), called(Call::Madvise(odd, 8 * MIB, Advice::HugePage))]));
}

/// A heap, mappings of which some are aligned and near each other, and a stack at the very top.
fn program() -> Script {
    let maps = (0..40)
        .flat_map(|at| [mapped(MAPS + at * 16 * MIB, 4 * MIB), mapped(MAPS + (16 * at + 5) * MIB, 4096)]);
    let maps: Vec<Event> = maps.chain([mapped((1 << 47) - 4096, 4096), mapped(HEAP, MIB)]).collect();
    Script::of(&[&maps])
}

#[test]
fn seeds_have_other_layouts_that_keep_order_gaps_and_alignment() {
    let islands = program().islands();
    let mut rests = std::collections::BTreeSet::new();
    for seed in 0..200 {
        let Layout(moved) = islands.draw(seed);
        assert_eq!(islands.draw(seed).0, moved);
        assert_eq!(moved.len(), islands.0.len());
        for (two, island) in moved.windows(2).zip(&islands.0) {
            assert!(two[0].end - two[0].down <= two[1].start - two[1].down, "seed {seed}: {two:?}");
            assert!(!island.aligned || two[0].down.is_multiple_of(BLOCK), "seed {seed}: {two:?}");
        }
        let is_map = |island: &Island| (MAPS..MAPS + 1024 * MIB).contains(&(island.start << PAGE_SHIFT));
        let heap = moved[0];
        let small = moved.iter().zip(&islands.0).filter(|(_, island)| !island.aligned && is_map(island));
        let small: std::collections::BTreeSet<u64> = small.map(|(moved, _)| moved.down % BLOCK).collect();
        assert_eq!(small.len(), 1, "islands of a region move by as many pages");
        rests.insert((heap.down % BLOCK, small.into_iter().next()));
    }
    assert!(rests.len() > 190, "{}", rests.len());
}

#[test]
fn what_does_not_fit_below_stays() {
    let script = Script::of(&[&[mapped(17 << PAGE_SHIFT, 4096), mapped(19 << PAGE_SHIFT, 4096)]]);
    for seed in 0..50 {
        let Layout(moved) = script.islands().draw(seed);
        assert!(moved.iter().all(|moved| moved.down <= 1), "{moved:?}");
    }
    // The page that the kernel shows all programs is not moved.
    let script = Script::of(&[&[touched(0xffff_ffff_ff60_0000)]]);
    assert_eq!(script.islands().draw(1).0[0].down, 0);
}

#[test]
fn events_are_at_the_other_addresses() {
    let fixed = Event::mapped(2, HEAP, Map { addr: Some(HEAP), ..Map::anonymous(4096) });
    let advised = called(Call::Madvise(MAPS, 4096, Advice::Free));
    let content = Event::Content { page: HEAP >> PAGE_SHIFT, packed: Packed::ZERO };
    let grown = Remap { addr: MAPS, old_len: 4096, new_len: 8192, may_move: false, fixed: None };
    let grown = Event::Call { epoch: 3, call: Call::Mremap(grown), value: MAPS };
    let script = Script::of(&[&[mapped(MAPS, 4096), fixed, touched(HEAP), advised, content, grown]]);
    let islands = script.islands();
    let elsewhere = Elsewhere::new(script.clone(), &islands, 5);
    let [heap, maps] = [0, 1].map(|at| elsewhere.layout.0[at].down << PAGE_SHIFT);
    assert!(heap > 0 && maps > 0 && heap != maps);
    let (heap, maps) = (HEAP - heap, MAPS - maps);
    let mut stream = elsewhere.stream(ThreadId(0));
    let mut events = std::iter::from_fn(|| stream.next_event().unwrap());
    assert_eq!(events.next(), Some(mapped(maps, 4096)));
    assert_eq!(events.next(), Some(Event::mapped(2, heap, Map { addr: Some(heap), ..Map::anonymous(4096) })));
    assert_eq!(events.next(), Some(touched(heap)));
    assert_eq!(events.next(), Some(called(Call::Madvise(maps, 4096, Advice::Free))));
    assert_eq!(events.next(), Some(Event::Content { page: heap >> PAGE_SHIFT, packed: Packed::ZERO }));
    let Some(Event::Call { call: Call::Mremap(remap), value, .. }) = events.next() else { panic!("a call") };
    assert_eq!((remap.addr, remap.fixed, value), (maps, None, maps));
    assert_eq!(events.next(), None);
    let first: Vec<_> = elsewhere.first_contents(0).collect();
    assert_eq!(first, [(heap >> PAGE_SHIFT, Packed::ZERO)]);
}
