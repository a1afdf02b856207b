//! What a move preserves, what keeps a folio in place, and what a move costs.

use super::*;
use crate::frame::{FrameFlags, LruGen};
use crate::knobs::FlushPolicy;

/// A bench of one space under a flush policy, with single pages.
pub(super) fn simple(policy: u64) -> &'static Bench {
    Bench::new(policy, &[0; 8], [0, 0, 0])
}

impl Bench {
    /// The frame that a page maps, and whether it is writable.
    pub(super) fn shown(&self, at: u64) -> (Pfn, bool) {
        let run = self.mm.core.tables.lock(self.mm.mmu(), self.id(0)).find(Vpn(at)).unwrap();
        assert!(run.entry.is_present(), "{:?}", run.entry);
        (run.entry.pfn().add((at - run.page.0) as u32), run.entry.has(Bits::WRITE))
    }

    pub(super) fn store_all(&self, at: u64, pages: u64) {
        (at..at + pages).for_each(|at| self.step(0, 0, Step::Store(at)));
    }

    pub(super) fn move_to(&self, at: u64, pages: u64, node: Option<u8>) -> Moved {
        let moved = self.move_held(at, pages, node);
        assert_eq!(self.mm.validate(), Ok(()));
        moved
    }

    /// The same while a test holds a page, which it must put before it validates.
    fn move_held(&self, at: u64, pages: u64, node: Option<u8>) -> Moved {
        self.mm.move_pages(self.id(0), Vpn(at), pages, node.map(NodeId)).unwrap()
    }

    /// Isolate the folio of a page, and move it in this mode.
    pub(super) fn move_folio(&self, at: u64, mode: Mode, target: &mut dyn Target<TestMachine>) -> Done {
        self.move_folios(&[at], mode, target)
    }

    /// The same for the folios of several pages.
    pub(super) fn move_folios(
        &self,
        pages: &[u64],
        mode: Mode,
        target: &mut dyn Target<TestMachine>,
    ) -> Done {
        let core = &self.mm.core;
        let mut list = crate::frame::List::new();
        for &at in pages {
            let head = core.frames.head(self.shown(at).0);
            migrate::isolate(core, head).unwrap();
            list.push_head(&core.frames, head);
        }
        migrate::folios(core, list, target, mode, MigrateReason::Compaction)
    }

    /// A store of CPU 1 through the entry as it is: it takes no fault.
    pub(super) fn store_by_hardware(&self, at: u64) {
        self.run_on(1, Some(self.id(0)));
        let needs = Bits::PRESENT | Bits::WRITE;
        let (pfn, _) =
            access(&self.mm, self.id(0), Vpn(at), needs, true).expect("the entry must allow stores");
        self.mm.machine().hold(Vpn(at), pfn, true);
        self.stored(0, at, pfn);
    }

    /// Isolate the page of an address, and move it while it stays in use. `during`: called once it was copied.
    pub(super) fn move_in_use(&'static self, at: u64, during: fn(&Bench, u64)) -> Done {
        let before = self.mm.machine().entered.lock().replace(Box::new(move |machine, scope| {
            if scope == Scope::TryToMigrateOne {
                let here = machine.cpu();
                during(self, at);
                machine.run_on(here.0);
            }
        }));
        let core = &self.mm.core;
        let head = self.shown(at).0;
        migrate::isolate(core, head).unwrap();
        let mut list = crate::frame::List::new();
        list.push_head(&core.frames, head);
        let done = migrate::folios_in_use(core, list, &mut OnNode(Some(NodeId(1))));
        *self.mm.machine().entered.lock() = before;
        assert_eq!(self.mm.validate(), Ok(()));
        done
    }
}

/// A page that stays in use while it is copied moves if nobody stores to it, as loads show.
#[test]
fn page_in_use_moves_with_its_content() {
    for policy in 0..FlushPolicy::COUNT {
        let (bench, at) = (simple(policy), start_of(Kind::Anon));
        bench.store_all(at, 1);
        let old = bench.shown(at).0;
        bench.step(1, 0, Step::Load(at));
        let done = bench.move_in_use(at, |bench, at| bench.step(1, 0, Step::LoadKept(at)));
        assert_eq!((done.moved, done.failed), (1, 0), "policy {policy}");
        let (new, writable) = bench.shown(at);
        assert!(new != old && writable && bench.mm.core.frames[new].node() == NodeId(1));
        assert_eq!(bench.mm.mmu().stats.read(Stat::TierMoveAborted), 0);
        for cpu in [1, 0] {
            bench.step(cpu, 0, Step::Load(at));
            bench.step(cpu, 0, Step::Store(at));
        }
    }
}

