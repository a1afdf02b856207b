//! Ranges against a model that knows only pages.

mod bench;
#[cfg(not(any(feature = "one-thread", feature = "loom", feature = "shuttle")))]
mod costs;
mod edges;
mod folios;
mod huge;

use super::*;
use crate::api::{AccessKind, Advice, Backing, FaultError, FileKind, MapRequest, Prot};
use proptest::prelude::*;
use std_alloc::collections::BTreeMap;
use std_alloc::vec::Vec;

/// These tests use the addresses from `BASE` to `BASE + PAGES`, until a mapping grows.
const BASE: u64 = 0x7f00;
const PAGES: u64 = 40;
const GROUP: GroupId = GroupId(0);

/// Properties of a page of a space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Props {
    prot: Prot,
    flags: VmaFlags,
    file: Option<(FileId, u64)>,
    anon_index: u64,
}

/// A run of equal neighbours: start, length, properties of the first.
type Run = (u64, u64, Props);

#[derive(Clone, Debug)]
enum Op {
    Map { at: u64, pages: u64, prot: Prot, kind: u8, offset: u64, locked: bool },
    Unmap { at: u64, pages: u64 },
    Protect { at: u64, pages: u64, prot: Prot },
    Resize { at: u64, old: u64, new: u64 },
    Move { at: u64, old: u64, new: u64, to: u64 },
    Advise { at: u64, pages: u64, advice: Advice },
    Lock { at: u64, pages: u64, lock: bool },
    Touch { at: u64, store: bool },
}

fn op() -> impl Strategy<Value = Op> {
    let at = || BASE..BASE + PAGES;
    let pages = || 1..12u64;
    let prot =
        || prop::sample::select(std_alloc::vec![Prot::NONE, Prot::READ, Prot::READ | Prot::WRITE, Prot::ALL]);
    let advice = prop::sample::select(std_alloc::vec![Advice::Normal, Advice::Random, Advice::Sequential]);
    prop_oneof![
        4 => (at(), pages(), prot(), 0..5u8, 0..20u64, prop::bool::weighted(0.2)).prop_map(
            |(at, pages, prot, kind, offset, locked)| Op::Map { at, pages, prot, kind, offset, locked }
        ),
        2 => (at(), pages()).prop_map(|(at, pages)| Op::Unmap { at, pages }),
        3 => (at(), pages(), prot()).prop_map(|(at, pages, prot)| Op::Protect { at, pages, prot }),
        2 => (at(), pages(), pages()).prop_map(|(at, old, new)| Op::Resize { at, old, new }),
        2 => (at(), pages(), pages(), at()).prop_map(|(at, old, new, to)| Op::Move { at, old, new, to }),
        2 => (at(), pages(), advice).prop_map(|(at, pages, advice)| Op::Advise { at, pages, advice }),
        1 => (at(), pages(), any::<bool>()).prop_map(|(at, pages, lock)| Op::Lock { at, pages, lock }),
        3 => (at(), any::<bool>()).prop_map(|(at, store)| Op::Touch { at, store }),
    ]
}

struct Bench {
    of: bench::Bench,
    id: SpaceId,
    files: [FileId; 2],
    model: BTreeMap<u64, Props>,
}

impl Bench {
    fn new() -> Bench {
        let (of, id) = bench::Bench::new(2048, &[]);
        let files = [0; 2].map(|_| of.core.cache.create(FileKind::Shmem, 24 * PAGE_SIZE));
        Bench { of, id, files, model: BTreeMap::new() }
    }