/// If somebody stores to it after it was copied, the copy is dropped and the page stays: both stores are there.
#[test]
fn page_that_is_stored_to_while_it_is_copied_stays() {
    for policy in 0..FlushPolicy::COUNT {
        let (bench, at) = (simple(policy), start_of(Kind::Anon));
        bench.store_all(at, 2);
        let before = bench.shown(at);
        let done = bench.move_in_use(at, Bench::store_by_hardware);
        assert_eq!((done.moved, done.failed), (0, 1), "policy {policy}");
        assert_eq!(bench.shown(at), before, "the entry maps the old frame with its rights");
        assert_eq!(bench.mm.mmu().stats.read(Stat::TierMoveAborted), 1);
        (0..2).for_each(|cpu| bench.step(cpu, 0, Step::Load(at)));
        // Neither the folio's lock nor its isolation is left.
        assert_eq!(bench.move_to(at, 2, Some(1)).moved, 2);
        bench.step(1, 0, Step::Load(at));
    }
}

/// What cannot stay in use is moved as ever: what two processes share, what is in a file, what is in the swap cache.
#[test]
fn pages_that_cannot_be_copied_in_use_move_all_the_same() {
    for kind in [Kind::Anon, Kind::Shmem, Kind::File] {
        let (bench, at) = (simple(1), start_of(kind));
        bench.store_all(at, 1);
        if kind == Kind::Anon {
            bench.step(0, 0, Step::Fork);
        }
        let done = bench.move_in_use(at, |_, _| ());
        assert_eq!((done.moved, done.failed), (1, 0), "{kind:?}");
        assert_eq!(bench.mm.core.frames[bench.shown(at).0].node(), NodeId(1));
        (0..2).for_each(|process| bench.step(0, process, Step::Load(at)));
    }
}

#[test]
fn migration_preserves_folio_state() {
    for policy in [0, 1, 2] {
        let bench = simple(1);
        let (mm, core) = (&bench.mm, &bench.mm.core);
        mm.set_knob(Knob::ReclaimPolicy, policy).unwrap();
        let group = mm.create_group(ROOT, GroupLimits::default()).unwrap();
        mm.move_space(bench.id(0), group).unwrap();
        let (anon, file) = (start_of(Kind::Anon), start_of(Kind::File));
        bench.store_all(anon, 4);
        bench.store_all(file, 4);
        for at in [anon, file] {
            core.lru.activate(mm.mmu(), bench.shown(at).0);
            core.frames[bench.shown(at + 1).0].set(FrameFlags::WORKINGSET | FrameFlags::REFERENCED);
        }
        mm.mlock(bench.id(0), Vpn(anon + 2), 1, true).unwrap();
        let usage = mm.group_usage(group);
        let dirty = mm.mmu().stats.read(Stat::NrDirty);
        for (node, at) in [(1, anon), (1, file), (0, file)] {
            let frames: Vec<Pfn> = (at..at + 4).map(|at| bench.shown(at).0).collect();
            let flags: Vec<FrameFlags> = frames.iter().map(|&pfn| core.frames[pfn].flags()).collect();
            assert_eq!(bench.move_to(at, 4, Some(node)).moved, 4);
            for (i, before) in (at..).zip(&flags) {
                let now = bench.shown(i);
                assert_eq!(core.frames[now.0].node(), NodeId(node));
                assert!(now.1 && !frames.contains(&now.0), "{now:?}");
                let ages = FrameFlags::GENERATION;
                assert_eq!(core.frames[now.0].flags() - ages, *before - ages, "policy {policy}");
                assert_eq!(core.frames[now.0].flags().generation().is_some(), before.generation().is_some());
            }
        }
        assert_eq!(mm.group_usage(group), usage);
        assert_eq!(mm.mmu().stats.read(Stat::NrDirty), dirty);
        assert_eq!(mm.mmu().stats.read(Stat::NrMlock), 1);
        (0..4).for_each(|i| bench.step(1, 0, Step::Load(anon + i)));
    }
}

#[test]
fn migration_preserves_the_generation() {
    let bench = simple(1);
    let (mm, core, at) = (&bench.mm, &bench.mm.core, start_of(Kind::Anon));
    mm.set_knob(Knob::ReclaimPolicy, 1).unwrap();
    bench.store_all(at, 1);
    let generations = |node| &core.lru.vec(NodeId(node), ROOT).generations;
    let age = |node: u8| {
        let flags = core.frames[bench.shown(at).0].flags();
        (0..4).find(|age| LruGen::of(generations(node).max_seq() - age) == flags.generation().unwrap())
    };
    for _ in 0..2 {
        // Pages that are not used while a generation is created get older.
        let mut tables = core.tables.lock(mm.mmu(), bench.id(0));
        let run = tables.find(Vpn(at)).unwrap();
        tables.clear_young(&run);
        drop(tables);
        mm.lru_gen_command(&std_alloc::format!("+ 0 0 {}", generations(0).max_seq())).unwrap();
    }
    let before = age(0);
    assert!(before > Some(0), "{before:?}");
    assert_eq!(bench.move_to(at, 1, None).moved, 1);
    assert_eq!(age(0), before);
}

#[test]
fn migration_skips_folios_with_extra_references() {
    for policy in 0..FlushPolicy::COUNT {
        let (bench, at) = (simple(policy), start_of(Kind::Anon));
        let core = &bench.mm.core;
        bench.store_all(at, 3);
        let before = bench.shown(at + 1);
        // Another task takes a reference before the entries are gone, and after that.
        for moment in [Moment::Unmap, Moment::Copy] {
            core.frames[before.0].get(1);
            let pinned = moment == Moment::Unmap;
            if !pinned {
                core.put(before.0);
                bench.hold_at_copy(before.0);
            }
            let moved = bench.move_held(at, 3, None);
            assert_eq!((moved.moved, moved.failed), (2, 1), "{moment:?}");
            assert_eq!(bench.shown(at + 1), before);
            core.put(before.0);
            assert_eq!(bench.mm.validate(), Ok(()));
        }
        *bench.mm.machine().watcher.lock() = None;
        bench.step(1, 0, Step::Load(at + 1));
        assert_eq!(bench.move_to(at, 3, None).moved, 3);
    }
}

impl Bench {
    /// Take a reference to a folio just before it is copied, and do the step for this moment.
    pub(super) fn hold_at_copy(&'static self, pfn: Pfn) {
        *self.mm.machine().watcher.lock() = Some(Box::new(move |_, event, args| {
            let concern = Concern::of_args(args).filter(|_| event == Event::TlbHazard);
            let copied = matches!(concern, Some(Concern::Frames { first, .. }) if first == pfn);
            if copied && self.mm.core.frames[pfn].refs() == 1 {
                self.mm.core.frames[pfn].get(1);
                self.interrupt(Moment::Copy);
            }
        }));
    }
}

#[test]
fn migration_waits_only_if_its_mode_allows() {
    let (bench, at) = (simple(1), start_of(Kind::Anon));
    let core = &bench.mm.core;
    bench.store_all(at, 1);
    let mut target = OnNode(None);
    let pfn = bench.shown(at).0;
    core.lock_folio(pfn);
    let machine = bench.mm.machine();
    let unlock = move |_: &TestMachine| bench.mm.core.unlock_folio(pfn);
    assert_eq!(bench.move_folio(at, Mode::Async, &mut target).failed, 1);
    *machine.idle.lock() = Some(Box::new(unlock));
    assert_eq!(bench.move_folio(at, Mode::SyncLight, &mut target).moved, 1);
    let pfn = bench.shown(at).0;
    core.frames[pfn].set(FrameFlags::WRITEBACK);
    let end = move |_: &TestMachine| {
        bench.mm.core.frames[pfn].clear(FrameFlags::WRITEBACK);
        bench.mm.core.wake_folio(pfn);
    };
    *machine.idle.lock() = Some(Box::new(end));
    for mode in [Mode::Async, Mode::SyncLight] {
        assert_eq!(bench.move_folio(at, mode, &mut target).failed, 1, "{mode:?}");
    }
    assert_eq!(bench.move_folio(at, Mode::Sync, &mut target).moved, 1);
    assert_eq!(bench.mm.validate(), Ok(()));
}

/// However many pages are moved, CPUs that could store to them are flushed once. CPUs that could only read them are
/// not flushed where flushes are deferred.
#[test]
fn migration_flushes_once_for_a_batch() {
    for (policy, read_only, rounds) in [(1, false, 1), (1, true, 1), (3, false, 1), (3, true, 0)] {
        let (bench, at) = (simple(policy), start_of(Kind::Anon));
        let machine = bench.mm.machine();
        bench.store_all(at, 30);
        if read_only {
            bench.mm.mprotect(bench.id(0), Vpn(at), 30, Prot::READ).unwrap();
        }
        for cpu in [1, 0] {
            (at..at + 30)
                .for_each(|at| bench.step(cpu, 0, if read_only { Step::Load(at) } else { Step::Store(at) }));
        }
        let before = machine.shootdowns.lock().len();
        assert_eq!(bench.move_to(at, 30, None).moved, 30);
        assert_eq!(machine.shootdowns.lock().len() - before, rounds, "policy {policy}, {read_only}");
        for cpu in [1, 0] {
            (at..at + 30).for_each(|at| bench.step(cpu, 0, Step::Load(at)));
        }
    }
}