    /// Do `op`, and apply the manual's effect to the model.
    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Map { at, pages, prot, kind, offset, locked } => {
                self.map(at, pages, prot, kind, offset, locked)
            }
            Op::Unmap { at, pages } => {
                self.spaces.munmap(&self.core, self.id, Vpn(at), pages).unwrap();
                self.forget(at, pages);
            }
            Op::Protect { at, pages, prot } => self.protect(at, pages, prot),
            Op::Resize { at, old, new } => self.resize(at, old, new),
            Op::Move { at, old, new, to } => self.move_to(at, old, new, to),
            Op::Advise { at, pages, advice } => {
                let advised = self.spaces.madvise(&self.core, self.id, Vpn(at), pages, advice).unwrap();
                let refused = advised.refused.map(Stop::from);
                assert_eq!(refused.map_or(Ok(()), Err), self.if_covered(at, pages));
                self.change(at, pages, |props| {
                    props.flags.remove(VmaFlags::SEQUENTIAL | VmaFlags::RANDOM);
                    props.flags.set(VmaFlags::SEQUENTIAL, advice == Advice::Sequential);
                    props.flags.set(VmaFlags::RANDOM, advice == Advice::Random);
                });
            }
            Op::Lock { at, pages, lock } => {
                let expected = self.if_covered(at, pages);
                assert_eq!(self.spaces.mlock(&self.core, self.id, Vpn(at), pages, lock), expected);
                if expected.is_ok() {
                    self.change(at, pages, |props| props.flags.set(VmaFlags::LOCKED, lock));
                }
            }
            Op::Touch { at, store } => self.touch(at, store),
        }
    }

    fn map(&mut self, at: u64, pages: u64, prot: Prot, kind: u8, offset: u64, locked: bool) {
        let (file, shared, writable) = (self.files[kind as usize % 2], kind < 4, kind < 3);
        let backing = match kind {
            0 => Backing::Anonymous,
            _ => Backing::File { file, offset: PageIndex(offset), shared, writable },
        };
        let request = MapRequest { at: Some(Vpn(at)), pages, prot, backing, locked, populate: false };
        let outcome = self.spaces.mmap(&self.core, self.id, &request);
        let mut flags = VmaFlags::MAY_WRITE;
        flags.set(VmaFlags::LOCKED, locked);
        flags.set(VmaFlags::SHARED, kind > 0 && shared);
        if kind > 0 && shared && !writable {
            if prot.contains(Prot::WRITE) {
                assert_eq!(outcome, Err(Error::Access.into()));
                return;
            }
            flags.remove(VmaFlags::MAY_WRITE);
        }
        self.forget(at, pages);
        assert_eq!(outcome, Ok(Vpn(at)));
        for i in 0..pages {
            let file = (kind > 0).then_some((file, offset + i));
            self.model.insert(at + i, Props { prot, flags, file, anon_index: at + i });
        }
    }

    fn protect(&mut self, at: u64, pages: u64, prot: Prot) {
        let mut expected = self.if_covered(at, pages);
        let for_ever = |props: &Props| !props.flags.contains(VmaFlags::MAY_WRITE);
        if expected.is_ok()
            && prot.contains(Prot::WRITE)
            && self.model.range(at..at + pages).any(|(_, props)| for_ever(props))
        {
            expected = Err(Error::Access.into());
        }
        assert_eq!(self.spaces.mprotect(&self.core, self.id, Vpn(at), pages, prot), expected);
        if expected.is_ok() {
            self.change(at, pages, |props| props.prot = prot);
        }
    }

    fn remap(&self, at: u64, old: u64, new: u64, to: Option<u64>) -> Result<Vpn, Stop> {
        let (gfp, to) = (Gfp::user(GROUP), to.map(Vpn));
        self.spaces.mremap(
            &self.core,
            self.id,
            Remap { start: Vpn(at), old, new, may_move: to.is_some(), fixed: to },
            gfp,
        )
    }

    fn resize(&mut self, at: u64, old: u64, new: u64) {
        let end = self.range_end(at);
        let outcome = self.remap(at, old, new, None);
        let Some(end) = end.filter(|&end| end >= at + old) else {
            return assert_eq!(outcome, Err(Error::NotMapped.into()));
        };
        if new <= old {
            self.forget(at + new, old - new);
        } else if end != at + old || self.model.range(end..at + new).next().is_some() {
            return assert_eq!(outcome, Err(Error::NoMemory.into()));
        } else {
            self.extend(at, old, new);
        }
        assert_eq!(outcome, Ok(Vpn(at)));
    }

    fn move_to(&mut self, at: u64, old: u64, new: u64, to: u64) {
        let is_range = self.range_end(at).is_some_and(|end| end >= at + old);
        let outcome = self.remap(at, old, new, Some(to));
        if !is_range {
            return assert_eq!(outcome, Err(Error::NotMapped.into()));
        }
        if to < at + old && at < to + new {
            return assert_eq!(outcome, Err(Error::Invalid.into()));
        }
        assert_eq!(outcome, Ok(Vpn(to)));
        self.forget(to, new);
        for i in 0..old {
            let props = self.model.remove(&(at + i)).unwrap();
            if i < new {
                self.model.insert(to + i, props);
            }
        }
        self.extend(to, old.min(new), new);
    }

    /// Pages `old..new` of the mapping at `at` continue it.
    fn extend(&mut self, at: u64, old: u64, new: u64) {
        let last = self.model[&(at + old - 1)];
        for by in 1..=new.saturating_sub(old) {
            let file = last.file.map(|(file, index)| (file, index + by));
            let props = Props { file, anon_index: last.anon_index + by, ..last };
            self.model.insert(at + old - 1 + by, props);
        }
    }

    fn touch(&mut self, at: u64, store: bool) {
        let access = if store { AccessKind::Store } else { AccessKind::Load };
        let allowed = self.model.get(&at).is_some_and(|props| props.prot.contains(access.needs()));
        let outcome = self.spaces.at(self.id).fault(&self.core, self.id, Vpn(at), access, Gfp::user(GROUP));
        match outcome {
            Ok(_) => assert!(allowed),
            Err(FaultStop::Error(FaultError::Segv)) => assert!(!allowed),
            Err(FaultStop::Error(FaultError::Bus)) => {
                assert!(self.model[&at].file.is_some_and(|(_, index)| index >= 24));
            }
            Err(other) => panic!("{other:?}"),
        }
    }

    fn forget(&mut self, at: u64, pages: u64) {
        self.model.retain(|page, _| !(at..at + pages).contains(page));
    }

    fn change(&mut self, at: u64, pages: u64, change: impl Fn(&mut Props)) {
        self.model.range_mut(at..at + pages).for_each(|(_, props)| change(props));
    }

    fn if_covered(&self, at: u64, pages: u64) -> Result<(), Stop> {
        match self.model.range(at..at + pages).count() as u64 {
            count if count == pages => Ok(()),
            _ => Err(Error::NotMapped.into()),
        }
    }

    /// End of the range that holds a page, as the memory manager has cut it.
    fn range_end(&self, page: u64) -> Option<u64> {
        self.spaces.at(self.id).vmas.lock().range_of(Vpn(page)).map(|vma| vma.view.end().0)
    }

    /// The actual ranges.
    fn found(&self) -> Vec<Run> {
        let vmas = self.spaces.at(self.id).vmas.lock();
        let run = |view: &VmaView| {
            let file = view.file.map(|(file, index)| (file, index.0));
            let props = Props { prot: view.prot, flags: view.flags, file, anon_index: view.anon_index.0 };
            (view.start.0, view.pages, props)
        };
        vmas.iter().map(|vma| run(&vma.view)).collect()
    }

    /// The longest ranges that describe the model's pages.
    fn expected(&self) -> Vec<Run> {
        join(self.model.iter().map(|(&page, &props)| (page, 1, props)))
    }

    fn validate(&self) {
        self.of.check_rooms();
    }
}