/// This many frames of node 1, and folios of at most this order.
struct Few(u32, Order);

impl Target<TestMachine> for Few {
    fn take(&mut self, core: &MmCore<TestMachine>, from: Pfn, order: Order) -> Option<Fresh> {
        if order > self.1 {
            return None;
        }
        self.0 = self.0.checked_sub(1)?;
        OnNode(Some(NodeId(1))).take(core, from, order)
    }

    fn give_back(&mut self, core: &MmCore<TestMachine>, unused: Fresh) {
        core.put(unused.into_pfn());
    }
}

/// As in Linux: once memory has run out, folios that were not tried have not failed.
#[test]
fn migration_counts_untried_folios_as_left() {
    for mode in [Mode::Async, Mode::SyncLight, Mode::Sync] {
        let (bench, at) = (simple(1), start_of(Kind::Anon));
        bench.store_all(at, 6);
        let pages: Vec<u64> = (at..at + 6).collect();
        let done = bench.move_folios(&pages, mode, &mut Few(2, MAX_ORDER));
        assert_eq!((done.moved, done.failed, done.left, done.no_room), (2, 1, 3, true), "{mode:?}");
        assert_eq!(bench.mm.mmu().stats.read(Stat::PgmigrateFail), 1, "{mode:?}");
        let nodes = pages.iter().map(|&at| bench.mm.core.frames[bench.shown(at).0].node().0);
        assert_eq!(nodes.collect::<Vec<_>>(), [1, 1, 0, 0, 0, 0], "{mode:?}");
        assert_eq!(bench.mm.validate(), Ok(()));
        // All are on their lists again.
        assert_eq!(bench.move_to(at, 6, Some(1)).moved, 4, "{mode:?}");
    }
}

#[test]
fn migration_without_a_block_moves_page_by_page() {
    for kind in [Kind::Anon, Kind::Shmem, Kind::File] {
        let bench = Bench::new(1, &[0, 0, 1, 0, 0, 0, 0, 0], [4, 4, 0]);
        let at = start_of(kind);
        if kind == Kind::File {
            // A write makes folios as large as what it overwrites.
            let all = 16 * PAGE_SIZE;
            bench
                .mm
                .write(bench.file, 0, all, ROOT, &mut |pfn, _, _| bench.mm.machine().set_stamp(pfn, 0))
                .unwrap();
        }
        bench.store_all(at, 16);
        let order = bench.mm.core.frames[bench.mm.core.frames.head(bench.shown(at).0)].order();
        assert_eq!(order, Order(4), "{kind:?}");
        let done = bench.move_folio(at, Mode::Async, &mut Few(u32::MAX, Order::ZERO));
        assert_eq!(
            (done.moved, done.failed, done.split, done.large_moved),
            (16, 0, 1, 0),
            "{kind:?}: {done:?}"
        );
        (at..at + 16).for_each(|at| bench.step(1, 0, Step::Load(at)));
        assert_eq!(bench.mm.core.frames[bench.shown(at).0].node(), NodeId(1));
        assert_eq!(bench.mm.validate(), Ok(()));
    }
}

/// A folio of the parent alone leaves its frames. Once a child shares it, it moves back.
#[test]
fn a_shared_folio_is_not_stored_to_in_frames_that_it_did_not_share() {
    let bench = Bench::new(1, &[0, 0, 1, 0, 0, 0, 0, 0], [0, 0, 0]);
    let at = start_of(Kind::Anon);
    bench.store_all(at, 16);
    let frames = bench.shown(at).0;
    assert_eq!(bench.move_to(at, 16, Some(1)).moved, 16);
    bench.step(0, 0, Step::Fork);
    assert_eq!(bench.move_to(at, 16, Some(0)).moved, 16);
    assert_eq!(bench.shown(at).0, frames, "the test needs the same frames");
    bench.store_all(at, 16);
    (at..at + 16).for_each(|at| bench.step(1, 1, Step::Load(at)));
    assert_eq!(bench.mm.validate(), Ok(()));
}