impl core::ops::Deref for Bench {
    type Target = bench::Bench;

    fn deref(&self) -> &bench::Bench {
        &self.of
    }
}

/// Join neighbours that continue each other.
fn join(runs: impl Iterator<Item = Run>) -> Vec<Run> {
    let mut joined: Vec<Run> = Vec::new();
    for (start, pages, props) in runs {
        if let Some((before, length, first)) = joined.last_mut() {
            let file = first.file.map(|(file, index)| (file, index + *length));
            let next = Props { file, anon_index: first.anon_index + *length, ..*first };
            if *before + *length == start && next == props {
                *length += pages;
                continue;
            }
        }
        joined.push((start, pages, props));
    }
    joined
}

proptest! {
    #![proptest_config(crate::testing::cases(300))]

    /// While no page is touched, neighbours that fit are always one range.
    #[test]
    fn ranges_match_the_page_model(ops in prop::collection::vec(op(), 1..60)) {
        let mut bench = Bench::new();
        for op in ops.iter().filter(|op| !matches!(op, Op::Touch { .. })) {
            bench.apply(op);
            prop_assert_eq!(bench.found(), bench.expected(), "after {:?}", op);
        }
        bench.validate();
    }

    /// Ranges with anonymous pages may stay separate, but describe the same pages.
    #[test]
    fn populated_ranges_match_the_page_model(ops in prop::collection::vec(op(), 1..60)) {
        let mut bench = Bench::new();
        for op in &ops {
            bench.apply(op);
            prop_assert_eq!(join(bench.found().into_iter()), bench.expected(), "after {:?}", op);
            bench.validate();
        }
        bench.spaces.exit(&bench.core, bench.id);
        prop_assert_eq!(bench.core.rmap.links(), 0);
        for file in bench.files {
            bench.core.cache.destroy(&bench.core, file);
        }
        bench.core.alloc.validate(&bench.core).unwrap();
    }
}

#[test]
fn munmap_of_the_last_range_under_a_table_frees_it() {
    let mut bench = Bench::new();
    let [one, other] = [BASE.next_multiple_of(512), BASE.next_multiple_of(512) + 100];
    for at in [one, other] {
        bench.apply(&Op::Map { at, pages: 4, prot: Prot::ALL, kind: 0, offset: 0, locked: false });
    }
    bench.touch(one, true);
    let tables = |bench: &Bench| {
        let mmu = &bench.core;
        bench.core.tables.lock(mmu, bench.id).counts().tables()
    };
    assert_eq!(tables(&bench), 4);
    bench.apply(&Op::Unmap { at: one, pages: 4 });
    assert_eq!(tables(&bench), 4);
    bench.validate();
    bench.apply(&Op::Unmap { at: other, pages: 4 });
    assert_eq!(tables(&bench), 1);
    bench.validate();
}

/// munmap of a range's first pages makes no cut: the rest is the same range, and all its owners know its new place.
/// munmap of all of it removes it from their lists.
#[test]
fn munmap_of_a_range_start_keeps_the_range_and_its_links() {
    for kind in [0, 2, 4] {
        let mut bench = Bench::new();
        let prot = Prot::READ | Prot::WRITE;
        bench.apply(&Op::Map { at: BASE, pages: 12, prot, kind, offset: 3, locked: false });
        (BASE..BASE + 12).step_by(2).for_each(|page| bench.touch(page, true));
        // A private range is registered with two sets.
        let child = bench.spaces.fork(&bench.core, bench.id, Gfp::user(GROUP)).unwrap();
        bench.touch(BASE + 6, true);
        let id = |bench: &Bench| {
            bench.spaces.at(bench.id).vmas.lock().range_of(Vpn(BASE + 11)).map(|vma| vma.view.id)
        };
        let before = id(&bench);
        for (gone, pages) in [(0, 1), (1, 5), (6, 1), (7, 4)] {
            bench.apply(&Op::Unmap { at: BASE + gone, pages });
            assert_eq!(bench.found(), bench.expected());
            assert_eq!((id(&bench), bench.range_end(BASE + 11)), (before, Some(BASE + 12)));
            bench.validate();
        }
        let links = bench.core.rmap.links();
        bench.apply(&Op::Unmap { at: BASE + 11, pages: 1 });
        assert_eq!((id(&bench), bench.found()), (None, Vec::new()));
        assert!(bench.core.rmap.links() < links);
        bench.validate();
        bench.spaces.exit(&bench.core, child);
        bench.validate();
    }
}

/// Reclaim and write-back walk reverse maps while spaces end: they must not reach tables that are gone.
#[cfg(not(feature = "one-thread"))]
#[test]
fn exit_is_safe_against_concurrent_reverse_map_walks() {
    extern crate std;
    use crate::primitive::{AtomicBool, Ordering::*};

    let mut bench = Bench::new();
    let map = Op::Map { at: BASE, pages: 8, prot: Prot::ALL, kind: 2, offset: 0, locked: false };
    bench.apply(&map);
    let fault = |id| {
        let gfp = Gfp::user(GROUP);
        bench.spaces.at(id).fault(&bench.core, id, Vpn(BASE), AccessKind::Load, gfp).unwrap();
    };
    fault(bench.id);
    let pfn = {
        let tables = bench.core.tables.lock(&bench.core, bench.id);
        tables.find(Vpn(BASE)).unwrap().entry.pfn()
    };
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Acquire) {
                // The walk sees the space change.
                let _ = bench.core.rmap.validate_folio(&bench.core, pfn);
                // Yield here, so that the host rarely preempts it elsewhere: the other thread spins.
                std::thread::yield_now();
            }
        });
        for _ in 0..10_000 {
            let child = bench.spaces.fork(&bench.core, bench.id, Gfp::user(GROUP)).unwrap();
            fault(child);
            bench.spaces.exit(&bench.core, child);
        }
        over.store(true, Release);
    });
}
